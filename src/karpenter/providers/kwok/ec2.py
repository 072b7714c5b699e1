"""Amazon EC2's instance types and prices as a catalogue for simulated nodes.

The data (`data/NOTICE.md`: sources, dates, flaws) becomes instance types with the labels users of EC2
select by, so that NodePools written for EC2 resolve. Capacity and overhead follow the arithmetic of the AWS
provider: 7.5 % of memory taken off (bare metal too) and 64 MiB more on arm64, kubelet's reservation by cores
and pods, 100 MiB eviction threshold, and as many pods as addresses on the network interfaces.

Spot prices are modelled: the Spot Advisor's mean saving, and between zones a log-normal spread whose size was
measured on real series (3.8 %). Nothing in them moves with time.
"""

import gzip
import hashlib
import math
import re
import statistics
from functools import lru_cache
from importlib import resources
from typing import Any

import msgspec

from karpenter.apis import labels
from karpenter.base.quantity import Resources
from karpenter.model.instancetype import InstanceType, Offering
from karpenter.model.requirements import Requirement, Requirements
from karpenter.providers.kwok.kwoklabels import shape

DOMAIN = "karpenter.k8s.aws"

_MIB = 1 << 20
_GIB = 1 << 30
_VM_OVERHEAD = 0.075
_ARM_MIB = 64
_DISK_GIB = 20
_ZONE_SPREAD = 0.03816  # standard deviation of log price between zones
_ASSUMED_SAVING = 60
_BAND_PER_MONTH = (0.025, 0.075, 0.125, 0.175, 0.25)  # middle of each band; the last one is open
_HOURS_PER_MONTH = 730.0
_ARCH = {"amd64": "amd64", "arm64": "arm64"}
_NAME = re.compile(r"([a-z]+)(?:-\d+tb)?(\d+)[a-z0-9-]*\.(.+)")
"""Category, generation and size: `m7i-flex.large` is m, 7, large; `u-6tb1.56xlarge` is u, 1, 56xlarge."""

EC2_LABELS: frozenset[str] = frozenset(
    f"{DOMAIN}/instance-{suffix}"
    for suffix in (
        *("category", "family", "generation", "size", "cpu", "memory", "cpu-manufacturer", "hypervisor"),
        *("capability-flex", "encryption-in-transit-supported", "local-nvme"),
        *("ebs-bandwidth", "network-bandwidth"),
        *("gpu-name", "gpu-manufacturer", "gpu-count", "gpu-memory"),
        *("accelerator-name", "accelerator-manufacturer", "accelerator-count"),
    )
)
"""Labels of EC2 types; pods may select them without a NodePool naming them."""

_GPU_RESOURCE = {"NVIDIA": "nvidia.com/gpu", "AMD": "amd.com/gpu", "Habana": "habana.ai/gaudi"}


class _Region(msgspec.Struct, frozen=True):
    price: float
    saving: int | None
    band: int | None
    zones: list[str]


class _Type(msgspec.Struct, frozen=True, rename="camel"):
    name: str
    arch: list[str]
    vcpu: int
    usage_classes: list[str]
    regions: dict[str, _Region]
    memory_mi_b: int = msgspec.field(name="memoryMiB")
    eni_max_pods: int | None = None
    cpu_manufacturer: str | None = None
    hypervisor: str | None = None
    ebs_max_mbps: float | None = None
    network_baseline_gbps: float | None = None
    local_nvme_gb: int | None = msgspec.field(default=None, name="localNvmeGB")
    encryption_in_transit: bool | None = None
    efa: bool | None = None
    gpus: list[dict[str, Any]] = []
    accelerators: list[dict[str, Any]] = []


class _File(msgspec.Struct, frozen=True):
    types: list[_Type]


@lru_cache(maxsize=4)
def ec2_instance_types(region: str = "us-east-1") -> tuple[InstanceType, ...]:
    """Return every type of `region` that has a price, by name; the tuple is made once.

    Raises:
        ValueError: when the catalogue has no such region.
    """
    data = (resources.files("karpenter.providers.kwok") / "data" / "ec2-catalogue.json.gz").read_bytes()
    known = msgspec.json.decode(gzip.decompress(data), type=_File).types
    regions = sorted({name for entry in known for name in entry.regions})
    if region not in regions:
        raise ValueError(f"region {region!r} is not in the catalogue: want one of {', '.join(regions)}")
    return tuple(_instance_type(entry, region) for entry in known if region in entry.regions)


def _instance_type(entry: _Type, region: str) -> InstanceType:
    here = entry.regions[region]
    family, _, size = entry.name.partition(".")
    capacity_types = [kind for kind in ("on-demand", "spot") if kind in entry.usage_classes]
    fixed = {
        labels.INSTANCE_TYPE: entry.name,
        labels.OS: "linux",
        labels.REGION: region,
        **_labels(entry),
    }
    requirements = Requirements.of(
        *(Requirement.of(key, "In", [value]) for key, value in fixed.items()),
        *(Requirement.of(key, "DoesNotExist") for key in sorted(EC2_LABELS - fixed.keys())),
        Requirement.of(labels.ARCH, "In", [_ARCH[arch] for arch in entry.arch if arch in _ARCH]),
        Requirement.of(labels.ZONE, "In", here.zones),
        Requirement.of(labels.CAPACITY_TYPE, "In", capacity_types),
        *shape(size=size, family=family, cores=entry.vcpu, memory_mib=entry.memory_mi_b),
    )
    return InstanceType(
        name=entry.name,
        requirements=requirements,
        offerings=tuple(_offering(entry, here, zone, kind) for zone in here.zones for kind in capacity_types),
        capacity=_capacity(entry),
        overhead=_overhead(entry),
    )


