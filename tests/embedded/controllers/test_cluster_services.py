"""Garbage, namespaces, volumes, nodes, kubelets and the scheduler's loop, end to end under virtual time."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from karpenter.base.clock import LoopClock
from karpenter.base.randomness import seeded
from karpenter.base.virtualtime import run_virtual
from karpenter.embedded.cluster import EmbeddedCluster
from karpenter.embedded.controllers.stages import KubeletLatencies

Play = Callable[..., Any]
Spec = Callable[..., dict[str, Any]]


def scheduled_condition(pod: Any) -> Any:
    """Return the PodScheduled condition of a typed pod."""
    return next((c for c in pod.status.conditions if c.type == "PodScheduled"), None)


def test_deleting_a_deployment_removes_what_it_owns(play: Play) -> None:
    """Background deletion cascades to ReplicaSets and pods."""

    async def scenario(world: Any) -> None:
        await world.node("n1")
        await world.deployment("web", 3)
        await world.clock.sleep(3)
        await world.delete("Deployment", "web")
        await world.clock.sleep(5)
        assert await world.names("ReplicaSet") == []
        assert await world.names("Pod") == []

    play(scenario)


def test_foreground_deletion_waits_for_dependents(play: Play) -> None:
    """With foreground propagation the owner outlives its pods."""

    async def scenario(world: Any) -> None:
        await world.node("n1")
        await world.deployment("web", 2)
        await world.clock.sleep(3)
        await world.delete("Deployment", "web", policy="Foreground")

        async def gone() -> bool:
            names = await world.names("Deployment")
            if await world.names("Pod"):
                assert names == ["web"]
            return bool(names == [])

        await world.until(gone)
        assert await world.names("Pod") == []

    play(scenario)


def test_orphaning_leaves_the_pods(play: Play) -> None:
    """With orphan propagation dependents stay, without their owner."""

    async def scenario(world: Any) -> None:
        await world.node("n1")
        await world.deployment("web", 2)
        await world.clock.sleep(3)
        [name] = await world.names("ReplicaSet")
        await world.delete("Deployment", "web", policy="Orphan")
        await world.clock.sleep(5)
        assert await world.names("Deployment") == []
        assert await world.names("ReplicaSet") == [name]
        assert "ownerReferences" not in (await world.get("ReplicaSet", name))["metadata"]
        assert len(await world.names("Pod")) == 2

    play(scenario)


def test_an_object_whose_owner_never_was_is_collected(play: Play) -> None:
    """A dangling owner reference is verified, then its holder goes."""

    async def scenario(world: Any) -> None:
        owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "ghost", "uid": "0-0"}
        await world.create("ConfigMap", "child", metadata={"ownerReferences": [owner]})
        await world.clock.sleep(5)
        assert "child" not in await world.names("ConfigMap")

    play(scenario)


def test_a_deleted_namespace_is_emptied_and_goes(play: Play) -> None:
    """Everything in it is deleted, then it is finalized; new ones get a service account."""

    async def scenario(world: Any) -> None:
        await world.node("n1")
        await world.create("Namespace", "team")
        await world.clock.sleep(1)
        path = "/api/v1/namespaces/team/serviceaccounts"
        assert [i["metadata"]["name"] for i in (await world.request("GET", path))["items"]] == ["default"]
        await world.create("ConfigMap", "c", namespace="team")
        template = {
            "metadata": {"labels": {"app": "x"}},
            "spec": {"containers": [{"name": "c", "image": "i"}]},
        }
        spec = {"replicas": 2, "selector": {"matchLabels": {"app": "x"}}, "template": template}
        await world.create("Deployment", "x", namespace="team", spec=spec)
        await world.clock.sleep(3)
        assert len(await world.names("Pod", namespace="team")) == 2
        await world.delete("Namespace", "team")
        await world.clock.sleep(40)
        assert "team" not in await world.names("Namespace")
        assert await world.names("Pod", namespace="team") == []

    play(scenario)


def test_pods_wait_with_a_reason_until_a_node_comes(play: Play) -> None:
    """A pod that fits nowhere says why, in kube-scheduler's words, and is bound when a node appears."""

    async def scenario(world: Any) -> None:
        await world.node("small", cpu="1")
        await world.clock.sleep(2)
        await world.deployment("big", 2, cpu="2")
        await world.clock.sleep(1)
        for pod in await world.pods(app="big"):
            condition = scheduled_condition(pod)
            assert (condition.status, condition.reason) == ("False", "Unschedulable")
            assert condition.message == (
                "0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available: "
                "1 No preemption victims found for incoming pod."
            )
        events = (await world.request("GET", "/api/v1/namespaces/default/events"))["items"]
        assert {e["reason"] for e in events} >= {"FailedScheduling"}
        await world.node("large", cpu="8")
        await world.clock.sleep(15)
        assert [p.spec.node_name for p in await world.pods(app="big")] == ["large", "large"]

    play(scenario)


