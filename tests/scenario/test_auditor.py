"""The auditor of disruptions is awake: where the operator is broken on purpose, it says so."""

from collections.abc import Callable

import pytest

from karpenter.apis.karpenter import NodeClaim
from karpenter.base.virtualtime import run_virtual
from karpenter.controllers.node import termination
from karpenter.controllers.node.drain import Drain
from karpenter.disruption import budgets, candidates, emptiness, validation
from karpenter.embedded import eviction
from karpenter.model import pods as podlib
from karpenter.model.pdbs import PdbLimits
from karpenter.state.cluster import Cluster
from karpenter.testing import rights
from karpenter.testing.auditor import Auditor
from karpenter.testing.manifests import Raw, deployment, disruption_budget, node_class, pool
from karpenter.testing.world import World, world

Patch = pytest.MonkeyPatch
APART = {
    "podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {"labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": "kubernetes.io/hostname"}
        ]
    }
}
ONE_AT_A_TIME = pool(budgets=[{"nodes": "1"}], consolidate_after="2m")


def _audited(w: World) -> Auditor:
    return Auditor(w.watchdog, w.clock.now, w.is_operators, slack=3.0)


async def _drifted(app: Raw, *more: Raw, least: int = 0) -> str:
    """Return what the auditor finds while three nodes, one pod of `app` on each, drift and are replaced.

    At least so many have to be, should it find nothing.
    """
    async with world() as w:
        auditor = _audited(w)
        await w.apply([node_class(), ONE_AT_A_TIME, app, *more])
        await w.wait(20)
        assert len(await w.claims()) == 3
        await w.apply(pool(budgets=[{"nodes": "1"}], consolidate_after="2m", labels={"revision": "2"}))
        await w.wait(80)
        found = "\n".join(w.watchdog.violations)
        w.watchdog.violations.clear()
        assert found or auditor.disruptions["Drifted"] >= least
        return found


def _web(**spec: object) -> Raw:
    return deployment("web", 3, affinity=APART, **spec)  # type: ignore[arg-type]


PROTECTED = _web(annotations={"karpenter.sh/do-not-disrupt": "true"})


def _any_budget(patch: Patch) -> None:
    patch.setattr(budgets, "allowed", lambda *_: 1000)


def _no_pod_budgets(patch: Patch) -> None:
    patch.setattr(PdbLimits, "blocking", lambda *_: None)


def _all_disruptable(patch: Patch) -> None:
    patch.setattr(podlib, "is_disruptable", lambda *_: True)


def _all_evictable(patch: Patch) -> None:
    _all_disruptable(patch)
    patch.setattr(podlib, "is_evictable", lambda *_: True)


def _evict_anything(patch: Patch) -> None:
    _no_pod_budgets(patch)
    patch.setattr(eviction, "_take_disruption", lambda *_: None)


def _no_drain(patch: Patch) -> None:
    patch.setattr(termination, "plan_drain", lambda *_: Drain(waiting=(), evict=()))


@pytest.mark.parametrize(
    ("broken", "app", "more", "complaint"),
    [
        (_any_budget, _web(), (), "budgets allow 1"),
        (_no_pod_budgets, _web(), (disruption_budget("web", maxUnavailable=0),), "as Drifted: budget web"),
        (_evict_anything, _web(), (disruption_budget("web", minAvailable=3),), "evicted, and budget web"),
        (_all_disruptable, PROTECTED, (), "is protected by do-not-disrupt"),
        (_all_evictable, PROTECTED, (), "evicted, and is protected"),
        (_no_drain, _web(), (), "its machine ends while pod"),
    ],
)  # fmt: skip
def test_a_broken_operator_is_found_out(
    broken: Callable[[Patch], None],
    app: Raw,
    more: tuple[Raw, ...],
    complaint: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whatever rule it breaks is named in a complaint."""
    broken(monkeypatch)
    assert complaint in run_virtual(_drifted(app, *more))


@pytest.mark.parametrize(
    ("app", "more", "least"),
    [(_web(), (), 2), (_web(), (disruption_budget("web", maxUnavailable=0),), 0), (PROTECTED, (), 0)],
)
def test_the_operator_as_it_is_gets_no_complaint(app: Raw, more: tuple[Raw, ...], least: int) -> None:
    """Where the same happens to it and nothing is broken."""
    assert not run_virtual(_drifted(app, *more, least=least))


def test_nodes_disrupted_too_early_are_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node that goes while consolidateAfter keeps it, or with pods on it though it should be empty."""

    async def scenario() -> str:
        async with world() as w:
            _audited(w)
            await w.apply([node_class(), ONE_AT_A_TIME, _web()])
            await w.wait(60)
            await w.scale("web", 2)
            await w.wait(100)
            found = "\n".join(w.watchdog.violations)
            w.watchdog.violations.clear()
            return found

    assert not run_virtual(scenario())
    for module in (emptiness, validation):
        monkeypatch.setattr(module, "why_kept", lambda *_: None)
    monkeypatch.setattr(candidates.Candidate, "empty", property(lambda _: True))
    found = run_virtual(scenario())
    assert "disrupted as Empty: pods came or went" in found
    assert "disrupted as Empty: pods would have to move" in found


def test_limits_that_do_not_hold_are_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pool that buys more than its limits allow."""

    async def scenario() -> str:
        async with world() as w:
            await w.apply([node_class(), pool(limits={"nodes": 2}), _web()])
            await w.wait(20)
            found = "\n".join(w.watchdog.violations)
            w.watchdog.violations.clear()
            return found

    assert not run_virtual(scenario())
    monkeypatch.setattr(Cluster, "pool_commitment", lambda *_: {"nodes": -5})
    assert "has 3 nodes, its limit is 2" in run_virtual(scenario())


def test_deletions_without_a_cause_are_found_out() -> None:
    """A NodeClaim or a pod that the operator deletes though nothing calls for it; a user may."""

    async def scenario() -> None:
        async with world() as w:
            _audited(w)
            w.may_delete_pods = True
            await w.apply([node_class(), pool(), _web()])
            await w.until_replicas("web", 3)
            (pod, *_), (first, second, _) = await w.pods(), await w.claims()
            await w.client.delete(NodeClaim, first.name)
            await w.wait(20)
            assert not w.watchdog.violations
            client = w.operator.client
            await client.delete(type(pod), pod.name, namespace=pod.namespace)
            await client.delete(NodeClaim, second.name)
            found = "\n".join(w.watchdog.violations)
            w.watchdog.violations.clear()
            assert "deleted around the Eviction API" in found
            assert "deleted without a cause" in found

    run_virtual(scenario())


@pytest.mark.parametrize(
    ("minute", "active"), [(0, True), (9, True), (10, False), (19, False), (20, True), (30, False)]
)
def test_the_auditor_reads_schedules_by_itself(minute: int, active: bool) -> None:
    """A budget counts from each minute of its schedule, for its duration."""
    budget = {"nodes": "0", "schedule": "*/20 * * * *", "duration": "10m"}
    assert rights.in_force(budget, 1_800_000_000.0 // 3600 * 3600 + 60 * minute + 1) is active
