"""Conditions of claims, pools and nodes as metrics and events: what they are, since when, how they changed.

Names and labels are those of upstream's `operator_<kind>_status_condition_*` family, without its deprecated
twins that carry the kind as a label.
"""

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from karpenter.apis import conditions as condition_sets
from karpenter.apis import labels
from karpenter.apis.autoscaling import CapacityBuffer
from karpenter.apis.core import Node
from karpenter.apis.karpenter import NodeClaim, NodeOverlay, NodePool
from karpenter.apis.meta import Condition, KubeObject
from karpenter.base.timestamps import parse_time
from karpenter.controllers.context import Context
from karpenter.controllers.metrics.reading import OnRead
from karpenter.controllers.metrics.series import Series
from karpenter.kube.client import resource_of
from karpenter.kube.informer import Change

_BUCKETS = tuple(0.5 * 2**k for k in range(15))

K = TypeVar("K", bound=KubeObject)


class StatusMetrics(Generic[K]):
    """The conditions of one kind."""

    def __init__(
        self,
        context: Context,
        kind: type[K],
        extra: Sequence[str],
        conditions: Callable[[K], list[Condition]],
    ) -> None:
        """`extra` are labels of the objects that become labels of the series."""
        self._context = context
        self._extra = tuple(extra)
        self._conditions = conditions
        self._objects = context.cache.informer(kind)
        metrics, name = context.metrics, resource_of(kind).kind.lower()
        added = [_label_name(key) for key in extra]
        described = ["namespace", "name", "type", "status", "reason", *added]
        condition = f"operator_{name}_status_condition"
        self._count = Series(metrics, f"{condition}_count", "1 for each condition.", described)
        self._current = Series(
            metrics, f"{condition}_current_status_seconds", "Since its last transition.", described
        )
        self._transitions = metrics.counter(
            f"{condition}_transitions_total", "Changes of status.", ["type", "status", "reason", *added]
        )
        self._seconds = metrics.histogram(
            f"{condition}_transition_seconds",
            "How long a status lasted before it changed.",
            ["type", "status", *added],
            buckets=_BUCKETS,
        )
        self._ending = Series(
            metrics,
            f"operator_{name}_termination_current_time_seconds",
            "Since its deletion was asked for.",
            ["namespace", "name", *added],
        )
        self._ended = metrics.histogram(
            f"operator_{name}_termination_duration_seconds",
            "From the wish for its deletion until it was gone.",
            added,
            buckets=_BUCKETS,
        )
        self._objects.subscribe(self._on_change)
        self.controller = OnRead(f"metrics.status.{name}", self._refresh, context)

    def _on_change(self, change: Change[K]) -> None:
        obj, old = change.object, change.old
        if old is not None and old.metadata.uid == obj.metadata.uid:
            for finalizer in sorted(set(old.metadata.finalizers) - set(obj.metadata.finalizers)):
                self._tell(obj, "Finalized", f"Finalized {finalizer}")
        if change.type == "DELETED":
            if obj.metadata.deletion_timestamp is not None:
                lasted = self._context.clock.now() - parse_time(obj.metadata.deletion_timestamp)
                (self._ended.labels(*self._own(obj)) if self._extra else self._ended).observe(
                    max(0.0, lasted)
                )
            return
        if old is None or old.metadata.uid != obj.metadata.uid:
            return  # seen for the first time: what it went through before is not ours to tell
        before, after = self._conditions(old), self._conditions(obj)
        if before != after:
            for condition in after:
                self._on_condition(obj, condition_sets.get(before, condition.type), condition)

    def _on_condition(self, obj: K, old: Condition | None, new: Condition) -> None:
        if old is not None and old.status == new.status:
            return
        own = self._own(obj)
        self._transitions.labels(new.type, new.status, new.reason, *own).inc()
        if old is None:
            return
        if old.last_transition_time and new.last_transition_time:
            lasted = parse_time(new.last_transition_time) - parse_time(old.last_transition_time)
            self._seconds.labels(old.type, old.status, *own).observe(max(0.0, lasted))
        message = (
            f"Status condition transitioned, Type: {new.type}, Status: {old.status} -> {new.status}, "
            f"Reason: {new.reason}" + (f", Message: {new.message}" if new.message else "")
        )
        self._tell(obj, new.type, message)

    def _tell(self, obj: K, reason: str, message: str) -> None:
        """Publish each time: what happens twice has happened twice."""
        self._context.recorder.publish(obj, "Normal", reason, message, dedupe_seconds=0.0)

    def _refresh(self) -> None:
        now = self._context.clock.now()
        count: dict[tuple[str, ...], float] = {}
        current: dict[tuple[str, ...], float] = {}
        ending: dict[tuple[str, ...], float] = {}
        for obj in self._objects.items():
            meta, own = obj.metadata, self._own(obj)
            for condition in self._conditions(obj):
                key = (meta.namespace, meta.name, condition.type, condition.status, condition.reason, *own)
                count[key] = 1.0
                since = condition.last_transition_time
                current[key] = now - parse_time(since) if since else 0.0
            if meta.deletion_timestamp is not None:
                ending[(meta.namespace, meta.name, *own)] = now - parse_time(meta.deletion_timestamp)
        self._count.replace(count)
        self._current.replace(current)
        self._ending.replace(ending)

    def _own(self, obj: K) -> tuple[str, ...]:
        return tuple(obj.metadata.labels.get(key, "") for key in self._extra)


def build(context: Context) -> list[OnRead]:
    """Return what meters the conditions of claims, pools, nodes, and what is behind an open feature gate."""
    kinds = [resource_of(kind) for kind in context.provider.node_classes]
    extra = [*(labels.nodeclass_label(r.group, r.kind) for r in kinds), labels.NODEPOOL]
    gates = context.settings.feature_gates
    of_gated = []
    if gates.get("NodeOverlay"):
        of_gated.append(StatusMetrics(context, NodeOverlay, (), lambda o: o.status.conditions).controller)
    if gates.get("CapacityBuffer"):
        of_gated.append(StatusMetrics(context, CapacityBuffer, (), lambda b: b.status.conditions).controller)
    return [
        StatusMetrics(context, NodeClaim, extra, lambda claim: claim.status.conditions).controller,
        StatusMetrics(context, NodePool, (), lambda pool: pool.status.conditions).controller,
        StatusMetrics(
            context, Node, [*extra, labels.INITIALIZED], lambda node: node.status.conditions
        ).controller,
        *of_gated,
    ]


def _label_name(key: str) -> str:
    """Return a label of an object as a metric's label, upstream's way."""
    return key.replace("/", "_").replace(".", "_").replace("-", "_")
