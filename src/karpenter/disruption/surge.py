"""Surge before evict: whether a pod that goes can have its stand-in first, and how far that is; pure.

Who owns a pod brings up its stand-in: nobody else can make a pod that the Service, the budget and the owner
count. The honest way to ask is a rollout, as `kubectl rollout restart` starts one: where `maxSurge` is at
least one and `maxUnavailable` none, a Deployment makes the new pod first and lets the old one go when the new
one is ready. The node that drains is tainted, so the new pod comes up elsewhere.
"""

from collections.abc import Iterable
from typing import Literal

import msgspec

from karpenter.apis import labels
from karpenter.apis.conditions import get
from karpenter.apis.core import IntOrString, PersistentVolumeClaim, Pod
from karpenter.apis.meta import OwnerReference
from karpenter.apis.workloads import Deployment
from karpenter.disruption.drainblocks import DrainBlock, protection
from karpenter.model.pdbs import PdbLimits, answer, is_ready
from karpenter.model.pods import asks_for_surge

Step = Literal["evict", "roll", "wait"]
"""Let the pod go as any other; start a rollout; or wait for the one that is under way."""

_DEFAULT_SHARE = "25%"
_SHARED_MODES = frozenset({"ReadWriteMany", "ReadOnlyMany"})


class Surge(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be done with a pod that asks for a stand-in before it goes."""

    step: Step
    block: DrainBlock | None = None
    """What the drain waits for meanwhile."""
    impossible: str = ""
    """Why there can be no stand-in, where one is needed; the pod then goes as any other."""


def bears_eviction(pod: Pod, limits: PdbLimits, others_ready: int) -> bool:
    """Tell whether the pod may go without a stand-in.

    It may not when its budget can never allow that, or when none of its workload's other pods is Ready on a
    node that stays (`others_ready`). A pod that serves nobody, not being Ready, has nothing to hand over.
    """
    if not is_ready(pod):
        return True
    covering = limits.matching(pod)
    if len(covering) == 1 and answer(covering[0], pod) == "never":
        return False
    return others_ready > 0


def plan_surge(pod: Pod, deployment: Deployment, node_uid: str, protected: Pod | None = None) -> Surge:
    """Return the next step for a pod of `deployment` that cannot bear an eviction.

    `protected` is another of its pods that must not be disrupted: a rollout would take it, too, and waits.
    `node_uid` is of the node that drains. It marks the template of the rollout, so that whoever looks next,
    after a restart too, knows that it was asked for: one rollout a drain, one at a time a Deployment.
    """
    if pod.metadata.annotations.get(labels.SURGED_FOR) == node_uid:
        return Surge(step="evict", impossible="its own rollout for this node put it here again")
    why = why_no_surge(deployment)
    marked = deployment.spec.template.metadata.annotations.get(labels.SURGED_FOR) == node_uid
    if why and not marked:
        return Surge(step="evict", impossible=why)
    if marked or is_rolling_out(deployment):
        return Surge(step="wait", block=_underway(pod, deployment, ours=marked))
    if protected is not None:
        return Surge(step="wait", block=_after(pod, protection(protected)))
    return Surge(step="roll", block=_underway(pod, deployment, ours=True))


def is_surging_for(deployment: Deployment, node_uid: str) -> bool:
    """Tell whether the rollout that was asked for when this node began to drain is still under way.

    Then its pods wait for it, whether they could bear an eviction by now or not: it has begun.
    """
    marked = deployment.spec.template.metadata.annotations.get(labels.SURGED_FOR) == node_uid
    return marked and is_rolling_out(deployment)


def why_no_surge(deployment: Deployment) -> str:
    """Return why a rollout of `deployment` would not bring a stand-in first; empty when it would."""
    name, spec = f"Deployment {deployment.key}", deployment.spec
    if deployment.deleting:
        return f"{name} is being deleted"
    if spec.paused:
        return f"{name} is paused: resume it"
    if spec.strategy is not None and spec.strategy.type != "RollingUpdate":
        return (
            f"{name} has strategy {spec.strategy.type}: use RollingUpdate with maxSurge 1, maxUnavailable 0"
        )
    surge, unavailable = surge_and_unavailable(deployment)
    if surge < 1:
        return f"{name} has maxSurge 0: set maxSurge 1 and maxUnavailable 0"
    if unavailable:
        return f"{name} may miss {unavailable} of its pods while it rolls out: set maxUnavailable 0"
    return ""


def moves_freely(pod: Pod, deployment: Deployment) -> bool:
    """Tell whether the pod's node may be disrupted at will although its budget can never let the pod go.

    Only where it is its Deployment's single pod: a rollout replaces all of them, which is too much for the
    sake of one node.
    """
    replicas = 1 if deployment.spec.replicas is None else deployment.spec.replicas
    return asks_for_surge(pod) and replicas == 1 and not why_no_surge(deployment)


def why_no_surge_with(claims: Iterable[PersistentVolumeClaim]) -> str:
    """Return why two pods on two nodes could not share the volumes of these claims; empty when they could."""
    for claim in claims:
        if not _SHARED_MODES.intersection(claim.spec.access_modes):
            modes = ", ".join(claim.spec.access_modes) or "no access mode"
            return f"PersistentVolumeClaim {claim.key} ({modes}) cannot be on two nodes at a time"
    return ""


def why_no_surge_of(owner: OwnerReference | None) -> str:
    """Return why whoever owns a pod, other than a Deployment, cannot bring up a stand-in."""
    if owner is None:
        return "nobody owns the pod, so nobody would bring up another: use a Deployment"
    if owner.kind == "StatefulSet":
        return f"StatefulSet {owner.name} replaces a pod under its old name, after it has gone"
    return f"{owner.kind} {owner.name} has no rollouts: use a Deployment"


def is_rolling_out(deployment: Deployment) -> bool:
    """Tell whether pods of an older template are still being replaced."""
    status = deployment.status
    return (
        status.observed_generation < deployment.metadata.generation
        or status.updated_replicas < (1 if deployment.spec.replicas is None else deployment.spec.replicas)
        or status.replicas > status.updated_replicas
    )


def surge_and_unavailable(deployment: Deployment) -> tuple[int, int]:
    """Return how many pods a rollout may have too many and too few, as the Deployment controller counts."""
    replicas = 1 if deployment.spec.replicas is None else deployment.spec.replicas
    rolling = deployment.spec.strategy.rolling_update if deployment.spec.strategy else None
    surge = _count(rolling.max_surge if rolling else None, replicas, up=True)
    unavailable = _count(rolling.max_unavailable if rolling else None, replicas, up=False)
    return surge, unavailable if surge or unavailable else 1


def _count(value: IntOrString | None, total: int, *, up: bool) -> int:
    chosen = _DEFAULT_SHARE if value is None else value
    if isinstance(chosen, int):
        return chosen
    hundredths = int(chosen.removesuffix("%") or 0) * total
    return -(-hundredths // 100) if up else hundredths // 100


def _after(pod: Pod, other: DrainBlock) -> DrainBlock:
    """Return the block of a pod whose stand-in waits for what protects another pod."""
    text = f"its stand-in waits: a rollout would take pod {other.pod}, and {other.message}"
    return msgspec.structs.replace(other, pod=pod.key, kind="surge", message=text)


def _underway(pod: Pod, deployment: Deployment, *, ours: bool) -> DrainBlock:
    status = deployment.status
    progress = get(status.conditions, "Progressing")
    stuck = progress is not None and progress.status == "False"
    new = f"{status.updated_replicas} new, {status.available_replicas} available"
    text = (
        f"its stand-in comes first: Deployment {deployment.key} rolls out for that ({new})"
        if ours
        else f"its stand-in waits for a rollout of Deployment {deployment.key} to end ({new})"
    )
    remedy = why_no_surge(deployment)
    if stuck and progress is not None:
        remedy = f"see why it does not go on: {progress.reason}"
    return DrainBlock(pod=pod.key, kind="surge", message=text, remedy=remedy, permanent=bool(remedy))
