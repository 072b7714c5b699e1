"""Ages, as kubectl prints them."""

from typing import Any

from karpenter.base.clock import parse_time


def age(timestamp: Any, now: float) -> str:
    """Render how long ago an RFC 3339 time was, as kubectl does: `5s`, `3m12s`, `4h`, `12d`."""
    if not isinstance(timestamp, str) or not timestamp:
        return "<unknown>"
    return short_duration(now - parse_time(timestamp))


def short_duration(seconds: float) -> str:
    """Render a duration in one or two units."""
    whole = int(seconds)
    if whole < -1:
        return "<invalid>"
    whole = max(0, whole)
    minutes, hours, days = whole // 60, whole // 3600, whole // 86400
    if whole < 120:
        return f"{whole}s"
    if minutes < 10:
        return f"{minutes}m{whole % 60}s" if whole % 60 else f"{minutes}m"
    if hours < 3:
        return f"{minutes}m"
    if hours < 8:
        return f"{hours}h{minutes % 60}m" if minutes % 60 else f"{hours}h"
    if hours < 48:
        return f"{hours}h"
    if days < 8:
        return f"{days}d{hours % 24}h" if hours % 24 else f"{days}d"
    if days < 365 * 2:
        return f"{days}d"
    years = days // 365
    return f"{years}y{days % 365}d" if days < 365 * 8 and days % 365 else f"{years}y"
