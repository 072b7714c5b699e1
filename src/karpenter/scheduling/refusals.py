"""Why a NodePool cannot take a pod, found out constraint by constraint."""

from typing import Any

import numpy as np

from karpenter.apis.annotations import PRICE_LIMIT, format_usd, micro_usd
from karpenter.base.quantity import format_resources, format_units
from karpenter.model.reasons import Constraint, Refusal
from karpenter.model.requirements import Requirements
from karpenter.scheduling.asks import Ask
from karpenter.scheduling.catalogue import Amounts, Mask
from karpenter.scheduling.classes import Variant
from karpenter.scheduling.purse import PRICE
from karpenter.scheduling.space import Axis, PoolSpace

_SHOWN_VALUES = 10
Detail = dict[str, Any]
_ABSURD_MILLICORES = 1_000_000 * 1000


def refuse(space: PoolSpace, ask: Ask, axis: Axis) -> Refusal:
    """Return why `space` has no new node for one pod of `ask` as it stands.

    The detail counts how many instance types each constraint removes on its own, and what the pod asks for.
    """
    variant, wanted = ask.demands, ask.wanted
    merged = space.admit(space.requirements, variant)
    if isinstance(merged, str):
        constraint: Constraint = "taints" if space.untolerated(variant) else "requirements"
        return Refusal(
            place=space.place,
            constraint=constraint,
            message=merged,
            detail={} if constraint == "taints" else _asked_in_vain(space, variant),
            remedy=_remedy(constraint),
        )
    evaluation = space.evaluate(merged)
    paid = space.affords(merged)
    within = space.within_limits() & paid
    fitting = space.fits(wanted)
    ports = space.free_ports(ask.ports)
    everything = len(space.catalogue)
    detail: Detail = {
        "instanceTypes": everything,
        "removed": {
            "requirements": everything - int(evaluation.matching.sum()),
            "resources": everything - int(fitting.sum()),
            "offering": everything - int(evaluation.offered.sum()),
            "limits": everything - int(within.sum()),
            "price": everything - int(paid.sum()),
            "hostPorts": everything - int(ports.sum()),
        },
        "requirements": str(variant.requirements),
        "requests": format_resources(ask.requests),
    }

    def no(constraint: Constraint, message: str, remedy: str = "") -> Refusal:
        return Refusal(
            place=space.place, constraint=constraint, message=message, detail=detail, remedy=remedy
        )

    if not everything:
        return no("nodepool", "nodepool requirements filtered out all available instance types")
    if space.nodes_remaining is not None and space.nodes_remaining < 1:
        detail["raise"] = {"nodes": "1"}
        return no(
            "limits", f"node limits have been exhausted for nodepool: {space.name!r}", "raise limits.nodes"
        )
    suitable = evaluation.matching & evaluation.offered & fitting & ports
    if (suitable & space.within_limits()).any() and not (suitable & within).any():
        detail["limit"] = PRICE
        message = f"all available instance types exceed the price limit for nodepool: {space.name!r}"
        return no("limits", message, _price_remedy(space, merged, suitable & space.within_limits(), detail))
    if suitable.any() and not (suitable & within).any():
        return no(
            "limits",
            f"all available instance types exceed limits for nodepool: {space.name!r}",
            _limit_remedy(space, suitable, detail),
        )
    if suitable.any():
        missing = space.achieved(merged, suitable & within)
        if missing:
            detail["minValues"] = dict(sorted(missing.items()))
            keys = ", ".join(
                f"{key} ({found} of {merged[key].min_values})" for key, found in sorted(missing.items())
            )
            return no("minValues", f"minValues requirement is not met for label(s) {keys}", "lower minValues")
        return no("resources", "no instance type has enough resources")
    if space.awaits(merged, fitting & ports):
        message = "the reserved capacity is held by nodeclaims that are being launched"
        return no("offering", message, "wait until they are, or raise the reservation")
    message = _no_type(evaluation.matching, fitting, evaluation.offered)
    asked = merged.without(*space.requirements)
    suffix = (f", requirements={asked}" if len(asked) else "") + f", resources={_text(ask)}"
    if not (evaluation.matching & fitting & evaluation.offered).any():
        constraint = _constraint(evaluation.matching, fitting, evaluation.offered)
        hint = ""
        if constraint == "resources" and ask.requests.get("cpu", 0) >= _ABSURD_MILLICORES:
            hint = " (CPU request >= 1 Million, m vs M typo?)"
        if constraint == "resources":
            remedy = _resource_remedy(space, wanted, axis, evaluation.matching & evaluation.offered, detail)
        else:
            key, remedy = _selection_remedy(space, merged, fitting)
            if key in variant.requirements:
                detail["key"] = key
            elif key:
                detail["poolKey"] = key
        return no(constraint, message + hint + suffix, remedy)
    return no("hostPorts", "the pod's host ports conflict with those of daemons" + suffix)


