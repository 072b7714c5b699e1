"""The change that lets one node be disrupted, as patches of what keeps it: pods, budgets, its NodePool."""

from collections.abc import Callable, Mapping

from karpenter.apis import labels
from karpenter.apis.karpenter import NodePool
from karpenter.apis.meta import KubeObject
from karpenter.apis.workloads import PodDisruptionBudget
from karpenter.base.quantity import resources_of
from karpenter.disruption.budgets import Reason, is_active, pool_budget
from karpenter.disruption.drainblocks import DrainBlock
from karpenter.disruption.verdicts import Code, Method, Verdict
from karpenter.explain.answer import Change, Operation
from karpenter.explain.facts import Facts
from karpenter.explain.podchanges import added, of_nodepool, removed, replaced
from karpenter.explain.spot import more_types
from karpenter.model.pdbs import PdbLimits
from karpenter.model.snapshot import NodeView

_REASONS: dict[Method, Reason] = {
    "emptiness": "Empty",
    "staticDrift": "Drifted",
    "drift": "Drifted",
    "multi": "Underutilized",
    "single": "Underutilized",
    "sets": "Underutilized",
}
_SOON = "30s"
_SPOT_TO_SPOT = "SpotToSpotConsolidation"


def changes_for(verdict: Verdict, node: NodeView, facts: Facts) -> tuple[Change, ...]:
    """Return what removes the reason of `verdict`, all together; empty: waiting does, or nothing known."""
    if verdict.code == "doNotDisrupt":
        return tuple(
            _undo(owner, kind)
            for kind, owner in (("Node", node.node), ("NodeClaim", node.claim))
            if owner is not None and labels.DO_NOT_DISRUPT in owner.metadata.annotations
        )
    option = _OPTIONS.get(verdict.code)
    if verdict.code == "spotToSpot" and not verdict.detail:
        gates = {**facts.gates, _SPOT_TO_SPOT: True}
        option = "--feature-gates=" + ",".join(f"{g}={str(on).lower()}" for g, on in sorted(gates.items()))
    if option is not None:
        return (Change(text=f"start the operator with {option}", option=option),)
    pool = facts.pool(node.nodepool)
    change = _OF_POOL.get(verdict.code)
    return change(pool, verdict, node, facts) if pool is not None and change is not None else ()


def unblocked(block: DrainBlock, facts: Facts) -> tuple[Change, ...]:
    """Return what lets one pod leave its node; empty when waiting does, or nothing known."""
    namespace, _, name = block.pod.partition("/")
    pod = facts.pod(name, namespace)
    if pod is None:
        return ()
    if block.kind == "doNotDisrupt":
        return (_undo(pod, "Pod"),)
    if block.kind == "pdbNever":
        return tuple(_lenient(pdb) for pdb in PdbLimits(facts.snapshot.pdbs).matching(pod))
    return ()


def _undo(owner: KubeObject, kind: str) -> Change:
    """Take the annotation off that protects an object."""
    return Change(
        text=f"remove annotation {labels.DO_NOT_DISRUPT} from {kind.lower()}/{owner.name}",
        api_version="karpenter.sh/v1" if kind == "NodeClaim" else "v1",
        kind=kind,
        namespace=owner.namespace,
        name=owner.name,
        patch=(removed("metadata", "annotations", labels.DO_NOT_DISRUPT),),
    )


def _lenient(pdb: PodDisruptionBudget) -> Change:
    """Let a budget allow one eviction at a time."""
    patch = [added(1, "spec", "maxUnavailable")]
    if pdb.spec.min_available is not None:
        patch.insert(0, removed("spec", "minAvailable"))
    instead = " instead of minAvailable" if len(patch) > 1 else ""
    return Change(
        text=f"set maxUnavailable 1{instead} in poddisruptionbudget/{pdb.name} of namespace {pdb.namespace}",
        api_version="policy/v1",
        kind="PodDisruptionBudget",
        namespace=pdb.namespace,
        name=pdb.name,
        patch=tuple(patch),
    )


# --- what pools say -------------------------------------------------------------------------------------


def _consolidating(pool: NodePool, verdict: Verdict, node: NodeView, facts: Facts) -> tuple[Change, ...]:
    set_it = added(_SOON, "spec", "disruption", "consolidateAfter")
    return (of_nodepool(pool, f"set consolidateAfter {_SOON}", set_it),)


def _underutilized(pool: NodePool, verdict: Verdict, node: NodeView, facts: Facts) -> tuple[Change, ...]:
    policy = "WhenEmptyOrUnderutilized"
    set_it = added(policy, "spec", "disruption", "consolidationPolicy")
    return (of_nodepool(pool, f"set consolidationPolicy {policy}", set_it),)


def _budgeted(pool: NodePool, verdict: Verdict, node: NodeView, facts: Facts) -> tuple[Change, ...]:
    """Let every budget that binds allow one node more than are going."""
    if verdict.method is None:
        return ()
    reason = _REASONS[verdict.method]
    going = pool_budget(pool, facts.snapshot.nodes, reason, facts.now).disrupting
    patch: list[Operation] = []
    for number, budget in enumerate(pool.spec.disruption.budgets):
        try:
            counts = is_active(budget, facts.now) and (budget.reasons is None or reason in budget.reasons)
        except ValueError:
            return ()  # what cannot be read has to be put right by who wrote it
        text = budget.nodes
        if counts and not (text.isdigit() and int(text) > going):
            patch.append(replaced(str(going + 1), "spec", "disruption", "budgets", number, "nodes"))
    if not patch:
        return ()
    return (of_nodepool(pool, f"let budgets allow {going + 1} for reason {reason}", *patch),)


def _one_more(pool: NodePool, verdict: Verdict, node: NodeView, facts: Facts) -> tuple[Change, ...]:
    """Leave room for a replacement within limits.nodes."""
    limit = resources_of(pool.spec.limits).get("nodes")
    if limit is None:
        return ()
    return (
        of_nodepool(
            pool, f"set limits.nodes {limit + 1}", replaced(str(limit + 1), "spec", "limits", "nodes")
        ),
    )


def _flexible(pool: NodePool, verdict: Verdict, node: NodeView, facts: Facts) -> tuple[Change, ...]:
    if node.claim is None:
        return ()
    price = facts.price(node.claim)
    names = frozenset(verdict.detail.get("instanceTypes", ()))
    return () if price is None else more_types(pool, node, price, names, facts.catalogue(pool.name))


_OPTIONS: Mapping[Code, str] = {"tooMany": "--consolidation-search=sets"}
_OF_POOL: Mapping[Code, Callable[[NodePool, Verdict, NodeView, Facts], tuple[Change, ...]]] = {
    "never": _consolidating,
    "policy": _underutilized,
    "balance": _underutilized,
    "budget": _budgeted,
    "limit": _one_more,
    "spotToSpot": _flexible,
}
