"""How long until the first NodeClaim exists, from the closing of the batch that asks for it.

    python -m benchmarks.firstclaim [--smoke] [--pods 1 500] [--kinds generic diverse] [--runs 3] [--profile]

The operator runs whole, against the embedded API server in this process (no sockets, no scheduler or
kubelets), with its own clock, its solver in its thread and `--solve-budget` at its default. Pods are refused
by nobody's scheduler: their condition is written for them. EC2's c, m and r types; one pod before each run
lets the operator compile the catalogue, as in a cluster that has run for a minute.

`closed to first` is the figure asked for; `to last` until all claims of the batch exist; `solve` is the
solver's part of it, by its own metric; the CPU columns are the processor time of the solver's thread, and of
the loop's until the first claim, API server included: on a machine with other work, these are what compares.
"""

import argparse
import asyncio
import cProfile
import gc
import logging
import pstats
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import structlog
from benchmarks.workloads import diverse, generic
from msgspec.structs import replace

from karpenter.apis.core import Namespace, Node, Pod, PodStatus
from karpenter.apis.crds import load_crds
from karpenter.apis.meta import ObjectMeta
from karpenter.base.clock import SystemClock
from karpenter.base.randomness import seeded
from karpenter.cli.manifests import Document
from karpenter.cli.up.applying import apply_manifests
from karpenter.controllers.provisioning.batcher import Batcher
from karpenter.embedded.cluster import EmbeddedCluster
from karpenter.kube.client import Client
from karpenter.kube.patch import merge
from karpenter.kube.transport import JSON, Response, Transport
from karpenter.operator.assembly import Operator
from karpenter.operator.options import parse_options
from karpenter.runtime import ThreadExecutor
from karpenter.testing.manifests import node_class, pool

_KINDS = {"generic": generic, "diverse": diverse}
_WAITING = merge(
    {"status": {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]}}
)
T = TypeVar("T")
_CLAIMS = "/nodeclaims"
_TYPES = [
    {"key": "karpenter.k8s.aws/instance-category", "operator": "In", "values": ["c", "m", "r"]},
    {"key": "karpenter.k8s.aws/instance-generation", "operator": "Gt", "values": ["2"]},
    {"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]},
    {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]},
]


class Moments:
    """When what happened, in seconds of the wall's and of the process's clock."""

    def __init__(self) -> None:
        self.closed = (0.0, 0.0)
        self.claims: list[tuple[float, float]] = []
        self.waits = asyncio.Event()
        self.profile: cProfile.Profile | None = None

    @staticmethod
    def now() -> tuple[float, float]:
        return time.perf_counter(), time.thread_time()


class TimedTransport:
    """The embedded API server, with a note of every NodeClaim that it answers to have created."""

    def __init__(self, inner: Transport, moments: Moments) -> None:
        self._inner, self._moments = inner, moments

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = JSON,
        accept: str = JSON,
    ) -> Response:
        """See `Transport`."""
        answer = await self._inner.request(
            method, path, query=query, body=body, content_type=content_type, accept=accept
        )
        if method == "POST" and path.endswith(_CLAIMS):
            self._moments.claims.append(Moments.now())
            if self._moments.profile is not None:
                self._moments.profile.disable()
        return answer

    def watch(self, path: str, *, query: Mapping[str, str] | None = None) -> AsyncGenerator[bytes, None]:
        """See `Transport`."""
        return self._inner.watch(path, query=query)

    async def close(self) -> None:
        """See `Transport`."""
        await self._inner.close()


class TimedExecutor:
    """The operator's executor, with a note of the processor time that solving took."""

    def __init__(self) -> None:
        self._inner = ThreadExecutor()
        self.seconds: list[float] = []

    async def run(self, function: Callable[..., T], *arguments: Any) -> T:
        """See `ThreadExecutor`."""

        def timed() -> T:
            started = time.thread_time()
            try:
                return function(*arguments)
            finally:
                self.seconds.append(time.thread_time() - started)

        return await self._inner.run(timed)

    def aside(self) -> ThreadExecutor:
        """See `ThreadExecutor`; what runs there is not noted."""
        return self._inner.aside()


class Row(NamedTuple):
    """One measurement; seconds."""

    kind: str
    pods: int
    claims: int
    first: float
    last: float
    solve: float
    solver_cpu: float
    loop_cpu: float


