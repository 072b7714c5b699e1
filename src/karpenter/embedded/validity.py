"""What makes an object of a built-in kind acceptable: names, labels, quantities, selectors, immutability.

Each check returns causes (field and message) instead of raising, so that one answer names all problems.
Not a copy of Kubernetes' validation: the mistakes people make, and the changes that must not happen.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from karpenter.base.cron import parse_cron
from karpenter.base.quantity import parse_quantity
from karpenter.embedded.errors import Cause
from karpenter.embedded.kinds import RBAC, Kind
from karpenter.embedded.podreferences import affinity_causes, mount_causes

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_QUALIFIED = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
_SUBDOMAIN_TEXT = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', "
    "and must start and end with an alphanumeric character"
)
_LABEL_TEXT = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', "
    "and must start and end with an alphanumeric character"
)
_LABEL_NAMED = frozenset({"namespaces", "services"})
_STANDARD_FINALIZERS = frozenset({"kubernetes", "orphan", "foregroundDeletion"})
ANNOTATIONS_LIMIT_BYTES = 256 * 1024


def subdomain_problem(name: str) -> str:
    """Return what is wrong with a DNS subdomain, "" when nothing is."""
    if len(name) > 253:
        return "must be no more than 253 bytes"
    return "" if _SUBDOMAIN.fullmatch(name) else _SUBDOMAIN_TEXT


def label_name_problem(name: str) -> str:
    """Return what is wrong with a DNS label, "" when nothing is."""
    if len(name) > 63:
        return "must be no more than 63 bytes"
    return "" if _LABEL.fullmatch(name) else _LABEL_TEXT


def path_segment_problem(name: str) -> str:
    """Return what is wrong with a name that only must fit into a path, "" when nothing is."""
    if name in (".", "..") or "/" in name or "%" in name:
        return "may not be '.' or '..' nor contain '/' or '%'"
    return ""


def name_rule(kind: Kind) -> Callable[[str], str]:
    """Return the rule that names of a kind obey."""
    if kind.group == RBAC:
        return path_segment_problem
    return label_name_problem if kind.group_resource in _LABEL_NAMED else subdomain_problem


def meta_causes(meta: Mapping[str, Any]) -> list[Cause]:
    """Return what is wrong with an object's labels, annotations, finalizers and owners."""
    causes: list[Cause] = []
    labels = meta.get("labels")
    if labels:
        causes += label_causes(labels, "metadata.labels")
    annotations = meta.get("annotations")
    if annotations:
        causes += _annotation_causes(annotations)
    for name in ("finalizers", "ownerReferences"):
        if not isinstance(meta.get(name) or [], list):
            causes.append(Cause(f"metadata.{name}", "Invalid value: must be a list", "FieldValueTypeInvalid"))
    for index, owner in enumerate(dicts(meta.get("ownerReferences"))):
        for field in ("apiVersion", "kind", "name", "uid"):
            if not owner.get(field):
                where = f"metadata.ownerReferences[{index}].{field}"
                causes.append(Cause(where, "Required value: must not be empty", "FieldValueRequired"))
    return causes


def label_causes(labels: Any, where: str) -> list[Cause]:
    """Return what is wrong with a label map."""
    if not isinstance(labels, dict):
        return [Cause(where, "Invalid value: must be a map of strings", "FieldValueTypeInvalid")]
    causes = []
    for key, value in labels.items():
        if problem := qualified_name_problem(key):
            causes.append(Cause(where, f'Invalid value: "{key}": {problem}'))
        if not isinstance(value, str):
            message = f"Invalid value: {value!r}: label {key} must be a string (quote it)"
            causes.append(Cause(where, message, "FieldValueTypeInvalid"))
        elif value and (len(value) > 63 or not _QUALIFIED.fullmatch(value)):
            rule = (
                "a valid label must be empty or consist of alphanumeric characters, '-', '_' or '.', "
                "start and end with an alphanumeric character, and have at most 63 characters"
            )
            causes.append(Cause(where, f'Invalid value: "{value}": {rule}'))
    return causes


