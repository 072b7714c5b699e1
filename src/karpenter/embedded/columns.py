"""The columns kubectl users know, per built-in kind. Pure: an object and the time in, cells out."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from karpenter.base.clock import parse_time
from karpenter.embedded.ages import age, short_duration

Json = Mapping[str, Any]
Cells = Callable[[Json, float], list[Any]]


class Column(NamedTuple):
    """A table column; priority 1 shows with `-o wide` only."""

    name: str
    type: str = "string"
    priority: int = 0
    format: str = ""
    description: str = ""


class Printer(NamedTuple):
    """How one kind is printed."""

    columns: tuple[Column, ...]
    cells: Cells


def dig(obj: Any, path: str, default: Any = None) -> Any:
    """Return what is at a dotted path."""
    for name in path.split("."):
        obj = obj.get(name) if isinstance(obj, Mapping) else None
    return default if obj is None else obj


def _name(obj: Json) -> str:
    return str(obj["metadata"].get("name", ""))


def _age(obj: Json, now: float) -> str:
    return age(obj["metadata"].get("creationTimestamp"), now)


def _columns(*specs: str) -> tuple[Column, ...]:
    """Build columns of `Name`, `Name:type`; a leading `+` marks wide ones."""
    columns = []
    for spec in ("Name", *specs):
        name, _, type = spec.partition(":")
        wide = name.startswith("+")
        format = "name" if spec == "Name" else ""
        columns.append(Column(name.lstrip("+"), type or "string", int(wide), format))
    return tuple(columns)


def _pod(obj: Json, now: float) -> list[Any]:
    status, spec = obj.get("status") or {}, obj.get("spec") or {}
    statuses = status.get("containerStatuses") or []
    ready = sum(1 for s in statuses if s.get("ready"))
    restarts = sum(int(s.get("restartCount", 0)) for s in statuses)
    gates = spec.get("readinessGates") or []
    true = {c["type"] for c in status.get("conditions") or [] if c.get("status") == "True"}
    passed = sum(1 for gate in gates if gate.get("conditionType") in true)
    return [
        _name(obj),
        f"{ready}/{len(spec.get('containers') or [])}",
        pod_status(obj),
        str(restarts),
        _age(obj, now),
        status.get("podIP") or "<none>",
        spec.get("nodeName") or "<none>",
        status.get("nominatedNodeName") or "<none>",
        f"{passed}/{len(gates)}" if gates else "<none>",
    ]


def pod_status(obj: Json) -> str:
    """Return the one word that sums a pod up: `Running`, `Terminating`, `SchedulingGated` …"""
    status = obj.get("status") or {}
    reason = status.get("reason") or status.get("phase") or "Unknown"
    for condition in status.get("conditions") or []:
        if condition.get("type") == "PodScheduled" and condition.get("reason") == "SchedulingGated":
            reason = "SchedulingGated"
    for container in status.get("containerStatuses") or []:
        state = container.get("state") or {}
        waiting, terminated = state.get("waiting") or {}, state.get("terminated") or {}
        if waiting.get("reason"):
            reason = waiting["reason"]
        elif terminated.get("reason"):
            reason = terminated["reason"]
    if "deletionTimestamp" in obj["metadata"]:
        return "Unknown" if status.get("reason") == "NodeLost" else "Terminating"
    return str(reason)


def _node(obj: Json, now: float) -> list[Any]:
    status, spec, meta = obj.get("status") or {}, obj.get("spec") or {}, obj["metadata"]
    ready = next((c for c in status.get("conditions") or [] if c.get("type") == "Ready"), None)
    words = ["Unknown" if ready is None else "Ready" if ready.get("status") == "True" else "NotReady"]
    if spec.get("unschedulable"):
        words.append("SchedulingDisabled")
    prefix = "node-role.kubernetes.io/"
    roles = sorted(k.removeprefix(prefix) for k in meta.get("labels") or {} if k.startswith(prefix))
    addresses = {a.get("type"): a.get("address") for a in status.get("addresses") or []}
    info = status.get("nodeInfo") or {}
    return [
        _name(obj),
        ",".join(words),
        ",".join(role for role in roles if role) or "<none>",
        _age(obj, now),
        info.get("kubeletVersion", ""),
        addresses.get("InternalIP") or "<none>",
        addresses.get("ExternalIP") or "<none>",
        info.get("osImage") or "<unknown>",
        info.get("kernelVersion") or "<unknown>",
        info.get("containerRuntimeVersion") or "<unknown>",
    ]


def _containers(obj: Json) -> tuple[str, str]:
    containers = dig(obj, "spec.template.spec.containers", [])
    names = ",".join(c.get("name", "") for c in containers)
    return names, ",".join(c.get("image", "") for c in containers)


def selector_text(selector: Any) -> str:
    """Render a label selector."""
    if not selector:
        return "<none>"
    labels = selector.get("matchLabels", {} if "matchExpressions" in selector else selector) or {}
    terms = [f"{key}={value}" for key, value in sorted(labels.items())]
    terms += [
        f"{e.get('key')} {str(e.get('operator')).lower()} ({','.join(e.get('values') or [])})"
        for e in selector.get("matchExpressions") or []
    ]
    return ",".join(terms) or "<none>"


def _deployment(obj: Json, now: float) -> list[Any]:
    desired, status = dig(obj, "spec.replicas", 1), obj.get("status") or {}
    names, images = _containers(obj)
    return [
        _name(obj),
        f"{status.get('readyReplicas', 0)}/{desired}",
        status.get("updatedReplicas", 0),
        status.get("availableReplicas", 0),
        _age(obj, now),
        names,
        images,
        selector_text(dig(obj, "spec.selector")),
    ]


def _replica_set(obj: Json, now: float) -> list[Any]:
    status = obj.get("status") or {}
    names, images = _containers(obj)
    return [
        _name(obj),
        dig(obj, "spec.replicas", 1),
        status.get("replicas", 0),
        status.get("readyReplicas", 0),
        _age(obj, now),
        names,
        images,
        selector_text(dig(obj, "spec.selector")),
    ]


def _stateful_set(obj: Json, now: float) -> list[Any]:
    ready = f"{dig(obj, 'status.readyReplicas', 0)}/{dig(obj, 'spec.replicas', 1)}"
    return [_name(obj), ready, _age(obj, now), *_containers(obj)]


def _daemon_set(obj: Json, now: float) -> list[Any]:
    status = obj.get("status") or {}
    node_selector = dig(obj, "spec.template.spec.nodeSelector", {})
    names, images = _containers(obj)
    return [
        _name(obj),
        status.get("desiredNumberScheduled", 0),
        status.get("currentNumberScheduled", 0),
        status.get("numberReady", 0),
        status.get("updatedNumberScheduled", 0),
        status.get("numberAvailable", 0),
        ",".join(f"{k}={v}" for k, v in sorted(node_selector.items())) or "<none>",
        _age(obj, now),
        names,
        images,
        selector_text(dig(obj, "spec.selector")),
    ]


def _job(obj: Json, now: float) -> list[Any]:
    status, spec = obj.get("status") or {}, obj.get("spec") or {}
    names, images = _containers(obj)
    started, finished = status.get("startTime"), status.get("completionTime")
    duration = ""
    if started:
        duration = short_duration((parse_time(finished) if finished else now) - parse_time(started))
    true = [c["type"] for c in status.get("conditions") or [] if c.get("status") == "True"]
    word = next((t for t in ("Complete", "Failed", "Suspended", "FailureTarget") if t in true), "Running")
    goal = spec.get("completions")
    completions = f"{status.get('succeeded', 0)}/" + (
        str(goal) if goal is not None else f"1 of {spec.get('parallelism', 1)}"
    )
    selector = selector_text(spec.get("selector"))
    return [_name(obj), word, completions, duration, _age(obj, now), names, images, selector]


def _cron_job(obj: Json, now: float) -> list[Any]:
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    last = status.get("lastScheduleTime")
    return [
        _name(obj),
        spec.get("schedule", ""),
        spec.get("timeZone") or "<none>",
        str(bool(spec.get("suspend"))).capitalize(),
        len(status.get("active") or []),
        age(last, now) if last else "<none>",
        _age(obj, now),
    ]


def _event(obj: Json, now: float) -> list[Any]:
    involved = obj.get("involvedObject") or {}
    last = obj.get("lastTimestamp") or obj.get("eventTime") or obj["metadata"].get("creationTimestamp")
    first = obj.get("firstTimestamp") or obj.get("eventTime") or last
    source = dig(obj, "source.component") or obj.get("reportingComponent") or ""
    return [
        age(last, now),
        obj.get("type", ""),
        obj.get("reason", ""),
        f"{str(involved.get('kind', '')).lower()}/{involved.get('name', '')}",
        involved.get("fieldPath", ""),
        source,
        str(obj.get("message", "")).strip(),
        age(first, now),
        obj.get("count") or 1,
        _name(obj),
    ]


def _service(obj: Json, now: float) -> list[Any]:
    spec = obj.get("spec") or {}
    ports = ",".join(
        f"{p.get('port')}{':' + str(p['nodePort']) if p.get('nodePort') else ''}/{p.get('protocol', 'TCP')}"
        for p in spec.get("ports") or []
    )
    external = ",".join(spec.get("externalIPs") or []) or spec.get("externalName")
    if not external:
        external = "<pending>" if spec.get("type") == "LoadBalancer" else "<none>"
    return [
        _name(obj),
        spec.get("type", "ClusterIP"),
        spec.get("clusterIP") or "<none>",
        external,
        ports or "<none>",
        _age(obj, now),
        selector_text(spec.get("selector")),
    ]


_MODES = {"ReadWriteOnce": "RWO", "ReadOnlyMany": "ROX", "ReadWriteMany": "RWX", "ReadWriteOncePod": "RWOP"}


def _modes(obj: Json) -> str:
    return ",".join(_MODES.get(mode, mode) for mode in dig(obj, "spec.accessModes", []))


def _claim(obj: Json, now: float) -> list[Any]:
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    phase = "Terminating" if "deletionTimestamp" in obj["metadata"] else status.get("phase", "")
    bound = bool(spec.get("volumeName"))
    return [
        _name(obj),
        phase,
        spec.get("volumeName", ""),
        dig(status, "capacity.storage", "") if bound else "",
        _modes(obj) if bound else "",
        spec.get("storageClassName", ""),
        spec.get("volumeAttributesClassName") or "<unset>",
        _age(obj, now),
        spec.get("volumeMode", "Filesystem"),
    ]


def _volume(obj: Json, now: float) -> list[Any]:
    spec = obj.get("spec") or {}
    claim = spec.get("claimRef") or {}
    phase = "Terminating" if "deletionTimestamp" in obj["metadata"] else dig(obj, "status.phase", "")
    return [
        _name(obj),
        dig(spec, "capacity.storage", ""),
        _modes(obj),
        spec.get("persistentVolumeReclaimPolicy", ""),
        phase,
        f"{claim.get('namespace', '')}/{claim.get('name', '')}" if claim else "",
        spec.get("storageClassName", ""),
        spec.get("volumeAttributesClassName") or "<unset>",
        dig(obj, "status.reason", ""),
        _age(obj, now),
        spec.get("volumeMode", "Filesystem"),
    ]


def _storage_class(obj: Json, now: float) -> list[Any]:
    marks = obj["metadata"].get("annotations") or {}
    default = marks.get("storageclass.kubernetes.io/is-default-class") == "true"
    return [
        _name(obj) + (" (default)" if default else ""),
        obj.get("provisioner", ""),
        obj.get("reclaimPolicy", "Delete"),
        obj.get("volumeBindingMode", "Immediate"),
        bool(obj.get("allowVolumeExpansion")),
        _age(obj, now),
    ]


def _budget(obj: Json, now: float) -> list[Any]:
    minimum, maximum = dig(obj, "spec.minAvailable", "N/A"), dig(obj, "spec.maxUnavailable", "N/A")
    allowed = dig(obj, "status.disruptionsAllowed", 0)
    return [_name(obj), str(minimum), str(maximum), allowed, _age(obj, now)]


def _simple(*paths: str) -> Cells:
    """Print plain values at paths, between name and age."""

    def cells(obj: Json, now: float) -> list[Any]:
        values = [dig(obj, path, "") for path in paths]
        return [_name(obj), *values, _age(obj, now)]

    return cells


def _counts(*paths: str) -> Cells:
    def cells(obj: Json, now: float) -> list[Any]:
        return [_name(obj), *(len(dig(obj, path, ())) for path in paths), _age(obj, now)]

    return cells


def _secret(obj: Json, now: float) -> list[Any]:
    return [_name(obj), obj.get("type", ""), len(obj.get("data") or {}), _age(obj, now)]


def _namespace(obj: Json, now: float) -> list[Any]:
    return [_name(obj), dig(obj, "status.phase", ""), _age(obj, now)]


def _priority_class(obj: Json, now: float) -> list[Any]:
    policy = obj.get("preemptionPolicy", "")
    return [_name(obj), obj.get("value", 0), bool(obj.get("globalDefault")), _age(obj, now), policy]


def _autoscaler(obj: Json, now: float) -> list[Any]:
    spec = obj.get("spec") or {}
    target = spec.get("scaleTargetRef") or {}
    return [
        _name(obj),
        f"{target.get('kind', '')}/{target.get('name', '')}",
        "<unknown>",
        str(spec.get("minReplicas", 1)),
        spec.get("maxReplicas", 0),
        dig(obj, "status.currentReplicas", 0),
        _age(obj, now),
    ]


def _definition(obj: Json, now: float) -> list[Any]:
    return [_name(obj), obj["metadata"].get("creationTimestamp", "")]


_POD_TAIL = ("Age", "+Containers", "+Images", "+Selector")
PRINTERS: Mapping[str, Printer] = {
    "pods": Printer(
        _columns("Ready", "Status", "Restarts", "Age", "+IP", "+Node", "+Nominated Node", "+Readiness Gates"),
        _pod,
    ),
    "nodes": Printer(
        _columns(
            "Status",
            "Roles",
            "Age",
            "Version",
            "+Internal-IP",
            "+External-IP",
            "+OS-Image",
            "+Kernel-Version",
            "+Container-Runtime",
        ),
        _node,
    ),
    "deployments.apps": Printer(
        _columns("Ready", "Up-to-date:integer", "Available:integer", *_POD_TAIL), _deployment
    ),
    "replicasets.apps": Printer(
        _columns("Desired:integer", "Current:integer", "Ready:integer", *_POD_TAIL), _replica_set
    ),
    "replicationcontrollers": Printer(
        _columns("Desired:integer", "Current:integer", "Ready:integer", *_POD_TAIL), _replica_set
    ),
    "statefulsets.apps": Printer(_columns("Ready", "Age", "+Containers", "+Images"), _stateful_set),
    "daemonsets.apps": Printer(
        _columns(
            "Desired:integer",
            "Current:integer",
            "Ready:integer",
            "Up-to-date:integer",
            "Available:integer",
            "Node Selector",
            *_POD_TAIL,
        ),
        _daemon_set,
    ),
    "jobs.batch": Printer(_columns("Status", "Completions", "Duration", *_POD_TAIL), _job),
    "cronjobs.batch": Printer(
        _columns("Schedule", "Timezone", "Suspend", "Active:integer", "Last Schedule", "Age"), _cron_job
    ),
    "events": Printer(
        (
            Column("Last Seen"),
            Column("Type"),
            Column("Reason"),
            Column("Object"),
            Column("Subobject", priority=1),
            Column("Source", priority=1),
            Column("Message"),
            Column("First Seen", priority=1),
            Column("Count", priority=1),
            Column("Name", priority=1, format="name"),
        ),
        _event,
    ),
    "namespaces": Printer(_columns("Status", "Age"), _namespace),
    "services": Printer(
        _columns("Type", "Cluster-IP", "External-IP", "Port(s)", "Age", "+Selector"), _service
    ),
    "persistentvolumeclaims": Printer(
        _columns(
            "Status",
            "Volume",
            "Capacity",
            "Access Modes",
            "StorageClass",
            "VolumeAttributesClass",
            "Age",
            "+VolumeMode",
        ),
        _claim,
    ),
    "persistentvolumes": Printer(
        _columns(
            "Capacity",
            "Access Modes",
            "Reclaim Policy",
            "Status",
            "Claim",
            "StorageClass",
            "VolumeAttributesClass",
            "Reason",
            "Age",
            "+VolumeMode",
        ),
        _volume,
    ),
    "storageclasses.storage.k8s.io": Printer(
        _columns("Provisioner", "ReclaimPolicy", "VolumeBindingMode", "AllowVolumeExpansion:boolean", "Age"),
        _storage_class,
    ),
    "poddisruptionbudgets.policy": Printer(
        _columns("Min Available", "Max Unavailable", "Allowed Disruptions:integer", "Age"), _budget
    ),
    "leases.coordination.k8s.io": Printer(_columns("Holder", "Age"), _simple("spec.holderIdentity")),
    "configmaps": Printer(_columns("Data:integer", "Age"), _counts("data")),
    "secrets": Printer(_columns("Type", "Data:integer", "Age"), _secret),
    "serviceaccounts": Printer(_columns("Secrets:integer", "Age"), _counts("secrets")),
    "priorityclasses.scheduling.k8s.io": Printer(
        _columns("Value:integer", "Global-Default:boolean", "Age", "+PreemptionPolicy"), _priority_class
    ),
    "horizontalpodautoscalers.autoscaling": Printer(
        _columns("Reference", "Targets", "MinPods", "MaxPods:integer", "Replicas:integer", "Age"), _autoscaler
    ),
    "csinodes.storage.k8s.io": Printer(_columns("Drivers:integer", "Age"), _counts("spec.drivers")),
    "volumeattachments.storage.k8s.io": Printer(
        _columns("Attacher", "PV", "Node", "Attached:boolean", "Age"),
        _simple("spec.attacher", "spec.source.persistentVolumeName", "spec.nodeName", "status.attached"),
    ),
    "resourceslices.resource.k8s.io": Printer(
        _columns("Node", "Driver", "Pool", "Age"), _simple("spec.nodeName", "spec.driver", "spec.pool.name")
    ),
    "runtimeclasses.node.k8s.io": Printer(_columns("Handler", "Age"), _simple("handler")),
    "customresourcedefinitions.apiextensions.k8s.io": Printer(_columns("Created At:date"), _definition),
}
DEFAULT_PRINTER = Printer(_columns("Age"), lambda obj, now: [_name(obj), _age(obj, now)])
