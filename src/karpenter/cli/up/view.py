"""How `karpenter up` looks: a live view for terminals, lines and tables for everything else."""

import json
from collections import deque
from collections.abc import Sequence

from rich.console import Console, Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from karpenter.cli.up.picture import NodeRow, Picture
from karpenter.cli.up.script import StepResult

_SHOWN_NODES = 25
_SILENT_KEYS = {"level", "time", "logger", "message", "controller", "reconcileID"}


class Decisions:
    """The last things the operator did, in plain words, taken from its log."""

    def __init__(self, limit: int = 8) -> None:
        self.lines: deque[str] = deque(maxlen=limit)

    def take(self, line: str) -> None:
        """Note one line of the operator's log (JSON)."""
        record = json.loads(line)
        self.lines.append(f"{record['time'][11:19]} {in_words(record)}")


def in_words(record: dict[str, object]) -> str:
    """Return a log record as a sentence with its facts behind it."""
    facts = ", ".join(
        f"{key} {value if not isinstance(value, (list, dict)) else json.dumps(value)}"
        for key, value in record.items()
        if key not in _SILENT_KEYS
    )
    text = str(record.get("message", ""))
    prefix = "ERROR " if record.get("level") == "ERROR" else ""
    return f"{prefix}{text}: {facts}" if facts else f"{prefix}{text}"


def node_table(rows: Sequence[NodeRow], title: str | None = None) -> Table:
    """Return the table of machines."""
    table = Table(title=title, title_justify="left", expand=False)
    for heading in ("NODE", "TYPE", "ZONE", "CAPACITY"):
        table.add_column(heading, no_wrap=True)
    for heading in ("$/H", "CPU", "MEMORY", "PODS"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("STATE", no_wrap=True)
    for row in rows:
        price = "?" if row.price is None else f"{row.price:.4f}"
        table.add_row(
            *(row.name, row.instance_type, row.zone, row.capacity_type, price),
            *(f"{row.cpu_used:.0%}", f"{row.memory_used:.0%}", str(row.pods), row.state),
        )
    return table


def live_view(picture: Picture, decisions: Decisions, where: str) -> RenderableType:
    """Return the whole screen."""
    pods = ", ".join(f"{count} {phase}" for phase, count in picture.pods.items()) or "none"
    head = Text.assemble(
        ("pods ", "bold"),
        pods,
        ("   nodes ", "bold"),
        str(len(picture.nodes)),
        ("   cost ", "bold"),
        f"${picture.price:.4f}/h",
    )
    hidden = len(picture.nodes) - _SHOWN_NODES
    parts: list[RenderableType] = [head, node_table(picture.nodes[:_SHOWN_NODES])]
    if hidden > 0:
        parts.append(Text(f"… and {hidden} more nodes"))
    parts.append(
        Panel(Text("\n".join(decisions.lines) or "nothing yet"), title="last decisions", title_align="left")
    )
    parts.append(Text(where, style="dim"))
    return Group(*parts)


def print_results(console: Console, results: Sequence[StepResult]) -> None:
    """Print what every step of a script led to, then the machines of each."""
    table = Table(title="What happened", title_justify="left")
    table.add_column("STEP")
    for heading in ("PODS", "NODES", "ALL RUNNING", "SETTLED", "$/H"):
        table.add_column(heading, justify="right")
    for result in results:
        picture = result.picture
        running = "–" if result.all_running_seconds is None else f"{result.all_running_seconds:.1f} s"
        table.add_row(
            *(result.name, str(sum(picture.pods.values())), str(len(picture.nodes)), running),
            *(f"{result.settled_seconds:.1f} s", f"{picture.price:.4f}"),
        )
    for result in results:
        if result.picture.nodes:
            console.print(node_table(result.picture.nodes, title=f"Nodes at {result.name}"))
    console.print(table)
