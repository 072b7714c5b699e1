"""The pod proxy: `/api/v1/namespaces/NS/pods/[SCHEME:]NAME[:PORT]/proxy/PATH`, handed on to the pod's server.

Pods here run nothing, so that what answers for one is registered: a coroutine for a pod and a port. As in a
real cluster the pod has to exist; a port that nobody serves is refused as a connection would be.
"""

from collections.abc import Awaitable, Callable, Mapping

import structlog

from karpenter.embedded import errors
from karpenter.embedded.errors import StatusError
from karpenter.embedded.kinds import KindRegistry
from karpenter.embedded.requests import Request, Target
from karpenter.embedded.resources import Objects
from karpenter.kube.transport import Response

log = structlog.get_logger()

Backend = Callable[[str, str, Mapping[str, str]], Awaitable[Response]]
"""What answers for a pod: method, path (from its `/`), query."""

_PROXY = "proxy"


class PodProxy:
    """What is served behind which pod."""

    def __init__(self, objects: Objects, registry: KindRegistry) -> None:
        self._objects = objects
        self._pods = registry.by_group_resource("pods")
        self._backends: dict[tuple[str, str, int], Backend] = {}

    def serve(self, namespace: str, pod: str, port: int, backend: Backend) -> None:
        """Let `backend` answer for a port of a pod, instead of what may have done so before."""
        self._backends[namespace, pod, port] = backend

    def is_for(self, target: Target) -> bool:
        """Tell whether a request for `target` goes through here."""
        first, _, _ = target.subresource.partition("/")
        return target.plural == "pods" and not target.group and bool(target.name) and first == _PROXY

    async def answer(self, request: Request, target: Target) -> Response:
        """Hand one request on and return what comes back; refusals come back as Status responses."""
        try:
            backend = self._backend(target)
            path = "/" + target.subresource.partition("/")[2]
            return await backend(request.method, path, request.query)
        except StatusError as error:
            return error.response()
        except Exception as error:  # what a pod's server does wrong is not the API server's end
            log.exception("the server of a pod failed", path=request.path)
            return _unreachable(f"{type(error).__name__}: {error}").response()

    def _backend(self, target: Target) -> Backend:
        name, port = _split(target.name)
        pod = self._objects.get(self._pods, target.namespace, name).object()
        number = port or _first_port(pod)
        backend = self._backends.get((target.namespace, name, number))
        if backend is None:
            address = (pod.get("status") or {}).get("podIP") or name
            raise _unreachable(f"dial tcp {address}:{number}: connect: connection refused")
        return backend


def _split(text: str) -> tuple[str, int]:
    """Return pod and port (0: none was named) of `[SCHEME:]NAME[:PORT]`."""
    parts = text.split(":")
    if len(parts) == 3 or (len(parts) == 2 and parts[0] in ("http", "https")):
        if parts[0] not in ("http", "https", ""):
            raise errors.bad_request(
                f"invalid pod request {text!r}: scheme {parts[0]!r} is not http or https"
            )
        parts = parts[1:]
    name, port = parts[0], parts[1] if len(parts) == 2 else ""
    if len(parts) > 2 or not name or (port and not port.isdigit()):
        raise errors.bad_request(f"invalid pod request {text!r}: want [SCHEME:]NAME[:PORT]")
    return name, int(port or 0)


def _first_port(pod: Mapping[str, object]) -> int:
    """Return the first port that the pod's containers name; 80 when they name none."""
    spec = pod.get("spec")
    containers = spec.get("containers") or [] if isinstance(spec, dict) else []
    ports = [port["containerPort"] for container in containers for port in container.get("ports") or []]
    return int(ports[0]) if ports else 80


def _unreachable(why: str) -> StatusError:
    return StatusError(503, "ServiceUnavailable", f"error trying to reach service: {why}")
