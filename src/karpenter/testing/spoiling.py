"""Plans made wrong, perhaps: pods go where the planner did not put them."""

from collections.abc import Mapping

from msgspec.structs import replace

from karpenter.apis.core import Pod
from karpenter.base.quantity import total
from karpenter.model.pods import pod_key, requests
from karpenter.model.problem import Plan, PlannedClaim, Problem
from karpenter.testing.dice import Dice

Where = dict[str, int]
"""For each pod with a place: the number of its node, or the number of nodes plus that of its claim."""


def spoilt(dice: Dice, problem: Problem, plan: Plan) -> Plan:
    """Return `plan` after one to three changes: a pod moved (a refused one, too), or two exchanged.

    Costs and requests are put right, and claims that nobody needs any more go.
    """
    nodes = [n.name for n in problem.nodes]
    where = {key: nodes.index(name) for name, keys in plan.placements.items() for key in keys}
    where |= {key: len(nodes) + i for i, claim in enumerate(plan.claims) for key in claim.pods}
    keys = sorted(pod_key(p) for p in problem.pods)
    targets = len(nodes) + len(plan.claims)
    for _ in range(dice.integer(1, 3) if targets else 0):
        one, other = dice.choice(keys), dice.choice(keys)
        if dice.chance(50):
            where[one] = dice.integer(0, targets - 1)
        elif one in where and other in where:
            where[one], where[other] = where[other], where[one]
    return _as_plan(problem, plan, where)


def _as_plan(problem: Problem, plan: Plan, where: Where) -> Plan:
    pods = {pod_key(p): p for p in problem.pods}
    shares: dict[int, list[str]] = {}
    for key in sorted(where):
        shares.setdefault(where[key], []).append(key)
    first = len(problem.nodes)
    claims = tuple(
        _with_pods(claim, shares[first + i], pods)
        for i, claim in enumerate(plan.claims)
        if first + i in shares
    )
    return replace(
        plan,
        placements={n.name: tuple(shares[i]) for i, n in enumerate(problem.nodes) if i in shares},
        claims=claims,
        unschedulable=tuple(u for u in plan.unschedulable if u.pod not in where),
        cost=sum(c.price for c in claims),
        lower_bound=None,
    )


def _with_pods(claim: PlannedClaim, keys: list[str], pods: Mapping[str, Pod]) -> PlannedClaim:
    return replace(claim, pods=tuple(keys), requests=total(requests(pods[key]) for key in keys))
