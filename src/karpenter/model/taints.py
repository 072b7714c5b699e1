"""Taints and tolerations, and which taints pass by themselves."""

from collections.abc import Iterable, Sequence

from karpenter.apis import labels
from karpenter.apis.core import Taint, Toleration

DISRUPTED = Taint(key=labels.DISRUPTED_TAINT, effect="NoSchedule")
"""On nodes that are about to go away."""
UNREGISTERED = Taint(key=labels.UNREGISTERED_TAINT, effect="NoExecute")
"""On nodes that have not been claimed yet; removed at registration."""
UNSCHEDULABLE = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")
"""On cordoned nodes; `spec.unschedulable` means the same before the taint is there."""

EPHEMERAL_TAINTS: tuple[Taint, ...] = (
    Taint(key="node.kubernetes.io/not-ready", effect="NoSchedule"),
    Taint(key="node.kubernetes.io/not-ready", effect="NoExecute"),
    Taint(key="node.kubernetes.io/unreachable", effect="NoSchedule"),
    Taint(key="node.cloudprovider.kubernetes.io/uninitialized", value="true", effect="NoSchedule"),
    UNREGISTERED,
)
"""Taints of a node that is still starting; they don't keep pods from being planned onto it."""

_READINESS_PREFIX = "readiness.k8s.io/"


def is_ephemeral(taint: Taint) -> bool:
    """Tell whether a starting node loses `taint` by itself."""
    return taint.key.startswith(_READINESS_PREFIX) or any(taint.matches(known) for known in EPHEMERAL_TAINTS)


def tolerated(taint: Taint, toleration: Toleration) -> bool:
    """Tell whether `toleration` covers `taint`, by Kubernetes' rules, numeric comparison included."""
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    match toleration.operator:
        case "" | "Equal":
            return bool(toleration.key) and toleration.value == taint.value
        case "Exists":
            return True
        case "Lt" | "Gt":
            return bool(toleration.key) and _compares(taint.value, toleration.operator, toleration.value)
        case _:
            return False


def _compares(value: str, operator: str, bound: str) -> bool:
    try:
        left, right = int(value), int(bound)
    except ValueError:
        return False
    return left < right if operator == "Lt" else left > right


def untolerated(taints: Iterable[Taint], tolerations: Sequence[Toleration]) -> list[Taint]:
    """Return the taints that no toleration covers, in their order."""
    return [taint for taint in taints if not any(tolerated(taint, t) for t in tolerations)]


def tolerates(taints: Iterable[Taint], tolerations: Sequence[Toleration]) -> str:
    """Return which taints, of whatever effect, are not tolerated; empty when all are."""
    return "; ".join(f"did not tolerate taint {taint}" for taint in untolerated(taints, tolerations))


def merge(first: Iterable[Taint], second: Iterable[Taint]) -> list[Taint]:
    """Return `first` and those of `second` whose key and effect `first` lacks."""
    merged = list(first)
    merged.extend(taint for taint in second if not any(taint.matches(present) for present in merged))
    return merged
