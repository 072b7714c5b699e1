"""What must hold whatever comes: no overcommitment, no broken constraint, no drift in the counts."""

from collections import Counter
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.embedded.scheduler.conftest import Bench

from karpenter.embedded.scheduler.filters import evaluate
from karpenter.embedded.scheduler.podclass import HOSTNAME, ZONE
from karpenter.embedded.scheduler.scores import total_scores

APPS = ("red", "blue")


def selector(app: str) -> dict[str, Any]:
    """Return a label selector for one app."""
    return {"matchLabels": {"app": app}}


@st.composite
def pod_fields(draw: st.DrawFn) -> dict[str, Any]:
    """Draw a pod that may ask for anything the filters know."""
    fields: dict[str, Any] = {
        "labels": {"app": draw(st.sampled_from(APPS))},
        "requests": {"cpu": f"{draw(st.integers(0, 3)) * 500}m"},
    }
    if draw(st.booleans()):
        fields["nodeSelector"] = {ZONE: draw(st.sampled_from("ab"))}
    kind = draw(st.sampled_from(("", "anti", "spread")))
    key = draw(st.sampled_from((HOSTNAME, ZONE)))
    app = draw(st.sampled_from(APPS))
    if kind == "anti":
        term = {"topologyKey": key, "labelSelector": selector(app)}
        fields["affinity"] = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    elif kind == "spread":
        constraint = {
            "maxSkew": 1,
            "topologyKey": key,
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": selector(fields["labels"]["app"]),
        }
        fields["topologySpreadConstraints"] = [constraint]
    return fields


def schedule(bench: Bench, fields: dict[str, Any]) -> str | None:
    """Place one pod where it scores best; return its key."""
    pod_class = bench.pod_class(**fields)
    rows = np.flatnonzero(evaluate(bench.model, pod_class).feasible)
    if not len(rows):
        return None
    best = rows[int(np.argmax(total_scores(bench.model, pod_class, rows)))]
    node = bench.model.rows[best]
    assert node is not None
    return bench.place(node.name, pod_class)


@settings(max_examples=60, deadline=None)
@given(st.lists(pod_fields(), max_size=25), st.lists(st.integers(0, 24), max_size=6))
def test_nothing_is_overcommitted_and_no_rule_is_broken(pods: list[dict[str, Any]], gone: list[int]) -> None:
    """Re-derived from the pods themselves: capacity, selectors and anti-affinity (both ways) hold."""
    bench = Bench()
    for name, zone in (("n1", "a"), ("n2", "a"), ("n3", "b")):
        bench.node(name, {ZONE: zone}, cpu="4", pods="6")
    keys: list[str] = []
    for number, fields in enumerate(pods):
        key = schedule(bench, fields)
        if key is not None:
            keys.append(key)
        if number in gone and keys:
            bench.model.remove(keys.pop(0))
    everyone = [(node, placed) for node in bench.model.nodes.values() for placed in node.pods.values()]
    for node in bench.model.nodes.values():
        assert sum(p.pod_class.requests.get("cpu", 0) for p in node.pods.values()) <= 4000
        assert len(node.pods) <= 6
    for node, placed in everyone:
        wanted = placed.pod_class.spec.node_selector.get(ZONE)
        assert wanted in (None, node.labels[ZONE])
        for term in placed.pod_class.anti_affinity:
            app = dict(term.matcher.selector.match_labels)["app"]  # type: ignore[union-attr]
            for other, neighbour in everyone:
                same = (
                    other is node
                    if term.topology_key == HOSTNAME
                    else other.labels[ZONE] == node.labels[ZONE]
                )
                assert not (same and neighbour is not placed and neighbour.pod_class.labels["app"] == app)


@settings(max_examples=40, deadline=None)
@given(st.lists(pod_fields(), max_size=20))
def test_an_even_spread_never_exceeds_its_skew(pods: list[dict[str, Any]]) -> None:
    """Pods that all spread over hosts end up within one of each other."""
    bench = Bench()
    for name in ("n1", "n2", "n3"):
        bench.node(name, {ZONE: "a", HOSTNAME: name}, cpu="100", pods="100")
    constraint = {
        "maxSkew": 1,
        "topologyKey": HOSTNAME,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": selector("red"),
    }
    for fields in pods:
        schedule(
            bench,
            {
                "labels": {"app": "red"},
                "requests": fields["requests"],
                "topologySpreadConstraints": [constraint],
            },
        )
    counts = Counter(placed.node for placed in bench.model.pods.values())
    sizes = [counts[name] for name in ("n1", "n2", "n3")]
    assert max(sizes) - min(sizes) <= 1
    assert sum(sizes) == len(pods)


@settings(max_examples=40, deadline=None)
@given(st.lists(pod_fields(), max_size=15), st.randoms(use_true_random=False))
def test_removing_is_the_inverse_of_placing(pods: list[dict[str, Any]], order: Any) -> None:
    """After all pods are gone, in any order, every amount and count is zero again."""
    bench = Bench()
    for name, zone in (("n1", "a"), ("n2", "b")):
        bench.node(name, {ZONE: zone})
    keys = [key for fields in pods if (key := schedule(bench, fields)) is not None]
    order.shuffle(keys)
    for key in keys:
        bench.model.remove(key)
    assert not bench.model.used.any()
    assert not bench.model.nonzero.any()
    assert all(not counter.counts.any() for counter in bench.model.counting.counters.values())
