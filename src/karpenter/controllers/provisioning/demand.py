"""What a pass is about: the pods that need a place, and the Problem that asks the solver for one."""

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import NamedTuple

from karpenter.apis import conditions
from karpenter.apis import labels as known
from karpenter.apis.annotations import PLANNED_LOT
from karpenter.apis.core import Pod
from karpenter.apis.karpenter import NodePool
from karpenter.base.quantity import Resources, resources_of, subtract
from karpenter.controllers.context import Context
from karpenter.controllers.provisioning.money import Spending, left_for_all, offer_of
from karpenter.controllers.provisioning.validation import pod_error
from karpenter.model.instancetype import InstanceType
from karpenter.model.pdbs import PdbLimits
from karpenter.model.pods import do_not_disrupt_active, expects_stand_in, is_reschedulable, pod_key
from karpenter.model.problem import PoolOffer, Problem, SolveOptions
from karpenter.model.requirements import Requirements
from karpenter.model.snapshot import Snapshot
from karpenter.model.volumerules import VolumeRules
from karpenter.scheduling.volumes import exclusive_users


class Demand(NamedTuple):
    """The pods of one pass."""

    pods: tuple[Pod, ...]
    """To be placed, by key."""
    invalid: tuple[tuple[Pod, str], ...]
    """Waiting pods that nothing can be done for, and why."""


def usable_pools(snapshot: Snapshot) -> list[NodePool]:
    """Return the pools that may buy now, best first: ready, dynamic, not on their way out."""
    return [
        pool
        for pool in snapshot.nodepools
        if not pool.deleting and not pool.static and conditions.is_true(pool.status.conditions, "Ready")
    ]


def demand_of(context: Context, snapshot: Snapshot) -> Demand:
    """Return who needs a place: waiting pods, and those of machines that go away unless something holds them.

    A pod that a claim on its way is reserved for has its place and is left out.
    """
    reserved = context.cluster.reserved_for
    return demand_in(snapshot, context.provider.volume_rules, lambda pod: bool(reserved(pod)))


def demand_in(snapshot: Snapshot, rules: VolumeRules, reserved: Callable[[Pod], bool]) -> Demand:
    """Return who needs a place in `snapshot`; `reserved` tells whether a pod has one already. Pure."""
    wanted: list[Pod] = []
    invalid: list[tuple[Pod, str]] = []
    users = exclusive_users(snapshot)
    for pod in snapshot.pending:
        error = pod_error(pod, snapshot, rules, users)
        if error:
            invalid.append((pod, error))
        else:
            wanted.append(pod)
    now = snapshot.taken_at
    pdbs = PdbLimits(snapshot.pdbs)
    for node in snapshot.nodes:
        if not node.marked_for_deletion or node.claim is None:
            continue
        wanted.extend(
            pod
            for pod in node.pods
            if pod.spec.node_name
            and is_reschedulable(pod)
            and not do_not_disrupt_active(pod, now)
            and not expects_stand_in(pod)  # which will ask by itself
            and not pdbs.fully_blocking(pod)
            and not reserved(pod)
        )
    return Demand(tuple(sorted(wanted, key=pod_key)), tuple(invalid))


def problem_of(
    context: Context,
    snapshot: Snapshot,
    pods: Sequence[Pod],
    catalogues: Mapping[str, tuple[InstanceType, ...]],
    versions: Mapping[str, int],
) -> Problem:
    """Return the question for the solver: `pods`, the machines there are, and the pools in `catalogues`.

    Pods that say nothing about their spread get the cluster's default constraints here.
    """
    settings = context.settings
    spending = cache(context.cluster.price_commitments)
    return Problem(
        snapshot=snapshot,
        pods=tuple(context.cluster.as_spread(pod) for pod in pods),
        nodes=tuple(n for n in snapshot.nodes if not n.marked_for_deletion),
        pools=tuple(_offers(context, snapshot, catalogues, versions, spending)),
        options=SolveOptions(
            respect_preferences=settings.preference_policy != "Ignore",
            min_values_strict=settings.min_values_policy != "BestEffort",
            well_known_labels=context.well_known_labels,
            ignore_dra_requests=settings.ignore_dra_requests,
            reservation_label=context.provider.reservation_label,
            reserved_strict=True,
            expendable_below=settings.expendable_below,
            node_fee=settings.node_fee,
            concentration_penalty=settings.concentration_penalty,
            max_node_cpu=settings.max_node_cpu_milli,
            price_remaining=left_for_all(settings.cluster_price_limit, spending),
            reserved_capacity=settings.feature_gates.get("ReservedCapacity", True),
            nominated=context.server.nomination,
        ),
        held=held(snapshot, context.provider.reservation_label),
    )


def _offers(
    context: Context,
    snapshot: Snapshot,
    catalogues: Mapping[str, tuple[InstanceType, ...]],
    versions: Mapping[str, int],
    spending: Spending,
) -> list[PoolOffer]:
    """Return what the pools can buy now, those that are asked first in front."""
    health = context.cluster.pool_health
    found = (
        offer_of(
            pool,
            catalogues[pool.name],
            remaining(context, pool),
            spending,
            versions.get(pool.name, 0),
            doubted=health.is_doubted(pool.metadata.uid, snapshot.taken_at),
        )
        for pool in usable_pools(snapshot)
        if catalogues.get(pool.name)
    )
    return sorted((offer for offer in found if offer is not None), key=lambda offer: -offer.weight)


def held(snapshot: Snapshot, reservation_label: str) -> dict[str, int]:
    """Return how much of what is scarce the claims that are not launched yet will take, by its name.

    Names are those of `karpenter.scheduling.stock`: a reservation's id, `type/zone/capacity type`, a step of
    a price. Once a machine is launched the cloud counts it.
    """
    counts: dict[str, int] = {}
    for node in snapshot.nodes:
        if node.claim is None or node.provider_id or node.marked_for_deletion:
            continue
        wanted = Requirements.from_specs(node.claim.spec.requirements)
        place = [wanted.single_value(k) for k in (known.INSTANCE_TYPE, known.ZONE, known.CAPACITY_TYPE)]
        reservation = wanted.single_value(reservation_label) if reservation_label else ""
        planned = node.claim.metadata.annotations.get(PLANNED_LOT, "")
        name = reservation or planned or ("/".join(place) if all(place) else "")
        if name:
            counts[name] = counts.get(name, 0) + 1
    return dict(sorted(counts.items()))


def remaining(context: Context, pool: NodePool) -> Resources:
    """Return what is left of the limits of `pool` when all claims on their way become as big as they may."""
    limits = resources_of(pool.spec.limits)
    if not limits:
        return {}
    committed = context.cluster.pool_commitment(pool.name)
    left = subtract(limits, {name: committed.get(name, 0) for name in limits})
    return {name: max(0, amount) for name, amount in left.items()}
