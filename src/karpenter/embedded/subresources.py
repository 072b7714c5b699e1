"""What lies below an object's path: status, scale, eviction, binding, log, finalize; and metrics."""

from typing import Any

import msgspec

from karpenter.base.clock import format_time
from karpenter.embedded import errors
from karpenter.embedded.eviction import evict
from karpenter.embedded.kinds import Kind, Scale
from karpenter.embedded.logs import PodLogs
from karpenter.embedded.metricsapi import node_metrics, pod_metrics
from karpenter.embedded.patching import Patching, patch_document
from karpenter.embedded.requests import Request, Target, WriteOptions, decode_body
from karpenter.embedded.resources import Objects
from karpenter.embedded.selecting import compile_selectors
from karpenter.embedded.store import Record
from karpenter.kube.patch import APPLY
from karpenter.kube.transport import Response

JSON_HEADERS = {"content-type": "application/json"}


class Subresources:
    """Routes and carries out requests below an object."""

    def __init__(self, objects: Objects, patching: Patching, logs: PodLogs) -> None:
        self._objects = objects
        self._patching = patching
        self._logs = logs

    def handle(self, request: Request, kind: Kind, target: Target) -> Response:
        """Carry out one request on a subresource.

        Raises:
            StatusError: 404 when the kind has none of that name, 405 when it has no such verb.
        """
        name = target.subresource
        if name == "status" and kind.status:
            return self._part(request, kind, target, "status")
        if name == "scale" and kind.scale is not None:
            return self._scale(request, kind, target, kind.scale)
        if name not in kind.subresources or name == "proxy":  # that goes through `ApiServer.answer`
            raise errors.no_such_path()
        if name == "log":
            return self._log(request, kind, target)
        if name in ("finalize", "ephemeralcontainers", "resize"):
            return self._part(request, kind, target, name)
        if request.method != "POST":
            raise errors.method_not_allowed(request.method)
        body = decode_body(request)
        if not isinstance(body, dict):
            raise errors.bad_request("the body must be an object")
        if name == "binding":
            return self._bind(request, kind, target, body)
        options = WriteOptions.of(request)
        evict(self._objects, kind, target, body, dry_run=options.dry_run)
        return _success(201)

    def metrics(self, request: Request, kind: Kind, target: Target) -> Response:
        """Answer metrics.k8s.io: usage is what is requested, since nothing here really runs."""
        if request.method != "GET":
            raise errors.method_not_allowed(request.method)
        accepts = compile_selectors(kind, request.query)
        make = node_metrics if kind.plural == "nodes" else pod_metrics
        items = make(self._objects.store, target.namespace, target.name, accepts)
        if target.name:
            if not items:
                raise errors.not_found(kind.group_resource, target.name)
            return _json(200, items[0])
        head = {"kind": f"{kind.kind}List", "apiVersion": kind.api_version, "metadata": {}}
        return _json(200, {**head, "items": items})

    def _part(self, request: Request, kind: Kind, target: Target, name: str) -> Response:
        """Serve a subresource that is the object itself, seen through another door."""
        if request.method == "GET":
            return Response(200, self._objects.get(kind, target.namespace, target.name).body, JSON_HEADERS)
        options = WriteOptions.of(request)
        if request.method == "PATCH":
            written = self._patching.patch(
                kind, target.namespace, target.name, request, options, subresource=name
            )
        elif request.method == "PUT":
            record = self._objects.get(kind, target.namespace, target.name)
            written = self._objects.update(kind, record, decode_body(request), options, subresource=name)
        else:
            raise errors.method_not_allowed(request.method)
        return Response(200, written.body, JSON_HEADERS)

    def _scale(self, request: Request, kind: Kind, target: Target, scale: Scale) -> Response:
        record = self._objects.get(kind, target.namespace, target.name)
        view = scale_of(record, scale)
        if request.method == "GET":
            return _json(200, view)
        options = WriteOptions.of(request)
        if request.method == "PATCH":
            if request.content_type == APPLY:
                raise errors.StatusError(
                    415, "UnsupportedMediaType", "apply to scale is not supported; patch it"
                )
            wanted = patch_document(_SCALE, view, request, target.name)
        elif request.method == "PUT":
            wanted = decode_body(request)
        else:
            raise errors.method_not_allowed(request.method)
        replicas = (wanted.get("spec") or {}).get("replicas", 0) if isinstance(wanted, dict) else None
        if not isinstance(replicas, int) or isinstance(replicas, bool) or replicas < 0:
            cause = errors.Cause(
                "spec.replicas", f"Invalid value: {replicas!r}: must be an integer, zero or more"
            )
            raise errors.invalid("autoscaling", "Scale", target.name, [cause])
        version = (wanted.get("metadata") or {}).get("resourceVersion")
        if version and version != str(record.revision):
            raise errors.conflict(kind.group_resource, target.name)
        obj = record.object()
        _set(obj, scale.spec_replicas, replicas)
        written = self._objects.update(kind, record, obj, options, subresource="scale")
        return _json(200, _scale_view(msgspec.json.decode(written.body), scale))

    def _bind(self, request: Request, kind: Kind, target: Target, body: dict[str, Any]) -> Response:
        """Put a pod on a node."""
        options = WriteOptions.of(request)
        record = self._objects.get(kind, target.namespace, target.name)
        obj = record.object()
        meta = obj["metadata"]
        given = body.get("metadata") or {}
        if given.get("uid") and given["uid"] != record.uid:
            raise errors.conflict(
                "pods", target.name, f"Precondition failed: UID in precondition: {given['uid']}"
            )
        node = (body.get("target") or {}).get("name", "")
        if not node:
            raise errors.invalid("", "Binding", target.name, [errors.Cause("target.name", "Required value")])
        if "deletionTimestamp" in meta:
            raise errors.conflict(
                "pods/binding",
                target.name,
                f"pod {target.name} is being deleted, cannot be assigned to a host",
            )
        if obj["spec"].get("nodeName"):
            why = f'pod {target.name} is already assigned to node "{obj["spec"]["nodeName"]}"'
            raise errors.conflict("pods/binding", target.name, why)
        if obj["spec"].get("schedulingGates"):
            raise errors.conflict(
                "pods/binding", target.name, f"pod {target.name} has non-empty .spec.schedulingGates"
            )
        obj["spec"]["nodeName"] = node
        for field in ("annotations", "labels"):
            if given.get(field):
                meta[field] = {**(meta.get(field) or {}), **given[field]}
        status = obj.setdefault("status", {})
        conditions = [c for c in status.get("conditions") or [] if c.get("type") != "PodScheduled"]
        now = format_time(self._objects.store.clock.now())
        conditions.append({"type": "PodScheduled", "status": "True", "lastTransitionTime": now})
        status["conditions"] = conditions
        status.pop("nominatedNodeName", None)
        self._objects.update(kind, record, obj, options, subresource="binding", trusted=True)
        return _success(201)

    def _log(self, request: Request, kind: Kind, target: Target) -> Response:
        if request.method != "GET":
            raise errors.method_not_allowed(request.method)
        container = self.log_container(kind, target, request.query.get("container", ""))
        since = request.number("sinceSeconds")
        lines = self._logs.read(
            target.namespace,
            target.name,
            container,
            tail=request.number("tailLines"),
            since=None if since is None else self._objects.store.clock.now() - since,
            timestamps=request.flag("timestamps"),
        )
        text = "".join(f"{line}\n" for line in lines)
        return Response(200, text.encode(), {"content-type": "text/plain"})

    def log_container(self, kind: Kind, target: Target, wanted: str) -> str:
        """Return the container whose log is meant.

        Raises:
            StatusError: 404 without the pod, 400 when the pod has no such container or several.
        """
        spec = self._objects.get(kind, target.namespace, target.name).object().get("spec") or {}
        names = [c["name"] for part in ("containers", "initContainers") for c in spec.get(part) or []]
        if wanted:
            if wanted not in names:
                raise errors.bad_request(f"container {wanted} is not valid for pod {target.name}")
            return wanted
        if len(spec.get("containers") or []) != 1:
            listing = " ".join(names)
            raise errors.bad_request(
                f"a container name must be specified for pod {target.name}, choose one of: [{listing}]"
            )
        return str(names[0])


