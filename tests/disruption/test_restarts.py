"""What moving pods costs, and within which time a move has to pay."""

from typing import Any

import pytest
from msgspec.structs import replace

from karpenter.base.timestamps import format_time
from karpenter.disruption.candidates import Candidate
from karpenter.disruption.command import Command
from karpenter.disruption.restarts import Restarts
from karpenter.testing.builders import a_daemon, a_nodepool, a_pod, a_view, an_owner

NOW = 1_767_225_600.0
HOURLY = Restarts(hours=1.0)


def a_candidate(
    *cpu: str, price: float = 0.4, expires_in_hours: float | None = None, **pod: Any
) -> Candidate:
    """Return a node of 4 cores with pods of so many cores, and a daemon that does not count."""
    view = a_view("n").with_pods(
        a_pod(f"p{i}", cpu=each, memory="64Mi", node_name="n", **pod) for i, each in enumerate(cpu)
    )
    pods = view.pods
    daemon = a_daemon("d", cpu="1", node_name="n")
    view = replace(view.with_pods([daemon]), daemon_requested={"cpu": 1000})
    if expires_in_hours is not None:
        assert view.claim is not None
        born = format_time(NOW + expires_in_hours * 3600 - 720 * 3600)
        meta = replace(view.claim.metadata, creation_timestamp=born)
        view = replace(view, claim=replace(view.claim, metadata=meta))
    return Candidate(node=view, pool=a_nodepool(), reschedulable=pods, price=price)


def saving(candidate: Candidate, usd: float) -> Command:
    """Return a command that takes the node away and saves so much per hour."""
    return Command(reason="Underutilized", candidates=(replace(candidate, price=usd),))


@pytest.mark.parametrize(
    ("candidate", "usd"),
    [
        pytest.param(a_candidate("2"), 0.2, id="an hour of the share of the node that its pods use"),
        pytest.param(a_candidate("1", "1"), 0.2, id="however many they are"),
        pytest.param(a_candidate(), 0.0, id="daemons restart for nothing"),
        pytest.param(a_candidate("2", priority=2**25), 0.4, id="more for pods of high priority"),
        pytest.param(a_candidate("2", priority=-(2**25)), 0.0, id="nothing for those nobody minds"),
        pytest.param(a_candidate("2", price=0.0), 0.0, id="a node without a known price"),
    ],
)
def test_restarts_cost_hours_of_the_machine(candidate: Candidate, usd: float) -> None:
    """Taken from the node's own price, so that it needs no other."""
    assert HOURLY.of(candidate) == pytest.approx(usd)


def test_workloads_that_start_slowly_cost_more() -> None:
    """By the time that was seen, on top of the hour that everybody counts."""
    owner = an_owner("ReplicaSet", "web")
    slow = Restarts(hours=1.0, ready_hours={owner.uid: 0.5})
    assert slow.of(a_candidate("2", owner=owner)) == pytest.approx(0.2 * 1.5)
    assert slow.of(a_candidate("2")) == pytest.approx(0.2)


def test_moves_can_be_free() -> None:
    """For those who only look at the price."""
    assert Restarts(hours=0).of(a_candidate("2")) == 0
    command = saving(a_candidate("2"), 1e-9)
    assert command.savings >= Restarts(hours=0).least_saving(command.candidates, NOW)


def test_a_move_pays_back_within_twelve_hours() -> None:
    """What it costs against what it saves until then."""
    candidate = a_candidate("4")
    assert HOURLY.least_saving([candidate], NOW) == pytest.approx(0.4 / 12)
    command = Command(reason="Underutilized", candidates=(candidate,))
    assert command.savings >= HOURLY.least_saving(command.candidates, NOW)


def test_a_node_that_goes_soon_anyway_has_less_time_to_pay() -> None:
    """Its pods will have to move again when it expires, wherever they are now."""
    soon = a_candidate("4", expires_in_hours=2)
    assert HOURLY.horizon([soon], NOW) == pytest.approx(2.0)
    assert HOURLY.horizon([soon, a_candidate("4", expires_in_hours=100)], NOW) == pytest.approx(2.0)
    assert HOURLY.least_saving([soon], NOW) == pytest.approx(0.4 / 2)
    assert HOURLY.least_saving([a_candidate("4", expires_in_hours=-1)], NOW) == float("inf")
