"""Everything the files contain, sorted by what planning does with it; and what is wrong with any of it."""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, cast

import msgspec

from karpenter.apis.core import (
    Namespace,
    Node,
    PersistentVolume,
    PersistentVolumeClaim,
    Pod,
    PodSpec,
    PodTemplateSpec,
    Service,
)
from karpenter.apis.karpenter import NodeClaim, NodePool
from karpenter.apis.meta import KubeObject, OwnerReference, Resource
from karpenter.apis.workloads import CSINode, DaemonSet, PodDisruptionBudget, StorageClass
from karpenter.cli.lint import Catalogue
from karpenter.cli.manifests import Document
from karpenter.cli.planning.checking import (
    Json,
    check,
    convert,
    default_pod,
    default_template,
    finding,
    kind_of,
    other_version,
)
from karpenter.cli.validate import UNKNOWN_FIELD, Finding, judge, shaped_by_crd
from karpenter.embedded.kinds import Kind
from karpenter.model.instancetype import InstanceType

WORKLOADS = frozenset({"Deployment", "ReplicaSet", "StatefulSet", "ReplicationController", "Job", "CronJob"})
"""Kinds that stand for pods of their own (DaemonSets stand for pods on every node)."""
SYSTEM_PRIORITIES: Mapping[str, int] = {
    "system-node-critical": 2_000_001_000,
    "system-cluster-critical": 2_000_000_000,
}


class PriorityClass(KubeObject, frozen=True):
    """scheduling.k8s.io/v1 PriorityClass."""

    resource: ClassVar[Resource] = Resource(
        group="scheduling.k8s.io", version="v1", plural="priorityclasses", kind="PriorityClass"
    )
    value: int = 0
    global_default: bool = False


