"""How `karpenter up` looks: a live view for terminals, lines and tables for everything else."""

from collections.abc import Sequence

from rich.box import HEAVY_HEAD
from rich.console import Console, Group, RenderableType
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from karpenter.cli.up.picture import NodeRow, Picture
from karpenter.cli.up.script import StepResult

_LISTED_NODES = 25
"""Machines listed for a step of a script."""
_BAR = 20
_WIDE = 100
"""From this many columns on, the live table has room to breathe."""
_AROUND = 8
"""Lines of the live view that are neither machines nor decisions."""
_STATES = {
    "launching": ("buying", "yellow"),
    "registering": ("booting", "yellow"),
    "initializing": ("booting", "yellow"),
    "ready": ("ready", "green"),
    "terminating": ("leaving", "magenta"),
}


def progress_line(picture: Picture) -> str:
    """Return how far things are, e.g. `27 of 30 pods running, 3 machines (2 booting), $0.5045/h`."""
    return f"{_pods(picture)}, {_machines(picture)}, ${picture.price:.4f}/h"


def _pods(picture: Picture) -> str:
    return f"{picture.running} of {_plural(picture.wanted, 'pod')} running" if picture.wanted else "no pods"


def _machines(picture: Picture) -> str:
    count = _plural(len(picture.nodes), "machine") if picture.nodes else "no machines"
    moves = [f"{n} {word}" for n, word in ((picture.booting, "booting"), (picture.leaving, "leaving")) if n]
    return f"{count} ({', '.join(moves)})" if moves else count


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def live_view(
    picture: Picture, decisions: Sequence[str], where: Sequence[str], *, width: int, height: int
) -> RenderableType:
    """Return the whole screen, fitted to a terminal of `width` × `height`."""
    told = list(decisions)[-(8 if height >= 30 else 4) :] or ["nothing yet"]
    room = max(3, height - _AROUND - len(told) - len(where))
    moving_first = sorted(picture.nodes, key=lambda row: (row.state == "ready", row.name))
    shown = sorted(moving_first[:room], key=lambda row: row.name)
    parts: list[RenderableType] = [_head(picture), Text(), _live_table(shown, width)]
    if len(picture.nodes) > len(shown):
        parts.append(Text(f"… and {len(picture.nodes) - len(shown)} more, all ready", style="dim"))
    parts += [Text(), Rule("last decisions", align="left", style="dim")]
    parts += [_line(line, "red" if " ERROR " in line else "") for line in told]
    parts += [Rule(style="dim"), *(_line(line, "dim") for line in where)]
    return Group(*parts)


def _line(text: str, style: str) -> Text:
    return Text(text, style=style, no_wrap=True, overflow="ellipsis")


def _head(picture: Picture) -> Text:
    done = _BAR * picture.running // picture.wanted if picture.wanted else 0
    head = Text(no_wrap=True, overflow="ellipsis")
    head.append("█" * done, "green").append("░" * (_BAR - done), "dim")
    head.append(f" {_pods(picture)}", "bold")
    pending = picture.pods.get("Pending", 0)
    if pending:
        head.append(f", {pending} pending", "yellow")
    return head.append(f" · {_machines(picture)} · ").append(f"${picture.price:.4f}/h", "bold")


def _live_table(rows: Sequence[NodeRow], width: int) -> Table:
    gap = 2 if width >= _WIDE else 1
    table = Table(box=None, pad_edge=False, padding=(0, gap, 0, 0), header_style="bold dim")
    for heading in ("MACHINE", "TYPE", "ZONE", "CAPACITY"):
        table.add_column(heading, no_wrap=True, overflow="ellipsis")
    for heading in ("$/H", "CPU", "MEM", "PODS"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("STATE", no_wrap=True)
    for row in rows:
        word, style = _STATES[row.state]
        table.add_row(
            *(row.name, row.instance_type, row.zone, row.capacity_type, _price(row)),
            *(f"{row.cpu_used:.0%}", f"{row.memory_used:.0%}", str(row.pods), Text(word, style)),
        )
    return table


def _price(row: NodeRow) -> str:
    return "?" if row.price is None else f"{row.price:.4f}"


def node_table(rows: Sequence[NodeRow], title: str | None = None) -> Table:
    """Return the table of machines at the end of a step."""
    table = Table(title=title, title_justify="left", box=HEAVY_HEAD)
    for heading in ("NODE", "TYPE", "ZONE", "CAPACITY"):
        table.add_column(heading, no_wrap=True)
    for heading in ("$/H", "CPU", "MEMORY", "PODS"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("STATE", no_wrap=True)
    for row in rows:
        table.add_row(
            *(row.name, row.instance_type, row.zone, row.capacity_type, _price(row)),
            *(f"{row.cpu_used:.0%}", f"{row.memory_used:.0%}", str(row.pods), row.state),
        )
    return table


def print_results(console: Console, results: Sequence[StepResult]) -> None:
    """Print what every step of a script led to, and the machines of each."""
    table = Table(title="What happened", title_justify="left")
    table.add_column("STEP")
    for heading in ("PODS", "NODES", "ALL RUNNING", "SETTLED", "$/H"):
        table.add_column(heading, justify="right")
    for result in results:
        picture = result.picture
        running = "–" if result.all_running_seconds is None else f"{result.all_running_seconds:.1f} s"
        table.add_row(
            *(result.name, str(picture.wanted), str(len(picture.nodes)), running),
            *(f"{result.settled_seconds:.1f} s", f"{picture.price:.4f}"),
        )
        if picture.nodes:
            console.print(node_table(picture.nodes[:_LISTED_NODES], title=f"Nodes at {result.name}"))
        if len(picture.nodes) > _LISTED_NODES:
            console.print(f"… and {len(picture.nodes) - _LISTED_NODES} more")
    console.print(table)
