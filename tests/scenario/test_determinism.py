"""The same seed gives the same history, byte for byte."""

from karpenter.base.virtualtime import run_virtual
from karpenter.testing.faults import Faults
from karpenter.testing.manifests import deployment, node_class, pool
from karpenter.testing.world import world


def history(seed: int) -> list[bytes]:
    """Return every write of Pods, Nodes and NodeClaims, with times, of a run full of trouble."""

    async def scenario() -> list[bytes]:
        async with world(seed=seed, catalogue="ec2") as w:
            w.faults.set(Faults.all(0.02))
            await w.apply([node_class(), pool(), deployment("web", 3), deployment("db", 2, cpu="3")])
            await w.wait(3.3)
            await w.restart_operator()
            await w.scale("web", 30)
            await w.wait(20)
            await w.scale("web", 0)
            await w.restart_operator(graceful=True)
            await w.wait(60)
            return w.watchdog.history

    return run_virtual(scenario())


def test_the_same_seed_gives_the_same_bytes() -> None:
    """Two runs write the same objects at the same times, kills and faults included."""
    first, second = history(1), history(1)
    different = next((pair for pair in zip(first, second, strict=False) if pair[0] != pair[1]), None)
    assert different is None
    assert len(first) == len(second) > 200


def test_another_seed_gives_another_history() -> None:
    """The seed matters: names, uids and times differ."""
    assert history(1) != history(2)


def test_fresh_worlds_are_free_of_faults_unless_asked() -> None:
    """No fault happens by default, so that scenarios are about the operator alone."""
    assert Faults() == Faults.all(0.0)
