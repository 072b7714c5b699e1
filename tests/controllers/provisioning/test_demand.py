"""Which pods a pass is about, which pools may buy, and what is spoken for already."""

from collections.abc import Iterable
from typing import Any

import pytest
from msgspec.structs import replace

from karpenter.apis import labels
from karpenter.apis.core import Pod
from karpenter.apis.karpenter import NodePool, NodePoolStatus
from karpenter.apis.meta import Condition, LabelSelector, ObjectMeta
from karpenter.apis.workloads import PodDisruptionBudget, PodDisruptionBudgetSpec
from karpenter.controllers.provisioning.demand import demand_in, held, usable_pools
from karpenter.model.pods import pod_key
from karpenter.model.snapshot import NodeView, Snapshot
from karpenter.model.volumerules import VolumeRules
from karpenter.testing.builders import Expression, a_nodeclaim, a_nodepool, a_pod, a_view, an_owner, some_pods

NOW = 1_767_225_600.0
AN_HOUR_AGO = "2025-12-31T23:00:00Z"
WEB = {"app": "web"}


def demanded(
    nodes: Iterable[NodeView] = (),
    pending: Iterable[Pod] = (),
    *,
    budgets: Iterable[PodDisruptionBudget] = (),
    reserved: Iterable[str] = (),
) -> list[str]:
    """Return the names of the pods that are to be placed."""
    snapshot = Snapshot(
        taken_at=NOW, nodes=tuple(nodes), pending=tuple(pending), nodepools=(), pdbs=tuple(budgets)
    )
    known = set(reserved)
    demand = demand_in(snapshot, VolumeRules(), lambda pod: pod.name in known)
    assert [pod_key(p) for p in demand.pods] == sorted(pod_key(p) for p in demand.pods)
    return [p.name for p in demand.pods]


def a_budget(name: str = "web", **fields: Any) -> PodDisruptionBudget:
    """Return a budget over the web pods."""
    spec = PodDisruptionBudgetSpec(selector=LabelSelector(match_labels=WEB), **fields)
    return PodDisruptionBudget(metadata=ObjectMeta(name=name, namespace="default"), spec=spec)


def leaving(*pods: Pod, **fields: Any) -> NodeView:
    """Return a node that is being deleted, with pods on it."""
    return a_view("leaving", pods=pods, marked_for_deletion=True, **fields)


def test_waiting_pods_and_those_of_leaving_nodes_are_placed_together() -> None:
    """One pass serves both, so that they can share machines; pods on nodes that stay are left alone."""
    stays = a_view("stays", pods=[a_pod("at-home", node_name="stays")])
    goes = leaving(*some_pods(2, "moving", node_name="leaving"))
    assert demanded([stays, goes], [a_pod("waiting")]) == ["moving-0000", "moving-0001", "waiting"]


@pytest.mark.parametrize(
    ("pod", "moves"),
    [
        pytest.param({}, True, id="a pod that runs"),
        pytest.param({"owner": an_owner("ReplicaSet")}, True, id="of a ReplicaSet"),
        pytest.param({"owner": an_owner("DaemonSet")}, False, id="of a DaemonSet: comes with the new node"),
        pytest.param({"owner": an_owner("Node", api_version="v1")}, False, id="static: belongs to the node"),
        pytest.param({"phase": "Succeeded"}, False, id="done"),
        pytest.param({"phase": "Failed"}, False, id="failed"),
        pytest.param({"deleted": AN_HOUR_AGO}, False, id="terminating"),
        pytest.param(
            {"deleted": AN_HOUR_AGO, "owner": an_owner("StatefulSet")},
            True,
            id="its StatefulSet makes it anew",
        ),
        pytest.param({"annotations": {labels.DO_NOT_DISRUPT: "true"}}, False, id="not to be disrupted"),
        pytest.param({"annotations": {labels.DO_NOT_DISRUPT: "false"}}, True, id="may be disrupted"),
        pytest.param({"annotations": {labels.DO_NOT_DISRUPT: "soon"}}, True, id="not a duration"),
        pytest.param({"node_name": ""}, False, id="only nominated"),
    ],
)
def test_which_pods_of_a_leaving_node_need_another_place(pod: dict[str, Any], moves: bool) -> None:
    """Those that will be made anew elsewhere, once nothing holds them back."""
    found = demanded([leaving(a_pod(**{"node_name": "leaving", **pod}))])
    assert found == (["pod"] if moves else [])


