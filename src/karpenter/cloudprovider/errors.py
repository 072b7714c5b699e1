"""What a cloud may answer instead of success.

CloudProviderError
├── NodeClaimNotFound      the instance is not there (any more); for delete: it is gone, good
├── InsufficientCapacity   none of the allowed offerings can be had now; plan anew
├── NodeClassNotReady      the node class cannot be used yet; plan anew later
├── UnevaluatedNodePool    NodeOverlays have not been worked out for the pool yet; leave it out and come again
└── CreateError            anything else; carries the condition's reason and message; retried
"""


class CloudProviderError(Exception):
    """A cloud call failed."""


class NodeClaimNotFound(CloudProviderError):
    """There is no such instance."""

    def __init__(self, message: str) -> None:
        super().__init__(f"nodeclaim not found, {message}")


class InsufficientCapacity(CloudProviderError):
    """The cloud has none of what was allowed."""

    def __init__(self, message: str) -> None:
        super().__init__(f"insufficient capacity, {message}")


class NodeClassNotReady(CloudProviderError):
    """The node class is missing or not ready."""

    def __init__(self, message: str) -> None:
        super().__init__(f"NodeClassRef not ready, {message}")


class UnevaluatedNodePool(CloudProviderError):
    """What NodeOverlays make of the pool's instance types is not known yet."""

    def __init__(self, pool: str) -> None:
        super().__init__(f'nodepool "{pool}" is awaiting evaluation')
        self.pool = pool


class CreateError(CloudProviderError):
    """A launch failed; `reason` and `message` go into the Launched condition."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(f"creating nodeclaim, {message}")
        self.reason = reason
        self.message = message
