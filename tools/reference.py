"""Writes the pages of docs/reference that are made from the code: `python tools/reference.py [--check]`.

    PYTHONPATH=src:. .venv/bin/python tools/reference.py

settings.md from the table of options, metrics.md from the registry of an assembled operator. A test holds the
pages against the code; `--check` does the same and changes nothing.
"""

import argparse
import asyncio
from collections.abc import Iterable, Sequence
from pathlib import Path

from prometheus_client import Histogram
from prometheus_client.metrics import MetricWrapperBase

from karpenter.base.clock import ManualClock
from karpenter.base.duration import format_duration
from karpenter.base.metrics import DURATION_BUCKETS, Metrics
from karpenter.base.randomness import seeded
from karpenter.embedded.cluster import EmbeddedCluster
from karpenter.operator.assembly import Operator
from karpenter.operator.options import FEATURE_GATES, OPTIONS, Option, parse_options
from karpenter.runtime import InlineExecutor

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "reference"
_MADE = "<!-- Made by tools/reference.py; change the code, not this page. -->"
_ALL_GATES = ",".join(f"{gate}=true" for gate in FEATURE_GATES)


def pages() -> dict[str, str]:
    """Return the text of every page, by file name."""
    return {"settings.md": _settings(), "metrics.md": _metrics(asyncio.run(_assembled()))}


def _settings() -> str:
    rows = [
        (f"`--{o.flag}`", f"`{o.env}`", f"`{_default(o)}`" if _default(o) else "", o.help) for o in OPTIONS
    ]
    gates = [(f"`{gate}`", str(on).lower()) for gate, on in FEATURE_GATES.items()]
    return "\n".join(
        (
            "# Settings",
            "",
            _MADE,
            "",
            "Of `karpenter run`. A flag beats the environment variable, which beats the default; either is",
            "refused at the start, by name, when it is not what it has to be.",
            "",
            *_table(("flag", "environment", "default", "what for"), rows),
            "",
            "## Feature gates",
            "",
            *_table(("gate", "default"), gates),
            "",
        )
    )


def _default(option: Option) -> str:
    value = option.default
    if isinstance(value, float) and "-" in option.flag and option.parse.__name__ == "_seconds":
        return format_duration(value)
    if isinstance(value, dict):
        return "see below"
    if isinstance(value, bool):
        return str(value).lower()
    return "" if value in (None, (), "") else str(value)


async def _assembled() -> Metrics:
    """Return the metrics of an operator with every gate open."""
    clock = ManualClock()
    cluster = EmbeddedCluster(clock=clock, rng=seeded(1))
    options = parse_options([f"--feature-gates={_ALL_GATES}"], {})
    operator = Operator(cluster.transport(), options, clock=clock, rng=seeded(1), executor=InlineExecutor())
    return operator.metrics


def _metrics(metrics: Metrics) -> str:
    rows = [_metric(each) for each in sorted(metrics.registered(), key=lambda m: m._name)]
    bounds = ", ".join(f"{bound:g}" for bound in DURATION_BUCKETS)
    return "\n".join(
        (
            "# Metrics",
            "",
            _MADE,
            "",
            "At `/metrics` on `--metrics-port`, in Prometheus' text format.",
            "",
            *_table(("metric", "type", "labels", "what it says"), rows),
            "",
            f"Histograms of durations have these bounds, in seconds, unless others are named: {bounds}.",
            "",
        )
    )


def _metric(metric: MetricWrapperBase) -> tuple[str, str, str, str]:
    name = metric._name + ("_total" if metric._type == "counter" else "")
    says = metric._documentation
    if isinstance(metric, Histogram):
        bounds = tuple(bound for bound in metric._upper_bounds if bound != float("inf"))
        if bounds != DURATION_BUCKETS:
            says += f" Bounds: {', '.join(f'{bound:g}' for bound in bounds)}."
    return f"`{name}`", str(metric._type), ", ".join(f"`{label}`" for label in metric._labelnames), says


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    lines = [f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
    return lines + [f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in rows]


def main() -> int:
    """Write the pages, or tell which are out of date."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    arguments.add_argument("--check", action="store_true")
    check = arguments.parse_args().check
    stale = [name for name, text in pages().items() if not _is(FOLDER / name, text)]
    if not check:
        for name in stale:
            (FOLDER / name).write_text(pages()[name])
    print(f"{'out of date' if check else 'written'}: {', '.join(stale) or 'none'}")
    return 1 if check and stale else 0


def _is(path: Path, text: str) -> bool:
    return path.exists() and path.read_text() == text


if __name__ == "__main__":
    raise SystemExit(main())
