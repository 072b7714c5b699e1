"""A consolidation for people: a row for each command, the cost before and after, why the rest stays."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TextIO

from rich.console import Console
from rich.text import Text

from karpenter.cli.planning.consolidating import Consolidation, Move, Removed, Stays
from karpenter.cli.planning.inventory import Inventory
from karpenter.cli.planning.table import counted, plain_table, print_plan, printed

_MOST_NAMED = 3
_MOST_CAUSES = 8


def write_consolidation(found: Consolidation, inventory: Inventory, out: TextIO) -> None:
    """Print `found`; pods of the plan before it are told by the workloads of `inventory`."""
    printed(lambda console: _print(found, inventory, console), out)


def _print(found: Consolidation, inventory: Inventory, console: Console) -> None:
    if found.provision is not None:
        print_plan(found.provision, inventory, console)
        console.print()
    console.print(_summary(found))
    if found.commands:
        table = plain_table(
            ("#", True),
            ("METHOD", False),
            ("NODES THAT GO", False),
            ("PODS", True),
            ("REPLACED BY", False),
            ("SAVES $/H", True),
            ("LEAVES $/H", True),
            wrapped=("NODES THAT GO", "REPLACED BY"),
        )
        for number, move in enumerate(found.commands, start=1):
            table.add_row(*map(Text, _row(number, move)))
        console.print(table)
    if found.staying:
        console.print()
        console.print(Text("STAYING", style="bold"))
        for line in _causes(found.staying):
            console.print(Text(line))
    console.print()
    console.print(_end(found))


def _summary(found: Consolidation) -> str:
    before, after = found.cost_before_per_hour, found.cost_after_per_hour
    share = f" ({100 * (after / before - 1):+.1f} %)" if before else ""
    return (
        f"{counted(found.nodes_before, 'node')} at ${before:.4f}/h -> "
        f"{counted(found.nodes_after, 'node')} at ${after:.4f}/h{share}: "
        f"{counted(found.command_count, 'command')}, {counted(found.evicted_pods, 'pod')} moved"
    )


def _row(number: int, move: Move) -> tuple[str, ...]:
    bought = Counter((new.launch.instance_type, new.launch.price) for new in move.replacements)
    replaced = ", ".join(f"{count} {kind} ${usd:.4f}" for (kind, usd), count in sorted(bought.items()))
    return (
        str(number),
        move.method,
        _nodes(move.removed),
        str(sum(node.reschedulable_pods for node in move.removed)),
        replaced or "-",
        f"{move.savings_per_hour:.4f}",
        f"{move.cluster_cost_after:.4f}",
    )


def _nodes(removed: Sequence[Removed]) -> str:
    """Return the nodes by name when they are few, else counted by type."""
    if len(removed) <= _MOST_NAMED:
        return ", ".join(node.node for node in removed)
    kinds = Counter(node.instance_type for node in removed)
    return ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))


def _causes(staying: Iterable[Stays]) -> list[str]:
    """Return how many nodes each cause keeps, most first; the first node's message stands for all."""
    first: dict[tuple[str, str], Stays] = {}
    counts: Counter[tuple[str, str]] = Counter()
    for each in staying:
        key = (each.method or "", each.code)
        first.setdefault(key, each)
        counts[key] += 1
    lines = []
    for key, count in sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:_MOST_CAUSES]:
        method, code = key
        known_by = f"{method} {code}".strip()
        lines.append(f"{counted(count, 'node')}, {known_by}: e.g. {first[key].node}: {first[key].message}")
    return lines


def _end(found: Consolidation) -> str:
    how = "nothing more is found" if found.converged else "stopped before the end"
    if found.converged and not found.settled:
        how += ", though budgets or time kept it from looking at everything"
    seconds = found.timing.improve_seconds
    return how + (f"; looked for {seconds:.2f} s" if seconds is not None else "")
