"""Nodes that exist, are on their way, or belong to others: which pods they take, and in which order."""

from collections.abc import Iterable, Mapping

import pytest

from karpenter.apis import labels
from karpenter.apis.core import Container, ContainerPort, Pod, Taint, Toleration
from karpenter.model.pods import pod_key, requests
from karpenter.model.snapshot import NodeView
from karpenter.state.rows import view_of
from karpenter.testing.builders import (
    a_daemon,
    a_node,
    a_nodeclaim,
    a_nodepool,
    a_pod,
    a_problem,
    a_term,
    a_view,
    node_affinity,
    some_pods,
)
from karpenter.testing.outcomes import places, planned, refused, the_claim, together

SIZE = {"cpu": "4", "memory": "16Gi", "pods": "110"}
DEDICATED = Taint(key="dedicated", effect="NoSchedule")
STARTING = Taint(key="starting", effect="NoSchedule")
STAGES: dict[str, dict[str, str]] = {
    "launched": {},
    "registered": {labels.REGISTERED: "true"},
    "initialized": {labels.REGISTERED: "true", labels.INITIALIZED: "true"},
}


def a_machine(
    name: str = "node",
    *,
    stage: str | None = "initialized",
    taints: Iterable[Taint] = (),
    startup_taints: Iterable[Taint] = (),
    node_size: Mapping[str, str] = SIZE,
    claim_size: Mapping[str, str] = SIZE,
    pods: Iterable[Pod] = (),
    managed: bool = True,
    own: Mapping[str, str] | None = None,
) -> NodeView:
    """Return the row of a machine at some stage of its life; without a stage it has no Node yet.

    `taints` are the Node's, or the claim's while there is no Node; `own` are labels.
    """
    running = tuple(pods)
    claim = None
    if managed:
        claim = a_nodeclaim(
            f"{name}-claim",
            provider_id=f"kwok://{name}",
            labels=own,
            taints=taints if stage is None else (),
            startup_taints=startup_taints,
            capacity=claim_size,
            allocatable=claim_size,
        )
    node = None
    if stage is not None:
        of_node = {**(own or {}), **(STAGES[stage] if managed else {})}
        node = a_node(name, labels=of_node, taints=taints, capacity=node_size)
    return view_of(
        node,
        claim,
        pods=running,
        requests={pod_key(p): requests(p) for p in running},
        managed=managed,
        marked=False,
        nominated_until=0.0,
    )


def goes_there(pod: Pod, node: NodeView) -> bool:
    """Tell whether the pod is planned onto the node rather than a new one."""
    return bool(planned(a_problem([pod], nodes=[node])).placements)


# --- which of them is used ---------------------------------------------------------------------------------


@pytest.mark.parametrize("stage", [None, "launched", "registered", "initialized"])
def test_a_machine_on_its_way_is_used_before_another_is_bought(stage: str | None) -> None:
    """From launch on a machine is capacity, whether or not its node is there."""
    assert goes_there(a_pod(), a_machine(stage=stage))


def test_a_second_batch_uses_what_the_first_left() -> None:
    """Room that running pods leave is used; what does not fit gets a new node."""
    node = a_machine(pods=some_pods(2, "old", cpu="1", node_name="node"))
    plan = planned(a_problem(some_pods(3), nodes=[node]))
    assert len(plan.placements["node"]) == 2
    assert [len(c.pods) for c in plan.claims] == [1]


@pytest.mark.parametrize(
    ("selector", "there"),
    [
        ({}, True),
        ({labels.ZONE: "zone-a"}, True),
        ({labels.ZONE: "zone-b"}, False),
        ({labels.ARCH: "amd64"}, True),
        ({labels.ARCH: "arm64"}, False),
        ({labels.CAPACITY_TYPE: "spot"}, False),
    ],
)
def test_a_machine_on_its_way_is_used_only_by_pods_it_suits(selector: dict[str, str], there: bool) -> None:
    """Its labels have to be what the pod selects."""
    own = {labels.ZONE: "zone-a", labels.ARCH: "amd64"}
    assert goes_there(a_pod(node_selector=selector), a_machine(stage=None, own=own)) == there


@pytest.mark.parametrize(
    ("stages", "first"),
    [
        ({"a": "registered", "b": "initialized"}, "b"),
        ({"a": "launched", "b": "registered", "c": "initialized"}, "c"),
        ({"b": "initialized", "a": "initialized"}, "a"),
        ({"b": "registered", "a": "launched"}, "a"),
    ],
)
def test_initialized_machines_come_before_others_then_names(stages: dict[str, str], first: str) -> None:
    """Where a pod can run at once is better than where it must wait; among equals the name decides."""
    nodes = [a_machine(name, stage=stage) for name, stage in stages.items()]
    assert list(planned(a_problem([a_pod()], nodes=nodes)).placements) == [first]


