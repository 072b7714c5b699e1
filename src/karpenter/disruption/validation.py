"""Whether a command still holds on a second look, some seconds after it was decided; pure."""

from collections.abc import Sequence
from typing import Literal

import msgspec
from msgspec.structs import replace

from karpenter.apis import labels
from karpenter.disruption import waiting
from karpenter.disruption.allowance import Allowance
from karpenter.disruption.balanced import Balance
from karpenter.disruption.candidates import Candidate
from karpenter.disruption.command import Command
from karpenter.disruption.consolidation import simulated, why_not
from karpenter.disruption.drift import drifted_since
from karpenter.disruption.emptiness import why_kept
from karpenter.disruption.ledger import Ledger, without_returns
from karpenter.disruption.market import Market
from karpenter.disruption.replacement import replacement_of, stranded_in_words
from karpenter.disruption.rounds import Round
from karpenter.disruption.simulation import Outcome
from karpenter.disruption.verdicts import Verdict
from karpenter.model.problem import Budget, PlannedClaim
from karpenter.model.requirements import Requirement

_NEW_RESULTS = "scheduling simulation produced new results"
_AS_GOOD = 0.9
"""A plan is as good as the one decided on when it saves so much of what that one did."""

Invalidity = Literal["budget", "churn", "scheduling", "unknown"]
"""What kind of change it was, in the words of upstream's metric and events: budgets bind now; nodes are no
candidates any more, or something speaks against the command; their pods would go elsewhere now, or what
replaces them has become dearer."""


class Invalid(msgspec.Struct, frozen=True, kw_only=True):
    """A command that does not hold any more, or in part."""

    reason: Invalidity
    message: str
    """For people."""
    nodes: tuple[str, ...]
    """Those that are not taken because of it, in the command's order."""


