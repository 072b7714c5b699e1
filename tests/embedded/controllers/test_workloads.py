"""Workload controllers end to end: an API server, a scheduler and kubelets under virtual time."""

from collections.abc import Callable
from typing import Any

import pytest

from karpenter.embedded.controllers.kinds import FullDeployment, FullReplicaSet

Play = Callable[..., Any]
Spec = Callable[..., dict[str, Any]]


def ready(pods: list[Any]) -> int:
    """Return how many pods say they are ready."""
    return sum(any(c.type == "Ready" and c.status == "True" for c in p.status.conditions) for p in pods)


def test_a_deployment_scales_up_and_down(play: Play) -> None:
    """A Deployment reaches its count, reports it, and gives pods up again when scaled down."""

    async def scenario(world: Any) -> None:
        await world.node("n1")
        await world.deployment("web", 5)

        async def up() -> bool:
            status = (await world.get("Deployment", "web")).get("status", {})
            return bool(status.get("availableReplicas") == 5)

        await world.until(up)
        status = (await world.get("Deployment", "web"))["status"]
        assert {c["type"]: c["status"] for c in status["conditions"]} == {
            "Available": "True",
            "Progressing": "True",
        }
        assert status["updatedReplicas"] == status["readyReplicas"] == 5
        await world.merge("Deployment", "web", {"spec": {"replicas": 2}})
        await world.clock.sleep(5)
        assert len(await world.pods(app="web")) == 2
        assert (await world.get("Deployment", "web"))["status"]["replicas"] == 2

    play(scenario)


def test_pods_keep_every_field_of_the_template(play: Play, spec: Spec) -> None:
    """Fields that no controller knows come through to the pods."""

    async def scenario(world: Any) -> None:
        full = spec(hostAliases=[{"ip": "1.2.3.4", "hostnames": ["x"]}])
        full["containers"][0]["env"] = [{"name": "A", "value": "b"}]
        template = {"metadata": {"labels": {"app": "w"}, "annotations": {"note": "kept"}}, "spec": full}
        await world.create(
            "Deployment", "w", spec={"selector": {"matchLabels": {"app": "w"}}, "template": template}
        )
        await world.clock.sleep(2)
        [name] = await world.names("Pod")
        pod = await world.get("Pod", name)
        assert pod["spec"]["hostAliases"] == full["hostAliases"]
        assert pod["spec"]["containers"][0]["env"] == full["containers"][0]["env"]
        assert pod["metadata"]["annotations"]["note"] == "kept"
        assert pod["metadata"]["labels"]["pod-template-hash"]

    play(scenario)


def test_a_rollout_stays_within_surge_and_unavailability(play: Play) -> None:
    """While templates change there are never too many pods nor too few ready ones."""

    async def scenario(world: Any) -> None:
        await world.node("n1")
        strategy = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 2, "maxUnavailable": 1}}
        await world.deployment("web", 8, strategy=strategy)
        await world.clock.sleep(5)
        [old] = await world.list(FullReplicaSet)
        change = {"spec": {"template": {"metadata": {"annotations": {"v": "2"}}}}}
        await world.merge("Deployment", "web", change)
        seen: list[tuple[int, int]] = []

        async def done() -> bool:
            pods = [p for p in await world.pods(app="web") if not p.deleting]
            seen.append((len(pods), ready(pods)))
            [deployment] = await world.list(FullDeployment)
            status = deployment.status
            return bool(
                status.updated_replicas == status.available_replicas == status.replicas == 8
                and status.observed_generation == deployment.metadata.generation
            )

        await world.until(done)
        assert max(total for total, _ in seen) <= 10
        assert min(up for _, up in seen) >= 7
        sets = {r.name: r for r in await world.list(FullReplicaSet)}
        assert len(sets) == 2
        assert sets[old.name].spec.replicas == 0
        revisions = {r.metadata.annotations["deployment.kubernetes.io/revision"] for r in sets.values()}
        assert revisions == {"1", "2"}
        # Going back uses the old ReplicaSet and makes it the newest revision.
        await world.merge("Deployment", "web", {"spec": {"template": {"metadata": {"annotations": None}}}})
        await world.until(done)
        sets = {r.name: r for r in await world.list(FullReplicaSet)}
        assert sets[old.name].spec.replicas == 8
        assert sets[old.name].metadata.annotations["deployment.kubernetes.io/revision"] == "3"

    play(scenario)


