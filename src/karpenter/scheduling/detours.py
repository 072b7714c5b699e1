"""Small batches, planned in several ways: what if a class came first, or kept off a node or out of a domain?

A pass puts whole classes where each is best off. Of few pods, what is best for all is often found by letting
one of them go without: of existing nodes, which pods get the room; of domains, where it is dear for others.
Every such change is a pass of its own by the same rules, and others are tried on top of it, the best first.
"""

from collections.abc import Callable, Iterator, Sequence
from heapq import heappop, heappush
from typing import TypeVar

import msgspec

from karpenter.scheduling.classes import PodClass
from karpenter.scheduling.improve import total_cost
from karpenter.scheduling.passes import Pass
from karpenter.scheduling.whatif import WhatIf

_MOST_CLASSES = 12
_MOST_PODS = 60
_MOST_TRIES = 120
_DRY = 50
"""After how many tries in a row without a better plan the best one is taken."""
_EPSILON = 1e-9
_UNKNOWN = 1000
"""Preferences given up by a pod that suits its node under no variant, as far as can be seen."""

T = TypeVar("T")
Score = tuple[list[int], int, int, int, float]
_WRONG: Score = ([2**31], 0, 0, 0, 0.0)
"""Worse than any plan: no pod is of so high a priority."""


def small(classes: Sequence[PodClass]) -> bool:
    """Tell whether the batch is small."""
    return len(classes) <= _MOST_CLASSES and sum(c.count for c in classes) <= _MOST_PODS


def worth_detours(classes: Sequence[PodClass]) -> bool:
    """Tell whether the batch is small, and none of its pods prefers certain company."""
    return small(classes) and not any(_prefers(c) for c in classes)


def detoured(
    first: Pass, again: Callable[[WhatIf], Pass], right: Callable[[Pass], bool], more: Callable[[], bool]
) -> Pass:
    """Return the best plan found, `first` if none is better; `again` makes the plan of other ways to go.

    Always the best plan that still has untried changes is changed next. Only plans that are `right` count, if
    there is one.
    """
    best, score = first, score_of(first)
    queue = [(score, 0, _changes(first))]
    if not right(first):
        score = _WRONG
    tried, dry = {_key(first.what_if)}, 0
    while queue:
        _, _, changes = queue[0]
        what_if = next(changes, None)
        if what_if is None:
            heappop(queue)
            continue
        if _key(what_if) in tried:
            continue
        dry += 1
        if len(tried) > _MOST_TRIES or dry > _DRY or _nothing_to_gain(score) or not more():
            break
        tried.add(_key(what_if))
        other = again(what_if)
        found = score_of(other)
        heappush(queue, (found, len(tried), _changes(other)))
        if _better(found, score) and right(other):
            best, score, dry = other, found, 0
    return best


def score_of(current: Pass) -> Score:
    """Return what makes plans comparable; the lower the better.

    First come the pods left out, by priority; then the preferences given up; then nodes with fewer values
    than minValues; then pods in pools of less than the highest weight; then what the new nodes cost with fees
    and penalties.
    """
    classes = current.classes
    left_out = [c.priority for c in classes if c.refusal is None for key in c.pods if key in current.refused]
    weights = [s.weight for s in current.spaces]
    bins = current.bins.bins
    return (
        sorted(left_out, reverse=True),
        given_up(current),
        sum(b.relaxed for b in bins),
        sum((max(weights) - weights[b.pool]) * sum(map(len, b.pods.values())) for b in bins),
        total_cost(current, bins),
    )


def _better(found: Score, known: Score) -> bool:
    if found[:-1] != known[:-1]:
        return found[:-1] < known[:-1]
    return found[-1] < known[-1] - _EPSILON


def _nothing_to_gain(score: Score) -> bool:
    return not score[0] and not score[1] and score[-1] <= _EPSILON


def given_up(current: Pass) -> int:
    """Return how many preferences the pods of a plan have to do without where they are, summed over pods."""
    choosy = {i: c for i, c in enumerate(current.classes) if len({v.tier for v in c.variants}) > 1}
    if not choosy:
        return 0
    owner = {key: i for i, c in choosy.items() for key in c.pods}
    total = 0
    for planned in current.bins.bins:
        space, here = current.spaces[planned.pool], planned.pattern.requirements
        held = [owner[key] for keys in planned.pods.values() for key in keys if key in owner]
        for i in held:
            total += min(
                (v.tier for v in choosy[i].variants if space.admit(here, v) is here), default=_UNKNOWN
            )
    for name, keys in current.on_nodes.items():
        for key in keys:
            if key in owner:
                tiers = (v.tier for v in choosy[owner[key]].variants if current.nodes.takes(name, v))
                total += min(tiers, default=_UNKNOWN)
    return total


def _prefers(pod_class: PodClass) -> bool:
    profile, wide = pod_class.profile, pod_class.profile.wide
    weights = [t.weight for terms in (wide.spreads, wide.affinities, wide.antis) for t in terms]
    return bool(profile.soft or profile.fond) or any(weights)


def _changes(current: Pass) -> Iterator[WhatIf]:
    """Return what could be done otherwise than in `current`, the most promising first."""
    return iter([*_off_nodes(current), *_out_of_domains(current), *_in_turn(current)])


def _off_nodes(current: Pass) -> Iterator[WhatIf]:
    known, classes = current.what_if, current.classes
    owner = {key: i for i, c in enumerate(classes) for key in c.pods}
    for name in sorted(current.on_nodes):
        here = [owner[key] for key in current.on_nodes[name]]
        for number in sorted(set(here)):
            for most in _fewer(here.count(number)):
                for before in _with_and_without(known.nodes, number):
                    yield msgspec.structs.replace(known, nodes={**before, (number, name): most})


def _out_of_domains(current: Pass) -> Iterator[WhatIf]:
    known = current.what_if
    for (number, values), count in sorted(current.dealt.items()):
        for most in _fewer(count):
            for kept in _with_and_without(known.cells, number):
                yield msgspec.structs.replace(known, cells={**kept, (number, values): most})
    for domain in sorted({value for _, values in current.dealt for value in values}):
        closed = {key: 0 for key in current.dealt if domain in key[1]}
        if len(closed) > 1:
            yield msgspec.structs.replace(known, cells=closed)


def _in_turn(current: Pass) -> Iterator[WhatIf]:
    known, classes = current.what_if, current.classes
    for number in range(len(classes) if len(classes) > 1 else 0):
        others = tuple(i for i in known.first if i != number), tuple(i for i in known.last if i != number)
        yield msgspec.structs.replace(known, first=(number, *others[0]), last=others[1])
        yield msgspec.structs.replace(known, first=others[0], last=(*others[1], number))


def _with_and_without(known: dict[tuple[int, T], int], number: int) -> list[dict[tuple[int, T], int]]:
    """Return what is known already, and if that says something of a class, also what it says of others."""
    others = {key: most for key, most in known.items() if key[0] != number}
    return [known, others] if len(others) < len(known) else [known]


def _fewer(count: int) -> list[int]:
    """Return how many of `count` pods may stay: none, or all but one."""
    return [0, count - 1] if count > 1 else [0]


def _key(what_if: WhatIf) -> object:
    return (
        what_if.first,
        what_if.last,
        tuple(sorted(what_if.cells.items())),
        tuple(sorted(what_if.nodes.items())),
    )