def _no_type(matching: Mask, fitting: Mask, offered: Mask) -> str:
    """Say which of the three conditions no type meets, or which two no type meets together."""
    meets = {
        "met all requirements": matching,
        "had enough resources": fitting,
        "had a required offering": offered,
    }
    if not (matching.any() or fitting.any() or offered.any()):
        return (
            "no instance type met the scheduling requirements or had enough resources "
            "or had a required offering"
        )
    for one, other in (
        ("met all requirements", "had enough resources"),
        ("met all requirements", "had a required offering"),
        ("had enough resources", "had a required offering"),
    ):
        if not meets[one].any() and not meets[other].any():
            return f"no instance type {one} or {other}"
    if not matching.any():
        return "no instance type met all requirements"
    if not fitting.any():
        return "no instance type has enough resources"
    if not offered.any():
        return "no instance type has the required offering"
    for one, other in (
        ("met all requirements", "had enough resources"),
        ("met all requirements", "had a required offering"),
        ("had enough resources", "had a required offering"),
    ):
        if not (meets[one] & meets[other]).any():
            return f"no instance type which {one} and {other} was found"
    return "no instance type met the requirements, resources and offering tuple"


def _constraint(matching: Mask, fitting: Mask, offered: Mask) -> Constraint:
    """Return the step, in the order requirements, resources, offering, at which no type is left."""
    if not matching.any():
        return "requirements"
    if not (matching & fitting).any():
        return "resources"
    return "offering"


def _text(ask: Ask) -> str:
    return ", ".join(f"{name}={amount}" for name, amount in format_resources(ask.requests).items())


def _remedy(constraint: Constraint) -> str:
    if constraint == "taints":
        return "add a toleration to the pod"
    return "change the pod's node selection, or let the NodePool define the label"


def _asked_in_vain(space: PoolSpace, variant: Variant) -> dict[str, str]:
    """Return the label, as `key`, that the pod asks for and the pool's nodes do not have that way."""
    wanted = variant.requirements
    for key in wanted:
        if space.requirements.compatible(Requirements.of(wanted[key]), space.well_known):
            return {"key": key}
    return {}


def _limit_remedy(space: PoolSpace, suitable: Mask, detail: Detail) -> str:
    """Name the limits to raise for the smallest type that would do; `detail` is told by how much."""
    rows = space.capacity[suitable]
    smallest = rows[np.lexsort(rows.T[::-1])[0]] if rows.shape[1] else np.zeros(0, dtype=np.int64)
    raises = {
        name: format_units(name, int(size - left))
        for name, size, left in zip(space.limited, smallest, space.remaining, strict=True)
        if size > left
    }
    detail["raise"] = raises
    return (
        "raise " + " and ".join(f"limits.{name} by {more}" for name, more in raises.items()) if raises else ""
    )


def _price_remedy(space: PoolSpace, merged: Requirements, suitable: Mask, detail: Detail) -> str:
    """Name the limits on money to raise for the cheapest type that would do; `detail` is told by how much."""
    cheapest = min(micro_usd(usd) for usd in space.evaluate(merged).usd[suitable].tolist())
    limits = {
        "nodepool": (f"{PRICE_LIMIT} of the NodePool", space.purse.own),
        "cluster": ("--cluster-price-limit", space.purse.shared),
    }
    short = {
        whose: (name, cheapest - left)
        for whose, (name, left) in limits.items()
        if left is not None and left < cheapest
    }
    detail["raiseMicroUsd"] = {whose: micro for whose, (_, micro) in short.items()}
    return "raise " + " and ".join(f"{name} by {format_usd(micro)}" for name, micro in short.values())


def _selection_remedy(space: PoolSpace, merged: Requirements, fitting: Mask) -> tuple[str, str]:
    """Return the one label that has to be asked for differently, and say so with the values there are."""
    for key in merged:
        without = space.evaluate(merged.without(key))
        if not (without.matching & without.offered & fitting).any():
            continue
        values = space.catalogue.values_of(key)
        shown = [*values[:_SHOWN_VALUES], *(["..."] if len(values) > _SHOWN_VALUES else [])]
        whose = "the NodePool's requirements" if key in space.requirements else "the pod's node selection"
        return key, f"change {key} in {whose}" + (f", there are: {', '.join(shown)}" if shown else "")
    return "", "change what the pod or the NodePool selects: no instance type has all of it"


def _resource_remedy(space: PoolSpace, wanted: Amounts, axis: Axis, selected: Mask, detail: Detail) -> str:
    """Name what the type that comes nearest lacks, and how much of it there is; `detail` is told as `atMost`.

    Of the types that the pod may have (`selected`) it is the one for which the pod has to shrink least.
    """
    if not len(space.catalogue):
        return ""
    ceiling = space.options.max_node_cpu
    if ceiling is not None and (space.room >= wanted).all(axis=1).any():
        return f"raise --max-node-cpu, which is {format_units('cpu', ceiling)}"
    largest = space.room.max(axis=0)
    for column in np.flatnonzero((wanted > largest) & (largest <= 0)).tolist():
        return f"allow instance types that have {axis.names[column]}: none of these has"
    rows = space.room[selected] if selected.any() else space.room
    asked = np.flatnonzero(wanted)
    short = np.maximum(0, wanted[asked] - rows[:, asked]) / wanted[asked]
    possible = (rows[:, asked] > 0).all(axis=1)
    if not possible.any():
        return "request less, or allow instance types that have all of it together"
    nearest = rows[int(np.argmin(np.where(possible, short.sum(axis=1), np.inf)))]
    detail["atMost"] = {
        axis.names[column]: format_units(axis.names[column], int(nearest[column]))
        for column in asked.tolist()
        if wanted[column] > nearest[column]
    }
    most = " and ".join(f"{amount} {name}" for name, amount in detail["atMost"].items())
    return f"request at most {most}, or allow larger instance types"
