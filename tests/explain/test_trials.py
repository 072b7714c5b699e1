"""Changes that are suggested for pods without a place: tried by the solver, together, the cheapest first."""

from typing import Any

import msgspec
import pytest

from karpenter.apis import labels as known
from karpenter.apis.annotations import PRICE_LIMIT
from karpenter.apis.core import Affinity, Pod, PodAffinity, Taint, Toleration, TopologySpreadConstraint
from karpenter.apis.karpenter import NodePool, RequirementSpec
from karpenter.apis.meta import LabelSelector
from karpenter.explain.answer import Change, Finding
from karpenter.explain.podchanges import changes_for, template_of
from karpenter.explain.trials import tried, valued
from karpenter.model.problem import Plan, PoolOffer, Problem
from karpenter.scheduling import solve
from karpenter.testing.builders import (
    a_nodepool,
    a_pod,
    a_problem,
    a_term,
    a_view,
    an_instance_type,
    an_offer,
    an_offering,
    an_owner,
    node_affinity,
)
from karpenter.testing.company import a_company_term

TYPES = [
    an_instance_type(f"t-{cores}", cpu=str(cores), memory=f"{4 * cores}Gi", price=cores / 10)
    for cores in (2, 8)
]
TAINT = Taint(key="dedicated", value="batch", effect="NoSchedule")
WEB = {"app": "web"}


def findings_of(problem: Problem) -> list[Finding]:
    """Return what the solver says of the one pod, as an answer would have it."""
    (refused,) = solve(problem).unschedulable
    pools = {f"nodepool/{offer.pool.name}": offer.pool for offer in problem.pools}
    return [
        Finding(
            about=refusal.place or "pod",
            code=refusal.constraint,
            message=refusal.message,
            remedy=refusal.remedy,
            changes=changes_for(problem.pods[0], refusal, pools.get(refusal.place)),
        )
        for refusal in refused.refusals
    ]


def outcome(pod: Pod, *pools: NodePool | PoolOffer, nodes: Any = ()) -> list[Finding]:
    """Return the findings with their changes tried."""
    problem = a_problem([pod], pools=pools, instance_types=TYPES, nodes=nodes)
    return tried(problem, pod, findings_of(problem), solve)


def patch_of(change: Change) -> list[tuple[Any, ...]]:
    return [(o.op, o.path, o.value) if o.op != "remove" else (o.op, o.path) for o in change.patch]


def apart(near: bool) -> Affinity:
    part = PodAffinity(required=[a_company_term("web")])
    return Affinity(pod_affinity=part) if near else Affinity(pod_anti_affinity=part)


SPREAD = TopologySpreadConstraint(
    max_skew=1,
    topology_key=known.ZONE,
    when_unsatisfiable="DoNotSchedule",
    label_selector=LabelSelector(match_labels=WEB),
)
SPEC = "/spec"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
LIMITED = an_offer(a_nodepool(limits={"cpu": "3", "nodes": "5"}), TYPES, remaining={"cpu": "1", "nodes": "4"})
FULL = an_offer(a_nodepool(limits={"nodes": "2"}), TYPES, remaining={"nodes": "0"})
CHOOSY = RequirementSpec(key=known.INSTANCE_TYPE, operator="Exists", min_values=3)


