"""Nominations to nodes that are not there: a pod that has one would wait for ever.

No autoscaler does anything for a pod as long as somebody seems to have promised it a node. Claims take their
own nominations back (`nominations`), but not when they were removed by force, or the process died first. What
is left over is found here: at once when the node was seen to go, and otherwise after a while, for somebody
else may nominate to nodes that are still to come.
"""

from collections.abc import Iterable

from karpenter.apis.core import Node, Pod
from karpenter.controllers.context import Context
from karpenter.controllers.nodeclaim.nominations import Nominations
from karpenter.kube.informer import Change
from karpenter.model.pods import is_active
from karpenter.runtime import Controller, Requeue, Result, Singleton

COMING_SECONDS = 5 * 60.0
"""How long a nominated node that nobody has seen may be on its way."""

_NOMINATED = "nominated, by node"


def build(context: Context) -> list[Controller | Singleton]:
    """Return the controller that clears void nominations."""
    return [VoidNominations(context).controller()]


class VoidNominations:
    """Clears nominations of waiting pods to nodes that are gone or never came."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._pods = context.cache.informer(Pod)
        self._nodes = context.cache.informer(Node)
        self._pods.add_index(_NOMINATED, lambda pod: [pod.status.nominated_node_name] if _waits(pod) else [])
        self._nominations = Nominations(context)
        self._missing: dict[str, tuple[str, float]] = {}
        """By pod: the absent node it is nominated to, and until when (epoch seconds) that is waited for."""

    def controller(self) -> Controller:
        """Return the controller, watching nominated pods and nodes."""
        c = self._context
        controller = Controller(
            "pod.nominations",
            self.reconcile,
            clock=c.clock,
            rng=c.rng,
            metrics=c.metrics,
            concurrency=c.settings.concurrency(10, 100),
        )
        controller.watch(self._pods, self._on_pod)
        controller.watch(self._nodes, self._on_node)
        return controller

    async def reconcile(self, key: str) -> Result:
        """Clear one pod's nomination if it is void."""
        namespace, _, name = key.partition("/")
        pod = self._pods.get(name, namespace)
        node = pod.status.nominated_node_name if pod is not None and _waits(pod) else ""
        if pod is None or not node or self._nodes.get(node) is not None:
            self._missing.pop(key, None)
            return Result()
        now = self._context.clock.now()
        known = self._missing.get(key)
        if known is None or known[0] != node:
            known = self._missing[key] = node, now + COMING_SECONDS
        if known[1] > now:
            return Result(known[1] - now)
        if not await self._nominations.clear(pod):
            raise Requeue(f"the nomination of {key} is not cleared")
        return Result()

    def _on_pod(self, change: Change[Pod]) -> Iterable[str]:
        key = change.object.key
        if change.type != "DELETED" and _waits(change.object):
            return [key]
        return [key] if key in self._missing else []

    def _on_node(self, change: Change[Node]) -> Iterable[str]:
        """A node that goes takes its promises with it."""
        if change.type == "MODIFIED":
            return []
        node = change.object.name
        keys = [pod.key for pod in self._pods.by_index(_NOMINATED, node)]
        if change.type == "DELETED":
            now = self._context.clock.now()
            self._missing.update((key, (node, now)) for key in keys)
        return keys


def _waits(pod: Pod) -> bool:
    """Tell whether a nomination of `pod` means anything."""
    return bool(pod.status.nominated_node_name) and not pod.spec.node_name and is_active(pod)
