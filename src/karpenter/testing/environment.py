"""An operator over an embedded cluster and a fake cloud, under virtual time, with words for expectations.

async def scenario() -> None:
    async with environment() as env:
        await env.create(a_nodepool())
        pods = await env.create_all(some_pods(5))
        await env.expect_scheduled(pods)

run_virtual(scenario())
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Sequence
from contextlib import asynccontextmanager
from types import ModuleType
from typing import Any, TypeVar

from msgspec.structs import replace

from karpenter.apis.core import Event, Node, Pod, PodStatus
from karpenter.apis.crds import load_crds
from karpenter.apis.karpenter import NodeClaim, NodePool
from karpenter.apis.meta import KubeObject
from karpenter.base.clock import Clock, LoopClock
from karpenter.base.metrics import Metrics
from karpenter.base.randomness import seeded
from karpenter.cloudprovider import CloudProvider
from karpenter.cloudprovider.overlaid import OverlaidProvider
from karpenter.cloudprovider.overlaystore import OverlayStore
from karpenter.controllers import nodeclaim, nodepool, provisioning
from karpenter.controllers.context import Context, Settings
from karpenter.embedded.cluster import EmbeddedCluster
from karpenter.kube.client import Client
from karpenter.kube.features import discover
from karpenter.kube.informer import Cache
from karpenter.kube.patch import merge
from karpenter.kube.transport import Transport
from karpenter.providers.kwok.nodeclass import KwokNodeClass
from karpenter.runtime import InlineExecutor, Recorder
from karpenter.state.cluster import Cluster
from karpenter.testing.builders import NODE_CLASS
from karpenter.testing.fakeprovider import FakeCloud, FakeProvider

K = TypeVar("K", bound=KubeObject)

ROOMS: tuple[ModuleType, ...] = (provisioning, nodeclaim, nodepool)
"""What runs unless a test names other rooms."""


class OperatorUnderTest:
    """One run of the operator; stopping it mid-way is what a crash is."""

    def __init__(
        self,
        transport: Transport,
        cloud: FakeCloud,
        *,
        clock: Clock,
        seed: int | str,
        rooms: Sequence[ModuleType],
        settings: Settings,
    ) -> None:
        rng = seeded(seed)
        self.metrics = Metrics()
        self.client = Client(transport)
        self.cache = Cache(self.client, clock=clock, rng=rng, metrics=self.metrics)
        overlays = OverlayStore() if settings.feature_gates.get("NodeOverlay") else None
        fake = FakeProvider(cloud, self.client, clock, overlays)
        self.provider: CloudProvider = fake
        if overlays is not None:
            self.provider = OverlaidProvider(fake, overlays)
        self.recorder = Recorder(self.client, clock=clock, rng=rng)
        self.cluster = Cluster(
            self.cache,
            clock=clock,
            provider=self.provider,
            batch_max_duration=settings.batch_max_seconds,
            default_spread=settings.default_spread,
        )
        self.context = Context(
            client=self.client,
            cache=self.cache,
            cluster=self.cluster,
            provider=self.provider,
            clock=clock,
            rng=rng,
            metrics=self.metrics,
            recorder=self.recorder,
            executor=InlineExecutor(),
            settings=settings,
        )
        self.controllers = [c for room in rooms for c in room.build(self.context)]
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start it and wait until its caches are filled."""
        self._task = asyncio.create_task(self._run())
        await self.cache.wait_synced()

    async def kill(self) -> None:
        """Stop it wherever it is."""
        assert self._task is not None
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.cache.run())
            tasks.create_task(self.recorder.run())
            await self.cache.wait_synced()
            self.context.server.features = await discover(self.client)
            tasks.create_task(self.provider.run())
            for controller in self.controllers:
                tasks.create_task(controller.run())


