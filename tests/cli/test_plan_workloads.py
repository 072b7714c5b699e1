"""`karpenter plan`: which pods and claims the workloads among the manifests stand for."""

from typing import Any

import pytest

from karpenter.cli.manifests import Document
from karpenter.cli.planning.expansion import expand, origin_of
from karpenter.cli.planning.inventory import Inventory

CONTAINER = {"name": "c", "image": "i"}


def expanded(*objects: dict[str, Any]) -> Inventory:
    """Return an inventory of `objects`, sound ones, with their pods."""
    inventory = Inventory()
    for obj in objects:
        inventory.add(Document("f", obj))
    inventory.settle()
    assert not [f for f in inventory.findings if f.severity == "error"]
    expand(inventory)
    return inventory


def workload(kind: str, name: str, replicas: int | None = 2, **more: Any) -> dict[str, Any]:
    """Return a workload; `more` are fields of its spec, `metadata` those of its metadata."""
    metadata = {"name": name, "namespace": "n", **more.pop("metadata", {})}
    spec: dict[str, Any] = {
        "selector": {"app": name} if kind == "ReplicationController" else {"matchLabels": {"app": name}},
        "template": {"metadata": {"labels": {"app": name}}, "spec": {"containers": [CONTAINER]}},
        **more,
    }
    if replicas is not None:
        spec["replicas"] = replicas
    version = "v1" if kind == "ReplicationController" else "apps/v1"
    return {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec}


def job(name: str = "j", status: Any = None, **spec: Any) -> dict[str, Any]:
    """Return a Job."""
    template = {"spec": {"restartPolicy": "Never", "containers": [CONTAINER]}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": "n"},
        "spec": {"template": template, **spec},
        "status": status or {},
    }


def owned(name: str, kind: str, owner: str, phase: str = "Running", node: str = "node") -> dict[str, Any]:
    """Return a pod that `owner` made."""
    reference = {"apiVersion": "apps/v1", "kind": kind, "name": owner, "uid": "u", "controller": True}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "n", "ownerReferences": [reference]},
        "spec": {"nodeName": node, "containers": [CONTAINER]},
        "status": {"phase": phase},
    }


def test_deployment() -> None:
    """Its pods belong to a ReplicaSet named after the template, carry its hash, and are told as its own."""
    inventory = expanded(workload("Deployment", "web", 3))
    assert len(inventory.pods) == 3
    for pod in inventory.pods.values():
        digest = pod.metadata.labels["pod-template-hash"]
        assert pod.metadata.labels["app"] == "web"
        assert pod.name.startswith(f"web-{digest}-")
        assert pod.metadata.owner_references[0].kind == "ReplicaSet"
        assert pod.metadata.owner_references[0].name == f"web-{digest}"
        assert origin_of(inventory, pod) == "Deployment/web"


def test_replicas_default_to_one() -> None:
    """As the API server has it."""
    assert len(expanded(workload("ReplicaSet", "one", None)).pods) == 1


def test_statefulset() -> None:
    """Its pods are numbered from its start and have claims of their own; a claim that is there is kept."""
    claim = {
        "metadata": {"name": "data"},
        "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "s"},
    }
    present = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "data-db-5", "namespace": "n"},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "volumeName": "v",
            "resources": {"requests": {"storage": "1Gi"}},
        },
    }
    spec = {"serviceName": "db", "volumeClaimTemplates": [claim], "ordinals": {"start": 5}}
    inventory = expanded(workload("StatefulSet", "db", 2, **spec), present)
    assert sorted(inventory.pods) == ["n/db-5", "n/db-6"]
    pod = inventory.pods["n/db-5"]
    assert pod.metadata.labels["apps.kubernetes.io/pod-index"] == "5"
    assert pod.metadata.labels["statefulset.kubernetes.io/pod-name"] == "db-5"
    assert [v.persistent_volume_claim.claim_name for v in pod.spec.volumes if v.persistent_volume_claim] == [
        "data-db-5"
    ]
    assert inventory.volume_claims["n/data-db-5"].spec.volume_name == "v"
    assert inventory.volume_claims["n/data-db-6"].spec.storage_class_name == "s"


@pytest.mark.parametrize(
    ("spec", "status", "count"),
    [
        ({}, None, 1),
        ({"parallelism": 3, "completions": 10}, None, 3),
        ({"parallelism": 3, "completions": 10}, {"succeeded": 8}, 2),
        ({"parallelism": 3}, None, 3),
        ({"parallelism": 3, "completions": 2}, None, 2),
        ({"suspend": True}, None, 0),
        ({}, {"conditions": [{"type": "Complete", "status": "True"}]}, 0),
    ],
)
def test_job(spec: dict[str, Any], status: Any, count: int) -> None:
    """As many pods as may run side by side and are still to succeed."""
    assert len(expanded(job(status=status, **spec)).pods) == count


