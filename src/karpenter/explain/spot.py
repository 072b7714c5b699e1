"""Which instance types a NodePool has to allow, too, so that a spot node may be replaced by a cheaper one."""

from collections.abc import Sequence

from karpenter.apis import labels
from karpenter.apis.karpenter import NodePool, RequirementSpec
from karpenter.base.quantity import fits
from karpenter.disruption.market import worst_price
from karpenter.disruption.replacement import SPOT_FLEXIBILITY
from karpenter.explain.answer import Change, Operation
from karpenter.explain.podchanges import of_nodepool, removed, replaced
from karpenter.model.instancetype import InstanceType
from karpenter.model.requirements import Requirements
from karpenter.model.snapshot import NodeView

_KEPT = frozenset({labels.CAPACITY_TYPE, labels.ZONE, labels.REGION, labels.ARCH, labels.OS})
"""Requirements that are about more than which machines are cheap: they are left alone."""


def more_types(
    pool: NodePool, node: NodeView, price: float, enough: frozenset[str], types: Sequence[InstanceType]
) -> tuple[Change, ...]:
    """Return the change after which enough types cheaper than `price` (USD per hour) can hold the pods.

    One requirement of the pool is widened by as few values as possible, or dropped; empty when no single one
    will do. `enough` are the names of the types that would do already.
    """
    specs = pool.spec.template.spec.requirements
    wanted = SPOT_FLEXIBILITY - len(enough)
    found: list[tuple[int, int, RequirementSpec, tuple[str, ...]]] = []
    for number, spec in enumerate(specs):
        if spec.key in _KEPT:
            continue
        rest = _asked(pool, node, [other for other in specs if other is not spec])
        cheaper = [t for t in _cheaper(types, rest, node, price) if t.name not in enough]
        if len(cheaper) < wanted:
            continue
        values = _values(spec, cheaper[:wanted])
        found.append((len(values), number, spec, values))
    if not found:
        return ()
    _, number, spec, values = min(found, key=lambda each: each[:2])
    path: tuple[str | int, ...] = ("spec", "template", "spec", "requirements", number)
    operation: Operation = replaced([*spec.values, *values], *path, "values") if values else removed(*path)
    text = f"allow {spec.key} {', '.join(values)}, too," if values else f"do not require {spec.key}"
    return (of_nodepool(pool, text, operation),)


def _asked(pool: NodePool, node: NodeView, specs: Sequence[RequirementSpec]) -> Requirements:
    """Return what a spot replacement has to be: by pool and pods, and of the same platform."""
    own = {key: node.labels[key] for key in (labels.ARCH, labels.OS) if key in node.labels}
    spot = {labels.CAPACITY_TYPE: labels.CAPACITY_SPOT}
    wanted = Requirements.from_specs(specs).merge(
        Requirements.from_labels({**pool.spec.template.metadata.labels, **own, **spot})
    )
    for pod in node.pods:
        wanted = wanted.merge(Requirements.from_labels(pod.spec.node_selector))
    return wanted


def _cheaper(
    types: Sequence[InstanceType], wanted: Requirements, node: NodeView, price: float
) -> list[InstanceType]:
    """Return the types that hold the pods for less than `price` wherever they are launched, by price."""
    found = []
    for each in types:
        if each.requirements.intersects(wanted) or not fits(node.requested, each.allocatable):
            continue
        offerings = [o for o in each.offerings if o.available and not o.requirements.intersects(wanted)]
        if offerings and worst_price(offerings) < price:
            found.append((min(o.price for o in offerings), each.name, each))
    return [each for _, _, each in sorted(found, key=lambda item: item[:2])]


def _values(spec: RequirementSpec, types: Sequence[InstanceType]) -> tuple[str, ...]:
    """Return the values to add to an `In` so that it allows `types`; empty: it has to go."""
    if spec.operator != "In":
        return ()
    own = dict.fromkeys(
        value for each in types for value in sorted(each.requirements.get(spec.key).permitted())
    )
    return tuple(value for value in own if value not in spec.values)
