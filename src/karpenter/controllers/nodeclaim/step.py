"""What the steps of a NodeClaim's life have in common."""

from typing import NamedTuple

from karpenter.apis.karpenter import NodeClaim
from karpenter.runtime import Result


class Step(NamedTuple):
    """The outcome of one step."""

    claim: NodeClaim
    """As it should be now."""
    result: Result = Result()


class StepError(Exception):
    """A step failed but has something to write: the claim as it should be, and the error."""

    def __init__(self, claim: NodeClaim, error: Exception) -> None:
        super().__init__(str(error))
        self.claim = claim
        self.error = error
