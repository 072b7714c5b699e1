"""Amounts that cannot be planned with: not quantities, negative, or so large that sums would not fit."""

from collections.abc import Mapping

from karpenter.apis.core import IntOrString, Pod
from karpenter.base.quantity import Resources, resources_of
from karpenter.cli.planning.catalogues import LARGEST
from karpenter.cli.planning.checking import finding
from karpenter.cli.planning.inventory import Inventory
from karpenter.cli.validate import Finding
from karpenter.model.pods import requests

_FIX = f"want quantities of 0 or more whose sum over everything stays below {LARGEST}"


def judge_amounts(inventory: Inventory) -> None:
    """Add to the inventory's findings what is wrong with the sizes in it."""
    total: Resources = {}
    by_spec: dict[int, Resources | str] = {}
    for key, pod in sorted(inventory.pods.items()):
        wanted = by_spec.get(id(pod.spec)) if not pod.status.container_statuses else None
        if wanted is None:
            wanted = _requests(pod)
            if not pod.status.container_statuses:
                by_spec[id(pod.spec)] = wanted
        _count(inventory, ("Pod", key), "spec", wanted, total)
        if inventory.findings and len(inventory.findings) > _MOST:
            return
    for key, daemon_set in sorted(inventory.daemon_sets.items()):
        template = Pod(spec=daemon_set.spec.template.spec)
        _count(inventory, ("DaemonSet", key), "spec.template.spec", _requests(template), total)
    for key, node in sorted(inventory.nodes.items()):
        for field, amounts in (("allocatable", node.status.allocatable), ("capacity", node.status.capacity)):
            _count(inventory, ("Node", key), f"status.{field}", _read(amounts), total)
    for key, claim in sorted(inventory.claims.items()):
        status, wanted_by = claim.status, claim.spec.resources.requests
        for field, amounts in (
            ("status.allocatable", status.allocatable),
            ("status.capacity", status.capacity),
            ("spec.resources.requests", wanted_by),
        ):
            _count(inventory, ("NodeClaim", key), field, _read(amounts), total)
    for key, pool in sorted(inventory.pools.items()):
        _count(inventory, ("NodePool", key), "spec.limits", _read(pool.spec.limits), {})


_MOST = 1000


def _requests(pod: Pod) -> Resources | str:
    try:
        return requests(pod)
    except ValueError as error:
        return str(error)


def _read(amounts: Mapping[str, IntOrString]) -> Resources | str:
    try:
        return resources_of(amounts)
    except ValueError as error:
        return str(error)


def _count(
    inventory: Inventory, place: tuple[str, str], field: str, amounts: Resources | str, total: Resources
) -> None:
    """Add `amounts` to `total`, or say why that cannot be."""
    if isinstance(amounts, str):
        inventory.findings.append(_about(inventory, place, field, amounts))
        return
    for name, amount in amounts.items():
        total[name] = total.get(name, 0) + amount
        if amount < 0:
            inventory.findings.append(_about(inventory, place, field, f"{name} is negative"))
        elif total[name] >= LARGEST:
            inventory.findings.append(_about(inventory, place, field, f"{name} is too much to count"))
            total[name] = 0


def _about(inventory: Inventory, place: tuple[str, str], field: str, problem: str) -> Finding:
    document = inventory.documents.get(place)
    if document is not None:
        return finding(document, field, problem, _FIX)
    kind, key = place
    return Finding("", 0, "error", f"{kind}/{key}", field, None, problem, _FIX)
