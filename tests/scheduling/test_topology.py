"""Pods that mind who is beside them on a node."""

import msgspec
import pytest

from karpenter.apis import labels
from karpenter.apis.core import (
    Affinity,
    Pod,
    PodAffinity,
    PodAffinityTerm,
    Taint,
    TopologySpreadConstraint,
    WeightedPodAffinityTerm,
)
from karpenter.apis.meta import LabelSelector
from karpenter.model.problem import Plan, Problem
from karpenter.scheduling import solve
from karpenter.scheduling.check import violations
from karpenter.scheduling.terms import Group
from karpenter.scheduling.topology import UNLIMITED, Crowd, Occupancy, Profile, Rule
from karpenter.testing.builders import a_nodepool, a_pod, a_problem, a_view, some_pods

WEB = {"app": "web"}
IS_WEB = LabelSelector(match_labels=WEB)


def planned(problem: Problem) -> Plan:
    """Solve, and make sure that the plan is right."""
    plan = solve(problem)
    assert violations(problem, plan) == []
    return plan


def repelled(
    key: str = labels.KUBERNETES_HOSTNAME, selector: LabelSelector = IS_WEB, **fields: list[str]
) -> Affinity:
    """Return required anti-affinity towards web pods."""
    term = PodAffinityTerm(topology_key=key, label_selector=selector, **fields)  # type: ignore[arg-type]
    return Affinity(pod_anti_affinity=PodAffinity(required=[term]))


def spread(max_skew: int, **fields: object) -> dict[str, object]:
    """Return the spec of a pod that spreads web pods over nodes."""
    constraint = TopologySpreadConstraint(
        max_skew=max_skew,
        topology_key=labels.KUBERNETES_HOSTNAME,
        when_unsatisfiable="DoNotSchedule",
        label_selector=IS_WEB,
    )
    return {"topology_spread_constraints": [msgspec.structs.replace(constraint, **fields)]}


def sizes(plan: Plan) -> list[int]:
    """Return how many pods each claim is for, sorted."""
    return sorted(len(c.pods) for c in plan.claims)


def test_pods_that_repel_each_other_get_a_node_each() -> None:
    """Host anti-affinity among a deployment's own pods."""
    assert sizes(planned(a_problem(some_pods(4, labels=WEB, affinity=repelled())))) == [1, 1, 1, 1]


def test_a_pod_that_repels_others_is_alone_among_them_only() -> None:
    """What the selector does not select may share the node, what it selects may not."""
    pods = [a_pod("loner", affinity=repelled()), a_pod("web", labels=WEB), a_pod("db")]
    plan = planned(a_problem(pods))
    together = [set(c.pods) for c in plan.claims]
    assert not any({"default/loner", "default/web"} <= keys for keys in together)
    assert len(together) == 2


def test_running_pods_repel_and_are_repelled() -> None:
    """Anti-affinity of a running pod keeps newcomers away, and a newcomer's own keeps it away."""
    loner = a_view("loner", pods=[a_pod("old", affinity=repelled(), node_name="loner")])
    busy = a_view("busy", pods=[a_pod("web-old", labels=WEB, node_name="busy")])
    assert list(planned(a_problem([a_pod(labels=WEB)], nodes=[loner, busy])).placements) == ["busy"]
    assert list(planned(a_problem([a_pod(affinity=repelled())], nodes=[loner, busy])).placements) == ["loner"]


def test_a_running_pod_keeps_others_out_of_its_zone() -> None:
    """Anti-affinity over zones of what runs already leaves the other zones."""
    node = a_view(
        "node",
        labels={labels.ZONE: "zone-a"},
        pods=[a_pod("old", affinity=repelled(labels.ZONE), node_name="node")],
    )
    plan = planned(a_problem([a_pod("web", labels=WEB), a_pod("other")], nodes=[node]))
    assert plan.placements == {"node": ("default/other",)}
    (claim,) = plan.claims
    assert not claim.requirements[labels.ZONE].has("zone-a")
    assert claim.requirements[labels.ZONE].has("zone-b")


def test_namespaces_limit_whom_anti_affinity_means() -> None:
    """Without namespaces, only pods of the own one are meant; with them, those named."""
    here = a_view("node", pods=[a_pod("web", labels=WEB, namespace="shop", node_name="node")])
    assert planned(a_problem([a_pod(affinity=repelled())], nodes=[here])).placements
    named = a_pod(affinity=repelled(namespaces=["shop"]))
    assert not planned(a_problem([named], nodes=[here])).placements


@pytest.mark.parametrize(("max_skew", "nodes"), [(1, [1] * 6), (2, [2] * 3), (4, [2, 4])])
def test_host_spread_limits_pods_per_node(max_skew: int, nodes: list[int]) -> None:
    """No node gets more than the skew allows over an empty one."""
    pods = some_pods(6, labels=WEB, cpu="100m", spec=spread(max_skew))
    assert sizes(planned(a_problem(pods))) == nodes


def test_host_spread_counts_what_runs_already() -> None:
    """A node that holds a pod of the kind takes one fewer."""
    node = a_view("node", pods=[a_pod("old", labels=WEB, node_name="node")])
    plan = planned(a_problem(some_pods(3, labels=WEB, cpu="100m", spec=spread(2)), nodes=[node]))
    assert len(plan.placements["node"]) == 1


