"""What consolidation has moved lately, so that it makes up for what it cost before it is undone.

A workload whose pods were moved is remembered with the instance types that they came from, and since when, in
an annotation of the NodeClaims that they were moved to: whoever comes next knows. Until the payback time is
over, consolidation buys no machine of these types for pods of that workload, wherever they are by then: the
scheduler need not have put them where they were expected. So prices that go to and fro do not send pods round
in circles.

A workload that has changed is another matter: once it has a fifth more or fewer pods than it had then, what
was moved is forgotten.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from karpenter.apis import labels
from karpenter.apis.core import Pod
from karpenter.base.timestamps import format_time
from karpenter.disruption.command import Command
from karpenter.disruption.market import Market
from karpenter.disruption.memory import Memory, Moved, gathered, memory_of, merged, workload_of
from karpenter.disruption.replacement import only_types
from karpenter.disruption.restarts import Restarts
from karpenter.disruption.verdicts import Verdict
from karpenter.model.pods import pod_key
from karpenter.model.snapshot import NodeView, Snapshot

_CHANGED = 0.2
"""Share of its pods by which a workload has to grow or shrink to be another one."""
_CENT = 1e-6
"""How far rates may be off for the sake of floating point, USD per hour."""
_REMEDY = "lower --consolidation-restart-cost, or give moves more time with --consolidation-payback"


class Memories(NamedTuple):
    """What nodes have to remember of a command."""

    replacements: tuple[Memory, ...]
    """In the command's order; empty: no pod is moved there."""
    nodes: dict[str, Memory]
    """Of nodes that are there and take pods, by name."""


class Ledger:
    """What of all that is remembered still holds."""

    def __init__(self, snapshot: Snapshot, restarts: Restarts, remembered: Memory) -> None:
        """Look through it; there is nothing in it where restarts do not count."""
        self.restarts = restarts
        self.now = snapshot.taken_at
        self._snapshot = snapshot
        self._counts: dict[str, int] | None = None
        self._left = self.held(remembered) if restarts.counted else {}

    def left(self, workload: str) -> Mapping[str, Moved]:
        """Return the types that pods of a workload were moved from and may not go back to yet."""
        return self._left.get(workload, {})

    def held(self, memory: Memory) -> Memory:
        """Return what of a memory still holds: it has not paid yet, and the workload is as large as then."""
        since = self.now - self.restarts.payback_hours * 3600
        found = {}
        for workload, types in sorted(memory.items()):
            held = {name: moved for name, moved in types.items() if moved.at > since}
            if held:
                held = {name: moved for name, moved in held.items() if not self._changed(workload, moved)}
            if held:
                found[workload] = held
        return found

    def pods_of(self, workload: str) -> int:
        """Return how many pods a workload has; those on their way out do not count."""
        if self._counts is None:
            pods = {pod_key(p): p for node in self._snapshot.nodes for p in node.pods}
            pods |= {pod_key(p): p for p in self._snapshot.pending}
            self._counts = {}
            for pod in pods.values():
                if not pod.deleting:
                    name = workload_of(pod)
                    self._counts[name] = self._counts.get(name, 0) + 1
        return self._counts.get(workload, 0)

    def _changed(self, workload: str, moved: Moved) -> bool:
        return abs(self.pods_of(workload) - moved.pods) > _CHANGED * moved.pods


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


def without_returns(command: Command, market: Market, ledger: Ledger) -> Command | Verdict:
    """Return `command` with replacements that bring no pod back to where it came from, or why it has none.

    Types that are struck from a claim leave it with fewer, and perhaps with a dearer one.
    """
    if command.reason != "Underutilized" or not ledger.restarts.counted:
        return command
    pods = _moving(command)
    claims = []
    for claim in command.replacements:
        moved = [pods[key] for key in claim.pods if key in pods]
        left = _all_left(ledger, moved)
        barred = [name for name in claim.instance_types if name in left]
        if not barred:
            claims.append(claim)
            continue
        fewer = only_types(claim, market, (n for n in claim.instance_types if n not in left))
        if fewer is None:
            return _refusal(command, moved, barred[0], left[barred[0]].at, ledger)
        claims.append(fewer)
    if all(a is b for a, b in zip(claims, command.replacements, strict=True)):
        return command
    worst = sum(max(quote.worst for quote in market.of_claim(claim)) for claim in claims)
    return replace(command, replacements=tuple(claims), worst_price=worst)


def memories(command: Command, ledger: Ledger, nodes: Mapping[str, NodeView]) -> Memories:
    """Return what nodes have to remember of a command; nothing where restarts do not count.

    `nodes` are those that are there, by name, as they were before it.
    """
    if command.reason != "Underutilized" or not ledger.restarts.counted:
        return Memories(({},) * len(command.replacements), {})
    pods, came_from = _moving(command), _sources(command)
    # What the nodes that go remember of others is handed on, whoever has ended there.
    handed_on = ledger.held(gathered(c.node for c in command.candidates))

    def memory(keys: Sequence[str], known: Memory) -> Memory:
        moved = {}
        for workload in sorted({workload_of(pods[key]) for key in keys if key in pods}):
            now = Moved(ledger.now, ledger.pods_of(workload))
            moved[workload] = {**ledger.left(workload), **dict.fromkeys(sorted(came_from[workload]), now)}
        return merged((known, handed_on, moved)) if moved else {}

    takers = {name: nodes[name] for name in sorted(command.placements) if name in nodes}
    found = {
        name: memory(command.placements[name], ledger.held(memory_of(node.claim)))
        for name, node in takers.items()
    }
    return Memories(
        tuple(memory(claim.pods, {}) for claim in command.replacements),
        {name: memory for name, memory in found.items() if memory},
    )


def _refusal(command: Command, pods: Iterable[Pod], type: str, at: float, ledger: Ledger) -> Verdict:
    """Return that pods would go back to an instance type that they were moved from."""
    pod = next(p for p in pods if type in ledger.left(workload_of(p)))
    until = format_time(at + ledger.restarts.payback_hours * 3600)
    return Verdict(
        node=command.candidates[0].name,
        method=command.method,
        code="undone",
        message=f"{_title(pod)} moved away from {type} at {format_time(at)}, and would go back there",
        saving=command.savings,
        remedy=f"wait until {until}, or let its pods have another type that is as cheap",
    )


def _title(pod: Pod) -> str:
    owner = next((o for o in pod.metadata.owner_references if o.controller), None)
    if owner is None:
        return f"Pod {pod_key(pod)} was"
    return f"Pods of {owner.kind} {pod.namespace}/{owner.name} were"


def _moving(command: Command) -> dict[str, Pod]:
    """Return the pods that a command moves, by key."""
    return {pod_key(p): p for c in command.candidates for p in c.reschedulable}


def _sources(command: Command) -> dict[str, set[str]]:
    """Return the instance types that a command moves pods from, by workload."""
    found: dict[str, set[str]] = {}
    for candidate in command.candidates:
        kind = candidate.node.labels.get(labels.INSTANCE_TYPE, "")
        for pod in candidate.reschedulable:
            found.setdefault(workload_of(pod), set()).update({kind} if kind else ())
    return found


def _all_left(ledger: Ledger, pods: Iterable[Pod]) -> dict[str, Moved]:
    """Return the types that may not be bought for some pods."""
    found: dict[str, Moved] = {}
    for workload in sorted({workload_of(pod) for pod in pods}):
        for name, moved in ledger.left(workload).items():
            found[name] = max(moved, found.get(name, moved))
    return found
