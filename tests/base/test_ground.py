"""Clock, virtual time, chance, times, durations, quantities and metrics."""

import asyncio
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from karpenter.base import quantity
from karpenter.base.clock import (
    LoopClock,
    ManualClock,
    SystemClock,
    format_micro_time,
    format_time,
    parse_time,
)
from karpenter.base.duration import format_duration, parse_duration
from karpenter.base.metrics import Metrics
from karpenter.base.randomness import name_suffix, new_uid, seeded
from karpenter.base.virtualtime import DeadlockError, run_virtual


def test_virtual_sleep_takes_no_time_and_all_of_it() -> None:
    """A week of sleep moves the loop's clock by a week and the machine's hardly at all."""

    async def main() -> float:
        clock = LoopClock()
        start = clock.now()
        await clock.sleep(7 * 86400)
        return clock.now() - start

    system = SystemClock()
    before = system.monotonic()
    assert run_virtual(main()) == 7 * 86400
    assert system.monotonic() - before < 5


def test_virtual_timers_fire_in_order() -> None:
    """Whoever sleeps shorter wakes first, ties in the order of starting."""

    async def main() -> list[str]:
        clock, order = LoopClock(), []

        async def sleeper(name: str, seconds: float) -> None:
            await clock.sleep(seconds)
            order.append(name)

        async with asyncio.TaskGroup() as tasks:
            for name, seconds in (("c", 3), ("a", 1), ("b1", 2), ("b2", 2), ("now", -1)):
                tasks.create_task(sleeper(name, seconds))
        return order

    assert run_virtual(main()) == ["now", "a", "b1", "b2", "c"]


def test_waiting_for_nothing_is_refused() -> None:
    """A program in which nothing can ever happen ends in an error instead of hanging."""

    async def main() -> None:
        await asyncio.Event().wait()

    with pytest.raises(DeadlockError):
        run_virtual(main())


def test_executors_run_inline_under_virtual_time() -> None:
    """Work for a thread is done at once; its failure comes out where it is awaited."""

    async def main() -> int:
        with pytest.raises(ZeroDivisionError):
            await asyncio.to_thread(lambda: 1 // 0)
        return await asyncio.to_thread(lambda: 42)

    assert run_virtual(main()) == 42


def test_manual_clock_moves_when_told() -> None:
    """It stands still between `advance` calls and never goes back."""
    clock = ManualClock(100.0)
    assert (clock.now(), clock.monotonic()) == (100.0, 100.0)
    clock.advance(5)
    assert clock.now() == 105.0


def test_same_seed_same_future() -> None:
    """Uids and suffixes follow from the seed and look as Kubernetes makes them."""
    assert [new_uid(seeded(7)), name_suffix(seeded(7))] == [new_uid(seeded(7)), name_suffix(seeded(7))]
    assert new_uid(seeded(7)) != new_uid(seeded(8))
    assert new_uid(seeded(1))[14] == "4"
    assert set(name_suffix(seeded(1), 200)) <= set("bcdfghjklmnpqrstvwxz2456789")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1970-01-01T00:00:01Z", 1.0),
        ("2026-01-01T01:00:00+01:00", 1_767_225_600.0),
        ("2026-01-01T00:00:00.250000Z", 1_767_225_600.25),
        ("2026-01-01T00:00:00.250000999Z", 1_767_225_600.25),
    ],
)
def test_times_are_read(text: str, seconds: float) -> None:
    """Any offset and any number of decimals (Go writes up to nine) are read."""
    assert parse_time(text) == seconds


@pytest.mark.parametrize("text", ["2026-01-01T00:00:00", "yesterday", ""])
def test_bad_times_are_refused(text: str) -> None:
    """Without an offset it is not RFC 3339."""
    with pytest.raises(ValueError):
        parse_time(text)


@given(st.integers(0, 4_000_000_000))
def test_times_survive_the_round_trip(seconds: int) -> None:
    """Whole seconds come back as they went, in both forms."""
    assert parse_time(format_time(seconds)) == parse_time(format_micro_time(seconds)) == seconds


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0", 0.0),
        ("0s", 0.0),
        ("15s", 15.0),
        ("1h30m", 5400.0),
        ("1.5h", 5400.0),
        (".5s", 0.5),
        ("-1.5s", -1.5),
        ("+2m", 120.0),
        ("300ms", 0.3),
        ("1h0m0s", 3600.0),
        ("2us", 2e-6),
        ("2µs", 2e-6),
        ("720h", 2_592_000.0),
    ],
)
def test_durations_are_read(text: str, seconds: float) -> None:
    """Go's forms are all understood."""
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "5", "s", "1d", "1h 2m", "Never", "--1s", "1h2"])
def test_bad_durations_are_refused(text: str) -> None:
    """Anything else is refused, naming the text."""
    with pytest.raises(ValueError, match="duration"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0s"), (3600, "1h0m0s"), (90, "1m30s"), (1.5, "1.5s"), (0.3, "300ms"), (2e-6, "2µs"), (-5, "-5s")],
)
def test_durations_are_written_as_go_does(seconds: float, text: str) -> None:
    """The canonical form is Go's."""
    assert format_duration(seconds) == text


