"""Is this plan right? An independent, slow and obvious verifier.

It shares no code with the solver but the model: every constraint is derived again from the pods' own specs,
object by object, against every node that a claim could become. Tests run it on every plan.
"""

from collections.abc import Iterator, Mapping, Sequence

from karpenter.apis.core import Pod
from karpenter.model.pods import pod_key
from karpenter.model.problem import Plan, Problem
from karpenter.scheduling.check_claims import claim_faults
from karpenter.scheduling.check_drives import unattachable
from karpenter.scheduling.check_likeness import Likeness, claim_shape
from karpenter.scheduling.check_limits import limits, stock
from karpenter.scheduling.check_market import TOLERANCE, Market
from karpenter.scheduling.check_neighbours import quarrels
from karpenter.scheduling.check_nodes import node_faults
from karpenter.scheduling.check_order import unbindable
from karpenter.scheduling.check_places import Place, Resident, places_and_residents
from karpenter.scheduling.check_refusals import needless_refusals

__all__ = ["needless_refusals", "quick_violations", "violations"]


def violations(problem: Problem, plan: Plan) -> list[str]:
    """Return everything that is wrong with `plan`, one sentence each; empty when it is right.

    Every pod and every claim is looked at by itself.
    """
    pods = {pod_key(p): p for p in problem.pods}
    wrong = [*_each_pod_once(pods, plan)]
    if wrong:
        return wrong
    market = Market(problem)
    views = {n.name: n for n in problem.nodes}
    for name, keys in plan.placements.items():
        if name not in views:
            wrong.append(f"node {name} is not there")
            continue
        load = [(pods[key], 1) for key in keys]
        wrong += [f"node {name}: {text}" for text in node_faults(problem, views[name], load)]
    for number, claim in enumerate(plan.claims):
        load = [(pods[key], 1) for key in claim.pods]
        wrong += [f"claim {number}: {text}" for text in claim_faults(market, claim, load)]
    return [*wrong, *_together(market, plan, pods, *places_and_residents(market, plan, pods))]


def quick_violations(problem: Problem, plan: Plan) -> list[str]:
    """Return what `violations` returns, in about a second for 50,000 pods; equal mistakes are named once.

    Pods with equal specs are looked at once, and so are claims of equal shape with equal pods. The operator
    asks this of every plan that a search has improved.
    """
    pods = {pod_key(p): p for p in problem.pods}
    wrong = [*_each_pod_once(pods, plan)]
    if wrong:
        return wrong
    market, likes = Market(problem, quick=True), Likeness()
    views = {n.name: n for n in problem.nodes}
    for name, keys in plan.placements.items():
        if name not in views:
            wrong.append(f"node {name} is not there")
            continue
        load = likes.load(pods[key] for key in keys)
        wrong += [f"node {name}: {text}" for text in node_faults(problem, views[name], load)]
    seen = set()
    for number, claim in enumerate(plan.claims):
        load = likes.load(pods[key] for key in claim.pods)
        shape = claim_shape(claim, load)
        if shape not in seen:
            seen.add(shape)
            wrong += [f"claim {number}: {text}" for text in claim_faults(market, claim, load)]
    return [*wrong, *_together(market, plan, pods, *places_and_residents(market, plan, pods, likes.company))]


def _together(
    market: Market,
    plan: Plan,
    pods: Mapping[str, Pod],
    places: Sequence[Place],
    residents: Sequence[Resident],
) -> Iterator[str]:
    """Yield what no node shows by itself: limits, company, volumes, the sum."""
    yield from limits(market, plan)
    yield from stock(market, plan)
    yield from unattachable(market.problem, plan, pods)
    yield from quarrels(market.problem.snapshot, residents)
    yield from unbindable(market.problem.snapshot, places, residents)
    cost = sum(c.price for c in plan.claims)
    if abs(cost - plan.cost) > TOLERANCE:
        yield f"cost is {plan.cost}, the claims cost {cost}"
    if plan.lower_bound is not None and plan.lower_bound > plan.cost + TOLERANCE:
        yield f"lower bound {plan.lower_bound} is above the cost {plan.cost}"


def _each_pod_once(pods: Mapping[str, Pod], plan: Plan) -> Iterator[str]:
    seen: dict[str, int] = dict.fromkeys(pods, 0)
    everywhere = [
        *(key for claim in plan.claims for key in claim.pods),
        *(key for keys in plan.placements.values() for key in keys),
        *(u.pod for u in plan.unschedulable),
    ]
    for key in everywhere:
        if key not in seen:
            yield f"pod {key} was not asked for"
        else:
            seen[key] += 1
    for key, times in seen.items():
        if times != 1:
            yield f"pod {key} is dealt with {times} times"
    for refused in plan.unschedulable:
        if not refused.refusals:
            yield f"pod {refused.pod} is refused without a reason"