def test_a_new_rollout_spreads_anew() -> None:
    """matchLabelKeys narrow the count to pods of the same revision."""
    node = a_view("node", pods=[a_pod("old", labels={**WEB, "rev": "1"}, node_name="node")])
    new = a_pod(labels={**WEB, "rev": "2"}, cpu="100m", spec=spread(1, match_label_keys=["rev"]))
    assert planned(a_problem([new], nodes=[node])).placements


def test_pods_that_move_do_not_stand_in_their_own_way() -> None:
    """A pod that is to be placed anew is not counted where it runs now."""
    pod: Pod = a_pod("web", labels=WEB, affinity=repelled(), node_name="node")
    moving = a_problem([pod], nodes=[a_view("node", pods=[pod])])
    assert planned(moving).placements == {"node": ("default/web",)}


@pytest.mark.parametrize(("max_skew", "owners", "others", "nodes"), [(2, 1, 5, [2, 4]), (1, 2, 3, [1, 1, 3])])
def test_pods_that_a_spread_counts_make_way_for_its_owners(
    max_skew: int, owners: int, others: int, nodes: list[int]
) -> None:
    """Nobody knows who is bound first: beside an owner there are never more than its skew allows."""
    pods = some_pods(owners, "owner", labels=WEB, cpu="100m", spec=spread(max_skew))
    plan = planned(a_problem([*pods, *some_pods(others, "web", labels=WEB, cpu="100m")]))
    assert sizes(plan) == nodes


def test_many_nodes_are_told_apart() -> None:
    """However many there are, each knows whom it holds."""
    rule = Rule(Group("anti", labels.KUBERNETES_HOSTNAME, frozenset(["default"]), IS_WEB), 1)
    crowd = Crowd([rule])
    crowd.append(Occupancy({0: 1}, {0: 1}), 30)
    crowd.append(Occupancy.empty(), 40)
    crowd.add(69, Profile(selected=(0,)), 1)
    loner = Profile(owned=(0,), selected=(0,))
    assert crowd.allowance(loner).tolist() == [0] * 30 + [1] * 39 + [0]
    assert crowd.allowance(Profile(owned=(0,))).tolist() == [0] * 30 + [UNLIMITED] * 39 + [0]
    assert crowd.allowance(Profile(selected=(0,))).tolist() == [0] * 30 + [UNLIMITED] * 40
    assert crowd.allowance(Profile(near=(0,))).tolist() == [UNLIMITED] * 30 + [0] * 39 + [UNLIMITED]
    assert crowd.anywhere(0)


def test_pods_take_nodes_in_turn_unless_they_want_to_be_together() -> None:
    """Room is used node by node; who would rather share a node goes to that with most room."""
    nodes = [
        a_view(name, allocatable={"cpu": cpu, "memory": "16Gi", "pods": "9"})
        for name, cpu in (("a", "1"), ("b", "4"))
    ]
    fond = Affinity(
        pod_affinity=PodAffinity(
            preferred=[
                WeightedPodAffinityTerm(
                    weight=9,
                    pod_affinity_term=PodAffinityTerm(
                        topology_key=labels.KUBERNETES_HOSTNAME, label_selector=IS_WEB
                    ),
                )
            ]
        )
    )
    plain = planned(a_problem(some_pods(2, labels=WEB, cpu="900m"), nodes=nodes))
    assert {name: len(keys) for name, keys in plain.placements.items()} == {"a": 1, "b": 1}
    together = planned(a_problem(some_pods(2, labels=WEB, cpu="900m", affinity=fond), nodes=nodes))
    assert {name: len(keys) for name, keys in together.placements.items()} == {"b": 2}


@pytest.mark.parametrize(
    ("tainted", "constraints"), [(False, ["podAffinity"]), (True, ["resources", "taints"])]
)
def test_a_pod_whose_company_has_no_room_is_told_so(tainted: bool, constraints: list[str]) -> None:
    """Unless a pool has another reason to refuse it: then every pool says its own."""
    term = PodAffinityTerm(topology_key=labels.KUBERNETES_HOSTNAME, label_selector=IS_WEB)
    pod = a_pod(affinity=Affinity(pod_affinity=PodAffinity(required=[term])))
    full = a_view("full", allocatable={"cpu": "1", "memory": "8Gi", "pods": "1"},
                  pods=[a_pod("web", labels=WEB, cpu="1", node_name="full")])  # fmt: skip
    taints = [Taint(key="k", effect="NoSchedule")]
    pools = [a_nodepool("b"), *([a_nodepool("a", taints=taints)] if tainted else [])]
    (refused,) = planned(a_problem([pod], nodes=[full], pools=pools)).unschedulable
    assert [refusal.constraint for refusal in refused.refusals] == constraints


def test_two_revisions_share_nodes_and_avoid_their_own() -> None:
    """matchLabelKeys: equal specs, but each pod keeps away from those of its own revision only."""
    term = PodAffinityTerm(
        topology_key=labels.KUBERNETES_HOSTNAME, label_selector=IS_WEB, match_label_keys=["rev"]
    )
    affinity = Affinity(pod_anti_affinity=PodAffinity(required=[term]))
    pods = [
        a_pod(f"web-{rev}-{i}", labels={**WEB, "rev": rev}, cpu="100m", affinity=affinity)
        for rev in ("1", "2")
        for i in range(2)
    ]
    plan = planned(a_problem(pods))
    assert sizes(plan) == [2, 2]
    assert all(len({key.split("-")[1] for key in claim.pods}) == 2 for claim in plan.claims)
