"""Which machines should exist for these pods: a pure function from a Problem to a Plan."""

from karpenter.scheduling.fleet import least_cost
from karpenter.scheduling.search import Memory
from karpenter.scheduling.solver import confirmed, rehearse, solve
from karpenter.scheduling.standing import Leaving, Move, Standing

__all__ = ["Leaving", "Memory", "Move", "Standing", "confirmed", "least_cost", "rehearse", "solve"]
