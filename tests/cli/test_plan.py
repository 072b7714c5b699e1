"""`karpenter plan`: from files to a plan, and clear words for files that are no good."""

import gzip
import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from karpenter.base.clock import ManualClock
from karpenter.cli.plan import PLANNED, REFUSED, UNSCHEDULABLE, PlanOptions, plan_command
from karpenter.cli.planning.report import Report, json_schema

CONTAINER = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}
TYPES = [
    {
        "name": f"m.{cores}",
        "capacity": {"cpu": str(cores), "memory": f"{4 * cores}Gi", "pods": "50"},
        "offerings": [
            {"zone": zone, "capacityType": "on-demand", "price": 0.05 * cores} for zone in ("a", "b")
        ],
    }
    for cores in (2, 4, 8)
]


def plan(
    tmp_path: Path, *objects: Any, scenario: dict[str, Any] | None = None, stdin: bytes = b"", **options: Any
) -> tuple[int, str, str]:
    """Run the command over `objects`, each a document, and a scenario; return code, stdout, stderr."""
    file = tmp_path / "m.yaml"
    file.write_text(yaml.safe_dump_all(objects))
    files = [str(file)] if objects else []
    if scenario is not None:
        other = tmp_path / "s.json"
        other.write_text(json.dumps(scenario))
        files.append(str(other))
    out, err = io.StringIO(), io.StringIO()
    chosen = PlanOptions(**{"files": tuple(files), "output": "json", "deterministic": True, **options})
    code = plan_command(chosen, stdin=io.BytesIO(stdin), out=out, err=err, clock=ManualClock(0.0))
    return code, out.getvalue(), err.getvalue()


def report(tmp_path: Path, *objects: Any, **options: Any) -> Report:
    """Run the command and read what it printed, strictly."""
    code, out, err = plan(tmp_path, *objects, **options)
    assert code == PLANNED, err
    return msgspec.json.decode(out, type=Report)


def workload(kind: str = "Deployment", name: str = "web", replicas: int = 3, **spec: Any) -> dict[str, Any]:
    """Return a workload with one container per pod."""
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}}, "spec": {"containers": [CONTAINER], **spec}},
        },
    }


def pods_of(found: Report) -> list[str]:
    """Return all pods that have a place, sorted."""
    places = [*(node.pods for node in found.new_nodes), *(node.pods for node in found.existing_nodes)]
    return sorted(key for pods in places for key in pods)


def test_a_scenario(tmp_path: Path) -> None:
    """A scenario brings its own catalogue and pools; the plan is the cheapest that holds its pods."""
    scenario = {
        "instanceTypes": TYPES,
        "nodePools": [{"metadata": {"name": "only"}, "spec": {"template": {"spec": {}}}}],
        "podGroups": [{"namePrefix": "p", "count": 6, "template": {"spec": {"containers": [CONTAINER]}}}],
    }
    found = report(tmp_path, scenario=scenario)
    assert pods_of(found) == [f"default/p-{i:05d}" for i in range(6)]
    assert found.new_nodes_cost_per_hour == pytest.approx(0.3)
    assert {n.node_pool for n in found.new_nodes} == {"only"}


def test_a_deployment_is_its_pods(tmp_path: Path) -> None:
    """Pods are named and labelled as a ReplicaSet would; a default pool is used, and said to be."""
    code, out, err = plan(tmp_path, workload())
    assert code == PLANNED
    assert "no NodePool is given" in err
    names = pods_of(msgspec.json.decode(out, type=Report))
    assert len(names) == 3
    assert all(name.startswith("default/web-") and len(name.split("-")) == 3 for name in names)


def test_output_is_nothing_but_json(tmp_path: Path) -> None:
    """The same input gives the same bytes, and stdout holds one JSON document."""
    first, second = plan(tmp_path, workload())[1], plan(tmp_path, workload())[1]
    assert first == second
    assert set(json.loads(first)) >= {"newNodes", "existingNodes", "unschedulable", "timing", "gap"}


def test_exit_code_tells_of_pods_left_out(tmp_path: Path) -> None:
    """With --exit-code a pod without a place makes 1; without it a plan was made all the same."""
    impossible = workload(nodeSelector={"nobody": "has-this"})
    assert plan(tmp_path, impossible)[0] == PLANNED
    code, out, _ = plan(tmp_path, impossible, exit_code=True)
    assert code == UNSCHEDULABLE
    reasons = json.loads(out)["unschedulable"].values()
    assert all(r["reasons"][0]["constraint"] == "requirements" for r in reasons)


def test_gzip_and_stdin(tmp_path: Path) -> None:
    """Compressed files and standard input are read like others."""
    text = yaml.safe_dump(workload()).encode()
    file = tmp_path / "z.yaml.gz"
    file.write_bytes(gzip.compress(text))
    zipped = report(tmp_path, files=(str(file),))
    piped = report(tmp_path, files=("-",), stdin=text)
    assert pods_of(zipped) == pods_of(piped)
    assert len(pods_of(piped)) == 3


