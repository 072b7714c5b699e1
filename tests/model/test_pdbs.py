"""Which budgets stand in the way of an eviction."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from karpenter.apis.core import IntOrString, Pod
from karpenter.apis.meta import Condition, LabelSelector, ObjectMeta, SelectorRequirement
from karpenter.apis.selectors import label_selector_matches
from karpenter.apis.workloads import PodDisruptionBudget, PodDisruptionBudgetSpec, PodDisruptionBudgetStatus
from karpenter.base.clock import parse_time
from karpenter.model.pdbs import PdbLimits, answer, can_never_allow
from karpenter.testing.builders import a_pod

NOW = parse_time("2026-01-01T00:00:00Z")
POD = a_pod(labels={"app": "web"}, node_name="n")


def a_pdb(
    name: str = "pdb",
    *,
    allowed: int = 0,
    namespace: str = "default",
    selector: LabelSelector | None = None,
    max_unavailable: IntOrString | None = None,
    min_available: IntOrString | None = None,
    policy: str | None = None,
    healthy: int = 0,
    desired: int = 0,
    expected: int = 0,
    generation: int = 0,
) -> PodDisruptionBudget:
    """Return a budget over `app: web`; a `generation` above zero is one its status does not know yet."""
    return PodDisruptionBudget(
        metadata=ObjectMeta(name=name, namespace=namespace, generation=generation),
        spec=PodDisruptionBudgetSpec(
            selector=LabelSelector(match_labels={"app": "web"}) if selector is None else selector,
            max_unavailable=max_unavailable,
            min_available=min_available,
            unhealthy_pod_eviction_policy=policy,
        ),
        status=PodDisruptionBudgetStatus(
            disruptions_allowed=allowed,
            current_healthy=healthy,
            desired_healthy=desired,
            expected_pods=expected,
        ),
    )


def web(name: str = "web", *, ready: bool = True, app: str = "web", phase: str = "Running") -> Pod:
    """Return a pod of the budget's, Ready unless told otherwise."""
    pod = a_pod(name, labels={"app": app}, node_name="n", phase=phase)
    state = Condition(type="Ready", status="True" if ready else "False")
    return msgspec.structs.replace(pod, status=msgspec.structs.replace(pod.status, conditions=[state]))


@pytest.mark.parametrize(
    ("pdb", "blocks"),
    [
        (a_pdb(), True),
        (a_pdb(allowed=1), False),
        (a_pdb(namespace="other"), False),
        (a_pdb(selector=LabelSelector(match_labels={"app": "db"})), False),
        (a_pdb(selector=LabelSelector()), True),
    ],
)
def test_a_budget_without_disruptions_left_blocks_its_pods(pdb: PodDisruptionBudget, blocks: bool) -> None:
    """Only budgets of the namespace whose selector matches count."""
    assert bool(PdbLimits([pdb]).blocking(POD, NOW)) == blocks


@pytest.mark.parametrize(
    ("pdb", "fully"),
    [
        (a_pdb(max_unavailable=0), True),
        (a_pdb(max_unavailable="0%"), True),
        (a_pdb(min_available="100%"), True),
        (a_pdb(max_unavailable=1), False),
        (a_pdb(min_available="99%"), False),
    ],
)
def test_budgets_that_never_let_go(pdb: PodDisruptionBudget, fully: bool) -> None:
    """No tolerance at all blocks for good; the momentary count does not matter."""
    assert bool(PdbLimits([pdb]).fully_blocking(POD)) == fully


LABELS = st.dictionaries(st.sampled_from("abc"), st.sampled_from("xy"), max_size=3)
SELECTORS = st.none() | st.builds(
    LabelSelector,
    match_labels=LABELS,
    match_expressions=st.lists(
        st.builds(
            SelectorRequirement,
            key=st.sampled_from("abc"),
            operator=st.sampled_from(["Exists", "DoesNotExist"]),
        ),
        max_size=1,
    ),
)


