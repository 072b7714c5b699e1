"""What simulated machines can be bought: the generic grid, EC2's types, and users' files."""

import json
import math
import re
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

from karpenter.apis import labels
from karpenter.model.instancetype import InstanceType
from karpenter.providers.kwok.catalogue import (
    KWOK_LABELS,
    CatalogueError,
    ec2_instance_types,
    generic_instance_types,
    load_instance_types,
)

GIB = 1 << 30
GRID = {kind.name: kind for kind in generic_instance_types()}
EC2 = {kind.name: kind for kind in ec2_instance_types()}


def value(kind: InstanceType, key: str) -> str:
    return kind.requirements.single_value(key)


def test_the_grid_has_upstreams_types() -> None:
    """12 sizes, 3 memory ratios, 2 systems, 2 architectures, by name."""
    assert len(GRID) == 144
    assert list(GRID) == sorted(GRID)
    systems = {name.split("-", 2)[2] for name in GRID}
    assert systems == {"amd64-linux", "amd64-windows", "arm64-linux", "arm64-windows"}
    assert {name.split("-")[0] for name in GRID} == {"c", "s", "m"}


@pytest.mark.parametrize(
    ("name", "cpu", "memory_gib", "pods"),
    [
        ("c-1x-amd64-linux", 1, 2, 16),
        ("s-4x-arm64-linux", 4, 16, 64),
        ("m-64x-amd64-windows", 64, 512, 1024),
        ("m-256x-amd64-linux", 256, 2048, 1024),
    ],
)
def test_a_type_of_the_grid(name: str, cpu: int, memory_gib: int, pods: int) -> None:
    """Its size, price and labels follow from its name."""
    kind = GRID[name]
    assert kind.capacity == {
        "cpu": cpu * 1000,
        "memory": memory_gib * GIB,
        "pods": pods,
        "ephemeral-storage": 20 * GIB,
    }
    assert kind.allocatable["cpu"] == cpu * 1000 - 100
    assert kind.allocatable["memory"] == (memory_gib * 1024 - 10) * (1 << 20)
    price = 0.025 * cpu + 0.001 * memory_gib * GIB / 1e9
    for offering in kind.offerings:
        share = 0.7 if offering.capacity_type == "spot" else 1.0
        assert offering.price == pytest.approx(price * share)
        assert offering.available
    places = {(offering.zone, offering.capacity_type) for offering in kind.offerings}
    zones = [f"test-zone-{letter}" for letter in "abcd"]
    assert places == {(zone, kind_) for zone in zones for kind_ in ("spot", "on-demand")}
    family, size, arch, system = name.split("-")
    assert value(kind, labels.INSTANCE_TYPE) == name
    assert value(kind, labels.ARCH) == arch
    assert value(kind, labels.OS) == system
    assert value(kind, "karpenter.kwok.sh/instance-family") == family
    assert value(kind, "karpenter.kwok.sh/instance-size") == size.removesuffix("x")
    assert value(kind, "karpenter.kwok.sh/instance-cpu") == str(cpu)
    assert value(kind, "karpenter.kwok.sh/instance-memory") == str(memory_gib * 1024)


def test_m5_large_is_as_it_is_at_ec2() -> None:
    """Capacity, overhead, pods, labels and price agree with Amazon's and its provider's documentation."""
    kind = EC2["m5.large"]
    assert kind.capacity["cpu"] == 2000
    assert kind.capacity["memory"] == 7577 << 20
    assert kind.capacity["pods"] == 29
    assert kind.allocatable == {
        "cpu": 1930,
        "memory": 6903 << 20,
        "pods": 29,
        "ephemeral-storage": 17 * GIB,
    }
    expected = {
        "category": "m",
        "family": "m5",
        "generation": "5",
        "size": "large",
        "cpu": "2",
        "memory": "8192",
        "cpu-manufacturer": "intel",
        "hypervisor": "nitro",
        "capability-flex": "false",
        "ebs-bandwidth": "4750",
        "network-bandwidth": "750",
    }
    assert {key: value(kind, f"karpenter.k8s.aws/instance-{key}") for key in expected} == expected
    prices = {o.price for o in kind.offerings if o.capacity_type == "on-demand"}
    assert prices == {0.096}


@pytest.mark.parametrize(
    ("name", "memory_mib", "kept_mib", "cpu", "pods"),
    [
        # 2048 - 64, less 7.5 % = 1835; kubelet keeps 11 * 8 + 255 + 100
        ("a1.medium", 1835, 443, 940, 8),
        # 8192 - 64, less 7.5 % = 7518; kubelet keeps 11 * 29 + 255 + 100
        ("m7g.large", 7518, 674, 1930, 29),
        # bare metal loses memory like any other: 393216 less 7.5 %
        ("m5.metal", 363724, 8462, 95690, 737),
    ],
)
def test_the_provider_s_arithmetic(name: str, memory_mib: int, kept_mib: int, cpu: int, pods: int) -> None:
    """Worked by hand from its rules; a1.medium is also its documentation's example (1392 MiB are left)."""
    kind = EC2[name]
    assert kind.capacity["memory"] >> 20 == memory_mib
    assert kind.allocatable["memory"] >> 20 == memory_mib - kept_mib
    assert (kind.allocatable["cpu"], kind.allocatable["pods"]) == (cpu, pods)


