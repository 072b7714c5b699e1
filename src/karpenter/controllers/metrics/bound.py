"""How far what the machines cost is from the least that any machines for the same pods could cost."""

from collections import Counter
from functools import partial

import msgspec
import structlog

from karpenter.apis import labels
from karpenter.apis.annotations import MICRO
from karpenter.controllers.context import Context
from karpenter.controllers.metrics.series import Series
from karpenter.controllers.provisioning.demand import problem_of, usable_pools
from karpenter.model.pods import is_reschedulable
from karpenter.model.problem import Budget, Problem
from karpenter.model.snapshot import NodeView, Snapshot
from karpenter.runtime import Result, Singleton
from karpenter.scheduling import least_cost

log = structlog.get_logger()

_PERIOD_SECONDS = 60.0
_SECONDS = 0.1
_STEPS = 100


class BoundMetrics:
    """Looked at every minute in which something has changed, beside the loop: nothing waits for it."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._seen: tuple[object, ...] = ()
        """What the last answer was for; immutable, so that the same objects have the same answer."""
        self._bound = Series(
            context.metrics,
            "karpenter_cluster_price_lower_bound_usd_per_hour",
            "No machines for the pods that run could be bought for less.",
            [],
        )
        self._gap = Series(
            context.metrics,
            "karpenter_cluster_price_gap_ratio",
            "How far karpenter_cluster_price_usd_per_hour is above the lower bound, as a share of it.",
            [],
        )
        self.controller = Singleton(
            "metrics.bound", self._refresh, clock=context.clock, rng=context.rng, metrics=context.metrics
        )

    async def _refresh(self) -> Result:
        context = self._context
        snapshot = context.cluster.snapshot()
        pools = usable_pools(snapshot)
        seen = (snapshot.nodes, *pools, *(context.cluster.catalogue(pool.name) for pool in pools))
        if len(seen) == len(self._seen) and all(a is b for a, b in zip(seen, self._seen, strict=True)):
            return Result(requeue_after=_PERIOD_SECONDS)
        self._seen = seen
        spent = sum(context.cluster.price_commitments().values()) / MICRO
        problem, machines = self._question(snapshot)
        steps = context.settings.solve_budget.steps is not None
        search = partial(least_cost, monotonic=context.clock.monotonic, spoken_for=machines)
        budget = Budget(steps=_STEPS) if steps else Budget(seconds=_SECONDS)
        try:
            bound = await context.executor.run(search, problem, budget)
        except ValueError as error:
            log.warning("the least that machines could cost is unknown", error=str(error))
            bound = 0.0
        self._bound.replace({(): bound} if bound else {})
        self._gap.replace({(): spent / bound - 1} if bound else {})
        return Result(requeue_after=_PERIOD_SECONDS)

    def _question(self, snapshot: Snapshot) -> tuple[Problem, Counter[str]]:
        """Return the problem of buying all machines anew, and how many there are of each type."""
        context = self._context
        ours = [n for n in snapshot.nodes if n.managed and not n.marked_for_deletion]
        pods = sorted(
            (pod for node in ours for pod in node.pods if is_reschedulable(pod)),
            key=lambda pod: (pod.namespace, pod.name),
        )
        catalogues = {p.name: context.cluster.catalogue(p.name) for p in usable_pools(snapshot)}
        problem = problem_of(context, snapshot, pods, catalogues, {})
        others = tuple(n for n in snapshot.nodes if not n.managed and not n.marked_for_deletion)
        offers = tuple(
            msgspec.structs.replace(o, instance_types=catalogues[o.pool.name], remaining={})
            for o in problem.pools
        )
        options = msgspec.structs.replace(problem.options, price_remaining=None)
        whole = msgspec.structs.replace(problem, nodes=others, pools=offers, options=options, held={})
        return whole, Counter(map(_type_of, ours))


def _type_of(node: NodeView) -> str:
    return node.labels.get(labels.INSTANCE_TYPE, "")
