"""The reference program: built once, run on scenario files."""

import json
import subprocess
from pathlib import Path
from typing import Any

import msgspec

from karpenter.testing.gobinary import GoProgram

FOLDER = Path(__file__).parent
PROGRAM = GoProgram("reference", FOLDER)


class Failed(Exception):
    """The program ended badly; the message is what it said."""


class Answer(msgspec.Struct, frozen=True):
    """What the reference makes of one scenario."""

    nodes: list[int]
    """New nodes, by run; only runs that leave out as few pods as any."""
    costs: list[float]
    """USD per hour of the new nodes, by run; of the same runs."""
    left_out: tuple[str, ...]
    """Pods without a place, in the last run of all."""
    left_out_counts: list[int]
    """How many pods have no place, by run, of all runs."""
    user_seconds: float
    """CPU time of the scheduling alone, median of the runs."""
    timed_out: bool
    raw: dict[str, Any]
    """All that the program said."""


def version() -> str:
    """Return which release of Karpenter the program is made of."""
    return PROGRAM.required(r"^\s*sigs\.k8s\.io/karpenter (v\S+)$")[1]


def generate(arguments: list[str], path: Path) -> None:
    """Let the program write one of its workloads to `path`."""
    _run(["gen", *arguments, "-o", str(path)])


def schedule(path: Path, *, repeat: int = 1, timeout_seconds: int = 0, names: bool = False) -> Answer:
    """Return the program's answer to a scenario, with one goroutine as in production.

    With `names` the pods that are left out are listed. A run that takes longer than `timeout_seconds` ends
    with what it has by then.
    """
    summary = [] if names else ["-summary"]
    text = _run(
        [
            *("schedule", "-workers", "1", "-max-its", "1", "-repeat", str(repeat)),
            *("-timeout", f"{timeout_seconds}s", *summary, str(path)),
        ]
    )
    result: dict[str, Any] = json.loads(text)
    counts: list[int] = result["unschedulablePerRun"]
    best = [i for i, count in enumerate(counts) if count == min(counts)]
    return Answer(
        nodes=[result["newNodeCountPerRun"][i] for i in best],
        costs=[result["newNodesCostPerRun"][i] for i in best],
        left_out=tuple(sorted(result.get("unschedulable") or ())),
        left_out_counts=counts,
        user_seconds=result["timing"]["medianUserCpuMs"] / 1000,
        timed_out=bool(result.get("timedOut")),
        raw=result,
    )


class Converged(msgspec.Struct, frozen=True):
    """What the reference's consolidation makes of a cluster."""

    nodes_before: int
    cost_before: float
    nodes_after: int
    cost_after: float
    """USD per hour."""
    converged: bool
    """False when it was stopped."""
    commands: int
    evicted: int
    """Pods that had to move, each time they did."""
    user_seconds: float
    """CPU time of all rounds."""
    idle_seconds: float
    """Wall time of the last round, which found nothing; 0 when it was stopped."""


def snapshot(path: Path, dump: Path, *, drop: float, seed: int) -> None:
    """Provision a scenario, remove a random share of its pods, and write what is left to `dump`."""
    share = [] if not drop else ["-drop", str(drop), "-seed", str(seed)]
    _run(["snapshot", "-workers", "1", "-max-its", "1", *share, "-dump", str(dump), str(path)])


def converge(path: Path, *, seconds: int) -> Converged:
    """Consolidate a cluster until nothing is found, or for so many seconds (and until the round is over)."""
    text = _run(["converge", "-workers", "1", "-max-its", "1", "-budget", f"{seconds}s", str(path)])
    found: dict[str, Any] = json.loads(text)
    commands = found.get("commands") or []
    return Converged(
        nodes_before=found["nodesBefore"],
        cost_before=found["costBeforePerHour"],
        nodes_after=found["nodesAfter"],
        cost_after=found["costAfterPerHour"],
        converged=found["converged"],
        commands=found["commandCount"],
        evicted=sum(node["reschedulablePods"] for command in commands for node in command["removed"]),
        user_seconds=found["totalUserCpuMs"] / 1000,
        idle_seconds=found["finalNoOpWallMs"] / 1000,
    )


def _run(arguments: list[str]) -> str:
    done = subprocess.run([str(PROGRAM.binary()), *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise Failed(f"{' '.join(arguments)}: {done.stderr.strip()[-500:]}")
    return done.stdout
