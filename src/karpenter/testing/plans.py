"""Plans written by hand: what a test says shall go where, with everything else filled in rightly."""

from collections.abc import Collection, Iterable, Mapping

from karpenter.apis import labels as known
from karpenter.base.quantity import fits, total
from karpenter.model.pods import pod_key, requests
from karpenter.model.problem import Plan, PlannedClaim, Problem
from karpenter.model.reasons import Refusal, Unschedulable
from karpenter.model.requirements import Requirement, Requirements
from karpenter.scheduling.check_market import Market, pool_requirements

_REFUSAL = Refusal(place="", constraint="resources", message="left out by hand")


def a_claim(
    problem: Problem,
    *names: str,
    pool: str = "",
    types: Collection[str] = (),
    requirements: Requirements | None = None,
    **labels: str,
) -> PlannedClaim | None:
    """Return a claim for the named pods: every type of the pool that holds them, or only `types`.

    `zone`, `capacity_type` and the other words of `KEYS` narrow a label to one value, `requirements` whatever
    they name. The first pool is meant unless `pool` names another. None when no type will do.
    """
    market = Market(problem)
    pool = pool or problem.pools[0].pool.name
    narrowed = pool_requirements(market.offers[pool]).merge(requirements or Requirements())
    narrowed = narrowed.add(*(Requirement.of(KEYS[k], "In", [v]) for k, v in sorted(labels.items())))
    keys = tuple(sorted(key_of(name) for name in names))
    asked = total(requests(p) for p in problem.pods if pod_key(p) in keys)
    listed = []
    needs = []
    for name, instance_type in market.types[pool].items():
        _, daemons = market.daemons(pool, name)
        price = market.cheapest(pool, narrowed, name)
        fitting = fits(total([asked, daemons]), instance_type.allocatable) and (not types or name in types)
        if fitting and price < float("inf") and not narrowed.intersects(instance_type.requirements):
            listed.append((price, name))
            needs.append(daemons)
    if not listed:
        return None
    listed.sort()
    least = {resource: min(d.get(resource, 0) for d in needs) for d in needs for resource in d}
    return PlannedClaim(
        pool=market.offers[pool].pool,
        requirements=narrowed.add(Requirement.of(known.INSTANCE_TYPE, "In", [name for _, name in listed])),
        instance_types=tuple(name for _, name in listed),
        requests=total([asked, least]),
        pods=keys,
        price=listed[0][0],
    )


KEYS = {
    "zone": known.ZONE,
    "capacity_type": known.CAPACITY_TYPE,
    "instance_type": known.INSTANCE_TYPE,
    "rack": "example.com/rack",
}
"""The labels that `a_claim` narrows by keyword."""


def key_of(name: str) -> str:
    """Return the key of a pod named in a test: of the default namespace unless it says another."""
    return name if "/" in name else f"default/{name}"


def a_plan(
    problem: Problem,
    *claims: PlannedClaim | None,
    nodes: Mapping[str, Iterable[str]] | None = None,
) -> Plan:
    """Return the plan of these claims and of `nodes` (pod names by node name); other pods are refused.

    Raises:
        ValueError: when one of `claims` is None, which is what `a_claim` returns for the impossible.
    """
    placements = {name: tuple(sorted(map(key_of, names))) for name, names in (nodes or {}).items()}
    kept = [c for c in claims if c is not None]
    if len(kept) != len(claims):
        raise ValueError("a claim could not be made: no type of the pool holds its pods")
    placed = {key for c in kept for key in c.pods} | {key for keys in placements.values() for key in keys}
    refused = sorted(pod_key(p) for p in problem.pods if pod_key(p) not in placed)
    return Plan(
        claims=tuple(kept),
        placements=dict(sorted(placements.items())),
        unschedulable=tuple(Unschedulable(pod=key, refusals=(_REFUSAL,)) for key in refused),
        cost=sum(c.price for c in kept),
    )
