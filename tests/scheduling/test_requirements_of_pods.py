"""What a pod asks of its node's labels, what a NodePool offers, and what comes of the two together."""

import msgspec
import pytest

from karpenter.apis import labels
from karpenter.apis.karpenter import NodePool
from karpenter.model.problem import Problem
from karpenter.testing.builders import (
    Expression,
    a_nodepool,
    a_pod,
    a_problem,
    a_term,
    a_view,
    an_instance_type,
    an_offering,
    node_affinity,
)
from karpenter.testing.outcomes import places, planned, refusals, refused, the_claim

SIZE = "example.com/cores"
"""A label that the provider knows: its types have it, pods may select it."""
TEAM = "example.com/team"
"""A label that nobody knows unless a NodePool defines it."""
WELL_KNOWN = labels.WELL_KNOWN_LABELS | {SIZE}
BOTH = ("on-demand", "spot")
TYPES = [
    *(
        an_instance_type(
            f"intel-{n}", cpu=str(n), memory=f"{4 * n}Gi", labels={SIZE: str(n)}, capacity_types=BOTH
        )
        for n in (2, 4, 8)
    ),
    an_instance_type("arm-4", cpu="4", arch="arm64", labels={SIZE: "4"}, capacity_types=BOTH),
    an_instance_type("windows-4", cpu="4", price=0.5, labels={labels.OS: "windows", SIZE: "4"}),
]


def asking(
    *terms: Expression, selector: dict[str, str] | None = None, pool: NodePool | None = None
) -> Problem:
    """Return the problem of one pod with a required node affinity term and a node selector."""
    affinity = node_affinity(required=[a_term(*terms)]) if terms else None
    pod = a_pod(affinity=affinity, node_selector=selector)
    return a_problem([pod], pools=[pool or a_nodepool()], instance_types=TYPES, well_known_labels=WELL_KNOWN)


def pool_with(*requirements: Expression, **own: str) -> NodePool:
    """Return a pool with requirements, and labels of its own on TEAM."""
    return a_nodepool(requirements=requirements, labels={TEAM: own["team"]} if own else None)


# --- labels everybody knows ------------------------------------------------------------------------------

EVERYTHING = {"arm-4", "intel-2", "intel-4", "intel-8", "windows-4"}
INTEL = {"intel-2", "intel-4", "intel-8"}