@pytest.mark.parametrize(
    ("budgets", "moves"),
    [
        ([], True),
        ([a_budget(max_unavailable=1)], True),
        ([a_budget(max_unavailable=0)], False),
        ([a_budget(max_unavailable="0%")], False),
        ([a_budget(min_available="100%")], False),
        ([a_budget(min_available=1)], True),
        ([a_budget("one", max_unavailable=1), a_budget("two", max_unavailable=1)], False),
    ],
)
def test_no_room_is_bought_for_pods_that_a_budget_never_lets_go(
    budgets: list[PodDisruptionBudget], moves: bool
) -> None:
    """They stay until somebody changes the budget; one that is merely used up may allow them soon."""
    node = leaving(a_pod(node_name="leaving", labels=WEB))
    assert demanded([node], budgets=budgets) == (["pod"] if moves else [])
    other = leaving(a_pod(node_name="leaving", labels={"app": "other"}))
    assert demanded([other], budgets=budgets) == ["pod"]


def test_who_has_a_place_is_not_given_another() -> None:
    """A pod of a leaving node that a claim on its way was bought for waits for it."""
    node = leaving(*some_pods(2, node_name="leaving"))
    assert demanded([node], reserved=["pod-0000"]) == ["pod-0001"]


def test_a_node_without_a_claim_is_somebody_elses() -> None:
    """Its pods are not planned for, whatever becomes of it."""
    node = replace(leaving(a_pod(node_name="leaving")), claim=None, managed=False)
    assert demanded([node]) == []


def test_waiting_pods_that_nothing_can_help_are_set_apart() -> None:
    """They are told why; the others go on."""
    lost = a_pod("lost", node_selector={"karpenter.sh/unknown": "x"})
    snapshot = Snapshot(taken_at=NOW, nodes=(), pending=(a_pod("fine"), lost), nodepools=())
    demand = demand_in(snapshot, VolumeRules(), lambda pod: False)
    assert [p.name for p in demand.pods] == ["fine"]
    assert [(p.name, "karpenter.sh/unknown" in why) for p, why in demand.invalid] == [("lost", True)]


# --- pools -------------------------------------------------------------------------------------------------


def ready(pool: NodePool, status: str = "True") -> NodePool:
    """Return the pool with its Ready condition."""
    return replace(pool, status=NodePoolStatus(conditions=[Condition(type="Ready", status=status)]))


def test_pools_that_may_buy_are_ready_dynamic_and_stay() -> None:
    """Static pools keep to their number, unready ones wait, and those that are deleted buy nothing more."""
    good = ready(a_nodepool("good"))
    gone = ready(a_nodepool("gone"))
    gone = replace(gone, metadata=replace(gone.metadata, deletion_timestamp=AN_HOUR_AGO))
    fixed = ready(a_nodepool("fixed"))
    fixed = replace(fixed, spec=replace(fixed.spec, replicas=3))
    new = replace(a_nodepool("new"), status=NodePoolStatus())
    pools = (good, gone, fixed, ready(a_nodepool("bad"), "False"), new, ready(a_nodepool("last")))
    snapshot = Snapshot(taken_at=NOW, nodes=(), pending=(), nodepools=pools)
    assert [p.name for p in usable_pools(snapshot)] == ["good", "last"]


# --- scarce machines that are spoken for -------------------------------------------------------------------

RESERVATION = "example.com/reservation-id"
PLACE: list[Expression] = [
    (labels.INSTANCE_TYPE, "In", ["large"]),
    (labels.ZONE, "In", ["zone-a"]),
    (labels.CAPACITY_TYPE, "In", ["on-demand"]),
]


def on_its_way(name: str, requirements: list[Expression], **fields: Any) -> NodeView:
    """Return a claim that is not launched yet."""
    claim = a_nodeclaim(name, requirements=requirements)
    return replace(a_view(name), name=name, node=None, claim=claim, **{"provider_id": "", **fields})


def test_claims_on_their_way_hold_what_is_scarce() -> None:
    """By the reservation they name, else by type, zone and capacity type where there is one of each."""
    reserved: list[Expression] = [*PLACE, (RESERVATION, "In", ["r-1"])]
    rows = (
        on_its_way("a", reserved),
        on_its_way("b", reserved),
        on_its_way("c", PLACE),
        on_its_way("open", [PLACE[0], (labels.ZONE, "In", ["zone-a", "zone-b"]), PLACE[2]]),
        on_its_way("launched", PLACE, provider_id="kwok://launched"),
        on_its_way("leaving", PLACE, marked_for_deletion=True),
        a_view("foreign"),
    )
    snapshot = Snapshot(taken_at=NOW, nodes=rows, pending=(), nodepools=())
    assert held(snapshot, RESERVATION) == {"large/zone-a/on-demand": 1, "r-1": 2}
    assert held(snapshot, "") == {"large/zone-a/on-demand": 3}
