"""The overlays in force, and what they make of each pool's instance types."""

from collections.abc import Callable, Iterable, Mapping, Sequence

from karpenter.cloudprovider.errors import UnevaluatedNodePool
from karpenter.cloudprovider.overlayevaluation import PoolTypes
from karpenter.cloudprovider.overlays import Overlay, Scoped, overlaid, scoped
from karpenter.model.instancetype import InstanceType

Types = tuple[InstanceType, ...]


class _Pool:
    """One pool under the overlays in force, and what it was seen as last."""

    def __init__(self, scopes: tuple[Scoped, ...], judged: Types) -> None:
        self.scopes = scopes
        self.judged = judged
        """The types that conflicts were looked for in."""
        self.seen: tuple[Types, Types] | None = None
        """What was looked at last, and what it was seen as."""
        self._kinds: dict[str, tuple[InstanceType, InstanceType]] = {}

    def look(self, types: Types, others: Iterable["_Pool"]) -> Types:
        """Return `types` overlaid: the same tuple for the same tuple, the same type for the same type.

        Pools under the same overlays share the answer, so that it is compiled only once.
        """
        if self.seen is None or self.seen[0] is not types:
            for other in others:
                if other.seen is not None and other.seen[0] is types and other.scopes == self.scopes:
                    self._kinds, self.seen = other._kinds, other.seen
                    return self.seen[1]
            self._kinds = {kind.name: (kind, self._kind(kind)) for kind in types}
            result = tuple(self._kinds[kind.name][1] for kind in types)
            same = all(new is old for new, old in zip(result, types, strict=True))
            self.seen = types, types if same else result
        return self.seen[1]

    def _kind(self, kind: InstanceType) -> InstanceType:
        last = self._kinds.get(kind.name)
        return last[1] if last is not None and last[0] is kind else overlaid(kind, self.scopes)


class OverlayStore:
    """What the overlays in force make of each pool's types. Belongs to the event loop's thread."""

    def __init__(self) -> None:
        self._pools: dict[str, _Pool] = {}
        self._on_unjudged: list[Callable[[], None]] = []

    def replace(self, overlays: tuple[Overlay, ...], pools: Sequence[PoolTypes]) -> bool:
        """Put `overlays` in force for exactly `pools`, all at once; tell whether that changes anything."""
        before, after = self._pools, dict[str, _Pool]()
        for labels, types in pools:
            found = (scoped(overlay, labels) for overlay in overlays)
            scopes = tuple(scope for scope in found if scope is not None)
            old = before.get(labels.name)
            pool = old if old is not None and old.scopes == scopes else _Pool(scopes, types)
            pool.judged = types
            after[labels.name] = pool
        self._pools = after
        return _identities(before) != _identities(after)

    def apply(self, pool: str, types: Types) -> Types:
        """Return `types` as `pool` sees them; the same tuple again while nothing changes.

        Types that came after the overlays were judged are overlaid too; whoever subscribed is told.

        Raises:
            UnevaluatedNodePool: when the overlays have not been judged for `pool` yet.
        """
        known = self._pools.get(pool)
        if known is None:
            raise UnevaluatedNodePool(pool)
        if known.judged is not types:
            judged, known.judged = known.judged, types
            for handler in self._on_unjudged if _has_news(judged, types) else ():
                handler()
        return known.look(types, self._pools.values())

    def on_unjudged_types(self, handler: Callable[[], None]) -> None:
        """Call `handler` whenever a catalogue has types, offerings or labels that were not judged.

        Other prices, stock or availability are no reason: overlays do not choose by them.
        """
        self._on_unjudged.append(handler)


def _has_news(old: Types, new: Types) -> bool:
    """Tell whether overlays may be for other things in `new` than in `old`."""
    return len(old) != len(new) or any(
        after is not before and _chosen_by(after) != _chosen_by(before)
        for before, after in zip(old, new, strict=True)
    )


def _chosen_by(kind: InstanceType) -> tuple[object, ...]:
    return kind.name, kind.requirements, tuple(offering.requirements for offering in kind.offerings)


def _identities(pools: Mapping[str, _Pool]) -> dict[str, int]:
    return {name: id(pool) for name, pool in pools.items()}
