"""Predicates and sizes of pods."""

import msgspec
import pytest

from karpenter.apis import labels
from karpenter.apis.core import (
    Affinity,
    Container,
    ContainerPort,
    ContainerStatus,
    NodeSelectorTerm,
    Pod,
    PodSpec,
    PodStatus,
    ResourceRequirements,
    Toleration,
)
from karpenter.apis.meta import Condition, OwnerReference
from karpenter.base.clock import parse_time
from karpenter.base.quantity import Resources
from karpenter.model import pods
from karpenter.testing.builders import a_daemon, a_pod, a_term, an_expression, an_owner, node_affinity

START = "2026-01-01T00:00:00Z"
NOW = parse_time(START)
DND = "karpenter.sh/do-not-disrupt"
TOLERATES_ALL = Toleration(operator="Exists")


def a_container(
    cpu: str, *, restart: str | None = None, limits: dict[str, int | str] | None = None, name: str = "c"
) -> Container:
    """Return a container that asks for `cpu`."""
    resources = ResourceRequirements(requests={"cpu": cpu} if cpu else {}, limits=limits or {})
    return Container(name=name, resources=resources, restart_policy=restart)


def sized(containers: list[Container], init: list[Container] | None = None, **spec: object) -> Pod:
    """Return a pod of these containers."""
    return Pod(spec=PodSpec(containers=containers, init_containers=init or [], **spec))  # type: ignore[arg-type]


SIDECAR = "Always"


@pytest.mark.parametrize(
    ("pod", "cpu"),
    [
        (sized([a_container("1"), a_container("500m")]), 1500),
        (sized([a_container("1")], [a_container("3")]), 3000),
        (sized([a_container("1")], [a_container("500m")]), 1000),
        (sized([a_container("1")], [a_container("1", restart=SIDECAR)]), 2000),
        (sized([a_container("1")], [a_container("1", restart=SIDECAR), a_container("3")]), 4000),
        (sized([a_container("1")], [a_container("3"), a_container("1", restart=SIDECAR)]), 3000),
        (
            sized(
                [a_container("1")],
                [a_container("1", restart=SIDECAR), a_container("1"), a_container("2", restart=SIDECAR)],
            ),
            4000,
        ),
        (
            sized(
                [a_container("1")],
                resources=ResourceRequirements(requests={"cpu": "5", "example.com/gpu": "1"}),
            ),
            5000,
        ),
        (sized([a_container("1")], overhead={"cpu": "250m"}), 1250),
        (
            sized(
                [a_container("1")], resources=ResourceRequirements(requests={"cpu": 2}), overhead={"cpu": "1"}
            ),
            3000,
        ),
        (sized([]), 0),
    ],
)
def test_requests(pod: Pod, cpu: int) -> None:
    """Sidecars add up, init containers count by their peak, pod-level requests replace the sum."""
    amounts = pods.requests(pod)
    assert amounts.get("cpu", 0) == cpu
    assert amounts["pods"] == 1
    assert "example.com/gpu" not in amounts


@pytest.mark.parametrize(
    ("spec", "allocated", "actual", "infeasible", "cpu"),
    [("1", "2", "2", False, 2000), ("3", "2", "1", False, 3000), ("3", "2", "1", True, 2000)],
)
def test_a_resize_under_way_counts_by_the_larger_amount(
    spec: str, allocated: str, actual: str, infeasible: bool, cpu: int
) -> None:
    """While the kubelet has not caught up, both sizes have to fit; what it cannot do does not count."""
    status = ContainerStatus(
        name="c",
        allocated_resources={"cpu": allocated},
        resources=ResourceRequirements(requests={"cpu": actual}),
    )
    condition = Condition(type="PodResizePending", status="True", reason="Infeasible")
    pod = msgspec.structs.replace(
        sized([a_container(spec)]),
        status=PodStatus(container_statuses=[status], conditions=[condition] if infeasible else []),
    )
    assert pods.requests(pod)["cpu"] == cpu


def test_limits_stand_in_for_missing_requests() -> None:
    """A pod made from a template gets the defaults the API server would give it."""
    limited = sized(
        [a_container("", limits={"cpu": "2", "memory": "1Gi"}), a_container("1", limits={"cpu": "4"})]
    )
    expected: Resources = {"cpu": 3000, "memory": 2**30, "pods": 1}
    assert pods.requests(pods.with_default_requests(limited)) == expected
    assert pods.limits(limited) == {"cpu": 6000, "memory": 2**30}


