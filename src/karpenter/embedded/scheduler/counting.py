"""How many pods on each row something picks: a selector, or the holding of an affinity term.

Counters are made when first asked for and kept up to date from then on. Which counters a class of pods is
counted in is known per class; label buckets keep finding that out from being quadratic when every pod is a
class of its own.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

from karpenter.embedded.scheduler.podclass import Matcher, PodClass, Term

Ints = NDArray[np.int64]
SWEEP_SLACK = 256
"""How many more selector counters than classes there may be before unused ones are dropped."""


class Counter:
    """How many of the pods on each row a predicate over pod classes picks."""

    def __init__(
        self, key: Hashable, picks: Callable[[PodClass], bool], capacity: int, *, terminating: bool
    ) -> None:
        self.key = key
        self.picks = picks
        self.counts: Ints = np.zeros(capacity, np.int64)
        self.terminating = terminating
        """Whether pods on their way out count."""
        self.used = 0
        self.buckets: tuple[Hashable, ...] = ()
        """Where classes it may pick are found; none: anywhere."""


def _matcher_buckets(matcher: Matcher) -> tuple[Hashable, ...]:
    selector = matcher.selector
    if matcher.namespace_selector is not None or selector is None or not selector.match_labels:
        return ()
    key, value = min(selector.match_labels.items())
    return tuple((namespace, key, value) for namespace in sorted(matcher.namespaces))


def _terms(pod_class: PodClass) -> list[tuple[str, Term]]:
    return [
        *(("anti", term) for term in pod_class.anti_affinity),
        *(("required", term) for term in pod_class.affinity),
        *(("preferred", term) for term in pod_class.preferred),
    ]


def _holder_key(kind: str, term: Term) -> Hashable:
    return ("holder", kind, term.key, term.weight)


def _class_buckets(pod_class: PodClass) -> list[Hashable]:
    labels = [(pod_class.namespace, key, value) for key, value in pod_class.labels.items()]
    return [None, *labels, *(_holder_key(kind, term) for kind, term in _terms(pod_class))]


class PodCounts:
    """The known classes, where their pods are, and the counters over them."""

    def __init__(self, capacity: int) -> None:
        self.classes: dict[bytes, PodClass] = {}
        self.namespaces: dict[str, Mapping[str, str]] = {}
        self.counters: dict[Hashable, Counter] = {}
        self._capacity = capacity
        self._generation = 0
        self._rows: dict[bytes, dict[int, list[int]]] = {}  # class to row to [pods, of them terminating]
        self._of_class: dict[bytes, dict[Hashable, Counter]] = {}
        self._buckets: dict[Hashable, dict[Hashable, Counter]] = {}  # bucket (None: any) to counters
        self._members: dict[Hashable, dict[bytes, PodClass]] = {}  # bucket (None: any) to classes
        self._held: dict[Hashable, tuple[str, Term, int]] = {}  # holder key to kind, term, classes with it
        self._held_by: dict[
            Hashable, dict[Hashable, None]
        ] = {}  # bucket of the term's matcher to holder keys

    def intern(self, pod_class: PodClass) -> PodClass:
        """Return the one class of this signature, registering it when it is new."""
        known = self.classes.get(pod_class.signature)
        if known is not None:
            return known
        signature = pod_class.signature
        self.classes[signature] = pod_class
        self._rows[signature] = {}
        own = self._of_class[signature] = {}
        for bucket in _class_buckets(pod_class):
            self._members.setdefault(bucket, {})[signature] = pod_class
            counters = self._buckets.get(bucket, {})
            own.update({key: counter for key, counter in counters.items() if counter.picks(pod_class)})
        for kind, term in _terms(pod_class):
            self._hold(kind, term)
        self._sweep()
        return pod_class

    def release(self, pod_class: PodClass) -> None:
        """Forget a class that no pod is of any more."""
        signature = pod_class.signature
        if pod_class.pods > 0 or self.classes.pop(signature, None) is None:
            return
        del self._of_class[signature]
        del self._rows[signature]
        for bucket in _class_buckets(pod_class):
            members = self._members.get(bucket)
            if members is not None:
                members.pop(signature, None)
                if not members:
                    del self._members[bucket]
        for kind, term in _terms(pod_class):
            self._let_go(kind, term)

    def move(self, row: int, pod_class: PodClass, *, terminating: bool, sign: int) -> None:
        """Note that a pod came to a row (`sign` 1) or left it (-1)."""
        rows = self._rows[pod_class.signature]
        tally = rows.setdefault(row, [0, 0])
        tally[0] += sign
        tally[1] += sign * terminating
        if tally[0] == 0:
            del rows[row]
        for counter in self._of_class[pod_class.signature].values():
            if counter.terminating or not terminating:
                counter.counts[row] += sign

    def grow(self, extra: int) -> None:
        """Make room for more rows."""
        self._capacity += extra
        for counter in self.counters.values():
            counter.counts = np.pad(counter.counts, (0, extra))

    def set_namespace(self, name: str, labels: Mapping[str, str] | None) -> None:
        """Note a namespace's labels (None: it is gone); recounts what selects namespaces by them."""
        if self.namespaces.get(name) == labels:
            return
        if labels is None:
            self.namespaces.pop(name, None)
        else:
            self.namespaces[name] = labels
        if any(c.namespace == name for c in self.classes.values()):
            for counter in list(self._buckets.get(None, {}).values()):
                self._recount(counter)

    def picked(self, matcher: Matcher, pod_class: PodClass) -> bool:
        """Tell whether `matcher` picks pods of the class."""
        return matcher.holds(pod_class.namespace, pod_class.labels, self.namespaces)

    def count(self, matchers: list[Matcher], *, terminating: bool) -> Ints:
        """Return how many pods on each row all of `matchers` pick, with or without terminating pods."""
        key = ("pods", terminating, *(m.key for m in matchers))
        counter = self.counters.get(key)
        if counter is None:
            chosen = list(matchers)
            counter = self._add(
                key,
                lambda c: all(self.picked(m, c) for m in chosen),
                _matcher_buckets(chosen[0]),
                terminating=terminating,
            )
        counter.used = self._generation
        return counter.counts

    def holders(self, pod_class: PodClass, kind: str) -> list[tuple[Term, Ints]]:
        """Return the terms of `kind` that pick pods of the class, each with how many pods hold it per row."""
        found = []
        labels = [(pod_class.namespace, key, value) for key, value in pod_class.labels.items()]
        for bucket in (None, *labels):
            for key in self._held_by.get(bucket, ()):
                held_kind, term, _ = self._held[key]
                if held_kind == kind and self.picked(term.matcher, pod_class):
                    found.append((term, self.counters[key].counts))
        return found

    def _hold(self, kind: str, term: Term) -> None:
        # Terms of pods already placed act on newcomers (symmetry), so who holds them is counted too.
        key = _holder_key(kind, term)
        held = self._held.get(key)
        self._held[key] = (kind, term, held[2] + 1 if held else 1)
        if held is not None:
            return
        for bucket in _matcher_buckets(term.matcher) or (None,):
            self._held_by.setdefault(bucket, {})[key] = None
        self._add(
            key,
            lambda c: any(_holder_key(each, own) == key for each, own in _terms(c)),
            (key,),
            terminating=True,
        )

    def _let_go(self, kind: str, term: Term) -> None:
        key = _holder_key(kind, term)
        _, _, users = self._held[key]
        if users > 1:
            self._held[key] = (kind, term, users - 1)
            return
        del self._held[key]
        for bucket in _matcher_buckets(term.matcher) or (None,):
            self._held_by[bucket].pop(key, None)
        self._drop(self.counters[key])

    def _add(
        self,
        key: Hashable,
        picks: Callable[[PodClass], bool],
        buckets: tuple[Hashable, ...],
        *,
        terminating: bool,
    ) -> Counter:
        counter = self.counters[key] = Counter(key, picks, self._capacity, terminating=terminating)
        counter.buckets = buckets
        for bucket in buckets or (None,):
            self._buckets.setdefault(bucket, {})[key] = counter
        self._recount(counter)
        return counter

    def _candidates(self, counter: Counter) -> Iterable[PodClass]:
        for bucket in counter.buckets or (None,):
            yield from self._members.get(bucket, {}).values()

    def _recount(self, counter: Counter) -> None:
        counter.counts[:] = 0
        for pod_class in self._candidates(counter):
            own = self._of_class[pod_class.signature]
            if not counter.picks(pod_class):
                own.pop(counter.key, None)
                continue
            own[counter.key] = counter
            for row, (pods, terminating) in self._rows[pod_class.signature].items():
                counter.counts[row] += pods if counter.terminating else pods - terminating

    def _drop(self, counter: Counter) -> None:
        del self.counters[counter.key]
        for bucket in counter.buckets or (None,):
            del self._buckets[bucket][counter.key]
        for pod_class in self._candidates(counter):
            self._of_class[pod_class.signature].pop(counter.key, None)

    def _sweep(self) -> None:
        """Drop the selector counters that nobody has asked for since the last sweep, if there are many."""
        if len(self.counters) <= 3 * len(self.classes) + SWEEP_SLACK:
            return
        for counter in [c for c in self.counters.values() if c.used < self._generation]:
            if counter.key not in self._held:
                self._drop(counter)
        self._generation += 1
