"""The overlays in force, and what they make of each pool's instance types."""

from collections.abc import Callable, Iterable, Mapping, Sequence

from karpenter.cloudprovider.errors import UnevaluatedNodePool
from karpenter.cloudprovider.overlayevaluation import PoolTypes
from karpenter.cloudprovider.overlays import Overlay, PoolLabels, overlaid
from karpenter.model.instancetype import InstanceType

Types = tuple[InstanceType, ...]


class _Pool:
    """One pool under the overlays in force, and what it was seen as last."""

    def __init__(self, labels: PoolLabels, overlays: tuple[Overlay, ...], judged: Types) -> None:
        self.labels = labels
        self.overlays = overlays
        self.judged = judged
        """The types that conflicts were looked for in."""
        self._seen: tuple[Types, Types] | None = None
        self._kinds: dict[str, tuple[InstanceType, InstanceType]] = {}

    def seen(self, types: Types) -> Types | None:
        """Return what `types` was last seen as, if that was the last tuple looked at."""
        return self._seen[1] if self._seen is not None and self._seen[0] is types else None

    def look(self, types: Types, others: Iterable["_Pool"]) -> Types:
        """Return `types` overlaid: types keep their identity where nothing about them changed.

        A pool that sees the same as another one gets the very same tuple: it is compiled only once.
        """
        kinds = {kind.name: (kind, self._kind(kind)) for kind in types}
        result = tuple(kinds[kind.name][1] for kind in types)
        equal = (seen for other in others if (seen := other.seen(types)) is not None and seen == result)
        if all(new is old for new, old in zip(result, types, strict=True)):
            result = types
        else:
            result = next(equal, result)
        self._kinds, self._seen = kinds, (types, result)
        return result

    def _kind(self, kind: InstanceType) -> InstanceType:
        last = self._kinds.get(kind.name)
        if last is not None and last[0] is kind:
            return last[1]
        return overlaid(kind, self.labels, self.overlays)


class OverlayStore:
    """What the overlays in force make of each pool's types. Belongs to the event loop's thread."""

    def __init__(self) -> None:
        self._pools: dict[str, _Pool] = {}
        self._on_unjudged: list[Callable[[], None]] = []

    def replace(self, overlays: tuple[Overlay, ...], pools: Sequence[PoolTypes]) -> bool:
        """Put `overlays` in force for exactly `pools`, all at once; tell whether that changes anything."""
        before, after = self._pools, dict[str, _Pool]()
        for labels, types in pools:
            old = before.get(labels.name)
            if old is not None and (old.labels, old.overlays) == (labels, overlays):
                old.judged = types
                after[labels.name] = old
            else:
                after[labels.name] = _Pool(labels, overlays, types)
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
            known.judged = types
            for handler in self._on_unjudged:
                handler()
        seen = known.seen(types)
        return known.look(types, self._pools.values()) if seen is None else seen

    def on_unjudged_types(self, handler: Callable[[], None]) -> None:
        """Call `handler` whenever a pool's catalogue is another one than conflicts were looked for in."""
        self._on_unjudged.append(handler)


def _identities(pools: Mapping[str, _Pool]) -> dict[str, int]:
    return {name: id(pool) for name, pool in pools.items()}
