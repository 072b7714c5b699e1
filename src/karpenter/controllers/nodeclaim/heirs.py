"""Places that pods left for another zone, passed on to pods like them.

A pod whose machine is still to come is bound wherever kube-scheduler finds room first. When pods are spread
over zones, one that so changes its zone takes the turn of another: that one could not be bound where it is
planned any more, and another machine would have to be bought for it. It gets the place that was left, in the
zone that now lags behind, and its own is given up.

Both claims' annotations say so (`karpenter.state.reservations`): first the heir is written into the one, then
taken out of the other; in between the newer claim holds it.
"""

from collections.abc import Iterable, Mapping

import structlog

from karpenter.apis import labels as known
from karpenter.apis.core import Node, Pod
from karpenter.apis.karpenter import NodeClaim
from karpenter.controllers.context import Context
from karpenter.controllers.nodeclaim.nominations import Nominations
from karpenter.kube.errors import Conflict, NotFound
from karpenter.kube.informer import Change
from karpenter.kube.patch import merge
from karpenter.model.pods import is_active, pod_key, requests
from karpenter.model.requirements import Requirements
from karpenter.runtime import Controller, Requeue, Result, Singleton
from karpenter.state.reservations import PLANNED_PODS, planned_pods, render

log = structlog.get_logger()

PASSED_ON = "pod was bound elsewhere, its place goes to another"

_SETTLE_SECONDS = 0.5
"""After how long it is looked whether an heir was nominated by whoever did not know of its new place yet."""
_WAITING = "waiting and spread, by controller"


def build(context: Context) -> list[Controller | Singleton]:
    """Return the controller that passes places on."""
    return [Heirs(context).controller()]


class Heirs:
    """Finds who is to have the place of a pod that went to another zone."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._claims = context.cache.informer(NodeClaim)
        self._nodes = context.cache.informer(Node)
        self._pods = context.cache.informer(Pod)
        self._pods.add_index(_WAITING, _owner_of_waiting)
        self._nominations = Nominations(context)
        self._moved: dict[str, str] = {}
        """Pods with a new place that the local copies may not know of yet: the claim that they left."""
        self._given: dict[str, tuple[str, str]] = {}
        """By pod that went elsewhere: to whom its place went, and the claim it is on."""

    def controller(self) -> Controller:
        """Return the controller, watching pods; one place at a time, lest two go to one pod."""
        c = self._context
        controller = Controller(
            "nodeclaim.heirs", self.reconcile, clock=c.clock, rng=c.rng, metrics=c.metrics, concurrency=1
        )
        controller.watch(self._pods, _bound_just_now)
        return controller

    async def reconcile(self, key: str) -> Result:
        """Pass on the place of one bound pod, if another zone was planned for it."""
        if key in self._given:
            await self._settle(*self._given.pop(key))
            return Result()
        pod = self._pod(key)
        claim = self._claims.get(self._context.cluster.planned_on(pod)) if pod is not None else None
        node = self._nodes.get(pod.spec.node_name) if pod is not None else None
        if pod is None or claim is None or node is None or claim.status.node_name == node.name:
            return Result()
        if key not in planned_pods(claim) or self._context.cluster.is_ending(claim):
            return Result()
        planned = self._where(claim, pod)
        landed = {label: node.metadata.labels.get(label, "") for label in planned}
        if planned == landed or not all(planned.values()):
            return Result()
        heir = self._heir(pod, claim, landed)
        if heir is not None:
            try:
                await self._pass_on(pod, claim, heir)
            except (Conflict, NotFound) as error:
                raise Requeue(f"the place of {key} is not passed on yet: {error}") from error
            return Result(_SETTLE_SECONDS)
        return Result()

    async def _settle(self, heir_key: str, claim_name: str) -> None:
        """Take back a nomination of the heir to the node that it was planned for before."""
        heir, claim = self._pod(heir_key), self._claims.get(claim_name)
        if heir is None or claim is None or heir.spec.node_name or self._holder(heir_key) != claim_name:
            return
        if heir.status.nominated_node_name not in ("", claim.status.node_name):
            await self._nominations.renominate(claim, heir)

    def _pod(self, key: str) -> Pod | None:
        namespace, _, name = key.partition("/")
        return self._pods.get(name, namespace)

    def _heir(self, pod: Pod, claim: NodeClaim, landed: Mapping[str, str]) -> Pod | None:
        """Return the last in kube-scheduler's queue of the pods like `pod` that are planned where it went."""
        self._moved = {key: left for key, left in self._moved.items() if self._holder(key) == left}
        like = [
            peer
            for owner in _owner(pod)
            for peer in self._pods.by_index(_WAITING, owner)
            if pod_key(peer) not in self._moved and _alike(peer, pod)
        ]
        found = []
        for peer in like:
            own = self._claims.get(self._context.cluster.reserved_for(peer))
            if own is not None and own.name != claim.name and self._where(own, pod) == landed:
                found.append(peer)
        return max(found, key=_turn, default=None)

    def _holder(self, key: str) -> str:
        pod = self._pod(key)
        return self._context.cluster.reserved_for(pod) if pod is not None else ""

    async def _pass_on(self, pod: Pod, claim: NodeClaim, heir: Pod) -> None:
        left, heir_key = self._context.cluster.reserved_for(heir), pod_key(heir)
        others = [key for key in planned_pods(claim) if key != pod_key(pod)]
        await self._plan(claim, [*others, heir_key])
        self._moved[heir_key], self._given[pod_key(pod)] = left, (heir_key, claim.name)
        own = self._claims.get(left)
        if own is not None:
            await self._plan(own, [key for key in planned_pods(own) if key != heir_key])
        if not await self._nominations.renominate(claim, heir):
            log.warning("could not change a nomination", pod=heir_key, NodeClaim=claim.name)
        log.info(PASSED_ON, NodeClaim=claim.name, pod=pod_key(pod), node=pod.spec.node_name, to=heir_key)

    async def _plan(self, claim: NodeClaim, keys: Iterable[str]) -> None:
        document = {"metadata": {"annotations": {PLANNED_PODS: render(keys)}}}
        patch = merge(document, resource_version=claim.metadata.resource_version)
        await self._context.client.patch(NodeClaim, claim.name, patch)

    def _where(self, claim: NodeClaim, pod: Pod) -> dict[str, str]:
        """Return the domains that `claim` is in, of those that `pod` is spread over; empty: not known."""
        wanted = Requirements.from_specs(claim.spec.requirements)
        return {
            key: claim.metadata.labels.get(key, "") or wanted.single_value(key) for key in _spread_over(pod)
        }


