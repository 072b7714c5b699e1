"""Facts for answers, made by hand."""

from collections.abc import Iterable, Mapping

from karpenter.apis.core import Node, Pod
from karpenter.apis.karpenter import NodeClaim, NodePool
from karpenter.apis.workloads import PodDisruptionBudget
from karpenter.controllers.nodeclaim.initialization import missing
from karpenter.controllers.provisioning.words import idle_text
from karpenter.disruption.verdicts import Verdict
from karpenter.explain.facts import Facts, Timeouts
from karpenter.model.instancetype import InstanceType
from karpenter.model.pods import pod_key
from karpenter.model.reasons import Unschedulable
from karpenter.model.snapshot import NodeView, Snapshot
from karpenter.state.refusallog import RefusalLog
from karpenter.state.verdictlog import VerdictLog

NOW = 1_767_225_600.0  # 2026-01-01T00:00:00Z


def some_facts(
    *,
    pods: Iterable[Pod] = (),
    nodes: Iterable[NodeView] = (),
    claims: Iterable[NodeClaim] = (),
    pools: Iterable[NodePool] = (),
    pdbs: Iterable[PodDisruptionBudget] = (),
    verdicts: Iterable[Verdict] = (),
    refused: Iterable[Unschedulable] = (),
    expected: Mapping[str, str] | None = None,
    prices: Mapping[str, float] | None = None,
    types: Iterable[InstanceType] = (),
    now: float = NOW,
) -> Facts:
    """Return what answers are made from; `expected` and `prices` go by pod key and by claim."""
    views, listed = tuple(nodes), tuple(types)
    log, refusals = VerdictLog(), RefusalLog()
    for verdict in verdicts:
        log.note(verdict.method, [verdict], now - 5)
    refusals.replace(refused, now - 5)
    on_nodes = [pod for view in views for pod in view.pods]
    all_pods = {pod_key(pod): pod for pod in (*pods, *on_nodes)}
    all_claims = {c.name: c for c in (*claims, *(v.claim for v in views if v.claim is not None))}
    all_pools = {pool.name: pool for pool in pools}

    def lacks(claim: NodeClaim, node: Node) -> tuple[str, str]:
        return missing(claim, node)

    return Facts(
        snapshot=Snapshot(
            taken_at=now, nodes=views, pending=(), nodepools=tuple(all_pools.values()), pdbs=tuple(pdbs)
        ),
        refusals=refusals,
        verdicts=log,
        methods=("emptiness", "staticDrift", "drift", "sets"),
        pod=lambda name, namespace: all_pods.get(f"{namespace}/{name}"),
        claim=all_claims.get,
        pool=all_pools.get,
        expected_on=lambda pod: (expected or {}).get(pod_key(pod), ""),
        missing=lacks,
        idle=lambda pool, has_types: idle_text(pool, has_types=has_types),
        price=lambda claim: (prices or {}).get(claim.name),
        spent={},
        committed=lambda pool: {},
        catalogue=lambda pool: listed,
        cluster_price_limit=None,
        timeouts=Timeouts(300.0, 900.0, None),
        gates={"NodeOverlay": True},
    )
