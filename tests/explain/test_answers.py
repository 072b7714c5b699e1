"""Answers about pods, nodes, NodePools and NodeClaims: what is said first, and what would change it."""

import json
from importlib import resources
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from karpenter.apis import labels as known
from karpenter.apis.core import SchedulingGate, Taint
from karpenter.apis.karpenter import Budget, NodePool, RequirementSpec
from karpenter.apis.meta import Condition, LabelSelector, ObjectMeta
from karpenter.apis.workloads import (
    PodDisruptionBudget,
    PodDisruptionBudgetSpec,
    PodDisruptionBudgetStatus,
)
from karpenter.disruption.verdicts import Code, Method, Verdict
from karpenter.explain.answer import Answer, json_schema, kind_of
from karpenter.explain.node import explain_node
from karpenter.explain.nodeclaim import explain_nodeclaim
from karpenter.explain.nodepool import explain_nodepool
from karpenter.explain.pod import explain_pod
from karpenter.explain.text import answer_text
from karpenter.model.reasons import Refusal, Unschedulable
from karpenter.testing.answers import some_facts
from karpenter.testing.builders import (
    a_node,
    a_nodeclaim,
    a_nodepool,
    a_pod,
    a_view,
    an_instance_type,
    an_offering,
    an_owner,
)

TYPE = an_instance_type()
POOL = a_nodepool()
WEB = {"app": "web"}
READY = Condition(type="Ready", status="True")


def a_running_pod(name: str = "web", **fields: Any) -> Any:
    pod = a_pod(name, node_name="node", labels=WEB, **fields)
    return replace(pod, status=replace(pod.status, conditions=[READY]))


def a_budget(name: str, app: str = "web") -> PodDisruptionBudget:
    return PodDisruptionBudget(
        metadata=ObjectMeta(name=name, namespace="default"),
        spec=PodDisruptionBudgetSpec(min_available=1, selector=LabelSelector(match_labels={"app": app})),
        status=PodDisruptionBudgetStatus(current_healthy=1, desired_healthy=1, expected_pods=1),
    )


def a_verdict(
    code: Code, method: Method | None = "sets", *, saving: float | None = None, **more: Any
) -> Verdict:
    return Verdict(node="node", method=method, code=code, message=f"because {code}", saving=saving, **more)


def about_node(*verdicts: Verdict, pool: NodePool = POOL, **facts: Any) -> Answer:
    view = a_view(pods=facts.pop("pods", ()), labels=facts.pop("labels", None))
    prices = {"node-claim": 0.5}
    return explain_node(
        view, some_facts(nodes=[view], pools=[pool], verdicts=verdicts, types=[TYPE], prices=prices, **facts)
    )


def patches(answer: Answer) -> list[tuple[str, str, list[tuple[str, str, Any]]]]:
    return [(c.kind, c.name, [(o.op, o.path, o.value) for o in c.patch]) for c in answer.changes]


# --- nodes ----------------------------------------------------------------------------------------------


def test_the_method_that_would_have_saved_most_binds() -> None:
    """What is not for the node comes last; what stands in the way of dollars first."""
    answer = about_node(
        a_verdict("notEmpty", "emptiness", saving=0.5),
        a_verdict("notDrifted", "drift"),
        a_verdict("payback", "sets", saving=0.2, remedy="lower it"),
    )
    assert (answer.code, answer.remedy) == ("payback", "lower it")
    assert answer.summary == "it stays: because payback"
    assert [(f.about, f.saving_per_hour) for f in answer.findings] == [
        ("consolidation", 0.2),
        ("emptiness", None),
        ("drift", None),
    ]


def test_a_node_that_nothing_wants_to_disrupt_says_so() -> None:
    """Not being drifted is no obstacle."""
    answer = about_node(a_verdict("notDrifted", "drift"))
    assert answer.summary == "nothing calls for its disruption: because notDrifted"
    assert about_node().code == "notLookedAt"


