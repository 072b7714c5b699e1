"""Drift that does not get through: replacements that fail make a pool's roll-out slower, then stop it.

After a failure the pool's drifted nodes are left alone for a minute, then two, four, up to ten. After three
machines in a row that were launched and never became ready the roll-out halts, with a condition that says
why: more machines would cost money and fail as well. It goes on when the pool or its node class has changed,
or when any new node of the pool becomes ready.

A halt is in the pool's condition, so that a restart does not forget it.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import structlog

from karpenter.apis import conditions as known_conditions
from karpenter.apis import labels as known
from karpenter.apis.karpenter import NodeClaim, NodePool
from karpenter.base.timestamps import format_time
from karpenter.controllers.conditions import transition_time, with_condition, without_condition
from karpenter.controllers.context import Context
from karpenter.controllers.metrics.series import Series
from karpenter.controllers.nodepool.keyed import pool_controller, write_conditions
from karpenter.controllers.nodepool.readiness import node_class_of
from karpenter.kube.informer import Change
from karpenter.runtime import Controller, Result

log = structlog.get_logger()

CONDITION = "DriftHalted"
HALTED = "drift of nodepool halts, its replacements do not become ready"
RESUMED = "drift of nodepool goes on"

FAILURES_UNTIL_HALT = 3
_FIRST_PAUSE_SECONDS = 60.0
_LONGEST_PAUSE_SECONDS = 600.0


@dataclass
class _Trouble:
    """What went wrong in a pool since something last went well."""

    failures: int = 0
    """Replacements given up."""
    wasted: int = 0
    """Those of them that were launched."""
    until: float = 0.0
    why: str = ""
    halted: bool = False
    since: float = 0.0
    generations: tuple[int, int] = (0, 0)
    """Of the pool and of its node class, when it halted."""


class Halts:
    """What stands in the way of each pool's drift, beside its budgets."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._troubles: dict[str, _Trouble] = {}
        self._adopted: set[str] = set()
        self._failed = context.metrics.counter(
            "karpenter_nodepools_drift_replacements_failed_total",
            "Disruptions for drift that were given up.",
            ["nodepool"],
        )
        self._halted = Series(
            context.metrics,
            "karpenter_nodepools_drift_halted",
            "1 for NodePools whose drift halts because replacements fail.",
            ["nodepool"],
        )
        self.controller: Controller = pool_controller(
            context, "disruption.halts", self._reconcile, follow_classes=True
        )
        claims, pools = context.cache.informer(NodeClaim), context.cache.informer(NodePool)
        self.controller.watch(claims, self._pool_of)
        pools.subscribe(self._on_pool)

    def held(self, pool: NodePool) -> str:
        """Return why drifted nodes of `pool` are left alone now; empty when nothing is wrong."""
        self._adopt(pool)
        trouble = self._troubles.get(pool.name)
        if trouble is None:
            return ""
        if trouble.halted:
            return self._message(pool, trouble)
        if trouble.until <= self._context.clock.now():
            return ""
        return f"Left alone until {format_time(trouble.until)}, the last replacement failed: {trouble.why}"

    def failed(self, name: str, why: str, *, bought: bool) -> None:
        """Note that a disruption for drift was given up; `bought`: a machine was launched in vain."""
        now = self._context.clock.now()
        self._failed.labels(name).inc()
        trouble = self._troubles.setdefault(name, _Trouble())
        pause = min(_LONGEST_PAUSE_SECONDS, _FIRST_PAUSE_SECONDS * 2.0 ** min(trouble.failures, 10))
        trouble.failures += 1
        trouble.wasted += bought
        trouble.until, trouble.why = now + pause, why
        pool = self._context.cluster.pool(name)
        if pool is not None and trouble.wasted >= FAILURES_UNTIL_HALT and not trouble.halted:
            trouble.halted, trouble.since = True, now
            trouble.generations = self._generations(pool)
            log.warning(HALTED, NodePool=name, failures=trouble.failures, error=why)
        self.controller.enqueue(name)

    def succeeded(self, name: str) -> None:
        """Note that drifted nodes of a pool were replaced."""
        if self._troubles.pop(name, None) is not None:
            self.controller.enqueue(name)

    def _adopt(self, pool: NodePool) -> None:
        """Take over a halt that a process before this one has left in the pool's condition, once."""
        if pool.metadata.uid in self._adopted:
            return
        self._adopted.add(pool.metadata.uid)
        condition = known_conditions.get(pool.status.conditions, CONDITION)
        if condition is None or condition.status != "True" or pool.name in self._troubles:
            return
        self._troubles[pool.name] = _Trouble(
            failures=FAILURES_UNTIL_HALT,
            wasted=FAILURES_UNTIL_HALT,
            why=condition.message.partition("the last: ")[2].partition(". To go on")[0],
            halted=True,
            since=transition_time(pool, CONDITION),
            generations=(condition.observed_generation, pool.status.node_class_observed_generation or 0),
        )

    async def _reconcile(self, pool: NodePool) -> Result:
        """Bring the condition, the metric and the event of a pool in line with what is known."""
        self._adopt(pool)
        trouble = self._troubles.get(pool.name)
        if trouble is not None and trouble.halted and self._is_over(pool, trouble):
            del self._troubles[pool.name]
            self._context.cluster.mark_unconsolidated()
            trouble = None
        self._halted.replace({(name,): 1.0 for name in sorted(self._troubles) if self._troubles[name].halted})
        if trouble is not None and trouble.halted:
            text = self._message(pool, trouble)
            wanted = with_condition(
                pool, CONDITION, "True", "ReplacementsFailed", text, now=self._context.clock.now()
            )
            self._context.recorder.publish(
                pool, "Warning", CONDITION, text, dedupe=(pool.metadata.uid,), dedupe_seconds=3600.0
            )
        elif known_conditions.get(pool.status.conditions, CONDITION) is not None:
            log.info(RESUMED, NodePool=pool.name)
            wanted = without_condition(pool, CONDITION)
        else:
            return Result()
        await write_conditions(self._context, pool, wanted.status.conditions)
        return Result()

    def _is_over(self, pool: NodePool, trouble: _Trouble) -> bool:
        if self._generations(pool) != trouble.generations:
            return True
        return any(
            known_conditions.is_true(claim.status.conditions, "Initialized")
            and transition_time(claim, "Initialized") > trouble.since
            for claim in self._context.cluster.claims_of_pool(pool.name)
        )

    def _generations(self, pool: NodePool) -> tuple[int, int]:
        node_class = node_class_of(self._context, pool.spec.template.spec.node_class_ref)
        return pool.metadata.generation, node_class.metadata.generation if node_class is not None else 0

    def _message(self, pool: NodePool, trouble: _Trouble) -> str:
        reference = pool.spec.template.spec.node_class_ref
        return (
            f"{trouble.wasted} machines in a row that were to replace drifted nodes did not become ready, "
            f"the last: {trouble.why}. To go on: see what the NodeClaims of nodepool/{pool.name} waited for, "
            f"and mend spec.template of the NodePool, or {reference.kind} {reference.name}"
        )

    def _pool_of(self, change: Change[NodeClaim]) -> Iterable[str]:
        name = change.object.metadata.labels.get(known.NODEPOOL, "")
        trouble = self._troubles.get(name)
        return [name] if trouble is not None and trouble.halted else []

    def _on_pool(self, change: Change[NodePool]) -> None:
        if change.type == "DELETED":
            self._troubles.pop(change.object.name, None)
            self._adopted.discard(change.object.metadata.uid)
