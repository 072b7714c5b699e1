"""The operator's log in plain words."""

from typing import Any

import pytest

from karpenter.cli.up.words import Narrator

_PRICES = {("c6a.xlarge", "us-east-1b", "spot"): 0.0627}


def _narrator() -> Narrator:
    return Narrator(lambda *offer: _PRICES.get(offer))


def test_a_purchase_says_what_where_for_whom_and_at_what_price() -> None:
    """The plan's pods are remembered until the machine is bought."""
    narrator = _narrator()
    assert narrator.tell({"message": "created nodeclaim", "NodeClaim": "default-1", "pods": 3}) == ""
    launched = {
        "message": "launched nodeclaim",
        "NodeClaim": "default-1",
        "instance_type": "c6a.xlarge",
        "zone": "us-east-1b",
        "capacity_type": "spot",
    }
    told = narrator.tell(launched)
    assert told == "bought c6a.xlarge spot in us-east-1b for 3 pods, $0.0627/h (default-1)"
    again = narrator.tell({**launched, "zone": "us-east-1z"})
    assert again == "bought c6a.xlarge spot in us-east-1z (default-1)", "no pods, no price are known"


@pytest.mark.parametrize(
    ("record", "sentence"),
    [
        ({"message": "found provisionable pod(s)", "count": 1}, "found 1 pod without a place"),
        (
            {
                "message": "computed new nodeclaim(s) to fit pod(s)",
                "nodeclaims": 2,
                "pods": 27,
                "cost": 0.4418,
                "lower_bound": 0.24599198888557874,
            },
            "plan: 2 machines for 27 pods at $0.4418/h (no plan can cost less than $0.2460/h)",
        ),
        (
            {
                "message": "computed new nodeclaim(s) to fit pod(s)",
                "nodeclaims": 1,
                "pods": 1,
                "cost": 0.1,
                "lower_bound": 0.1,
            },
            "plan: 1 machine for 1 pod at $0.1000/h",
        ),
        (
            {
                "message": "disrupting node(s)",
                "reason": "empty",
                "nodes": ["a", "b", "c", "d", "e"],
                "replacements": 0,
                "savings": 0.5,
            },
            "removing 5 empty machines, saves $0.5000/h (a, b, c and 2 more)",
        ),
        (
            {"message": "disrupting node(s)", "reason": "drifted", "nodes": ["a"], "replacements": 1},
            "replacing 1 drifted machine by 1 (a)",
        ),
        (
            {
                "message": "nodepool limit reached, not creating nodeclaim",
                "NodePool": "p",
                "resources": ["cpu"],
            },
            "NodePool p is at its limit of cpu: nothing bought",
        ),
        (
            {
                "message": "could not create nodeclaim",
                "level": "ERROR",
                "NodeClaim": "x",
                "error": "a\nb",
            },
            "ERROR could not buy x: a b",
        ),
        (
            {
                "message": "something new",
                "level": "INFO",
                "time": "t",
                "controller": "c",
                "Node": "n",
                "of": [1],
            },
            "something new: Node n, of [1]",
        ),
        ({"message": "caches are synced"}, ""),
        ({"message": "deleted nodeclaim", "NodeClaim": "default-1"}, "gave default-1 back"),
    ],
)
def test_what_the_operator_logs_reads_as_a_sentence(record: dict[str, Any], sentence: str) -> None:
    """Known messages are told as people would; unknown ones with their facts; some not at all."""
    assert _narrator().tell(record) == sentence


def test_a_long_line_is_cut() -> None:
    """No message of whatever length fills the screen."""
    told = _narrator().tell({"message": "reconciler error", "level": "ERROR", "error": "x" * 5000})
    assert len(told) < 220
    assert told.endswith("…")


def test_every_message_told_is_one_that_the_operator_logs() -> None:
    """Sentences are for messages that exist: a renamed message would silently fall back to its facts."""
    import inspect
    from pathlib import Path

    import karpenter

    root = Path(inspect.getfile(karpenter)).parent
    source = "".join(
        file.read_text("utf-8")
        for room in ("controllers", "runtime", "operator")
        for file in sorted((root / room).rglob("*.py"))
    )
    missing = [message for message in _narrator()._sentences if f'"{message}"' not in source]
    assert missing == []