def test_all_budgets_in_the_way_are_freed_together() -> None:
    """Two pods, two PodDisruptionBudgets: the change is of both, and the saving a bound."""
    pods = [
        a_running_pod("a"),
        replace(a_running_pod("b"), metadata=a_pod("b", labels={"app": "db"}).metadata),
    ]
    answer = about_node(pods=pods, pdbs=[a_budget("one"), a_budget("two", "db")])
    assert answer.code == "podDisruptionBudget"
    free = [("remove", "/spec/minAvailable", None), ("add", "/spec/maxUnavailable", 1)]
    assert patches(answer) == [("PodDisruptionBudget", "one", free), ("PodDisruptionBudget", "two", free)]
    assert (answer.findings[0].saving_per_hour, answer.findings[0].saving_at_most) == (0.5, True)
    assert [f.code for f in answer.findings[1:]] == ["pdbNever", "pdbNever"]


def test_pods_with_a_stand_in_are_in_nobodys_way() -> None:
    """A budget that can never allow an eviction holds no pod whose workload brings up another first."""
    view = a_view(pods=[a_running_pod("a"), replace(a_running_pod("b"), metadata=a_pod("b").metadata)])
    budgets = [a_budget("one")]
    view = replace(view, pods=(*view.pods, a_running_pod("c", annotations={known.DO_NOT_DISRUPT: "true"})))
    facts = some_facts(nodes=[view], pools=[POOL], pdbs=budgets, types=[TYPE])
    facts = facts._replace(snapshot=replace(facts.snapshot, stand_ins=frozenset({"default/a"})))
    assert [(kind, name) for kind, name, _ in patches(explain_node(view, facts))] == [("Pod", "c")]
    answer = explain_pod(view.pods[0], facts)
    assert (answer.code, answer.findings) == ("bound", ())
    assert "brings up a stand-in" in answer.summary


def test_where_one_pod_cannot_be_freed_no_change_is_given() -> None:
    """A pod under two budgets needs a decision of people: freeing the others would not help."""
    protected = a_running_pod("p", annotations={known.DO_NOT_DISRUPT: "true"})
    answer = about_node(pods=[protected, a_running_pod("a")], pdbs=[a_budget("one"), a_budget("two")])
    assert answer.code == "podDoNotDisrupt"
    assert answer.changes == ()
    assert "annotation" in answer.remedy


@pytest.mark.parametrize(
    ("verdict", "pool", "patch"),
    [
        (a_verdict("never"), POOL, [("add", "/spec/disruption/consolidateAfter", "30s")]),
        (
            a_verdict("policy"),
            POOL,
            [("add", "/spec/disruption/consolidationPolicy", "WhenEmptyOrUnderutilized")],
        ),
        (
            a_verdict("limit", "staticDrift"),
            a_nodepool(limits={"nodes": "3"}, replicas=3),
            [("replace", "/spec/limits/nodes", "4")],
        ),
        (a_verdict("payback"), POOL, None),
    ],
)
def test_what_a_pool_has_to_say(
    verdict: Verdict, pool: NodePool, patch: list[tuple[str, str, Any]] | None
) -> None:
    """Reasons that a NodePool's spec gives come with a patch of it; others with words only."""
    wanted = [] if patch is None else [("NodePool", "default", patch)]
    assert patches(about_node(verdict, pool=pool)) == wanted


def test_budgets_that_bind_allow_one_more() -> None:
    """Only those for the reason, that are active now, and too small; the others stay as they are."""
    budgets = [
        Budget(nodes="0"),
        Budget(nodes="10%", reasons=["Empty"]),
        Budget(nodes="5"),
        Budget(nodes="0%"),
    ]
    pool = replace(POOL, spec=replace(POOL.spec, disruption=replace(POOL.spec.disruption, budgets=budgets)))
    answer = about_node(a_verdict("budget"), pool=pool)
    assert patches(answer) == [
        (
            "NodePool",
            "default",
            [
                ("replace", "/spec/disruption/budgets/0/nodes", "1"),
                ("replace", "/spec/disruption/budgets/3/nodes", "1"),
            ],
        )
    ]


