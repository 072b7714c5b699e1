"""One run of `karpenter up`: embedded cluster, HTTP door, operator, and what a script or a view needs."""

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

from karpenter.apis.core import Container, Node, Pod, PodSpec
from karpenter.apis.crds import load_crds
from karpenter.apis.karpenter import NodeClaim, NodePool
from karpenter.apis.meta import ObjectMeta
from karpenter.base.background import background
from karpenter.base.clock import Clock, format_time
from karpenter.base.randomness import Random
from karpenter.cli.up.manifests import Manifest, apply_manifests
from karpenter.cli.up.picture import Picture, PriceList, take_picture
from karpenter.embedded.cluster import EmbeddedCluster
from karpenter.embedded.http import HttpDoor, write_kubeconfig
from karpenter.kube.client import Client
from karpenter.kube.errors import AlreadyExists
from karpenter.kube.patch import merge
from karpenter.operator.assembly import Operator
from karpenter.operator.options import Options
from karpenter.runtime import Executor

OPERATOR_POD = "karpenter-0"
OPERATOR_NAMESPACE = "kube-system"
OPERATOR_CONTAINER = "controller"


class Session:
    """What is running, for views and scripts to look at."""

    def __init__(self, cluster: EmbeddedCluster, operator: Operator) -> None:
        self.cluster = cluster
        self.operator = operator
        self.client = Client(cluster.transport(), field_manager="karpenter-up")
        self._catalogue: object = None
        self._prices = PriceList(())

    async def refresh_prices(self) -> None:
        """Read the instance types of every NodePool again; cheap while they are the same."""
        pools = self.operator.cache.informer(NodePool).items()
        catalogues = [await self.operator.provider.instance_types(pool) for pool in pools]
        if catalogues != self._catalogue:
            self._catalogue = catalogues
            self._prices = PriceList(kind for catalogue in catalogues for kind in catalogue)

    def picture(self) -> Picture:
        """Return the cluster at a glance, as the operator's caches have it."""
        cache = self.operator.cache
        return take_picture(
            cache.informer(Pod).items(),
            cache.informer(Node).items(),
            cache.informer(NodeClaim).items(),
            self._prices,
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
    manifests: Iterable[Manifest],
) -> AsyncIterator[Session]:
    """Start the cluster and the operator, apply `manifests`, and stop everything at the end of the block.

    Raises:
        ManifestError: when the API server refuses a manifest.
        OptionError: when the provider is unknown.
    """
    cluster = EmbeddedCluster(clock=clock, rng=rng, crds=load_crds(), state_file=state)
    async with background(cluster.run(), "cluster"):
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
        session = Session(cluster, operator)
        await _create_operator_pod(session.client, clock)
        await apply_manifests(session.client.transport, manifests)
        async with background(operator.run(), "operator"):
            await operator.cache.wait_synced()
            await session.refresh_prices()
            yield session


@asynccontextmanager
async def open_door(session: Session, *, port: int, token: str, kubeconfig: Path) -> AsyncIterator[str]:
    """Serve the cluster to kubectl on 127.0.0.1 for the length of the block; yields the URL.

    Raises:
        OSError: when the port is taken.
    """
    async with HttpDoor(session.cluster.server, host="127.0.0.1", port=port, token=token) as door:
        write_kubeconfig(kubeconfig, url=door.url, token=token)
        yield door.url


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
            containers=[Container(name=OPERATOR_CONTAINER, image="karpenter")],
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
