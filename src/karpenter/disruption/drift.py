"""Replacing nodes that are not what their NodePool or NodeClass asks for any more."""

from msgspec.structs import replace

from karpenter.apis import conditions
from karpenter.base.timestamps import parse_time
from karpenter.disruption.allowance import Allowance
from karpenter.disruption.budgets import Reason
from karpenter.disruption.candidates import Candidate
from karpenter.disruption.command import Command
from karpenter.disruption.replacement import stranded_in_words, way_out
from karpenter.disruption.rounds import Decision, Round
from karpenter.disruption.verdicts import Method, Verdict


class Drift:
    """The longest drifted node, empty ones first, with as many replacements as its pods need. Stateless.

    It is for nodes that can be disrupted eventually, too; pods that nothing moves get no replacement: the
    node starts to drain, and they are planned for when they must go. An objection to one node (its
    replacements keep failing, say) is not the end of the round: the next one is tried.
    """

    method: Method = "drift"
    reason: Reason = "Drifted"

    def __call__(self, a_round: Round) -> Decision:
        """Return the commands: all empty nodes that budgets allow, or the first other node that can go."""
        allowance = Allowance(a_round, self.reason, self.method)
        drifted, verdicts = _eligible(a_round)
        commands: list[Command] = []
        for candidate in drifted:
            if commands and not candidate.empty:
                break
            refusal = allowance.refusal(candidate)
            found = refusal or self._taking(candidate, a_round)
            if isinstance(found, Verdict):
                verdicts.append(found)
                continue
            allowance.take(candidate)
            commands.append(found)
            if not candidate.empty:
                break
        return Decision(
            commands=tuple(commands),
            verdicts=tuple(sorted(verdicts, key=lambda v: v.node)),
            eligible=len(drifted),
            settled=not commands and not allowance.bound,
            bound=not commands and allowance.bound,
        )

    def _taking(self, candidate: Candidate, a_round: Round) -> Command | Verdict:
        """Return the command that takes the node away, or why there is none."""
        command = Command(reason=self.reason, method=self.method, candidates=(candidate,))
        if candidate.movable:
            moving = replace(candidate, reschedulable=candidate.movable)
            outcome = a_round.simulator.without([moving])
            if outcome.stranded:
                return Verdict(
                    node=candidate.node.name,
                    method=self.method,
                    code="noPlace",
                    message=stranded_in_words(outcome),
                    remedy=way_out(outcome),
                )
            command = replace(command, replacements=outcome.claims, placements=outcome.placements)
        objection = a_round.objection(command)
        return objection.about(candidate.node.name, self.method) if objection is not None else command


def drifted_since(candidate: Candidate) -> float | None:
    """Return since when the node has been drifted; None when it is not."""
    claim = candidate.node.claim
    condition = conditions.get(claim.status.conditions, "Drifted") if claim is not None else None
    if condition is None or condition.status != "True":
        return None
    return parse_time(condition.last_transition_time) if condition.last_transition_time else 0.0


def _eligible(a_round: Round) -> tuple[list[Candidate], list[Verdict]]:
    """Return the drifted nodes of dynamic pools in the order in which they go, and why the others stay."""
    since: dict[str, float] = {}
    found, verdicts = [], []
    for candidate in a_round.eventual:
        name, moment = candidate.node.name, drifted_since(candidate)
        if candidate.pool.static:
            text = f'NodePool "{candidate.pool.name}" keeps a fixed number of nodes'
            verdicts.append(Verdict(node=name, method="drift", code="static", message=text))
        elif moment is None:
            text = "Node is what its NodePool and NodeClass ask for"
            verdicts.append(Verdict(node=name, method="drift", code="notDrifted", message=text))
        else:
            since[name] = moment
            found.append(candidate)
    found.sort(key=lambda c: (not c.empty, since[c.node.name], c.node.name))
    return found, verdicts