def test_the_gate_of_spot_to_spot_is_an_option() -> None:
    """There is no object to patch: the operator has to be started otherwise, its other gates as they are."""
    gates = "--feature-gates=NodeOverlay=true,SpotToSpotConsolidation=true"
    (change,) = about_node(a_verdict("spotToSpot")).changes
    assert (change.option, change.patch) == (gates, ())


def spot_types(count: int, arch: str = "amd64") -> list[Any]:
    return [
        an_instance_type(
            f"{arch}-{i:02}", arch=arch, offerings=[an_offering("zone-a", "spot", 0.1 + i / 1000)], cpu="8"
        )
        for i in range(count)
    ]


def test_types_are_added_that_are_cheaper_and_alike() -> None:
    """As many as lack, the cheapest ones of the node's own platform; none that is dear or too small."""
    small = an_instance_type("tiny", cpu="1", offerings=[an_offering("zone-a", "spot", 0.01)])
    dear = an_instance_type("dear", cpu="8", offerings=[an_offering("zone-a", "spot", 0.9)])
    own = RequirementSpec(key=known.INSTANCE_TYPE, operator="In", values=["amd64-00", "dear"])
    pool = a_nodepool(requirements=[own, (known.CAPACITY_TYPE, "In", ["spot"])])
    view = a_view(labels={known.ARCH: "amd64"}, pods=[a_running_pod(cpu="2")])
    verdict = a_verdict("spotToSpot", detail={"instanceTypes": ("amd64-00",)})
    facts = some_facts(
        nodes=[view],
        pools=[pool],
        verdicts=[verdict],
        prices={"node-claim": 0.5},
        types=[*spot_types(20), *spot_types(20, "arm64"), small, dear],
    )
    ((kind, name, patch),) = patches(explain_node(view, facts))
    assert (kind, name) == ("NodePool", "default")
    assert patch == [
        (
            "replace",
            "/spec/template/spec/requirements/0/values",
            ["amd64-00", "dear", *(f"amd64-{i:02}" for i in range(1, 15))],
        )
    ]


def test_what_keeps_a_node_on_its_way_out_is_its_drain() -> None:
    """No method is asked about it any more."""
    view = a_view(pods=[a_running_pod()], marked_for_deletion=True)
    answer = explain_node(view, some_facts(nodes=[view], pools=[POOL], pdbs=[a_budget("one")]))
    assert answer.code == "deleting"
    assert "minAvailable 1 of 1 pod can never allow an eviction" in answer.summary
    assert patches(answer)[0][:2] == ("PodDisruptionBudget", "one")


def test_nodes_of_others_are_left_alone() -> None:
    """A node without a claim is none of ours, whatever else holds."""
    view = replace(a_view(), managed=False, claim=None)
    assert explain_node(view, some_facts(nodes=[view])).code == "noClaim"


