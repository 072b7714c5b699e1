"""Planned nodes: whatever each claim becomes must suit the pods it is for."""

from collections.abc import Iterator, Sequence

import msgspec

from karpenter.apis import labels as known
from karpenter.base.quantity import fits, total
from karpenter.model.instancetype import InstanceType
from karpenter.model.pods import host_ports, pod_key
from karpenter.model.problem import PlannedClaim
from karpenter.model.requirements import SIMULATION_LABELS, Requirement
from karpenter.scheduling.check_fit import (
    Load,
    hard_taints,
    mentioned,
    port_clashes,
    selected,
    total_requests,
    unsupported,
    volumes_reach,
)
from karpenter.scheduling.check_market import TOLERANCE, Lot, Market, Price, pool_requirements

_MOST_TYPES = 600


def claim_faults(market: Market, claim: PlannedClaim, load: Load) -> Iterator[str]:
    """Yield what is wrong with one claim by itself: types, price, room, ports, labels, minValues."""
    if claim.pool.name not in market.offers:
        yield f"NodePool {claim.pool.name} is not on offer"
        return
    if not load:
        yield "is for no pod"
    catalogue = market.types[claim.pool.name]
    types = [catalogue[name] for name in claim.instance_types if name in catalogue]
    if len(types) != len(claim.instance_types) or not types:
        yield f"lists types that {claim.pool.name} does not have, or none: {claim.instance_types[:5]}"
        return
    yield from _types(market, claim, types)
    pool_taints = market.offers[claim.pool.name].pool.spec.template.spec.taints
    for pod, _ in load:
        yield from (f"{pod_key(pod)}: {text}" for text in unsupported(pod))
        yield from (f"{pod_key(pod)} does not tolerate {t}" for t in hard_taints(pool_taints, pod))
    yield from _pool_rules(market, claim, types)
    yield from _room(market, claim, types, load)
    yield from _labels_on_every_node(market, claim, types, load)


def _types(market: Market, claim: PlannedClaim, types: Sequence[InstanceType]) -> Iterator[str]:
    """The list is short enough and in order, its price is right, and every type can be had."""
    if len(types) > _MOST_TYPES:
        yield f"lists {len(types)} instance types, more than {_MOST_TYPES}"
    if market.clears(claim.pool.name, claim.requirements, claim.instance_types, claim.price):
        return
    prices = market.prices(claim.pool.name, claim.requirements)
    ways = [prices[name] for name in claim.instance_types]
    for instance_type, found in zip(types, ways, strict=True):
        if not found:
            yield f"{instance_type.name} has no available offering under {claim.requirements}"
    if all(ways):
        wrong = {lot: list(_prices(claim, ways, lot)) for lot in ways[0]}
        if all(wrong.values()):
            yield from wrong[min(wrong)]
    yield from market.clashes(claim.pool.name, claim.requirements, claim.instance_types)


def lots_paid(market: Market, claim: PlannedClaim) -> list[Lot]:
    """Return the lots (empty: what there is without end) that a claim with its price and types may be of."""
    prices = market.prices(claim.pool.name, claim.requirements)
    ways = [prices[name] for name in claim.instance_types]
    return [lot for lot in sorted(ways[0]) if not any(_prices(claim, ways, lot))]


def _prices(claim: PlannedClaim, ways: Sequence[dict[Lot, Price]], lot: Lot) -> Iterator[str]:
    """Yield what is wrong with a claim's price and the order of its types if they are bought from `lot`."""
    names = claim.instance_types
    missing = [name for name, found in zip(names, ways, strict=True) if lot not in found]
    if missing:
        yield f"{missing[0]} cannot be had from {'/'.join(lot) or 'what there is without end'}"
        return
    prices = [(found[lot].worth, name) for name, found in zip(names, ways, strict=True)]
    if prices != sorted(prices):
        yield "instance types are not ordered by price and name"
    if abs(ways[0][lot].usd - claim.price) > TOLERANCE:
        yield f"price is {claim.price}, the cheapest offering costs {ways[0][lot].usd}"


def _pool_rules(market: Market, claim: PlannedClaim, types: Sequence[InstanceType]) -> Iterator[str]:
    """The claim must be no wider than its pool, and offer the variety that minValues ask for."""
    if claim.min_values_relaxed and market.problem.options.min_values_strict:
        yield "has relaxed minValues, which are strict"
    for key, requirement in pool_requirements(market.offers[claim.pool.name]).items():
        mine = claim.requirements.get(key)
        narrowed = mine.intersection(requirement)
        if _set_of(narrowed) != _set_of(mine):
            yield f"{mine} is wider than the pool's {requirement}"
        if requirement.min_values is not None and not claim.min_values_relaxed:
            values = {v for t in types for v in t.requirements.get(key).permitted()}
            if len(values) < requirement.min_values:
                yield f"offers {len(values)} values of {key}, minValues is {requirement.min_values}"


def _set_of(requirement: Requirement) -> Requirement:
    return msgspec.structs.replace(requirement, min_values=None)


def _room(market: Market, claim: PlannedClaim, types: Sequence[InstanceType], load: Load) -> Iterator[str]:
    """Every listed type holds the pods and the daemons that it has to expect, ports included."""
    asked = total_requests(load)
    for resource, amount in asked.items():
        if claim.requests.get(resource, 0) < amount:
            yield f"requests {claim.requests.get(resource, 0)} {resource}, its pods {amount}"
    ported = any(host_ports(pod) for pod, _ in load)
    most = market.problem.options.max_node_cpu
    if market.quick and not ported and most is None:
        doubtful = set(market.doubtful(claim.pool.name, claim.instance_types, asked))
        types = [t for t in types if t.name in doubtful]
    for instance_type in types:
        daemons, overhead = market.daemons(claim.pool.name, instance_type.name)
        needed = total([asked, overhead])
        for machine in market.machines(claim.pool.name, claim.requirements, instance_type.name):
            if not fits(needed, machine.allocatable):
                yield f"{machine.name} has {machine.allocatable}, pods and daemons need {needed}"
            if most is not None and machine.capacity.get("cpu", 0) > most:
                yield f"{machine.name} has {machine.capacity['cpu']} cpu, more than {most}"
        if ported:
            yield from port_clashes(load, daemons)


def _labels_on_every_node(
    market: Market, claim: PlannedClaim, types: Sequence[InstanceType], load: Load
) -> Iterator[str]:
    """Every node the claim may become must have labels that every pod accepts."""
    snapshot = market.problem.snapshot
    choosy = {
        msgspec.msgpack.encode((p.spec.node_selector, p.spec.affinity, p.spec.volumes and pod_key(p))): p
        for p, _ in load
    }
    keys = {known.ALIASES.get(key, key) for p in choosy.values() for key in mentioned(p, snapshot)}
    if not keys:
        return
    given = claim.requirements.labels(market.well_known)
    given |= {known.NODEPOOL: claim.pool.name, **dict.fromkeys(SIMULATION_LABELS, "true")}
    fixed = {key: given[key] for key in keys if key in given}
    loose = tuple(sorted(keys - given.keys()))
    for rest, example in market.label_choices(claim.pool.name, claim.requirements, loose, types).items():
        here = {**fixed, **dict(rest)}
        mark = tuple(sorted(here.items()))
        for choice, pod in choosy.items():
            accepts = market.accepted.get((choice, mark))
            if accepts is None:
                accepts = selected(pod, here) and volumes_reach(pod, here, snapshot)
                market.accepted[choice, mark] = accepts
            if not accepts:
                yield f"{pod_key(pod)} does not accept a node with {here} ({example})"
