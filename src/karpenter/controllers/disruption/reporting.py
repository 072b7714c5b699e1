"""What looks and decisions tell users: events where they look for them, metrics with few labels."""

import structlog

from karpenter.apis.karpenter import NodePool
from karpenter.controllers.context import Context
from karpenter.controllers.disruption.survey import View
from karpenter.controllers.metrics.series import Series
from karpenter.disruption.annotations import notes
from karpenter.disruption.budgets import Reason, budget_problems
from karpenter.disruption.command import Command
from karpenter.disruption.rounds import Decision, Move, Search
from karpenter.disruption.verdicts import Code, Method, Verdict
from karpenter.model.snapshot import NodeView
from karpenter.state.verdictlog import VerdictLog

log = structlog.get_logger()

_BLOCKED_SECONDS = 120.0
_BUDGET_SECONDS = 60.0
_UNCONSOLIDATABLE_SECONDS = 900.0
_ANNOTATION_SECONDS = 3600.0  # what is said stays true; more often would only be noise

_UNTOLD: frozenset[Code] = frozenset({"queued", "noClaim"})
_UNCONSOLIDATABLE: tuple[Code, ...] = (
    "never",
    "headroom",
    "policy",
    "unknownType",
    "unknownPlace",
    "noPlace",
    "tooMany",
    "notCheaper",
    "spotToSpot",
    "payback",
    "undone",
    "rollout",
    "failed",
)
_SCORES = (0.1, 0.25, 0.33, 0.5, 1.0, 2.0, 5.0, 10.0)

TYPES = ("multi", "single")


