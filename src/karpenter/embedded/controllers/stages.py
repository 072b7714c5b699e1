"""How simulated kubelets behave, as data: which state leads after which delay to which patch.

A stage applies to an object when its `applies` holds; the first of a table that applies is the one an object
is in. After the stage's delay the kubelet writes what `patch` returns (None: deletes the object). Times and
exit codes of single objects can be set by annotation, named as kwok's stages name theirs.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from karpenter.apis.core import Node, Pod
from karpenter.base.clock import format_time
from karpenter.base.duration import parse_duration
from karpenter.base.randomness import Random

FAKE_NODE = "kwok.x-k8s.io/node"
READY_DELAY = "pod-ready.stage.kwok.x-k8s.io/delay"
COMPLETE_DELAY = "pod-complete.stage.kwok.x-k8s.io/delay"
EXIT_CODE = "pod-complete.stage.kwok.x-k8s.io/exit-code"
NODE_READY_DELAY = "node-ready.stage.kwok.x-k8s.io/delay"
DEFAULT_GRACE_SECONDS = 30


class KubeletLatencies(msgspec.Struct, frozen=True, kw_only=True):
    """How long things take on simulated nodes, in seconds."""

    node_boot: float = 0.5  # from the Node's creation to Ready
    pod_start: float = 0.5  # image pull and start
    pod_ready: float = 0.0  # from started to ready
    pod_stop: float = 0.2  # how long a terminating pod takes, at most its grace period
    job_run: float = 10.0  # how long a pod that may end runs
    jitter: float = 0.2  # share of each delay that chance may add
    heartbeat: float = 0.0  # between renewals of node leases; 0: none


class Subject(msgspec.Struct):
    """A pod or node, with what its stages need to know beside it."""

    object: Any
    address: str = ""  # the pod's IP, or the node's


class Stage(msgspec.Struct, frozen=True):
    """One row of the table."""

    name: str
    applies: Callable[[Any], bool]
    delay: Callable[[Any, KubeletLatencies], float]
    patch: Callable[[Subject, float], dict[str, Any]] | None  # the status to write; None: delete
    log_line: str = ""
    jitters: bool = True


def next_stage(table: tuple[Stage, ...], obj: Pod | Node) -> Stage | None:
    """Return the stage an object is in (None: it stays as it is)."""
    return next((stage for stage in table if stage.applies(obj)), None)


def delay_of(stage: Stage, obj: Pod | Node, latencies: KubeletLatencies, rng: Random) -> float:
    """Return how many seconds the object stays in the stage."""
    seconds = stage.delay(obj, latencies)
    return seconds * (1.0 + latencies.jitter * rng.random()) if stage.jitters and seconds > 0 else seconds


# --- reading -----------------------------------------------------------------------------------------------


def _annotated_seconds(obj: Pod | Node, annotation: str, default: float) -> float:
    text = obj.metadata.annotations.get(annotation)
    if not text:
        return default
    try:
        return parse_duration(text)
    except ValueError:
        return default


def _stop_seconds(pod: Pod, latencies: KubeletLatencies) -> float:
    grace = pod.metadata.deletion_grace_period_seconds
    if grace is None:
        grace = pod.spec.termination_grace_period_seconds
    return min(latencies.pod_stop, float(DEFAULT_GRACE_SECONDS if grace is None else grace))


def _may_end(pod: Pod) -> bool:
    return COMPLETE_DELAY in pod.metadata.annotations or any(
        owner.kind == "Job" for owner in pod.metadata.owner_references
    )


def exit_code(pod: Pod) -> int:
    """Return what the pod's containers will end with."""
    text = pod.metadata.annotations.get(EXIT_CODE, "0")
    return int(text) if text.isdigit() else 0


# --- writing -----------------------------------------------------------------------------------------------


def _condition(type: str, status: str, moment: str, reason: str = "", message: str = "") -> dict[str, Any]:
    condition = {"type": type, "status": status, "lastTransitionTime": moment, "lastProbeTime": None}
    if reason:
        condition["reason"] = reason
    if message:
        condition["message"] = message
    return condition


def _container_statuses(pod: Pod, state: dict[str, Any], *, ready: bool) -> list[dict[str, Any]]:
    return [
        {
            "name": container.name,
            "image": container.image,
            "imageID": f"simulated://{container.image}",
            "containerID": f"simulated://{pod.metadata.uid}/{container.name}",
            "ready": ready,
            "started": ready,
            "restartCount": 0,
            "lastState": {},
            "state": state,
        }
        for container in pod.spec.containers
    ]


def _started(subject: Subject, now: float, *, ready: bool) -> dict[str, Any]:
    pod: Pod = subject.object
    moment = format_time(now)
    status = "True" if ready else "False"
    reason = ("", "") if ready else ("ContainersNotReady", "containers are not ready")
    return {
        "phase": "Running",
        "startTime": pod.status.start_time or moment,
        "hostIP": "10.0.0.1",
        "podIP": subject.address,
        "podIPs": [{"ip": subject.address}],
        "conditions": [
            _condition("PodReadyToStartContainers", "True", moment),
            _condition("Initialized", "True", moment),
            _condition("Ready", status, moment, *reason),
            _condition("ContainersReady", status, moment, *reason),
        ],
        "containerStatuses": _container_statuses(pod, {"running": {"startedAt": moment}}, ready=ready),
    }


