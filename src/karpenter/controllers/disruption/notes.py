"""What a replacement remembers of the command it was bought for, so that a restart does not buy it twice."""

from collections.abc import Iterable

import msgspec

from karpenter.apis import labels as known
from karpenter.apis.karpenter import NodeClaim
from karpenter.disruption.budgets import Reason
from karpenter.disruption.verdicts import Method

REPLACES = f"{known.OWN_DOMAIN}/replaces"
"""Annotation of a NodeClaim that was created to take the place of others: a `Note`, as JSON."""


class Note(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The command behind a replacement."""

    command: str
    """Its id."""
    reason: Reason
    method: Method
    node_claims: tuple[str, ...]
    """The claims that go once all replacements are ready, by name."""
    replacements: int
    """How many there are to be."""

    def render(self) -> str:
        """Return the annotation's text."""
        return msgspec.json.encode(self).decode()


def note_of(claim: NodeClaim) -> Note | None:
    """Return what `claim` was bought for; None when it replaces nothing, or what it says makes no sense."""
    text = claim.metadata.annotations.get(REPLACES)
    if text is None:
        return None
    try:
        return msgspec.json.decode(text, type=Note)
    except msgspec.MsgspecError:
        return None


def noted(claims: Iterable[NodeClaim]) -> dict[str, tuple[Note, list[NodeClaim]]]:
    """Return the commands that `claims` were bought for, with their claims, by command id."""
    found: dict[str, tuple[Note, list[NodeClaim]]] = {}
    for claim in sorted(claims, key=lambda c: c.name):
        note = note_of(claim)
        if note is not None:
            found.setdefault(note.command, (note, []))[1].append(claim)
    return {command: found[command] for command in sorted(found)}
