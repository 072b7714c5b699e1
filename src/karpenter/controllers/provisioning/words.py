"""What a user reads when a pod gets no machine: which pools, why not, and the smallest way out."""

from collections.abc import Container, Iterable, Sequence

from karpenter.apis import conditions
from karpenter.apis.karpenter import NodePool
from karpenter.model.reasons import Refusal, Unschedulable

_DEPENDENTS = ("ValidationSucceeded", "NodeClassReady")
_POOL = "nodepool/"


def failure_text(
    failure: Unschedulable, pools: Iterable[NodePool], without_types: Container[str] = ()
) -> str:
    """Return why nothing could be bought for a pod.

    Pools that refuse in the same words are named together. Of `pools` (all there are) those that may not buy
    at present are named too, since they explain why fewer were asked than a user would expect; also those
    whose cloud offers nothing (`without_types`, by name).
    """
    idle = [text for pool in pools if (text := idle_text(pool, has_types=pool.name not in without_types))]
    refusals = list(failure.refusals)
    if idle:
        # That no pool was found is true of what the solver saw; the user knows better.
        refusals = [r for r in refusals if r.place or r.constraint != "nodepool"]
    parts = [*_grouped(refusals), *idle]
    return "; ".join(parts) if parts else "no nodepool can take it"


def idle_text(pool: NodePool, *, has_types: bool = True) -> str:
    """Return why `pool` is not asked for machines; empty when it is."""
    place = _POOL + pool.name
    if pool.deleting:
        return f"{place}: is being deleted"
    if pool.static:
        return f"{place}: is static (spec.replicas is set), it buys nothing for pods"
    if conditions.is_true(pool.status.conditions, "Ready"):
        return "" if has_types else f"{place}: its cloud offers no instance types at present"
    for type in _DEPENDENTS:
        condition = conditions.get(pool.status.conditions, type)
        if condition is not None and condition.status != "True":
            said = ": ".join(part for part in (condition.reason, condition.message) if part)
            return f"{place}: is not ready, {type} is {condition.status} ({said})"
    return f"{place}: is not ready yet"


def _grouped(refusals: Sequence[Refusal]) -> list[str]:
    """Render refusals in their order, those with the same words as one."""
    places: dict[tuple[str, str], list[str]] = {}
    for refusal in refusals:
        # Limits name their pool inside the message too: it is said once, before it.
        message = refusal.message
        if refusal.place.startswith(_POOL):
            name = refusal.place.removeprefix(_POOL)
            message = message.replace(f" for nodepool: {name!r}", " of the nodepool")
        places.setdefault((message, refusal.remedy), []).append(refusal.place)
    return [_one(names, message, remedy) for (message, remedy), names in places.items()]


def _one(places: Sequence[str], message: str, remedy: str) -> str:
    named = ", ".join(place for place in places if place)
    text = f"{named}: {message}" if named else message
    return f"{text} (to fix: {remedy})" if remedy else text