def scale_of(record: Record, scale: Scale) -> dict[str, Any]:
    """Return an object's autoscaling/v1 Scale."""
    return _scale_view(record.object(), scale)


def _scale_view(obj: dict[str, Any], scale: Scale) -> dict[str, Any]:
    meta = obj["metadata"]
    keep = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    status: dict[str, Any] = {"replicas": _dig(obj, scale.status_replicas) or 0}
    selector = _dig(obj, scale.selector) if scale.selector else None
    if selector is None and scale.selector == "status.selector":
        selector = _dig(obj, "spec.selector")
    if selector:
        status["selector"] = selector if isinstance(selector, str) else _selector_text(selector)
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {name: meta[name] for name in keep if name in meta},
        # none is not shown: the real type leaves a zero out
        "spec": {"replicas": replicas} if (replicas := _dig(obj, scale.spec_replicas)) else {},
        "status": status,
    }


def _selector_text(selector: dict[str, Any]) -> str:
    """Render a label selector as its text form."""
    labels = selector.get("matchLabels", selector if "matchExpressions" not in selector else {})
    terms = [f"{key}={value}" for key, value in sorted((labels or {}).items())]
    for expression in selector.get("matchExpressions") or []:
        key, values = expression["key"], ",".join(sorted(expression.get("values") or []))
        forms = {"In": f"{key} in ({values})", "NotIn": f"{key} notin ({values})", "Exists": key}
        terms.append(forms.get(expression["operator"], f"!{key}"))
    return ",".join(terms)


def _dig(obj: Any, path: str) -> Any:
    for name in path.split("."):
        obj = obj.get(name) if isinstance(obj, dict) else None
    return obj


def _set(obj: dict[str, Any], path: str, value: Any) -> None:
    *parents, last = path.split(".")
    for name in parents:
        obj = obj.setdefault(name, {})
    obj[last] = value


def _json(status: int, body: Any) -> Response:
    return Response(status, msgspec.json.encode(body), JSON_HEADERS)


def _success(code: int) -> Response:
    return _json(
        code, {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": code}
    )


_SCALE = Kind(group="autoscaling", version="v1", plural="scales", kind="Scale", namespaced=True)
