"""Which changes an object of a built-in kind may undergo: what is fixed, and what moves one way only."""

from collections.abc import Mapping
from typing import Any

from karpenter.embedded.errors import Cause
from karpenter.embedded.kinds import Kind
from karpenter.embedded.validity import dicts, rule_causes, standard_finalizer_causes


def causes_of_update(
    kind: Kind, obj: Mapping[str, Any], old: Mapping[str, Any], subresource: str
) -> list[Cause]:
    """Return what is wrong with a change of an object of a built-in kind."""
    causes = _finalizer_causes(obj, old)
    if subresource == "status":
        return causes + (_nomination_causes(obj, old) if kind.group_resource == "pods" else [])
    if obj["metadata"].get("finalizers") != old["metadata"].get("finalizers"):
        causes += standard_finalizer_causes(obj["metadata"])
    if obj.get("spec") != old.get("spec"):
        causes += rule_causes(kind, obj)
    if old.get("immutable") is True:
        causes += [
            Cause(name, "Forbidden: field is immutable when `immutable` is set", "FieldValueForbidden")
            for name in ("immutable", "data", "binaryData")
            if obj.get(name) != old.get(name)
        ]
    if kind.group_resource == "pods" and subresource == "":
        causes += _pod_update_causes(obj, old)
        causes += _pod_narrowing_causes(obj.get("spec") or {}, old.get("spec") or {})
    if kind.group_resource == "jobs.batch":
        causes += _job_update_causes(obj, old)
    for path in _IMMUTABLE.get(kind.group_resource, ()):
        before, after = _dig(old, path), _dig(obj, path)
        if before is not None and before != after:
            causes.append(Cause(path, f"Invalid value: {after!r}: field is immutable"))
    return causes


def _finalizer_causes(obj: Mapping[str, Any], old: Mapping[str, Any]) -> list[Cause]:
    if "deletionTimestamp" not in old["metadata"]:
        return []
    before = set(old["metadata"].get("finalizers") or [])
    added = [name for name in obj["metadata"].get("finalizers") or [] if name not in before]
    if not added:
        return []
    message = (
        "Forbidden: no new finalizers can be added if the object is being deleted, "
        f"found new finalizers {added}"
    )
    return [Cause("metadata.finalizers", message, "FieldValueForbidden")]


def _nomination_causes(obj: Mapping[str, Any], old: Mapping[str, Any]) -> list[Cause]:
    """Return what is wrong with the node a pod is expected on: bound pods are expected nowhere."""
    name = (obj.get("status") or {}).get("nominatedNodeName")
    if (
        not name
        or name == (old.get("status") or {}).get("nominatedNodeName")
        or not _dig(obj, "spec.nodeName")
    ):
        return []
    message = "Forbidden: may not be set on pods that already have been assigned to a node"
    return [Cause("status.nominatedNodeName", message, "FieldValueForbidden")]


_IMMUTABLE: Mapping[str, tuple[str, ...]] = {
    "deployments.apps": ("spec.selector",),
    "replicasets.apps": ("spec.selector",),
    "daemonsets.apps": ("spec.selector",),
    "statefulsets.apps": ("spec.selector", "spec.serviceName", "spec.podManagementPolicy"),
    "jobs.batch": ("spec.selector", "spec.template", "spec.completionMode"),
    "storageclasses.storage.k8s.io": ("provisioner", "parameters", "reclaimPolicy", "volumeBindingMode"),
    "priorityclasses.scheduling.k8s.io": ("value", "preemptionPolicy"),
    "nodes": ("spec.providerID",),
    "persistentvolumeclaims": ("spec.storageClassName", "spec.accessModes", "spec.volumeName"),
    "resourceclaims.resource.k8s.io": ("spec",),
    "rolebindings.rbac.authorization.k8s.io": ("roleRef",),
    "clusterrolebindings.rbac.authorization.k8s.io": ("roleRef",),
    "customresourcedefinitions.apiextensions.k8s.io": ("spec.group", "spec.scope", "spec.names.plural"),
}
_POD_MUTABLE = ("activeDeadlineSeconds", "tolerations", "terminationGracePeriodSeconds", "schedulingGates")


