"""Why a pool has no node for a pod, counted by cause, and the smallest change that would help."""

from typing import Any

import msgspec
import pytest

from karpenter.apis import labels
from karpenter.apis.core import Pod, Taint
from karpenter.apis.karpenter import NodePool, RequirementSpec
from karpenter.model.reasons import Refusal
from karpenter.scheduling import solve
from karpenter.testing.builders import (
    a_daemon,
    a_nodepool,
    a_pod,
    a_problem,
    an_instance_type,
    an_offer,
)
from karpenter.testing.outcomes import refusals

GPU = "example.com/gpu"
ZONE, ARCH, TYPE, SPOT = labels.ZONE, labels.ARCH, labels.INSTANCE_TYPE, {labels.CAPACITY_TYPE: "spot"}
TYPES = [
    an_instance_type("small", cpu="2", memory="8Gi", price=1.0, zones=["a"]),
    an_instance_type("large", cpu="8", memory="16Gi", price=4.0, zones=["b"], arch="arm64"),
    an_instance_type("device", cpu="4", memory="4Gi", price=9.0, zones=["a"], extra={GPU: "2"}),
]
NONE_MET = "no instance type met "
NONE_BIG = "no instance type has enough resources"
EXCEED = "all available instance types exceed limits for nodepool: 'default'"
PRICE_EXCEEDED = "all available instance types exceed the price limit for nodepool: 'default'"
ALL = "change what the pod or the NodePool selects: no instance type has all of it"


def the_refusal(pod: Pod, pool: NodePool | None = None, **fields: Any) -> Refusal:
    """Return why the pod is refused by the only pool there is."""
    (refusal,) = refusals(solve(a_problem([pod], pools=[an_offer(pool or a_nodepool(), TYPES)], **fields)))
    return refusal


def counted(refusal: Refusal) -> dict[str, int]:
    """Return how many of the three types fell to what, where any did."""
    assert refusal.detail["instanceTypes"] == len(TYPES)
    return {cause: count for cause, count in refusal.detail["removed"].items() if count}


def at_most(what: str) -> str:
    return f"request at most {what}, or allow larger instance types"


@pytest.mark.parametrize(
    ("wants", "message", "remedy", "removed"),
    [
        ({"cpu": "9"}, NONE_BIG, at_most("8 cpu"), {"resources": 3}),
        ({"cpu": "9", "memory": "40Gi"}, NONE_BIG, at_most("8 cpu and 16Gi memory"), {"resources": 3}),
        ({"cpu": "9", "node_selector": {ARCH: "amd64"}}, NONE_BIG, at_most("4 cpu"),
         {"requirements": 1, "resources": 3}),
        ({"cpu": "6", "node_selector": {ZONE: "a"}},
         "no instance type which met all requirements and had enough resources was found", at_most("4 cpu"),
         {"requirements": 1, "resources": 2, "offering": 1}),
        ({"requests": {GPU: "3"}}, NONE_BIG, at_most(f"2 {GPU}"), {"resources": 3}),
        ({"cpu": "6", "requests": {GPU: "1"}}, NONE_BIG, at_most("4 cpu"), {"resources": 3}),
        ({"requests": {"example.com/none": "1"}}, NONE_BIG,
         "allow instance types that have example.com/none: none of these has", {"resources": 3}),
        ({"cpu": "3000000"}, f"{NONE_BIG} (CPU request >= 1 Million, m vs M typo?)", at_most("8 cpu"),
         {"resources": 3}),
        ({"node_selector": {ZONE: "c"}}, f"{NONE_MET}all requirements or had a required offering",
         f"change {ZONE} in the pod's node selection, there are: a, b", {"requirements": 3, "offering": 3}),
        ({"node_selector": SPOT}, f"{NONE_MET}all requirements or had a required offering",
         f"change {labels.CAPACITY_TYPE} in the pod's node selection, there are: on-demand",
         {"requirements": 3, "offering": 3}),
        ({"node_selector": {ZONE: "a", ARCH: "arm64"}}, f"{NONE_MET}all requirements",
         f"change {ARCH} in the pod's node selection, there are: amd64, arm64",
         {"requirements": 3, "offering": 1}),
        ({"cpu": "9", "node_selector": SPOT},
         f"{NONE_MET}the scheduling requirements or had enough resources or had a required offering", ALL,
         {"requirements": 3, "resources": 3, "offering": 3}),
    ],
)  # fmt: skip
def test_no_type_will_do(wants: dict[str, Any], message: str, remedy: str, removed: dict[str, int]) -> None:
    """How many types each condition rules out by itself, and which request or label to change, to what."""
    refusal = the_refusal(a_pod(**wants))
    assert (refusal.message.partition(", re")[0], refusal.remedy) == (message, remedy)
    assert counted(refusal) == removed
    key = remedy.removeprefix("change ").partition(" in ")[0]
    assert refusal.detail.get("key", "") == (key if "in the pod's" in remedy else "")
    assert ("atMost" in refusal.detail) == remedy.startswith("request at most")