class Reporter:
    """Tells of views and decisions."""

    def __init__(self, context: Context, verdicts: VerdictLog) -> None:
        self._context = context
        self._verdicts = verdicts
        self._eligible_of: dict[Reason, dict[Method, int]] = {}
        metrics, prefix = context.metrics, "karpenter_voluntary_disruption_"
        self._eligible = metrics.gauge(
            f"{prefix}eligible_nodes", "Nodes that could be disrupted.", ["reason"]
        )
        self._seconds = metrics.histogram(
            f"{prefix}decision_evaluation_duration_seconds",
            "Time to decide.",
            ["reason", "consolidation_type"],
        )
        self._timeouts = metrics.counter(
            f"{prefix}consolidation_timeouts_total",
            "Searches that had no time to look at everything.",
            ["consolidation_type"],
        )
        for kind in TYPES:
            self._timeouts.labels(kind)
        self._codes = Series(
            metrics,
            f"{prefix}verdicts",
            "Nodes by why a method leaves them alone; without a method: why none may touch them.",
            ["method", "code"],
        )
        names = ["nodepool", "reason"]
        self._allowed = Series(
            metrics, "karpenter_nodepools_allowed_disruptions", "What budgets allow.", names
        )
        self._consuming = Series(
            metrics, "karpenter_nodepools_nodes_consuming_budgets", "Nodes going or not ready.", names
        )
        names = ["decision", "nodepool", "policy"]
        self._moves = metrics.counter(
            "karpenter_consolidation_moves_total", "Moves that were possible, by what policy said.", names
        )
        self._scores = metrics.histogram(
            "karpenter_consolidation_score",
            "Share of cost saved by share of disruption, of moves that policy weighs.",
            names,
            buckets=_SCORES,
        )

    # --- of a look ----------------------------------------------------------------------------------------

    def viewed(self, view: View) -> None:
        """Tell what keeps nodes from any disruption, and what budgets leave."""
        self._verdicts.retain({node.name for node in view.snapshot.nodes})
        self._verdicts.note(None, view.blocked, view.snapshot.taken_at, whole=True)
        self._count_verdicts()
        nodes = {node.name: node for node in view.snapshot.nodes}
        for verdict in view.blocked:
            if verdict.code not in _UNTOLD:
                self._tell_node(nodes[verdict.node], "DisruptionBlocked", verdict.message, _BLOCKED_SECONDS)
        self._tell_pods(view)
        self._budgets(view)

    def _budgets(self, view: View) -> None:
        reasons = view.budgets.items()
        self._allowed.replace({(p, r): float(b.allowed) for r, pools in reasons for p, b in pools.items()})
        self._consuming.replace(
            {(p, r): float(b.disrupting) for r, pools in reasons for p, b in pools.items()}
        )
        for pool in view.snapshot.nodepools:
            for problem in budget_problems(pool, view.snapshot.taken_at):
                self._context.recorder.publish(
                    pool,
                    "Warning",
                    "DisruptionBlocked",
                    f"No disruptions: {problem}",
                    dedupe=(pool.metadata.uid, problem),
                    dedupe_seconds=_BUDGET_SECONDS,
                )

    def _tell_pods(self, view: View) -> None:
        for node in view.snapshot.nodes:
            for note in notes(node.pods, view.snapshot.taken_at) if node.managed else ():
                self._context.recorder.publish(
                    note.pod,
                    note.type,
                    note.reason,
                    note.message,
                    dedupe=(note.pod.metadata.uid, note.message),
                    dedupe_seconds=_ANNOTATION_SECONDS,
                )

    # --- of a decision ------------------------------------------------------------------------------------

    def decided(
        self, search: Search, decision: Decision, view: View, *, seconds: float, ran_out: bool
    ) -> None:
        """Tell what a method has decided, and why it leaves nodes alone."""
        chosen = [k.node.name for command in decision.commands for k in command.candidates]
        self._verdicts.note(search.method, decision.verdicts, view.snapshot.taken_at, chosen=chosen)
        self._count_verdicts()
        reason, kind = search.reason.lower(), consolidation_type(search)
        self._count_eligible(search, decision)
        self._seconds.labels(reason, kind).observe(seconds)
        if ran_out and kind:
            self._timeouts.labels(kind).inc()
        nodes = {node.name: node for node in view.snapshot.nodes}
        for verdict in decision.verdicts:
            if verdict.node in nodes:
                self._tell_kept(search, verdict, nodes[verdict.node])
        self._tell_budgets(search, decision, view)
        for move in decision.moves:
            self._tell_move(move, view, nodes)
        for command in decision.commands:
            self._tell_command(search, command)

    def _count_eligible(self, search: Search, decision: Decision) -> None:
        """Drifted nodes of static and other pools add up; of several consolidations the widest counts."""
        found = self._eligible_of.setdefault(search.reason, {})
        found[search.method] = decision.eligible
        count = sum(found.values()) if search.reason == "Drifted" else max(found.values())
        self._eligible.labels(search.reason.lower()).set(count)

    def _tell_kept(self, search: Search, verdict: Verdict, node: NodeView) -> None:
        if search.reason == "Drifted":
            if verdict.code in ("noPlace", "failed", "halted"):
                self._tell_node(node, "DisruptionBlocked", verdict.message, _BLOCKED_SECONDS)
        elif verdict.code in _UNCONSOLIDATABLE:
            self._tell_node(node, "Unconsolidatable", verdict.message, _UNCONSOLIDATABLE_SECONDS)

    def _tell_budgets(self, search: Search, decision: Decision, view: View) -> None:
        """Tell pools that allow no disruption at all for a reason for which nodes are there."""
        nodes = {node.name: node.nodepool for node in view.snapshot.nodes}
        pools = {nodes.get(v.node, "") for v in decision.verdicts if v.code == "budget"}
        for pool in view.snapshot.nodepools:
            budget = view.budgets[search.reason].get(pool.name)
            if pool.name in pools and budget is not None and not budget.allowed:
                self._context.recorder.publish(
                    pool,
                    "Normal",
                    "DisruptionBlocked",
                    f"No allowed disruptions for disruption reason {search.reason} due to blocking budget",
                    dedupe=(pool.metadata.uid, search.reason),
                    dedupe_seconds=_BUDGET_SECONDS,
                )

    def _tell_move(self, move: Move, view: View, nodes: dict[str, NodeView]) -> None:
        values = ("approved" if move.approved else "rejected", move.pool, move.policy)
        self._moves.labels(*values).inc()
        if move.score is None:
            return
        self._scores.labels(*values).observe(move.score)
        if not move.approved:
            log.debug("consolidation move rejected", nodes=move.nodes, NodePool=move.pool, why=move.message)
        elif len(move.nodes) == 1 and move.nodes[0] in nodes:
            self._tell_node(
                nodes[move.nodes[0]], "ConsolidationApproved", move.message, _BLOCKED_SECONDS, once=True
            )
        else:
            self._tell_pool(view, move)

    def _tell_pool(self, view: View, move: Move) -> None:
        pool: NodePool | None = next((p for p in view.snapshot.nodepools if p.name == move.pool), None)
        if pool is not None:
            self._context.recorder.publish(
                pool, "Normal", "ConsolidationApproved", move.message, dedupe=(pool.metadata.uid,)
            )

    def _tell_command(self, search: Search, command: Command) -> None:
        if search.reason != "Underutilized" or not command.replacements:
            return
        for candidate in command.candidates:
            text = f"{command.of_node(candidate.node.name)} (savings: ${command.savings:.2f})"
            self._tell_node(candidate.node, "ConsolidationCandidate", f"Consolidation candidate: {text}")

    def _tell_node(
        self,
        view: NodeView,
        reason: str,
        message: str,
        seconds: float = _BLOCKED_SECONDS,
        *,
        once: bool = False,
    ) -> None:
        """Say something about a node, to its Node and its NodeClaim; `once`: whatever the words."""
        for obj in (view.node, view.claim):
            if obj is not None:
                key = (obj.metadata.uid,) if once else (obj.metadata.uid, message)
                self._context.recorder.publish(
                    obj, "Normal", reason, message, dedupe=key, dedupe_seconds=seconds
                )

    def _count_verdicts(self) -> None:
        self._codes.replace({key: float(n) for key, n in sorted(self._verdicts.counts().items())})


def consolidation_type(search: Search) -> str:
    """Return the metrics' word for a method before it is known how many nodes it takes."""
    return {"emptiness": "empty", "multi": "multi", "single": "single", "sets": "multi"}.get(
        search.method, ""
    )
