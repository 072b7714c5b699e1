"""Everything that is not an object: discovery, OpenAPI, version, health, and reviews of access."""

from karpenter.embedded import errors
from karpenter.embedded.kinds import KindRegistry
from karpenter.embedded.requests import Request
from karpenter.kube.transport import Response


class Statics:
    """Answers for paths that address no resource."""

    def __init__(self, registry: KindRegistry) -> None:
        self._registry = registry

    def handle(self, request: Request) -> Response:
        raise errors.no_such_path()
