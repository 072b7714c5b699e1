"""Default topology spread from live objects."""

from typing import Any

from msgspec.structs import replace

from karpenter.apis import labels
from karpenter.apis.core import Pod, Service, ServiceSpec, TopologySpreadConstraint
from karpenter.apis.meta import LabelSelector, ObjectMeta
from karpenter.apis.workloads import ReplicaSet, WorkloadSpec, WorkloadStatus
from karpenter.base.clock import ManualClock
from karpenter.base.randomness import seeded
from karpenter.kube.client import Client
from karpenter.kube.informer import Cache
from karpenter.state.spread import DefaultSpread
from karpenter.testing.builders import a_pod, an_owner
from karpenter.testing.transport import ScriptedTransport

ZONE = TopologySpreadConstraint(max_skew=1, topology_key=labels.ZONE, when_unsatisfiable="DoNotSchedule")
POD = a_pod(labels={"app": "web"}, owner=an_owner("ReplicaSet", "web-1"))


class Fed:
    """Defaults over informers that the test feeds."""

    def __init__(self, *constraints: TopologySpreadConstraint) -> None:
        self.cache = Cache(Client(ScriptedTransport()), clock=ManualClock(), rng=seeded(1))
        self.spread = DefaultSpread(self.cache, constraints)

    def put(self, obj: Any) -> None:
        self.cache.informer(type(obj)).apply("MODIFIED", obj)

    def drop(self, obj: Any) -> None:
        self.cache.informer(type(obj)).apply("DELETED", obj)

    def selected_by(self, pod: Pod = POD) -> dict[str, str] | None:
        """Return the labels over which `pod` is spread."""
        for constraint in self.spread.apply(pod).spec.topology_spread_constraints:
            assert constraint.label_selector is not None
            return constraint.label_selector.match_labels
        return None


def a_service(name: str, namespace: str = "default", version: str = "1", **selector: str) -> Service:
    """Return a Service."""
    meta = ObjectMeta(name=name, namespace=namespace, resource_version=version)
    return Service(metadata=meta, spec=ServiceSpec(selector=selector))


def a_replica_set(version: str = "1", **wanted: str) -> ReplicaSet:
    """Return the ReplicaSet that owns the pod."""
    return ReplicaSet(
        metadata=ObjectMeta(name="web-1", namespace="default", resource_version=version),
        spec=WorkloadSpec(selector=LabelSelector(match_labels=wanted)),
    )


def test_without_defaults_nothing_is_watched() -> None:
    """No Services, no ReplicaSets: users who do not configure it need no rights to them."""
    fed = Fed()
    assert fed.spread.informers == ()
    assert fed.spread.apply(POD) is POD


def test_the_selector_follows_the_objects() -> None:
    """Services and controllers that come, change and go count at once."""
    fed = Fed(ZONE)
    assert fed.selected_by() is None
    fed.put(a_service("web", app="web"))
    assert fed.selected_by() == {"app": "web"}
    fed.put(a_replica_set(hash="1"))
    assert fed.selected_by() == {"app": "web", "hash": "1"}
    fed.put(a_replica_set("2", hash="2"))
    assert fed.selected_by() == {"app": "web", "hash": "2"}
    fed.drop(a_service("web", app="web"))
    assert fed.selected_by() == {"hash": "2"}
    fed.put(a_service("elsewhere", namespace="other", app="web"))
    assert fed.selected_by() == {"hash": "2"}


def test_pods_of_one_workload_share_one_selector() -> None:
    """Deduced once, also across status changes of the workload; other owners are another question."""
    fed = Fed(ZONE)
    fed.put(a_replica_set(app="web"))
    first = fed.spread.apply(POD).spec.topology_spread_constraints[0].label_selector
    busy = replace(a_replica_set("2", app="web"), status=WorkloadStatus(ready_replicas=3))
    fed.put(busy)
    twin = replace(POD, metadata=replace(POD.metadata, name="twin", uid="uid-twin"))
    assert fed.spread.apply(twin).spec.topology_spread_constraints[0].label_selector is first
    orphan = a_pod(labels={"app": "web"})
    assert fed.spread.apply(orphan) is orphan
