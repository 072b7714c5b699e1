"""Whatever the problem: plans are right, complete, bounded, and always the same."""

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from karpenter.apis import labels
from karpenter.apis.core import (
    Affinity,
    Pod,
    PodAffinity,
    PodAffinityTerm,
    Taint,
    Toleration,
    TopologySpreadConstraint,
)
from karpenter.apis.karpenter import RequirementSpec
from karpenter.apis.meta import LabelSelector
from karpenter.base.randomness import Random, seeded
from karpenter.model.instancetype import InstanceType
from karpenter.model.problem import Plan, Problem
from karpenter.scheduling import solve
from karpenter.scheduling.check import needless_refusals, violations
from karpenter.testing.builders import (
    a_daemon,
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

ZONES = ("zone-a", "zone-b", "zone-c")
GPU = "example.com/gpu"
WELL_KNOWN = labels.WELL_KNOWN_LABELS | {"example.com/family", "example.com/size"}
TAINT = Taint(key="dedicated", value="batch", effect="NoSchedule")
SOFT = Taint(key="avoid", effect="PreferNoSchedule")
TOLERATION = Toleration(key="dedicated", operator="Equal", value="batch")


def random_types(rng: Random) -> list[InstanceType]:
    """Return one to twelve types with holes in their offerings."""
    found = []
    for i in range(rng.randint(1, 12)):
        cores = rng.choice((2, 4, 8, 16, 32))
        base = cores * rng.uniform(0.03, 0.06)
        offerings = [
            an_offering(
                z,
                ct,
                round(base * (0.3 if ct == "spot" else 1) * rng.uniform(0.9, 1.1), 4),
                available=rng.random() > 0.2,
            )
            for z in rng.sample(ZONES, rng.randint(1, 3))
            for ct in rng.sample(("spot", "on-demand"), rng.randint(1, 2))
        ]
        found.append(
            an_instance_type(
                f"t{i:02d}-{cores}",
                cpu=str(cores),
                memory=f"{cores * rng.choice((2, 4, 8))}Gi",
                pods=str(rng.choice((5, 20, 110))),
                offerings=offerings,
                arch=rng.choice(("amd64", "arm64")),
                labels={"example.com/family": rng.choice("cmr"), "example.com/size": str(cores)},
                extra={GPU: "2"} if rng.random() < 0.2 else None,
                overhead={"cpu": "100m", "memory": "200Mi"},
            )
        )
    return found


def random_affinity(rng: Random) -> Affinity | None:
    """Return no affinity, or alternatives with preferences."""
    if rng.random() < 0.7:
        return None
    choices = [
        a_term((labels.ZONE, "In", rng.sample(ZONES, 2))),
        a_term((labels.ARCH, "NotIn", ["arm64"])),
        a_term(("example.com/size", "Gt", ["4"])),
        a_term(("team", "In", ["blue"])),
        a_term(("team", "DoesNotExist", [])),
        a_term((labels.CAPACITY_TYPE, "In", ["on-demand"]), ("example.com/size", "Lt", ["16"])),
    ]
    return node_affinity(
        required=rng.sample(choices, rng.randint(0, 2)),
        preferred=[(rng.randint(1, 100), t) for t in rng.sample(choices, rng.randint(0, 2))],
    )


APPS = ("web", "db", "cache")


def random_company(rng: Random) -> dict[str, object]:
    """Return the fields by which a pod cares who is beside it; mostly none."""
    selector = LabelSelector(match_labels={"app": rng.choice(APPS)})
    dice = rng.random()
    if dice < 0.15:
        term = PodAffinityTerm(topology_key=labels.KUBERNETES_HOSTNAME, label_selector=selector)
        return {"affinity": Affinity(pod_anti_affinity=PodAffinity(required=[term]))}
    if dice < 0.3:
        spread = TopologySpreadConstraint(
            max_skew=rng.randint(1, 3),
            topology_key=labels.KUBERNETES_HOSTNAME,
            when_unsatisfiable="DoNotSchedule",
            label_selector=selector,
        )
        return {"topology_spread_constraints": [spread]}
    return {}


def an_old_pod(rng: Random, name: str, node: str) -> Pod:
    """Return a running pod, which may not like company on its node or in its zone."""
    spec: dict[str, object] = {}
    if rng.random() < 0.15:
        key = rng.choice((labels.ZONE, labels.KUBERNETES_HOSTNAME))
        selector = LabelSelector(match_labels={"app": rng.choice(APPS)})
        term = PodAffinityTerm(topology_key=key, label_selector=selector)
        spec["affinity"] = Affinity(pod_anti_affinity=PodAffinity(required=[term]))
    ports = [8080] if rng.random() < 0.1 else []
    app = {"app": rng.choice(APPS)}
    return a_pod(name, cpu="500m", labels=app, host_ports=ports, node_name=node, spec=spec)


def random_pods(rng: Random) -> list[Pod]:
    """Return up to some sixty pods of a few kinds."""
    found: list[Pod] = []
    for i in range(rng.randint(1, 8)):
        selector: dict[str, str] = {}
        if rng.random() < 0.2:
            selector[labels.ZONE] = rng.choice(ZONES)
        if rng.random() < 0.1:
            selector["team"] = rng.choice(("blue", "red"))
        if rng.random() < 0.1:
            selector["example.com/family"] = rng.choice("cmr")
        found += some_pods(
            rng.randint(1, 8),
            f"w{i}",
            cpu=f"{rng.choice((100, 500, 1000, 3000, 7000))}m",
            memory=f"{rng.choice((128, 1024, 4096, 20000))}Mi",
            requests={GPU: "1"} if rng.random() < 0.1 else None,
            node_selector=selector,
            affinity=random_affinity(rng),
            tolerations=[TOLERATION] if rng.random() < 0.5 else [],
            host_ports=[8080] if rng.random() < 0.15 else [],
            labels={"app": rng.choice(APPS)},
            spec=random_company(rng),
            priority=rng.choice((None, None, 100, 1000)),
        )
    return found


def random_problem(seed: int, *, limited: bool) -> Problem:
    """Return a problem that follows from `seed`; with `limited`, pools have limits and minValues."""
    rng = seeded(seed)
    types = random_types(rng)
    pools = []
    for i in range(rng.randint(1, 3)):
        requirements: list[RequirementSpec | tuple[str, str, list[str]]] = []
        if rng.random() < 0.3:
            requirements.append((labels.CAPACITY_TYPE, "In", ["on-demand"]))
        if limited and rng.random() < 0.3:
            requirements.append(
                RequirementSpec(key=labels.INSTANCE_TYPE, operator="Exists", min_values=rng.randint(2, 4))
            )
        if rng.random() < 0.2:
            requirements.append(("tier", "In", ["gold", "silver"]))
        limits = {"cpu": str(rng.randint(4, 60)), "nodes": str(rng.randint(1, 6))}
        pools.append(
            a_nodepool(
                f"pool-{i}",
                requirements=requirements,
                labels={"team": "blue"} if rng.random() < 0.4 else None,
                taints=[t for t in (TAINT, SOFT) if rng.random() < 0.25],
                limits=limits if limited and rng.random() < 0.7 else None,
                weight=rng.choice((None, 10, 50)),
            )
        )
    daemons = [
        a_daemon(
            f"daemon-{i}",
            cpu=f"{rng.choice((50, 200, 1000))}m",
            node_selector={labels.ARCH: "amd64"} if rng.random() < 0.3 else None,
            affinity=random_affinity(rng),
            host_ports=[8080] if rng.random() < 0.2 else [],
        )
        for i in range(rng.randint(0, 3))
    ]
    nodes = [
        a_view(
            f"node-{i}",
            labels={
                labels.ZONE: rng.choice(ZONES),
                labels.ARCH: "amd64",
                **({"team": "red"} if rng.random() < 0.3 else {}),
            },
            taints=[TAINT] if rng.random() < 0.2 else [],
            pods=[an_old_pod(rng, f"old-{i}-{k}", f"node-{i}") for k in range(rng.randint(0, 3))],
            initialized=rng.random() < 0.8,
        )
        for i in range(rng.randint(0, 4))
    ]
    return a_problem(
        random_pods(rng),
        pools=pools,
        instance_types=types,
        nodes=nodes,
        daemons=daemons,
        respect_preferences=rng.random() < 0.7,
        min_values_strict=rng.random() < 0.5,
        well_known_labels=WELL_KNOWN,
    )


def plan_bytes(plan: Plan) -> bytes:
    """Return every field of the plan, in order."""
    return repr(plan).encode()


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 10**9))
def test_every_plan_is_right_and_refuses_nothing_needlessly(seed: int) -> None:
    """Without limits, each pod is placed where it may run, or no purchasable node could have taken it."""
    problem = random_problem(seed, limited=False)
    plan = solve(problem)
    assert violations(problem, plan) == []
    assert needless_refusals(problem, plan) == []


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 10**9))
def test_limits_and_min_values_always_hold(seed: int) -> None:
    """With limits and minValues, plans keep them whatever machine each claim becomes."""
    problem = random_problem(seed, limited=True)
    assert violations(problem, solve(problem)) == []


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 10**9), st.integers(0, 10**9))
def test_the_order_of_pods_does_not_matter(seed: int, shuffle: int) -> None:
    """The same pods in another order, and decoded anew, have the same plan, byte for byte."""
    problem = random_problem(seed, limited=True)
    pods = [msgspec.json.decode(msgspec.json.encode(p), type=Pod) for p in problem.pods]
    seeded(shuffle).shuffle(pods)
    again = msgspec.structs.replace(problem, pods=tuple(pods))
    assert plan_bytes(solve(problem)) == plan_bytes(solve(problem)) == plan_bytes(solve(again))


@pytest.mark.parametrize("seed", range(5))
def test_more_capacity_never_leaves_more_pods_out(seed: int) -> None:
    """A pool without limits takes at least the pods it takes with them."""
    problem = random_problem(seed, limited=True)
    free = msgspec.structs.replace(
        problem, pools=tuple(msgspec.structs.replace(o, remaining={}) for o in problem.pools)
    )
    assert len(solve(free).unschedulable) <= len(solve(problem).unschedulable)


def test_a_pod_alone_gets_the_cheapest_node_that_fits() -> None:
    """One pod's claim costs what the cheapest fitting offering costs, and lists it first."""
    problem = a_problem([a_pod(cpu="3", memory="1Gi")])
    (claim,) = solve(problem).claims
    assert claim.instance_types[0] == "general-4"
    assert claim.price == min(
        o.price for t in problem.pools[0].instance_types if t.name == "general-4" for o in t.offerings
    )
