"""DaemonSets of every shape: on which new nodes they will run, and what that leaves for pods."""

import pytest

from karpenter.apis import labels
from karpenter.apis.core import Container, Pod, PodResourceClaim, Taint, Toleration
from karpenter.apis.karpenter import NodePool
from karpenter.testing.builders import (
    Expression,
    a_daemon,
    a_nodepool,
    a_pod,
    a_problem,
    a_term,
    an_instance_type,
    node_affinity,
    some_pods,
)
from karpenter.testing.outcomes import planned, refusals, refused, the_claim

TEAM = "example.com/team"
DEDICATED = Taint(key="dedicated", effect="NoSchedule")
TYPES = [
    *(an_instance_type(f"t{n}", cpu=str(n), memory=f"{4 * n}Gi") for n in (2, 4)),
    an_instance_type("arm-2", cpu="2", memory="8Gi", arch="arm64", price=5),
]


def alternatives(*terms: list[Expression]) -> dict[str, object]:
    """Return the fields of a daemon with required node affinity terms."""
    return {"affinity": node_affinity(required=[a_term(*expressions) for expressions in terms])}


def cores_kept(daemon: Pod, pool: NodePool | None = None, pod: Pod | None = None) -> int:
    """Return how many of the claim's requested millicores are not the pod's own."""
    claim = the_claim(
        a_problem(
            [pod or a_pod(cpu="1")], pools=[pool or a_nodepool()], instance_types=TYPES[:2], daemons=[daemon]
        )
    )
    return claim.requests["cpu"] - 1000


# --- which count --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "counts"),
    [
        ({}, True),
        ({"node_selector": {labels.ARCH: "amd64"}}, True),
        ({"node_selector": {labels.ARCH: "arm64"}}, False),
        ({"node_selector": {"beta.kubernetes.io/arch": "amd64"}}, True),
        ({"node_selector": {labels.ZONE: "zone-a"}}, True),
        ({"node_selector": {labels.ZONE: "nowhere"}}, False),
        ({"node_selector": {labels.CAPACITY_TYPE: "on-demand"}}, True),
        ({"node_selector": {labels.CAPACITY_TYPE: "spot"}}, False),
        ({"node_selector": {labels.NODEPOOL: "default"}}, True),
        ({"node_selector": {labels.NODEPOOL: "other"}}, False),
        ({"node_selector": {TEAM: "blue"}}, True),
        ({"node_selector": {TEAM: "red"}}, False),
        ({"node_selector": {"undefined": "x"}}, False),
        ({"node_selector": {labels.REGISTERED: "true", labels.INITIALIZED: "true"}}, True),
        (alternatives([("undefined", "NotIn", ["x"])]), True),
        (alternatives([("undefined", "DoesNotExist", [])]), True),
        (alternatives([("undefined", "Exists", [])]), False),
        (alternatives([(TEAM, "NotIn", ["red"])]), True),
        (alternatives([(TEAM, "NotIn", ["blue"])]), False),
        (alternatives([("undefined", "In", ["x"])], [(TEAM, "In", ["blue"])]), True),
        (alternatives([(TEAM, "In", ["blue"])], [("undefined", "In", ["x"])]), True),
        (alternatives([("undefined", "In", ["x"])], [(TEAM, "In", ["red"])]), False),
        (alternatives([(TEAM, "In", ["blue"]), ("undefined", "In", ["x"])]), False),
        ({"affinity": node_affinity(preferred=[(1, a_term(("undefined", "In", ["x"])))])}, True),
        ({"affinity": node_affinity(preferred=[(9, a_term((labels.ARCH, "In", ["arm64"])))])}, True),
        ({"spec": {"resource_claims": [PodResourceClaim(name="gpu")]}}, False),
    ],
)
def test_daemons_count_where_they_will_run(fields: dict[str, object], counts: bool) -> None:
    """Selectors and every alternative matter, preferences don't; those that need devices never run."""
    daemon = a_daemon("daemon", **{"cpu": "500m", **fields})
    assert cores_kept(daemon, a_nodepool(labels={TEAM: "blue"})) == (500 if counts else 0)


