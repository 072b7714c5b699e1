"""Why a pod waits, or runs where it does."""

from collections.abc import Sequence

from karpenter.apis import labels
from karpenter.apis.conditions import get
from karpenter.apis.core import Pod
from karpenter.base.quantity import format_resources
from karpenter.base.timestamps import format_time
from karpenter.disruption.drainblocks import eviction_block
from karpenter.explain.answer import Answer, Change, Finding
from karpenter.explain.facts import Facts
from karpenter.explain.nodechanges import unblocked
from karpenter.explain.podchanges import changes_for
from karpenter.explain.words import dollars, waits_for
from karpenter.model import pods as podlib
from karpenter.model.pdbs import PdbLimits
from karpenter.model.pods import pod_key
from karpenter.model.reasons import Refusal


def explain_pod(pod: Pod, facts: Facts, found: Sequence[Finding] = ()) -> Answer:
    """Return where a pod stands: what it waits for, or why it is where it is and what holds it there.

    `found` are the findings on a pod without a place, where more has been made of them.
    """
    if podlib.is_terminal(pod):
        return _answer(pod, facts, "ended", f"it has ended: {pod.status.phase}")
    if pod.deleting:
        return _answer(pod, facts, "ending", f"it is being deleted, since {pod.metadata.deletion_timestamp}")
    if pod.spec.node_name:
        return _bound(pod, facts)
    if pod.spec.scheduling_gates:
        gates = ", ".join(gate.name for gate in pod.spec.scheduling_gates)
        return _answer(
            pod,
            facts,
            "gated",
            f"its scheduling gates ({gates}) keep it from being scheduled",
            remedy=f"see why whoever owns {gates} does not remove it",
        )
    claim = facts.expected_on(pod)
    if claim:
        return _expected(pod, claim, facts)
    for node in facts.snapshot.nodes:
        if pod.status.nominated_node_name and pod.status.nominated_node_name == node.name:
            return _answer(pod, facts, "nominated", f"kube-scheduler makes room for it on node/{node.name}")
    return _waiting(pod, facts, found)


def _answer(
    pod: Pod,
    facts: Facts,
    code: str,
    summary: str,
    findings: tuple[Finding, ...] = (),
    *,
    remedy: str = "",
    changes: tuple[Change, ...] = (),
    more: dict[str, str] | None = None,
) -> Answer:
    requests = format_resources(podlib.requests(pod))
    asks = ", ".join(f"{amount} {name}" for name, amount in requests.items() if name != "pods")
    return Answer(
        kind="pod",
        name=pod.name,
        namespace=pod.namespace,
        at=format_time(facts.now),
        code=code,
        summary=summary,
        facts={"requests": asks, **(more or {})},
        findings=findings,
        remedy=remedy,
        changes=changes,
    )


# --- pods that run --------------------------------------------------------------------------------------


def _bound(pod: Pod, facts: Facts) -> Answer:
    name, node = pod.spec.node_name, facts.node(pod.spec.node_name)
    more: dict[str, str] = {}
    if node is not None:
        kind = node.labels.get(labels.INSTANCE_TYPE, "")
        price = facts.price(node.claim) if node.claim is not None else None
        more["node"] = ", ".join(part for part in (f"node/{name}", kind, dollars(price)) if part)
        more["nodepool"] = node.nodepool or "none: the node is not Karpenter's"
    block = eviction_block(pod, PdbLimits(facts.snapshot.pdbs, facts.snapshot.stand_ins), facts.now)
    if block is not None and block.kind == "pdbNever" and pod_key(pod) in facts.snapshot.stand_ins:
        text = f"it is on node/{name}; its workload brings up a stand-in before it is evicted"
        return _answer(pod, facts, "bound", text, more=more)
    if block is None:
        return _answer(pod, facts, "bound", f"it is on node/{name}; nothing holds it there", more=more)
    changes = unblocked(block, facts)
    finding = Finding(
        about="eviction", code=block.kind, message=block.message, remedy=block.remedy, changes=changes
    )
    summary = f"it is on node/{name} and may not be evicted: {block.message}"
    return _answer(pod, facts, "bound", summary, (finding,), remedy=block.remedy, changes=changes, more=more)


# --- pods that wait -------------------------------------------------------------------------------------


def _expected(pod: Pod, claim: str, facts: Facts) -> Answer:
    found = facts.claim(claim)
    why = waits_for(found, facts) if found is not None else "it is being created"
    summary = f"it is expected on nodeclaim/{claim}: {why}"
    return _answer(pod, facts, "expected", summary, more={"nodeclaim": claim})


def _waiting(pod: Pod, facts: Facts, found: Sequence[Finding]) -> Answer:
    scheduled = get(pod.status.conditions, "PodScheduled")
    said = {"kube-scheduler": scheduled.message} if scheduled is not None and scheduled.message else {}
    if podlib.is_daemon(pod):
        text = "it is a DaemonSet's pod: no node is bought for those, they go where nodes are"
        return _answer(pod, facts, "daemon", text, more=said)
    if not podlib.failed_to_schedule(pod):
        text = "kube-scheduler has not found it unschedulable (yet), so that no node is bought for it"
        return _answer(pod, facts, "notUnschedulable", text, more=said)
    refused = facts.refusals.of(pod_key(pod))
    place = facts.refusals.place_of(pod_key(pod))
    if refused is None and place:
        text = f"it is expected on node/{place}, where it has room: kube-scheduler has yet to bind it"
        return _answer(pod, facts, "expected", text, more={"node": place, **said})
    if refused is None:
        kept = facts.refusals.left_out
        text = f"more pods wait than are remembered ({kept} more)" if kept else "it is up in the next pass"
        return _answer(pod, facts, "notLookedAt", f"nothing is known of it yet: {text}", more=said)
    findings = list(found)
    if not findings:
        findings = [_finding(pod, refusal, facts, format_time(refused.at)) for refusal in refused.refusals]
        findings.sort(key=lambda f: (not f.changes, not f.remedy))
        findings.extend(_idle(facts))
    if not findings:
        return _answer(pod, facts, "refused", "no nodepool can take it", more=said)
    first = findings[0]
    where = f"{first.about}: " if first.about != "pod" else ""
    return _answer(
        pod,
        facts,
        first.code,
        f"it has no place since {format_time(refused.since)}: {where}{first.message}",
        tuple(findings),
        remedy=first.remedy,
        changes=first.changes,
        more=said,
    )


def _finding(pod: Pod, refusal: Refusal, facts: Facts, at: str) -> Finding:
    name = refusal.place.removeprefix("nodepool/")
    pool = facts.pool(name) if refusal.place.startswith("nodepool/") else None
    return Finding(
        about=refusal.place or "pod",
        code=refusal.constraint,
        message=refusal.message,
        remedy=refusal.remedy,
        changes=changes_for(pod, refusal, pool),
        at=at,
        detail=refusal.detail,
    )


def _idle(facts: Facts) -> list[Finding]:
    """Return why pools were not even asked."""
    found = []
    for pool in facts.snapshot.nodepools:
        text = facts.idle(pool, bool(facts.catalogue(pool.name)))
        if text:
            about, _, message = text.partition(": ")
            found.append(Finding(about=about, code="notAsked", message=message))
    return found
