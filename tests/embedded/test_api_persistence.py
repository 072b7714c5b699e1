"""The state file: what was acknowledged is there, whatever happened to the process."""

import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from karpenter.embedded.apiserver import ApiServer
from karpenter.embedded.kinds import KindRegistry
from karpenter.embedded.persistence import StateFile, StateFileError
from karpenter.embedded.store import Compacted, Store
from karpenter.testing.embeddedapi import PODS, Api, a_raw_crd, a_raw_pod


def reopened(api: Api, path: Path) -> tuple[Api, StateFile]:
    """Return a new server on a state file."""
    fresh = Api.__new__(Api)
    fresh.clock = api.clock
    fresh.store = Store(api.clock, api.store.rng)
    fresh.server = ApiServer(fresh.store)
    state = StateFile(path)
    state.attach(fresh.store, fresh.server.registry)
    return fresh, state


def test_a_cluster_resumes(tmp_path: Path) -> None:
    """Objects, custom kinds and the revision come back; deleted objects do not; history is gone."""
    api, path = Api(), tmp_path / "state.db"
    state = StateFile(path)
    state.attach(api.store, api.server.registry)
    api.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", a_raw_crd())
    api.post("/apis/example.com/v1/widgets", {"metadata": {"name": "w"}})
    pod = api.post(PODS, a_raw_pod()).body
    api.post(PODS, a_raw_pod("gone"))
    api.delete(f"{PODS}/gone")
    revision = api.store.revision
    state.close()
    fresh, state = reopened(api, path)
    assert fresh.store.revision == revision
    assert fresh.get(f"{PODS}/web").body == pod
    assert fresh.get(f"{PODS}/gone").code == 404
    assert fresh.get("/apis/example.com/v1/widgets/w").code == 200
    assert fresh.get("/api/v1/namespaces/default").code == 200
    made = fresh.post(PODS, a_raw_pod("next")).body
    assert int(made["metadata"]["resourceVersion"]) == revision + 1
    with pytest.raises(Compacted):
        fresh.store.position("pods", revision - 1)
    state.close()


def test_a_resumed_cluster_serves_the_definitions_it_is_given(tmp_path: Path) -> None:
    """An older edition in the file gives way."""
    api, path = Api(), tmp_path / "state.db"
    state = StateFile(path)
    state.attach(api.store, api.server.registry)
    api.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", a_raw_crd())
    state.close()
    state = StateFile(path)
    store = Store(api.clock, api.store.rng, crds=[a_raw_crd(scale=True)])
    state.load(store, KindRegistry())
    server = ApiServer(store)
    kind = server.registry.find("example.com", "v1", "widgets")
    assert kind is not None
    assert kind.scale is not None
    state.close()


WRITER = """
import sys, os
from pathlib import Path
from karpenter.embedded.kinds import KindRegistry
from karpenter.embedded.persistence import StateFile
from karpenter.testing.embeddedapi import Api, PODS, a_raw_pod
api = Api()
state = StateFile(Path(sys.argv[1]))
state.attach(api.store, api.server.registry)
for index in range(100000):
    assert api.post(PODS, a_raw_pod(f"p{index:06d}")).code == 201
    os.write(1, b"%d\\n" % index)
"""


def test_a_killed_process_loses_nothing_it_acknowledged(tmp_path: Path) -> None:
    """kill -9 in the middle of writing leaves a prefix with every acknowledged write."""
    path = tmp_path / "state.db"
    source = str(Path(__file__).parents[2] / "src")
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path)],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": source},
    )
    assert process.stdout is not None
    acknowledged = [int(process.stdout.readline()) for _ in range(300)][-1]
    process.send_signal(signal.SIGKILL)
    rest = process.communicate()[0].split()
    if rest:
        acknowledged = int(rest[-1])
    fresh, state = reopened(Api(), path)
    names = [record.name for record in fresh.store.records("pods")]
    assert names == [f"p{index:06d}" for index in range(len(names))]
    assert acknowledged + 1 <= len(names) <= acknowledged + 2
    state.close()


def test_two_processes_cannot_share_a_file(tmp_path: Path) -> None:
    """The second is told so, at once."""
    state = StateFile(tmp_path / "state.db")
    with pytest.raises(StateFileError, match="is another cluster running on it"):
        StateFile(tmp_path / "state.db", wait_seconds=0.05)
    state.close()


def test_files_that_are_not_ours(tmp_path: Path) -> None:
    """Neither rubbish nor a newer format is touched."""
    rubbish = tmp_path / "rubbish"
    rubbish.write_text("no database " * 100)
    with pytest.raises(StateFileError, match="cannot use"):
        StateFile(rubbish)
    newer = tmp_path / "newer"
    database = sqlite3.connect(newer)
    database.execute("PRAGMA user_version=99")
    database.close()
    with pytest.raises(StateFileError, match="newer version"):
        StateFile(newer)
