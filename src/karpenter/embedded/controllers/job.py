"""Jobs: pods until enough have succeeded, too many have failed, or time is up.

A finished pod is counted once however often the controller restarts: the pod keeps a finalizer until its end
is in the Job's status, and the status remembers whose finalizers are still to be removed.
"""

from typing import Any

import msgspec

from karpenter.apis.core import Pod
from karpenter.base.clock import Clock, format_time, parse_time
from karpenter.base.metrics import Metrics
from karpenter.base.randomness import Random
from karpenter.embedded.controllers.kinds import Job, JobStatus
from karpenter.embedded.controllers.pods import (
    Expectations,
    decode,
    delete_pod,
    is_active,
    is_ready,
    own_key,
    owned_by,
    owner_key,
    pod_cache,
    pod_from,
    post,
    watch_pods,
)
from karpenter.kube.errors import Conflict, NotFound
from karpenter.kube.informer import Cache, Change
from karpenter.kube.patch import merge
from karpenter.runtime import Controller, Requeue, Result

TRACKING = "batch.kubernetes.io/job-tracking"
INDEX = "batch.kubernetes.io/job-completion-index"
FIRST_BACKOFF_SECONDS = 10.0
MAX_BACKOFF_SECONDS = 600.0


class JobPlan(msgspec.Struct, frozen=True):
    """Pods to create (their indexes; -1: no index) and delete, finalizers to remove, the status to write."""

    create: list[int]
    delete: list[Pod]
    untrack: list[Pod]
    status: dict[str, Any]
    look_again: float | None = None
    remove: bool = False


def finished_condition(job: Job) -> str:
    """Return `Complete` or `Failed` once the Job is over."""
    return next(
        (c.type for c in job.status.conditions if c.type in ("Complete", "Failed") and c.status == "True"), ""
    )


def parse_indexes(text: str) -> set[int]:
    """Return the numbers of a list such as `0-2,5`."""
    result: set[int] = set()
    for part in filter(None, text.split(",")):
        low, _, high = part.partition("-")
        result.update(range(int(low), int(high or low) + 1))
    return result


def format_indexes(indexes: set[int]) -> str:
    """Return numbers as a list of ranges such as `0-2,5`."""
    parts: list[str] = []
    ordered = sorted(indexes)
    position = 0
    while position < len(ordered):
        end = position
        while end + 1 < len(ordered) and ordered[end + 1] == ordered[end] + 1:
            end += 1
        low, high = ordered[position], ordered[end]
        parts.append(str(low) if low == high else f"{low}-{high}")
        position = end + 1
    return ",".join(parts)


def index_of(pod: Pod) -> int:
    """Return a pod's completion index (-1: none)."""
    text = pod.metadata.annotations.get(INDEX, "")
    return int(text) if text.isdigit() else -1


def plan_job(job: Job, pods: list[Pod], now: float, *, last_failure: float | None = None) -> JobPlan:
    """Decide a Job's next step; `last_failure` delays the replacement of failed pods."""
    status, spec = job.status, job.spec
    counted = set(status.uncounted.succeeded) | set(status.uncounted.failed)
    tracked = [p for p in pods if TRACKING in p.metadata.finalizers]
    succeeded = [p for p in tracked if p.status.phase == "Succeeded" and p.metadata.uid not in counted]
    failed = [
        p
        for p in tracked
        if p.status.phase != "Succeeded"
        and (p.status.phase == "Failed" or p.deleting)
        and p.metadata.uid not in counted
    ]
    untrack = [p for p in tracked if p.metadata.uid in counted]
    pending = {p.metadata.uid for p in untrack}
    indexed = spec.completion_mode == "Indexed"
    done_indexes = parse_indexes(status.completed_indexes) | {index_of(p) for p in succeeded}
    done_indexes.discard(-1)
    total_succeeded = len(done_indexes) if indexed else status.succeeded + len(succeeded)
    total_failed = status.failed + len(failed)
    active = [p for p in pods if is_active(p)]
    over = finished_condition(job)
    conditions = [msgspec.to_builtins(c) for c in status.conditions]
    wanted_total = (
        spec.completions if spec.completions is not None else (1 if spec.parallelism is None else None)
    )
    create: list[int] = []
    delete: list[Pod] = []
    look_again: float | None = None
    if not over:
        verdict = _verdict(job, wanted_total, total_succeeded, total_failed, len(active), now)
        if verdict is not None:
            conditions += _conditions(*verdict, now=now)
            over = verdict[0]
    conditions = _suspended(conditions, spec.suspend and not over, now)
    if over or spec.suspend:
        delete = active
    else:
        want = _wanted_active(job, wanted_total, total_succeeded)
        if len(active) > want:
            delete = sorted(active, key=lambda p: (is_ready(p), p.name))[: len(active) - want]
        elif len(active) < want:
            wait = _backoff_left(total_failed, last_failure, now) if not failed else FIRST_BACKOFF_SECONDS
            if wait > 0:
                look_again = wait
            else:
                create = _indexes_to_run(wanted_total, active, done_indexes, want - len(active), indexed)
    if spec.active_deadline_seconds is not None and status.start_time and not over:
        left = parse_time(status.start_time) + spec.active_deadline_seconds - now
        look_again = left if look_again is None else min(look_again, left)
    remove = False
    if over and spec.ttl_seconds_after_finished is not None:
        ended = next(c["lastTransitionTime"] for c in conditions if c["type"] == over)
        left = parse_time(ended) + spec.ttl_seconds_after_finished - now
        remove = left <= 0 and not job.deleting
        look_again = None if remove else left
    document: dict[str, Any] = {
        "active": len(active),
        "ready": sum(is_ready(p) for p in active),
        "succeeded": total_succeeded,
        "failed": total_failed,
        "startTime": status.start_time or (None if spec.suspend else format_time(now)),
        "uncountedTerminatedPods": {
            "succeeded": sorted(
                [u for u in status.uncounted.succeeded if u in pending] + [p.metadata.uid for p in succeeded]
            ),
            "failed": sorted(
                [u for u in status.uncounted.failed if u in pending] + [p.metadata.uid for p in failed]
            ),
        },
        "conditions": conditions,
    }
    if indexed:
        document["completedIndexes"] = format_indexes(done_indexes)
    if over == "Complete":
        document["completionTime"] = status.completion_time or format_time(now)
    return JobPlan(create, delete, untrack, document, look_again, remove)


