"""What a NodePool may buy, what keeps its nodes, and whom it refuses."""

from collections import Counter

from karpenter.apis.annotations import format_usd, price_limit
from karpenter.apis.conditions import AWAITING, is_true
from karpenter.apis.karpenter import NodePool
from karpenter.base.quantity import format_units, resources_of
from karpenter.base.timestamps import format_time
from karpenter.disruption.budgets import UNLIMITED, Reason, budget_problems, pool_budget
from karpenter.disruption.verdicts import Verdict
from karpenter.explain.answer import Answer, Change, Finding
from karpenter.explain.facts import Facts
from karpenter.explain.node import NOT_FOR_IT, PASSING, title_of
from karpenter.explain.nodechanges import changes_for
from karpenter.explain.podchanges import of_pool
from karpenter.explain.words import plural, saving_text
from karpenter.model.snapshot import NodeView

_ITS_OWN = frozenset({"limits", "minValues"})
"""Constraints that the pool has set itself."""
_REASONS: tuple[Reason, ...] = ("Empty", "Underutilized", "Drifted")


def explain_nodepool(pool: NodePool, facts: Facts) -> Answer:
    """Return whether the pool buys, whom it refuses, what saving is blocked by what: the first binds."""
    nodes = [node for node in facts.snapshot.nodes if node.nodepool == pool.name]
    stops, refused, kept = _stops(pool, facts), _refused(pool, facts), _kept(nodes, facts)
    short = [finding for finding in refused if finding.code in _ITS_OWN]
    binding = next(iter((*stops, *short, *kept)), None)
    summary = f"it does not buy: {stops[0].message}" if stops else "it buys nodes for pods"
    if short:
        summary += f"; {short[0].about} without a place: {short[0].message}"
    if kept:
        summary += f"; disrupting {kept[0].about} {saving_text(kept[0])}: {kept[0].message}"
    return Answer(
        kind="nodepool",
        name=pool.name,
        at=format_time(facts.now),
        code=binding.code if binding else "ready",
        summary=summary,
        facts=_facts(pool, nodes, facts),
        findings=(*stops, *_conditions(pool), *_invalid_budgets(pool, facts), *refused, *kept),
        remedy=binding.remedy if binding else "",
        changes=binding.changes if binding else (),
    )


def _stops(pool: NodePool, facts: Facts) -> list[Finding]:
    """Return why the pool is not asked for nodes at all."""
    if not any(each.name == pool.name for each in facts.snapshot.nodepools):
        reference = pool.spec.template.spec.node_class_ref
        text = f"its node class {reference.group}/{reference.kind} is not one that this operator serves"
        return [Finding(about="nodeClassRef", code="unmanaged", message=text)]
    idle = facts.idle(pool, bool(facts.catalogue(pool.name)))
    return [_not_buying(pool, idle)] if idle else []


def _invalid_budgets(pool: NodePool, facts: Facts) -> list[Finding]:
    return [
        Finding(about="budgets", code="budgetInvalid", message=problem)
        for problem in budget_problems(pool, facts.now)
    ]


def _facts(pool: NodePool, nodes: list[NodeView], facts: Facts) -> dict[str, str]:
    ready = sum(1 for node in nodes if node.initialized)
    going = sum(1 for node in nodes if node.marked_for_deletion)
    found = {
        "weight": str(pool.spec.weight or 0),
        "nodes": f"{len(nodes)} ({ready} ready, {going} on their way out)",
        "limits": _limits(pool, facts) or "none",
        "cost": _money(pool, facts),
        "consolidation": f"{pool.spec.disruption.consolidation_policy}, "
        f"after {pool.spec.disruption.consolidate_after}",
    }
    for reason in _REASONS:
        budget = pool_budget(pool, facts.snapshot.nodes, reason, facts.now)
        allowed = "any number" if budget.allowed == UNLIMITED else str(budget.allowed)
        found[f"budget {reason}"] = f"{allowed} at once, {budget.disrupting} going or not ready now"
    counts: Counter[str] = Counter()
    for node in nodes:
        for method, entry in facts.verdicts.of(node.name).items():
            counts[f"{title_of(method)} {entry.verdict.code}"] += 1
    if counts:
        found["verdicts"] = ", ".join(f"{name}: {count}" for name, count in sorted(counts.items()))
    return found


def _limits(pool: NodePool, facts: Facts) -> str:
    limits, used = resources_of(pool.spec.limits), facts.committed(pool.name)
    return ", ".join(
        f"{format_units(name, used.get(name, 0))} of {format_units(name, limit)} {name} in use or on the way"
        for name, limit in sorted(limits.items())
    )