def test_gated_pods_are_left_alone_until_the_gate_opens(play: Play, spec: Spec) -> None:
    """A gate shows as SchedulingGated; without it the pod is scheduled."""

    async def scenario(world: Any) -> None:
        await world.node("n1")
        await world.create("Pod", "p", spec=spec(schedulingGates=[{"name": "wait"}]))
        await world.clock.sleep(2)
        [pod] = await world.pods()
        assert scheduled_condition(pod).reason == "SchedulingGated"
        await world.merge("Pod", "p", {"spec": {"schedulingGates": None}})
        await world.clock.sleep(2)
        [pod] = await world.pods()
        assert pod.spec.node_name == "n1"

    play(scenario)


def test_pods_of_other_schedulers_are_ignored(play: Play, spec: Spec) -> None:
    """Only pods that ask for the default scheduler are bound."""

    async def scenario(world: Any) -> None:
        await world.node("n1")
        await world.create("Pod", "p", spec=spec(schedulerName="mine"))
        await world.clock.sleep(3)
        [pod] = await world.pods()
        assert pod.spec.node_name == ""

    play(scenario)


def test_important_pods_preempt(play: Play, spec: Spec) -> None:
    """A pod of higher priority evicts a lower one, is promised the node, and gets it."""

    async def scenario(world: Any) -> None:
        await world.create("PriorityClass", "high", value=1000)
        await world.node("n1", cpu="2")
        await world.create("Pod", "low", spec=spec("1500m"))
        await world.clock.sleep(3)
        await world.create("Pod", "high", spec=spec("1500m", priorityClassName="high"))
        await world.clock.sleep(0.1)
        nominated = (await world.get("Pod", "high"))["status"].get("nominatedNodeName")
        victim = next(p for p in await world.pods() if p.name == "low")
        assert nominated == "n1"
        assert victim.deleting
        assert any(c.type == "DisruptionTarget" for c in victim.status.conditions)
        await world.clock.sleep(15)
        assert [(p.name, p.spec.node_name) for p in await world.pods()] == [("high", "n1")]

    play(scenario)


def test_nominated_nodes_are_kept_for_their_pods(play: Play, spec: Spec) -> None:
    """Pods go where status.nominatedNodeName says, and others do not take that room away."""

    async def scenario(world: Any) -> None:
        for name, cpu in (("a-flexible", "1"), ("b-big", "7")):
            await world.create("Pod", name, spec=spec(cpu))
        await world.clock.sleep(1)
        await world.merge("Pod", "b-big", {"status": {"nominatedNodeName": "n1"}}, sub="status")
        await world.merge("Pod", "a-flexible", {"status": {"nominatedNodeName": "n2"}}, sub="status")
        await world.node("n1", cpu="7")
        await world.clock.sleep(20)
        await world.node("n2", cpu="8")
        await world.clock.sleep(20)
        assert {p.name: p.spec.node_name for p in await world.pods()} == {"a-flexible": "n2", "b-big": "n1"}

    play(scenario)


def test_claims_bind_where_their_pod_goes(play: Play, spec: Spec) -> None:
    """A claim waits for its first consumer; the volume made for it is tied to that node's zone."""

    async def scenario(world: Any) -> None:
        await world.node("n1", zone="a")
        claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
        await world.create("PersistentVolumeClaim", "data", spec=claim)
        await world.clock.sleep(1)
        assert (await world.get("PersistentVolumeClaim", "data"))["status"]["phase"] == "Pending"
        volumes = [{"name": "d", "persistentVolumeClaim": {"claimName": "data"}}]
        await world.create("Pod", "first", spec=spec(volumes=volumes))
        await world.clock.sleep(5)
        assert (await world.get("PersistentVolumeClaim", "data"))["status"]["phase"] == "Bound"
        assert (await world.get("Pod", "first"))["status"]["phase"] == "Running"
        await world.delete("Pod", "first")
        await world.merge("Node", "n1", {"spec": {"unschedulable": True}})
        await world.node("n2", zone="b")
        await world.clock.sleep(3)
        await world.create("Pod", "second", spec=spec(volumes=volumes))
        await world.clock.sleep(3)
        [pod] = await world.pods()
        assert "1 node(s) had volume node affinity conflict" in scheduled_condition(pod).message
        await world.node("n3", zone="a")
        await world.clock.sleep(15)
        [pod] = await world.pods()
        assert pod.spec.node_name == "n3"
        await world.delete("Pod", "second")
        await world.delete("PersistentVolumeClaim", "data")
        await world.clock.sleep(5)
        assert await world.names("PersistentVolume") == []

    play(scenario)