@pytest.mark.parametrize(
    ("cpu", "limits", "remedy", "raised"),
    [
        ("1", {"cpu": "1"}, "raise limits.cpu by 1", {"cpu": "1"}),
        ("1", {"cpu": "1", "memory": "100Gi"}, "raise limits.cpu by 1", {"cpu": "1"}),
        ("3", {"cpu": "1", "memory": "1Gi"}, "raise limits.cpu by 3 and limits.memory by 3Gi",
         {"cpu": "3", "memory": "3Gi"}),
        ("5", {"memory": "4Gi"}, "raise limits.memory by 12Gi", {"memory": "12Gi"}),
    ],
)  # fmt: skip
def test_limits_are_to_be_raised_for_the_smallest_type(
    cpu: str, limits: dict[str, str], remedy: str, raised: dict[str, str]
) -> None:
    """By what it lacks, each limit on its own; with that much more the pod is placed."""
    refusal = the_refusal(a_pod(cpu=cpu), a_nodepool(limits=limits))
    assert (refusal.constraint, refusal.message, refusal.remedy) == ("limits", EXCEED, remedy)
    assert refusal.detail["raise"] == raised


def test_a_limit_of_nodes_is_to_be_raised_by_one() -> None:
    """It is named before anything else: no other change helps."""
    refusal = the_refusal(a_pod(cpu="99"), a_nodepool(limits={"nodes": "0"}))
    assert refusal.message == "node limits have been exhausted for nodepool: 'default'"
    assert (refusal.constraint, refusal.remedy) == ("limits", "raise limits.nodes")
    assert refusal.detail["raise"] == {"nodes": "1"}
    assert the_refusal(a_pod(cpu="99"), a_nodepool(limits={"nodes": "1"})).constraint == "resources"


@pytest.mark.parametrize(
    ("cpu", "own", "shared", "raised"),
    [
        ("1", 400_000, None, {"nodepool": 600_000}),
        ("1", None, 750_000, {"cluster": 250_000}),
        ("3", 1_000_000, 3_500_000, {"nodepool": 3_000_000, "cluster": 500_000}),
        ("3", 1_000_000, 4_000_000, {"nodepool": 3_000_000}),
    ],
)
def test_money_limits_are_to_be_raised_for_the_cheapest_type(
    cpu: str, own: int | None, shared: int | None, raised: dict[str, int]
) -> None:
    """The pool's own, the cluster's, or both."""
    offer = an_offer(a_nodepool(), TYPES)
    if own is not None:
        offer = msgspec.structs.replace(offer, remaining={"price": own})
    problem = a_problem([a_pod(cpu=cpu)], pools=[offer])
    options = msgspec.structs.replace(problem.options, price_remaining=shared)
    (refusal,) = refusals(solve(msgspec.structs.replace(problem, options=options)))
    assert (refusal.constraint, refusal.message) == ("limits", PRICE_EXCEEDED)
    assert refusal.detail["raiseMicroUsd"] == raised
    words = {"nodepool": "price-limit-per-hour of the NodePool", "cluster": "--cluster-price-limit"}
    for whose, micro in raised.items():
        assert f"{words[whose]} by ${micro / 1e6:.2f}" in refusal.remedy
    assert refusal.remedy.count(" by $") == len(raised)


def test_what_the_pool_itself_rules_out() -> None:
    """Its taints, a label that it does not define, its requirements, too little choice, daemons' ports."""
    tainted = the_refusal(a_pod(), a_nodepool(taints=[Taint(key="k", effect="NoSchedule")]))
    assert (tainted.constraint, tainted.detail) == ("taints", {})
    assert (tainted.message, tainted.remedy) == (
        "did not tolerate taint k:NoSchedule",
        "add a toleration to the pod",
    )
    unknown = the_refusal(a_pod(node_selector={"team": "x", ZONE: "a"}))
    assert (unknown.constraint, unknown.detail) == ("requirements", {"key": "team"})
    assert unknown.remedy == "change the pod's node selection, or let the NodePool define the label"
    arm = the_refusal(a_pod(node_selector={ZONE: "a"}), a_nodepool(requirements=[(ARCH, "In", ["arm64"])]))
    assert arm.remedy == f"change {ARCH} in the NodePool's requirements, there are: amd64, arm64"
    assert (arm.constraint, arm.detail["poolKey"], "key" in arm.detail) == ("requirements", ARCH, False)
    least = [RequirementSpec(key=key, operator="Exists", min_values=n) for key, n in ((TYPE, 5), (ARCH, 2))]
    choosy = the_refusal(a_pod(), a_nodepool(requirements=least))
    assert (choosy.constraint, choosy.remedy) == ("minValues", "lower minValues")
    assert choosy.message == f"minValues requirement is not met for label(s) {TYPE} (3 of 5)"
    assert choosy.detail["minValues"] == {TYPE: 3}
    ports = the_refusal(a_pod(host_ports=[80]), daemons=[a_daemon(host_ports=[80])])
    assert (ports.constraint, counted(ports)) == ("hostPorts", {"hostPorts": 3})
    assert ports.message.startswith("the pod's host ports conflict with those of daemons")


def test_a_pool_without_types_says_so() -> None:
    """Nothing else is wrong with the pod."""
    (refusal,) = refusals(solve(a_problem([a_pod()], pools=[an_offer(a_nodepool(), [])])))
    assert refusal.constraint == "nodepool"
    assert refusal.message == "nodepool requirements filtered out all available instance types"
