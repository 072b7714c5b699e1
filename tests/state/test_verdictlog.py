"""What the log of verdicts remembers, and what it forgets."""

from karpenter.disruption.verdicts import Code, Method, Verdict
from karpenter.state.verdictlog import VerdictLog


def a_verdict(node: str, code: Code, method: Method | None = "drift") -> Verdict:
    return Verdict(node=node, method=method, code=code, message=code)


def test_the_latest_word_of_each_method_counts() -> None:
    """A method's newer word replaces its older one; words of other methods stay."""
    log = VerdictLog()
    log.note("drift", [a_verdict("a", "budget")], 1.0)
    log.note(None, [a_verdict("a", "nominated", None)], 2.0)
    log.note("drift", [a_verdict("a", "noPlace")], 3.0)
    assert [(m, e.verdict.code, e.at) for m, e in log.of("a").items()] == [
        (None, "nominated", 2.0),
        ("drift", "noPlace", 3.0),
    ]
    assert log.counts() == {("", "nominated"): 1, ("drift", "noPlace"): 1}


def test_a_chosen_node_has_no_verdict_left() -> None:
    """What a method said of a node does not hold when it takes the node after all."""
    log = VerdictLog()
    log.note("drift", [a_verdict("a", "budget"), a_verdict("b", "budget")], 1.0)
    log.note("drift", [], 2.0, chosen=["a"])
    assert log.nodes() == ("b",)


def test_a_whole_look_replaces_all() -> None:
    """After a look at every node, nodes that are not spoken of have no verdict; others methods' stay."""
    log = VerdictLog()
    log.note(None, [a_verdict("a", "nominated", None), a_verdict("b", "nominated", None)], 1.0)
    log.note("drift", [a_verdict("a", "budget")], 1.0)
    log.note(None, [a_verdict("b", "noNode", None)], 2.0, whole=True)
    assert log.counts() == {("", "noNode"): 1, ("drift", "budget"): 1}


def test_nodes_that_are_gone_are_forgotten() -> None:
    """The log does not grow beyond the nodes there are."""
    log = VerdictLog()
    log.note("drift", [a_verdict(f"n{i}", "budget") for i in range(100)], 1.0)
    log.retain({"n1", "n2", "other"})
    assert log.nodes() == ("n1", "n2")
