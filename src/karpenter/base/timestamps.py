"""Points in time as the Kubernetes API writes them; pure conversions, no clock."""

from datetime import UTC, datetime


def format_time(seconds: float) -> str:
    """Render epoch `seconds` as Kubernetes' metav1.Time: RFC 3339, UTC, whole seconds."""
    return datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def format_micro_time(seconds: float) -> str:
    """Render epoch `seconds` as Kubernetes' metav1.MicroTime (Leases, events.k8s.io)."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def parse_time(text: str) -> float:
    """Return the epoch seconds of RFC 3339 `text`.

    Raises:
        ValueError: when `text` is not RFC 3339 with an offset.
    """
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(f"time {text!r} has no offset (want RFC 3339, e.g. 2026-01-31T12:00:00Z)")
    return moment.timestamp()