def test_all_pods_of_a_batch_share_the_room_there_is() -> None:
    """No machine is promised twice within one batch."""
    nodes = [a_machine("a"), a_machine("b", stage=None)]
    plan = planned(a_problem(some_pods(9), nodes=nodes))
    assert {name: len(keys) for name, keys in plan.placements.items()} == {"a": 4, "b-claim": 4}
    assert sum(len(c.pods) for c in plan.claims) == 1


def test_pods_of_machines_that_go_are_put_together_on_what_stays() -> None:
    """Pods that have to move are planned like any others: first onto the nodes there are."""
    pods = some_pods(4, node_name="going")
    going = a_view("going", pods=pods, marked_for_deletion=True)
    plan = planned(a_problem(pods, nodes=[going, a_machine("stays")]))
    assert set(places(plan).values()) == {"stays"}


# --- taints ------------------------------------------------------------------------------------------------

NOT_READY = Taint(key="node.kubernetes.io/not-ready", effect="NoExecute")
UNREADY = Taint(key="node.kubernetes.io/not-ready", effect="NoSchedule")
UNREACHABLE = Taint(key="node.kubernetes.io/unreachable", effect="NoSchedule")
UNINITIALIZED = Taint(key="node.cloudprovider.kubernetes.io/uninitialized", value="true", effect="NoSchedule")
READINESS = Taint(key="readiness.k8s.io/storage", effect="NoSchedule")
UNREGISTERED = Taint(key=labels.UNREGISTERED_TAINT, effect="NoExecute")
DISRUPTED = Taint(key=labels.DISRUPTED_TAINT, effect="NoSchedule")


@pytest.mark.parametrize(
    "taint",
    [NOT_READY, UNREADY, UNREACHABLE, UNINITIALIZED, READINESS, UNREGISTERED, STARTING],
    ids=lambda t: f"{t.key}-{t.effect}",
)
def test_taints_of_starting_are_waited_out_before_initialization_only(taint: Taint) -> None:
    """A node that has yet to start loses them by itself; on one that had started they keep pods away."""
    starting = a_machine(stage="registered", taints=[taint], startup_taints=[STARTING])
    assert goes_there(a_pod(), starting)
    started = a_machine(stage="initialized", taints=[taint], startup_taints=[STARTING])
    assert not goes_there(a_pod(), started)
    tolerant = a_pod(tolerations=[Toleration(key=taint.key, operator="Exists")])
    assert goes_there(tolerant, started)


@pytest.mark.parametrize("stage", [None, "registered", "initialized"])
def test_lasting_taints_count_at_every_stage(stage: str | None) -> None:
    """A taint of the NodePool is respected from the start."""
    node = a_machine(stage=stage, taints=[DEDICATED], startup_taints=[STARTING])
    assert not goes_there(a_pod(), node)
    assert goes_there(a_pod(tolerations=[Toleration(key="dedicated", operator="Exists")]), node)


@pytest.mark.parametrize("stage", ["registered", "initialized"])
def test_a_disrupted_node_takes_nobody(stage: str) -> None:
    """The taint that disruption sets is no taint of starting."""
    assert not goes_there(a_pod(), a_machine(stage=stage, taints=[DISRUPTED]))


@pytest.mark.parametrize(
    ("toleration", "fits"),
    [
        (Toleration(key="dedicated", operator="Equal", value="batch", effect="NoSchedule"), True),
        (Toleration(key="dedicated", operator="Equal", value="web"), False),
        (Toleration(key="dedicated", operator="Exists"), True),
        (Toleration(key="dedicated", operator="Exists", effect="NoExecute"), False),
        (Toleration(key="other", operator="Exists"), False),
        (Toleration(operator="Exists"), True),
        (Toleration(operator="Exists", effect="PreferNoSchedule"), False),
        (Toleration(key="dedicated", value="batch"), True),
    ],
)
def test_a_toleration_must_match_key_value_and_effect(toleration: Toleration, fits: bool) -> None:
    """On existing nodes and on NodePools alike."""
    taint = Taint(key="dedicated", value="batch", effect="NoSchedule")
    pod = a_pod(tolerations=[toleration])
    assert goes_there(pod, a_machine(taints=[taint])) == fits
    plan = planned(a_problem([pod], pools=[a_nodepool(taints=[taint])]))
    assert (not refused(plan)) == fits


