"""Which kinds this server serves: the built-in table, and those that CustomResourceDefinitions add.

A `Kind` is one version of one resource. Objects are stored per *group resource* (`pods`,
`nodepools.karpenter.sh`), so all versions of a resource share their objects.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from karpenter.apis.validation import SchemaValidator

VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
META_FIELDS = ("metadata.name", "metadata.namespace")


class PrinterColumn(msgspec.Struct, frozen=True):
    """One of a CRD's additionalPrinterColumns."""

    name: str
    type: str
    json_path: str
    description: str = ""
    priority: int = 0


class Scale(msgspec.Struct, frozen=True):
    """Where a kind keeps what its scale subresource shows (dotted paths without leading dot)."""

    spec_replicas: str
    status_replicas: str
    selector: str = ""


class Custom(msgspec.Struct, frozen=True):
    """What a CustomResourceDefinition says about one version of its kind."""

    validator: SchemaValidator
    schema: dict[str, Any]
    columns: tuple[PrinterColumn, ...]


class Kind(msgspec.Struct, frozen=True, kw_only=True):
    """One served version of one resource."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool
    singular: str = ""
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    status: bool = False
    generation: bool = False  # metadata.generation counts changes of the spec
    scale: Scale | None = None
    selectable: tuple[str, ...] = META_FIELDS
    subresources: tuple[str, ...] = ()  # besides status and scale
    custom: Custom | None = None
    stored: bool = True  # False: computed on the fly (metrics.k8s.io)

    @property
    def api_version(self) -> str:
        """`v1`, or `group/version`."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def group_resource(self) -> str:
        """The name that all versions share: `pods`, `nodepools.karpenter.sh`."""
        return f"{self.plural}.{self.group}" if self.group else self.plural


def select_fields(*paths: str) -> tuple[str, ...]:
    return META_FIELDS + paths


_REPLICAS = Scale("spec.replicas", "status.replicas", "status.selector")
_ALL = ("all",)
_POD_FIELDS = select_fields(
    "spec.nodeName",
    "spec.restartPolicy",
    "spec.schedulerName",
    "spec.serviceAccountName",
    "spec.hostNetwork",
    "status.phase",
    "status.podIP",
    "status.nominatedNodeName",
)
_EVENT_FIELDS = select_fields(
    *(
        f"involvedObject.{f}"
        for f in ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")
    ),
    "reason",
    "reportingComponent",
    "source",
    "type",
)


def _core(plural: str, kind: str, namespaced: bool = True, **rest: Any) -> Kind:
    return Kind(group="", version="v1", plural=plural, kind=kind, namespaced=namespaced, **rest)


def _apps(plural: str, kind: str, short: str, **rest: Any) -> Kind:
    return Kind(
        group="apps",
        version="v1",
        plural=plural,
        kind=kind,
        namespaced=True,
        short_names=(short,) if short else (),
        **rest,
    )


def _in(group: str, plural: str, kind: str, namespaced: bool, version: str = "v1", **rest: Any) -> Kind:
    return Kind(group=group, version=version, plural=plural, kind=kind, namespaced=namespaced, **rest)


RBAC = "rbac.authorization.k8s.io"
STORAGE = "storage.k8s.io"
DRA = "resource.k8s.io"

