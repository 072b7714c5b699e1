"""Which daemon pods come and go, decided from what is there."""

import msgspec
import pytest

from karpenter.apis.core import Pod
from karpenter.embedded.controllers.daemonset import plan_daemonset, pod_for
from karpenter.embedded.controllers.kinds import FullDaemonSet
from karpenter.testing.builders import a_node

_SET = msgspec.json.decode(
    msgspec.json.encode(
        {
            "apiVersion": "apps/v1",
            "kind": "DaemonSet",
            "metadata": {"name": "agent", "namespace": "default", "uid": "u1"},
            "spec": {
                "selector": {"matchLabels": {"app": "agent"}},
                "template": {
                    "metadata": {"labels": {"app": "agent"}},
                    "spec": {"containers": [{"name": "main", "image": "agent"}]},
                },
            },
        }
    ),
    type=FullDaemonSet,
)


def _pod(node: str, *, bound: bool = False) -> Pod:
    raw = pod_for(_SET, node)
    raw["metadata"]["name"] = f"agent-{node}"
    pod = msgspec.convert(raw, Pod)
    return msgspec.structs.replace(
        pod, spec=msgspec.structs.replace(pod.spec, node_name=node if bound else "")
    )


def test_a_pod_pinned_to_a_node_that_has_gone_is_deleted() -> None:
    """It could wait for ever: nothing else has that name."""
    plan = plan_daemonset(_SET, [a_node("n1")], [_pod("n1"), _pod("n2")], now=0.0)
    assert [pod.name for pod in plan.delete] == ["agent-n2"]
    assert plan.create == []


@pytest.mark.parametrize("bound", [True, False])
def test_a_pod_whose_node_is_there_stays(bound: bool) -> None:
    """Bound or still waiting, it is the one pod of its node."""
    plan = plan_daemonset(_SET, [a_node("n1")], [_pod("n1", bound=bound)], now=0.0)
    assert (plan.create, plan.delete) == ([], [])


def test_bound_pods_of_a_gone_node_are_left_to_the_pod_collector() -> None:
    """Only the node's absence over some time shows that such a pod is over."""
    assert plan_daemonset(_SET, [], [_pod("n1", bound=True)], now=0.0).delete == []
