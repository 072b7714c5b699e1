"""Filters, one plugin at a time: which nodes pass, and what is said about those that do not."""

from typing import Any

import msgspec
import pytest

from karpenter.apis.core import PodSpec
from karpenter.embedded.scheduler.podclass import HOSTNAME, ZONE
from karpenter.embedded.scheduler.predicates import pod_requests
from karpenter.embedded.scheduler.volumes import VolumePlan

IN_A = {"key": "disk", "operator": "In", "values": ["ssd"]}


def required(*expressions: dict[str, Any], field: str = "matchExpressions") -> dict[str, Any]:
    """Return a pod affinity block with one required node selector term."""
    terms = {"nodeSelectorTerms": [{field: list(expressions)}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}


def around(kind: str, key: str, labels: dict[str, str], **more: Any) -> dict[str, Any]:
    """Return a required pod (anti-)affinity to pods with `labels`."""
    term = {"topologyKey": key, "labelSelector": {"matchLabels": labels}, **more}
    return {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"containers": [{"resources": {"requests": {"cpu": "1"}}}] * 2}, {"cpu": 2000}),
        ({"containers": [{"resources": {"limits": {"cpu": "1"}}}]}, {"cpu": 1000}),
        (
            {
                "containers": [{"resources": {"requests": {"cpu": "1"}}}],
                "initContainers": [{"resources": {"requests": {"cpu": "3"}}}],
            },
            {"cpu": 3000},
        ),
        (
            {
                "containers": [{"resources": {"requests": {"cpu": "1"}}}],
                "initContainers": [
                    {"restartPolicy": "Always", "resources": {"requests": {"cpu": "500m"}}},
                    {"resources": {"requests": {"cpu": "2"}}},
                ],
            },
            {"cpu": 2500},
        ),
        (
            {
                "containers": [{"resources": {"requests": {"cpu": "1", "memory": "1Ki"}}}],
                "overhead": {"cpu": "100m"},
                "resources": {"requests": {"cpu": "4"}},
            },
            {"cpu": 4100, "memory": 1024},
        ),
    ],
)
def test_requests_are_summed_as_kubernetes_does(spec: dict[str, Any], expected: dict[str, int]) -> None:
    """Init containers, sidecars, pod-level requests and overhead count as the scheduler counts them."""
    assert pod_requests(msgspec.convert(spec, PodSpec)) == expected


@pytest.mark.parametrize(
    ("spec", "passes"),
    [
        ({}, ["plain", "ssd"]),
        ({"nodeSelector": {"disk": "ssd"}}, ["ssd"]),
        ({"affinity": required(IN_A)}, ["ssd"]),
        ({"affinity": required({**IN_A, "operator": "NotIn"})}, ["plain"]),
        ({"affinity": required({"key": "disk", "operator": "Exists"})}, ["ssd"]),
        ({"affinity": required({"key": "disk", "operator": "DoesNotExist"})}, ["plain"]),
        ({"affinity": required({"key": "size", "operator": "Gt", "values": ["4"]})}, ["ssd"]),
        ({"affinity": required({"key": "size", "operator": "Lt", "values": ["5"]})}, []),
        (
            {
                "affinity": required(
                    {"key": "metadata.name", "operator": "In", "values": ["plain"]}, field="matchFields"
                )
            },
            ["plain"],
        ),
        (
            {
                "affinity": {
                    "nodeAffinity": {
                        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{}]}
                    }
                }
            },
            [],
        ),
    ],
)
def test_node_affinity(bench: Any, spec: dict[str, Any], passes: list[str]) -> None:
    """nodeSelector, label expressions and field expressions pick nodes."""
    bench.node("plain")
    bench.node("ssd", {"disk": "ssd", "size": "5"})
    assert bench.feasible(bench.pod_class(**spec)) == passes


@pytest.mark.parametrize(
    ("toleration", "passes"),
    [
        (None, ["free", "soft"]),
        ({"key": "k", "value": "v"}, ["free", "hard", "soft"]),
        ({"key": "k", "value": "other"}, ["free", "soft"]),
        ({"key": "k", "operator": "Exists", "effect": "NoSchedule"}, ["free", "hard", "soft"]),
        ({"key": "k", "operator": "Exists", "effect": "NoExecute"}, ["free", "soft"]),
        ({"operator": "Exists"}, ["cordoned", "free", "hard", "soft"]),
    ],
)
def test_taints_and_cordons(bench: Any, toleration: dict[str, str] | None, passes: list[str]) -> None:
    """Hard taints need a toleration, soft ones do not, and tolerating everything includes the cordon."""
    bench.node("free")
    bench.node("hard", taints=[{"key": "k", "value": "v", "effect": "NoSchedule"}])
    bench.node("soft", taints=[{"key": "k", "value": "v", "effect": "PreferNoSchedule"}])
    bench.node("cordoned", unschedulable=True)
    pod = bench.pod_class(tolerations=[toleration] if toleration else [])
    assert bench.feasible(pod) == passes