BUILTIN: tuple[Kind, ...] = (
    _core(
        "namespaces",
        "Namespace",
        False,
        short_names=("ns",),
        status=True,
        selectable=select_fields("status.phase"),
        subresources=("finalize",),
    ),
    _core(
        "nodes",
        "Node",
        False,
        short_names=("no",),
        status=True,
        selectable=select_fields("spec.unschedulable"),
    ),
    _core(
        "pods",
        "Pod",
        short_names=("po",),
        categories=_ALL,
        status=True,
        generation=True,
        selectable=_POD_FIELDS,
        subresources=("binding", "eviction", "log", "ephemeralcontainers", "proxy", "resize"),
    ),
    _core("events", "Event", short_names=("ev",), selectable=_EVENT_FIELDS),
    _core("configmaps", "ConfigMap", short_names=("cm",)),
    _core("secrets", "Secret", selectable=select_fields("type")),
    _core("services", "Service", short_names=("svc",), categories=_ALL, status=True),
    _core("serviceaccounts", "ServiceAccount", short_names=("sa",)),
    _core("endpoints", "Endpoints", singular="endpoints", short_names=("ep",)),
    _core("persistentvolumes", "PersistentVolume", False, short_names=("pv",), status=True),
    _core("persistentvolumeclaims", "PersistentVolumeClaim", short_names=("pvc",), status=True),
    _core(
        "replicationcontrollers",
        "ReplicationController",
        short_names=("rc",),
        categories=_ALL,
        status=True,
        generation=True,
        scale=Scale("spec.replicas", "status.replicas", "spec.selector"),
        selectable=select_fields("status.replicas"),
    ),
    _core("podtemplates", "PodTemplate"),
    _core("limitranges", "LimitRange", short_names=("limits",)),
    _core("resourcequotas", "ResourceQuota", short_names=("quota",), status=True),
    _apps(
        "deployments",
        "Deployment",
        "deploy",
        categories=_ALL,
        status=True,
        generation=True,
        scale=_REPLICAS,
    ),
    _apps(
        "replicasets",
        "ReplicaSet",
        "rs",
        categories=_ALL,
        status=True,
        generation=True,
        scale=_REPLICAS,
        selectable=select_fields("status.replicas"),
    ),
    _apps(
        "statefulsets", "StatefulSet", "sts", categories=_ALL, status=True, generation=True, scale=_REPLICAS
    ),
    _apps("daemonsets", "DaemonSet", "ds", categories=_ALL, status=True, generation=True),
    _apps("controllerrevisions", "ControllerRevision", ""),
    _in(
        "batch",
        "jobs",
        "Job",
        True,
        categories=_ALL,
        status=True,
        generation=True,
        selectable=select_fields("status.successful"),
    ),
    _in(
        "batch",
        "cronjobs",
        "CronJob",
        True,
        short_names=("cj",),
        categories=_ALL,
        status=True,
        generation=True,
    ),
    _in(
        "policy",
        "poddisruptionbudgets",
        "PodDisruptionBudget",
        True,
        short_names=("pdb",),
        status=True,
        generation=True,
    ),
    _in(STORAGE, "storageclasses", "StorageClass", False, short_names=("sc",)),
    _in(STORAGE, "csinodes", "CSINode", False),
    _in(STORAGE, "volumeattachments", "VolumeAttachment", False, status=True),
    _in(STORAGE, "csidrivers", "CSIDriver", False),
    _in("coordination.k8s.io", "leases", "Lease", True),
    _in("scheduling.k8s.io", "priorityclasses", "PriorityClass", False, short_names=("pc",)),
    _in(
        "autoscaling",
        "horizontalpodautoscalers",
        "HorizontalPodAutoscaler",
        True,
        version="v2",
        short_names=("hpa",),
        categories=_ALL,
        status=True,
    ),
    _in(RBAC, "roles", "Role", True),
    _in(RBAC, "rolebindings", "RoleBinding", True),
    _in(RBAC, "clusterroles", "ClusterRole", False),
    _in(RBAC, "clusterrolebindings", "ClusterRoleBinding", False),
    _in(
        "networking.k8s.io",
        "ingresses",
        "Ingress",
        True,
        singular="ingress",
        short_names=("ing",),
        status=True,
        generation=True,
    ),
    _in("networking.k8s.io", "ingressclasses", "IngressClass", False, generation=True),
    _in(
        "networking.k8s.io",
        "networkpolicies",
        "NetworkPolicy",
        True,
        singular="networkpolicy",
        short_names=("netpol",),
        generation=True,
    ),
    _in("discovery.k8s.io", "endpointslices", "EndpointSlice", True),
    _in(
        DRA,
        "resourceslices",
        "ResourceSlice",
        False,
        selectable=select_fields("spec.nodeName", "spec.driver"),
    ),
    _in(DRA, "resourceclaims", "ResourceClaim", True, status=True),
    _in(DRA, "resourceclaimtemplates", "ResourceClaimTemplate", True),
    _in(DRA, "deviceclasses", "DeviceClass", False, generation=True),
    _in("node.k8s.io", "runtimeclasses", "RuntimeClass", False),
    _in(
        "apiextensions.k8s.io",
        "customresourcedefinitions",
        "CustomResourceDefinition",
        False,
        short_names=("crd", "crds"),
        status=True,
        generation=True,
    ),
    _in("metrics.k8s.io", "nodes", "NodeMetrics", False, version="v1beta1", stored=False),
    _in("metrics.k8s.io", "pods", "PodMetrics", True, version="v1beta1", stored=False),
)


