"""The Eviction API: delete a pod if its PodDisruptionBudgets allow it."""

from collections.abc import Mapping
from typing import Any

import msgspec

from karpenter.apis.meta import LabelSelector
from karpenter.apis.selectors import label_selector_matches
from karpenter.base.clock import format_time
from karpenter.embedded import errors
from karpenter.embedded.errors import StatusError
from karpenter.embedded.kinds import Kind
from karpenter.embedded.requests import Target, WriteOptions
from karpenter.embedded.resources import DeleteOptions, Objects, check_preconditions
from karpenter.embedded.store import Record

BUDGETS = "poddisruptionbudgets.policy"
RETRY_SECONDS = 10
_GONE_ANYWAY = ("Succeeded", "Failed", "Pending")


def evict(objects: Objects, kind: Kind, target: Target, body: Mapping[str, Any], *, dry_run: bool) -> None:
    """Evict one pod, taking one of its budget's allowed disruptions.

    Raises:
        StatusError: 429 when the budget allows none now, 500 when several budgets claim the pod,
            404 and 409 as deletion does.
    """
    given = (body.get("metadata") or {}).get("name", "")
    if given and given != target.name:
        raise errors.bad_request(f"name in URL does not match name in Eviction object: {given}")
    record = objects.get(kind, target.namespace, target.name)
    try:
        options = msgspec.convert(body.get("deleteOptions") or {}, DeleteOptions, strict=False)
    except msgspec.ValidationError as error:
        raise errors.bad_request(f"deleteOptions: {error}") from None
    dry_run = dry_run or options.dry_run == ["All"]
    check_preconditions(kind, record, options)
    # What they asked of the pod holds; marking it changes its version.
    options = msgspec.structs.replace(options, preconditions=None)
    pod = record.object()
    status = pod.get("status") or {}
    terminal = status.get("phase") in _GONE_ANYWAY or "deletionTimestamp" in pod["metadata"]
    if not terminal:
        budgets = budgets_of(objects, record)
        if len(budgets) > 1:
            raise StatusError(
                500,
                "InternalError",
                "This pod has more than one PodDisruptionBudget, "
                "which the eviction subresource does not support.",
            )
        if budgets:
            _take_disruption(objects, budgets[0], pod, dry_run)
        if not dry_run:
            record = _mark_disrupted(objects, kind, record, pod)
    objects.delete(kind, record, options, dry_run=dry_run)


def _mark_disrupted(objects: Objects, kind: Kind, record: Record, pod: dict[str, Any]) -> Record:
    """Say on the pod why it goes, for whoever looks at what became of it."""
    status = pod.setdefault("status", {})
    others = [c for c in status.get("conditions") or [] if c.get("type") != "DisruptionTarget"]
    condition = {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "EvictionByEvictionAPI",
        "message": "Eviction API: evicting",
        "lastTransitionTime": format_time(objects.store.clock.now()),
    }
    status["conditions"] = [*others, condition]
    objects.update(kind, record, pod, WriteOptions(), subresource="status", trusted=True)
    return objects.get(kind, record.namespace, record.name)


def budgets_of(objects: Objects, pod: Record) -> list[Record]:
    """Return the budgets whose selector matches a pod, sorted by name."""
    found = []
    for record in objects.store.records(BUDGETS, pod.namespace):
        selector = (record.object().get("spec") or {}).get("selector")
        if selector is None:
            continue
        if label_selector_matches(msgspec.convert(selector, LabelSelector), pod.labels):
            found.append(record)
    return found


def _take_disruption(objects: Objects, budget: Record, pod: Mapping[str, Any], dry_run: bool) -> None:
    obj = budget.object()
    status = obj.setdefault("status", {})
    if not _ready(pod) and _unhealthy_may_go(obj, status):
        return
    observed = status.get("observedGeneration", 0)
    if observed < obj["metadata"].get("generation", 0):
        raise _blocked(
            budget.name, "The disruption budget %s is still being processed by the server.", RETRY_SECONDS
        )
    allowed = status.get("disruptionsAllowed", 0)
    if allowed <= 0:
        healthy, desired = status.get("currentHealthy", 0), status.get("desiredHealthy", 0)
        why = f"The disruption budget %s needs {desired} healthy pods and has {healthy} currently"
        raise _blocked(budget.name, why, None)
    if dry_run:
        return
    status["disruptionsAllowed"] = allowed - 1
    disrupted = dict(status.get("disruptedPods") or {})
    disrupted[pod["metadata"]["name"]] = format_time(objects.store.clock.now())
    status["disruptedPods"] = disrupted
    kind = objects.registry.by_group_resource(BUDGETS)
    objects.update(kind, budget, obj, WriteOptions(), subresource="status", trusted=True)


def _unhealthy_may_go(budget: Mapping[str, Any], status: Mapping[str, Any]) -> bool:
    """Tell whether a pod that is not ready may be evicted without asking the budget."""
    policy = (budget.get("spec") or {}).get("unhealthyPodEvictionPolicy", "IfHealthyBudget")
    if policy == "AlwaysAllow":
        return True
    healthy, desired = status.get("currentHealthy", 0), status.get("desiredHealthy", 0)
    return bool(healthy >= desired > 0)


def _ready(pod: Mapping[str, Any]) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or []
    return any(c.get("type") == "Ready" and c.get("status") == "True" for c in conditions)


def _blocked(budget: str, why: str, retry_seconds: int | None) -> StatusError:
    message = "Cannot evict pod as it would violate the pod's disruption budget."
    cause = {"reason": "DisruptionBudget", "message": why % budget}
    return StatusError(
        429, "TooManyRequests", message, details={"causes": [cause]}, retry_after_seconds=retry_seconds
    )
