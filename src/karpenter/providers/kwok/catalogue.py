"""The catalogues of simulated nodes: upstream's generic grid, files in upstream's format, and EC2's."""

import itertools
import re
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec

from karpenter.apis import labels
from karpenter.base.quantity import Resources, to_units
from karpenter.model.instancetype import InstanceType, Offering
from karpenter.model.requirements import Requirement, Requirements
from karpenter.providers.kwok.ec2 import EC2_LABELS, ec2_instance_types
from karpenter.providers.kwok.kwoklabels import KWOK_LABELS, shape

__all__ = [
    "EC2_LABELS",
    "KWOK_LABELS",
    "CatalogueError",
    "ec2_instance_types",
    "generic_instance_types",
    "load_instance_types",
]

_GIB = 1 << 30
_OVERHEAD: Resources = {"cpu": 100, "memory": 10 << 20}
_CPUS = (1, 2, 4, 8, 16, 32, 48, 64, 96, 128, 192, 256)
_FAMILIES = ((2, "c"), (4, "s"), (8, "m"))
_ZONES = ("test-zone-a", "test-zone-b", "test-zone-c", "test-zone-d")
_SPOT_SHARE = 0.7
_SEPARATORS = re.compile(r"[.-]")


class CatalogueError(ValueError):
    """A file of instance types cannot be used; the message names file, entry, field and fix."""


@lru_cache(maxsize=1)
def generic_instance_types() -> tuple[InstanceType, ...]:
    """Return upstream's grid: 12 sizes × 3 memory ratios × linux, windows × amd64, arm64."""
    grid = itertools.product(_CPUS, _FAMILIES, ("linux", "windows"), ("amd64", "arm64"))
    return tuple(sorted((_generic(*cell) for cell in grid), key=lambda kind: kind.name))


def _generic(cpu: int, family: tuple[int, str], system: str, arch: str) -> InstanceType:
    factor, letter = family
    memory = cpu * factor * _GIB
    price = 0.025 * cpu + 0.001 * memory / 1e9
    offerings = [
        _Offering(
            price=price * (_SPOT_SHARE if kind == labels.CAPACITY_SPOT else 1.0),
            requirements=[
                _Expression(key=labels.CAPACITY_TYPE, operator="In", values=[kind]),
                _Expression(key=labels.ZONE, operator="In", values=[zone]),
            ],
        )
        for zone in _ZONES
        for kind in (labels.CAPACITY_SPOT, labels.CAPACITY_ON_DEMAND)
    ]
    return _build(
        _Entry(
            name=f"{letter}-{cpu}x-{arch}-{system}",
            offerings=offerings,
            architecture=arch,
            operating_systems=[system],
            resources={
                "cpu": str(cpu),
                "memory": f"{cpu * factor}Gi",
                "pods": str(min(16 * cpu, 1024)),
                "ephemeral-storage": "20Gi",
            },
        )
    )


class _Expression(msgspec.Struct, frozen=True):
    key: str
    operator: str
    values: list[str] = []


class _Step(msgspec.Struct, frozen=True, rename="pascal"):
    count: int
    price: float


class _Offering(msgspec.Struct, frozen=True, rename="pascal", kw_only=True):
    price: float
    requirements: list[_Expression]
    available: bool = True
    reservation_capacity: int = 0
    interruptions_per_hour: float = 0.0
    price_steps: list[_Step] = []
    commitment: str = ""
    capacity_override: dict[str, str | int] = {}
    overhead_override: dict[str, str | int] = {}


