"""`karpenter validate` on workloads: what would keep nodes from ever going is said before it matters."""

import io
import json
from pathlib import Path
from typing import Any

import pytest

from karpenter.cli.validate import validate_files
from karpenter.testing.manifests import deployment, disruption_budget

SURGE = {"karpenter-py.dev/surge": "true"}


def findings(tmp_path: Path, *objects: dict[str, Any]) -> list[tuple[str, str, str, str]]:
    """Return (object, field, problem, fix) of each finding; all of them are warnings."""
    folder = tmp_path / "manifests"
    folder.mkdir()
    for number, obj in enumerate(objects):
        (folder / f"{number}.json").write_text(json.dumps(obj))
    out = io.StringIO()
    assert validate_files([str(folder)], provider=None, out=out, output="json") == 0
    found = json.loads(out.getvalue())
    assert all(f["severity"] == "warning" for f in found)
    return [(f["object"], f["field"], f["problem"], f["fix"]) for f in found]


def strategy(obj: dict[str, Any], **rolling: Any) -> dict[str, Any]:
    obj["spec"]["strategy"] = {"type": "RollingUpdate", "rollingUpdate": rolling}
    return obj


@pytest.mark.parametrize(
    ("budget", "replicas", "says"),
    [
        ({"minAvailable": 1}, 1, "minAvailable 1 of 1 pod can never allow an eviction"),
        ({"minAvailable": 3}, 3, "minAvailable 3 of 3 pods can never allow an eviction"),
        ({"minAvailable": "75%"}, 3, "minAvailable 75% of 3 pods can never allow an eviction"),
        ({"maxUnavailable": 0}, 9, "maxUnavailable 0 of 9 pods can never allow an eviction"),
        ({"minAvailable": "75%"}, 4, ""),
        ({"minAvailable": 1}, 2, ""),
        ({"maxUnavailable": "1%"}, 1, ""),
        ({"minAvailable": 1}, 0, ""),
        ({"minAvailable": "half"}, 1, ""),
    ],
)
def test_budgets_that_can_never_allow_an_eviction(
    tmp_path: Path, budget: dict[str, Any], replicas: int, says: str
) -> None:
    """Counted against the replicas among the manifests."""
    found = findings(tmp_path, deployment("web", replicas), disruption_budget("web", **budget))
    if not says:
        assert found == []
        return
    ((name, field, problem, fix),) = found
    assert (name, field) == ("PodDisruptionBudget/web", f"spec.{next(iter(budget))}")
    assert problem.startswith(says)
    assert "set maxUnavailable 1" in fix


def test_a_budget_is_judged_by_the_pods_it_covers(tmp_path: Path) -> None:
    """Of another namespace or label they do not count; without any only its own words do."""
    other = deployment("web", 1)
    other["metadata"]["namespace"] = "elsewhere"
    assert findings(tmp_path, other, disruption_budget("web", minAvailable=1)) == []


def test_several_budgets_over_one_workload(tmp_path: Path) -> None:
    """The Eviction API takes one."""
    second = disruption_budget("web", maxUnavailable=1)
    second["metadata"]["name"] = "second"
    objects = [deployment("web", 3), disruption_budget("web", maxUnavailable=1), second]
    ((name, _, problem, _),) = findings(tmp_path, *objects)
    assert name == "Deployment/web"
    assert "PodDisruptionBudgets web, second" in problem


@pytest.mark.parametrize(
    ("made", "says"),
    [
        (deployment("web", 1, annotations=SURGE), ""),
        (strategy(deployment("web", 9, annotations=SURGE), maxSurge=1, maxUnavailable=0), ""),
        (deployment("web", 4, annotations=SURGE), "may miss 1 of its pods"),
        (strategy(deployment("web", 1, annotations=SURGE), maxSurge=0), "has maxSurge 0"),
        ({**deployment("web", 1, annotations=SURGE), "kind": "StatefulSet"}, "only Deployments surge"),
        (deployment("web", 1, annotations={"karpenter-py.dev/surge": "yes"}), "only true is known"),
    ],
)
def test_surges_that_cannot_be(tmp_path: Path, made: dict[str, Any], says: str) -> None:
    """Who asks for stand-ins and could not have them is told what to set."""
    found = findings(tmp_path, made)
    assert len(found) == bool(says)
    for _, field, problem, fix in found:
        assert field == "spec.template.metadata.annotations[karpenter-py.dev/surge]"
        assert says in problem
        assert fix
