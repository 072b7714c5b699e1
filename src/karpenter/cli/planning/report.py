"""A plan as data for people and programs: what `-o json` prints. `schema.json` describes it."""

from collections.abc import Mapping
from typing import Any

import msgspec

from karpenter.apis import annotations
from karpenter.apis import labels as known
from karpenter.apis.annotations import MICRO, micro_usd
from karpenter.apis.karpenter import NodePool
from karpenter.base.quantity import format_resources
from karpenter.cli.planning.cluster import Catalogues, spending_of
from karpenter.cli.planning.whatif import Cause, Outcome, cause_of
from karpenter.controllers.provisioning.demand import Demand, usable_pools
from karpenter.disruption.launching import launch_of
from karpenter.model.instancetype import InstanceType
from karpenter.model.pods import pod_key
from karpenter.model.problem import Plan, PlannedClaim
from karpenter.model.reasons import Refusal
from karpenter.model.snapshot import NodeView, Snapshot
from karpenter.scheduling.explain import refusal_text

_USD_DIGITS = 6
_SHARE_DIGITS = 6
Outcomes = Mapping[tuple[str, Cause], Outcome]
"""What remedies would come to, by pod and cause."""


class Record(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True, kw_only=True):
    """The base of what is reported; every field is always written."""


class Launch(Record, frozen=True):
    """The offering a new node would be bought by: the cheapest one that suits."""

    instance_type: str
    zone: str
    capacity_type: str
    price: float
    """USD per hour."""


class Need(Record, frozen=True):
    """One requirement of a new node."""

    key: str
    operator: str
    values: list[str]
    min_values: int | None = None


class NewNode(Record, frozen=True):
    """A node to create."""

    node_pool: str
    launch: Launch
    instance_types: list[str]
    """All types that would do, cheapest first."""
    requirements: list[Need]
    """By key, the instance types left out."""
    requests: dict[str, str]
    """Of its pods and of the daemons that will run there."""
    pods: list[str]


class ExistingNode(Record, frozen=True):
    """A node that is there, with the waiting pods that are meant for it."""

    name: str
    pods: list[str]


class Reason(Record, frozen=True):
    """Why one place cannot take a pod."""

    place: str
    """`nodepool/NAME`, `node/NAME`; empty when it is true everywhere."""
    constraint: str
    message: str
    detail: dict[str, Any]
    remedy: str
    """The smallest change that would help; empty when none is known."""
    remedy_places: int | None = None
    """How many of the pods that are left out like this one, itself included, would have a place if this
    reason were gone altogether; null when that was not tried."""
    remedy_price_per_hour: float | None = None
    """How much more the plan would cost then; null when no pod would have a place, or that was not tried."""


class Unscheduled(Record, frozen=True):
    """Why a pod has no place."""

    message: str
    reasons: list[Reason]


class Timing(Record, frozen=True):
    """Seconds spent; null where the clock was left alone (`--deterministic`)."""

    compile_seconds: float | None
    solve_seconds: float | None
    improve_seconds: float | None


class PriceLimit(Record, frozen=True):
    """A limit on money, USD per hour."""

    name: str
    """`nodepool/NAME`, or `cluster`."""
    limit_per_hour: float
    used_per_hour: float
    """By nodes that are there or on their way."""
    planned_per_hour: float
    """By the new nodes."""


class LimitCost(Record, frozen=True):
    """What a limit costs that makes the plan dearer."""

    place: str
    """`nodepool/NAME`, or `cluster`."""
    resource: str
    amount: str
    """One unit more: `1`, or `1Gi` of memory and storage."""
    saves_per_hour: float
    """USD per hour that plans could be cheaper with `amount` more, about."""


class Report(Record, frozen=True):
    """Everything about one plan."""

    new_nodes: list[NewNode]
    existing_nodes: list[ExistingNode]
    unschedulable: dict[str, Unscheduled]
    new_nodes_cost_per_hour: float
    existing_nodes_cost_per_hour: float
    total_cost_per_hour: float
    lower_bound_per_hour: float | None
    """No plan that places the same pods can buy new nodes for less."""
    gap: float | None
    """How far the new nodes' cost is above the bound, as a share of the bound."""
    price_limits: list[PriceLimit]
    limit_prices: list[LimitCost]
    timing: Timing


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of a report; `schema.json` is this, written down."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **msgspec.json.schema(Report)}