@pytest.mark.parametrize(
    ("term", "types"),
    [
        ((labels.ZONE, "In", ["zone-a"]), EVERYTHING),
        ((labels.ZONE, "In", ["zone-a", "unknown"]), EVERYTHING),
        ((labels.ZONE, "In", ["unknown"]), set()),
        ((labels.ZONE, "NotIn", ["zone-a"]), EVERYTHING),
        ((labels.ZONE, "NotIn", ["zone-a", "zone-b"]), set()),
        ((labels.ZONE, "NotIn", ["unknown"]), EVERYTHING),
        ((labels.ZONE, "Exists", []), EVERYTHING),
        ((labels.ZONE, "DoesNotExist", []), set()),
        ((labels.INSTANCE_TYPE, "In", ["intel-4"]), {"intel-4"}),
        ((labels.INSTANCE_TYPE, "NotIn", ["intel-2", "arm-4"]), {"intel-4", "intel-8", "windows-4"}),
        ((labels.INSTANCE_TYPE, "In", ["unknown"]), set()),
        ((labels.ARCH, "In", ["arm64"]), {"arm-4"}),
        ((labels.ARCH, "NotIn", ["arm64"]), INTEL | {"windows-4"}),
        ((labels.ARCH, "In", ["s390x"]), set()),
        ((labels.OS, "In", ["windows"]), {"windows-4"}),
        ((labels.OS, "NotIn", ["linux", "windows"]), set()),
        ((labels.CAPACITY_TYPE, "In", ["spot"]), EVERYTHING - {"windows-4"}),
        ((labels.CAPACITY_TYPE, "In", ["on-demand"]), EVERYTHING),
        ((labels.CAPACITY_TYPE, "NotIn", ["on-demand", "spot"]), set()),
        ((labels.NODEPOOL, "In", ["default"]), EVERYTHING),
        ((labels.NODEPOOL, "In", ["other"]), set()),
        ((labels.NODEPOOL, "NotIn", ["default"]), set()),
        ((labels.NODEPOOL, "Exists", []), EVERYTHING),
        (("failure-domain.beta.kubernetes.io/zone", "In", ["zone-a"]), EVERYTHING),
        (("failure-domain.beta.kubernetes.io/zone", "In", ["unknown"]), set()),
        (("beta.kubernetes.io/arch", "In", ["arm64"]), {"arm-4"}),
        (("beta.kubernetes.io/os", "In", ["windows"]), {"windows-4"}),
        (("beta.kubernetes.io/instance-type", "In", ["intel-8"]), {"intel-8"}),
        ((SIZE, "In", ["4"]), {"arm-4", "intel-4", "windows-4"}),
        ((SIZE, "NotIn", ["4"]), {"intel-2", "intel-8"}),
        ((SIZE, "Gt", ["4"]), {"intel-8"}),
        ((SIZE, "Gte", ["4"]), {"arm-4", "intel-4", "intel-8", "windows-4"}),
        ((SIZE, "Lt", ["4"]), {"intel-2"}),
        ((SIZE, "Lte", ["4"]), {"arm-4", "intel-2", "intel-4", "windows-4"}),
        ((SIZE, "Gt", ["8"]), set()),
        ((SIZE, "Lt", ["2"]), set()),
        ((SIZE, "Gte", ["9"]), set()),
        ((SIZE, "Lte", ["1"]), set()),
    ],
    ids=lambda x: f"{x[0].rpartition('/')[2]} {x[1]} {','.join(x[2])}" if isinstance(x, tuple) else None,
)
@pytest.mark.parametrize("whose", ["pod", "nodepool"])
def test_requirements_on_known_labels_leave_the_types_they_allow(
    term: Expression, types: set[str], whose: str
) -> None:
    """Every operator, on the pod or on the NodePool: the claim lists what is left, or the pod waits."""
    problem = asking(term) if whose == "pod" else asking(pool=pool_with(term))
    if types:
        assert set(the_claim(problem).instance_types) == types
    else:
        assert refused(planned(problem)) == ["pod"]


@pytest.mark.parametrize(
    ("selector", "types"),
    [
        ({labels.ARCH: "arm64"}, {"arm-4"}),
        ({labels.ARCH: "arm64", labels.OS: "windows"}, set()),
        ({labels.ARCH: "arm64", SIZE: "4"}, {"arm-4"}),
        ({labels.ARCH: "arm64", SIZE: "8"}, set()),
        ({labels.ZONE: "zone-b", labels.CAPACITY_TYPE: "spot"}, EVERYTHING - {"windows-4"}),
        ({labels.NODEPOOL: "default"}, EVERYTHING),
        ({labels.NODEPOOL: "unknown"}, set()),
        ({"node.kubernetes.io/instance-tpye": "intel-2"}, set()),
    ],
)
def test_a_node_selector_holds_in_every_part(selector: dict[str, str], types: set[str]) -> None:
    """All pairs have to hold at once, on one type and one offering of it."""
    plan = planned(asking(selector=selector))
    assert {t for claim in plan.claims for t in claim.instance_types} == types
    assert bool(plan.unschedulable) == (not types)