@pytest.mark.parametrize(
    ("containers", "pod_level", "expected"),
    [
        ([a_container("")], ResourceRequirements(limits={"cpu": "3"}), 3000),
        ([a_container("1")], ResourceRequirements(limits={"cpu": "3"}), 1000),
        ([a_container("", limits={"cpu": "2"})], ResourceRequirements(limits={"cpu": "3"}), 2000),
        ([a_container("1")], ResourceRequirements(requests={"cpu": "2"}, limits={"cpu": "3"}), 2000),
        ([a_container("")], ResourceRequirements(limits={"example.com/gpu": "3"}), 0),
    ],
)
def test_a_pod_level_limit_stands_in_where_no_container_asks(
    containers: list[Container], pod_level: ResourceRequirements, expected: int
) -> None:
    """Containers' requests, defaulted from their own limits, go before the pod's limit."""
    pod = pods.with_default_requests(sized(containers, resources=pod_level))
    amounts = pods.requests(pod)
    assert amounts.get("cpu", 0) == expected
    assert "example.com/gpu" not in amounts


def a_status(name: str, cpu: str) -> ContainerStatus:
    """Return the status of a container that was granted `cpu`."""
    return ContainerStatus(name=name, resources=ResourceRequirements(requests={"cpu": cpu}))


@pytest.mark.parametrize(
    ("pod", "status", "cpu"),
    [
        (
            sized([a_container("1")], [a_container("1", restart=SIDECAR, name="side")]),
            PodStatus(init_container_statuses=[a_status("side", "3")]),
            4000,
        ),
        (
            sized([a_container("1")], [a_container("1", name="init")]),
            PodStatus(init_container_statuses=[a_status("init", "3")]),
            1000,
        ),
        (
            sized([a_container("1")], resources=ResourceRequirements(requests={"cpu": "2"})),
            PodStatus(resources=ResourceRequirements(requests={"cpu": "3"})),
            3000,
        ),
        (
            sized([a_container("1")], resources=ResourceRequirements(requests={"cpu": "2"})),
            PodStatus(
                resources=ResourceRequirements(requests={"cpu": "1"}), allocated_resources={"cpu": "4"}
            ),
            4000,
        ),
        (
            sized([a_container("9")]),
            PodStatus(
                container_statuses=[a_status("c", "2")],
                conditions=[Condition(type="PodResizePending", status="True", reason="Deferred")],
            ),
            9000,
        ),
    ],
)
def test_what_was_granted_counts(pod: Pod, status: PodStatus, cpu: int) -> None:
    """Of sidecars and whole pods too, not of init containers that have run; a deferred resize counts."""
    assert pods.requests(msgspec.structs.replace(pod, status=status))["cpu"] == cpu


def test_overhead_adds_to_the_limits_there_are() -> None:
    """A pod without a memory limit has none because of its runtime's overhead."""
    pod = sized([a_container("1", limits={"cpu": "2"})], overhead={"cpu": "250m", "memory": "100Mi"})
    assert pods.limits(pod) == {"cpu": 2250}
    assert pods.requests(pod) == {"cpu": 1250, "memory": 100 * 2**20, "pods": 1}


def with_(pod: Pod, **status: object) -> Pod:
    """Return `pod` with fields of its status replaced."""
    return msgspec.structs.replace(pod, status=msgspec.structs.replace(pod.status, **status))


PENDING = a_pod()
RUNNING = a_pod(node_name="n")
DONE = a_pod(node_name="n", phase="Succeeded")
FAILED = a_pod(phase="Failed")
GOING = a_pod(node_name="n", deleted=START)
STATEFUL = a_pod(node_name="n", deleted=START, owner=an_owner("StatefulSet"))
MIRROR = a_pod(node_name="n", owner=OwnerReference(api_version="v1", kind="Node", name="n"))
NOMINATED = with_(PENDING, nominated_node_name="n")
GATED = with_(PENDING, conditions=[Condition(type="PodScheduled", status="False", reason="SchedulingGated")])
IMPOSTOR = a_pod(owner=OwnerReference(api_version="example.com/v1", kind="DaemonSet", name="x"))


