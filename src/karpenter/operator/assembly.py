"""Puts the operator together and runs it, as one tree of tasks.

The same assembly serves a real cluster (HTTP transport, system clock), the embedded one, and tests under
virtual time: everything that differs is handed in.
"""

import asyncio
from collections.abc import Callable, Mapping

import structlog

from karpenter.apis.autoscaling import CapacityBuffer
from karpenter.apis.karpenter import NodeClaim, NodeOverlay, NodePool
from karpenter.apis.meta import KubeObject
from karpenter.base.clock import Clock
from karpenter.base.metrics import Metrics
from karpenter.base.randomness import Random, name_suffix
from karpenter.cloudprovider import CloudProvider, ProviderContext
from karpenter.cloudprovider.metered import MeteredProvider
from karpenter.cloudprovider.overlaid import OverlaidProvider
from karpenter.cloudprovider.overlaystore import OverlayStore
from karpenter.controllers import (
    capacitybuffer,
    disruption,
    metrics,
    node,
    nodeclaim,
    nodeoverlay,
    nodepool,
    provisioning,
    static,
)
from karpenter.controllers.context import Context, Settings
from karpenter.explain.answer import Problem
from karpenter.kube.client import Client, resource_of
from karpenter.kube.errors import ApiError
from karpenter.kube.features import discover
from karpenter.kube.informer import Cache
from karpenter.kube.transport import Transport, TransportError
from karpenter.model.problem import Budget
from karpenter.operator.options import Options
from karpenter.operator.providers import load_provider
from karpenter.operator.why import Why
from karpenter.runtime import Controller, Executor, LeaderElector, Recorder, Singleton
from karpenter.state.cluster import Cluster

log = structlog.get_logger()

_ROOMS = (provisioning, nodeclaim, node, nodepool, nodeoverlay, static, capacitybuffer, disruption, metrics)