class Validity(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a command."""

    command: Command | None
    """What of it holds, as things are now; None: nothing does."""
    invalid: tuple[Invalid, ...] = ()
    """Why the rest does not; empty when all of it holds."""

    @property
    def failed(self) -> int:
        """How many nodes are not taken."""
        return sum(len(each.nodes) for each in self.invalid)


def validated(command: Command, a_round: Round, *, budget: Budget | None = None) -> Validity:
    """Return what of `command` still holds in a later round.

    Of empty nodes those go that still may. Anything else holds as a whole or not at all: consolidation is
    simulated again, and its replacements have to be among what would be bought now and cheaper still than
    what goes (after a search over sets, others will do that save about as much); drifted nodes have to be
    candidates still, within budgets. `budget` is what the search had for making what must be bought cheaper.
    """
    if command.method == "emptiness":
        return _emptiness(command, a_round)
    fresh, lost = _fresh(command, a_round)
    if lost:
        return _failed(command, "churn", lost)
    bound = _beyond_budget(command, fresh, a_round)
    if bound is not None:
        return _failed(command, "budget", bound.message)
    if command.reason == "Underutilized":
        found = _simulated(command, fresh, a_round, budget)
        if isinstance(found, str):
            return _failed(command, "scheduling", found)
        market = Market.of(a_round.simulator.problem)
        ledger = Ledger(a_round.snapshot, a_round.restarts, a_round.remembered)
        kept = without_returns(found, market, ledger)
        if isinstance(kept, Verdict):
            return _failed(command, "churn", kept.message)
        command = kept
    else:
        command = replace(command, candidates=fresh)
    objection = a_round.objection(command)
    if objection is not None:
        return _failed(command, "churn", objection.message)
    return Validity(command=command)


def _failed(command: Command, reason: Invalidity, message: str) -> Validity:
    nodes = tuple(c.node.name for c in command.candidates)
    return Validity(command=None, invalid=(Invalid(reason=reason, message=message, nodes=nodes),))


def _emptiness(command: Command, a_round: Round) -> Validity:
    """Return the command for those nodes that are still empty, and within budgets."""
    fresh, _ = _fresh(command, a_round)
    still = {c.node.name for c in fresh}
    lost = tuple(c.node.name for c in command.candidates if c.node.name not in still)
    allowance = Allowance(a_round, command.reason, command.method)
    bound = {c.node.name for c in fresh if allowance.take(c) is not None}
    kept = tuple(c for c in fresh if c.node.name not in bound)
    invalid = []
    if lost:
        text = "nodes are not empty, or may not be disrupted any more"
        invalid.append(Invalid(reason="churn", message=text, nodes=lost))
    if bound:
        over = tuple(c.node.name for c in fresh if c.node.name in bound)
        invalid.append(Invalid(reason="budget", message="budgets allow fewer nodes now", nodes=over))
    return Validity(command=replace(command, candidates=kept) if kept else None, invalid=tuple(invalid))


def _fresh(command: Command, a_round: Round) -> tuple[tuple[Candidate, ...], str]:
    """Return the command's candidates as they are now, and why the first of them is none any more."""
    graceful = command.reason != "Drifted"
    known = {c.node.name: c for c in (a_round.candidates if graceful else a_round.eventual)}
    fresh, lost = [], ""
    for old in command.candidates:
        candidate = known.get(old.node.name)
        # A node that came back under the same name is another machine.
        if candidate is None or candidate.node.provider_id != old.node.provider_id:
            lost = lost or f"node {old.node.name} may not be disrupted any more"
            continue
        why = _why_not(candidate, command, a_round.snapshot.taken_at)
        if why:
            lost = lost or f"node {old.node.name}: {why}"
            continue
        fresh.append(candidate)
    return tuple(fresh), lost


def _why_not(candidate: Candidate, command: Command, now: float) -> str:
    """Return why the method that made the command is not for the node any more."""
    if command.reason == "Drifted":
        return "it is not drifted any more" if drifted_since(candidate) is None else ""
    why = why_kept(candidate, now) if command.reason == "Empty" else why_not(candidate, command.method, now)
    return why.message if why is not None else ""


def _beyond_budget(command: Command, fresh: Sequence[Candidate], a_round: Round) -> Verdict | None:
    allowance = Allowance(a_round, command.reason, command.method)
    return next((why for c in fresh if (why := allowance.take(c)) is not None), None)


def _simulated(
    command: Command, fresh: tuple[Candidate, ...], a_round: Round, budget: Budget | None
) -> Command | str:
    """Return the consolidation as it would be now, with what was meant to be bought; or why it holds not."""
    snapshot = a_round.snapshot
    closed = waiting.unsettled(snapshot.nodes, snapshot.nodepools, snapshot.taken_at)
    if command.method == "sets":
        outcome = a_round.simulator.without(fresh, closed=closed, budget=budget)
    else:
        outcome = simulated(a_round, fresh, closed)
    if outcome.stranded:
        return stranded_in_words(outcome)
    market = Market.of(a_round.simulator.problem)
    claims = _matched(command.replacements, outcome)
    if claims is None:
        return _anew(command, fresh, outcome, market, a_round)
    narrowed = []
    for meant, claim in claims:
        merged = _as_meant(meant, claim, market)
        if merged is None:
            return f"nothing that was meant to replace it in nodepool/{meant.pool.name} can be bought now"
        narrowed.append(merged)
    worst = sum(max(quote.worst for quote in market.of_claim(claim)) for claim in narrowed)
    before = sum(c.price for c in fresh)
    if narrowed and not worst < before:
        return f"prices have moved: replacements may cost ${worst:.4f} an hour, and what goes ${before:.4f}"
    return replace(
        command,
        candidates=fresh,
        replacements=tuple(narrowed),
        worst_price=worst,
        placements=outcome.placements,
    )


def _anew(
    command: Command, fresh: tuple[Candidate, ...], outcome: Outcome, market: Market, a_round: Round
) -> Command | str:
    """Return what taking the nodes of a search over sets comes to now, though other nodes would be bought.

    Such a search improves its plans while it has time; another plan that saves about as much is as good. For
    the methods that follow upstream nothing is launched but what was decided.
    """
    if command.method != "sets":
        return _NEW_RESULTS
    most = max(1, len(outcome.claims))
    found = replacement_of(fresh, outcome, market, a_round.policy, method=command.method, most=most)
    if isinstance(found, Verdict):
        return found.message
    rejected = next((move for move in Balance(a_round).weigh(found) if not move.approved), None)
    if rejected is not None:
        return rejected.message
    return found if found.savings >= _AS_GOOD * command.savings else _NEW_RESULTS


def _matched(
    meant: Sequence[PlannedClaim], outcome: Outcome
) -> list[tuple[PlannedClaim, PlannedClaim]] | None:
    """Return each claim that was meant with one that would be bought now and may be all that it may be; None
    when they are not as many, or too different."""
    left = list(outcome.claims)
    if len(left) != len(meant):
        return None
    pairs = []
    # Those with few types first: they have the least choice.
    for claim in sorted(meant, key=lambda c: (-len(c.instance_types), c.pods)):
        fitting = [
            other
            for other in left
            if other.pool.name == claim.pool.name and set(claim.instance_types) <= set(other.instance_types)
        ]
        if not fitting:
            return None
        best = min(fitting, key=lambda o: (o.pods != claim.pods, len(o.instance_types), o.pods))
        left.remove(best)
        pairs.append((claim, best))
    order = {id(claim): number for number, claim in enumerate(meant)}
    return sorted(pairs, key=lambda pair: order[id(pair[0])])


def _as_meant(meant: PlannedClaim, now: PlannedClaim, market: Market) -> PlannedClaim | None:
    """Return what would be bought now, bound to the types and capacity types that were meant."""
    requirements = now.requirements
    if labels.CAPACITY_TYPE in meant.requirements:
        requirements = requirements.add(meant.requirements[labels.CAPACITY_TYPE])
    quotes = market.quotes(now.pool.name, requirements, meant.instance_types)
    if not quotes or requirements.impossible():
        return None
    names = tuple(quote.name for quote in quotes)
    requirements = requirements.add(Requirement.of(labels.INSTANCE_TYPE, "In", names))
    return replace(now, requirements=requirements, instance_types=names, price=quotes[0].best)
