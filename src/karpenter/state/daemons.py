"""The pods that DaemonSets would run on a new node."""

from collections.abc import Iterable

import msgspec

from karpenter.apis.core import Affinity, NodeAffinity, Pod
from karpenter.apis.meta import ObjectMeta, OwnerReference
from karpenter.apis.workloads import DaemonSet
from karpenter.kube.informer import Informer
from karpenter.model.pods import with_default_requests


def daemon_pods(daemonsets: Iterable[DaemonSet], pods: Informer[Pod]) -> tuple[Pod, ...]:
    """Return one pod per DaemonSet, by key.

    It is the newest pod the DaemonSet has (admission may have changed its requests), else one made from the
    template. The node affinity is always the template's: the controller pins each pod to its node by name.
    """
    found = [_daemon_pod(daemonset, pods) for daemonset in daemonsets if not daemonset.deleting]
    return tuple(sorted(found, key=lambda pod: pod.key))


def _daemon_pod(daemonset: DaemonSet, pods: Informer[Pod]) -> Pod:
    real = pods.by_index("owner", daemonset.metadata.uid)
    template = daemonset.spec.template
    if real:
        pod = max(real, key=lambda p: (p.metadata.creation_timestamp or "", p.key))
        return msgspec.structs.replace(
            pod,
            spec=msgspec.structs.replace(pod.spec, node_name="", affinity=_affinity(pod, daemonset)),
        )
    owner = OwnerReference(
        api_version="apps/v1",
        kind="DaemonSet",
        name=daemonset.name,
        uid=daemonset.metadata.uid,
        controller=True,
    )
    metadata = ObjectMeta(
        name=daemonset.name,
        namespace=daemonset.namespace,
        labels=template.metadata.labels,
        annotations=template.metadata.annotations,
        owner_references=[owner],
    )
    return with_default_requests(Pod(metadata=metadata, spec=template.spec))


def _affinity(pod: Pod, daemonset: DaemonSet) -> Affinity | None:
    """Return the pod's affinity with the template's required node affinity."""
    own = daemonset.spec.template.spec.affinity
    wanted = own.node_affinity if own else None
    given = pod.spec.affinity
    if given is None:
        return own
    preferred = given.node_affinity.preferred if given.node_affinity else []
    required = wanted.required if wanted else None
    return msgspec.structs.replace(given, node_affinity=NodeAffinity(required=required, preferred=preferred))
