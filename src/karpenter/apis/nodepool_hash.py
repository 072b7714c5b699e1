"""The hash by which a NodePool's static drift is seen, bit for bit upstream's (hash version v3).

Upstream hashes `spec.template` with Go's hashstructure, format 2: 64-bit FNV-1 over names and values, fields
and map entries combined by XOR so that order never matters, lists as sets, empty fields left out. Clusters
that come from upstream carry such hashes on every NodeClaim; another number would replace all their nodes.
Requirements are not hashed (they have a drift check of their own).
"""

import struct
from collections.abc import Iterable, Mapping

from karpenter.apis.core import Taint
from karpenter.apis.karpenter import NodeClaimTemplateSpec, NodeClassRef, NodePool
from karpenter.base.duration import parse_duration

_OFFSET = 0xCBF29CE484222325
_PRIME = 0x100000001B3
_MASK = (1 << 64) - 1


def nodepool_hash(pool: NodePool) -> str:
    """Return the hash of `pool`'s template, as the annotation `karpenter.sh/nodepool-hash` holds it.

    Raises:
        ValueError: when one of the template's durations is not a duration.
    """
    template = pool.spec.template
    meta = _struct(
        "ObjectMeta",
        ("Labels", _map(template.metadata.labels)),
        ("Annotations", _map(template.metadata.annotations)),
    )
    return str(
        _struct(
            "NodeClaimTemplate",
            ("ObjectMeta", meta if template.metadata.labels or template.metadata.annotations else None),
            ("Spec", _spec(template.spec)),
        )
    )


def _spec(spec: NodeClaimTemplateSpec) -> int | None:
    ref = spec.node_class_ref
    period = spec.termination_grace_period
    fields = (
        ("Taints", _taints(spec.taints)),
        ("StartupTaints", _taints(spec.startup_taints)),
        ("NodeClassRef", _ref(ref) if ref != NodeClassRef() else None),
        ("TerminationGracePeriod", _period(period) if period else None),
        ("ExpireAfter", _expiry(spec.expire_after)),
    )
    return _struct("NodeClaimTemplateSpec", *fields) if any(v is not None for _, v in fields) else None


def _ref(ref: NodeClassRef) -> int:
    return _struct(
        "NodeClassReference",
        ("Kind", _text(ref.kind) if ref.kind else None),
        ("Name", _text(ref.name) if ref.name else None),
        ("Group", _text(ref.group) if ref.group else None),
    )


def _taints(taints: Iterable[Taint]) -> int | None:
    hashes = [
        _struct(
            "Taint",
            ("Key", _text(taint.key) if taint.key else None),
            ("Value", _text(taint.value) if taint.value else None),
            ("Effect", _text(taint.effect) if taint.effect else None),
        )
        for taint in taints
    ]
    return _xor(hashes) if hashes else None


def _expiry(text: str) -> int | None:
    """Hash a duration that may be `Never`, which upstream's hash takes for an absent field."""
    if text in ("", "Never"):
        return None
    return _struct("NillableDuration", ("Duration", _nanoseconds(text)))


def _period(text: str) -> int:
    nanoseconds = round(parse_duration(text) * 10**9)
    return _struct("Duration", ("Duration", _nanoseconds(text) if nanoseconds else None))


def _nanoseconds(text: str) -> int:
    return _fnv(struct.pack("<q", round(parse_duration(text) * 10**9)))


def _struct(name: str, *fields: tuple[str, int | None]) -> int:
    """Hash a Go struct: its type's name, then each field that is not zero, mixed in after every field."""
    result = _text(name)
    for field, value in fields:
        if value is not None:
            result = _finish(result ^ _ordered(_text(field), value))
    return result


def _map(entries: Mapping[str, str]) -> int | None:
    if not entries:
        return None
    return _finish(_xor(_ordered(_text(key), _text(value)) for key, value in entries.items()))


def _xor(hashes: Iterable[int]) -> int:
    result = 0
    for value in hashes:
        result ^= value
    return result


def _ordered(left: int, right: int) -> int:
    return _fnv(struct.pack("<QQ", left, right))


def _finish(value: int) -> int:
    return _fnv(struct.pack("<Q", value))


def _text(text: str) -> int:
    return _fnv(text.encode())


def _fnv(data: bytes) -> int:
    """FNV-1 (multiply, then XOR), hashstructure's default; not FNV-1a."""
    result = _OFFSET
    for byte in data:
        result = (result * _PRIME & _MASK) ^ byte
    return result
