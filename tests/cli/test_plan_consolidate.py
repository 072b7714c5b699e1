"""`karpenter plan --consolidate`: what consolidation would do, command by command, and what is left then."""

import io
import json
from importlib import resources
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from karpenter.apis import labels
from karpenter.base.clock import ManualClock
from karpenter.cli.plan import PLANNED, REFUSED, PlanOptions, plan_command
from karpenter.cli.planning.consolidating import Consolidating, Consolidation, json_schema

TYPES = [
    {
        "name": f"m.{cores}",
        "capacity": {"cpu": str(cores), "memory": f"{4 * cores}Gi", "pods": "50"},
        "offerings": [{"zone": "a", "capacityType": "on-demand", "price": 0.05 * cores}],
    }
    for cores in (2, 4, 8)
]
POOL = {
    "metadata": {"name": "default"},
    "spec": {"template": {"spec": {}}, "disruption": {"consolidateAfter": "0s", "budgets": [{"nodes": "1"}]}},
}


def node(name: str, kind: str = "m.4") -> dict[str, Any]:
    return {
        "metadata": {
            "name": name,
            "labels": {
                labels.NODEPOOL: "default",
                labels.INSTANCE_TYPE: kind,
                labels.ZONE: "a",
                labels.CAPACITY_TYPE: "on-demand",
            },
        }
    }


def pod(name: str, on: str = "", cpu: str = "1") -> dict[str, Any]:
    container = {"resources": {"requests": {"cpu": cpu}}}
    return {"metadata": {"name": name}, "spec": {"nodeName": on, "containers": [container]}}


def run(
    tmp_path: Path, *, nodes: list[Any], pods: list[Any], options: dict[str, Any] | None = None, **wish: Any
) -> tuple[int, str, str]:
    """Run the command over one scenario; return code, stdout, stderr."""
    file = tmp_path / "s.json"
    scenario = {"instanceTypes": TYPES, "nodePools": [POOL], "nodes": nodes, "pods": pods}
    file.write_text(json.dumps(scenario))
    chosen = {"output": "json", "deterministic": True, **(options or {})}
    asked = PlanOptions(files=(str(file),), consolidate=Consolidating(**wish), **chosen)
    out, err = io.StringIO(), io.StringIO()
    code = plan_command(asked, stdin=io.BytesIO(), out=out, err=err, clock=ManualClock(0.0))
    return code, out.getvalue(), err.getvalue()


def consolidation(tmp_path: Path, **arguments: Any) -> Consolidation:
    code, out, err = run(tmp_path, **arguments)
    assert code == PLANNED, err
    return msgspec.json.decode(out, type=Consolidation)


EMPTY: dict[str, Any] = {
    "nodes": [node("busy"), node("empty-1"), node("empty-2", "m.8")],
    "pods": [pod("p", "busy", "3500m")],
}


def test_commands_are_told_with_what_they_save(tmp_path: Path) -> None:
    """Budgets are kept to in every round: here, one node at a time, the dearest first."""
    found = consolidation(tmp_path, **EMPTY)
    assert (found.nodes_before, found.nodes_after) == (3, 1)
    assert (found.cost_before_per_hour, found.cost_after_per_hour) == (0.8, 0.2)
    assert (found.converged, found.command_count, found.evicted_pods) == (True, 2, 0)
    first, second = found.commands
    assert [r.node for r in first.removed] == ["empty-2"]
    assert [r.node for r in second.removed] == ["empty-1"]
    assert (first.method, first.reason, first.decision) == ("emptiness", "Empty", "delete")
    assert (first.savings_per_hour, first.cluster_cost_after) == (0.4, 0.4)
    assert first.removed[0].reschedulable_pods == 0
    assert first.reasons == ["no pod on them needs another place"]


def test_free_moves_put_budgets_aside(tmp_path: Path) -> None:
    """All at once then."""
    (only,) = consolidation(tmp_path, **EMPTY, free_moves=True).commands
    assert sorted(r.node for r in only.removed) == ["empty-1", "empty-2"]


def test_it_can_be_stopped(tmp_path: Path) -> None:
    """After so many commands; it does not say then that it is done."""
    found = consolidation(tmp_path, **EMPTY, most_commands=1)
    assert (found.command_count, found.converged, found.staying) == (1, False, [])


def test_nodes_that_stay_say_why(tmp_path: Path) -> None:
    """By node, in the round that found nothing."""
    stays = {each.node: each for each in consolidation(tmp_path, **EMPTY).staying}
    assert list(stays) == ["busy"]
    assert stays["busy"].message


def test_pods_that_wait_get_their_nodes_first(tmp_path: Path) -> None:
    """The plan for them is told too; what they fit on stays, and what is bought counts as there before."""
    nodes, pods = [node("n-1"), node("n-2")], [pod("fits", cpu="3"), pod("large", cpu="7")]
    found = consolidation(tmp_path, nodes=nodes, pods=pods)
    assert found.provision is not None
    assert [n.launch.instance_type for n in found.provision.new_nodes] == ["m.8"]
    assert (found.nodes_before, found.cost_before_per_hour) == (3, 0.8)
    assert found.nodes_after == 2


def test_pods_that_wait_can_be_left_alone(tmp_path: Path) -> None:
    """Nothing is bought for them then."""
    found = consolidation(tmp_path, nodes=[node("n-1")], pods=[pod("large", cpu="7")], provision=False)
    assert found.provision is None
    assert found.nodes_before == 1


@pytest.mark.parametrize("output", ["json", "yaml", "table"])
def test_equal_input_equal_bytes(tmp_path: Path, output: str) -> None:
    """With --deterministic, whatever the output; and no times are in it."""
    first, second = (run(tmp_path, **EMPTY, options={"output": output})[1] for _ in range(2))
    assert first == second
    if output != "table":
        told = yaml.safe_load(first)
        assert told["timing"] == {"compileSeconds": None, "solveSeconds": None, "improveSeconds": None}
        assert [command["seconds"] for command in told["commands"]] == [None, None]


def test_times_are_told(tmp_path: Path) -> None:
    """Without --deterministic."""
    found = consolidation(tmp_path, **EMPTY, options={"deterministic": False})
    assert found.timing.improve_seconds is not None
    assert all(command.seconds is not None for command in found.commands)


def test_the_table_is_short(tmp_path: Path) -> None:
    """The bill first, a row for each command, why the rest stays."""
    _, out, _ = run(tmp_path, **EMPTY, options={"output": "table"})
    lines = out.splitlines()
    assert lines[0] == "3 nodes at $0.8000/h -> 1 node at $0.2000/h (-75.0 %): 2 commands, 0 pods moved"
    assert lines[2].split() == ["1", "emptiness", "empty-2", "0", "-", "0.4000", "0.4000"]
    assert lines[-1].startswith("nothing more is found")


@pytest.mark.parametrize(
    ("wish", "words"),
    [
        ({"methods": ("magic",)}, "--consolidation-methods: magic"),
        ({"round_budget": "soon"}, "--round-budget soon"),
    ],
)
def test_options_that_make_no_sense_are_refused(tmp_path: Path, wish: dict[str, Any], words: str) -> None:
    """By name, with what would do."""
    code, out, err = run(tmp_path, **EMPTY, **wish)
    assert (code, out) == (REFUSED, "")
    assert words in err


def test_the_schema_is_that_of_the_structs() -> None:
    """The shipped JSON Schema is what the code prints."""
    shipped = resources.files("karpenter.cli.planning").joinpath("consolidation.schema.json").read_text()
    assert json.loads(shipped) == json_schema(), "write json_schema() to it"
