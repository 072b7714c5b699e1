"""Workloads' defaults and rules, the scale subresource, and our own kinds."""

from karpenter.testing.conformance.steps import ABSENT, PRESENT, Case, Json, Step, case
from karpenter.testing.conformance.writes import DEPLOYMENTS, deployment

SETS = "/apis/apps/v1/namespaces/{ns}/statefulsets"
DAEMONS = "/apis/apps/v1/namespaces/{ns}/daemonsets"
JOBS = "/apis/batch/v1/namespaces/{ns}/jobs"
CRONJOBS = "/apis/batch/v1/namespaces/{ns}/cronjobs"
POOLS = "/apis/karpenter.sh/v1/nodepools"
CLAIMS = "/apis/karpenter.sh/v1/nodeclaims"
POOL, CLAIM = f"{POOLS}/{{ns}}", f"{CLAIMS}/{{ns}}"
_CLASS = {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"}


def cases() -> list[Case]:
    """Return the cases."""
    return [*_deployments(), *_sets(), *_jobs(), *_pools(), *_claims(), *_storage()]


def workload(kind: str, **spec: object) -> Json:
    """Return a workload of the apps group."""
    return {**deployment(), "kind": kind, "spec": {**deployment()["spec"], **spec}}


def _deployments() -> list[Case]:
    scale = f"{DEPLOYMENTS}/web/scale"
    return [
        case(
            "deployment-defaults",
            Step(
                "POST",
                DEPLOYMENTS,
                body=deployment(replicas=None),
                query={"dryRun": "All"},
                code=201,
                has={
                    "spec/replicas": 1,
                    "spec/revisionHistoryLimit": 10,
                    "spec/progressDeadlineSeconds": 600,
                    "spec/strategy": {
                        "type": "RollingUpdate",
                        "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"},
                    },
                    "spec/template/spec/restartPolicy": "Always",
                    "spec/template/spec/schedulerName": "default-scheduler",
                    "spec/template/spec/priority": ABSENT,
                    "spec/template/spec/tolerations": ABSENT,
                    "spec/template/spec/containers/0/imagePullPolicy": "IfNotPresent",
                },
            ),
        ),
        case(
            "scale",
            Step("POST", DEPLOYMENTS, body=deployment(paused=True), code=201),
            Step(
                "GET",
                scale,
                has={
                    "kind": "Scale",
                    "apiVersion": "autoscaling/v1",
                    "spec": {},
                    "status/selector": "app=web",
                },
            ),
            Step("MERGE", scale, body={"spec": {"replicas": 2}}, has={"spec/replicas": 2}),
            Step("GET", f"{DEPLOYMENTS}/web", has={"spec/replicas": 2, "metadata/generation": 2}),
            Step("MERGE", scale, body={"spec": {"replicas": -1}}, code=422, has={"reason": "Invalid"}),
            Step("GET", f"{DEPLOYMENTS}/none/scale", code=404),
        ),
        case(
            "deployment-rolls",
            Step("POST", DEPLOYMENTS, body=deployment(replicas=1), code=201),
            Step(
                "GET",
                f"{DEPLOYMENTS}/web",
                within=20,
                has={
                    "status/observedGeneration": 1,
                    "status/replicas": 1,
                    "status/unavailableReplicas": 1,
                    "metadata/annotations/deployment.kubernetes.io~1revision": "1",
                    "status/conditions/0/type": "Available",
                    "status/conditions/0/status": "False",
                },
            ),
            Step(
                "GET",
                "/apis/apps/v1/namespaces/{ns}/replicasets",
                has={
                    "items/#": 1,
                    "items/0/metadata/labels/pod-template-hash": PRESENT,
                    "items/0/metadata/ownerReferences/0/controller": True,
                    "items/0/metadata/ownerReferences/0/kind": "Deployment",
                },
            ),
            Step("DELETE", f"{DEPLOYMENTS}/web"),
            Step("GET", "/api/v1/namespaces/{ns}/pods", within=20, has={"items/#": 0}),
        ),
    ]


