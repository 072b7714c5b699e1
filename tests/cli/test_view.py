"""The live view: what it shows, and that it fits."""

import io

import msgspec
import pytest
from rich.console import Console

from karpenter.cli.up.picture import NodeRow, Picture
from karpenter.cli.up.view import live_view, progress_line

_ROW = NodeRow(
    name="default-b2wbq",
    instance_type="c7i-flex.12xlarge",
    zone="us-east-1b",
    capacity_type="on-demand",
    price=0.0627,
    cpu_used=0.77,
    memory_used=0.7,
    pods=3,
    state="ready",
)


def _row(name: str, state: str = "ready") -> NodeRow:
    return msgspec.structs.replace(_ROW, name=name, state=state)


def _picture(*rows: NodeRow, running: int = 27, pending: int = 3) -> Picture:
    pods = {"Pending": pending, "Running": running} if running + pending else {}
    return Picture(pods=pods, running=running, nodes=rows, claims=len(rows), price=0.5045)


def _screen(picture: Picture, width: int, height: int) -> list[str]:
    console = Console(file=io.StringIO(), width=width, height=height, force_terminal=False)
    decisions = [f"06:25:{n:02} bought something for somebody at {'some ' * 20}place" for n in range(20)]
    console.print(live_view(picture, decisions, ("export KUBECONFIG=x",), width=width, height=height))
    assert isinstance(console.file, io.StringIO)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


@pytest.mark.parametrize(
    ("picture", "line"),
    [
        (_picture(running=0, pending=0), "no pods, no machines, $0.5045/h"),
        (
            _picture(_row("a"), _row("b", "launching"), _row("c", "registering"), _row("d", "terminating")),
            "27 of 30 pods running, 4 machines (2 booting, 1 leaving), $0.5045/h",
        ),
        (_picture(_row("a"), running=1, pending=0), "1 of 1 pod running, 1 machine, $0.5045/h"),
    ],
)
def test_progress_is_one_line(picture: Picture, line: str) -> None:
    """Pods that run of those wanted, machines and how many are on their way, and the price."""
    assert progress_line(picture) == line


@pytest.mark.parametrize(("width", "height"), [(80, 24), (100, 30), (200, 60)])
def test_the_screen_fits_the_terminal(width: int, height: int) -> None:
    """However many machines and however long the decisions, nothing wraps and nothing scrolls."""
    rows = tuple(_row(f"default-{n:05}") for n in range(300))
    lines = _screen(_picture(*rows), width, height)
    assert len(lines) < height
    assert max(map(len, lines)) <= width
    assert any("more, all ready" in line for line in lines)
    assert "27 of 30 pods running, 3 pending · 300 machines · $0.5045/h" in lines[0]


def test_machines_on_their_way_are_shown_before_those_that_are_ready() -> None:
    """When not all fit, the ones that move are the ones to look at."""
    rows = (*(_row(f"default-{n:05}") for n in range(100)), _row("late", "launching"))
    assert any(
        line.startswith("late") and line.endswith("buying") for line in _screen(_picture(*rows), 100, 24)
    )


def test_every_column_is_legible_on_80_columns() -> None:
    """Type, zone, capacity, price, use and state of an ordinary machine are whole."""
    [line] = [line for line in _screen(_picture(_ROW), 80, 24) if "us-east-1b" in line]
    for cell in ("us-east-1b", "on-demand", "0.0627", "77%", "70%", "ready"):
        assert cell in line
