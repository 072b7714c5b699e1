"""Which nodes of a static pool go first, and where new ones come."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from karpenter.apis import labels as known
from karpenter.apis.core import Pod
from karpenter.apis.karpenter import RequirementSpec
from karpenter.base.timestamps import parse_time
from karpenter.controllers.static.scaledown import lifetime_left, surplus
from karpenter.model.snapshot import NodeView
from karpenter.model.zones import open_zones, pool_requirements, spread
from karpenter.testing.builders import EPOCH, a_daemon, a_nodeclaim, a_nodepool, a_pod, some_instance_types

NOW = parse_time(EPOCH) + 3600
KEPT = {known.DO_NOT_DISRUPT: "true"}


def _row(name: str, *pods: Pod, zone: str = "zone-a", launched: bool = True) -> NodeView:
    claim = a_nodeclaim(name, provider_id=f"fake://{name}" if launched else "", labels={known.ZONE: zone})
    return NodeView(name=name, claim=claim, labels={}, capacity={}, allocatable={}, pods=pods)


@pytest.mark.parametrize(
    ("rows", "order"),
    [
        (
            [_row("a", a_pod(annotations=KEPT)), _row("b", a_pod()), _row("c"), _row("d", launched=False)],
            "dcba",
        ),
        ([_row("a", a_pod("x"), a_pod("y")), _row("b", a_pod()), _row("c", a_daemon())], "cba"),
        ([_row("a", a_daemon(annotations=KEPT)), _row("b", a_pod())], "ba"),
        ([_row("a", zone="zone-b"), _row("b"), _row("c"), _row("d")], "bcad"),
        ([_row("a", a_pod("x")), _row("b", a_pod("y"))], "ab"),
    ],
    ids=[
        "unlaunched, empty, cheap, protected",
        "daemons do not count",
        "a daemon may be protected",
        "the fullest zone gives first",
        "names break ties",
    ],
)
def test_the_order_of_leaving(rows: list[NodeView], order: str) -> None:
    """Those without a machine, then the empty ones, then the cheapest to move; protected pods last."""
    claims = [row.claim for row in rows if row.claim is not None]
    by_name = {row.name: row for row in rows}
    assert "".join(c.name for c in surplus(claims, by_name, len(claims), NOW)) == order
    assert "".join(c.name for c in surplus(claims, by_name, 1, NOW)) == order[0]
    assert surplus(claims, by_name, -1, NOW) == []


def test_a_node_about_to_expire_goes_before_a_young_one() -> None:
    """With the same pods, the node with less of its life left costs less to take."""
    old = a_nodeclaim("old", provider_id="fake://old", created=EPOCH)
    new = a_nodeclaim("new", provider_id="fake://new", created="2026-01-15T00:00:00Z")
    now = parse_time("2026-01-16T00:00:00Z")
    assert lifetime_left(old, now) < lifetime_left(new, now) <= 1
    rows = {
        c.name: NodeView(name=c.name, claim=c, labels={}, capacity={}, allocatable={}, pods=(a_pod(),))
        for c in (old, new)
    }
    assert [c.name for c in surplus([new, old], rows, 1, now)] == ["old"]


@given(
    there=st.dictionaries(st.sampled_from("abcd"), st.integers(0, 9)),
    zones=st.lists(st.sampled_from("abcd"), min_size=1, unique=True),
    count=st.integers(0, 20),
)
def test_new_nodes_even_out_the_zones(there: dict[str, int], zones: list[str], count: int) -> None:
    """No zone gets a node while another one has two fewer."""
    totals = {zone: there.get(zone, 0) for zone in zones}
    for chosen in spread(zones, there, count):
        assert totals[chosen] == min(totals.values())
        totals[chosen] += 1


@pytest.mark.parametrize(
    ("requirement", "zones"),
    [
        (None, ("zone-a", "zone-b")),
        (RequirementSpec(key=known.ZONE, operator="NotIn", values=["zone-a"]), ("zone-b",)),
        (RequirementSpec(key=known.ZONE, operator="Exists", min_values=2), ()),
        (RequirementSpec(key=known.INSTANCE_TYPE, operator="Exists", min_values=4), ("zone-a", "zone-b")),
        (RequirementSpec(key=known.INSTANCE_TYPE, operator="Exists", min_values=5), ()),
        (RequirementSpec(key=known.ARCH, operator="In", values=["arm64"]), ()),
    ],
)
def test_zones_that_a_pool_may_use(requirement: RequirementSpec | None, zones: tuple[str, ...]) -> None:
    """Its requirements decide; a claim is not bound to a zone that could not keep a minValues alone."""
    pool = a_nodepool(requirements=[requirement] if requirement else [])
    assert open_zones(pool_requirements(pool), some_instance_types()) == zones