class Environment:
    """What a test holds on to."""

    def __init__(
        self,
        *,
        cloud: FakeCloud | None = None,
        rooms: Sequence[ModuleType] = ROOMS,
        settings: Settings | None = None,
        seed: int = 1,
        transport: Callable[[Transport], Transport] = lambda t: t,
    ) -> None:
        self.clock = LoopClock()
        self.cloud = cloud or FakeCloud()
        self.kubernetes = EmbeddedCluster(clock=self.clock, rng=seeded(seed), crds=load_crds())
        self.client = Client(self.kubernetes.transport(), field_manager="test")
        self._rooms, self._settings, self._seed = rooms, settings or Settings(), seed
        self._wrap = transport
        self.may_crash = False
        """Whether the test makes a reconcile end in an error that nobody foresaw."""
        self._runs = 0
        self.operator = self._new_operator()

    def _new_operator(self) -> OperatorUnderTest:
        self._runs += 1
        return OperatorUnderTest(
            self._wrap(self.kubernetes.transport()),
            self.cloud,
            clock=self.clock,
            seed=f"{self._seed}/{self._runs}",
            rooms=self._rooms,
            settings=self._settings,
        )

    @property
    def cluster(self) -> Cluster:
        return self.operator.cluster

    async def start(self) -> None:
        """Create the default node class, ready, and start the operator."""
        name = NODE_CLASS.name
        await self.create(KwokNodeClass(metadata=replace(KwokNodeClass().metadata, name=name)))
        await self.client.patch(KwokNodeClass, name, merge(_READY), subresource="status")
        await self.operator.start()

    async def restart(self) -> None:
        """Kill the operator where it is and start a new one that remembers nothing."""
        await self.operator.kill()
        self.operator = self._new_operator()
        await self.operator.start()

    async def wait(self, seconds: float) -> None:
        """Let time pass."""
        await self.clock.sleep(seconds)

    async def create(self, obj: K) -> K:
        """Create one object as a user would; a pod's status is left to the scheduler."""
        meta = replace(obj.metadata, uid="", resource_version="", generation=0, creation_timestamp=None)
        obj = replace(obj, metadata=meta)
        if isinstance(obj, Pod):
            obj = replace(obj, status=PodStatus())
        if isinstance(obj, NodePool):
            obj = replace(obj, status=NodePool().status)
        return await self.client.create(obj)

    async def create_all(self, objects: Iterable[K]) -> list[K]:
        """Create several objects, in order."""
        return [await self.create(obj) for obj in objects]

    async def claims(self) -> list[NodeClaim]:
        """Return all NodeClaims as the API server has them."""
        return await self.client.list(NodeClaim)

    async def nodes(self) -> list[Node]:
        """Return all Nodes as the API server has them."""
        return await self.client.list(Node)

    async def events(self, reason: str) -> list[Event]:
        """Return the operator's events with a reason."""
        events = await self.client.list(Event)
        return [e for e in events if e.reason == reason and e.source.component == "karpenter"]

    def metric(self, name: str, /, **labels: str) -> float:
        """Return one sample of the operator's metrics; 0 when it was never touched."""
        return self.operator.metrics.registry.get_sample_value(name, labels) or 0.0

    def check(self) -> None:
        """Fail if a reconcile of the present operator ended in an error that nobody foresaw."""
        families = self.operator.metrics.registry.collect()
        panics = "controller_runtime_reconcile_panics_total"
        crashed = {
            sample.labels["controller"]: sample.value
            for family in families
            for sample in family.samples
            if sample.name == panics and sample.value
        }
        assert self.may_crash or not crashed, f"reconciles crashed, see the log: {crashed}"

    # --- expectations -------------------------------------------------------------------------------------

    async def expect(
        self, what: str, holds: Callable[[], Coroutine[Any, Any, bool]], *, within: float = 60.0
    ) -> None:
        """Fail unless `holds` does within some seconds; looked at every half second.

        Raises:
            AssertionError: saying `what` did not come about.
        """
        deadline = self.clock.now() + within
        while not await holds():
            if self.clock.now() >= deadline:
                raise AssertionError(f"within {within:g} s it did not come about that {what}")
            await self.clock.sleep(0.5)

    async def expect_scheduled(self, pods: Iterable[Pod], *, within: float = 60.0) -> None:
        """Every pod gets a node."""
        wanted = {pod.key for pod in pods}

        async def holds() -> bool:
            bound = {pod.key for pod in await self.client.list(Pod) if pod.spec.node_name}
            return wanted <= bound

        await self.expect(f"all of {len(wanted)} pods are bound", holds, within=within)

    async def expect_not_scheduled(self, pods: Iterable[Pod], *, after: float = 30.0) -> None:
        """No pod has a node after some seconds."""
        await self.wait(after)
        wanted = {pod.key for pod in pods}
        bound = [pod.key for pod in await self.client.list(Pod) if pod.key in wanted and pod.spec.node_name]
        assert not bound, f"bound after {after:g} s: {bound}"

    async def expect_claims(self, count: int, *, within: float = 60.0) -> list[NodeClaim]:
        """There are `count` NodeClaims; return them."""

        async def holds() -> bool:
            return len(await self.claims()) == count

        await self.expect(f"there are {count} NodeClaims", holds, within=within)
        return await self.claims()

    async def expect_condition(
        self, claim: str, type: str, status: str = "True", *, within: float = 60.0
    ) -> NodeClaim:
        """A NodeClaim has a condition; return it."""

        async def holds() -> bool:
            found = await self.client.get(NodeClaim, claim)
            return any(c.type == type and c.status == status for c in found.status.conditions)

        await self.expect(f"NodeClaim {claim} has {type}={status}", holds, within=within)
        return await self.client.get(NodeClaim, claim)

    async def expect_provisioned(self, pods: Sequence[Pod], *, claims: int, within: float = 60.0) -> None:
        """Every pod gets a node, and exactly so many machines were ever bought."""
        await self.expect_scheduled(pods, within=within)
        bought = len(self.cloud.created)
        assert bought == claims, f"{bought} machines were launched, want {claims}"

    async def expect_event(self, reason: str, *, within: float = 30.0) -> Event:
        """An event with this reason is published; return the first."""

        async def holds() -> bool:
            return bool(await self.events(reason))

        await self.expect(f"there is an event {reason}", holds, within=within)
        return (await self.events(reason))[0]


_READY = {
    "status": {
        "conditions": [
            {
                "type": "Ready",
                "status": "True",
                "reason": "Ready",
                "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }
        ]
    }
}


@asynccontextmanager
async def environment(**options: Any) -> AsyncIterator[Environment]:
    """Run an `Environment` (its arguments as keywords) for the length of the block, on a virtual loop."""
    env = Environment(**options)
    running = asyncio.create_task(env.kubernetes.run())
    try:
        await env.kubernetes.ready.wait()
        await env.start()
        yield env
        env.check()
    finally:
        await env.operator.kill()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        env.kubernetes.close()