@pytest.mark.parametrize(
    ("pod", "pool", "code", "patch"),
    [
        (
            a_pod(cpu="9"),
            a_nodepool(),
            "resources",
            [("replace", f"{SPEC}/containers/0/resources/requests/cpu", "8")],
        ),
        (
            a_pod(cpu="64", memory="640Gi"),
            a_nodepool(),
            "resources",
            [
                ("replace", f"{SPEC}/containers/0/resources/requests/cpu", "8"),
                ("replace", f"{SPEC}/containers/0/resources/requests/memory", "32Gi"),
            ],
        ),
        (
            a_pod(node_selector={known.ZONE: "nowhere"}),
            a_nodepool(),
            "requirements",
            [("remove", f"{SPEC}/nodeSelector/topology.kubernetes.io~1zone")],
        ),
        (
            a_pod(node_selector={"team": "blue"}),
            a_nodepool(),
            "requirements",
            [("remove", f"{SPEC}/nodeSelector/team")],
        ),
        (
            a_pod(affinity=node_affinity(required=[a_term(("team", "In", ["blue"]))])),
            a_nodepool(),
            "requirements",
            [("remove", f"{SPEC}/affinity/nodeAffinity/{REQUIRED}")],
        ),
        (
            a_pod(
                affinity=node_affinity(required=[a_term((known.OS, "In", ["linux"]), ("team", "Exists", []))])
            ),
            a_nodepool(),
            "requirements",
            [("remove", f"{SPEC}/affinity/nodeAffinity/{REQUIRED}/nodeSelectorTerms/0/matchExpressions/1")],
        ),
        (
            a_pod(),
            a_nodepool(requirements=[(known.ZONE, "In", ["nowhere"])]),
            "requirements",
            [("remove", f"{SPEC}/template/spec/requirements/0")],
        ),
        (
            a_pod(tolerations=[Toleration(key="x", operator="Exists")]),
            a_nodepool(taints=[TAINT]),
            "taints",
            [
                (
                    "add",
                    f"{SPEC}/tolerations",
                    [
                        {"key": "x", "operator": "Exists"},
                        {"key": "dedicated", "operator": "Equal", "value": "batch", "effect": "NoSchedule"},
                    ],
                )
            ],
        ),
        (a_pod(cpu="2"), LIMITED, "limits", [("replace", f"{SPEC}/limits/cpu", "4")]),
        (a_pod(), FULL, "limits", [("replace", f"{SPEC}/limits/nodes", "3")]),
        (
            a_pod(),
            a_nodepool(requirements=[CHOOSY]),
            "minValues",
            [("replace", f"{SPEC}/template/spec/requirements/0/minValues", 2)],
        ),
        (
            a_pod(labels={"app": "other"}, affinity=apart(near=True)),
            a_nodepool(),
            "podAffinity",
            [("remove", f"{SPEC}/affinity/podAffinity/{REQUIRED}/0")],
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_one_change_is_enough(
    pod: Pod, pool: NodePool | PoolOffer, code: str, patch: list[tuple[Any, ...]]
) -> None:
    """For each reason there is a patch after which the solver has a place for the pod, at a price."""
    (finding, *_) = outcome(pod, pool)
    assert (finding.code, finding.works) == (code, True)
    (change,) = finding.changes
    assert patch_of(change) == patch
    assert finding.price_per_hour
    assert change.text


def test_limits_on_money_are_raised_by_what_lacks() -> None:
    """The annotation of the pool gets the price of the cheapest machine that would do."""
    pool = a_nodepool()
    pool = msgspec.structs.replace(
        pool, metadata=msgspec.structs.replace(pool.metadata, annotations={PRICE_LIMIT: "0.3"})
    )
    offer = an_offer(pool, TYPES, remaining={"price": "50000"})
    (finding,) = outcome(a_pod(), offer)
    assert (finding.code, finding.works) == ("limits", True)
    assert patch_of(finding.changes[0]) == [
        ("replace", "/metadata/annotations/karpenter-py.dev~1price-limit-per-hour", "0.45")
    ]


def test_reasons_one_behind_the_other_are_removed_together() -> None:
    """A pod too large, with a selector in vain, for a tainted pool: one answer has all three changes."""
    pod = a_pod(cpu="9", node_selector={"team": "blue"})
    (finding,) = outcome(pod, a_nodepool(taints=[TAINT]))
    assert finding.works
    (change,) = finding.changes
    assert [path for _, path, *_ in patch_of(change)] == [
        "/spec/tolerations",
        "/spec/nodeSelector/team",
        "/spec/containers/0/resources/requests/cpu",
    ]
    assert change.text.count(";") == 2


def test_of_two_ways_the_cheaper_is_first() -> None:
    """One pool has dear machines behind a taint, the other cheap ones behind a limit."""
    dear = [an_instance_type("dear", cpu="8", memory="32Gi", price=3.0)]
    pools = (
        an_offer(a_nodepool("a", taints=[TAINT], weight=10), dear),
        an_offer(a_nodepool("b", limits={"nodes": "1"}), TYPES, remaining={"nodes": "0"}),
    )
    first, second = outcome(a_pod(), *pools)
    assert (first.about, first.works, first.price_per_hour) == ("nodepool/b", True, 0.2)
    assert (second.about, second.works, second.price_per_hour) == ("nodepool/a", True, 3.0)


def test_a_change_that_is_not_enough_is_none() -> None:
    """What nothing is known for keeps the pod out whatever else is changed: no change is left."""
    port = a_pod(host_ports=[80], node_selector={"team": "blue"})
    daemon = a_pod("daemon", owner=an_owner("DaemonSet"), host_ports=[80])
    problem = a_problem([port], instance_types=TYPES, daemons=[daemon])
    (finding,) = tried(problem, port, findings_of(problem), solve)
    assert (finding.works, finding.changes) == (False, ())


def test_room_on_a_node_costs_nothing() -> None:
    """A pod that would go where there is room already has a price of 0."""
    node = a_view("n", labels={"team": "red"})
    pod = a_pod(node_selector={"team": "blue"})
    problem = a_problem([pod], pools=[a_nodepool(taints=[TAINT])], instance_types=TYPES, nodes=[node])
    finding = tried(problem, pod, findings_of(problem), solve)[0]
    assert (finding.works, finding.price_per_hour) == (True, 0.0)


def valued_at(problem: Problem) -> Finding:
    finding = Finding(
        about="every method", code="doNotDisrupt", message="no", saving_per_hour=0.5, saving_at_most=True
    )
    return valued(problem, a_view("gone", pods=problem.pods), 0.5, finding, solve)


def test_what_a_protected_node_is_kept_from() -> None:
    """Its price less what its pods cost elsewhere; nothing where they would cost more; room is free."""
    found = valued_at(a_problem([a_pod()], instance_types=TYPES))
    assert (found.saving_per_hour, found.saving_at_most) == (0.3, False)
    assert valued_at(a_problem([a_pod(cpu="8")], instance_types=TYPES)).saving_per_hour == -0.3
    room = a_problem([a_pod()], instance_types=TYPES, nodes=[a_view("n")])
    assert valued_at(room).saving_per_hour == 0.5


def test_a_protected_node_whose_pods_have_no_other_place() -> None:
    """The next obstacle is named with the first: lifting the protection would not be enough."""
    pod = a_pod(host_ports=[80])
    daemon = a_pod("daemon", owner=an_owner("DaemonSet"), host_ports=[80])
    found = valued_at(a_problem([pod], instance_types=TYPES, daemons=[daemon]))
    assert found.message == "no; without that, 1 of its pods would have no place"
    assert (found.saving_per_hour, found.saving_at_most) == (None, False)
    assert "host ports conflict" in found.detail["stranded"]["default/pod"]


def test_what_its_pods_need_besides_is_added() -> None:
    """A node that stays for a limit of its pool: the patch raises it by what the replacement takes."""
    pods = [a_pod(f"p{i}", cpu="2") for i in range(2)]
    problem = a_problem(pods, pools=[FULL], instance_types=TYPES)
    finding = Finding(about="drift", code="noPlace", message="no", remedy="raise limits.nodes by 1")
    found = valued(problem, a_view("gone", pods=pods), 0.5, finding, solve)
    assert (found.works, found.message) == (True, "no")
    assert [patch_of(change) for change in found.changes] == [[("replace", "/spec/limits/nodes", "3")]]
    assert found.saving_per_hour == pytest.approx(-0.3)
    assert sorted(found.detail["stranded"]) == ["default/p0", "default/p1"]


def test_what_cannot_be_tried_is_left_as_it_is() -> None:
    """Options of the operator, and reasons without a change, say nothing of whether they work."""
    option = Change(text="start with --x", option="--x")
    findings = [
        Finding(about="pod", code="priority", message="m", changes=(option,)),
        Finding(about="pod", code="volumes", message="m"),
    ]

    def never(problem: Problem) -> Plan:
        raise AssertionError("nothing is to be solved")

    pod = a_pod()
    assert tried(a_problem([pod]), pod, findings, never) == findings


@pytest.mark.parametrize(
    ("owner", "labels", "kind", "name", "root", "recreate"),
    [
        (None, {}, "Pod", "pod", "", True),
        (
            ("ReplicaSet", "web-5d8"),
            {"pod-template-hash": "5d8"},
            "Deployment",
            "web",
            "/spec/template",
            False,
        ),
        (("ReplicaSet", "web"), {}, "ReplicaSet", "web", "/spec/template", True),
        (("StatefulSet", "db"), {}, "StatefulSet", "db", "/spec/template", False),
        (("Job", "once"), {}, "Job", "once", "/spec/template", True),
    ],
)
def test_what_is_to_be_changed_for_a_pod(
    owner: tuple[str, str] | None, labels: dict[str, str], kind: str, name: str, root: str, recreate: bool
) -> None:
    """A pod's workload is changed, not the pod; what cannot be changed in place is said to be made anew."""
    pod = a_pod(labels=labels, owner=an_owner(*owner) if owner else None)
    found = template_of(pod)
    assert (found.kind, found.name, found.root, found.recreate) == (kind, name, root, recreate)


def test_a_spread_becomes_a_wish() -> None:
    """Zones in which nothing can be bought count as empty ones; the constraint over them is relaxed."""
    spread = msgspec.structs.replace(SPREAD, min_domains=2)
    here = [an_instance_type("t", cpu="2", memory="8Gi", offerings=[an_offering("zone-a", "on-demand", 0.1)])]
    web = a_pod("web-0", labels=WEB, node_name="n")
    node = a_view("n", labels={known.ZONE: "zone-a"}, pods=[web])
    pod = a_pod("web-1", labels=WEB, spec={"topology_spread_constraints": [spread]})
    problem = a_problem([pod], instance_types=here, nodes=[node])
    finding = tried(problem, pod, findings_of(problem), solve)[0]
    assert (finding.code, finding.works) == ("topologySpread", True)
    assert patch_of(finding.changes[0]) == [
        ("replace", "/spec/topologySpreadConstraints/0/whenUnsatisfiable", "ScheduleAnyway")
    ]