@pytest.mark.parametrize(
    ("taints", "startup", "tolerations", "counts"),
    [
        ([DEDICATED], [], [], False),
        ([DEDICATED], [], [Toleration(key="dedicated", operator="Exists")], True),
        ([DEDICATED], [], [Toleration(operator="Exists")], True),
        ([DEDICATED], [], [Toleration(key="dedicated", operator="Exists", effect="NoExecute")], False),
        ([Taint(key="x", effect="PreferNoSchedule")], [], [], True),
        ([Taint(key="x", effect="NoExecute")], [], [], False),
        ([], [DEDICATED], [], True),
    ],
)
def test_taints_of_the_pool_keep_daemons_away_unless_tolerated(
    taints: list[Taint], startup: list[Taint], tolerations: list[Toleration], counts: bool
) -> None:
    """Startup taints and soft ones keep no daemon away."""
    pool = a_nodepool(taints=taints, startup_taints=startup)
    pod = a_pod(cpu="1", tolerations=[Toleration(operator="Exists")])
    daemon = a_daemon(cpu="500m", tolerations=tolerations)
    assert cores_kept(daemon, pool, pod) == (500 if counts else 0)


def test_all_daemons_of_a_node_add_up() -> None:
    """Requests and places of several sets are summed; those that don't run there are left out."""
    daemons = [
        a_daemon("one", cpu="100m", memory="1Gi"),
        a_daemon("two", cpu="200m", memory="512Mi"),
        a_daemon("elsewhere", cpu="1", node_selector={labels.ARCH: "arm64"}),
    ]
    claim = the_claim(a_problem([a_pod(cpu="1", memory="1Gi")], instance_types=TYPES[:2], daemons=daemons))
    assert claim.requests == {"cpu": 1300, "memory": 2560 * 2**20, "pods": 3}


def test_containers_of_every_kind_count_in_a_daemon() -> None:
    """Sidecars and overhead are part of what a daemon takes."""
    sidecar = Container(
        name="side", restart_policy="Always", resources=a_pod(cpu="300m").spec.containers[0].resources
    )
    daemon = a_daemon(cpu="100m", spec={"init_containers": [sidecar], "overhead": {"cpu": "50m"}})
    assert cores_kept(daemon) == 450


# --- what they leave ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("daemon", "first"), [("999m", "t2"), ("1000m", "t2"), ("1001m", "t4"), ("3", "t4")])
def test_the_node_must_hold_pod_and_daemons(daemon: str, first: str) -> None:
    """A type without room for both is not listed."""
    claim = the_claim(a_problem([a_pod()], instance_types=TYPES[:2], daemons=[a_daemon(cpu=daemon)]))
    assert claim.instance_types[0] == first


def test_daemons_that_leave_nothing_keep_the_pod_waiting() -> None:
    """When the daemons alone fill the largest type, no node is bought: resources are what is missing."""
    plan = planned(a_problem([a_pod()], instance_types=TYPES, daemons=[a_daemon(cpu="4")]))
    assert refused(plan) == ["pod"]
    assert refusals(plan)[0].constraint == "resources"


def test_a_type_that_cannot_even_hold_its_daemons_is_not_bought() -> None:
    """Not for a pod that asks for nothing, either."""
    plan = planned(
        a_problem([a_pod(cpu=None, memory=None)], instance_types=TYPES, daemons=[a_daemon(cpu="5")])
    )
    assert refused(plan) == ["pod"]


def test_daemons_take_places_too() -> None:
    """With five pods per node and two daemons, three pods fit."""
    types = [an_instance_type("five", cpu="64", memory="256Gi", pods="5")]
    daemons = [a_daemon("one"), a_daemon("two")]
    plan = planned(a_problem(some_pods(6, cpu="1m"), instance_types=types, daemons=daemons))
    assert [len(c.pods) for c in plan.claims] == [3, 3]


# --- by type, by pool ---------------------------------------------------------------------------------------


