"""What can be bought, and what runs on it by itself. It remembers its answers: many claims ask the same."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import product
from typing import NamedTuple, TypeVar

from karpenter.apis import labels as known
from karpenter.apis.core import Pod
from karpenter.base.quantity import Resources, total
from karpenter.model.instancetype import InstanceType, Offering
from karpenter.model.pods import has_dra_requirements, requests
from karpenter.model.problem import PoolOffer, Problem
from karpenter.model.requirements import SIMULATION_LABELS, Requirement, Requirements
from karpenter.scheduling.check_fit import refuses, ways
from karpenter.scheduling.check_room import Room
from karpenter.scheduling.check_shelf import Shelf

TOLERANCE = 1e-6
"""Prices (USD per hour) that differ by less are the same."""
Lot = tuple[str, ...]
"""Something of which there is only so much: a reservation's id, or type, zone and capacity type, or a step of
a commitment's price; empty: what there is without end."""


Choice = tuple[tuple[str, str], ...]
"""Labels that a node may turn out to have."""


class Price(NamedTuple):
    """What a node costs."""

    worth: float
    """What it is chosen by: its price and what interruptions are expected to cost."""
    usd: float


Answer = TypeVar("Answer")


class Answers(dict[str, Answer]):
    """What was found out about types, by name; found out when first asked for."""

    def __init__(self, find: Callable[[str], Answer]) -> None:
        """Ask `find`."""
        super().__init__()
        self._find = find

    def __missing__(self, name: str) -> Answer:
        """Find out about one more type."""
        found = self[name] = self._find(name)
        return found


