"""Consolidation of several nodes at a time, as upstream has it: how many of the best go together?"""

from collections.abc import Sequence

from msgspec.structs import replace

from karpenter.disruption.allowance import Allowance
from karpenter.disruption.budgets import Reason
from karpenter.disruption.candidates import Candidate
from karpenter.disruption.command import Command
from karpenter.disruption.consolidation import Probe
from karpenter.disruption.rounds import Decision, Round
from karpenter.disruption.verdicts import Code, Method, Verdict

MOST = 100
"""Nodes that are tried together at most."""

_OF_THE_SET: tuple[Code, ...] = ("noPlace", "tooMany", "notCheaper", "spotToSpot")
"""What is true of some nodes together, and says nothing about each of them."""


class MultiNode:
    """The longest prefix, by halving, of the nodes most worth it that all can go for one replacement at most.
    Stateless."""

    method: Method = "multi"
    reason: Reason = "Underutilized"

    def __call__(self, a_round: Round) -> Decision:
        """Return the command for the longest prefix found, if any."""
        probe = Probe(a_round, self.method)
        allowance = Allowance(a_round, self.reason, self.method)
        eligible, verdicts = probe.eligible()
        allowed: list[Candidate] = []
        for candidate in eligible:
            refusal = allowance.take(candidate)
            if refusal is None:
                allowed.append(candidate)
            else:
                verdicts.append(refusal)
        command, failed, late = _longest(allowed, probe, a_round)
        taken = {c.node.name for c in command.candidates} if command else set()
        verdicts.extend(
            _left(c, number, failed) for number, c in enumerate(allowed) if c.node.name not in taken
        )
        return Decision(
            commands=(command,) if command else (),
            verdicts=tuple(sorted(verdicts, key=lambda v: v.node)),
            moves=tuple(probe.balance.weigh(command)) if command else (),
            eligible=len(eligible),
            settled=command is None and not late and not allowance.bound,
            bound=command is None and not late and allowance.bound,
        )


def _longest(
    allowed: Sequence[Candidate], probe: Probe, a_round: Round
) -> tuple[Command | None, Verdict | None, bool]:
    """Return the command for the longest prefix of `allowed` found, why the shortest longer one tried failed,
    and whether time ran out."""
    found: Command | None = None
    failed: Verdict | None = None
    low, high = 2, min(len(allowed), MOST)
    while low <= high:
        if not a_round.more():
            return found, failed, True
        size = (low + high) // 2
        tried = probe.taking(allowed[:size])
        if isinstance(tried, Command):
            found, low = tried, size + 1
        else:
            failed, high = tried, size - 1
    return found, failed, False


def _left(candidate: Candidate, number: int, failed: Verdict | None) -> Verdict:
    """Return why a node, the `number`th of those that budgets allow, is not among those that go together."""
    name = candidate.node.name
    if failed is not None:
        text = f"Not together with the nodes more worth it: {failed.message}"
        code: Code = "alone" if failed.code in _OF_THE_SET else failed.code
        return replace(failed, node=name, code=code, message=text, saving=None, remedy="")
    if number >= MOST:
        text = f"Only the {MOST} nodes most worth it are tried together"
    else:
        text = "No other node may go with it"
    return Verdict(node=name, method="multi", code="alone", message=text)
