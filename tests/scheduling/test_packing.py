"""How large a node must be, how many pods share it, and which of all machines is bought."""

from itertools import product

import msgspec
import pytest

from karpenter.apis import labels
from karpenter.apis.core import Container, Pod, ResourceRequirements
from karpenter.apis.karpenter import NodePool
from karpenter.model.instancetype import InstanceType
from karpenter.scheduling.solver import first_plan
from karpenter.testing.builders import (
    Expression,
    a_nodepool,
    a_pod,
    a_problem,
    a_term,
    a_view,
    an_instance_type,
    an_offering,
    node_affinity,
    some_pods,
)
from karpenter.testing.outcomes import planned, refusals, refused, the_claim, together

TYPES = [
    an_instance_type(f"t{n}", cpu=str(n), memory=f"{4 * n}Gi", overhead={"cpu": "100m", "memory": "512Mi"})
    for n in (1, 2, 4, 8, 16)
]


def asks(**requests: str) -> ResourceRequirements:
    """Return a container's requests."""
    return ResourceRequirements(requests={**requests})


def limited(**limits: str) -> ResourceRequirements:
    """Return a container's limits."""
    return ResourceRequirements(limits={**limits})


# --- the size of one node ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pod", "smallest"),
    [
        (a_pod(cpu="900m", memory="1Gi"), "t1"),
        (a_pod(cpu="901m", memory="1Gi"), "t2"),
        (a_pod(cpu="100m", memory="3584Mi"), "t1"),
        (a_pod(cpu="100m", memory="3585Mi"), "t2"),
        (a_pod(cpu=None, memory=None), "t1"),
        (a_pod(cpu="0", memory="0"), "t1"),
        (a_pod(cpu="0", memory="0", requests={"example.com/gpu": "0"}), "t1"),
        (a_pod(cpu="1", spec={"overhead": {"cpu": "2", "memory": "1Gi"}}), "t4"),
        (a_pod(cpu="0", memory="0", spec={"overhead": {"cpu": "7"}}), "t8"),
        (a_pod(cpu="1", spec={"init_containers": [Container(name="i", resources=asks(cpu="5"))]}), "t8"),
        (a_pod(cpu="3", spec={"init_containers": [Container(name="i", resources=asks(cpu="2"))]}), "t4"),
        (
            a_pod(
                cpu="3",
                spec={
                    "init_containers": [Container(name="s", restart_policy="Always", resources=asks(cpu="2"))]
                },
            ),
            "t8",
        ),
        (
            a_pod(
                cpu="1",
                spec={
                    "init_containers": [
                        Container(name="s", restart_policy="Always", resources=asks(cpu="2")),
                        Container(name="i", resources=asks(cpu="6")),
                    ]
                },
            ),
            "t16",
        ),
        (
            a_pod(
                cpu="1",
                spec={
                    "init_containers": [
                        Container(name="i", resources=asks(cpu="6")),
                        Container(name="s", restart_policy="Always", resources=asks(cpu="2")),
                    ]
                },
            ),
            "t8",
        ),
        (a_pod(cpu="1", spec={"resources": asks(cpu="5")}), "t8"),
        (a_pod(cpu="7", spec={"resources": asks(cpu="2")}), "t4"),
        (
            a_pod(
                spec={
                    "containers": [
                        Container(name="a", resources=asks(cpu="1500m")),
                        Container(name="b", resources=asks(cpu="1500m")),
                    ]
                }
            ),
            "t4",
        ),
    ],
    ids=[
        *("just-fits", "1m-too-much", "memory-just-fits", "memory-too-much", "nothing", "zero", "zero-gpu"),
        *("runtime-class", "runtime-class-alone", "init-larger", "init-smaller", "sidecar"),
        *("init-after-sidecar", "init-before-sidecar", "pod-level-more", "pod-level-less", "two-containers"),
    ],
)
def test_the_smallest_node_that_holds_one_pod(pod: Pod, smallest: str) -> None:
    """Requests of all containers, overheads of runtime class and node decide; zero fits anywhere."""
    claim = the_claim(a_problem([pod], instance_types=TYPES))
    names = [t.name for t in TYPES]
    assert list(claim.instance_types) == names[names.index(smallest) :]


