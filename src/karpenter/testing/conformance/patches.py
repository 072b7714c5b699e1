"""The four kinds of patch, and who owns which field."""

from karpenter.testing.conformance.steps import ABSENT, PRESENT, Case, Step, case
from karpenter.testing.conformance.writes import DEPLOYMENTS, MAPS, config_map, deployment

ONE = f"{MAPS}/one"
WEB = f"{DEPLOYMENTS}/web"
_MADE = Step("POST", MAPS, body=config_map(data={"a": "1", "b": "2"}), code=201)


def cases() -> list[Case]:
    """Return the cases."""
    return [*_merge(), *_json(), *_strategic(), *_apply()]


def _merge() -> list[Case]:
    return [
        case(
            "merge-patch",
            _MADE,
            Step("MERGE", ONE, body={"data": {"a": None, "c": "3"}}, has={"data": {"b": "2", "c": "3"}}),
            Step("MERGE", ONE, body={"data": None}, has={"data": ABSENT}),
            Step("MERGE", ONE, body={"metadata": {"name": "two"}}, code=400, has={"reason": "BadRequest"}),
            Step("MERGE", ONE, body={"data": {"a": 1}}, code=422, has={"reason": "Invalid"}),
            Step("MERGE", ONE, body=[1], code=400),
            Step(
                "MERGE",
                ONE,
                body={"metadata": {"uid": "other"}},
                code=422,
                has={"reason": "Invalid"},
                text="metadata.uid",
            ),
            Step(
                "MERGE",
                ONE,
                body={"metadata": {"creationTimestamp": None}},
                has={"metadata/creationTimestamp": PRESENT},
            ),
        ),
    ]


def _json() -> list[Case]:
    return [
        case(
            "json-patch",
            _MADE,
            Step(
                "JSONPATCH",
                ONE,
                has={"data": {"b": "2", "c": "1"}},
                body=[{"op": "move", "from": "/data/a", "path": "/data/c"}],
            ),
            Step(
                "JSONPATCH",
                ONE,
                body=[{"op": "test", "path": "/data/b", "value": "9"}],
                code=422,
                has={"reason": "Invalid"},
            ),
            Step(
                "JSONPATCH",
                ONE,
                body=[{"op": "remove", "path": "/data/none"}],
                code=422,
                has={"reason": "Invalid"},
            ),
            Step(
                "JSONPATCH",
                ONE,
                body=[{"op": "replace", "path": "/data/none", "value": "1"}],
                has={"data/none": "1"},
            ),
            Step("JSONPATCH", ONE, body=[{"op": "add", "path": "/none/deep", "value": "1"}], code=422),
            Step("JSONPATCH", ONE, body={"op": "remove"}, code=400, has={"reason": "BadRequest"}),
            Step(
                "JSONPATCH",
                ONE,
                body=[{"op": "add", "path": "/metadata/labels", "value": {"x": "y"}}],
                has={"metadata/labels": {"x": "y"}},
            ),
        ),
    ]


def _strategic() -> list[Case]:
    side = {"name": "side", "image": "b:1"}
    containers = "spec/template/spec/containers"
    return [
        case(
            "strategic-merge-patch",
            Step("POST", DEPLOYMENTS, body=deployment(), code=201),
            Step(
                "STRATEGIC",
                WEB,
                body={"spec": {"template": {"spec": {"containers": [side]}}}},
                has={f"{containers}/#": 2, f"{containers}/0/name": "side", f"{containers}/1/name": "app"},
            ),
            Step(
                "STRATEGIC",
                WEB,
                has={f"{containers}/#": 1, f"{containers}/0/name": "app"},
                body={"spec": {"template": {"spec": {"containers": [{"name": "side", "$patch": "delete"}]}}}},
            ),
            Step(
                "STRATEGIC",
                WEB,
                body={"spec": {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}}},
                has={"spec/strategy": {"type": "Recreate"}},
            ),
        ),
        case(
            "merge-replaces-lists",
            Step("POST", DEPLOYMENTS, body=deployment(), code=201),
            Step(
                "MERGE",
                WEB,
                body={"spec": {"template": {"spec": {"containers": [side]}}}},
                has={f"{containers}/#": 1, f"{containers}/0/name": "side"},
            ),
        ),
        case(
            "no-strategic-patch-of-custom-kinds",
            Step(
                "STRATEGIC",
                "/apis/karpenter.sh/v1/nodepools/none",
                body={},
                code=415,
                has={"reason": "UnsupportedMediaType"},
            ),
        ),
    ]


def _apply() -> list[Case]:
    def with_data(**data: str) -> dict[str, object]:
        return config_map(data=data)

    def as_manager(name: str, force: str = "false") -> dict[str, str]:
        return {"fieldManager": name, "force": force}

    return [
        case(
            "apply",
            Step(
                "APPLY",
                ONE,
                body=with_data(a="1", b="2"),
                query=as_manager("x"),
                code=201,
                has={
                    "metadata/managedFields/0/manager": "x",
                    "metadata/managedFields/0/operation": "Apply",
                    "metadata/managedFields/0/fieldsV1/f:data/f:a": {},
                },
                keep={"rv": "metadata/resourceVersion"},
            ),
            Step(
                "APPLY",
                ONE,
                body=with_data(a="1", b="2"),
                query=as_manager("x"),
                has={"metadata/resourceVersion": "{rv}"},
            ),
            Step("APPLY", ONE, body=with_data(a="1"), query=as_manager("x"), has={"data": {"a": "1"}}),
            Step(
                "APPLY",
                ONE,
                body=with_data(a="9"),
                query=as_manager("y"),
                code=409,
                has={
                    "reason": "Conflict",
                    "details/causes/0/reason": "FieldManagerConflict",
                    "details/causes/0/field": ".data.a",
                },
                text='conflict with "x": .data.a',
            ),
            Step("APPLY", ONE, body=with_data(a="9"), query=as_manager("y", "true"), has={"data/a": "9"}),
            Step(
                "APPLY", ONE, body=with_data(c="1"), query=as_manager("x"), has={"data": {"a": "9", "c": "1"}}
            ),
            Step(
                "APPLY", ONE, body=with_data(c="1"), code=422, has={"reason": "Invalid"}, text="fieldManager"
            ),
            Step("APPLY", ONE, body={"data": {}}, query=as_manager("x"), code=400),
        ),
        case(
            "force-only-with-apply",
            _MADE,
            Step("MERGE", ONE, body={}, query={"force": "true"}, code=422, has={"reason": "Invalid"}),
            Step("MERGE", ONE, body={}, query={"fieldManager": "x" * 129}, code=422),
        ),
    ]
