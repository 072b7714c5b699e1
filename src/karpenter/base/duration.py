"""Go's duration text (`1h30m`, `15s`), as the Kubernetes API writes it."""

import re
from fractions import Fraction

_UNITS = {
    "ns": Fraction(1, 10**9),
    "us": Fraction(1, 10**6),
    "µs": Fraction(1, 10**6),
    "μs": Fraction(1, 10**6),
    "ms": Fraction(1, 10**3),
    "s": Fraction(1),
    "m": Fraction(60),
    "h": Fraction(3600),
}
_PART = re.compile(r"(\d+\.?\d*|\.\d+)(ns|us|µs|μs|ms|s|m|h)")


def parse_duration(text: str) -> float:
    """Return the seconds of a Go duration such as `720h`, `1h30m` or `-1.5s`.

    Raises:
        ValueError: when `text` is not a Go duration.
    """
    sign, rest = (-1, text[1:]) if text.startswith("-") else (1, text.removeprefix("+"))
    if rest == "0":
        return 0.0
    seconds, position = Fraction(0), 0
    while position < len(rest) and (part := _PART.match(rest, position)):
        seconds += Fraction(part[1]) * _UNITS[part[2]]
        position = part.end()
    if position == 0 or position != len(rest):
        raise ValueError(f"{text!r} is not a duration (want e.g. 30s, 15m, 720h)")
    return float(sign * seconds)


def format_duration(seconds: float) -> str:
    """Render `seconds` as Go's `time.Duration.String` does: `1h0m0s`, `1.5s`, `300ms`, `0s`."""
    if seconds == 0:
        return "0s"
    sign, rest = ("-", -seconds) if seconds < 0 else ("", seconds)
    nanoseconds = round(rest * 10**9)
    if nanoseconds < 10**9:
        for unit, size in (("ms", 10**6), ("µs", 10**3), ("ns", 1)):
            if nanoseconds >= size:
                return f"{sign}{nanoseconds / size:g}{unit}"
    hours, nanoseconds = divmod(nanoseconds, 3600 * 10**9)
    minutes, nanoseconds = divmod(nanoseconds, 60 * 10**9)
    whole, fraction = divmod(nanoseconds, 10**9)
    tail = f"{whole}" + (f".{fraction:09d}".rstrip("0") if fraction else "") + "s"
    if hours:
        return f"{sign}{hours}h{minutes}m{tail}"
    return f"{sign}{minutes}m{tail}" if minutes else f"{sign}{tail}"
