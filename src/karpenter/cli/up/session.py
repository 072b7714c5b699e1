"""One run of `karpenter up`: embedded cluster, HTTP door, operator, and what a script or a view needs."""

import os
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from operator import is_
from pathlib import Path

from karpenter.apis.core import Container, ContainerPort, Node, Pod, PodSpec
from karpenter.apis.crds import load_crds
from karpenter.apis.karpenter import NodeClaim, NodePool
from karpenter.apis.meta import ObjectMeta
from karpenter.apis.workloads import Deployment
from karpenter.base.background import background
from karpenter.base.clock import Clock, format_time
from karpenter.base.randomness import Random
from karpenter.cli.manifests import Document
from karpenter.cli.up.applying import apply_manifests
from karpenter.cli.up.picture import Census, Picture, PriceList, take_picture
from karpenter.cloudprovider import CloudProviderError
from karpenter.embedded.cluster import EmbeddedCluster
from karpenter.embedded.http import HttpDoor, write_kubeconfig
from karpenter.kube.client import Client
from karpenter.kube.errors import AlreadyExists
from karpenter.kube.patch import merge
from karpenter.operator.assembly import Operator
from karpenter.operator.health import without_socket
from karpenter.operator.options import Options
from karpenter.runtime import Executor

OPERATOR_POD = "karpenter-0"
OPERATOR_NAMESPACE = "kube-system"
OPERATOR_CONTAINER = "controller"
OPERATOR_PORT = 8080
"""Where the pod serves metrics and answers, behind the pod proxy; nothing listens there."""


class PortError(Exception):
    """The API cannot be served where it was asked for."""


class Session:
    """What is running, for views and scripts to look at."""

    def __init__(self, cluster: EmbeddedCluster, operator: Operator, found: str = "") -> None:
        self.cluster = cluster
        self.found = found
        """What the state file held; empty for a new cluster."""
        self.operator = operator
        self.client = Client(cluster.transport(), field_manager="karpenter-up")
        self.prices = PriceList(())
        self._catalogues: list[object] = []
        self._census = Census()
        operator.cache.informer(Pod).subscribe(self._census.take)

    async def refresh_prices(self) -> None:
        """Read the instance types of every NodePool again; cheap while they are the same."""
        catalogues = []
        for pool in self.operator.cache.informer(NodePool).items():
            with suppress(CloudProviderError):  # a pool whose node class is missing has no prices
                catalogues.append(await self.operator.provider.instance_types(pool))
        same = len(catalogues) == len(self._catalogues) and all(map(is_, catalogues, self._catalogues))
        if not same:
            self._catalogues = list(catalogues)
            self.prices = PriceList(kind for catalogue in catalogues for kind in catalogue)

    def picture(self) -> Picture:
        """Return the cluster at a glance, as the operator's caches have it."""
        cache = self.operator.cache
        return take_picture(
            self._census, cache.informer(Node).items(), cache.informer(NodeClaim).items(), self.prices
        )

    def log(self, line: str) -> None:
        """Append one line to the log of the operator's pod."""
        self.cluster.logs.append(OPERATOR_NAMESPACE, OPERATOR_POD, OPERATOR_CONTAINER, line)


@asynccontextmanager
async def open_session(
    *,
    options: Options,
    clock: Clock,
    rng: Random,
    executor: Executor,
    state: Path | None,
    manifests: Sequence[Document],
    only_missing: bool = False,
) -> AsyncIterator[Session]:
    """Start the cluster and the operator, apply `manifests`, and stop everything at the end of the block.

    A cluster that a state file held goes on where it was; with `only_missing` its objects are left alone.

    Raises:
        Unreadable: when a manifest has no name or kind.
        Refused: when the API server refuses a manifest.
        OptionError: when the provider is unknown.
        StateFileError: when the state file cannot be used.
    """
    async with AsyncExitStack() as stack:
        cluster = EmbeddedCluster(clock=clock, rng=rng, crds=load_crds(), state_file=state)
        stack.callback(cluster.close)
        await stack.enter_async_context(background(cluster.run(), "cluster"))
        await cluster.ready.wait()
        operator = Operator(
            cluster.transport(),
            options,
            clock=clock,
            rng=rng,
            executor=executor,
            provider_settings={
                "instance-types-file-path": options.instance_types_file_path,
                "instance-catalogue": options.instance_catalogue,
            },
            identity=OPERATOR_POD,
        )
        cluster.server.proxy.serve(
            OPERATOR_NAMESPACE, OPERATOR_POD, OPERATOR_PORT, without_socket(operator.metrics, operator.why)
        )
        session = Session(cluster, operator, await _contents(cluster) if cluster.restored else "")
        await _create_operator_pod(session.client, clock)
        await apply_manifests(session.client.transport, manifests, only_missing=only_missing)
        await stack.enter_async_context(background(operator.run(), "operator"))
        await operator.cache.wait_synced()
        await session.refresh_prices()
        yield session


async def _contents(cluster: EmbeddedCluster) -> str:
    """Return what a resumed cluster holds, e.g. `3 Nodes, 3 NodeClaims, 30 Pods`."""
    client = Client(cluster.transport())
    kinds = (NodePool, NodeClaim, Node, Deployment, Pod)
    return ", ".join([f"{len(await client.list(kind))} {kind.resource.kind}s" for kind in kinds])


@asynccontextmanager
async def open_door(session: Session, *, port: int, token: str, kubeconfig: Path) -> AsyncIterator[str]:
    """Serve the cluster to kubectl on 127.0.0.1 for the length of the block; yields the URL.

    Raises:
        PortError: when the port is taken.
        OSError: when the kubeconfig cannot be written.
    """
    door = HttpDoor(session.cluster.server, host="127.0.0.1", port=port, token=token)
    try:
        await door.start()
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise PortError(
            f"cannot serve on 127.0.0.1:{port}: {reason.lower()} (choose another --port; 0 takes a free one)"
        ) from error
    try:
        write_kubeconfig(kubeconfig, url=door.url, token=token)
        yield door.url
    finally:
        await door.close()


async def _create_operator_pod(client: Client, clock: Clock) -> None:
    """Show the operator as a pod of its own, so that `kubectl logs` finds it where tutorials look."""
    pod = Pod(
        metadata=ObjectMeta(
            name=OPERATOR_POD,
            namespace=OPERATOR_NAMESPACE,
            labels={"app.kubernetes.io/name": "karpenter", "app.kubernetes.io/instance": "karpenter"},
        ),
        spec=PodSpec(
            scheduler_name="karpenter-up",
            containers=[
                Container(
                    name=OPERATOR_CONTAINER,
                    image="karpenter",
                    ports=[ContainerPort(container_port=OPERATOR_PORT)],
                )
            ],
        ),
    )
    try:
        await client.create(pod)
    except AlreadyExists:
        await client.delete(Pod, OPERATOR_POD, namespace=OPERATOR_NAMESPACE, grace_period_seconds=0)
        await client.create(pod)
    now = format_time(clock.now())
    status = {
        "phase": "Running",
        "startTime": now,
        "conditions": [
            {"type": kind, "status": "True", "lastTransitionTime": now}
            for kind in ("PodScheduled", "Initialized", "ContainersReady", "Ready")
        ],
        "containerStatuses": [
            {
                "name": OPERATOR_CONTAINER,
                "ready": True,
                "started": True,
                "restartCount": 0,
                "image": "karpenter",
                "imageID": "",
                "state": {"running": {"startedAt": now}},
            }
        ],
    }
    await client.patch(
        Pod, OPERATOR_POD, merge({"status": status}), namespace=OPERATOR_NAMESPACE, subresource="status"
    )
