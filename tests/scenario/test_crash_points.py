"""The operator is killed after each write of a scale-up and a scale-down: nothing is bought twice or lost."""

import pytest

from karpenter.base.virtualtime import run_virtual
from karpenter.testing.fakeprovider import FakeCloud
from karpenter.testing.manifests import deployment, node_class, pool
from karpenter.testing.world import world


async def _crash(after: int, *, fake: bool) -> bool:
    """Live through one crash; tell whether there were so many writes."""
    cloud = FakeCloud() if fake else None
    async with world(seed=after, cloud=cloud) as w:
        await w.apply([node_class(), pool(), deployment("web", 9)])
        happened = await w.kill_operator_after(after, within=40.0)
        if happened:
            await w.wait(1.0)
            await w.start_operator()
        await w.until_replicas("web", 9)
        claims = await w.claims()
        assert w.watchdog.claims_created == len(claims), "a machine was bought twice"
        if cloud is not None:
            assert len(cloud.created) == len(claims)
        await w.scale("web", 0)
        if happened and await w.kill_operator_after(after, within=40.0):
            await w.start_operator()
        await w.until_replicas("web", 0)
        assert await w.claims() == []
        assert cloud is None or not cloud.instances
        return happened


@pytest.mark.parametrize("fake", [False, True])
def test_a_crash_after_some_writes_buys_nothing_twice(fake: bool) -> None:
    """A few crash points, spread over the run."""
    for after in (1, 12, 23, 34, 45, 56, 67):
        run_virtual(_crash(after, fake=fake))


@pytest.mark.slow
@pytest.mark.parametrize("fake", [False, True])
def test_a_crash_after_any_write_buys_nothing_twice(fake: bool) -> None:
    """Every crash point there is, until a run has fewer writes than that."""
    after = 1
    while run_virtual(_crash(after, fake=fake)):
        after += 1
    assert after > 60
