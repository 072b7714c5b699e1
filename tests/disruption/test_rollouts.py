"""Workloads that are being rolled out are left alone by consolidation."""

import pytest
from msgspec.structs import replace

from karpenter.apis.core import Pod
from karpenter.base.timestamps import format_time
from karpenter.disruption import rollouts
from karpenter.disruption.candidates import Candidate
from karpenter.disruption.command import Command
from karpenter.disruption.rounds import Round
from karpenter.disruption.sets import SetSearch
from karpenter.testing.builders import a_pod, an_instance_type, an_owner
from karpenter.testing.rounds import NOW, a_machine, a_round

LARGE = an_instance_type("large", cpu="8", price=0.4)
SMALL = an_instance_type("small", cpu="2", price=0.1)


def of_deployment(name: str, revision: str, *, node: str = "n", age: float = 60.0) -> Pod:
    """Return a pod of Deployment `web` at a revision, made `age` seconds ago."""
    return a_pod(
        name,
        cpu="500m",
        memory="64Mi",
        node_name=node,
        created=format_time(NOW - age),
        labels={"app": "web", "pod-template-hash": revision},
        owner=an_owner("ReplicaSet", f"web-{revision}"),
    )


def of_stateful_set(name: str, revision: str, *, node: str = "n") -> Pod:
    """Return a pod of StatefulSet `db` at a revision."""
    return a_pod(
        name,
        cpu="500m",
        memory="64Mi",
        node_name=node,
        created=format_time(NOW - 60),
        labels={"controller-revision-hash": revision},
        owner=an_owner("StatefulSet", "db"),
    )


@pytest.mark.parametrize(
    ("pods", "expected"),
    [
        pytest.param([of_deployment("a", "1"), of_deployment("b", "1")], [], id="one revision"),
        pytest.param(
            [of_deployment("a", "1", age=9000), of_deployment("b", "2")],
            [("default", "Deployment", "web")],
            id="two revisions of a Deployment",
        ),
        pytest.param(
            [of_stateful_set("a", "x"), of_stateful_set("b", "y")],
            [("default", "StatefulSet", "db")],
            id="two revisions of a StatefulSet",
        ),
        pytest.param(
            [of_deployment("a", "1", age=9000), of_deployment("b", "2", age=901)],
            [],
            id="nothing moved for a quarter of an hour: it is stuck, not under way",
        ),
        pytest.param(
            [
                of_deployment("a", "1"),
                replace(of_deployment("b", "2"), status=replace(a_pod().status, phase="Succeeded")),
            ],
            [],
            id="pods that are done do not count",
        ),
        pytest.param([a_pod("a"), a_pod("b")], [], id="pods of nobody"),
    ],
)
def test_two_revisions_side_by_side_are_a_rollout(pods: list[Pod], expected: list[rollouts.Workload]) -> None:
    """Whichever kind of workload it is."""
    assert sorted(rollouts.rollouts(pods, NOW)) == expected


def a_look(*pods: Pod) -> Round:
    """Return a look at a dear node that holds the pods of the first node, and another that holds the rest."""
    found = a_round(
        a_machine("n", LARGE, *[p for p in pods if p.spec.node_name == "n"]),
        a_machine("m", SMALL, *[p for p in pods if p.spec.node_name == "m"]),
        types=[SMALL, LARGE],
    )
    return found._replace(objection=lambda command: rollouts.objection(found.snapshot, command))


def test_nodes_with_pods_of_a_rollout_stay() -> None:
    """Wherever its other pods are; and they go when it is done."""
    old, new = of_deployment("a", "1"), of_deployment("b", "2", node="m")
    decision = SetSearch()(a_look(old, new))
    assert decision.commands == ()
    (verdict,) = (v for v in decision.verdicts if v.node == "n")
    assert (verdict.code, verdict.message) == (
        "rollout",
        "Deployment default/web is being rolled out, and has pods here",
    )
    assert verdict.remedy == "wait until the rollout of Deployment default/web is done"
    done = of_deployment("b", "1", node="m")
    assert len(SetSearch()(a_look(old, done)).commands) == 1


def test_drift_waits_for_no_rollout() -> None:
    """Only consolidation can wait as long as it likes."""
    look = a_look(of_deployment("a", "1"), of_deployment("b", "2", node="m"))
    candidates: tuple[Candidate, ...] = tuple(c for c in look.candidates if c.name == "n")
    command = Command(reason="Drifted", method="drift", candidates=candidates)
    assert rollouts.objection(look.snapshot, command) is None
    assert rollouts.objection(look.snapshot, replace(command, reason="Underutilized")) is not None