class Operator:
    """The whole autoscaler over one API server."""

    def __init__(
        self,
        transport: Transport,
        options: Options,
        *,
        clock: Clock,
        rng: Random,
        executor: Executor,
        provider_settings: Mapping[str, str] | None = None,
        identity: str = "",
        namespace: str = "kube-system",
        solve_budget: Budget | None = None,
        provider: Callable[[ProviderContext], CloudProvider] | None = None,
    ) -> None:
        """Assemble, without starting anything.

        `namespace` is where the Lease lives unless an option says otherwise; `solve_budget` replaces
        `--solve-budget` where seconds mean nothing (virtual time); `provider` makes the cloud, instead of
        the installed one that the options name.

        Raises:
            OptionError: when the options name a provider that is not installed.
        """
        self.options = options
        self.metrics = Metrics()
        self.client = Client(transport)
        self.cache = Cache(self.client, clock=clock, rng=rng, metrics=self.metrics)
        self.recorder = Recorder(self.client, clock=clock, rng=rng)
        overlays = OverlayStore() if options.feature_gates.get("NodeOverlay") else None
        cloud = ProviderContext(
            client=self.client,
            cache=self.cache,
            clock=clock,
            rng=rng,
            metrics=self.metrics,
            settings=provider_settings or {},
            overlays=overlays,
        )
        inner = provider(cloud) if provider else load_provider(options.cloud_provider, cloud)
        metered = MeteredProvider(inner, clock=clock, metrics=self.metrics)
        self.provider: CloudProvider = metered
        if overlays is not None:
            self.provider = OverlaidProvider(metered, overlays)
        self.cluster = Cluster(
            self.cache,
            clock=clock,
            provider=self.provider,
            batch_max_duration=options.batch_max_duration,
            default_spread=options.scheduler_config,
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
            executor=executor,
            settings=settings_of(options, solve_budget),
        )
        self.controllers: list[Controller | Singleton] = [
            controller for room in _ROOMS for controller in room.build(self.context)
        ]
        self.why = Why(self.context, self._not_answering)
        self._leads = False
        self._elector = LeaderElector(
            self.client,
            clock=clock,
            rng=rng,
            identity=identity or f"karpenter-{name_suffix(rng, 8)}",
            name=options.leader_election_name,
            namespace=options.leader_election_namespace or namespace,
            metrics=self.metrics,
        )

    def readiness(self) -> dict[str, Callable[[], str]]:
        """Return the checks of /readyz."""
        return {
            "crd": self._missing_crds,
            "state": lambda: (
                ""
                if self.cluster.synced()
                else "the copy of the cluster is not whole yet"
                + "".join(f"; not listed: {kind}" for kind in self.cache.unsynced()[:5])
            ),
        }

    async def run(self) -> None:
        """Run until cancelled; the Lease is released on the way out.

        Caches fill at once; controllers run only while we lead.
        """
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.cache.run(), name="cache")
            tasks.create_task(self.recorder.run(), name="recorder")
            await self.cache.wait_synced()
            log.info("caches are synced")
            if self.options.disable_leader_election:
                await self._lead()
            else:
                await self._elector.run(self._lead)

    async def _lead(self) -> None:
        await self._ask_server()
        log.info("starting controllers", controllers=len(self.controllers))
        self._leads = True
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self.provider.run(), name="provider")
                for controller in self.controllers:
                    tasks.create_task(controller.run(), name=controller.name)
        finally:
            self._leads = False

    def _not_answering(self) -> Problem | None:
        """Return why questions are not for this replica: others decide, or it has not read everything."""
        if not self.cluster.synced():
            return Problem(error="notReady", message="the copy of the cluster is not whole yet")
        if not self._leads:
            leader = self._elector.holder
            who = f"ask {leader}" if leader else "nobody leads right now"
            return Problem(error="notLeading", message=f"this replica does not lead: {who}", leader=leader)
        return None

    async def _ask_server(self) -> None:
        """Find out what the server can do; one that does not tell is taken for an old one."""
        try:
            self.context.server.features = await discover(self.client)
        except (ApiError, TransportError) as error:
            log.warning("could not find out what the server can do", error=str(error))

    def _missing_crds(self) -> str:
        gated: dict[str, type[KubeObject]] = {"NodeOverlay": NodeOverlay, "CapacityBuffer": CapacityBuffer}
        opened = [kind for gate, kind in gated.items() if self.options.feature_gates.get(gate)]
        needed: list[type[KubeObject]] = [NodePool, NodeClaim, *opened]
        missing = sorted(
            f"{resource_of(kind).plural}.{resource_of(kind).group}"
            for kind in needed
            if not self.cache.informer(kind).synced
        )
        return f"the API server does not serve (yet): {', '.join(missing)}" if missing else ""


_CONSOLIDATION_STEPS = 1000
"""Of one search for cheaper nodes, where seconds mean nothing."""


def settings_of(options: Options, solve_budget: Budget | None = None) -> Settings:
    """Return what controllers need to know of the options."""
    return Settings(
        batch_max_seconds=options.batch_max_duration,
        batch_idle_seconds=options.batch_idle_duration,
        preference_policy=options.preference_policy,
        min_values_policy=options.min_values_policy,
        feature_gates=options.feature_gates,
        cpu_requests_milli=options.cpu_requests,
        solve_budget=solve_budget or Budget(seconds=options.solve_budget),
        consolidation_search=options.consolidation_search,
        restart_cost_seconds=options.consolidation_restart_cost,
        payback_seconds=options.consolidation_payback,
        consolidation_budget=(
            Budget(steps=_CONSOLIDATION_STEPS)
            if solve_budget is not None and solve_budget.seconds is None
            else Budget(seconds=options.consolidation_budget)
        ),
        ignore_dra_requests=options.ignore_dra_requests,
        cluster_price_limit=options.cluster_price_limit,
        expendable_below=options.expendable_pods_priority_cutoff,
        node_fee=options.node_fee,
        concentration_penalty=options.concentration_penalty,
        max_node_cpu_milli=options.max_node_cpu,
        default_spread=options.scheduler_config,
        initialization_timeout=options.initialization_timeout or None,
        observability=not options.disable_cluster_state_observability,
    )