def _offering(entry: _Type, here: _Region, zone: str, capacity_type: str) -> Offering:
    spot = capacity_type == labels.CAPACITY_SPOT
    return Offering(
        requirements=_offering_requirements(zone, capacity_type),
        price=_spot_price(entry.name, zone, here) if spot else here.price,
        hazard=_BAND_PER_MONTH[here.band or 0] / _HOURS_PER_MONTH if spot else 0.0,
    )


@lru_cache(maxsize=256)
def _offering_requirements(zone: str, capacity_type: str) -> Requirements:
    return Requirements.of(
        Requirement.of(labels.ZONE, "In", [zone]), Requirement.of(labels.CAPACITY_TYPE, "In", [capacity_type])
    )


def _spot_price(name: str, zone: str, here: _Region) -> float:
    """Return the modelled spot price of a type in a zone, USD per hour; never below a tenth of on-demand."""
    saving = _ASSUMED_SAVING if here.saving is None else here.saving
    digest = hashlib.sha256(f"zone:{name}/{zone}".encode()).digest()
    share = (int.from_bytes(digest[:6], "big") + 0.5) / 2**48
    deviation = max(-3.0, min(3.0, statistics.NormalDist().inv_cdf(share)))
    price = here.price * (1 - saving / 100) * math.exp(_ZONE_SPREAD * deviation)
    return round(max(0.1 * here.price, min(here.price, price)), 6)


def _labels(entry: _Type) -> dict[str, str]:
    """Return the labels that describe the type, by full key."""
    match = _NAME.fullmatch(entry.name)
    category, generation, size = match.groups() if match else (None, None, None)
    family = entry.name.partition(".")[0]
    found: dict[str, str | None] = {
        "category": category,
        "generation": generation,
        "family": family,
        "size": size,
        "capability-flex": str("-flex" in family).lower(),
        "cpu": str(entry.vcpu),
        "memory": str(entry.memory_mi_b),
        "cpu-manufacturer": (entry.cpu_manufacturer or "").lower().replace(" ", "-"),
        "hypervisor": entry.hypervisor,
        "encryption-in-transit-supported": str(bool(entry.encryption_in_transit)).lower(),
        "local-nvme": str(entry.local_nvme_gb) if entry.local_nvme_gb else None,
        "ebs-bandwidth": _whole(entry.ebs_max_mbps),
        "network-bandwidth": _whole((entry.network_baseline_gbps or 0) * 1000),
    }
    if len(entry.gpus) == 1:
        gpu = entry.gpus[0]
        found |= {
            "gpu-name": str(gpu["name"]).lower().replace(" ", "-"),
            "gpu-manufacturer": str(gpu["manufacturer"]).lower(),
            "gpu-count": str(gpu["count"]),
            "gpu-memory": str(gpu["memoryMiB"]),
        }
    learners = [part for part in entry.accelerators if part["kind"] in ("neuron", "inference")]
    if len(learners) == 1:  # FPGAs and video transcoders have no labels
        part = learners[0]
        found |= {
            "accelerator-name": str(part["name"]).lower().replace(" ", "-"),
            "accelerator-manufacturer": str(part["manufacturer"]).lower(),
            "accelerator-count": str(part["count"]),
        }
    return {f"{DOMAIN}/instance-{suffix}": value for suffix, value in found.items() if value}


def _whole(value: float | None) -> str | None:
    return str(round(value)) if value else None


def _capacity(entry: _Type) -> Resources:
    memory = entry.memory_mi_b - (_ARM_MIB if entry.arch[0] == "arm64" else 0)
    capacity = {
        "cpu": entry.vcpu * 1000,
        "memory": (memory - math.ceil(memory * _VM_OVERHEAD)) * _MIB,
        "pods": entry.eni_max_pods or 110,
        "ephemeral-storage": _DISK_GIB * _GIB,
    }
    for gpu in entry.gpus:
        resource = _GPU_RESOURCE.get(str(gpu["manufacturer"]))
        if resource and gpu["count"]:
            capacity[resource] = capacity.get(resource, 0) + int(gpu["count"])
    neuron = [part for part in entry.accelerators if part["kind"] == "neuron"]
    if neuron:
        capacity["aws.amazon.com/neuron"] = sum(int(part["count"]) for part in neuron)
        capacity["aws.amazon.com/neuroncore"] = int(neuron[0]["count"]) * int(neuron[0]["cores"])
    return capacity


def _overhead(entry: _Type) -> Resources:
    """Return what kubelet keeps: by cores for CPU, by pods for memory, and the eviction thresholds."""
    pods = entry.eni_max_pods or 110
    # 6 % of the first core, 1 % of the second, 0.5 % of the next two, 0.25 % of the rest.
    steps = ((0, 1, 60.0), (1, 2, 10.0), (2, 4, 5.0), (4, entry.vcpu, 2.5))
    cpu = sum(max(0, min(entry.vcpu, last) - first) * milli for first, last, milli in steps)
    return {
        "cpu": math.floor(cpu),
        "memory": (11 * pods + 255 + 100) * _MIB,
        "ephemeral-storage": _GIB + _DISK_GIB * _GIB // 10,
    }
