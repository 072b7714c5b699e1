"""The eviction queue: every pod that has to go is asked to, through the Eviction API, until it has.

PodDisruptionBudgets are the API server's to judge; its "not now" is tried again with back-off and told as an
event that names the budget and its arithmetic. Only a pod that would outlive its node's deadline is deleted.
"""

import structlog

from karpenter.apis.conditions import get
from karpenter.apis.core import Node, Pod
from karpenter.apis.selectors import label_selector_matches
from karpenter.apis.workloads import PodDisruptionBudget
from karpenter.base.timestamps import format_time
from karpenter.controllers.context import Context
from karpenter.controllers.node.blockers import Blockers
from karpenter.controllers.node.drain import grace_seconds, needs_force_delete
from karpenter.kube.errors import ApiError, Conflict, NotFound, TooManyRequests
from karpenter.kube.informer import Change
from karpenter.model import pods as podlib
from karpenter.runtime import Backoff, Controller, Requeue, Result

log = structlog.get_logger()

_SEVERAL_BUDGETS = "more than one PodDisruptionBudget"
_FORCEFUL = "Forceful Termination"


class EvictionQueue:
    """Pods on their way out, by key, each with its node's deadline."""

    def __init__(self, context: Context, blockers: Blockers | None = None) -> None:
        self._context = context
        self._blockers = blockers or Blockers(context)
        self._pods = context.cache.informer(Pod)
        self._nodes = context.cache.informer(Node)
        self._wanted: dict[str, tuple[str, float | None]] = {}
        self._requests = context.metrics.counter(
            "karpenter_pods_eviction_requests_total", "Replies of the Eviction API.", ["code"]
        )
        self._drained = context.metrics.counter(
            "karpenter_pods_drained_total", "Pods evicted or deleted by a drain.", ["reason"]
        )
        self.controller = Controller(
            "eviction-queue",
            self._reconcile,
            clock=context.clock,
            rng=context.rng,
            metrics=context.metrics,
            concurrency=context.settings.concurrency(100, 5000),
            backoff=Backoff(0.1, 10.0),
        )
        context.cache.informer(PodDisruptionBudget).subscribe(self._on_budget)

    def _on_budget(self, change: Change[PodDisruptionBudget]) -> None:
        """Try at once, past their back-off, as many pods as a budget newly allows; all when it is gone."""
        budget, gone = change.object, change.type == "DELETED"
        allowed = budget.status.disruptions_allowed
        before = change.old.status.disruptions_allowed if change.old is not None else 0
        if not gone and allowed <= before:
            return
        held = [key for key in sorted(self._wanted) if self._is_covered(key, budget)]
        for key in held if gone else held[:allowed]:
            self.controller.enqueue(key)

    def _is_covered(self, key: str, budget: PodDisruptionBudget) -> bool:
        namespace, _, name = key.partition("/")
        pod = self._pods.get(name, namespace) if namespace == budget.namespace else None
        return pod is not None and label_selector_matches(budget.spec.selector, pod.metadata.labels)

    def add(self, pod: Pod, deadline: float | None) -> None:
        """Ask for the end of `pod`; of two deadlines the earlier counts."""
        known = self._wanted.get(pod.key)
        asked = known is not None and known[0] == pod.metadata.uid
        if known is not None and asked:
            deadline = min((d for d in (known[1], deadline) if d is not None), default=None)
        self._wanted[pod.key] = (pod.metadata.uid, deadline)
        if not asked or needs_force_delete(pod, self._context.clock.now(), deadline):
            self.controller.enqueue(pod.key)  # past any back-off: what is forced needs all of its grace

    async def _reconcile(self, key: str) -> Result:
        namespace, _, name = key.partition("/")
        uid, deadline = self._wanted.get(key, ("", None))
        pod = self._pods.get(name, namespace)
        if pod is None or pod.metadata.uid != uid:
            self._wanted.pop(key, None)
            return Result()
        now = self._context.clock.now()
        if deadline is not None and needs_force_delete(pod, now, deadline):
            await self._delete(pod, now, deadline)
        elif podlib.is_active(pod):
            if not podlib.is_evictable(pod, now):
                raise Requeue
            await self._evict(pod)
        self._wanted.pop(key, None)  # a drain that still waits for it asks again
        return Result()

    async def _evict(self, pod: Pod) -> None:
        try:
            await self._context.client.evict(pod.name, pod.namespace, uid=pod.metadata.uid)
        except (NotFound, Conflict) as error:
            self._requests.labels(str(error.status)).inc()
            return
        except ApiError as error:
            self._requests.labels(str(error.status)).inc()
            if isinstance(error, TooManyRequests) or _SEVERAL_BUDGETS in error.message:
                self._tell_blocked(pod, error)
                raise Requeue from error
            raise
        self._requests.labels("200").inc()
        self._gone(pod, "Evicted", "Evicted pod: ")

    async def _delete(self, pod: Pod, now: float, deadline: float) -> None:
        grace = grace_seconds(now, deadline)
        first = podlib.is_active(pod)  # else it was asked to go before, and only its grace is cut now
        self._context.recorder.publish(
            pod,
            "Normal",
            "Disrupted",
            f"Deleting the pod to accommodate the termination time {format_time(deadline)} of the node. "
            f"The pod was granted {grace} seconds of grace-period of its "
            f"{pod.spec.termination_grace_period_seconds} terminationGracePeriodSeconds. "
            "This bypasses the PDB of the pod and the do-not-disrupt annotation.",
            dedupe=(pod.name,),
        )
        try:
            await self._context.client.delete(
                Pod,
                pod.name,
                namespace=pod.namespace,
                uid=pod.metadata.uid,
                grace_period_seconds=grace,
            )
        except (NotFound, Conflict):
            return
        if first:
            self._drained.labels(self._reason(pod)).inc()

    def _gone(self, pod: Pod, event: str, message: str) -> None:
        reason = self._reason(pod)
        self._context.recorder.publish(pod, "Normal", event, message + reason, dedupe=(pod.name,))
        self._drained.labels(reason).inc()
        log.debug("evicted pod", Pod=pod.key, Node=pod.spec.node_name, reason=reason)

    def _tell_blocked(self, pod: Pod, error: ApiError) -> None:
        node = self._nodes.get(pod.spec.node_name)
        if node is not None:
            self._blockers.tell_refused(node, pod, error.message)

    def _reason(self, pod: Pod) -> str:
        """Return why the pod's node goes."""
        node = self._nodes.get(pod.spec.node_name)
        claim = self._context.cluster.claim_for(node.spec.provider_id) if node else None
        condition = get(claim.status.conditions, "DisruptionReason") if claim else None
        return condition.reason if condition and condition.status == "True" else _FORCEFUL
