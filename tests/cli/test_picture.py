"""The picture behind the live view and scripts."""

import msgspec
import pytest

from karpenter.apis import labels
from karpenter.apis.core import Node, Pod, PodStatus
from karpenter.apis.karpenter import NodeClaim
from karpenter.cli.up.picture import Census, Picture, PriceList, take_picture
from karpenter.kube.informer import Change
from karpenter.testing.builders import a_node, a_nodeclaim, a_pod, an_instance_type, an_offering

_LABELS = {
    labels.INSTANCE_TYPE: "m5.large",
    labels.ZONE: "zone-a",
    labels.CAPACITY_TYPE: "spot",
    labels.NODEPOOL: "default",
}
_UP = ("Launched", "Registered", "Initialized", "Ready")
_PRICES = PriceList([an_instance_type("m5.large", offerings=[an_offering("zone-a", "spot", 0.04)])])


def _pod(name: str, node: str = "", ready: bool = False, **fields: object) -> Pod:
    status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]} if ready else {}
    pod = a_pod(name, cpu="500m", memory="1Gi", node_name=node, **fields)  # type: ignore[arg-type]
    return msgspec.structs.replace(pod, status=msgspec.convert(status, PodStatus)) if ready else pod


def _node() -> Node:
    return a_node("node-1", labels=_LABELS, provider_id="kwok://1", allocatable={"cpu": "2", "memory": "8Gi"})


def _claim(**fields: object) -> NodeClaim:
    given: dict[str, object] = {"labels": _LABELS, "provider_id": "kwok://1", "conditions": _UP, **fields}
    return a_nodeclaim("claim-1", **given)  # type: ignore[arg-type]


def _picture(pods: list[Pod], nodes: list[Node], claims: list[NodeClaim]) -> Picture:
    return take_picture(Census(pods), nodes, claims, _PRICES)


def test_a_node_shows_its_type_place_price_and_use() -> None:
    """Type, zone and capacity type come from labels, the price from the catalogue, use from requests."""
    [row] = _picture([_pod("a", "node-1", ready=True)], [_node()], [_claim()]).nodes
    assert (row.name, row.instance_type, row.zone, row.capacity_type) == (
        "node-1",
        "m5.large",
        "zone-a",
        "spot",
    )
    assert (row.price, row.cpu_used, row.memory_used, row.pods) == (0.04, 0.25, 0.125, 1)
    assert row.state == "ready"


@pytest.mark.parametrize(
    ("claim", "state"),
    [
        ({"conditions": (), "provider_id": ""}, "launching"),
        ({"conditions": ("Launched",)}, "registering"),
        ({"conditions": ("Launched", "Registered")}, "initializing"),
        ({"deleted": "2026-01-01T00:00:00Z"}, "terminating"),
    ],
)
def test_a_machine_on_its_way_says_how_far_it_is(claim: dict[str, object], state: str) -> None:
    """The state follows the claim's conditions."""
    [row] = _picture([], [], [_claim(**claim)]).nodes
    assert row.state == state


def test_the_census_follows_every_change_of_a_pod() -> None:
    """A pod that is bound, becomes ready and goes is counted where it is, once, and then no more."""
    census = Census()
    stages = [_pod("a"), _pod("a", "node-1"), _pod("a", "node-1", ready=True)]
    seen = []
    old = None
    for pod in stages:
        census.take(Change("ADDED" if old is None else "MODIFIED", pod, old))
        seen.append((census.phases(), census.running, census.on("node-1")[:2]))
        old = pod
    census.take(Change("DELETED", stages[-1], stages[-1]))
    assert seen == [
        ({"Pending": 1}, 0, (0, 0)),
        ({"Running": 1}, 0, (1, 500)),
        ({"Running": 1}, 1, (1, 500)),
    ]
    assert (census.phases(), census.running, census.on("node-1")) == ({}, 0, (0, 0, 0))


def test_machines_on_their_way_are_counted_by_direction() -> None:
    """Booting is what was bought and is not ready; leaving is what is being deleted."""
    claims = [
        _claim(),
        a_nodeclaim("b", labels=_LABELS, conditions=("Launched",)),
        a_nodeclaim("c", labels=_LABELS, conditions=_UP, deleted="2026-01-01T00:00:00Z"),
    ]
    picture = _picture([], [_node()], claims)
    assert (picture.booting, picture.leaving) == (1, 1)


def test_all_is_settled_when_every_pod_runs_and_no_machine_is_idle_or_moving() -> None:
    """Settled is what scripts wait for."""
    running = [_pod("a", "node-1", ready=True)]
    assert _picture(running, [_node()], [_claim()]).settled
    assert _picture([], [], []).settled
    assert not _picture([*running, _pod("b")], [_node()], [_claim()]).settled, "a pod is pending"
    assert not _picture([], [_node()], [_claim()]).settled, "an empty node will go"
    assert not _picture(running, [_node()], [_claim(conditions=("Launched",))]).settled, "one is on its way"


def test_what_has_no_known_price_costs_nothing_in_the_sum_and_says_so() -> None:
    """An unknown offering shows no price instead of a wrong one."""
    other = {**_LABELS, labels.ZONE: "zone-x"}
    picture = _picture([], [], [_claim(labels=other)])
    assert picture.nodes[0].price is None
    assert picture.price == 0.0