def test_resources_and_pod_slots(bench: Any) -> None:
    """A pod needs room for every resource and a slot, and what lacks is named."""
    bench.node("n", cpu="2", pods="2", **{"example.com/gpu": "1"})
    small, gpu = bench.pod_class(requests={"cpu": "1"}), bench.pod_class(requests={"example.com/gpu": "2"})
    assert bench.feasible(small) == ["n"]
    assert bench.why(gpu) == {"Insufficient example.com/gpu": 1}
    bench.place("n", small)
    key = bench.place("n", small)
    assert bench.why(small) == {"Insufficient cpu": 1, "Too many pods": 1}
    bench.model.remove(key)
    assert bench.feasible(small) == ["n"]


def test_host_ports(bench: Any) -> None:
    """Two pods cannot have one host port unless their addresses differ."""

    def with_port(ip: str = "", protocol: str = "TCP") -> Any:
        port = {"hostPort": 80, "containerPort": 80, "hostIP": ip, "protocol": protocol}
        return bench.pod_class(containers=[{"name": "c", "ports": [port]}])

    bench.node("n")
    bench.place("n", with_port("10.0.0.1"))
    assert bench.feasible(with_port()) == []
    assert bench.feasible(with_port("10.0.0.1")) == []
    assert bench.feasible(with_port("10.0.0.2")) == ["n"]
    assert bench.feasible(with_port("10.0.0.1", "UDP")) == ["n"]


def test_a_promise_holds_room_against_equals_only(bench: Any) -> None:
    """Nominated pods count on their node for others of at most their priority, not for themselves."""
    bench.node("n", cpu="2")
    pod, important = (
        bench.pod_class(requests={"cpu": "2"}),
        bench.pod_class(requests={"cpu": "2"}, priority=9),
    )
    bench.model.nominate("default/x", "n", pod)
    assert bench.feasible(pod) == []
    assert bench.feasible(important) == ["n"]
    bench.model.nominate("default/x", "", None)
    assert bench.feasible(pod) == ["n"]


# --- spreading -------------------------------------------------------------------------------------------


def zoned(bench: Any, **counts: int) -> Any:
    """Add one node per zone with that many pods labelled app=web, and return the web class's spread maker."""
    web = bench.pod_class(labels={"app": "web"})
    for zone, count in counts.items():
        bench.node(f"n-{zone}", {ZONE: zone})
        for _ in range(count):
            bench.place(f"n-{zone}", web)

    def spread(**more: Any) -> Any:
        constraint = {
            "maxSkew": 1,
            "topologyKey": ZONE,
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"app": "web"}},
            **{k: v for k, v in more.items() if k not in ("labels", "nodeSelector")},
        }
        rest = {"nodeSelector": more["nodeSelector"]} if "nodeSelector" in more else {}
        return bench.pod_class(
            labels=more.get("labels", {"app": "web"}), topologySpreadConstraints=[constraint], **rest
        )

    return spread


@pytest.mark.parametrize(
    ("counts", "more", "passes"),
    [
        ({"a": 1, "b": 1, "c": 0}, {}, ["n-c"]),
        ({"a": 1, "b": 0, "c": 0}, {"maxSkew": 2}, ["n-a", "n-b", "n-c"]),
        ({"a": 1, "b": 1}, {"minDomains": 3}, []),
        ({"a": 0, "b": 0}, {"minDomains": 3}, ["n-a", "n-b"]),
        ({"a": 2, "b": 1}, {"labels": {"app": "other"}}, ["n-a", "n-b"]),
        ({"a": 2, "b": 0}, {"nodeSelector": {ZONE: "a"}}, ["n-a"]),
        ({"a": 2, "b": 0}, {"nodeSelector": {ZONE: "a"}, "nodeAffinityPolicy": "Ignore"}, []),
        ({"a": 5, "b": 0}, {"matchLabelKeys": ["rev"], "labels": {"app": "web", "rev": "2"}}, ["n-a", "n-b"]),
    ],
)
def test_topology_spread(bench: Any, counts: dict[str, int], more: dict[str, Any], passes: list[str]) -> None:
    """Skew is counted over eligible domains, with minDomains, policies and matchLabelKeys."""
    assert bench.feasible(zoned(bench, **counts)(**more)) == passes


