"""Whether a change that is suggested for a pod really gives it a place, and what that costs: by trying it.

And what a node is kept from that may not be disrupted.

The solver is asked again with the change made. Where something else stands in the way then, the change for
that is made, too, and so on: what comes out is everything that it takes, together.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from karpenter.apis.annotations import price_limit
from karpenter.apis.core import Pod
from karpenter.apis.karpenter import NodePool
from karpenter.base.quantity import resources_of
from karpenter.explain.answer import Change, Finding
from karpenter.explain.patching import patched
from karpenter.explain.podchanges import changes_for, template_of
from karpenter.model.pods import pod_key
from karpenter.model.problem import Plan, PoolOffer, Problem
from karpenter.model.reasons import Refusal
from karpenter.scheduling.purse import PRICE

_MOST_FINDINGS = 6
_MOST_STEPS = 4
_POOL = "nodepool/"


class _Tried(NamedTuple):
    """What came of a change."""

    works: bool
    price: float
    """USD per hour that it takes to place the pod."""
    changes: tuple[Change, ...]


def tried(
    problem: Problem, pod: Pod, findings: Sequence[Finding], solve: Callable[[Problem], Plan]
) -> list[Finding]:
    """Return `findings` about `pod`, with what their changes come to, what works first.

    Of those that work the cheapest is first. Only the first few findings are tried; a change that is not
    enough, with nothing known that would be, is none. `problem` is about this pod alone, spread as it is by
    default where it says nothing.
    """
    done = []
    for number, finding in enumerate(findings):
        if number < _MOST_FINDINGS and finding.changes and not any(c.option for c in finding.changes):
            finding = _with(finding, _try(problem, pod, finding, solve))
        done.append(finding)
    order = {True: 0, None: 1, False: 2}
    return sorted(done, key=lambda f: (order[f.works], f.price_per_hour or 0.0, not f.changes, not f.remedy))


def valued(problem: Problem, price: float, finding: Finding, solve: Callable[[Problem], Plan]) -> Finding:
    """Return a finding that keeps a node with what disrupting the node would save, if it could be.

    `problem` is about the node's pods in the cluster without the node, `price` what it costs, USD per hour.
    """
    try:
        plan = solve(problem)
    except ValueError:
        return finding  # a quantity that cannot be read: the bound is all there is
    if plan.unschedulable:
        first = plan.unschedulable[0]
        text = f"{finding.message}; without that, {len(plan.unschedulable)} of its pods would have no place"
        left_out = {"strandedPods": [u.pod for u in plan.unschedulable], "strandedBecause": str(first)}
        return replace(
            finding,
            message=text,
            saving_per_hour=None,
            saving_at_most=False,
            detail={**finding.detail, **left_out},
        )
    return replace(finding, saving_per_hour=round(price - plan.cost, 6), saving_at_most=False)


def _with(finding: Finding, outcome: _Tried) -> Finding:
    if not outcome.works:
        return replace(finding, works=False, changes=())
    return replace(finding, works=True, price_per_hour=outcome.price, changes=outcome.changes)


def _try(problem: Problem, pod: Pod, finding: Finding, solve: Callable[[Problem], Plan]) -> _Tried:
    changes: tuple[Change, ...] = ()
    more = finding.changes
    for _ in range(_MOST_STEPS):
        changes = _together(changes, more)
        try:
            problem = _made(problem, more)
            plan = solve(problem)
        except (ValueError, KeyError, IndexError):
            return _Tried(False, 0.0, ())  # e.g. a template that no longer is what the pod shows
        if not plan.unschedulable:
            return _Tried(True, round(plan.cost, 6), changes)
        refusals = plan.unschedulable[0].refusals
        same = (r for r in refusals if r.place == finding.about)
        refusal = next(same, refusals[0] if refusals else None)
        if refusal is None or (
            refusal.constraint == "topologySpread" and not pod.spec.topology_spread_constraints
        ):
            break  # the cluster's own spread is written down nowhere in the pod's template
        more = _next(problem, refusal)
        if not more or any(step in more for step in changes):
            break
    return _Tried(False, 0.0, ())


def _next(problem: Problem, refusal: Refusal) -> tuple[Change, ...]:
    """Return what removes the reason that is left."""
    pools = {f"{_POOL}{offer.pool.name}": offer.pool for offer in problem.pools}
    found = changes_for(problem.pods[0], refusal, pools.get(refusal.place))
    return () if any(change.option for change in found) else found


def _together(before: tuple[Change, ...], more: Sequence[Change]) -> tuple[Change, ...]:
    """Return both, changes of one object as one."""
    merged = list(before)
    for change in more:
        for number, other in enumerate(merged):
            if (change.kind, change.namespace, change.name) == (other.kind, other.namespace, other.name):
                text = f"{other.text}; {change.text}"
                merged[number] = replace(other, text=text, patch=(*other.patch, *change.patch))
                break
        else:
            merged.append(change)
    return tuple(merged)


def _made(problem: Problem, changes: Sequence[Change]) -> Problem:
    """Return `problem` with changes made to its pod and to its pools.

    Raises:
        ValueError: when one cannot be made.
    """
    for change in changes:
        if change.kind == "NodePool":
            problem = _with_pool(problem, change)
        else:
            pod = _with_template(problem.pods[0], change)
            pending = tuple(pod if pod_key(p) == pod_key(pod) else p for p in problem.snapshot.pending)
            problem = replace(problem, pods=(pod,), snapshot=replace(problem.snapshot, pending=pending))
    return problem


def _with_template(pod: Pod, change: Change) -> Pod:
    return patched(pod, change.patch, template_of(pod).root)


def _with_pool(problem: Problem, change: Change) -> Problem:
    def new(pool: NodePool) -> NodePool:
        return patched(pool, change.patch) if pool.name == change.name else pool

    snapshot = replace(problem.snapshot, nodepools=tuple(new(pool) for pool in problem.snapshot.nodepools))
    offers = tuple(_offer(offer, new(offer.pool)) for offer in problem.pools)
    return replace(problem, snapshot=snapshot, pools=offers)


def _offer(offer: PoolOffer, pool: NodePool) -> PoolOffer:
    """Return what is left of limits that are higher than before."""
    if pool is offer.pool:
        return offer
    before, after = resources_of(offer.pool.spec.limits), resources_of(pool.spec.limits)
    left = {
        name: amount + after.get(name, 0) - before.get(name, 0) for name, amount in offer.remaining.items()
    }
    if PRICE in left:
        left[PRICE] = offer.remaining[PRICE] + (price_limit(pool) or 0) - (price_limit(offer.pool) or 0)
    version = offer.catalogue_version + 1
    return replace(offer, pool=pool, remaining=left, catalogue_version=version)
