"""The pass: look at everything, ask the solver, create what it says, tell everybody about it."""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial

import structlog

from karpenter.apis.core import Pod
from karpenter.apis.karpenter import NodeClaim, NodePool
from karpenter.cloudprovider import UnevaluatedNodePool
from karpenter.controllers.context import Context
from karpenter.controllers.provisioning.batcher import Batcher
from karpenter.controllers.provisioning.claims import create_claims, shortened
from karpenter.controllers.provisioning.demand import Demand, demand_of, problem_of, usable_pools
from karpenter.controllers.provisioning.foresight import Foresight
from karpenter.controllers.provisioning.headroom import Headroom
from karpenter.controllers.provisioning.meters import Meters
from karpenter.controllers.provisioning.telling import Teller, refused_claims
from karpenter.controllers.provisioning.zones import pods_by_zone
from karpenter.kube.errors import NotFound
from karpenter.model.instancetype import InstanceType
from karpenter.model.pods import pod_key
from karpenter.model.problem import Budget, Plan, PlannedClaim, Problem
from karpenter.model.snapshot import Snapshot
from karpenter.runtime import Result, Singleton
from karpenter.scheduling import Memory, solve

log = structlog.get_logger()

FOUND = "found provisionable pod(s)"
COMPUTED = "computed new nodeclaim(s) to fit pod(s)"
DISTRUSTED = "the search found a plan that breaks rules; the plain plan is carried out instead"
NO_POOLS = "no dynamic nodepools found"
NO_TYPES = "could not list the instance types of a nodepool"

_CONFIRM_AFTER_SECONDS = 5.0
_LEAST_SEARCH_SECONDS = 0.12
_SEARCH_SECONDS_PER_POD = 2.2e-5
_AFTERWARDS_SECONDS = 0.03
_AFTERWARDS_SECONDS_PER_POD = 9e-6
"""For writing the plan down and checking it (measured: `benchmarks/firstclaim.py`)."""


def worthwhile(budget: Budget, pods: int) -> Budget:
    """Return as much of `budget` as a search for so many pods is worth: few pods should not wait for it.

    Of many pods' time some is kept for what comes after the search.
    """
    if budget.seconds is None:
        return budget
    seconds = min(budget.seconds, _LEAST_SEARCH_SECONDS + _SEARCH_SECONDS_PER_POD * pods)
    afterwards = min(2e-5 * pods, _AFTERWARDS_SECONDS + _AFTERWARDS_SECONDS_PER_POD * pods)
    return Budget(seconds=max(0.0, seconds - afterwards))


