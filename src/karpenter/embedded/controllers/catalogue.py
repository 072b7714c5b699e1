"""Which kinds the server serves, from discovery: for controllers that care for all of them."""

import msgspec

from karpenter.apis.meta import KubeObject, Resource
from karpenter.kube.client import Client
from karpenter.kube.errors import error_of


class _Served(msgspec.Struct, rename="camel"):
    name: str
    kind: str = ""
    namespaced: bool = False
    verbs: list[str] = []


class _ResourceList(msgspec.Struct):
    resources: list[_Served] = []


class _Version(msgspec.Struct, rename="camel"):
    group_version: str = ""
    version: str = ""


class _Group(msgspec.Struct, rename="camel"):
    name: str
    versions: list[_Version] = []
    preferred_version: _Version = msgspec.field(default_factory=_Version)


class _Groups(msgspec.Struct):
    groups: list[_Group] = []


async def _read(client: Client, path: str) -> bytes:
    answer = await client.transport.request("GET", path)
    if answer.status >= 400:
        raise error_of(answer.status, answer.body)
    return answer.body


async def served_resources(client: Client) -> list[Resource]:
    """Return every kind that can be listed, watched and deleted, once, sorted by group and plural."""
    groups = msgspec.json.decode(await _read(client, "/apis"), type=_Groups).groups
    places = [("", "v1", "/api/v1")]
    for group in groups:
        version = group.preferred_version.version or (group.versions[0].version if group.versions else "")
        if version:
            places.append((group.name, version, f"/apis/{group.name}/{version}"))
    found: list[Resource] = []
    for name, version, path in places:
        listed = msgspec.json.decode(await _read(client, path), type=_ResourceList).resources
        found += [
            Resource(group=name, version=version, plural=r.name, kind=r.kind, namespaced=r.namespaced)
            for r in listed
            if "/" not in r.name and {"list", "watch", "delete"} <= set(r.verbs)
        ]
    return sorted(found, key=lambda r: (r.group, r.plural))


def metadata_kind(resource: Resource) -> type[KubeObject]:
    """Return a kind of our own that reads nothing but the metadata of `resource`."""
    name = f"Meta{resource.kind}"
    return msgspec.defstruct(
        name,
        [],
        bases=(KubeObject,),
        namespace={"resource": resource, "__module__": __name__},
        frozen=True,
        kw_only=True,
    )  # type: ignore[return-value]