async def measure(kind: str, count: int, profile: cProfile.Profile | None) -> Row:
    """Run one operator on one batch of `count` pods."""
    clock, moments, executor = SystemClock(), Moments(), TimedExecutor()
    kubernetes = EmbeddedCluster(clock=clock, rng=seeded(1), crds=load_crds())
    transport = TimedTransport(kubernetes.transport(), moments)
    options = parse_options(["--batch-max-duration=300s", f"--batch-idle-duration={1 + count // 5000}s"], {})
    operator = Operator(
        transport,
        options,
        clock=clock,
        rng=seeded(2),
        executor=executor,
        provider_settings={"instance-catalogue": "ec2"},
        identity="karpenter-0",
    )
    client = Client(kubernetes.transport())
    plain_wait = Batcher.wait

    async def timed_wait(batcher: Batcher, on_lull: Callable[[], None] = lambda: None) -> None:
        await plain_wait(batcher, on_lull)
        moments.closed = Moments.now()
        if moments.profile is not None:
            moments.profile.enable()

    Batcher.wait = timed_wait  # type: ignore[method-assign, assignment]
    for name in ("default", "kube-system"):
        await client.create(Namespace(metadata=ObjectMeta(name=name)))
    running = asyncio.create_task(operator.run())
    try:
        manifests = [
            Document("kwoknodeclasses", node_class(delay="0s")),
            Document("nodepools", pool(requirements=_TYPES)),
        ]
        await apply_manifests(client.transport, manifests)
        await _create(client, generic(1, name="warm"))
        while not (nodes := await client.list(Node)):
            await asyncio.sleep(0.1)
        await client.patch(Node, nodes[0].name, merge({"spec": {"unschedulable": True}}))
        await client.delete(Pod, "warm-00000-0", namespace="default")
        await asyncio.sleep(2.0)
        moments.claims.clear()
        executor.seconds.clear()
        before = _solve_seconds(operator)
        moments.profile = profile
        await _create(client, _KINDS[kind](count))
        while not moments.claims or time.perf_counter() - moments.claims[-1][0] < 1.0:
            await asyncio.sleep(0.2)
    finally:
        Batcher.wait = plain_wait  # type: ignore[method-assign]
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        kubernetes.close()
    first, last = moments.claims[0], moments.claims[-1]
    return Row(
        kind,
        count,
        len(moments.claims),
        first[0] - moments.closed[0],
        last[0] - moments.closed[0],
        _solve_seconds(operator) - before,
        max(executor.seconds),
        first[1] - moments.closed[1],
    )


def _solve_seconds(operator: Operator) -> float:
    name = "karpenter_scheduler_scheduling_duration_seconds_sum"
    return sum(
        sample.value
        for family in operator.metrics.registry.collect()
        for sample in family.samples
        if sample.name == name
    )


async def _create(client: Client, pods: Sequence[Pod]) -> None:
    for number, pod in enumerate(pods):
        meta = ObjectMeta(name=f"{pod.name}-{number}", namespace="default", labels=pod.metadata.labels)
        stored = await client.create(replace(pod, metadata=meta, status=PodStatus()))
        await client.patch(Pod, stored.name, _WAITING, namespace="default", subresource="status")
        await asyncio.sleep(0)


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pods", type=int, nargs="+", default=[1, 500, 5000, 50000])
    parser.add_argument("--kinds", nargs="+", default=["generic", "diverse"], choices=sorted(_KINDS))
    parser.add_argument("--runs", type=int, default=3, help="the best is printed")
    parser.add_argument("--profile", action="store_true", help="the loop, until the first claim")
    parser.add_argument("--smoke", action="store_true", help="few pods, once")
    arguments = parser.parse_args()
    if arguments.smoke:
        arguments.pods, arguments.runs = [1, 50], 1
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    print("| pods | kind | claims | closed to first s | to last s | solve s | solver CPU s | loop CPU s |")
    print("|---|---|---|---|---|---|---|---|")
    for kind in arguments.kinds:
        for count in arguments.pods:
            rows = []
            for _ in range(arguments.runs if count <= 5000 else 1):
                profile = cProfile.Profile() if arguments.profile else None
                rows.append(asyncio.run(measure(kind, count, profile)))
                gc.collect()
                if profile is not None:
                    pstats.Stats(profile).sort_stats("cumulative").print_stats(45)
            best = min(rows, key=lambda row: row.first)
            print(
                f"| {count} | {kind} | {best.claims} | {best.first:.3f} | {best.last:.3f} "
                f"| {best.solve:.3f} | {best.solver_cpu:.3f} | {best.loop_cpu:.3f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