def _verdict(
    job: Job, wanted: int | None, succeeded: int, failed: int, active: int, now: float
) -> tuple[str, str, str] | None:
    spec = job.spec
    if failed > spec.backoff_limit:
        return "Failed", "BackoffLimitExceeded", "Job has reached the specified backoff limit"
    deadline = spec.active_deadline_seconds
    if deadline is not None and job.status.start_time and now >= parse_time(job.status.start_time) + deadline:
        return "Failed", "DeadlineExceeded", "Job was active longer than specified deadline"
    if wanted is not None and succeeded >= wanted:
        return "Complete", "CompletionsReached", "Reached expected number of succeeded pods"
    if wanted is None and succeeded > 0 and active == 0:
        return "Complete", "CompletionsReached", "Reached expected number of succeeded pods"
    return None


def _conditions(type: str, reason: str, message: str, *, now: float) -> list[dict[str, Any]]:
    moment = format_time(now)
    first = "SuccessCriteriaMet" if type == "Complete" else "FailureTarget"
    return [
        {
            "type": each,
            "status": "True",
            "reason": reason,
            "message": message,
            "lastProbeTime": moment,
            "lastTransitionTime": moment,
        }
        for each in (first, type)
    ]


def _suspended(conditions: list[dict[str, Any]], suspend: bool, now: float) -> list[dict[str, Any]]:
    """Return the conditions with `Suspended` as it is; a Job that never was has none."""
    wanted = "True" if suspend else "False"
    held = next((c for c in conditions if c["type"] == "Suspended"), None)
    if (held is None and not suspend) or (held is not None and held["status"] == wanted):
        return conditions
    moment = format_time(now)
    reason, message = ("JobSuspended", "Job suspended") if suspend else ("JobResumed", "Job resumed")
    changed = {
        "type": "Suspended",
        "status": wanted,
        "reason": reason,
        "message": message,
        "lastProbeTime": moment,
        "lastTransitionTime": moment,
    }
    return [c for c in conditions if c is not held] + [changed]


def _wanted_active(job: Job, wanted: int | None, succeeded: int) -> int:
    parallelism = 1 if job.spec.parallelism is None else job.spec.parallelism
    if wanted is None:
        return 0 if succeeded else parallelism
    return max(0, min(parallelism, wanted - succeeded))


def _backoff_left(failed: int, last_failure: float | None, now: float) -> float:
    if failed == 0 or last_failure is None:
        return 0.0
    pause = min(MAX_BACKOFF_SECONDS, FIRST_BACKOFF_SECONDS * float(1 << min(failed - 1, 16)))
    return last_failure + pause - now


def _indexes_to_run(
    wanted: int | None, active: list[Pod], done: set[int], count: int, indexed: bool
) -> list[int]:
    if not indexed:
        return [-1] * count
    running = {index_of(p) for p in active}
    free = [i for i in range(wanted or 0) if i not in done and i not in running]
    return free[:count]


