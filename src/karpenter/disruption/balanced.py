"""The consolidation policy `Balanced`: of a pool's cost a move must save at least half as large a share as it
causes of the pool's disruption.

Shares make moves comparable: a tenth of the cost for a tenth of the restarts scores 1, whatever the size of
the pool or the unit of money.
"""

import math
from collections.abc import Mapping, Sequence
from functools import cached_property

import msgspec

from karpenter.apis import labels
from karpenter.disruption.candidates import Candidate, disruption_cost
from karpenter.disruption.command import Command
from karpenter.disruption.rounds import Move, Round
from karpenter.disruption.verdicts import Verdict
from karpenter.model.instancetype import InstanceType
from karpenter.model.pods import is_reschedulable
from karpenter.model.prices import price_of
from karpenter.model.snapshot import Snapshot

BALANCED = "Balanced"
K = 2
"""A move is approved from a score of 1/K on."""


class Total(msgspec.Struct, frozen=True, kw_only=True):
    """A whole pool."""

    cost: float
    """USD per hour of all its nodes."""
    disruption: float
    """What disrupting all of them would cost, in the units of `Candidate.disruption_cost`."""


class Score(msgspec.Struct, frozen=True, kw_only=True):
    """What a move is worth to one pool."""

    savings: float
    """Share of the pool's cost that it saves."""
    disruption: float
    """Share of the pool's disruption that it causes."""

    @property
    def value(self) -> float:
        """Savings by disruption; 0 when nothing is saved, infinite when nothing is disturbed."""
        if not self.savings > 0:
            return 0.0
        return math.inf if self.disruption == 0 else self.savings / self.disruption

    def approved(self, k: int = K) -> bool:
        """Tell whether the move is worth it."""
        return self.value >= 1 / k

    def in_words(self, k: int = K) -> str:
        """Return the arithmetic, in upstream's words."""
        sign = ">=" if self.approved(k) else "<"
        return (
            f"score {self.value:.2f} {sign} threshold {1 / k:.2f} (k: {k}, "
            f"savings {100 * self.savings:.1f}%, disruption {100 * self.disruption:.1f}%)"
        )


def totals(
    snapshot: Snapshot, catalogues: Mapping[str, Sequence[InstanceType]], reservation_label: str = ""
) -> dict[str, Total]:
    """Return what each pool comes to, by name: all of its nodes, those included that may not be touched."""
    kinds = {pool: {kind.name: kind for kind in types} for pool, types in catalogues.items()}
    sums: dict[str, tuple[float, float]] = {}
    for node in snapshot.nodes:
        if not node.managed or not node.nodepool:
            continue
        cost, disruption = sums.get(node.nodepool, (0.0, 0.0))
        kind = kinds.get(node.nodepool, {}).get(node.labels.get(labels.INSTANCE_TYPE, ""))
        price = price_of(kind, node.labels, reservation_label) or 0.0
        own = disruption_cost(pod for pod in node.pods if is_reschedulable(pod))
        sums[node.nodepool] = (cost + price, disruption + own)
    return {pool: Total(cost=cost, disruption=disruption) for pool, (cost, disruption) in sums.items()}


def score(total: Total | None, savings: float, disruption: float) -> Score:
    """Return what saving so many USD per hour for so much disruption is worth to a pool; nothing without
    knowing what it comes to."""
    if total is None or not (total.cost > 0 and total.disruption > 0):
        return Score(savings=0.0, disruption=0.0)
    return Score(savings=savings / total.cost, disruption=disruption / total.disruption)


class Balance:
    """Weighs the moves of one round."""

    def __init__(self, a_round: Round, k: int = K) -> None:
        """Prepare; what pools come to is worked out when the first one asks."""
        self._round = a_round
        self._k = k

    @cached_property
    def totals(self) -> dict[str, Total]:
        """What each pool comes to, by name."""
        label = self._round.simulator.problem.options.reservation_label
        return totals(self._round.snapshot, self._round.catalogues, label)

    def hopeless(self, candidate: Candidate) -> Verdict | None:
        """Return why no move of the node alone can be approved: not even if it saved its whole price."""
        if not _weighs(candidate):
            return None
        total = self.totals.get(candidate.pool.name)
        if total is None or total.cost <= 0:
            return None
        best = score(total, candidate.price, candidate.disruption_cost)
        if best.approved(self._k):
            return None
        return self._verdict(candidate, candidate.price, best.in_words(self._k))

    def weigh(self, command: Command) -> list[Move]:
        """Return what the policy of each pool says to a command, by pool; savings count where they arise."""
        pools: dict[str, list[Candidate]] = {}
        for candidate in command.candidates:
            pools.setdefault(candidate.pool.name, []).append(candidate)
        nodes = tuple(c.node.name for c in command.candidates)
        moves = []
        for pool, own in sorted(pools.items()):
            policy = own[0].pool.spec.disruption.consolidation_policy
            if not _weighs(own[0]):
                moves.append(Move(nodes=nodes, pool=pool, policy=policy, approved=True))
                continue
            share = 1.0
            if len(pools) > 1 and command.price_before > 0:
                share = sum(c.price for c in own) / command.price_before
            disruption = sum(c.disruption_cost for c in own)
            found = score(self.totals.get(pool), share * command.savings, disruption)
            moves.append(
                Move(
                    nodes=nodes,
                    pool=pool,
                    policy=policy,
                    approved=found.approved(self._k),
                    score=found.value,
                    message=found.in_words(self._k),
                )
            )
        return moves

    def verdict(self, command: Command, move: Move) -> Verdict:
        """Return that a pool rejects a command, about its first node."""
        first = next(c for c in command.candidates if c.pool.name == move.pool)
        verdict = self._verdict(first, command.savings, move.message)
        return verdict.about(command.candidates[0].node.name, command.method)

    def _verdict(self, candidate: Candidate, saving: float, message: str) -> Verdict:
        return Verdict(
            node=candidate.node.name,
            method="single",
            code="balance",
            message=message,
            saving=saving,
            remedy=f"set consolidationPolicy of nodepool/{candidate.pool.name} to WhenEmptyOrUnderutilized",
        )


def _weighs(candidate: Candidate) -> bool:
    return candidate.pool.spec.disruption.consolidation_policy == BALANCED
