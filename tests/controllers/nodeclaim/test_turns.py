"""Pods that are spread are nominated as many at a time as their spread lets in."""

import msgspec
import pytest

from karpenter.apis import labels as known
from karpenter.apis.core import Pod
from karpenter.controllers.nodeclaim.turns import Turns
from karpenter.kube.informer import Informer
from karpenter.testing.builders import a_node
from karpenter.testing.company import Spec, a_spread, app_pods, spread


class Seen:
    """Turns, fed with what happens to pods by hand."""

    def __init__(self, **zones: str) -> None:
        self.pods = Informer(Pod)
        self.named = {name: a_node(name, labels={known.ZONE: zone}) for name, zone in zones.items()}
        self.turns = Turns(self.pods)
        self.woken: list[str] = []
        self.turns.wake = self.woken.append

    def add(self, *names: str, spec: Spec | None = None) -> list[Pod]:
        """Create waiting pods that are spread over zones, unless `spec` says otherwise."""
        pods = app_pods(*names, spec=spread("web") if spec is None else spec)
        for pod in pods:
            self.pods.apply("ADDED", pod)
        return pods

    def take(self, node: str, pods: list[Pod]) -> list[str]:
        """Return the names of those that are to be nominated to `node` by the claim of the same name."""
        return [pod.name for pod in self.turns.take(node, self.named[node], pods)]

    def bind(self, pod: Pod, node: str) -> None:
        """Bind a pod."""
        self._change(pod, spec=msgspec.structs.replace(pod.spec, node_name=node))

    def nominate(self, pod: Pod, node: str) -> None:
        """Write a nomination ("": clear it), whoever does that."""
        self._change(pod, status=msgspec.structs.replace(pod.status, nominated_node_name=node))

    def _change(self, pod: Pod, **fields: object) -> None:
        self.pods.apply("MODIFIED", msgspec.structs.replace(pod, **fields))


@pytest.mark.parametrize(
    "spec",
    [
        {},
        spread("other"),
        {"topology_spread_constraints": [a_spread("web", when_unsatisfiable="ScheduleAnyway")]},
    ],
    ids=["not spread", "spread from others", "softly spread"],
)
def test_pods_that_do_not_hinder_each_other_are_nominated_at_once(spec: Spec) -> None:
    """Only a hard constraint that counts the pod itself makes turns."""
    seen = Seen(one="a")
    assert len(seen.take("one", seen.add("web1", "web2", "web3", spec=spec))) == 3


@pytest.mark.parametrize("max_skew", [1, 2])
def test_as_many_as_the_skew_at_a_time(max_skew: int) -> None:
    """On each node, whatever zone it is in."""
    seen = Seen(one="a", two="a")
    pods = seen.add(*(f"web{i}" for i in range(6)), spec=spread("web", max_skew=max_skew))
    assert len(seen.take("one", pods[:3])) == max_skew
    assert len(seen.take("two", pods[3:])) == max_skew


def test_the_strictest_spread_decides() -> None:
    """With several constraints the least skew is what is let in."""
    seen = Seen(one="a")
    spreads = [a_spread("web", max_skew=3), a_spread("web", known.KUBERNETES_HOSTNAME, max_skew=2)]
    pods = seen.add("web1", "web2", "web3", spec={"topology_spread_constraints": spreads})
    assert seen.take("one", pods) == ["web1", "web2"]


def test_the_next_is_woken_when_one_is_bound() -> None:
    """Wherever that is: it hinders nobody any more on the node that it was nominated to."""
    seen = Seen(one="a", two="b")
    first, second, third = seen.add("web1", "web2", "web3")
    assert seen.take("one", [first, second, third]) == ["web1"]
    seen.bind(first, "one")
    assert seen.woken == ["one"]
    assert seen.take("one", [second, third]) == ["web2"]
    seen.bind(second, "two")
    assert seen.take("one", [third]) == ["web3"]


def test_what_could_not_be_written_is_tried_again() -> None:
    """A pod whose turn it is keeps it until something else is heard of it."""
    seen = Seen(one="a")
    pods = seen.add("web1", "web2")
    assert seen.take("one", pods) == ["web1"]
    assert seen.take("one", pods) == ["web1"]


def test_a_nomination_that_was_taken_away_is_not_written_again() -> None:
    """Else it would be written and taken away for ever; the turn goes to the next."""
    seen = Seen(one="a", two="a")
    first, second = seen.add("web1", "web2")
    assert seen.take("one", [first, second]) == ["web1"]
    seen.nominate(first, "one")
    seen.nominate(first, "")
    assert seen.woken == ["one"]
    assert seen.take("one", [first, second]) == ["web2"]
    seen.bind(second, "one")
    assert seen.take("two", [first]) == ["web1"]


def test_a_claim_that_is_gone_is_not_woken() -> None:
    """Nor does it keep anything of its pods."""
    seen = Seen(one="a")
    pods = seen.add("web1", "web2")
    seen.take("one", pods)
    seen.turns.forget("one")
    seen.bind(pods[0], "one")
    assert seen.woken == []
