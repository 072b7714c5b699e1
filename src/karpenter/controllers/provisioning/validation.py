"""Which waiting pods we can do something for: selectors that make sense, volumes that are in order."""

from collections.abc import Iterator

from karpenter.apis import labels as known
from karpenter.apis.core import PersistentVolumeClaim, Pod
from karpenter.apis.meta import SelectorRequirement
from karpenter.model.requirements import is_restricted
from karpenter.model.snapshot import Snapshot

NOT_OURS = "configured to not run on a Karpenter provisioned node"
"""Why a pod that excludes our nodes is left alone, without an event."""

_OPERATORS = frozenset({"In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Gte", "Lte"})
_NUMERIC = frozenset({"Gt", "Lt", "Gte", "Lte"})
_BIND_COMPLETED = "pv.kubernetes.io/bind-completed"


def pod_error(pod: Pod, snapshot: Snapshot) -> str:
    """Return why no machine is bought for `pod`; empty when nothing is wrong with it."""
    expressions = list(_expressions(pod))
    if any(e.key == known.NODEPOOL and e.operator == "DoesNotExist" for e in expressions):
        return NOT_OURS
    errors = [error for e in expressions if (error := _expression_error(e))]
    affinity = pod.spec.affinity.node_affinity if pod.spec.affinity else None
    if affinity is not None and affinity.required is not None:
        terms = affinity.required.node_selector_terms
        if any(term.match_fields for term in terms):
            errors.append("node selector term with matchFields is not supported")
    errors.extend(error for name in _volume_claims(pod) if (error := _volume_error(pod, name, snapshot)))
    return "; ".join(errors)


def _expressions(pod: Pod) -> Iterator[SelectorRequirement]:
    for key, value in sorted(pod.spec.node_selector.items()):
        yield SelectorRequirement(key=key, operator="In", values=[value])
    affinity = pod.spec.affinity.node_affinity if pod.spec.affinity else None
    if affinity is not None and affinity.required is not None:
        for term in affinity.required.node_selector_terms:
            yield from term.match_expressions


def _expression_error(expression: SelectorRequirement) -> str:
    key = known.ALIASES.get(expression.key, expression.key)
    values = expression.values or []
    if expression.operator not in _OPERATORS:
        return f"key {key} has an unsupported operator {expression.operator}, not in {sorted(_OPERATORS)}"
    if is_restricted(key) and key not in known.WELL_KNOWN_LABELS and key not in _SELECTABLE:
        return f"label {key} is restricted; specify a well known label or a custom label of another domain"
    allowed = known.KNOWN_VALUES.get(key)
    if allowed is not None and expression.operator == "In" and not allowed.intersection(values):
        return f"invalid values {values} for key {key}, one of {sorted(allowed)} is needed"
    if expression.operator == "In" and not values:
        return f"key {key} with operator In must have a value defined"
    if expression.operator in _NUMERIC and not (len(values) == 1 and values[0].isdigit()):
        return f"key {key} with operator {expression.operator} must have a single positive integer value"
    return ""


_SELECTABLE = frozenset({known.INITIALIZED, known.REGISTERED})


def _volume_claims(pod: Pod) -> Iterator[str]:
    for volume in pod.spec.volumes:
        if volume.persistent_volume_claim is not None:
            yield volume.persistent_volume_claim.claim_name
        elif volume.ephemeral is not None:
            yield f"{pod.name}-{volume.name}"


def _volume_error(pod: Pod, name: str, snapshot: Snapshot) -> str:
    claim = snapshot.volume_claims.get(f"{pod.namespace}/{name}")
    if claim is None:
        return f"persistentvolumeclaim {name!r} not found"
    if claim.deleting:
        return f"persistentvolumeclaim {name!r} is being deleted"
    if claim.status.phase == "Lost":
        return f"persistentvolumeclaim {name!r} has lost its volume"
    if claim.spec.volume_name:
        return _bound_error(claim, snapshot)
    class_name = claim.spec.storage_class_name
    if not class_name:
        return f"persistentvolumeclaim {name!r}: unbound pvc must define a storage class"
    storage_class = snapshot.storage_classes.get(class_name)
    if storage_class is None:
        return f"persistentvolumeclaim {name!r}: storageclass {class_name!r} not found"
    if (storage_class.volume_binding_mode or "Immediate") == "Immediate":
        return f"persistentvolumeclaim {name!r} is not yet bound (binding mode Immediate)"
    return ""


def _bound_error(claim: PersistentVolumeClaim, snapshot: Snapshot) -> str:
    volume = snapshot.volumes.get(claim.spec.volume_name)
    if volume is None:
        return f"persistentvolume {claim.spec.volume_name!r} not found"
    if volume.deleting:
        return f"persistentvolume {volume.name!r} is being deleted"
    if _BIND_COMPLETED not in claim.metadata.annotations:
        return f"persistentvolumeclaim {claim.name!r} has not completed binding"
    return ""
