"""Why a node is here, and why it is left alone: what binds every method, and what a drain would meet."""

import msgspec

from karpenter.apis import labels
from karpenter.apis.conditions import get, is_true
from karpenter.base.quantity import format_resources
from karpenter.base.timestamps import format_time
from karpenter.disruption import obstacles
from karpenter.disruption.drainblocks import drain_blocks, eviction_block
from karpenter.disruption.verdicts import Code, Method, Verdict
from karpenter.explain.answer import Answer, Change, Finding
from karpenter.explain.facts import Facts
from karpenter.explain.nodechanges import changes_for, unblocked
from karpenter.explain.words import dollars, plural
from karpenter.model import pods as podlib
from karpenter.model.pdbs import PdbLimits
from karpenter.model.snapshot import NodeView

_OF_PODS: frozenset[Code] = frozenset({"podDoNotDisrupt", "podDisruptionBudget"})
NOT_FOR_IT: frozenset[Code] = frozenset({"static", "dynamic", "notEmpty", "empty", "notDrifted"})
"""What a method says of nodes that it is not for: nothing stands in their way."""
PASSING: frozenset[Code] = frozenset({"queued", "noNode", "notInitialized", "deleting", "nominated"})
"""What holds for a while of every node that comes, goes or is about to get pods."""
_SHOWN = 5
_TITLES: dict[Method | None, str] = {
    None: "every method",
    "staticDrift": "drift",
    "multi": "multi-node consolidation",
    "single": "single-node consolidation",
    "sets": "consolidation",
}


def explain_node(node: NodeView, facts: Facts) -> Answer:
    """Return why nothing disrupts the node: what keeps it from all methods, else what each one says."""
    code, summary, findings = _standing(node, facts)
    first = findings[0] if findings else None
    binds = (first is not None and first.code == code) or node.marked_for_deletion
    return Answer(
        kind="node",
        name=node.name,
        at=format_time(facts.now),
        code=code,
        summary=summary,
        facts=_facts(node, facts),
        findings=findings,
        remedy=first.remedy if first is not None and binds else "",
        changes=first.changes if first is not None and binds else (),
    )


def _standing(node: NodeView, facts: Facts) -> tuple[str, str, tuple[Finding, ...]]:
    """Return how the node stands in one word and in one sentence, and all that there is to say."""
    if not node.managed:
        return "noClaim", "it is not Karpenter's: it has no NodeClaim, and is left alone", ()
    if node.marked_for_deletion:
        drain = _drain(node, facts, going=True)
        return "deleting", "it is on its way out" + (f"; {drain[0].message}" if drain else ""), drain
    said = (*_blocked(node, facts), *_verdicts(node, facts))
    findings = (*said, *_drain(node, facts, going=False))
    if not said:
        return "notLookedAt", "nothing is known of it yet: it is looked at in the next pass", findings
    first = said[0]
    what = "nothing calls for its disruption" if first.code in NOT_FOR_IT else "it stays"
    return first.code, f"{what}: {first.message}", findings


def _facts(node: NodeView, facts: Facts) -> dict[str, str]:
    moving = [pod for pod in node.pods if podlib.is_reschedulable(pod)]
    daemons = sum(1 for pod in node.pods if podlib.is_daemon(pod))
    names = ", ".join(pod.key for pod in moving[:_SHOWN])
    more = f" and {len(moving) - _SHOWN} more" if len(moving) > _SHOWN else ""
    place = [node.labels.get(k, "") for k in (labels.INSTANCE_TYPE, labels.ZONE, labels.CAPACITY_TYPE)]
    price = facts.price(node.claim) if node.claim is not None else None
    used, there = format_resources(node.requested), format_resources(node.allocatable)
    found = {
        "nodepool": node.nodepool,
        "nodeclaim": node.claim.name if node.claim is not None else "",
        "machine": ", ".join(part for part in (*place, dollars(price)) if part),
        "pods": f"{plural(len(moving), 'pod')} in need of a place"
        + (f" ({names}{more})" if moving else "")
        + f", {daemons} of DaemonSets",
        "used": ", ".join(f"{used.get(r, '0')} of {there[r]} {r}" for r in ("cpu", "memory") if r in there),
    }
    drifted = get(node.claim.status.conditions, "Drifted") if node.claim is not None else None
    if drifted is not None and drifted.status == "True":
        found["drifted"] = f"{drifted.reason} since {drifted.last_transition_time}"
    return {name: text for name, text in found.items() if text}


