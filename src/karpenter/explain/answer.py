"""What `karpenter why` answers, as data. Text and JSON are renderings of these."""

from typing import Any, Literal

import msgspec

Kind = Literal["pod", "node", "nodepool", "nodeclaim"]
KINDS: tuple[Kind, ...] = ("pod", "node", "nodepool", "nodeclaim")
_NAMES: dict[str, Kind] = {
    **dict.fromkeys(("pod", "pods", "po"), "pod"),
    **dict.fromkeys(("node", "nodes", "no"), "node"),
    **dict.fromkeys(("nodepool", "nodepools", "nodepools.karpenter.sh"), "nodepool"),
    **dict.fromkeys(("nodeclaim", "nodeclaims", "nodeclaims.karpenter.sh"), "nodeclaim"),
}


def kind_of(word: str) -> Kind | None:
    """Return the kind that a word of kubectl's means; None when it is none that can be asked about."""
    return _NAMES.get(word.lower())


class Operation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One operation of a JSON patch (RFC 6902)."""

    op: Literal["add", "replace", "remove"]
    path: str
    value: Any = None


class Change(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A change that would help, such that a program can make it."""

    text: str
    """For people: what to set to what."""
    api_version: str = ""
    """Empty for an option of the operator."""
    kind: str = ""
    namespace: str = ""
    name: str = ""
    patch: tuple[Operation, ...] = ()
    """Of the object, as `kubectl patch --type=json` takes it."""
    recreate: bool = False
    """The fields cannot be changed in place: the object has to be made anew with the patch applied."""
    option: str = ""
    """A flag to start the operator with, instead of a patch."""

    @property
    def object(self) -> str:
        """The object as kubectl names it, e.g. `deployment/web`."""
        return f"{self.kind.lower()}/{self.name}"


class Finding(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One thing that was looked at, and what it comes to."""

    about: str
    """What says so, or what was tried: `nodepool/default`, `consolidation`, `condition Launched`."""
    method: str = ""
    """Which method of disruption says so; empty: none, or all."""
    code: str
    """One word for programs."""
    message: str
    saving_per_hour: float | None = None
    """USD; what disrupting the node would have saved. None when that was not worked out."""
    saving_at_most: bool = False
    """It is the node's whole price, since nobody has worked out where its pods would go."""
    remedy: str = ""
    """The smallest change that would help, as an instruction; empty when none is known."""
    changes: tuple[Change, ...] = ()
    """The same for programs, to be made together. Empty when it cannot be put so."""
    works: bool | None = None
    """Whether the pod would have a place with `changes`, by the solver; None when that was not tried."""
    price_per_hour: float | None = None
    """USD; what the pod's place would cost then. 0: there is room for it already."""
    at: str = ""
    """When it was found out (RFC 3339); empty: while answering."""
    detail: dict[str, Any] = {}
    """Figures behind it."""


class Answer(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Why an object is as it is."""

    kind: Kind
    name: str
    namespace: str = ""
    at: str
    """When it was answered (RFC 3339)."""
    code: str
    """The binding reason in one word; that of the first finding where one binds."""
    summary: str
    """One sentence: the state, and what binds."""
    facts: dict[str, str] = {}
    """What it is, in order: price, pods, instance type …"""
    findings: tuple[Finding, ...] = ()
    """What binds comes first."""
    remedy: str = ""
    """The cheapest change that would unlock it; empty when nothing sensible would, or nothing is wrong."""
    changes: tuple[Change, ...] = ()
    """The same for programs, to be made together."""


class Problem(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Why there is no answer."""

    error: Literal["notFound", "badRequest", "notLeading", "notReady"]
    message: str
    leader: str = ""
    """Who holds the Lease, where that is known and somebody else."""


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of an answer; `schema.json` is this, written down."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **msgspec.json.schema(Answer)}
