"""Controllers: level-triggered reconciling of keys, with back-off, meters and bounded concurrency.

A reconcile gets a key, never an event: it looks at how things are and brings them nearer to how they should
be. It may be run again at any time. What it raises is logged, counted and tried again; only cancellation ends
a controller. `Requeue` is the quiet way to try again (somebody else wrote first).
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import NamedTuple, TypeVar

import structlog

from karpenter.apis.meta import KubeObject
from karpenter.base.clock import Clock
from karpenter.base.metrics import Metrics
from karpenter.base.randomness import Random
from karpenter.kube.errors import Conflict
from karpenter.kube.informer import Change, Informer
from karpenter.runtime.backoff import Backoff
from karpenter.runtime.queue import WorkQueue, WorkQueueMeters

log = structlog.get_logger()

K = TypeVar("K", bound=KubeObject)

_SINGLETON_KEY = "singleton"


class Result(NamedTuple):
    """What a reconcile wishes: nothing more until the next trigger, or to come again."""

    requeue_after: float | None = None
    """Seconds until it wants to run again; None: when triggered."""


class Requeue(Exception):
    """Try again with back-off; nothing is wrong."""


class _Meters:
    """controller-runtime's metrics, by its names."""

    def __init__(self, metrics: Metrics, name: str, concurrency: int) -> None:
        total = metrics.counter(
            "controller_runtime_reconcile_total", "Reconciles by result.", ["controller", "result"]
        )
        self.results = {
            result: total.labels(name, result) for result in ("success", "error", "requeue", "requeue_after")
        }
        self.errors = metrics.counter(
            "controller_runtime_reconcile_errors_total", "Failed reconciles.", ["controller"]
        ).labels(name)
        self.seconds = metrics.histogram(
            "controller_runtime_reconcile_time_seconds", "Time a reconcile took.", ["controller"]
        ).labels(name)
        self.active = metrics.gauge(
            "controller_runtime_active_workers", "Reconciles going on.", ["controller"]
        ).labels(name)
        metrics.gauge(
            "controller_runtime_max_concurrent_reconciles", "Reconciles at a time.", ["controller"]
        ).labels(name).set(concurrency)
        self.panics = metrics.counter(
            "controller_runtime_reconcile_panics_total", "Reconciles that ended in a bug.", ["controller"]
        ).labels(name)
        self.retries = metrics.counter("workqueue_retries_total", "Keys tried again.", ["name"]).labels(name)


class Controller:
    """Reconciles keys of one kind of thing."""

    def __init__(
        self,
        name: str,
        reconcile: Callable[[str], Awaitable[Result]],
        *,
        clock: Clock,
        rng: Random,
        metrics: Metrics,
        concurrency: int = 10,
        backoff: Backoff | None = None,
    ) -> None:
        self.name = name
        self._reconcile = reconcile
        self._clock = clock
        self._rng = rng
        self._concurrency = concurrency
        self._backoff = (backoff or Backoff(0.1, 60.0)).fresh()
        self._queue = WorkQueue(clock, WorkQueueMeters(metrics, name))
        self._meters = _Meters(metrics, name, concurrency)

    def enqueue(self, key: str, *, after: float = 0.0) -> None:
        """Ask for a reconcile of `key`, now or in `after` seconds."""
        self._queue.add(key, after)

    def watch(self, informer: Informer[K], keys: Callable[[Change[K]], Iterable[str]]) -> None:
        """Reconcile the keys that `keys` names for every change of `informer`."""

        def on_change(change: Change[K]) -> None:
            for key in keys(change):
                self._queue.add(key)

        informer.subscribe(on_change)

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for number in range(self._concurrency):
                tasks.create_task(self._work(), name=f"{self.name}/{number}")

    async def _work(self) -> None:
        while True:
            key = await self._queue.get()
            try:
                await self._once(key)
            finally:
                self._queue.done(key)

    async def _once(self, key: str) -> None:
        """Reconcile one key and see to what follows from the outcome."""
        meters, started = self._meters, self._clock.monotonic()
        meters.active.inc()
        try:
            result = await self._reconcile(key)
        except (Requeue, Conflict):
            meters.results["requeue"].inc()
            self._retry(key)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            # Something the reconcile waited for was cancelled, not this worker, which must live on.
            self._failed(key, RuntimeError("a part of the reconcile was cancelled"))
        except Exception as error:
            self._failed(key, error)
        else:
            self._backoff.forget(key)
            if result.requeue_after is None:
                meters.results["success"].inc()
            else:
                meters.results["requeue_after"].inc()
                self._queue.add(key, max(result.requeue_after, 0.001))
        finally:
            meters.active.dec()
            meters.seconds.observe(self._clock.monotonic() - started)

    def _failed(self, key: str, error: Exception) -> None:
        """Count and log a failed reconcile, and come again."""
        unexpected = _unexpected(error)
        self._meters.results["error"].inc()
        self._meters.errors.inc()
        if unexpected:
            self._meters.panics.inc()
        log.error(
            "Reconciler error",
            controller=self.name,
            key=key,
            error=f"{error}",
            exc_info=error if unexpected else None,
        )
        self._retry(key)

    def _retry(self, key: str) -> None:
        self._meters.retries.inc()
        self._queue.add(key, self._backoff.next(key, self._rng))


def _unexpected(error: Exception) -> bool:
    """Tell whether an error deserves a traceback: those of the API and the cloud speak for themselves."""
    return not type(error).__module__.startswith(("karpenter.kube", "karpenter.cloudprovider"))


class Singleton(Controller):
    """Reconciles one thing, the whole, at its own period (`Result.requeue_after`), or when triggered."""

    def __init__(
        self,
        name: str,
        reconcile: Callable[[], Awaitable[Result]],
        *,
        clock: Clock,
        rng: Random,
        metrics: Metrics,
        backoff: Backoff | None = None,
    ) -> None:
        super().__init__(
            name,
            lambda _: reconcile(),
            clock=clock,
            rng=rng,
            metrics=metrics,
            concurrency=1,
            backoff=backoff,
        )

    def trigger(self, *, after: float = 0.0) -> None:
        """Ask for a run, now or in `after` seconds."""
        self.enqueue(_SINGLETON_KEY, after=after)

    async def run(self) -> None:
        """Run once at the start, then as results and triggers say, until cancelled."""
        self.trigger()
        await super().run()
