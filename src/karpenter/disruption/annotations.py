"""What the do-not-disrupt annotations of pods come to, in words for their owners."""

from collections.abc import Iterable, Iterator
from typing import Literal

import msgspec

from karpenter.apis import labels
from karpenter.apis.core import Pod
from karpenter.base.duration import parse_duration
from karpenter.base.timestamps import format_time, parse_time
from karpenter.model import pods as podlib


class Note(msgspec.Struct, frozen=True, kw_only=True):
    """Something to tell about a pod's annotation."""

    pod: Pod
    type: Literal["Normal", "Warning"]
    reason: str
    message: str


def notes(pods: Iterable[Pod], now: float) -> Iterator[Note]:
    """Yield what there is to tell: values that are ignored, and until when durations hold.

    `true` needs no words, nor does a duration of a pod that has not started: it holds for now.
    """
    for pod in pods:
        text = pod.metadata.annotations.get(labels.DO_NOT_DISRUPT)
        if text is None or text == "true" or not podlib.is_active(pod):
            continue
        try:
            seconds = parse_duration(text)
        except ValueError:
            seconds = 0.0
        if seconds <= 0:
            message = (
                f'Annotation "{labels.DO_NOT_DISRUPT}" has value {text!r} and is ignored: '
                "want true or a duration above zero, such as 30m"
            )
            yield Note(pod=pod, type="Warning", reason="InvalidDoNotDisruptAnnotation", message=message)
        elif pod.status.start_time is not None:
            end = parse_time(pod.status.start_time) + seconds
            if now < end:
                message = f"Pod is not disrupted until {format_time(end)}"
                yield Note(pod=pod, type="Normal", reason="DoNotDisruptUntil", message=message)
            else:
                message = f"Pod may be disrupted since {format_time(end)}"
                yield Note(pod=pod, type="Normal", reason="DoNotDisruptGracePeriodElapsed", message=message)