class Market:
    """The pools of one problem."""

    def __init__(self, problem: Problem, *, quick: bool = False) -> None:
        """Open the market of `problem`; with `quick`, types are looked at together where that will do."""
        self.problem = problem
        self.quick = quick
        self.well_known = problem.options.well_known_labels
        self.offers: Mapping[str, PoolOffer] = {o.pool.name: o for o in problem.pools}
        most = problem.options.max_node_cpu
        self.types = {
            name: {
                t.name: t
                for t in o.instance_types
                if most is None or any(m.capacity.get("cpu", 0) <= most for m in _machines(t, t.offerings))
            }
            for name, o in self.offers.items()
        }
        self.left: dict[Lot, int] = {}
        """How much there is of every lot: the least any pool sees, less what claims on their way hold."""
        kinds = [t for o in problem.pools for t in o.instance_types]
        for kind, scarce in ((t, f) for t in kinds for f in t.offerings if f.stock is not None or f.steps):
            for lot, count, _ in self._lots(kind, scarce):
                if count is not None:
                    self.left[lot] = min(count, self.left.get(lot, count))
        for lot in self.left:
            self.left[lot] = max(0, self.left[lot] - problem.held.get("/".join(lot), 0))
        self.reserved = problem.options.reserved_capacity
        self._keys = {
            name: sorted(
                {k for r in {f.requirements for t in o.instance_types for f in t.offerings} for k in r}
            )
            for name, o in self.offers.items()
        }
        self._left: dict[tuple[str, str, int], list[Offering]] = {}
        self._open: dict[tuple[int, Requirements], bool] = {}
        self._prices: dict[tuple[str, int], Answers[dict[Lot, Price]]] = {}
        self._asked: dict[tuple[str, int], tuple[Requirements, int]] = {}
        self._numbers: dict[tuple[Requirement, ...], int] = {}
        self._rests: dict[int, tuple[Requirements, Requirements]] = {}
        self._alike: dict[tuple[Requirement, ...], Requirements] = {}
        self._clashes: dict[tuple[str, int], Answers[str]] = {}
        self._keyed: dict[tuple[Requirement, ...], int] = {}
        self._choices: dict[tuple[str, str, int, tuple[str, ...], int], frozenset[Choice]] = {}
        self.accepted: dict[tuple[bytes, Choice], bool] = {}
        """Whether pods that select nodes in some way accept one with some labels, as far as was asked."""
        self._daemons: dict[tuple[str, str], tuple[list[Pod], Resources]] = {}
        self._rooms: dict[str, Room] = {}
        self._shelves: dict[str, Shelf] = {}
        self._opened: dict[tuple[str, int], tuple[bool, ...]] = {}

    def offerings(self, pool: str, requirements: Requirements, instance_type: str) -> list[Offering]:
        """Return the offerings of a type that can still be had under `requirements`."""
        number = self._number(pool, requirements)
        asked = (pool, instance_type, number)
        if asked not in self._left:
            self._left[asked] = [
                offering
                for offering in self.types[pool][instance_type].offerings
                if offering.available
                and (offering.stock is None or self._has_left(pool, instance_type, offering))
                and (self.reserved or offering.capacity_type != known.CAPACITY_RESERVED)
                and self._may_be(requirements, number, offering)
            ]
        return self._left[asked]

    def _may_be(self, requirements: Requirements, number: int, offering: Offering) -> bool:
        """Tell whether `requirements`, by their number, leave an offering open; types have many in common."""
        asked = (number, offering.requirements)
        if asked not in self._open:
            self._open[asked] = not requirements.compatible(offering.requirements, self.well_known)
        return self._open[asked]

    def machines(self, pool: str, requirements: Requirements, instance_type: str) -> list[InstanceType]:
        """Return what a node of a type may be, size by size, if any offering is bought that is to be had."""
        kind = self.types[pool][instance_type]
        return _machines(kind, self.offerings(pool, requirements, instance_type))

    def _number(self, pool: str, requirements: Requirements) -> int:
        """Return a number that is the same for requirements which offerings cannot tell apart."""
        known_as = self._asked.get((pool, id(requirements)))
        if known_as is None:
            # An offering looks at no other labels than its own.
            seen = tuple(requirements.get(key) for key in self._keys[pool])
            number = self._numbers.setdefault(seen, len(self._numbers))
            known_as = self._asked[pool, id(requirements)] = requirements, number  # kept, and its id with it
        return known_as[1]

    def _has_left(self, pool: str, instance_type: str, offering: Offering) -> bool:
        return any(self.left.get(lot) for lot, _, _ in self._lots(self.types[pool][instance_type], offering))

    def prices(self, pool: str, requirements: Requirements) -> Mapping[str, dict[Lot, Price]]:
        """Return, by type, its best price under `requirements`, by the lot it is bought from."""
        asked = (pool, self._number(pool, requirements))
        found = self._prices.get(asked)
        if found is None:
            found = self._prices[asked] = Answers(partial(self._prices_of, pool, requirements))
        return found

    def _prices_of(self, pool: str, requirements: Requirements, instance_type: str) -> dict[Lot, Price]:
        offer, kind = self.offers[pool], self.types[pool][instance_type]
        found: dict[Lot, Price] = {}
        for offering in self.offerings(pool, requirements, instance_type):
            for lot, _, usd in self._lots(kind, offering):
                price = Price(usd + offering.hazard * offer.interruption_cost, usd)
                found[lot] = min(price, found.get(lot, price))
        return found

    def label_choices(
        self, pool: str, requirements: Requirements, keys: tuple[str, ...], types: Iterable[InstanceType]
    ) -> dict[Choice, str]:
        """Return which values `keys` may have on nodes of `types`, each with the name of one such type."""
        number = self._number(pool, requirements)
        asked = self._keyed.setdefault(tuple(requirements.get(key) for key in keys), len(self._keyed))
        seen: set[frozenset[Choice]] = set()
        found: dict[Choice, str] = {}
        for instance_type in types:
            key = (pool, instance_type.name, number, keys, asked)
            if key not in self._choices:
                self._choices[key] = frozenset(
                    choice
                    for offering in self.offerings(pool, requirements, instance_type.name)
                    for choice in _choices(keys, requirements, instance_type, offering)
                )
            if self._choices[key] not in seen:
                seen.add(self._choices[key])
                for choice in sorted(self._choices[key]):
                    found.setdefault(choice, instance_type.name)
        return found

    def clears(self, pool: str, requirements: Requirements, names: Sequence[str], price: float) -> bool:
        """Tell whether a claim's types are surely those it may list, in order, and the first costs `price`.

        Those that are not cleared may be right as well.
        """
        if not self.quick:
            return False
        shelf, opened = self._shelf(pool), self._opened_by(pool, requirements)
        return shelf.clears(names, requirements, opened) and (
            abs(float(shelf.cheapest(opened)[1][shelf.rows(names[:1])[0]]) - price) <= TOLERANCE
        )

    def said(
        self, pool: str, requirements: Requirements, names: Sequence[str], key: str
    ) -> set[tuple[Requirement, Requirement]]:
        """Return what types and their offerings that are left under `requirements` say of a label."""
        if self.quick:
            found = self._shelf(pool).said(key, names, self._opened_by(pool, requirements))
            if found is not None:
                return found
        return {
            (self.types[pool][name].requirements.get(key), offering.requirements.get(key))
            for name in names
            for offering in self.offerings(pool, requirements, name)
        }

    def _shelf(self, pool: str) -> Shelf:
        found = self._shelves.get(pool)
        if found is None:
            interruption_cost = self.offers[pool].interruption_cost
            found = Shelf(self.types[pool], self.well_known, interruption_cost, reserved=self.reserved)
            self._shelves[pool] = found
        return found

    def _opened_by(self, pool: str, requirements: Requirements) -> tuple[bool, ...]:
        """Return which kinds of offerings on the pool's shelf `requirements` leave open."""
        asked = (pool, self._number(pool, requirements))
        if asked not in self._opened:
            self._opened[asked] = self._shelf(pool).opened(requirements)
        return self._opened[asked]

    def clashes(self, pool: str, requirements: Requirements, names: Sequence[str]) -> Iterator[str]:
        """Yield which of the types `names` are not what `requirements` say, and why."""
        known_as = self._rests.get(id(requirements))
        if known_as is None:
            # Claims differ in the types they list, and in little else.
            rest = requirements.without(known.INSTANCE_TYPE)
            rest = self._alike.setdefault(tuple(rest.values()), rest)
            known_as = self._rests[id(requirements)] = requirements, rest
        rest, types = known_as[1], self.types[pool]
        clashes = self._clashes.setdefault(
            (pool, id(rest)), Answers(lambda name: rest.intersects(types[name].requirements))
        )
        listed = frozenset(requirements.get(known.INSTANCE_TYPE).permitted())
        for name in names:
            if name not in listed or clashes[name]:
                clash = requirements.intersects(types[name].requirements)
                if clash:
                    yield f"{name} is not what the claim requires: {clash}"

    def doubtful(self, pool: str, names: Sequence[str], asked: Resources) -> list[str]:
        """Return those of the types `names` that may not hold what is `asked` beside their daemons."""
        room = self._rooms.get(pool)
        if room is None:
            room = self._rooms[pool] = Room(self.types[pool])
        unknown = room.unknown(names)
        if unknown:
            room.add({name: self.daemons(pool, name)[1] for name in unknown})
        return room.doubtful(names, asked)

    def cheapest(self, pool: str, requirements: Requirements, instance_type: str) -> float:
        """Return the price of a type under `requirements`; infinite when it cannot be had.

        Lots count only where there is nothing else.
        """
        found = self.prices(pool, requirements)[instance_type]
        endless = Price(float("inf"), float("inf"))
        return found.get((), min(found.values(), default=endless)).usd

    def _lots(self, kind: InstanceType, offering: Offering) -> Iterator[tuple[Lot, int | None, float]]:
        """Yield the lots an offering is bought from, how many nodes each is good for, and the price."""
        place = (kind.name, offering.zone, offering.capacity_type)
        if offering.stock is not None:
            label = self.problem.options.reservation_label
            reservation = offering.requirements.single_value(label) if label else ""
            yield (reservation,) if reservation else place, offering.stock, offering.price
            return
        for number, (count, usd) in enumerate(offering.steps):
            yield (f"{offering.commitment or '/'.join(place)}#{number}",), count, usd
        yield (), None, offering.price

    def daemons(self, pool: str, instance_type: str) -> tuple[list[Pod], Resources]:
        """Return the daemons that a new node of the pool and type has to expect, and what they ask for."""
        asked = (pool, instance_type)
        if asked not in self._daemons:
            daemons = self._daemons_on(self.offers[pool], self.types[pool][instance_type])
            self._daemons[asked] = daemons, total(requests(d) for d in daemons)
        return self._daemons[asked]

    def _daemons_on(self, offer: PoolOffer, instance_type: InstanceType) -> list[Pod]:
        if not self.problem.snapshot.daemons:
            return []
        template = offer.pool.spec.template
        ref = template.spec.node_class_ref
        given = {
            known.nodeclass_label(ref.group, ref.kind): ref.name,
            **dict.fromkeys(SIMULATION_LABELS, "true"),
        }
        node = pool_requirements(offer).merge(Requirements.from_labels(given))
        return [
            daemon
            for daemon in self.problem.snapshot.daemons
            if not has_dra_requirements(daemon)
            and not refuses(daemon, template.spec.taints)
            and any(
                not node.compatible(way, self.well_known) and not instance_type.requirements.intersects(way)
                for way in ways(daemon)
            )
        ]


