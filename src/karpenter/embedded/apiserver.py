"""The API server: requests in, answers out, watches as streams.

`handle` is a plain function of the request and the store: it never waits, so every request is atomic and
a run under virtual time is the same each time. `answer` is the same with the pod proxy, which does wait.
Two doors lead here: `karpenter.embedded.inprocess` (no sockets) and `karpenter.embedded.http` (kubectl).

What is served, beyond plain objects: see `karpenter.embedded.subresources` (scale, eviction, binding …),
`karpenter.embedded.discovery`, `karpenter.embedded.openapi` and `karpenter.embedded.tables`.

Namespaces keep `spec.finalizers: [kubernetes]`; the namespace controller empties a terminating namespace and
then PUTs `/api/v1/namespaces/NAME/finalize` without it. Foreground and orphaning deletions leave the
`foregroundDeletion` and `orphan` finalizers for the garbage collector.
"""

from collections.abc import AsyncGenerator, Mapping
from typing import Any

import msgspec

from karpenter.embedded import errors
from karpenter.embedded.admission import Admission
from karpenter.embedded.errors import StatusError
from karpenter.embedded.kinds import Kind, KindRegistry
from karpenter.embedded.lists import check_versions, list_body, page_of
from karpenter.embedded.logs import PodLogs
from karpenter.embedded.managed import ManagedFields
from karpenter.embedded.patching import Patching
from karpenter.embedded.podproxy import PodProxy
from karpenter.embedded.requests import Request, Target, WriteOptions, decode_body, parse_target
from karpenter.embedded.resources import DeleteOptions, Objects, Written
from karpenter.embedded.selecting import compile_selectors
from karpenter.embedded.statics import Statics
from karpenter.embedded.store import Record, Store, encode_event
from karpenter.embedded.subresources import Subresources
from karpenter.embedded.tables import Tables
from karpenter.embedded.watching import Render, Signals, WatchPlan, error_stream, watch_stream
from karpenter.kube.transport import Response

JSON_HEADERS: Mapping[str, str] = {"content-type": "application/json"}


