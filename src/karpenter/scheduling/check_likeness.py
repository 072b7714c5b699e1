"""Which pods are alike, so that one of them may be looked at for all."""

from collections.abc import Iterable

import msgspec

from karpenter.apis.core import Pod
from karpenter.model.pods import pod_key
from karpenter.model.problem import PlannedClaim
from karpenter.scheduling.check_company import company
from karpenter.scheduling.check_fit import Load

_encoder = msgspec.msgpack.Encoder()


class Likeness:
    """Remembers for each kind of pod the first of it."""

    def __init__(self) -> None:
        """Know no pod yet."""
        self._first: dict[bytes, Pod] = {}
        self._of: dict[int, tuple[Pod, Pod]] = {}
        self._company: dict[int, bytes] = {}

    def first_like(self, pod: Pod) -> Pod:
        """Return the first pod seen that differs from `pod` in nothing that any rule looks at."""
        found = self._of.get(id(pod))
        if found is None:
            found = self._of[id(pod)] = pod, self._first_like(pod)  # kept: its id stays its own
        return found[1]

    def _first_like(self, pod: Pod) -> Pod:
        spec, status = pod.spec, pod.status
        # The names of a pod's volume claims may follow from its own.
        mark = _encoder.encode(
            (pod.metadata.namespace, pod.metadata.labels, spec, spec.volumes and pod_key(pod))
        )
        if status.resources or status.container_statuses or status.init_container_statuses:
            mark += _encoder.encode(
                (
                    [c for c in status.conditions if c.type == "PodResizePending"],
                    status.resources,
                    status.allocated_resources,
                    status.container_statuses,
                    status.init_container_statuses,
                )
            )
        return self._first.setdefault(mark, pod)

    def load(self, pods: Iterable[Pod]) -> Load:
        """Return the different ones of `pods`, with how many there are of each."""
        counts: dict[int, tuple[Pod, int]] = {}
        for pod in pods:
            first = self.first_like(pod)
            counts[id(first)] = first, counts.get(id(first), (first, 0))[1] + 1
        return list(counts.values())

    def company(self, pod: Pod) -> bytes:
        """Return what tells `pod` apart from others where company matters."""
        first = self.first_like(pod)
        if id(first) not in self._company:
            self._company[id(first)] = company(first)
        return self._company[id(first)]


def claim_shape(claim: PlannedClaim, load: Load) -> tuple[object, ...]:
    """Return what tells apart claims that cannot be judged by one look."""
    return (
        claim.pool.name,
        claim.requirements,
        claim.instance_types,
        claim.price,
        claim.min_values_relaxed,
        tuple(sorted(claim.requests.items())),
        frozenset((id(pod), count) for pod, count in load),
    )
