"""Telling pods where they are expected."""

from karpenter.apis.core import Pod
from karpenter.controllers.context import Context
from karpenter.model.snapshot import NodeView
from karpenter.runtime import EventLimit

_A_SECOND = 5.0
_AT_ONCE = 10


class NominationTeller:
    """Events `Nominated`, no more than a few: they help a person who looks at one pod, not at thousands."""

    def __init__(self, context: Context) -> None:
        """Begin with nothing said."""
        self._recorder = context.recorder
        self._limit = EventLimit(context.clock, _A_SECOND, _AT_ONCE)

    def tell(self, pod: Pod, places: str) -> None:
        """Tell `pod` where it is expected: `nodeclaim/NAME`, `node/NAME`, or both."""
        self._recorder.publish(
            pod,
            "Normal",
            "Nominated",
            f"Pod should schedule on: {places}",
            dedupe=[pod.metadata.uid],
            limit=self._limit,
        )


def places_of(row: NodeView) -> str:
    """Return what a machine is called: its claim, its Node, or both."""
    places = [f"nodeclaim/{row.claim.name}"] if row.claim is not None else []
    places += [f"node/{row.node.name}"] if row.node is not None else []
    return ", ".join(places)
