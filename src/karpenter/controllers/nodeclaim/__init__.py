"""A NodeClaim's life: launched, registered, initialized, watched over, and ended."""

from karpenter.controllers.context import Context
from karpenter.controllers.nodeclaim import (
    consistency,
    disruption,
    ending,
    expiration,
    garbagecollection,
    heirs,
    hydration,
    lifecycle,
    nominations,
    podevents,
    voidnominations,
)
from karpenter.runtime import Controller, Singleton

__all__ = ["build"]


def build(context: Context) -> list[Controller | Singleton]:
    """Return all controllers of NodeClaims."""
    ending.counters(context.metrics)  # so that they are there before anything ends
    return [
        controller
        for module in (
            lifecycle,
            expiration,
            garbagecollection,
            hydration,
            consistency,
            podevents,
            nominations,
            voidnominations,
            heirs,
            disruption,
        )
        for controller in module.build(context)
    ]