def test_a_container_with_limits_only_asks_for_nothing_here() -> None:
    """The API server turns limits into requests when a pod is created: what is not there is not invented."""
    pod = a_pod(spec={"containers": [Container(name="a", resources=limited(cpu="12"))]})
    assert the_claim(a_problem([pod], instance_types=TYPES)).instance_types[0] == "t1"


@pytest.mark.parametrize(
    ("pod", "fits"),
    [
        (a_pod(cpu="15900m"), True),
        (a_pod(cpu="15901m"), False),
        (a_pod(memory="63Gi"), True),
        (a_pod(memory="64Gi"), False),
        (a_pod(cpu="10", memory="100Gi"), False),
        (a_pod(requests={"ephemeral-storage": "1Gi"}), False),
        (a_pod(requests={"example.com/gpu": "1"}), False),
    ],
)
def test_a_pod_larger_than_every_type_waits(pod: Pod, fits: bool) -> None:
    """What no type has in full cannot be had."""
    plan = planned(a_problem([pod], instance_types=TYPES))
    assert (not refused(plan)) == fits
    assert [r.constraint for r in refusals(plan)] == ([] if fits else ["resources"])


# --- pods that share ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("count", "nodes"), [(1, 1), (10, 1), (11, 2), (25, 3)])
def test_a_type_holds_no_more_pods_than_its_kubelet(count: int, nodes: int) -> None:
    """Ten pods per node: room for more cores does not help."""
    types = [an_instance_type("ten", cpu="16", memory="64Gi", pods="10")]
    plan = planned(a_problem(some_pods(count, cpu="10m", memory="1Mi"), instance_types=types))
    assert len(plan.claims) == nodes


def test_running_pods_count_towards_the_pods_of_a_node() -> None:
    """A node with nine of ten pods takes one more, whatever its cores."""
    size = {"cpu": "16", "memory": "64Gi", "pods": "10"}
    node = a_view("node", allocatable=size, pods=some_pods(9, "old", cpu="10m", node_name="node"))
    plan = planned(a_problem(some_pods(3, cpu="10m"), nodes=[node]))
    assert len(plan.placements["node"]) == 1


def test_pods_without_requests_fill_nodes_by_number() -> None:
    """Pods that ask for nothing still take a place each."""
    types = [an_instance_type("ten", pods="10")]
    plan = planned(a_problem(some_pods(30, cpu=None, memory=None), instance_types=types))
    assert sorted(len(c.pods) for c in plan.claims) == [10, 10, 10]


@pytest.mark.parametrize(
    ("pods", "cost"),
    [
        (some_pods(4, cpu="900m", memory="1Gi"), 4 * 1.0),
        (some_pods(1, cpu="900m", memory="1Gi"), 1.0),
        ([*some_pods(1, "big", cpu="3", memory="1Gi"), *some_pods(9, cpu="100m", memory="64Mi")], 4.0),
        ([*some_pods(2, "big", cpu="7900m", memory="1Gi"), *some_pods(2, cpu="900m", memory="1Gi")], 18.0),
    ],
)
def test_large_and_small_pods_are_packed_together(pods: list[Pod], cost: float) -> None:
    """At a dollar per core, the plan costs as many dollars as the packing needs cores."""
    types = [
        an_instance_type(f"t{n}", cpu=str(n), memory=f"{4 * n}Gi", price=n, overhead={"cpu": "100m"})
        for n in (1, 2, 4, 8, 16)
    ]
    assert planned(a_problem(pods, instance_types=types)).cost == pytest.approx(cost)