@pytest.mark.parametrize(
    ("pod", "active", "provisionable", "reschedulable"),
    [
        (PENDING, True, True, True),
        (RUNNING, True, False, True),
        (DONE, False, False, False),
        (FAILED, False, True, False),
        (GOING, False, False, False),
        (STATEFUL, False, False, True),
        (a_daemon(), True, False, False),
        (MIRROR, True, False, False),
        (NOMINATED, True, False, True),
        (GATED, True, False, True),
        (IMPOSTOR, True, True, True),
    ],
)
def test_states(pod: Pod, active: bool, provisionable: bool, reschedulable: bool) -> None:
    """Who is to run, who may get a new node, and who needs one when the old goes."""
    assert pods.is_active(pod) == active
    assert pods.is_provisionable(pod) == provisionable
    assert pods.is_reschedulable(pod) == reschedulable


@pytest.mark.parametrize(
    ("annotation", "started", "at", "active"),
    [
        (None, START, 0, False),
        ("true", None, 0, True),
        ("false", START, 0, False),
        ("10m", START, 599, True),
        ("10m", START, 600, False),
        ("10m", None, 10**6, True),
        ("0s", START, 0, False),
        ("-5m", None, 0, False),
        ("soon", None, 0, False),
    ],
)
def test_do_not_disrupt(annotation: str | None, started: str | None, at: float, active: bool) -> None:
    """`true` holds for ever, a duration from the start on, anything else not at all."""
    pod = a_pod(annotations={DND: annotation} if annotation is not None else None, node_name="n")
    assert pods.do_not_disrupt_active(with_(pod, start_time=started), NOW + at) == active


@pytest.mark.parametrize(
    ("pod", "evictable", "drainable", "waiting"),
    [
        (RUNNING, True, True, True),
        (DONE, False, True, False),
        (GOING, False, True, True),
        (MIRROR, False, False, False),
        (a_pod(node_name="n", tolerations=[TOLERATES_ALL]), False, False, False),
        (a_pod(node_name="n", annotations={DND: "true"}), False, True, True),
    ],
)
def test_drain(pod: Pod, evictable: bool, drainable: bool, waiting: bool) -> None:
    """Protected pods stall a drain rather than being skipped; tolerating and static ones are left alone."""
    assert pods.is_evictable(pod, NOW) == evictable
    assert pods.is_drainable(pod, NOW) == drainable
    assert pods.is_waiting_eviction(pod, NOW) == waiting


def test_a_pod_stuck_in_termination_is_no_longer_waited_for() -> None:
    """A minute past its deletion time a pod does not hold up the drain."""
    assert pods.is_drainable(GOING, NOW + 60)
    assert not pods.is_drainable(GOING, NOW + 61)


@pytest.mark.parametrize(
    ("deletion_cost", "priority", "cost"),
    [
        (None, None, 1.0),
        ("134217728", None, 2.0),
        (None, 33554432, 2.0),
        ("-2147483647", None, -10.0),
        (None, 2_000_000_000, 10.0),
        ("cheap", 33554432, 2.0),
    ],
)
def test_eviction_cost(deletion_cost: str | None, priority: int | None, cost: float) -> None:
    """Deletion cost and priority move the cost of 1, within ten either way."""
    annotations = {"controller.kubernetes.io/pod-deletion-cost": deletion_cost} if deletion_cost else None
    pod = a_pod(annotations=annotations, priority=priority)
    assert pods.eviction_cost(pod) == pytest.approx(cost, abs=1e-6) or cost == pytest.approx(-10, abs=6)


@pytest.mark.parametrize(
    ("left", "right", "conflict"),
    [
        (("TCP", 80, "0.0.0.0"), ("TCP", 80, "10.0.0.1"), True),
        (("TCP", 80, "::"), ("TCP", 80, "10.0.0.1"), True),
        (("TCP", 80, "10.0.0.2"), ("TCP", 80, "10.0.0.1"), False),
        (("TCP", 80, "0.0.0.0"), ("UDP", 80, "0.0.0.0"), False),
        (("TCP", 80, "0.0.0.0"), ("TCP", 81, "0.0.0.0"), False),
    ],
)
def test_host_ports(left: tuple[str, int, str], right: tuple[str, int, str], conflict: bool) -> None:
    """Same protocol and port clash where the addresses overlap."""
    assert pods.ports_conflict(left, right) == conflict
    assert pods.ports_conflict(right, left) == conflict


