"""A second look at pods that were left out, one at a time, by the rules of the checker.

A pass places whole classes and is careful: it puts nobody where that depends on who is bound first. Few pods
that it left out are tried again wherever the checker would have them, on nodes that are there, planned ones
and new ones; in a small batch also where another pod has to make way for them and goes elsewhere.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice

import msgspec

from karpenter.apis import labels as known
from karpenter.apis.core import Pod
from karpenter.base.quantity import total
from karpenter.model.pods import pod_key
from karpenter.model.problem import Plan, PlannedClaim, PoolOffer, Problem
from karpenter.model.reasons import Unschedulable
from karpenter.model.requirements import SIMULATION_LABELS
from karpenter.scheduling.check_drives import unattachable
from karpenter.scheduling.check_likeness import Likeness
from karpenter.scheduling.check_limits import limits, stock
from karpenter.scheduling.check_market import Market
from karpenter.scheduling.check_neighbours import quarrels
from karpenter.scheduling.check_nodes import node_faults
from karpenter.scheduling.check_openings import claims_for, possible_domains
from karpenter.scheduling.check_order import Newcomer, unbindable
from karpenter.scheduling.check_places import places_and_residents
from karpenter.scheduling.check_tallies import Spread

_MOST_TRIES = 200
"""How many plans are judged."""
_MOST_STATES = 200
"""How long an order of binding is looked for in each."""
_MOST_PLACES = 12
"""In how many places a pod is tried for whom another makes way."""
_FEW_TYPES = 64
"""Up to how many types each is tried alone where limits may allow no other."""
_ON_PRINCIPLE = ("unsupported", "dra", "volumes", "volumeLimits")
"""Refusals that no other place helps against."""


def rescued(problem: Problem, plan: Plan, *, making_way: bool) -> Plan:
    """Return `plan` with as many of the refused pods placed as can be found a place for, urgent ones first.

    With `making_way` other pods may be moved for them, and of two that exclude each other the more urgent one
    is placed. What the plan's nodes cost is not looked at again.
    """
    return _Rescue(problem, plan).run(making_way=making_way)


Contents = tuple[tuple[int, int], ...]
"""What a node holds: how many pods of which kind."""


class _OutOfTries(Exception):
    """Enough plans were judged."""


class _Rescue:
    """Plans for one problem, each a little different from the one before."""

    def __init__(self, problem: Problem, plan: Plan) -> None:
        self.problem, self.plan = problem, plan
        self.market, self.likes = Market(problem), Likeness()
        self.pods = {pod_key(p): p for p in problem.pods}
        self.tries_left = _MOST_TRIES
        offers = problem.pools
        self._claims: dict[Contents, list[PlannedClaim]] = {}
        self._domains: dict[tuple[int, int], set[str]] = {}
        self._left_alone = {o.pool.name for o in offers if _wants_variety(o) and _has_sizes(o)}
        """With minValues a type counts as its smallest offering: no claim is narrowed to the others."""
        self._each_type = any(o.remaining and len(o.instance_types) <= _FEW_TYPES for o in offers)

    def run(self, *, making_way: bool) -> Plan:
        """Try everybody again until nobody finds a place any more."""
        try:
            while self._one_more(making_way=making_way):
                pass
        except _OutOfTries:
            pass
        return self.plan

    def _one_more(self, *, making_way: bool) -> bool:
        """Place one of the refused; tell whether that was possible."""
        hopeful = [u for u in self.plan.unschedulable if not _in_vain(u)]
        alike: dict[int, Unschedulable] = {}
        for refused in hopeful:
            alike.setdefault(id(self._like(refused.pod)), refused)
        waiting = sorted(alike.values(), key=lambda u: (-self._priority(u.pod), u.pod))
        for refused in waiting:
            better = next(self._with(_without(self.plan, refused.pod), refused.pod), None)
            if better is not None:
                self.plan = better
                return True
        for refused in waiting if making_way else ():
            better = self._in_anothers_place(refused)
            if better is not None:
                self.plan = better
                return True
        return False

    def _in_anothers_place(self, refused: Unschedulable) -> Plan | None:
        """Return a plan in which somebody makes way for the refused pod."""
        given_up: Plan | None = None
        for other in self._others():
            bare = _without(_without(self.plan, refused.pod), other)
            for with_it in islice(self._with(bare, refused.pod, judge=False), _MOST_PLACES):
                better = next(self._with(with_it, other), None)
                if better is not None:
                    return better
                if given_up is None and self._priority(other) < self._priority(refused.pod):
                    waiting = Unschedulable(pod=other, refusals=refused.refusals)
                    without = _refusing(with_it, waiting)
                    given_up = without if self._works(without) else None
        return given_up

    def _others(self) -> list[str]:
        """Return one pod of each kind on each node."""
        found: dict[tuple[int, int], str] = {}
        places = [*self.plan.placements.values(), *(claim.pods for claim in self.plan.claims)]
        for number, keys in enumerate(places):
            for key in keys:
                found.setdefault((number, id(self._like(key))), key)
        return list(found.values())

    def _with(self, plan: Plan, key: str, *, judge: bool = True) -> Iterator[Plan]:
        """Yield plans that have one pod more, the dearest ones last; without `judge` they may be wrong."""
        for more in sorted(self._places(plan, key), key=self._merit):
            if not judge or self._works(more):
                yield more

    def _merit(self, plan: Plan) -> tuple[int, float, int]:
        weights = {name: o.weight for name, o in self.market.offers.items()}
        light = sum((max(weights.values()) - weights[c.pool.name]) * len(c.pods) for c in plan.claims)
        return light, plan.cost, len(plan.claims)

    def _places(self, plan: Plan, key: str) -> Iterator[Plan]:
        """Yield plans that have the pod on some node that would take it, whatever others say."""
        for node in self.problem.nodes:
            keys = tuple(sorted((*plan.placements.get(node.name, ()), key)))
            if not any(node_faults(self.problem, node, self._load(keys))):
                yield msgspec.structs.replace(plan, placements={**plan.placements, node.name: keys})
        seen: set[tuple[object, ...]] = set()
        for number, claim in enumerate(plan.claims):
            alike = (claim.pool.name, claim.requirements, self._contents(claim.pods))
            if alike not in seen:
                seen.add(alike)
                others = (*plan.claims[:number], *plan.claims[number + 1 :])
                yield from self._bought(plan, others, (*claim.pods, key))
        yield from self._bought(plan, plan.claims, (key,))

    def _bought(self, plan: Plan, others: Sequence[PlannedClaim], keys: Sequence[str]) -> Iterator[Plan]:
        """Yield plans that have a node for these pods besides the `others`."""
        if self.market.left:
            return  # who draws on what there is only so much of is for the solver to say
        contents = self._contents(keys)
        if contents not in self._claims:
            found = claims_for(self.market, self._load(keys), each_type=self._each_type)
            self._claims[contents] = [self._finished(c) for c in found if c.pool.name not in self._left_alone]
        for claim in self._claims[contents]:
            claims = (*others, msgspec.structs.replace(claim, pods=tuple(sorted(keys))))
            yield msgspec.structs.replace(plan, claims=claims, cost=sum(c.price for c in claims))

    def _finished(self, claim: PlannedClaim) -> PlannedClaim:
        """Return the claim as it is to be created, for no pods yet."""
        name = claim.pool.name
        daemons = [self.market.daemons(name, kind)[1] for kind in claim.instance_types]
        least = {r: min(d.get(r, 0) for d in daemons) for r in {r for d in daemons for r in d}}
        hidden = (*SIMULATION_LABELS, known.KUBERNETES_HOSTNAME, known.NODE_NAME_FIELD)
        return msgspec.structs.replace(
            claim,
            requirements=claim.requirements.without(*hidden),
            requests=total([claim.requests, least]),
        )

    def _works(self, plan: Plan) -> bool:
        """Judge what no node shows by itself."""
        self.tries_left -= 1
        if self.tries_left < 0:
            raise _OutOfTries
        market, snapshot = self.market, self.problem.snapshot
        if any(limits(market, plan)) or any(stock(market, plan)):
            return False
        if any(unattachable(self.problem, plan, self.pods)):
            return False
        places, residents = places_and_residents(market, plan, self.pods, self.likes.company)
        cautious = Newcomer("", self._possible_domains)
        return (
            not any(quarrels(snapshot, residents))
            and not any(unbindable(snapshot, places, residents, most_states=_MOST_STATES))
            and not any(unbindable(snapshot, places, residents, cautious, most_states=_MOST_STATES))
        )

    def _possible_domains(self, spread: Spread) -> set[str]:
        key = (id(spread.owner), id(spread.constraint))
        if key not in self._domains:
            self._domains[key] = possible_domains(self.market, spread)
        return self._domains[key]

    def _contents(self, keys: Sequence[str]) -> Contents:
        return tuple(sorted((id(pod), count) for pod, count in self._load(keys)))

    def _load(self, keys: Sequence[str]) -> Sequence[tuple[Pod, int]]:
        return self.likes.load(self.pods[key] for key in keys)

    def _like(self, key: str) -> Pod:
        return self.likes.first_like(self.pods[key])

    def _priority(self, key: str) -> int:
        return self.pods[key].spec.priority or 0


def _in_vain(refused: Unschedulable) -> bool:
    return any(r.constraint in _ON_PRINCIPLE for r in refused.refusals)


def _wants_variety(offer: PoolOffer) -> bool:
    return any(r.min_values for r in offer.pool.spec.template.spec.requirements)


def _has_sizes(offer: PoolOffer) -> bool:
    return any(t.has_overrides for t in offer.instance_types)


def _without(plan: Plan, key: str) -> Plan:
    """Return `plan` without one pod, and without the node that was for it alone."""
    claims = tuple(
        msgspec.structs.replace(c, pods=kept) if len(kept) < len(c.pods) else c
        for c in plan.claims
        if (kept := tuple(k for k in c.pods if k != key))
    )
    placements: Mapping[str, tuple[str, ...]] = {
        name: kept for name, keys in plan.placements.items() if (kept := tuple(k for k in keys if k != key))
    }
    return msgspec.structs.replace(
        plan,
        claims=claims,
        placements=dict(placements),
        unschedulable=tuple(u for u in plan.unschedulable if u.pod != key),
        cost=sum(c.price for c in claims),
    )


def _refusing(plan: Plan, refused: Unschedulable) -> Plan:
    waiting = sorted((*plan.unschedulable, refused), key=lambda u: u.pod)
    return msgspec.structs.replace(plan, unschedulable=tuple(waiting), lower_bound=None)
