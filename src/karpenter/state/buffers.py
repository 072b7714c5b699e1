"""The room that capacity buffers want, as virtual pods, and what became of it.

Controllers of buffers put the pods here; the provisioner plans for them after all real pods and says where
they would fit. Nothing of this is in the API server: it is worked out anew after a restart.
"""

from collections.abc import Callable, Mapping

import msgspec

from karpenter.apis.core import Pod
from karpenter.model.pods import pod_key


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """Where one buffer's virtual pods found room in the last pass."""

    existing: int = 0
    """On machines that are ready for pods."""
    new: int = 0
    """On machines that were bought in this pass, or are still on their way."""
    failed: int = 0
    error: str = ""
    """Why the first of the failed ones found none."""


class Buffers:
    """Virtual pods by buffer (`namespace/name`), and what the provisioner says of them."""

    def __init__(self) -> None:
        self._pods: dict[str, tuple[Pod, ...]] = {}
        self._sorted: tuple[Pod, ...] = ()
        self._outcomes: dict[str, Outcome] = {}
        self._owners: dict[str, str] = {}
        self._wanted: list[Callable[[], None]] = []
        self._told: list[Callable[[str], None]] = []

    def __bool__(self) -> bool:
        return bool(self._pods)

    def put(self, buffer: str, pods: tuple[Pod, ...]) -> bool:
        """Take `pods` as all that `buffer` wants; tell whether that is news (then a pass is asked for)."""
        if self._pods.get(buffer, ()) == pods:
            return False
        self._pods.pop(buffer, None)
        self._outcomes.pop(buffer, None)
        if pods:
            self._pods[buffer] = pods
        self._owners = {pod_key(pod): name for name, own in self._pods.items() for pod in own}
        self._sorted = tuple(sorted((pod for own in self._pods.values() for pod in own), key=pod_key))
        self.ask()
        return True

    def pods(self) -> tuple[Pod, ...]:
        """Return all virtual pods, by key."""
        return self._sorted

    def owner(self, pod: str) -> str:
        """Return the buffer of a virtual pod (by key); empty for pods that are none."""
        return self._owners.get(pod, "")

    def outcome(self, buffer: str) -> Outcome | None:
        """Return what the last pass found for a buffer; None when none has seen its pods yet."""
        return self._outcomes.get(buffer)

    def tell(self, outcomes: Mapping[str, Outcome]) -> None:
        """Take what a pass found; buffers for which that is news are told of."""
        for buffer in sorted(outcomes):
            if buffer in self._pods and self._outcomes.get(buffer) != outcomes[buffer]:
                self._outcomes[buffer] = outcomes[buffer]
                for told in self._told:
                    told(buffer)

    def ask(self) -> None:
        """Ask for a pass."""
        for wanted in self._wanted:
            wanted()

    def on_wanted(self, handler: Callable[[], None]) -> None:
        """Call `handler` whenever a pass is asked for."""
        self._wanted.append(handler)

    def on_outcome(self, handler: Callable[[str], None]) -> None:
        """Call `handler` with each buffer whose outcome changes."""
        self._told.append(handler)