def test_recreate_stops_everything_before_it_starts_anew(play: Play) -> None:
    """With Recreate no old pod lives beside a new one."""

    async def scenario(world: Any) -> None:
        await world.node("n1")
        await world.deployment("db", 3, strategy={"type": "Recreate"})
        await world.clock.sleep(5)
        await world.merge(
            "Deployment", "db", {"spec": {"template": {"metadata": {"annotations": {"v": "2"}}}}}
        )

        async def done() -> bool:
            pods = await world.pods(app="db")
            assert len({p.metadata.labels["pod-template-hash"] for p in pods}) <= 1
            [deployment] = await world.list(FullDeployment)
            return bool(
                deployment.status.observed_generation == 2
                and deployment.status.updated_replicas == 3
                and ready(pods) == 3
            )

        await world.until(done)

    play(scenario)


@pytest.mark.parametrize("policy", ["OrderedReady", "Parallel"])
def test_statefulsets_number_their_pods(play: Play, spec: Spec, policy: str) -> None:
    """Pods are named by ordinal and, when ordered, each waits for the one before it to be ready."""

    async def scenario(world: Any) -> None:
        await world.node("n1")
        await world.create(
            "StatefulSet",
            "db",
            spec={
                "replicas": 3,
                "serviceName": "db",
                "podManagementPolicy": policy,
                "selector": {"matchLabels": {"app": "db"}},
                "template": {"metadata": {"labels": {"app": "db"}}, "spec": spec()},
                "volumeClaimTemplates": [
                    {
                        "metadata": {"name": "data"},
                        "spec": {
                            "accessModes": ["ReadWriteOnce"],
                            "resources": {"requests": {"storage": "1Gi"}},
                        },
                    }
                ],
            },
        )
        most_unready = 0

        async def up() -> bool:
            nonlocal most_unready
            pods = await world.pods(app="db")
            most_unready = max(most_unready, len(pods) - ready(pods))
            return ready(pods) == 3

        await world.until(up)
        assert await world.names("Pod") == ["db-0", "db-1", "db-2"]
        assert await world.names("PersistentVolumeClaim") == ["data-db-0", "data-db-1", "data-db-2"]
        assert most_unready == (1 if policy == "OrderedReady" else 3)
        await world.merge("StatefulSet", "db", {"spec": {"replicas": 1}})
        await world.clock.sleep(5)
        assert await world.names("Pod") == ["db-0"]
        assert len(await world.names("PersistentVolumeClaim")) == 3

    play(scenario)


def test_statefulset_updates_go_from_the_last_pod_down_to_the_partition(play: Play, spec: Spec) -> None:
    """A new template replaces pods from the highest ordinal; those below the partition keep the old one."""

    async def scenario(world: Any) -> None:
        await world.node("n1")
        template = {"metadata": {"labels": {"app": "db"}}, "spec": spec()}
        update = {"type": "RollingUpdate", "rollingUpdate": {"partition": 1}}
        await world.create(
            "StatefulSet",
            "db",
            spec={
                "replicas": 3,
                "selector": {"matchLabels": {"app": "db"}},
                "template": template,
                "updateStrategy": update,
            },
        )
        await world.clock.sleep(10)
        before = {p.name: p.metadata.uid for p in await world.pods(app="db")}
        await world.merge(
            "StatefulSet", "db", {"spec": {"template": {"metadata": {"annotations": {"v": "2"}}}}}
        )
        order: list[str] = []

        async def done() -> bool:
            pods = {p.name: p for p in await world.pods(app="db")}
            order.extend(n for n, p in pods.items() if p.metadata.uid != before[n] and n not in order)
            return order == ["db-2", "db-1"] and ready(list(pods.values())) == 3

        await world.until(done)
        await world.clock.sleep(10)
        assert {p.name: p.metadata.uid for p in await world.pods(app="db")}["db-0"] == before["db-0"]

    play(scenario)


def test_a_daemonset_covers_each_eligible_node_once(play: Play, spec: Spec) -> None:
    """New nodes get a pod, nodes with an intolerable taint do not, cordoned ones do."""

    async def scenario(world: Any) -> None:
        await world.node("n1")
        await world.node("tainted", spec={"taints": [{"key": "dedicated", "effect": "NoSchedule"}]})
        await world.create(
            "DaemonSet",
            "agent",
            spec={
                "selector": {"matchLabels": {"app": "agent"}},
                "template": {"metadata": {"labels": {"app": "agent"}}, "spec": spec()},
            },
        )
        await world.clock.sleep(5)
        assert [p.spec.node_name for p in await world.pods(app="agent")] == ["n1"]
        await world.node("n2", spec={"unschedulable": True})
        await world.clock.sleep(5)
        assert sorted(p.spec.node_name for p in await world.pods(app="agent")) == ["n1", "n2"]
        status = (await world.get("DaemonSet", "agent"))["status"]
        assert status["desiredNumberScheduled"] == status["numberReady"] == 2
        await world.delete("Node", "n1")
        await world.clock.sleep(5)
        assert [p.spec.node_name for p in await world.pods(app="agent")] == ["n2"]

    play(scenario)


