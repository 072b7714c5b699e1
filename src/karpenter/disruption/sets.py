"""Which nodes to take away together: a search over sets, with replacements as many as it takes.

What pods are worth, by the prices that prove the lower bound, tells which nodes cost more than what they
carry. Sets are proposed from arrays (`karpenter.scheduling.standing`), in the order of what they promise to
save per disruption, and tried in full by the solver: pods go to free room first, and what must be bought is
searched for the cheapest way. Nodes that would only be bought again stay.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from karpenter.apis import labels
from karpenter.disruption.allowance import Allowance
from karpenter.disruption.budgets import Reason
from karpenter.disruption.candidates import Candidate
from karpenter.disruption.command import Command
from karpenter.disruption.consolidation import Probe
from karpenter.disruption.restarts import least_rate
from karpenter.disruption.rounds import Decision, Round
from karpenter.disruption.simulation import Rehearsal
from karpenter.disruption.verdicts import Code, Method, Verdict
from karpenter.model.problem import Budget, Problem
from karpenter.scheduling.solver import spender

_PRICING_STEPS = 40
_SEARCH_STEPS = 60
_MOST_TRIMS = 2
_MOST_LOOKS = 150
_MOST_TRIES = 16
_MARKUP = 1.03
"""How much more than what they are worth pods are guessed to cost when they are bought anew."""
_WORTHWHILE = 0.015
"""Part of its cost that a set must be too dear for a search to find something."""
_LEAST = 1e-6
"""USD per hour that a move has to save."""
_CHEAPER_RESTARTS = "lower --consolidation-restart-cost, or give moves more time with --consolidation-payback"


class Proposal(NamedTuple):
    """Nodes that may be worth taking away."""

    names: tuple[str, ...]
    savings: float
    """USD per hour, guessed."""
    least: float
    """USD per hour that it has to save, or else moving its pods does not pay."""

    @property
    def net(self) -> float:
        """USD per hour that it saves beyond what restarts cost."""
        return self.savings - self.least


class SetSearch:
    """The search; stateless."""

    method: Method = "sets"
    reason: Reason = "Underutilized"

    def __call__(self, a_round: Round) -> Decision:
        """Return the command that saves most for the disruption it costs, or none."""
        return _Sweep(a_round).decision()


class _Sweep:
    """The working of one round."""

    def __init__(self, a_round: Round) -> None:
        self._round = a_round
        self._probe = Probe(a_round, SetSearch.method)
        self._late = False
        """Whether something was not looked at that might be another time."""
        self._most_tries = min(_MOST_TRIES, a_round.attempts or _MOST_TRIES)
        self._standing = a_round.simulator.standing()
        self._standing.price(spender(Budget(steps=_PRICING_STEPS), None))
        eligible, self._verdicts = self._probe.eligible()
        self._eligible = {c.name: c for c in eligible if c.name in self._standing.row}
        self._excess = {
            name: c.price - self._standing.value(self._standing.row[name])
            for name, c in self._eligible.items()
        }
        self._disruption = {name: c.disruption_cost for name, c in self._eligible.items()}
        self._least_price = _least_price(a_round.simulator.problem)
        now = a_round.snapshot.taken_at
        self._horizon = {n: a_round.restarts.horizon([c], now) for n, c in self._eligible.items()}
        self._cost = {n: a_round.restarts.of(c) for n, c in self._eligible.items()}
        self._tried: set[frozenset[str]] = set()
        self._failed: dict[str, tuple[int, Verdict]] = {}
        """Why the smallest set that was tried with a node came to nothing."""

    def decision(self) -> Decision:
        """Return what is to be done, and why nodes stay."""
        command = self._run()
        allowance = self._allowance()
        taken = {c.name for c in command.candidates} if command else set()
        verdicts = [*self._verdicts]
        for name in [n for n in self._by_excess() if n not in taken]:
            refusal = allowance.take(self._eligible[name])
            verdicts.append(self._why(name) if refusal is None else refusal)
        return Decision(
            commands=(command,) if command else (),
            verdicts=tuple(sorted(verdicts, key=lambda v: v.node)),
            moves=tuple(self._probe.moves),
            eligible=len(self._eligible),
            settled=command is None and not self._late and not allowance.bound,
            bound=command is None and not self._late and allowance.bound,
        )

    def _why(self, name: str) -> Verdict:
        """Return why a node stays that budgets would let go."""
        candidate, excess = self._eligible[name], self._excess[name]
        least = self._least([name])

        def verdict(code: Code, message: str, remedy: str = "") -> Verdict:
            return Verdict(
                node=name, method=SetSearch.method, code=code, message=message, saving=excess, remedy=remedy
            )

        if name in self._failed and self._failed[name][1].code != "notCheaper":
            return replace(self._failed[name][1], node=name)
        worth = f"It costs ${candidate.price:.4f} an hour, its pods are worth ${candidate.price - excess:.4f}"
        if excess <= max(_LEAST, _WORTHWHILE * candidate.price):
            return verdict("notCheaper", f"{worth}: they cannot be had for less anywhere")
        if excess < least:
            text = f"{worth}; restarting them would not pay for itself in {self._horizon[name]:.3g} hours"
            return verdict("payback", text, _CHEAPER_RESTARTS)
        return verdict("notCheaper", f"{worth}; no cheaper place was found for them")

    def _run(self) -> Command | None:
        """Return the first proposal that proves good, the most promising tried first."""
        guesses = [p for p in (*self._vacated(), *self._prefixes()) if p.names and p.net > _LEAST]
        for proposal in sorted(guesses, key=lambda p: (-p.net, p.names)):
            command = self._attempt(proposal.names)
            if command is not None:
                return command
        for names in self._windows():
            command = self._attempt(names)
            if command is not None or self._late or len(self._tried) >= _MOST_TRIES:
                return command
        return None

    def _attempt(self, names: Sequence[str]) -> Command | None:
        key = frozenset(names)
        if not names or key in self._tried:
            return None
        if len(self._tried) >= self._most_tries:
            self._late = self._most_tries < _MOST_TRIES
            return None  # the same question would be answered alike: it is not asked again before a change
        if not self._round.more():
            self._late = True
            return None
        self._tried.add(key)
        return self._solved([self._eligible[name] for name in names])

    def _least(self, names: Iterable[str]) -> float:
        """Return the USD per hour that taking nodes away has to save to pay for the restarts."""
        cost, horizon = 0.0, math.inf
        for name in names:
            cost += self._cost[name]
            horizon = min(horizon, self._horizon[name])
        return least_rate(cost, horizon)

    # --- guesses ------------------------------------------------------------------------------------------

    def _by_excess(self) -> list[str]:
        """Return the nodes, those first that are most too dear for the disruption they cost."""
        return sorted(self._eligible, key=lambda n: (-self._excess[n] / self._disruption[n], n))

    def _affordable(self, names: Iterable[str]) -> list[str]:
        """Return those of `names` that budgets allow, the first of each pool."""
        allowance = self._allowance()
        chosen = []
        for name in names:
            candidate = self._eligible[name]
            if allowance.left(candidate.pool.name):
                allowance.take(candidate)
                chosen.append(name)
        return chosen

    def _allowance(self) -> Allowance:
        return Allowance(self._round, SetSearch.reason, SetSearch.method)

    def _vacated(self) -> Iterator[Proposal]:
        """Yield nodes whose pods all fit, so it seems, into free room on others, as budgets allow."""
        standing, allowance = self._standing.copy(), self._allowance()
        targets = np.ones(len(standing.names), dtype=np.bool_)
        names: list[str] = []
        for name in sorted(self._eligible, key=lambda n: (-self._eligible[n].price / self._disruption[n], n)):
            candidate, row = self._eligible[name], standing.row[name]
            if not allowance.left(candidate.pool.name):
                continue
            leaving = standing.vacating(row, targets)
            if leaving is not None:
                standing.move(row, leaving)
                targets[row] = False
                allowance.take(candidate)
                names.append(name)
        yield Proposal(tuple(names), sum(self._eligible[n].price for n in names), self._least(names))

    def _prefixes(self) -> Iterator[Proposal]:
        """Yield ever more of the nodes that cost most beyond what they carry, per disruption."""
        order = self._affordable(self._by_excess())
        if not order:
            return
        savings = np.array(list(self._guesses(order, _MARKUP)))
        horizon = np.minimum.accumulate([self._horizon[n] for n in order])
        least = np.cumsum([self._cost[n] for n in order]) / np.maximum(horizon, _LEAST)
        for at in dict.fromkeys([int((savings - least).argmax()), int(savings.argmax())]):
            yield Proposal(tuple(order[: at + 1]), float(savings[at]), float(least[at]))

    def _guesses(self, names: Sequence[str], markup: float) -> Iterator[float]:
        """Yield the USD per hour that taking the first of `names` away would save, then the first two, ..."""
        standing = self._standing.copy()
        targets = np.ones(len(standing.names), dtype=np.bool_)
        price = bought = 0.0
        for name in names:
            row = standing.row[name]
            targets[row] = False
            leaving = standing.leaving(row, targets)
            standing.move(row, leaving)
            price += self._eligible[name].price
            bought += leaving.worth_left
            yield price - bought * markup - (self._least_price / 2 if bought else 0.0)

    def _windows(self) -> Iterator[Sequence[str]]:
        """Yield neighbourhoods that are too dear on the whole, for when no guess is good enough."""
        most = len(self._affordable(self._eligible))
        order = sorted(self._eligible, key=lambda n: (-self._excess[n] / self._eligible[n].price, n))
        size = min(most, len(order))
        looks = iter(range(_MOST_LOOKS))
        while size >= 1:
            stride = max(1, len(order) // size)
            runs = [tuple(order[at : at + size]) for at in range(0, len(order) - size + 1, max(1, size // 2))]
            combs = [tuple(order[at::stride][:size]) for at in range(stride)]
            for names in (n for pair in zip_longest(runs, combs, fillvalue=()) for n in pair):
                if names and next(looks, None) is None:
                    return
                if names and self._may_pay(names):
                    yield self._affordable(names)
            size //= 2

    def _may_pay(self, names: Sequence[str]) -> bool:
        """Tell whether nodes are so much too dear that a search might find something that pays."""
        excess = sum(self._excess[n] for n in names)
        if excess < _WORTHWHILE * sum(self._eligible[n].price for n in names):
            return False
        if len(names) == 1:
            row = self._standing.row[names[0]]
            everywhere = np.ones(len(self._standing.names), dtype=np.bool_)
            guess = self._eligible[names[0]].price - self._standing.leaving(row, everywhere).worth_left
        else:
            *_, guess = self._guesses(names, 1.0)
            guess += self._least_price / 2
        return guess >= self._least(names)

    # --- in full ------------------------------------------------------------------------------------------

    def _solved(self, chosen: Sequence[Candidate]) -> Command | None:
        """Return the command that takes `chosen` away, or what of them it pays to take away."""
        budget = Budget(steps=_SEARCH_STEPS)
        best: tuple[Command, Rehearsal] | None = None
        for _ in range(1 + _MOST_TRIMS):
            command, rehearsal = self._probe.rehearsed(chosen, budget)
            if isinstance(command, Verdict):
                self._note(chosen, command)
                break
            if best is None or self._net(command) > self._net(best[0]):
                best = command, rehearsal
            fewer = self._without_rebought(command)
            if not fewer or len(fewer) == len(chosen):
                break
            chosen = fewer
        return None if best is None else self._confirmed(*best, budget)

    def _confirmed(self, command: Command, rehearsal: Rehearsal, budget: Budget) -> Command | None:
        """Return a command that was rehearsed, if it pays and nothing speaks against it."""
        if self._net(command) <= _LEAST:
            if command.savings > _LEAST:
                self._note(command.candidates, self._unpaid(command))
            return None
        most = len(self._eligible) + 1
        final = self._probe.confirmed(command.candidates, rehearsal, most=most, budget=budget)
        if isinstance(final, Verdict):
            self._note(command.candidates, final)
            return None
        return final if self._net(final) > _LEAST else None

    def _unpaid(self, command: Command) -> Verdict:
        """Return that a move saves something, but too little."""
        least = self._least(c.name for c in command.candidates)
        text = (
            f"It would save ${command.savings:.4f} an hour; to pay for the restarts it has to be ${least:.4f}"
        )
        return Verdict(
            node="",
            method=SetSearch.method,
            code="payback",
            message=text,
            saving=command.savings,
            remedy=_CHEAPER_RESTARTS,
        )

    def _note(self, chosen: Sequence[Candidate], verdict: Verdict) -> None:
        for candidate in chosen:
            if candidate.name not in self._failed or len(chosen) < self._failed[candidate.name][0]:
                self._failed[candidate.name] = (len(chosen), verdict)

    def _net(self, command: Command) -> float:
        return command.savings - self._least(c.name for c in command.candidates)

    def _without_rebought(self, command: Command) -> list[Candidate]:
        """Return the nodes of a command but for those of which the like is bought again: they may stay."""
        bought: dict[tuple[str, float], int] = {}
        for claim in command.replacements:
            kind = (claim.instance_types[0], round(claim.price, 9))
            bought[kind] = bought.get(kind, 0) + 1
        kept = []
        for candidate in sorted(command.candidates, key=lambda c: (self._excess[c.name], c.name)):
            kind = (candidate.node.labels.get(labels.INSTANCE_TYPE, ""), round(candidate.price, 9))
            if bought.get(kind, 0):
                bought[kind] -= 1
            else:
                kept.append(candidate)
        return kept


def _least_price(problem: Problem) -> float:
    """Return what the cheapest machine on sale costs, USD per hour."""
    prices = (
        offering.price
        for offer in problem.pools
        for kind in offer.instance_types
        for offering in kind.offerings
        if offering.available
    )
    return min(prices, default=0.0)
