"""Writing planned claims down as NodeClaims, so that dying anywhere costs nothing and buys nothing twice.

A claim's name is chosen here, so that a create whose answer is lost can be repeated; and the claim carries
the pods it is meant for (`karpenter.state.reservations`), so that whoever comes next knows.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec
import structlog
from prometheus_client import Counter

from karpenter.apis import labels as known
from karpenter.apis.annotations import PLANNED_LOT, PLANNED_PRICE
from karpenter.apis.karpenter import NodeClaim, NodeClaimSpec, NodePool, ResourceRequests
from karpenter.apis.meta import ObjectMeta, OwnerReference
from karpenter.apis.nodepool_hash import nodepool_hash
from karpenter.base.metrics import Metrics
from karpenter.base.quantity import format_resources
from karpenter.base.randomness import name_suffix
from karpenter.controllers.context import Context
from karpenter.controllers.provisioning.limits import Limits
from karpenter.kube.errors import AlreadyExists, ApiError
from karpenter.kube.transport import TransportError
from karpenter.model.instancetype import InstanceType
from karpenter.model.problem import PlannedClaim
from karpenter.state import reservations

log = structlog.get_logger()

CREATED = "created nodeclaim"
LIMIT_REACHED = "nodepool limit reached, not creating nodeclaim"
NOT_CREATED = "could not create nodeclaim"

_ATTEMPTS = 3
_PARALLEL = 50
_SHOWN_TYPES = 5


class Creation(NamedTuple):
    """What became of one planned claim."""

    planned: PlannedClaim
    claim: NodeClaim | None
    """As stored; None when it was not created."""
    error: str = ""


def claim_for(
    planned: PlannedClaim,
    name: str,
    hash_of_pool: str,
    types: Sequence[InstanceType] = (),
    well_known: frozenset[str] = known.WELL_KNOWN_LABELS,
    grace_period: str | None = None,
) -> NodeClaim:
    """Return the NodeClaim that `planned` asks for; `types` are what its pool can buy.

    `grace_period` is the cloud's own for terminations, for pools that set none.

    Labels in `well_known` are for the cloud to set, once it has chosen: the claim only requires them.
    """
    pool, template = planned.pool, planned.pool.spec.template
    annotations = {
        **template.metadata.annotations,
        known.NODEPOOL_HASH: hash_of_pool,
        known.NODEPOOL_HASH_VERSION: known.NODEPOOL_HASH_VERSION_VALUE,
        **_overlay_notes(planned.instance_types, types),
    }
    if not pool.static:
        annotations[known.MIN_VALUES_RELAXED] = "true" if planned.min_values_relaxed else "false"
    if planned.price:
        annotations[PLANNED_PRICE] = f"{planned.price:.9f}".rstrip("0").rstrip(".")
    if planned.lot:
        annotations[PLANNED_LOT] = planned.lot
    if planned.pods:
        annotations[reservations.PLANNED_PODS] = reservations.render(planned.pods)
    reference = template.spec.node_class_ref
    return NodeClaim(
        metadata=ObjectMeta(
            name=name,
            generate_name=f"{pool.name}-",
            labels={
                **planned.requirements.labels(well_known),
                **template.metadata.labels,
                known.NODEPOOL: pool.name,
                known.nodeclass_label(reference.group, reference.kind): reference.name,
            },
            annotations=annotations,
            finalizers=[known.TERMINATION_FINALIZER],
            owner_references=[
                OwnerReference(
                    api_version=NodePool.resource.api_version,
                    kind=NodePool.resource.kind,
                    name=pool.name,
                    uid=pool.metadata.uid,
                    block_owner_deletion=True,
                )
            ],
        ),
        spec=NodeClaimSpec(
            requirements=planned.requirements.to_specs(),
            resources=ResourceRequests(requests=dict(format_resources(planned.requests))),
            node_class_ref=reference,
            taints=template.spec.taints,
            startup_taints=template.spec.startup_taints,
            expire_after=template.spec.expire_after,
            termination_grace_period=template.spec.termination_grace_period or grace_period,
        ),
    )


def _overlay_notes(names: Sequence[str], types: Sequence[InstanceType]) -> dict[str, str]:
    """Return the annotations that tell the cloud of NodeOverlays behind the choice of these types."""
    seen = [t for t in types if t.price_overlaid or t.capacity_overlaid]
    chosen = set(names) if seen else set()
    notes = {
        known.PRICE_OVERLAY_APPLIED: any(t.price_overlaid for t in seen if t.name in chosen),
        known.CAPACITY_OVERLAY_APPLIED: any(t.capacity_overlaid for t in seen if t.name in chosen),
    }
    return {key: "true" for key, applies in notes.items() if applies}


async def create_claims(
    context: Context,
    planned: Sequence[PlannedClaim],
    reason: str,
    *,
    annotations: Sequence[Mapping[str, str]] = (),
) -> list[Creation]:
    """Create all `planned` claims within their pools' limits and count them in the cluster at once.

    Args:
        reason: `provisioned`, or the disruption's reason in lower case; for the metric.
        annotations: what each of them carries besides, in order; empty: nothing.

    Returns:
        One outcome each, in order. What was refused or failed says why; nothing is raised for it.
    """
    gate = asyncio.Semaphore(_PARALLEL)
    limits = Limits(context, planned)
    running: list[asyncio.Task[Creation]] = []

    async def one(draft: NodeClaim | str, wish: PlannedClaim) -> Creation:
        if isinstance(draft, str):
            return Creation(wish, None, draft)
        async with gate:
            return await _create(context, draft, wish, reason)

    async with asyncio.TaskGroup() as tasks:
        for number, wish in enumerate(planned):
            draft = _draft(context, limits, wish)
            if annotations:
                draft = _noted(draft, annotations[number])
            running.append(tasks.create_task(one(draft, wish)))
            if number % _PARALLEL == 0:
                await context.clock.sleep(0)  # the first ones are on their way while others are written
    return [task.result() for task in running]


def _draft(context: Context, limits: Limits, wish: PlannedClaim) -> NodeClaim | str:
    """Turn a wish into a claim, or into the reason when a limit would be passed."""
    pool = context.cluster.pool(wish.pool.name) or wish.pool
    safe = limits.safe(pool, wish)
    draft = claim_for(
        safe,
        f"{pool.name}-{name_suffix(context.rng)}",
        nodepool_hash(wish.pool),
        context.cluster.catalogue(pool.name),
        context.well_known_labels,
        context.provider.default_termination_grace_period,
    )
    passed = limits.passed(pool, draft, safe.price)
    if passed:
        log.info(LIMIT_REACHED, NodePool=pool.name, resources=passed)
        return f"limits of nodepool {pool.name} exceeded: {', '.join(passed)}"
    return draft


def _noted(draft: NodeClaim | str, annotations: Mapping[str, str]) -> NodeClaim | str:
    if isinstance(draft, str):
        return draft
    metadata = msgspec.structs.replace(
        draft.metadata, annotations={**draft.metadata.annotations, **annotations}
    )
    return msgspec.structs.replace(draft, metadata=metadata)


async def _create(context: Context, draft: NodeClaim, wish: PlannedClaim, reason: str) -> Creation:
    """Create one claim; an answer that is lost counts as a yes until the API server says otherwise."""
    try:
        stored = await _post(context, draft)
    except TransportError as error:
        context.cluster.note_claim_created(draft)
        log.warning(NOT_CREATED, NodeClaim=draft.name, error=str(error))
        return Creation(wish, None, str(error))
    except ApiError as error:
        log.error(NOT_CREATED, NodeClaim=draft.name, error=str(error))
        return Creation(wish, None, str(error))
    context.cluster.note_claim_created(stored)
    created_counter(context.metrics).labels(
        reason, wish.pool.name, "true" if wish.min_values_relaxed else "false"
    ).inc()
    log.info(
        CREATED,
        NodeClaim=stored.name,
        NodePool=wish.pool.name,
        requests=format_resources(wish.requests),
        instance_types=shortened(wish.instance_types),
        capacity_types=", ".join(wish.requirements.get(known.CAPACITY_TYPE).permitted()),
        pods=len(wish.pods),
        price=wish.price,
    )
    return Creation(wish, stored)


def created_counter(metrics: Metrics) -> Counter:
    """Return the counter of created claims."""
    return metrics.counter(
        "karpenter_nodeclaims_created",
        "NodeClaims created, by reason and pool.",
        ["reason", "nodepool", "min_values_relaxed"],
    )


async def _post(context: Context, draft: NodeClaim) -> NodeClaim:
    """Send a create until it is answered; the name makes the repetition harmless."""
    doubtful = False
    for attempt in range(_ATTEMPTS):
        try:
            return await context.client.create(draft)
        except AlreadyExists:
            if doubtful:
                return await context.client.get(NodeClaim, draft.name)
            draft = msgspec.structs.replace(
                draft,
                metadata=msgspec.structs.replace(
                    draft.metadata, name=f"{draft.metadata.generate_name}{name_suffix(context.rng)}"
                ),
            )
        except TransportError:
            doubtful = True
            if attempt == _ATTEMPTS - 1:
                raise
            await context.clock.sleep(0.1 * 2**attempt)
    raise ApiError(409, "AlreadyExists", f"no free name for a NodeClaim {draft.metadata.generate_name}…")


def shortened(names: Iterable[str]) -> str:
    """Return the first few names, and how many more there are."""
    listed = list(names)
    more = len(listed) - _SHOWN_TYPES
    return ", ".join(listed[:_SHOWN_TYPES]) + (f" and {more} other(s)" if more > 0 else "")