@given(st.integers(-(10**9), 10**9))
def test_durations_survive_the_round_trip(milliseconds: int) -> None:
    """Milliseconds come back as they went."""
    assert parse_duration(format_duration(milliseconds / 1000)) == milliseconds / 1000


@pytest.mark.parametrize(
    ("resource", "text", "units"),
    [
        ("cpu", "100m", 100),
        ("cpu", "1", 1000),
        ("cpu", "0.1", 100),
        ("cpu", "1u", 1),
        ("cpu", "-1500m", -1500),
        ("memory", "1Ki", 1024),
        ("memory", "1.5Gi", 1610612736),
        ("memory", "2e3", 2000),
        ("memory", "1E", 10**18),
        ("memory", "100m", 1),
        ("pods", "110", 110),
        ("nvidia.com/gpu", "+2", 2),
        ("memory", ".5k", 500),
        ("memory", "5.", 5),
    ],
)
def test_quantities_in_scheduler_units(resource: str, text: str, units: int) -> None:
    """CPU counts in thousandths, the rest whole, both rounded up."""
    assert quantity.to_units(resource, text) == units


@pytest.mark.parametrize("text", ["", "1 Gi", "1gi", "Mi", "1.2.3", "--1", "1e", "0x10", "1Gi\n"])
def test_bad_quantities_are_refused(text: str) -> None:
    """What the API server refuses is refused here, naming the text."""
    with pytest.raises(ValueError, match="quantity"):
        quantity.parse_quantity(text)


@given(st.integers(0, 2**60), st.sampled_from(["cpu", "memory", "pods", "hugepages-2Mi"]))
def test_units_survive_the_round_trip(units: int, resource: str) -> None:
    """What is written is read back as the same amount."""
    assert quantity.to_units(resource, quantity.format_units(resource, units)) == units


@given(st.integers(0, 10**12), st.sampled_from(["n", "u", "m", "", "k", "M", "Ki", "Mi"]))
def test_rounding_up_never_loses(number: int, suffix: str) -> None:
    """Units cover the exact value by less than one unit."""
    exact = quantity.parse_quantity(f"{number}{suffix}")
    assert 0 <= quantity.to_units("memory", f"{number}{suffix}") - exact < 1
    assert isinstance(exact, Fraction)


AMOUNTS = st.dictionaries(st.sampled_from(["cpu", "memory", "pods"]), st.integers(0, 10**6))


@given(AMOUNTS, AMOUNTS)
def test_resource_arithmetic(left: dict[str, int], right: dict[str, int]) -> None:
    """Sums, differences and maxima hang together, and what is a part fits into the whole."""
    whole = quantity.add(left, right)
    assert whole == quantity.total([left, right]) == quantity.add(right, left)
    assert {k: v for k, v in quantity.subtract(whole, right).items() if v} == {
        k: v for k, v in left.items() if v
    }
    assert quantity.fits(left, whole)
    largest = quantity.maximum(left, right)
    assert quantity.fits(left, largest)
    assert quantity.fits(right, largest)
    assert all(largest[name] in (left.get(name), right.get(name)) for name in largest)


def test_nothing_fits_where_something_is_overdrawn() -> None:
    """A negative amount of anything refuses everything, even what asks for nothing of it."""
    assert not quantity.fits({"cpu": 1}, {"cpu": 10, "memory": -1})
    assert not quantity.fits({"gpu": 1}, {"cpu": 10})


def test_a_metric_asked_for_twice_is_one() -> None:
    """Two components may count into the same counter; two assemblies never do."""
    metrics, other = Metrics(), Metrics()
    metrics.counter("things_total", "Things.", ["kind"]).labels("a").inc()
    metrics.counter("things_total", "Things.", ["kind"]).labels("a").inc()
    other.counter("things_total", "Things.", ["kind"]).labels("a").inc()
    assert b'things_total{kind="a"} 2.0' in metrics.render()
    assert b'things_total{kind="a"} 1.0' in other.render()
    assert b"_created" not in metrics.render()


def test_spinning_without_time_passing_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """A task that yields for ever at one moment ends the run instead of hanging it."""
    monkeypatch.setattr("karpenter.base.virtualtime._MOST_TURNS_AT_ONCE", 1000)

    async def spin() -> None:
        while True:
            await LoopClock().sleep(0)

    with pytest.raises(DeadlockError, match="without time passing"):
        run_virtual(spin())