@pytest.mark.parametrize(
    ("obj", "expected"),
    [
        (workload(replicas=-1), "Deployment/web: spec.replicas = -1"),
        (workload(containers=[]), "spec.template.spec.containers"),
        ({"apiVersion": "v1", "kind": "Pod"}, "metadata"),
        ({"apiVersion": "apps/v1beta1", "kind": "Deployment", "metadata": {"name": "x"}}, "apps/v1"),
        ({"pods": [], "instanceTypes": {}}, "instanceTypes"),
        ({"pods": [], "podz": []}, "did you mean pods"),
        ([1], "is not an object"),
    ],
)
def test_bad_input_is_refused(tmp_path: Path, obj: Any, expected: str) -> None:
    """An error names file, line, object and field; nothing is planned."""
    code, out, err = plan(tmp_path, obj)
    assert code == REFUSED
    assert out == ""
    assert expected in err
    assert f"{tmp_path}/m.yaml:" in err


def test_the_schema_is_that_of_the_structs() -> None:
    """The JSON Schema that is shipped describes what is printed."""
    shipped = resources.files("karpenter.cli.planning").joinpath("schema.json").read_text()
    assert json.loads(shipped) == json_schema(), "write json_schema() to it"


def test_output_obeys_the_schema(tmp_path: Path) -> None:
    """Every field that the schema requires is printed, with a value of the type it names, and no other."""
    code, out, _ = plan(tmp_path, workload(), workload(name="no", nodeSelector={"no": "no"}), output="yaml")
    assert code == PLANNED
    schema = json_schema()
    assert list(mismatches(yaml.safe_load(out), schema, schema["$defs"])) == []
    assert list(mismatches({"newNodes": [{}]}, schema, schema["$defs"]))


def mismatches(value: Any, schema: Any, definitions: Any, at: str = "$") -> Iterator[str]:
    """Yield where `value` breaks `schema`, as far as ours go: references, unions, objects, lists, scalars."""
    if "$ref" in schema:
        schema = definitions[schema["$ref"].rpartition("/")[2]]
    if "anyOf" in schema:
        if all(list(mismatches(value, each, definitions, at)) for each in schema["anyOf"]):
            yield f"{at}: fits none of the alternatives"
        return
    types: dict[str, Any] = {
        "object": dict,
        "array": list,
        "string": str,
        "number": (int, float),
        "integer": int,
    }
    wanted = schema.get("type")
    if wanted == "null":
        if value is not None:
            yield f"{at}: want null"
    elif wanted is not None and not isinstance(value, types[wanted]):
        yield f"{at}: want {wanted}"
    elif wanted == "array":
        for number, item in enumerate(value):
            yield from mismatches(item, schema["items"], definitions, f"{at}[{number}]")
    elif wanted == "object":
        properties, others = schema.get("properties", {}), schema.get("additionalProperties", True)
        for name in schema.get("required", ()):
            if name not in value:
                yield f"{at}: lacks {name}"
        for name, item in value.items():
            if name in properties:
                yield from mismatches(item, properties[name], definitions, f"{at}.{name}")
            elif others is False:
                yield f"{at}: has {name}"
            elif isinstance(others, dict):
                yield from mismatches(item, others, definitions, f"{at}.{name}")


MONEY_POOL = {
    "apiVersion": "karpenter.sh/v1",
    "kind": "NodePool",
    "metadata": {"name": "thrifty", "annotations": {"karpenter-py.dev/price-limit-per-hour": "0.25"}},
    "spec": {
        "template": {
            "spec": {
                "requirements": [{"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]}],
                "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"},
            }
        }
    },
}


def test_limits_on_money_are_held_and_shown(tmp_path: Path) -> None:
    """The plan spends what the annotation and the option allow, and says how much of each is used."""
    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": "there",
            "labels": {
                "karpenter.sh/nodepool": "thrifty",
                "node.kubernetes.io/instance-type": "m.2",
                "topology.kubernetes.io/zone": "a",
                "karpenter.sh/capacity-type": "on-demand",
            },
        },
    }
    files = (MONEY_POOL, node, workload(replicas=20))
    options: dict[str, Any] = {"scenario": {"instanceTypes": TYPES}, "cluster_price_limit": "10"}
    found = report(tmp_path, *files, **options)
    assert found.unschedulable
    assert 0 < found.new_nodes_cost_per_hour <= 0.15 + 1e-9
    first, last = found.price_limits
    assert (first.name, first.limit_per_hour, first.used_per_hour) == ("nodepool/thrifty", 0.25, 0.1)
    assert first.planned_per_hour == pytest.approx(found.new_nodes_cost_per_hour)
    assert (last.name, last.limit_per_hour, last.used_per_hour) == ("cluster", 10.0, 0.1)
    _, table, _ = plan(tmp_path, *files, output="table", **options)
    assert "nodepool/thrifty: $" in table
    assert "of the price limit of $0.2500/h" in table
    options["cluster_price_limit"] = "0.1"
    assert report(tmp_path, *files, **options).new_nodes == []


