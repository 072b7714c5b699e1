"""What the API server fills in for built-in kinds, as far as users and controllers notice.

Every function changes the object it is given. Defaults are added on create and update alike, so that a PUT
of a manifest does not lose them; what only a create may set (a pod's priority, phases) is marked.
"""

import base64
from collections.abc import Callable, Mapping
from typing import Any

from karpenter.base.clock import format_time
from karpenter.embedded import errors
from karpenter.embedded.kinds import Kind, KindRegistry
from karpenter.embedded.store import Store

Json = dict[str, Any]
_SYSTEM_PRIORITIES = {"system-node-critical": 2_000_001_000, "system-cluster-critical": 2_000_000_000}
_NOT_READY = "node.kubernetes.io/not-ready"
_UNREACHABLE = "node.kubernetes.io/unreachable"


def apply_defaults(kind: Kind, obj: Json, creating: bool, store: Store, registry: KindRegistry) -> None:
    """Fill in the defaults of one object of a built-in kind, in place."""
    default = _DEFAULTS.get(kind.group_resource)
    if default is not None:
        default(obj, creating, store)
    if kind.group_resource == "pods" and creating:
        _admit_pod(obj, store, registry)


def pod_spec(spec: Json) -> None:
    """Default a pod spec, wherever it stands."""
    spec.setdefault("restartPolicy", "Always")
    spec.setdefault("terminationGracePeriodSeconds", 30)
    spec.setdefault("dnsPolicy", "ClusterFirst")
    spec.setdefault("schedulerName", "default-scheduler")
    spec.setdefault("securityContext", {})
    if spec.get("serviceAccountName"):
        spec.setdefault("serviceAccount", spec["serviceAccountName"])
    elif spec.get("serviceAccount"):
        spec["serviceAccountName"] = spec["serviceAccount"]
    for name in ("containers", "initContainers", "ephemeralContainers"):
        for container in _dicts(spec.get(name)):
            _container(container, bool(spec.get("hostNetwork")))
    for volume in _dicts(spec.get("volumes")):
        _volume(volume)
    for constraint in _dicts(spec.get("topologySpreadConstraints")):
        constraint.setdefault("nodeAffinityPolicy", "Honor")
        constraint.setdefault("nodeTaintsPolicy", "Ignore")


def _container(container: Json, host_network: bool) -> None:
    image = container.get("image")
    if isinstance(image, str) and image:
        tag = image.rsplit("/", 1)[-1].partition("@")[0].partition(":")[2]
        latest = "@" not in image and tag in ("", "latest")
        container.setdefault("imagePullPolicy", "Always" if latest else "IfNotPresent")
    container.setdefault("terminationMessagePath", "/dev/termination-log")
    container.setdefault("terminationMessagePolicy", "File")
    resources = container.setdefault("resources", {})
    limits = resources.get("limits") if isinstance(resources, dict) else None
    if isinstance(limits, dict) and limits:
        requests = resources.setdefault("requests", {})
        for name, amount in limits.items():
            requests.setdefault(name, amount)
    for port in _dicts(container.get("ports")):
        port.setdefault("protocol", "TCP")
        if host_network and "containerPort" in port:
            port.setdefault("hostPort", port["containerPort"])
    for probe_name in ("livenessProbe", "readinessProbe", "startupProbe"):
        probe = container.get(probe_name)
        if isinstance(probe, dict):
            for field, value in _PROBE.items():
                probe.setdefault(field, value)
            for get in _dicts([probe.get("httpGet")]):
                get.setdefault("scheme", "HTTP")
                get.setdefault("path", "/")
    for env in _dicts(container.get("env")):
        source = env.get("valueFrom")
        if isinstance(source, dict) and isinstance(source.get("fieldRef"), dict):
            source["fieldRef"].setdefault("apiVersion", "v1")


