"""What a NodePool may buy, what keeps its nodes, and whom it refuses."""

from collections import Counter

from karpenter.apis.annotations import format_usd, price_limit
from karpenter.apis.conditions import AWAITING, is_true
from karpenter.apis.karpenter import NodePool
from karpenter.base.quantity import format_units, resources_of
from karpenter.base.timestamps import format_time
from karpenter.disruption.budgets import UNLIMITED, Reason, budget_problems, pool_budget
from karpenter.disruption.verdicts import Verdict
from karpenter.explain.answer import Answer, Finding
from karpenter.explain.facts import Facts
from karpenter.explain.node import NOT_FOR_IT, PASSING, title_of
from karpenter.explain.nodechanges import changes_for
from karpenter.explain.words import plural, saving_text
from karpenter.model.snapshot import NodeView

_REASONS: tuple[Reason, ...] = ("Empty", "Underutilized", "Drifted")


def explain_nodepool(pool: NodePool, facts: Facts) -> Answer:
    """Return whether the pool buys, what is left of its limits, and what saving is blocked, and by what."""
    nodes = [node for node in facts.snapshot.nodes if node.nodepool == pool.name]
    managed = any(each.name == pool.name for each in facts.snapshot.nodepools)
    idle = facts.idle(pool, bool(facts.catalogue(pool.name))) if managed else ""
    findings: list[Finding] = []
    if not managed:
        reference = pool.spec.template.spec.node_class_ref
        text = f"its node class {reference.group}/{reference.kind} is not one that this operator serves"
        findings.append(Finding(about="nodeClassRef", code="unmanaged", message=text))
    if idle:
        findings.append(_not_buying(pool, idle))
    findings.extend(_conditions(pool))
    findings.extend(
        Finding(about="budgets", code="budgetInvalid", message=problem)
        for problem in budget_problems(pool, facts.now)
    )
    findings.extend(_refused(pool, facts))
    findings.extend(_kept(nodes, facts))
    buying = f"it does not buy: {findings[0].message}" if idle or not managed else "it buys nodes for pods"
    worst = next((f for f in findings if f.saving_per_hour), None)
    blocked = f"; disrupting {worst.about} {saving_text(worst)}: {worst.message}" if worst else ""
    first = findings[0] if idle or not managed else worst
    return Answer(
        kind="nodepool",
        name=pool.name,
        at=format_time(facts.now),
        code=findings[0].code if idle or not managed else worst.code if worst else "ready",
        summary=buying + blocked,
        facts=_facts(pool, nodes, facts),
        findings=tuple(findings),
        remedy=first.remedy if first else "",
        changes=first.changes if first else (),
    )


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
    for key in pods:
        entry = facts.refusals.of(key)
        for refusal in entry.refusals if entry is not None else ():
            if refusal.place == place:
                group = (refusal.constraint, refusal.message, refusal.remedy)
                groups.setdefault(group, []).append(key)
    ordered = sorted(groups.items(), key=lambda item: (-len(item[1]), item[0]))
    return [
        Finding(
            about=plural(len(keys), "waiting pod"),
            code=constraint,
            message=f"{message} (e.g. pod {keys[0]})",
            remedy=remedy,
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
