"""A plan for people: equal nodes in one row, what is left out and what would help, the bill."""

from collections import Counter
from collections.abc import Callable, Container, Iterable
from io import StringIO
from typing import TextIO

from rich.console import Console
from rich.table import Table
from rich.text import Text

from karpenter.cli.planning.expansion import origin_of
from karpenter.cli.planning.inventory import Inventory
from karpenter.cli.planning.report import NewNode, Reason, Report, Unscheduled

_MOST_WORKLOADS = 6
_MOST_PLACES = 3
WIDTH = 110


def write_table(report: Report, inventory: Inventory, out: TextIO) -> None:
    """Print `report`; pods are told by the workloads of `inventory`."""
    printed(lambda console: print_plan(report, inventory, console), out)


def printed(tell: Callable[[Console], None], out: TextIO) -> None:
    """Let `tell` print to `out`: as wide as a terminal is, otherwise `WIDTH`, without trailing blanks."""
    if out.isatty():
        tell(Console(file=out, highlight=False, markup=False))
        return
    text = StringIO()
    tell(Console(file=text, width=WIDTH, highlight=False, markup=False))
    out.writelines(line.rstrip() + "\n" for line in text.getvalue().splitlines())


def print_plan(report: Report, inventory: Inventory, console: Console) -> None:
    """Print a plan to `console`."""
    placed = sum(len(node.pods) for node in report.existing_nodes)
    bought = sum(len(node.pods) for node in report.new_nodes)
    left_out = len(report.unschedulable)
    console.print(
        f"{bought + placed + left_out} pods: {bought} on {counted(len(report.new_nodes), 'new node')}, "
        f"{placed} on {counted(len(report.existing_nodes), 'existing node')}, {left_out} left out"
    )
    if report.new_nodes:
        console.print(_new_nodes(report.new_nodes, inventory))
    if report.existing_nodes:
        console.print(_existing_nodes(report, inventory))
    if report.unschedulable:
        _left_out(report, inventory, console)
    console.print()
    console.print(bill(report))


def counted(number: int, noun: str) -> str:
    """Return `3 nodes`, `1 node`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def plain_table(*columns: tuple[str, bool], wrapped: Container[str] = ("PODS",)) -> Table:
    """Return a table without lines; columns are a name, and whether what is in them ends at the right."""
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for name, right in columns:
        table.add_column(
            name, justify="right" if right else "left", no_wrap=name not in wrapped, overflow="fold"
        )
    return table


def _new_nodes(nodes: Iterable[NewNode], inventory: Inventory) -> Table:
    """Return the rows of nodes; those that are equal but for the names of pods share one."""
    groups: Counter[tuple[str, str, str, str, float, str]] = Counter()
    for node in nodes:
        launch = node.launch
        place = (node.node_pool, launch.instance_type, launch.zone, launch.capacity_type, launch.price)
        groups[(*place, _workloads(node.pods, inventory))] += 1
    table = plain_table(
        ("NODES", True),
        ("TYPE", False),
        ("ZONE", False),
        ("CAPACITY", False),
        ("$/H EACH", True),
        ("POOL", False),
        ("PODS", False),
    )
    for (pool, kind, zone, capacity_type, price, pods), count in groups.items():
        table.add_row(*map(Text, (str(count), kind, zone, capacity_type, f"{price:.4f}", pool, pods)))
    return table


def _existing_nodes(report: Report, inventory: Inventory) -> Table:
    table = plain_table(("EXISTING NODE", False), ("PODS", False))
    for node in report.existing_nodes:
        table.add_row(Text(node.name), Text(_workloads(node.pods, inventory)))
    return table


def _workloads(pods: Iterable[str], inventory: Inventory) -> str:
    """Return pods counted by workload: `web ×12, api ×3`."""
    counts = Counter(_workload(key, inventory) for key in pods)
    listed = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    shown = [f"{name} ×{count}" if count > 1 else name for name, count in listed[:_MOST_WORKLOADS]]
    rest = listed[_MOST_WORKLOADS:]
    if rest:
        shown.append(f"{sum(count for _, count in rest)} of {len(rest)} others")
    return ", ".join(shown)


def _workload(key: str, inventory: Inventory) -> str:
    pod = inventory.pods.get(key)
    return origin_of(inventory, pod).partition("/")[2] or inventory.origin[key] if pod is not None else key


def _left_out(report: Report, inventory: Inventory, console: Console) -> None:
    """Print who has no place, equal cases together: why, and the smallest change that would help."""
    groups: dict[tuple[str, str], list[Unscheduled]] = {}
    for key, case in report.unschedulable.items():
        groups.setdefault((_workload(key, inventory), case.message), []).append(case)
    console.print()
    console.print(Text("LEFT OUT", style="bold"))
    for (workload, _), cases in groups.items():
        times = f" ×{len(cases)}" if len(cases) > 1 else ""
        console.print(Text(f"{workload}{times}"))
        reasons = cases[0].reasons
        for reason in reasons[:_MOST_PLACES]:
            console.print(Text(f"  {_why(reason)}"))
            if reason.remedy:
                console.print(Text(f"    would help: {reason.remedy}{_worth(reason)}"))
        if len(reasons) > _MOST_PLACES:
            console.print(Text(f"  ... and {len(reasons) - _MOST_PLACES} more places"))


def _worth(reason: Reason) -> str:
    """Return what a remedy comes to: ` (places 3, +$0.1920/h)`; empty when it was not tried."""
    if reason.remedy_places is None:
        return ""
    if reason.remedy_price_per_hour is None:
        return " (not by itself)"
    return f" (places {reason.remedy_places}, +${reason.remedy_price_per_hour:.4f}/h)"


def _why(reason: Reason) -> str:
    return f"{reason.place}: {reason.message}" if reason.place else reason.message


def bill(report: Report) -> str:
    """Return what the plan costs, how much better one could be at most, and what it took to find it."""
    lines = [f"new nodes ${report.new_nodes_cost_per_hour:.4f}/h"]
    bound = report.lower_bound_per_hour
    if bound and report.gap is not None:
        lines[0] += f" (no plan can go below ${bound:.4f}/h: gap {100 * report.gap:.1f} %)"
    if report.existing_nodes_cost_per_hour:
        lines.append(
            f"existing nodes ${report.existing_nodes_cost_per_hour:.4f}/h, "
            f"together ${report.total_cost_per_hour:.4f}/h"
        )
    lines += [
        f"{limit.name}: ${limit.used_per_hour + limit.planned_per_hour:.4f}/h of the price limit "
        f"of ${limit.limit_per_hour:.4f}/h"
        for limit in report.price_limits
    ]
    lines += [
        f"{limit.place}: {limit.amount} more of {limit.resource} would save about "
        f"${limit.saves_per_hour:.4f}/h"
        for limit in report.limit_prices
    ]
    timing = report.timing
    parts = [
        f"{name} {1000 * seconds:.0f} ms"
        for name, seconds in (
            ("compiled in", timing.compile_seconds),
            ("solved in", timing.solve_seconds),
            ("improved for", timing.improve_seconds),
        )
        if seconds
    ]
    return "\n".join([*lines, ", ".join(parts)] if parts else lines)
