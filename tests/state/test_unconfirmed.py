"""What we did ourselves and the watch has not told of; prices; how often events are said."""

from karpenter.base.clock import LoopClock
from karpenter.base.virtualtime import run_virtual
from karpenter.runtime import EventLimit
from karpenter.state.unconfirmed import Unconfirmed
from karpenter.testing.builders import a_nodeclaim, a_nodepool, a_pod
from karpenter.testing.environment import environment


def test_created_claims_are_known_until_the_watch_tells() -> None:
    """By name, by pool and by age; then they are forgotten."""
    unconfirmed = Unconfirmed()
    unconfirmed.create(a_nodeclaim("b", nodepool="x"), 10.0)
    unconfirmed.create(a_nodeclaim("a", nodepool="y"), 20.0)
    assert [c.name for c in unconfirmed.created_until(20.0)] == ["a", "b"]
    assert [c.name for c in unconfirmed.created_until(15.0)] == ["b"]
    assert [c.name for c in unconfirmed.of_pool("x")] == ["b"]
    assert unconfirmed.seen("b")
    assert not unconfirmed.seen("b")
    assert unconfirmed.created("b") is None


def test_an_end_is_news_once() -> None:
    """Until the claim is gone; another of the same uid does not come."""
    unconfirmed = Unconfirmed()
    assert [unconfirmed.end("u"), unconfirmed.end("u"), unconfirmed.is_ended("u")] == [True, False, True]
    unconfirmed.gone("u")
    assert not unconfirmed.is_ended("u")


def test_an_ended_claim_is_no_capacity_before_the_watch_says_so() -> None:
    """Its row is marked for deletion at once, and its pods look for another place."""

    async def scenario() -> None:
        async with environment() as env:
            await env.create(a_nodepool())
            await env.create(a_pod())
            claim = (await env.expect_claims(1))[0]
            claim = await env.expect_condition(claim.name, "Initialized")
            await env.wait(5)
            (row,) = env.cluster.nodes()
            assert not row.marked_for_deletion
            assert env.cluster.note_claim_ended(claim)
            assert not env.cluster.note_claim_ended(claim)
            (row,) = env.cluster.nodes()
            assert row.marked_for_deletion
            assert env.cluster.pool_resources("default") == {}

    run_virtual(scenario())


def test_a_limit_allows_a_burst_and_then_a_rate() -> None:
    """Ten at once, then five a second; a pause fills it up again, but not beyond the burst."""

    async def scenario() -> list[int]:
        clock = LoopClock()
        limit = EventLimit(clock, 5.0, 10)
        taken = []
        for pause in (0.0, 1.0, 60.0):
            await clock.sleep(pause)
            taken.append(sum(limit.take() for _ in range(100)))
        return taken

    assert run_virtual(scenario()) == [10, 5, 10]
