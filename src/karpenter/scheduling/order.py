"""Who has to be placed before whom: pods that must be near others come after them."""

from collections.abc import Sequence

from karpenter.scheduling.classes import PodClass

_DEEPEST = 32
"""Chains longer than this (or cycles) are cut: the rest goes in any order."""


def levels(classes: Sequence[PodClass]) -> list[int]:
    """Return, by class, how many others have to be placed before it.

    A class that must be near pods of a group that it is part of itself needs nobody before it.
    """
    depth = [0] * len(classes)
    wants = _wants(classes)
    for _ in range(_DEEPEST):
        before = list(depth)
        for i, wanted in wants:
            depth[i] = max([depth[i], *(min(depth[m] + 1, _DEEPEST) for m in wanted)])
        if depth == before:
            return depth
    return depth


def urgencies(classes: Sequence[PodClass]) -> list[int]:
    """Return the priority of each class, which is at least that of those who have to be near it."""
    found = [c.priority for c in classes]
    wants = _wants(classes)
    for _ in range(_DEEPEST):
        before = list(found)
        for i, wanted in wants:
            for m in wanted:
                found[m] = max(found[m], found[i])
        if found == before:
            return found
    return found


def _wants(classes: Sequence[PodClass]) -> list[tuple[int, list[int]]]:
    """Return the classes that must be near others, and the numbers of these."""
    members: dict[tuple[bool, int], list[int]] = {}
    for i, c in enumerate(classes):
        for rule in c.profile.selected:
            members.setdefault((True, rule), []).append(i)
        for group in c.profile.wide.selected:
            members.setdefault((False, group), []).append(i)
    wants: list[tuple[int, list[int]]] = []
    for i, c in enumerate(classes):
        near = [(True, r) for r in c.profile.near if r not in c.profile.selected]
        near += [(False, a.group) for a in c.profile.wide.affinities if not a.weight and not a.itself]
        if near:
            wants.append((i, [m for group in near for m in members.get(group, ()) if m != i]))
    return wants
