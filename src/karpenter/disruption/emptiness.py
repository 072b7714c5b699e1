"""Taking empty nodes away: those without a pod that would need another place, left alone for long enough.

Only really empty nodes count. (Upstream also takes nodes whose pods all have a non-positive eviction cost.)
"""

from karpenter.disruption import waiting
from karpenter.disruption.allowance import Allowance
from karpenter.disruption.budgets import Reason
from karpenter.disruption.candidates import Candidate
from karpenter.disruption.command import Command
from karpenter.disruption.rounds import Decision, Round
from karpenter.disruption.verdicts import Code, Method, Verdict


class Emptiness:
    """All empty nodes that budgets allow, in one command; no simulation is needed. Stateless."""

    method: Method = "emptiness"
    reason: Reason = "Empty"

    def __call__(self, a_round: Round) -> Decision:
        """Return the command. Where a budget binds, what costs most goes first (ties by name)."""
        allowance = Allowance(a_round, self.reason, self.method)
        chosen: list[Candidate] = []
        verdicts: list[Verdict] = []
        eligible = 0
        for candidate in sorted(a_round.candidates, key=lambda c: (-c.savings_ratio, c.node.name)):
            why = why_kept(candidate, a_round.snapshot.taken_at)
            if why is None:
                eligible += 1
                why = a_round.objection(Command(reason=self.reason, candidates=(candidate,)))
                why = why or allowance.take(candidate)
                if why is not None:
                    why = why.about(candidate.node.name, self.method, saving=candidate.price)
            if why is None:
                chosen.append(candidate)
            else:
                verdicts.append(why)
        command = Command(reason=self.reason, method=self.method, candidates=tuple(chosen))
        return Decision(
            commands=(command,) if chosen else (),
            verdicts=tuple(sorted(verdicts, key=lambda v: v.node)),
            eligible=eligible,
            settled=not allowance.bound,
            bound=not chosen and allowance.bound,
        )


def why_kept(candidate: Candidate, now: float) -> Verdict | None:
    """Return why the node is not to be taken for being empty, budgets aside; None when it may be."""
    node, pool = candidate.node, candidate.pool

    def kept(code: Code, message: str, remedy: str = "") -> Verdict:
        return Verdict(
            node=node.name,
            method="emptiness",
            code=code,
            message=message,
            saving=candidate.price,
            remedy=remedy,
        )

    if pool.static:
        return kept("static", f'NodePool "{pool.name}" keeps a fixed number of nodes', waiting.static(pool))
    if pool.spec.disruption.consolidate_after == "Never":
        return kept("never", f'NodePool "{pool.name}" has consolidation disabled', waiting.never(pool))
    if not candidate.empty:
        count = len(candidate.reschedulable)
        return kept("notEmpty", f"Node is not empty: {count} pod(s) would need another place")
    if not waiting.is_consolidatable(node):
        after = pool.spec.disruption.consolidate_after
        text = f"Pods came or went less than consolidateAfter ({after}) ago"
        return kept("tooFresh", text, waiting.until(node, pool, now))
    if node.headroom_pods:
        return kept(
            "headroom",
            f'Node "{node.name}" has buffer pods',
            "lower the replicas of the CapacityBuffers that have room here",
        )
    return None
