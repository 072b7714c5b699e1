"""What PodDisruptionBudgets, do-not-disrupt and the budgets of NodePools allow, from raw objects.

Written for an independent judge of disruptions: nothing of what decides about them is used here.
"""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from karpenter.base.duration import parse_duration
from karpenter.base.timestamps import parse_time

Raw = dict[str, Any]

DO_NOT_DISRUPT = "karpenter.sh/do-not-disrupt"
DISRUPTED = "karpenter.sh/disrupted"
_MINUTE = 60


def condition(obj: Raw, kind: str) -> Raw:
    """Return a condition of `obj`; empty when it has none of that type."""
    found = obj.get("status", {}).get("conditions") or []
    return next((c for c in found if c["type"] == kind), {})


def holds(obj: Raw, kind: str) -> bool:
    """Tell whether a condition is True."""
    return bool(condition(obj, kind).get("status") == "True")


def leaving(obj: Raw) -> bool:
    """Tell whether an object has been deleted, and only waits for its end."""
    return "deletionTimestamp" in obj["metadata"]


# --- pods --------------------------------------------------------------------------------------------------


def is_over(pod: Raw) -> bool:
    """Tell whether a pod has run to its end."""
    return pod.get("status", {}).get("phase") in ("Succeeded", "Failed")


def is_active(pod: Raw) -> bool:
    """Tell whether a pod runs, or will."""
    return not leaving(pod) and not is_over(pod)


def owner(pod: Raw) -> tuple[str, str]:
    """Return kind and name of what made a pod."""
    owners = pod["metadata"].get("ownerReferences") or []
    return next(((o["kind"], o["name"]) for o in owners if o.get("controller")), ("", ""))


def has_to_move(pod: Raw) -> bool:
    """Tell whether a pod has to be made again elsewhere should its node go."""
    kind = owner(pod)[0]
    return kind not in ("DaemonSet", "Node") and (is_active(pod) or kind == "StatefulSet")


def stays_through(pod: Raw) -> bool:
    """Tell whether a drain passes a pod by: it tolerates the taint, or is the kubelet's own."""
    if owner(pod)[0] == "Node":
        return True
    for toleration in pod["spec"].get("tolerations") or []:
        key, effect = toleration.get("key", ""), toleration.get("effect", "")
        if key in ("", DISRUPTED) and effect in ("", "NoSchedule") and (key or _is_exists(toleration)):
            return True
    return False


def _is_exists(toleration: Raw) -> bool:
    return bool(toleration.get("operator") == "Exists")


def is_protected(pod: Raw, now: float) -> bool:
    """Tell whether a pod may not be disturbed: for ever, or for a time since it was started."""
    value = (pod["metadata"].get("annotations") or {}).get(DO_NOT_DISRUPT, "")
    seconds = _seconds(value)
    started = pod.get("status", {}).get("startTime")
    return value == "true" or (seconds > 0 and (not started or now < parse_time(started) + seconds))


def is_protected_node(objects: Iterable[Raw], since: str, now: float) -> bool:
    """Tell whether a Node or its NodeClaim (`objects`) asks to be left alone, for ever or for a time."""
    for obj in objects:
        value = (obj["metadata"].get("annotations") or {}).get(DO_NOT_DISRUPT, "")
        seconds = _seconds(value)
        if value == "true" or (seconds > 0 and now < parse_time(since) + seconds):
            return True
    return False


def _seconds(text: str) -> float:
    try:
        return parse_duration(text)
    except ValueError:
        return 0.0


# --- PodDisruptionBudgets ----------------------------------------------------------------------------------


def covers(budget: Raw, pod: Raw) -> bool:
    """Tell whether a PodDisruptionBudget (by matchLabels) is about a pod."""
    if budget["metadata"]["namespace"] != pod["metadata"]["namespace"]:
        return False
    selector = budget["spec"].get("selector")
    if selector is None or selector.get("matchExpressions"):
        return False
    labels = pod["metadata"].get("labels") or {}
    return all(labels.get(k) == v for k, v in (selector.get("matchLabels") or {}).items())


def is_healthy(pod: Raw) -> bool:
    """Tell whether a budget counts a pod as serving."""
    return is_active(pod) and holds(pod, "Ready")


def wanted(budget: Raw, scale: int) -> int:
    """Return how many pods must serve, of `scale` that there should be."""
    spec = budget["spec"]
    if "maxUnavailable" in spec:
        return max(0, scale - _share(spec["maxUnavailable"], scale))
    return _share(spec.get("minAvailable", 1), scale)


def goes_unasked(budget: Raw, serving: int, needed: int) -> bool:
    """Tell whether pods that do not serve may go whatever is left of the budget."""
    policy = budget["spec"].get("unhealthyPodEvictionPolicy", "IfHealthyBudget")
    return policy == "AlwaysAllow" or serving >= needed > 0


def _share(amount: int | str, scale: int) -> int:
    """Return an amount, or a percentage rounded up."""
    if isinstance(amount, int):
        return amount
    return -(-scale * int(amount.removesuffix("%")) // 100)


# --- budgets of NodePools ----------------------------------------------------------------------------------


def allowed(pool: Raw, reason: str, nodes: int, now: float) -> float:
    """Return how many of `nodes` nodes a pool allows to be disrupted at once for a reason."""
    least = float("inf")
    for budget in pool["spec"]["disruption"].get("budgets") or [{"nodes": "10%"}]:
        if reason in (budget.get("reasons") or [reason]) and in_force(budget, now):
            text = budget["nodes"]
            least = min(least, _share(text if text.endswith("%") else int(text), nodes))
    return least


def in_force(budget: Mapping[str, Any], now: float) -> bool:
    """Tell whether a budget counts now: always, or for its duration from each minute of its schedule."""
    if "schedule" not in budget:
        return True
    minute = int(now) // _MINUTE * _MINUTE
    for moment in range(minute, int(now - _seconds(budget["duration"])), -_MINUTE):
        if _fires(budget["schedule"], moment):
            return True
    return False


def _fires(schedule: str, moment: int) -> bool:
    """Tell whether a schedule of five numbers, stars or steps fires at a minute (UTC)."""
    if schedule == "@hourly":
        schedule = "0 * * * *"
    at = datetime.fromtimestamp(moment, UTC)
    values = (at.minute, at.hour, at.day, at.month, at.isoweekday() % 7)
    return all(_matches(f, value) for f, value in zip(schedule.split(), values, strict=True))


def _matches(field: str, value: int) -> bool:
    if field == "*":
        return True
    return value % int(field[2:]) == 0 if field.startswith("*/") else value == int(field)
