"""Which waiting pods we can do something for: selectors that make sense, volumes that are in order."""

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from karpenter.apis import labels as known
from karpenter.apis.core import NodeSelectorTerm, Pod
from karpenter.apis.meta import SelectorRequirement
from karpenter.model.pods import pod_key
from karpenter.model.requirements import is_restricted
from karpenter.model.snapshot import Snapshot
from karpenter.model.volumerules import VolumeRules
from karpenter.scheduling.volumes import claim_keys, volume_error

NOT_OURS = "configured to not run on a Karpenter provisioned node"
"""Why a pod that excludes our nodes is left alone, without an event."""

_OPERATORS = frozenset({"In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Gte", "Lte"})
_NUMERIC = frozenset({"Gt", "Lt", "Gte", "Lte"})


def pod_error(
    pod: Pod,
    snapshot: Snapshot,
    rules: VolumeRules | None = None,
    users: Mapping[str, str] = MappingProxyType({}),
) -> str:
    """Return why no machine is bought for `pod`; empty when nothing is wrong with it.

    Preferences are not looked at: one that makes no sense is given up like any other. `rules` says which
    storage the provider's nodes cannot use, `users` which pods have claims that only one may use at a time.
    """
    spec = pod.spec
    if not (spec.node_selector or spec.volumes or (spec.affinity and spec.affinity.node_affinity)):
        return ""
    expressions = list(_expressions(pod))
    if any(e.key == known.NODEPOOL and e.operator == "DoesNotExist" for e in expressions):
        return NOT_OURS
    errors = [error for e in expressions if (error := _expression_error(e))]
    errors.extend(error for e in _fields(pod) if (error := _field_error(e)))
    errors.extend(error for v in pod.spec.volumes if (error := volume_error(pod, v, snapshot, rules)))
    errors.extend(
        f"persistentvolumeclaim {key} with access mode ReadWriteOncePod is in use by pod {users[key]}"
        for key in claim_keys(pod)
        if users.get(key, pod_key(pod)) != pod_key(pod)
    )
    return "; ".join(errors)


def _terms(pod: Pod) -> list[NodeSelectorTerm]:
    affinity = pod.spec.affinity.node_affinity if pod.spec.affinity else None
    return affinity.required.node_selector_terms if affinity is not None and affinity.required else []


def _expressions(pod: Pod) -> Iterator[SelectorRequirement]:
    for key, value in sorted(pod.spec.node_selector.items()):
        yield SelectorRequirement(key=key, operator="In", values=[value])
    for term in _terms(pod):
        yield from term.match_expressions


def _fields(pod: Pod) -> Iterator[SelectorRequirement]:
    for term in _terms(pod):
        yield from term.match_fields


def _field_error(field: SelectorRequirement) -> str:
    """The API server lets nothing else through, but says so of new pods only."""
    if field.key != known.NODE_NAME_FIELD:
        return f"matchFields key {field.key} is not supported, only {known.NODE_NAME_FIELD} is"
    if field.operator not in ("In", "NotIn") or not field.values:
        return f"matchFields key {field.key} needs operator In or NotIn and a value"
    return ""


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


_SELECTABLE = frozenset({known.INITIALIZED, known.REGISTERED, known.KUBERNETES_HOSTNAME})
"""Labels in our domain, or of one node only, that existing nodes may be chosen by."""
