"""How fast the embedded API server is: writes, lists, watches, and what persistence costs.

python benchmarks/store.py [--pods 5000] [--smoke]
"""

import asyncio
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
from benchmarks.list_decode import pods_asked_for

from karpenter.base.clock import SystemClock
from karpenter.base.randomness import seeded
from karpenter.embedded.apiserver import ApiServer
from karpenter.embedded.inprocess import InProcessTransport
from karpenter.embedded.persistence import StateFile
from karpenter.embedded.store import Store

JSON = {"content-type": "application/json", "user-agent": "bench"}
MERGE = {"content-type": "application/merge-patch+json", "user-agent": "bench"}
WATCHERS = 20


def a_pod(index: int) -> bytes:
    """Return a pod of about 3 kB as stored."""
    env = [{"name": f"SETTING_{n}", "value": f"value-{n}-of-a-typical-length"} for n in range(24)]
    resources = {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "256Mi"}}
    container = {"name": "app", "image": "registry.example/app:1.2.3", "env": env, "resources": resources}
    labels = {"app": f"app-{index % 50}", "pod-template-hash": "5d4f8c7b9"}
    meta = {"name": f"app-{index % 50}-{index:06d}", "labels": labels}
    return msgspec.json.encode({"metadata": meta, "spec": {"containers": [container]}})


def a_server() -> ApiServer:
    """Return a server with the default namespace."""
    server = ApiServer(Store(SystemClock(), seeded(1)))
    server.handle("POST", "/api/v1/namespaces", {}, JSON, b'{"metadata":{"name":"default"}}')
    return server


def report(name: str, count: int, seconds: float) -> None:
    each = f"{count / seconds:10.0f}/s  {seconds / count * 1e6:8.1f} us"
    print(f"{name:46s} {count:7d}  {seconds * 1000:9.1f} ms  {each}")


def timed(name: str, count: int, work: Callable[[], object]) -> None:
    started = time.perf_counter()
    work()
    report(name, count, time.perf_counter() - started)


def writes(server: ApiServer, bodies: list[bytes], label: str) -> None:
    pods = "/api/v1/namespaces/default/pods"

    def create() -> None:
        for body in bodies:
            assert server.handle("POST", pods, {}, JSON, body).status == 201

    timed(f"create pods {label}", len(bodies), create)
    patch = b'{"metadata":{"annotations":{"note":"patched"}}}'

    def patch_all() -> None:
        for index in range(len(bodies)):
            path = f"{pods}/app-{index % 50}-{index:06d}"
            assert server.handle("PATCH", path, {}, MERGE, patch).status == 200

    timed(f"merge patch pods {label}", len(bodies), patch_all)


async def fan_out(server: ApiServer, count: int) -> None:
    """Watch from the start with many watchers and read every event."""
    transport = InProcessTransport(server)

    async def watch() -> int:
        seen = size = 0
        async for event in transport.watch("/api/v1/pods", query={"resourceVersion": "2"}):
            seen += 1
            size += len(event)
            if seen == count:
                break
        return size

    started = time.perf_counter()
    await asyncio.gather(*(watch() for _ in range(WATCHERS)))
    report(f"watch events to {WATCHERS} watchers", count * WATCHERS, time.perf_counter() - started)


def main() -> None:
    """Print the table."""
    count = pods_asked_for(5_000)
    bodies = [a_pod(index) for index in range(count)]
    server = a_server()
    writes(server, bodies, "(memory)")
    size = len(server.handle("GET", "/api/v1/pods").body)
    print(f"list of {count} pods: {size / 1e6:.1f} MB, {size // count} bytes per pod")
    timed("list all pods", count, lambda: server.handle("GET", "/api/v1/pods"))
    timed(
        "list by label (one in 50)",
        count // 50,
        lambda: server.handle("GET", "/api/v1/pods", {"labelSelector": "app=app-7"}),
    )
    timed(
        "list as table",
        count,
        lambda: server.handle("GET", "/api/v1/pods", {}, {"accept": "application/json;as=Table"}),
    )
    asyncio.run(fan_out(server, count * 2))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "state.db"
        server, state = a_server(), StateFile(path)
        server.store.journal = state.record
        writes(server, bodies, "(SQLite)")
        state.close()
        fresh = ApiServer(Store(SystemClock(), seeded(2)))
        state = StateFile(path)
        timed("load state file", count, lambda: state.load(fresh.store, fresh.registry))
        state.close()


if __name__ == "__main__":
    main()