@given(st.lists(SELECTORS, max_size=5), LABELS, st.booleans())
def test_exactly_the_budgets_that_select_a_pod_cover_it(
    selectors: list[LabelSelector | None], labels: dict[str, str], elsewhere: bool
) -> None:
    """Whatever they select by, sorted by name; none selects nothing, an empty selector everything."""
    pdbs = [
        PodDisruptionBudget(
            metadata=ObjectMeta(name=f"pdb-{i}", namespace="other" if elsewhere and i % 2 else "default"),
            spec=PodDisruptionBudgetSpec(selector=selector),
        )
        for i, selector in enumerate(selectors)
    ]
    pod = a_pod(labels=labels)
    covering = [
        p for p in pdbs if p.namespace == "default" and label_selector_matches(p.spec.selector, labels)
    ]
    assert PdbLimits(pdbs[::-1]).matching(pod) == covering


def test_two_budgets_over_one_pod_always_block() -> None:
    """The eviction API refuses pods with several budgets."""
    limits = PdbLimits([a_pdb("a", allowed=5), a_pdb("b", allowed=5)])
    assert "default/a default/b" in limits.blocking(POD, NOW)
    assert limits.fully_blocking(POD)


def test_unhealthy_pods_may_go_where_the_budget_says_so() -> None:
    """AlwaysAllow lets pods go that are not ready."""

    status = msgspec.structs.replace(POD.status, conditions=[Condition(type="Ready", status="False")])
    sick = msgspec.structs.replace(POD, status=status)
    limits = PdbLimits([a_pdb(policy="AlwaysAllow", max_unavailable=0)])
    assert limits.blocking(sick, NOW) == limits.fully_blocking(sick) == ""
    assert limits.blocking(POD, NOW)


def test_pods_nobody_evicts_are_not_held_by_budgets() -> None:
    """A protected pod is no business of the budget's."""
    protected = a_pod(
        labels={"app": "web"}, annotations={"karpenter.sh/do-not-disrupt": "true"}, node_name="n"
    )
    assert PdbLimits([a_pdb()]).blocking(protected, NOW) == ""


@pytest.mark.parametrize(
    ("pdb", "never"),
    [
        (a_pdb(min_available=1, healthy=1, desired=1, expected=1), True),
        (a_pdb(min_available=5, healthy=3, desired=5, expected=3), True),
        (a_pdb(min_available=1, healthy=0, desired=1, expected=1), True),
        (a_pdb(min_available="50%", healthy=1, desired=1, expected=1), True),
        (a_pdb(min_available="50%", healthy=2, desired=1, expected=2), False),
        (a_pdb(min_available=2, healthy=0, desired=2, expected=3), False),
        (a_pdb(min_available=1), False),
        (a_pdb(min_available=1, healthy=1, desired=1, expected=1, generation=1), False),
        (a_pdb(max_unavailable=0, generation=1), True),
        (a_pdb(max_unavailable="1%", healthy=1, desired=0, expected=1), False),
    ],
)
def test_never_is_told_from_not_now(pdb: PodDisruptionBudget, never: bool) -> None:
    """A budget that keeps as many as there are never lets go; one short of healthy pods only waits."""
    assert can_never_allow(pdb) is never
    assert bool(PdbLimits([pdb]).fully_blocking(web())) is never
    assert answer(pdb, web()) == ("never" if never else "notNow")


@pytest.mark.parametrize(
    ("pdb", "pod", "said"),
    [
        (a_pdb(allowed=1, healthy=2, desired=1, expected=2), web(), "yes"),
        (a_pdb(allowed=1, healthy=2, desired=1, expected=2, generation=1), web(), "notNow"),
        (a_pdb(healthy=2, desired=2, expected=3), web(), "notNow"),
        (a_pdb(healthy=2, desired=2, expected=3), web(ready=False), "yes"),
        (a_pdb(healthy=1, desired=2, expected=3), web(ready=False), "notNow"),
        (a_pdb(healthy=1, desired=2, expected=3, policy="AlwaysAllow"), web(ready=False), "yes"),
        (a_pdb(healthy=1, desired=2, expected=3, policy="AlwaysAllow"), web(), "notNow"),
        (a_pdb(max_unavailable=0), web(phase="Pending"), "yes"),
        (a_pdb(max_unavailable=0), web(phase="Succeeded"), "yes"),
    ],
)
def test_the_answer_is_that_of_the_eviction_api(pdb: PodDisruptionBudget, pod: Pod, said: str) -> None:
    """Pods that do not run are not asked for; unready ones go when enough others are healthy, or always."""
    assert answer(pdb, pod) == said


