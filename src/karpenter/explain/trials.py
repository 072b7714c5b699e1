"""Whether a change that is suggested for a pod really gives it a place, and what that costs: by trying it.

And what a node is kept from that may not be disrupted.

The solver is asked again with the change made. Where something else stands in the way then, the change for
that is made, too, and so on: what comes out is everything that it takes, together.
"""

from collections.abc import Callable, Iterable, Sequence
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
from karpenter.model.reasons import Unschedulable
from karpenter.model.snapshot import NodeView
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
    stranded: dict[str, str]
    """Why pods had no place before anything but what was asked for was changed, by pod."""


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
            outcome = _Attempt(problem, [pod], finding.about, solve).run(finding.changes)
            finding = _with(finding, outcome)
        done.append(finding)
    order = {True: 0, None: 1, False: 2}
    return sorted(done, key=lambda f: (order[f.works], f.price_per_hour or 0.0, not f.changes, not f.remedy))


def _with(finding: Finding, outcome: _Tried) -> Finding:
    if not outcome.works:
        return replace(finding, works=False, changes=())
    return replace(finding, works=True, price_per_hour=outcome.price, changes=outcome.changes)


def valued(
    problem: Problem, node: NodeView, price: float, finding: Finding, solve: Callable[[Problem], Plan]
) -> Finding:
    """Return a finding that keeps `node` with what disrupting it would save, and what that takes besides.

    `problem` is about the node's pods in the cluster without the node, `price` what it costs, USD per hour.
    Where pods would have no place, changes that give them one are added; where none are known, there are
    none left.
    """
    outcome = _Attempt(problem, node.pods, f"{_POOL}{node.nodepool}", solve).run(())
    if outcome.works and not outcome.changes:
        return replace(finding, saving_per_hour=round(price - outcome.price, 6), saving_at_most=False)
    if finding.code != "noPlace":
        text = f"{finding.message}; without that, {len(outcome.stranded)} of its pods would have no place"
        finding = replace(finding, message=text)
    finding = replace(
        finding,
        saving_at_most=False,
        works=outcome.works,
        detail={**finding.detail, "stranded": outcome.stranded},
    )
    if not outcome.works:
        return replace(finding, saving_per_hour=None, changes=())
    return replace(
        finding,
        saving_per_hour=round(price - outcome.price, 6),
        changes=_together(finding.changes, outcome.changes),
    )


class _Attempt:
    """Changes made one after the other until all pods of a problem have a place."""

    def __init__(
        self, problem: Problem, pods: Iterable[Pod], place: str, solve: Callable[[Problem], Plan]
    ) -> None:
        """Begin; `pods` are those of `problem` as they are stored, `place` is where they should go."""
        self._problem = problem
        self._pods = {pod_key(pod): pod for pod in pods}
        self._place = place
        self._solve = solve

    def run(self, more: tuple[Change, ...]) -> _Tried:
        """Return what making `more`, and what has to follow it, comes to."""
        changes: tuple[Change, ...] = ()
        stranded: dict[str, str] = {}
        for _ in range(_MOST_STEPS):
            try:
                self._problem = _made(self._problem, more)
                changes = _together(changes, more)
                plan = self._solve(self._problem)
            except (ValueError, KeyError, IndexError):
                break  # e.g. a template that no longer is what the pod shows
            if not plan.unschedulable:
                return _Tried(True, round(plan.cost, 6), changes, stranded)
            stranded = stranded or {each.pod: str(each) for each in plan.unschedulable}
            before, more = more, self._next(plan.unschedulable[0])
            if not more or more == before:
                break
        return _Tried(False, 0.0, (), stranded)

    def _next(self, refused: Unschedulable) -> tuple[Change, ...]:
        """Return what removes a reason that is left; where the pod should go, if that is known."""
        pools = {f"{_POOL}{offer.pool.name}": offer.pool for offer in self._problem.pools}
        pod = next(pod for pod in self._problem.pods if pod_key(pod) == refused.pod)
        spread = self._pods[refused.pod].spec.topology_spread_constraints
        for refusal in sorted(refused.refusals, key=lambda r: r.place != self._place):
            if refusal.constraint == "topologySpread" and not spread:
                continue  # the cluster's own spread is written down nowhere in the pod's template
            found = changes_for(pod, refusal, pools.get(refusal.place))
            if found and not any(change.option for change in found):
                return found
        return ()


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
    """Return `problem` with changes made to its pods and to its pools.

    Raises:
        ValueError: when one cannot be made.
    """
    for change in changes:
        change_one = _with_pool if change.kind == "NodePool" else _with_template
        problem = change_one(problem, change)
    return problem


def _with_template(problem: Problem, change: Change) -> Problem:
    def new(pod: Pod) -> Pod:
        template = template_of(pod)
        same = (template.kind, template.namespace, template.name)
        if same != (change.kind, change.namespace, change.name):
            return pod
        return patched(pod, change.patch, template.root)

    pending = tuple(new(pod) for pod in problem.snapshot.pending)
    snapshot = replace(problem.snapshot, pending=pending)
    return replace(problem, pods=tuple(new(pod) for pod in problem.pods), snapshot=snapshot)


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