def _pod_update_causes(obj: Mapping[str, Any], old: Mapping[str, Any]) -> list[Cause]:
    """A pod's spec is fixed but for images, a few numbers, and what a scheduling gate still holds back."""
    before, after = _fixed_pod_spec(old), _fixed_pod_spec(obj)
    gated = bool((old.get("spec") or {}).get("schedulingGates"))
    if gated:
        for name in ("nodeSelector", "affinity"):
            before.pop(name, None)
            after.pop(name, None)
    if before == after:
        return []
    changed = sorted(k for k in before.keys() | after.keys() if before.get(k) != after.get(k))
    message = (
        "Forbidden: pod updates may not change fields other than `spec.containers[*].image`, "
        "`spec.initContainers[*].image`, `spec.activeDeadlineSeconds`, `spec.tolerations` or "
        f"`spec.terminationGracePeriodSeconds`; changed: {', '.join(changed)}"
    )
    return [Cause("spec", message, "FieldValueForbidden")]


def _pod_narrowing_causes(spec: Mapping[str, Any], old: Mapping[str, Any]) -> list[Cause]:
    """Some of a pod's fields move one way only: deadlines shrink, gates open, tolerations grow."""
    causes = []
    before, after = old.get("activeDeadlineSeconds"), spec.get("activeDeadlineSeconds")
    if before is not None and (after is None or after > before):
        message = f"Invalid value: {after!r}: must be less than or equal to previous value"
        causes.append(Cause("spec.activeDeadlineSeconds", message))
    gates = [gate.get("name") for gate in dicts(old.get("schedulingGates"))]
    added = [gate.get("name") for gate in dicts(spec.get("schedulingGates")) if gate.get("name") not in gates]
    if added:
        message = f"Forbidden: only deletion is allowed, but found new scheduling gates {added}"
        causes.append(Cause("spec.schedulingGates", message, "FieldValueForbidden"))
    kept = dicts(spec.get("tolerations"))
    if any(_lost(toleration, kept) for toleration in dicts(old.get("tolerations"))):
        message = "Forbidden: existing toleration can not be modified except its tolerationSeconds"
        causes.append(Cause("spec.tolerations", message, "FieldValueForbidden"))
    return causes


def _lost(toleration: Mapping[str, Any], kept: list[dict[str, Any]]) -> bool:
    def said(one: Mapping[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in one.items() if name != "tolerationSeconds"}

    return all(said(toleration) != said(other) for other in kept)


def _job_update_causes(obj: Mapping[str, Any], old: Mapping[str, Any]) -> list[Cause]:
    """Completions are fixed, except that an Indexed job may be resized together with its parallelism."""
    spec, before = obj.get("spec") or {}, old.get("spec") or {}
    if spec.get("completions") == before.get("completions"):
        return []
    if before.get("completionMode") == "Indexed" and spec.get("completions") == spec.get("parallelism"):
        return []
    message = f"Invalid value: {spec.get('completions')!r}: field is immutable"
    return [Cause("spec.completions", message)]


def _fixed_pod_spec(pod: Mapping[str, Any]) -> dict[str, Any]:
    spec = {name: value for name, value in (pod.get("spec") or {}).items() if name not in _POD_MUTABLE}
    for name in ("containers", "initContainers"):
        if name in spec:
            spec[name] = [{k: v for k, v in c.items() if k != "image"} for c in dicts(spec[name])]
    return spec


def _dig(obj: Mapping[str, Any], path: str) -> Any:
    value: Any = obj
    for name in path.split("."):
        value = value.get(name) if isinstance(value, Mapping) else None
    return value