def test_indexed_job() -> None:
    """Pods of an indexed Job carry their number, in the name too."""
    pods = expanded(job(parallelism=2, completions=2, completionMode="Indexed")).pods.values()
    indexes = [pod.metadata.labels["batch.kubernetes.io/job-completion-index"] for pod in pods]
    assert sorted(indexes) == ["0", "1"]
    assert all(pod.name.startswith(f"j-{i}-") for pod, i in zip(pods, indexes, strict=True))


def test_pods_that_are_there_count() -> None:
    """A dump of a cluster has workloads and their pods: only what is missing is made."""
    replica_set = workload("ReplicaSet", "rs", 3)
    inventory = expanded(
        replica_set, owned("a", "ReplicaSet", "rs"), owned("b", "ReplicaSet", "rs", "Failed")
    )
    assert len(inventory.pods) == 2 + 2
    assert origin_of(inventory, inventory.pods["n/a"]) == "ReplicaSet/rs"


def test_a_deployment_with_its_replica_sets() -> None:
    """Then the ReplicaSets hold the counts, and their pods are told as the Deployment's."""
    owner = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "u", "controller": True}
    replica_set = workload("ReplicaSet", "web-1", 2, metadata={"ownerReferences": [owner]})
    inventory = expanded(workload("Deployment", "web", 5), replica_set)
    assert len(inventory.pods) == 2
    assert {origin_of(inventory, pod) for pod in inventory.pods.values()} == {"Deployment/web"}


def test_replication_controller_and_daemon_set() -> None:
    """A ReplicationController makes pods; a DaemonSet does not: it is what new nodes bring with them."""
    inventory = expanded(workload("ReplicationController", "rc"), workload("DaemonSet", "ds", None))
    assert len(inventory.pods) == 2
    assert list(inventory.daemon_sets) == ["n/ds"]


def cron_job(name: str = "c", **spec: Any) -> dict[str, Any]:
    """Return a CronJob; `spec` are fields of its Job's spec, `suspend` one of its own."""
    own = {"schedule": "* * * * *", "suspend": spec.pop("suspend", False)}
    return {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"name": name, "namespace": "n"},
        "spec": {**own, "jobTemplate": {"metadata": {"labels": {"a": "b"}}, "spec": job(**spec)["spec"]}},
    }


@pytest.mark.parametrize(
    ("spec", "count"),
    [
        ({}, 1),
        ({"parallelism": 3, "completions": 10}, 3),
        ({"parallelism": 3, "completions": 2}, 2),
        ({"suspend": True}, 0),
    ],
)
def test_a_cron_job_stands_for_one_run(spec: dict[str, Any], count: int) -> None:
    """Its pods are those that a Job of its template would start; the plan says so."""
    inventory = expanded(cron_job(**spec))
    assert len(inventory.pods) == count
    for pod in inventory.pods.values():
        assert pod.metadata.owner_references[0].kind == "Job"
        assert pod.metadata.labels["job-name"] == "c-run"
        assert origin_of(inventory, pod) == "CronJob/c"
    note = "CronJob/c: planned for one run" if count else "CronJob/c: is suspended; left out of the plan"
    assert inventory.notes == [note]


@pytest.mark.parametrize(("condition", "count"), [(None, 2), ("Complete", 1), ("Failed", 1)])
def test_a_run_that_is_under_way_is_the_run(condition: str | None, count: int) -> None:
    """A Job of the CronJob that has not finished stands for it; after that the next run is planned for."""
    status = {"conditions": [{"type": condition, "status": "True"}]} if condition else {}
    there = job("c-1", status, parallelism=2)
    owner = {"apiVersion": "batch/v1", "kind": "CronJob", "name": "c", "uid": "u", "controller": True}
    there["metadata"]["ownerReferences"] = [owner]
    inventory = expanded(cron_job(), there)
    assert len(inventory.pods) == count
    assert {origin_of(inventory, pod) for pod in inventory.pods.values()} == {"CronJob/c"}


def test_a_broken_cron_job_is_told() -> None:
    """What the API server would refuse in its template is an error."""
    inventory = Inventory()
    broken = cron_job()
    broken["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"] = [{"name": "c", "image": 7}]
    inventory.add(Document("f", broken))
    assert [f.severity for f in inventory.findings] == ["error"]
    assert inventory.findings[0].field.startswith("spec.jobTemplate.spec.template.spec.containers")
    expand(inventory)
    assert not inventory.pods


def test_too_many_pods() -> None:
    """A count that no machine could hold in mind is an error, not a long wait."""
    inventory = Inventory()
    inventory.add(Document("f", workload("Deployment", "web", 2_000_000_000)))
    expand(inventory)
    assert "more than 500000 pods" in inventory.findings[0].problem
