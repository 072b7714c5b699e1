"""Which of equal pods goes to which planned node, so that kube-scheduler can bind them in their order.

It takes one pod after the other and holds every one to its spread: with all pods of one zone first, the
second could not be bound where it is planned until other zones have caught up. So pods alternate.
"""

from collections.abc import Sequence

import msgspec

from karpenter.model.problem import PlannedClaim
from karpenter.scheduling.classes import PodClass

Domain = tuple[str, ...]


def alternating(claims: Sequence[PlannedClaim], classes: Sequence[PodClass]) -> list[PlannedClaim]:
    """Return `claims` with pods of a class exchanged so that, oldest first, they take domains in turn.

    The domain that still wants most of them comes first: there are fewest by then.
    """
    firm = [c for c in classes if c.profile.wide.firm and len(c.pods) > 1]
    if not firm:
        return list(claims)
    place = {key: at for at, claim in enumerate(claims) for key in claim.pods}
    for pod_class in firm:
        slots: dict[Domain, list[int]] = {}
        keys = [key for key in pod_class.pods if key in place]
        for key in keys:
            wanted = claims[place[key]].requirements
            domain = tuple(wanted.single_value(label) for label in pod_class.profile.wide.keys)
            slots.setdefault(domain, []).append(place[key])
        if len(slots) < 2:
            continue
        taken = dict.fromkeys(slots, 0)
        for key in keys:
            domain = min(taken, key=lambda d: (-len(slots[d]), taken[d], d))
            place[key] = slots[domain].pop()
            taken[domain] += 1
    pods: list[list[str]] = [[] for _ in claims]
    for key, at in place.items():
        pods[at].append(key)
    return [
        msgspec.structs.replace(claim, pods=tuple(sorted(keys)))
        for claim, keys in zip(claims, pods, strict=True)
    ]