def qualified_name_problem(key: str) -> str:
    """Return what is wrong with a label or annotation key, "" when nothing is."""
    prefix, slash, name = key.rpartition("/")
    if slash and (not prefix or subdomain_problem(prefix)):
        return f"prefix part {_SUBDOMAIN_TEXT}"
    if not name or len(name) > 63 or not _QUALIFIED.fullmatch(name):
        return (
            "name part must consist of alphanumeric characters, '-', '_' or '.', start and end with an "
            "alphanumeric character, and have 1 to 63 characters"
        )
    return ""


def _annotation_causes(annotations: Any) -> list[Cause]:
    where = "metadata.annotations"
    if not isinstance(annotations, dict):
        return [Cause(where, "Invalid value: must be a map of strings", "FieldValueTypeInvalid")]
    causes, size = [], 0
    for key, value in annotations.items():
        if problem := qualified_name_problem(key.lower()):
            causes.append(Cause(where, f'Invalid value: "{key}": {problem}'))
        if not isinstance(value, str):
            message = f"Invalid value: {value!r}: annotation {key} must be a string (quote it)"
            causes.append(Cause(where, message, "FieldValueTypeInvalid"))
        else:
            size += len(key) + len(value)
    if size > ANNOTATIONS_LIMIT_BYTES:
        causes.append(
            Cause(
                where, f"Too long: may not be more than {ANNOTATIONS_LIMIT_BYTES} bytes", "FieldValueTooLong"
            )
        )
    return causes


def causes_of_create(kind: Kind, obj: Mapping[str, Any]) -> list[Cause]:
    """Return what is wrong with a new object of a built-in kind."""
    return standard_finalizer_causes(obj["metadata"]) + rule_causes(kind, obj)


def rule_causes(kind: Kind, obj: Mapping[str, Any]) -> list[Cause]:
    """Return what is wrong with an object of a built-in kind, new or old, by its kind's own rules."""
    check = _CHECKS.get(kind.group_resource)
    return check(obj) if check else []


def standard_finalizer_causes(meta: Mapping[str, Any]) -> list[Cause]:
    """Return which finalizers are neither Kubernetes' own words nor names with a domain."""
    message = "Invalid value: {!r}: name is neither a standard finalizer name nor is it fully qualified"
    return [
        Cause("metadata.finalizers", message.format(name))
        for name in meta.get("finalizers") or []
        if name not in _STANDARD_FINALIZERS and "/" not in str(name)
    ]


def _pod(obj: Mapping[str, Any]) -> list[Cause]:
    return pod_spec_causes(obj.get("spec"), "spec", template=False)