def pod_for(job: Job, index: int) -> dict[str, Any]:
    """Return a pod of the Job (with its completion index, unless -1)."""
    labels = {
        "batch.kubernetes.io/controller-uid": job.metadata.uid,
        "batch.kubernetes.io/job-name": job.name,
        "controller-uid": job.metadata.uid,
        "job-name": job.name,
    }
    annotations: dict[str, str] = {}
    if index >= 0:
        labels[INDEX] = annotations[INDEX] = str(index)
    template = decode(job.spec.template)
    restart = (template.get("spec") or {}).get("restartPolicy") or "Never"
    document = pod_from(
        template,
        job,
        labels=labels,
        annotations=annotations,
        finalizers=[TRACKING],
        spec={"restartPolicy": restart},
    )
    if index >= 0:
        document["metadata"]["generateName"] = f"{job.name}-{index}-"
    return document


class JobController:
    """Runs Jobs to their end."""

    def __init__(self, cache: Cache, *, clock: Clock, rng: Random, metrics: Metrics) -> None:
        self._client = cache.client
        self._clock = clock
        self._jobs = cache.informer(Job)
        self._pods = pod_cache(cache)
        self._expectations = Expectations(clock)
        self._last_failure: dict[str, float] = {}
        self._owner = owner_key("Job")
        self.controller = Controller(
            "job", self.reconcile, clock=clock, rng=rng, metrics=metrics, concurrency=4
        )
        self._pods.subscribe(self._observe)
        self.controller.watch(self._jobs, own_key)
        watch_pods(self.controller, self._pods, self._owner)

    def _observe(self, change: Change[Pod]) -> None:
        for key in self._owner(change):
            self._expectations.observe(key, change)

    async def reconcile(self, key: str) -> Result:
        """Take one Job one step further and report."""
        namespace, _, name = key.partition("/")
        job = self._jobs.get(name, namespace)
        if job is None:
            self._last_failure.pop(key, None)
            await self._release_orphans(namespace, name)
            return Result()
        if not self._expectations.satisfied(key):
            return Result()
        now = self._clock.now()
        pods = owned_by(self._pods, job)
        plan = plan_job(job, pods, now, last_failure=self._last_failure.get(job.metadata.uid))
        if plan.remove:
            await self._client.delete(Job, name, namespace=namespace, uid=job.metadata.uid)
            return Result()
        if plan.status["failed"] > job.status.failed:
            self._last_failure[job.metadata.uid] = now
        if _differs(job.status, plan.status):
            counts = ("active", "succeeded", "failed")  # shown unless zero
            shown = {name: value or None if name in counts else value for name, value in plan.status.items()}
            patch = merge({"status": shown}, resource_version=job.metadata.resource_version)
            try:
                await self._client.patch(Job, name, patch, namespace=namespace, subresource="status")
            except Conflict as error:
                raise Requeue(str(error)) from error  # counted from an old status; read again
            except NotFound:
                return Result()
        for pod in plan.untrack:
            await self._untrack(pod)
        if not job.deleting:
            await self._scale(key, job, plan)
        return Result(plan.look_again)

    async def _scale(self, key: str, job: Job, plan: JobPlan) -> None:
        path = Pod.resource.path(job.namespace)
        for index in plan.create:
            created = await post(self._client, path, msgspec.json.encode(pod_for(job, index)))
            seen = self._pods.get(created.name, job.namespace)
            if seen is None or seen.metadata.uid != created.uid:
                self._expectations.expect(key, created.uid)
        for pod in plan.delete:
            self._expectations.expect(key, f"-{pod.metadata.uid}")
            await delete_pod(self._client, pod)

    async def _untrack(self, pod: Pod) -> None:
        rest = [f for f in pod.metadata.finalizers if f != TRACKING]
        document = {"metadata": {"uid": pod.metadata.uid, "finalizers": rest or None}}
        try:
            await self._client.patch(Pod, pod.name, merge(document), namespace=pod.namespace)
        except (NotFound, Conflict):
            return

    async def _release_orphans(self, namespace: str, name: str) -> None:
        """Let go of the pods of a Job that is gone; nobody will count them."""
        for pod in self._pods.items():
            if (
                pod.namespace == namespace
                and TRACKING in pod.metadata.finalizers
                and any(
                    o.controller and o.kind == "Job" and o.name == name for o in pod.metadata.owner_references
                )
            ):
                await self._untrack(pod)


def _differs(status: JobStatus, wanted: dict[str, Any]) -> bool:
    current = {
        "active": status.active,
        "ready": status.ready,
        "succeeded": status.succeeded,
        "failed": status.failed,
        "startTime": status.start_time,
        "uncountedTerminatedPods": {
            "succeeded": sorted(status.uncounted.succeeded),
            "failed": sorted(status.uncounted.failed),
        },
    }
    before = {c.type: c.status for c in status.conditions}
    return {c["type"]: c["status"] for c in wanted["conditions"]} != before or any(
        wanted[field] != value for field, value in current.items()
    )
