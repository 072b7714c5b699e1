"""A cluster once a plan or a command is carried out at once: as announced, or an error says how not."""

from collections.abc import Iterable, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from karpenter.apis.core import Pod
from karpenter.base.quantity import fits, total
from karpenter.disruption.command import Command
from karpenter.disruption.launching import bound, launch_of, node_of
from karpenter.model.instancetype import InstanceType
from karpenter.model.pods import is_reschedulable, pod_key, requests
from karpenter.model.problem import Plan, PlannedClaim
from karpenter.model.snapshot import NodeView, Snapshot

Types = Mapping[str, Mapping[str, InstanceType]]
"""What each pool can buy: by pool, by name."""

_CENT = 1e-6
"""How far costs may be off for the sake of floating point, USD per hour."""


class Broken(Exception):
    """What was carried out did not turn out as announced: a mistake in whatever decided it."""


class Aftermath(msgspec.Struct, frozen=True, kw_only=True):
    """A cluster, and what its nodes cost."""

    snapshot: Snapshot
    prices: dict[str, float]
    """USD per hour by node; nodes whose offering is not known are not in it."""
    drawn: dict[str, str] = {}
    """Nodes that were launched from what there is only so much of: the lot's name by node."""
    launched: int = 0
    """How many nodes were launched so far; names count on from there."""

    @property
    def cost(self) -> float:
        """USD per hour of all nodes."""
        return sum(self.prices.get(node.name, 0.0) for node in self.snapshot.nodes)

    def held(self) -> dict[str, int]:
        """Return how much of each lot the launched nodes use; see `Problem.held`."""
        counts: dict[str, int] = {}
        for lot in self.drawn.values():
            counts[lot] = counts.get(lot, 0) + 1
        return dict(sorted(counts.items()))


def after_plan(state: Aftermath, plan: Plan, pods: Iterable[Pod], types: Types) -> Aftermath:
    """Return the cluster once `plan` for `pods`, which wait, is carried out.

    Raises:
        Broken: a pod is placed twice, or a node cannot hold what it gets.
    """
    waiting = {pod_key(pod): pod for pod in pods}
    refused = {u.pod for u in plan.unschedulable}
    moving = {key: pod for key, pod in waiting.items() if key not in refused}
    after = _carried_out(state, frozenset(), plan.claims, plan.placements, moving, types)
    left = tuple(pod for pod in state.snapshot.pending if pod_key(pod) not in moving)
    after = replace(after, snapshot=replace(after.snapshot, pending=left))
    _judge_cost(after.cost, state.cost + plan.cost)
    return after


def after_command(state: Aftermath, command: Command, types: Types) -> Aftermath:
    """Return the cluster once `command` is carried out: its nodes gone, its replacements there, pods moved.

    Whatever else runs on nodes that go (daemons, mirror pods) goes with them.

    Raises:
        Broken: a pod is lost or placed twice, a node cannot hold what it gets, or the cost is another one.
    """
    gone = frozenset(candidate.node.name for candidate in command.candidates)
    there = {node.name: node for node in state.snapshot.nodes}
    missing = sorted(gone - there.keys())
    if missing:
        raise Broken(f"{command}: node {missing[0]} is not there")
    moving = {pod_key(p): p for name in sorted(gone) for p in there[name].pods if is_reschedulable(p)}
    announced = state.cost - command.savings
    # Pods that wait anyway have places in the simulation too; those are none of the command's business.
    placements = {
        node: tuple(key for key in keys if key in moving) for node, keys in command.placements.items()
    }
    after = _carried_out(state, gone, command.replacements, placements, moving, types)
    _judge_cost(after.cost, announced)
    return after


def _carried_out(
    state: Aftermath,
    gone: frozenset[str],
    claims: Sequence[PlannedClaim],
    placements: Mapping[str, Sequence[str]],
    moving: Mapping[str, Pod],
    types: Types,
) -> Aftermath:
    targets = {name: keys for name, keys in placements.items() if keys}
    bought = [[key for key in claim.pods if key in moving] for claim in claims]
    _judge_places(moving, [*targets.values(), *bought])
    nodes = {node.name: node for node in state.snapshot.nodes if node.name not in gone}
    prices = {name: usd for name, usd in state.prices.items() if name not in gone}
    drawn = {name: lot for name, lot in state.drawn.items() if name not in gone}
    for name in sorted(targets):
        if name not in nodes:
            raise Broken(f"pod {targets[name][0]} is placed on node {name}, which is not there")
        nodes[name] = nodes[name].with_pods(bound((moving[key] for key in targets[name]), name))
        _judge_room(nodes[name])
    number = state.launched
    for claim, keys in zip(claims, bought, strict=True):
        number += 1
        while (name := f"{claim.pool.name}-new-{number}") in nodes:
            number += 1
        launch = launch_of(claim, types[claim.pool.name])
        nodes[name] = node_of(claim, launch, name, [moving[key] for key in keys])
        prices[name] = launch.price
        if claim.lot:
            drawn[name] = claim.lot
        _judge_room(nodes[name])
    ordered = tuple(nodes[name] for name in sorted(nodes))
    snapshot = replace(state.snapshot, nodes=ordered)
    return Aftermath(snapshot=snapshot, prices=prices, drawn=drawn, launched=number)


def _judge_places(moving: Mapping[str, Pod], places: Iterable[Iterable[str]]) -> None:
    """Raise Broken unless every pod has exactly one place."""
    seen: set[str] = set()
    for keys in places:
        for key in keys:
            if key not in moving:
                raise Broken(f"pod {key} is placed although it does not move")
            if key in seen:
                raise Broken(f"pod {key} is placed twice")
            seen.add(key)
    lost = sorted(moving.keys() - seen)
    if lost:
        raise Broken(f"pod {lost[0]} has no place ({len(lost)} of {len(moving)} have none)")


def _judge_room(node: NodeView) -> None:
    """Raise Broken when the pods on a node ask for more than it has."""
    used = total(requests(pod) for pod in node.pods)
    if not fits(used, node.allocatable):
        over = sorted(name for name, amount in used.items() if amount > node.allocatable.get(name, 0))
        raise Broken(f"node {node.name} is overcommitted: {', '.join(over)}")


def _judge_cost(cost: float, announced: float) -> None:
    if abs(cost - announced) > _CENT:
        raise Broken(f"the cluster costs {cost:.6f} USD per hour instead of the {announced:.6f} announced")
