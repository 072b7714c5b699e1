"""Money as a limit: what may still be spent, by one pool and by all, in whole micro-USD per hour."""

from typing import Final

import numpy as np

from karpenter.apis.annotations import micro_usd
from karpenter.scheduling.catalogue import Amounts, Mask, Prices
from karpenter.scheduling.stock import Ledger

PRICE: Final = "price"
"""The key of `PoolOffer.remaining` that is money."""
_ENDLESS = int(np.iinfo(np.int64).max)


class Purse:
    """What one pool may still spend; part of it is what all pools may spend together."""

    def __init__(self, own: int | None, ledger: Ledger) -> None:
        """Start with `own` micro-USD per hour (None: no limit of its own), and what `ledger` has for all."""
        self.own = own
        self._ledger = ledger

    @property
    def limited(self) -> bool:
        """Tell whether there is any limit."""
        return self.own is not None or self._ledger.price_left is not None

    @property
    def shared(self) -> int | None:
        """Return what all pools together may still spend; None: no limit."""
        return self._ledger.price_left

    @property
    def left(self) -> int:
        """Return what the next node may cost at most; very large where nothing limits it."""
        own, shared = self.own, self.shared
        return min(_ENDLESS if own is None else own, _ENDLESS if shared is None else shared)

    def charges(self, usd: Prices) -> Amounts:
        """Return what nodes at these prices count, very much where the price is infinite."""
        return np.array([micro_usd(p) if p != np.inf else _ENDLESS for p in usd.tolist()], dtype=np.int64)

    def affords(self, charges: Amounts) -> Mask:
        """Return which nodes can still be paid."""
        paid: Mask = charges <= self.left
        return paid

    def spend(self, micro: int) -> None:
        """Count `micro` more; less than nothing gives back."""
        if self.own is not None:
            self.own -= micro
        self._ledger.spend(micro)
