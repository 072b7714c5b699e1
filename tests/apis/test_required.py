"""What is encoded even when it is empty, because the API server refuses objects without it."""

from typing import Any

import msgspec
import pytest

from karpenter.apis.core import Event, NodeSpec, Taint
from karpenter.apis.crds import load_crds
from karpenter.apis.karpenter import (
    Budget,
    Disruption,
    NodeClaim,
    NodeClaimSpec,
    NodeClassRef,
    NodeOverlay,
    NodePool,
    RequirementSpec,
)
from karpenter.apis.meta import Condition, KubeObject, LabelSelector, OwnerReference, SelectorRequirement
from karpenter.apis.validation import SchemaValidator

REFERENCE = NodeClassRef(group="karpenter.kwok.sh", kind="KWOKNodeClass", name="default")


def encoded(obj: msgspec.Struct) -> Any:
    """Return what is sent for `obj`."""
    return msgspec.json.decode(msgspec.json.encode(obj))


def missing(value: Any, schema: dict[str, Any], path: str = "") -> list[str]:
    """Return the required fields that `value` lacks, anywhere in it."""
    found = []
    if isinstance(value, dict):
        found += [f"{path}.{name}" for name in schema.get("required", ()) if name not in value]
        for name, child in schema.get("properties", {}).items():
            if name in value:
                found += missing(value[name], child, f"{path}.{name}")
    elif isinstance(value, list):
        for child in value:
            found += missing(child, schema.get("items", {}), f"{path}[]")
    return found


def schema_of(kind: str) -> dict[str, Any]:
    """Return the schema of a shipped CRD."""
    crd = next(crd for crd in load_crds() if crd["spec"]["names"]["kind"] == kind)
    schema: dict[str, Any] = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return schema


@pytest.mark.parametrize("kind", [NodeClaim, NodePool, NodeOverlay])
def test_an_empty_object_has_all_required_fields(kind: type[KubeObject]) -> None:
    """Whatever a schema of ours requires is there, though every field has its default."""
    assert missing(encoded(kind()), schema_of(kind.__name__)) == []


def test_parts_with_nothing_but_defaults_have_all_required_fields() -> None:
    """The parts that an empty object lacks: taints, conditions, requirements, budgets."""
    claim = encoded(
        NodeClaim(
            spec=NodeClaimSpec(
                requirements=[RequirementSpec(key="a", operator="Exists")],
                taints=[Taint(key="a")],
                startup_taints=[Taint(key="b")],
            )
        )
    )
    assert missing(claim, schema_of("NodeClaim")) == []
    pool = encoded(Disruption(budgets=[Budget()]))
    assert missing(pool, schema_of("NodePool")["properties"]["spec"]["properties"]["disruption"]) == []


def test_a_claim_without_requirements_passes_the_schema_and_its_rules() -> None:
    """A pool may require nothing; its claims must be accepted all the same."""
    crd = next(crd for crd in load_crds() if crd["spec"]["names"]["kind"] == "NodeClaim")
    validator = SchemaValidator.for_crd(crd, "v1")
    claim = encoded(NodeClaim(spec=NodeClaimSpec(node_class_ref=REFERENCE)))
    assert validator.validate(validator.default_and_prune(claim)) == []


@pytest.mark.parametrize(
    ("part", "fields"),
    [
        (OwnerReference(), {"apiVersion", "kind", "name", "uid"}),
        (Condition(type="Ready"), {"type", "status"}),
        (Taint(key="a"), {"key", "effect"}),
        (SelectorRequirement(key="a"), {"key", "operator"}),
        (LabelSelector(match_expressions=[SelectorRequirement(key="a")]), {"matchExpressions"}),
        (Event(), {"metadata", "involvedObject"}),
    ],
)
def test_built_in_parts(part: msgspec.Struct, fields: set[str]) -> None:
    """Fields that Kubernetes itself requires are written."""
    assert fields <= encoded(part).keys()


def test_what_is_optional_is_still_left_out() -> None:
    """Only required fields are written when empty: the rest would take ownership of them."""
    assert encoded(NodeSpec()) == {}
    assert encoded(NodeClaimSpec(node_class_ref=REFERENCE)).keys() == {
        "requirements",
        "resources",
        "nodeClassRef",
    }


def test_an_absent_field_reads_as_its_default() -> None:
    """What must be written need not be there to be read."""
    assert msgspec.convert({}, NodeClaimSpec) == NodeClaimSpec()
    assert msgspec.convert({"key": "a"}, SelectorRequirement).operator == "In"
    assert msgspec.convert({}, Budget).nodes == "10%"
