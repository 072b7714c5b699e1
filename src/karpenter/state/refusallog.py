"""Why pods wait: what the last pass of the provisioner said of each that it found no place for.

Bounded: every pass takes the place of the one before, and of very many pods only so many are kept (the others
are counted). Pods that are equal share their reasons, as in the plan that they come from.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import islice
from types import MappingProxyType
from typing import NamedTuple

from karpenter.model.reasons import Refusal, Unschedulable


class Refused(NamedTuple):
    """Why one pod has no place."""

    refusals: tuple[Refusal, ...]
    """In the order in which places were tried."""
    since: float
    """When it was refused first without having had a place in between, epoch seconds."""
    at: float
    """When it was refused last, epoch seconds."""


class RefusalLog:
    """The outcome of the last pass, by pod key."""

    def __init__(self, most: int = 20_000) -> None:
        """Prepare; of more than `most` pods in one pass the first by key are kept."""
        self._most = most
        self._entries: dict[str, Refused] = {}
        self._placed: dict[str, str] = {}
        self.left_out = 0
        """How many refused pods of the last pass are not kept."""
        self.passed_at: float | None = None
        """When the last pass was, epoch seconds; None before the first."""

    def replace(
        self,
        refused: Iterable[Unschedulable],
        now: float,
        *,
        placed: Mapping[str, Iterable[str]] = MappingProxyType({}),
    ) -> None:
        """Take in a pass: `refused` pods have no place, all others have one or want none.

        `placed` are those that are expected on nodes that are there, by node.
        """
        every = sorted(refused, key=lambda each: each.pod)
        kept = every[: self._most]
        before = self._entries
        self._entries = {
            each.pod: Refused(each.refusals, before[each.pod].since if each.pod in before else now, now)
            for each in kept
        }
        self.left_out = len(every) - len(kept)
        expected = ((pod, node) for node, pods in placed.items() for pod in pods)
        self._placed = dict(islice(expected, self._most))
        self.passed_at = now

    def forget(self, pod: str) -> None:
        """Drop a pod that is gone."""
        self._entries.pop(pod, None)
        self._placed.pop(pod, None)

    def of(self, pod: str) -> Refused | None:
        """Return why a pod has no place; None when it has one, or nothing is known."""
        return self._entries.get(pod)

    def place_of(self, pod: str) -> str:
        """Return the node that a pod was expected on in the last pass; empty: none that was there."""
        return self._placed.get(pod, "")

    def pods(self) -> tuple[str, ...]:
        """Return the keys of the pods that are kept, sorted."""
        return tuple(sorted(self._entries))

    def counts(self) -> Counter[str]:
        """Return how many pods there are by constraint, each counted once under every one it fails at."""
        return Counter(
            constraint
            for entry in self._entries.values()
            for constraint in sorted({refusal.constraint for refusal in entry.refusals})
        )
