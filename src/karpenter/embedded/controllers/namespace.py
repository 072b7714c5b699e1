"""Namespaces: a service account when they come, and nothing left in them when they go."""

import msgspec

from karpenter.apis.core import Namespace
from karpenter.apis.meta import Resource
from karpenter.base.clock import Clock
from karpenter.base.metrics import Metrics
from karpenter.base.randomness import Random
from karpenter.embedded.bootstrap import service_account
from karpenter.embedded.controllers.catalogue import served_resources
from karpenter.embedded.controllers.pods import create_unless_there, own_key
from karpenter.kube.errors import Conflict, NotFound, error_of
from karpenter.kube.informer import Cache
from karpenter.runtime import Controller, Result

POLL_SECONDS = 1.0
"""How often a namespace that is being emptied is looked at."""


class _Remaining(msgspec.Struct):
    items: list[msgspec.Raw] = []


class NamespaceController:
    """Empties and finalizes namespaces that are being deleted."""

    def __init__(self, cache: Cache, *, clock: Clock, rng: Random, metrics: Metrics) -> None:
        self._client = cache.client
        self._namespaces = cache.informer(Namespace)
        self.controller = Controller(
            "namespace", self.reconcile, clock=clock, rng=rng, metrics=metrics, concurrency=2
        )
        self.controller.watch(self._namespaces, own_key)

    async def reconcile(self, key: str) -> Result:
        """See to one namespace."""
        namespace = self._namespaces.get(key)
        if namespace is None:
            return Result()
        if not namespace.deleting:
            path = f"/api/v1/namespaces/{key}/serviceaccounts"
            try:
                await create_unless_there(self._client, path, service_account(key))
            except NotFound:
                return Result()  # the namespace went meanwhile
            return Result()
        resources = [r for r in await served_resources(self._client) if r.namespaced]
        left = 0
        for resource in resources:
            left += await self._clear(resource, key)
        if left:
            return Result(POLL_SECONDS)
        await self._finalize(namespace)
        return Result()

    async def _clear(self, resource: Resource, namespace: str) -> int:
        path = resource.path(namespace)
        answer = await self._client.transport.request("GET", path, query={"limit": "1"})
        if answer.status >= 400:
            raise error_of(answer.status, answer.body)
        if not msgspec.json.decode(answer.body, type=_Remaining).items:
            return 0
        answer = await self._client.transport.request("DELETE", path)
        if answer.status >= 400:
            raise error_of(answer.status, answer.body)
        return 1

    async def _finalize(self, namespace: Namespace) -> None:
        document = {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": namespace.name, "uid": namespace.metadata.uid},
            "spec": {"finalizers": []},
        }
        answer = await self._client.transport.request(
            "PUT", f"/api/v1/namespaces/{namespace.name}/finalize", body=msgspec.json.encode(document)
        )
        if answer.status >= 400:
            error = error_of(answer.status, answer.body)
            if not isinstance(error, (NotFound, Conflict)):
                raise error