@pytest.mark.parametrize(
    ("name", "suffix", "expected"),
    [
        ("u-6tb1.56xlarge", "category", "u"),
        ("u-6tb1.56xlarge", "generation", "1"),
        ("u-6tb1.56xlarge", "family", "u-6tb1"),
        ("m7i-flex.large", "category", "m"),
        ("m7i-flex.large", "generation", "7"),
        ("m7i-flex.large", "capability-flex", "true"),
        ("m7g.large", "cpu-manufacturer", "aws"),
        ("m5d.large", "local-nvme", "75"),
        ("p4d.24xlarge", "gpu-count", "8"),
        ("trn1.2xlarge", "accelerator-name", "trainium"),
        ("trn1.2xlarge", "accelerator-manufacturer", "aws"),
    ],
)
def test_labels_of_ec2_types(name: str, suffix: str, expected: str) -> None:
    """Irregular names and special hardware are labelled as the AWS provider does."""
    assert value(EC2[name], f"karpenter.k8s.aws/instance-{suffix}") == expected


@pytest.mark.parametrize(
    ("name", "suffix"),
    [("m5.large", "gpu-name"), ("m5.large", "local-nvme"), ("f2.6xlarge", "accelerator-name")],
)
def test_what_an_ec2_type_lacks_is_said(name: str, suffix: str) -> None:
    """A label without a value must not exist, so a selector for it finds nothing; FPGAs have none."""
    requirement = EC2[name].requirements.get(f"karpenter.k8s.aws/instance-{suffix}")
    assert requirement.operator == "DoesNotExist"


def test_ec2_types_have_the_simulated_labels_too() -> None:
    """A NodePool that picks by size or family works with either catalogue."""
    labelled = {key: value(EC2["m5.large"], key) for key in KWOK_LABELS}
    assert labelled == {
        "karpenter.kwok.sh/instance-size": "large",
        "karpenter.kwok.sh/instance-family": "m5",
        "karpenter.kwok.sh/instance-cpu": "2",
        "karpenter.kwok.sh/instance-memory": "8192",
    }


def test_every_ec2_type_is_labelled_in_full() -> None:
    """Category, generation, family and size are there for every name, and no label has two values."""
    for kind in EC2.values():
        for suffix in ("category", "generation", "family", "size", "cpu", "memory"):
            assert value(kind, f"karpenter.k8s.aws/instance-{suffix}"), (kind.name, suffix)


def test_the_data_s_licence_and_notice_lie_beside_it() -> None:
    """The data may be passed on only with its licence, its sources and their dates."""
    data = resources.files("karpenter.providers.kwok") / "data"
    assert (data / "ec2-catalogue.json.gz").is_file()
    assert "Apache License" in (data / "LICENSE-Apache-2.0.txt").read_text()
    notice = (data / "NOTICE.md").read_text()
    for source in ("getmoto/moto", "aws/karpenter-provider-aws", "alexei-led/spotinfo"):
        (line,) = (line for line in notice.splitlines() if source in line)
        assert re.search(r"\d{4}-\d{2}-\d{2}", line), source
        assert "Apache-2.0" in line, source


def test_every_offering_of_ec2_has_a_price() -> None:
    """Positive, finite, spot not above on-demand, one per zone and capacity type."""
    for kind in EC2.values():
        assert kind.offerings, kind.name
        places = [(o.zone, o.capacity_type) for o in kind.offerings]
        assert len(set(places)) == len(places), kind.name
        on_demand = {o.zone: o.price for o in kind.offerings if o.capacity_type == "on-demand"}
        for offering in kind.offerings:
            assert offering.price > 0, kind.name
            assert math.isfinite(offering.price), kind.name
            assert offering.price <= on_demand.get(offering.zone, math.inf), kind.name


def test_ec2_leaves_out_macs_and_names_accelerators() -> None:
    """Macs are no machines to scale with; GPUs and Neuron chips are resources."""
    assert not [name for name in EC2 if name.startswith("mac")]
    assert EC2["g4dn.12xlarge"].capacity["nvidia.com/gpu"] == 4
    assert value(EC2["g5.xlarge"], "karpenter.k8s.aws/instance-gpu-name") == "a10g"
    assert EC2["inf2.xlarge"].capacity["aws.amazon.com/neuron"] == 1
    assert EC2["trn1.32xlarge"].capacity["aws.amazon.com/neuroncore"] == 32
    assert "nvidia.com/gpu" not in EC2["m5.large"].capacity


def test_an_unknown_region_is_refused() -> None:
    """The message lists the regions there are."""
    with pytest.raises(ValueError, match=r"region 'mars-1' is not in the catalogue: want one of .*us-east-1"):
        ec2_instance_types("mars-1")


