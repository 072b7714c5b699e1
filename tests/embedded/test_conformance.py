"""The embedded server behaves as the real one does, case by case; tests/e2e asks the real one the same."""

import asyncio
from collections import Counter

import pytest

from karpenter.apis.crds import load_crds
from karpenter.base.clock import LoopClock
from karpenter.base.randomness import seeded
from karpenter.base.virtualtime import run_virtual
from karpenter.embedded.cluster import EmbeddedCluster
from karpenter.testing.conformance import Case, Step, conformance_cases, play


def _play(case: Case) -> list[str]:
    async def main() -> list[str]:
        clock = LoopClock()
        cluster = EmbeddedCluster(clock=clock, rng=seeded(1), crds=load_crds())
        async with asyncio.TaskGroup() as group:
            task = group.create_task(cluster.run())
            await cluster.ready.wait()
            differences = await play(cluster.transport(), clock, case)
            task.cancel()
        cluster.close()
        return differences

    return run_virtual(main())


@pytest.mark.parametrize("case", conformance_cases(), ids=lambda case: case.name)
def test_the_embedded_server_conforms(case: Case) -> None:
    """Every step of the case is answered as Kubernetes answers it."""
    assert _play(case) == []


def test_names_of_cases_differ() -> None:
    """Each case has a namespace of its own."""
    assert max(Counter(case.name for case in conformance_cases()).values()) == 1


def test_differences_are_told() -> None:
    """A wrong code, message, place and list of events are each reported with the step."""
    maps = "/api/v1/namespaces/{ns}/configmaps"
    wrong = Case(
        "wrong",
        (
            Step("GET", f"{maps}/none", code=200, text="found it", has={"reason": "Happy", "code": 404}),
            Step("WATCH", maps, query={"fieldSelector": "metadata.name=none"}, events=("ADDED x",)),
        ),
    )
    told = _play(wrong)
    assert [text.split(":")[0].split(" ")[1] for text in told] == ["0", "0", "0", "1"]
    for text, words in zip(told, ("code 404", "found it", "reason is 'NotFound'", "events []"), strict=True):
        assert words in text
