"""Keeping what pools can buy, and so what their machines cost, known and fresh.

Whoever plans asks the cloud anyway. This asks for pools for which nobody plans: after a restart, and every
hour, since prices change without anybody saying so.
"""

import structlog

from karpenter.apis.karpenter import NodePool
from karpenter.cloudprovider import UnevaluatedNodePool
from karpenter.controllers.context import Context
from karpenter.controllers.nodeclaim.facts import facts
from karpenter.controllers.nodepool.keyed import pool_controller
from karpenter.runtime import Controller, Requeue, Result, Singleton

log = structlog.get_logger()

NO_ANSWER = "could not find out what the nodepool can buy"
UNKNOWN_PRICE = "price of nodeclaim is not known, it counts as nothing"

PERIOD_SECONDS = 3600.0
_UNEVALUATED_SECONDS = 1.0


def build(context: Context) -> list[Controller | Singleton]:
    """Return the controller."""
    pricing = Pricing(context)
    return [pool_controller(context, "state.pricing", pricing.reconcile)]


class Pricing:
    """Remembers when each pool's catalogue was last asked for, and for which generation of the pool."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._asked: dict[str, tuple[str, int, float]] = {}
        self._unknown: dict[str, set[str]] = {}
        self._errors = context.metrics.counter(
            "karpenter_nodepools_cost_tracker_errors", "Prices that could not be found out.", ["nodepool"]
        )

    async def reconcile(self, pool: NodePool) -> Result:
        """Ask for the catalogue of one pool if that is due."""
        now = self._context.clock.now()
        uid, generation, at = self._asked.get(pool.name, ("", 0, 0.0))
        same = (uid, generation) == (pool.metadata.uid, pool.metadata.generation)
        if same and now < at + PERIOD_SECONDS:
            return Result(at + PERIOD_SECONDS - now)
        try:
            types = await self._context.provider.instance_types(pool)
        except UnevaluatedNodePool:
            return Result(_UNEVALUATED_SECONDS)
        except Exception as error:  # whatever ails the cloud, it is asked again
            log.error(NO_ANSWER, NodePool=pool.name, error=str(error))
            self._errors.labels(pool.name).inc()
            raise Requeue from error
        self._context.cluster.note_catalogue(pool.name, types)
        self._asked[pool.name] = pool.metadata.uid, pool.metadata.generation, now
        self._tell_unknown(pool)
        return Result(PERIOD_SECONDS)

    def _tell_unknown(self, pool: NodePool) -> None:
        """Name the machines, once each, whose offering the catalogue does not have."""
        cluster, before = self._context.cluster, self._unknown.get(pool.name, set())
        unknown = {
            claim.metadata.uid: claim
            for claim in cluster.claims_of_pool(pool.name)
            if claim.status.provider_id and cluster.price(claim) is None
        }
        for uid in sorted(unknown.keys() - before):
            log.warning(UNKNOWN_PRICE, **facts(self._context, unknown[uid]))
            self._errors.labels(pool.name).inc()
        self._unknown[pool.name] = set(unknown)
