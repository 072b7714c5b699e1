"""`karpenter plan --scheduler-config`: pods that say nothing are spread as the cluster's defaults have it."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.cli.test_plan import TYPES, plan, report, workload

from karpenter.cli.plan import REFUSED
from karpenter.cli.planning.report import Report

CONFIG = {
    "podTopologySpread": {
        "defaultConstraints": [
            {"maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "DoNotSchedule"}
        ]
    }
}
TEXT = yaml.safe_dump(CONFIG)


def zones(found: Report) -> list[int]:
    """Return how many pods each zone has, sorted; a node counts where it is launched."""
    counts: dict[str, int] = {}
    for node in found.new_nodes:
        counts[node.launch.zone] = counts.get(node.launch.zone, 0) + len(node.pods)
    return sorted(counts.values())


@pytest.mark.parametrize(
    "objects",
    [
        [workload(replicas=6)],
        [workload("StatefulSet", replicas=6)],
        [
            {
                "apiVersion": "v1",
                "kind": "Service",
                "metadata": {"name": "s"},
                "spec": {"selector": {"a": "b"}},
            },
            *(
                {
                    "apiVersion": "v1",
                    "kind": "Pod",
                    "metadata": {"name": f"p{n}", "labels": {"a": "b"}},
                    "spec": {
                        "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}]
                    },
                }
                for n in range(6)
            ),
        ],
    ],
    ids=["deployment", "statefulset", "service"],
)
def test_pods_that_belong_together_are_spread(tmp_path: Path, objects: list[Any]) -> None:
    """Without the option one zone takes all; with it both have half."""
    scenario = {"instanceTypes": TYPES}
    assert zones(report(tmp_path, *objects, scenario=scenario)) == [6]
    assert zones(report(tmp_path, *objects, scenario=scenario, scheduler_config=TEXT)) == [3, 3]
    file = tmp_path / "config.yaml"
    file.write_text(TEXT)
    assert zones(report(tmp_path, *objects, scenario=scenario, scheduler_config=str(file))) == [3, 3]


def test_what_a_pod_says_itself_counts(tmp_path: Path) -> None:
    """A workload with a constraint of its own gets no other."""
    own = {"maxSkew": 6, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "ScheduleAnyway"}
    web = workload(
        replicas=6, topologySpreadConstraints=[{**own, "labelSelector": {"matchLabels": {"app": "web"}}}]
    )
    found = report(
        tmp_path, web, scenario={"instanceTypes": TYPES}, scheduler_config=TEXT, preference_policy="Ignore"
    )
    assert zones(found) == [6]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("no-such-file", "--scheduler-config no-such-file: No such file or directory"),
        ("{podTopologySpread: {defaultConstraints: 3}}", "podTopologySpread.defaultConstraints: want a list"),
    ],
)
def test_a_bad_config_is_refused(tmp_path: Path, text: str, expected: str) -> None:
    """Exit code 2, and the mistake by its name."""
    code, out, err = plan(tmp_path, workload(), scenario={"instanceTypes": TYPES}, scheduler_config=text)
    assert (code, out) == (REFUSED, "")
    assert expected in err