class ApiServer:
    """One embedded API server over one store.

    Args:
        store: the objects; CustomResourceDefinitions already in it are served.
        logs: where container output is read from (its own, empty, unless given).
    """

    def __init__(self, store: Store, *, logs: PodLogs | None = None) -> None:
        self.store = store
        self.registry = KindRegistry()
        self.logs = logs or PodLogs(store.clock)
        self.signals = Signals(store)
        admission = Admission(store, self.registry)
        managed = ManagedFields(store.clock)
        self.objects = Objects(store, self.registry, admission, managed)
        self.objects.on_write.append(self._written)
        self.objects.on_remove.append(self._removed)
        self._patching = Patching(self.objects, managed)
        self._subresources = Subresources(self.objects, self._patching, self.logs)
        self.proxy = PodProxy(self.objects, self.registry)
        self._statics = Statics(self.registry)
        self._tables = Tables(store)
        crds = self.registry.by_group_resource("customresourcedefinitions.apiextensions.k8s.io")
        for record in store.records(crds.group_resource):
            self.registry.register(record.object())
        for crd in store.initial_crds:
            self._define(crds, crd)

    async def answer(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
    ) -> Response:
        """Carry out one request as `handle` does; what is for a pod's own server is handed on to it."""
        target = parse_target(path)
        if target is not None and self.proxy.is_for(target):
            return await self.proxy.answer(Request(method, path, query or {}, headers or {}, body), target)
        return self.handle(method, path, query, headers, body)

    def handle(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
    ) -> Response:
        """Carry out one request. Refusals come back as Status responses; nothing is raised for them."""
        try:
            return self._dispatch(Request(method, path, query or {}, headers or {}, body))
        except StatusError as error:
            return error.response()

    def is_watch(self, path: str, query: Mapping[str, str]) -> bool:
        """Tell whether a GET is a watch, to be served by `watch`."""
        return query.get("watch", "").lower() in ("true", "1") and parse_target(path) is not None

    async def watch(
        self, path: str, query: Mapping[str, str] | None = None, headers: Mapping[str, str] | None = None
    ) -> AsyncGenerator[bytes, None]:
        """Yield the events of one watch, each a JSON document; a refusal is one ERROR event."""
        try:
            stream = watch_stream(
                self.store, self.signals, self._watch_plan(Request("GET", path, query or {}, headers or {}))
            )
        except StatusError as error:
            stream = error_stream(error)
        try:
            async for event in stream:
                yield event
        finally:
            await stream.aclose()

    def follow_log(self, target: Target, query: Mapping[str, str]) -> AsyncGenerator[str, None]:
        """Yield the lines of a container and each new one, until its pod is gone.

        Raises:
            StatusError: when there is no such pod or container.
        """
        request = Request("GET", "", query)
        kind = self.registry.by_group_resource("pods")
        container = self._subresources.log_container(kind, target, query.get("container", ""))
        since = request.number("sinceSeconds")
        return self.logs.follow(
            target.namespace,
            target.name,
            container,
            tail=request.number("tailLines"),
            since=None if since is None else self.store.clock.now() - since,
            timestamps=request.flag("timestamps"),
        )

    def close(self) -> None:
        """End all watches, so that doors can shut."""
        self.signals.close()

    def _dispatch(self, request: Request) -> Response:
        target = parse_target(request.path)
        if target is None:
            return self._statics.handle(request)
        kind = self.registry.find(target.group, target.version, target.plural)
        if kind is None:
            return self._statics.handle(request)
        if not kind.stored:
            return self._subresources.metrics(request, kind, target)
        if target.subresource:
            return self._subresources.handle(request, kind, target)
        if request.method == "GET":
            return self._get(request, kind, target) if target.name else self._list(request, kind, target)
        options = WriteOptions.of(request)
        if request.method == "POST" and not target.name:
            written = self.objects.create(kind, target.namespace, decode_body(request), options)
            return self._answer(request, kind, written)
        if request.method == "PUT" and target.name:
            record = self.objects.get(kind, target.namespace, target.name)
            return self._answer(
                request, kind, self.objects.update(kind, record, decode_body(request), options)
            )
        if request.method == "PATCH" and target.name:
            written = self._patching.patch(kind, target.namespace, target.name, request, options)
            return self._answer(request, kind, written)
        if request.method == "DELETE":
            return self._delete(request, kind, target, options)
        raise errors.method_not_allowed(request.method)

    def _get(self, request: Request, kind: Kind, target: Target) -> Response:
        record = self.objects.get(kind, target.namespace, target.name)
        body = self._tables.single(request, kind, record) or at_version(kind, record.body)
        return Response(200, body, JSON_HEADERS)

    def _list(self, request: Request, kind: Kind, target: Target) -> Response:
        page = page_of(self.store, kind, target.namespace, request)
        table = self._tables.page(request, kind, page)
        return Response(200, table or list_body(kind, page), JSON_HEADERS)

    def _answer(self, request: Request, kind: Kind, written: Written) -> Response:
        headers = JSON_HEADERS
        if written.warnings:
            text = ", ".join(f'299 - "{warning}"' for warning in written.warnings)
            headers = {**JSON_HEADERS, "warning": text}
        return Response(201 if written.created else 200, at_version(kind, written.body), headers)

    def _delete(self, request: Request, kind: Kind, target: Target, options: WriteOptions) -> Response:
        delete_options = delete_options_of(request)
        if target.name:
            record = self.objects.get(kind, target.namespace, target.name)
            body = self.objects.delete(kind, record, delete_options, dry_run=options.dry_run)
            return Response(200, at_version(kind, body), JSON_HEADERS)
        accepts = compile_selectors(kind, request.query)
        page = self.store.page(kind.group_resource, target.namespace, accepts)
        for record in page.records:
            self.objects.delete(kind, record, delete_options, dry_run=options.dry_run)
        return Response(200, list_body(kind, page), JSON_HEADERS)

    def _watch_plan(self, request: Request) -> WatchPlan:
        target = parse_target(request.path)
        kind = self.registry.find(target.group, target.version, target.plural) if target else None
        if target is None or kind is None or not kind.stored:
            raise errors.no_such_path()
        timeout = request.number("timeoutSeconds")
        initial = request.flag("sendInitialEvents")
        text = request.query.get("resourceVersion", "")
        check_versions(request, watching=True)
        revision = None if initial or text in ("", "0") else int(text)
        if revision is not None and revision > self.store.revision:
            raise StatusError(
                504,
                "Timeout",
                f"Too large resource version: {revision}, current: {self.store.revision}",
                details={"causes": [{"reason": "ResourceVersionTooLarge", "message": "too large"}]},
            )
        render = self._tables.event_renderer(request, kind)
        if render is None and needs_conversion(kind, self.registry):
            render = _converter(kind)
        return WatchPlan(
            kind=kind,
            namespace=target.namespace,
            accepts=compile_selectors(kind, request.query, target.name),
            revision=revision,
            bookmarks=request.flag("allowWatchBookmarks"),
            initial_bookmark=initial,
            timeout_seconds=float(timeout) if timeout is not None else None,
            render=render,
        )

    def _define(self, kind: Kind, crd: Mapping[str, Any]) -> None:
        """Serve a given definition; a resumed cluster may hold an older edition of it."""
        record = self.store.get(kind, "", crd["metadata"]["name"])
        own = msgspec.json.decode(msgspec.json.encode(crd))
        if record is None:
            self.objects.create(kind, "", own, WriteOptions())
        else:
            self.objects.update(kind, record, {**record.object(), "spec": own["spec"]}, WriteOptions())

    def _written(self, kind: Kind, obj: Mapping[str, Any]) -> None:
        if kind.plural == "customresourcedefinitions" and "deletionTimestamp" not in obj["metadata"]:
            self.registry.register(obj)

    def _removed(self, kind: Kind, obj: Mapping[str, Any]) -> None:
        if kind.plural == "customresourcedefinitions":
            self._remove_customs(obj)
        elif kind.group_resource == "pods":
            self.logs.close(obj["metadata"].get("namespace", ""), obj["metadata"]["name"])

    def _remove_customs(self, crd: Mapping[str, Any]) -> None:
        """A definition takes its objects along."""
        group_resource = f"{crd['spec']['names']['plural']}.{crd['spec']['group']}"
        kind = self.registry.by_group_resource(group_resource)
        for record in self.store.records(group_resource):
            self.objects.remove(kind, record)
        self.registry.unregister(crd)


