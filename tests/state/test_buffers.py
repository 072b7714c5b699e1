"""Virtual pods by buffer, and what is told of them."""

from karpenter.state.buffers import Buffers, Outcome
from karpenter.testing.builders import a_pod


def test_only_news_asks_for_a_pass() -> None:
    """The same pods again are none; other pods, and none any more, are."""
    buffers, asked = Buffers(), []
    buffers.on_wanted(lambda: asked.append(1))
    two = (a_pod("b"), a_pod("a"))
    assert buffers.put("ns/x", two)
    assert not buffers.put("ns/x", (a_pod("b"), a_pod("a")))
    assert [p.name for p in buffers.pods()] == ["a", "b"]
    assert buffers.owner("default/a") == "ns/x"
    assert buffers.put("ns/x", ())
    assert not buffers.put("ns/x", ())
    assert not buffers
    assert buffers.owner("default/a") == ""
    assert len(asked) == 2


def test_outcomes_are_told_once_and_end_with_their_pods() -> None:
    """Who listens hears of changes only; other pods make the old outcome meaningless."""
    buffers, told = Buffers(), list[str]()
    buffers.on_outcome(told.append)
    buffers.put("ns/x", (a_pod("a"),))
    for _ in range(2):
        buffers.tell({"ns/x": Outcome(existing=1), "ns/gone": Outcome(failed=1)})
    assert told == ["ns/x"]
    assert buffers.outcome("ns/x") == Outcome(existing=1)
    assert buffers.outcome("ns/gone") is None
    buffers.put("ns/x", (a_pod("c"),))
    assert buffers.outcome("ns/x") is None
