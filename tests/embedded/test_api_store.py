"""The store against a simple model, and its history."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import karpenter.embedded.store as store_module
from karpenter.base.clock import ManualClock
from karpenter.base.randomness import seeded
from karpenter.embedded.kinds import BUILTIN
from karpenter.embedded.store import Compacted, Store, field_text

CONFIGMAPS = next(kind for kind in BUILTIN if kind.plural == "configmaps")
RESOURCE = CONFIGMAPS.group_resource


def a_store(log_limit: int = 1000) -> Store:
    return Store(ManualClock(), seeded(1), log_limit=log_limit)


def an_object(namespace: str, name: str, value: int = 0) -> dict[str, Any]:
    meta = {"namespace": namespace, "name": name, "labels": {"v": str(value)}}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"v": str(value)}}


NAMES = st.sampled_from(["a", "b", "a-b", "a.b"])
STEPS = st.lists(st.tuples(st.sampled_from(["put", "remove"]), NAMES, NAMES, st.integers(0, 9)), max_size=40)


@settings(max_examples=60, deadline=None)
@given(STEPS)
def test_store_behaves_as_a_dict_with_history(steps: list[tuple[str, str, str, int]]) -> None:
    """Lists equal the model at every revision, and replaying the log from any point leads to the end."""
    store, model = a_store(), dict[str, int]()
    states = {store.revision: dict(model)}
    for action, namespace, name, value in steps:
        key = f"{namespace}/{name}"
        if action == "put":
            store.put(CONFIGMAPS, an_object(namespace, name, value))
            model[key] = value
        elif key in model:
            store.remove(CONFIGMAPS, an_object(namespace, name))
            del model[key]
        states[store.revision] = dict(model)
    for revision, expected in states.items():
        page = store.page(RESOURCE, "", None, revision=revision)
        found = {record.key: int(record.labels["v"]) for record in page.records}
        assert found == expected
        assert [record.key for record in page.records] == sorted(found)
        replayed = dict(expected)
        for entry in store.changes(RESOURCE, store.position(RESOURCE, revision)):
            if entry.type == "DELETED":
                del replayed[entry.record.key]
            else:
                assert (entry.type == "ADDED") == (entry.record.key not in replayed)
                replayed[entry.record.key] = int(entry.record.labels["v"])
        assert replayed == model
    for namespace in ("a", "b", "a-b"):
        expected_keys = sorted(key for key in model if key.startswith(f"{namespace}/"))
        assert [record.key for record in store.records(RESOURCE, namespace)] == expected_keys


def test_pages_are_of_one_revision() -> None:
    """What is written between two pages shows in neither of them."""
    store = a_store()
    for index in range(5):
        store.put(CONFIGMAPS, an_object("d", f"n{index}"))
    first = store.page(RESOURCE, "", None, limit=2)
    store.put(CONFIGMAPS, an_object("d", "n3", 7))
    store.remove(CONFIGMAPS, an_object("d", "n4"))
    store.put(CONFIGMAPS, an_object("d", "n9"))
    second = store.page(RESOURCE, "", None, start=first.next_key, revision=first.revision)
    assert [record.name for record in (*first.records, *second.records)] == [f"n{i}" for i in range(5)]
    assert second.records[1].labels == {"v": "0"}
    assert (first.remaining, second.next_key) == (3, "")


def test_history_is_bounded() -> None:
    """Positions that fell off the log are refused, newer ones keep working."""
    store = a_store(log_limit=4)
    for index in range(20):
        store.put(CONFIGMAPS, an_object("d", "n", index))
    with pytest.raises(Compacted):
        store.position(RESOURCE, 3)
    newest = store.position(RESOURCE, store.revision - 2)
    assert [entry.record.labels["v"] for entry in store.changes(RESOURCE, newest)] == ["18", "19"]
    with pytest.raises(Compacted):
        store.changes(RESOURCE, 0)


def test_history_is_bounded_in_bytes_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Large objects push history out before the number of entries does."""
    monkeypatch.setattr(store_module, "LOG_BYTES", 5_000)
    store = a_store()
    for index in range(100):
        store.put(CONFIGMAPS, an_object("d", "n", index))
    with pytest.raises(Compacted):
        store.position(RESOURCE, 3)
    assert 10 <= len(store.changes(RESOURCE, store.position(RESOURCE, store.revision - 10))) < 50


def test_an_event_is_encoded_once() -> None:
    """All watchers get the same bytes object."""
    store = a_store()
    store.put(CONFIGMAPS, an_object("d", "n"))
    [entry] = store.changes(RESOURCE, 0)
    assert entry.encoded() is entry.encoded()


def test_records_cannot_be_changed_through_what_they_decode_to() -> None:
    """Each decode is a fresh copy."""
    store = a_store()
    record = store.put(CONFIGMAPS, an_object("d", "n"))
    record.object()["data"]["v"] = "spoiled"
    assert record.object()["data"]["v"] == "0"


def test_a_journal_that_fails_refuses_the_write() -> None:
    """Nothing happened that could not be written down."""
    store = a_store()

    def refuse(_: object) -> None:
        raise OSError("disk full")

    store.journal = refuse
    revision = store.revision
    with pytest.raises(OSError, match="disk full"):
        store.put(CONFIGMAPS, an_object("d", "n"))
    assert store.get(CONFIGMAPS, "d", "n") is None
    assert store.revision == revision


@pytest.mark.parametrize(
    ("obj", "path", "text"),
    [
        ({"spec": {"nodeName": "n"}}, "spec.nodeName", "n"),
        ({"spec": {}}, "spec.nodeName", ""),
        ({"spec": {"unschedulable": True}}, "spec.unschedulable", "true"),
        ({}, "spec.unschedulable", "false"),
        ({"source": {"component": "kubelet"}}, "source", "kubelet"),
        ({"status": {"successful": 3}}, "status.successful", "3"),
    ],
)
def test_field_text(obj: dict[str, Any], path: str, text: str) -> None:
    """Field selectors compare text; booleans that are absent are false."""
    assert field_text(obj, path) == text
