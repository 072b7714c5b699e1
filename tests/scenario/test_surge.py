"""Replacing without downtime: pods that opted in have their stand-in Ready before a drain takes them."""

from typing import Any

import pytest

from karpenter.apis import conditions, labels
from karpenter.apis.core import Node, Pod
from karpenter.apis.karpenter import NodeClaim
from karpenter.apis.workloads import Deployment, ReplicaSet
from karpenter.base.virtualtime import run_virtual
from karpenter.embedded.store import Journal
from karpenter.kube.errors import Forbidden
from karpenter.kube.patch import merge
from karpenter.testing.manifests import deployment, disruption_budget, node_class, pool
from karpenter.testing.serving import ServingWatch
from karpenter.testing.world import World, world

SURGE = {labels.SURGE: "true"}
_SELECTOR = {"labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": "kubernetes.io/hostname"}
APART = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [_SELECTOR]}}
NEVER_LESS = {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}


def slow(name: str = "web", replicas: int = 1, **fields: Any) -> dict[str, Any]:
    """Return a Deployment whose pods take five seconds to be Ready and have opted in."""
    ready = {"pod-ready.stage.kwok.x-k8s.io/delay": "5s"}
    return deployment(name, replicas, annotations={**SURGE, **ready}, **fields)


def with_strategy(made: dict[str, Any], strategy: dict[str, Any]) -> dict[str, Any]:
    made["spec"]["strategy"] = strategy
    return made


async def _replica_sets(w: World, app: str) -> int:
    return sum(1 for rs in await w.client.list(ReplicaSet, "default") if rs.name.startswith(f"{app}-"))


async def _until_gone(w: World, claim: str, *, within: float = 200.0) -> None:
    async def gone() -> bool:
        return claim not in {c.name for c in await w.claims()}

    await w.until(f"{claim} is gone", gone, within=within)


async def _start(w: World, *manifests: dict[str, Any]) -> ServingWatch:
    watcher = ServingWatch(w.watchdog)
    await w.apply([node_class(), pool(consolidate_after="Never"), *manifests])
    await w.wait(1)
    await w.until_settled()
    await w.wait(15)
    watcher.begin()
    return watcher


@pytest.mark.parametrize(
    "budget", [{"minAvailable": 1}, {"maxUnavailable": 0}, {"minAvailable": "100%"}, None]
)
def test_a_single_replica_is_never_missed(budget: dict[str, Any] | None) -> None:
    """Whatever its budget forbids: its node goes, and at every write one pod of it was Ready and staying."""

    async def scenario() -> None:
        async with world() as w:
            budgets = [disruption_budget("web", **budget)] if budget else []
            watcher = await _start(w, slow(), *budgets)
            (old,) = await w.claims()
            await w.client.delete(NodeClaim, old.name)
            await _until_gone(w, old.name)
            await w.until_replicas("web", 1)
            assert watcher.least["web"] == 1
            assert await _replica_sets(w, "web") == 2
            assert len(await w.claims()) == 1, "a node too many was bought"
            (event,) = await w.events("SurgeBeforeEviction")
            assert event.involved_object.name == "web"

    run_virtual(scenario())


def test_without_the_annotation_the_budget_holds() -> None:
    """Nobody's Deployment is touched that did not ask for it."""

    async def scenario() -> None:
        async with world() as w:
            await _start(w, deployment("web", 1), disruption_budget("web", minAvailable=1))
            (old,) = await w.claims()
            await w.client.delete(NodeClaim, old.name)
            await w.wait(300)
            assert await _replica_sets(w, "web") == 1
            assert old.name in {c.name for c in await w.claims()}

    run_virtual(scenario())


def test_two_drains_start_one_rollout() -> None:
    """Both nodes of a Deployment go at once: its pods are replaced once, none is missed meanwhile."""

    async def scenario() -> None:
        async with world() as w:
            made = with_strategy(slow(replicas=2, affinity=APART), NEVER_LESS)
            watcher = await _start(w, made, disruption_budget("web", maxUnavailable=0))
            olds = await w.claims()
            assert len(olds) == 2
            for old in olds:
                await w.client.delete(NodeClaim, old.name)
            for old in olds:
                await _until_gone(w, old.name)
            await w.until_replicas("web", 2)
            assert watcher.least["web"] == 2
            assert await _replica_sets(w, "web") == 2

    run_virtual(scenario())


