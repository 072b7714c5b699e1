"""The latest word of every method of disruption on every node: why it is left alone.

Bounded by the number of nodes: a newer word takes the place of the older one, and nodes that are gone are
forgotten with all that was said of them.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Set
from typing import NamedTuple

from karpenter.disruption.verdicts import Method, Verdict


class Entry(NamedTuple):
    """One verdict, and when it was given."""

    verdict: Verdict
    at: float
    """Epoch seconds."""


class VerdictLog:
    """Verdicts by node and method; method None is for what keeps a node from all of them."""

    def __init__(self) -> None:
        self._entries: dict[str, dict[Method | None, Entry]] = {}

    def note(
        self,
        method: Method | None,
        verdicts: Iterable[Verdict],
        now: float,
        *,
        chosen: Iterable[str] = (),
        whole: bool = False,
    ) -> None:
        """Take in what a method has said.

        Args:
            chosen: nodes that it wants disrupted: what it said of them before does not hold any more.
            whole: it has looked at every node, so that nothing that it said before holds any more.
        """
        if whole:
            self._drop(method, list(self._entries))
        self._drop(method, chosen)
        for verdict in verdicts:
            self._entries.setdefault(verdict.node, {})[method] = Entry(verdict, now)

    def retain(self, nodes: Set[str]) -> None:
        """Forget all nodes but these."""
        for name in [name for name in self._entries if name not in nodes]:
            del self._entries[name]

    def of(self, node: str) -> Mapping[Method | None, Entry]:
        """Return the latest verdicts on a node, by method; what holds for all methods comes first."""
        found = self._entries.get(node, {})
        return {method: found[method] for method in sorted(found, key=lambda m: m or "")}

    def nodes(self) -> tuple[str, ...]:
        """Return the nodes of which anything is known, by name."""
        return tuple(sorted(self._entries))

    def counts(self) -> Counter[tuple[str, str]]:
        """Return how many nodes there are for each method (empty: any) and code."""
        return Counter(
            (method or "", entry.verdict.code)
            for entries in self._entries.values()
            for method, entry in entries.items()
        )

    def _drop(self, method: Method | None, nodes: Iterable[str]) -> None:
        for name in nodes:
            entries = self._entries.get(name)
            if entries is not None and entries.pop(method, None) is not None and not entries:
                del self._entries[name]