@pytest.mark.parametrize(
    ("pod", "pool", "fits"),
    [
        ((labels.ZONE, "In", ["zone-a"]), (labels.ZONE, "In", ["zone-a"]), True),
        ((labels.ZONE, "In", ["zone-a"]), (labels.ZONE, "In", ["zone-b"]), False),
        ((labels.ZONE, "In", ["zone-a"]), (labels.ZONE, "NotIn", ["zone-a"]), False),
        ((labels.ZONE, "NotIn", ["zone-a"]), (labels.ZONE, "In", ["zone-a"]), False),
        ((labels.ZONE, "NotIn", ["zone-a"]), (labels.ZONE, "NotIn", ["zone-b"]), False),
        ((labels.ZONE, "In", ["zone-a", "zone-b"]), (labels.ZONE, "In", ["zone-b", "zone-c"]), True),
        ((SIZE, "Gt", ["2"]), (SIZE, "Lt", ["8"]), True),
        ((SIZE, "Gt", ["4"]), (SIZE, "Lt", ["8"]), False),
        ((SIZE, "Gte", ["8"]), (SIZE, "Lte", ["8"]), True),
        ((SIZE, "Gte", ["5"]), (SIZE, "Lte", ["7"]), False),
        ((SIZE, "Gt", ["4"]), (SIZE, "In", ["4", "8"]), True),
        ((SIZE, "Gt", ["8"]), (SIZE, "In", ["4", "8"]), False),
        ((SIZE, "In", ["2"]), (SIZE, "Exists", []), True),
        ((SIZE, "DoesNotExist", []), (SIZE, "Exists", []), False),
    ],
)
def test_pod_and_nodepool_must_agree_on_a_label(pod: Expression, pool: Expression, fits: bool) -> None:
    """A node is bought where both allow it: what one excludes the other cannot have."""
    assert (not refused(planned(asking(pod, pool=pool_with(pool))))) == fits


def test_the_types_left_are_those_both_sides_allow() -> None:
    """Several expressions on one label narrow each other, whoever wrote them."""
    pool = pool_with((SIZE, "Gte", ["4"]), (labels.OS, "In", ["linux"]))
    claim = the_claim(asking((SIZE, "Lt", ["8"]), (SIZE, "NotIn", ["3"]), pool=pool))
    assert set(claim.instance_types) == {"arm-4", "intel-4"}


def test_zone_and_capacity_type_must_meet_in_one_offering() -> None:
    """Spot in one zone and on-demand in the other do not make spot in the other."""
    offers = [an_offering("zone-a", "spot", 0.1), an_offering("zone-b", "on-demand", 0.2)]
    pod = a_pod(node_selector={labels.ZONE: "zone-b", labels.CAPACITY_TYPE: "spot"})
    plan = planned(a_problem([pod], instance_types=[an_instance_type(offerings=offers)]))
    assert [r.constraint for r in refusals(plan)] == ["offering"]


# --- labels a NodePool defines ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("operator", "values", "defined", "undefined"),
    [
        ("In", ["blue"], True, False),
        ("In", ["red", "blue"], True, False),
        ("In", ["red"], False, False),
        ("NotIn", ["blue"], False, True),
        ("NotIn", ["red"], True, True),
        ("Exists", [], True, False),
        ("DoesNotExist", [], False, True),
        ("Gt", ["3"], False, False),
        ("Lt", ["3"], False, False),
    ],
)
def test_a_custom_label_is_what_the_nodepool_says(
    operator: str, values: list[str], defined: bool, undefined: bool
) -> None:
    """With the label `blue` in the template, and without any: an undefined label does not exist."""
    term = (TEAM, operator, values)
    assert (not refused(planned(asking(term, pool=pool_with(team="blue"))))) == defined
    assert (not refused(planned(asking(term)))) == undefined


@pytest.mark.parametrize(
    ("requirement", "selected", "label"),
    [
        ((TEAM, "In", ["blue", "red"]), "red", "red"),
        ((TEAM, "In", ["blue", "red"]), "green", None),
        ((TEAM, "NotIn", ["blue"]), "red", "red"),
        ((TEAM, "NotIn", ["blue"]), "blue", None),
        ((TEAM, "Exists", []), "any", "any"),
        ((TEAM, "DoesNotExist", []), "any", None),
        ((TEAM, "Gt", ["5"]), "7", "7"),
        ((TEAM, "Gt", ["5"]), "5", None),
        ((TEAM, "Lt", ["5"]), "4", "4"),
        ((TEAM, "Gt", ["5"]), "seven", None),
    ],
)
def test_a_label_the_nodepool_leaves_open_takes_the_value_the_pod_asks_for(
    requirement: Expression, selected: str, label: str | None
) -> None:
    """The node is labelled with what the pod selects, if the requirement allows it."""
    problem = asking(selector={TEAM: selected}, pool=pool_with(requirement))
    if label is None:
        assert [r.constraint for r in refusals(planned(problem))] == ["requirements"]
    else:
        assert the_claim(problem).requirements.labels()[TEAM] == label


