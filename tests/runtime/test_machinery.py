"""Work queue, controllers, events and leader election, under virtual time."""

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from karpenter.apis.core import Node, Pod
from karpenter.apis.meta import ObjectMeta
from karpenter.base.background import background
from karpenter.base.clock import LoopClock
from karpenter.base.metrics import Metrics
from karpenter.base.randomness import seeded
from karpenter.base.virtualtime import run_virtual
from karpenter.kube.client import Client
from karpenter.kube.errors import Conflict
from karpenter.kube.transport import Response, TransportError
from karpenter.runtime import (
    Backoff,
    Controller,
    LeaderElector,
    Recorder,
    Requeue,
    Result,
    Singleton,
    WorkQueue,
)
from karpenter.runtime.leader import LeadershipLost
from karpenter.testing.transport import Request, ScriptedTransport, answer, refusal

Reconcile = Callable[[str], Awaitable[Result]]


def test_queue_holds_a_key_once_and_comes_again_after_work() -> None:
    """Added twice it is one; added during work it comes once more, after `done`."""

    async def main() -> list[str]:
        queue, taken = WorkQueue(LoopClock()), []
        for key in ("a", "b", "a"):
            queue.add(key)
        taken.append(await queue.get())
        queue.add("a")
        queue.add("a")
        taken.append(await queue.get())
        assert len(queue) == 0
        queue.done("a")
        taken.append(await queue.get())
        assert len(queue) == 0
        return taken

    assert run_virtual(main()) == ["a", "b", "a"]


def test_the_earlier_of_two_delays_counts() -> None:
    """A later wish for a waiting key changes nothing, an earlier one brings it forward."""

    async def main() -> list[float]:
        clock, times = LoopClock(), []
        queue = WorkQueue(clock)
        queue.add("a", 10)
        queue.add("a", 20)
        queue.add("a", 5)
        for _ in range(1):
            queue.done(await queue.get())
            times.append(clock.monotonic())
        await clock.sleep(60)
        assert len(queue) == 0
        return times

    assert run_virtual(main()) == [5.0]


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 5)), max_size=30), st.integers(1, 4))
def test_no_key_is_at_work_twice_and_none_is_forgotten(wishes: list[tuple[str, int]], workers: int) -> None:
    """Whatever is added when: never two reconciles of a key at once, and one starts after each wish."""

    async def main() -> None:
        clock, busy, last = LoopClock(), set(), dict[str, float]()

        async def reconcile(key: str) -> Result:
            assert key not in busy
            busy.add(key)
            last[key] = clock.monotonic()
            await clock.sleep(1.5)
            busy.discard(key)
            return Result()

        metrics = Metrics()
        controller = Controller(
            "c", reconcile, clock=clock, rng=seeded(1), metrics=metrics, concurrency=workers
        )
        wished: dict[str, float] = {}
        async with background(controller.run(), "c"):
            for key, pause in wishes:
                await clock.sleep(pause)
                controller.enqueue(key)
                wished[key] = clock.monotonic()
            await clock.sleep(30)
        assert all(last[key] >= at for key, at in wished.items())
        assert (
            metrics.registry.get_sample_value(
                "controller_runtime_reconcile_errors_total", {"controller": "c"}
            )
            == 0.0
        )

    run_virtual(main())


def runs(outcomes: list[Any], seconds: float, metrics: Metrics | None = None) -> list[float]:
    """Return when a controller reconciled one key; its reconciles return or raise `outcomes` in turn."""
    times: list[float] = []

    async def main() -> None:
        clock = LoopClock()

        async def reconcile(key: str) -> Result:
            times.append(clock.monotonic())
            outcome = outcomes[len(times) - 1] if len(times) <= len(outcomes) else Result()
            if isinstance(outcome, BaseException):
                raise outcome
            assert isinstance(outcome, Result)
            return outcome

        controller = Controller("c", reconcile, clock=clock, rng=seeded(3), metrics=metrics or Metrics())
        controller.enqueue("k")
        async with background(controller.run(), "c"):
            await clock.sleep(seconds)

    run_virtual(main())
    return times


def test_requeue_after_is_kept() -> None:
    """The controller comes again when the result says, and then rests."""
    assert runs([Result(5.0), Result(7.0)], 100) == [0.0, 5.0, 12.0]


