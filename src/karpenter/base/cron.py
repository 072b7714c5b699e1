"""Cron schedules as disruption budgets write them: five fields or a macro, in UTC.

The rules are robfig/cron v3's: each field is a set of numbers as bits; when both day of month and day of
week are restricted, either may match; when one of them is a star, both must (`*/2` counts as restricted).
Times are epoch seconds.
"""

import calendar
import re
from datetime import UTC, datetime, timedelta

import msgspec

_MACROS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_MONTHS = {name.lower(): number for number, name in enumerate(calendar.month_abbr) if name}
_DAYS = {name: number for number, name in enumerate(("sun", "mon", "tue", "wed", "thu", "fri", "sat"))}
_FIELDS: tuple[tuple[str, int, int, dict[str, int]], ...] = (
    ("minute", 0, 59, {}),
    ("hour", 0, 23, {}),
    ("day of month", 1, 31, {}),
    ("month", 1, 12, _MONTHS),
    ("day of week", 0, 6, _DAYS),
)
_YEARS_AHEAD = 5  # as robfig: a schedule that does not fire within five years never fires


class Cron(msgspec.Struct, frozen=True):
    """A parsed schedule: a bit set per field."""

    minute: int
    hour: int
    day: int
    month: int
    weekday: int
    any_day: bool
    """Day of month or day of week is a star, so that both must match."""

    def next_after(self, moment: float) -> float | None:
        """Return the first time strictly after `moment` at which it fires; None when it never does."""
        start = datetime.fromtimestamp(moment, UTC).replace(second=0, microsecond=0) + timedelta(minutes=1)
        return self._search(start, start.year + _YEARS_AHEAD)

    def previous(self, moment: float, within_seconds: float = 366 * 86400.0) -> float | None:
        """Return the last time at or before `moment` at which it fired, looking back `within_seconds`."""
        day = datetime.fromtimestamp(moment, UTC).replace(hour=0, minute=0, second=0, microsecond=0)
        while day.timestamp() >= moment - within_seconds - 86400:
            last: float | None = None
            fire = self._search(day, day.year, until=day + timedelta(days=1))
            while fire is not None and fire <= moment:
                last = fire
                step = datetime.fromtimestamp(fire, UTC) + timedelta(minutes=1)
                fire = self._search(step, step.year, until=day + timedelta(days=1))
            if last is not None:
                return last if last >= moment - within_seconds else None
            day -= timedelta(days=1)
        return None

    def _search(self, at: datetime, last_year: int, until: datetime | None = None) -> float | None:
        """Return the first match from `at` on, skipping whole months, days and hours that cannot match."""
        while at.year <= last_year and (until is None or at < until):
            if not self.month >> at.month & 1:
                at = (at.replace(day=1, hour=0, minute=0) + timedelta(days=32)).replace(day=1)
            elif not self._day_matches(at):
                at = at.replace(hour=0, minute=0) + timedelta(days=1)
            elif not self.hour >> at.hour & 1:
                at = at.replace(minute=0) + timedelta(hours=1)
            elif not self.minute >> at.minute & 1:
                at += timedelta(minutes=1)
            else:
                return at.timestamp()
        return None

    def _day_matches(self, at: datetime) -> bool:
        day = bool(self.day >> at.day & 1)
        weekday = bool(self.weekday >> (at.isoweekday() % 7) & 1)
        return (day and weekday) if self.any_day else (day or weekday)


def parse_cron(text: str) -> Cron:
    """Return the schedule that `text` writes.

    Raises:
        ValueError: naming the field and the part that cannot be.
    """
    fields = _MACROS.get(text.strip(), text).split()
    if len(fields) != 5:
        raise ValueError(f"schedule {text!r}: want a macro such as @daily, or 5 fields (found {len(fields)})")
    minute, hour, day, month, weekday = (
        _field(text, field, *spec) for field, spec in zip(fields, _FIELDS, strict=True)
    )
    any_day = _has_star(fields[2]) or _has_star(fields[4])
    return Cron(minute, hour, day, month, weekday, any_day)


def _has_star(field: str) -> bool:
    """Tell whether a part of `field` stands for everything; `*/2` does not, `*/1` does."""
    return any(part in ("*", "?") or re.fullmatch(r"[*?]/0*1", part) for part in field.split(","))


def _field(schedule: str, field: str, name: str, low: int, high: int, names: dict[str, int]) -> int:
    bits = 0
    for part in field.split(","):
        match = re.fullmatch(r"(?:([*?])|([0-9A-Za-z]+)(?:-([0-9A-Za-z]+))?)(?:/([0-9]+))?", part)
        if match is None:
            raise ValueError(f"schedule {schedule!r}: {name} {part!r} is not a number, range, list or step")
        star, first, last, step = match.groups()
        start = low if star else _number(schedule, name, first, names)
        if star or (step and last is None):
            end = high
        else:
            end = _number(schedule, name, last, names) if last else start
        stride = int(step) if step else 1
        if start < low or end > high or start > end or stride == 0:
            raise ValueError(f"schedule {schedule!r}: {name} {part!r} is outside {low}-{high}")
        for value in range(start, end + 1, stride):
            bits |= 1 << value
    return bits


def _number(schedule: str, name: str, text: str, names: dict[str, int]) -> int:
    if text.lower() in names:
        return names[text.lower()]
    if not text.isdigit():
        raise ValueError(f"schedule {schedule!r}: {name} {text!r} is not a number")
    return int(text)
