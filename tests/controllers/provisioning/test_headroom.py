"""What pods that are promised to a machine leave of it."""

from karpenter.controllers.provisioning.headroom import with_expected
from karpenter.model.pods import requests
from karpenter.model.snapshot import Snapshot
from karpenter.testing.builders import a_pod, a_view


def _snapshot(*rows: object) -> Snapshot:
    return Snapshot(taken_at=0.0, nodes=rows, pending=(), nodepools=())  # type: ignore[arg-type]


def test_expected_pods_take_their_room_once() -> None:
    """A pod that is promised counts as if it ran there; one that runs somewhere by now counts once."""
    runs, comes = a_pod("runs", node_name="a"), a_pod("comes", cpu="700m")
    before = _snapshot(a_view("a", pods=[runs]), a_view("b"))
    after = with_expected(before, {"a": [comes], "b": [runs]})
    assert [[p.name for p in row.pods] for row in after.nodes] == [["comes", "runs"], []]
    cpu = [row.requested.get("cpu", 0) for row in after.nodes]
    assert cpu == [before.nodes[0].requested["cpu"] + requests(comes)["cpu"], 0]
    assert with_expected(before, {}).nodes == before.nodes


def test_pods_of_a_machine_that_goes_count_where_they_are_expected() -> None:
    """While its node drains, a pod takes the room that is meant for it."""
    moves = a_pod("moves", node_name="a")
    before = _snapshot(a_view("a", pods=[moves], marked_for_deletion=True), a_view("b"))
    after = with_expected(before, {"b": [moves]})
    assert [p.name for p in after.nodes[1].pods] == ["moves"]
