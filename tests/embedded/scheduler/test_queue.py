"""The queue's order, its groups, and its back-off."""

from karpenter.embedded.scheduler.queue import SchedulingQueue

A, B = (b"a", ""), (b"b", "")


def drain(queue: SchedulingQueue, now: float = 0.0) -> list[str]:
    """Take everything that is ready, in order."""
    taken = []
    while (item := queue.pop(now)) is not None:
        taken.append(item[0])
        queue.discard(item[0])
    return taken


def test_important_pods_come_first_then_older_ones() -> None:
    """Priority, then arrival, across groups."""
    queue = SchedulingQueue()
    queue.add("old", A, 0, 1.0)
    queue.add("new", B, 0, 2.0)
    queue.add("newer", A, 0, 3.0)
    queue.add("vip", (b"c", ""), 10, 4.0)
    assert drain(queue) == ["vip", "old", "new", "newer"]


def test_a_parked_group_costs_nothing_until_its_class_is_activated() -> None:
    """Parking the head parks its whole group; activation brings it back after the back-off."""
    queue = SchedulingQueue()
    for name in ("x", "y"):
        queue.add(name, A, 0, 1.0)
    queue.add("other", B, 0, 2.0)
    assert queue.pop(0.0) == ("x", A)
    assert queue.park(A, 0.0) == ["x", "y"]
    assert drain(queue) == ["other"]
    queue.activate(b"a", 0.5)
    assert queue.pop(0.5) is None
    assert queue.next_wake() == 1.0
    assert drain(queue, 1.0) == ["x", "y"]


def test_back_off_doubles_up_to_ten_seconds() -> None:
    """Each failed attempt waits twice as long."""
    queue = SchedulingQueue()
    queue.add("x", A, 0, 1.0)
    now, waits = 0.0, []
    for _ in range(6):
        assert queue.pop(now) is not None
        queue.park(A, now)
        queue.activate(b"a", now)
        wake = queue.next_wake()
        assert wake is not None
        waits.append(wake - now)
        now = wake
    assert waits == [1, 2, 4, 8, 10, 10]


def test_a_pod_moves_between_groups() -> None:
    """A promise moves a pod to another group, out of a parked one too."""
    queue = SchedulingQueue()
    queue.add("x", A, 0, 1.0)
    queue.park(A, 0.0)
    queue.add("x", (b"a", "node"), 0, 1.0)
    assert queue.pop(0.0) == ("x", (b"a", "node"))
    assert len(queue) == 1


def test_a_discarded_pod_is_forgotten() -> None:
    """Pods that are gone do not come up."""
    queue = SchedulingQueue()
    queue.add("x", A, 0, 1.0)
    queue.add("y", A, 0, 2.0)
    queue.discard("x")
    assert drain(queue) == ["y"]
    assert "x" not in queue


def test_a_changed_node_wakes_its_own_pods_and_one_other() -> None:
    """Groups promised the node come back, of the rest only the first; the next follows on success."""
    queue = SchedulingQueue()
    for number, node in enumerate(("n1", "n2", "n3", "n4")):
        group = (b"a", node)
        queue.add(f"p-{node}", group, 0, float(number))
        queue.park(group, 0.0)
    queue.activate_for(b"a", {"n3"}, 5.0)
    assert drain(queue, 5.0) == ["p-n1", "p-n3"]
    queue.activate_next(b"a", 5.0)
    assert drain(queue, 5.0) == ["p-n2"]