def delete_options_of(request: Request) -> DeleteOptions:
    """Read DeleteOptions from the body, or from the query as old clients send them.

    Raises:
        StatusError: 400 when the body is malformed.
    """
    document = decode_body(request) if request.body else {}
    for name in ("gracePeriodSeconds", "propagationPolicy"):
        if name in request.query and name not in document:
            document[name] = request.query[name]
    try:
        return msgspec.convert(document, DeleteOptions, strict=False)
    except msgspec.ValidationError as error:
        raise errors.bad_request(f"the body is not DeleteOptions: {error}") from None


def needs_conversion(kind: Kind, registry: KindRegistry) -> bool:
    """Tell whether objects are stored under another version than `kind`'s."""
    return kind.custom is not None and registry.by_group_resource(kind.group_resource) is not kind


def _converter(kind: Kind) -> Render:
    def render(type: str, record: Record) -> bytes:
        return encode_event(type, at_version(kind, record.body))

    return render


def at_version(kind: Kind, body: bytes) -> bytes:
    """Return an encoded object under `kind`'s version (a CRD's versions differ in name only)."""
    if kind.custom is None or body.startswith(b'{"apiVersion":"%s"' % kind.api_version.encode()):
        return body
    obj = msgspec.json.decode(body)
    if obj.get("kind") != kind.kind:
        return body
    return msgspec.json.encode({**obj, "apiVersion": kind.api_version})
