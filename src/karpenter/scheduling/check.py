"""Is this plan right? An independent, slow and obvious verifier.

It shares no code with the solver but the model: every constraint is derived again from the pods' own specs,
object by object, against every node that a claim could become. Tests run it on every plan.
"""

from collections.abc import Iterator, Mapping

from karpenter.apis.core import Pod
from karpenter.model.pods import pod_key
from karpenter.model.problem import Plan, Problem
from karpenter.scheduling.check_claims import TOLERANCE, claim_faults
from karpenter.scheduling.check_limits import limits, stock
from karpenter.scheduling.check_neighbours import quarrels
from karpenter.scheduling.check_nodes import node_faults
from karpenter.scheduling.check_order import unbindable
from karpenter.scheduling.check_places import places_and_residents
from karpenter.scheduling.check_refusals import needless_refusals

__all__ = ["needless_refusals", "violations"]


def violations(problem: Problem, plan: Plan) -> list[str]:
    """Return everything that is wrong with `plan`, one sentence each; empty when it is right."""
    pods = {pod_key(p): p for p in problem.pods}
    wrong = [*_each_pod_once(pods, plan)]
    if wrong:
        return wrong
    wrong += node_faults(problem, plan, pods)
    offers = {o.pool.name: o for o in problem.pools}
    for number, claim in enumerate(plan.claims):
        offer = offers.get(claim.pool.name)
        if offer is None:
            wrong.append(f"claim {number}: NodePool {claim.pool.name} is not on offer")
        else:
            wrong += [f"claim {number}: {text}" for text in claim_faults(problem, offer, claim, pods)]
    wrong += limits(problem, plan)
    wrong += stock(problem, plan)
    places, residents = places_and_residents(problem, plan, pods)
    wrong += quarrels(problem.snapshot, residents)
    wrong += unbindable(problem.snapshot, places, residents)
    cost = sum(c.price for c in plan.claims)
    if abs(cost - plan.cost) > TOLERANCE:
        wrong.append(f"cost is {plan.cost}, the claims cost {cost}")
    if plan.lower_bound is not None and plan.lower_bound > plan.cost + TOLERANCE:
        wrong.append(f"lower bound {plan.lower_bound} is above the cost {plan.cost}")
    return wrong


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