@pytest.mark.parametrize("writes", [1, 2, 3, 4, 6, 8, 11, 15])
def test_a_killed_operator_neither_forgets_nor_repeats_a_rollout(writes: int) -> None:
    """Killed after any write of the drain, the next one waits for the same rollout; no pod is missed."""

    async def scenario() -> None:
        async with world() as w:
            watcher = await _start(w, slow(), disruption_budget("web", minAvailable=1))
            (old,) = await w.claims()
            await w.client.delete(NodeClaim, old.name)
            count = {"left": writes}
            look = watcher.look

            def then(entry: Journal) -> None:
                look(entry)
                count["left"] -= 1
                if count["left"] == 0:
                    w.transport.cut()

            w.watchdog.then = then
            await w.wait(4)
            await w.restart_operator()
            await _until_gone(w, old.name)
            await w.until_replicas("web", 1)
            assert watcher.least["web"] == 1
            assert await _replica_sets(w, "web") == 2

    run_virtual(scenario())


def test_a_rollout_that_begins_at_the_same_moment_is_enough() -> None:
    """The user's change arrives between our look and our own: ours is dropped, theirs brings the stand-in."""

    async def scenario() -> None:
        async with world() as w:
            watcher = await _start(w, slow(), disruption_budget("web", minAvailable=1))
            (old,) = await w.claims()
            request = w.operator.client.transport.request
            raced: list[str] = []

            async def racing(method: str, path: str, **rest: Any) -> Any:
                if method == "PATCH" and path.endswith("/deployments/web") and not raced:
                    raced.append(path)
                    change = {"spec": {"template": {"metadata": {"annotations": {"version": "2"}}}}}
                    await w.client.patch(Deployment, "web", merge(change), namespace="default")
                    await w.wait(0.5)
                return await request(method, path, **rest)

            w.operator.client.transport.request = racing  # type: ignore[method-assign]
            await w.client.delete(NodeClaim, old.name)
            await _until_gone(w, old.name)
            await w.until_replicas("web", 1)
            assert raced
            assert await _replica_sets(w, "web") == 2
            assert watcher.least["web"] == 1

    run_virtual(scenario())


def test_a_sibling_on_a_node_that_is_about_to_go_does_not_count() -> None:
    """Of two pods the second may not leave because of the first, which will have to leave, too."""

    async def scenario() -> None:
        async with world() as w:
            watcher = await _start(w, slow(replicas=2, affinity=APART))
            first, second = await w.nodes()
            taint = {"key": labels.DISRUPTED_TAINT, "effect": "NoSchedule"}
            await w.client.patch(Node, first.name, merge({"spec": {"taints": [taint]}}))
            await w.client.delete(Node, second.name)
            await w.wait(3)
            assert await _replica_sets(w, "web") == 2
            await _until_gone(w, second.name)
            assert watcher.least["web"] == 2

    run_virtual(scenario())


def test_pods_that_must_not_be_disrupted_are_not_rolled_out() -> None:
    """A rollout replaces all pods: while one is protected it does not begin, and that is said."""

    async def scenario() -> None:
        async with world() as w:
            made = with_strategy(slow(replicas=2, affinity=APART), NEVER_LESS)
            watcher = await _start(w, made, disruption_budget("web", maxUnavailable=0))
            held, going = await w.pods("web")
            protected = merge({"metadata": {"annotations": {labels.DO_NOT_DISRUPT: "true"}}})
            await w.client.patch(Pod, held.name, protected, namespace="default")
            (old,) = [c for c in await w.claims() if c.status.node_name == going.spec.node_name]
            await w.client.delete(NodeClaim, old.name)
            await w.wait(100)
            assert await _replica_sets(w, "web") == 1
            (claim,) = [c for c in await w.claims() if c.name == old.name]
            drained = conditions.get(claim.status.conditions, "Drained")
            assert drained is not None
            assert f"a rollout would take pod {held.key}" in drained.message
            free = merge({"metadata": {"annotations": {labels.DO_NOT_DISRUPT: None}}})
            await w.client.patch(Pod, held.name, free, namespace="default")
            await _until_gone(w, old.name)
            assert watcher.least["web"] == 2

    run_virtual(scenario())