HTTP = ContainerPort(container_port=8080, host_port=80)
DNS = ContainerPort(host_port=53, protocol="UDP", host_ip="10.0.0.1")
INNER = ContainerPort(container_port=8080)


@pytest.mark.parametrize(
    ("spec", "taken"),
    [
        ({"containers": [Container(ports=[HTTP, INNER])]}, {("TCP", 80, "0.0.0.0")}),
        (
            {
                "containers": [
                    Container(ports=[ContainerPort(host_port=53, protocol="UDP", host_ip="10.0.0.1")])
                ]
            },
            {("UDP", 53, "10.0.0.1")},
        ),
        ({"init_containers": [Container(ports=[HTTP])]}, {("TCP", 80, "0.0.0.0")}),
        ({"init_containers": [Container(ports=[HTTP], restart_policy=SIDECAR)]}, {("TCP", 80, "0.0.0.0")}),
        (
            {"containers": [Container(ports=[HTTP, INNER])], "host_network": True},
            {("TCP", 80, "0.0.0.0"), ("TCP", 8080, "0.0.0.0")},
        ),
        ({"containers": [Container(ports=[ContainerPort(name="none")])], "host_network": True}, set()),
    ],
)
def test_the_ports_a_pod_takes(spec: dict[str, object], taken: set[tuple[str, int, str]]) -> None:
    """Of containers, init containers and sidecars; on the host's network all their ports."""
    assert pods.host_ports(a_pod(spec={"containers": [], **spec})) == taken


def by_name(operator: str, *names: str) -> NodeSelectorTerm:
    """Return a term that looks at the node's name."""
    return NodeSelectorTerm(match_fields=[an_expression("metadata.name", operator, names)])


def both(left: NodeSelectorTerm, right: NodeSelectorTerm) -> NodeSelectorTerm:
    """Return the term that asks for all that two terms ask for."""
    return NodeSelectorTerm(
        match_expressions=[*left.match_expressions, *right.match_expressions],
        match_fields=[*left.match_fields, *right.match_fields],
    )


IN_ZONE = a_term((labels.ZONE, "In", ["a"]))


@pytest.mark.parametrize(
    ("affinity", "names"),
    [
        (None, None),
        (node_affinity((), [(1, by_name("In", "a"))]), None),
        (node_affinity([IN_ZONE]), None),
        (node_affinity([by_name("In", "a")]), {"a"}),
        (node_affinity([by_name("In", "a"), by_name("In", "b")]), {"a", "b"}),
        (node_affinity([by_name("In", "a"), IN_ZONE]), None),
        (node_affinity([by_name("In", "a"), NodeSelectorTerm()]), {"a"}),
        (node_affinity([by_name("NotIn", "a")]), None),
        (node_affinity([both(by_name("In", "a", "b"), by_name("NotIn", "b"))]), {"a"}),
        (node_affinity([both(by_name("In", "a"), by_name("In", "b"))]), set()),
    ],
)
def test_the_nodes_a_pod_names(affinity: Affinity | None, names: set[str] | None) -> None:
    """Alternatives add up; a single one that names no node leaves every node open."""
    assert pods.node_names(a_pod(affinity=affinity)) == names


def test_fields_count_as_labels() -> None:
    """A term asks for its labels and its fields, both."""
    assert [(e.key, e.values) for e in pods.term_expressions(both(IN_ZONE, by_name("In", "a")))] == [
        (labels.ZONE, ["a"]),
        ("metadata.name", ["a"]),
    ]


@pytest.mark.parametrize(
    ("annotation", "kind", "asks", "expects"),
    [
        ("true", "ReplicaSet", True, True),
        ("true", "StatefulSet", True, False),
        ("false", "ReplicaSet", False, False),
        (None, "ReplicaSet", False, False),
    ],
)
def test_who_asks_for_a_stand_in(annotation: str | None, kind: str, asks: bool, expects: bool) -> None:
    """By the annotation; only a Deployment can bring one up."""
    annotations = {labels.SURGE: annotation} if annotation else {}
    pod = a_pod(annotations=annotations, owner=an_owner(kind))
    assert (pods.asks_for_surge(pod), pods.expects_stand_in(pod)) == (asks, expects)
