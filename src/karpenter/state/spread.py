"""Default topology spread, from live Services and controllers; without defaults nothing is watched."""

from collections.abc import Sequence
from typing import Any

from karpenter.apis.core import Pod, Service, TopologySpreadConstraint
from karpenter.apis.meta import LabelSelector
from karpenter.kube.informer import Cache, Change, Informer
from karpenter.model.defaultspread import (
    OWNER_KINDS,
    Owner,
    controller_of,
    deduced_selector,
    with_default_spread,
)

_Key = tuple[str, str, tuple[tuple[str, str], ...]]


class DefaultSpread:
    """Gives pods the cluster's default constraints; what was deduced once serves all pods of a workload."""

    def __init__(self, cache: Cache, constraints: Sequence[TopologySpreadConstraint]) -> None:
        """Subscribe to what selectors are deduced from, if there are `constraints` at all."""
        self._constraints = tuple(constraints)
        self._selectors: dict[_Key, LabelSelector | None] = {}
        self._owners: dict[tuple[str, str], Informer[Any]] = {}
        self.informers: tuple[Informer[Any], ...] = ()
        """All that must have been listed before a pod can be told how to spread."""
        if not self._constraints:
            return
        self._services = cache.informer(Service)
        self._services.add_index("namespace", lambda service: [service.metadata.namespace])
        self._owners = {kind: cache.informer(owner) for kind, owner in OWNER_KINDS.items()}
        self.informers = (self._services, *self._owners.values())
        for informer in self.informers:
            informer.subscribe(self._on_change)

    def apply(self, pod: Pod) -> Pod:
        """Return `pod` as kube-scheduler will spread it."""
        if not self._constraints or pod.spec.topology_spread_constraints:
            return pod
        controller = controller_of(pod)
        key = (
            pod.metadata.namespace,
            controller.uid if controller is not None else "",
            tuple(sorted(pod.metadata.labels.items())),
        )
        if key not in self._selectors:
            services = self._services.by_index("namespace", pod.metadata.namespace)
            self._selectors[key] = deduced_selector(pod, services, self._owner(pod))
        return with_default_spread(pod, self._constraints, self._selectors[key])

    def _owner(self, pod: Pod) -> Owner | None:
        reference = controller_of(pod)
        if reference is None:
            return None
        informer = self._owners.get((reference.api_version, reference.kind))
        found: Owner | None = informer.get(reference.name, pod.metadata.namespace) if informer else None
        return found

    def _on_change(self, change: Change[Any]) -> None:
        """Workloads change all the time; what they select hardly ever."""
        old = change.old
        if change.type == "DELETED" or old is None or old.spec.selector != change.object.spec.selector:
            self._selectors.clear()