def test_a_daemon_of_one_architecture_takes_nothing_of_the_other() -> None:
    """The pod fits on the small ARM machine because the daemon does not run there."""
    daemon = a_daemon(cpu="3500m", node_selector={labels.ARCH: "amd64"})
    claim = the_claim(a_problem([a_pod()], instance_types=TYPES, daemons=[daemon]))
    assert claim.instance_types == ("arm-2",)


@pytest.mark.parametrize("order", [("t2", "t4"), ("t4", "t2")])
def test_alternatives_of_a_daemon_hold_for_every_type_in_any_order(order: tuple[str, str]) -> None:
    """A daemon that may run on either type by different alternatives runs on both."""
    terms = [a_term((labels.INSTANCE_TYPE, "In", [name])) for name in order]
    daemon = a_daemon(cpu="1500m", affinity=node_affinity(required=terms))
    claim = the_claim(a_problem([a_pod()], instance_types=TYPES[:2], daemons=[daemon]))
    assert claim.instance_types == ("t4",)
    assert claim.requests["cpu"] == 2500


def test_alternatives_of_a_daemon_hold_for_every_pool() -> None:
    """What one pool rules out is looked at anew for the next."""
    terms = [a_term((TEAM, "In", [team])) for team in ("red", "blue")]
    daemon = a_daemon(cpu="500m", affinity=node_affinity(required=terms))
    pools = [a_nodepool(team, labels={TEAM: team}) for team in ("blue", "red")]
    pods = [a_pod(team, node_selector={TEAM: team}) for team in ("blue", "red")]
    plan = planned(a_problem(pods, pools=pools, instance_types=TYPES[:2], daemons=[daemon]))
    assert [c.requests["cpu"] for c in plan.claims] == [1500, 1500]


def test_a_claim_promises_the_least_its_daemons_may_take() -> None:
    """With types where the daemon runs and types where it does not, the claim asks for what is sure."""
    types = [an_instance_type("a"), an_instance_type("b")]
    daemon = a_daemon(cpu="500m", node_selector={labels.INSTANCE_TYPE: "b"})
    claim = the_claim(a_problem([a_pod()], instance_types=types, daemons=[daemon]))
    assert claim.instance_types == ("a", "b")
    assert claim.requests["cpu"] == 1000


# --- ports --------------------------------------------------------------------------------------------------


def test_ports_of_daemons_are_taken_on_every_new_node() -> None:
    """A pod that wants a daemon's port cannot be served by buying a node, and is told so."""
    daemon = a_daemon(host_ports=[80])
    plan = planned(a_problem([a_pod(host_ports=[80])], instance_types=TYPES, daemons=[daemon]))
    assert [r.constraint for r in refusals(plan)] == ["hostPorts"]
    assert the_claim(a_problem([a_pod(host_ports=[81])], instance_types=TYPES, daemons=[daemon]))


def test_ports_of_daemons_are_taken_only_on_types_they_run_on() -> None:
    """The pod goes to the type where the daemon does not, though that is dearer."""
    daemon = a_daemon(host_ports=[80], node_selector={labels.ARCH: "amd64"})
    claim = the_claim(a_problem([a_pod(host_ports=[80])], instance_types=TYPES, daemons=[daemon]))
    assert claim.instance_types == ("arm-2",)


def test_ports_of_daemons_are_taken_only_in_pools_they_run_in() -> None:
    """A daemon that the pool's taint keeps away takes no port there."""
    daemon = a_daemon(host_ports=[80])
    pod = a_pod(host_ports=[80], tolerations=[Toleration(operator="Exists")])
    pools = [a_nodepool("plain", weight=9), a_nodepool("tainted", taints=[DEDICATED])]
    assert the_claim(a_problem([pod], pools=pools, daemons=[daemon])).pool.name == "tainted"


def test_daemons_do_not_quarrel_among_themselves() -> None:
    """Two sets that want the same port are their owner's mistake: pods are planned all the same."""
    daemons = [a_daemon("one", host_ports=[80]), a_daemon("two", host_ports=[80])]
    assert refused(planned(a_problem([a_pod()], daemons=daemons))) == []
