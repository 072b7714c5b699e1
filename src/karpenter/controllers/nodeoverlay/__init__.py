"""Judging NodeOverlays, and putting those in force that hold. Only where the cloud is seen through them."""

from karpenter.cloudprovider.overlaid import OverlaidProvider
from karpenter.controllers.context import Context
from karpenter.controllers.nodeoverlay.judge import Judge
from karpenter.runtime import Controller, Singleton

__all__ = ["build"]


def build(context: Context) -> list[Controller | Singleton]:
    """Return the controller; none when the feature is off."""
    if not isinstance(context.provider, OverlaidProvider):
        return []
    return [Judge(context, context.provider).controller]
