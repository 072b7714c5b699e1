"""Anytime search for the cheapest set of nodes, on plain arrays.

The search knows asks (classes of identical pods), offers (what can be bought) and limits; what these mean in
Kubernetes is the caller's business. See `improve`.
"""

from karpenter.scheduling.search.improve import improve, objective
from karpenter.scheduling.search.memory import Memory
from karpenter.scheduling.search.problem import NodePattern, Packing, PackingProblem
from karpenter.scheduling.search.proof import Proof, prove, worths

__all__ = [
    "Memory",
    "NodePattern",
    "Packing",
    "PackingProblem",
    "Proof",
    "improve",
    "objective",
    "prove",
    "worths",
]
