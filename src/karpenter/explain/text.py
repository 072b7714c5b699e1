"""Answers put into words for a terminal."""

import shlex
from collections.abc import Iterable, Iterator

import msgspec

from karpenter.explain.answer import Answer, Change, Finding
from karpenter.explain.words import dollars, saving_text

_MOST = 12
"""So many findings are shown."""


def answer_text(answer: Answer) -> str:
    """Return an answer as lines: what it is, why, the way out, and what everybody else says."""
    return "\n".join(_lines(answer))


def _lines(answer: Answer) -> Iterator[str]:
    name = f"{answer.namespace}/{answer.name}" if answer.namespace else answer.name
    yield f"{answer.kind} {name}: {answer.summary}"
    width = max((len(key) for key in answer.facts), default=0)
    for key, value in answer.facts.items():
        yield f"  {key + ':':<{width + 1}} {value}"
    if answer.remedy or answer.changes:
        yield f"to change that: {answer.remedy or 'make this change'}"
        yield from _changes(answer.changes)
        if answer.kind == "pod" and answer.findings and answer.findings[0].works:
            yield f"  tried: it then has a place, for {_cost(answer.findings[0])}"
    if not answer.findings:
        return
    yield "why, in full:"
    for number, finding in enumerate(answer.findings[:_MOST]):
        yield from _finding(finding, brief=number == 0)
    if len(answer.findings) > _MOST:
        yield f"  and {len(answer.findings) - _MOST} more (-o json has them all)"


def _finding(finding: Finding, *, brief: bool) -> Iterator[str]:
    saving = f" ({saving_text(finding)})" if finding.saving_per_hour is not None else ""
    yield f"  {finding.about} [{finding.code}]: {finding.message}{saving}"
    counts = finding.detail.get("removed")
    types = finding.detail.get("instanceTypes")
    if isinstance(counts, dict) and isinstance(types, int):
        fallen = ", ".join(f"{name} {count}" for name, count in counts.items() if count)
        if fallen:
            yield f"      of {types} instance types fail by: {fallen}"
    if finding.works is False and not brief:
        yield "      not enough by itself: " + (finding.remedy or "nothing is known that would be")
    elif finding.remedy and not brief:
        yield f"      to change that: {finding.remedy}"


def _cost(finding: Finding) -> str:
    price = dollars(finding.price_per_hour)
    return f"{price} more" if finding.price_per_hour else "nothing more: there is room for it"


def _changes(changes: Iterable[Change]) -> Iterator[str]:
    for change in changes:
        yield f"  {change.text}"
        if not change.option:
            yield from (f"    {line}" for line in _command(change))


def _command(change: Change) -> list[str]:
    patch = msgspec.json.encode(change.patch).decode()
    where = f" -n {change.namespace}" if change.namespace else ""
    if change.recreate:
        return [f"made anew, since it cannot be changed in place; JSON patch: {patch}"]
    line = f"kubectl patch {change.object}{where} --type=json -p {shlex.quote(patch)}"
    return [line]