_PROBE = {"timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3}


def _volume(volume: Json) -> None:
    sources = volume.keys() - {"name"}
    if not sources:
        volume["emptyDir"] = {}
    for name in ("configMap", "secret", "projected", "downwardAPI"):
        if isinstance(volume.get(name), dict):
            volume[name].setdefault("defaultMode", 420)
    if isinstance(volume.get("hostPath"), dict):
        volume["hostPath"].setdefault("type", "")
    ephemeral = volume.get("ephemeral")
    if isinstance(ephemeral, dict):
        claim = (ephemeral.get("volumeClaimTemplate") or {}).get("spec")
        if isinstance(claim, dict):
            claim.setdefault("volumeMode", "Filesystem")


def qos_class(spec: Mapping[str, Any]) -> str:
    """Return a pod's quality of service: Guaranteed, Burstable or BestEffort."""
    any_set, guaranteed = False, True
    for container in [*_dicts(spec.get("containers")), *_dicts(spec.get("initContainers"))]:
        resources = container.get("resources") or {}
        requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
        for name in ("cpu", "memory"):
            any_set = any_set or name in requests or name in limits
            if name not in limits or requests.get(name, limits[name]) != limits[name]:
                guaranteed = False
    if not any_set:
        return "BestEffort"
    return "Guaranteed" if guaranteed else "Burstable"


_GATED: Json = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "SchedulingGated",
    "message": "Scheduling is blocked due to non-empty scheduling gates",
    "lastProbeTime": None,
}


def _pod(obj: Json, creating: bool, store: Store) -> None:
    spec = obj.setdefault("spec", {})
    if not isinstance(spec, dict):
        return
    pod_spec(spec)
    spec.setdefault("enableServiceLinks", True)
    if creating:
        obj["status"] = {"phase": "Pending", "qosClass": qos_class(spec)}
        if spec.get("schedulingGates"):
            gated = {**_GATED, "lastTransitionTime": obj["metadata"].get("creationTimestamp")}
            obj["status"]["conditions"] = [gated]
    elif spec.get("schedulingGates") == []:
        del spec["schedulingGates"]
    grace = spec.get("terminationGracePeriodSeconds")
    if isinstance(grace, int) and grace < 0:
        spec["terminationGracePeriodSeconds"] = 1


