"""Workloads that keep nodes from ever going: budgets that can never allow an eviction, surges that cannot be.

Said of the manifests, long before a node has to go. What the objects look like is the API server's to judge;
those that cannot be read here are passed over.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from karpenter.apis import labels
from karpenter.apis.meta import KubeObject
from karpenter.apis.selectors import label_selector_matches
from karpenter.apis.validation import FieldError
from karpenter.apis.workloads import (
    Deployment,
    PodDisruptionBudget,
    PodDisruptionBudgetStatus,
    ReplicaSet,
    StatefulSet,
    Workload,
)
from karpenter.cli.lint import Judged
from karpenter.disruption.drainblocks import rule, way_out
from karpenter.disruption.surge import why_no_surge
from karpenter.model.pdbs import can_never_allow

K = TypeVar("K", bound=KubeObject)

_KINDS: dict[str, type[Workload]] = {
    "Deployment": Deployment,
    "StatefulSet": StatefulSet,
    "ReplicaSet": ReplicaSet,
}
_SURGE = f"spec.template.metadata.annotations[{labels.SURGE}]"


def lint_workloads(objects: Sequence[Any]) -> Iterator[tuple[int, Judged]]:
    """Yield what keeps drains from ending, by position of the object that is to be changed."""
    budgets = _read(objects, "policy/v1", {"PodDisruptionBudget": PodDisruptionBudget})
    workloads = _read(objects, "apps/v1", _KINDS)
    for index, budget in budgets:
        covered = [w for _, w in workloads if _covers(budget, w)]
        for error in _never(budget, covered):
            yield index, ("warning", error)
    for index, workload in workloads:
        names = [b.name for _, b in budgets if _covers(b, workload)]
        if len(names) > 1:
            problem = f"is covered by PodDisruptionBudgets {', '.join(names)}: its pods can never be evicted"
            fix = "leave one of them over its pods"
            yield index, ("warning", FieldError("spec.template.metadata.labels", None, problem, fix))
        for error in _surge(workload):
            yield index, ("warning", error)


def _never(budget: PodDisruptionBudget, covered: Sequence[Workload]) -> Iterator[FieldError]:
    pods = sum(_replicas(workload) for workload in covered)
    status = PodDisruptionBudgetStatus(
        expected_pods=pods,
        desired_healthy=_kept(budget, pods),
        observed_generation=budget.metadata.generation,
    )
    counted = replace(budget, status=status)
    if not can_never_allow(counted):
        return
    field = "maxUnavailable" if budget.spec.min_available is None else "minAvailable"
    value = budget.spec.max_unavailable if budget.spec.min_available is None else budget.spec.min_available
    problem = f"{rule(counted)} can never allow an eviction: no node with such a pod can be drained"
    yield FieldError(f"spec.{field}", value, problem, way_out(counted))


def _kept(budget: PodDisruptionBudget, pods: int) -> int:
    """Return how many of `pods` must stay; what is not a count or a percentage keeps none."""
    least, most = budget.spec.min_available, budget.spec.max_unavailable
    value = most if least is None else least
    if isinstance(value, int):
        count = value
    elif isinstance(value, str) and value.removesuffix("%").isdigit():
        count = -(-int(value.removesuffix("%")) * pods // 100)
    else:
        return 0
    return max(0, pods - count) if least is None else count


def _surge(workload: Workload) -> Iterator[FieldError]:
    value = workload.spec.template.metadata.annotations.get(labels.SURGE)
    if value is None:
        return
    if value != "true":
        yield FieldError(_SURGE, value, "is ignored: only true is known", 'write "true"')
    elif isinstance(workload, Deployment):
        problem, _, fix = why_no_surge(workload).partition(": ")
        if problem:
            yield FieldError(_SURGE, value, f"no stand-in can come before a drain: {problem}", fix)
    else:
        problem = "no stand-in can come before a drain: only Deployments surge"
        yield FieldError(_SURGE, value, problem, "use a Deployment, or remove the annotation")


def _read(objects: Sequence[Any], api_version: str, kinds: Mapping[str, type[K]]) -> list[tuple[int, K]]:
    found: list[tuple[int, K]] = []
    for index, obj in enumerate(objects):
        if not isinstance(obj, dict) or obj.get("apiVersion") != api_version or obj.get("kind") not in kinds:
            continue
        try:
            found.append((index, msgspec.convert(obj, kinds[obj["kind"]])))
        except msgspec.ValidationError:
            continue
    return found


def _covers(budget: PodDisruptionBudget, workload: Workload) -> bool:
    same = (budget.namespace or "default") == (workload.namespace or "default")
    return same and label_selector_matches(budget.spec.selector, workload.spec.template.metadata.labels)


def _replicas(workload: Workload) -> int:
    return 1 if workload.spec.replicas is None else workload.spec.replicas
