"""The whole operator over a whole embedded cluster, under virtual time, with a watchdog on every write.

async def scenario() -> None:
    async with world() as w:
        await w.apply(TUTORIAL)
        await w.scale("scaleup", 30)
        await w.until_settled()

run_virtual(scenario())

Assembled as `karpenter up` does it; what differs is the clock, the steps instead of seconds the solver may
take, and that the operator can be killed and its connection be made a bad one.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import yaml

from karpenter.apis import conditions
from karpenter.apis.core import Event, Node, Pod
from karpenter.apis.crds import load_crds
from karpenter.apis.karpenter import NodeClaim
from karpenter.apis.workloads import Deployment
from karpenter.base.clock import LoopClock
from karpenter.base.randomness import seeded
from karpenter.cloudprovider import CloudProvider, ProviderContext
from karpenter.embedded.apiserver import ApiServer
from karpenter.embedded.cluster import EmbeddedCluster
from karpenter.embedded.controllers.stages import KubeletLatencies
from karpenter.embedded.inprocess import InProcessTransport
from karpenter.embedded.store import Journal
from karpenter.kube.client import Client
from karpenter.kube.errors import error_of
from karpenter.kube.patch import apply, merge
from karpenter.kube.transport import JSON, Response
from karpenter.model import pods as podlib
from karpenter.model.problem import Budget
from karpenter.operator.assembly import Operator
from karpenter.operator.options import parse_options
from karpenter.runtime import InlineExecutor
from karpenter.runtime.leader import LeadershipLost
from karpenter.testing.fakeprovider import FakeCloud, FakeProvider
from karpenter.testing.faults import Faults, FaultyTransport
from karpenter.testing.watchdog import Watchdog

RESTART_SECONDS = 1.0
"""From the end of an operator's process until the next one starts, when nobody killed it."""


class OperatorTransport(InProcessTransport):
    """The operator's own way to the API server: while it carries a request out, `busy` is set."""

    def __init__(self, server: ApiServer, clock: LoopClock) -> None:
        super().__init__(server)
        self.busy = False
        self._clock = clock

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
        await self._clock.sleep(0)
        headers = {"content-type": content_type, "accept": accept, "user-agent": "karpenter"}
        self.busy = True
        try:
            return self._server.handle(method, path, query, headers, body or b"")
        finally:
            self.busy = False


