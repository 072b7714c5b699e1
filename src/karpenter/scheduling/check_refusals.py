"""Was it necessary to refuse these pods? Each is tried again, alone, beside everything the plan does."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import product

import msgspec

from karpenter.apis import labels as known
from karpenter.apis.core import Pod
from karpenter.base.quantity import Resources, fits, total
from karpenter.model.pods import pod_key, requests
from karpenter.model.problem import Plan, PlannedClaim, Problem
from karpenter.model.reasons import Unschedulable
from karpenter.model.requirements import Requirement, Requirements
from karpenter.scheduling.check_claims import claim_faults
from karpenter.scheduling.check_company import attracted_by, repelled_by, spread_by
from karpenter.scheduling.check_fit import unsupported, ways
from karpenter.scheduling.check_likeness import Likeness
from karpenter.scheduling.check_limits import limits, stock
from karpenter.scheduling.check_market import Market, pool_requirements
from karpenter.scheduling.check_neighbours import quarrels
from karpenter.scheduling.check_nodes import node_faults
from karpenter.scheduling.check_order import unbindable
from karpenter.scheduling.check_places import places_and_residents

_ON_PRINCIPLE = ("unsupported", "dra", "volumes", "volumeLimits")
"""Refusals that have nothing to do with what can be bought."""


def needless_refusals(problem: Problem, plan: Plan) -> list[str]:
    """Return the refused pods that could be added to `plan`, and where, without breaking any rule.

    Tried are every existing node, and for each NodePool a new node in each domain it can be in, the pod being
    bound after all others. Limits, stock and minValues count as they do in `violations`. Of pods that are
    alike one is tried.
    """
    pods = {pod_key(p): p for p in problem.pods}
    market, likes = Market(problem), Likeness()
    answers: dict[int, str] = {}
    found = []
    for refused in plan.unschedulable:
        pod = likes.first_like(pods[refused.pod])
        if any(unsupported(pod)) or any(r.constraint in _ON_PRINCIPLE for r in refused.refusals):
            continue
        if id(pod) not in answers:
            answers[id(pod)] = next(_openings(market, plan, pods, refused), "")
        if answers[id(pod)]:
            found.append(f"{refused.pod} was refused, but {answers[id(pod)]}")
    return found


def _openings(market: Market, plan: Plan, pods: Mapping[str, Pod], refused: Unschedulable) -> Iterator[str]:
    """Yield the places where the pod could go."""
    pod = pods[refused.pod]
    rest = tuple(u for u in plan.unschedulable if u is not refused)
    for node in market.problem.nodes:
        keys = tuple(sorted((*plan.placements.get(node.name, ()), refused.pod)))
        if any(node_faults(market.problem, node, [(pods[key], 1) for key in keys])):
            continue
        placements = {**plan.placements, node.name: keys}
        more = msgspec.structs.replace(plan, placements=placements, unschedulable=rest)
        if _works(market, more, pods, refused.pod):
            yield f"node {node.name} could take it"
    for claim in _claims_for(market, pod):
        if any(claim_faults(market, claim, [(pod, 1)])):
            continue
        more = msgspec.structs.replace(plan, claims=(*plan.claims, claim), unschedulable=rest)
        if _works(market, more, pods, refused.pod):
            where = claim.requirements.without(known.INSTANCE_TYPE, known.NODEPOOL)
            yield f"{claim.pool.name} could buy {claim.instance_types[0]} for it under {where}"


def _works(market: Market, plan: Plan, pods: Mapping[str, Pod], last: str) -> bool:
    if any(limits(market, plan)) or any(stock(market, plan)):
        return False
    places, residents = places_and_residents(market, plan, pods)
    snapshot = market.problem.snapshot
    return not any(quarrels(snapshot, residents)) and not any(unbindable(snapshot, places, residents, last))


def _claims_for(market: Market, pod: Pod) -> Iterator[PlannedClaim]:
    """Yield claims for `pod` alone, of all types that hold it and of each: undecided, and in each domain."""
    keys = _topology_keys(market.problem)
    for name, offer in market.offers.items():
        for way in ways(pod):
            merged = pool_requirements(offer).merge(way)
            if pool_requirements(offer).compatible(way, market.well_known):
                continue
            for narrowed in _narrowed(market, name, merged, keys):
                types = _types(market, name, narrowed, requests(pod))
                for listed in (types, *([t] for t in types if len(types) > 1)):
                    if listed:
                        yield _claim(market, name, narrowed, listed, pod)


def _topology_keys(problem: Problem) -> list[str]:
    everyone = [*problem.pods, *(p for n in problem.snapshot.nodes for p in n.pods)]
    spreads = {c.topology_key for p in everyone for c in spread_by(p)}
    return sorted(spreads | {t.topology_key for p in everyone for t in (*attracted_by(p), *repelled_by(p))})


def _narrowed(
    market: Market, pool: str, requirements: Requirements, keys: Sequence[str]
) -> Iterator[Requirements]:
    """Yield `requirements` as they are, then with every choice of the domains they leave open."""
    yield requirements
    offerings = {o.requirements for t in market.types[pool] for o in market.offerings(pool, requirements, t)}
    for place in sorted(offerings, key=str):
        here = requirements.merge(place)
        open_keys = [key for key in keys if len(here.get(key).permitted()) > 1]
        for values in product(*(here.get(key).permitted() for key in open_keys)):
            chosen = zip(open_keys, values, strict=True)
            yield here.add(*(Requirement.of(key, "In", [value]) for key, value in chosen))


def _types(market: Market, pool: str, requirements: Requirements, asked: Resources) -> list[str]:
    """Return the types that hold `asked` and can be had, cheapest first."""
    found = []
    for name, instance_type in market.types[pool].items():
        _, overhead = market.daemons(pool, name)
        if (
            not requirements.intersects(instance_type.requirements)
            and market.offerings(pool, requirements, name)
            and fits(total([asked, overhead]), instance_type.allocatable)
        ):
            found.append((market.cheapest(pool, requirements, name), name))
    return [name for _, name in sorted(found)]


def _claim(market: Market, pool: str, requirements: Requirements, types: list[str], pod: Pod) -> PlannedClaim:
    return PlannedClaim(
        pool=market.offers[pool].pool,
        requirements=requirements.add(Requirement.of(known.INSTANCE_TYPE, "In", types)),
        instance_types=tuple(types),
        requests=requests(pod),
        pods=(pod_key(pod),),
        price=market.cheapest(pool, requirements, types[0]),
    )
