"""The verifier on plans written by hand: who may run where beside whom, right and wrong, rule by rule."""

from collections.abc import Mapping

import pytest

from karpenter.apis import labels
from karpenter.apis.core import Affinity, Pod, PodAffinity, Taint
from karpenter.apis.meta import LabelSelector
from karpenter.model.problem import Plan, Problem
from karpenter.model.snapshot import NodeView
from karpenter.scheduling.check import quick_violations, violations
from karpenter.testing.builders import a_nodepool, a_problem, a_view, an_instance_type
from karpenter.testing.company import a_company_term, a_spread, apart, app_pods, beside, spread
from karpenter.testing.plans import a_claim, a_plan

HOST, ZONE, TYPE = labels.KUBERNETES_HOSTNAME, labels.ZONE, labels.CAPACITY_TYPE
RACK = "example.com/rack"
BOTH = (labels.CAPACITY_ON_DEMAND, labels.CAPACITY_SPOT)


def node(name: str, zone: str = "", *running: Pod, **fields: object) -> NodeView:
    """Return an existing node in a zone, with pods."""
    where = {ZONE: zone} if zone else {}
    return a_view(name, labels=where, pods=running, **fields)  # type: ignore[arg-type]


def case(asked: list[Pod], *nodes: NodeView, racks: bool = False, **fields: object) -> Problem:
    """Return a problem over three zones and both capacity types; with `racks` its pool has a custom label."""
    types = [
        an_instance_type(f"m-{n}", cpu=str(n), zones=("a", "b", "c"), capacity_types=BOTH) for n in (2, 8)
    ]
    pool = a_nodepool(requirements=[(RACK, "In", ["r1", "r2"])] if racks else [], **fields)  # type: ignore[arg-type]
    return a_problem(asked, instance_types=types, nodes=nodes, pools=[pool])


Claim = tuple[str, str]
"""The names of a claim's pods, and `key=value` by which it is narrowed, both separated by spaces."""


def claims(problem: Problem, *wanted: Claim, nodes: Mapping[str, str] | None = None) -> Plan:
    """Return the plan of these claims, and of pods (names separated by spaces) on existing nodes."""
    made = [
        a_claim(problem, *names.split(), **dict(word.split("=") for word in where.split()))  # type: ignore[arg-type]
        for names, where in wanted
    ]
    return a_plan(problem, *made, nodes={k: v.split() for k, v in (nodes or {}).items()})


WEB3 = ("web1", "web2", "web3")
OLD = app_pods("web9", node_name="n")[0]

RIGHT: dict[str, tuple[Problem, Plan]] = {}
WRONG: dict[str, tuple[Problem, Plan, str]] = {}


def right(name: str, problem: Problem, *wanted: Claim, nodes: Mapping[str, str] | None = None) -> None:
    """Add a plan that must be accepted."""
    assert name not in RIGHT
    RIGHT[name] = (problem, claims(problem, *wanted, nodes=nodes))


def wrong(
    name: str, message: str, problem: Problem, *wanted: Claim, nodes: Mapping[str, str] | None = None
) -> None:
    """Add a plan that must be refused with `message`."""
    assert name not in WRONG
    WRONG[name] = (problem, claims(problem, *wanted, nodes=nodes), message)


# --- spread ---------------------------------------------------------------------------------------------

