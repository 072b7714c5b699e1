"""The CustomResourceDefinitions we ship: as YAML beside this file, and loaded."""

from functools import lru_cache
from importlib import resources
from typing import Any

import yaml


@lru_cache(maxsize=1)
def load_crds() -> list[dict[str, Any]]:
    """Return our CRDs as raw objects, by name; shared, so do not alter them."""
    folder = resources.files("karpenter.apis.crds")
    texts = [entry.read_text("utf-8") for entry in folder.iterdir() if entry.name.endswith(".yaml")]
    crds: list[dict[str, Any]] = [yaml.load(text, Loader=yaml.CSafeLoader) for text in texts]
    return sorted(crds, key=lambda crd: str(crd["metadata"]["name"]))