def test_a_missing_claim_is_named(play: Play, spec: Spec) -> None:
    """A pod whose claim does not exist waits and says so; it goes on once the claim is there."""

    async def scenario(world: Any) -> None:
        await world.node("n1")
        volumes = [{"name": "d", "persistentVolumeClaim": {"claimName": "data"}}]
        await world.create("Pod", "p", spec=spec(volumes=volumes))
        await world.clock.sleep(2)
        [pod] = await world.pods()
        assert 'persistentvolumeclaim "data" not found' in scheduled_condition(pod).message
        claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
        await world.create("PersistentVolumeClaim", "data", spec=claim)
        await world.clock.sleep(15)
        [pod] = await world.pods()
        assert pod.spec.node_name == "n1"

    play(scenario)


def test_nodes_boot_and_lose_the_not_ready_taint(play: Play) -> None:
    """A simulated node reports Ready after its boot; until then it is tainted."""

    async def scenario(world: Any) -> None:
        await world.node("n1")
        await world.clock.sleep(0.5)
        [node] = await world.nodes()
        assert [t.key for t in node.spec.taints] == ["node.kubernetes.io/not-ready"]
        await world.clock.sleep(5)
        [node] = await world.nodes()
        assert node.spec.taints == []
        assert node.status.capacity == node.status.allocatable

    play(scenario, latencies=KubeletLatencies(node_boot=3))


