"""Consolidation of one node at a time, as upstream has it, but fair to every node when time runs out."""

from collections.abc import Iterable, Sequence

from karpenter.disruption.allowance import Allowance
from karpenter.disruption.budgets import Reason
from karpenter.disruption.candidates import Candidate
from karpenter.disruption.command import Command
from karpenter.disruption.consolidation import Probe
from karpenter.disruption.rounds import Decision, Round
from karpenter.disruption.verdicts import Method, Verdict


class SingleNode:
    """The first node, pool by pool in turn, that can go or be replaced by a cheaper one.

    It remembers which nodes it had looked at when time ran out, and begins the next round with the others:
    first those of pools of which it saw none. An objection to one node's command is not the end of the
    round: the next node is tried.
    """

    method: Method = "single"
    reason: Reason = "Underutilized"

    def __init__(self) -> None:
        self._seen: frozenset[str] = frozenset()
        """Nodes looked at in rounds that ran out of time, since the last that did not."""
        self._unseen_pools: frozenset[str] = frozenset()
        """Pools of which no node was looked at in the round before, which ran out of time."""

    def __call__(self, a_round: Round) -> Decision:
        """Return the first command found; there are no verdicts about nodes that would have come after it."""
        probe = Probe(a_round, self.method)
        allowance = Allowance(a_round, self.reason, self.method)
        eligible, verdicts = probe.eligible()
        queue = self._in_turn(eligible)
        command: Command | None = None
        for number, candidate in enumerate(queue):
            if not a_round.more():
                self._remember(queue, number)
                verdicts.extend(map(_out_of_time, queue[number:]))
                break
            refusal = allowance.refusal(candidate) or probe.balance.hopeless(candidate)
            found = refusal or probe.taking([candidate])
            if isinstance(found, Command):
                command = found
                break
            verdicts.append(found)
        else:
            self._seen = self._unseen_pools = frozenset()
        late = any(verdict.code == "timeout" for verdict in verdicts)
        return Decision(
            commands=(command,) if command else (),
            verdicts=tuple(sorted(verdicts, key=lambda v: v.node)),
            moves=tuple(probe.moves),
            eligible=len(eligible),
            settled=command is None and not late and not allowance.bound,
            bound=command is None and not late and allowance.bound,
        )

    def _in_turn(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        """Return `candidates` (most worth first) in the order in which they are tried."""
        pools: dict[str, list[Candidate]] = {}
        for candidate in sorted(candidates, key=lambda c: c.node.name in self._seen):
            pools.setdefault(candidate.pool.name, []).append(candidate)
        order = sorted(pools, key=lambda name: (name not in self._unseen_pools, name))
        return list(_interleaved([pools[name] for name in order]))

    def _remember(self, queue: Sequence[Candidate], number: int) -> None:
        """Note which nodes of the queue were looked at, namely so many."""
        looked_at = queue[:number]
        self._seen |= {c.node.name for c in looked_at}
        self._seen &= {c.node.name for c in queue}
        if len(self._seen) == len(queue):
            self._seen = frozenset()  # one time round
        self._unseen_pools = frozenset(c.pool.name for c in queue) - {c.pool.name for c in looked_at}


def _interleaved(rows: Sequence[Sequence[Candidate]]) -> Iterable[Candidate]:
    for turn in range(max(map(len, rows), default=0)):
        for row in rows:
            if turn < len(row):
                yield row[turn]


def _out_of_time(candidate: Candidate) -> Verdict:
    return Verdict(
        node=candidate.node.name,
        method="single",
        code="timeout",
        message="Time ran out before the search came to this node; it will be among the first next time",
    )