def pod_spec_causes(spec: Any, where: str, *, template: bool = True) -> list[Cause]:
    """Return what is wrong with a pod spec."""
    if not isinstance(spec, dict):
        return [Cause(where, "Required value: must be an object", "FieldValueRequired")]
    causes: list[Cause] = []
    containers = dicts(spec.get("containers"))
    if not containers:
        causes.append(Cause(f"{where}.containers", "Required value", "FieldValueRequired"))
    seen: set[str] = set()
    for list_name in ("initContainers", "containers"):
        for index, container in enumerate(dicts(spec.get(list_name))):
            at = f"{where}.{list_name}[{index}]"
            causes += _container_causes(container, at, seen)
            if not template:  # a claim template of the owner may yet provide the volume
                causes += mount_causes(spec, container, at)
    if spec.get("restartPolicy") not in ("Always", "OnFailure", "Never"):
        causes.append(
            unsupported(f"{where}.restartPolicy", spec.get("restartPolicy"), ("Always", "OnFailure", "Never"))
        )
    for index, toleration in enumerate(dicts(spec.get("tolerations"))):
        causes += _toleration_causes(toleration, f"{where}.tolerations[{index}]")
    for index, constraint in enumerate(dicts(spec.get("topologySpreadConstraints"))):
        at = f"{where}.topologySpreadConstraints[{index}]"
        if not isinstance(constraint.get("maxSkew"), int) or constraint["maxSkew"] < 1:
            causes.append(
                Cause(
                    f"{at}.maxSkew",
                    f"Invalid value: {constraint.get('maxSkew')!r}: must be greater than zero",
                )
            )
        if not constraint.get("topologyKey"):
            causes.append(
                Cause(f"{at}.topologyKey", "Required value: can not be empty", "FieldValueRequired")
            )
        if constraint.get("whenUnsatisfiable") not in ("DoNotSchedule", "ScheduleAnyway"):
            supported = ("DoNotSchedule", "ScheduleAnyway")
            causes.append(
                unsupported(f"{at}.whenUnsatisfiable", constraint.get("whenUnsatisfiable"), supported)
            )
    causes += affinity_causes(spec.get("affinity"), f"{where}.affinity")
    if spec.get("nodeSelector"):
        causes += label_causes(spec["nodeSelector"], f"{where}.nodeSelector")
    return causes


def _container_causes(container: Mapping[str, Any], where: str, seen: set[str]) -> list[Cause]:
    causes = []
    name = container.get("name")
    if not name:
        causes.append(Cause(f"{where}.name", "Required value", "FieldValueRequired"))
    elif problem := label_name_problem(str(name)):
        causes.append(Cause(f"{where}.name", f'Invalid value: "{name}": {problem}'))
    elif name in seen:
        causes.append(Cause(f"{where}.name", f'Duplicate value: "{name}"', "FieldValueDuplicate"))
    seen.add(str(name))
    if not container.get("image"):
        causes.append(Cause(f"{where}.image", "Required value", "FieldValueRequired"))
    resources = container.get("resources") or {}
    for part in ("requests", "limits"):
        causes += quantity_causes(resources.get(part) or {}, f"{where}.resources.{part}")
    if not causes:
        limits = resources.get("limits") or {}
        for resource, amount in (resources.get("requests") or {}).items():
            if resource in limits and parse_quantity(str(amount)) > parse_quantity(str(limits[resource])):
                limit = f"must be less than or equal to {resource} limit of {limits[resource]}"
                message = f'Invalid value: "{amount}": {limit}'
                causes.append(Cause(f"{where}.resources.requests", message))
    return causes


def quantity_causes(amounts: Any, where: str) -> list[Cause]:
    """Return what is wrong with a resource list."""
    if not isinstance(amounts, dict):
        return [Cause(where, "Invalid value: must be a map of quantities", "FieldValueTypeInvalid")]
    causes = []
    for resource, amount in amounts.items():
        try:
            if parse_quantity(str(amount)) < 0:
                message = f'Invalid value: "{amount}": must be greater than or equal to 0'
                causes.append(Cause(f"{where}[{resource}]", message))
        except ValueError as error:
            causes.append(Cause(f"{where}[{resource}]", f'Invalid value: "{amount}": {error}'))
    return causes


def _toleration_causes(toleration: Mapping[str, Any], where: str) -> list[Cause]:
    causes = []
    operator, effect = toleration.get("operator") or "Equal", toleration.get("effect") or ""
    if operator not in ("Equal", "Exists", "Lt", "Gt"):
        causes.append(unsupported(f"{where}.operator", operator, ("Equal", "Exists")))
    if operator == "Exists" and toleration.get("value"):
        causes.append(
            Cause(
                f"{where}.value",
                f'Invalid value: "{toleration["value"]}": must be empty when `operator` is Exists',
            )
        )
    if not toleration.get("key") and operator != "Exists":
        causes.append(
            Cause(f"{where}.operator", f'Invalid value: "{operator}": must be Exists when `key` is empty')
        )
    if effect not in ("", "NoSchedule", "PreferNoSchedule", "NoExecute"):
        causes.append(unsupported(f"{where}.effect", effect, ("NoSchedule", "PreferNoSchedule", "NoExecute")))
    return causes


