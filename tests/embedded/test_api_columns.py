"""Tables and what stands in their cells."""

from typing import Any

import pytest

from karpenter.embedded.ages import short_duration
from karpenter.embedded.columns import DEFAULT_PRINTER, PRINTERS, pod_status
from karpenter.embedded.jsonpath import lookup
from karpenter.testing.embeddedapi import PODS, Api, a_raw_crd, a_raw_pod

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (119, "119s"),
        (120, "2m"),
        (125, "2m5s"),
        (601, "10m"),
        (3600 * 3, "3h"),
        (3600 * 5 + 600, "5h10m"),
        (3600 * 20, "20h"),
        (86400 * 3 + 3600 * 4, "3d4h"),
        (86400 * 100, "100d"),
        (86400 * 800, "2y70d"),
        (-5, "<invalid>"),
    ],
)
def test_short_duration(seconds: float, text: str) -> None:
    """One or two units, as kubectl prints ages."""
    assert short_duration(seconds) == text


@pytest.mark.parametrize(
    ("pod", "word"),
    [
        ({"metadata": {}, "status": {"phase": "Pending"}}, "Pending"),
        ({"metadata": {"deletionTimestamp": "x"}, "status": {"phase": "Running"}}, "Terminating"),
        ({"metadata": {}, "status": {"phase": "Failed", "reason": "Evicted"}}, "Evicted"),
        (
            {
                "metadata": {},
                "status": {
                    "phase": "Running",
                    "containerStatuses": [{"state": {"waiting": {"reason": "CrashLoopBackOff"}}}],
                },
            },
            "CrashLoopBackOff",
        ),
        (
            {
                "metadata": {},
                "status": {
                    "phase": "Pending",
                    "conditions": [{"type": "PodScheduled", "reason": "SchedulingGated"}],
                },
            },
            "SchedulingGated",
        ),
    ],
)
def test_pod_status(pod: dict[str, Any], word: str) -> None:
    """The one word kubectl shows."""
    assert pod_status(pod) == word


@pytest.mark.parametrize(
    ("path", "values"),
    [
        (".spec.size", [3]),
        ('.status.conditions[?(@.type=="Ready")].status', ["True"]),
        (".items[*].n", [1, 2]),
        (".items[0].n", [1]),
        (".items[-1].n", [2]),
        (r".metadata.labels.example\.com/zone", ["a"]),
        (".metadata.labels['example.com/zone']", ["a"]),
        (".nothing.here", []),
        ("{.spec.size}", [3]),
    ],
)
def test_jsonpath(path: str, values: list[Any]) -> None:
    """The forms that printer columns use."""
    data = {
        "spec": {"size": 3},
        "status": {"conditions": [{"type": "Other", "status": "False"}, {"type": "Ready", "status": "True"}]},
        "items": [{"n": 1}, {"n": 2}],
        "metadata": {"labels": {"example.com/zone": "a"}},
    }
    assert lookup(data, path) == values


def test_jsonpath_of_another_form() -> None:
    """Is an error that shows where."""
    with pytest.raises(ValueError, match="not supported from character 5"):
        lookup({"spec": {}}, ".spec..size")


def test_every_row_has_a_cell_per_column() -> None:
    """For each kind with a printer, an almost empty object prints."""
    for name, printer in [*PRINTERS.items(), ("default", DEFAULT_PRINTER)]:
        cells = printer.cells({"metadata": {"name": "x"}}, 0.0)
        assert len(cells) == len(printer.columns), name


def test_tables_of_lists_and_objects() -> None:
    """Rows carry metadata, or the object when asked; plain requests get plain lists."""
    api = Api()
    api.post(PODS, a_raw_pod())
    table = api.call("GET", PODS, accept=TABLE).body
    assert [column["name"] for column in table["columnDefinitions"]][:3] == ["Name", "Ready", "Status"]
    assert table["rows"][0]["cells"][:3] == ["web", "0/1", "Pending"]
    assert table["rows"][0]["object"]["kind"] == "PartialObjectMetadata"
    whole = api.call("GET", f"{PODS}/web", accept=TABLE, query={"includeObject": "Object"}).body
    assert whole["rows"][0]["object"]["spec"]
    assert api.get(PODS).body["kind"] == "PodList"


def test_custom_columns() -> None:
    """By type: numbers, ages, booleans; nothing where nothing is."""
    api = Api()
    columns: list[dict[str, Any]] = [
        {"name": "Size", "type": "integer", "jsonPath": ".spec.size"},
        {"name": "Colour", "type": "string", "jsonPath": ".spec.colour"},
        {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp", "priority": 1},
    ]
    api.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", a_raw_crd(columns=columns))
    api.post("/apis/example.com/v1/widgets", {"metadata": {"name": "w"}, "spec": {"size": 4}})
    api.clock.advance(60)
    table = api.call("GET", "/apis/example.com/v1/widgets", accept=TABLE).body
    assert table["rows"][0]["cells"] == ["w", 4, None, "60s"]
    assert table["columnDefinitions"][3]["priority"] == 1
