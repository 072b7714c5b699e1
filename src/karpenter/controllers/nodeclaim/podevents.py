"""Noting when pods last came to or went from a node; `consolidateAfter` counts from then."""

from collections.abc import Iterable

from karpenter.apis.core import Node, Pod
from karpenter.apis.karpenter import NodeClaim
from karpenter.base.timestamps import format_time, parse_time
from karpenter.controllers.context import Context
from karpenter.kube.errors import NotFound
from karpenter.kube.informer import Change
from karpenter.kube.patch import merge
from karpenter.model.pods import is_daemon, is_terminal
from karpenter.runtime import Controller, Result, Singleton

DEDUPE_SECONDS = 10.0
"""Two notes are at least that far apart; less than the wait before a disruption is validated."""


def build(context: Context) -> list[Controller | Singleton]:
    """Return the controller."""
    events = PodEvents(context)
    controller = Controller(
        "nodeclaim.podevents",
        events.reconcile,
        clock=context.clock,
        rng=context.rng,
        metrics=context.metrics,
        concurrency=10,
    )
    controller.watch(context.cache.informer(Pod), events.nodes_of)
    return [controller]


class PodEvents:
    """Keeps `status.lastPodEventTime`, by node name."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._nodes = context.cache.informer(Node)

    def nodes_of(self, change: Change[Pod]) -> Iterable[str]:
        """Return the node whose workload this change alters, if it does."""
        pod, old = change.object, change.old
        if not pod.spec.node_name or is_daemon(pod) or not self._context.cluster.synced():
            return
        bound = change.type == "ADDED" or (old is not None and not old.spec.node_name)
        ended = old is not None and is_terminal(pod) and not is_terminal(old)
        leaving = old is not None and pod.deleting and not old.deleting
        if bound or ended or leaving or change.type == "DELETED":
            yield pod.spec.node_name

    async def reconcile(self, node_name: str) -> Result:
        """Write the time down, unless that was done within ten seconds."""
        node = self._nodes.get(node_name)
        claims = self._context.cluster.claims_for(node.spec.provider_id) if node is not None else []
        if len(claims) != 1:
            return Result()
        last = claims[0].status.last_pod_event_time
        now = self._context.clock.now()
        if last and now - parse_time(last) < DEDUPE_SECONDS:
            return Result()
        try:
            await self._context.client.patch(
                NodeClaim,
                claims[0].name,
                merge({"status": {"lastPodEventTime": format_time(now)}}),
                subresource="status",
            )
        except NotFound:
            return Result()
        return Result()
