"""The garbage collector pauses for a block, and only for that."""

import gc

import pytest

from karpenter.base.collector import uncollected


def _fail_inside() -> None:
    with uncollected():
        assert not gc.isenabled()
        raise ValueError("x")


@pytest.mark.parametrize("before", [True, False])
def test_the_collector_is_as_it_was_afterwards(before: bool) -> None:
    """Also when the block fails, and when it was off already."""
    was = gc.isenabled()
    try:
        (gc.enable if before else gc.disable)()
        with pytest.raises(ValueError, match="x"):
            _fail_inside()
        assert gc.isenabled() is before
    finally:
        (gc.enable if was else gc.disable)()
