"""The verifier finds an order of binding wherever there is one."""

import itertools

import pytest

from karpenter.apis import labels
from karpenter.apis.core import Pod
from karpenter.model.problem import Plan, Problem
from karpenter.scheduling.check import violations
from karpenter.testing.builders import a_problem, an_instance_type
from karpenter.testing.company import Spec, app_pods, beside, spread
from karpenter.testing.dice import Dice
from karpenter.testing.plans import a_claim, a_plan

ZONES = ("a", "b", "c")


def in_zones(pods: list[Pod], zones: list[str]) -> tuple[Problem, Plan]:
    """Return the plan that puts each pod on a node of its own in its zone."""
    problem = a_problem(pods, instance_types=[an_instance_type(zones=ZONES)])
    claims = [a_claim(problem, pod.name, zone=zone) for pod, zone in zip(pods, zones, strict=True)]
    return problem, a_plan(problem, *claims)


def some_order_works(pods: list[Pod], zones: list[str]) -> bool:
    """Tell by trying every order, for pods that spread web pods over zones or follow db pods."""
    return any(_works(order, set(zones)) for order in itertools.permutations(zip(pods, zones, strict=True)))


def _works(order: tuple[tuple[Pod, str], ...], zones: set[str]) -> bool:
    counts = dict.fromkeys(zones, 0)
    followed = set()
    for pod, zone in order:
        is_web = pod.metadata.labels["app"] == "web"
        for constraint in pod.spec.topology_spread_constraints:
            if counts[zone] + is_web - min(counts.values()) > constraint.max_skew:
                return False
        if pod.spec.affinity and zone not in followed:
            return False
        counts[zone] += is_web
        if pod.metadata.labels["app"] == "db":
            followed.add(zone)
    return True


KINDS: tuple[tuple[str, Spec | None], ...] = (
    ("web", None),
    ("web", spread()),
    ("web", spread(max_skew=2)),
    ("web", beside("db")),
    ("db", spread()),
    ("db", None),
)


def a_random_case(seed: int) -> tuple[list[Pod], list[str]]:
    """Return six pods of random kinds, and a zone for each."""
    dice = Dice.of_seed(f"order/{seed}")
    kinds = [dice.choice(KINDS) for _ in range(6)]
    pods = [app_pods(f"{app}{n}", spec=spec)[0] for n, (app, spec) in enumerate(kinds)]
    several = ZONES[: dice.integer(2, 3)]
    return pods, [dice.choice(several) for _ in pods]


@pytest.mark.parametrize("seed", range(60))
def test_an_order_is_found_exactly_when_there_is_one(seed: int) -> None:
    """For six pods of random kinds in random zones, the verdict is that of trying all 720 orders."""
    pods, zones = a_random_case(seed)
    assert (violations(*in_zones(pods, zones)) == []) == some_order_works(pods, zones)


def test_the_random_cases_go_both_ways() -> None:
    """Among them are plans with an order and plans without."""
    verdicts = {some_order_works(*a_random_case(seed)) for seed in range(10)}
    assert verdicts == {True, False}


def test_hundreds_of_pods_are_ordered_by_rules_of_thumb() -> None:
    """Even numbers per zone and host are accepted, whatever their sum."""
    pods = app_pods(*(f"web{n}" for n in range(300)), spec=spread())
    problem = a_problem(pods, instance_types=[an_instance_type(zones=ZONES, pods="200")])
    names = [p.name for p in pods]
    claims = [a_claim(problem, *names[i::15], zone=ZONES[i % 3]) for i in range(15)]
    assert violations(problem, a_plan(problem, *claims)) == []
    crooked = [a_claim(problem, *names[i::15], zone=ZONES[i % 3 if i else 1]) for i in range(15)]
    found = violations(problem, a_plan(problem, *crooked))
    assert found
    assert all(labels.ZONE in text for text in found)