def _made_ready(subject: Subject, now: float) -> dict[str, Any]:
    moment = format_time(now)
    return {
        "conditions": [_condition("Ready", "True", moment), _condition("ContainersReady", "True", moment)],
        "containerStatuses": _container_statuses(
            subject.object, {"running": {"startedAt": moment}}, ready=True
        ),
    }


def _ended(subject: Subject, now: float) -> dict[str, Any]:
    pod: Pod = subject.object
    moment = format_time(now)
    code = exit_code(pod)
    reason = "Completed" if code == 0 else "Error"
    done = "PodCompleted" if code == 0 else "PodFailed"
    state = {
        "terminated": {
            "exitCode": code,
            "reason": reason,
            "startedAt": pod.status.start_time,
            "finishedAt": moment,
        }
    }
    return {
        "phase": "Succeeded" if code == 0 else "Failed",
        "conditions": [
            _condition("Ready", "False", moment, done),
            _condition("ContainersReady", "False", moment, done),
        ],
        "containerStatuses": _container_statuses(pod, state, ready=False),
    }


def _booted(subject: Subject, now: float) -> dict[str, Any]:
    node: Node = subject.object
    moment = format_time(now)
    ready = _condition("Ready", "True", moment, "KubeletReady", "kubelet is posting ready status")
    pressures = [
        _condition(f"{name}Pressure", "False", moment, f"KubeletHasSufficient{name}")
        for name in ("Memory", "Disk", "PID")
    ]
    conditions = [{**c, "lastHeartbeatTime": moment} for c in (*pressures, ready)]
    for condition in conditions:
        del condition["lastProbeTime"]
    status: dict[str, Any] = {
        "phase": "Running",
        "conditions": conditions,
        "addresses": [
            {"type": "InternalIP", "address": subject.address},
            {"type": "Hostname", "address": node.name},
        ],
        "nodeInfo": {
            "architecture": node.metadata.labels.get("kubernetes.io/arch", "amd64"),
            "operatingSystem": node.metadata.labels.get("kubernetes.io/os", "linux"),
            "kubeletVersion": "simulated",
            "kubeProxyVersion": "simulated",
            "containerRuntimeVersion": "simulated",
            "kernelVersion": "simulated",
            "osImage": "simulated",
            "bootID": node.metadata.uid,
            "machineID": node.metadata.uid,
            "systemUUID": node.metadata.uid,
        },
    }
    # A kubelet reports both; whichever the creator left out follows the other.
    if not node.status.capacity and node.status.allocatable:
        status["capacity"] = dict(node.status.allocatable)
    if not node.status.allocatable and node.status.capacity:
        status["allocatable"] = dict(node.status.capacity)
    return status


POD_STAGES: tuple[Stage, ...] = (
    Stage("pod-delete", lambda pod: pod.deleting, _stop_seconds, None, "stopped", jitters=False),
    Stage(
        "pod-start-not-ready",
        lambda pod: pod.status.phase in ("", "Pending") and READY_DELAY in pod.metadata.annotations,
        lambda pod, latencies: latencies.pod_start,
        lambda subject, now: _started(subject, now, ready=False),
        "started",
    ),
    Stage(
        "pod-start",
        lambda pod: pod.status.phase in ("", "Pending"),
        lambda pod, latencies: latencies.pod_start,
        lambda subject, now: _started(subject, now, ready=True),
        "started",
    ),
    Stage(
        "pod-ready",
        lambda pod: pod.status.phase == "Running" and _says(pod, "Ready", "ContainersNotReady"),
        lambda pod, latencies: _annotated_seconds(pod, READY_DELAY, latencies.pod_ready),
        _made_ready,
        "ready",
        jitters=False,
    ),
    Stage(
        "pod-complete",
        lambda pod: pod.status.phase == "Running" and _may_end(pod),
        lambda pod, latencies: _annotated_seconds(pod, COMPLETE_DELAY, latencies.job_run),
        _ended,
        "completed",
        jitters=False,
    ),
)
"""The life of a pod bound to a simulated node."""

NODE_STAGES: tuple[Stage, ...] = (
    Stage(
        "node-initialize",
        lambda node: not node.deleting and not any(c.type == "Ready" for c in node.status.conditions),
        lambda node, latencies: _annotated_seconds(node, NODE_READY_DELAY, latencies.node_boot),
        _booted,
    ),
)
"""The life of a simulated node: it boots; everything later is somebody else's doing."""


def _says(pod: Pod, type: str, reason: str) -> bool:
    return any(c.type == type and c.status == "False" and c.reason == reason for c in pod.status.conditions)


def pod_stages(latencies: KubeletLatencies) -> tuple[Stage, ...]:
    """Return the table for pods: readiness comes with the start, unless it takes time of its own."""
    if latencies.pod_ready <= 0:
        return POD_STAGES
    always = [
        msgspec.structs.replace(s, applies=lambda pod: pod.status.phase in ("", "Pending"))
        if s.name == "pod-start-not-ready"
        else s
        for s in POD_STAGES
    ]
    return tuple(always)
