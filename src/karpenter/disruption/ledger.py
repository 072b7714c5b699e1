"""What consolidation has moved lately, so that it makes up for what it cost before it is undone.

A node that pods were moved to remembers the instance types that they came from, and since when, in an
annotation of its NodeClaim: whoever comes next knows. Until the payback time is over, consolidation does not
bring what runs there back to machines of these types, also not by way of others. So prices that go to and
fro, or pods that ended elsewhere than planned, do not send workloads round in circles.

A workload that has changed is another matter: once a node carries a fifth more or less than was meant for it,
what was moved there is forgotten.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from karpenter.apis import labels
from karpenter.apis.annotations import MOVED_FROM
from karpenter.apis.core import Pod
from karpenter.apis.karpenter import NodeClaim
from karpenter.base.quantity import Resources, total
from karpenter.base.timestamps import format_time
from karpenter.disruption.candidates import Candidate
from karpenter.disruption.command import Command
from karpenter.disruption.market import Market
from karpenter.disruption.replacement import only_types
from karpenter.disruption.restarts import Restarts
from karpenter.disruption.verdicts import Verdict
from karpenter.model.pods import pod_key, requests
from karpenter.model.problem import PlannedClaim
from karpenter.model.snapshot import NodeView

_CHANGED = 0.2
"""Share of what a node carries by which it has to differ for the workload to have changed."""
_CENT = 1e-6
"""How far rates may be off for the sake of floating point, USD per hour."""
_SIZES = ("cpu", "memory")
_REMEDY = "lower --consolidation-restart-cost, or give moves more time with --consolidation-payback"


class Memory(msgspec.Struct, frozen=True, kw_only=True):
    """What a node remembers."""

    types: dict[str, float]
    """The instance types that its pods came from, and when they last did, epoch seconds."""
    load: Resources
    """Cpu and memory that its pods were to request then, daemons aside."""

    def render(self) -> str:
        """Return the annotation's text."""
        return msgspec.json.encode(self, order="sorted").decode()


class Memories(NamedTuple):
    """What nodes have to remember of a command."""

    replacements: tuple[Memory | None, ...]
    """In the command's order; None: no pod comes from elsewhere."""
    nodes: dict[str, Memory]
    """Of nodes that are there and take pods, by name."""


def objection(command: Command, restarts: Restarts, now: float) -> Verdict | None:
    """Return that a consolidation does not pay for the restarts; None if it does."""
    if command.reason != "Underutilized" or not restarts.counted:
        return None
    least = restarts.least_saving(command.candidates, now)
    if command.savings >= least - _CENT:
        return None
    text = f"It would save ${command.savings:.4f} an hour; to pay for the restarts it has to be ${least:.4f}"
    return Verdict(
        node=command.candidates[0].name,
        method=command.method,
        code="payback",
        message=text,
        saving=command.savings,
        remedy=_REMEDY,
    )


def without_returns(command: Command, market: Market, restarts: Restarts, now: float) -> Command | Verdict:
    """Return `command` with replacements that bring no pod back to where it came from, or why it has none.

    Types that are struck from a claim leave it with fewer, and perhaps with a dearer one.
    """
    if command.reason != "Underutilized" or not restarts.counted:
        return command
    sources = {pod_key(pod): c for c in command.candidates for pod in c.reschedulable}
    claims = []
    for claim in command.replacements:
        left = _latest(recalled(c.node, restarts, now) for c in _of(claim.pods, sources))
        barred = [name for name in claim.instance_types if name in left]
        if not barred:
            claims.append(claim)
            continue
        fewer = only_types(claim, market, (n for n in claim.instance_types if n not in left))
        if fewer is None:
            return _refusal(command, claim, {name: left[name] for name in barred}, restarts)
        claims.append(fewer)
    if all(a is b for a, b in zip(claims, command.replacements, strict=True)):
        return command
    worst = sum(max(quote.worst for quote in market.of_claim(claim)) for claim in claims)
    return replace(command, replacements=tuple(claims), worst_price=worst)


def recalled(node: NodeView, restarts: Restarts, now: float) -> dict[str, float]:
    """Return the instance types that what runs on a node was moved from within the payback time, and when;
    nothing once its workload has changed."""
    memory = memory_of(node.claim)
    if memory is None or _has_changed(memory.load, _load(node)):
        return {}
    since = now - restarts.payback_hours * 3600
    return {name: at for name, at in sorted(memory.types.items()) if at > since}