def test_a_pod_with_a_stand_in_is_not_held_by_a_budget_that_never_lets_go() -> None:
    """It leaves when the other is there. One that merely has to wait, or two budgets, hold it as ever."""
    never = a_pdb(max_unavailable=0)
    limits = PdbLimits([never], {"default/web"})
    assert limits.blocking(web(), NOW) == limits.fully_blocking(web()) == ""
    assert limits.blocking(web("other"), NOW)
    assert limits.fully_blocking(web("other"))
    assert PdbLimits([a_pdb(max_unavailable=1)], {"default/web"}).blocking(web(), NOW)
    assert PdbLimits([never, a_pdb("b")], {"default/web"}).fully_blocking(web())


# --- several pods together ------------------------------------------------------------------------------


def test_pods_of_one_budget_are_counted_together() -> None:
    """Each of three pods could go, but only one at a time: it takes three rounds."""
    pods = [web(f"web-{i}") for i in range(3)]
    limits = PdbLimits([a_pdb(allowed=1, healthy=3, desired=2, expected=3)])
    assert not any(limits.blocking(pod, NOW) for pod in pods)
    joint = limits.joint(pods[::-1], NOW)
    assert (joint.all_now, joint.all_ever, joint.rounds) == (False, True, 3)
    assert joint.going == ("default/web-0",)
    (shortage,) = joint.shortages
    assert shortage.budgets == ("default/pdb",)
    assert shortage.pods == ("default/web-0", "default/web-1", "default/web-2")
    assert (shortage.allowed, shortage.at_best) == (1, 1)


def test_pods_of_several_budgets_go_side_by_side() -> None:
    """What one budget holds back does not hold back another's pods, nor those without one."""
    web_budget = a_pdb(allowed=2, healthy=4, desired=2, expected=4)
    db_budget = a_pdb("db", selector=LabelSelector(match_labels={"app": "db"}), max_unavailable=0)
    pods = [web("a"), web("b"), web("c", app="db"), web("d", app="free")]
    joint = PdbLimits([web_budget, db_budget]).joint(pods, NOW)
    assert joint.going == ("default/a", "default/b", "default/d")
    assert (joint.all_now, joint.all_ever, joint.rounds) == (False, False, 1)
    assert [s.budgets for s in joint.shortages] == [("default/db",)]


def test_a_pod_under_two_budgets_never_goes_with_others() -> None:
    """Whatever both would allow."""
    limits = PdbLimits([a_pdb("a", allowed=5), a_pdb("b", allowed=5)])
    (shortage,) = limits.joint([web()], NOW).shortages
    assert shortage.budgets == ("default/a", "default/b")
    assert shortage.permanent


def test_pods_that_need_no_consent_take_nothing() -> None:
    """Protected, ended and unready pods leave a budget's disruptions to the others."""
    held = a_pod("held", labels={"app": "web"}, annotations={"karpenter.sh/do-not-disrupt": "true"})
    pods = [held, web("done", phase="Succeeded"), web("sick", ready=False), web("well")]
    joint = PdbLimits([a_pdb(allowed=1, healthy=3, desired=2, expected=4)]).joint(pods, NOW)
    assert joint.all_now
    assert joint.going == ("default/sick", "default/well")


@given(
    st.lists(st.sampled_from(["web", "db", "free"]), max_size=8),
    st.tuples(st.integers(0, 4), st.integers(0, 4)),
)
def test_no_budget_is_ever_overdrawn_together(apps: list[str], allowed: tuple[int, int]) -> None:
    """Those that may go now never take more than their budget has; any further one would."""
    budgets = [
        a_pdb(
            app,
            selector=LabelSelector(match_labels={"app": app}),
            allowed=count,
            healthy=8,
            desired=8 - count,
            expected=8,
        )
        for app, count in zip(("db", "web"), allowed, strict=True)
    ]
    pods = [web(f"p{i}", app=app) for i, app in enumerate(apps)]
    joint = PdbLimits(budgets).joint(pods, NOW)
    going = [p.metadata.labels["app"] for p in pods if p.key in joint.going]
    for app, count in zip(("db", "web"), allowed, strict=True):
        assert going.count(app) == min(count, apps.count(app))
        short = [s for s in joint.shortages if s.budgets == (f"default/{app}",)]
        assert bool(short) == (apps.count(app) > count)
        assert all(s.permanent == (count == 0) for s in short)
    assert going.count("free") == apps.count("free")
    assert joint.all_now == (len(joint.going) == len(pods))