def test_every_taint_has_to_be_tolerated() -> None:
    """One toleration for two taints is not enough."""
    node = a_machine(taints=[DEDICATED, Taint(key="second", effect="NoExecute")])
    one = Toleration(key="dedicated", operator="Exists")
    assert not goes_there(a_pod(tolerations=[one]), node)
    assert goes_there(a_pod(tolerations=[one, Toleration(key="second", operator="Exists")]), node)


# --- sizes -------------------------------------------------------------------------------------------------


def test_devices_that_have_not_shown_up_are_counted_on_until_initialization() -> None:
    """A kubelet that reports zero GPUs while it starts does not make us buy a second machine."""
    gpu = {**SIZE, "example.com/gpu": "1"}
    none = {**SIZE, "example.com/gpu": "0"}
    pod = a_pod(requests={"example.com/gpu": "1"})
    starting = a_machine(stage="registered", node_size=none, claim_size=gpu)
    assert places(planned(a_problem([pod], nodes=[starting]))) == {"pod": "node"}
    started = a_machine(stage="initialized", node_size=none, claim_size=gpu)
    assert refused(planned(a_problem([pod], nodes=[started]))) == ["pod"]


def test_the_nodes_own_word_counts_where_it_has_one() -> None:
    """A node that turned out smaller than its claim takes no more than it has."""
    for stage in ("registered", "initialized"):
        node = a_machine(stage=stage, node_size={**SIZE, "cpu": "2"})
        assert len(planned(a_problem(some_pods(4), nodes=[node])).placements["node"]) == 2


@pytest.mark.parametrize("resource", ["cpu", "memory", "pods"])
def test_each_resource_bounds_a_node(resource: str) -> None:
    """Whatever runs out first: nothing more is planned."""
    size = {"cpu": "4", "memory": "4Gi", "pods": "4", resource: "2Gi" if resource == "memory" else "2"}
    plan = planned(a_problem(some_pods(4), nodes=[a_machine(node_size=size)], pools=[]))
    assert len(plan.placements["node"]) == 2


# --- daemons -----------------------------------------------------------------------------------------------

DAEMON = a_daemon(cpu="1", memory="1Gi")
RED = a_term(("team", "In", ["red"]))


@pytest.mark.parametrize(
    ("running", "room"),
    [([], 3), ([a_daemon("daemon", cpu="1", memory="1Gi", node_name="node")], 3)],
    ids=["yet-to-come", "running"],
)
def test_room_for_daemons_is_kept_once(running: list[Pod], room: int) -> None:
    """A daemon's share is kept free until it runs; then its pod takes it."""
    node = a_machine(pods=running)
    plan = planned(a_problem(some_pods(4), nodes=[node], daemons=[DAEMON], pools=[]))
    assert len(plan.placements["node"]) == room


def test_daemons_larger_than_planned_take_no_more_than_they_do() -> None:
    """Unexpected daemon pods make what is kept for daemons zero, never negative."""
    running = [a_daemon(name, cpu="1", memory="1Gi", node_name="node") for name in ("daemon", "odd")]
    node = a_machine(pods=running)
    plan = planned(a_problem(some_pods(4), nodes=[node], daemons=[DAEMON], pools=[]))
    assert len(plan.placements["node"]) == 2


@pytest.mark.parametrize(
    ("fields", "kept"),
    [
        ({}, True),
        ({"node_selector": {"team": "blue"}}, True),
        ({"node_selector": {"team": "red"}}, False),
        ({"node_selector": {"absent": "x"}}, False),
        ({"node_selector": {labels.REGION: "x"}}, False),
        (
            {
                "affinity": node_affinity(
                    required=[a_term(("team", "In", ["red"])), a_term(("team", "Exists", []))]
                )
            },
            True,
        ),
        (
            {
                "affinity": node_affinity(
                    required=[a_term(("team", "In", ["red"])), a_term(("team", "In", ["x"]))]
                )
            },
            False,
        ),
        ({"affinity": node_affinity(required=[a_term(("absent", "NotIn", ["x"]))])}, True),
        ({"affinity": node_affinity(preferred=[(1, a_term(("team", "In", ["red"])))])}, True),
    ],
)
def test_only_daemons_that_will_run_on_a_node_count_there(fields: dict[str, object], kept: bool) -> None:
    """A node's labels say which; any of a daemon's alternatives will do, its preferences do not matter."""
    node = a_machine(own={"team": "blue"})
    daemon = a_daemon("daemon", **{"cpu": "1", "memory": "1Gi", **fields})
    plan = planned(a_problem(some_pods(4), nodes=[node], daemons=[daemon], pools=[]))
    assert len(plan.placements["node"]) == (3 if kept else 4)


