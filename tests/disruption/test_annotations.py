"""What is told about do-not-disrupt annotations of pods."""

import pytest
from msgspec.structs import replace

from karpenter.apis import labels
from karpenter.base.timestamps import parse_time
from karpenter.disruption.annotations import notes
from karpenter.testing.builders import a_pod

NOW = parse_time("2026-01-01T12:00:00Z")


@pytest.mark.parametrize(
    ("value", "started", "reason", "message"),
    [
        (None, "2026-01-01T11:00:00Z", None, ""),
        ("true", "2026-01-01T11:00:00Z", None, ""),
        ("2h", None, None, ""),
        ("2h", "2026-01-01T11:00:00Z", "DoNotDisruptUntil", "until 2026-01-01T13:00:00Z"),
        ("1h", "2026-01-01T11:00:00Z", "DoNotDisruptGracePeriodElapsed", "since 2026-01-01T12:00:00Z"),
        ("false", "2026-01-01T11:00:00Z", "InvalidDoNotDisruptAnnotation", "'false' and is ignored"),
        ("soon", None, "InvalidDoNotDisruptAnnotation", "want true or a duration above zero"),
        ("0s", None, "InvalidDoNotDisruptAnnotation", "'0s'"),
        ("-1h", None, "InvalidDoNotDisruptAnnotation", "'-1h'"),
    ],
)
def test_notes(value: str | None, started: str | None, reason: str | None, message: str) -> None:
    """Ignored values are warned of, durations say when they end or ended, the rest is silent."""
    annotations = {} if value is None else {labels.DO_NOT_DISRUPT: value}
    pod = a_pod("p", node_name="n", annotations=annotations)
    pod = replace(pod, status=replace(pod.status, start_time=started))
    found = list(notes([pod], NOW))
    assert [note.reason for note in found] == ([] if reason is None else [reason])
    for note in found:
        assert message in note.message
        assert note.type == ("Warning" if note.reason.startswith("Invalid") else "Normal")


@pytest.mark.parametrize("ended", [{"phase": "Succeeded"}, {"deleted": "2026-01-01T12:00:00Z"}])
def test_pods_that_have_ended_are_not_spoken_of(ended: dict[str, str]) -> None:
    """Their annotation protects nothing any more."""
    pod = a_pod("p", node_name="n", annotations={labels.DO_NOT_DISRUPT: "soon"}, **ended)  # type: ignore[arg-type]
    assert list(notes([pod], NOW)) == []