@pytest.mark.parametrize(
    ("failure", "result", "panics"),
    [
        (ValueError("a bug"), "error", 1.0),
        (TransportError("down"), "error", 0.0),
        (Conflict(409, "Conflict", "written"), "requeue", 0.0),
        (Requeue(), "requeue", 0.0),
        (asyncio.CancelledError(), "error", 1.0),
    ],
)
def test_failures_are_counted_and_retried_with_growing_pauses(
    failure: BaseException, result: str, panics: float
) -> None:
    """Whatever a reconcile raises, even a stray cancellation: counted, and tried again later and later."""
    metrics = Metrics()
    times = runs([failure] * 4, 100, metrics)
    pauses = [after - before for before, after in itertools.pairwise(times)]
    assert len(pauses) == 4
    assert all(0.05 * 2**n <= pause <= 0.1001 * 2**n for n, pause in enumerate(pauses))
    value = metrics.registry.get_sample_value
    assert value("controller_runtime_reconcile_total", {"controller": "c", "result": result}) == 4.0
    assert value("controller_runtime_reconcile_total", {"controller": "c", "result": "success"}) == 1.0
    assert value("controller_runtime_reconcile_panics_total", {"controller": "c"}) == panics * 4
    assert value("workqueue_retries_total", {"name": "c"}) == 4.0
    assert value("workqueue_depth", {"name": "c"}) == 0.0
    assert value("controller_runtime_active_workers", {"controller": "c"}) == 0.0


def test_success_resets_the_pause() -> None:
    """After a success the next failure waits as little as the first."""
    times = runs([RuntimeError()] * 5 + [Result(10.0), RuntimeError()], 100)
    assert times[7] - times[6] <= 0.1001


@given(st.integers(1, 200), st.integers(0, 1000))
def test_backoff_stays_between_its_bounds(failures: int, seed: int) -> None:
    """The n-th pause is half to whole of its ceiling, the ceiling never above the last."""
    backoff, rng = Backoff(0.1, 60.0), seeded(seed)
    for n in range(failures):
        ceiling = min(60.0, 0.1 * 2.0**n)
        assert ceiling / 2 <= backoff.next("k", rng) <= ceiling


def test_singletons_run_at_once_by_period_and_when_triggered() -> None:
    """First at the start, then after `requeue_after`, sooner when triggered."""
    times: list[float] = []

    async def main() -> None:
        clock = LoopClock()

        async def reconcile() -> Result:
            times.append(clock.monotonic())
            return Result(10.0)

        singleton = Singleton("s", reconcile, clock=clock, rng=seeded(1), metrics=Metrics())
        async with background(singleton.run(), "s"):
            await clock.sleep(14)
            singleton.trigger()
            await clock.sleep(11)

    run_virtual(main())
    assert times == [0.0, 10.0, 14.0, 24.0]


EVENTS = "/api/v1/namespaces/ns/events"


def test_events_are_deduplicated_and_placed() -> None:
    """The same again within its time is dropped; events go to the object's namespace, else to default."""
    server = ScriptedTransport()
    for path in (EVENTS, "/api/v1/namespaces/default/events"):
        server.on("POST", path, lambda request: answer(request.body, 201))
    pod = Pod(metadata=ObjectMeta(name="p" * 253, namespace="ns", uid="u1"))
    node = Node(metadata=ObjectMeta(name="n", uid="u2"))

    async def main() -> None:
        clock = LoopClock()
        recorder = Recorder(Client(server), clock=clock, rng=seeded(1))
        async with background(recorder.run(), "recorder"):
            recorder.publish(pod, "Normal", "Nominated", "one")
            recorder.publish(pod, "Normal", "Nominated", "another text", dedupe_seconds=60)
            recorder.publish(pod, "Warning", "Nominated", "x" * 2000, dedupe=["other"])
            recorder.publish(node, "Warning", "Broken", "three")
            await clock.sleep(119)
            recorder.publish(pod, "Normal", "Nominated", "still the same")
            await clock.sleep(2)
            recorder.publish(pod, "Normal", "Nominated", "anew")
            await clock.sleep(1)

    run_virtual(main())
    bodies = [request.body for request in server.of("POST", EVENTS)]
    assert [body["message"][:4] for body in bodies] == ["one", "xxxx", "anew"]
    first = bodies[0]
    assert (first["type"], first["count"], first["source"]) == ("Normal", 1, {"component": "karpenter"})
    assert first["involvedObject"] == {
        "apiVersion": "v1",
        "kind": "Pod",
        "name": pod.name,
        "namespace": "ns",
        "uid": "u1",
    }
    assert len(first["metadata"]["name"]) <= 253
    assert len(bodies[1]["message"]) <= 1024
    assert len(server.of("POST", "/api/v1/namespaces/default/events")) == 1


def test_events_outlive_a_lost_connection_but_not_a_refusal() -> None:
    """Out of reach or busy: tried again; refused: dropped; what already arrived is not an error."""
    server = ScriptedTransport()
    created: Callable[[Request], Response] = lambda request: answer(request.body, 201)  # noqa: E731
    server.on(
        "POST",
        EVENTS,
        TransportError("lost"),
        refusal(429, "TooManyRequests"),
        refusal(409, "AlreadyExists"),
        refusal(403, "Forbidden"),
        created,
    )

    async def main() -> None:
        clock = LoopClock()
        recorder = Recorder(Client(server), clock=clock, rng=seeded(1))
        async with background(recorder.run(), "recorder"):
            for uid in "abc":
                pod = Pod(metadata=ObjectMeta(name=uid, namespace="ns", uid=uid))
                recorder.publish(pod, "Normal", "R", "m")
            await clock.sleep(30)

    run_virtual(main())
    posted = [request.body["involvedObject"]["name"] for request in server.of("POST", EVENTS)]
    assert posted == ["a", "a", "a", "b", "c"]


LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
LEASE = f"{LEASES}/karpenter"


class LeaseServer(ScriptedTransport):
    """One Lease, with optimistic locking; `down` makes it unreachable."""

    def __init__(self) -> None:
        super().__init__()
        self.lease: dict[str, Any] | None = None
        self.down = False
        self.on("GET", LEASE, self._get)
        self.on("POST", LEASES, self._create)
        self.on("PATCH", LEASE, self._patch)

    def _check(self) -> None:
        if self.down:
            raise TransportError("down")

    def _get(self, request: Request) -> Response:
        self._check()
        return answer(self.lease) if self.lease else refusal(404, "NotFound")

    def _create(self, request: Request) -> Response:
        self._check()
        if self.lease:
            return refusal(409, "AlreadyExists")
        self.lease = {
            "metadata": {**request.body["metadata"], "resourceVersion": "1"},
            "spec": request.body["spec"],
        }
        return answer(self.lease, 201)

    def _patch(self, request: Request) -> Response:
        self._check()
        assert self.lease is not None
        version = self.lease["metadata"]["resourceVersion"]
        if request.body["metadata"]["resourceVersion"] != version:
            return refusal(409, "Conflict")
        spec = {**self.lease["spec"], **request.body["spec"]}
        self.lease = {
            "metadata": {"name": "karpenter", "resourceVersion": str(int(version) + 1)},
            "spec": spec,
        }
        return answer(self.lease)


class Replica:
    """One candidate, and when it led."""

    def __init__(self, server: LeaseServer, clock: LoopClock, name: str) -> None:
        self.clock = clock
        self.periods: list[list[float]] = []
        self.elector = LeaderElector(
            Client(server),
            clock=clock,
            rng=seeded(name),
            identity=name,
            name="karpenter",
            namespace="kube-system",
            metrics=Metrics(),
        )

    async def run(self) -> None:
        await self.elector.run(self.lead)

    async def lead(self) -> None:
        self.periods.append([self.clock.monotonic()])
        try:
            await asyncio.Event().wait()
        finally:
            self.periods[-1].append(self.clock.monotonic())


def test_a_released_lease_is_taken_at_once() -> None:
    """The second waits while the first leads, and takes over within a retry of its release."""

    async def main() -> float:
        clock, server = LoopClock(), LeaseServer()
        a, b = Replica(server, clock, "a"), Replica(server, clock, "b")
        async with asyncio.TaskGroup() as tasks:
            first = tasks.create_task(a.run())
            await clock.sleep(1)
            second = tasks.create_task(b.run())
            await clock.sleep(100)
            assert a.elector.leading
            assert not b.periods
            first.cancel()
            await clock.sleep(5)
            assert not a.elector.leading
            assert b.elector.leading
            second.cancel()
        assert server.lease is not None
        assert server.lease["spec"]["holderIdentity"] == ""
        assert server.lease["spec"]["leaseTransitions"] == 1
        return b.periods[0][0] - a.periods[0][1]

    assert 0 <= run_virtual(main()) <= 2.5


def test_a_leader_cut_off_stops_before_its_lease_runs_out() -> None:
    """Without renewal it stops within ten seconds of the last good one; the other starts after fifteen."""

    class Flaky(LeaseServer):
        cut: str = ""

        def _patch(self, request: Request) -> Response:
            if request.body["spec"].get("holderIdentity") == self.cut:
                raise TransportError("down")
            return super()._patch(request)

    async def main() -> tuple[float, float]:
        clock, server = LoopClock(), Flaky()
        a, b = Replica(server, clock, "a"), Replica(server, clock, "b")

        async def losing() -> None:
            with pytest.raises(LeadershipLost, match="not renewed in time"):
                await a.run()

        async with background(losing(), "a"):
            await clock.sleep(1)
            async with background(b.run(), "b"):
                await clock.sleep(20)
                server.cut = "a"
                server.on("PATCH", LEASE, server._patch)
                await clock.sleep(40)
        return a.periods[0][1], b.periods[0][0]

    stopped, started = run_virtual(main())
    assert 20 < stopped <= 31
    assert started >= stopped


def test_a_leader_whose_lease_was_taken_stops_at_once() -> None:
    """Seeing another's name in the Lease ends leading on the next look."""

    async def main() -> float:
        clock, server = LoopClock(), LeaseServer()
        a = Replica(server, clock, "a")

        async def losing() -> None:
            with pytest.raises(LeadershipLost, match="taken by another"):
                await a.run()

        async with background(losing(), "a"):
            await clock.sleep(5)
            assert server.lease is not None
            server.lease["spec"]["holderIdentity"] = "b"
            server.lease["spec"]["renewTime"] = "2026-01-01T00:00:05.000000Z"
            await clock.sleep(10)
        return a.periods[0][1]

    assert run_virtual(main()) <= 7.5
