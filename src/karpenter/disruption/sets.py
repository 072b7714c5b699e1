"""Which nodes to take away together: a search over sets, with replacements as many as it takes.

What pods are worth, by the prices that prove the lower bound, tells which nodes cost more than what they
carry. Sets are proposed from arrays (`karpenter.scheduling.standing`), in the order of what they promise to
save per disruption, and tried in full by the solver: pods go to free room first, and what must be bought is
searched for the cheapest way. Nodes that would only be bought again stay.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, zip_longest
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
from karpenter.scheduling import Leaving, Standing
from karpenter.scheduling.catalogue import Mask
from karpenter.scheduling.solver import spender

_PRICING_STEPS = 40
_SEARCH_STEPS = 60
_MOST_TRIMS = 2
_MOST_TOGETHER = 64
"""Nodes in a neighbourhood; more are looked at together only as the first of those most too dear."""
_LOOKS = 120
"""Nodes looked at in neighbourhoods of one size."""
_MOST_TRIES = 16
_MOST_OF_A_KIND = 2
"""Neighbourhoods of one size tried for one demand on what they save."""
_DEMANDS = (11.0, 4.0, 1.0)
"""How many times over a move has to pay for its restarts: those that pay best come first."""
_MARKUP = 1.03
"""How much more than what they are worth pods are guessed to cost when they are bought anew."""
_WORTHWHILE = 0.015
"""Part of its cost that a set must be too dear for a search to find something."""
_LEAST = 1e-6
"""USD per hour that a move has to save."""
_WEIGHTY = 0.002
"""Part of what all nodes cost that a move has to promise to come before its turn: no large cluster is brought
down node by node."""
_NOTICEABLE = 0.005
"""Part of what its nodes cost that a move has to save even if restarts are free."""
_CHEAPER_RESTARTS = "lower --consolidation-restart-cost, or give moves more time with --consolidation-payback"


class Proposal(NamedTuple):
    """Nodes that may be worth taking away."""

    names: tuple[str, ...]
    savings: float
    """USD per hour, guessed."""
    least: float
    """USD per hour that it has to save, or else moving its pods does not pay."""

    def net(self, demand: float) -> float:
        """Return the USD per hour that it saves beyond what restarts cost, so many times over."""
        return self.savings - demand * self.least


class Trial(NamedTuple):
    """What taking some nodes away comes to, unchecked."""

    command: Command
    rehearsal: Rehearsal


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
        self._weighty = _WEIGHTY * sum(c.price for c in eligible)
        self._least_price = _least_price(a_round.simulator.problem)
        now = a_round.snapshot.taken_at
        self._horizon = {n: a_round.restarts.horizon([c], now) for n, c in self._eligible.items()}
        self._cost = {n: a_round.restarts.of(c) for n, c in self._eligible.items()}
        self._demand = 1.0
        """How many times over moves have to pay for their restarts for now."""
        self._first = self._receivers()
        self._standing.prefer(self._first)
        self._vacating = tuple(self._vacated())
        self._alone: dict[str, float] = {}
        """USD per hour that `_swapped` would save, by node, once that was looked at."""
        self._near: tuple[Proposal, ...] | None = None
        """Neighbourhoods, once they were looked at."""
        self._tried: dict[frozenset[str], tuple[Trial, ...]] = {}
        self._refused: set[frozenset[str]] = set()
        """Sets whose command did not stand up to a closer look."""
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
        for demand in _DEMANDS if self._round.restarts.counted else (1.0,):
            self._demand = demand
            for names in self._promising():
                command = self._attempt(names)
                if command is not None or self._late:
                    return command
        return None

    def _promising(self) -> Iterator[tuple[str, ...]]:
        """Yield the sets that seem to meet the demand, those first that save most beyond it."""
        guesses = (*self._vacating, *self._prefixes())
        yield from (p.names for p in self._ranked(guesses))
        yield from (p.names for p in self._ranked(tuple(self._swaps())))
        if self._near is None:
            self._near = tuple(self._neighbourhoods())
        sizes = sorted({len(p.names) for p in self._near}, reverse=True)
        alike = ([p for p in self._near if len(p.names) == size] for size in sizes)
        each = [self._ranked(proposals)[:_MOST_OF_A_KIND] for proposals in alike]
        yield from (p.names for best in zip_longest(*each) for p in best if p is not None)

    def _ranked(self, proposals: Sequence[Proposal]) -> list[Proposal]:
        least = _LEAST if self._demand <= 1 else self._weighty
        good = [p for p in proposals if p.names and p.net(self._demand) > least]
        return sorted(good, key=lambda p: (-p.net(self._demand), p.names))

    def _attempt(self, names: Sequence[str]) -> Command | None:
        key = frozenset(names)
        if key in self._refused:
            return None
        if key not in self._tried:
            if len(self._tried) >= self._most_tries:
                self._late = self._most_tries < _MOST_TRIES
                return None  # the same question would be answered alike: no need to ask before a change
            if not self._round.more():
                self._late = True
                return None
            self._tried[key] = tuple(self._trials([self._eligible[name] for name in names]))
        trials = sorted(self._tried[key], key=lambda trial: -self._net(trial.command))
        if not trials:
            return None
        found = self._confirmed(trials[0])
        if found is None and self._net(trials[0].command) > _LEAST:
            self._refused.add(key)
        return found

    def _least(self, names: Iterable[str]) -> float:
        """Return the USD per hour that taking nodes away has to save to pay for the restarts."""
        price, cost, horizon = 0.0, 0.0, math.inf
        for name in names:
            price += self._eligible[name].price
            cost += self._cost[name]
            horizon = min(horizon, self._horizon[name])
        return max(least_rate(cost, horizon), _NOTICEABLE * price)

    def _receivers(self) -> tuple[str, ...]:
        """Return who takes pods first: whoever stays anyway, then those that are last in turn to go.

        Pods that come to a node that goes later would have to move again, and few pods on the nodes that are
        next to go make that cheap.
        """
        staying = [name for name in self._standing.names if name not in self._eligible]
        return (*staying, *reversed(self._by_excess()))

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
        """Yield the nodes that cost most beyond what they carry, per disruption, as many as is best."""
        order = self._affordable(self._by_excess())
        if not order:
            return
        savings = np.array(list(self._guesses(order, _MARKUP)))
        horizon = np.minimum.accumulate([self._horizon[n] for n in order])
        least = np.cumsum([self._cost[n] for n in order]) / np.maximum(horizon, _LEAST)
        least = np.maximum(least, _NOTICEABLE * np.cumsum([self._eligible[n].price for n in order]))
        at = int((savings - self._demand * least).argmax())
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

    def _swaps(self) -> Iterator[Proposal]:
        """Yield ever more of the nodes each of which could be one smaller or cheaper node instead."""
        everywhere = np.ones(len(self._standing.names), dtype=np.bool_)
        if not self._alone:
            order = sorted(self._eligible, key=lambda n: (-self._excess[n] / self._eligible[n].price, n))
            self._alone = {n: self._swapped(self._standing, n, everywhere)[1] for n in order[:_LOOKS]}
        gain = {n: saved - self._demand * self._least([n]) for n, saved in self._alone.items()}
        chosen = [n for n in sorted(gain, key=lambda n: (-gain[n], n)) if gain[n] > _LEAST]
        standing, targets = self._standing.copy(), everywhere
        names: tuple[str, ...] = ()
        savings = 0.0
        for name in self._affordable(chosen):
            leaving, saved = self._swapped(standing, name, targets)
            if saved > self._demand * self._least([name]):
                standing.move(standing.row[name], leaving)
                targets[standing.row[name]] = False
                names, savings = (*names, name), savings + saved
                yield Proposal(names, savings, self._least(names))

    def _swapped(self, standing: Standing, name: str, targets: Mask) -> tuple[Leaving, float]:
        """Return where the pods of a node would go, and what one machine for who finds no room would save."""
        leaving = standing.leaving(standing.row[name], targets)
        price = standing.whole(leaving.left) if leaving.left else 0.0
        return leaving, self._eligible[name].price - price

    def _neighbourhoods(self) -> Iterator[Proposal]:
        """Yield nodes that are about as much too dear as each other, and might be worth it together."""
        everywhere = np.ones(len(self._standing.names), dtype=np.bool_)
        for names in self._windows():
            excess = sum(self._excess[n] for n in names)
            if excess < _WORTHWHILE * sum(self._eligible[n].price for n in names):
                continue
            if len(names) == 1:
                leaving = self._standing.leaving(self._standing.row[names[0]], everywhere)
                guess = self._eligible[names[0]].price - leaving.worth_left
            else:
                *_, guess = self._guesses(names, 1.0)
                guess += self._least_price / 2
            yield Proposal(names, guess, self._least(names))

    def _windows(self) -> Iterator[tuple[str, ...]]:
        """Yield runs and combs of the nodes by how much they are too dear, ever smaller ones."""
        most = len(self._affordable(self._eligible))
        order = sorted(self._eligible, key=lambda n: (-self._excess[n] / self._eligible[n].price, n))
        size = min(most, len(order), _MOST_TOGETHER)
        while size >= 1:
            stride = max(1, len(order) // size)
            runs = [tuple(order[at : at + size]) for at in range(0, len(order) - size + 1, max(1, size // 2))]
            combs = [tuple(order[at::stride][:size]) for at in range(stride)] if size > 1 else []
            both = (names for pair in zip_longest(runs, combs, fillvalue=()) for names in pair if names)
            chosen = (tuple(self._affordable(names)) for names in islice(both, -(-_LOOKS // size)))
            yield from dict.fromkeys(chosen)
            size //= 2

    # --- in full ------------------------------------------------------------------------------------------

    def _trials(self, chosen: Sequence[Candidate]) -> Iterator[Trial]:
        """Yield what taking `chosen` away comes to, then without those of which the like is bought again."""
        for _ in range(1 + _MOST_TRIMS):
            command, rehearsal = self._probe.rehearsed(chosen, Budget(steps=_SEARCH_STEPS), self._first)
            if isinstance(command, Verdict):
                self._note(chosen, command)
                return
            yield Trial(command, rehearsal)
            fewer = self._without_rebought(command)
            if not fewer or len(fewer) == len(chosen):
                return
            chosen = fewer

    def _confirmed(self, trial: Trial) -> Command | None:
        """Return the command of a trial, if it meets the demand and nothing speaks against it."""
        command = trial.command
        if self._net(command) <= _LEAST:
            if self._demand <= 1 and command.savings > _LEAST:
                self._note(command.candidates, self._unpaid(command))
            return None
        final = self._probe.confirmed(
            command.candidates,
            trial.rehearsal,
            most=len(self._eligible) + 1,
            budget=Budget(steps=_SEARCH_STEPS),
        )
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
        """Return the USD per hour that a command saves beyond the demand."""
        return command.savings - self._demand * self._least(c.name for c in command.candidates)

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
