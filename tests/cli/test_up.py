"""`karpenter up` as people run it: a process of its own, its exit code, its words and its files."""

import json
import signal
import socket
import stat
import subprocess
import sys
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

_ENDS_WITHIN = 2.0

_POOL = """
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: wrong}
spec:
  weight: 900
  template:
    spec:
      nodeClassRef: {group: karpenter.kwok.sh, kind: KWOKNodeClass, name: default}
      requirements: []
"""


class Up:
    """One `karpenter up --plain` in `folder`."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.kubeconfig = folder / "kubeconfig"
        command = [sys.executable, "-m", "karpenter", "up", "--plain", "--kubeconfig", str(self.kubeconfig)]
        self.process = subprocess.Popen(
            [*command, *arguments], cwd=folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )

    def wait_for(self, words: str) -> str:
        """Return what was printed up to a line with `words`."""
        assert self.process.stdout
        lines = []
        for line in self.process.stdout:
            lines.append(line)
            if words in line:
                return "".join(lines)
        raise AssertionError(f"ended without {words!r}: {lines}")

    def stop(self, number: signal.Signals) -> tuple[int, float, str]:
        """Send a signal; return the exit code, how long the end took, and all that was on stderr."""
        started = time.monotonic()
        self.process.send_signal(number)
        _, complaints = self.process.communicate(timeout=20)
        return self.process.returncode, time.monotonic() - started, complaints

    def request(self, method: str, path: str, body: object = None) -> Any:
        config = yaml.safe_load(self.kubeconfig.read_text())
        server = config["clusters"][0]["cluster"]["server"]
        data = None if body is None else json.dumps(body).encode()
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        asked = urllib.request.Request(
            server + path, data=data, method=method, headers={"Content-Type": kind}
        )
        with urllib.request.urlopen(asked, timeout=10) as answer:
            return json.load(answer)


def _run(folder: Path, *arguments: str) -> tuple[int, str, str]:
    up = Up(folder, *arguments)
    words, complaints = up.process.communicate(timeout=120)
    return up.process.returncode, words, complaints


@pytest.mark.slow
def test_the_tutorial_runs_to_its_end_and_prints_what_happened(tmp_path: Path) -> None:
    """It scales up twice and down to nothing, tells every purchase, and exits 0."""
    code, words, complaints = _run(tmp_path, "--script", "tutorial", "--exit-when-settled", "--seed", "1")
    assert (code, complaints) == (0, "")
    assert "for 3 pods, $" in words
    assert "empty machines, saves $" in words
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in words.splitlines() if "│" in line]
    summary = {row[0]: row[1:] for row in rows if row[0].endswith("replicas")}
    assert [summary[f"{n} replicas"][0] for n in (3, 30, 0)] == ["3", "30", "0"]
    assert summary["0 replicas"][1:3] == ["0", "–"]
    assert "0 nodes and 0 NodeClaims are left." in words


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_at_once_and_cleanly(tmp_path: Path, number: signal.Signals) -> None:
    """Ctrl-C and SIGTERM end it within two seconds with 0 and nothing on stderr."""
    up = Up(tmp_path, "--script", "tutorial")
    up.wait_for("bought")
    code, seconds, complaints = up.stop(number)
    assert (code, complaints) == (0, "")
    assert seconds < _ENDS_WITHIN


@pytest.mark.slow
def test_a_signal_while_it_starts_ends_it_too(tmp_path: Path) -> None:
    """Nothing hangs and no traceback shows, whenever Ctrl-C comes."""
    for delay in (0.05, 0.15, 0.3, 0.5, 0.8, 1.2):
        up = Up(tmp_path)
        time.sleep(delay)
        code, seconds, complaints = up.stop(signal.SIGINT)
        assert "Traceback" not in complaints
        assert code in (0, 130, -signal.SIGINT), "the last: still loading, shells say 130 too"
        assert seconds < _ENDS_WITHIN


@pytest.mark.slow
def test_a_cluster_is_resumed_as_it_was_left(tmp_path: Path) -> None:
    """A second run with the same state file goes on with what was there, scaled as it was."""
    up = Up(tmp_path, "--state", "cluster.db")
    assert "cluster.db: is a new cluster" in up.wait_for("kubectl get")
    assert stat.S_IMODE(up.kubeconfig.stat().st_mode) == 0o600
    deployment = "/apis/apps/v1/namespaces/default/deployments/scaleup"
    up.request("PATCH", deployment, {"spec": {"replicas": 2}})
    up.wait_for("2 of 2 pods running")
    assert up.stop(signal.SIGTERM)[0] == 0

    again = Up(tmp_path, "--state", "cluster.db")
    said = again.wait_for("kubectl get")
    assert "goes on with 1 NodePools, 1 NodeClaims, 1 Nodes, 1 Deployments, 3 Pods" in said
    again.wait_for("2 of 2 pods running, 1 machine, $")
    assert again.request("GET", deployment)["spec"]["replicas"] == 2
    assert again.stop(signal.SIGTERM)[0] == 0


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--script", "nowhere.yaml"], "script nowhere.yaml: No such file"),
        (["--manifests", "nowhere.yaml"], "nowhere.yaml: no such file or folder"),
        (["--manifests", "kindless.yaml"], "kindless.yaml:2: the object has no kind"),
        (["--manifests", "pool.yaml"], "pool.yaml:6: NodePool/wrong is refused: "),
        (["--manifests", "stranger.yaml"], "stranger.yaml:2: Bar/x: the server has no kind Bar in foo.io/v1"),
        (["--cloud-provider", "azure"], "--cloud-provider has value 'azure': installed are "),
        (["--instance-types-file-path", "types.json"], "cloud provider kwok: types.json: entry 0"),
        (["--state", "kindless.yaml"], "cannot use kindless.yaml as state file"),
    ],
    ids=lambda value: value[1] if isinstance(value, list) else "",
)
def test_what_cannot_be_done_is_said_in_one_line(
    tmp_path: Path, arguments: Sequence[str], complaint: str
) -> None:
    """Exit code 1, one line on stderr that names the thing, no traceback."""
    (tmp_path / "kindless.yaml").write_text("# no object\napiVersion: v1\n")
    (tmp_path / "pool.yaml").write_text(_POOL)
    (tmp_path / "stranger.yaml").write_text("apiVersion: foo.io/v1\nkind: Bar\nmetadata: {name: x}\n")
    (tmp_path / "types.json").write_text('[{"name": 1}]')
    code, _, complaints = _run(tmp_path, *arguments)
    assert code == 1
    [line] = complaints.splitlines()
    assert line.startswith(f"karpenter up: {complaint}")


def test_a_taken_port_is_said(tmp_path: Path) -> None:
    """The line names the port and what to do."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, _, complaints = _run(tmp_path, "--port", str(port))
    assert code == 1
    [line] = complaints.splitlines()
    assert line.startswith(f"karpenter up: cannot serve on 127.0.0.1:{port}: address already in use")
