"""Volumes that have to be attached: nodes take only so many."""

import pytest
from msgspec.structs import replace

from karpenter.apis.core import NodeSelectorTerm, PersistentVolumeClaim, Pod
from karpenter.model.instancetype import InstanceType
from karpenter.model.problem import Plan, Problem
from karpenter.model.snapshot import NodeView
from karpenter.scheduling import solve
from karpenter.scheduling.check import violations
from karpenter.testing.builders import (
    a_pod,
    a_problem,
    a_view,
    an_expression,
    an_instance_type,
    node_affinity,
)
from karpenter.testing.storage import a_claim, a_storage_class, a_user, an_ephemeral_volume

DRIVER = "fast.example.com"
LARGE = an_instance_type("large", cpu="8")


def users(count: int, *, shared: bool = False) -> list[Pod]:
    """Return pods with a claim each, or all with the same."""
    return [a_user("common" if shared else f"data-{i}", name=f"pod-{i}") for i in range(count)]


def with_storage(pods: list[Pod], types: list[InstanceType], nodes: tuple[NodeView, ...] = ()) -> Problem:
    """Return the problem of placing `pods` where every claim they name is there, not bound yet."""
    problem = a_problem(pods, instance_types=types, nodes=nodes)
    everybody = [*pods, *(pod for node in nodes for pod in node.pods)]
    named = {
        v.persistent_volume_claim.claim_name
        for pod in everybody
        for v in pod.spec.volumes
        if v.persistent_volume_claim
    }
    found: list[PersistentVolumeClaim] = [a_claim(name, storage_class="fast") for name in sorted(named)]
    found += [
        a_claim(f"{pod.name}-{v.name}", storage_class="fast", owner=pod)
        for pod in pods
        for v in pod.spec.volumes
        if v.ephemeral
    ]
    snapshot = replace(
        problem.snapshot,
        volume_claims={claim.key: claim for claim in found},
        storage_classes={"fast": a_storage_class("fast", DRIVER)},
    )
    return replace(problem, snapshot=snapshot)


def planned(problem: Problem) -> Plan:
    """Return the plan, which is right."""
    plan = solve(problem)
    assert violations(problem, plan) == []
    return plan


@pytest.mark.parametrize(("pods", "limit", "nodes"), [(5, 2, 3), (4, 2, 2), (4, 10, 1), (4, None, 1)])
def test_a_new_node_gets_no_more_volumes_than_it_can_attach(pods: int, limit: int | None, nodes: int) -> None:
    """As the provider says of the type; without a limit all that fit."""
    limits = {} if limit is None else {DRIVER: limit}
    plan = planned(with_storage(users(pods), [replace(LARGE, volume_limits=limits)]))
    assert len(plan.claims) == nodes


def test_a_type_with_a_higher_limit_may_be_the_cheaper_one() -> None:
    """One node that attaches four rather than two dearer ones that attach two each."""
    few = replace(an_instance_type("few", cpu="8", price=0.3), volume_limits={DRIVER: 2})
    many = replace(an_instance_type("many", cpu="8", price=0.4), volume_limits={DRIVER: 4})
    plan = planned(with_storage(users(4), [few, many]))
    assert [claim.instance_types for claim in plan.claims] == [("many",)]


def test_the_limit_of_new_nodes_is_learned_from_running_ones() -> None:
    """A provider that says nothing: a node of the type has told."""
    told = replace(
        a_view("full", labels={"node.kubernetes.io/instance-type": "large"}, allocatable={"pods": "0"}),
        volume_limits={DRIVER: 1},
    )
    assert len(planned(with_storage(users(3), [LARGE], (told,))).claims) == 3


def test_an_existing_node_takes_as_many_as_it_still_can() -> None:
    """Of a limit of three one is taken: two more pods go there, the third to a new node."""
    there = replace(a_view(pods=[a_user("old", name="old", node_name="node")]), volume_limits={DRIVER: 3})
    plan = planned(with_storage(users(3), [LARGE], (there,)))
    assert (len(plan.placements["node"]), len(plan.claims)) == (2, 1)


@pytest.mark.parametrize("limit", [0, 1])
def test_a_full_node_still_takes_pods_without_volumes(limit: int) -> None:
    """Over its limit or not; who brings one volume more goes elsewhere."""
    there = replace(a_view(pods=[a_user("old", name="old", node_name="node")]), volume_limits={DRIVER: limit})
    plan = planned(with_storage([a_pod(), *users(1)], [LARGE], (there,)))
    assert plan.placements == {"node": ("default/pod",)}
    assert [claim.pods for claim in plan.claims] == [("default/pod-0",)]


def test_ephemeral_volumes_count() -> None:
    """One claim each, made for the pod."""
    spec = {"volumes": [an_ephemeral_volume(storage_class="fast")]}
    pods = [a_pod(f"pod-{i}", spec=spec) for i in range(3)]
    assert len(planned(with_storage(pods, [replace(LARGE, volume_limits={DRIVER: 1})])).claims) == 3


def test_what_counts_volumes_is_no_resource_of_the_claim() -> None:
    """A NodeClaim requests what a node's kubelet reports, nothing else."""
    plan = planned(with_storage(users(2), [replace(LARGE, volume_limits={DRIVER: 2})]))
    assert set(plan.claims[0].requests) == {"cpu", "memory", "pods"}


@pytest.mark.parametrize(("name", "found"), [("node-b", True), ("missing", False)])
def test_a_pod_may_name_its_node(name: str, found: bool) -> None:
    """By `matchFields`; no node is bought for one that names a node that is not there."""
    term = NodeSelectorTerm(match_fields=[an_expression("metadata.name", "In", [name])])
    nodes = (a_view("node-a"), a_view("node-b"))
    plan = planned(with_storage([a_pod(spec={"affinity": node_affinity(required=[term])})], [LARGE], nodes))
    assert plan.placements == ({"node-b": ("default/pod",)} if found else {})
    assert (plan.claims, len(plan.unschedulable)) == ((), 0 if found else 1)


def test_a_pod_may_avoid_a_node_by_name() -> None:
    """Any other will do, also one that is yet to be bought."""
    term = NodeSelectorTerm(match_fields=[an_expression("metadata.name", "NotIn", ["node-a"])])
    pod = a_pod(spec={"affinity": node_affinity(required=[term])})
    assert len(planned(with_storage([pod], [LARGE], (a_view("node-a"),))).claims) == 1