def test_pods_that_need_different_values_of_an_open_label_get_different_nodes() -> None:
    """One node has one value: red and blue pods don't share, those that don't care join either."""
    pods = [
        a_pod("red", cpu="100m", node_selector={TEAM: "red"}),
        a_pod("blue", cpu="100m", node_selector={TEAM: "blue"}),
        a_pod("any", cpu="100m"),
    ]
    plan = planned(a_problem(pods, pools=[pool_with((TEAM, "Exists", []))]))
    assert len(plan.claims) == 2
    assert places(plan)["red"] != places(plan)["blue"]


def test_exists_does_not_override_a_value() -> None:
    """A pod that only wants the label to exist joins a node that has it with another's value."""
    pods = [
        a_pod("red", cpu="100m", node_selector={TEAM: "red"}),
        a_pod("exists", cpu="100m", affinity=node_affinity(required=[a_term((TEAM, "Exists", []))])),
    ]
    claim = the_claim(a_problem(pods, pools=[pool_with((TEAM, "In", ["red", "blue"]))]))
    assert claim.requirements.labels()[TEAM] == "red"


@pytest.mark.parametrize(
    ("other", "share"),
    [
        (("Exists", []), True),
        (("In", ["red", "blue"]), True),
        (("NotIn", ["blue"]), True),
        (("NotIn", ["red"]), False),
        (("In", ["blue"]), False),
    ],
)
def test_compatible_pods_share_a_node_incompatible_ones_do_not(
    other: tuple[str, list[str]], share: bool
) -> None:
    """Beside a pod that needs zone red: whoever allows red joins, whoever excludes it gets another node."""
    types = [an_instance_type("t", cpu="16", memory="64Gi", price=1, zones=["red", "blue"])]
    term = a_term((labels.ZONE, other[0], other[1]))
    pods = [
        a_pod("fixed", node_selector={labels.ZONE: "red"}),
        a_pod("other", affinity=node_affinity(required=[term])),
    ]
    plan = planned(a_problem(pods, instance_types=types))
    assert (len(plan.claims) == 1) == share
    assert plan.unschedulable == ()


def test_template_labels_of_kubernetes_domains_can_be_selected() -> None:
    """A pool may define labels such as `node.kubernetes.io/role`: they are labels like any other."""
    key = "node.kubernetes.io/role"
    pool = a_nodepool(labels={key: "worker"})
    assert the_claim(a_problem([a_pod(node_selector={key: "worker"})], pools=[pool]))
    assert refused(planned(a_problem([a_pod(node_selector={key: "master"})], pools=[pool]))) == ["pod"]


def test_the_node_class_is_a_label_of_every_node() -> None:
    """Pods can select nodes by the class they are made with."""
    key = labels.nodeclass_label("karpenter.kwok.sh", "KWOKNodeClass")
    assert the_claim(a_problem([a_pod(node_selector={key: "default"})]))
    assert refused(planned(a_problem([a_pod(node_selector={key: "other"})]))) == ["pod"]


# --- what cannot be ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pod", "constraint", "says"),
    [
        ({"node_selector": {labels.KUBERNETES_HOSTNAME: "anything"}}, "requirements", "hostname"),
        ({"node_selector": {TEAM: "x"}}, "requirements", f'label "{TEAM}" does not have known values'),
        ({"node_selector": {labels.ZONE: "x"}}, "requirements", "no instance type met all requirements"),
        ({"cpu": "64"}, "resources", "no instance type has enough resources"),
        ({"cpu": None, "requests": {"example.com/fpga": "1"}}, "resources", "enough resources"),
        (
            {"affinity": node_affinity(required=[a_term((labels.NODEPOOL, "DoesNotExist", []))])},
            "nodepool",
            "configured to not run on a Karpenter provisioned node",
        ),
        (
            {"node_selector": {labels.ARCH: "arm64"}, "cpu": "5"},
            "resources",
            "met all requirements and had enough resources",
        ),
    ],
)
def test_a_refusal_says_what_was_in_the_way(pod: dict[str, object], constraint: str, says: str) -> None:
    """The kind of constraint is data, the message names it, and the pod beside is not affected."""
    pods = [a_pod(**pod), a_pod("fine")]  # type: ignore[arg-type]
    plan = planned(a_problem(pods, instance_types=TYPES))
    assert refused(plan) == ["pod"]
    (refusal,) = refusals(plan)
    assert refusal.constraint == constraint
    assert says in refusal.message


