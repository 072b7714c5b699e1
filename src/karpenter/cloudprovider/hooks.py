"""What a cloud has to do before a new node may take pods."""

from collections.abc import Mapping
from typing import Protocol

import msgspec

from karpenter.apis.core import Node
from karpenter.apis.karpenter import NodeClaim


class HookAnswer(msgspec.Struct, frozen=True):
    """What a hook says of one node."""

    pending: bool = False
    """Whether the node must wait."""
    again_after_seconds: float | None = None
    """When to ask a hook that is pending again; None: soon, less and less often."""
    labels: Mapping[str, str] = {}
    """Labels that the NodeClaim, and with it the Node, gets."""
    annotations: Mapping[str, str] = {}
    """Annotations that they get."""


class RegistrationHook(Protocol):
    """Asked for each node that has joined, until it is not pending; the node takes no pods before that.

    Hooks are asked at the same time, and again after restarts: what they do must bear repeating.
    """

    name: str
    """As it is shown in the claim's condition."""

    async def on_registration(self, claim: NodeClaim, node: Node) -> HookAnswer:
        """Say whether `node` may be registered. What it raises keeps the node waiting, and is tried again."""
        ...
