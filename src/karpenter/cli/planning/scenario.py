"""Scenario files: a whole problem in one document, with the catalogue and the policies in it.

Objects are written by lists (`pods`, `nodePools`, ...) without apiVersion and kind, and with little else than
what matters; what an API server and the controllers would have filled in is added here.
"""

import difflib
from collections.abc import Mapping
from typing import Any

from karpenter.cli.manifests import Document
from karpenter.cli.planning.catalogues import listed_types
from karpenter.cli.planning.checking import finding
from karpenter.cli.planning.expansion import MOST_PODS
from karpenter.cli.planning.inventory import Inventory, Settings
from karpenter.cli.planning.reading import SCENARIO_KEYS

_LISTS: Mapping[str, tuple[str, str]] = {
    "namespaces": ("v1", "Namespace"),
    "storageClasses": ("storage.k8s.io/v1", "StorageClass"),
    "persistentVolumes": ("v1", "PersistentVolume"),
    "persistentVolumeClaims": ("v1", "PersistentVolumeClaim"),
    "csiNodes": ("storage.k8s.io/v1", "CSINode"),
    "podDisruptionBudgets": ("policy/v1", "PodDisruptionBudget"),
    "nodePools": ("karpenter.sh/v1", "NodePool"),
    "nodeClaims": ("karpenter.sh/v1", "NodeClaim"),
    "nodes": ("v1", "Node"),
    "daemonSets": ("apps/v1", "DaemonSet"),
    "pods": ("v1", "Pod"),
}
_CHOICES: Mapping[str, tuple[str, ...]] = {
    "preferencePolicy": ("Respect", "Ignore"),
    "minValuesPolicy": ("Strict", "BestEffort"),
}
_RESERVED = "reservedCapacity"
_SPOT_TO_SPOT = "spotToSpotConsolidation"
_SWITCHES = (_RESERVED, _SPOT_TO_SPOT)
_IGNORED_OPTIONS = ("cpuRequestsMilli", "reservedFallback")
NODE_CLASS = {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"}


def add_scenario(inventory: Inventory, document: Document) -> None:
    """Take in a scenario; what is wrong with it goes to the inventory's findings."""
    scenario: dict[str, Any] = document.obj
    for key in scenario:
        if key not in SCENARIO_KEYS:
            close = difflib.get_close_matches(key, sorted(SCENARIO_KEYS), n=1)
            fix = f"did you mean {close[0]}?" if close else "remove it"
            inventory.findings.append(finding(document, key, "is nothing a scenario has", fix))
    _options(inventory, document, scenario.get("options") or {})
    if scenario.get("instanceTypes") is not None:
        types, findings = listed_types(document, scenario["instanceTypes"], "instanceTypes")
        inventory.findings += findings
        inventory.instance_types = types
    _pool_types(inventory, document, scenario.get("nodePoolInstanceTypes") or {})
    inventory.pools_given = inventory.pools_given or "nodePools" in scenario
    for key, (api_version, kind) in _LISTS.items():
        for number, item in enumerate(_listed(inventory, document, key)):
            part = _part(document, f"{key}[{number}]", item, api_version, kind)
            inventory.add(part)
    for number, group in enumerate(_listed(inventory, document, "podGroups")):
        _pod_group(inventory, document, f"podGroups[{number}]", group)


def _listed(inventory: Inventory, document: Document, key: str) -> list[Any]:
    value = document.obj.get(key)
    if value is None:
        return []
    if not isinstance(value, list):
        inventory.findings.append(finding(document, key, "is not a list", "write its objects as a list"))
        return []
    return value


def _part(document: Document, where: str, item: Any, api_version: str, kind: str) -> Document:
    base = f"{document.base}.{where}" if document.base else where
    if not isinstance(item, dict):
        return Document(document.file, item, document.lines, base)
    obj = {**item, "apiVersion": item.get("apiVersion") or api_version, "kind": item.get("kind") or kind}
    if kind in ("NodePool", "NodeClaim"):
        _complete(obj, kind)
    elif kind == "Pod":
        obj["spec"] = _named_containers(obj.get("spec"))
    elif kind == "DaemonSet" and isinstance(obj.get("spec"), dict):
        template = obj["spec"].get("template")
        if isinstance(template, dict):
            template = {**template, "spec": _named_containers(template.get("spec"))}
            obj["spec"] = {**obj["spec"], "template": template}
    return Document(document.file, obj, document.lines, base)


def _complete(obj: dict[str, Any], kind: str) -> None:
    """Give a pool or claim the parts that a scenario may leave out, or have as null."""
    path = ("spec", "template", "spec") if kind == "NodePool" else ("spec",)
    for key in path:
        inner = obj.get(key)
        if inner is not None and not isinstance(inner, dict):
            return  # its schema has the words for that
        obj[key] = {name: value for name, value in (inner or {}).items() if value is not None}
        obj = obj[key]
    obj.setdefault("requirements", [])
    obj.setdefault("nodeClassRef", NODE_CLASS)


def _named_containers(spec: Any) -> Any:
    """Return a pod spec whose containers have a name and an image, which planning does not need."""
    if not isinstance(spec, dict) or not isinstance(spec.get("containers"), list):
        return spec
    containers = [
        {"name": f"c{number}", "image": "image", **c} if isinstance(c, dict) else c
        for number, c in enumerate(spec["containers"])
    ]
    return {**spec, "containers": containers}


def _options(inventory: Inventory, document: Document, options: Any) -> None:
    if not isinstance(options, dict):
        inventory.findings.append(finding(document, "options", "is not an object", "write it as one"))
        return
    for name, value in options.items():
        if name in _IGNORED_OPTIONS:
            continue
        if name in _SWITCHES and isinstance(value, bool):
            continue
        choices = ("true", "false") if name in _SWITCHES else _CHOICES.get(name)
        if choices is None:
            close = difflib.get_close_matches(name, [*_CHOICES, *_SWITCHES, *_IGNORED_OPTIONS], n=1)
            fix = f"did you mean {close[0]}?" if close else "remove it"
            inventory.findings.append(finding(document, f"options.{name}", "is no option", fix))
        elif value not in ("", *choices):
            fix = f"want {' or '.join(choices)}"
            inventory.findings.append(finding(document, f"options.{name}", "is not one of its values", fix))
    chosen = {name: str(options.get(name)) for name in _CHOICES if options.get(name)}
    inventory.settings = Settings(
        preference_policy=chosen.get("preferencePolicy", inventory.settings.preference_policy),
        min_values_policy=chosen.get("minValuesPolicy", inventory.settings.min_values_policy),
        reserved_capacity=options.get(_RESERVED, inventory.settings.reserved_capacity) is not False,
        spot_to_spot=options.get(_SPOT_TO_SPOT, inventory.settings.spot_to_spot) is True,
    )


def _pool_types(inventory: Inventory, document: Document, listed: Any) -> None:
    where = "nodePoolInstanceTypes"
    if not isinstance(listed, dict):
        inventory.findings.append(finding(document, where, "is not an object", "write pool: [names]"))
        return
    known = {t.name for t in inventory.instance_types or ()}
    for pool, names in listed.items():
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            fix = "list names of instance types"
            inventory.findings.append(finding(document, f"{where}.{pool}", "is not a list of names", fix))
            continue
        unknown = sorted(set(names) - known)
        if known and unknown:
            problem = f"{unknown[0]} is not among the scenario's instance types"
            inventory.findings.append(finding(document, f"{where}.{pool}", problem, "correct the name"))
        inventory.pool_types[pool] = tuple(names)


def _pod_group(inventory: Inventory, document: Document, where: str, group: Any) -> None:
    base = f"{document.base}.{where}" if document.base else where
    part = Document(document.file, group, document.lines, base)
    if not isinstance(group, dict):
        inventory.findings.append(finding(part, "", "is not an object", "want namePrefix, count, template"))
        return
    for key in sorted(group.keys() - {"namePrefix", "count", "template"}):
        inventory.findings.append(finding(part, key, "is nothing a pod group has", "remove it"))
    prefix, count, template = group.get("namePrefix"), group.get("count"), group.get("template")
    if not isinstance(prefix, str) or not prefix:
        inventory.findings.append(finding(part, "namePrefix", "is missing or not text", "name the group"))
    elif not isinstance(count, int) or isinstance(count, bool) or not 0 <= count <= MOST_PODS:
        fix = f"want a number of pods, 0 to {MOST_PODS}"
        inventory.findings.append(finding(part, "count", "is missing or not such a number", fix))
    elif not isinstance(template, dict) or not isinstance(template.get("metadata") or {}, dict):
        inventory.findings.append(finding(part, "template", "is missing or not a pod", "write a pod"))
    else:
        metadata = template.get("metadata") or {}
        for number in range(count):
            named = {**template, "metadata": {**metadata, "name": f"{prefix}-{number:05d}"}}
            before = len(inventory.findings)
            pod = _part(document, f"{where}.template", named, "v1", "Pod")
            inventory.add(pod)
            namespace = metadata.get("namespace") or "default"
            inventory.origin[f"{namespace}/{prefix}-{number:05d}"] = prefix
            if any(f.severity == "error" for f in inventory.findings[before:]):
                return
            if number:
                del inventory.findings[before:]  # the first has said it for all