def test_a_node_at_its_capacity_is_followed_by_another() -> None:
    """Forty cores of pods on machines of at most sixteen."""
    plan = planned(a_problem(some_pods(40, cpu="1", memory="1Gi"), instance_types=TYPES))
    assert refused(plan) == []
    assert all(c.requests["cpu"] <= 15900 for c in plan.claims)


def test_claims_list_only_types_that_hold_all_their_pods() -> None:
    """Types too small for the content are not fallbacks."""
    claim = the_claim(a_problem(some_pods(3, cpu="900m", memory="10Gi"), instance_types=TYPES[3:]))
    assert claim.instance_types == ("t8", "t16") if claim.requests["cpu"] < 7900 else ("t16",)


def test_a_pod_that_needs_much_is_not_lost_behind_many_small_ones() -> None:
    """Small pods never take the last room of a pod that fits in one place only."""
    nodes = [a_view("large", allocatable={"cpu": "8", "memory": "32Gi", "pods": "99"}), a_view("small")]
    pods = [*some_pods(4, "small", cpu="1"), a_pod("zlarge", cpu="8")]
    plan = planned(a_problem(pods, nodes=nodes, pools=[]))
    assert refused(plan) == []
    assert plan.placements["large"] == ("default/zlarge",)


def test_different_systems_get_different_nodes() -> None:
    """Pods for two architectures, or two operating systems, never share."""
    types = [
        an_instance_type("arm", arch="arm64"),
        an_instance_type("intel"),
        an_instance_type("windows", labels={labels.OS: "windows"}),
    ]
    pods = [
        a_pod("arm", node_selector={labels.ARCH: "arm64"}),
        a_pod("intel", node_selector={labels.ARCH: "amd64", labels.OS: "linux"}),
        a_pod("windows", node_selector={labels.OS: "windows"}),
    ]
    plan = planned(a_problem(pods, instance_types=types))
    assert together(plan) == [["arm"], ["intel"], ["windows"]]


def test_resources_of_different_types_get_different_nodes() -> None:
    """No type has both devices: the pods get a node each; one that wants both waits."""
    types = [an_instance_type(f"with-{d}", extra={f"example.com/{d}": "1"}) for d in ("gpu", "fpga")]
    pods = [
        a_pod("gpu", requests={"example.com/gpu": "1"}),
        a_pod("fpga", requests={"example.com/fpga": "1"}),
        a_pod("both", requests={"example.com/gpu": "1", "example.com/fpga": "1"}),
    ]
    plan = planned(a_problem(pods, instance_types=types))
    assert refused(plan) == ["both"]
    assert together(plan) == [["fpga"], ["gpu"]]


def test_devices_count() -> None:
    """Three pods with a GPU each, two GPUs per machine: two machines."""
    types = [an_instance_type("gpu", cpu="64", memory="256Gi", price=1, extra={"example.com/gpu": "2"})]
    pods = some_pods(3, cpu="1", requests={"example.com/gpu": "1"})
    assert sorted(len(c.pods) for c in planned(a_problem(pods, instance_types=types)).claims) == [1, 2]


def test_scarce_devices_are_not_blocked_by_pods_that_need_none() -> None:
    """On existing nodes, large plain pods don't fill the only machine with a GPU."""
    gpu = {"cpu": "4", "memory": "16Gi", "pods": "110", "example.com/gpu": "1"}
    nodes = [a_view("a-gpu", allocatable=gpu), a_view("b-plain")]
    pods = [a_pod("plain", cpu="4"), a_pod("device", cpu="1", requests={"example.com/gpu": "1"})]
    plan = planned(a_problem(pods, nodes=nodes, pools=[]))
    assert "default/plain" in {key for keys in plan.placements.values() for key in keys}


# --- which machine -----------------------------------------------------------------------------------------