def _sets() -> list[Case]:
    stateful = workload("StatefulSet", serviceName="web")
    daemon = workload("DaemonSet")
    del daemon["spec"]["replicas"]
    return [
        case(
            "statefulset",
            Step(
                "POST",
                SETS,
                body=stateful,
                code=201,
                has={
                    "spec/podManagementPolicy": "OrderedReady",
                    "spec/revisionHistoryLimit": 10,
                    "spec/updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}},
                    "spec/persistentVolumeClaimRetentionPolicy": {
                        "whenDeleted": "Retain",
                        "whenScaled": "Retain",
                    },
                },
            ),
            Step(
                "MERGE",
                f"{SETS}/web",
                body={"spec": {"serviceName": "x"}},
                code=422,
                has={"reason": "Invalid"},
            ),
            Step("MERGE", f"{SETS}/web", body={"spec": {"replicas": 1}}),
            Step(
                "GET",
                "/api/v1/namespaces/{ns}/pods/web-0",
                within=20,
                has={
                    "metadata/labels/statefulset.kubernetes.io~1pod-name": "web-0",
                    "metadata/labels/apps.kubernetes.io~1pod-index": "0",
                    "metadata/labels/controller-revision-hash": PRESENT,
                    "spec/hostname": "web-0",
                    "spec/subdomain": "web",
                },
            ),
        ),
        case(
            "daemonset",
            Step(
                "POST",
                DAEMONS,
                body=daemon,
                code=201,
                has={
                    "spec/updateStrategy": {
                        "type": "RollingUpdate",
                        "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1},
                    },
                    "spec/revisionHistoryLimit": 10,
                    "metadata/generation": 1,
                },
            ),
            Step(
                "MERGE",
                f"{DAEMONS}/web",
                code=422,
                body={"spec": {"selector": {"matchLabels": {"app": "x"}}}},
            ),
        ),
    ]


def _jobs() -> list[Case]:
    containers = [{"name": "app", "image": "nginx:1"}]
    template = {"spec": {"containers": containers, "restartPolicy": "Never", "schedulerName": "nobody"}}
    job: Json = {"metadata": {"name": "once"}, "spec": {"template": template}}
    cron: Json = {
        "metadata": {"name": "often"},
        "spec": {"schedule": "0 5 * * *", "jobTemplate": {"spec": job["spec"]}},
    }
    return [
        case(
            "job",
            Step(
                "POST",
                JOBS,
                code=422,
                has={"reason": "Invalid"},
                body={"metadata": {"name": "x"}, "spec": {"template": {"spec": {"containers": containers}}}},
            ),
            Step(
                "POST",
                JOBS,
                body=job,
                code=201,
                has={
                    "spec/parallelism": 1,
                    "spec/completions": 1,
                    "spec/backoffLimit": 6,
                    "spec/suspend": False,
                    "spec/completionMode": "NonIndexed",
                    "spec/podReplacementPolicy": "TerminatingOrFailed",
                    "spec/template/metadata/labels/batch.kubernetes.io~1job-name": "once",
                    "spec/template/metadata/labels/job-name": "once",
                },
            ),
            Step("MERGE", f"{JOBS}/once", body={"spec": {"completions": 2}}, code=422),
            Step("GET", f"{JOBS}/once", within=20, has={"status/active": 1, "status/startTime": PRESENT}),
            Step(
                "GET",
                "/api/v1/namespaces/{ns}/pods",
                has={"items/#": 1, "items/0/metadata/finalizers": ["batch.kubernetes.io/job-tracking"]},
            ),
            Step("MERGE", f"{JOBS}/once", body={"spec": {"suspend": True}}),
            Step(
                "GET",
                f"{JOBS}/once",
                within=20,
                has={"status/active": ABSENT, "status/conditions/0/type": "Suspended"},
            ),
        ),
        case(
            "cronjob",
            Step(
                "POST",
                CRONJOBS,
                body=cron,
                code=201,
                has={
                    "spec/concurrencyPolicy": "Allow",
                    "spec/suspend": False,
                    "spec/failedJobsHistoryLimit": 1,
                    "spec/successfulJobsHistoryLimit": 3,
                },
            ),
            Step(
                "MERGE",
                f"{CRONJOBS}/often",
                body={"spec": {"schedule": "every day"}},
                code=422,
                has={"reason": "Invalid", "details/causes/0/field": "spec.schedule"},
            ),
            Step("MERGE", f"{CRONJOBS}/often", body={"spec": {"concurrencyPolicy": "Sometimes"}}, code=422),
        ),
    ]