def test_spread_ignores_terminating_pods_and_needs_the_label(bench: Any) -> None:
    """Pods on their way out do not count; nodes without the topology key are out."""
    spread = zoned(bench, a=0, b=0)
    web = bench.pod_class(labels={"app": "web"})
    bench.place("n-a", web, terminating=True)
    bench.node("bare")
    pod = spread()
    assert bench.feasible(pod) == ["n-a", "n-b"]
    assert bench.why(pod) == {
        "node(s) didn't match pod topology spread constraints (missing required label)": 1
    }


# --- other pods ------------------------------------------------------------------------------------------


def test_anti_affinity_is_symmetric(bench: Any) -> None:
    """A pod avoids what it shuns, and what shuns it."""
    bench.node("n1")
    bench.node("n2")
    shy = bench.pod_class(
        labels={"app": "shy"}, affinity=around("podAntiAffinity", HOSTNAME, {"app": "loud"})
    )
    loud = bench.pod_class(labels={"app": "loud"})
    key = bench.place("n1", loud)
    assert bench.feasible(shy) == ["n2"]
    bench.model.remove(key)
    bench.place("n2", shy)
    assert bench.feasible(loud) == ["n1"]
    assert bench.why(loud) == {"node(s) didn't satisfy existing pods anti-affinity rules": 1}


def test_affinity_follows_and_the_first_of_a_group_is_free(bench: Any) -> None:
    """Required affinity wants a match in the domain; a pod that matches itself may be the first."""
    for name, zone in (("n1", "a"), ("n2", "a"), ("n3", "b")):
        bench.node(name, {ZONE: zone})
    together = bench.pod_class(labels={"app": "x"}, affinity=around("podAffinity", ZONE, {"app": "x"}))
    follower = bench.pod_class(affinity=around("podAffinity", ZONE, {"app": "x"}))
    assert bench.feasible(follower) == []
    assert bench.feasible(together) == ["n1", "n2", "n3"]
    bench.place("n3", together)
    assert bench.feasible(together) == ["n3"]
    assert bench.feasible(follower) == ["n3"]


def test_affinity_terms_reach_other_namespaces_by_name_or_label(bench: Any) -> None:
    """Without namespaces only the pod's own counts; names and selectors widen that."""
    bench.model.set_namespace("other", {"team": "t"})
    bench.node("n1")
    bench.node("n2")
    bench.place("n1", bench.pod_class(labels={"app": "x"}, namespace="other"))
    anti = "podAntiAffinity"
    assert bench.feasible(bench.pod_class(affinity=around(anti, HOSTNAME, {"app": "x"}))) == ["n1", "n2"]
    by_name = bench.pod_class(affinity=around(anti, HOSTNAME, {"app": "x"}, namespaces=["other"]))
    by_label = bench.pod_class(
        affinity=around(anti, HOSTNAME, {"app": "x"}, namespaceSelector={"matchLabels": {"team": "t"}})
    )
    assert bench.feasible(by_name) == bench.feasible(by_label) == ["n2"]
    bench.model.set_namespace("other", {})
    assert bench.feasible(by_name) == ["n2"]


def test_attach_limits_count_distinct_volumes(bench: Any) -> None:
    """A node takes as many volumes of a driver as its CSINode says; sharing one is free."""
    bench.node("n")
    bench.model.nodes["n"].volume_limits = {"csi": 1}
    key = bench.place("n", bench.pod_class())
    bench.model.pods[key].volumes = (("csi", "v1"),)
    pod = bench.pod_class()
    assert bench.feasible(pod, VolumePlan(attachments=(("csi", "v1"),))) == ["n"]
    assert bench.feasible(pod, VolumePlan(attachments=(("csi", "v2"),))) == []


def test_nodes_that_never_reported_take_nothing(bench: Any) -> None:
    """A node without a Ready condition counts as tainted not-ready."""
    from karpenter.apis.core import Node
    from karpenter.apis.meta import ObjectMeta

    bench.model.set_node(Node(metadata=ObjectMeta(name="new")))
    assert bench.why(bench.pod_class()) == {
        "node(s) had untolerated taint {node.kubernetes.io/not-ready: }": 1
    }


def test_a_node_that_returns_has_its_pods_again(bench: Any) -> None:
    """Pods seen before their node, or after it went, count when it is there."""
    pod = bench.pod_class(requests={"cpu": "3"})
    bench.place("n", pod)
    bench.node("n")
    assert bench.feasible(pod) == []
    bench.model.remove_node("n")
    bench.node("n")
    assert bench.feasible(pod) == []
