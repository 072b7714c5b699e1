"""Default topology spread: which pods get it, over which others."""

import pytest

from karpenter.apis import labels
from karpenter.apis.core import (
    Pod,
    ReplicationController,
    ReplicationControllerSpec,
    Service,
    ServiceSpec,
    TopologySpreadConstraint,
)
from karpenter.apis.meta import LabelSelector, ObjectMeta, SelectorRequirement
from karpenter.apis.selectors import label_selector_matches
from karpenter.apis.workloads import ReplicaSet, StatefulSet, WorkloadSpec
from karpenter.model.defaultspread import Owner, controller_of, deduced_selector, with_default_spread
from karpenter.testing.builders import a_pod, an_owner

ZONE = TopologySpreadConstraint(max_skew=1, topology_key=labels.ZONE, when_unsatisfiable="DoNotSchedule")
HOST = TopologySpreadConstraint(
    max_skew=3, topology_key=labels.KUBERNETES_HOSTNAME, when_unsatisfiable="ScheduleAnyway"
)
WEB = a_pod(labels={"app": "web", "tier": "front"})


def a_service(name: str, selector: dict[str, str], namespace: str = "default") -> Service:
    """Return a Service."""
    meta = ObjectMeta(name=name, namespace=namespace)
    return Service(metadata=meta, spec=ServiceSpec(selector=selector))


def a_replica_set(selector: LabelSelector) -> ReplicaSet:
    """Return a ReplicaSet."""
    return ReplicaSet(metadata=ObjectMeta(name="rs"), spec=WorkloadSpec(selector=selector))


def equal(**wanted: str) -> LabelSelector:
    """Return a selector by labels."""
    return LabelSelector(match_labels=wanted)


BY_APP = a_service("app", {"app": "web"})
BY_TIER = a_service("tier", {"tier": "front"})
CONTROLLER = ReplicationController(spec=ReplicationControllerSpec(selector={"app": "web", "rc": "1"}))
STATEFUL = StatefulSet(spec=WorkloadSpec(selector=equal(app="web", set="1")))
IN = SelectorRequirement(key="app", operator="In", values=["web", "api"])


@pytest.mark.parametrize(
    ("services", "owner", "expected"),
    [
        ([], None, None),
        ([BY_APP], None, equal(app="web")),
        ([BY_APP, BY_TIER], None, equal(app="web", tier="front")),
        ([a_service("other", {"app": "api"})], None, None),
        ([a_service("everywhere", {})], None, None),
        ([a_service("app", {"app": "web"}, namespace="other")], None, None),
        ([], CONTROLLER, equal(app="web", rc="1")),
        ([BY_TIER], CONTROLLER, equal(app="web", rc="1", tier="front")),
        ([], STATEFUL, equal(app="web", set="1")),
        ([BY_APP], a_replica_set(equal(app="web")), equal(app="web")),
        ([BY_TIER], a_replica_set(equal(app="web")), equal(app="web", tier="front")),
        ([], a_replica_set(LabelSelector(match_expressions=[IN])), LabelSelector(match_expressions=[IN])),
        ([], a_replica_set(LabelSelector()), None),
        ([], ReplicaSet(), None),
    ],
)
def test_the_pods_that_belong_together(
    services: list[Service], owner: Owner | None, expected: LabelSelector | None
) -> None:
    """Those that the pod's Services and its controller select; without any, there is no default."""
    pod = with_default_spread(WEB, [ZONE, HOST], deduced_selector(WEB, services, owner))
    if expected is None:
        assert pod is WEB
        return
    found = pod.spec.topology_spread_constraints
    assert [(c.topology_key, c.max_skew) for c in found] == [(labels.ZONE, 1), (HOST.topology_key, 3)]
    assert [c.label_selector for c in found] == [expected, expected]


def test_a_controller_that_contradicts_the_services_selects_nothing() -> None:
    """Both must hold; a ReplicationController's labels replace those of the Services instead."""

    def selects(owner: Owner) -> bool:
        pod = with_default_spread(WEB, [ZONE], deduced_selector(WEB, [BY_APP], owner))
        selector = pod.spec.topology_spread_constraints[0].label_selector
        return any(label_selector_matches(selector, {"app": app}) for app in ("web", "api"))

    assert not selects(a_replica_set(equal(app="api")))
    assert selects(ReplicationController(spec=ReplicationControllerSpec(selector={"app": "api"})))


def test_a_pod_with_constraints_of_its_own_keeps_them() -> None:
    """Even a single soft one is enough; and without defaults nobody gets any."""
    pod = a_pod(labels={"app": "web"}, spec={"topology_spread_constraints": [HOST]})
    assert with_default_spread(pod, [ZONE], equal(app="web")) is pod
    assert with_default_spread(WEB, [], equal(app="web")) is WEB


def test_only_the_controller_counts_among_owners() -> None:
    """Others own the pod without saying which pods belong together."""
    assert controller_of(WEB) is None
    owned: Pod = a_pod(owner=an_owner("ReplicaSet", "rs"))
    reference = controller_of(owned)
    assert reference is not None
    assert reference.name == "rs"
