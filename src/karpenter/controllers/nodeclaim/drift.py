"""Whether a claim still is what its pool asks for, and has time left. Cheap answers first."""

from karpenter.apis import labels as known
from karpenter.apis.annotations import replace_before_expiry
from karpenter.apis.karpenter import NodeClaim, NodePool
from karpenter.base.duration import parse_duration
from karpenter.cloudprovider import NodeClaimNotFound, UnevaluatedNodePool
from karpenter.controllers.conditions import created_at
from karpenter.controllers.context import Context
from karpenter.model.instancetype import InstanceType
from karpenter.model.requirements import Requirement, Requirements
from karpenter.runtime import Requeue

TYPE_CHECK_AGE_SECONDS = 3600.0
"""Younger claims cannot have outlived their instance type."""
TYPE_CHECK_SECONDS = 30 * 60.0
"""How long a positive answer about the instance type holds."""


class Drift:
    """Judges claims; remembers when their instance type was last found."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._types_found: dict[str, float] = {}

    async def reason(self, claim: NodeClaim, pool: NodePool) -> str:
        """Return why `claim` has drifted from `pool`; empty when it has not."""
        return (
            hash_drift(claim, pool)
            or requirements_drift(claim, pool)
            or await self._type_drift(claim, pool)
            or await self._provider_drift(claim)
        )

    def forget(self, name: str) -> None:
        """Drop what is remembered of a claim that is gone."""
        self._types_found.pop(name, None)

    async def _type_drift(self, claim: NodeClaim, pool: NodePool) -> str:
        now = self._context.clock.now()
        if now - created_at(claim) <= TYPE_CHECK_AGE_SECONDS:
            return ""
        if now - self._types_found.get(claim.name, float("-inf")) < TYPE_CHECK_SECONDS:
            return ""
        try:
            types = await self._context.provider.instance_types(pool)
        except UnevaluatedNodePool as error:
            raise Requeue from error
        reason = instance_type_drift(claim, types, self._context.provider.reservation_label)
        if not reason:
            self._types_found[claim.name] = now
        return reason

    async def _provider_drift(self, claim: NodeClaim) -> str:
        try:
            return await self._context.provider.drift_reason(claim)
        except NodeClaimNotFound:
            return ""


def expires_soon_at(claim: NodeClaim, pool: NodePool) -> float:
    """Return when (epoch seconds) `claim` is to be replaced because it will expire; infinite: never.

    A machine has at least half of its life, whatever the pool says, or none would ever be young enough.
    """
    if claim.spec.expire_after == "Never":
        return float("inf")
    try:
        ahead = replace_before_expiry(pool)
    except ValueError:
        return float("inf")  # the pool's own condition says so
    life = parse_duration(claim.spec.expire_after)
    return created_at(claim) + life - min(ahead, life / 2) if ahead > 0 else float("inf")


def hash_drift(claim: NodeClaim, pool: NodePool) -> str:
    """Compare the hashes both carry; of another version, or missing, they say nothing."""
    mine, pools = claim.metadata.annotations, pool.metadata.annotations
    keys = (known.NODEPOOL_HASH, known.NODEPOOL_HASH_VERSION)
    if any(key not in notes for key in keys for notes in (mine, pools)):
        return ""
    if mine[known.NODEPOOL_HASH_VERSION] != pools[known.NODEPOOL_HASH_VERSION]:
        return ""
    return "NodePoolDrifted" if mine[known.NODEPOOL_HASH] != pools[known.NODEPOOL_HASH] else ""


def requirements_drift(claim: NodeClaim, pool: NodePool) -> str:
    """Hold the claim's labels against what the pool requires today; a pool that is invalid says nothing."""
    try:
        wanted = Requirements.from_specs(pool.spec.template.spec.requirements)
    except ValueError:
        return ""  # the pool's own condition says so
    error = Requirements.from_labels(claim.metadata.labels).compatible(wanted)
    return "RequirementsDrifted" if error else ""


def instance_type_drift(
    claim: NodeClaim, types: tuple[InstanceType, ...], reservation_label: str = ""
) -> str:
    """Look for the claim's instance type and for an offering of it, available or not."""
    labels = dict(claim.metadata.labels)
    found = next((t for t in types if t.name == labels.get(known.INSTANCE_TYPE)), None)
    if found is None:
        return "InstanceTypeNotFound"
    here = Requirements.from_labels(labels)
    if labels.get(known.CAPACITY_TYPE) == known.CAPACITY_RESERVED:
        # A reservation may end while its instance goes on as on-demand.
        values = [known.CAPACITY_RESERVED, known.CAPACITY_ON_DEMAND]
        here = here.without(known.CAPACITY_TYPE).add(Requirement.of(known.CAPACITY_TYPE, "In", values))
        here = here.without(reservation_label)
    if all(here.intersects(offering.requirements) for offering in found.offerings):
        return "InstanceTypeNotFound"
    return ""