@pytest.mark.parametrize(
    ("taint", "tolerations", "kept"),
    [
        (DEDICATED, [], False),
        (DEDICATED, [Toleration(key="dedicated", operator="Exists")], True),
        (Taint(key="soft", effect="PreferNoSchedule"), [], True),
    ],
)
def test_daemons_count_on_tainted_nodes_only_if_they_tolerate_the_taint(
    taint: Taint, tolerations: list[Toleration], kept: bool
) -> None:
    """A daemon kept away by a taint needs no room; a soft taint keeps no daemon away."""
    node = a_machine(taints=[taint])
    pods = some_pods(4, tolerations=[Toleration(operator="Exists")])
    daemon = a_daemon(cpu="1", memory="1Gi", tolerations=tolerations)
    plan = planned(a_problem(pods, nodes=[node], daemons=[daemon], pools=[]))
    assert len(plan.placements["node"]) == (3 if kept else 4)


@pytest.mark.parametrize("label", [labels.REGISTERED, labels.INITIALIZED])
def test_daemons_that_wait_for_a_stage_count_on_new_nodes(label: str) -> None:
    """A daemon that selects registered or initialized nodes will run there: its share is planned in."""
    daemon = a_daemon(cpu="1", node_selector={label: "true"})
    claim = the_claim(a_problem([a_pod(cpu="1500m")], daemons=[daemon]))
    assert claim.instance_types[0] == "general-4"
    assert label not in claim.requirements


# --- host ports --------------------------------------------------------------------------------------------


def with_port(name: str, **port: object) -> Pod:
    """Return a small pod with one host port."""
    given = {"container_port": 80, "host_port": 80, **port}
    container = Container(name="main", ports=[ContainerPort(**given)])  # type: ignore[arg-type]
    return a_pod(name, spec={"containers": [container]})


@pytest.mark.parametrize(
    ("one", "other", "share"),
    [
        ({}, {}, False),
        ({}, {"host_port": 81}, True),
        ({}, {"protocol": "UDP"}, True),
        ({}, {"host_ip": "10.0.0.1"}, False),
        ({"host_ip": "10.0.0.1"}, {"host_ip": "10.0.0.2"}, True),
        ({"host_ip": "10.0.0.1"}, {"host_ip": "10.0.0.1"}, False),
        ({"host_ip": "10.0.0.1"}, {"host_ip": "::"}, False),
        ({"host_ip": "0.0.0.0"}, {}, False),
        ({"host_port": 0}, {"host_port": 0}, True),
    ],
)
@pytest.mark.parametrize("where", ["new", "existing", "running"])
def test_a_host_port_is_taken_once(
    one: dict[str, object], other: dict[str, object], share: bool, where: str
) -> None:
    """Same port, protocol and address: the pods are on different nodes, new ones or existing ones."""
    first, second = with_port("one", **one), with_port("two", **other)
    if where == "running":
        assert goes_there(second, a_machine(pods=[first])) == share
        return
    nodes = [a_machine()] if where == "existing" else []
    plan = planned(a_problem([first, second], nodes=nodes))
    assert (len(together(plan)) == 1) == share


def test_ports_of_sidecars_and_init_containers_count() -> None:
    """Whatever container asks for the port: it is taken on the node."""
    port = ContainerPort(container_port=80, host_port=80)
    sidecar = Container(name="side", restart_policy="Always", ports=[port])
    pods = some_pods(2, cpu="100m", spec={"init_containers": [sidecar]})
    assert len(planned(a_problem(pods)).claims) == 2


# --- other people's nodes ----------------------------------------------------------------------------------


def test_unmanaged_nodes_are_used_too() -> None:
    """Whoever made a node: its room is free to use, and costs nothing."""
    assert goes_there(a_pod(), a_machine(managed=False))


@pytest.mark.parametrize("taint", [NOT_READY, STARTING, READINESS, DEDICATED], ids=lambda t: t.key)
def test_taints_of_unmanaged_nodes_all_count(taint: Taint) -> None:
    """Nobody told us which of them will go."""
    assert not goes_there(a_pod(), a_machine(managed=False, taints=[taint]))


@pytest.mark.parametrize(
    ("selector", "room"), [({}, 3), ({"team": "blue"}, 3), ({"team": "red"}, 4), ({labels.NODEPOOL: "x"}, 4)]
)
def test_daemons_count_on_unmanaged_nodes_by_their_labels_only(selector: dict[str, str], room: int) -> None:
    """No label is taken on trust there, well-known ones included."""
    node = a_machine(managed=False, own={"team": "blue"})
    daemon = a_daemon(cpu="1", memory="1Gi", node_selector=selector)
    plan = planned(a_problem(some_pods(4), nodes=[node], daemons=[daemon], pools=[]))
    assert len(plan.placements["node"]) == room
