"""Room for capacity buffers: planned for after all real pods, in what those leave.

A second solve, not a part of the first: so no virtual pod can ever take the place of a real one, be it room
on a node that is there, or the last of a limit. Real pods that are expected somewhere count as if they ran
there.
"""

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

import msgspec
import structlog

from karpenter.apis.core import Pod
from karpenter.base.quantity import add
from karpenter.controllers.context import Context
from karpenter.controllers.provisioning.claims import Creation, create_claims
from karpenter.controllers.provisioning.demand import problem_of
from karpenter.controllers.provisioning.validation import pod_error
from karpenter.controllers.provisioning.words import failure_text
from karpenter.model.instancetype import InstanceType
from karpenter.model.pods import pod_key, requests
from karpenter.model.problem import Plan, Problem
from karpenter.model.snapshot import NodeView, Snapshot
from karpenter.state.buffers import Outcome

log = structlog.get_logger()

LATER = "pods that wait come first"
BOUGHT = "computed new nodeclaim(s) to keep room for capacity buffers"


class Headroom:
    """Sees to it that buffers have their room."""

    def __init__(self, context: Context, solve: Callable[[Problem], Awaitable[Plan]]) -> None:
        self._context = context
        self._solve = solve
        self._holding = False

    async def keep(
        self,
        expected: Mapping[str, Sequence[Pod]],
        catalogues: Mapping[str, tuple[InstanceType, ...]],
        versions: Mapping[str, int],
        *,
        buy: bool = True,
    ) -> None:
        """Find room for all virtual pods, buy what lacks, and say where they are.

        Args:
            expected: pods that were just promised to existing machines, by row name.
            catalogues: what each pool can buy, by its name; `versions` change when that does.
            buy: False while real pods still wait for their own machines to be created.
        """
        cluster = self._context.cluster
        if not cluster.buffers:
            if self._holding:
                cluster.hold_headroom({})
                self._holding = False
            return
        self._holding = True
        snapshot = with_expected(cluster.snapshot(), expected)
        rules = self._context.provider.volume_rules
        errors = {pod_key(p): error for p in snapshot.headroom if (error := pod_error(p, snapshot, rules))}
        pods = tuple(pod for pod in snapshot.headroom if pod_key(pod) not in errors)
        problem = problem_of(self._context, snapshot, pods, catalogues, versions)
        plan = await self._solve(problem)
        created = await self._buy(plan) if buy else [Creation(c, None, LATER) for c in plan.claims]
        cluster.hold_headroom(self._counts(snapshot, plan, created))
        for failure in plan.unschedulable:
            errors[failure.pod] = failure_text(failure, snapshot.nodepools)
        for creation in created:
            if creation.claim is None:
                errors.update(dict.fromkeys(creation.planned.pods, creation.error))
        cluster.buffers.tell(self._outcomes(snapshot, plan, errors))

    async def _buy(self, plan: Plan) -> list[Creation]:
        """Create the plan's claims. Nothing is reserved on them: whoever comes may have the room."""
        if not plan.claims:
            return []
        log.info(
            BOUGHT,
            nodeclaims=len(plan.claims),
            pods=sum(len(c.pods) for c in plan.claims),
            cost=round(plan.cost, 4),
        )
        free = [msgspec.structs.replace(claim, pods=()) for claim in plan.claims]
        created = await create_claims(self._context, free, "provisioned")
        return [c._replace(planned=meant) for c, meant in zip(created, plan.claims, strict=True)]

    def _counts(self, snapshot: Snapshot, plan: Plan, created: Iterable[Creation]) -> dict[str, int]:
        rows = {row.name: row for row in snapshot.nodes}
        counts = {_machine(rows[name]): len(keys) for name, keys in plan.placements.items()}
        for creation in created:
            if creation.claim is not None:
                counts[f"claim/{creation.claim.name}"] = len(creation.planned.pods)
        return counts

    def _outcomes(self, snapshot: Snapshot, plan: Plan, errors: Mapping[str, str]) -> dict[str, Outcome]:
        """Return by buffer how its pods fared."""
        owner = self._context.cluster.buffers.owner
        ready = {row.name for row in snapshot.nodes if row.initialized}
        existing, bought = Counter[str](), Counter[str]()
        for name, keys in plan.placements.items():
            (existing if name in ready else bought).update(owner(key) for key in keys)
        for claim in plan.claims:
            bought.update(owner(key) for key in claim.pods if key not in errors)
        failed = Counter(owner(key) for key in errors)
        reasons: dict[str, str] = {}
        for key in sorted(errors):
            reasons.setdefault(owner(key), errors[key])
        return {
            buffer: Outcome(
                existing=existing[buffer],
                new=bought[buffer],
                failed=failed[buffer],
                error=reasons.get(buffer, ""),
            )
            for buffer in sorted({owner(pod_key(pod)) for pod in snapshot.headroom})
            if buffer
        }


def with_expected(snapshot: Snapshot, expected: Mapping[str, Sequence[Pod]]) -> Snapshot:
    """Return `snapshot` with the pods that are expected on its machines on them, each once."""
    placed = {pod_key(pod) for row in snapshot.nodes if not row.marked_for_deletion for pod in row.pods}
    nodes = tuple(
        _holding(row, [p for p in expected.get(row.name, ()) if pod_key(p) not in placed])
        for row in snapshot.nodes
    )
    return msgspec.structs.replace(snapshot, nodes=nodes)


def _holding(row: NodeView, more: Sequence[Pod]) -> NodeView:
    if not more:
        return row
    requested = row.requested
    for pod in more:
        requested = add(requested, requests(pod))
    pods = tuple(sorted((*row.pods, *more), key=pod_key))
    return msgspec.structs.replace(row, pods=pods, requested=requested)


def _machine(row: NodeView) -> str:
    """Return what `Cluster.hold_headroom` calls a machine."""
    return f"claim/{row.claim.name}" if row.claim is not None else row.name
