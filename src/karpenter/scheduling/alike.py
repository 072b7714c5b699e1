"""Pods that are the same in all that decides where they go: thousands of pods have few different specs."""

from collections.abc import Iterable

import msgspec

from karpenter.apis.core import Pod
from karpenter.base.quantity import Resources
from karpenter.model.pods import pod_key, requests


class Alike(msgspec.Struct, frozen=True):
    """Pods that differ only in name and age."""

    shape: bytes
    """All that they say of themselves; namespace and labels, by which others know them, aside."""
    pods: list[Pod]
    """At least one, in the order given."""


def alike(pods: Iterable[Pod]) -> list[Alike]:
    """Return `pods` grouped, the groups by their first pods in the order given.

    A pod with volumes is alone, since claims may be called after it.

    Raises:
        ValueError: when a quantity cannot be read.
    """
    encode = msgspec.msgpack.Encoder(order="deterministic").encode
    groups: dict[tuple[bytes, bytes], Alike] = {}
    for pod in pods:
        name = pod_key(pod) if pod.spec.volumes else ""
        shape = encode((pod.spec, name, _granted(pod)))
        key = (shape, encode((pod.metadata.namespace, pod.metadata.labels)))
        group = groups.get(key)
        if group is None:
            groups[key] = Alike(shape, [pod])
        else:
            group.pods.append(pod)
    return list(groups.values())


def _granted(pod: Pod) -> Resources | None:
    """Return what a pod takes of a node, unless its spec alone says it: it may be resized where it runs."""
    status = pod.status
    resizable = status.container_statuses or status.init_container_statuses or status.resources
    return requests(pod) if resizable else None