class KindRegistry:
    """All served kinds; custom ones come and go with their definitions."""

    def __init__(self, builtin: Iterable[Kind] = BUILTIN) -> None:
        self._served: dict[tuple[str, str, str], Kind] = {}
        self._preferred: dict[str, Kind] = {}
        #: Counts changes of the set, so that documents made from it can be cached.
        self.version = 0
        for kind in builtin:
            self._add(kind)

    def find(self, group: str, version: str, plural: str) -> Kind | None:
        """Return the kind served at a path, if any."""
        return self._served.get((group, version, plural))

    def by_group_resource(self, group_resource: str) -> Kind:
        """Return the version in which the objects of a stored resource are kept."""
        return self._preferred[group_resource]

    def by_kind(self, api_version: str, kind: str) -> Kind | None:
        """Return the kind of an object, if served."""
        for candidate in self._served.values():
            if candidate.kind == kind and candidate.api_version == api_version and candidate.stored:
                return candidate
        return None

    def all(self) -> list[Kind]:
        """Return all kinds, in the order discovery shows them."""
        return sorted(self._served.values(), key=lambda kind: (kind.group, kind.version, kind.plural))

    def register(self, crd: Mapping[str, Any]) -> None:
        """Serve what a CustomResourceDefinition defines, replacing what it defined before."""
        self.unregister(crd)
        kinds = kinds_of_crd(crd)
        for kind in kinds:
            self._add(kind)
        self.version += 1

    def unregister(self, crd: Mapping[str, Any]) -> None:
        """Stop serving what a CustomResourceDefinition defined."""
        spec = crd["spec"]
        group, plural = spec["group"], spec["names"]["plural"]
        for key in [key for key in self._served if key[0] == group and key[2] == plural]:
            if self._served[key].custom is not None:
                del self._served[key]
        self._preferred.pop(f"{plural}.{group}", None)
        self.version += 1

    def _add(self, kind: Kind) -> None:
        self._served[kind.group, kind.version, kind.plural] = kind
        if kind.stored:
            self._preferred.setdefault(kind.group_resource, kind)


def kinds_of_crd(crd: Mapping[str, Any]) -> list[Kind]:
    """Return a Kind per served version of a CustomResourceDefinition, the storage version first."""
    spec = crd["spec"]
    names = spec["names"]
    kinds = []
    for version in sorted(spec["versions"], key=lambda version: not version.get("storage", False)):
        if not version.get("served", True):
            continue
        subresources = version.get("subresources") or {}
        kinds.append(
            Kind(
                group=spec["group"],
                version=version["name"],
                plural=names["plural"],
                kind=names["kind"],
                namespaced=spec.get("scope") == "Namespaced",
                singular=names.get("singular", ""),
                short_names=tuple(names.get("shortNames") or ()),
                categories=tuple(names.get("categories") or ()),
                status="status" in subresources,
                generation=True,
                scale=_scale_of(subresources.get("scale")),
                selectable=select_fields(
                    *(f["jsonPath"].lstrip(".") for f in version.get("selectableFields") or ())
                ),
                custom=Custom(
                    validator=SchemaValidator.for_crd(dict(crd), version["name"]),
                    schema=(version.get("schema") or {}).get("openAPIV3Schema") or {},
                    columns=tuple(
                        PrinterColumn(
                            name=column["name"],
                            type=column.get("type", "string"),
                            json_path=column["jsonPath"],
                            description=column.get("description", ""),
                            priority=column.get("priority", 0),
                        )
                        for column in version.get("additionalPrinterColumns") or ()
                    ),
                ),
            )
        )
    return kinds


def _scale_of(scale: Mapping[str, str] | None) -> Scale | None:
    if not scale:
        return None
    return Scale(
        scale["specReplicasPath"].lstrip("."),
        scale["statusReplicasPath"].lstrip("."),
        scale.get("labelSelectorPath", "").lstrip("."),
    )
