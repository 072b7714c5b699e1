"""Our custom kinds on a real API server: it takes their definitions, and judges as we do."""

from typing import Any

import msgspec
import pytest
from tests.e2e.harness import ControlPlane

from karpenter.apis.crds import load_crds
from karpenter.testing.crd_cases import CrdCase, crd_cases

pytestmark = pytest.mark.e2e
Json = dict[str, Any]


def _path(obj: Json) -> str:
    """Return the collection that `obj` belongs to."""
    names = {
        (crd["spec"]["group"], crd["spec"]["names"]["kind"]): crd["spec"]["names"]["plural"]
        for crd in load_crds()
    }
    group, _, version = obj["apiVersion"].partition("/")
    namespace = obj["metadata"].get("namespace")
    middle = f"/namespaces/{namespace}" if namespace else ""
    return f"/apis/{group}/{version}{middle}/{names[group, obj['kind']]}"


@pytest.mark.parametrize("crd", load_crds(), ids=lambda crd: crd["metadata"]["name"])
def test_a_definition_is_established(plane: ControlPlane, crd: Json) -> None:
    """The server serves each kind, its structural schema is sound, and no name is taken."""
    path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{crd['metadata']['name']}"
    body = plane.get(path)
    assert body is not None
    conditions = {each["type"]: each["status"] for each in msgspec.json.decode(body)["status"]["conditions"]}
    assert conditions["Established"] == conditions["NamesAccepted"] == "True"
    assert conditions.get("NonStructuralSchema", "False") == "False"


@pytest.mark.parametrize("case", crd_cases(), ids=lambda case: case.name)
def test_the_server_agrees_with_the_case(plane: ControlPlane, case: CrdCase) -> None:
    """What our table of cases says is good is taken; what it says is bad is refused as invalid."""
    path = _path(case.obj)
    if case.old is None:
        status, body = plane.request("POST", f"{path}?dryRun=All", case.obj)
    else:
        status, body = _update(plane, path, case.old, case.obj)
    answer = msgspec.json.decode(body)
    if case.good:
        assert status in (200, 201), answer["message"]
        return
    # 400: the server cannot even read it as its kind (a field of another type, a quantity that is none)
    assert status in (400, 422), f"taken: {answer}"
    if status == 422:
        causes = [(cause.get("field", ""), cause["message"]) for cause in answer["details"]["causes"]]
        # a number beyond its format is reported without a field, its place being in the text
        assert any(
            case.message in text and (field.startswith(case.field) or f" in {case.field}" in text)
            for field, text in causes
        ), causes


def _update(plane: ControlPlane, path: str, old: Json, new: Json) -> tuple[int, bytes]:
    """Return the answer to putting `new` over `old`; nothing stays behind."""
    status, body = plane.request("POST", path, old)
    assert status == 201, body
    at = f"{path}/{old['metadata']['name']}"
    try:
        version = msgspec.json.decode(body)["metadata"]["resourceVersion"]
        metadata = {**new["metadata"], "resourceVersion": version}
        return plane.request("PUT", f"{at}?dryRun=All", {**new, "metadata": metadata})
    finally:
        status, body = plane.request("DELETE", at)
        assert status == 200, body
