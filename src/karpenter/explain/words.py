"""Words that several answers share."""

from karpenter.apis import conditions
from karpenter.apis.karpenter import NodeClaim
from karpenter.base.timestamps import format_time, parse_time
from karpenter.explain.answer import Finding
from karpenter.explain.facts import Facts

_NOTHING = 0.00005
MILESTONES = ("Launched", "Registered", "Initialized")
"""Conditions of a NodeClaim, in the order in which they come true."""


def dollars(usd: float | None) -> str:
    """Return a price per hour; empty when it is not known."""
    return "" if usd is None else f"${usd:.4f}/h"


def saving_text(finding: Finding) -> str:
    """Return what is forgone, e.g. `would save $0.1200/h`."""
    if finding.saving_per_hour is None or finding.saving_per_hour < _NOTHING:
        return "would save nothing"
    most = "could save at most" if finding.saving_at_most else "would save"
    return f"{most} {dollars(finding.saving_per_hour)}"


def plural(count: int, noun: str) -> str:
    """Return `3 pods`, `1 pod`."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def waits_for(claim: NodeClaim, facts: Facts) -> str:
    """Return what a claim waits for to become a node for pods; that it is ready when it waits for nothing."""
    pending = pending_condition(claim, facts)
    if pending is None:
        return "its node is ready for pods"
    name, reason, message, deadline = pending
    text = ": ".join(part for part in (reason, message) if part)
    until = f", until {format_time(deadline)} at most" if deadline is not None else ""
    return f"it is waiting to be {name.lower()}{f' ({text})' if text else ''}{until}"


def pending_condition(claim: NodeClaim, facts: Facts) -> tuple[str, str, str, float | None] | None:
    """Return the first milestone not reached: condition, reason, message, and when it is given up on.

    What a registered node lacks is looked up now, since conditions are a little late.
    """
    for name in MILESTONES:
        found = conditions.get(claim.status.conditions, name)
        if found is not None and found.status == "True":
            continue
        reason, message = (found.reason, found.message) if found is not None else ("", "")
        view = facts.machine(claim.name)
        if name == "Initialized" and view is not None and view.node is not None:
            lacks = facts.missing(claim, view.node)
            reason, message = lacks if lacks[0] else (reason, message)
        if reason == conditions.AWAITING:
            reason = message = ""
        return name, reason, message, _deadline(claim, name, facts)
    return None


def _deadline(claim: NodeClaim, name: str, facts: Facts) -> float | None:
    since = conditions.get(claim.status.conditions, "Registered" if name == "Initialized" else name)
    limit = {
        "Launched": facts.timeouts.launch,
        "Registered": facts.timeouts.registration,
        "Initialized": facts.timeouts.initialization,
    }[name]
    if since is None or since.last_transition_time is None or limit is None:
        return None
    return parse_time(since.last_transition_time) + limit
