"""Cron schedules: robfig/cron v3's rules, in UTC."""

from datetime import UTC, datetime, timedelta

import pytest
from cronsim import CronSim
from hypothesis import given
from hypothesis import strategies as st

from karpenter.base.clock import parse_time
from karpenter.base.cron import parse_cron


def at(text: str) -> float:
    return parse_time(text)


@pytest.mark.parametrize(
    ("schedule", "after", "expected"),
    [
        ("@hourly", "2026-01-01T00:00:00Z", "2026-01-01T01:00:00Z"),
        ("@daily", "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"),
        ("@midnight", "2026-01-01T23:59:59Z", "2026-01-02T00:00:00Z"),
        ("@weekly", "2026-01-01T00:00:00Z", "2026-01-04T00:00:00Z"),
        ("@monthly", "2026-01-31T12:00:00Z", "2026-02-01T00:00:00Z"),
        ("@yearly", "2026-01-01T00:00:00Z", "2027-01-01T00:00:00Z"),
        ("@annually", "2026-06-01T00:00:00Z", "2027-01-01T00:00:00Z"),
        ("0 9 * * mon-fri", "2026-01-02T09:00:00Z", "2026-01-05T09:00:00Z"),
        ("*/15 * * * *", "2026-01-01T00:14:59Z", "2026-01-01T00:15:00Z"),
        ("50/5 * * * *", "2026-01-01T00:00:00Z", "2026-01-01T00:50:00Z"),
        ("0 0 29 2 *", "2026-01-01T00:00:00Z", "2028-02-29T00:00:00Z"),
        ("0 0 ? JAN,jul *", "2026-02-01T00:00:00Z", "2026-07-01T00:00:00Z"),
        # Both days restricted: either. 2026-01-13 is a Tuesday, the first Friday is the 2nd.
        ("0 0 13 * 5", "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"),
        # A star with a step restricts too: odd days or Mondays; Monday the 12th counts.
        ("0 0 */2 * 1", "2026-01-11T00:00:00Z", "2026-01-12T00:00:00Z"),
        # A step of one is still a star: Mondays only.
        ("0 0 */1 * 1", "2026-01-06T00:00:00Z", "2026-01-12T00:00:00Z"),
        ("0 0 1,* * 1", "2026-01-06T00:00:00Z", "2026-01-12T00:00:00Z"),
    ],
)
def test_next_time(schedule: str, after: str, expected: str) -> None:
    """Each schedule fires next when robfig's rules say."""
    assert parse_cron(schedule).next_after(at(after)) == at(expected)


def test_a_date_that_never_comes() -> None:
    """February the 30th never fires, forward or back."""
    cron = parse_cron("0 0 30 2 *")
    assert cron.next_after(at("2026-01-01T00:00:00Z")) is None
    assert cron.previous(at("2026-01-01T00:00:00Z")) is None


def test_previous_includes_the_moment_itself() -> None:
    """A schedule that fires now has its last time now; a second earlier it was the day before."""
    cron = parse_cron("30 8 * * *")
    assert cron.previous(at("2026-03-05T08:30:00Z")) == at("2026-03-05T08:30:00Z")
    assert cron.previous(at("2026-03-05T08:29:59Z")) == at("2026-03-04T08:30:00Z")


def test_previous_looks_back_no_further_than_told() -> None:
    """Beyond the window there is no previous time."""
    assert parse_cron("0 0 1 * *").previous(at("2026-01-15T00:00:00Z"), 86400.0) is None


@pytest.mark.parametrize(
    ("schedule", "part"),
    [
        ("* * * *", "5 fields"),
        ("@reboot", "5 fields"),
        ("60 * * * *", "minute"),
        ("* 24 * * *", "hour"),
        ("* * 0 * *", "day of month"),
        ("* * * 13 *", "month"),
        ("* * * * 7", "day of week"),
        ("5-1 * * * *", "minute"),
        ("*/0 * * * *", "minute"),
        ("1- * * * *", "minute"),
        ("² * * * *", "minute"),
        ("* * * foo *", "month"),
    ],
)
def test_bad_schedules_name_the_field(schedule: str, part: str) -> None:
    """A refusal tells which field is wrong."""
    with pytest.raises(ValueError, match=part):
        parse_cron(schedule)


def _field(low: int, high: int) -> st.SearchStrategy[str]:
    number = st.integers(low, high)
    # cronsim reads a weekday `0-0` as the whole week; robfig, and we, as Sunday.
    pairs = st.tuples(number, number).filter(lambda pair: pair[0] < pair[1])
    span = pairs.map(lambda pair: f"{pair[0]}-{pair[1]}")
    part = st.one_of(
        number.map(str), span, st.tuples(span, st.integers(1, 9)).map(lambda p: f"{p[0]}/{p[1]}")
    )
    return st.one_of(st.just("*"), st.lists(part, min_size=1, max_size=3).map(",".join))


SCHEDULES = st.tuples(_field(0, 59), _field(0, 23), _field(1, 28), _field(1, 12), _field(0, 6)).map(" ".join)
MOMENTS = st.integers(1_700_000_000, 1_900_000_000).map(float)


@given(SCHEDULES, MOMENTS)
def test_agrees_with_cronsim(schedule: str, moment: float) -> None:
    """Where the dialects mean the same, the next time is the same as cronsim's."""
    expected = next(CronSim(schedule, datetime.fromtimestamp(moment, UTC)))
    assert parse_cron(schedule).next_after(moment) == expected.timestamp()


@given(SCHEDULES, MOMENTS)
def test_previous_is_the_inverse_of_next(schedule: str, moment: float) -> None:
    """The last time before the next time plus a second is that next time, and none lies between."""
    cron = parse_cron(schedule)
    coming = cron.next_after(moment)
    assert coming is not None
    assert coming > moment
    assert cron.previous(coming + 1) == coming
    week_ago = timedelta(days=7).total_seconds()
    before = cron.previous(coming - 1, week_ago)
    assert before is None or (before <= moment and cron.next_after(before) == coming)
