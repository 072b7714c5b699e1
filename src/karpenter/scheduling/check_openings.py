"""Which nodes could be bought for some pods: every claim worth trying, with no idea of which is good."""

from collections.abc import Iterator, Sequence
from itertools import product

from karpenter.apis import labels as known
from karpenter.base.quantity import Resources, fits, total
from karpenter.model.instancetype import InstanceType, Offering
from karpenter.model.pods import pod_key
from karpenter.model.problem import PlannedClaim, Problem
from karpenter.model.requirements import Requirement, Requirements
from karpenter.scheduling.check_claims import claim_faults
from karpenter.scheduling.check_company import attracted_by, repelled_by, spread_by
from karpenter.scheduling.check_fit import Load, refuses, total_requests, ways
from karpenter.scheduling.check_market import Market, everything_on, pool_requirements
from karpenter.scheduling.check_tallies import Spread


def claims_for(market: Market, load: Load, *, each_type: bool = True) -> Iterator[PlannedClaim]:
    """Yield the claims that `load` could share, right by themselves (of company nothing is known here).

    For each pool: with every domain left open, and for each choice of the domains that some constraint looks
    at; of all types that hold the pods, and with `each_type` of each type alone.
    """
    keys = topology_keys(market.problem)
    asked = total_requests(load)
    for name, offer in market.offers.items():
        mine = pool_requirements(offer)
        tried = set()
        for chosen in product(*(ways(pod) for pod, _ in load)):
            merged = mine
            for way in chosen:
                merged = merged.merge(way)
            if merged in tried or any(mine.compatible(way, market.well_known) for way in chosen):
                continue
            tried.add(merged)
            for narrowed in _narrowed(market, name, merged, keys):
                types = _types(market, name, narrowed, asked)
                alone = [[t] for t in types] if each_type and len(types) > 1 else []
                for listed in ([types] if types else []) + alone:
                    claim = _claim(market, name, narrowed, listed, load)
                    if not any(claim_faults(market, claim, load)):
                        yield claim


def topology_keys(problem: Problem) -> list[str]:
    """Return the labels that some constraint on the company of pods looks at, the host name among them."""
    everyone = [*problem.pods, *(p for n in problem.snapshot.nodes for p in n.pods)]
    spreads = {c.topology_key for p in everyone for c in spread_by(p)}
    return sorted(spreads | {t.topology_key for p in everyone for t in (*attracted_by(p), *repelled_by(p))})


def possible_domains(market: Market, spread: Spread) -> set[str]:
    """Return the domains in which a node could be bought that a spread constraint would look at.

    It looks at nodes only that have every label its owner is spread over.
    """
    keys = sorted({c.topology_key for c in spread_by(spread.owner)})
    found: set[str] = set()
    for name, offer in market.offers.items():
        if spread.constraint.node_taints_policy == "Honor" and refuses(
            spread.owner, offer.pool.spec.template.spec.taints
        ):
            continue
        honoured = spread.constraint.node_affinity_policy != "Ignore"
        for way in ways(spread.owner) if honoured else [Requirements()]:
            merged = pool_requirements(offer).merge(way)
            if pool_requirements(offer).compatible(way, market.well_known):
                continue
            for kind in market.types[name].values():
                if not merged.intersects(kind.requirements):
                    for offering in market.offerings(name, merged, kind.name):
                        values = {key: _values_of(key, merged, kind, offering) for key in keys}
                        found.update(values[spread.key] if all(values.values()) else ())
    return found


def _values_of(
    key: str, requirements: Requirements, instance_type: InstanceType, offering: Offering
) -> Sequence[str]:
    """Return the values that a new node may have for a label; all hosts that might be bought are one."""
    if key == known.KUBERNETES_HOSTNAME:
        return ("a node that might be bought",)
    return everything_on(key, requirements, instance_type, offering).permitted()


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
            and all(
                fits(total([asked, overhead]), machine.allocatable)
                for machine in market.machines(pool, requirements, name)
            )
        ):
            found.append((market.cheapest(pool, requirements, name), name))
    return [name for _, name in sorted(found)]


def _claim(
    market: Market, pool: str, requirements: Requirements, types: list[str], load: Load
) -> PlannedClaim:
    return PlannedClaim(
        pool=market.offers[pool].pool,
        requirements=requirements.add(Requirement.of(known.INSTANCE_TYPE, "In", types)),
        instance_types=tuple(types),
        requests=total_requests(load),
        pods=tuple(sorted(pod_key(pod) for pod, _ in load)),
        price=market.cheapest(pool, requirements, types[0]),
    )
