"""Plans for a kube-scheduler that cannot be told which pod is meant for which node.

It fills the nodes as they come with whatever waits. Where a cheap plan matches pods that want much memory
with nodes that have much of it, it does not, and what is then left over needs further nodes. Here plans whose
nodes are more alike are tried too, and each is judged by what it costs together with those left over.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from math import log2

import msgspec

from karpenter.apis import labels
from karpenter.base.quantity import Resources, subtract, total
from karpenter.model.instancetype import InstanceType
from karpenter.model.pods import pod_key, requests
from karpenter.model.problem import Plan, PlannedClaim, Problem
from karpenter.model.requirements import Requirements
from karpenter.scheduling.classes import PodClass
from karpenter.scheduling.domains import NO_DOMAINS

_AGAIN = 0.8
"""What room for those left over costs, against what they cost in the plan. Measured: scores scatter pods, so
fewer are left over than are counted here."""
_MOST_STEPS = 40_000
"""Nodes times classes up to which it is tried out who would be left over."""
_FEW_STEPS = 2_000
"""… and up to which that is tried in more than one order of nodes."""
_MOST_KEPT = 8
"""Tuples of types remembered."""

Types = tuple[InstanceType, ...]
Solving = Callable[[Problem], Plan]


def realistic(problem: Problem, tight: Plan, classes: Sequence[PodClass], solving: Solving) -> Plan:
    """Return `tight`, or a plan whose nodes are all of one shape if that is likely cheaper in the end."""
    if len(tight.claims) < 2 or len(tight.claims) * len(classes) > _MOST_STEPS:
        return tight
    best, least = tight, expected_cost(problem, tight, classes)
    for shape in _shapes(problem, tight):
        plan = solving(_offering(problem, shape))
        if plan.distrusted or len(plan.unschedulable) > len(tight.unschedulable):
            continue
        cost = expected_cost(problem, plan, classes)
        if cost < least:
            best, least = plan, cost
    return best if best is tight else msgspec.structs.replace(best, lower_bound=tight.lower_bound)


def _shapes(problem: Problem, tight: Plan) -> list[int]:
    """Return the shapes of the plan's nodes, and the one that would suit all pods together."""
    types = {t.name: t for offer in problem.pools for t in offer.instance_types}
    used = {_shape(types[claim.instance_types[0]]) for claim in tight.claims}
    pods = total(requests(p) for p in problem.pods)
    cores, gib = pods.get("cpu", 0) / 1000, pods.get("memory", 0) / 2**30
    return sorted(used | ({round(log2(gib / cores))} if cores and gib else set()))


def _offering(problem: Problem, shape: int) -> Problem:
    pools = tuple(
        msgspec.structs.replace(offer, instance_types=_shaped(offer.instance_types, shape))
        for offer in problem.pools
    )
    return msgspec.structs.replace(problem, pools=pools)


_kept: dict[tuple[int, int], tuple[Types, Types]] = {}


def _shaped(types: Types, shape: int) -> Types:
    """Return those of a shape; for the same tuple the same tuple, so that it is compiled once."""
    known = _kept.get((id(types), shape))
    if known is None or known[0] is not types:
        while len(_kept) >= _MOST_KEPT:
            _kept.pop(next(iter(_kept)), None)  # another thread may have been faster
        known = _kept[(id(types), shape)] = (types, tuple(t for t in types if _shape(t) == shape))
    return known[1]


def _shape(kind: InstanceType) -> int:
    """Return how much memory a type has for each core: two to this power GiB, rounded."""
    cores, gib = kind.capacity.get("cpu", 0) / 1000, kind.capacity.get("memory", 0) / 2**30
    return round(log2(gib / cores)) if cores and gib else 0


class _Node(msgspec.Struct):
    """A planned node as it will arrive."""

    room: Resources
    """For pods other than daemons'."""
    labels: Requirements
    zone: str
    pods: tuple[str, ...]


class _Crowd(msgspec.Struct):
    """The pods of a class that are meant for new nodes."""

    each: Resources
    count: int
    demands: Requirements
    a_node: int
    """How many may share a node."""
    a_zone: dict[str, int] | None
    """How many may be in each zone; None: any number."""


