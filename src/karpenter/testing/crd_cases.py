"""What the API must take and refuse of our custom kinds: one table for every judge.

The unit tests put it to `karpenter.apis.validation`, the end-to-end suite to a real API server, so that the
two cannot drift apart. A case is a valid object with one field set to a value, and what the verdict is.
"""

import copy
from typing import Any

import msgspec

Json = dict[str, Any]
REMOVE: Any = object()
"""As a case's value: the field is taken away."""


class CrdCase(msgspec.Struct, frozen=True, kw_only=True):
    """One object and its verdict; with `old` it is an update of that."""

    name: str
    obj: Json
    good: bool
    field: str = ""
    """Where a refusal must point (the beginning of its field)."""
    message: str = ""
    """What a refusal must say, in part."""
    old: Json | None = None


_REF = {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"}
NODEPOOL: Json = {
    "apiVersion": "karpenter.sh/v1",
    "kind": "NodePool",
    "metadata": {"name": "case"},
    "spec": {"template": {"spec": {"requirements": [], "nodeClassRef": _REF}}},
}
NODECLAIM: Json = {
    "apiVersion": "karpenter.sh/v1",
    "kind": "NodeClaim",
    "metadata": {"name": "case"},
    "spec": {"requirements": [], "nodeClassRef": _REF},
}
NODEOVERLAY: Json = {
    "apiVersion": "karpenter.sh/v1alpha1",
    "kind": "NodeOverlay",
    "metadata": {"name": "case"},
    "spec": {"requirements": []},
}
CAPACITYBUFFER: Json = {
    "apiVersion": "autoscaling.x-k8s.io/v1beta1",
    "kind": "CapacityBuffer",
    "metadata": {"name": "case", "namespace": "default"},
    "spec": {"podTemplateRef": {"name": "unit"}, "replicas": 1},
}
KWOKNODECLASS: Json = {
    "apiVersion": "karpenter.kwok.sh/v1alpha1",
    "kind": "KWOKNodeClass",
    "metadata": {"name": "case"},
    "spec": {},
}

_REQUIREMENTS_LIMIT, _VALUES_MANY = 100, 60
_LONG_KEY = "a" * 317


def changed(base: Json, path: str, value: Any) -> Json:
    """Return a copy of `base` with the field at dotted `path` set to `value` (or removed)."""
    result = copy.deepcopy(base)
    *parents, last = path.split(".")
    at = result
    for name in parents:
        at = at.setdefault(name, {})
    if value is REMOVE:
        at.pop(last, None)
    else:
        at[last] = value
    return result


def _verdicts(base: Json, path: str, good: list[Any], bad: list[Any], at: str = "") -> list[CrdCase]:
    """One case per value of one field."""
    subject = f"{base['kind']} {base['metadata']['name']} {path}"
    return [
        CrdCase(
            name=f"{subject} {_short(value)}",
            obj=changed(base, path, value),
            good=True,
        )
        for value in good
    ] + [
        CrdCase(
            name=f"{subject} not {_short(value)}",
            obj=changed(base, path, value),
            good=False,
            field=at or path,
        )
        for value in bad
    ]


def _short(value: Any) -> str:
    text = "absent" if value is REMOVE else msgspec.json.encode(value).decode()
    return text if len(text) <= 80 else f"{text[:77]}..."


def requirement(key: str, operator: str, values: list[str] | None = None, least: int | None = None) -> Json:
    """Return a requirement as it stands in a manifest."""
    result: Json = {"key": key, "operator": operator}
    if values is not None:
        result["values"] = values
    if least is not None:
        result["minValues"] = least
    return result


def _requirement_cases(base: Json, path: str) -> list[CrdCase]:
    """Requirements have the same rules in pools, claims and overlays, but for a few."""
    pool, overlay = base["kind"] == "NodePool", base["kind"] == "NodeOverlay"
    good = [
        [],
        [requirement("kubernetes.io/arch", "In", ["amd64"]), requirement("a", "NotIn", ["x"])],
        [requirement("a", "Exists"), requirement("a", "DoesNotExist")],
        [requirement("a", "Gt", ["1"]), requirement("a", "Lt", ["10"])],
        [requirement("a", "Gte", ["0"]), requirement("a", "Lte", ["10"])],
        [requirement("a", "In", ["x"]), requirement("a", "NotIn", ["x"])],
        [requirement("notkarpenter.sh/other", "Exists")],
        [requirement("karpenter.sh/capacity-type", "In", ["spot", "on-demand"])],
        [requirement("node-role.kubernetes.io/x", "Exists"), requirement("kops.k8s.io/x", "Exists")],
        [requirement("karpenter.kwok.sh/instance-cpu", "Gt", ["2"])],
        [requirement("a", "In", [f"v{n}" for n in range(_VALUES_MANY)])],
        [requirement(f"k{n}", "Exists") for n in range(_REQUIREMENTS_LIMIT)],
    ]
    bad = [
        [requirement("a", "In", [])],
        [requirement("a", "In")],
        [requirement("a", "Gt", ["x"])],
        [requirement("a", "Gt", ["-1"])],
        [requirement("a", "Lt", ["1", "2"])],
        [requirement("a", "Lt", [])],
        [requirement("a", "Gte", ["1.5"])],
        [requirement("a", "Lte")],
        [requirement("a", "in", ["x"])],
        [requirement("a", "", ["x"])],
        [requirement("", "Exists")],
        [requirement("A/B/c", "Exists")],
        [requirement("Upper.io/c", "Exists")],
        [requirement("-a", "Exists")],
        [requirement(_LONG_KEY, "Exists")],
        [requirement("karpenter.sh/other", "Exists")],
        [requirement("sub.karpenter.sh/other", "Exists")],
        [requirement("kubernetes.io/hostname", "In", ["n"])],
        [{"key": "a"}],
        [{"operator": "Exists"}],
        [requirement(f"k{n}", "Exists") for n in range(_REQUIREMENTS_LIMIT + 1)],
        "not a list",
    ]
    (bad if pool else good).append([requirement("karpenter.sh/nodepool", "In", ["p"])])
    (bad if overlay else good).append([requirement("a", "NotIn", [])])
    if not overlay:
        good += [
            [requirement("a", "In", ["x", "y"], 2)],
            [requirement("a", "Exists", None, 1)],
            [requirement("a", "Exists", None, 50)],
            [requirement("a", "NotIn", ["x"], 5)],
        ]
        bad += [
            [requirement("a", "In", ["x"], 2)],
            [requirement("a", "Exists", None, 0)],
            [requirement("a", "Exists", None, -1)],
            [requirement("a", "Exists", None, 51)],
        ]
    return _verdicts(base, path, good, bad)


def _node_cases(base: Json, spec: str) -> list[CrdCase]:
    """The fields that a pool's template and a claim share."""
    taint = {"key": "a", "effect": "NoSchedule"}
    cases = _requirement_cases(base, f"{spec}.requirements")
    for name in ("taints", "startupTaints"):
        cases += _verdicts(
            base,
            f"{spec}.{name}",
            [[taint], [{**taint, "value": "x"}], [taint, {**taint, "effect": "NoExecute"}], []],
            [
                [{"key": "", "effect": "NoSchedule"}],
                [{"effect": "NoSchedule"}],
                [{"key": "a"}],
                [{**taint, "effect": "Sometimes"}],
                [{**taint, "value": "???"}],
                [{**taint, "key": "???"}],
            ],
        )
    duration_bad = ["", "1", "-1s", "1d", "1.5h", "never", "1h 5m"]
    cases += _verdicts(
        base, f"{spec}.expireAfter", ["0s", "720h", "1h30m", "Never", REMOVE], [*duration_bad, 7]
    )
    cases += _verdicts(
        base, f"{spec}.terminationGracePeriod", ["30s", "1h5m", REMOVE], [*duration_bad, "Never"]
    )
    for name in ("group", "kind", "name"):
        cases += _verdicts(base, f"{spec}.nodeClassRef.{name}", ["x"], ["", REMOVE])
    cases += _verdicts(base, f"{spec}.nodeClassRef.group", [], ["a/b"])
    cases += _verdicts(base, f"{spec}.nodeClassRef", [], [REMOVE])
    cases += _verdicts(base, f"{spec}.requirements", [], [REMOVE])
    return cases


def nodepool_cases() -> list[CrdCase]:
    """NodePool: disruption, budgets, labels, limits, weight, replicas, and what a node is."""
    base, labels = NODEPOOL, "spec.template.metadata.labels"
    cases = _node_cases(base, "spec.template.spec")
    cases += _verdicts(base, "spec", [], [REMOVE]) + _verdicts(base, "spec.template", [], [REMOVE])
    cases += _verdicts(
        base,
        "spec.disruption.consolidateAfter",
        ["0s", "30s", "1h30m", "Never", REMOVE],
        ["", "-1s", "1d", "never", "1.5m"],
    )
    cases += _verdicts(
        base,
        "spec.disruption.consolidationPolicy",
        ["WhenEmpty", "WhenEmptyOrUnderutilized", "Balanced", REMOVE],
        ["", "whenempty", "1", "WhenUnderutilized"],
    )
    cases += _verdicts(
        base,
        "spec.disruption.budgets",
        [
            *([{"nodes": nodes}] for nodes in ("0", "10", "0%", "5%", "99%", "100%")),
            [],
            [{"nodes": "10%", "reasons": ["Empty", "Drifted", "Underutilized"]}],
            *(
                [{"nodes": "1", "schedule": schedule, "duration": "1h"}]
                for schedule in ("@daily", "@hourly", "@annually", "* * * * *", "0 9 * * mon-fri")
            ),
            *(
                [{"nodes": "1", "schedule": "@daily", "duration": duration}]
                for duration in ("20m", "2h", "1h30m", "1h30m0s", "10m0s")
            ),
            [{"nodes": "1"}] * 50,
        ],
        [
            *([{"nodes": nodes}] for nodes in ("", "-1", "101%", "1000%", "1.5", "10 %", 10)),
            *([{"nodes": "1", "reasons": [reason]}] for reason in ("", "expired", "empty")),
            [{"nodes": "1", "reasons": ["Empty", "Empty"]}],
            [{"nodes": "1", "schedule": "@daily"}],
            [{"nodes": "1", "duration": "1h"}],
            [{"nodes": "1", "schedule": "@sometimes", "duration": "1h"}],
            [{"nodes": "1", "schedule": "* * * *", "duration": "1h"}],
            *(
                [{"nodes": "1", "schedule": "@daily", "duration": duration}]
                for duration in ("", "30s", "1h30s", "-1h", "1d")
            ),
            [{"nodes": "10%"}, {"nodes": "bad"}],
            [{"nodes": "1"}] * 51,
        ],
    )
    cases += _verdicts(
        base,
        labels,
        [
            {"team": "a"},
            {"kops.k8s.io/instancegroup": "a", "kubernetes.io/cluster": ""},
            {"karpenter.sh/capacity-type": "spot"},
            {f"l{n}": "v" for n in range(100)},
        ],
        [
            {"karpenter.sh/nodepool": "p"},
            {"karpenter.sh/other": "p"},
            {"sub.karpenter.sh/other": "p"},
            {"kubernetes.io/hostname": "p"},
            {"team": "a b"},
            {"team": "x" * 64},
            {f"l{n}": "v" for n in range(101)},
        ],
    )
    cases += _verdicts(base, "spec.template.metadata.annotations", [{"any thing": "at all"}], [{"a": 1}])
    cases += _verdicts(base, "spec.weight", [1, 100, REMOVE], [0, 101, -1, "5", 1.5])
    cases += _verdicts(base, "spec.replicas", [0, 5], [-1, "5"])
    cases += _verdicts(
        base,
        "spec.limits",
        [{"cpu": "10"}, {"cpu": 10, "memory": "1.5Gi", "nodes": "3"}, {"example.com/gpu": "1e3"}, {}],
        [{"cpu": "ten"}, {"memory": "1 Gi"}, {"cpu": True}],
    )
    static = changed(changed(base, "spec.replicas", 2), "metadata.name", "static")
    cases += _verdicts(
        static,
        "spec.limits",
        [{"nodes": "5"}, {}],
        [{"cpu": "1"}, {"memory": "1Gi"}, {"pods": "1"}, {"nodes": "5", "cpu": "1"}],
        at="spec",
    )
    cases += _verdicts(static, "spec.weight", [], [1], at="spec")
    return cases + _nodepool_updates(static)


def _nodepool_updates(static: Json) -> list[CrdCase]:
    base, ref = NODEPOOL, "spec.template.spec.nodeClassRef"

    def update(name: str, obj: Json, good: bool, old: Json = base, field: str = "") -> CrdCase:
        return CrdCase(name=f"NodePool update: {name}", obj=obj, old=old, good=good, field=field)

    return [
        update("node class's name", changed(base, f"{ref}.name", "other"), True),
        update("node class's group", changed(base, f"{ref}.group", "other"), False, field=ref),
        update("node class's kind", changed(base, f"{ref}.kind", "Other"), False, field=ref),
        update("weight", changed(base, "spec.weight", 5), True),
        update("dynamic to static", static, False, field="spec"),
        update("static to dynamic", base, False, old=static, field="spec"),
        update("more replicas", changed(static, "spec.replicas", 3), True, old=static),
        update("no replicas", changed(static, "spec.replicas", 0), True, old=static),
        update("static limit", changed(static, "spec.limits", {"nodes": "9"}), True, old=static),
    ]


def nodeclaim_cases() -> list[CrdCase]:
    """NodeClaim: what a node is, resources, and that nothing of it changes."""
    base = NODECLAIM
    cases = _node_cases(base, "spec") + _verdicts(base, "spec", [], [REMOVE])
    cases += _verdicts(
        base, "spec.resources.requests", [{"cpu": "1", "memory": 5}], [{"cpu": "x"}, {"cpu": True}]
    )
    for path, value in (
        ("spec.terminationGracePeriod", "5m"),
        ("spec.nodeClassRef.name", "other"),
        ("spec.requirements", [requirement("a", "Exists")]),
    ):
        cases.append(
            CrdCase(
                name=f"NodeClaim update: {path}",
                obj=changed(base, path, value),
                old=base,
                good=False,
                field="spec",
                message="immutable",
            )
        )
    labelled = changed(base, "metadata.labels", {"a": "b"})
    return [*cases, CrdCase(name="NodeClaim update: labels", obj=labelled, old=base, good=True)]


def nodeoverlay_cases() -> list[CrdCase]:
    """NodeOverlay: requirements, price and its adjustment, capacity, weight."""
    base = NODEOVERLAY
    cases = _requirement_cases(base, "spec.requirements") + _verdicts(base, "spec.requirements", [], [REMOVE])
    cases += _verdicts(
        base,
        "spec.priceAdjustment",
        ["+1", "-1", "+0.5", "-.5", "+10%", "-10%", "+150%", "-99.9%", "-100%", "+0.5%"],
        ["", "1", "10%", "-101%", "-1000%", "+1e3", "+0x1", "+ 1", "+", "+%", "1+"],
    )
    cases += _verdicts(
        base, "spec.price", ["0", "1", "0.5", "10.25"], ["", "+1", "-1", ".5", "1.", "1e3", "1 ", "x"]
    )
    cases += _verdicts(changed(base, "spec.price", "1"), "spec.priceAdjustment", [], ["+1"], at="spec")
    cases += _verdicts(
        base,
        "spec.capacity",
        [{"example.com/gpu": "1"}, {"hugepages-2Mi": "1Gi"}, {}],
        [{"cpu": "1"}, {"memory": "1Gi"}, {"ephemeral-storage": "1Gi"}, {"pods": "1"}, {"a.io/b": "x"}],
    )
    return cases + _verdicts(base, "spec.weight", [1, 10000, REMOVE], [0, 10001, -1, "1"])


def capacitybuffer_cases() -> list[CrdCase]:
    """CapacityBuffer: what one unit is, and how many."""
    base = CAPACITYBUFFER
    scalable = {"apiGroup": "apps", "kind": "Deployment", "name": "d"}
    good: list[Json] = [
        {"podTemplateRef": {"name": "t"}, "replicas": 0},
        {"podTemplateRef": {"name": "t"}, "limits": {"cpu": "1"}},
        {"scalableRef": scalable},
        {"scalableRef": {**scalable, "apiGroup": ""}},
        {"scalableRef": {"kind": "Deployment", "name": "d"}},
        {"scalableRef": scalable, "replicas": 1, "percentage": 10},
        {"scalableRef": scalable, "percentage": 0},
    ]
    bad: list[Json] = [
        {"podTemplateRef": {"name": "t"}},
        {"podTemplateRef": {"name": "t"}, "scalableRef": scalable, "replicas": 1},
        {"podTemplateRef": {"name": ""}, "replicas": 1},
        {"podTemplateRef": {}, "replicas": 1},
        {"scalableRef": {"kind": "", "name": "d"}},
        {"scalableRef": {"kind": "Deployment", "name": ""}},
        {"scalableRef": {"kind": "Deployment"}},
        {"scalableRef": scalable, "replicas": -1},
        {"scalableRef": scalable, "percentage": -1},
        {"scalableRef": scalable, "replicas": 2**31},
        {"scalableRef": scalable, "limits": {"cpu": "x"}},
    ]
    return _verdicts(base, "spec", good, bad)


def kwoknodeclass_cases() -> list[CrdCase]:
    """KWOKNodeClass: how long a node takes to register."""
    return _verdicts(
        KWOKNODECLASS, "spec.nodeRegistrationDelay", ["5s", "1m30s", REMOVE], ["", "5", "Never", "-1s"]
    )


def crd_cases() -> list[CrdCase]:
    """Every case of every kind."""
    return [
        *nodepool_cases(),
        *nodeclaim_cases(),
        *nodeoverlay_cases(),
        *capacitybuffer_cases(),
        *kwoknodeclass_cases(),
    ]
