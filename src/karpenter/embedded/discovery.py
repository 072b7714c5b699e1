"""Discovery: which groups, versions and resources there are, in the aggregated and in the legacy form."""

from typing import Any

from karpenter.embedded.kinds import VERBS, Kind, KindRegistry

AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
_SUBRESOURCE_KINDS = {
    "binding": ("", "v1", "Binding", ["create"]),
    "eviction": ("policy", "v1", "Eviction", ["create"]),
    "scale": ("autoscaling", "v1", "Scale", ["get", "patch", "update"]),
    "log": ("", "v1", "Pod", ["get"]),
    "finalize": ("", "v1", "Namespace", ["update"]),
    "proxy": ("", "v1", "PodProxyOptions", ["create", "delete", "get", "patch", "update"]),
}
REVIEWS = (
    Kind(
        group="authorization.k8s.io",
        version="v1",
        plural="selfsubjectaccessreviews",
        kind="SelfSubjectAccessReview",
        namespaced=False,
        stored=False,
    ),
    Kind(
        group="authorization.k8s.io",
        version="v1",
        plural="selfsubjectrulesreviews",
        kind="SelfSubjectRulesReview",
        namespaced=False,
        stored=False,
    ),
    Kind(
        group="authentication.k8s.io",
        version="v1",
        plural="selfsubjectreviews",
        kind="SelfSubjectReview",
        namespaced=False,
        stored=False,
    ),
)


def served(registry: KindRegistry) -> dict[str, dict[str, list[Kind]]]:
    """Return all kinds by group and version, both sorted (groups by name, the core group first)."""
    groups: dict[str, dict[str, list[Kind]]] = {}
    for kind in sorted((*registry.all(), *REVIEWS), key=lambda kind: (kind.group, kind.version, kind.plural)):
        groups.setdefault(kind.group, {}).setdefault(kind.version, []).append(kind)
    return groups


def verbs_of(kind: Kind) -> list[str]:
    """Return what can be done with a kind."""
    if kind.stored:
        return list(VERBS)
    return ["create"] if kind in REVIEWS else ["get", "list"]


def aggregated(registry: KindRegistry, *, core: bool) -> dict[str, Any]:
    """Return the aggregated discovery of the core group or of all others."""
    items = []
    for group, versions in served(registry).items():
        if (group == "") is not core:
            continue
        meta = {"name": group} if group else {}
        listing = [
            {
                "version": version,
                "resources": [_aggregated_resource(kind) for kind in kinds],
                "freshness": "Current",
            }
            for version, kinds in versions.items()
        ]
        items.append({"metadata": meta, "versions": listing})
    return {
        "kind": "APIGroupDiscoveryList",
        "apiVersion": "apidiscovery.k8s.io/v2",
        "metadata": {},
        "items": items,
    }


def _aggregated_resource(kind: Kind) -> dict[str, Any]:
    resource: dict[str, Any] = {
        "resource": kind.plural,
        "responseKind": {"group": kind.group, "version": kind.version, "kind": kind.kind},
        "scope": "Namespaced" if kind.namespaced else "Cluster",
        "singularResource": kind.singular or kind.kind.lower(),
        "verbs": verbs_of(kind),
    }
    if kind.short_names:
        resource["shortNames"] = list(kind.short_names)
    if kind.categories:
        resource["categories"] = list(kind.categories)
    subresources = [
        {
            "subresource": name,
            "responseKind": {"group": group, "version": version, "kind": kind_name},
            "verbs": verbs,
        }
        for name, group, version, kind_name, verbs in _subresources(kind)
    ]
    if subresources:
        resource["subresources"] = subresources
    return resource


def _subresources(kind: Kind) -> list[tuple[str, str, str, str, list[str]]]:
    names = list(kind.subresources)
    if kind.status:
        names.append("status")
    if kind.scale is not None:
        names.append("scale")
    own = (kind.group, kind.version, kind.kind, ["get", "patch", "update"])
    return [(name, *_SUBRESOURCE_KINDS.get(name, own)) for name in sorted(names)]


def resource_list(registry: KindRegistry, group: str, version: str) -> dict[str, Any] | None:
    """Return the legacy list of one group version's resources, None when there is no such thing."""
    kinds = served(registry).get(group, {}).get(version)
    if kinds is None:
        return None
    resources: list[dict[str, Any]] = []
    for kind in kinds:
        entry: dict[str, Any] = {
            "name": kind.plural,
            "singularName": kind.singular or kind.kind.lower(),
            "namespaced": kind.namespaced,
            "kind": kind.kind,
            "verbs": verbs_of(kind),
        }
        if kind.short_names:
            entry["shortNames"] = list(kind.short_names)
        if kind.categories:
            entry["categories"] = list(kind.categories)
        resources.append(entry)
        for name, sub_group, sub_version, sub_kind, verbs in _subresources(kind):
            sub: dict[str, Any] = {
                "name": f"{kind.plural}/{name}",
                "singularName": "",
                "namespaced": kind.namespaced,
                "kind": sub_kind,
                "verbs": verbs,
            }
            if (sub_group, sub_version) != (kind.group, kind.version):
                sub["group"], sub["version"] = sub_group, sub_version
            resources.append(sub)
    group_version = f"{group}/{version}" if group else version
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": group_version,
        "resources": resources,
    }


def group_list(registry: KindRegistry) -> dict[str, Any]:
    """Return the legacy list of groups."""
    groups = [_group(group, versions) for group, versions in served(registry).items() if group]
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}


def group_document(registry: KindRegistry, group: str) -> dict[str, Any] | None:
    """Return the legacy document of one group, None when there is none."""
    versions = served(registry).get(group)
    if not group or versions is None:
        return None
    return {"kind": "APIGroup", "apiVersion": "v1", **_group(group, versions)}


def _group(group: str, versions: dict[str, list[Kind]]) -> dict[str, Any]:
    listing = [{"groupVersion": f"{group}/{version}", "version": version} for version in versions]
    return {"name": group, "versions": listing, "preferredVersion": listing[-1]}