# --- files ------------------------------------------------------------------------------------------------


def an_entry(**changes: Any) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "name": "big.one",
        "architecture": "amd64",
        "operatingSystems": ["linux"],
        "resources": {"cpu": "4", "memory": "8Gi"},
        "offerings": [an_offering()],
    }
    return {key: item for key, item in {**entry, **changes}.items() if item is not None}


def an_offering(**changes: Any) -> dict[str, Any]:
    requirements = [
        {"key": labels.ZONE, "operator": "In", "values": ["z1"]},
        {"key": labels.CAPACITY_TYPE, "operator": "In", "values": ["spot"]},
    ]
    return {"Price": 0.5, "Available": True, "Requirements": requirements, **changes}


def a_file(folder: Path, content: Any) -> Path:
    path = folder / "types.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def test_a_file_in_upstreams_format(tmp_path: Path) -> None:
    """Names, offerings and resources are taken over; pods default to 110; labels follow from the name."""
    path = a_file(tmp_path, [an_entry(), an_entry(name="a-small", offerings=[an_offering(Available=False)])])
    small, big = load_instance_types(path)
    assert (small.name, big.name) == ("a-small", "big.one")
    assert big.capacity == {"cpu": 4000, "memory": 8 * GIB, "pods": 110}
    assert [(o.zone, o.capacity_type, o.price) for o in big.offerings] == [("z1", "spot", 0.5)]
    assert [o.available for o in small.offerings] == [False]
    assert value(big, "karpenter.kwok.sh/instance-family") == "big"
    assert value(big, "karpenter.kwok.sh/instance-size") == "one"
    assert value(small, "karpenter.kwok.sh/instance-family") == "a"
    assert value(small, "karpenter.kwok.sh/instance-size") == "4"


def test_offerings_of_another_size_in_a_file(tmp_path: Path) -> None:
    """An offering may override capacity and overhead."""
    own = an_offering(CapacityOverride={"cpu": 8}, OverheadOverride={"memory": "1Gi"})
    (kind,) = load_instance_types(a_file(tmp_path, [an_entry(offerings=[own])]))
    (offering,) = kind.offerings
    assert offering.capacity_override == {"cpu": 8000}
    assert offering.overhead_override == {"memory": GIB}


def changed_requirement(**changes: Any) -> list[dict[str, Any]]:
    first, second = an_offering()["Requirements"]
    return [{**first, **changes}, second]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{not json", r"types.json: is not a JSON list of instance types"),
        ({"name": "x"}, r"types.json: is not a JSON list of instance types"),
        ([an_entry(), 7], r"types.json: entry 1: Expected `object`, got `int`"),
        ([an_entry(name=None)], r"types.json: entry 0: .*`name`"),
        ([an_entry(architecture=3)], r"types.json: entry 0: .*`\$.architecture`"),
        ([an_entry(resources={"cpu": "lots"})], r"entry 0 \(big.one\): resources.cpu: .*lots"),
        ([an_entry(offerings=[{"Requirements": []}])], r"entry 0: .*`Price`.*offerings\[0\]"),
        (
            [an_entry(offerings=[an_offering(Requirements=[])])],
            r"entry 0 \(big.one\): offerings\[0\]: Requirements lack karpenter.sh/capacity-type: add it",
        ),
        (
            [an_entry(offerings=[an_offering(Requirements=changed_requirement(values=["z1", "z2"]))])],
            r"offerings\[0\]: Requirements: topology.kubernetes.io/zone wants operator In with exactly one",
        ),
        (
            [an_entry(offerings=[an_offering(), an_offering(Price=-1)])],
            r"entry 0 \(big.one\): offerings\[1\]: Price is -1.0: want 0 or more",
        ),
        (
            [
                an_entry(
                    offerings=[
                        an_offering(
                            Requirements=[
                                *an_offering()["Requirements"],
                                {"key": "example.com/x", "operator": "Near", "values": ["1"]},
                            ]
                        )
                    ]
                )
            ],
            r"entry 0 \(big.one\): offerings\[0\]: Requirements: .*Near",
        ),
        (
            [an_entry(offerings=[an_offering(CapacityOverride={"cpu": "lots"})])],
            r"entry 0 \(big.one\): offerings\[0\]: CapacityOverride.cpu: .*lots",
        ),
        (
            [an_entry(offerings=[an_offering(OverheadOverride={"cpu": "-1"})])],
            r"offerings\[0\]: OverheadOverride.cpu is -1: want 0 or more",
        ),
        ([an_entry(), an_entry()], r"types.json: name 'big.one' is used twice: names must be unique"),
    ],
)
def test_a_broken_file_is_refused_with_its_place(tmp_path: Path, content: Any, message: str) -> None:
    """The error names file, entry and field, and what is wanted."""
    with pytest.raises(CatalogueError, match=message):
        load_instance_types(a_file(tmp_path, content))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    """A path that leads nowhere is said so."""
    with pytest.raises(CatalogueError, match=r"nowhere.json: .*No such file"):
        load_instance_types(tmp_path / "nowhere.json")
