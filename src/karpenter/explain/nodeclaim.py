"""How far a NodeClaim has come, what it waits for, and why its node is left alone."""

from karpenter.apis.conditions import AWAITING, get
from karpenter.apis.karpenter import NodeClaim
from karpenter.base.duration import parse_duration
from karpenter.base.quantity import format_resources, resources_of
from karpenter.base.timestamps import format_time, parse_time
from karpenter.explain.answer import Answer, Finding
from karpenter.explain.facts import Facts
from karpenter.explain.node import explain_node
from karpenter.explain.words import MILESTONES, dollars, pending_condition, waits_for
from karpenter.model.snapshot import NodeView

_AFTERWARDS = ("Drifted", "Consolidatable", "Drained", "VolumesDetached", "InstanceTerminating")
_SHOWN = 5
_OWN = {
    "StartupTaintsExist": "see why whoever takes that startup taint off does not",
    "KnownEphemeralTaintsExist": "see why the node is not made ready: network, cloud controller, kubelet",
    "NodeNotReady": "see the conditions of the Node: its kubelet does not report ready",
    "ResourceNotRegistered": "see why the device plugin of that resource does not run on the node",
}


def explain_nodeclaim(claim: NodeClaim, facts: Facts) -> Answer:
    """Return what the claim waits for; once its node is ready, what holds of the node."""
    view = facts.machine(claim.name)
    pending = pending_condition(claim, facts)
    milestones = tuple(_condition(claim, name, facts) for name in MILESTONES)
    later = tuple(
        _condition(claim, name, facts)
        for name in _AFTERWARDS
        if get(claim.status.conditions, name) is not None
    )
    node = explain_node(view, facts) if view is not None and view.node is not None else None
    remedy = ""
    if claim.deleting:
        code, summary = "deleting", f"it is being deleted since {claim.metadata.deletion_timestamp}"
        findings = (*(node.findings if node else ()), *later)
    elif pending is not None:
        node = None  # not much can be said of it yet
        waits = [each for each in milestones if each.about == f"condition {pending[0]}"]
        code, summary, remedy = waits[0].code, waits_for(claim, facts), waits[0].remedy
        findings = (*waits, *(each for each in milestones if each not in waits), *later)
    else:
        code, summary = node.code if node else "ready", "its node is ready for pods"
        findings = (*(node.findings if node else ()), *milestones, *later)
    return Answer(
        kind="nodeclaim",
        name=claim.name,
        at=format_time(facts.now),
        code=code,
        summary=f"{summary}; {node.summary}" if node else summary,
        facts=_facts(claim, view, facts),
        findings=findings,
        remedy=node.remedy if node else remedy,
        changes=node.changes if node else (),
    )


def _facts(claim: NodeClaim, view: NodeView | None, facts: Facts) -> dict[str, str]:
    found = {
        "nodepool": claim.metadata.labels.get("karpenter.sh/nodepool", ""),
        "node": claim.status.node_name,
        "instance": claim.status.provider_id,
        "price": dollars(facts.price(claim)),
        "requests": ", ".join(
            f"{amount} {name}"
            for name, amount in format_resources(resources_of(claim.spec.resources.requests)).items()
        ),
        "expires": _expiry(claim),
    }
    coming = [pod.key for pod in view.pods if not pod.spec.node_name] if view is not None else []
    if coming:
        more = f" and {len(coming) - _SHOWN} more" if len(coming) > _SHOWN else ""
        found["expected pods"] = ", ".join(coming[:_SHOWN]) + more
    return {name: text for name, text in found.items() if text}


def _expiry(claim: NodeClaim) -> str:
    after, born = claim.spec.expire_after, claim.metadata.creation_timestamp
    if after == "Never" or born is None:
        return "never"
    return f"{format_time(parse_time(born) + parse_duration(after))} (expireAfter {after})"


def _condition(claim: NodeClaim, name: str, facts: Facts) -> Finding:
    """Return a condition as it is; of the first milestone not reached, what it waits for."""
    found = get(claim.status.conditions, name)
    pending = pending_condition(claim, facts)
    if pending is not None and pending[0] == name:
        _, reason, message, deadline = pending
        text = message or "not yet"
        if deadline is not None:
            text += f"; given up on at {format_time(deadline)}"
        return Finding(
            about=f"condition {name}",
            code=reason or f"not{name}",
            message=text,
            remedy=_OWN.get(reason, ""),
            at=(found.last_transition_time or "") if found is not None else "",
        )
    if found is None or found.reason == AWAITING:
        return Finding(about=f"condition {name}", code=f"not{name}", message="not yet")
    text = f"{found.status}" + (f": {found.message}" if found.message else "")
    return Finding(
        about=f"condition {name}", code=found.reason, message=text, at=found.last_transition_time or ""
    )
