"""Protobuf request bodies; filled in by the field tables."""

from typing import Any

MEDIA_TYPE = "application/vnd.kubernetes.protobuf"


def decode(body: bytes) -> Any:
    raise NotImplementedError
