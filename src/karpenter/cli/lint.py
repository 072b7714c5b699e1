"""Mistakes that every rule lets through: pools that cannot buy, typos, dead schedules, overlaps."""

import difflib
import itertools
from collections.abc import Iterator, Sequence
from typing import Literal

import msgspec

from karpenter.apis import labels as known
from karpenter.apis.karpenter import Budget, NodePool
from karpenter.apis.validation import FieldError
from karpenter.base.cron import parse_cron
from karpenter.model.instancetype import InstanceType
from karpenter.model.requirements import Requirement, Requirements

Severity = Literal["error", "warning"]
Judged = tuple[Severity, FieldError]

_SIMILAR = 0.8
_PLACES = frozenset({known.ZONE, known.REGION})
_REQUIREMENTS = "spec.template.spec.requirements"


class Catalogue(msgspec.Struct, frozen=True):
    """The instance types that are for sale, and the labels somebody defines."""

    types: tuple[InstanceType, ...] = ()
    well_known: frozenset[str] = known.WELL_KNOWN_LABELS

    def values(self, key: str) -> frozenset[str]:
        """Return every value that some type has for `key`."""
        having = [t.requirements.get(key).values for t in self.types if key in t.requirements]
        return frozenset[str]().union(*having)


def lint_pool(pool: NodePool, catalogue: Catalogue) -> Iterator[Judged]:
    """Yield what looks wrong with one pool."""
    yield from _typos(pool, catalogue)
    yield from _supply(pool, catalogue)
    for number, budget in enumerate(pool.spec.disruption.budgets):
        yield from _budget(budget, f"spec.disruption.budgets[{number}]")


def _typos(pool: NodePool, catalogue: Catalogue) -> Iterator[Judged]:
    """Yield keys that look like well-known labels but are not, and values that no type has."""
    candidates = sorted(catalogue.well_known)
    for number, requirement in enumerate(pool.spec.template.spec.requirements):
        path = f"{_REQUIREMENTS}[{number}]"
        key = known.ALIASES.get(requirement.key, requirement.key)
        if key not in catalogue.well_known:
            close = difflib.get_close_matches(key, candidates, n=1, cutoff=_SIMILAR)
            if close:
                problem = "is a label of your own; a well-known one is called almost the same"
                yield "warning", FieldError(f"{path}.key", key, problem, f"did you mean {close[0]}?")
        elif requirement.operator == "In":
            yield from _unknown_values(requirement.values, key, path, catalogue)


def _unknown_values(values: Sequence[str], key: str, path: str, catalogue: Catalogue) -> Iterator[Judged]:
    offered = catalogue.values(key)
    for index, value in enumerate(values):
        if offered and value not in offered and key not in _PLACES:
            close = difflib.get_close_matches(value, sorted(offered), n=1, cutoff=_SIMILAR / 2)
            problem = f"no known instance type has this {key}"
            fix = f"did you mean {close[0]}?" if close else "remove it, unless your cloud has it"
            yield "warning", FieldError(f"{path}.values[{index}]", value, problem, fix)


def pool_requirements(pool: NodePool) -> Requirements:
    """Return what the pool's nodes must be: its requirements and its template's labels."""
    template = pool.spec.template
    return Requirements.from_specs(template.spec.requirements).merge(
        Requirements.from_labels(template.metadata.labels)
    )


def _supply(pool: NodePool, catalogue: Catalogue) -> Iterator[Judged]:
    """Yield why no node could ever come of this pool."""
    wanted = pool_requirements(pool)
    clash = wanted.impossible()
    specs = pool.spec.template.spec.requirements
    meant = {known.ALIASES.get(spec.key, spec.key) for spec in specs if spec.operator == "DoesNotExist"}
    if clash and clash not in meant:
        where = _path_of(pool, clash)
        yield (
            "error",
            FieldError(
                where, clash, "the requirements on this label leave no value", "drop or widen one of them"
            ),
        )
        return
    if not catalogue.types or offered_types(wanted, catalogue.types):
        return
    blame = _blame(wanted, catalogue.types)
    place = set(blame) <= _PLACES
    problem = f"none of {len(catalogue.types)} known instance types meets the requirements together"
    fix = f"widen {' or '.join(blame)}" if blame else "widen the requirements"
    if place:
        problem += "; the catalogue may not know this place"
    path = _path_of(pool, blame[0]) if blame else _REQUIREMENTS
    shown = str(wanted.get(blame[0])) if blame else str(wanted)
    yield "warning" if place and blame else "error", FieldError(path, shown, problem, fix)


def offered_types(wanted: Requirements, types: Sequence[InstanceType]) -> frozenset[str]:
    """Return the names of the types that meet `wanted` with at least one of their offerings."""
    return frozenset(
        t.name
        for t in types
        if not t.requirements.intersects(wanted)
        and any(not o.requirements.intersects(wanted) for o in t.offerings)
    )


def _blame(wanted: Requirements, types: Sequence[InstanceType]) -> list[str]:
    """Return the labels each of which, left out, would let some type through."""
    return [key for key in sorted(wanted) if offered_types(wanted.without(key), types)]


def _path_of(pool: NodePool, key: str) -> str:
    """Return the last place where the pool says something about `key`."""
    for number, spec in reversed(list(enumerate(pool.spec.template.spec.requirements))):
        if known.ALIASES.get(spec.key, spec.key) == key:
            return f"{_REQUIREMENTS}[{number}]"
    return f"spec.template.metadata.labels.{key}"


def _budget(budget: Budget, path: str) -> Iterator[Judged]:
    if budget.schedule is None:
        if budget.nodes in ("0", "0%") and not budget.reasons:
            problem = "nodes of this pool are never disrupted for drift, emptiness or cost"
            yield "warning", FieldError(f"{path}.nodes", budget.nodes, problem, "add a schedule or a reason")
        return
    try:
        schedule = parse_cron(budget.schedule)
    except ValueError as error:
        fix = "use minute hour day month weekday, or a macro such as @daily"
        yield "error", FieldError(f"{path}.schedule", budget.schedule, str(error), fix)
        return
    if schedule.next_after(0.0) is None:
        problem = "never comes, so that the budget never counts"
        yield "error", FieldError(f"{path}.schedule", budget.schedule, problem, "name a date that exists")


def lint_together(pools: Sequence[NodePool], catalogue: Catalogue) -> Iterator[tuple[int, Judged]]:
    """Yield pools between which nothing decides; each finding with the index of the later pool."""
    offers = [
        _Offer(pool, pool_requirements(pool), offered_types(pool_requirements(pool), catalogue.types))
        for pool in pools
    ]
    for (_, first), (index, second) in itertools.combinations(enumerate(offers), 2):
        if first.same_as(second):
            weight = second.pool.spec.weight or 0
            problem = f"has the same weight as {first.pool.name} and buys the same nodes: names decide"
            yield (
                index,
                (
                    "warning",
                    FieldError("spec.weight", weight, problem, "give the preferred pool a higher weight"),
                ),
            )


class _Offer(msgspec.Struct, frozen=True):
    pool: NodePool
    wanted: Requirements
    types: frozenset[str]

    def same_as(self, other: "_Offer") -> bool:
        mine, theirs = self.pool.spec, other.pool.spec
        return (
            not self.pool.static
            and not other.pool.static
            and (mine.weight or 0) == (theirs.weight or 0)
            and mine.template.spec.taints == theirs.template.spec.taints
            and self.types == other.types
            and _comparable(self.wanted) == _comparable(other.wanted)
        )


def _comparable(wanted: Requirements) -> tuple[Requirement, ...]:
    return tuple(wanted.get(key) for key in sorted(wanted))
