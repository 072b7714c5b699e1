"""Planned nodes, and the claims they become."""

from itertools import chain

import msgspec
import numpy as np

from karpenter.apis import labels
from karpenter.model.problem import PlannedClaim
from karpenter.model.requirements import SIMULATION_LABELS, Requirement, Requirements
from karpenter.scheduling.bins import Bin
from karpenter.scheduling.catalogue import Amounts
from karpenter.scheduling.drives import is_drive
from karpenter.scheduling.sizing import in_one_size, told_apart
from karpenter.scheduling.space import MAX_INSTANCE_TYPES, Axis, PoolSpace
from karpenter.scheduling.stock import LOT, lot_of


class _Shape(msgspec.Struct, frozen=True):
    """What equal bins share in their claims."""

    requirements: Requirements
    instance_types: tuple[str, ...]
    requests: dict[str, int]
    price: float
    lot: str


def planned_claims(spaces: list[PoolSpace], bins: list[Bin], axis: Axis) -> list[PlannedClaim]:
    """Return the claims for `bins`, in their order; each lists every type that still holds its content."""
    shapes: dict[tuple[object, ...], _Shape] = {}
    claims = []
    for planned in bins:
        pattern, space = planned.pattern, spaces[planned.pool]
        key = (
            planned.pool,
            pattern.requirements,
            pattern.used.tobytes(),
            planned.allowed.tobytes(),
            pattern.chosen,
            pattern.ports,
        )
        shape = shapes.get(key)
        if shape is None:
            shape = shapes[key] = _shape(space, planned, axis)
        claims.append(
            PlannedClaim(
                pool=space.offer.pool,
                requirements=shape.requirements,
                instance_types=shape.instance_types,
                requests=shape.requests,
                pods=tuple(sorted(chain.from_iterable(planned.pods.values()))),
                price=shape.price,
                min_values_relaxed=planned.relaxed,
                lot=shape.lot,
            )
        )
    return claims


def launched(space: PoolSpace, planned: Bin) -> int:
    """Return the type that the claim for `planned` gets if nothing keeps the cloud from its cheapest one."""
    pattern = planned.pattern
    content = (pattern.requirements, pattern.used.tobytes(), planned.allowed.tobytes(), pattern.ports)
    key = (*content, pattern.chosen, space.limits_version)
    found = space.launched.get(key)
    if found is None:
        options = _options if space.catalogue.twins else _holding
        found = space.launched[key] = int(options(space, planned)[1][0])
    return found


def _shape(space: PoolSpace, planned: Bin, axis: Axis) -> _Shape:
    pattern, names = planned.pattern, space.catalogue.names_of_rows
    requirements, options = _options(space, planned)
    listed = _truncated(space, requirements, options)
    daemons = space.least_overhead(listed)
    shown = requirements.without(*SIMULATION_LABELS, LOT, labels.KUBERNETES_HOSTNAME, labels.NODE_NAME_FIELD)
    instance_types = tuple(names[listed].tolist())
    added = [Requirement.of(labels.INSTANCE_TYPE, "In", instance_types)]
    capacity_types = space.catalogue.capacity_types(listed, requirements)
    if capacity_types:
        added.append(Requirement.of(labels.CAPACITY_TYPE, "In", capacity_types))
    if labels.CAPACITY_RESERVED in capacity_types and not lot_of(requirements):
        added += space.not_counted_reservations()
    return _Shape(
        requirements=shown.add(*added),
        instance_types=instance_types,
        requests={n: a for n, a in axis.resources(pattern.used + daemons).items() if not is_drive(n)},
        price=float(space.evaluate(requirements).usd[listed[0]]),
        lot=lot_of(requirements),
    )


def _options(space: PoolSpace, planned: Bin) -> tuple[Requirements, Amounts]:
    """Return what the claim asks for, and the types that still hold the node's content, best first."""
    requirements, options = _holding(space, planned)
    usd = space.evaluate(requirements).usd
    if space.offer.interruption_cost and not requirements.has_min_values:
        # The cloud goes by price alone: what is cheaper only because it is often interrupted is left out.
        options = options[usd[options] >= usd[options[0]]]
    if not space.catalogue.twins:
        return requirements, options
    requirements, rows = in_one_size(space, requirements, planned.pattern.chosen, options.tolist())
    return requirements, np.array(rows, dtype=np.int64)


def _holding(space: PoolSpace, planned: Bin) -> tuple[Requirements, Amounts]:
    """Return what the claim asks for, and the types that still hold the node's content, cheapest first."""
    pattern = planned.pattern
    holding = space.fits(pattern.used) & space.free_ports(pattern.ports) & planned.allowed
    requirements = space.worth_it(pattern.requirements, pattern.chosen)
    if space.achieved(requirements, holding & np.isfinite(space.evaluate(requirements).price)):
        requirements = pattern.requirements
    requirements = told_apart(space, requirements, pattern.chosen, holding)
    usd = space.evaluate(requirements).usd
    if space.purse.limited and not requirements.has_min_values:
        holding = holding & (usd <= usd[pattern.chosen])
    in_order = space.by_price(requirements)
    return requirements, in_order[holding[in_order]]


def _truncated(space: PoolSpace, requirements: Requirements, options: Amounts) -> Amounts:
    """Return the cheapest MAX_INSTANCE_TYPES of `options`, with enough different ones for minValues."""
    if len(options) <= MAX_INSTANCE_TYPES or not requirements.has_min_values:
        return options[:MAX_INSTANCE_TYPES]
    needed: dict[int, None] = {}
    for key, requirement in requirements.items():
        if requirement.min_values is None:
            continue
        values = space.catalogue.distinct_values(key)
        seen = np.zeros(values.shape[1], dtype=np.bool_)
        for i in options.tolist():
            if seen.sum() >= requirement.min_values:
                break
            if (values[i] & ~seen).any():
                seen |= values[i]
                needed[i] = None
    for i in options.tolist():
        if len(needed) >= MAX_INSTANCE_TYPES:
            break
        needed[i] = None
    return np.array([i for i in options.tolist() if i in needed], dtype=np.int64)