def test_pods_whose_others_serve_are_simply_evicted() -> None:
    """No rollout for one pod of three on different nodes when its budget lets it go."""

    async def scenario() -> None:
        async with world() as w:
            watcher = await _start(
                w, slow(replicas=3, affinity=APART), disruption_budget("web", maxUnavailable=1)
            )
            old = (await w.claims())[0]
            await w.client.delete(NodeClaim, old.name)
            await _until_gone(w, old.name)
            await w.until_replicas("web", 3)
            assert await _replica_sets(w, "web") == 1
            assert watcher.least["web"] == 2

    run_virtual(scenario())


@pytest.mark.parametrize(
    ("strategy", "why"),
    [
        ({"type": "Recreate"}, "has strategy Recreate"),
        ({"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}, "has maxSurge 0"),
        ({"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 1}}, "may miss 1 of its pods"),
    ],
)
def test_a_strategy_that_cannot_surge_is_named(strategy: dict[str, Any], why: str) -> None:
    """The Deployment is left alone, the budget holds, and the pod's event says what to set."""

    async def scenario() -> None:
        async with world() as w:
            made = with_strategy(slow(), strategy)
            await _start(w, made, disruption_budget("web", minAvailable=1))
            (old,) = await w.claims()
            await w.client.delete(NodeClaim, old.name)
            await w.wait(60)
            assert await _replica_sets(w, "web") == 1
            events = await w.events("SurgeImpossible")
            assert events
            assert why in events[0].message
            assert old.name in {c.name for c in await w.claims()}

    run_virtual(scenario())


def test_disruption_is_told_whose_budget_need_not_hold() -> None:
    """A single replica that surges leaves its node free to be disrupted; others so held do not."""

    async def scenario() -> None:
        async with world() as w:
            plain = deployment("plain", 1)
            many = with_strategy(slow("many", 2), NEVER_LESS)
            budgets = [disruption_budget(app, maxUnavailable=0) for app in ("web", "plain", "many")]
            await _start(w, slow(), plain, many, *budgets)
            await w.wait(61)
            (pod,) = await w.pods("web")
            assert w.operator.context.cluster.snapshot().stand_ins == {pod.key}
            await w.client.delete(Deployment, "web", namespace="default")
            await w.wait(61)
            assert w.operator.context.cluster.snapshot().stand_ins == frozenset()

    run_virtual(scenario())


def test_a_stateful_set_goes_as_any_other() -> None:
    """It cannot surge; that is said, the pod is evicted, and it comes up again elsewhere."""

    async def scenario() -> None:
        async with world() as w:
            made = slow("db")
            made["kind"] = "StatefulSet"
            made["spec"]["serviceName"] = "db"
            await _start(w, made)
            (old,) = await w.claims()
            await w.client.delete(NodeClaim, old.name)
            await _until_gone(w, old.name)
            await w.until_settled()
            assert [p.name for p in await w.pods("db")] == ["db-0"]
            (event,) = await w.events("SurgeImpossible")
            assert "StatefulSet db replaces a pod under its old name" in event.message

    run_virtual(scenario())


def test_a_volume_only_one_node_can_have_is_named() -> None:
    """Its stand-in could never start while it runs: no rollout is begun, and the pod goes as any other."""

    async def scenario() -> None:
        async with world() as w:
            volume = {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}
            claim = {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "metadata": {"name": "data", "namespace": "default"},
                "spec": {
                    "accessModes": ["ReadWriteOnce"],
                    "resources": {"requests": {"storage": "1Gi"}},
                },
            }
            await _start(w, claim, slow(volumes=[volume]))
            (old,) = await w.claims()
            await w.client.delete(NodeClaim, old.name)
            await _until_gone(w, old.name)
            assert await _replica_sets(w, "web") == 1
            (event,) = await w.events("SurgeImpossible")
            assert "PersistentVolumeClaim default/data (ReadWriteOnce)" in event.message

    run_virtual(scenario())


def test_without_the_right_to_patch_deployments_it_is_said() -> None:
    """The drain does not fail for it: the pod goes as any other, and the event names what is missing."""

    async def scenario() -> None:
        async with world() as w:
            await _start(w, slow())
            (old,) = await w.claims()
            request = w.operator.client.transport.request

            async def refusing(method: str, path: str, **rest: Any) -> Any:
                if method == "PATCH" and "/deployments/" in path:
                    raise Forbidden(403, "Forbidden", 'cannot patch resource "deployments"')
                return await request(method, path, **rest)

            w.operator.client.transport.request = refusing  # type: ignore[method-assign]
            await w.client.delete(NodeClaim, old.name)
            await _until_gone(w, old.name)
            assert await _replica_sets(w, "web") == 1
            (event,) = await w.events("SurgeImpossible")
            assert 'cannot patch resource "deployments"' in event.message

    run_virtual(scenario())


def test_a_stand_in_that_never_comes_up_is_told_of() -> None:
    """The old pod serves on; the claim says which rollout it waits for, and goes on when it succeeds."""

    async def scenario() -> None:
        async with world() as w:
            made = deployment("web", 1, annotations={**SURGE, "pod-ready.stage.kwok.x-k8s.io/delay": "20m"})
            watcher = ServingWatch(w.watchdog)
            await w.apply([node_class(), pool(consolidate_after="Never"), made])
            await w.wait(1500)
            watcher.begin()
            assert watcher.least["web"] == 1
            (old,) = await w.claims()
            await w.client.delete(NodeClaim, old.name)
            await w.wait(900)
            (claim,) = [c for c in await w.claims() if c.name == old.name]
            drained = conditions.get(claim.status.conditions, "Drained")
            assert drained is not None
            assert "Deployment default/web rolls out for that (1 new, 1 available)" in drained.message
            assert "ProgressDeadlineExceeded" in drained.message
            await _until_gone(w, old.name, within=600)
            assert watcher.least["web"] == 1

    run_virtual(scenario())


def test_the_deadline_counts_for_pods_that_wait_for_a_stand_in() -> None:
    """With a grace period the node goes in time, stand-in or not."""

    async def scenario() -> None:
        async with world() as w:
            made = deployment("web", 1, annotations={**SURGE, "pod-ready.stage.kwok.x-k8s.io/delay": "10m"})
            await w.apply(
                [
                    node_class(),
                    pool(consolidate_after="Never", template={"terminationGracePeriod": "2m"}),
                    made,
                ]
            )
            await w.wait(700)
            (old,) = await w.claims()
            await w.client.delete(NodeClaim, old.name)
            await w.wait(100)
            assert old.name in {c.name for c in await w.claims()}
            await w.wait(40)
            assert old.name not in {c.name for c in await w.claims()}
            w.transport.carried.clear()  # past its deadline a pod may be deleted, as it was here

    run_virtual(scenario())


def test_the_node_is_tainted_before_the_rollout_begins() -> None:
    """So that the stand-in cannot come up where the pod is to leave."""

    async def scenario() -> None:
        async with world() as w:
            await _start(w, slow())
            (node,) = await w.nodes()
            seen: list[bool] = []

            def look(entry: Journal) -> None:
                if entry.group_resource == "deployments.apps" and entry.type == "MODIFIED":
                    template = entry.record.object()["spec"]["template"]["metadata"]
                    if labels.SURGED_FOR in template.get("annotations", {}):
                        tainted = w.watchdog.objects["nodes"][node.name]["spec"].get("taints", [])
                        seen.append(any(t["key"] == labels.DISRUPTED_TAINT for t in tainted))

            w.watchdog.then = look
            await w.client.delete(Node, node.name)
            await w.wait(30)
            assert seen
            assert all(seen)

    run_virtual(scenario())


def test_a_rollout_of_the_users_is_waited_for() -> None:
    """While the user's own rollout replaces the pods, no second one is started on top."""

    async def scenario() -> None:
        async with world() as w:
            watcher = await _start(w, slow(), disruption_budget("web", minAvailable=1))
            (old,) = await w.claims()
            change = {"spec": {"template": {"metadata": {"annotations": {"version": "2"}}}}}
            await w.client.patch(Deployment, "web", merge(change), namespace="default")
            await w.wait(1)
            await w.client.delete(NodeClaim, old.name)
            await _until_gone(w, old.name)
            await w.until_replicas("web", 1)
            assert watcher.least["web"] == 1

    run_virtual(scenario())