class Workload(msgspec.Struct, frozen=True):
    """A workload whose pods have to be made."""

    document: Document
    raw: Json
    """Checked, pruned, with defaults."""
    template: PodTemplateSpec

    @property
    def kind(self) -> str:
        return str(self.raw["kind"])

    @property
    def name(self) -> str:
        return str(self.raw["metadata"]["name"])

    @property
    def namespace(self) -> str:
        return str(self.raw["metadata"]["namespace"])

    @property
    def uid(self) -> str:
        return str(self.raw["metadata"]["uid"])

    @property
    def spec(self) -> Json:
        spec: Json = self.raw["spec"]
        return spec

    def owner(self) -> OwnerReference:
        """Return the reference by which its pods know it."""
        return OwnerReference(
            api_version=str(self.raw["apiVersion"]),
            kind=self.kind,
            name=self.name,
            uid=self.uid,
            controller=True,
            block_owner_deletion=True,
        )


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What a scenario file says about how to plan; None where it says nothing."""

    preference_policy: str | None = None
    min_values_policy: str | None = None
    reserved_capacity: bool = True
    spot_to_spot: bool = False


class Inventory:
    """Objects by kind and key, filled document by document."""

    def __init__(self) -> None:
        self.findings: list[Finding] = []
        self.notes: list[str] = []
        self.pods: dict[str, Pod] = {}
        self.origin: dict[str, str] = {}
        """What people call the thing a pod belongs to (`Deployment/web`), by pod key."""
        self.nodes: dict[str, Node] = {}
        self.claims: dict[str, NodeClaim] = {}
        self.pools: dict[str, NodePool] = {}
        self.daemon_sets: dict[str, DaemonSet] = {}
        self.workloads: dict[tuple[str, str, str], Workload] = {}
        """By kind, namespace, name."""
        self.volume_claims: dict[str, PersistentVolumeClaim] = {}
        self.volumes: dict[str, PersistentVolume] = {}
        self.storage_classes: dict[str, StorageClass] = {}
        self.csi_nodes: dict[str, CSINode] = {}
        self.namespaces: dict[str, Namespace] = {}
        self.budgets: dict[str, PodDisruptionBudget] = {}
        self.priorities: dict[str, PriorityClass] = {}
        self.services: dict[str, Service] = {}
        self.documents: dict[tuple[str, str], Document] = {}
        """Where each object is written, by kind and key."""
        self.instance_types: tuple[InstanceType, ...] | None = None
        self.pool_types: dict[str, tuple[str, ...]] = {}
        self.pools_given = False
        """Whether to do without a default pool."""
        self.settings = Settings()
        self._well_known = Catalogue().well_known
        self._specs: dict[bytes, PodSpec] = {}
        self._unread: dict[str, int] = {}
        self._custom: list[Document] = []
        self._prioritised: dict[tuple[int, int], tuple[PodSpec, PodSpec]] = {}

    def add(self, document: Document) -> None:
        """Take in one object; what is wrong with it goes to `findings`."""
        obj = document.obj
        if not self._named(document):
            return
        kind = kind_of(obj)
        if kind is None:
            self._add_custom(document)
        elif kind.kind in _READERS:
            if self._sound_metadata(document, kind):
                _READERS[kind.kind](self, document, kind)
        else:
            self._unread[kind.kind] = self._unread.get(kind.kind, 0) + 1

    def note_once(self, note: str) -> None:
        """Tell the user something, though it may come up many times."""
        if note not in self.notes:
            self.notes.append(note)

    def shared_spec(self, spec: PodSpec, priority: int) -> PodSpec:
        """Return `spec` with a priority; pods that share a spec go on sharing one."""
        key = (id(spec), priority)
        if key not in self._prioritised:
            # The spec itself is kept too, so that no other gets its id.
            self._prioritised[key] = (spec, msgspec.structs.replace(spec, priority=priority))
        return self._prioritised[key][1]

    def unread(self) -> list[str]:
        """Return the kinds that mean nothing to planning, with their counts."""
        return [f"{count} {kind}" for kind, count in sorted(self._unread.items())]

    # --- what every object needs --------------------------------------------------------------------------

    def _named(self, document: Document) -> bool:
        obj = document.obj
        if not isinstance(obj, dict):
            problem = "is not an object"
            self.findings.append(
                finding(document, "", problem, "a manifest is a mapping with apiVersion and kind")
            )
            return False
        for field, example in (("apiVersion", "v1"), ("kind", "Pod")):
            if not (isinstance(obj.get(field), str) and obj[field]):
                self.findings.append(
                    finding(document, field, "is missing or not text", f"add {field}: {example}")
                )
                return False
        return True

    def _sound_metadata(self, document: Document, kind: Kind) -> bool:
        metadata = document.obj.get("metadata")
        if not isinstance(metadata, dict):
            self.findings.append(finding(document, "metadata", "is missing or not an object", "add it"))
            return False
        if not metadata.get("name") and isinstance(metadata.get("generateName"), str):
            metadata["name"] = f"{metadata['generateName']}{len(self.documents):05d}"
        for field in ("name", "namespace", "uid"):
            value = metadata.get(field)
            if value is not None and not isinstance(value, str):
                self.findings.append(finding(document, f"metadata.{field}", "is not text", "quote it"))
                return False
        if not metadata.get("name"):
            self.findings.append(finding(document, "metadata.name", "is missing", "give the object a name"))
            return False
        if kind.namespaced and not metadata.get("namespace"):
            metadata["namespace"] = "default"
        if not metadata.get("uid"):
            metadata["uid"] = f"{kind.kind}/{metadata.get('namespace', '')}/{metadata['name']}".lower()
        return True

    def note_place(self, kind: str, key: str, document: Document) -> None:
        """Note where an object is written; a second one of the same name is told, and replaces the first."""
        first = self.documents.get((kind, key))
        if first is not None:
            problem = f"{kind} of this name is already in {first.file}:{first.line('')}"
            fix = "keep one; the last one counts"
            self.findings.append(finding(document, "metadata.name", problem, fix, severity="warning"))
        self.documents[(kind, key)] = document

    # --- readers of kinds ---------------------------------------------------------------------------------

    def _struct(
        self,
        document: Document,
        kind: Kind,
        type: type[Any],
        default: Callable[[Json], None] | None = None,
    ) -> Any:
        findings, obj = check(document, kind, default)
        self.findings += findings
        if any(f.severity == "error" for f in findings):
            return None
        struct, findings = convert(document, obj, type)
        self.findings += findings
        return struct

    def _add_pod(self, document: Document, kind: Kind) -> None:
        """Read a pod; specs that are equal are judged and read once, and shared."""
        obj = document.obj
        spec = obj.get("spec")
        text = msgspec.json.encode(spec)
        shared = self._specs.get(text)
        if shared is not None:
            # All that is left to judge is the rest; a spec that is known to be sound stands in.
            light = Document(document.file, {**obj, "spec": _SOUND_SPEC}, document.lines, document.base)
            pod = self._struct(light, kind, Pod)
            pod = msgspec.structs.replace(pod, spec=shared) if pod is not None else None
        else:
            pod = self._struct(document, kind, Pod, default_pod)
            if pod is not None:
                self._specs[text] = pod.spec
        if pod is not None:
            self.note_place("Pod", pod.key, document)
            self.pods[pod.key] = pod

    def _add_workload(self, document: Document, kind: Kind) -> None:
        findings, obj = check(document, kind, default_template)
        self.findings += findings
        if any(f.severity == "error" for f in findings):
            return
        holder = obj["spec"]
        if kind.kind == "CronJob":
            holder = (holder.get("jobTemplate") or {}).get("spec") or {}
        template, findings = convert(document, holder.get("template") or {}, PodTemplateSpec)
        self.findings += findings
        if template is None:
            return
        workload = Workload(document, obj, template)
        self.note_place(kind.kind, f"{workload.namespace}/{workload.name}", document)
        self.workloads[(kind.kind, workload.namespace, workload.name)] = workload

    def _add_daemon_set(self, document: Document, kind: Kind) -> None:
        found = self._struct(document, kind, DaemonSet, default_template)
        if found is not None:
            self.note_place("DaemonSet", found.key, document)
            self.daemon_sets[found.key] = found

    def _add_plain(self, document: Document, kind: Kind) -> None:
        type, attribute = _PLAIN[kind.kind]
        found = self._struct(document, kind, type)
        if found is not None:
            self.note_place(kind.kind, found.key, document)
            getattr(self, attribute)[found.key] = found

    def _add_custom(self, document: Document) -> None:
        """Keep an object of our own kinds for `settle`; those of others mean nothing here."""
        obj = document.obj
        served = other_version(obj)
        if served and obj["apiVersion"].partition("/")[0] in _BUILTIN_GROUPS:
            fix = f"write apiVersion: {served}"
            self.findings.append(
                finding(document, "apiVersion", "is not the version of this kind that is served", fix)
            )
        else:
            self._custom.append(document)

    def settle(self) -> None:
        """Judge the objects of our own kinds, together, as `karpenter validate` does; then read them."""
        broken: set[tuple[str, str]] = set()
        for found in judge(self._custom, Catalogue(well_known=self._well_known)):
            if found.problem == UNKNOWN_FIELD:
                self.findings.append(msgspec.structs.replace(found, severity="warning"))
                continue
            self.findings.append(found)
            if found.severity == "error":
                broken.add((found.file, found.object))
        for document in self._custom:
            if (document.file, document.name) not in broken:
                self._read_custom(document)
        self._custom.clear()

    def _read_custom(self, document: Document) -> None:
        obj = document.obj
        if obj["apiVersion"].startswith("karpenter.sh/") and obj["kind"] in ("NodePool", "NodeClaim"):
            self._add_ours(document)
        elif obj["kind"] == "NodeOverlay":
            self.notes.append(f"{document.name}: overlays are not applied to the catalogue; left out")
        elif not obj["kind"].endswith("NodeClass"):
            self._unread[obj["kind"]] = self._unread.get(obj["kind"], 0) + 1

    def _add_ours(self, document: Document) -> None:
        shaped = shaped_by_crd(document.obj)
        kind = document.obj["kind"]
        if shaped is None:
            return
        type, table = (NodePool, self.pools) if kind == "NodePool" else (NodeClaim, self.claims)
        self.pools_given = self.pools_given or kind == "NodePool"
        found, findings = convert(document, shaped, type)
        self.findings += findings
        if found is not None:
            self.note_place(kind, found.name, document)
            cast(dict[str, Any], table)[found.name] = found


_SOUND_SPEC: Json = {"restartPolicy": "Always", "containers": [{"name": "c", "image": "i"}]}
_BUILTIN_GROUPS = frozenset(
    {"v1", "apps", "batch", "policy", "storage.k8s.io", "scheduling.k8s.io", "extensions"}
)
_PLAIN: Mapping[str, tuple[type[Any], str]] = {
    "Node": (Node, "nodes"),
    "PersistentVolume": (PersistentVolume, "volumes"),
    "PersistentVolumeClaim": (PersistentVolumeClaim, "volume_claims"),
    "StorageClass": (StorageClass, "storage_classes"),
    "CSINode": (CSINode, "csi_nodes"),
    "Namespace": (Namespace, "namespaces"),
    "PodDisruptionBudget": (PodDisruptionBudget, "budgets"),
    "PriorityClass": (PriorityClass, "priorities"),
    "Service": (Service, "services"),
}
_READERS: Mapping[str, Callable[[Inventory, Document, Kind], None]] = {
    "Pod": Inventory._add_pod,
    "DaemonSet": Inventory._add_daemon_set,
    **dict.fromkeys(sorted(WORKLOADS), Inventory._add_workload),
    **dict.fromkeys(_PLAIN, Inventory._add_plain),
}
