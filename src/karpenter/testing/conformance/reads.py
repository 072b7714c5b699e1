"""Lists and watches: selectors, pages, versions, bookmarks, and what has become too old."""

from karpenter.testing.conformance.pods import PODS, pod
from karpenter.testing.conformance.steps import ABSENT, PRESENT, Case, Step, case
from karpenter.testing.conformance.writes import MAPS, config_map

_THREE = tuple(
    Step("POST", PODS, body=pod(name, labels={"tier": tier}), code=201)
    for name, tier in (("a", "front"), ("b", "back"), ("c", "back"))
)


def cases() -> list[Case]:
    """Return the cases."""
    return [*_lists(), *_watches()]


def _selected(names: str, **query: str) -> Step:
    places = {f"items/{i}/metadata/name": name for i, name in enumerate(names)}
    return Step("GET", PODS, query=query, has={"kind": "PodList", "items/#": len(names), **places})


def _refused(code: int = 400, **query: str) -> Step:
    return Step("GET", PODS, query=query, code=code, has={"status": "Failure"})


def _lists() -> list[Case]:
    page = {"limit": "2"}
    return [
        case(
            "label-selectors",
            *_THREE,
            _selected("bc", labelSelector="tier=back"),
            _selected("a", labelSelector="tier!=back"),
            _selected("abc", labelSelector="tier in (back, front)"),
            _selected("a", labelSelector="tier notin (back),tier"),
            _selected("", labelSelector="!tier"),
            _refused(labelSelector="tier in back"),
        ),
        case(
            "field-selectors",
            *_THREE,
            _selected("b", fieldSelector="metadata.name=b"),
            _selected("ac", fieldSelector="metadata.name!=b"),
            _selected("abc", fieldSelector="spec.nodeName=,status.phase=Pending"),
            _selected("abc", fieldSelector="spec.schedulerName=nobody"),
            _selected("", fieldSelector="spec.nodeName=x"),
            _refused(fieldSelector="spec.priority=0"),
            Step("GET", MAPS, query={"fieldSelector": "data.a=b"}, code=400),
        ),
        case(
            "pages",
            *_THREE,
            Step(
                "GET",
                PODS,
                query=page,
                keep={"next": "metadata/continue", "rv": "metadata/resourceVersion"},
                has={"items/#": 2, "metadata/remainingItemCount": 1, "metadata/continue": PRESENT},
            ),
            Step("POST", PODS, body=pod("b2"), code=201),
            Step(
                "GET",
                PODS,
                query={**page, "continue": "{next}"},
                has={
                    "items/#": 1,
                    "items/0/metadata/name": "c",
                    "metadata/continue": ABSENT,
                    "metadata/resourceVersion": "{rv}",
                },
            ),
            _refused(limit="two"),
            Step("GET", PODS, query={"continue": "rubbish"}, code=400, has={"status": "Failure"}),
        ),
        case(
            "versions-of-lists",
            *_THREE,
            Step("GET", PODS, keep={"rv": "metadata/resourceVersion"}),
            _selected("abc", resourceVersion="0"),
            _selected("abc", resourceVersion="{rv}", resourceVersionMatch="NotOlderThan"),
            _selected("abc", resourceVersion="{rv}", resourceVersionMatch="Exact"),
            _refused(422, resourceVersionMatch="Exact"),
            _refused(resourceVersion="first"),
            Step(
                "GET",
                PODS,
                query={"resourceVersion": "999999999"},
                code=504,
                has={"reason": "Timeout"},
                text="Too large resource version",
            ),
        ),
    ]


def _watches() -> list[Case]:
    # Each watch ends by itself after a second, so lists of events are whole.
    one = {"fieldSelector": "metadata.name=one"}
    made = Step(
        "POST",
        MAPS,
        body=config_map(metadata={"labels": {"k": "v"}}),
        code=201,
        keep={"rv": "metadata/resourceVersion"},
    )
    after = {"resourceVersion": "{rv}"}
    return [
        case(
            "watch",
            made,
            Step("MERGE", f"{MAPS}/one", body={"data": {"a": "1"}}),
            Step("POST", MAPS, body=config_map("two"), code=201),
            Step("DELETE", f"{MAPS}/one"),
            Step("WATCH", MAPS, query=after, events=("MODIFIED one", "ADDED two", "DELETED one")),
            Step("WATCH", MAPS, query={**after, **one}, events=("MODIFIED one", "DELETED one")),
        ),
        case(
            "watch-through-a-selector",
            made,
            Step("MERGE", f"{MAPS}/one", body={"metadata": {"labels": {"k": "x"}}}),
            Step("MERGE", f"{MAPS}/one", body={"metadata": {"labels": {"k": "v"}}}),
            Step("WATCH", MAPS, query={**after, "labelSelector": "k=v"}, events=("DELETED one", "ADDED one")),
        ),
        case(
            "watch-from-the-state",
            made,
            Step("WATCH", MAPS, query=one, events=("ADDED one",)),
            Step("WATCH", MAPS, query={**one, "resourceVersion": "0"}, events=("ADDED one",)),
        ),
        case(
            "watch-streams-the-list",
            made,
            Step(
                "WATCH",
                MAPS,
                events=("ADDED one", "BOOKMARK"),
                query={
                    **one,
                    "sendInitialEvents": "true",
                    "resourceVersionMatch": "NotOlderThan",
                    "allowWatchBookmarks": "true",
                },
            ),
            Step(
                "GET",
                MAPS,
                code=422,
                query={"watch": "true", "sendInitialEvents": "true", "timeoutSeconds": "1"},
            ),
        ),
    ]
