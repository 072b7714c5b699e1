"""Typed access to an API server over any `Transport`.

Reads decode straight into the structs of `karpenter.apis`; writes are creates of whole objects and patches
of the fields we own (`karpenter.kube.patch`), never updates: decoded structs have dropped unknown fields.
"""

from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar, cast

import msgspec

from karpenter.apis.meta import KubeObject, Resource
from karpenter.kube.errors import error_of
from karpenter.kube.patch import Patch
from karpenter.kube.transport import Response, Transport

K = TypeVar("K", bound=KubeObject)


class ListMeta(msgspec.Struct, frozen=True, rename="camel"):
    """metav1.ListMeta."""

    resource_version: str = ""
    continue_token: str = msgspec.field(default="", name="continue")


class ObjectList(msgspec.Struct, Generic[K], frozen=True, gc=False, rename="camel"):
    """One page of a list."""

    items: list[K] = []
    metadata: ListMeta = ListMeta()


class _RawList(msgspec.Struct, frozen=True):
    """One page of a list, its objects not decoded yet."""

    items: list[msgspec.Raw] = []
    metadata: ListMeta = ListMeta()


class HasResource(Protocol):
    """A struct class that says where its kind lives."""

    resource: Resource


def resource_of(kind: type[KubeObject]) -> Resource:
    """Return where `kind` lives in the API."""
    return cast(HasResource, kind).resource


class Client:
    """Creates, reads, patches and deletes objects of one API server.

    Every method raises `ApiError` (see `karpenter.kube.errors`) when the server refuses and
    `TransportError` when there is no answer. None retries: level-triggered callers come back.
    """

    def __init__(self, transport: Transport, *, field_manager: str = "karpenter") -> None:
        self.transport = transport
        self._field_manager = field_manager
        self._decoders: dict[type, msgspec.json.Decoder[Any]] = {}

    async def get(self, kind: type[K], name: str, namespace: str = "") -> K:
        """Return one object."""
        response = await self._send("GET", resource_of(kind).path(namespace, name))
        return self.decode(kind, response.body)

    async def list_page(
        self,
        kind: type[K],
        namespace: str = "",
        *,
        query: dict[str, str] | None = None,
        unreadable: Callable[[bytes, msgspec.ValidationError], None] | None = None,
    ) -> ObjectList[K]:
        """Return one page of objects, as the query (`limit`, `continue`, `labelSelector`, …) says.

        With `unreadable`, objects that do not fit `kind` are handed to it and left out.

        Raises:
            msgspec.ValidationError: when an object does not fit `kind` and there is no `unreadable`.
        """
        response = await self._send("GET", resource_of(kind).path(namespace), query=query)
        decoder = self._decoder(ObjectList[kind])  # type: ignore[valid-type]
        try:
            return cast(ObjectList[K], decoder.decode(response.body))
        except msgspec.ValidationError:
            if unreadable is None:
                raise
        raw: _RawList = self._decoder(_RawList).decode(response.body)
        items: list[K] = []
        for item in raw.items:
            try:
                items.append(self.decode(kind, item))
            except msgspec.ValidationError as error:
                unreadable(bytes(item), error)
        return ObjectList(items=items, metadata=raw.metadata)

    async def list(
        self, kind: type[K], namespace: str = "", *, label_selector: str = "", field_selector: str = ""
    ) -> list[K]:
        """Return all objects, in pages of 500, ordered as the server orders them (by key)."""
        query = {"limit": "500"}
        if label_selector:
            query["labelSelector"] = label_selector
        if field_selector:
            query["fieldSelector"] = field_selector
        items: list[K] = []
        while True:
            page = await self.list_page(kind, namespace, query=query)
            items.extend(page.items)
            if not page.metadata.continue_token:
                return items
            query["continue"] = page.metadata.continue_token

    async def create(self, obj: K) -> K:
        """Create `obj` (its `metadata.namespace` says where) and return it as stored."""
        resource = resource_of(type(obj))
        obj = msgspec.structs.replace(obj, api_version=resource.api_version, kind=resource.kind)
        response = await self._send(
            "POST",
            resource.path(obj.namespace),
            query={"fieldManager": self._field_manager},
            body=msgspec.json.encode(obj),
        )
        return self.decode(type(obj), response.body)

    async def patch(
        self, kind: type[K], name: str, patch: Patch, *, namespace: str = "", subresource: str = ""
    ) -> K:
        """Apply `patch` to one object or its `subresource` (e.g. `status`) and return the result."""
        query = {"fieldManager": patch.field_manager or self._field_manager}
        if patch.force:
            query["force"] = "true"
        response = await self._send(
            "PATCH",
            resource_of(kind).path(namespace, name, subresource),
            query=query,
            body=patch.encode(),
            content_type=patch.content_type,
        )
        return self.decode(kind, response.body)

    async def delete(
        self,
        kind: type[KubeObject],
        name: str,
        *,
        namespace: str = "",
        uid: str = "",
        grace_period_seconds: int | None = None,
    ) -> None:
        """Ask for the deletion of one object; with `uid`, only of that very object (else `Conflict`)."""
        options: dict[str, Any] = {"apiVersion": "v1", "kind": "DeleteOptions"}
        if uid:
            options["preconditions"] = {"uid": uid}
        if grace_period_seconds is not None:
            options["gracePeriodSeconds"] = grace_period_seconds
        await self._send("DELETE", resource_of(kind).path(namespace, name), body=msgspec.json.encode(options))

    async def evict(self, name: str, namespace: str, *, uid: str) -> None:
        """Evict one pod through the Eviction API, which honours PodDisruptionBudgets."""
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": name, "namespace": namespace},
            "deleteOptions": {"preconditions": {"uid": uid}},
        }
        await self._send(
            "POST", f"/api/v1/namespaces/{namespace}/pods/{name}/eviction", body=msgspec.json.encode(body)
        )

    def decode(self, kind: type[K], body: bytes | msgspec.Raw) -> K:
        """Decode one object of `kind`."""
        return cast(K, self._decoder(kind).decode(body))

    def _decoder(self, kind: Any) -> msgspec.json.Decoder[Any]:
        decoder = self._decoders.get(kind)
        if decoder is None:
            decoder = self._decoders[kind] = msgspec.json.Decoder(kind)
        return decoder

    async def _send(
        self,
        method: str,
        path: str,
        *,
        query: dict[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = "application/json",
    ) -> Response:
        response = await self.transport.request(
            method, path, query=query, body=body, content_type=content_type
        )
        if response.status >= 400:
            retry_after = response.headers.get("retry-after", "")
            raise error_of(
                response.status, response.body, float(retry_after) if retry_after.isdigit() else None
            )
        return response