def _admit_pod(obj: Json, store: Store, registry: KindRegistry) -> None:
    """Do what the priority, default-toleration and service-account plugins do to a new pod."""
    spec = obj["spec"]
    if not isinstance(spec, dict):
        return
    spec.setdefault("serviceAccountName", "default")
    spec.setdefault("serviceAccount", spec["serviceAccountName"])
    tolerations = spec.setdefault("tolerations", [])
    for key in (_NOT_READY, _UNREACHABLE):
        if not any(_tolerates_no_execute(toleration, key) for toleration in _dicts(tolerations)):
            tolerations.append(
                {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
            )
    _priority(obj, spec, store, registry)


def _tolerates_no_execute(toleration: Mapping[str, Any], key: str) -> bool:
    wanted_key = toleration.get("key") in (key, None, "")
    return wanted_key and toleration.get("effect") in ("NoExecute", None, "")


def _priority(obj: Json, spec: Json, store: Store, registry: KindRegistry) -> None:
    name = spec.get("priorityClassName")
    if name in _SYSTEM_PRIORITIES:
        spec["priority"] = _SYSTEM_PRIORITIES[name]
        spec.setdefault("preemptionPolicy", "PreemptLowerPriority")
        return
    kind = registry.by_group_resource("priorityclasses.scheduling.k8s.io")
    if name:
        record = store.get(kind, "", name)
        if record is None:
            pod = obj["metadata"].get("name", "")
            raise errors.forbidden("pods", pod, f"no PriorityClass with name {name} was found")
        chosen: Json | None = record.object()
    else:
        defaults = [found.object() for found in store.records(kind.group_resource)]
        defaults = [found for found in defaults if found.get("globalDefault")]
        chosen = min(defaults, key=lambda found: found.get("value", 0), default=None)
        if chosen is not None:
            spec["priorityClassName"] = chosen["metadata"]["name"]
    value = chosen.get("value", 0) if chosen else 0
    given = spec.get("priority")
    if given is not None and given != value:
        why = f"priority {given} must not be given in the pod spec; its PriorityClass says {value}"
        raise errors.forbidden("pods", obj["metadata"].get("name", ""), why)
    spec["priority"] = value
    policy = (chosen or {}).get("preemptionPolicy", "PreemptLowerPriority")
    spec.setdefault("preemptionPolicy", policy)


def _template(obj: Json) -> Json:
    """Default an object's pod template; return its spec."""
    spec = obj.setdefault("spec", {})
    if not isinstance(spec, dict):
        return {}
    template = spec.get("template")
    if isinstance(template, dict):
        template.setdefault("metadata", {})
        inner = template.setdefault("spec", {})
        if isinstance(inner, dict):
            pod_spec(inner)
    return spec


def _deployment(obj: Json, creating: bool, store: Store) -> None:
    spec = _template(obj)
    spec.setdefault("replicas", 1)
    strategy = spec.setdefault("strategy", {})
    if isinstance(strategy, dict) and strategy.setdefault("type", "RollingUpdate") == "RollingUpdate":
        rolling = strategy.setdefault("rollingUpdate", {})
        rolling.setdefault("maxUnavailable", "25%")
        rolling.setdefault("maxSurge", "25%")
    spec.setdefault("revisionHistoryLimit", 10)
    spec.setdefault("progressDeadlineSeconds", 600)
    _empty_status(obj)


def _replica_set(obj: Json, creating: bool, store: Store) -> None:
    spec = _template(obj)
    spec.setdefault("replicas", 1)
    if "selector" not in spec and isinstance(spec.get("template"), dict):
        labels = spec["template"].get("metadata", {}).get("labels")
        if labels and obj["kind"] == "ReplicationController":
            spec["selector"] = dict(labels)
    _empty_status(obj)
    obj["status"].setdefault("replicas", 0)


def _stateful_set(obj: Json, creating: bool, store: Store) -> None:
    spec = _template(obj)
    spec.setdefault("replicas", 1)
    spec.setdefault("podManagementPolicy", "OrderedReady")
    spec.setdefault("revisionHistoryLimit", 10)
    strategy = spec.setdefault("updateStrategy", {})
    if strategy.setdefault("type", "RollingUpdate") == "RollingUpdate":
        strategy.setdefault("rollingUpdate", {}).setdefault("partition", 0)
    spec.setdefault("persistentVolumeClaimRetentionPolicy", {"whenDeleted": "Retain", "whenScaled": "Retain"})
    for claim in _dicts(spec.get("volumeClaimTemplates")):
        claim.setdefault("apiVersion", "v1")
        claim.setdefault("kind", "PersistentVolumeClaim")
        claim.setdefault("spec", {}).setdefault("volumeMode", "Filesystem")
        claim["status"] = {"phase": "Pending"}
    _empty_status(obj)
    obj["status"].setdefault("replicas", 0)
    obj["status"].setdefault("availableReplicas", 0)


def _daemon_set(obj: Json, creating: bool, store: Store) -> None:
    spec = _template(obj)
    spec.setdefault("revisionHistoryLimit", 10)
    strategy = spec.setdefault("updateStrategy", {})
    if strategy.setdefault("type", "RollingUpdate") == "RollingUpdate":
        rolling = strategy.setdefault("rollingUpdate", {})
        rolling.setdefault("maxUnavailable", 1)
        rolling.setdefault("maxSurge", 0)
    _empty_status(obj)
    for field in ("currentNumberScheduled", "desiredNumberScheduled", "numberMisscheduled", "numberReady"):
        obj["status"].setdefault(field, 0)


def _job(obj: Json, creating: bool, store: Store) -> None:
    _job_spec(_template(obj))
    if creating:
        spec, uid = obj["spec"], obj["metadata"].get("uid", "")
        if "selector" not in spec and not spec.get("manualSelector") and uid:
            labels = {"batch.kubernetes.io/controller-uid": uid}
            spec["selector"] = {"matchLabels": labels}
            meta = spec.setdefault("template", {}).setdefault("metadata", {})
            name = obj["metadata"].get("name", "")
            names = {"batch.kubernetes.io/job-name": name, "controller-uid": uid, "job-name": name}
            meta["labels"] = {**(meta.get("labels") or {}), **labels, **names}
    _empty_status(obj)


def _job_spec(spec: Json) -> None:
    if "completions" not in spec and "parallelism" not in spec:
        spec["completions"] = spec["parallelism"] = 1
    spec.setdefault("parallelism", 1)
    if "backoffLimitPerIndex" not in spec:
        spec.setdefault("backoffLimit", 6)
    spec.setdefault("completionMode", "NonIndexed")
    spec.setdefault("suspend", False)
    spec.setdefault("manualSelector", False)
    spec.setdefault("podReplacementPolicy", "Failed" if "podFailurePolicy" in spec else "TerminatingOrFailed")


def _cron_job(obj: Json, creating: bool, store: Store) -> None:
    spec = obj.setdefault("spec", {})
    if not isinstance(spec, dict):
        return
    spec.setdefault("concurrencyPolicy", "Allow")
    spec.setdefault("suspend", False)
    spec.setdefault("successfulJobsHistoryLimit", 3)
    spec.setdefault("failedJobsHistoryLimit", 1)
    template = spec.get("jobTemplate")
    if isinstance(template, dict):
        inner = template.setdefault("spec", {}).get("template")
        if isinstance(inner, dict) and isinstance(inner.setdefault("spec", {}), dict):
            pod_spec(inner["spec"])
    _empty_status(obj)


def _namespace(obj: Json, creating: bool, store: Store) -> None:
    meta = obj["metadata"]
    labels = dict(meta.get("labels") or {})
    labels["kubernetes.io/metadata.name"] = meta.get("name", "")
    meta["labels"] = labels
    if creating:
        obj.setdefault("spec", {})["finalizers"] = ["kubernetes"]
        obj["status"] = {"phase": "Active"}


def _service(obj: Json, creating: bool, store: Store) -> None:
    spec = obj.setdefault("spec", {})
    spec.setdefault("sessionAffinity", "None")
    kind = spec.setdefault("type", "ClusterIP")
    for port in _dicts(spec.get("ports")):
        port.setdefault("protocol", "TCP")
        port.setdefault("targetPort", port.get("port"))
    if kind != "ExternalName":
        spec.setdefault("internalTrafficPolicy", "Cluster")
        if creating and "clusterIP" not in spec:
            number = store.revision % 65_000
            spec["clusterIP"] = f"10.96.{number // 250}.{number % 250 + 1}"
        if "clusterIP" in spec:
            spec.setdefault("clusterIPs", [spec["clusterIP"]])
        spec.setdefault("ipFamilies", ["IPv4"])
        spec.setdefault("ipFamilyPolicy", "SingleStack")
    obj.setdefault("status", {"loadBalancer": {}})


def _claim(obj: Json, creating: bool, store: Store) -> None:
    spec = obj.setdefault("spec", {})
    spec.setdefault("volumeMode", "Filesystem")
    if creating:
        obj["status"] = {"phase": "Pending"}
        if "storageClassName" not in spec:
            default = _default_storage_class(store)
            if default:
                spec["storageClassName"] = default


def _default_storage_class(store: Store) -> str:
    """Return the newest class marked as default, "" when there is none."""
    marked = []
    for record in store.records("storageclasses.storage.k8s.io"):
        meta = record.object()["metadata"]
        if (meta.get("annotations") or {}).get("storageclass.kubernetes.io/is-default-class") == "true":
            marked.append((meta.get("creationTimestamp", ""), meta["name"]))
    return max(marked)[1] if marked else ""


def _volume_object(obj: Json, creating: bool, store: Store) -> None:
    spec = obj.setdefault("spec", {})
    spec.setdefault("volumeMode", "Filesystem")
    spec.setdefault("persistentVolumeReclaimPolicy", "Retain")
    if creating:
        obj["status"] = {"phase": "Pending"}


def _storage_class(obj: Json, creating: bool, store: Store) -> None:
    obj.setdefault("reclaimPolicy", "Delete")
    obj.setdefault("volumeBindingMode", "Immediate")


def _budget(obj: Json, creating: bool, store: Store) -> None:
    _empty_status(obj)
    if creating:
        zeros = ("currentHealthy", "desiredHealthy", "disruptionsAllowed", "expectedPods")
        obj["status"] = dict.fromkeys(zeros, 0)


def _node(obj: Json, creating: bool, store: Store) -> None:
    obj.setdefault("spec", {})
    status = obj.setdefault("status", {})
    if isinstance(status, dict) and "allocatable" not in status and "capacity" in status:
        status["allocatable"] = status["capacity"]


def _secret(obj: Json, creating: bool, store: Store) -> None:
    obj.setdefault("type", "Opaque")
    plain = obj.pop("stringData", None)
    if isinstance(plain, dict):
        encoded = {name: base64.b64encode(str(text).encode()).decode() for name, text in plain.items()}
        obj["data"] = {**(obj.get("data") or {}), **encoded}


def _priority_class(obj: Json, creating: bool, store: Store) -> None:
    obj.setdefault("value", 0)
    obj.setdefault("preemptionPolicy", "PreemptLowerPriority")


def _definition(obj: Json, creating: bool, store: Store) -> None:
    spec = obj.get("spec") or {}
    names = spec.get("names") or {}
    names.setdefault("singular", str(names.get("kind", "")).lower())
    names.setdefault("listKind", f"{names.get('kind', '')}List")
    spec.setdefault("conversion", {"strategy": "None"})
    stored = [version["name"] for version in _dicts(spec.get("versions")) if version.get("storage")]
    if creating:
        now = format_time(store.clock.now())
        obj["status"] = {
            "acceptedNames": dict(names),
            "storedVersions": stored,
            "conditions": [
                {
                    "type": type,
                    "status": "True",
                    "reason": reason,
                    "message": message,
                    "lastTransitionTime": now,
                }
                for type, reason, message in (
                    ("NamesAccepted", "NoConflicts", "no conflicts found"),
                    ("Established", "InitialNamesAccepted", "the initial names have been accepted"),
                )
            ],
        }


def _event(obj: Json, creating: bool, store: Store) -> None:
    if not obj.get("type"):
        obj["type"] = "Normal"


def _empty_status(obj: Json) -> None:
    obj.setdefault("status", {})


def _dicts(items: Any) -> list[Json]:
    return [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []


_DEFAULTS: Mapping[str, Callable[[Json, bool, Store], None]] = {
    "pods": _pod,
    "namespaces": _namespace,
    "nodes": _node,
    "services": _service,
    "secrets": _secret,
    "events": _event,
    "persistentvolumes": _volume_object,
    "persistentvolumeclaims": _claim,
    "replicationcontrollers": _replica_set,
    "deployments.apps": _deployment,
    "replicasets.apps": _replica_set,
    "statefulsets.apps": _stateful_set,
    "daemonsets.apps": _daemon_set,
    "jobs.batch": _job,
    "cronjobs.batch": _cron_job,
    "poddisruptionbudgets.policy": _budget,
    "storageclasses.storage.k8s.io": _storage_class,
    "priorityclasses.scheduling.k8s.io": _priority_class,
    "customresourcedefinitions.apiextensions.k8s.io": _definition,
}