# --- pods -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pod", "code", "said"),
    [
        (a_pod(phase="Succeeded"), "ended", "Succeeded"),
        (a_pod(deleted="2026-01-01T00:00:00Z"), "ending", "2026-01-01"),
        (
            a_pod(spec={"scheduling_gates": [SchedulingGate(name="example.com/wait")]}),
            "gated",
            "example.com/wait",
        ),
        (a_pod(owner=an_owner("DaemonSet")), "daemon", "DaemonSet"),
        (
            replace(a_pod(), status=replace(a_pod().status, conditions=[])),
            "notUnschedulable",
            "kube-scheduler",
        ),
        (a_pod(), "notLookedAt", "next pass"),
        (a_running_pod(), "bound", "node/node"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_where_a_pod_stands(pod: Any, code: str, said: str) -> None:
    """Every state has its word, and a sentence that says what is waited for."""
    answer = explain_pod(pod, some_facts(pods=[pod]))
    assert answer.code == code
    assert said in answer.summary


def test_a_pod_with_a_claim_on_its_way_waits_for_that() -> None:
    """What the claim waits for is said of the pod."""
    claim = a_nodeclaim("c", conditions=["Launched"])
    facts = some_facts(pods=[a_pod()], claims=[claim], expected={"default/pod": "c"})
    answer = explain_pod(a_pod(), facts)
    assert answer.code == "expected"
    assert answer.summary == "it is expected on nodeclaim/c: it is waiting to be registered"


def test_pools_that_were_not_asked_are_named() -> None:
    """A static pool, and one that is not ready, explain why there are so few refusals."""
    refused = Unschedulable(
        pod="default/pod",
        refusals=(
            Refusal(
                place="nodepool/default", constraint="limits", message="full", remedy="raise limits.cpu by 1"
            ),
        ),
    )
    pools = [a_nodepool(), a_nodepool("fixed", replicas=2), a_nodepool("new", ready=False)]
    answer = explain_pod(a_pod(), some_facts(pods=[a_pod()], pools=pools, refused=[refused], types=[TYPE]))
    assert (answer.code, answer.remedy) == ("limits", "raise limits.cpu by 1")
    assert [(f.about, f.code) for f in answer.findings] == [
        ("nodepool/default", "limits"),
        ("nodepool/fixed", "notAsked"),
        ("nodepool/new", "notAsked"),
    ]


def test_a_protected_pod_says_what_protects_it() -> None:
    """The annotation, and the patch that removes it."""
    pod = a_running_pod(annotations={known.DO_NOT_DISRUPT: "true"})
    answer = explain_pod(pod, some_facts(pods=[pod]))
    assert answer.findings[0].code == "doNotDisrupt"
    assert patches(answer) == [
        ("Pod", "web", [("remove", "/metadata/annotations/karpenter.sh~1do-not-disrupt", None)])
    ]


# --- claims and pools -----------------------------------------------------------------------------------


def test_a_claim_says_what_its_node_lacks() -> None:
    """The startup taint is looked up now; the condition may be a moment late."""
    taint = Taint(key="example.com/agent", effect="NoSchedule")
    claim = a_nodeclaim("c", conditions=["Launched", "Registered"], startup_taints=[taint])
    view = replace(a_view("n"), claim=claim, node=a_node("n", taints=[taint]), initialized=False)
    answer = explain_nodeclaim(claim, some_facts(nodes=[view], pools=[POOL]))
    assert answer.code == "StartupTaintsExist"
    assert "example.com/agent" in answer.summary
    assert answer.findings[0].about == "condition Initialized"
    assert [f.message for f in answer.findings[1:3]] == ["True", "True"]


def test_a_claim_that_goes_before_it_was_launched() -> None:
    """There is no node, and nothing to wait for: only since when."""
    claim = a_nodeclaim("c", deleted="2026-01-01T00:00:00Z")
    answer = explain_nodeclaim(claim, some_facts(claims=[claim]))
    assert (answer.code, answer.findings) == ("deleting", ())
    assert answer.summary == "it is being deleted since 2026-01-01T00:00:00Z"


def test_a_launch_that_fails_is_said_with_the_clouds_words() -> None:
    """Reason and message of the condition, and when it is given up on."""
    launched = Condition(
        type="Launched",
        status="Unknown",
        reason="InsufficientCapacity",
        message="no c5.large left",
        last_transition_time="2026-01-01T00:00:00Z",
    )
    claim = a_nodeclaim("c")
    claim = replace(claim, status=replace(claim.status, conditions=[launched]))
    answer = explain_nodeclaim(claim, some_facts(claims=[claim]))
    assert answer.code == "InsufficientCapacity"
    assert answer.summary == (
        "it is waiting to be launched (InsufficientCapacity: no c5.large left), "
        "until 2026-01-01T00:05:00Z at most"
    )


def test_a_pool_names_the_largest_saving_that_is_blocked() -> None:
    """And by what; counts of verdicts are there by method and code."""
    verdict = a_verdict("payback", saving=0.2)
    view = a_view()
    answer = explain_nodepool(POOL, some_facts(nodes=[view], pools=[POOL], verdicts=[verdict], types=[TYPE]))
    assert answer.code == "payback"
    assert answer.summary == (
        "it buys nodes for pods; disrupting node/node would save $0.2000/h: because payback"
    )
    assert answer.facts["verdicts"] == "consolidation payback: 1"


def test_a_pool_at_its_limit_names_the_pods_that_wait_for_it() -> None:
    """Its own limit binds before savings do; the patch raises it."""
    refusal = Refusal(
        place="nodepool/default",
        constraint="limits",
        message="all exceed limits",
        remedy="raise limits.cpu by 2",
        detail={"raise": {"cpu": "2"}},
    )
    refused = [Unschedulable(pod=f"default/p{i}", refusals=(refusal,)) for i in range(3)]
    pool, view = a_nodepool(limits={"cpu": "8"}), a_view()
    verdict = a_verdict("payback", saving=0.2)
    facts = some_facts(nodes=[view], pools=[pool], verdicts=[verdict], refused=refused, types=[TYPE])
    answer = explain_nodepool(pool, facts)
    assert (answer.code, answer.remedy) == ("limits", "raise limits.cpu by 2")
    assert "; 3 waiting pods without a place: all exceed limits" in answer.summary
    assert patches(answer) == [("NodePool", "default", [("replace", "/spec/limits/cpu", "10")])]


def test_a_pool_that_does_not_buy_says_why() -> None:
    """Readiness comes before everything else."""
    pool = a_nodepool(ready=False)
    answer = explain_nodepool(pool, some_facts(pools=[pool]))
    assert (answer.code, answer.summary) == ("notReady", "it does not buy: is not ready yet")
    assert explain_nodepool(pool, some_facts()).code == "unmanaged"


# --- as a whole -----------------------------------------------------------------------------------------


def test_answers_are_what_their_schema_says() -> None:
    """What goes out as JSON comes in again as the same, and every field is described."""
    pods = [a_running_pod()]
    answer = about_node(pods=pods, pdbs=[a_budget("one")])
    assert msgspec.json.decode(msgspec.json.encode(answer), type=Answer) == answer
    described = json_schema()["$defs"]["Answer"]["properties"]
    assert set(msgspec.to_builtins(answer)) == set(described)
    shipped = resources.files("karpenter.explain").joinpath("schema.json").read_text()
    assert json.loads(shipped) == json.loads(json.dumps(json_schema())), "write json_schema() to it"


def test_an_answer_in_words() -> None:
    """One line that says it, the facts, the way out with its command, and all findings."""
    text = answer_text(about_node(pods=[a_running_pod()], pdbs=[a_budget("one")]))
    pdb = "Pdb prevents pod evictions (PodDisruptionBudget=[default/one]) (Pod=default/web)"
    assert text.splitlines() == [
        f"node node: it stays: {pdb}",
        "  nodepool:  default",
        "  nodeclaim: node-claim",
        "  machine:   $0.5000/h",
        "  pods:      1 pod in need of a place (default/web), 0 of DaemonSets",
        "  used:      1 of 4 cpu, 1Gi of 16Gi memory",
        "to change that: raise replicas to 2 or set maxUnavailable 1 (pod default/web: PodDisruptionBudget "
        "default/one: minAvailable 1 of 1 pod can never allow an eviction)",
        "  set maxUnavailable 1 instead of minAvailable in poddisruptionbudget/one of namespace default",
        "    kubectl patch poddisruptionbudget/one -n default --type=json -p "
        """'[{"op":"remove","path":"/spec/minAvailable"},{"op":"add","path":"/spec/maxUnavailable","value":1}]'""",
        "why, in full:",
        f"  every method [podDisruptionBudget]: {pdb} (could save at most $0.5000/h)",
        "  drain, if it were deleted [pdbNever]: pod default/web: PodDisruptionBudget default/one: "
        "minAvailable 1 of 1 pod can never allow an eviction",
        "      to change that: raise replicas to 2 or set maxUnavailable 1",
    ]


@pytest.mark.parametrize(
    ("word", "kind"),
    [("po", "pod"), ("Nodes", "node"), ("nodepools.karpenter.sh", "nodepool"), ("svc", None)],
)
def test_kinds_go_by_kubectls_words(word: str, kind: str | None) -> None:
    """Singular, plural, short: whatever kubectl takes."""
    assert kind_of(word) == kind
