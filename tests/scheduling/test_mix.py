"""A wanted mix of capacity types: whose turn it is, and for how many nodes."""

import pytest

from karpenter.scheduling.mix import Mix
from karpenter.testing.builders import a_view

SPOT, ON_DEMAND, RESERVED = "spot", "on-demand", "reserved"


def a_mix(wanted: dict[str, int], **have: int) -> Mix:
    """Return a mix of a pool that has so many cores of each capacity type."""
    mix = Mix(wanted, "default", [])
    for kind, cores in have.items():
        mix.add(kind.replace("_", "-"), cores * 1000)
    return mix


@pytest.mark.parametrize(
    ("wanted", "have", "order"),
    [
        ({SPOT: 50, ON_DEMAND: 50}, {}, [ON_DEMAND, SPOT]),
        ({SPOT: 70, ON_DEMAND: 30}, {}, [SPOT, ON_DEMAND]),
        ({SPOT: 50, ON_DEMAND: 50}, {"spot": 4}, [ON_DEMAND, SPOT]),
        ({SPOT: 50, ON_DEMAND: 50}, {"on_demand": 4}, [SPOT, ON_DEMAND]),
        ({SPOT: 70, ON_DEMAND: 30}, {"spot": 8, "on_demand": 4}, [SPOT, ON_DEMAND]),
        ({SPOT: 70, ON_DEMAND: 30}, {"spot": 8, "on_demand": 2}, [ON_DEMAND, SPOT]),
        ({SPOT: 0, ON_DEMAND: 100, RESERVED: 0}, {}, [ON_DEMAND, RESERVED, SPOT]),
    ],
)
def test_who_lags_behind_most_is_next(wanted: dict[str, int], have: dict[str, int], order: list[str]) -> None:
    """By cores for its share; at first the larger share; what is not wanted comes last."""
    assert a_mix(wanted, **have).order() == order


@pytest.mark.parametrize(
    ("wanted", "have", "kind", "cores", "most"),
    [
        ({SPOT: 50, ON_DEMAND: 50}, {}, SPOT, 4, 1),
        ({SPOT: 50, ON_DEMAND: 50}, {"on_demand": 8}, SPOT, 4, 3),
        ({SPOT: 50, ON_DEMAND: 50}, {"on_demand": 7}, SPOT, 4, 2),
        ({SPOT: 50, ON_DEMAND: 50}, {"spot": 8}, SPOT, 4, 1),
        ({SPOT: 75, ON_DEMAND: 25}, {"on_demand": 4}, SPOT, 4, 4),
        ({SPOT: 75, ON_DEMAND: 25}, {"on_demand": 4, "spot": 8}, SPOT, 4, 2),
        ({SPOT: 100, ON_DEMAND: 0}, {}, SPOT, 4, None),
        ({SPOT: 0, ON_DEMAND: 100}, {}, SPOT, 4, None),
        ({SPOT: 50, ON_DEMAND: 50}, {}, SPOT, 0, None),
        ({}, {}, SPOT, 4, None),
    ],
)
def test_so_many_are_bought_before_looking_again(
    wanted: dict[str, int], have: dict[str, int], kind: str, cores: int, most: int | None
) -> None:
    """Until it has passed the others by one; any number where no other has a share."""
    assert a_mix(wanted, **have).most(kind, cores * 1000) == most


def test_nodes_of_the_pool_count() -> None:
    """Those of others don't, nor capacity types that have no share."""
    nodes = [
        a_view("a", labels={"karpenter.sh/capacity-type": SPOT}),
        a_view("b", labels={"karpenter.sh/capacity-type": ON_DEMAND}, nodepool="other"),
        a_view("c", labels={"karpenter.sh/capacity-type": RESERVED}),
        a_view("d"),
    ]
    mix = Mix({SPOT: 50, ON_DEMAND: 50}, "default", nodes)
    assert mix.order() == [ON_DEMAND, SPOT]
    assert mix.most(ON_DEMAND, 2000) == 3
    assert mix.most(SPOT, 2000) == 1
