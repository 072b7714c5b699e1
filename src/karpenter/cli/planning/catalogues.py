"""What can be bought: the catalogues we ship, files in upstream's format, lists in a scenario's terms."""

from collections.abc import Iterable, Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import msgspec

from karpenter.apis import labels as known
from karpenter.base.quantity import Resources, to_units
from karpenter.cli.manifests import Document, Unreadable
from karpenter.cli.planning.checking import convert, finding
from karpenter.cli.planning.reading import read_inputs
from karpenter.cli.validate import Finding
from karpenter.model.instancetype import InstanceType, Offering
from karpenter.model.requirements import Requirement, Requirements
from karpenter.providers.kwok.catalogue import (
    CatalogueError,
    ec2_instance_types,
    generic_instance_types,
    load_instance_types,
)

RESERVATION_ID = "karpenter.test.sh/reservation-id"
"""The label that tells one reservation from another in a scenario."""
LARGEST = 1 << 62
"""Amounts have to stay below this, in bytes, counts, or thousandths of a core."""
_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Gte", "Lte")


class Expression(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One requirement of a type or an offering."""

    key: str
    operator: str
    values: list[str] | None = None
    min_values: int | None = msgspec.field(default=None, name="minValues")


class ListedStep(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """So many nodes at a price of their own."""

    count: int
    price: float


class ListedOffering(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """One way to buy a type."""

    zone: str
    capacity_type: str
    price: float
    available: bool = True
    reservation_id: str = msgspec.field(default="", name="reservationID")
    reservation_capacity: int = 0
    interruptions_per_hour: float = 0.0
    price_steps: list[ListedStep] = []
    commitment: str = ""
    capacity_override: dict[str, str | int | float] = {}
    overhead_override: dict[str, str | int | float] = {}
    requirements: list[Expression] = []


class ListedOverhead(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """What the system keeps of a machine."""

    kube_reserved: dict[str, str | int | float] = {}
    system_reserved: dict[str, str | int | float] = {}
    eviction_threshold: dict[str, str | int | float] = {}


class ListedType(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """An instance type as a scenario writes it."""

    name: str
    offerings: list[ListedOffering]
    capacity: dict[str, str | int | float] = {}
    overhead: ListedOverhead = msgspec.field(default_factory=ListedOverhead)
    requirements: list[Expression] = []


def catalogue_named(name: str) -> tuple[InstanceType, ...]:
    """Return the catalogue called `name` (`ec2`, `generic`), or that of the file of this name.

    Raises:
        Unreadable: when there is none, or the file cannot be used.
    """
    if name == "ec2":
        return ec2_instance_types()
    if name == "generic":
        return generic_instance_types()
    if not Path(name).is_file():
        raise Unreadable(f"--instance-types {name}: is neither ec2, generic nor a file")
    documents = list(read_inputs([name], BytesIO()))
    entries = documents[0].obj if len(documents) == 1 else None
    if isinstance(entries, list) and entries and isinstance(entries[0], dict) and "resources" in entries[0]:
        try:
            return load_instance_types(name)
        except CatalogueError as error:
            raise Unreadable(str(error)) from error
    if isinstance(entries, dict) and "instanceTypes" in entries:
        document = Document(name, entries, documents[0].lines, "")
        types, findings = listed_types(document, entries["instanceTypes"], "instanceTypes")
    else:
        types, findings = listed_types(Document(name, entries), entries, "")
    if findings:
        raise Unreadable("\n".join(str(f) for f in findings))
    return types


def listed_types(
    document: Document, listed: Any, where: str
) -> tuple[tuple[InstanceType, ...], list[Finding]]:
    """Return the types of a list in a scenario's terms, in order of name, and what is wrong with it."""
    if not isinstance(listed, list):
        fix = "list instance types: name, capacity, offerings"
        return (), [finding(document, where, "is not a list of instance types", fix)]
    findings: list[Finding] = []
    read: list[ListedType] = []
    for number, entry in enumerate(listed):
        at = f"{where}[{number}]"
        part = Document(document.file, entry, document.lines, f"{document.base}{at}")
        struct, problems = convert(part, entry, ListedType)
        if struct is not None:
            problems += [finding(part, field, problem, fix) for field, problem, fix in _mistakes(struct)]
            read.append(struct)
        findings += problems
    if findings:
        return (), findings
    reserved = any(o.reservation_id for t in read for o in t.offerings)
    types = {t.name: _build(t, reserved) for t in read}
    if len(types) != len(read):
        return (), [finding(document, where, "two instance types have the same name", "rename one")]
    return tuple(types[name] for name in sorted(types)), []


def _mistakes(listed: ListedType) -> Iterable[tuple[str, str, str]]:
    overhead = listed.overhead
    for where, amounts in (
        ("capacity", listed.capacity),
        ("overhead.kubeReserved", overhead.kube_reserved),
        ("overhead.systemReserved", overhead.system_reserved),
        ("overhead.evictionThreshold", overhead.eviction_threshold),
        *((f"offerings[{i}].capacityOverride", o.capacity_override) for i, o in enumerate(listed.offerings)),
        *((f"offerings[{i}].overheadOverride", o.overhead_override) for i, o in enumerate(listed.offerings)),
    ):
        for resource, amount in amounts.items():
            try:
                units = to_units(resource, str(amount))
            except ValueError as error:
                yield f"{where}.{resource}", str(error), "write a quantity"
                continue
            if not 0 <= units < LARGEST:
                yield f"{where}.{resource}", "is out of range", f"want 0 to {LARGEST - 1}"
    yield from _bad_expressions(listed.requirements, "requirements")
    for number, offering in enumerate(listed.offerings):
        where = f"offerings[{number}]"
        yield from _bad_expressions(offering.requirements, f"{where}.requirements")
        if not 0 <= offering.price < 1e9:
            yield f"{where}.price", "is no price", "want USD per hour, 0 or more"
        if not 0 <= offering.interruptions_per_hour < 1e6:
            yield f"{where}.interruptionsPerHour", "is out of range", "want 0 or more"
        if any(not 0 <= s.count < LARGEST or not 0 <= s.price < 1e9 for s in offering.price_steps):
            yield f"{where}.priceSteps", "has a count or price out of range", "want 0 or more"
        if offering.price_steps and offering.reservation_id:
            yield f"{where}.priceSteps", "does not go with reservationID", "remove one of them"
        if offering.capacity_type not in known.KNOWN_VALUES[known.CAPACITY_TYPE]:
            yield f"{where}.capacityType", "is unknown", "want spot, on-demand or reserved"
        if not 0 <= offering.reservation_capacity < LARGEST:
            yield f"{where}.reservationCapacity", "is out of range", "want 0 or more"


def _bad_expressions(expressions: Sequence[Expression], where: str) -> Iterable[tuple[str, str, str]]:
    for number, expression in enumerate(expressions):
        if expression.operator not in _OPERATORS:
            yield f"{where}[{number}].operator", "is unknown", f"want one of {', '.join(_OPERATORS)}"
            continue
        try:
            Requirement.of(expression.key, expression.operator, expression.values or ())
        except ValueError as error:
            yield f"{where}[{number}].values", str(error), "mend the requirement"


def _build(listed: ListedType, reserved: bool) -> InstanceType:
    offerings = tuple(_offering(o, reserved) for o in listed.offerings)
    available = [o for o in listed.offerings if o.available]
    requirements = Requirements.from_specs(listed.requirements)
    ids = sorted({o.reservation_id for o in listed.offerings if o.reservation_id})
    for key, values in (
        (known.INSTANCE_TYPE, [listed.name]),
        (known.ZONE, [o.zone for o in available]),
        (known.CAPACITY_TYPE, [o.capacity_type for o in available]),
        (known.ARCH, ["amd64"]),
        (known.OS, ["linux"]),
        (RESERVATION_ID, ids if reserved else None),
    ):
        if values is not None and key not in requirements:
            requirements = requirements.add(
                Requirement.of(key, "In", values) if values else Requirement.of(key, "DoesNotExist")
            )
    overhead: Resources = {}
    parts = listed.overhead
    for amounts in (parts.kube_reserved, parts.system_reserved, parts.eviction_threshold):
        for resource, amount in amounts.items():
            overhead[resource] = overhead.get(resource, 0) + to_units(resource, str(amount))
    capacity = _units(listed.capacity)
    capacity.setdefault("pods", 110)
    return InstanceType(
        name=listed.name,
        requirements=requirements,
        offerings=offerings,
        capacity=capacity,
        overhead=overhead,
    )


def _offering(listed: ListedOffering, reserved: bool) -> Offering:
    labels = {known.ZONE: listed.zone, known.CAPACITY_TYPE: listed.capacity_type}
    requirements = Requirements.from_labels(labels).merge(Requirements.from_specs(listed.requirements))
    if listed.reservation_id:
        requirements = requirements.add(Requirement.of(RESERVATION_ID, "In", [listed.reservation_id]))
    elif reserved:
        requirements = requirements.add(Requirement.of(RESERVATION_ID, "DoesNotExist"))
    return Offering(
        requirements=requirements,
        price=listed.price,
        available=listed.available,
        stock=listed.reservation_capacity if listed.reservation_id else None,
        hazard=listed.interruptions_per_hour,
        steps=tuple((step.count, step.price) for step in listed.price_steps),
        commitment=listed.commitment,
        capacity_override=_units(listed.capacity_override),
        overhead_override=_units(listed.overhead_override),
    )


def _units(amounts: Mapping[str, str | int | float]) -> Resources:
    return {resource: to_units(resource, str(amount)) for resource, amount in amounts.items()}


def in_zones(types: Sequence[InstanceType], zones: Sequence[str]) -> tuple[InstanceType, ...]:
    """Return `types` as far as they are sold in `zones`.

    Raises:
        Unreadable: when one of the zones sells nothing.
    """
    offered = sorted({o.zone for t in types for o in t.offerings})
    for zone in zones:
        if zone not in offered:
            raise Unreadable(f"--zones {zone}: nothing is sold there; zones are {', '.join(offered)}")
    kept = []
    for each in types:
        offerings = tuple(o for o in each.offerings if o.zone in zones)
        if offerings:
            there = Requirement.of(known.ZONE, "In", sorted({o.zone for o in offerings}))
            requirements = each.requirements.add(there)
            kept.append(msgspec.structs.replace(each, offerings=offerings, requirements=requirements))
    return tuple(kept)