def test_pods_leave_a_node_that_is_not_ready(play: Play, spec: Spec) -> None:
    """Pods are evicted from a NotReady node after as long as they tolerate it."""

    async def scenario(world: Any) -> None:
        await world.node("n1")
        patient = {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"}
        await world.create("Pod", "stays", spec=spec(tolerations=[patient]))
        await world.create("Pod", "leaves", spec=spec(tolerations=[{**patient, "tolerationSeconds": 20}]))
        await world.clock.sleep(3)
        node = await world.get("Node", "n1")
        conditions = [
            {**c, "status": "False"} if c["type"] == "Ready" else c for c in node["status"]["conditions"]
        ]
        await world.merge("Node", "n1", {"status": {"conditions": conditions}}, sub="status")
        await world.clock.sleep(15)
        assert len(await world.pods()) == 2
        await world.clock.sleep(10)
        assert await world.names("Pod") == ["stays"]

    play(scenario)


def test_pods_of_a_vanished_node_are_replaced(play: Play) -> None:
    """When a node is deleted its pods go with it and their controller makes new ones."""

    async def scenario(world: Any) -> None:
        await world.node("n1")
        await world.deployment("web", 2)
        await world.clock.sleep(3)
        await world.node("n2")
        await world.delete("Node", "n1")
        await world.clock.sleep(10)
        assert [p.spec.node_name for p in await world.pods(app="web")] == ["n2", "n2"]

    play(scenario)


def test_only_annotated_nodes_have_a_kubelet(play: Play, spec: Spec) -> None:
    """Nodes without kwok's annotation are somebody else's."""

    async def scenario(world: Any) -> None:
        await world.create(
            "Node", "real", status={"allocatable": {"cpu": "4", "pods": "10", "memory": "4Gi"}}
        )
        await world.create("Pod", "p", spec=spec(nodeName="real"))
        await world.clock.sleep(10)
        assert "conditions" not in (await world.get("Node", "real"))["status"]
        assert (await world.get("Pod", "p"))["status"]["phase"] == "Pending"

    play(scenario)


def test_pods_print_a_line_when_they_start(play: Play, spec: Spec) -> None:
    """`kubectl logs` has something to show."""

    async def scenario(world: Any) -> None:
        await world.node("n1")
        await world.create("Pod", "p", spec=spec())
        await world.clock.sleep(3)
        assert world.cluster.logs.read("default", "p", "main") == ["main of default/p started on n1"]

    play(scenario)


def test_node_leases_are_renewed_when_asked_for(play: Play) -> None:
    """With a heartbeat each node has a lease that is renewed."""

    async def scenario(world: Any) -> None:
        await world.node("n1")
        await world.clock.sleep(35)
        path = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/n1"
        assert (await world.request("GET", path))["spec"]["renewTime"].startswith("2026-01-01T00:00:30")

    play(scenario, latencies=KubeletLatencies(heartbeat=10))


def test_a_history_repeats_itself_under_the_same_seed(play: Play, spec: Spec) -> None:
    """Two runs of one scenario write the same pods at the same revisions; another seed does not."""

    async def scenario(world: Any) -> list[bytes]:
        events: list[bytes] = []

        async def follow() -> None:
            async for event in world.cluster.transport().watch("/api/v1/pods"):
                events.append(event)  # noqa: PERF401 (what came before the cancellation must be kept)

        task = asyncio.ensure_future(follow())
        for zone in "abc":
            await world.node(f"n-{zone}", zone=zone)
        await world.deployment("web", 12)
        await world.create(
            "Job",
            "batch",
            spec={"completions": 4, "parallelism": 2, "template": {"spec": spec(restartPolicy="Never")}},
        )
        await world.clock.sleep(5)
        await world.merge(
            "Deployment", "web", {"spec": {"template": {"metadata": {"annotations": {"v": "2"}}}}}
        )
        await world.delete("Node", "n-b")
        await world.clock.sleep(60)
        task.cancel()
        return events

    first, second, other = play(scenario), play(scenario), play(scenario, seed=2)
    assert len(first) > 100
    assert first == second
    assert first != other


def test_a_stopped_cluster_goes_on_where_it_was(tmp_path: Path) -> None:
    """What a state file holds is picked up again: a rollout that was cut off is finished."""

    async def life(first: bool) -> list[dict[str, Any]]:
        clock = LoopClock(1_767_225_600.0 + (0 if first else 1000))
        cluster = EmbeddedCluster(clock=clock, rng=seeded(1), state_file=tmp_path / "state.db")
        async with asyncio.TaskGroup() as group:
            task = group.create_task(cluster.run())
            await cluster.ready.wait()
            transport = cluster.transport()
            if first:
                template = {
                    "metadata": {"labels": {"a": "b"}},
                    "spec": {"containers": [{"name": "c", "image": "i"}]},
                }
                spec = {"replicas": 5, "selector": {"matchLabels": {"a": "b"}}, "template": template}
                body = {
                    "apiVersion": "apps/v1",
                    "kind": "Deployment",
                    "metadata": {"name": "d"},
                    "spec": spec,
                }
                path = "/apis/apps/v1/namespaces/default/deployments"
                await transport.request("POST", path, body=json.dumps(body).encode())
                await clock.sleep(1)
            else:
                node = {
                    "apiVersion": "v1",
                    "kind": "Node",
                    "metadata": {"name": "n", "annotations": {"kwok.x-k8s.io/node": "fake"}},
                    "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "20"}},
                }
                await transport.request("POST", "/api/v1/nodes", body=json.dumps(node).encode())
                await clock.sleep(15)
            answer = await transport.request("GET", "/api/v1/namespaces/default/pods")
            task.cancel()
        cluster.close()
        pods: list[dict[str, Any]] = json.loads(answer.body)["items"]
        return pods

    before = run_virtual(life(True))
    after = run_virtual(life(False))
    assert len(before) == 5
    assert {p["metadata"]["uid"] for p in before} == {p["metadata"]["uid"] for p in after}
    assert {p["status"]["phase"] for p in after} == {"Running"}


def test_a_tight_plan_is_realised_when_pods_are_nominated(play: Play, spec: Spec) -> None:
    """Three full nodes, opened one by one: with nominations every pod is bound where it was planned."""
    plan = {"n1": ["1"] * 8, "n2": ["7", "1"], "n3": ["4", "4"]}
    taint = {"key": "karpenter.sh/unregistered", "effect": "NoExecute"}

    async def scenario(world: Any) -> None:
        planned = {}
        for node, sizes in plan.items():
            for number, cpu in enumerate(sizes):
                name = f"{node}-{cpu}-{number}"
                planned[name] = node
                await world.create("Pod", name, spec=spec(cpu))
        await world.clock.sleep(2)
        for node in plan:
            await world.node(node, cpu="8", spec={"taints": [taint]})
        await world.clock.sleep(2)
        for name, node in planned.items():
            await world.merge("Pod", name, {"status": {"nominatedNodeName": node}}, sub="status")
        for node in reversed(plan):
            await world.clock.sleep(7)
            await world.merge("Node", node, {"spec": {"taints": None}})
        await world.clock.sleep(30)
        assert {p.name: p.spec.node_name for p in await world.pods()} == planned

    play(scenario)


def test_many_equal_pods_that_fit_nowhere_cost_one_attempt(play: Play) -> None:
    """A node that comes too small for a parked class does not make the scheduler try its pods again."""

    async def scenario(world: Any) -> None:
        await world.node("n0", cpu="1")
        await world.deployment("big", 50, cpu="2")
        await world.clock.sleep(3)
        before = await world.pods(app="big")
        for number in range(1, 6):
            await world.node(f"n{number}", cpu="1")
            await world.clock.sleep(3)
        after = await world.pods(app="big")
        assert [p.metadata.resource_version for p in before] == [p.metadata.resource_version for p in after]

    play(scenario)
