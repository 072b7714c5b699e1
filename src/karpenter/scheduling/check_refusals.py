"""Was it necessary to refuse these pods? Each is tried again, alone, beside everything the plan does."""

from collections.abc import Iterator, Mapping

import msgspec

from karpenter.apis import labels as known
from karpenter.apis.core import Pod
from karpenter.model.pods import pod_key
from karpenter.model.problem import Plan, Problem
from karpenter.model.reasons import Unschedulable
from karpenter.scheduling.check_fit import unsupported
from karpenter.scheduling.check_likeness import Likeness
from karpenter.scheduling.check_limits import limits, stock
from karpenter.scheduling.check_market import Market
from karpenter.scheduling.check_neighbours import quarrels
from karpenter.scheduling.check_nodes import node_faults
from karpenter.scheduling.check_openings import claims_for, possible_domains
from karpenter.scheduling.check_order import Newcomer, unbindable
from karpenter.scheduling.check_places import places_and_residents

_ON_PRINCIPLE = ("unsupported", "dra", "volumes", "volumeLimits")
"""Refusals that have nothing to do with what can be bought."""


def needless_refusals(problem: Problem, plan: Plan) -> list[str]:
    """Return the refused pods that could be added to `plan`, and where, without breaking any rule.

    Tried are every existing node, and for each NodePool a new node in each domain it can be in. The pod must
    do no harm whenever it is bound, and its spread must be kept even if a node were bought in every domain
    where one can be, as upstream has it. Limits, stock and minValues count as they do in `violations`. Of
    pods that are alike one is tried.
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
    for claim in () if _worthless(market, pod) else claims_for(market, [(pod, 1)]):
        more = msgspec.structs.replace(plan, claims=(*plan.claims, claim), unschedulable=rest)
        if _works(market, more, pods, refused.pod):
            where = claim.requirements.without(known.INSTANCE_TYPE, known.NODEPOOL)
            yield f"{claim.pool.name} could buy {claim.instance_types[0]} for it under {where}"


def _worthless(market: Market, pod: Pod) -> bool:
    """Tell whether nothing may be bought for the pod."""
    cutoff = market.problem.options.expendable_below
    return cutoff is not None and (pod.spec.priority or 0) < cutoff


def _works(market: Market, plan: Plan, pods: Mapping[str, Pod], key: str) -> bool:
    if any(limits(market, plan)) or any(stock(market, plan)):
        return False
    places, residents = places_and_residents(market, plan, pods)
    snapshot = market.problem.snapshot
    newcomer = Newcomer(key, lambda spread: possible_domains(market, spread))
    return not any(quarrels(snapshot, residents)) and not any(
        unbindable(snapshot, places, residents, newcomer)
    )
