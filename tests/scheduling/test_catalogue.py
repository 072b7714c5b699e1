"""Compiled catalogues answer as the objects they were made of."""

import numpy as np
import pytest

from karpenter.apis import labels
from karpenter.model.requirements import Requirement, Requirements
from karpenter.scheduling.catalogue import Catalogue, compiled
from karpenter.testing.builders import an_instance_type, an_offering, some_instance_types

TYPES = (
    an_instance_type(
        "a",
        labels={"family": "c"},
        offerings=[an_offering("zone-a", "spot", 0.2), an_offering("zone-b", price=1.0)],
    ),
    an_instance_type(
        "b", labels={"family": "m"}, offerings=[an_offering("zone-b", "spot", 0.1, available=False)]
    ),
    an_instance_type("c", arch="arm64", offerings=[an_offering("zone-a", price=2.0)]),
)
INFINITE = float("inf")


@pytest.mark.parametrize(
    ("requirement", "prices"),
    [
        (None, [0.2, INFINITE, 2.0]),
        (Requirement.of(labels.ZONE, "In", ["zone-b"]), [1.0, INFINITE, INFINITE]),
        (Requirement.of(labels.CAPACITY_TYPE, "NotIn", ["spot"]), [1.0, INFINITE, 2.0]),
        (Requirement.of(labels.ARCH, "In", ["arm64"]), [INFINITE, INFINITE, 2.0]),
        (Requirement.of("family", "In", ["c"]), [0.2, INFINITE, 2.0]),
        (Requirement.of(labels.INSTANCE_TYPE, "In", ["b"]), [INFINITE, INFINITE, INFINITE]),
    ],
)
def test_prices_are_of_the_cheapest_available_compatible_offering(
    requirement: Requirement | None, prices: list[float]
) -> None:
    """Labels a type does not define don't rule it out; unavailable offerings don't count."""
    requirements = Requirements.of(*([requirement] if requirement else []))
    assert Catalogue(TYPES).evaluate(requirements, labels.WELL_KNOWN_LABELS).price.tolist() == prices


def test_a_custom_label_of_an_offering_must_be_asked_for() -> None:
    """An offering with a label of its own is only for requirements that define it."""
    types = (an_instance_type("x", offerings=[an_offering(price=1.0, labels={"reservation": "r1"})]),)
    catalogue = Catalogue(types)
    asked = Requirements.of(Requirement.of("reservation", "In", ["r1"]))
    assert catalogue.evaluate(Requirements(), labels.WELL_KNOWN_LABELS).price[0] == INFINITE
    assert catalogue.evaluate(asked, labels.WELL_KNOWN_LABELS).price[0] == 1.0


def test_a_catalogue_is_compiled_once() -> None:
    """The same tuple gives the same catalogue, another tuple its own."""
    types = tuple(some_instance_types())
    assert compiled(types) is compiled(types)
    assert compiled(tuple(some_instance_types())) is not compiled(types)


def test_distinct_values_count_what_types_list() -> None:
    """minValues count a type's own values, several where it lists several."""
    values = Catalogue(TYPES).distinct_values(labels.ZONE)
    assert np.array_equal(values, [[True, True], [False, True], [True, False]])
