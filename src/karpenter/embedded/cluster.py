"""A Kubernetes cluster in this process: API server, scheduler, workload controllers and kubelets, assembled.

The controllers are ordinary clients of the API server over an in-process transport with informers of their
own; everything they know follows from stored state, so a cluster started from a state file goes on where it
was stopped.
"""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from karpenter.base.clock import Clock
from karpenter.base.metrics import Metrics
from karpenter.base.randomness import Random, seeded
from karpenter.embedded.apiserver import ApiServer
from karpenter.embedded.bootstrap import ensure_system_objects
from karpenter.embedded.controllers.cronjob import CronJobController
from karpenter.embedded.controllers.daemonset import DaemonSetController
from karpenter.embedded.controllers.deployment import DeploymentController
from karpenter.embedded.controllers.garbage import GarbageCollector
from karpenter.embedded.controllers.job import JobController
from karpenter.embedded.controllers.kubelet import Kubelets
from karpenter.embedded.controllers.namespace import NamespaceController
from karpenter.embedded.controllers.nodelifecycle import NodeLifecycle
from karpenter.embedded.controllers.pdb import DisruptionBudgetController
from karpenter.embedded.controllers.podgc import PodCollector
from karpenter.embedded.controllers.replicaset import ReplicaSetController
from karpenter.embedded.controllers.stages import KubeletLatencies
from karpenter.embedded.controllers.statefulset import StatefulSetController
from karpenter.embedded.controllers.volumes import VolumeController
from karpenter.embedded.inprocess import InProcessTransport
from karpenter.embedded.kinds import KindRegistry
from karpenter.embedded.logs import PodLogs
from karpenter.embedded.persistence import StateFile
from karpenter.embedded.scheduler.scheduler import Scheduler
from karpenter.embedded.store import Store
from karpenter.kube.client import Client
from karpenter.kube.informer import Cache
from karpenter.runtime import Recorder


class EmbeddedCluster:
    """All of a small Kubernetes cluster except machines.

    Args:
        clock: time, for everything in the cluster.
        rng: chance; each part draws from its own generator derived from it.
        metrics: where the controllers are metered (a set of its own unless given).
        crds: CustomResourceDefinitions served from the start (raw objects).
        state_file: SQLite file that the cluster is kept in (None: in memory only).
        latencies: how long simulated kubelets take.
    """

    def __init__(
        self,
        *,
        clock: Clock,
        rng: Random,
        metrics: Metrics | None = None,
        crds: Sequence[Mapping[str, Any]] = (),
        state_file: Path | None = None,
        latencies: KubeletLatencies | None = None,
    ) -> None:
        self.clock = clock
        self.metrics = metrics or Metrics()
        self.logs = PodLogs(clock)
        self._seed = str(rng.getrandbits(64))
        self._state_file = StateFile(state_file) if state_file is not None else None
        self.restored = 0
        """How many objects the state file held."""
        store = Store(clock, seeded(self._seed), crds=crds)
        if self._state_file is not None:
            self.restored = self._state_file.load(store, KindRegistry())
            store.journal = self._state_file.record
            # A resumed cluster must not draw the uids and names again that it has given out already.
            self._seed = f"{self._seed}/{store.revision}"
        store.rng = self._rng("store")
        self.server = ApiServer(store, logs=self.logs)
        self.client = Client(self.transport(), field_manager="kube-controller-manager")
        self.ready = asyncio.Event()
        """Set once the system's objects exist and every controller's cache is filled."""
        self._latencies = latencies or KubeletLatencies()

    def transport(self) -> InProcessTransport:
        """Return a new connection to the API server that uses no socket."""
        return InProcessTransport(self.server)

    def close(self) -> None:
        """End all watches and close the state file; the cluster must not be running any more."""
        self.server.close()
        if self._state_file is not None:
            self._state_file.close()

    async def run(self) -> None:
        """Run the cluster until cancelled."""
        await ensure_system_objects(self.client)
        cache = Cache(self.client, clock=self.clock, rng=self._rng("cache"), metrics=self.metrics)
        recorders = {
            name: Recorder(self.client, clock=self.clock, rng=self._rng(f"events/{name}"), component=name)
            for name in ("default-scheduler", "kube-controller-manager")
        }
        common: dict[str, Any] = {"clock": self.clock, "metrics": self.metrics}
        scheduler = Scheduler(
            cache, recorder=recorders["default-scheduler"], rng=self._rng("scheduler"), **common
        )
        kubelets = Kubelets(
            cache, rng=self._rng("kubelet"), latencies=self._latencies, logs=self.logs, **common
        )
        garbage = GarbageCollector(cache, rng=self._rng("garbage"), **common)
        singles = [
            kind(cache, rng=self._rng(kind.__name__), **common)
            for kind in (
                ReplicaSetController,
                DeploymentController,
                StatefulSetController,
                DaemonSetController,
                JobController,
                CronJobController,
                DisruptionBudgetController,
                NamespaceController,
                VolumeController,
                NodeLifecycle,
                PodCollector,
            )
        ]
        async with asyncio.TaskGroup() as group:
            for recorder in recorders.values():
                group.create_task(recorder.run())
            group.create_task(cache.run())
            group.create_task(garbage.run())
            await cache.wait_synced()
            for single in singles:
                group.create_task(single.controller.run())
            for controller in kubelets.controllers:
                group.create_task(controller.run())
            group.create_task(scheduler.run())
            self.ready.set()

    def _rng(self, part: str) -> Random:
        # One generator per part: what one draws must not shift what another gets.
        return seeded(f"{self._seed}/{part}")