def _workload(obj: Mapping[str, Any]) -> list[Cause]:
    """Deployments and their like: a selector that matches the template, and a sound template."""
    spec = obj.get("spec") or {}
    causes = _replica_causes(spec)
    template = spec.get("template")
    if not isinstance(template, dict):
        return [*causes, Cause("spec.template", "Required value", "FieldValueRequired")]
    labels = (template.get("metadata") or {}).get("labels") or {}
    causes += label_causes(labels, "spec.template.metadata.labels")
    selector = spec.get("selector")
    if obj.get("kind") == "ReplicationController":
        wanted = selector if isinstance(selector, dict) else {}
    elif not isinstance(selector, dict) or not (
        selector.get("matchLabels") or selector.get("matchExpressions")
    ):
        causes.append(Cause("spec.selector", "Required value", "FieldValueRequired"))
        wanted = {}
    else:
        wanted = selector.get("matchLabels") or {}
    if any(labels.get(key) != value for key, value in wanted.items()):
        message = f"Invalid value: {labels!r}: `selector` does not match template `labels`"
        causes.append(Cause("spec.template.metadata.labels", message))
    causes += pod_spec_causes(template.get("spec"), "spec.template.spec")
    policy = (template.get("spec") or {}).get("restartPolicy")
    if policy in ("OnFailure", "Never"):
        causes.append(unsupported("spec.template.spec.restartPolicy", policy, ("Always",)))
    return causes


def _replica_causes(spec: Mapping[str, Any]) -> list[Cause]:
    replicas = spec.get("replicas", 0)
    if not isinstance(replicas, int) or isinstance(replicas, bool) or replicas < 0:
        return [Cause("spec.replicas", f"Invalid value: {replicas!r}: must be an integer, zero or more")]
    return []


def _job(obj: Mapping[str, Any]) -> list[Cause]:
    template = (obj.get("spec") or {}).get("template")
    if not isinstance(template, dict):
        return [Cause("spec.template", "Required value", "FieldValueRequired")]
    causes = pod_spec_causes(template.get("spec"), "spec.template.spec")
    policy = (template.get("spec") or {}).get("restartPolicy")
    if policy == "Always":
        causes.append(unsupported("spec.template.spec.restartPolicy", policy, ("OnFailure", "Never")))
    return causes


def _cron_job(obj: Mapping[str, Any]) -> list[Cause]:
    spec = obj.get("spec") or {}
    causes = []
    try:
        parse_cron(str(spec.get("schedule", "")))
    except ValueError as error:
        causes.append(Cause("spec.schedule", f"Invalid value: {spec.get('schedule')!r}: {error}"))
    policies = ("Allow", "Forbid", "Replace")
    if spec.get("concurrencyPolicy") not in policies:
        causes.append(unsupported("spec.concurrencyPolicy", spec.get("concurrencyPolicy"), policies))
    of_job = _job(spec.get("jobTemplate") or {})
    return [*causes, *(Cause(f"spec.jobTemplate.{c.field}", c.message, c.reason) for c in of_job)]


def _node(obj: Mapping[str, Any]) -> list[Cause]:
    causes: list[Cause] = []
    seen: set[tuple[Any, Any]] = set()
    for index, taint in enumerate(dicts((obj.get("spec") or {}).get("taints"))):
        where = f"spec.taints[{index}]"
        effect = taint.get("effect")
        if effect not in ("NoSchedule", "PreferNoSchedule", "NoExecute"):
            causes.append(
                unsupported(f"{where}.effect", effect, ("NoSchedule", "PreferNoSchedule", "NoExecute"))
            )
        if problem := qualified_name_problem(str(taint.get("key", ""))):
            causes.append(Cause(f"{where}.key", f'Invalid value: "{taint.get("key", "")}": {problem}'))
        if (taint.get("key"), effect) in seen:
            causes.append(Cause(where, f"Duplicate value: {taint!r}", "FieldValueDuplicate"))
        seen.add((taint.get("key"), effect))
    return causes