def _machines(kind: InstanceType, offerings: Iterable[Offering]) -> list[InstanceType]:
    """Return `kind` as it is bought, once for each pair of overrides."""
    if not kind.has_overrides:
        return [kind]
    found: list[Offering] = []
    for offering in offerings:
        own = offering.capacity_override, offering.overhead_override
        if all(own != (o.capacity_override, o.overhead_override) for o in found):
            found.append(offering)
    return [kind.bought_as(offering) for offering in found]


def pool_requirements(offer: PoolOffer) -> Requirements:
    """Return what every node of a pool is, by the pool's own requirements and labels."""
    template = offer.pool.spec.template
    return Requirements.from_specs(template.spec.requirements).merge(
        Requirements.from_labels({**template.metadata.labels, known.NODEPOOL: offer.pool.name})
    )


def everything_on(
    key: str, requirements: Requirements, instance_type: InstanceType, offering: Offering
) -> Requirement:
    """Return what claim, type and offering together allow a label to be."""
    here = requirements.get(key).intersection(instance_type.requirements.get(key))
    return here.intersection(offering.requirements.get(key))


def _choices(
    keys: tuple[str, ...], requirements: Requirements, instance_type: InstanceType, offering: Offering
) -> Iterator[Choice]:
    """Yield every set of labels, as far as `keys` go, that a node of this offering may have."""
    choices: list[list[tuple[str, str] | None]] = []
    for key in keys:
        allowed = everything_on(key, requirements, instance_type, offering)
        values: list[tuple[str, str] | None] = [(key, value) for value in allowed.permitted()]
        choices.append(values or [None if allowed.absent else (key, allowed.any())])
    for combination in product(*choices):
        yield tuple(pair for pair in combination if pair is not None)
