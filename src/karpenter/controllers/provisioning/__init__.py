"""Buying machines for pods that have none: triggers, batching, the pass itself, and the claims it creates."""

from karpenter.controllers.context import Context
from karpenter.controllers.provisioning.batcher import Batcher
from karpenter.controllers.provisioning.claims import created_counter
from karpenter.controllers.provisioning.podmeters import PodMeters
from karpenter.controllers.provisioning.provisioner import Provisioner
from karpenter.controllers.provisioning.triggers import Triggers
from karpenter.runtime import Controller, Singleton

__all__ = ["build"]


def build(context: Context) -> list[Controller | Singleton]:
    """Return the provisioner and what wakes it."""
    created_counter(context.metrics)  # so that it is there before the first claim
    batcher = Batcher(
        idle_seconds=context.settings.batch_idle_seconds, max_seconds=context.settings.batch_max_seconds
    )
    provisioner = Provisioner(context, batcher)
    return [
        provisioner.controller(),
        *Triggers(context, batcher).controllers(),
        *PodMeters(context).controllers(),
    ]
