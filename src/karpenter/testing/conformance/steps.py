"""Requests with what must come back, and how to play them over a transport.

A case is a list of steps in a namespace of its own. `{ns}` in a path, a query or a body stands for that
namespace's name, `{word}` for what an earlier step kept under `word`. Expectations name a place in the answer
as a JSON pointer without its first slash.
"""

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from karpenter.base.clock import Clock
from karpenter.kube.patch import APPLY, JSON_PATCH, MERGE, STRATEGIC
from karpenter.kube.transport import JSON, Transport

Json = dict[str, Any]
ABSENT = "<absent>"
"""What a place holds that is not there."""
PRESENT = "<present>"
"""Expect anything, as long as it is there."""
_WORD = re.compile(r"\{(\w+)\}")
_POLL_SECONDS = 0.1
_TYPES = {"MERGE": MERGE, "STRATEGIC": STRATEGIC, "JSONPATCH": JSON_PATCH, "APPLY": APPLY}


class Step(msgspec.Struct, frozen=True):
    """One request and its answer.

    Args:
        verb: an HTTP method; `MERGE`, `STRATEGIC`, `JSONPATCH` or `APPLY` for a PATCH of that type; `WATCH`.
        code: the status.
        has: places in the answer and what they hold (`PRESENT`, `ABSENT`).
        text: what the answer's message contains.
        keep: words for values in the answer, for later steps.
        within: ask again for as many seconds until all is as expected (controllers take their time).
        events: for a watch, `TYPE name` of its events in order.
    """

    verb: str
    path: str
    body: Any = None
    query: Mapping[str, str] = {}
    code: int = 200
    has: Mapping[str, Any] = {}
    text: str = ""
    keep: Mapping[str, str] = {}
    within: float = 0.0
    events: tuple[str, ...] = ()


class Case(msgspec.Struct, frozen=True):
    """A behaviour and the requests that show it."""

    name: str
    steps: tuple[Step, ...]


def case(name: str, *steps: Step) -> Case:
    """Return a case; its name becomes part of a namespace's name."""
    return Case(name, steps)


def at(document: Any, place: str) -> Any:
    """Return what is at `place`, or `ABSENT`."""
    for part in place.split("/") if place else ():
        key = part.replace("~1", "/").replace("~0", "~")
        if isinstance(document, list) and key == "#":
            document = len(document)
        elif isinstance(document, list) and key.isdecimal() and int(key) < len(document):
            document = document[int(key)]
        elif isinstance(document, dict) and key in document:
            document = document[key]
        else:
            return ABSENT
    return document


def namespace_of(case: Case) -> str:
    """Return the name of the namespace that a case makes for itself."""
    return f"c-{case.name}"


async def play(transport: Transport, clock: Clock, case: Case) -> list[str]:
    """Carry a case out and return every difference to what it expects."""
    words = {"ns": namespace_of(case)}
    opening = (
        Step("POST", "/api/v1/namespaces", body={"metadata": {"name": "{ns}"}}, code=201),
        Step("GET", "/api/v1/namespaces/{ns}/serviceaccounts/default", within=20.0),
    )
    differences = []
    for number, step in enumerate((*opening, *case.steps)):
        started = clock.monotonic()
        while found := await _ask(transport, step, words):
            if clock.monotonic() - started >= step.within:
                break
            await clock.sleep(_POLL_SECONDS)
        differences += [f"step {number - len(opening)} {step.verb} {step.path}: {text}" for text in found]
        if found and step.keep:
            break
    return differences


async def _ask(transport: Transport, step: Step, words: dict[str, str]) -> list[str]:
    """Carry out one step; what it keeps goes into `words`."""
    path, query = _fill(step.path, words), _fill(dict(step.query), words)
    if step.verb == "WATCH":
        found = await _events(transport, path, query, len(step.events))
        expected = _fill(list(step.events), words)
        return [] if found == expected else [f"events {found}, expected {expected}"]
    method = "PATCH" if step.verb in _TYPES else step.verb
    body = None if step.body is None else msgspec.json.encode(_fill(step.body, words))
    answer = await transport.request(
        method, path, query=query, body=body, content_type=_TYPES.get(step.verb, JSON)
    )
    try:
        document = msgspec.json.decode(answer.body) if answer.body else {}
    except msgspec.DecodeError:
        document = {"message": answer.body.decode(errors="replace")}
    differences = _differences(step, words, answer.status, document)
    for word, place in step.keep.items():
        words[word] = str(at(document, place))
    return differences


def _differences(step: Step, words: dict[str, str], code: int, document: Any) -> list[str]:
    """Compare an answer with what the step expects."""
    message = document.get("message", "") if isinstance(document, dict) else ""
    found = [] if code == step.code else [f"code {code} ({message}), expected {step.code}"]
    if _fill(step.text, words) not in str(message):
        found.append(f"message {message!r}, expected to contain {step.text!r}")
    for place, expected in step.has.items():
        value, expected = at(document, _fill(place, words)), _fill(expected, words)
        same = value != ABSENT if expected == PRESENT else value == expected
        if not same:
            found.append(f"{place} is {value!r}, expected {expected!r}")
    return found


async def _events(transport: Transport, path: str, query: dict[str, str], wanted: int) -> list[str]:
    """Return `TYPE name` of up to `wanted` events of a watch that ends after a second."""
    found: list[str] = []
    stream = transport.watch(path, query={"timeoutSeconds": "1", **query})
    try:
        async for raw in stream:
            event = msgspec.json.decode(raw)
            obj = event["object"]
            name = obj.get("metadata", {}).get("name") or obj.get("reason", "")
            found.append(f"{event['type']} {name}".strip())
            if len(found) == wanted:
                break
    finally:
        await stream.aclose()
    return found


def _fill(value: Any, words: Mapping[str, str]) -> Any:
    """Put words in the place of their names, at any depth."""
    if isinstance(value, str):
        return _WORD.sub(lambda match: words.get(match[1], match[0]), value)
    if isinstance(value, list | tuple):
        return [_fill(item, words) for item in value]
    if isinstance(value, dict):
        return {_fill(key, words): _fill(item, words) for key, item in value.items()}
    return value
