"""Preemption: whom it chooses, whom it spares, and that asking changes nothing."""

from typing import Any

import msgspec
import numpy as np

from karpenter.apis.workloads import PodDisruptionBudget
from karpenter.embedded.scheduler.filters import evaluate
from karpenter.embedded.scheduler.preemption import find_eviction


def evict(
    bench: Any, pod: Any, budgets: tuple[PodDisruptionBudget, ...] = ()
) -> tuple[str, list[str]] | None:
    """Return the node and the victims, after checking that the model is as before."""
    before = bench.model.used.copy(), dict(bench.model.pods)
    found = find_eviction(bench.model, pod, evaluate(bench.model, pod), budgets)
    assert np.array_equal(before[0], bench.model.used)
    assert before[1] == dict(bench.model.pods)
    return (found.node, sorted(v.key for v in found.victims)) if found else None


def test_the_least_important_victims_go(bench: Any) -> None:
    """Of two nodes the one whose worst victim matters less is cleared, and only as far as needed."""
    for name in ("n1", "n2"):
        bench.node(name, cpu="2")
    one, five = (bench.pod_class(requests={"cpu": "1"}, priority=p) for p in (1, 5))
    bench.place("n1", five)
    bench.place("n1", five)
    victim = bench.place("n2", one)
    bench.place("n2", five)
    assert evict(bench, bench.pod_class(requests={"cpu": "1"}, priority=9)) == ("n2", [victim])


def test_equals_and_never_preempting_pods_wait(bench: Any) -> None:
    """Nobody is evicted for an equal, nor for a pod whose policy is Never."""
    bench.node("n", cpu="1")
    bench.place("n", bench.pod_class(requests={"cpu": "1"}, priority=5))
    assert evict(bench, bench.pod_class(requests={"cpu": "1"}, priority=5)) is None
    never = bench.pod_class(requests={"cpu": "1"}, priority=9, preemptionPolicy="Never")
    assert evict(bench, never) is None


def test_evictions_do_not_help_against_taints(bench: Any) -> None:
    """A node the pod could never use is not cleared for it."""
    bench.node("n", cpu="1", taints=[{"key": "k", "effect": "NoSchedule"}])
    bench.place("n", bench.pod_class(requests={"cpu": "1"}))
    assert evict(bench, bench.pod_class(requests={"cpu": "1"}, priority=9)) is None


def test_budgets_are_respected_when_there_is_a_choice(bench: Any) -> None:
    """Pods without a budget go before protected ones, which go only if nothing else helps."""
    for name in ("n1", "n2"):
        bench.node(name, cpu="1")
    guarded = bench.pod_class(requests={"cpu": "1"}, labels={"app": "g"})
    free = bench.pod_class(requests={"cpu": "1"}, labels={"app": "f"})
    bench.place("n1", guarded)
    victim = bench.place("n2", free)
    body = {
        "metadata": {"name": "b", "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": "g"}}},
        "status": {"disruptionsAllowed": 0},
    }
    budget = msgspec.convert(body, PodDisruptionBudget)
    important = bench.pod_class(requests={"cpu": "1"}, priority=9)
    assert evict(bench, important, (budget,)) == ("n2", [victim])
    bench.model.remove(victim)
    bench.place("n2", important)
    assert (evict(bench, important, (budget,)) or ("", []))[0] == "n1"


def test_the_youngest_go_first(bench: Any) -> None:
    """Among equals the pod that started last is the victim."""
    bench.node("n", cpu="2")
    low = bench.pod_class(requests={"cpu": "1"})
    bench.place("n", low, start_time="2026-01-01T00:00:00Z")
    young = bench.place("n", low, start_time="2026-01-02T00:00:00Z")
    assert evict(bench, bench.pod_class(requests={"cpu": "1"}, priority=9)) == ("n", [young])
