"""Logs: JSON lines with the keys upstream's readers expect."""

import json
from collections.abc import Iterator

import pytest
import structlog

from karpenter.base.clock import ManualClock
from karpenter.operator.logs import configure_logs


@pytest.fixture(autouse=True)
def _restore_structlog() -> Iterator[None]:
    """Leave structlog as it was found."""
    yield
    structlog.reset_defaults()


def test_a_line_is_json_with_level_time_logger_message_and_facts() -> None:
    """Level is upper-case, time is the clock's, facts follow."""
    lines: list[str] = []
    configure_logs("info", ManualClock(1_700_000_000.5), [lines.append])
    structlog.get_logger().info("created nodeclaim", NodeClaim="default-x", price=0.25)
    assert json.loads(lines[0]) == {
        "level": "INFO",
        "time": "2023-11-14T22:13:20.500Z",
        "logger": "controller",
        "message": "created nodeclaim",
        "NodeClaim": "default-x",
        "price": 0.25,
    }


def test_levels_below_the_chosen_one_are_left_out() -> None:
    """At info, debug lines do not appear; at error, only errors do."""
    lines: list[str] = []
    configure_logs("error", ManualClock(), [lines.append])
    structlog.get_logger().info("quiet")
    structlog.get_logger().error("loud")
    assert [json.loads(line)["message"] for line in lines] == ["loud"]


def test_an_exception_is_logged_with_its_traceback_as_an_error() -> None:
    """A crash shows where it happened."""
    lines: list[str] = []
    configure_logs("info", ManualClock(), [lines.append])
    try:
        raise RuntimeError("boom")
    except RuntimeError:
        structlog.get_logger().exception("reconcile failed")
    record = json.loads(lines[0])
    assert record["level"] == "ERROR"
    assert "RuntimeError: boom" in record["exception"]