def _pools() -> list[Case]:
    named = {"name": "{ns}"}
    pool: Json = {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": named,
        "spec": {"template": {"spec": {"nodeClassRef": _CLASS, "requirements": []}}},
    }
    gone = Step("DELETE", POOL, has={"kind": "Status", "details/kind": "nodepools"})
    return [
        case(
            "nodepool",
            Step(
                "POST",
                POOLS,
                body=pool,
                code=201,
                has={
                    "metadata/generation": 1,
                    "status": ABSENT,
                    "spec/disruption": {
                        "budgets": [{"nodes": "10%"}],
                        "consolidateAfter": "0s",
                        "consolidationPolicy": "WhenEmptyOrUnderutilized",
                    },
                    "spec/template/spec/expireAfter": "720h",
                },
            ),
            Step(
                "MERGE",
                POOL,
                body={"spec": {"weight": 200}},
                code=422,
                has={
                    "reason": "Invalid",
                    "details/causes/0/field": "spec.weight",
                    "details/group": "karpenter.sh",
                },
            ),
            Step("MERGE", POOL, body={"spec": {"weight": "ten"}}, code=422, has={"reason": "Invalid"}),
            Step(
                "MERGE",
                POOL,
                body={"spec": {"nonsense": 1, "weight": 3}},
                has={"spec/nonsense": ABSENT, "metadata/generation": 2},
            ),
            Step(
                "MERGE",
                POOL,
                body={"spec": {"nonsense": 1}},
                query={"fieldValidation": "Strict"},
                code=422,
                text='unknown field "spec.nonsense"',
            ),
            Step("MERGE", POOL, body={"status": {"nodes": 3}}, has={"status": ABSENT}),
            Step(
                "MERGE",
                f"{POOL}/status",
                body={"status": {"nodes": 3}, "spec": {"weight": 4}},
                has={"status/nodes": 3, "spec/weight": 3, "metadata/generation": 2},
            ),
            Step("GET", POOL, keep={"rv": "metadata/resourceVersion"}),
            Step(
                "MERGE", POOL, body={"metadata": {"annotations": {"a": "b"}}}, has={"metadata/generation": 2}
            ),
            Step(
                "MERGE",
                f"{POOL}/status",
                code=409,
                has={"reason": "Conflict"},
                body={"metadata": {"resourceVersion": "{rv}"}, "status": {"nodes": 4}},
            ),
            Step(
                "PUT", POOL, body=pool, code=422, has={"reason": "Invalid"}, text="metadata.resourceVersion"
            ),
            gone,
        ),
        case(
            "nodepool-scale",
            Step("POST", POOLS, body={**pool, "spec": {**pool["spec"], "replicas": 2}}, code=201),
            Step("GET", f"{POOL}/scale", has={"kind": "Scale", "spec/replicas": 2}),
            Step("MERGE", f"{POOL}/scale", body={"spec": {"replicas": 5}}, has={"spec/replicas": 5}),
            gone,
        ),
        case(
            "nodepool-applied",
            Step("APPLY", POOL, body=pool, query={"fieldManager": "x"}, code=201),
            Step(
                "APPLY",
                POOL,
                query={"fieldManager": "y"},
                body={
                    "apiVersion": "karpenter.sh/v1",
                    "kind": "NodePool",
                    "metadata": named,
                    "spec": {"weight": 9},
                },
                has={"spec/weight": 9, "spec/template/spec/nodeClassRef/name": "default"},
            ),
            gone,
        ),
    ]


def _claims() -> list[Case]:
    claim: Json = {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodeClaim",
        "metadata": {"name": "{ns}", "finalizers": ["karpenter.sh/termination"]},
        "spec": {"nodeClassRef": _CLASS, "requirements": []},
    }
    return [
        case(
            "nodeclaim",
            Step(
                "POST",
                CLAIMS,
                body=claim,
                code=201,
                has={"spec/expireAfter": "720h", "metadata/generation": 1},
            ),
            Step(
                "MERGE",
                CLAIM,
                body={"spec": {"expireAfter": "1h"}},
                code=422,
                has={"reason": "Invalid"},
                text="spec is immutable",
            ),
            Step(
                "MERGE",
                f"{CLAIM}/status",
                body={"status": {"providerID": "a://{ns}"}},
                has={"status/providerID": "a://{ns}"},
            ),
            Step("GET", CLAIMS, query={"fieldSelector": "status.providerID=x"}, code=400),
            Step(
                "DELETE",
                CLAIM,
                has={"kind": "NodeClaim", "metadata/deletionTimestamp": PRESENT, "metadata/generation": 2},
            ),
            Step("MERGE", CLAIM, body={"metadata": {"finalizers": None}}),
            Step("GET", CLAIM, code=404),
        ),
    ]


def _storage() -> list[Case]:
    claims = "/api/v1/namespaces/{ns}/persistentvolumeclaims"
    asked: Json = {
        "metadata": {"name": "data"},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "none",
            "resources": {"requests": {"storage": "1Gi"}},
        },
    }
    return [
        case(
            "persistentvolumeclaim",
            Step(
                "POST",
                claims,
                body=asked,
                code=201,
                has={"status/phase": "Pending", "spec/volumeMode": "Filesystem"},
            ),
            Step("MERGE", f"{claims}/data", body={"spec": {"accessModes": ["ReadWriteMany"]}}, code=422),
            Step("DELETE", f"{claims}/data", has={"kind": "PersistentVolumeClaim"}),
            Step("GET", f"{claims}/data", code=404, within=20),
        ),
        case(
            "storageclass",
            Step(
                "POST",
                "/apis/storage.k8s.io/v1/storageclasses",
                code=201,
                body={"metadata": {"name": "{ns}"}, "provisioner": "x.example.com"},
                has={"reclaimPolicy": "Delete", "volumeBindingMode": "Immediate"},
            ),
            Step(
                "MERGE",
                "/apis/storage.k8s.io/v1/storageclasses/{ns}",
                code=422,
                body={"provisioner": "y.example.com"},
            ),
            Step("DELETE", "/apis/storage.k8s.io/v1/storageclasses/{ns}"),
        ),
    ]
