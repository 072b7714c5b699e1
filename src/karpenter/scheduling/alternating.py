"""Which of equal pods goes to which planned node, so that kube-scheduler can bind them in their order.

It takes one pod after the other and holds every one to its spread: with all pods of one zone first, the
second could not be bound where it is planned until other zones have caught up. So pods alternate.

Their order is the one in which kube-scheduler gave up on them: it notes that in the pod's status, so that the
versions of those that wait rise in the order of its queue, and it comes back to them in that order.
"""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from karpenter.apis.core import Pod
from karpenter.model.pods import pod_key
from karpenter.model.problem import PlannedClaim
from karpenter.scheduling.classes import PodClass

Domain = tuple[str, ...]


def alternating(
    claims: Sequence[PlannedClaim], classes: Sequence[PodClass], pods: Iterable[Pod]
) -> list[PlannedClaim]:
    """Return `claims` with pods of a class exchanged so that, as they are queued, they take domains in turn.

    The domain that still wants most of them comes first: there are fewest by then.
    """
    firm = [c for c in classes if c.profile.wide.firm and len(c.pods) > 1]
    if not firm:
        return list(claims)
    place = {key: at for at, claim in enumerate(claims) for key in claim.pods}
    kinds = {key: id(claims[at].requirements) for key, at in place.items()}
    mixed = [c for c in firm if len({kinds[key] for key in c.pods if key in kinds}) > 1]
    spread = [c for c in mixed if len(_slots(c, c.pods, place, claims)) > 1]
    if not spread:
        return list(claims)
    versions = {pod_key(pod): pod.metadata.resource_version for pod in pods}
    for pod_class in spread:
        keys = _queued([key for key in pod_class.pods if key in place], versions)
        slots = _slots(pod_class, keys, place, claims)
        taken = dict.fromkeys(slots, 0)
        for key in keys:
            domain = min(taken, key=lambda d: (-len(slots[d]), taken[d], d))
            place[key] = slots[domain].pop()
            taken[domain] += 1
    contents: list[list[str]] = [[] for _ in claims]
    for key, at in place.items():
        contents[at].append(key)
    return [
        msgspec.structs.replace(claim, pods=tuple(sorted(keys)))
        for claim, keys in zip(claims, contents, strict=True)
    ]


def _slots(
    pod_class: PodClass, keys: Iterable[str], place: Mapping[str, int], claims: Sequence[PlannedClaim]
) -> dict[Domain, list[int]]:
    """Return, by domain, the claims that are for the pods `keys` of a class, in their order."""
    labels = pod_class.profile.wide.keys
    slots: dict[Domain, list[int]] = {}
    for at in [place[key] for key in keys if key in place]:
        domain = tuple([claims[at].requirements.single_value(label) for label in labels])
        slots.setdefault(domain, []).append(at)
    return slots


def _queued(keys: list[str], versions: dict[str, str]) -> list[str]:
    """Return `keys`, oldest first, in the order of their versions if these are numbers."""
    if not all(versions.get(key, "").isdecimal() for key in keys):
        return keys
    return sorted(keys, key=lambda key: int(versions[key]))
