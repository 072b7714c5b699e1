"""What the log of refusals remembers, and what it forgets."""

from karpenter.model.reasons import Constraint, Refusal, Unschedulable
from karpenter.state.refusallog import RefusalLog


def refused(pod: str, *constraints: Constraint) -> Unschedulable:
    refusals = tuple(Refusal(place=f"nodepool/{c}", constraint=c, message=c) for c in constraints)
    return Unschedulable(pod=pod, refusals=refusals)


def test_a_pass_takes_the_place_of_the_one_before() -> None:
    """Pods that have a place by now are forgotten; those that still wait keep since when."""
    log = RefusalLog()
    log.replace([refused("a/1", "limits"), refused("a/2", "taints")], 10.0)
    log.replace([refused("a/2", "limits", "taints"), refused("a/3", "limits")], 20.0)
    assert log.pods() == ("a/2", "a/3")
    again = log.of("a/2")
    assert again is not None
    assert (again.since, again.at) == (10.0, 20.0)
    assert [r.constraint for r in again.refusals] == ["limits", "taints"]
    assert log.counts() == {"limits": 2, "taints": 1}
    assert log.passed_at == 20.0


def test_a_pod_counts_once_under_a_reason_that_several_pools_have() -> None:
    """Counts are of pods, not of refusals."""
    log = RefusalLog()
    log.replace([refused("a/1", "limits", "limits", "taints")], 10.0)
    assert log.counts() == {"limits": 1, "taints": 1}


def test_memory_is_bounded() -> None:
    """Of very many pods only so many are kept; how many are not is known."""
    log = RefusalLog(most=10)
    for now in range(5):
        log.replace([refused(f"a/{number:04}", "limits") for number in range(1000)], float(now))
    assert (len(log.pods()), log.pods()[-1], log.left_out) == (10, "a/0009", 990)
    log.replace([], 6.0)
    assert (log.pods(), log.left_out) == ((), 0)


def test_pods_that_are_expected_on_nodes_are_known() -> None:
    """Until the next pass, or until they are gone; no more of them than of the others."""
    log = RefusalLog(most=2)
    log.replace([], 1.0, placed={"n1": ["a/1"], "n2": ["a/2", "a/3"]})
    assert [log.place_of(f"a/{i}") for i in (1, 2, 3)] == ["n1", "n2", ""]
    log.forget("a/1")
    assert log.place_of("a/1") == ""
    log.replace([], 2.0)
    assert log.place_of("a/2") == ""


def test_a_deleted_pod_is_forgotten_at_once() -> None:
    """A pod that is gone leaves nothing behind until the next pass."""
    log = RefusalLog()
    log.replace([refused("a/1", "limits")], 1.0)
    log.forget("a/1")
    log.forget("a/2")
    assert log.of("a/1") is None
