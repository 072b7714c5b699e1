"""What can be bought, and what runs on it by itself. It remembers its answers: many claims ask the same."""

from collections.abc import Mapping

from karpenter.apis import labels as known
from karpenter.apis.core import Pod
from karpenter.base.quantity import Resources, total
from karpenter.model.instancetype import InstanceType, Offering
from karpenter.model.pods import has_dra_requirements, requests
from karpenter.model.problem import PoolOffer, Problem
from karpenter.model.requirements import SIMULATION_LABELS, Requirement, Requirements
from karpenter.scheduling.check_fit import refuses, ways

TOLERANCE = 1e-6
"""Prices (USD per hour) that differ by less are the same."""


class Market:
    """The pools of one problem."""

    def __init__(self, problem: Problem) -> None:
        """Open the market of `problem`."""
        self.problem = problem
        self.well_known = problem.options.well_known_labels
        self.offers: Mapping[str, PoolOffer] = {o.pool.name: o for o in problem.pools}
        self.types = {name: {t.name: t for t in o.instance_types} for name, o in self.offers.items()}
        self.has_stock = any(
            f.stock is not None or f.steps
            for o in problem.pools
            for t in o.instance_types
            for f in t.offerings
        )
        """Some offering says how many of it are left, or how many have a lower price."""
        self.reserved = problem.options.reserved_capacity
        self._stock: dict[tuple[str, ...], int] = {}
        for instance_type in (t for o in problem.pools for t in o.instance_types):
            for offering in instance_type.offerings:
                if offering.stock is not None:
                    lot = self.lot_of(instance_type.name, offering)
                    self._stock[lot] = min(offering.stock, self._stock.get(lot, offering.stock))
        self._keys = {
            name: sorted({k for t in o.instance_types for f in t.offerings for k in f.requirements})
            for name, o in self.offers.items()
        }
        self._left: dict[tuple[str, str, tuple[Requirement, ...]], list[Offering]] = {}
        self._daemons: dict[tuple[str, str], tuple[list[Pod], Resources]] = {}

    def offerings(self, pool: str, requirements: Requirements, instance_type: str) -> list[Offering]:
        """Return the offerings of a type that can still be had under `requirements`."""
        # An offering looks at no other labels than its own.
        asked = (pool, instance_type, tuple(requirements.get(key) for key in self._keys[pool]))
        if asked not in self._left:
            self._left[asked] = [
                offering
                for offering in self.types[pool][instance_type].offerings
                if offering.available
                and self.stock_of(instance_type, offering) != 0
                and (self.reserved or offering.capacity_type != known.CAPACITY_RESERVED)
                and not requirements.compatible(offering.requirements, self.well_known)
            ]
        return self._left[asked]

    def stock_of(self, instance_type: str, offering: Offering) -> int | None:
        """Return how many of an offering are left: the least that any pool sees, less what is on its way."""
        if offering.stock is None:
            return None
        lot = self.lot_of(instance_type, offering)
        held = self.problem.held.get(lot[0], 0) if len(lot) == 1 else 0
        return max(0, self._stock[lot] - held)

    def lot_of(self, instance_type: str, offering: Offering) -> tuple[str, ...]:
        """Return what tells one stock from others: a reservation's id, else type, zone and capacity type."""
        label = self.problem.options.reservation_label
        reservation = offering.requirements.single_value(label) if label else ""
        return (reservation,) if reservation else (instance_type, offering.zone, offering.capacity_type)

    def cheapest(self, pool: str, requirements: Requirements, instance_type: str) -> float:
        """Return the price of a type under `requirements`; infinite when it cannot be had."""
        left = self.offerings(pool, requirements, instance_type)
        return min((offering.price for offering in left), default=float("inf"))

    def daemons(self, pool: str, instance_type: str) -> tuple[list[Pod], Resources]:
        """Return the daemons that a new node of the pool and type has to expect, and what they ask for."""
        asked = (pool, instance_type)
        if asked not in self._daemons:
            daemons = self._daemons_on(self.offers[pool], self.types[pool][instance_type])
            self._daemons[asked] = daemons, total(requests(d) for d in daemons)
        return self._daemons[asked]

    def _daemons_on(self, offer: PoolOffer, instance_type: InstanceType) -> list[Pod]:
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


def pool_requirements(offer: PoolOffer) -> Requirements:
    """Return what every node of a pool is, by the pool's own requirements and labels."""
    template = offer.pool.spec.template
    return Requirements.from_specs(template.spec.requirements).merge(
        Requirements.from_labels({**template.metadata.labels, known.NODEPOOL: offer.pool.name})
    )
