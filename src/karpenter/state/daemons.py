"""DaemonSets as the pods they would run on a new node."""

from collections.abc import Sequence

import msgspec

from karpenter.apis.core import Affinity, Pod, PodStatus
from karpenter.apis.meta import ObjectMeta, OwnerReference
from karpenter.apis.workloads import DaemonSet
from karpenter.kube.informer import Informer
from karpenter.model.pods import with_default_requests


def daemon_pods(daemon_sets: Sequence[DaemonSet], pods: Informer[Pod]) -> tuple[Pod, ...]:
    """Return one pod per DaemonSet, by key, as it would run on a new node.

    The newest real pod stands for its set where there is one (webhooks and LimitRanges may have changed its
    requests), else the template. `pods` has an index `owner` by the uids of owner references.
    """
    found = [daemon_pod(each, pods.by_index("owner", each.metadata.uid)) for each in daemon_sets]
    return tuple(sorted(found, key=lambda pod: pod.key))


def daemon_pod(daemon_set: DaemonSet, running: Sequence[Pod]) -> Pod:
    """Return the pod that a DaemonSet would run on a new node; `running` are those it runs by now."""
    meta = daemon_set.metadata
    template = daemon_set.spec.template
    owner = OwnerReference(
        api_version="apps/v1", kind="DaemonSet", name=meta.name, uid=meta.uid, controller=True
    )
    newest = max(running, key=lambda p: (p.metadata.creation_timestamp or "", p.name), default=None)
    spec = newest.spec if newest is not None else template.spec
    # The DaemonSet controller ties each pod to its node by affinity and name: what counts is the template's.
    spec = msgspec.structs.replace(
        spec, node_name="", affinity=_affinity(spec.affinity, template.spec.affinity)
    )
    pod = Pod(
        metadata=ObjectMeta(
            name=meta.name,
            namespace=meta.namespace,
            uid=newest.metadata.uid if newest is not None else meta.uid,
            labels=dict((newest.metadata if newest is not None else template.metadata).labels),
            owner_references=[owner],
        ),
        spec=spec,
        status=PodStatus(phase="Pending"),
    )
    # The API server defaults the requests of pods, not those of templates.
    return pod if newest is not None else with_default_requests(pod)


def _affinity(present: Affinity | None, template: Affinity | None) -> Affinity | None:
    """Return `present` with the template's node affinity in place of the one tied to a node."""
    if present is None:
        return template
    return msgspec.structs.replace(present, node_affinity=template.node_affinity if template else None)