even = case(app_pods(*WEB3, spec=spread()))
right("one per zone", even, ("web1", "zone=a"), ("web2", "zone=b"), ("web3", "zone=c"))
right("one zone has a node, no other does", even, ("web1 web2 web3", "zone=a"))
right("two in one of two zones", even, ("web1 web3", "zone=a"), ("web2", "zone=b"))
wrong("a zone that is not decided", "could be any of", even, ("web1", "zone=a"), ("web2", ""))
four = case(app_pods(*WEB3, "web4", spec=spread()))
wrong("three in one of two zones", "skew", four, ("web1 web2 web3", "zone=a"), ("web4", "zone=b"))
right(
    "three in one of two zones, maxSkew 2",
    case(app_pods(*WEB3, "web4", spec=spread(max_skew=2))),
    ("web1 web2 web3", "zone=a"),
    ("web4", "zone=b"),
)
wrong(
    "an existing node opens a domain",
    "skew",
    case(app_pods("web1", "web2", spec=spread()), node("n", "b")),
    ("web1 web2", "zone=a"),
)
right(
    "an existing node of no zone opens none",
    case(app_pods("web1", "web2", spec=spread()), node("n")),
    ("web1 web2", "zone=a"),
)
wrong(
    "running pods count",
    "skew",
    case(app_pods("web1", spec=spread()), node("n", "a", OLD), node("m", "b")),
    nodes={"n": "web1"},
)
right(
    "running pods count where they are",
    case(app_pods("web1", spec=spread()), node("n", "a", OLD), node("m", "b")),
    nodes={"m": "web1"},
)
right(
    "terminating pods don't count",
    case(
        app_pods("web1", spec=spread()),
        node("n", "a", *app_pods("web9", node_name="n", deleted="2026-01-01T00:00:00Z")),
        node("m", "b"),
    ),
    nodes={"n": "web1"},
)
right(
    "pods that move don't count",
    case(
        app_pods("web1", spec=spread(), node_name="n"),
        node("n", "a", *app_pods("web1", node_name="n")),
        node("m", "b"),
    ),
    nodes={"n": "web1"},
)
wrong(
    "a node without the label",
    "is unknown",
    case(app_pods("web1", spec=spread()), node("n")),
    nodes={"n": "web1"},
)
wrong(
    "minDomains says three",
    "skew",
    case(app_pods("web1", "web2", "web3", spec=spread(min_domains=3))),
    ("web1 web3", "zone=a"),
    ("web2", "zone=b"),
)
right(
    "minDomains says three and three there are",
    case(app_pods("web1", "web2", "web3", "web4", spec=spread(min_domains=3))),
    ("web1 web4", "zone=a"),
    ("web2", "zone=b"),
    ("web3", "zone=c"),
)
pinned = {**spread(), "node_selector": {ZONE: "a"}}
right(
    "zones the pod does not select are no domains",
    case(app_pods("web1", "web2", spec=pinned), node("n", "b")),
    ("web1 web2", "zone=a"),
)
wrong(
    "unless nodeAffinityPolicy is Ignore",
    "skew",
    case(
        app_pods(
            "web1", "web2", spec={**spread(node_affinity_policy="Ignore"), "node_selector": {ZONE: "a"}}
        ),
        node("n", "b"),
    ),
    ("web1 web2", "zone=a"),
)
TAINT = Taint(key="t", effect="NoSchedule")
wrong(
    "tainted nodes are domains",
    "skew",
    case(app_pods("web1", "web2", spec=spread()), node("n", "b", taints=[TAINT])),
    ("web1 web2", "zone=a"),
)
right(
    "unless nodeTaintsPolicy is Honor",
    case(app_pods("web1", "web2", spec=spread(node_taints_policy="Honor")), node("n", "b", taints=[TAINT])),
    ("web1 web2", "zone=a"),
)
right(
    "matchLabelKeys leave older revisions out",
    case(
        app_pods("web1", spec=spread(match_label_keys=["rev", "no"]), labels={"app": "web", "rev": "2"}),
        node("n", "a", *app_pods("web9", node_name="n", labels={"app": "web", "rev": "1"})),
        node("m", "b"),
    ),
    nodes={"n": "web1"},
)
wrong(
    "matchLabelKeys keep the same revision in",
    "skew",
    case(
        app_pods("web1", spec=spread(match_label_keys=["rev"]), labels={"app": "web", "rev": "2"}),
        node("n", "a", *app_pods("web9", node_name="n", labels={"app": "web", "rev": "2"})),
        node("m", "b"),
    ),
    nodes={"n": "web1"},
)
right(
    "other namespaces don't count",
    case(
        app_pods("web1", spec=spread()),
        node("n", "a", *app_pods("web9", node_name="n", namespace="shop")),
        node("m", "b"),
    ),
    nodes={"n": "web1"},
)
right(
    "who is not counted itself goes where the skew is at its most",
    case(app_pods("db1", spec=spread()), node("n", "a", OLD), node("m", "b")),
    nodes={"n": "db1"},
)
wrong(
    "but not beyond",
    "skew",
    case(
        app_pods("db1", spec=spread()), node("n", "a", OLD, *app_pods("web8", node_name="n")), node("m", "b")
    ),
    nodes={"n": "db1"},
)
others = case([*app_pods("web1", "web2", spec=spread()), *app_pods("web3", "web4", "web5")])
right(
    "pods without the constraint may follow where they like",
    others,
    ("web1 web3 web4 web5", "zone=a"),
    ("web2", "zone=b"),
)
right(
    "pods without the constraint may go first to lift the emptiest",
    case([*app_pods("web1", "web2", spec=spread()), *app_pods("web3")]),
    ("web1 web2", "zone=a"),
    ("web3", "zone=b"),
)
types = case(app_pods(*WEB3, "web4", spec=spread(key=TYPE)))
right(
    "two and two of the capacity types",
    types,
    ("web1 web3", "capacity_type=spot"),
    ("web2 web4", "capacity_type=on-demand"),
)
wrong(
    "three of one capacity type",
    "skew",
    types,
    ("web1 web2 web3", "capacity_type=spot"),
    ("web4", "capacity_type=on-demand"),
)
wrong("a capacity type that is not decided", "could be any", types, ("web1 web2 web3 web4", ""))
RACKS = case(app_pods(*WEB3, "web4", spec=spread(key=RACK)), racks=True)
right("custom labels", RACKS, ("web1 web2", "rack=r1"), ("web3 web4", "rack=r2"))
wrong("custom labels, uneven", "skew", RACKS, ("web1 web2 web3", "rack=r1"), ("web4", "rack=r2"))
wrong("a label nobody gives", "is unknown", case(app_pods("web1", spec=spread(key=RACK))), ("web1", "zone=a"))
hosts = case(app_pods(*WEB3, spec=spread(key=HOST)))
right("hosts", hosts, ("web1", ""), ("web2", ""), ("web3", ""))
right("two on one of two hosts", hosts, ("web1 web2", ""), ("web3", ""))
wrong(
    "three to none",
    "skew",
    case(app_pods(*WEB3, "db1", spec=spread(key=HOST))),
    ("web1 web2 web3", ""),
    ("db1", ""),
)
TWICE = {"topology_spread_constraints": [a_spread("web"), a_spread("web", HOST, 2)]}
both = case(app_pods(*WEB3, "web4", spec=TWICE))
right("zones and hosts", both, ("web1 web2", "zone=a"), ("web3 web4", "zone=b"))
wrong(
    "zones are right, hosts are not",
    "hostname",
    both,
    ("web1 web2", "zone=a"),
    ("web3", "zone=b"),
    ("web4 ", "zone=b"),
) if False else None