def _money(pool: NodePool, facts: Facts) -> str:
    text = f"{format_usd(facts.spent.get(pool.name, 0))}/h"
    try:
        limit = price_limit(pool)
    except ValueError as error:
        return f"{text}; its limit cannot be read: {error}"
    if limit is not None:
        text += f" of {format_usd(limit)}/h"
    if facts.cluster_price_limit is not None:
        together = format_usd(sum(facts.spent.values()))
        text += f"; all pools {together}/h of {format_usd(facts.cluster_price_limit)}/h"
    return text


def _not_buying(pool: NodePool, idle: str) -> Finding:
    message = idle.partition(": ")[2] or idle
    code = "deleting" if pool.deleting else "static" if pool.static else "notReady"
    if code == "notReady" and is_true(pool.status.conditions, "Ready"):
        code = "noInstanceTypes"
    remedies = {
        "notReady": f"put right what the condition says of nodepool/{pool.name} or its node class",
        "static": f"set replicas of nodepool/{pool.name} to as many nodes as there should be",
        "noInstanceTypes": "see why its node class has no instance types in the cloud",
    }
    return Finding(about=f"nodepool/{pool.name}", code=code, message=message, remedy=remedies.get(code, ""))


def _conditions(pool: NodePool) -> list[Finding]:
    """Return the conditions that are not as they should be."""
    good = {"DriftHalted": "False"}
    return [
        Finding(
            about=f"condition {c.type}",
            code=c.reason or c.type,
            message=f"{c.status}" + (f": {c.message}" if c.message else ""),
            at=c.last_transition_time or "",
        )
        for c in pool.status.conditions
        if c.status != good.get(c.type, "True") and c.reason != AWAITING
    ]


def _refused(pool: NodePool, facts: Facts) -> list[Finding]:
    """Return why pods that wait have no node of the pool, the most frequent reason first."""
    place, pods = f"nodepool/{pool.name}", facts.refusals.pods()
    groups: dict[tuple[str, str, str], list[str]] = {}
    changes: dict[tuple[str, str, str], tuple[Change, ...]] = {}
    for key in pods:
        entry = facts.refusals.of(key)
        for refusal in entry.refusals if entry is not None else ():
            if refusal.place == place:
                group = (refusal.constraint, refusal.message, refusal.remedy)
                groups.setdefault(group, []).append(key)
                if refusal.constraint in _ITS_OWN and group not in changes:
                    changes[group] = of_pool(pool, refusal)
    ordered = sorted(groups.items(), key=lambda item: (-len(item[1]), item[0]))
    return [
        Finding(
            about=plural(len(keys), "waiting pod"),
            code=constraint,
            message=f"{message} (e.g. pod {keys[0]})",
            remedy=remedy,
            changes=changes.get((constraint, message, remedy), ()),
            detail={"pods": len(keys)},
        )
        for (constraint, message, remedy), keys in ordered
    ]


def _kept(nodes: list[NodeView], facts: Facts) -> list[Finding]:
    """Return, by reason, the node whose disruption would save most, the largest saving first."""
    most: dict[tuple[str, str], tuple[float, NodeView, Verdict, float, int]] = {}
    for node in nodes:
        for method, entry in facts.verdicts.of(node.name).items():
            verdict = entry.verdict
            price = (facts.price(node.claim) or 0.0) if node.claim is not None else 0.0
            saving = verdict.saving if verdict.saving is not None else price if method is None else 0.0
            if saving <= 0 or verdict.code in NOT_FOR_IT or verdict.code in PASSING:
                continue
            key = (method or "", verdict.code)
            before = most.get(key)
            count = before[4] + 1 if before is not None else 1
            if before is None or saving > before[0]:
                most[key] = (saving, node, verdict, entry.at, count)
            else:
                most[key] = (*before[:4], count)
    ordered = sorted(most.items(), key=lambda item: (-item[1][0], item[0]))
    return [
        Finding(
            about=f"node/{node.name}",
            code=verdict.code,
            message=verdict.message,
            saving_per_hour=saving,
            remedy=verdict.remedy,
            changes=changes_for(verdict, node, facts),
            at=format_time(at),
            saving_at_most=verdict.saving is None,
            method=method,
            detail={"nodes": count},
        )
        for (method, _), (saving, node, verdict, at, count) in ordered
    ]
