"""One row of the snapshot: which of Node and NodeClaim speaks, stage by stage."""

import pytest
from msgspec.structs import replace

from karpenter.apis import labels as known
from karpenter.apis.core import Node, Taint
from karpenter.apis.karpenter import NodeClaim
from karpenter.model.snapshot import NodeView
from karpenter.state.rows import PlannedSize, view_of
from karpenter.testing.builders import a_node, a_nodeclaim, an_instance_type, an_offering

DEDICATED = Taint(key="dedicated", effect="NoSchedule")
ON_NODE = Taint(key="on-node", effect="NoSchedule")
STARTUP = Taint(key="cni", value="starting", effect="NoSchedule")
STARTUP_OTHER_VALUE = Taint(key="cni", value="again", effect="NoSchedule")
NOT_READY = Taint(key="node.kubernetes.io/not-ready", effect="NoExecute")
READINESS = Taint(key="readiness.k8s.io/gpu", effect="NoSchedule")
CORDONED = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")

STAGES: dict[str, dict[str, str]] = {
    "launched": {},
    "registered": {known.REGISTERED: "true"},
    "initialized": {known.REGISTERED: "true", known.INITIALIZED: "true"},
}


def row(node: Node | None, claim: NodeClaim | None) -> NodeView:
    """Return the row of a machine without pods."""
    return view_of(node, claim, pods=(), requests={}, managed=True, marked=False, nominated_until=0.0)


@pytest.mark.parametrize(
    ("stage", "of_node", "expected"),
    [
        (None, [], [DEDICATED]),
        ("launched", [ON_NODE, NOT_READY], [DEDICATED]),
        ("registered", [ON_NODE, NOT_READY, READINESS, STARTUP], [ON_NODE]),
        ("registered", [STARTUP_OTHER_VALUE], []),
        ("initialized", [ON_NODE, NOT_READY, READINESS, STARTUP], [ON_NODE, NOT_READY, READINESS, STARTUP]),
    ],
)
def test_the_taints_that_count(stage: str | None, of_node: list[Taint], expected: list[Taint]) -> None:
    """The claim's until registration; passing ones only after initialization, then even if they return."""
    claim = a_nodeclaim(provider_id="kwok://node", taints=[DEDICATED], startup_taints=[STARTUP])
    node = None if stage is None else a_node(labels=STAGES[stage], taints=of_node)
    assert list(row(node, claim).taints) == expected


def test_nothing_is_left_out_for_a_node_that_is_not_ours() -> None:
    """We know nothing about when its taints will go."""
    assert list(row(a_node(taints=[NOT_READY, READINESS, STARTUP]), None).taints) == [
        NOT_READY,
        READINESS,
        STARTUP,
    ]


@pytest.mark.parametrize("stage", ["launched", "registered", "initialized"])
def test_a_cordoned_node_takes_nobody(stage: str) -> None:
    """From the moment it is cordoned, whether or not the taint is there yet; it is there only once."""
    claim = a_nodeclaim(provider_id="kwok://node")
    node = a_node(labels=STAGES[stage], unschedulable=True)
    assert list(row(node, claim).taints) == [CORDONED]
    if stage == "initialized":
        tainted = replace(node, spec=replace(node.spec, taints=[CORDONED]))
        assert list(row(tainted, claim).taints) == [CORDONED]


@pytest.mark.parametrize(
    ("zones", "least", "most"), [(["zone-a", "zone-b"], 4000, 8000), (["zone-b"], 8000, 8000)]
)
def test_a_claim_that_is_not_launched_may_become_any_size_it_allows(
    zones: list[str], least: int, most: int
) -> None:
    """Of a type with offerings of two sizes the smaller is relied on and the larger counts against limits."""
    large = replace(an_offering("zone-b"), capacity_override={"cpu": 8000})
    kind = an_instance_type("mixed", cpu="4", offerings=[an_offering("zone-a"), large])
    size = PlannedSize(a_nodeclaim(requirements=[("topology.kubernetes.io/zone", "In", zones)]), [kind])
    assert (size.allocatable["cpu"], size.most["cpu"]) == (least, most)


@pytest.mark.parametrize(("stage", "gpus"), [("registered", 2), ("initialized", 0)])
def test_the_claim_fills_in_what_the_node_does_not_have_yet(stage: str, gpus: int) -> None:
    """Until device plugins have spoken; afterwards the node's word counts."""
    claim = a_nodeclaim(
        provider_id="kwok://node", allocatable={"cpu": "8", "example.com/gpu": "2"}, capacity={"cpu": "8"}
    )
    size = {"cpu": "4", "memory": "8Gi", "pods": "110", "example.com/gpu": "0"}
    view = row(a_node(labels=STAGES[stage], capacity=size), claim)
    assert view.allocatable["cpu"] == 4000
    assert view.allocatable["example.com/gpu"] == gpus