class _Entry(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    name: str
    offerings: list[_Offering]
    architecture: str
    operating_systems: list[str]
    resources: dict[str, str | int]


def load_instance_types(path: str | Path) -> tuple[InstanceType, ...]:
    """Return the instance types of a JSON file in upstream's format, by name.

    Raises:
        CatalogueError: when the file cannot be read, or an entry breaks the format.
    """
    try:
        entries: list[Any] = msgspec.json.decode(Path(path).read_bytes(), type=list)
    except OSError as error:
        raise CatalogueError(f"{path}: {error}") from error
    except msgspec.MsgspecError as error:
        raise CatalogueError(f"{path}: is not a JSON list of instance types: {error}") from error
    kinds = [_load(f"{path}: entry {number}", entry) for number, entry in enumerate(entries)]
    names = [kind.name for kind in kinds]
    double = sorted({name for name in names if names.count(name) > 1})
    if double:
        raise CatalogueError(f"{path}: name {double[0]!r} is used twice: names must be unique")
    return tuple(sorted(kinds, key=lambda kind: kind.name))


def _load(where: str, raw: Any) -> InstanceType:
    try:
        entry = msgspec.convert(raw, _Entry)
    except msgspec.ValidationError as error:
        raise CatalogueError(f"{where}: {error}") from error
    where = f"{where} ({entry.name})"
    for resource, quantity in entry.resources.items():
        try:
            to_units(resource, str(quantity))
        except ValueError as error:
            raise CatalogueError(f"{where}: resources.{resource}: {error}") from error
    for number, offering in enumerate(entry.offerings):
        _check_offering(f"{where}: offerings[{number}]", offering)
    return _build(entry)


def _check_offering(where: str, offering: _Offering) -> None:
    """Refuse an offering that has no single place, or no sensible price.

    Raises:
        CatalogueError: saying what is wrong with it.
    """
    for key in (labels.CAPACITY_TYPE, labels.ZONE):
        found = [e for e in offering.requirements if e.key == key]
        if not found:
            raise CatalogueError(f"{where}: Requirements lack {key}: add it")
        if len(found) > 1 or found[0].operator != "In" or len(found[0].values) != 1:
            raise CatalogueError(f"{where}: Requirements: {key} wants operator In with exactly one value")
    if offering.price < 0:
        raise CatalogueError(f"{where}: Price is {offering.price}: want 0 or more")
    if offering.interruptions_per_hour < 0:
        raise CatalogueError(
            f"{where}: InterruptionsPerHour is {offering.interruptions_per_hour}: want 0 or more"
        )
    for number, step in enumerate(offering.price_steps):
        if step.count < 0 or step.price < 0:
            raise CatalogueError(f"{where}: PriceSteps[{number}]: Count and Price want 0 or more")
    if offering.price_steps and _stock(offering) is not None:
        raise CatalogueError(f"{where}: PriceSteps do not go with ReservationCapacity: remove one of them")
    for field, amounts in (
        ("CapacityOverride", offering.capacity_override),
        ("OverheadOverride", offering.overhead_override),
    ):
        for resource, quantity in amounts.items():
            try:
                units = to_units(resource, str(quantity))
            except ValueError as error:
                raise CatalogueError(f"{where}: {field}.{resource}: {error}") from error
            if units < 0:
                raise CatalogueError(f"{where}: {field}.{resource} is {quantity}: want 0 or more")
    try:
        Requirements.from_specs(offering.requirements)
    except ValueError as error:
        raise CatalogueError(f"{where}: Requirements: {error}") from error


def _stock(offering: _Offering) -> int | None:
    reserved = any(labels.CAPACITY_RESERVED in e.values for e in offering.requirements)
    return offering.reservation_capacity if reserved else offering.reservation_capacity or None


def _units(amounts: dict[str, str | int]) -> Resources:
    return {name: to_units(name, str(amount)) for name, amount in amounts.items()}


def _build(entry: _Entry) -> InstanceType:
    offerings = tuple(
        Offering(
            requirements=Requirements.from_specs(offering.requirements),
            price=offering.price,
            available=offering.available,
            stock=_stock(offering),
            hazard=offering.interruptions_per_hour,
            steps=tuple((step.count, step.price) for step in offering.price_steps),
            commitment=offering.commitment,
            capacity_override=_units(offering.capacity_override),
            overhead_override=_units(offering.overhead_override),
        )
        for offering in entry.offerings
    )
    capacity = _units(entry.resources)
    capacity.setdefault("pods", 110)
    zones = sorted({offering.zone for offering in offerings})
    kinds = sorted({offering.capacity_type for offering in offerings})
    family, *_ = _SEPARATORS.split(entry.name, maxsplit=1)
    size = entry.name.partition(".")[2]
    cores = capacity.get("cpu", 0) // 1000
    requirements = Requirements.of(
        Requirement.of(labels.INSTANCE_TYPE, "In", [entry.name]),
        Requirement.of(labels.ARCH, "In", [entry.architecture]),
        Requirement.of(labels.OS, "In", entry.operating_systems),
        Requirement.of(labels.ZONE, "In", zones),
        Requirement.of(labels.CAPACITY_TYPE, "In", kinds),
        *shape(
            size=size or str(cores),
            family=family if family != entry.name else entry.name[:1],
            cores=cores,
            memory_mib=capacity.get("memory", 0) >> 20,
        ),
    )
    return InstanceType(
        name=entry.name,
        requirements=requirements,
        offerings=offerings,
        capacity=capacity,
        overhead=_OVERHEAD,
    )
