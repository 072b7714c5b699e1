"""Which zone waiting pods are tied to: where a shortage of one zone would show."""

from collections import Counter
from collections.abc import Iterable

from karpenter.apis import labels as known
from karpenter.apis.core import Pod
from karpenter.model.requirements import Requirements
from karpenter.model.snapshot import Snapshot
from karpenter.scheduling.volumes import VolumeProblem, alternatives

FLEXIBLE = "flexible"
NONE = "none"


def pods_by_zone(pods: Iterable[Pod], snapshot: Snapshot) -> Counter[str]:
    """Count pods by the one zone they can run in, `flexible` when there are several, `none` without any."""
    return Counter(effective_zone(pod, snapshot) for pod in pods)


def effective_zone(pod: Pod, snapshot: Snapshot) -> str:
    """Return the zone `pod` is tied to by its node selector, its required node affinity and its volumes.

    What topology spread constraints and pod affinity leave of the zones is not looked at: it changes with
    every pod that is placed.
    """
    affinity = pod.spec.affinity.node_affinity if pod.spec.affinity else None
    required = affinity.required if affinity is not None else None
    if not (pod.spec.node_selector or required or pod.spec.volumes):
        return FLEXIBLE
    own = Requirements.from_labels(pod.spec.node_selector)
    terms = required.node_selector_terms if required is not None else []
    try:
        places = alternatives(pod, snapshot)
    except VolumeProblem:
        return NONE
    zones: set[str] = set()
    for term in [Requirements.from_specs(t.match_expressions) for t in terms] or [Requirements()]:
        for place in places:
            zone = own.merge(term).merge(place).get(known.ZONE)
            if zone.complement:
                return FLEXIBLE
            zones.update(zone.permitted())
    if not zones:
        return NONE
    return zones.pop() if len(zones) == 1 else FLEXIBLE
