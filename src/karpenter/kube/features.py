"""What the server at the other end can do; the only place that looks at versions."""

import re
from typing import Any

import msgspec

from karpenter.kube.client import Client
from karpenter.kube.errors import error_of


class ServerFeatures(msgspec.Struct, frozen=True, kw_only=True):
    """Abilities of an API server and the scheduler behind it."""

    version: tuple[int, int]
    """Major and minor."""
    nomination: bool
    """kube-scheduler heeds a `status.nominatedNodeName` that others set (KEP-5278; beta in 1.35)."""
    dra_version: str
    """Newest served version of resource.k8s.io, or empty."""
    in_place_resize: bool
    """Pods can be resized without a restart (KEP-1287; beta in 1.33)."""
    provisioning_request: bool
    """autoscaling.x-k8s.io ProvisioningRequests are served."""


async def discover(client: Client) -> ServerFeatures:
    """Ask the server what it can do.

    Raises:
        ApiError, TransportError: when it cannot be asked.
    """
    version = await _read(client, "/version")
    numbers = [int(re.sub(r"\D.*", "", str(version.get(part, "0"))) or 0) for part in ("major", "minor")]
    major_minor = (numbers[0], numbers[1])
    groups = {
        str(group["name"]): [str(entry["version"]) for entry in group.get("versions", [])]
        for group in (await _read(client, "/apis")).get("groups", [])
    }
    dra = groups.get("resource.k8s.io", [])
    autoscaling = groups.get("autoscaling.x-k8s.io", [])
    served = [
        str(resource["name"])
        for entry in autoscaling
        for resource in (await _read(client, f"/apis/autoscaling.x-k8s.io/{entry}")).get("resources", [])
    ]
    return ServerFeatures(
        version=major_minor,
        nomination=major_minor >= (1, 35),
        dra_version=dra[0] if dra else "",
        in_place_resize=major_minor >= (1, 33),
        provisioning_request="provisioningrequests" in served,
    )


class Server:
    """What is known of the server by now; nothing is expected of one that was not asked yet."""

    def __init__(self, features: ServerFeatures | None = None) -> None:
        self.features = features
        self.may_nominate = True
        """False once the server refused us the right to write `status.nominatedNodeName`."""

    @property
    def nomination(self) -> bool:
        """Whether we can tell kube-scheduler on which node a pod is expected."""
        return self.may_nominate and self.features is not None and self.features.nomination


async def _read(client: Client, path: str) -> dict[str, list[dict[str, Any]]]:
    response = await client.transport.request("GET", path)
    if response.status >= 400:
        raise error_of(response.status, response.body)
    document: dict[str, list[dict[str, Any]]] = msgspec.json.decode(response.body)
    return document