def report_of(
    plan: Plan,
    snapshot: Snapshot,
    demand: Demand,
    catalogues: Catalogues,
    timing: Timing,
    price_limit: int | None = None,
    outcomes: Outcomes | None = None,
) -> Report:
    """Return `plan` as data; `demand` tells of the pods that were not even asked about.

    `price_limit` is for all nodes together, micro-USD per hour. `outcomes`: what remedies would come to.
    """
    existing = existing_cost(snapshot, catalogues)
    by_name = {pool: {t.name: t for t in types} for pool, types in catalogues.items()}
    bound = plan.lower_bound
    return Report(
        new_nodes=[new_node(claim, by_name[claim.pool.name]) for claim in plan.claims],
        existing_nodes=[
            ExistingNode(name=name, pods=list(plan.placements[name])) for name in sorted(plan.placements)
        ],
        unschedulable=_unschedulable(plan, demand, outcomes or {}),
        new_nodes_cost_per_hour=plan.cost,
        existing_nodes_cost_per_hour=existing,
        total_cost_per_hour=plan.cost + existing,
        lower_bound_per_hour=bound,
        gap=round(plan.cost / bound - 1, _SHARE_DIGITS) if bound else (0.0 if plan.cost == 0 else None),
        price_limits=_price_limits(plan, snapshot, catalogues, price_limit),
        limit_prices=[
            LimitCost(
                place=p.place,
                resource=p.resource,
                amount=p.amount,
                saves_per_hour=round(p.usd, _USD_DIGITS),
            )
            for p in plan.limit_prices
        ],
        timing=timing,
    )


def _price_limits(
    plan: Plan, snapshot: Snapshot, catalogues: Catalogues, together: int | None
) -> list[PriceLimit]:
    limits = {f"nodepool/{p.name}": limit for p in usable_pools(snapshot) if (limit := _limit(p)) is not None}
    if not limits and together is None:
        return []
    used = {f"nodepool/{name}": spent for name, spent in spending_of(snapshot, catalogues).items()}
    planned: dict[str, int] = {}
    for claim in plan.claims:
        name = f"nodepool/{claim.pool.name}"
        planned[name] = planned.get(name, 0) + micro_usd(claim.price)
    rows = [(name, limits[name], used.get(name, 0), planned.get(name, 0)) for name in sorted(limits)]
    if together is not None:
        rows.append(("cluster", together, sum(used.values()), sum(planned.values())))
    return [
        PriceLimit(
            name=name, limit_per_hour=limit / MICRO, used_per_hour=spent / MICRO, planned_per_hour=new / MICRO
        )
        for name, limit, spent, new in rows
    ]


def _limit(pool: NodePool) -> int | None:
    try:
        return annotations.price_limit(pool)
    except ValueError:
        return None  # such a pool is refused when it is read


def new_node(claim: PlannedClaim, types: Mapping[str, InstanceType]) -> NewNode:
    """Return a planned node as data; `types` are what its pool can buy."""
    return NewNode(
        node_pool=claim.pool.name,
        launch=bought(claim, types),
        instance_types=list(claim.instance_types),
        requirements=[
            Need(key=s.key, operator=s.operator, values=list(s.values), min_values=s.min_values)
            for s in claim.requirements.without(known.INSTANCE_TYPE).to_specs()
        ],
        requests=dict(format_resources(claim.requests)),
        pods=sorted(claim.pods),
    )


def bought(claim: PlannedClaim, types: Mapping[str, InstanceType]) -> Launch:
    """Return the cheapest available offering of the claim's types that meets it; ties by name, zone, kind."""
    kind, offering, _ = launch_of(claim, types)
    return Launch(
        instance_type=kind.name,
        zone=offering.zone,
        capacity_type=offering.capacity_type,
        price=offering.price,
    )


def existing_cost(snapshot: Snapshot, catalogues: Catalogues) -> float:
    """Return USD per hour of the nodes there are, as far as their offerings are known."""
    return sum(node_prices(snapshot, catalogues).values())


def node_prices(snapshot: Snapshot, catalogues: Catalogues) -> dict[str, float]:
    """Return USD per hour by node, of those whose offering is in a catalogue."""
    prices: dict[tuple[str, str, str], float] = {}
    for pool in sorted(catalogues):
        for each in catalogues[pool]:
            for offering in each.offerings:
                place = (each.name, offering.zone, offering.capacity_type)
                prices[place] = min(offering.price, prices.get(place, offering.price))
    return {view.name: prices[place] for view in snapshot.nodes if (place := _place(view)) in prices}


def _place(view: NodeView) -> tuple[str, str, str]:
    keys = (known.INSTANCE_TYPE, known.ZONE, known.CAPACITY_TYPE)
    first, second, third = (view.labels.get(key, "") for key in keys)
    return first, second, third


def _unschedulable(plan: Plan, demand: Demand, outcomes: Outcomes) -> dict[str, Unscheduled]:
    found = {
        refused.pod: Unscheduled(
            message="; ".join(refusal_text(r) for r in refused.refusals),
            reasons=[_reason(r, outcomes.get((refused.pod, cause_of(r)))) for r in refused.refusals],
        )
        for refused in plan.unschedulable
    }
    for pod, error in demand.invalid:
        reason = Reason(place="", constraint="invalid", message=error, detail={}, remedy="")
        found[pod_key(pod)] = Unscheduled(message=error, reasons=[reason])
    return dict(sorted(found.items()))


def _reason(refusal: Refusal, outcome: Outcome | None) -> Reason:
    return Reason(
        place=refusal.place,
        constraint=refusal.constraint,
        message=refusal.message,
        detail=refusal.detail,
        remedy=refusal.remedy,
        remedy_places=outcome.places if outcome else None,
        remedy_price_per_hour=outcome.price if outcome else None,
    )