def _blocked(node: NodeView, facts: Facts) -> tuple[Finding, ...]:
    """Return what keeps the node from every method, as it is now; for pods: all of those in the way."""
    entry = facts.verdicts.of(node.name).get(None)
    if entry is not None and entry.verdict.code == "queued":
        return (_finding(entry.verdict, node, facts, entry.at),)
    pools = {pool.name: pool for pool in facts.snapshot.nodepools}
    listed = {name: [kind.name for kind in facts.catalogue(name)] for name in pools}
    why = obstacles.of_node(node, pools, listed, (), facts.now)
    limits = PdbLimits(facts.snapshot.pdbs, facts.snapshot.stand_ins)
    why = why or obstacles.of_pods(node.pods, limits, facts.now)
    if why is None:
        return ()
    verdict = Verdict(node=node.name, method=None, code=why.code, message=why.message, remedy=why.remedy)
    finding = _finding(verdict, node, facts, None)
    return (_of_pods(finding, node, limits, facts) if why.code in _OF_PODS else finding,)


def _of_pods(finding: Finding, node: NodeView, limits: PdbLimits, facts: Facts) -> Finding:
    """Return the finding with the changes that free all pods in the way, not only the first."""
    now = facts.now
    held = [pod for pod in node.pods if not podlib.is_disruptable(pod, now) or limits.blocking(pod, now)]
    blocks = [block for pod in held if (block := eviction_block(pod, limits, now)) is not None]
    changes: dict[Change, None] = {}
    for block in blocks:
        of_it = unblocked(block, facts)
        if not of_it:
            return _with(finding, (), len(blocks))  # one that no patch frees: the others do not matter yet
        changes.update(dict.fromkeys(of_it))
    return _with(finding, tuple(changes), len(blocks))


def _with(finding: Finding, changes: tuple[Change, ...], pods: int) -> Finding:
    return msgspec.structs.replace(finding, changes=changes, detail={"pods": pods})


def _verdicts(node: NodeView, facts: Facts) -> tuple[Finding, ...]:
    """Return what each method said last: what a drifted node waits for, then what costs most."""
    found = []
    drifted = node.claim is not None and is_true(node.claim.status.conditions, "Drifted")
    entries = facts.verdicts.of(node.name)
    pool = facts.pool(node.nodepool)
    other: Method = "drift" if pool is not None and pool.static else "staticDrift"
    for order, method in enumerate(facts.methods):
        entry = entries.get(method) if method != other else None
        if entry is not None:
            verdict = entry.verdict
            wanted = drifted and method in ("drift", "staticDrift")
            rank = (verdict.code in NOT_FOR_IT, not wanted, -(verdict.saving or 0.0), order)
            found.append((rank, _finding(verdict, node, facts, entry.at)))
    return tuple(finding for _, finding in sorted(found, key=lambda each: each[0]))


def title_of(method: Method | None) -> str:
    """Return what a method is called among people."""
    return _TITLES.get(method, method or "")


def _finding(verdict: Verdict, node: NodeView, facts: Facts, at: float | None) -> Finding:
    price = facts.price(node.claim) if node.claim is not None else None
    at_most = verdict.method is None and price is not None
    return Finding(
        about=title_of(verdict.method),
        method=verdict.method or "",
        code=verdict.code,
        message=verdict.message,
        saving_per_hour=price if at_most else verdict.saving if verdict.code not in NOT_FOR_IT else None,
        saving_at_most=at_most,
        remedy=verdict.remedy,
        changes=changes_for(verdict, node, facts),
        at=format_time(at) if at is not None else "",
        detail=verdict.detail,
    )


def _drain(node: NodeView, facts: Facts, *, going: bool) -> tuple[Finding, ...]:
    """Return what holds a drain up, or would."""
    limits = PdbLimits(facts.snapshot.pdbs, facts.snapshot.stand_ins)
    return tuple(
        Finding(
            about="drain" if going else "drain, if it were deleted",
            code=block.kind,
            message=f"pod {block.pod}: {block.message}",
            remedy=block.remedy,
            changes=unblocked(block, facts),
            detail={"permanent": block.permanent},
        )
        for block in drain_blocks(node.pods, limits, facts.now, node=node.node)
    )
