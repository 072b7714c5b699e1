"""What every cloud implements, and how clouds are found (entry points, node-class group and kind)."""

from karpenter.cloudprovider.errors import (
    CloudProviderError,
    CreateError,
    InsufficientCapacity,
    NodeClaimNotFound,
    NodeClassNotReady,
    UnevaluatedNodePool,
)
from karpenter.cloudprovider.hooks import HookAnswer, RegistrationHook
from karpenter.cloudprovider.protocol import (
    CloudProvider,
    NodeClass,
    NodeClassStatus,
    ProviderContext,
    RepairPolicy,
)

__all__ = [
    "CloudProvider",
    "CloudProviderError",
    "CreateError",
    "HookAnswer",
    "InsufficientCapacity",
    "NodeClaimNotFound",
    "NodeClass",
    "NodeClassNotReady",
    "NodeClassStatus",
    "ProviderContext",
    "RegistrationHook",
    "RepairPolicy",
    "UnevaluatedNodePool",
]
