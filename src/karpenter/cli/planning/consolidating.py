"""What consolidation would come to: every command until none is left, carried out on paper."""

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from karpenter.apis import labels as known
from karpenter.base.clock import Clock
from karpenter.base.collector import uncollected
from karpenter.cli.planning.cluster import Ask, Catalogues
from karpenter.cli.planning.report import NewNode, Record, Report, Timing, new_node, node_prices
from karpenter.disruption.aftermath import Aftermath, Types, after_plan
from karpenter.disruption.candidates import Candidate
from karpenter.disruption.command import Command
from karpenter.disruption.converging import Converger, Rules, Step, types_of
from karpenter.disruption.emptiness import Emptiness
from karpenter.disruption.multi import MultiNode
from karpenter.disruption.rounds import Policy, Search
from karpenter.disruption.sets import SetSearch
from karpenter.disruption.single import SingleNode
from karpenter.disruption.verdicts import Verdict
from karpenter.model.problem import Budget, Plan, Problem

_DIGITS = 9


class Removed(Record, frozen=True):
    """A node that goes."""

    node: str
    node_pool: str
    instance_type: str
    price: float
    """USD per hour."""
    reschedulable_pods: int
    """How many of its pods need another place."""
    savings_ratio: float
    """USD per hour by disruption cost."""


class Replacement(NewNode, frozen=True):
    """A node that is launched first."""

    node: str
    """As later commands call it."""


class Move(Record, frozen=True):
    """One command."""

    method: str
    reason: str
    decision: str
    """`delete` or `replace`."""
    removed: list[Removed]
    replacements: list[Replacement]
    pods_moved_to_existing: dict[str, int]
    """How many pods go to nodes that stay, by node."""
    removed_price_per_hour: float
    replacement_price_per_hour: float
    savings_per_hour: float
    cluster_cost_before: float
    cluster_cost_after: float
    reasons: list[str]
    """Why it is done, for people."""
    seconds: float | None
    """What it took to find it; null with `--deterministic`."""


class Stays(Record, frozen=True):
    """Why one method leaves a node alone, in the round that found nothing."""

    node: str
    method: str | None
    """null: no method may touch it."""
    code: str
    message: str
    saving_per_hour: float | None
    remedy: str
    """The cheapest change that would unlock it; empty when none is known."""


class Consolidation(Record, frozen=True):
    """Everything about one consolidation."""

    nodes_before: int
    """Once the pods that wait have their nodes."""
    nodes_after: int
    cost_before_per_hour: float
    cost_after_per_hour: float
    converged: bool
    """Nothing more is found; false when it was stopped before."""
    settled: bool
    """The last look was at everything: no budget of a pool and no clock stood in its way."""
    command_count: int
    evicted_pods: int
    """By all commands together; a pod counts each time it moves."""
    commands: list[Move]
    staying: list[Stays]
    """By node."""
    provision: Report | None
    """The plan for the pods that wait; null without any."""
    timing: Timing


class Consolidating(msgspec.Struct, frozen=True, kw_only=True):
    """How the user wants it done."""

    methods: tuple[str, ...] = ()
    """In the order in which they are asked; none: the usual ones."""
    free_moves: bool = False
    """Put disruption budgets aside, and what restarts cost."""
    provision: bool = True
    """Give pods that wait their nodes first."""
    most_commands: int | None = None
    round_budget: str = "1m"
    """Longest time to look for one command; without a meaning where times do not count."""


class Work(NamedTuple):
    """What it is done with."""

    ask: Ask
    catalogues: Catalogues
    spot_to_spot: bool = False
    round_budget: Budget = Budget()
    """For looking for one command; none given: until all is looked at."""


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of a consolidation; `consolidation.schema.json` is this, written down."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **msgspec.json.schema(Consolidation)}


def searches_named(names: Sequence[str] = ()) -> tuple[Search, ...]:
    """Return the methods of consolidation in their order; all that are usual without names.

    Raises:
        ValueError: a method of that name does not consolidate.
    """
    for name in names:
        if name not in _SEARCHES:
            raise ValueError(f"{name} is no method of consolidation: want some of {', '.join(_SEARCHES)}")
    return tuple(_SEARCHES[name]() for name in names or _USUAL)


