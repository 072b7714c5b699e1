"""Where pods are and in which state."""

from karpenter.apis import labels
from karpenter.apis.conditions import is_true
from karpenter.apis.core import Node, Pod
from karpenter.base.timestamps import parse_time
from karpenter.controllers.context import Context
from karpenter.controllers.metrics.reading import OnRead
from karpenter.controllers.metrics.series import Series
from karpenter.model import pods as podlib

_NAMES = (
    *("name", "namespace", "owner", "node", "scheduled", "nodepool", "zone", "arch"),
    *("capacity_type", "instance_type", "phase", "ready", "managed"),
)


class PodMetrics:
    """Rebuilt when it is read; one series a pod, so that users with many may switch them off."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._pods = context.cache.informer(Pod)
        self._nodes = context.cache.informer(Node)
        metrics = context.metrics
        self._state = Series(metrics, "karpenter_pods_state", "1 for each pod, with its state.", _NAMES)
        names = ["name", "namespace"]
        self._unbound = Series(
            metrics, "karpenter_pods_unbound_time_seconds", "Age of pods that are not bound.", names
        )
        self._unstarted = Series(
            metrics, "karpenter_pods_unstarted_time_seconds", "Age of pods that do not run yet.", names
        )
        self.controller = OnRead("metrics.pod", self._refresh, context)

    def _refresh(self) -> None:
        now = self._context.clock.now()
        state: dict[tuple[str, ...], float] = {}
        unbound: dict[tuple[str, ...], float] = {}
        unstarted: dict[tuple[str, ...], float] = {}
        for pod in self._pods.items():
            state[self._row(pod)] = 1.0
            created = pod.metadata.creation_timestamp
            if podlib.is_terminal(pod) or created is None:
                continue
            age = now - parse_time(created)
            if not pod.spec.node_name:
                unbound[(pod.name, pod.namespace)] = age
            if not is_true(pod.status.conditions, "Ready"):
                unstarted[(pod.name, pod.namespace)] = age
        self._state.replace(state)
        self._unbound.replace(unbound)
        self._unstarted.replace(unstarted)

    def _row(self, pod: Pod) -> tuple[str, ...]:
        node = self._nodes.get(pod.spec.node_name) if pod.spec.node_name else None
        own = node.metadata.labels if node else {}
        return (
            pod.name,
            pod.namespace,
            _owner(pod),
            pod.spec.node_name,
            str(bool(pod.spec.node_name)).lower(),
            own.get(labels.NODEPOOL, ""),
            own.get(labels.ZONE, ""),
            own.get(labels.ARCH, ""),
            own.get(labels.CAPACITY_TYPE, ""),
            own.get(labels.INSTANCE_TYPE, ""),
            pod.status.phase,
            str(is_true(pod.status.conditions, "Ready")).lower(),
            str(labels.NODEPOOL in own).lower(),
        )


def _owner(pod: Pod) -> str:
    """Return the path of the pod's first owner, as dashboards know it."""
    if not pod.metadata.owner_references:
        return ""
    owner = pod.metadata.owner_references[0]
    return f"/apis/{owner.api_version}/namespaces/{pod.namespace}/{owner.kind.lower()}s/{owner.name}"