def test_a_job_runs_its_pods_to_completion(play: Play, spec: Spec) -> None:
    """Completions are reached with bounded parallelism; a TTL then removes Job and pods."""

    async def scenario(world: Any) -> None:
        await world.node("n1")
        await world.create(
            "Job",
            "batch",
            spec={
                "completions": 5,
                "parallelism": 2,
                "ttlSecondsAfterFinished": 60,
                "template": {"spec": spec(restartPolicy="Never")},
            },
        )
        most = 0

        async def complete() -> bool:
            nonlocal most
            job = await world.get("Job", "batch")
            pods = await world.pods()
            most = max(most, sum(p.status.phase in ("Pending", "Running") for p in pods))
            return any(c["type"] == "Complete" for c in job.get("status", {}).get("conditions") or [])

        took = await world.until(complete, 120)
        assert most == 2
        assert 30 < took < 45
        status = (await world.get("Job", "batch"))["status"]
        assert status["succeeded"] == 5
        assert status["completionTime"]
        await world.clock.sleep(70)
        assert await world.names("Job") == []
        assert await world.names("Pod") == []

    play(scenario)


def test_a_failing_job_gives_up_at_its_limit(play: Play, spec: Spec) -> None:
    """Pods that end with an error are retried with growing pauses, then the Job has failed."""

    async def scenario(world: Any) -> None:
        await world.node("n1")
        annotations = {
            "pod-complete.stage.kwok.x-k8s.io/delay": "1s",
            "pod-complete.stage.kwok.x-k8s.io/exit-code": "3",
        }
        template = {"metadata": {"annotations": annotations}, "spec": spec(restartPolicy="Never")}
        await world.create("Job", "bad", spec={"backoffLimit": 2, "template": template})

        async def failed() -> bool:
            job = await world.get("Job", "bad")
            return any(c["type"] == "Failed" for c in job.get("status", {}).get("conditions") or [])

        took = await world.until(failed, 120)
        assert 30 < took < 50
        assert (await world.get("Job", "bad"))["status"]["failed"] == 3

    play(scenario)


def test_indexed_jobs_run_each_index_once(play: Play, spec: Spec) -> None:
    """Every completion index gets a pod that carries it."""

    async def scenario(world: Any) -> None:
        await world.node("n1")
        template = {"spec": spec(restartPolicy="Never")}
        job = {"completions": 3, "parallelism": 3, "completionMode": "Indexed", "template": template}
        await world.create("Job", "idx", spec=job)
        await world.clock.sleep(30)
        pods = await world.pods()
        assert sorted(p.metadata.annotations["batch.kubernetes.io/job-completion-index"] for p in pods) == [
            "0",
            "1",
            "2",
        ]
        assert (await world.get("Job", "idx"))["status"]["completedIndexes"] == "0-2"

    play(scenario)


def test_cronjobs_start_a_job_each_turn_and_keep_few(play: Play, spec: Spec) -> None:
    """A job a minute, of which three finished ones stay."""

    async def scenario(world: Any) -> None:
        await world.node("n1")
        job = {"spec": {"template": {"spec": spec(restartPolicy="Never")}}}
        await world.create("CronJob", "tick", spec={"schedule": "* * * * *", "jobTemplate": job})
        await world.clock.sleep(60 * 6 + 30)
        jobs = await world.names("Job")
        assert len(jobs) == 3
        assert (await world.get("CronJob", "tick"))["status"]["lastScheduleTime"] == "2026-01-01T00:06:00Z"

    play(scenario)


@pytest.mark.parametrize(
    ("limits", "desired", "allowed"),
    [
        ({"minAvailable": 3}, 3, 2),
        ({"minAvailable": "50%"}, 3, 2),
        ({"maxUnavailable": "30%"}, 3, 2),
        ({"maxUnavailable": 1}, 4, 1),
    ],
)
def test_budgets_report_what_they_allow(
    play: Play, limits: dict[str, Any], desired: int, allowed: int
) -> None:
    """Percentages round up; allowed is what is healthy beyond what must be."""

    async def scenario(world: Any) -> None:
        await world.node("n1")
        await world.deployment("web", 5)
        selector = {"matchLabels": {"app": "web"}}
        await world.create("PodDisruptionBudget", "web", spec={"selector": selector, **limits})
        await world.clock.sleep(5)
        budget = await world.get("PodDisruptionBudget", "web")
        status = budget["status"]
        assert (status["expectedPods"], status["currentHealthy"]) == (5, 5)
        assert (status["desiredHealthy"], status["disruptionsAllowed"]) == (desired, allowed)
        assert status["observedGeneration"] == budget["metadata"]["generation"]

    play(scenario)
