"""NodeOverlays for tests."""

from typing import Any

import msgspec

from karpenter.apis.karpenter import NodeOverlay

Raw = dict[str, Any]


def requirement(key: str, operator: str, *values: str) -> Raw:
    """Return a requirement as users write it."""
    return {"key": key, "operator": operator, "values": list(values)}


def an_overlay(name: str, *requirements: Raw, **spec: Any) -> NodeOverlay:
    """Return a NodeOverlay for what meets `requirements`; `spec` by the API's names."""
    return msgspec.convert(raw_overlay(name, *requirements, **spec), NodeOverlay)


def raw_overlay(name: str, *requirements: Raw, **spec: Any) -> Raw:
    """Return a NodeOverlay as users write it."""
    return {
        "apiVersion": "karpenter.sh/v1alpha1",
        "kind": "NodeOverlay",
        "metadata": {"name": name},
        "spec": {"requirements": list(requirements), **spec},
    }
