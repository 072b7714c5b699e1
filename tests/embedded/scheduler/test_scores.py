"""Scores: hand-computed points of each plugin, as kube-scheduler's formulas give them."""

from typing import Any

from karpenter.apis.meta import LabelSelector
from karpenter.embedded.scheduler import scores
from karpenter.embedded.scheduler.podclass import HOSTNAME, ZONE


def test_least_allocated_prefers_empty_nodes(bench: Any) -> None:
    """Free share of cpu and memory, averaged, in percent; requests are assumed where there are none."""
    bench.node("empty", cpu="10", memory="1000Mi")
    bench.node("used", cpu="10", memory="1000Mi")
    bench.place("used", bench.pod_class(requests={"cpu": "5", "memory": "200Mi"}))
    pod = bench.pod_class(requests={"cpu": "1", "memory": "100Mi"})
    assert bench.scores(scores.least_allocated, pod) == {"empty": 90, "used": (40 + 70) // 2}
    assert bench.scores(scores.least_allocated, bench.pod_class())["empty"] == (99 + 80) // 2


def test_balanced_allocation_prefers_even_use(bench: Any) -> None:
    """A hundred less half the gap between the used shares; nothing for pods that request nothing."""
    bench.node("n", cpu="10", memory="1000Mi")
    pod = bench.pod_class(requests={"cpu": "5", "memory": "100Mi"})
    assert bench.scores(scores.balanced_allocation, pod) == {"n": 80}
    assert bench.scores(scores.balanced_allocation, bench.pod_class()) == {"n": 0}


def test_soft_taints_cost(bench: Any) -> None:
    """Fewest intolerable PreferNoSchedule taints scores a hundred."""
    bench.node("clean")
    bench.node("tainted", taints=[{"key": "k", "effect": "PreferNoSchedule"}])
    assert bench.scores(scores.intolerable_taints, bench.pod_class()) == {"clean": 100, "tainted": 0}


def test_preferred_node_affinity(bench: Any) -> None:
    """Weights of the terms that hold, scaled to a hundred."""
    bench.node("plain")
    bench.node("good", {"disk": "ssd"})
    preference = {"matchExpressions": [{"key": "disk", "operator": "Exists"}]}
    preferred = [{"weight": 7, "preference": preference}]
    affinity = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}
    pod = bench.pod_class(affinity=affinity)
    assert bench.scores(scores.preferred_node_affinity, pod) == {"good": 100, "plain": 0}


def test_owned_pods_spread_by_default(bench: Any) -> None:
    """Pods of a controller prefer hosts and zones with fewer of their siblings."""
    owner = LabelSelector(match_labels={"app": "web"})
    web = bench.pod_class(labels={"app": "web"}, owner=owner)
    for name, zone in (("n1", "a"), ("n2", "a"), ("n3", "b")):
        bench.node(name, {ZONE: zone, HOSTNAME: name})
    bench.place("n1", web)
    points = bench.scores(scores.topology_spread, web)
    assert points["n3"] == 100
    assert points["n1"] < points["n2"] < points["n3"]


def test_soft_spread_ignores_nodes_without_the_key(bench: Any) -> None:
    """A node that lacks the topology key of a pod's own constraint scores nothing."""
    bench.node("in", {ZONE: "a"})
    bench.node("out")
    constraint = {
        "maxSkew": 1,
        "topologyKey": ZONE,
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": {"a": "b"}},
    }
    pod = bench.pod_class(labels={"a": "b"}, topologySpreadConstraints=[constraint])
    assert bench.scores(scores.topology_spread, pod) == {"in": 100, "out": 0}


def test_preferences_for_pods_count_both_ways(bench: Any) -> None:
    """A pod is drawn to what it prefers and to where it is preferred, and away from what it shuns."""
    for name in ("friend", "neutral", "foe"):
        bench.node(name)

    def prefers(kind: str, app: str) -> dict[str, Any]:
        term = {"topologyKey": HOSTNAME, "labelSelector": {"matchLabels": {"app": app}}}
        weighted = [{"weight": 10, "podAffinityTerm": term}]
        return {kind: {"preferredDuringSchedulingIgnoredDuringExecution": weighted}}

    bench.place("friend", bench.pod_class(labels={"app": "friend"}))
    bench.place("foe", bench.pod_class(labels={"app": "foe"}))
    both = {**prefers("podAffinity", "friend"), **prefers("podAntiAffinity", "foe")}
    pod = bench.pod_class(affinity=both)
    assert bench.scores(scores.inter_pod_affinity, pod) == {"friend": 100, "neutral": 50, "foe": 0}
    admirer = bench.pod_class(labels={"app": "admirer"}, affinity=prefers("podAffinity", "star"))
    bench.place("neutral", admirer)
    star = bench.pod_class(labels={"app": "star"})
    assert bench.scores(scores.inter_pod_affinity, star) == {"friend": 0, "neutral": 100, "foe": 0}
