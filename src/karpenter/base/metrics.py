"""Prometheus metrics, owned by an assembly rather than by the process.

Two operators in one process (a simulation, a test) must not share counters, so there is no global registry:
whoever meters is handed a `Metrics`. Asking twice for the same name returns the same metric. Keep children
(`metric.labels(...)`) where they are used often: looking one up costs about 4 µs.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar, cast

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    Metric,
    Summary,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.metrics import MetricWrapperBase
from prometheus_client.registry import Collector

disable_created_metrics()  # type: ignore[no-untyped-call]

DURATION_BUCKETS: tuple[float, ...] = (
    *(0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8, 0.9, 1),
    *(1.25, 1.5, 1.75, 2, 2.5, 3, 3.5, 4, 4.5, 5, 6, 7, 8, 9, 10, 15, 20, 25, 30, 40, 50, 60, 120, 150),
    *(300, 450, 600),
)
"""Upstream's buckets for durations, in seconds."""

M = TypeVar("M", bound=MetricWrapperBase)


class _Fillers(Collector):
    """Comes before all metrics of a registry, and has them brought up to date when they are read."""

    def __init__(self) -> None:
        self.fills: list[Callable[[], None]] = []

    def describe(self) -> Iterable[Metric]:
        return []

    def collect(self) -> Iterable[Metric]:
        for fill in self.fills:
            fill()
        return []


class Metrics:
    """A set of metrics that is rendered together."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._fillers = _Fillers()
        self.registry.register(self._fillers)
        self._metrics: dict[str, MetricWrapperBase] = {}

    def counter(self, name: str, documentation: str, labels: Sequence[str] = ()) -> Counter:
        """Return the counter `name` (with or without its `_total`)."""
        return self._get(name, lambda: Counter(name, documentation, labels, registry=self.registry))

    def gauge(self, name: str, documentation: str, labels: Sequence[str] = ()) -> Gauge:
        """Return the gauge `name`."""
        return self._get(name, lambda: Gauge(name, documentation, labels, registry=self.registry))

    def histogram(
        self,
        name: str,
        documentation: str,
        labels: Sequence[str] = (),
        buckets: Sequence[float] = DURATION_BUCKETS,
    ) -> Histogram:
        """Return the histogram `name`."""
        return self._get(
            name, lambda: Histogram(name, documentation, labels, registry=self.registry, buckets=buckets)
        )

    def summary(self, name: str, documentation: str, labels: Sequence[str] = ()) -> Summary:
        """Return the summary `name` (count and sum; prometheus_client keeps no quantiles)."""
        return self._get(name, lambda: Summary(name, documentation, labels, registry=self.registry))

    @contextmanager
    def filled_by(self, fill: Callable[[], None]) -> Iterator[None]:
        """Call `fill` during the block before anybody reads: for what is too dear to be kept up to date."""
        self._fillers.fills.append(fill)
        try:
            yield
        finally:
            self._fillers.fills.remove(fill)

    def declared(self) -> dict[str, tuple[str, ...]]:
        """Return the label names of every metric made so far, by its name as scraped."""
        return {
            metric._name + ("_total" if isinstance(metric, Counter) else ""): tuple(metric._labelnames)
            for _, metric in sorted(self._metrics.items())
        }

    def registered(self) -> tuple[MetricWrapperBase, ...]:
        """Return every metric made so far, by name."""
        return tuple(self._metrics[name] for name in sorted(self._metrics))

    def render(self) -> bytes:
        """Return everything in Prometheus' text format; up to tenths of a second for 10,000 series."""
        return generate_latest(self.registry)

    def _get(self, name: str, make: Callable[[], M]) -> M:
        name = name.removesuffix("_total")  # a counter has one name, said in two ways
        metric = self._metrics.get(name)
        if metric is None:
            metric = self._metrics[name] = make()
        return cast(M, metric)
