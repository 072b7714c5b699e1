"""What is kept about NodePools: hash, counts, readiness, validity, and how their machines do."""

from karpenter.controllers.context import Context
from karpenter.controllers.nodepool import counter, hash, pricing, readiness, registrationhealth, validation
from karpenter.runtime import Controller, Singleton

__all__ = ["build"]


def build(context: Context) -> list[Controller | Singleton]:
    """Return all controllers of NodePools."""
    return [
        controller
        for module in (hash, pricing, counter, readiness, registrationhealth, validation)
        for controller in module.build(context)
    ]
