"""Where pods could move to at a glance, and what they are worth."""

from typing import Any

import numpy as np
import pytest

from karpenter.apis import labels
from karpenter.apis.core import Pod
from karpenter.model.problem import Budget
from karpenter.model.snapshot import NodeView
from karpenter.scheduling import Standing, least_cost
from karpenter.testing.builders import a_pod, a_problem, a_view, an_instance_type
from karpenter.testing.company import apart, beside, spread

TYPES = [an_instance_type("small", cpu="2"), an_instance_type("large", cpu="8")]


def standing(**pods_of: list[Pod]) -> Standing:
    """Return nodes of 4 cores that hold the given pods, by the nodes' names."""
    views: list[NodeView] = [a_view(name).with_pods(pods) for name, pods in pods_of.items()]
    everyone = [pod for pods in pods_of.values() for pod in pods]
    return Standing(a_problem(everyone, nodes=views, instance_types=TYPES), pods_of)


def moved(found: Standing, name: str, *, to: set[str] | None = None) -> tuple[dict[str, int], int]:
    """Return how many pods of a node would go to which others, and how many find no room."""
    targets = np.array([to is None or n in to for n in found.names])
    leaving = found.leaving(found.row[name], targets)
    by_node: dict[str, int] = {}
    for move in leaving.moves:
        by_node[found.names[move.to]] = by_node.get(found.names[move.to], 0) + move.pods
    return by_node, sum(leaving.left.values())


def pods(prefix: str, *cpu: str, **fields: Any) -> list[Pod]:
    return [a_pod(f"{prefix}{i}", cpu=each, memory="64Mi", **fields) for i, each in enumerate(cpu)]


def test_pods_go_where_room_is_tightest() -> None:
    """So that large free room stays whole for those who need it."""
    found = standing(a=pods("a", "1"), b=pods("b", "1"), c=pods("c", "3"))
    assert moved(found, "a") == ({"c": 1}, 0)


def test_nodes_that_are_preferred_come_first() -> None:
    """In the order given, however much room they have; the others take who is left."""
    found = standing(a=pods("a", "1", "1", "1", "1"), b=pods("b", "3"), c=pods("c", "2"), d=pods("d", "3"))
    found.prefer(["c", "d"])
    assert moved(found, "a") == ({"c": 2, "d": 1, "b": 1}, 0)


@pytest.mark.parametrize(
    ("cpu", "price"), [(("1",), "small"), (("1500m", "1500m"), "large"), (("5", "5"), None)]
)
def test_one_machine_for_all_is_the_cheapest_that_holds_them(cpu: tuple[str, ...], price: str | None) -> None:
    """Infinitely dear when none does."""
    found = standing(a=pods("a", *cpu), b=pods("b", "4"))
    assert found.whole({0: len(cpu)}) == float("inf")
    found.price(lambda: False)
    of = {t.name: min(o.price for o in t.offerings) for t in TYPES}
    assert found.whole(found.leaving(found.row["a"], np.zeros(2, dtype=np.bool_)).left) == pytest.approx(
        of[price] if price else float("inf")
    )


def test_large_pods_choose_first_and_the_rest_is_left() -> None:
    """What finds no room is counted by what it would cost to buy."""
    found = standing(a=pods("a", "500m", "3"), b=pods("b", "1"), c=pods("c", "4"))
    assert moved(found, "a") == ({"b": 1}, 1)
    assert moved(found, "a", to={"c"}) == ({}, 2)


def test_looking_changes_nothing_and_moving_does() -> None:
    """Room that is taken is gone, and who came must leave again with its new node."""
    found = standing(a=pods("a", "2"), b=pods("b", "2"), c=pods("c", "1"))
    assert moved(found, "a", to={"c"}) == moved(found, "a", to={"c"}) == ({"c": 1}, 0)
    other = found.copy()
    other.move(other.row["a"], other.leaving(other.row["a"], np.array([n == "c" for n in other.names])))
    assert moved(other, "b", to={"c"}) == ({}, 1)
    assert moved(other, "c", to={"a"}) == ({"a": 2}, 0)
    assert moved(found, "b", to={"c"}) == ({"c": 1}, 0)


@pytest.mark.parametrize(
    ("spec", "to"),
    [
        pytest.param({"node_selector": {labels.INSTANCE_TYPE: "none"}}, {}, id="selectors"),
        pytest.param(apart("web", labels.KUBERNETES_HOSTNAME), {"free": 1}, id="anti-affinity"),
        pytest.param(spread("web", labels.KUBERNETES_HOSTNAME), {"free": 1}, id="spread over host names"),
        pytest.param(beside("web", labels.KUBERNETES_HOSTNAME), {"web": 1}, id="affinity"),
        pytest.param({}, {"web": 1}, id="no rule"),
    ],
)
def test_rules_over_host_names_are_kept(spec: dict[str, object], to: dict[str, int]) -> None:
    """As far as arrays can tell; rules over zones are left to the solver."""
    web = pods("w", "1", labels={"app": "web"})
    mover = pods("m", "1", labels={"app": "web"}, spec=spec)
    found = standing(a=mover, web=web, free=[])
    assert moved(found, "a")[0] == to


def test_pods_are_worth_what_the_lower_bound_says() -> None:
    """No node carries more than it costs, and all pods together are worth the bound."""
    held = {f"n{i}": pods(f"n{i}-", "1", "500m", "1500m") for i in range(6)}
    found = standing(**held)
    assert found.value(0) == 0
    found.price(iter([True] * 50 + [False] * 50).__next__)
    anew = a_problem([p for pods in held.values() for p in pods], instance_types=TYPES)
    total = sum(found.value(row) for row in range(len(found.names)))
    assert total == pytest.approx(least_cost(anew, Budget(steps=50)))
    assert total > 0
