"""What is said and counted while a command is carried out, in upstream's names and words."""

from karpenter.apis.core import Pod
from karpenter.apis.karpenter import NodeClaim
from karpenter.controllers.context import Context
from karpenter.controllers.disruption.underway import Underway
from karpenter.controllers.nodeclaim.ending import count_disrupted
from karpenter.controllers.nominated import NominationTeller, places_of
from karpenter.disruption.candidates import Candidate
from karpenter.model.pods import pod_key
from karpenter.model.snapshot import NodeView


class CommandTeller:
    """Events and counters of commands."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._nominations = NominationTeller(context)
        names = ["decision", "reason", "consolidation_type"]
        prefix = "karpenter_voluntary_disruption_"
        self._decisions = context.metrics.counter(f"{prefix}decisions_total", "Disruptions started.", names)
        self._by_pool = context.metrics.counter(
            f"{prefix}decisions_by_nodepool_total", "Disruptions started, by NodePool.", ["nodepool", *names]
        )
        self._failures = context.metrics.counter(
            f"{prefix}queue_failures_total",
            "Replacements that were not ready when their disruption was given up.",
            names,
        )

    def started(self, c: Underway) -> None:
        """Count a command whose nodes are marked and whose replacements are created."""
        values = (c.decision, c.reason, c.command.consolidation_type)
        self._decisions.labels(*values).inc()
        for pool in c.pools:
            self._by_pool.labels(pool, *values).inc()

    def nominated(self, row: NodeView, pods: list[Pod]) -> None:
        """Tell pods that will have to move where they are expected."""
        for pod in sorted(pods, key=pod_key):
            self._nominations.tell(pod, places_of(row))

    def launching(self, c: Underway, claim: NodeClaim) -> None:
        """Say what a replacement is for."""
        self._context.recorder.publish(
            claim,
            "Normal",
            "DisruptionLaunching",
            f"Launching NodeClaim: {c.command.reason}",
            dedupe=(claim.metadata.uid, c.command.reason),
            dedupe_seconds=3600.0,  # it is said once
        )

    def waiting(self, claim: NodeClaim) -> None:
        """Say that a replacement is not ready yet."""
        self._context.recorder.publish(
            claim, "Normal", "DisruptionWaitingReadiness", "Waiting on readiness to continue disruption"
        )

    def terminating(self, c: Underway, candidate: Candidate) -> None:
        """Say and count that a node's end has begun."""
        node, claim, reason = candidate.node.node, candidate.node.claim, c.command.reason
        assert node is not None
        assert claim is not None
        publish = self._context.recorder.publish
        publish(
            node,
            "Normal",
            "DisruptionTerminating",
            f"Disrupting Node: {reason}",
            dedupe=(node.metadata.uid, reason),
        )
        publish(
            claim,
            "Normal",
            "DisruptionTerminating",
            f"Disrupting NodeClaim: {reason}",
            dedupe=(claim.metadata.uid, reason),
        )
        policy = "" if reason == "Drifted" else candidate.pool.spec.disruption.consolidation_policy
        snake = "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in policy).lstrip("_")
        count_disrupted(
            self._context,
            claim,
            c.reason,
            consolidation_policy=snake,
            pods=len(candidate.reschedulable),
        )

    def failed(self, c: Underway) -> None:
        """Say and count that a command was given up."""
        values = (c.decision, c.reason, c.command.consolidation_type)
        self._failures.labels(*values).inc(len(set(c.replacements) - c.ready))
        for candidate in c.left:
            for obj in (candidate.node.node, candidate.node.claim):
                if obj is not None:
                    self._context.recorder.publish(
                        obj,
                        "Warning",
                        "DisruptionFailed",
                        f"Not disrupted for reason {c.command.reason}, the node stays: {c.failure}",
                        dedupe=(obj.metadata.uid, c.command.reason),
                    )