def expected_cost(problem: Problem, plan: Plan, classes: Sequence[PodClass]) -> float:
    """Return $/h of the plan's nodes and of further ones for those who find no room on them, roughly.

    Nodes are filled one after the other, by pods in the order of their names and by the biggest first.
    """
    wanted = {pod_key(p): requests(p) for p in problem.pods}
    types = {t.name: t for offer in problem.pools for t in offer.instance_types}
    seen: dict[tuple[Requirements, str], tuple[Requirements, Resources]] = {}
    nodes = [_node(claim, types, wanted, seen) for claim in plan.claims]
    crowds = _crowds(plan, classes, nodes)
    whole = total(_times(c.each, c.count) for c in crowds)
    biggest = sorted(crowds, key=lambda c: (c.each.get("cpu", 0), c.each.get("memory", 0)), reverse=True)
    orders = [[*nodes[1::2], *nodes[::2]]]
    if len(nodes) * len(crowds) <= _FEW_STEPS:
        orders += [nodes, nodes[::-1]]
    shares: list[float] = []
    passes: dict[tuple[Requirements, Requirements], bool] = {}
    for queue in (crowds, biggest):
        for order in orders:
            left = _left_over(queue, order, passes)
            shares.append(max(left.get(r, 0) / whole[r] if whole.get(r) else 0.0 for r in ("cpu", "memory")))
    return plan.cost * (1 + _AGAIN * sum(shares) / len(shares))


def _node(
    claim: PlannedClaim,
    types: Mapping[str, InstanceType],
    wanted: Mapping[str, Resources],
    seen: dict[tuple[Requirements, str], tuple[Requirements, Resources]],
) -> _Node:
    kind = types[claim.instance_types[0]]
    if (claim.requirements, kind.name) not in seen:
        _, zone, capacity_type, number = min(
            (o.price, o.zone, o.capacity_type, i)
            for i, o in enumerate(kind.offerings)
            if o.available and not claim.requirements.intersects(o.requirements)
        )
        known = claim.requirements.merge(kind.requirements).merge(
            Requirements.from_labels({labels.ZONE: zone, labels.CAPACITY_TYPE: capacity_type})
        )
        machine = kind.bought_as(kind.offerings[number])
        seen[(claim.requirements, kind.name)] = known, machine.allocatable
    known, allocatable = seen[(claim.requirements, kind.name)]
    daemons = subtract(claim.requests, total(wanted[key] for key in claim.pods))
    room = subtract(allocatable, {r: a for r, a in daemons.items() if a > 0})
    return _Node(room=room, labels=known, zone=known.single_value(labels.ZONE), pods=claim.pods)


def _crowds(plan: Plan, classes: Sequence[PodClass], nodes: Sequence[_Node]) -> list[_Crowd]:
    """Return the classes with pods for new nodes, by the name of their first pod."""
    place = {key: at for at, node in enumerate(nodes) for key in node.pods}
    found = []
    for each in sorted(classes, key=lambda c: c.pods[0]):
        at = Counter(place[key] for key in each.pods if key in place)
        if not at:
            continue
        by_zone: Counter[str] = Counter()
        for node, count in at.items():
            by_zone[nodes[node].zone] += count
        found.append(
            _Crowd(
                each=each.requests,
                count=at.total(),
                demands=each.variants[-1].requirements,
                a_node=at.total() if each.profile.alone else max(at.values()),
                a_zone=None if each.profile.wide is NO_DOMAINS else dict(by_zone),
            )
        )
    return found


def _left_over(
    queue: Sequence[_Crowd],
    order: Sequence[_Node],
    passes: dict[tuple[Requirements, Requirements], bool],
) -> Resources:
    """Return what those want who find no room when each node is filled in the queue's order."""
    counts = [crowd.count for crowd in queue]
    zones = [dict(crowd.a_zone) if crowd.a_zone is not None else None for crowd in queue]
    for node in order:
        room = dict(node.room)
        for i, crowd in enumerate(queue):
            if not counts[i]:
                continue
            zone = zones[i]
            most = min(counts[i], crowd.a_node, counts[i] if zone is None else zone.get(node.zone, 0))
            for name, amount in crowd.each.items():
                if amount:
                    most = min(most, room.get(name, 0) // amount)
            if most <= 0 or not _passes(crowd.demands, node.labels, passes):
                continue
            counts[i] -= most
            if zone is not None:
                zone[node.zone] -= most
            for name, amount in crowd.each.items():
                room[name] = room.get(name, 0) - most * amount
    return total(_times(crowd.each, count) for crowd, count in zip(queue, counts, strict=True) if count)


def _passes(
    demands: Requirements, node: Requirements, known: dict[tuple[Requirements, Requirements], bool]
) -> bool:
    found = known.get((demands, node))
    if found is None:
        found = known[(demands, node)] = not node.intersects(demands)
    return found


def _times(amounts: Resources, count: int) -> Resources:
    return {name: amount * count for name, amount in amounts.items()}