class World:
    """What a scenario holds on to."""

    def __init__(
        self,
        *,
        seed: int | str = 1,
        cloud: FakeCloud | None = None,
        arguments: tuple[str, ...] = (),
        catalogue: str = "generic",
        types_file: str = "",
        steps: int = 50,
        latencies: KubeletLatencies | None = None,
        watched: bool = True,
    ) -> None:
        self.clock = LoopClock()
        self.cloud = cloud
        self.faults = Faults()
        self.kubernetes = EmbeddedCluster(
            clock=self.clock, rng=seeded(f"{seed}/cluster"), crds=load_crds(), latencies=latencies
        )
        self.store = self.kubernetes.server.store
        self.watchdog = Watchdog(self.clock.now)
        if watched:  # it looks at every write, and remembers each
            self.store.journal = self.watchdog.take
        self.client = Client(self.kubernetes.transport(), field_manager="user")
        self.runs = 0
        """How many operators there have been."""
        self.may_delete_pods = False
        """Whether a deadline or a repair allows the operator to delete pods around the Eviction API."""
        self._seed = seed
        self._options = parse_options(arguments, {})
        self._settings = {"instance-catalogue": catalogue}
        if types_file:
            self._settings["instance-types-file-path"] = types_file
        self._budget = Budget(steps=steps)
        self._task: asyncio.Task[None] | None = None
        self._transports: list[FaultyTransport] = []
        self._doors: list[OperatorTransport] = []

    # --- the operator's life ------------------------------------------------------------------------------

    async def start_operator(self) -> None:
        """Start a new operator that remembers nothing, and one more whenever it ends by itself."""
        self._task = asyncio.create_task(self._run_operator(), name="operator")
        await self.clock.sleep(0)

    async def kill_operator(self, *, graceful: bool = False) -> None:
        """Stop the operator wherever it is; unless `graceful`, its last words do not get through."""
        assert self._task is not None
        if not graceful:
            self.transport.cut()
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self._task = None

    async def kill_operator_after(self, writes: int, *, within: float = 60.0) -> bool:
        """Kill the operator right after so many more writes, before it hears of the last one's success.

        Returns whether there were so many within some seconds.
        """
        transport, reached = self.transport, asyncio.Event()
        target = self.watchdog.writes.total() + writes

        def count(_: Journal) -> None:
            if self.watchdog.writes.total() + 1 >= target:
                transport.cut()
                reached.set()

        self.watchdog.then = count
        try:
            async with asyncio.timeout(within):
                await reached.wait()
        except TimeoutError:
            return False
        finally:
            self.watchdog.then = None
        await self.kill_operator()
        return True

    async def restart_operator(self, *, graceful: bool = False) -> None:
        """Kill the operator and start the next."""
        await self.kill_operator(graceful=graceful)
        await self.start_operator()

    async def _run_operator(self) -> None:
        while True:
            operator = self._new_operator()
            try:
                await operator.run()
            except* LeadershipLost:
                self.transport.cut()
            await self.clock.sleep(RESTART_SECONDS)

    def _new_operator(self) -> Operator:
        self.runs += 1
        own = f"{self._seed}/operator/{self.runs}"
        door = OperatorTransport(self.kubernetes.server, self.clock)
        self._doors.append(door)
        self.transport = FaultyTransport(door, self.faults, clock=self.clock, rng=seeded(f"{own}/faults"))
        self._transports.append(self.transport)
        cloud = self.cloud

        def fake(context: ProviderContext) -> CloudProvider:
            return FakeProvider.of(context, cloud)  # type: ignore[arg-type]

        self.operator = Operator(
            self.transport,
            self._options,
            clock=self.clock,
            rng=seeded(own),
            executor=InlineExecutor(),
            provider_settings=self._settings,
            identity="karpenter-0",
            solve_budget=self._budget,
            provider=fake if cloud is not None else None,
        )
        return self.operator

    def is_operators(self) -> bool:
        """Tell whether the write that is being carried out now is an operator's."""
        return any(door.busy for door in self._doors)

    # --- what users do ------------------------------------------------------------------------------------

    async def apply(self, manifests: str | Mapping[str, Any] | list[dict[str, Any]]) -> None:
        """Apply YAML text, or raw objects, as `kubectl apply --server-side` would."""
        if isinstance(manifests, str):
            manifests = [document for document in yaml.safe_load_all(manifests) if document]
        for obj in [manifests] if isinstance(manifests, Mapping) else manifests:
            patch = apply(dict(obj), field_manager="user", force=True)
            response = await self.client.transport.request(
                "PATCH",
                self._path(obj),
                query={"fieldManager": "user", "force": "true"},
                body=patch.encode(),
                content_type=patch.content_type,
            )
            if response.status >= 400:
                raise error_of(response.status, response.body)

    def _path(self, obj: Mapping[str, Any]) -> str:
        for kind in self.kubernetes.server.registry.all():
            if (kind.api_version, kind.kind) == (obj["apiVersion"], obj["kind"]):
                metadata = obj["metadata"]
                root = f"/apis/{kind.api_version}" if kind.group else f"/api/{kind.version}"
                scope = f"/namespaces/{metadata.get('namespace', 'default')}" if kind.namespaced else ""
                return f"{root}{scope}/{kind.plural}/{metadata['name']}"
        raise KeyError(f"no kind {obj['kind']} in {obj['apiVersion']}")

    async def scale(self, name: str, replicas: int) -> None:
        """Scale a Deployment of namespace default."""
        await self.client.patch(
            Deployment, name, merge({"spec": {"replicas": replicas}}), namespace="default"
        )

    async def wait(self, seconds: float) -> None:
        """Let time pass."""
        await self.clock.sleep(seconds)

    # --- what is there ------------------------------------------------------------------------------------

    async def claims(self) -> list[NodeClaim]:
        """Return all NodeClaims."""
        return await self.client.list(NodeClaim)

    async def nodes(self) -> list[Node]:
        """Return all Nodes."""
        return await self.client.list(Node)

    async def pods(self, app: str = "") -> list[Pod]:
        """Return the pods of namespace default (with the label `app`)."""
        return await self.client.list(Pod, "default", label_selector=f"app={app}" if app else "")

    async def events(self, reason: str) -> list[Event]:
        """Return events with a reason."""
        return [event for event in await self.client.list(Event) if event.reason == reason]

    async def trouble(self) -> str:
        """Return what is not yet as it should be in a calm cluster; empty when all is."""
        pods, nodes, claims = await self.pods(), await self.nodes(), await self.claims()
        waiting = [p.name for p in pods if p.deleting or not conditions.is_true(p.status.conditions, "Ready")]
        if waiting:
            return f"pods do not run: {waiting[:5]} ({len(waiting)})"
        if sorted(c.status.node_name for c in claims) != [n.name for n in nodes]:
            return f"claims {sorted(c.name for c in claims)} do not match nodes {[n.name for n in nodes]}"
        young = [
            c.name for c in claims if c.deleting or not conditions.is_true(c.status.conditions, "Initialized")
        ]
        if young:
            return f"claims come or go: {young}"
        busy = {p.spec.node_name for p in pods if not podlib.is_daemon(p)}
        idle = [n.name for n in nodes if n.name not in busy]
        return f"empty nodes: {idle}" if idle else ""

    # --- expectations -------------------------------------------------------------------------------------

    async def until(self, what: str, holds: Callable[[], Awaitable[bool]], *, within: float = 120.0) -> float:
        """Wait until `holds`, looked at every half second; return how many seconds that took.

        Raises:
            AssertionError: saying `what` did not come about, or what must never be.
        """
        started = self.clock.now()
        while not await holds():
            self.check()
            if self.clock.now() - started >= within:
                raise AssertionError(
                    f"within {within:g} s it did not come about that {what}: {await self.trouble()}"
                )
            await self.clock.sleep(0.5)
        return self.clock.now() - started

    async def until_settled(self, *, within: float = 300.0) -> float:
        """Wait until all pods run, and no machine comes, goes or is empty; return the seconds it took."""

        async def calm() -> bool:
            if await self.trouble():
                return False
            await self.clock.sleep(0.5)  # controllers have had their say
            return not await self.trouble()

        return await self.until("the cluster is calm", calm, within=within)

    async def until_replicas(self, name: str, replicas: int, *, within: float = 300.0) -> float:
        """Wait until a Deployment has exactly so many pods, all ready, and the cluster is calm."""

        async def there() -> bool:
            return len(await self.pods(name)) == replicas and not await self.trouble()

        return await self.until(f"{name} has {replicas} ready pods", there, within=within)

    def check(self) -> None:
        """Fail if anything ever was that must never be, or the operator has ended."""
        assert not self.watchdog.violations, "\n".join(self.watchdog.violations)
        around = [
            path
            for transport in self._transports
            for method, path in transport.carried
            if method == "DELETE" and "/pods/" in path
        ]
        assert self.may_delete_pods or not around, f"pods were deleted around the Eviction API: {around}"
        if self._task is not None and self._task.done():
            self._task.result()
            raise AssertionError("the operator has ended")


@asynccontextmanager
async def world(*, start: bool = True, **options: Any) -> AsyncIterator[World]:
    """Run a `World` (its arguments as keywords) for the length of the block, on a virtual loop."""
    w = World(**options)
    running = asyncio.create_task(w.kubernetes.run(), name="kubernetes")
    try:
        await w.kubernetes.ready.wait()
        if start:
            await w.start_operator()
        yield w
        w.check()
    finally:
        if w._task is not None:
            await w.kill_operator()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        w.kubernetes.close()