# --- affinity -------------------------------------------------------------------------------------------

follow = case([*app_pods("db1"), *app_pods("web1", spec=beside("db"))])
right("in the zone of its target", follow, ("db1", "zone=a"), ("web1", "zone=a"))
wrong("in another zone", "affinity", follow, ("db1", "zone=a"), ("web1", "zone=b"))
wrong("the target's zone is not decided", "affinity", follow, ("db1", ""), ("web1", "zone=b"))
wrong("its own zone is not decided", "could be any", follow, ("db1", "zone=a"), ("web1", ""))
wrong("no target at all", "affinity", case(app_pods("web1", spec=beside("db"))), ("web1", "zone=a"))
own = case(app_pods("web1", "web2", spec=beside("web")))
right("the first that wants its like goes anywhere", own, ("web1", "zone=a"), ("web2", "zone=a"))
wrong("the second follows", "affinity", own, ("web1", "zone=a"), ("web2", "zone=b"))
right("on one host", case(app_pods("web1", "web2", spec=beside("web", HOST))), ("web1 web2", ""))
wrong(
    "on two hosts",
    "affinity",
    case(app_pods("web1", "web2", spec=beside("web", HOST))),
    ("web1", ""),
    ("web2", ""),
)
wrong(
    "its like runs already, elsewhere",
    "affinity",
    case(app_pods("web1", spec=beside("web")), node("n", "a", OLD)),
    ("web1", "zone=b"),
)
right(
    "its like runs already, there",
    case(app_pods("web1", spec=beside("web")), node("n", "a", OLD)),
    ("web1", "zone=a"),
)
chain = case([*app_pods("a1", spec=beside("b")), *app_pods("b1", spec=beside("c")), *app_pods("c1")])
right("a chain", chain, ("a1", "zone=a"), ("b1 c1", "zone=a"))
wrong("a chain that breaks", "a1 can never", chain, ("a1", "zone=a"), ("b1 c1", "zone=b"))
wrong(
    "a ring in which each waits for the other",
    "affinity",
    case([*app_pods("a1", spec=beside("b")), *app_pods("b1", spec=beside("a"))]),
    ("a1 b1", "zone=a"),
)
TERMS = [a_company_term("db"), a_company_term("web")]
wrong(
    "every term must be met by the same pod",
    "affinity",
    case(
        [
            *app_pods("x1", spec={"affinity": Affinity(pod_affinity=PodAffinity(required=TERMS))}),
            *app_pods("db1", "web1"),
        ]
    ),
    ("x1 db1 web1", "zone=a"),
)
wrong(
    "targets of another namespace are not meant",
    "affinity",
    case([*app_pods("db1", namespace="shop"), *app_pods("web1", spec=beside("db"))]),
    ("shop/db1 web1", "zone=a"),
)
right(
    "unless it is listed",
    case([*app_pods("db1", namespace="shop"), *app_pods("web1", spec=beside("db", namespaces=["shop"]))]),
    ("shop/db1 web1", "zone=a"),
)
right(
    "or all are selected",
    case(
        [
            *app_pods("db1", namespace="shop"),
            *app_pods("web1", spec=beside("db", namespace_selector=LabelSelector())),
        ]
    ),
    ("shop/db1 web1", "zone=a"),
)
wrong(
    "a namespace selector picks by label",
    "affinity",
    case(
        [
            *app_pods("db1", namespace="shop"),
            *app_pods("web1", spec=beside("db", namespace_selector=LabelSelector(match_labels={"x": "y"}))),
        ]
    ),
    ("shop/db1 web1", "zone=a"),
)
REV = {"app": "web", "rev": "2"}
wrong(
    "matchLabelKeys want the same revision",
    "affinity",
    case(
        app_pods("web1", spec=beside("web", match_label_keys=["rev"]), labels=REV)
        + app_pods("web2", labels={"app": "web", "rev": "1"})
        + app_pods("web3", spec=beside("web", match_label_keys=["rev"]), labels=REV)
    ),
    ("web1", "zone=b"),
    ("web2 web3", "zone=a"),
)
right(
    "mismatchLabelKeys want another one",
    case(
        app_pods("web1", spec=beside("web", mismatch_label_keys=["rev"]), labels=REV)
        + app_pods("web2", labels={"app": "web", "rev": "1"})
    ),
    ("web1 web2", "zone=a"),
)
wrong(
    "mismatchLabelKeys do not want the own one",
    "affinity",
    case(
        app_pods("web1", spec=beside("web", mismatch_label_keys=["rev"]), labels=REV)
        + app_pods("web2", labels=REV)
    ),
    ("web1 web2", "zone=a"),
)

