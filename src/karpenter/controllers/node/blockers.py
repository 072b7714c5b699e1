"""Telling why drains wait: as events, and as gauges with bounded labels. What there is to tell is decided in
`karpenter.disruption.drainblocks`."""

from collections.abc import Sequence

from karpenter.apis import labels
from karpenter.apis.core import Node, Pod
from karpenter.base.timestamps import parse_time
from karpenter.controllers.context import Context
from karpenter.disruption.drainblocks import (
    BlockKind,
    DrainBlock,
    drain_blocks,
    eviction_block,
    in_order,
    in_words,
)
from karpenter.kube.informer import Change
from karpenter.model.pdbs import PdbLimits

REPEAT_SECONDS = 10.0
"""How often at most the words in a condition are brought up to date, once they are there."""


class Blockers:
    """What keeps the draining nodes, all together."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._limits = PdbLimits(())
        self._pdbs: tuple[object, ...] = ()
        self._gauges = Gauges(context)
        context.cache.informer(Node).subscribe(self._on_node)
        self._written: dict[str, float] = {}

    def _on_node(self, change: Change[Node]) -> None:
        if change.type == "DELETED":
            self.forget(change.object.name)

    def limits(self) -> PdbLimits:
        """Return the budgets as they are now."""
        pdbs = self._context.cluster.pdbs()
        if pdbs is not self._pdbs:
            self._pdbs, self._limits = pdbs, PdbLimits(pdbs)
        return self._limits

    def of(
        self,
        node: Node,
        waiting: Sequence[Pod],
        deadline: float | None,
        surging: Sequence[DrainBlock] = (),
    ) -> tuple[DrainBlock, ...]:
        """Return what keeps the waiting pods of a node; `surging` is what some of them wait for instead."""
        now = self._context.clock.now()
        elsewhere = {block.pod for block in surging}
        others = [pod for pod in waiting if pod.key not in elsewhere]
        return in_order([*surging, *drain_blocks(others, self.limits(), now, node=node)], deadline=deadline)

    def of_pod(self, pod: Pod) -> DrainBlock | None:
        """Return what keeps one pod from being evicted."""
        return eviction_block(pod, self.limits(), self._context.clock.now())

    def tell(
        self, node: Node, waiting: int, blocks: Sequence[DrainBlock], deadline: float | None = None
    ) -> None:
        """Say that the drain waits, and for what; again at once when it is something else that holds it."""
        text = f"Failed to drain node, {waiting} pods are waiting to be evicted"
        self._publish(node, text, blocks, deadline)

    def tell_refused(self, node: Node, pod: Pod, error: str) -> None:
        """Say that the Eviction API refused a pod, and why as far as can be told."""
        block = self.of_pod(pod)
        if block is not None:
            self._publish(node, "Failed to drain node", [block], None)
        else:
            text = f"Failed to drain node, pod {pod.key}: {error}"
            self._context.recorder.publish(
                node, "Warning", "FailedDraining", text, dedupe=(node.name, "refused", pod.key)
            )

    def _publish(self, node: Node, text: str, blocks: Sequence[DrainBlock], deadline: float | None) -> None:
        about = (blocks[0].kind, blocks[0].pod) if blocks else ()
        if blocks:
            text += f": {in_words(blocks, deadline)}"
        self._context.recorder.publish(node, "Warning", "FailedDraining", text, dedupe=(node.name, *about))

    def may_rewrite(self, node: Node) -> bool:
        """Tell whether the words in a node's condition may be changed again already."""
        at = self._written.get(node.name)
        return at is None or self._context.clock.now() - at >= REPEAT_SECONDS

    def written(self, node: Node) -> None:
        """Note that the words in a node's condition were just changed."""
        self._written[node.name] = self._context.clock.now()

    def note(self, node: Node, blocks: Sequence[DrainBlock]) -> None:
        """Count the node under every kind of block it has."""
        self._gauges.note(node, {block.kind for block in blocks})

    def forget(self, name: str) -> None:
        """Count a node no more: it has gone, or is beyond draining."""
        self._gauges.forget(name)
        self._written.pop(name, None)


class Gauges:
    """`karpenter_nodes_drain_blocked` and its seconds; values are worked out when they are asked for."""

    def __init__(self, context: Context) -> None:
        self._clock = context.clock
        self._held: dict[tuple[str, BlockKind], dict[str, float]] = {}
        self._keys: dict[str, set[tuple[str, BlockKind]]] = {}
        by = ["nodepool", "reason"]
        self._count = context.metrics.gauge(
            "karpenter_nodes_drain_blocked", "Draining nodes that something holds, by what it is.", by
        )
        self._seconds = context.metrics.gauge(
            "karpenter_nodes_drain_blocked_seconds",
            "For how long the longest draining of these nodes has been draining.",
            by,
        )

    def note(self, node: Node, kinds: set[BlockKind]) -> None:
        """Let exactly these kinds hold the node."""
        pool = node.metadata.labels.get(labels.NODEPOOL, "")
        wanted = {(pool, kind) for kind in kinds}
        known = self._keys.get(node.name, set())
        for key in sorted(known - wanted):
            self._drop(key, node.name)
        began = parse_time(node.metadata.deletion_timestamp) if node.metadata.deletion_timestamp else 0.0
        for key in sorted(wanted - known):
            self._add(key, node.name, began)
        if wanted:
            self._keys[node.name] = wanted
        else:
            self._keys.pop(node.name, None)

    def forget(self, name: str) -> None:
        """Let nothing hold the node."""
        for key in sorted(self._keys.pop(name, set())):
            self._drop(key, name)

    def _add(self, key: tuple[str, BlockKind], name: str, began: float) -> None:
        if key not in self._held:
            nodes = self._held[key] = {}
            self._count.labels(*key).set_function(lambda: float(len(nodes)))
            self._seconds.labels(*key).set_function(
                lambda: self._clock.now() - min(nodes.values()) if nodes else 0.0
            )
        self._held[key][name] = began

    def _drop(self, key: tuple[str, BlockKind], name: str) -> None:
        nodes = self._held.get(key, {})
        nodes.pop(name, None)
        if not nodes and self._held.pop(key, None) is not None:
            self._count.remove(*key)
            self._seconds.remove(*key)
