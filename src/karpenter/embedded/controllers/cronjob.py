"""CronJobs: a Job at every turn of the schedule, and none too many kept."""

from typing import Any

import msgspec

from karpenter.base.clock import Clock, format_time, parse_time
from karpenter.base.cron import parse_cron
from karpenter.base.metrics import Metrics
from karpenter.base.randomness import Random
from karpenter.embedded.controllers.job import finished_condition
from karpenter.embedded.controllers.kinds import CronJob, Job
from karpenter.embedded.controllers.pods import (
    OWNER_INDEX,
    create_unless_there,
    decode,
    own_key,
    owner_index,
    owner_key,
    owner_reference,
)
from karpenter.kube.errors import NotFound
from karpenter.kube.informer import Cache
from karpenter.kube.patch import merge
from karpenter.runtime import Controller, Result


class CronPlan(msgspec.Struct, frozen=True):
    """The turn to start a Job for, Jobs to delete, and when to look again."""

    start: float | None
    delete: list[Job]
    look_again: float | None


def plan_cronjob(cronjob: CronJob, jobs: list[Job], now: float) -> CronPlan:
    """Decide what a CronJob does at `now`.

    Of several missed turns only the latest is made up for, and only within startingDeadlineSeconds.

    Raises:
        ValueError: when the schedule is not one.
    """
    spec = cronjob.spec
    cron = parse_cron(spec.schedule)
    doomed = _beyond_history(cronjob, jobs)
    following = cron.next_after(now)
    look_again = following - now if following is not None else None  # a schedule may have no further turn
    if spec.suspend or cronjob.deleting:
        return CronPlan(None, doomed, look_again)
    since = cronjob.status.last_schedule_time or cronjob.metadata.creation_timestamp
    earliest = parse_time(since) if since else now
    if spec.starting_deadline_seconds is not None:
        earliest = max(earliest, now - spec.starting_deadline_seconds)
    due: float | None = None
    turn = cron.next_after(earliest)
    if turn is not None and turn <= now:
        due = max(turn, cron.previous(now + 1e-3) or turn)
    active = [j for j in jobs if not finished_condition(j) and not j.deleting]
    if due is not None and active:
        if spec.concurrency_policy == "Forbid":
            due = None
        elif spec.concurrency_policy == "Replace":
            doomed = [*doomed, *active]
    return CronPlan(due, doomed, look_again)


def _beyond_history(cronjob: CronJob, jobs: list[Job]) -> list[Job]:
    doomed: list[Job] = []
    for outcome, limit in (
        ("Complete", cronjob.spec.successful_jobs_history_limit),
        ("Failed", cronjob.spec.failed_jobs_history_limit),
    ):
        ended = [j for j in jobs if finished_condition(j) == outcome and not j.deleting]
        ended.sort(key=lambda j: (j.status.start_time or "", j.name))
        doomed += ended[: max(0, len(ended) - limit)]
    return doomed


def job_for(cronjob: CronJob, turn: float) -> dict[str, Any]:
    """Return the Job of one turn; its name depends on the turn only, so it is never made twice."""
    given = decode(cronjob.spec.job_template.metadata)
    metadata: dict[str, Any] = {
        "name": f"{cronjob.name}-{int(turn) // 60}",
        "namespace": cronjob.namespace,
        "annotations": {
            **(given.get("annotations") or {}),
            "batch.kubernetes.io/cronjob-scheduled-timestamp": format_time(turn),
        },
        "labels": given.get("labels") or {},
        "ownerReferences": [owner_reference(cronjob)],
    }
    spec = decode(cronjob.spec.job_template.spec)
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}


class CronJobController:
    """Starts Jobs by schedule."""

    def __init__(self, cache: Cache, *, clock: Clock, rng: Random, metrics: Metrics) -> None:
        self._client = cache.client
        self._clock = clock
        self._cronjobs = cache.informer(CronJob)
        self._jobs = cache.informer(Job)
        self._jobs.add_index(OWNER_INDEX, owner_index)
        self.controller = Controller(
            "cronjob", self.reconcile, clock=clock, rng=rng, metrics=metrics, concurrency=2
        )
        self.controller.watch(self._cronjobs, own_key)
        self.controller.watch(self._jobs, owner_key("CronJob"))

    async def reconcile(self, key: str) -> Result:
        """Start what is due for one CronJob and report."""
        namespace, _, name = key.partition("/")
        cronjob = self._cronjobs.get(name, namespace)
        if cronjob is None:
            return Result()
        jobs = self._jobs.by_index(OWNER_INDEX, cronjob.metadata.uid)
        plan = plan_cronjob(cronjob, jobs, self._clock.now())
        for job in plan.delete:
            try:
                await self._client.delete(Job, job.name, namespace=namespace)
            except NotFound:
                continue
        status = self._status(cronjob, jobs)
        if plan.start is not None:
            path = Job.resource.path(namespace)
            await create_unless_there(self._client, path, job_for(cronjob, plan.start))
            status["lastScheduleTime"] = format_time(plan.start)
        current = msgspec.to_builtins(cronjob.status)
        if any(current.get(field) != value for field, value in status.items()):
            try:
                await self._client.patch(
                    CronJob, name, merge({"status": status}), namespace=namespace, subresource="status"
                )
            except NotFound:
                return Result()
        return Result(plan.look_again)

    def _status(self, cronjob: CronJob, jobs: list[Job]) -> dict[str, Any]:
        active = [
            {
                "apiVersion": "batch/v1",
                "kind": "Job",
                "name": j.name,
                "namespace": j.namespace,
                "uid": j.metadata.uid,
            }
            for j in jobs
            if not finished_condition(j)
        ]
        status: dict[str, Any] = {"active": active}
        ends = [j.status.completion_time for j in jobs if j.status.completion_time]
        if ends:
            status["lastSuccessfulTime"] = max(ends)
        return status
