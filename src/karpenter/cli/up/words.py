"""The operator's log as sentences: what it decided and why, for people who watch."""

import json
from collections.abc import Callable, Mapping
from typing import Any

Record = Mapping[str, Any]
Price = Callable[[str, str, str], float | None]
"""USD per hour of an instance type in a zone as a capacity type, when it is known."""

_NOT_FACTS = {"level", "time", "logger", "message", "controller", "reconcileID"}
_NODES_NAMED = 3
_LENGTH = 200


class Narrator:
    """Turns log records into sentences; remembers what a machine was planned for until it is bought."""

    def __init__(self, price: Price) -> None:
        self._price = price
        self._pods: dict[str, int] = {}
        """Pods planned on each NodeClaim that is created and not yet launched."""
        self._sentences: dict[str, Callable[[Record], str]] = {
            "caches are synced": lambda _: "",
            "successfully acquired lease": lambda _: "",
            "starting controllers": lambda _: "ready to act",
            "found provisionable pod(s)": lambda r: f"found {_count(r, 'count', 'pod')} without a place",
            "no dynamic nodepools found": lambda _: "there is no NodePool that machines could come from",
            "computed new nodeclaim(s) to fit pod(s)": _planned,
            "created nodeclaim": self._created,
            "launched nodeclaim": self._launched,
            "registered nodeclaim": lambda r: f"{r.get('Node')} joined the cluster",
            "initialized nodeclaim": lambda r: f"{r.get('Node')} is ready for pods",
            "failed launching nodeclaim: insufficient capacity": self._failed,
            "failed launching nodeclaim: node class not ready": self._failed,
            "could not create nodeclaim": self._failed,
            "nodepool limit reached, not creating nodeclaim": _limited,
            "marking drifted": lambda r: f"{r.get('NodeClaim')} has drifted: {r.get('reason')}",
            "deleting expired nodeclaim": lambda r: (
                f"{r.get('NodeClaim')} is older than {r.get('expire_after')}"
            ),
            "terminating nodeclaim, timeout passed": lambda r: (
                f"gave up on {r.get('NodeClaim')}: {r.get('reason')}"
            ),
            "disrupting node(s)": _disrupting,
            "deleted node": lambda r: f"{r.get('Node')} is drained and gone",
            "deleted nodeclaim": lambda r: f"gave {r.get('NodeClaim')} back",
        }

    def tell(self, record: Record) -> str:
        """Return `record` as a sentence; empty when it means nothing to people."""
        sentence = self._sentences.get(str(record.get("message", "")), in_words)(record)
        return f"ERROR {sentence}" if record.get("level") == "ERROR" and sentence else sentence

    def _created(self, record: Record) -> str:
        self._pods[str(record.get("NodeClaim"))] = int(record.get("pods", 0))
        return ""  # buying it is worth the line

    def _launched(self, record: Record) -> str:
        name = str(record.get("NodeClaim"))
        pods = self._pods.pop(name, 0)
        kind, zone, capacity = (
            str(record.get(key, "")) for key in ("instance_type", "zone", "capacity_type")
        )
        price = self._price(kind, zone, capacity)
        purpose = f" for {_plural(pods, 'pod')}" if pods else ""
        cost = "" if price is None else f", ${price:.4f}/h"
        return f"bought {kind or 'a machine'} {capacity} in {zone or '?'}{purpose}{cost} ({name})"

    def _failed(self, record: Record) -> str:
        name = str(record.get("NodeClaim"))
        self._pods.pop(name, None)
        return _short(f"could not buy {name}: {record.get('error')}")


def in_words(record: Record) -> str:
    """Return any log record as its message with the facts behind it."""
    facts = ", ".join(
        f"{key} {json.dumps(value) if isinstance(value, (list, dict)) else value}"
        for key, value in record.items()
        if key not in _NOT_FACTS
    )
    text = str(record.get("message", ""))
    return _short(f"{text}: {facts}" if facts else text)


def _planned(record: Record) -> str:
    sentence = f"plan: {_count(record, 'nodeclaims', 'machine')} for {_count(record, 'pods', 'pod')}"
    cost, least = record.get("cost"), record.get("lower_bound")
    if isinstance(cost, (int, float)) and cost:
        sentence += f" at ${cost:.4f}/h"
        if isinstance(least, (int, float)) and 0 < least < cost:
            sentence += f" (no plan can cost less than ${least:.4f}/h)"
    return sentence


def _limited(record: Record) -> str:
    resources = ", ".join(record.get("resources", ()))
    return f"NodePool {record.get('NodePool')} is at its limit of {resources or 'resources'}: nothing bought"


def _disrupting(record: Record) -> str:
    nodes = [str(node) for node in record.get("nodes", ())]
    if not nodes:
        return in_words(record)
    what = _plural(len(nodes), f"{record.get('reason', '')} machine".strip())
    replacements = int(record.get("replacements", 0))
    verb = f"replacing {what} by {replacements}" if replacements else f"removing {what}"
    named = ", ".join(nodes[:_NODES_NAMED])
    more = f" and {len(nodes) - _NODES_NAMED} more" if len(nodes) > _NODES_NAMED else ""
    savings = record.get("savings", 0.0)
    saved = f", saves ${savings:.4f}/h" if isinstance(savings, (int, float)) and savings > 0 else ""
    return f"{verb}{saved} ({named}{more})"


def _count(record: Record, key: str, noun: str) -> str:
    return _plural(int(record.get(key, 0)), noun)


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _LENGTH else f"{line[: _LENGTH - 1]}…"
