"""Which machines should exist for these pods: a pure function from a Problem to a Plan."""

from karpenter.scheduling.fleet import least_cost
from karpenter.scheduling.search import Memory
from karpenter.scheduling.solver import solve

__all__ = ["Memory", "least_cost", "solve"]
