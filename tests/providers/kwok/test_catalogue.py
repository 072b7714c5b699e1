"""What simulated machines can be bought: the generic grid, EC2's types, and users' files."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

from karpenter.apis import labels
from karpenter.model.instancetype import InstanceType
from karpenter.providers.kwok.catalogue import (
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
    }
    assert {key: value(kind, f"karpenter.k8s.aws/instance-{key}") for key in expected} == expected
    prices = {o.price for o in kind.offerings if o.capacity_type == "on-demand"}
    assert prices == {0.096}


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
