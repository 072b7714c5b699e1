"""What pods can use of a machine."""

import pytest

from karpenter.base.quantity import resources_of
from karpenter.model.instancetype import InstanceType
from karpenter.model.requirements import Requirements


@pytest.mark.parametrize(
    ("capacity", "overhead", "allocatable"),
    [
        ({"cpu": "4", "memory": "8Gi"}, {}, {"cpu": "4", "memory": "8Gi"}),
        ({"cpu": "4", "memory": "8Gi"}, {"cpu": "1", "memory": "1Gi"}, {"cpu": "3", "memory": "7Gi"}),
        ({"cpu": "4"}, {"cpu": "1", "memory": "1Gi"}, {"cpu": "3"}),
        (
            {"memory": "8Gi", "hugepages-2Mi": "1Gi", "hugepages-1Gi": "2Gi"},
            {"memory": "1Gi"},
            {"memory": "4Gi", "hugepages-2Mi": "1Gi", "hugepages-1Gi": "2Gi"},
        ),
        ({"memory": "1Gi", "hugepages-1Gi": "2Gi"}, {}, {"memory": "0", "hugepages-1Gi": "2Gi"}),
    ],
)
def test_overhead_and_huge_pages_are_taken_off(
    capacity: dict[str, str], overhead: dict[str, str], allocatable: dict[str, str]
) -> None:
    """Capacity less what the system keeps; memory less huge pages, and never less than nothing."""
    kind = InstanceType(
        name="t",
        requirements=Requirements(),
        offerings=(),
        capacity=resources_of(capacity),
        overhead=resources_of(overhead),
    )
    assert kind.allocatable == resources_of(allocatable)
