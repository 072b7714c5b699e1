"""What replacements could be launched for: prices by type, at best and at worst, under some requirements."""

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from karpenter.apis import labels
from karpenter.model.instancetype import InstanceType, Offering
from karpenter.model.problem import PlannedClaim, PoolOffer, Problem
from karpenter.model.requirements import Requirements

_TRIED_FIRST = (labels.CAPACITY_RESERVED, labels.CAPACITY_SPOT, labels.CAPACITY_ON_DEMAND)
"""The order in which clouds try capacity types, whatever they cost."""


class Quote(NamedTuple):
    """What a machine of one type costs, USD per hour."""

    best: float
    """The cheapest offering that may be taken."""
    name: str
    worst: float
    """The dearest offering of the capacity type that is tried first: the price to reckon with."""


class Market:
    """What each pool can buy now. Quotes are kept: the same requirements are asked for again and again."""

    def __init__(self, offers: Iterable[PoolOffer], well_known: frozenset[str]) -> None:
        """Look at `offers`; labels in `well_known` may be undefined in requirements."""
        self._types = {o.pool.name: {kind.name: kind for kind in o.instance_types} for o in offers}
        self._well_known = well_known
        self._keys: dict[str, frozenset[str]] = {}
        self._quotes: dict[tuple[str, Requirements], dict[str, Quote | None]] = {}
        self._allowed: dict[tuple[Requirements, Requirements], bool] = {}

    @classmethod
    def of(cls, problem: Problem) -> "Market":
        """Return the market that a problem's claims are bought on."""
        return cls(problem.pools, problem.options.well_known_labels)

    def kind(self, pool: str, name: str) -> InstanceType | None:
        """Return an instance type by its name; None when the pool cannot buy it."""
        return self._types.get(pool, {}).get(name)

    def quotes(self, pool: str, requirements: Requirements, names: Iterable[str]) -> list[Quote]:
        """Return what the types of these names cost under `requirements`, cheapest first (ties by name).

        Types without an available offering that may be taken are left out.
        """
        relevant = Requirements({k: r for k, r in requirements.items() if k in self._offering_keys(pool)})
        known = self._quotes.setdefault((pool, relevant), {})
        found = []
        for name in names:
            if name not in known:
                known[name] = self._quote(self.kind(pool, name), relevant)
            quote = known[name]
            if quote is not None:
                found.append(quote)
        return sorted(found)

    def of_claim(self, claim: PlannedClaim) -> list[Quote]:
        """Return what the types of a claim cost, cheapest first."""
        return self.quotes(claim.pool.name, claim.requirements, claim.instance_types)

    def _quote(self, kind: InstanceType | None, requirements: Requirements) -> Quote | None:
        if kind is None:
            return None
        open_offers = [o for o in kind.offerings if o.available and self._may_take(o, requirements)]
        if not open_offers:
            return None
        return Quote(min(o.price for o in open_offers), kind.name, worst_price(open_offers))

    def _may_take(self, offering: Offering, requirements: Requirements) -> bool:
        key = (requirements, offering.requirements)
        allowed = self._allowed.get(key)
        if allowed is None:
            allowed = not requirements.compatible(offering.requirements, self._well_known)
            self._allowed[key] = allowed
        return allowed

    def _offering_keys(self, pool: str) -> frozenset[str]:
        keys = self._keys.get(pool)
        if keys is None:
            kinds = self._types.get(pool, {}).values()
            keys = frozenset(k for kind in kinds for o in kind.offerings for k in o.requirements)
            self._keys[pool] = keys
        return keys


def worst_price(offerings: Sequence[Offering]) -> float:
    """Return the dearest of those `offerings` whose capacity type is tried first; infinite without any."""
    for capacity_type in _TRIED_FIRST:
        prices = [o.price for o in offerings if o.capacity_type == capacity_type]
        if prices:
            return max(prices)
    return math.inf


def enough_values(requirements: Requirements, kinds: Sequence[InstanceType]) -> tuple[int, dict[str, int]]:
    """Return how many of `kinds`, from the first, are needed for every `minValues` of `requirements`, and
    what is found where all of them are not enough, by key."""
    needed, missing = 0, {}
    for key, requirement in requirements.items():
        if requirement.min_values is None:
            continue
        seen: set[str] = set()
        count = 0
        for kind in kinds:
            if len(seen) >= requirement.min_values:
                break
            seen.update(v for v in kind.requirements.get(key).permitted() if requirement.has(v))
            count += 1
        if len(seen) < requirement.min_values:
            missing[key] = len(seen)
        needed = max(needed, count)
    return needed, missing
