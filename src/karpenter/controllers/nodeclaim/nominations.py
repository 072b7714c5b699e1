"""Telling kube-scheduler which pods a new node is for: `status.nominatedNodeName`.

A pod that a claim was created for is nominated to the claim's node before anything may run there, so that it
is tried there first and others leave it its room. The claim remembers which pods these are
(`karpenter.state.reservations`), also for whoever comes after a crash. As soon as it holds them no more (it
ends, its node goes, or they did not get there in time), nominations to its node are taken back: the pods
are anybody's again. Nominations by others to nodes that are there are never touched.
"""

import asyncio
from collections.abc import Iterable, Sequence

import structlog

from karpenter.apis.core import Node, Pod
from karpenter.apis.karpenter import NodeClaim
from karpenter.controllers.context import Context
from karpenter.kube.errors import ApiError, Forbidden, Invalid, NotFound
from karpenter.kube.informer import Change
from karpenter.kube.patch import merge
from karpenter.kube.transport import TransportError
from karpenter.model.pods import is_active, pod_key
from karpenter.runtime import Controller, Requeue, Result, Singleton
from karpenter.state.reservations import PLANNED_PODS, planned_pods, until

log = structlog.get_logger()

NOT_NOMINATED = "could not write nominations of pods, trying again"
FORBIDDEN = "may not write status.nominatedNodeName of pods; kube-scheduler puts them where it likes"

_PARALLEL = 50
_AFTER_SECONDS = 0.1
"""How long after its end a reservation is looked at again."""


def build(context: Context) -> list[Controller | Singleton]:
    """Return the controller that keeps nominations as the claims have them."""
    return [Nominations(context).controller()]


class Nominations:
    """Writes and takes back the nominations of claims' pods."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._claims = context.cache.informer(NodeClaim)
        self._pods = context.cache.informer(Pod)
        self._nodes = context.cache.informer(Node)

    def controller(self) -> Controller:
        """Return the controller, watching claims and their nodes."""
        c = self._context
        controller = Controller(
            "nodeclaim.nominations",
            self.reconcile,
            clock=c.clock,
            rng=c.rng,
            metrics=c.metrics,
            concurrency=c.settings.concurrency(10, 100),
        )
        controller.watch(self._claims, _planning)
        controller.watch(c.cache.informer(Node), self._claims_of)
        return controller

    def _claims_of(self, change: Change[Node]) -> Iterable[str]:
        return [c.name for c in self._context.cluster.claims_for(change.object.spec.provider_id)]

    async def reconcile(self, name: str) -> Result:
        """Bring the nominations of one claim's pods up to date."""
        claim = self._claims.get(name)
        if claim is None or not planned_pods(claim) or not self._heeded:
            return Result()
        node = self._node(claim)
        end = until(claim, self._context.cluster.nomination_seconds)
        now = self._context.clock.now()
        if node is None or end <= now:
            return Result() if await self.take_back(claim) else _again(name)
        if claim.status.node_name != node.name:
            return Result()  # not registered yet: the registration nominates
        if not await self.promise(claim, node):
            return _again(name)
        return Result(end - now + _AFTER_SECONDS) if end != float("inf") else Result()

    @property
    def _heeded(self) -> bool:
        features = self._context.server.features
        return features is not None and features.nomination

    def _node(self, claim: NodeClaim) -> Node | None:
        """Return the claim's node, if pods may still be expected there."""
        nodes = self._context.cluster.nodes_for(claim.status.provider_id)
        if len(nodes) != 1 or nodes[0].deleting or self._context.cluster.is_ending(claim):
            return None
        return nodes[0]

    async def promise(self, claim: NodeClaim, node: Node) -> bool:
        """Nominate the pods that `claim` holds and that have no nomination; tell whether all went well."""
        if not self._context.server.nomination:
            return True
        held = [
            pod
            for pod in self._waiting(claim)
            if not pod.status.nominated_node_name and self._context.cluster.reserved_for(pod) == claim.name
        ]
        return await self._write(claim, held, node.name)

    async def renominate(self, claim: NodeClaim, pod: Pod) -> bool:
        """Nominate a pod that `claim` holds instead of another to its node, or to none if that is to come."""
        if not self._heeded or not self._context.server.nomination:
            return True
        return await self._write(claim, [pod], claim.status.node_name or None)

    async def clear(self, pod: Pod) -> bool:
        """Take any nomination from a pod; tell whether all went well."""
        if not self._heeded or not self._context.server.nomination:
            return True
        return not await self._nominate(pod, None)

    async def take_back(self, claim: NodeClaim) -> bool:
        """Clear the nominations of the claim's pods to its node; tell whether all went well.

        The node of a claim that was never told its name is known by not being there any more.
        """
        if not self._heeded:
            return True
        names = {n.name for n in self._context.cluster.nodes_for(claim.status.provider_id)}
        names |= {claim.status.node_name} - {""}
        nominated = [pod for pod in self._waiting(claim) if pod.status.nominated_node_name]
        if not claim.status.node_name:
            named = {pod.status.nominated_node_name for pod in nominated}
            names |= {name for name in named if self._nodes.get(name) is None}
        stale = [pod for pod in nominated if pod.status.nominated_node_name in names]
        return await self._write(claim, stale, None)

    def _waiting(self, claim: NodeClaim) -> list[Pod]:
        """Return those of the claim's pods that have no node yet."""
        found = []
        for key in planned_pods(claim):
            namespace, _, name = key.partition("/")
            pod = self._pods.get(name, namespace)
            if pod is not None and is_active(pod) and not pod.spec.node_name:
                found.append(pod)
        return found

    async def _write(self, claim: NodeClaim, pods: Sequence[Pod], node: str | None) -> bool:
        gate = asyncio.Semaphore(_PARALLEL)

        async def one(pod: Pod) -> str:
            async with gate:
                return await self._nominate(pod, node)

        errors = [error for error in await asyncio.gather(*(one(pod) for pod in pods)) if error]
        if errors:
            log.warning(NOT_NOMINATED, NodeClaim=claim.name, pods=len(errors), error=errors[0])
        return not errors

    async def _nominate(self, pod: Pod, node: str | None) -> str:
        """Write one nomination (None: none); return what was wrong."""
        patch = merge({"metadata": {"uid": pod.metadata.uid}, "status": {"nominatedNodeName": node}})
        try:
            await self._context.client.patch(
                Pod, pod.name, patch, namespace=pod.namespace, subresource="status"
            )
        except (NotFound, Invalid):
            return ""  # it is gone, or was bound a moment ago: bound pods can have none
        except Forbidden as error:
            if self._context.server.may_nominate:
                self._context.server.may_nominate = False  # asking again helps nobody
                log.warning(FORBIDDEN, error=str(error))
            return ""
        except (ApiError, TransportError) as error:
            return f"{pod_key(pod)}: {error}"
        return ""


def _planning(change: Change[NodeClaim]) -> Iterable[str]:
    return [change.object.name] if PLANNED_PODS in change.object.metadata.annotations else []


def _again(name: str) -> Result:
    raise Requeue(f"nominations of {name} are not as they should be")