def _budget(obj: Mapping[str, Any]) -> list[Cause]:
    spec = obj.get("spec") or {}
    if spec.get("minAvailable") is not None and spec.get("maxUnavailable") is not None:
        return [Cause("spec", "Invalid value: minAvailable and maxUnavailable cannot be both set")]
    causes = []
    for name in ("minAvailable", "maxUnavailable"):
        value = spec.get(name)
        percent = isinstance(value, str) and re.fullmatch(r"\d{1,3}%", value) and int(value[:-1]) <= 100
        number = isinstance(value, int) and not isinstance(value, bool) and value >= 0
        if value is not None and not percent and not number:
            message = (
                f"Invalid value: {value!r}: must be an integer, zero or more, or a percentage up to 100%"
            )
            causes.append(Cause(f"spec.{name}", message))
    return causes


def _claim(obj: Mapping[str, Any]) -> list[Cause]:
    spec = obj.get("spec") or {}
    causes = []
    if not spec.get("accessModes"):
        causes.append(
            Cause(
                "spec.accessModes", "Required value: at least 1 access mode is required", "FieldValueRequired"
            )
        )
    requests = (spec.get("resources") or {}).get("requests") or {}
    if "storage" not in requests:
        causes.append(Cause("spec.resources[storage]", "Required value", "FieldValueRequired"))
    return causes + quantity_causes(requests, "spec.resources.requests")


def _definition(obj: Mapping[str, Any]) -> list[Cause]:
    spec = obj.get("spec") or {}
    names = spec.get("names") or {}
    causes = [
        Cause(f"spec.{field}", "Required value", "FieldValueRequired")
        for field, value in (
            ("group", spec.get("group")),
            ("names.plural", names.get("plural")),
            ("names.kind", names.get("kind")),
        )
        if not value
    ]
    wanted = f"{names.get('plural')}.{spec.get('group')}"
    if not causes and obj["metadata"].get("name") != wanted:
        causes.append(
            Cause(
                "metadata.name",
                f'Invalid value: "{obj["metadata"].get("name")}": must be "{wanted}" (plural and group)',
            )
        )
    stored = [version for version in dicts(spec.get("versions")) if version.get("storage")]
    if len(stored) != 1:
        causes.append(
            Cause("spec.versions", "Invalid value: must have exactly one version marked as storage version")
        )
    return causes


def _storage_class(obj: Mapping[str, Any]) -> list[Cause]:
    if obj.get("provisioner"):
        return []
    return [Cause("provisioner", "Required value", "FieldValueRequired")]


def unsupported(field: str, value: Any, supported: Iterable[str]) -> Cause:
    """Return that a field holds none of the values it may."""
    listing = ", ".join(f'"{name}"' for name in supported)
    return Cause(
        field, f'Unsupported value: "{value}": supported values: {listing}', "FieldValueNotSupported"
    )


def dicts(items: Any) -> list[dict[str, Any]]:
    """Return those of `items` that are objects."""
    return [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []


_CHECKS: Mapping[str, Callable[[Mapping[str, Any]], list[Cause]]] = {
    "pods": _pod,
    "nodes": _node,
    "persistentvolumeclaims": _claim,
    "replicationcontrollers": _workload,
    "deployments.apps": _workload,
    "replicasets.apps": _workload,
    "statefulsets.apps": _workload,
    "daemonsets.apps": _workload,
    "jobs.batch": _job,
    "cronjobs.batch": _cron_job,
    "poddisruptionbudgets.policy": _budget,
    "storageclasses.storage.k8s.io": _storage_class,
    "customresourcedefinitions.apiextensions.k8s.io": _definition,
}
