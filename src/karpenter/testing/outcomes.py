"""Solve a problem, hold the plan to the verifier, and ask what became of the pods."""

from collections import Counter
from collections.abc import Mapping

from karpenter.apis import labels as known
from karpenter.model.problem import Plan, PlannedClaim, Problem
from karpenter.model.reasons import Refusal
from karpenter.scheduling import solve
from karpenter.scheduling.check import violations


def planned(problem: Problem) -> Plan:
    """Return the solver's plan.

    Raises:
        AssertionError: when the verifier finds anything wrong with it.
    """
    plan = solve(problem)
    wrong = violations(problem, plan)
    if wrong:
        raise AssertionError("\n".join(wrong))
    return plan


def the_claim(problem: Problem) -> PlannedClaim:
    """Return the one claim of a plan that needs exactly one and refuses nobody.

    Raises:
        AssertionError: when the plan is wrong, or has another number of claims, or refuses a pod.
    """
    plan = planned(problem)
    if plan.unschedulable or len(plan.claims) != 1:
        raise AssertionError(f"{len(plan.claims)} claims, refused: {[str(u) for u in plan.unschedulable]}")
    return plan.claims[0]


def refused(plan: Plan) -> list[str]:
    """Return the names of the pods that have no place, sorted."""
    return [u.pod.partition("/")[2] for u in plan.unschedulable]


def refusals(plan: Plan, name: str = "pod") -> list[Refusal]:
    """Return why a pod (by name) was refused; empty when it was not."""
    return [r for u in plan.unschedulable if u.pod.partition("/")[2] == name for r in u.refusals]


def places(plan: Plan) -> dict[str, str]:
    """Return where each pod (by name) goes: a node's name, or `new-0` and so on by claim."""
    found = {key: name for name, keys in plan.placements.items() for key in keys}
    found.update({key: f"new-{i}" for i, claim in enumerate(plan.claims) for key in claim.pods})
    return {key.partition("/")[2]: place for key, place in sorted(found.items())}


def together(plan: Plan) -> list[list[str]]:
    """Return the names of the pods that share a node, new or not, node by node, sorted."""
    rooms: dict[str, list[str]] = {}
    for name, place in places(plan).items():
        rooms.setdefault(place, []).append(name)
    return sorted(rooms.values())


def domains(
    plan: Plan, problem: Problem | None = None, *, key: str = known.ZONE, prefix: str = ""
) -> dict[str, int]:
    """Return how many pods (those whose names start with `prefix`) each value of `key` gets.

    Pods on existing nodes are counted when the `problem` is given; "" is a claim that leaves it open.
    """
    found: Counter[str] = Counter()
    of_node: Mapping[str, str] = {n.name: n.labels.get(key, "") for n in problem.nodes} if problem else {}
    for claim in plan.claims:
        found[claim.requirements.single_value(key)] += _count(claim.pods, prefix)
    for name, keys in plan.placements.items():
        if problem is not None:
            found[of_node[name]] += _count(keys, prefix)
    return {value: count for value, count in sorted(found.items()) if count}


def _count(keys: tuple[str, ...], prefix: str) -> int:
    return sum(key.partition("/")[2].startswith(prefix) for key in keys)
