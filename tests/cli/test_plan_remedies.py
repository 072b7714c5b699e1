"""What would help a pod that is left out, and what that would cost."""

from pathlib import Path
from typing import Any

import pytest
from tests.cli.test_plan import CONTAINER, TYPES, plan, report, workload

from karpenter.cli.planning.report import Reason

ZONE = "topology.kubernetes.io/zone"
HOST = "kubernetes.io/hostname"


def a_pool(name: str = "default", template: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    """Return a NodePool as a scenario lists it."""
    return {"metadata": {"name": name}, "spec": {"template": {"spec": template or {}}, **spec}}


def reasons(tmp_path: Path, pool: dict[str, Any], replicas: int = 3, **spec: Any) -> dict[str, list[Reason]]:
    """Return why the pods of a Deployment have no place."""
    scenario = {"instanceTypes": TYPES, "nodePools": [pool]}
    found = report(tmp_path, workload(replicas=replicas, **spec), scenario=scenario)
    return {key: case.reasons for key, case in found.unschedulable.items()}


def apart(key: str) -> dict[str, Any]:
    """Return required anti-affinity to one's own app."""
    term = {"topologyKey": key, "labelSelector": {"matchLabels": {"app": "web"}}}
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


@pytest.mark.parametrize(
    ("pool", "spec", "constraint", "places", "price"),
    [
        (a_pool(limits={"nodes": "1"}), {"affinity": apart(HOST)}, "limits", 2, 0.2),
        (a_pool(limits={"cpu": "2"}), {"affinity": apart(HOST)}, "limits", 2, 0.2),
        (a_pool(template={"taints": [{"key": "x", "effect": "NoSchedule"}]}), {}, "taints", 3, 0.2),
        (a_pool(), {"nodeSelector": {"team": "blue"}}, "requirements", 3, 0.2),
        (a_pool(), {"nodeSelector": {ZONE: "q"}}, "requirements", 3, 0.2),
        (a_pool(), {"affinity": apart(ZONE)}, "podAntiAffinity", 1, 0.0),
    ],
    ids=["nodes", "cpu", "taint", "label", "zone", "apart"],
)
def test_what_would_help_has_a_price(
    tmp_path: Path, pool: Any, spec: Any, constraint: str, places: int, price: float
) -> None:
    """Three pods of a core, two cores for $0.10: how many would have a place, what more that would cost."""
    found = reasons(tmp_path, pool, **spec)
    assert len(found) == places
    for each in found.values():
        assert [(r.constraint, r.remedy_places) for r in each] == [(constraint, places)]
        assert each[0].remedy
        assert each[0].remedy_price_per_hour == pytest.approx(price)


def test_a_change_that_does_not_help_by_itself_says_so(tmp_path: Path) -> None:
    """Tainted nodes, and a selector that no node meets: tolerating the taint places nobody."""
    pool = a_pool(template={"taints": [{"key": "x", "effect": "NoSchedule"}]})
    for each in reasons(tmp_path, pool, nodeSelector={"team": "blue"}).values():
        assert [(r.remedy_places, r.remedy_price_per_hour) for r in each] == [(0, None)]


def test_what_was_not_tried_has_no_price(tmp_path: Path) -> None:
    """Larger machines than there are have no price."""
    large = {**CONTAINER, "resources": {"requests": {"cpu": "64"}}}
    for each in reasons(tmp_path, a_pool(), containers=[large]).values():
        assert [(r.remedy_places, r.remedy_price_per_hour) for r in each] == [(None, None)]


def test_the_table_tells_the_price(tmp_path: Path) -> None:
    """People read it beside the change."""
    scenario = {"instanceTypes": TYPES, "nodePools": [a_pool(limits={"nodes": "1"})]}
    _, out, _ = plan(tmp_path, workload(affinity=apart(HOST)), scenario=scenario, output="table")
    assert "would help: raise limits.nodes (places 2, +$0.2000/h)" in out