def test_no_label_is_to_blame_where_changing_it_would_not_help() -> None:
    """Without the architecture one type would match and another could be bought, but none both."""
    spot, on_demand = an_offering(capacity_type="spot"), an_offering()
    types = [
        an_instance_type(
            "sold-out",
            labels={"example.com/disk": "fast"},
            offerings=[msgspec.structs.replace(spot, available=False), on_demand],
        ),
        an_instance_type("other-disk", labels={"example.com/disk": "slow"}, offerings=[spot]),
    ]
    wanted = {labels.ARCH: "arm64", labels.CAPACITY_TYPE: "spot", "example.com/disk": "fast"}
    pool = a_nodepool(requirements=[("example.com/disk", "Exists", [])])
    problem = a_problem([a_pod(node_selector=wanted)], pools=[pool], instance_types=types)
    (refusal,) = refusals(planned(problem))
    assert refusal.remedy == "change what the pod or the NodePool selects: no instance type has all of it"
    assert "key" not in refusal.detail


def test_a_term_without_expressions_matches_no_node() -> None:
    """An empty required term is no wildcard; beside a real one, the real one decides."""
    assert refused(planned(a_problem([a_pod(affinity=node_affinity(required=[a_term()]))]))) == ["pod"]
    terms = [a_term(), a_term((labels.ZONE, "In", ["zone-b"]))]
    claim = the_claim(a_problem([a_pod(affinity=node_affinity(required=terms))]))
    assert claim.requirements.single_value(labels.ZONE) == "zone-b"


def test_a_pool_that_contradicts_itself_buys_nothing() -> None:
    """A label that the pool's own requirements exclude: no node could be both."""
    pool = a_nodepool(requirements=[(TEAM, "In", ["red"])], labels={TEAM: "blue"})
    (refusal,) = refusals(planned(a_problem([a_pod()], pools=[pool])))
    assert (
        refusal.message == f"incompatible requirements, key {TEAM}, the nodepool's own contradict each other"
    )


def test_a_pool_whose_requirements_leave_no_type_says_so() -> None:
    """Contradicting requirements on the pool, or a type that is not sold: nobody gets a node from it."""
    for requirement in ((labels.INSTANCE_TYPE, "In", ["gone"]), (labels.ARCH, "DoesNotExist", [])):
        plan = planned(a_problem([a_pod()], pools=[a_nodepool(requirements=[requirement])]))
        assert refused(plan) == ["pod"]
    none = planned(a_problem([a_pod()], instance_types=[]))
    assert refusals(none)[0].message == "nodepool requirements filtered out all available instance types"


# --- nodes that are there --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("term", "goes"),
    [
        ((TEAM, "In", ["blue"]), True),
        ((TEAM, "In", ["red"]), False),
        ((TEAM, "NotIn", ["red"]), True),
        ((TEAM, "NotIn", ["blue"]), False),
        ((TEAM, "Exists", []), True),
        ((TEAM, "DoesNotExist", []), False),
        (("absent", "DoesNotExist", []), True),
        (("absent", "NotIn", ["x"]), True),
        (("absent", "Exists", []), False),
        ((labels.REGION, "Exists", []), False),
        ((labels.ZONE, "In", ["zone-a"]), True),
        (("failure-domain.beta.kubernetes.io/zone", "In", ["zone-a"]), True),
        (("generation", "Gt", ["3"]), True),
        (("generation", "Gt", ["4"]), False),
        (("generation", "Lt", ["5"]), True),
        (("generation", "Gte", ["4"]), True),
        (("generation", "Lte", ["3"]), False),
    ],
)
def test_a_nodes_labels_decide_without_any_trust(term: Expression, goes: bool) -> None:
    """What a running node has no label for, it has not; well-known labels are no exception."""
    node = a_view("node", labels={TEAM: "blue", labels.ZONE: "zone-a", "generation": "4"})
    plan = planned(a_problem([a_pod(affinity=node_affinity(required=[a_term(term)]))], nodes=[node]))
    assert bool(plan.placements) == goes
