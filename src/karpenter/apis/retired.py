"""Kinds and versions that are gone, and what each of their fields is called today.

A manifest of an old version is refused with directions instead of "no matches for kind".
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from karpenter.apis.validation.errors import FieldError


class RetiredKind(msgspec.Struct, frozen=True):
    """A kind of the past: what replaces it, and where its fields went (an empty target: nowhere)."""

    successor: str
    fields: Mapping[str, str]


_REQUIREMENTS = "spec.template.spec.requirements"
_BETA_POOL = {
    "spec.template.spec.nodeClassRef.apiVersion": "spec.template.spec.nodeClassRef.group (without version)",
    "spec.template.spec.kubelet": "spec.kubelet of the EC2NodeClass",
    "spec.template.spec.resources": "",
    "spec.disruption.expireAfter": "spec.template.spec.expireAfter",
    "spec.disruption.consolidationPolicy": (
        "spec.disruption.consolidationPolicy (WhenUnderutilized is WhenEmptyOrUnderutilized now)"
    ),
}
_BETA_CLAIM = {
    "spec.nodeClassRef.apiVersion": "spec.nodeClassRef.group (without version)",
    "spec.kubelet": "spec.kubelet of the EC2NodeClass",
}
_PROVISIONER = {
    "spec.labels": "spec.template.metadata.labels",
    "spec.annotations": "spec.template.metadata.annotations",
    "spec.requirements": _REQUIREMENTS,
    "spec.taints": "spec.template.spec.taints",
    "spec.startupTaints": "spec.template.spec.startupTaints",
    "spec.kubeletConfiguration": "spec.kubelet of the EC2NodeClass",
    "spec.providerRef": "spec.template.spec.nodeClassRef (group, kind, name)",
    "spec.provider": "an EC2NodeClass, named by spec.template.spec.nodeClassRef",
    "spec.limits.resources": "spec.limits",
    "spec.weight": "spec.weight",
    "spec.consolidation": "spec.disruption.consolidationPolicy: WhenEmptyOrUnderutilized",
    "spec.ttlSecondsAfterEmpty": (
        "spec.disruption.consolidationPolicy: WhenEmpty with consolidateAfter (as a duration, e.g. 30s)"
    ),
    "spec.ttlSecondsUntilExpired": "spec.template.spec.expireAfter (as a duration, e.g. 720h)",
}
_MACHINE = {
    "spec.machineTemplateRef": "spec.nodeClassRef (group, kind, name)",
    "spec.kubelet": "spec.kubelet of the EC2NodeClass",
    "spec.requirements": "spec.requirements",
    "spec.resources": "spec.resources",
    "spec.taints": "spec.taints",
    "spec.startupTaints": "spec.startupTaints",
}
_BETA_CLASS = {
    "spec.amiFamily": "spec.amiSelectorTerms: [{alias: FAMILY@latest}]",
    "spec.amiSelectorTerms": "spec.amiSelectorTerms",
    "spec.metadataOptions": "spec.metadataOptions",
}
_TEMPLATE = {
    "spec.amiFamily": "spec.amiSelectorTerms: [{alias: FAMILY@latest}]",
    "spec.amiSelector": "spec.amiSelectorTerms",
    "spec.subnetSelector": "spec.subnetSelectorTerms",
    "spec.securityGroupSelector": "spec.securityGroupSelectorTerms",
    "spec.instanceProfile": "spec.instanceProfile, or spec.role",
    "spec.userData": "spec.userData",
    "spec.blockDeviceMappings": "spec.blockDeviceMappings",
    "spec.detailedMonitoring": "spec.detailedMonitoring",
    "spec.metadataOptions": "spec.metadataOptions",
    "spec.tags": "spec.tags",
    "spec.context": "spec.context",
    "spec.launchTemplate": "",
}

RETIRED: Mapping[tuple[str, str], RetiredKind] = {
    ("karpenter.sh/v1beta1", "NodePool"): RetiredKind("karpenter.sh/v1 NodePool", _BETA_POOL),
    ("karpenter.sh/v1beta1", "NodeClaim"): RetiredKind("karpenter.sh/v1 NodeClaim", _BETA_CLAIM),
    ("karpenter.sh/v1alpha5", "Provisioner"): RetiredKind("karpenter.sh/v1 NodePool", _PROVISIONER),
    ("karpenter.sh/v1alpha5", "Machine"): RetiredKind("karpenter.sh/v1 NodeClaim", _MACHINE),
    ("karpenter.k8s.aws/v1beta1", "EC2NodeClass"): RetiredKind(
        "karpenter.k8s.aws/v1 EC2NodeClass", _BETA_CLASS
    ),
    ("karpenter.k8s.aws/v1alpha1", "AWSNodeTemplate"): RetiredKind(
        "karpenter.k8s.aws/v1 EC2NodeClass", _TEMPLATE
    ),
}
"""By apiVersion and kind."""


def retired_errors(obj: Mapping[str, Any]) -> list[FieldError]:
    """Return why `obj` is refused when its kind is retired, field by field; nothing when it is not."""
    kind = RETIRED.get((str(obj.get("apiVersion")), str(obj.get("kind"))))
    if kind is None:
        return []
    found = [
        FieldError(
            "apiVersion",
            obj["apiVersion"],
            f"{obj['apiVersion']} {obj['kind']} is retired",
            f"write it as {kind.successor}",
        )
    ]
    for path, target in kind.fields.items():
        value = _at(obj, path)
        if value is not None and target != path:
            found.append(
                FieldError(
                    path,
                    value,
                    f"is not a field of {kind.successor}",
                    f"write it as {target}" if target else "remove it",
                )
            )
    return found


def _at(obj: Any, path: str) -> Any:
    for name in path.split("."):
        if not isinstance(obj, Mapping):
            return None
        obj = obj.get(name)
    return obj