def memories(command: Command, nodes: Mapping[str, NodeView], restarts: Restarts, now: float) -> Memories:
    """Return what nodes have to remember of a command; nothing where restarts do not count.

    `nodes` are those that are there, by name, as they were before it.
    """
    if command.reason != "Underutilized" or not restarts.counted:
        return Memories((None,) * len(command.replacements), {})
    sources = {pod_key(pod): c for c in command.candidates for pod in c.reschedulable}
    pods = {pod_key(pod): pod for c in command.candidates for pod in c.reschedulable}

    def memory(keys: Sequence[str], there: NodeView | None) -> Memory | None:
        moved = [pods[key] for key in keys if key in pods]
        if not moved:
            return None
        came = [_came_from(c, restarts, now) for c in _of(keys, sources)]
        if there is not None:
            came.append(recalled(there, restarts, now))
        return Memory(types=_latest(came), load=_with(_load(there) if there else {}, moved))

    kept = {name: memory(keys, nodes[name]) for name, keys in command.placements.items() if name in nodes}
    return Memories(
        tuple(memory(claim.pods, None) for claim in command.replacements),
        {name: found for name, found in sorted(kept.items()) if found is not None},
    )


def memory_of(claim: NodeClaim | None) -> Memory | None:
    """Return what a claim's node remembers; None when that is nothing, or makes no sense."""
    text = claim.metadata.annotations.get(MOVED_FROM) if claim is not None else None
    if text is None:
        return None
    try:
        return msgspec.json.decode(text, type=Memory)
    except msgspec.MsgspecError:
        return None


def remembering(node: NodeView, memory: Memory | None) -> NodeView:
    """Return `node` with what it has to remember."""
    if memory is None or node.claim is None:
        return node
    metadata = node.claim.metadata
    noted = replace(metadata, annotations={**metadata.annotations, MOVED_FROM: memory.render()})
    return replace(node, claim=replace(node.claim, metadata=noted))


def _refusal(
    command: Command, claim: PlannedClaim, barred: Mapping[str, float], restarts: Restarts
) -> Verdict:
    """Return that pods would go back, about the type that is open again first."""
    name, at = min(barred.items(), key=lambda item: (item[1], item[0]))
    until = format_time(at + restarts.payback_hours * 3600)
    return Verdict(
        node=command.candidates[0].name,
        method=command.method,
        code="undone",
        message=f"Its pods were moved away from {name} at {format_time(at)}, and would go back there",
        saving=command.savings,
        remedy=f"wait until {until}, or let nodepool/{claim.pool.name} buy another type that is as cheap",
    )


def _of(keys: Iterable[str], sources: Mapping[str, Candidate]) -> list[Candidate]:
    """Return the nodes that pods come from, by name."""
    found = {sources[key].name: sources[key] for key in keys if key in sources}
    return [found[name] for name in sorted(found)]


def _came_from(candidate: Candidate, restarts: Restarts, now: float) -> dict[str, float]:
    """Return what pods that leave a node will have come from: its type, and what it remembers."""
    kind = candidate.node.labels.get(labels.INSTANCE_TYPE, "")
    return {**recalled(candidate.node, restarts, now), **({kind: now} if kind else {})}


def _latest(found: Iterable[Mapping[str, float]]) -> dict[str, float]:
    types: dict[str, float] = {}
    for each in found:
        for name, at in each.items():
            types[name] = max(at, types.get(name, at))
    return dict(sorted(types.items()))


def _load(node: NodeView) -> Resources:
    """Return what the pods of a node request, daemons aside."""
    return {name: node.requested.get(name, 0) - node.daemon_requested.get(name, 0) for name in _SIZES}


def _with(load: Resources, pods: Iterable[Pod]) -> Resources:
    more = total(requests(pod) for pod in pods)
    return {name: load.get(name, 0) + more.get(name, 0) for name in _SIZES}


def _has_changed(meant: Resources, load: Resources) -> bool:
    return any(abs(load.get(n, 0) - meant.get(n, 0)) > _CHANGED * meant.get(n, 0) for n in _SIZES)
