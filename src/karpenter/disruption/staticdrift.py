"""Replacing drifted nodes of static pools, one for one."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from karpenter.apis import labels
from karpenter.apis.karpenter import NodeClaim, NodePool
from karpenter.base.quantity import resources_of
from karpenter.disruption.allowance import Allowance
from karpenter.disruption.budgets import Reason
from karpenter.disruption.candidates import Candidate
from karpenter.disruption.command import Command
from karpenter.disruption.drift import drifted_since
from karpenter.disruption.rounds import Decision, Round
from karpenter.disruption.verdicts import Code, Method, Verdict
from karpenter.model.instancetype import InstanceType
from karpenter.model.problem import PlannedClaim
from karpenter.model.requirements import Requirements
from karpenter.model.snapshot import Snapshot
from karpenter.model.zones import in_zone, is_buyable, open_zones, pool_requirements, spread, zone_counts


class Headcount(NamedTuple):
    """The NodeClaims of a static pool."""

    staying: int
    """Those that count as replicas: also those that leave once their replacement is there."""
    present: int
    """Those that count against `limits.nodes`: also those on their way out."""
    granted: int = 0
    """Nodes for which there is room under the limit that others are about to add."""


class StaticDrift:
    """All drifted nodes of static pools that budgets and `limits.nodes` allow, a command for each. Stateless.

    Those without pods that would need another place go first, then those that have been drifted for longest.
    """

    method: Method = "staticDrift"
    reason: Reason = "Drifted"

    def __init__(self, count: Callable[[str], Headcount] | None = None) -> None:
        """Replace nodes.

        Args:
            count: tells how many claims the pool of a name has; without, they are counted in the snapshot,
                which does not know of claims that were created a moment ago.
        """
        self._count = count

    def __call__(self, a_round: Round) -> Decision:
        """Return the commands."""
        allowance = Allowance(a_round, self.reason, self.method)
        pools: dict[str, list[Candidate]] = {}
        verdicts: list[Verdict] = []
        for candidate in a_round.eventual:
            if drifted_since(candidate) is not None and candidate.pool.static:
                pools.setdefault(candidate.pool.name, []).append(candidate)
            else:
                verdicts.append(_not_for(candidate))
        commands: list[Command] = []
        for _, drifted in sorted(pools.items()):
            taken, kept = self._of_pool(sorted(drifted, key=_turn), a_round, allowance)
            commands.extend(taken)
            verdicts.extend(kept)
        return Decision(
            commands=tuple(commands),
            verdicts=tuple(sorted(verdicts, key=lambda v: v.node)),
            eligible=sum(map(len, pools.values())),
            settled=not commands and not allowance.bound,
            bound=not commands and allowance.bound,
        )

    def _of_pool(
        self, drifted: Sequence[Candidate], a_round: Round, allowance: Allowance
    ) -> tuple[list[Command], list[Verdict]]:
        """Return the commands for one pool, and why the others of its drifted nodes stay."""
        pool = drifted[0].pool
        count = self._count(pool.name) if self._count else counted(pool.name, a_round.snapshot)
        waits = _over_scaled(pool, count)
        if waits:
            text = f'NodePool "{pool.name}" {waits}'
            return [], [_kept(c, "static", text, "wait until it has shrunk") for c in drifted]
        limit = resources_of(pool.spec.limits).get("nodes")
        room = len(drifted) if limit is None else max(0, limit - count.present - count.granted)
        commands: list[Command] = []
        kept: list[Verdict] = []
        for candidate in drifted:
            refusal = allowance.refusal(candidate)
            if refusal is None and not room:
                text = f'NodePool "{pool.name}" has no room for a replacement: limits.nodes is {limit}'
                remedy = f"raise limits.nodes of nodepool/{pool.name}"
                refusal = _kept(candidate, "limit", text, remedy)
            found = refusal or self._replacing(candidate, a_round, commands)
            if isinstance(found, Verdict):
                kept.append(found)
                continue
            allowance.take(candidate)
            room -= 1
            commands.append(found)
        return commands, kept

    def _replacing(
        self, candidate: Candidate, a_round: Round, others: Sequence[Command]
    ) -> Command | Verdict:
        """Return the command that replaces the node, given those for others of its pool."""
        pool = candidate.pool
        types = tuple(a_round.catalogues.get(pool.name, ()))
        wanted = pool_requirements(pool)
        if not is_buyable(wanted, types):
            text = f'NodePool "{pool.name}" finds no available instance types'
            return _kept(candidate, "noPlace", text, f"let nodepool/{pool.name} buy more instance types")
        leaving = {candidate.node.name, *(c.node.name for other in others for c in other.candidates)}
        there = zone_counts(
            node.claim
            for node in a_round.snapshot.nodes
            if node.nodepool == pool.name
            and node.claim is not None
            and not node.marked_for_deletion
            and node.name not in leaving
        )
        for other in others:
            for claim in other.replacements:
                there[claim.requirements.single_value(labels.ZONE)] += 1
        (zone,) = spread(open_zones(wanted, types), there, 1)
        command = Command(
            reason=self.reason,
            method=self.method,
            candidates=(candidate,),
            replacements=(_planned(pool, in_zone(wanted, zone), types),),
        )
        objection = a_round.objection(command)
        return objection.about(candidate.node.name, self.method) if objection is not None else command


def counted(pool: str, snapshot: Snapshot) -> Headcount:
    """Count the claims of a pool in a snapshot."""
    views = [v for v in snapshot.nodes if v.nodepool == pool and v.claim is not None]
    going = sum(1 for view in views if _going(view.claim))
    return Headcount(staying=len(views) - going, present=len(views))


def _going(claim: NodeClaim | None) -> bool:
    return claim is not None and claim.deleting


def _over_scaled(pool: NodePool, count: Headcount) -> str:
    replicas = pool.spec.replicas or 0
    return f"has {count.staying} nodes for {replicas} replicas" if count.staying > replicas else ""


def _planned(pool: NodePool, wanted: Requirements, types: Sequence[InstanceType]) -> PlannedClaim:
    """Return a claim as the pool's template has it, with the price of the cheapest machine it may get."""
    prices = [
        offering.price
        for kind in types
        if not kind.requirements.intersects(wanted)
        for offering in kind.offerings
        if offering.available and not offering.requirements.intersects(wanted)
    ]
    return PlannedClaim(
        pool=pool,
        requirements=wanted,
        instance_types=(),
        requests={},
        pods=(),
        price=min(prices, default=0.0),
    )


def _turn(candidate: Candidate) -> tuple[bool, float, str]:
    return not candidate.empty, drifted_since(candidate) or 0.0, candidate.node.name


def _not_for(candidate: Candidate) -> Verdict:
    if drifted_since(candidate) is None:
        return _kept(candidate, "notDrifted", "Node is what its NodePool and NodeClass ask for")
    return _kept(candidate, "dynamic", f'NodePool "{candidate.pool.name}" has no fixed number of nodes')


def _kept(candidate: Candidate, code: Code, message: str, remedy: str = "") -> Verdict:
    return Verdict(node=candidate.node.name, method="staticDrift", code=code, message=message, remedy=remedy)
