"""metav1: what every object carries."""

from typing import Any, Literal

import msgspec


class Object(msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True):
    """The base of every API struct: immutable, untracked by the collector (API objects are trees)."""


def required_text(default: str = "") -> str:
    """Return the default of a field that the API insists on: it is written down even when it is the default.

    `Object` leaves out what equals its default; it recognises that by value, which a factory hides.
    """
    return msgspec.field(default_factory=lambda: default)


def required_list() -> list[Any]:
    """As `required_text`, for a list that may be empty but not absent."""
    return msgspec.field(default_factory=_empty)


def _empty() -> list[Any]:
    """`list` itself would not do: msgspec knows that factory and leaves its empty lists out."""
    return []


class OwnerReference(Object, frozen=True):
    """metav1.OwnerReference."""

    api_version: str = required_text()
    kind: str = required_text()
    name: str = required_text()
    uid: str = required_text()
    controller: bool | None = None
    block_owner_deletion: bool | None = None


class ObjectMeta(Object, frozen=True):
    """metav1.ObjectMeta, without managed fields."""

    name: str = ""
    generate_name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    deletion_grace_period_seconds: int | None = None
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    finalizers: list[str] = []
    owner_references: list[OwnerReference] = []


class Condition(Object, frozen=True):
    """metav1.Condition; nodes' and pods' conditions decode into it too."""

    type: str
    status: str = required_text()
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None
    last_heartbeat_time: str | None = None
    observed_generation: int = 0


class SelectorRequirement(Object, frozen=True):
    """One expression of a label selector (metav1.LabelSelectorRequirement).

    A storage class's allowed topologies have no operator and mean `In`.
    """

    key: str
    operator: str = required_text("In")
    values: list[str] | None = None


class LabelSelector(Object, frozen=True):
    """metav1.LabelSelector: all of `match_labels` and all of `match_expressions`."""

    match_labels: dict[str, str] = {}
    match_expressions: list[SelectorRequirement] = []


class Resource(Object, frozen=True):
    """Where a kind lives in the API: group, version, plural, and whether it has namespaces."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = False

    @property
    def api_version(self) -> str:
        """`v1` for the core group, else `group/version`."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """Return the URL path of the collection, of one object, or of its subresource."""
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        scope = f"/namespaces/{namespace}" if self.namespaced and namespace else ""
        tail = f"/{name}" if name else ""
        return f"{root}{scope}/{self.plural}{tail}" + (f"/{subresource}" if subresource else "")


class KubeObject(Object, frozen=True):
    """An object of its own in the API (not a part of another); each kind names its `Resource`."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)

    @property
    def name(self) -> str:
        return self.metadata.name

    @property
    def namespace(self) -> str:
        return self.metadata.namespace

    @property
    def key(self) -> str:
        """`namespace/name`, or the bare name of a cluster-scoped object."""
        meta = self.metadata
        return f"{meta.namespace}/{meta.name}" if meta.namespace else meta.name

    @property
    def deleting(self) -> bool:
        return self.metadata.deletion_timestamp is not None


ConditionStatus = Literal["True", "False", "Unknown"]
