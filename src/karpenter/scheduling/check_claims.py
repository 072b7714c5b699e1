"""Planned nodes: whatever each claim becomes must suit the pods it is for."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product

import msgspec

from karpenter.apis import labels as known
from karpenter.apis.core import Pod
from karpenter.base.quantity import fits, total
from karpenter.model.instancetype import InstanceType, Offering
from karpenter.model.pods import has_dra_requirements, pod_key, requests
from karpenter.model.problem import PlannedClaim, PoolOffer, Problem
from karpenter.model.requirements import SIMULATION_LABELS, Requirement, Requirements
from karpenter.scheduling.check_fit import (
    hard_taints,
    mentioned,
    port_clashes,
    refuses,
    selected,
    unsupported,
    volumes_reach,
    ways,
)

_MOST_TYPES = 600
TOLERANCE = 1e-6


def claim_faults(
    problem: Problem, offer: PoolOffer, claim: PlannedClaim, pods: Mapping[str, Pod]
) -> Iterator[str]:
    """Yield what is wrong with one claim by itself: types, price, room, ports, labels, minValues."""
    placed = [pods[key] for key in claim.pods]
    if not placed:
        yield "is for no pod"
    catalogue = {t.name: t for t in offer.instance_types}
    types = [catalogue[name] for name in claim.instance_types if name in catalogue]
    if len(types) != len(claim.instance_types) or not types:
        yield f"lists types that {offer.pool.name} does not have, or none: {claim.instance_types[:5]}"
        return
    if len(types) > _MOST_TYPES:
        yield f"lists {len(types)} instance types, more than {_MOST_TYPES}"
    prices = [(cheapest(problem, claim.requirements, t), t.name) for t in types]
    if prices != sorted(prices):
        yield "instance types are not ordered by price and name"
    if abs(prices[0][0] - claim.price) > TOLERANCE:
        yield f"price is {claim.price}, the cheapest offering costs {prices[0][0]}"
    pool_taints = offer.pool.spec.template.spec.taints
    for pod in placed:
        yield from (f"{pod_key(pod)}: {text}" for text in unsupported(pod))
        yield from (f"{pod_key(pod)} does not tolerate {t}" for t in hard_taints(pool_taints, pod))
    if claim.min_values_relaxed and problem.options.min_values_strict:
        yield "has relaxed minValues, which are strict"
    yield from _pool_requirements(offer, claim, types)
    asked = total(requests(p) for p in placed)
    for resource, amount in asked.items():
        if claim.requests.get(resource, 0) < amount:
            yield f"requests {claim.requests.get(resource, 0)} {resource}, its pods {amount}"
    for instance_type in types:
        daemons = daemons_on(problem, offer, instance_type)
        needed = total([asked, *(requests(d) for d in daemons)])
        if not fits(needed, instance_type.allocatable):
            yield f"{instance_type.name} has {instance_type.allocatable}, pods and daemons need {needed}"
        yield from port_clashes([*placed, *daemons], placed)
        if cheapest(problem, claim.requirements, instance_type) == float("inf"):
            yield f"{instance_type.name} has no available offering under {claim.requirements}"
    yield from _labels_on_every_node(problem, offer, claim, types, placed)


def _pool_requirements(offer: PoolOffer, claim: PlannedClaim, types: Sequence[InstanceType]) -> Iterator[str]:
    """The claim must be no wider than its pool, and offer the variety that minValues ask for."""
    template = offer.pool.spec.template
    asked = Requirements.from_specs(template.spec.requirements).merge(
        Requirements.from_labels({**template.metadata.labels, known.NODEPOOL: offer.pool.name})
    )
    for key, requirement in asked.items():
        mine = claim.requirements.get(key)
        narrowed = mine.intersection(requirement)
        if msgspec.structs.replace(narrowed, min_values=None) != msgspec.structs.replace(
            mine, min_values=None
        ):
            yield f"{mine} is wider than the pool's {requirement}"
        if requirement.min_values is not None and not claim.min_values_relaxed:
            values = {v for t in types for v in t.requirements.get(key).permitted()}
            if len(values) < requirement.min_values:
                yield f"offers {len(values)} values of {key}, minValues is {requirement.min_values}"


def _labels_on_every_node(
    problem: Problem,
    offer: PoolOffer,
    claim: PlannedClaim,
    types: Sequence[InstanceType],
    placed: Sequence[Pod],
) -> Iterator[str]:
    """Every node the claim may become must have labels that every pod accepts."""
    distinct = {
        msgspec.msgpack.encode((p.spec.node_selector, p.spec.affinity)): p
        for p in placed
        if not p.spec.volumes
    }
    checked = [*distinct.values(), *(p for p in placed if p.spec.volumes)]
    keys = {known.ALIASES.get(key, key) for p in checked for key in mentioned(p, problem.snapshot)}
    if not keys:
        return
    seen: set[tuple[tuple[str, str], ...]] = set()
    for instance_type in types:
        for offering in offerings_left(problem, claim.requirements, instance_type):
            for here in _possible_labels(problem, offer, claim, instance_type, offering, keys):
                mark = tuple(sorted(here.items()))
                if mark in seen:
                    continue
                seen.add(mark)
                for pod in checked:
                    if not selected(pod, here) or not volumes_reach(pod, here, problem.snapshot):
                        yield f"{pod_key(pod)} does not accept a node with {here} ({instance_type.name})"


def _possible_labels(
    problem: Problem,
    offer: PoolOffer,
    claim: PlannedClaim,
    instance_type: InstanceType,
    offering: Offering,
    keys: Iterable[str],
) -> Iterator[dict[str, str]]:
    """Yield every set of labels, as far as `keys` go, that a node of this offering may have."""
    given = claim.requirements.labels(problem.options.well_known_labels)
    given |= {known.NODEPOOL: offer.pool.name, **dict.fromkeys(SIMULATION_LABELS, "true")}
    choices: list[list[tuple[str, str] | None]] = []
    for key in sorted(keys):
        if key in given:
            choices.append([(key, given[key])])
            continue
        allowed = claim.requirements.get(key).intersection(instance_type.requirements.get(key))
        allowed = allowed.intersection(offering.requirements.get(key))
        choices.append([(key, value) for value in allowed.permitted()] or [_open_choice(key, allowed)])
    for combination in product(*choices):
        yield dict(pair for pair in combination if pair is not None)


def _open_choice(key: str, allowed: Requirement) -> tuple[str, str] | None:
    return None if allowed.absent else (key, allowed.any())


def daemons_on(problem: Problem, offer: PoolOffer, instance_type: InstanceType) -> list[Pod]:
    """Return the daemons that a new node of the pool and type has to expect."""
    template = offer.pool.spec.template
    ref = template.spec.node_class_ref
    fixed = {
        **template.metadata.labels,
        known.NODEPOOL: offer.pool.name,
        known.nodeclass_label(ref.group, ref.kind): ref.name,
        **dict.fromkeys(SIMULATION_LABELS, "true"),
    }
    node = Requirements.from_specs(template.spec.requirements).merge(Requirements.from_labels(fixed))
    found = []
    for daemon in problem.snapshot.daemons:
        if has_dra_requirements(daemon) or refuses(daemon, template.spec.taints):
            continue
        for wanted in ways(daemon):
            if node.compatible(wanted, problem.options.well_known_labels):
                continue
            if not instance_type.requirements.intersects(wanted):
                found.append(daemon)
                break
    return found


def offerings_left(
    problem: Problem, requirements: Requirements, instance_type: InstanceType
) -> list[Offering]:
    """Return the offerings of a type that can still be had under `requirements`."""
    return [
        offering
        for offering in instance_type.offerings
        if offering.available
        and offering.stock != 0
        and not requirements.compatible(offering.requirements, problem.options.well_known_labels)
    ]


def cheapest(problem: Problem, requirements: Requirements, instance_type: InstanceType) -> float:
    """Return the price of a type under `requirements`; infinite when it cannot be had."""
    left = offerings_left(problem, requirements, instance_type)
    return min((offering.price for offering in left), default=float("inf"))
