"""Equal pods take zones in turn, in the order in which kube-scheduler looks at them."""

from itertools import pairwise

import pytest
from msgspec.structs import replace

from karpenter.apis import labels
from karpenter.model.pods import pod_key
from karpenter.model.problem import Plan, Problem
from karpenter.scheduling import solve
from karpenter.scheduling.check import violations
from karpenter.testing.builders import a_problem, a_view, an_instance_type, some_pods
from karpenter.testing.company import a_spread, spread

ZONES = ("zone-a", "zone-b", "zone-c")
TYPES = [an_instance_type(f"t-{n}", cpu=str(n), memory=f"{4 * n}Gi", zones=ZONES) for n in (2, 4, 8)]


def zones(plan: Plan, problem: Problem) -> dict[str, str]:
    """Return the zone each pod is planned for, by key."""
    found = {key: claim.requirements.single_value(labels.ZONE) for claim in plan.claims for key in claim.pods}
    for view in problem.nodes:
        found |= dict.fromkeys(plan.placements.get(view.name, ()), view.labels[labels.ZONE])
    return dict(sorted(found.items()))


@pytest.mark.parametrize("count", [3, 7, 30])
def test_any_first_pods_of_a_spread_keep_its_skew(count: int) -> None:
    """Bound one after the other, no pod has to wait for a younger one."""
    problem = a_problem(
        some_pods(count, "web", cpu="700m", labels={"app": "web"}, spec=spread("web")), instance_types=TYPES
    )
    plan = solve(problem)
    assert violations(problem, plan) == []
    tally = dict.fromkeys(ZONES, 0)
    for zone in zones(plan, problem).values():
        tally[zone] += 1
        assert max(tally.values()) - min(tally.values()) <= 1


def test_pods_alternate_as_they_are_queued() -> None:
    """Whom kube-scheduler gave up on first is first in its queue again, however old it is."""
    pods = some_pods(9, "web", cpu="700m", labels={"app": "web"}, spec=spread("web"))
    versions = dict(
        zip([pod_key(p) for p in pods], ("4", "9", "100", "2", "30", "7", "51", "8", "3"), strict=True)
    )
    marked = [replace(p, metadata=replace(p.metadata, resource_version=versions[pod_key(p)])) for p in pods]
    problem = a_problem(marked, instance_types=TYPES)
    where, tally = zones(solve(problem), problem), dict.fromkeys(ZONES, 0)
    for key in sorted(versions, key=lambda key: int(versions[key])):
        tally[where[key]] += 1
        assert max(tally.values()) - min(tally.values()) <= 1


def test_the_zone_that_lags_behind_comes_first() -> None:
    """Where pods run already the others catch up before the turns begin."""
    running = some_pods(2, "old", cpu="100m", labels={"app": "web"}, spec=spread("web"))
    node = a_view(
        "there",
        labels={labels.ZONE: "zone-a"},
        allocatable={"cpu": "200m", "memory": "4Gi", "pods": "2"},
        pods=running,
    )
    wanted = some_pods(7, "web", cpu="700m", labels={"app": "web"}, spec=spread("web"))
    problem = a_problem(wanted, instance_types=TYPES, nodes=[node])
    plan = solve(problem)
    assert violations(problem, plan) == []
    order = list(zones(plan, problem).values())
    assert "zone-a" not in order[:4]
    assert sorted(order[:4]) == ["zone-b", "zone-b", "zone-c", "zone-c"]


@pytest.mark.parametrize(
    ("pods", "skew", "turns"), [(3, 1, ["zone-a", "zone-b", "zone-a"]), (5, 3, ["zone-a", "zone-b"] * 2)]
)
def test_of_zones_that_lag_equally_the_emptier_comes_first(pods: int, skew: int, turns: list[str]) -> None:
    """Two zones: with as many still to come, it is the turn of the one that had fewer."""
    types = [an_instance_type("one", cpu="1", memory="4Gi", zones=["zone-a", "zone-b"])]
    wanted = some_pods(pods, "web", cpu="700m", labels={"app": "web"}, spec=spread("web", max_skew=skew))
    problem = a_problem(wanted, instance_types=types)
    assert list(zones(solve(problem), problem).values())[: len(turns)] == turns


def test_pods_without_rules_stay_together() -> None:
    """Nothing is exchanged that no constraint asks for: the plan for plain pods is as it was."""
    soft = {"topology_spread_constraints": [a_spread("web", when_unsatisfiable="ScheduleAnyway")]}
    problem = a_problem(
        some_pods(12, "web", cpu="700m", labels={"app": "web"}, spec=soft), instance_types=TYPES
    )
    plan = solve(problem)
    for claim in plan.claims:
        numbers = sorted(int(key.rsplit("-", 1)[1]) for key in claim.pods)
        assert all(b - a == 1 for a, b in pairwise(numbers))