def consolidation_of(
    wish: Consolidating, problem: Problem, plan: Plan, report: Report, work: Work, clock: Clock | None
) -> Consolidation:
    """Return what consolidation comes to once `plan`, which answers `problem`, is carried out.

    Args:
        wish: how it is to be done.
        problem: the question about pods that wait.
        plan: its answer.
        report: the plan as data.
        work: what it takes.
        clock: None: no times are told.

    Raises:
        ValueError: a method that is wished for does not exist.
        Broken: a command does not come to what it announced.
    """
    rules = Rules(
        policy=Policy(spot_to_spot=work.spot_to_spot, min_values_strict=problem.options.min_values_strict),
        free_moves=wish.free_moves,
        remembered=False,
        most_commands=wish.most_commands,
        budget=work.round_budget,
    )
    state = Aftermath(snapshot=problem.snapshot, prices=node_prices(problem.snapshot, work.catalogues))
    if wish.provision:
        state = after_plan(state, plan, problem.pods, types_of(problem))
    monotonic = clock.monotonic if clock is not None else lambda: 0.0
    converger = Converger(
        state, work.ask, work.catalogues, searches_named(wish.methods), rules, monotonic=monotonic
    )
    with uncollected():
        steps = list(converger.steps())
    shown = report if problem.pods and wish.provision else None
    return _told(state, steps, converger, work, shown, report.timing, timed=clock is not None)


def _told(
    before: Aftermath,
    steps: Sequence[Step],
    converger: Converger,
    work: Work,
    provision: Report | None,
    timing: Timing,
    *,
    timed: bool,
) -> Consolidation:
    after = converger.state
    types = {pool: {kind.name: kind for kind in kinds} for pool, kinds in work.catalogues.items()}
    return Consolidation(
        nodes_before=len(before.snapshot.nodes),
        nodes_after=len(after.snapshot.nodes),
        cost_before_per_hour=_usd(before.cost),
        cost_after_per_hour=_usd(after.cost),
        converged=converger.converged,
        settled=converger.converged and converger.settled,
        command_count=len(steps),
        evicted_pods=sum(step.command.moved for step in steps),
        commands=[_move(step, types, timed=timed) for step in steps],
        staying=[_stays(verdict) for verdict in converger.verdicts] if converger.converged else [],
        provision=provision,
        timing=Timing(
            compile_seconds=timing.compile_seconds,
            solve_seconds=timing.solve_seconds,
            improve_seconds=round(converger.seconds, 6) if timed else None,
        ),
    )


def _move(step: Step, types: Types, *, timed: bool) -> Move:
    command = step.command
    return Move(
        method=command.method,
        reason=command.reason,
        decision=command.decision,
        removed=[_removed(candidate) for candidate in command.candidates],
        replacements=[
            _replacement(node.name, new_node(claim, types[claim.pool.name]))
            for claim, node in zip(command.replacements, step.launched, strict=True)
        ],
        pods_moved_to_existing={name: len(keys) for name, keys in sorted(command.placements.items()) if keys},
        removed_price_per_hour=_usd(command.price_before),
        replacement_price_per_hour=_usd(command.price_before - command.savings),
        savings_per_hour=_usd(command.savings),
        cluster_cost_before=_usd(step.cost_before),
        cluster_cost_after=_usd(step.cost_after),
        reasons=reasons_for(command),
        seconds=round(step.seconds, 6) if timed else None,
    )


def _replacement(name: str, new: NewNode) -> Replacement:
    return Replacement(node=name, **{field: getattr(new, field) for field in new.__struct_fields__})


def _removed(candidate: Candidate) -> Removed:
    return Removed(
        node=candidate.node.name,
        node_pool=candidate.pool.name,
        instance_type=candidate.node.labels.get(known.INSTANCE_TYPE, ""),
        price=candidate.price,
        reschedulable_pods=len(candidate.reschedulable),
        savings_ratio=_usd(candidate.savings_ratio),
    )


def reasons_for(command: Command) -> list[str]:
    """Return why a command is worth it, a sentence each."""
    if not command.moved:
        return ["no pod on them needs another place"]
    placed = sum(len(keys) for keys in command.placements.values())
    staying = sum(1 for keys in command.placements.values() if keys)
    told = []
    if placed:
        told.append(f"{_counted(placed, 'pod')} fit into free room on {_counted(staying, 'node')} that stay")
    if command.replacements:
        bought = Counter((claim.instance_types[0], claim.price) for claim in command.replacements)
        listed = ", ".join(f"{count} {kind} at ${usd:.4f}/h" for (kind, usd), count in sorted(bought.items()))
        pods = sum(len(claim.pods) for claim in command.replacements)
        told.append(f"{_counted(pods, 'pod')} fit on {listed}")
    went = command.price_before
    told.append(f"${went - command.savings:.4f}/h instead of ${went:.4f}/h")
    return told


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _stays(verdict: Verdict) -> Stays:
    return Stays(
        node=verdict.node,
        method=verdict.method,
        code=verdict.code,
        message=verdict.message,
        saving_per_hour=None if verdict.saving is None else _usd(verdict.saving),
        remedy=verdict.remedy,
    )


def _usd(amount: float) -> float:
    """Return an amount without the dust of floating point."""
    return round(amount, _DIGITS)


_SEARCHES: dict[str, type[Search]] = {
    "emptiness": Emptiness,
    "sets": SetSearch,
    "multi": MultiNode,
    "single": SingleNode,
}
_USUAL = ("emptiness", "sets")