def assorted() -> list[InstanceType]:
    """Return types of every mix of size, system, zone and capacity type, each with one offering.

    Prices follow from size and position, in no order that a careless choice would get right by chance.
    """
    found = []
    mixes = product(
        (1, 4, 16), ("amd64", "arm64"), ("linux", "windows"), ("z1", "z2", "z3"), ("spot", "on-demand")
    )
    for i, (cores, arch, system, zone, capacity) in enumerate(mixes):
        price = round(cores * (1 + (i * 7919 % 997) / 997), 4)
        instance = an_instance_type(
            f"{cores}-{arch}-{system}-{zone}-{capacity}",
            cpu=str(cores),
            memory=f"{4 * cores}Gi",
            arch=arch,
            labels={labels.OS: system},
            offerings=[an_offering(zone, capacity, price)],
        )
        found.append(instance)
    return found


ASSORTED = assorted()


def price_of(instance: InstanceType) -> float:
    """Return the price of its only offering."""
    return instance.offerings[0].price


def allowed(expressions: list[Expression], cores: int) -> list[InstanceType]:
    """Return the types with at least `cores` that have a listed value of every key."""
    return [
        t
        for t in ASSORTED
        if t.capacity["cpu"] >= 1000 * cores
        and all(t.requirements.single_value(key) in values for key, _, values in expressions)
    ]


AMD, ARM = (labels.ARCH, "In", ["amd64"]), (labels.ARCH, "In", ["arm64"])
LINUX, WINDOWS = (labels.OS, "In", ["linux"]), (labels.OS, "In", ["windows"])
ZONE_2, ZONES_2_3 = (labels.ZONE, "In", ["z2"]), (labels.ZONE, "In", ["z2", "z3"])
SPOT, ON_DEMAND = (labels.CAPACITY_TYPE, "In", ["spot"]), (labels.CAPACITY_TYPE, "In", ["on-demand"])


@pytest.mark.parametrize(
    ("of_pod", "of_pool"),
    [
        ([], []),
        *(([e], []) for e in (AMD, ARM, LINUX, WINDOWS, ZONE_2, SPOT, ON_DEMAND)),
        *(([], [e]) for e in (AMD, ARM, LINUX, WINDOWS, ZONE_2, SPOT, ON_DEMAND)),
        ([ZONE_2, ON_DEMAND], []),
        ([], [ZONE_2, SPOT]),
        ([SPOT], [ZONE_2]),
        ([ON_DEMAND, ZONE_2], [ARM, WINDOWS]),
        ([], [ON_DEMAND, ZONES_2_3, AMD, LINUX]),
        ([ON_DEMAND, ZONE_2, ARM, WINDOWS], []),
        ([SPOT, ZONES_2_3, AMD, LINUX], [ZONE_2]),
    ],
)
@pytest.mark.parametrize("cores", [1, 2, 10])
def test_the_cheapest_machine_that_will_do_is_first(
    of_pod: list[Expression], of_pool: list[Expression], cores: int
) -> None:
    """Whoever narrows the choice, and by what: the cheapest compatible offering is what is planned with."""
    pod = a_pod(cpu=str(cores), affinity=node_affinity(required=[a_term(*of_pod)]) if of_pod else None)
    pools = [a_nodepool(requirements=of_pool)]
    claim = the_claim(a_problem([pod], pools=pools, instance_types=ASSORTED))
    fitting = sorted(allowed([*of_pod, *of_pool], cores), key=price_of)
    assert list(claim.instance_types) == [t.name for t in fitting]
    assert claim.price == price_of(fitting[0])


@pytest.mark.parametrize(
    ("of_pod", "of_pool"),
    [
        ([(labels.ARCH, "In", ["s390x"])], []),
        ([ARM], [(labels.ARCH, "In", ["s390x"])]),
        ([ARM, (labels.ZONE, "In", ["z4"])], []),
        ([ARM], [AMD]),
        ([(labels.INSTANCE_TYPE, "In", ["1-arm64-linux-z1-spot"]), ZONE_2], []),
    ],
)
def test_nothing_matches_nothing_is_bought(of_pod: list[Expression], of_pool: list[Expression]) -> None:
    """A combination that no type has is refused, not approximated."""
    pod = a_pod(affinity=node_affinity(required=[a_term(*of_pod)]))
    plan = planned(a_problem([pod], pools=[a_nodepool(requirements=of_pool)], instance_types=ASSORTED))
    assert refused(plan) == ["pod"]
    assert plan.claims == ()