class Provisioner:
    """Buys machines for pods."""

    def __init__(self, context: Context, batcher: Batcher) -> None:
        self._context = context
        self._batcher = batcher
        self._memory = Memory()
        self._meters = Meters(context.metrics, context.cluster, context.clock)
        self._teller = Teller(context, self._meters)
        self._headroom = Headroom(context, self._solve)
        self._foresight = Foresight(self._solve_while)
        self._versions: dict[str, int] = {}
        self._catalogues: dict[str, tuple[InstanceType, ...]] = {}

    def controller(self) -> Singleton:
        """Return the loop."""
        c = self._context
        return Singleton("provisioner", self._reconcile, clock=c.clock, rng=c.rng, metrics=c.metrics)

    async def _reconcile(self) -> Result:
        try:
            await self._batcher.wait(self._look_ahead)
        except asyncio.CancelledError:
            self._foresight.drop()
            raise
        try:
            await self.provision()
        except BaseException:
            self._batcher.trigger("retry")  # what this window collected must not be lost with it
            raise
        return Result(0.0)

    async def provision(self) -> Plan | None:
        """Make one pass; return the plan, or None when there was nothing to decide."""
        cluster = self._context.cluster
        if not cluster.synced():
            self._batcher.trigger("unsynced")
            return None
        await self._confirm_created()
        await self._refresh_catalogues(cluster.managed_pools())
        # From here to the problem nothing waits: what is seen is one moment.
        snapshot = cluster.snapshot()
        demand = demand_of(self._context, snapshot)
        self._teller.invalid(demand)
        if not demand.pods:
            self._meters.zones({})
            self._meters.unschedulable.set(0)
            self._teller.remember(demand, (), snapshot.taken_at)
            await self._headroom.keep({}, self._catalogues, self._versions)
            return None
        log.info(FOUND, pods=shortened(pod_key(p) for p in demand.pods), count=len(demand.pods))
        problem = problem_of(self._context, snapshot, demand.pods, self._catalogues, self._versions)
        if not usable_pools(snapshot):
            log.info(NO_POOLS)
        with self._meters.solving(self._context.clock, len(demand.pods)):
            plan = await self._foresight.plan(problem)
        whole = await self._carry_out(snapshot, demand, plan)
        self._meters.zones(pods_by_zone(problem))  # only now: machines should not wait for it
        pods = {pod_key(pod): pod for pod in demand.pods}
        expected = {name: [pods[key] for key in keys] for name, keys in plan.placements.items()}
        await self._headroom.keep(expected, self._catalogues, self._versions, buy=whole)
        return plan

    def _look_ahead(self) -> None:
        """Begin to plan for what has come so far: it is likely that nothing more will."""
        cluster = self._context.cluster
        if not cluster.synced() or not self._catalogues:
            return
        snapshot = cluster.snapshot()
        demand = demand_of(self._context, snapshot)
        if demand.pods:
            self._foresight.begin(
                problem_of(self._context, snapshot, demand.pods, self._catalogues, self._versions)
            )

    async def _solve(self, problem: Problem) -> Plan:
        return await self._solve_while(problem, lambda: True)

    async def _solve_while(self, problem: Problem, wanted: Callable[[], bool]) -> Plan:
        """Plan; once it is not `wanted` any more the search has no time left."""
        clock = self._context.clock
        search = partial(
            solve,
            monotonic=lambda: clock.monotonic() if wanted() else float("inf"),
            memory=self._memory,
        )
        budget = worthwhile(self._context.settings.solve_budget, len(problem.pods))
        return await self._context.executor.run(search, problem, budget)

    async def _confirm_created(self) -> None:
        """Ask after claims that we created and the watch has not told of for a while."""
        cluster = self._context.cluster
        for claim in cluster.unconfirmed(older_than_seconds=_CONFIRM_AFTER_SECONDS):
            try:
                await self._context.client.get(NodeClaim, claim.name)
            except NotFound:
                cluster.forget_created(claim.name)

    async def _refresh_catalogues(self, pools: Sequence[NodePool]) -> None:
        """Get what each pool can buy; a pool that cannot tell is left out of this pass."""
        fresh: dict[str, tuple[InstanceType, ...]] = {}
        for pool in pools:
            try:
                types = await self._context.provider.instance_types(pool)
            except UnevaluatedNodePool:
                continue  # its NodeOverlays are being judged; pods that wait ask again
            except Exception as error:  # a cloud may fail in any way; others must not suffer
                log.error(NO_TYPES, NodePool=pool.name, error=str(error))
                continue
            if self._catalogues.get(pool.name) is not types:
                self._versions[pool.name] = self._versions.get(pool.name, 0) + 1
            fresh[pool.name] = types
            self._context.cluster.note_catalogue(pool.name, types)
        self._catalogues = fresh

    # --- after the plan -----------------------------------------------------------------------------------

    async def _carry_out(self, snapshot: Snapshot, demand: Demand, plan: Plan) -> bool:
        """Create, nominate, tell; return whether every claim that pods need was created."""
        pods = {pod_key(pod): pod for pod in demand.pods}
        if plan.distrusted:
            self._meters.distrusted.inc()
            log.error(DISTRUSTED, violations=list(plan.distrusted))
        wanted = [claim for claim in plan.claims if self._still_wanted(claim, pods)]
        if wanted:
            log.info(
                COMPUTED,
                nodeclaims=len(wanted),
                pods=sum(len(c.pods) for c in wanted),
                cost=round(plan.cost, 4),
                lower_bound=plan.lower_bound,
            )
        created = await create_claims(self._context, wanted, "provisioned")
        self._teller.placed(snapshot, plan, pods)
        self._teller.created(created, pods)
        self._teller.unschedulable(snapshot, plan, pods, self._catalogues)
        refused = (*plan.unschedulable, *refused_claims(created))
        self._teller.remember(demand, refused, snapshot.taken_at, placed=plan.placements)
        return all(creation.claim is not None for creation in created)

    def _still_wanted(self, planned: PlannedClaim, pods: dict[str, Pod]) -> bool:
        """Tell whether, after the solver's time, any pod of the claim still needs it."""
        cluster = self._context.cluster
        return any(cluster.needs_place(pods[key]) for key in planned.pods)