# --- anti-affinity --------------------------------------------------------------------------------------

alone = case(app_pods("web1", "web2", spec=apart("web")))
right("each in its zone", alone, ("web1", "zone=a"), ("web2", "zone=b"))
wrong("both in one zone", "keeps", alone, ("web1", "zone=a"), ("web2", "zone=a"))
wrong("both on one node", "keeps", alone, ("web1 web2", "zone=a"))
wrong("one may become the other's zone", "keeps", alone, ("web1", "zone=a"), ("web2", ""))
right("one alone may go anywhere", case(app_pods("web1", spec=apart("web"))), ("web1", ""))
wrong(
    "it keeps away who does not mind",
    "keeps",
    case([*app_pods("web1", spec=apart("db")), *app_pods("db1")]),
    ("web1", "zone=a"),
    ("db1", "zone=a"),
)
wrong(
    "a running pod keeps newcomers out of its zone",
    "keeps",
    case(app_pods("web1"), node("n", "a", *app_pods("db9", node_name="n", spec=apart("web")))),
    ("web1", "zone=a"),
)
wrong(
    "a newcomer keeps out of where they run",
    "keeps",
    case(app_pods("db1", spec=apart("web")), node("n", "a", OLD)),
    ("db1", "zone=a"),
)
right(
    "who goes away keeps nobody out",
    case(
        app_pods("db1", spec=apart("web")),
        node("n", "a", *app_pods("web9", node_name="n", deleted="2026-01-01T00:00:00Z")),
    ),
    ("db1", "zone=a"),
)
right(
    "nodes without the label are in no domain",
    case(app_pods("db1", spec=apart("web")), node("n", "", OLD)),
    nodes={"n": "db1"},
)
wrong(
    "one host", "keeps", case([*app_pods("web1", spec=apart("db", HOST)), *app_pods("db1")]), ("web1 db1", "")
)
right(
    "two hosts",
    case([*app_pods("web1", spec=apart("db", HOST)), *app_pods("db1")]),
    ("web1", ""),
    ("db1", ""),
)
wrong(
    "capacity types",
    "keeps",
    case(app_pods("web1", "web2", spec=apart("web", TYPE))),
    ("web1", "capacity_type=spot"),
    ("web2", "capacity_type=spot zone=a"),
)
right(
    "mismatchLabelKeys keep other revisions out only",
    case(app_pods("web1", "web2", spec=apart("web", mismatch_label_keys=["rev"]), labels=REV)),
    ("web1 web2", "zone=a"),
)


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_plan_is_accepted(name: str) -> None:
    """Nothing is wrong with it, however one looks."""
    assert violations(*RIGHT[name]) == quick_violations(*RIGHT[name]) == []


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_plan_is_refused(name: str) -> None:
    """The broken rule is named, and no other is."""
    problem, plan, message = WRONG[name]
    found = violations(problem, plan)
    assert found
    assert [text for text in found if message not in text] == []
    assert sorted(quick_violations(problem, plan)) == sorted(found)