def _bound_just_now(change: Change[Pod]) -> Iterable[str]:
    pod, old = change.object, change.old
    bound = pod.spec.node_name and (old is None or not old.spec.node_name)
    return [pod_key(pod)] if bound and change.type != "DELETED" and _spread_over(pod) else []


def _spread_over(pod: Pod) -> list[str]:
    """Return the labels, but for host names, that a hard constraint of the pod is about."""
    hard = {
        c.topology_key
        for c in pod.spec.topology_spread_constraints
        if c.when_unsatisfiable == "DoNotSchedule" and c.topology_key != known.KUBERNETES_HOSTNAME
    }
    return sorted(hard)


def _owner(pod: Pod) -> list[str]:
    return [owner.uid for owner in pod.metadata.owner_references if owner.controller]


def _owner_of_waiting(pod: Pod) -> Iterable[str]:
    waits = not pod.spec.node_name and is_active(pod) and not pod.deleting
    return _owner(pod) if waits and _spread_over(pod) else []


def _alike(left: Pod, right: Pod) -> bool:
    """Tell whether one may have the place of the other: they ask for the same and say the same of places."""
    return (
        left.metadata.labels == right.metadata.labels
        and requests(left) == requests(right)
        and all(getattr(left.spec, field) == getattr(right.spec, field) for field in _PLACES)
    )


_PLACES = ("affinity", "node_selector", "priority", "tolerations", "topology_spread_constraints")


def _turn(pod: Pod) -> tuple[int, str]:
    """Return what orders waiting pods as kube-scheduler's queue does: when it last gave up on them."""
    version = pod.metadata.resource_version
    return int(version) if version.isdecimal() else 0, pod_key(pod)
