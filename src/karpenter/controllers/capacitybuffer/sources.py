"""What one unit of a capacity buffer is: a PodTemplate, or the template of a workload."""

from collections.abc import Callable
from typing import NamedTuple

from karpenter.apis.autoscaling import CapacityBuffer, ScalableRef
from karpenter.apis.core import PodTemplate, PodTemplateSpec
from karpenter.apis.meta import KubeObject
from karpenter.apis.workloads import Deployment, ReplicaSet, StatefulSet, Workload
from karpenter.kube.client import resource_of
from karpenter.kube.informer import Cache, Change, Informer

Source = type[PodTemplate] | type[Workload]

_GROUPS = ("", "apps")
_SCALABLES: dict[str, type[Workload]] = {
    resource_of(kind).kind: kind for kind in (Deployment, StatefulSet, ReplicaSet)
}


class NotSynced(Exception):
    """The kind has not been listed yet: nothing can be said about its objects."""


class Unresolved(Exception):
    """There is no unit; `reason` is the condition's."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class Unit(NamedTuple):
    """One unit, and how large its workload is."""

    template: PodTemplateSpec
    scale: int | None = None
    """Replicas of the workload; None for a PodTemplate."""
    name: str = ""
    """Of the PodTemplate, if it is one."""
    generation: int | None = None


def reference_of(buffer: CapacityBuffer) -> tuple[Source, str] | None:
    """Return kind and name of what `buffer` takes its unit from; None when it names nothing.

    Raises:
        Unresolved: for kinds whose pods we cannot know.
    """
    if buffer.spec.pod_template_ref is not None:
        return PodTemplate, buffer.spec.pod_template_ref.name
    if buffer.spec.scalable_ref is None:
        return None
    return _scalable(buffer.spec.scalable_ref), buffer.spec.scalable_ref.name


def _scalable(reference: ScalableRef) -> type[Workload]:
    kind = _SCALABLES.get(reference.kind)
    if reference.api_group not in _GROUPS:
        raise Unresolved(
            "ResolutionFailed",
            f'unsupported scalableRef.apiGroup "{reference.api_group}", must be "apps" or empty',
        )
    if kind is None:
        raise Unresolved(
            "ResolutionFailed",
            f'unsupported scalableRef.kind "{reference.kind}", must be {", ".join(sorted(_SCALABLES))}',
        )
    return kind


class Sources:
    """Looks units up. A kind is watched from the first time that a buffer refers to it."""

    def __init__(self, cache: Cache, changed: Callable[[type[KubeObject], str], None]) -> None:
        """`changed` is called with kind and `namespace/name` of each object that comes, changes or goes."""
        self._cache = cache
        self._changed = changed
        self._watched: set[type[KubeObject]] = set()

    def unit(self, buffer: CapacityBuffer) -> Unit:
        """Return what one unit of `buffer` is now.

        Raises:
            Unresolved: when the buffer names nothing, something that is not there, or a kind we do not know.
            NotSynced: when that cannot be said yet.
        """
        reference = reference_of(buffer)
        if reference is None:
            raise Unresolved("ResolutionFailed", "Neither podTemplateRef nor scalableRef is set")
        kind, name = reference
        informer = self._informer(kind)
        if not informer.synced:
            raise NotSynced(kind.__name__)
        found = informer.get(name, buffer.namespace)
        if found is None:
            reason = "PodTemplateNotFound" if kind is PodTemplate else "ScalableRefNotFound"
            raise Unresolved(reason, f"{kind.__name__} {buffer.namespace}/{name} not found")
        if isinstance(found, PodTemplate):
            return Unit(found.template, None, found.name, found.metadata.generation)
        assert isinstance(found, Workload)
        replicas = found.spec.replicas
        return Unit(found.spec.template, 1 if replicas is None else replicas)

    def _informer(self, kind: Source) -> Informer[PodTemplate] | Informer[Workload]:
        informer: Informer[PodTemplate] | Informer[Workload] = self._cache.informer(kind)  # type: ignore[assignment]
        if kind not in self._watched:
            self._watched.add(kind)

            def on_change(change: Change[PodTemplate] | Change[Workload]) -> None:
                self._changed(kind, change.object.key)

            informer.subscribe(on_change)
        return informer
