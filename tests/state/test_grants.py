"""Room under limits.nodes, while claims are being created."""

import pytest

from karpenter.state.grants import Grants


@pytest.mark.parametrize(
    ("limit", "present", "wanted", "granted"),
    [(None, 7, 3, 3), (5, 3, 3, 2), (5, 5, 1, 0), (2, 5, 1, 0), (5, 0, -1, 0), (0, 0, 4, 0)],
)
def test_a_grant_stays_within_the_limit(limit: int | None, present: int, wanted: int, granted: int) -> None:
    """Never more than wanted, never beyond the limit, never negative."""
    with Grants().grant("p", limit=limit, present=present, wanted=wanted) as count:
        assert count == granted


def test_two_who_ask_at_once_share_the_room() -> None:
    """What one was granted the other does not get; it is free again afterwards, errors or not."""
    grants = Grants()
    with grants.grant("p", limit=4, present=1, wanted=2) as first:
        with grants.grant("p", limit=4, present=1, wanted=2) as second:
            assert (first, second) == (2, 1)
        with grants.grant("q", limit=4, present=1, wanted=2) as other:
            assert other == 2
    with pytest.raises(RuntimeError), grants.grant("p", limit=4, present=1, wanted=9):
        raise RuntimeError
    assert grants.granted("p") == 0
