"""`karpenter up --state`, killed with SIGKILL at random moments: nothing is lost, nothing doubled."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from karpenter.apis.conditions import is_true
from karpenter.apis.core import Node, Pod
from karpenter.apis.karpenter import NodeClaim
from karpenter.apis.workloads import Deployment
from karpenter.base.clock import SystemClock
from karpenter.base.randomness import seeded
from karpenter.kube.client import Client
from karpenter.kube.config import ConfigError, load_config
from karpenter.kube.errors import ApiError
from karpenter.kube.http import HttpTransport
from karpenter.kube.patch import merge
from karpenter.kube.transport import TransportError

pytestmark = pytest.mark.slow

KILLS = 20
SEED = int(os.environ.get("KARPENTER_SEED", "7"))


class Up:
    """A `karpenter up` in a process of its own, that can be killed and started again."""

    def __init__(self, folder: Path) -> None:
        self.kubeconfig = folder / "kubeconfig"
        self._log = folder / "up.log"
        self._command = [
            *(sys.executable, "-m", "karpenter", "up", "--plain"),
            *("--state", str(folder / "cluster.db"), "--kubeconfig", str(self.kubeconfig)),
        ]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self.kubeconfig.unlink(missing_ok=True)
        with self._log.open("ab") as log:  # the child keeps its own handle
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log)

    def kill(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    async def client(self) -> Client:
        """Wait until the API answers, and return a client of it."""
        for _ in range(300):
            assert self.running(), "karpenter up ended by itself"
            try:
                config = load_config(str(self.kubeconfig), environ={})
                client = Client(HttpTransport(config, clock=SystemClock()))
                await client.list(NodeClaim)
            except (ConfigError, TransportError, ApiError, OSError):
                await asyncio.sleep(0.1)
            else:
                return client
        raise AssertionError("the API did not come up within 30 s")


async def _scale(client: Client, replicas: int) -> None:
    await client.patch(Deployment, "scaleup", merge({"spec": {"replicas": replicas}}), namespace="default")


async def _trouble(client: Client, replicas: int) -> str:
    """Return what is not yet as it should be with `replicas` pods; empty when all is."""
    pods = [p for p in await client.list(Pod, "default") if not p.deleting]
    nodes, claims = await client.list(Node), await client.list(NodeClaim)
    ready = [p for p in pods if is_true(p.status.conditions, "Ready")]
    if len(pods) != replicas or len(ready) != replicas:
        return f"{len(pods)} pods, {len(ready)} ready, want {replicas}"
    ids = Counter(c.status.provider_id for c in claims)
    if any(count > 1 for count in ids.values()):
        return f"a machine has two claims: {ids}"
    if sorted(ids) != sorted(n.spec.provider_id for n in nodes):
        return f"claims {sorted(ids)} do not match nodes {sorted(n.spec.provider_id for n in nodes)}"
    used = {p.spec.node_name for p in pods}
    idle = sorted(n.name for n in nodes if n.name not in used)
    return f"empty nodes: {idle}" if idle else ""


async def _until_well(client: Client, replicas: int, seconds: float = 120.0) -> None:
    deadline = time.monotonic() + seconds
    trouble = "not looked"
    while time.monotonic() < deadline:
        trouble = await _trouble(client, replicas)
        if not trouble:
            return
        await asyncio.sleep(0.5)
    raise AssertionError(f"still after {seconds:.0f} s: {trouble}")


def test_twenty_kills_in_the_middle_of_scaling_lose_and_double_nothing(tmp_path: Path) -> None:
    """Killed 20 times while pods come and go, it goes on each time and ends as asked."""

    async def scenario() -> None:
        rng, up = seeded(SEED), Up(tmp_path)
        print(f"seed {SEED} (KARPENTER_SEED=… to repeat)")
        for number in range(KILLS):
            up.start()
            client = await up.client()
            await _scale(client, rng.choice([5, 20, 40, 60]))
            await asyncio.sleep(rng.uniform(0.0, 4.0))
            up.kill()
            await client.transport.close()
            print(f"kill {number + 1} of {KILLS}")
        up.start()
        client = await up.client()
        try:
            await _scale(client, 30)
            await _until_well(client, 30)
            await _scale(client, 0)
            await _until_well(client, 0)
            assert await client.list(NodeClaim) == []
        finally:
            up.kill()
            await client.transport.close()

    asyncio.run(scenario())