def test_on_demand_is_taken_when_it_is_cheaper_than_spot() -> None:
    """Prices decide, not the name of the capacity type; the order of fallbacks follows the prices, too."""
    types = [
        an_instance_type("a", offerings=[an_offering("z1", "on-demand", 0.0008)]),
        an_instance_type(
            "b", offerings=[an_offering("z1", "spot", 0.9), an_offering("z1", "on-demand", 1.0)]
        ),
        an_instance_type(
            "c", offerings=[an_offering("z1", "spot", 0.0015), an_offering("z1", "on-demand", 4)]
        ),
        an_instance_type(
            "d", offerings=[an_offering("z1", "spot", 5), an_offering("z1", "on-demand", 0.002)]
        ),
    ]
    claim = the_claim(a_problem([a_pod()], instance_types=types))
    assert claim.instance_types == ("a", "c", "d", "b")
    on_demand = a_nodepool(requirements=[ON_DEMAND])
    claim = the_claim(a_problem([a_pod()], pools=[on_demand], instance_types=types))
    assert claim.instance_types == ("a", "d", "b", "c")


def test_equal_prices_are_ordered_by_name() -> None:
    """The same catalogue in any order has the same answer."""
    types = [an_instance_type(name, price=1) for name in ("c", "a", "b")]
    assert the_claim(a_problem([a_pod()], instance_types=types)).instance_types == ("a", "b", "c")


@pytest.mark.parametrize("cores", [2, 10])
def test_many_pods_together_cost_no_more_than_each_on_its_own(cores: int) -> None:
    """Sharing is done where it saves: never at a price above one cheapest machine per pod."""
    alone = planned(a_problem([a_pod(cpu=str(cores))], instance_types=ASSORTED)).cost
    many = planned(a_problem(some_pods(12, cpu=str(cores)), instance_types=ASSORTED))
    assert many.cost <= 12 * alone + 1e-9
    assert refused(many) == []


def test_unavailable_machines_are_no_fallbacks() -> None:
    """A type without any available compatible offering is not listed."""
    gone = [msgspec.structs.replace(o, available=False) for o in an_instance_type().offerings]
    types = [an_instance_type("gone", price=0.01, offerings=gone), an_instance_type("there")]
    assert the_claim(a_problem([a_pod()], instance_types=types)).instance_types == ("there",)


def pool_of(*names: str) -> NodePool:
    """Return a pool restricted to some instance types."""
    return a_nodepool(requirements=[(labels.INSTANCE_TYPE, "In", names)])


def test_types_the_pool_excludes_are_not_listed() -> None:
    """The pool's list of types bounds fallbacks."""
    assert the_claim(
        a_problem([a_pod()], pools=[pool_of("t8", "t2")], instance_types=TYPES)
    ).instance_types == (
        "t2",
        "t8",
    )


def test_pods_that_are_cheap_alone_and_dear_together_do_not_share_a_node() -> None:
    """Each leaves a cheap zone open, both together only the dear one."""
    prices = {"zone-a": 1.0, "zone-b": 3.0, "zone-c": 1.0}
    kind = an_instance_type("four", offerings=[an_offering(zone, price=p) for zone, p in prices.items()])
    pods = [a_pod("any", cpu="1")]
    for name, zones in (("left", ["zone-a", "zone-b"]), ("right", ["zone-b", "zone-c"])):
        wanted = node_affinity(required=[a_term((labels.ZONE, "In", zones))])
        pods.append(a_pod(name, cpu="500m", affinity=wanted))
    problem = a_problem(pods, instance_types=[kind])
    for plan in (first_plan(problem).plan(), planned(problem)):
        assert (plan.cost, len(plan.claims)) == (2.0, 2)