def test_a_limit_on_money_must_be_money(tmp_path: Path) -> None:
    """A flag or an annotation that is no amount is refused, with an example of one."""
    code, _, err = plan(tmp_path, workload(), cluster_price_limit="a lot")
    assert code == REFUSED
    assert '--cluster-price-limit a lot: want an amount in US dollars, such as "12.50"' in err
    annotations = {"karpenter-py.dev/price-limit-per-hour": "$1"}
    wrong = {**MONEY_POOL, "metadata": {"name": "wrong", "annotations": annotations}}
    code, _, err = plan(tmp_path, wrong, workload())
    assert code == REFUSED
    assert "price-limit-per-hour" in err


def test_nothing_is_bought_below_the_cut_off(tmp_path: Path) -> None:
    """With a priority cut-off, pods below it are left out with the reason and the way out."""
    high = workload(name="high", replicas=1, priority=5)
    found = report(tmp_path, workload(name="low", replicas=1), high, expendable_below=1)
    assert [key.split("-")[0] for node in found.new_nodes for key in node.pods] == ["default/high"]
    ((_, refused),) = found.unschedulable.items()
    assert refused.reasons[0].constraint == "priority"
    assert "priority 1 or more" in refused.reasons[0].remedy


RESERVED = [
    {
        "name": name,
        "capacity": {"cpu": "2", "memory": "8Gi"},
        "offerings": [
            {"zone": "a", "capacityType": "on-demand", "price": 0.5},
            {
                "zone": "a",
                "capacityType": "reserved",
                "price": price,
                "reservationID": "r",
                "reservationCapacity": 1,
            },
        ],
    }
    for name, price in (("one", 0.01), ("two", 0.02))
]


@pytest.mark.parametrize(("gate", "bought"), [(True, ["on-demand", "reserved"]), (False, ["on-demand"] * 2)])
def test_types_share_a_reservation(tmp_path: Path, gate: bool, bought: list[str]) -> None:
    """Two types draw on one reservation with room for one node; with the gate off nobody does."""
    large = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1500m"}}}
    pool = {"metadata": {"name": "any"}, "spec": {"template": {"spec": {}}}}
    scenario = {"instanceTypes": RESERVED, "nodePools": [pool], "options": {"reservedCapacity": gate}}
    found = report(tmp_path, workload(replicas=2, containers=[large]), scenario=scenario)
    assert sorted(node.launch.capacity_type for node in found.new_nodes) == bought


def test_an_offering_may_be_larger_than_its_type(tmp_path: Path) -> None:
    """Scenarios say what offerings override; nodes that run are as large as their offering."""
    offerings = [
        {"zone": "a", "capacityType": "on-demand", "price": 0.1},
        {"zone": "b", "capacityType": "on-demand", "price": 0.3, "capacityOverride": {"cpu": 8}},
    ]
    kind = {"name": "mixed", "capacity": {"cpu": "4", "memory": "16Gi"}, "offerings": offerings}
    large = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "6"}}}
    node = {
        "metadata": {
            "name": "there",
            "labels": {
                "node.kubernetes.io/instance-type": "mixed",
                "topology.kubernetes.io/zone": "b",
                "karpenter.sh/capacity-type": "on-demand",
            },
        }
    }
    pool = {"metadata": {"name": "any"}, "spec": {"template": {"spec": {}}}}
    scenario = {"instanceTypes": [kind], "nodePools": [pool], "nodes": [node]}
    found = report(tmp_path, workload(replicas=2, containers=[large]), scenario=scenario)
    assert [(n.launch.zone, len(n.pods)) for n in found.new_nodes] == [("b", 1)]
    assert [(n.name, len(n.pods)) for n in found.existing_nodes] == [("there", 1)]


def test_a_broken_override_is_refused(tmp_path: Path) -> None:
    """The error names the offering and the resource."""
    offering = {"zone": "a", "capacityType": "spot", "price": 1, "overheadOverride": {"cpu": "much"}}
    kinds = [{"name": "t", "offerings": [offering]}]
    code, _, err = plan(tmp_path, scenario={"instanceTypes": kinds, "pods": []})
    assert code == 2
    assert "offerings[0].overheadOverride.cpu" in err


def test_plans_do_not_depend_on_the_process() -> None:
    """Two processes whose hashes differ print the same bytes."""
    scenario = Path(__file__).parents[2] / "benchmarks" / "corpus" / "weights-limits-daemons.yaml"
    command = [sys.executable, "-m", "karpenter", "plan", str(scenario), "--deterministic", "-o", "json"]
    printed = {
        subprocess.run(
            command, env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, check=True
        ).stdout
        for seed in ("1", "2")
    }
    assert len(printed) == 1
