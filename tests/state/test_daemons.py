"""DaemonSets as the pods they would run on a new node."""

from collections.abc import Iterable

import pytest

from karpenter.apis import labels
from karpenter.apis.core import Affinity, Container, Pod, PodSpec, PodTemplateSpec, ResourceRequirements
from karpenter.apis.meta import ObjectMeta, OwnerReference
from karpenter.apis.workloads import DaemonSet, WorkloadSpec
from karpenter.kube.informer import Informer
from karpenter.model.pods import requests
from karpenter.state.daemons import daemon_pods
from karpenter.testing.builders import a_pod, a_term, node_affinity

LINUX = a_term((labels.OS, "In", ["linux"]))
PINNED = a_term(("metadata.name", "In", ["node"]))


def a_daemon_set(
    resources: ResourceRequirements | None = None, affinity: Affinity | None = None
) -> DaemonSet:
    """Return a DaemonSet of one container."""
    container = Container(name="agent", resources=resources or ResourceRequirements())
    template = PodTemplateSpec(spec=PodSpec(containers=[container], affinity=affinity))
    return DaemonSet(
        metadata=ObjectMeta(name="agent", namespace="kube-system", uid="ds"),
        spec=WorkloadSpec(template=template),
    )


def pods_of(daemon_set: DaemonSet, running: Iterable[Pod] = ()) -> Pod:
    """Return the pod that stands for a DaemonSet."""
    informer = Informer(Pod)
    informer.add_index("owner", lambda pod: [o.uid for o in pod.metadata.owner_references])
    for pod in running:
        informer.apply("ADDED", pod)
    (found,) = daemon_pods([daemon_set], informer)
    return found


def a_running_pod(name: str, cpu: str, created: str, affinity: Affinity | None = None) -> Pod:
    """Return a pod of the DaemonSet on a node."""
    owner = OwnerReference(api_version="apps/v1", kind="DaemonSet", name="agent", uid="ds", controller=True)
    return a_pod(
        name, namespace="kube-system", cpu=cpu, created=created, owner=owner, node_name="n", affinity=affinity
    )


@pytest.mark.parametrize(
    ("resources", "cpu"),
    [
        (ResourceRequirements(requests={"cpu": "1"}), 1000),
        (ResourceRequirements(limits={"cpu": "2"}), 2000),
        (ResourceRequirements(requests={"cpu": "1"}, limits={"cpu": "2"}), 1000),
    ],
)
def test_the_template_stands_for_a_set_without_pods(resources: ResourceRequirements, cpu: int) -> None:
    """Limits count as requests where it has none, as in the pods made from it."""
    pod = pods_of(a_daemon_set(resources))
    assert requests(pod)["cpu"] == cpu
    assert (pod.key, pod.spec.node_name) == ("kube-system/agent", "")


def test_the_newest_pod_stands_for_its_set() -> None:
    """What webhooks made of its requests counts."""
    old = a_running_pod("old", "1", "2026-01-01T00:00:00Z")
    new = a_running_pod("new", "3", "2026-01-02T00:00:00Z")
    pod = pods_of(a_daemon_set(ResourceRequirements(limits={"cpu": "2"})), [new, old])
    assert requests(pod)["cpu"] == 3000
    assert pod.spec.node_name == ""


@pytest.mark.parametrize("affinity", [None, node_affinity([LINUX])])
def test_a_daemon_is_not_tied_to_the_node_its_pod_runs_on(affinity: Affinity | None) -> None:
    """The template's node affinity counts, not what its controller wrote into the pod."""
    running = a_running_pod("p", "1", "2026-01-01T00:00:00Z", node_affinity([PINNED]))
    pod = pods_of(a_daemon_set(affinity=affinity), [running])
    wanted = affinity.node_affinity if affinity is not None else None
    assert pod.spec.affinity is not None
    assert pod.spec.affinity.node_affinity == wanted
