"""Random small problems, most of them solvable: every constraint a pod can have, in plausible proportions."""

from collections.abc import Callable, Sequence

import msgspec
from hypothesis import strategies as st

from karpenter.apis import labels as known
from karpenter.apis.core import Affinity, Pod, PodAffinity, PodAffinityTerm, Taint, Toleration
from karpenter.apis.karpenter import NodePool, RequirementSpec
from karpenter.apis.meta import LabelSelector
from karpenter.model.instancetype import InstanceType
from karpenter.model.problem import Problem
from karpenter.model.snapshot import NodeView
from karpenter.testing.builders import (
    Expression,
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
from karpenter.testing.company import Spec, a_company_term, a_spread
from karpenter.testing.dice import Dice

ZONES = ("a", "b", "c")
APPS = ("web", "db", "cache")
GPU = "example.com/gpu"
FAMILY = "example.com/family"
RACK = "example.com/rack"
"""A label that pools give their nodes; the cloud knows nothing of it."""
WELL_KNOWN = known.WELL_KNOWN_LABELS | {FAMILY}
TAINT = Taint(key="dedicated", value="batch", effect="NoSchedule")
SOFT = Taint(key="avoid", effect="PreferNoSchedule")
TOLERATION = Toleration(key="dedicated", operator="Equal", value="batch")
NAMESPACES = {"default": {"tier": "front"}, "shop": {"tier": "back"}}
KEYS = (known.ZONE, known.KUBERNETES_HOSTNAME, known.CAPACITY_TYPE, RACK)
_BOTH = (known.CAPACITY_ON_DEMAND, known.CAPACITY_SPOT)


class Scale(msgspec.Struct, frozen=True, kw_only=True):
    """How large problems get, and what they may contain."""

    workloads: int = 5
    replicas: int = 4
    pods: int = 20
    """At most so many in all."""
    types: int = 6
    nodes: int = 3
    pools: int = 3
    zones: int = 3
    limited: bool = False
    """Pools may have limits and minValues."""
    company: bool = True
    """Pods may have spread, affinity and anti-affinity."""
    preferences: bool = True
    """Pods may prefer nodes to others, and pools have PreferNoSchedule taints: such wishes cost money."""


TINY = Scale(workloads=3, replicas=3, pods=6, types=4, nodes=2, pools=1, zones=2, preferences=False)
"""Small enough to try everything (`karpenter.testing.exhaustive`)."""


def problems(scale: Scale | None = None) -> st.SearchStrategy[Problem]:
    """Return the strategy of problems of some scale."""

    @st.composite
    def drawn(draw: st.DrawFn) -> Problem:
        return a_random_problem(Dice.of_draw(draw), scale or Scale())

    return drawn()


def a_random_problem(dice: Dice, scale: Scale) -> Problem:
    """Return the problem that `dice` make."""
    types = [_type(dice, i, scale) for i in range(dice.integer(1, scale.types))]
    pools = [_pool(dice, i, scale) for i in range(dice.integer(1, scale.pools))]
    pods: list[Pod] = []
    for i in range(dice.integer(1, scale.workloads)):
        pods += _workload(dice, i, scale)
    problem = a_problem(
        pods[: scale.pods],
        pools=pools,
        instance_types=types,
        nodes=[_node(dice, i, scale) for i in range(dice.integer(0, scale.nodes))],
        daemons=[_daemon(dice, i) for i in range(dice.integer(0, 3) // 2)],
        respect_preferences=not dice.chance(30),
        min_values_strict=not dice.chance(50),
        well_known_labels=WELL_KNOWN,
    )
    snapshot = msgspec.structs.replace(problem.snapshot, namespaces=NAMESPACES)
    return msgspec.structs.replace(problem, snapshot=snapshot)


# --- what can be bought ---------------------------------------------------------------------------------


def _type(dice: Dice, number: int, scale: Scale) -> InstanceType:
    cores = dice.choice((4, 2, 8, 16))
    memory = cores * dice.choice((4, 2, 8))
    price = cores * dice.choice((40, 43, 50, 35))
    offerings = [
        an_offering(
            zone,
            capacity_type,
            round((price + i) * (0.4 if capacity_type == known.CAPACITY_SPOT else 1.0) / 1000, 6),
            available=not dice.chance(10),
        )
        for i, zone in enumerate(ZONES[: scale.zones])
        for capacity_type in _BOTH[: dice.integer(1, 2)]
    ]
    return an_instance_type(
        f"t{number}-{cores}x{memory}",
        cpu=str(cores),
        memory=f"{memory}Gi",
        pods=str(dice.choice((110, 110, 3))),
        offerings=offerings,
        arch=dice.choice(("amd64", "amd64", "amd64", "arm64")),
        labels={FAMILY: dice.choice(("m", "c"))},
        extra={GPU: "2"} if dice.chance(20) else None,
        overhead={"cpu": "100m", "memory": "200Mi"},
    )


def _pool(dice: Dice, number: int, scale: Scale) -> NodePool:
    requirements: list[RequirementSpec | Expression] = []
    if dice.chance(20):
        requirements.append((known.CAPACITY_TYPE, "In", [known.CAPACITY_ON_DEMAND]))
    if dice.chance(40):
        requirements.append((RACK, "In", ["r1", "r2"]))
    if scale.limited and dice.chance(25):
        values = dice.integer(1, 3)
        requirements.append(RequirementSpec(key=known.INSTANCE_TYPE, operator="Exists", min_values=values))
    limits: dict[str, str] = {}
    if scale.limited and dice.chance(60):
        limits = dice.choice(({"cpu": str(dice.integer(4, 40))}, {"nodes": str(dice.integer(1, 5))}))
    taints = [TAINT] if number and dice.chance(30) else []
    if scale.preferences and dice.chance(15):
        taints.append(SOFT)
    return a_nodepool(
        f"pool-{number}",
        requirements=requirements,
        labels={"team": "blue"} if dice.chance(30) else None,
        taints=taints,
        limits=limits,
        weight=dice.choice((None, None, 10, 50)),
    )


def _daemon(dice: Dice, number: int) -> Pod:
    selector = {known.ARCH: "amd64"} if dice.chance(30) else None
    ports = [8080] if dice.chance(20) else []
    return a_daemon(
        f"daemon-{number}", cpu=dice.choice(("100m", "500m")), node_selector=selector, host_ports=ports
    )


# --- what is there --------------------------------------------------------------------------------------


def _node(dice: Dice, number: int, scale: Scale) -> NodeView:
    name = f"node-{number}"
    labels = {known.ARCH: "amd64", known.CAPACITY_TYPE: dice.choice(_BOTH)}
    if not dice.chance(10):
        labels[known.ZONE] = dice.choice(ZONES[: scale.zones])
    if dice.chance(50):
        labels[RACK] = dice.choice(("r1", "r2"))
    running = [_running(dice, f"old-{number}-{k}", name, scale) for k in range(dice.integer(0, 3))]
    taints = [TAINT] if dice.chance(20) else []
    return a_view(name, labels=labels, taints=taints, pods=running, initialized=not dice.chance(20))


def _running(dice: Dice, name: str, node: str, scale: Scale) -> Pod:
    app = dice.choice(APPS)
    spec: Spec = {}
    if scale.company and dice.chance(20):
        term = a_company_term(dice.choice(APPS), dice.choice(KEYS))
        spec = {"affinity": Affinity(pod_anti_affinity=PodAffinity(required=[term]))}
    deleted = "2026-01-01T00:00:00Z" if dice.chance(10) else None
    ports = [8080] if dice.chance(10) else []
    size = dice.choice(("100m", "500m", "1"))
    return a_pod(
        name, cpu=size, labels={"app": app}, node_name=node, spec=spec, host_ports=ports, deleted=deleted
    )


# --- what is asked for ----------------------------------------------------------------------------------


def _workload(dice: Dice, number: int, scale: Scale) -> list[Pod]:
    app = dice.choice(APPS)
    pod_labels = {"app": app}
    if dice.chance(20):
        pod_labels["rev"] = dice.choice(("1", "2"))
    affinity, company = _node_affinity(dice, scale), _company(dice, app, scale)
    if "affinity" in company:
        both = company["affinity"]
        assert isinstance(both, Affinity)
        node_part = affinity.node_affinity if affinity else None
        company["affinity"] = msgspec.structs.replace(both, node_affinity=node_part)
        affinity = None
    return some_pods(
        dice.integer(1, scale.replicas),
        f"w{number}-{app}",
        namespace="shop" if dice.chance(10) else "default",
        cpu=dice.choice(("500m", "100m", "1", "1500m", "3")),
        memory=dice.choice(("128Mi", "1Gi", "6Gi")),
        requests={GPU: "1"} if dice.chance(8) else None,
        node_selector=_selector(dice, scale),
        affinity=affinity,
        tolerations=[TOLERATION] if dice.chance(60) else [],
        host_ports=[8080] if dice.chance(10) else [],
        labels=pod_labels,
        priority=dice.choice((None, None, None, 100)),
        spec=company,
    )


def _selector(dice: Dice, scale: Scale) -> dict[str, str]:
    selector = {}
    if dice.chance(12):
        selector[known.ZONE] = dice.choice(ZONES[: scale.zones])
    if dice.chance(3):
        selector["team"] = "blue"
    if dice.chance(4):
        selector[FAMILY] = "m"
    return selector


def _node_affinity(dice: Dice, scale: Scale) -> Affinity | None:
    """Return no affinity, alternatives of which one must hold, preferences, or both."""
    if not dice.chance(20):
        return None
    choices = [
        a_term((known.ZONE, "In", list(ZONES[:2]))),
        a_term((known.CAPACITY_TYPE, "In", [known.CAPACITY_ON_DEMAND])),
        a_term((known.ARCH, "NotIn", ["arm64"])),
        a_term((RACK, "In", ["r2"])),
        a_term((RACK, "DoesNotExist", []), (known.CAPACITY_TYPE, "Exists", [])),
    ]
    preferred = [(dice.integer(1, 100), term) for term in dice.some(choices, 0)] if scale.preferences else []
    required = dice.some(choices, 0)[: dice.choice((1, 1, 1, 2, 3))]
    return node_affinity(required=required, preferred=preferred[:2])


def _company(dice: Dice, app: str, scale: Scale) -> Spec:
    """Return what a workload has to say about who is beside it; half of them have nothing to say."""
    if not scale.company:
        return {}
    kinds: tuple[Callable[[Dice, str], Spec] | None, ...] = (None, None, None, _spread, _beside, _apart)
    first = dice.choice(kinds)
    spec = first(dice, app) if first else {}
    if first and dice.chance(25):
        second = dice.choice((_spread, _beside, _apart))(dice, app)
        spec = _both(second, spec)
    return spec


def _both(left: Spec, right: Spec) -> Spec:
    """Return both specs as one, their affinities put together."""
    merged = {**left, **right}
    one, other = left.get("affinity"), right.get("affinity")
    if isinstance(one, Affinity) and isinstance(other, Affinity):
        merged["affinity"] = Affinity(
            pod_affinity=one.pod_affinity or other.pod_affinity,
            pod_anti_affinity=one.pod_anti_affinity or other.pod_anti_affinity,
        )
    return merged


def _spread(dice: Dice, app: str) -> Spec:
    constraints = [
        a_spread(
            _about(dice, app, 15),
            key,
            dice.choice((1, 1, 2, 3)),
            min_domains=dice.choice((None, None, 2, 3)),
            node_affinity_policy=dice.choice((None, None, "Ignore", "Honor")),
            node_taints_policy=dice.choice((None, None, "Honor")),
            match_label_keys=["rev"] if dice.chance(10) else [],
        )
        for key in dice.some(KEYS)[: dice.choice((1, 1, 2))]
    ]
    return {"topology_spread_constraints": constraints}


def _beside(dice: Dice, app: str) -> Spec:
    return {"affinity": Affinity(pod_affinity=PodAffinity(required=_terms(dice, app, 50)))}


def _apart(dice: Dice, app: str) -> Spec:
    return {"affinity": Affinity(pod_anti_affinity=PodAffinity(required=_terms(dice, app, 40)))}


def _terms(dice: Dice, app: str, other_percent: int) -> list[PodAffinityTerm]:
    fields: dict[str, object] = {}
    if dice.chance(10):
        fields = dice.choice(
            (
                {"namespaces": ["shop"]},
                {"namespace_selector": LabelSelector()},
                {"namespace_selector": LabelSelector(match_labels={"tier": "front"})},
                {"match_label_keys": ["rev"]},
                {"mismatch_label_keys": ["rev"]},
            )
        )
    keys: Sequence[str] = dice.some(KEYS[:3])[:1] if dice.chance(90) else KEYS[-1:]
    return [a_company_term(_about(dice, app, other_percent), key, **fields) for key in keys]


def _about(dice: Dice, app: str, other_percent: int) -> str:
    return dice.choice(APPS) if dice.chance(other_percent) else app
