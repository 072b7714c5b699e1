"""Which zone a waiting pod is counted for: the one it is tied to, if it is tied to one."""

from collections.abc import Iterable
from typing import Any

import pytest
from msgspec.structs import replace

from karpenter.apis import labels
from karpenter.apis.core import Pod
from karpenter.controllers.provisioning.zones import Zones, pods_by_zone
from karpenter.model.snapshot import NodeView
from karpenter.testing.builders import (
    a_nodepool,
    a_pod,
    a_problem,
    a_term,
    a_view,
    an_instance_type,
    node_affinity,
)
from karpenter.testing.company import Spec, apart, app_pods, beside, spread
from karpenter.testing.storage import a_claim, a_storage_class, a_user, a_volume, storage

ZONES = ["zone-a", "zone-b", "zone-c"]
TYPES = [an_instance_type(zones=ZONES)]


def zone_of(pod: Pod, *objects: object, nodes: Iterable[NodeView] = (), **more: Any) -> str:
    """Return the zone that a pod counts for where three zones can be bought in."""
    problem = a_problem([pod], nodes=nodes, instance_types=TYPES, **more)
    stored = storage(*objects)
    snapshot = replace(
        problem.snapshot,
        volume_claims=stored.volume_claims,
        volumes=stored.volumes,
        storage_classes=stored.storage_classes,
    )
    return Zones(replace(problem, snapshot=snapshot)).of(pod)


def running(**counts: int) -> list[NodeView]:
    """Return a node in each zone named, with so many web pods."""
    nodes = []
    for zone, count in counts.items():
        pods = app_pods(*(f"web{zone}{i}" for i in range(count)), labels={"app": "web"}, node_name=zone)
        nodes.append(a_view(zone, labels={labels.ZONE: f"zone-{zone}"}, pods=pods))
    return nodes


@pytest.mark.parametrize(
    ("pod", "zone"),
    [
        ({}, "flexible"),
        ({"node_selector": {labels.ZONE: "zone-b"}}, "zone-b"),
        ({"node_selector": {labels.ARCH: "amd64"}}, "flexible"),
        ({"node_selector": {labels.ZONE: "nowhere"}}, "nowhere"),
        ({"affinity": node_affinity([a_term((labels.ZONE, "In", ["zone-b"]))])}, "zone-b"),
        ({"affinity": node_affinity([a_term((labels.ZONE, "In", ["zone-a", "zone-b"]))])}, "flexible"),
        (
            {
                "affinity": node_affinity(
                    [a_term((labels.ZONE, "In", ["zone-a"])), a_term((labels.ZONE, "In", ["zone-b"]))]
                )
            },
            "flexible",
        ),
        ({"affinity": node_affinity([a_term((labels.ZONE, "NotIn", ["zone-a"]))])}, "flexible"),
        ({"affinity": node_affinity(preferred=[(1, a_term((labels.ZONE, "In", ["zone-b"])))])}, "flexible"),
        (
            {
                "node_selector": {labels.ZONE: "zone-a"},
                "affinity": node_affinity([a_term((labels.ZONE, "In", ["zone-b"]))]),
            },
            "none",
        ),
    ],
)
def test_by_what_it_selects(pod: dict[str, Any], zone: str) -> None:
    """Node selector and required node affinity count, preferences don't."""
    assert zone_of(a_pod(**pod)) == zone


@pytest.mark.parametrize(
    ("objects", "zone"),
    [
        ([a_claim(volume="pv"), a_volume("pv", a_term((labels.ZONE, "In", ["zone-b"])))], "zone-b"),
        ([a_claim(volume="pv"), a_volume("pv")], "flexible"),
        (
            [
                a_claim(volume="pv"),
                a_volume(
                    "pv", a_term((labels.ZONE, "In", ["zone-b"])), a_term((labels.ZONE, "In", ["zone-c"]))
                ),
            ],
            "flexible",
        ),
        (
            [
                a_claim(volume="pv"),
                a_volume("pv", a_term((labels.ZONE, "In", ["zone-b"])), a_term(("rack", "In", ["1"]))),
            ],
            "flexible",
        ),
        (
            [a_claim(storage_class="fast"), a_storage_class(topologies=[[(labels.ZONE, ["zone-c"])]])],
            "zone-c",
        ),
        ([], "none"),
    ],
)
def test_by_its_volumes(objects: list[object], zone: str) -> None:
    """Every place where they can be counts; a pod whose volume cannot be had is tied to nothing."""
    assert zone_of(a_user("data"), *objects) == zone


@pytest.mark.parametrize(
    ("spec", "nodes", "zone"),
    [
        pytest.param(spread(), {}, "flexible", id="spread, nothing runs"),
        pytest.param(spread(), {"a": 1, "b": 1}, "zone-c", id="spread, one zone is behind"),
        pytest.param(spread(), {"a": 1}, "flexible", id="spread, two are behind"),
        pytest.param(spread(max_skew=2), {"a": 1, "b": 1}, "flexible", id="spread, skew to spare"),
        pytest.param(spread(max_skew=2), {"a": 2, "b": 2}, "zone-c", id="spread, no skew to spare"),
        pytest.param(
            spread(when_unsatisfiable="ScheduleAnyway"), {"a": 1, "b": 1}, "flexible", id="only preferred"
        ),
        pytest.param(
            spread(min_domains=4), {"a": 1, "b": 1, "c": 1}, "none", id="too few domains, all taken"
        ),
        pytest.param(spread(min_domains=4), {"a": 1, "b": 1}, "zone-c", id="too few domains, one free"),
        pytest.param(spread(key=labels.KUBERNETES_HOSTNAME), {"a": 1, "b": 1}, "flexible", id="over hosts"),
        pytest.param(spread("db"), {"a": 1, "b": 1}, "flexible", id="of others"),
        pytest.param(beside("web"), {"b": 1}, "zone-b", id="affinity, one zone has them"),
        pytest.param(beside("web"), {"a": 1, "b": 1}, "flexible", id="affinity, two have them"),
        pytest.param(beside("web"), {}, "flexible", id="affinity, the first of them"),
        pytest.param(beside("db"), {"a": 1}, "none", id="affinity to nobody"),
        pytest.param(apart("web"), {"a": 1, "b": 1}, "zone-c", id="anti-affinity, one zone is free"),
        pytest.param(apart("web"), {"a": 1}, "flexible", id="anti-affinity, two are free"),
        pytest.param(apart("web"), {"a": 1, "b": 1, "c": 1}, "none", id="anti-affinity, none is free"),
        pytest.param({**spread(), **apart("web")}, {"a": 1, "b": 1, "c": 1}, "none", id="no zone meets both"),
    ],
)
def test_by_what_runs_where(spec: Spec, nodes: dict[str, int], zone: str) -> None:
    """Its own hard rules over zones count, as far as running pods decide them."""
    (pod,) = app_pods("web", spec=spec)
    assert zone_of(pod, nodes=running(**nodes)) == zone


def test_its_own_selection_comes_first() -> None:
    """Zones that it does not select, or where no pool can buy, neither help nor count as empty."""
    (tied,) = app_pods("web", spec=apart("web"), node_selector={labels.ZONE: "zone-a"})
    assert zone_of(tied, nodes=running(a=1)) == "none"
    (tied,) = app_pods("web", spec=spread(), node_selector={labels.ZONE: "zone-a"})
    assert zone_of(tied, nodes=running(a=1)) == "zone-a"
    (free,) = app_pods("web", spec=apart("web"))
    pools = [a_nodepool(requirements=[(labels.ZONE, "NotIn", ["zone-c"])])]
    assert zone_of(free, nodes=running(a=1), pools=pools) == "zone-b"


def test_pods_are_counted_by_zone() -> None:
    """All pods to place, each once."""
    pods = [a_pod("tied", node_selector={labels.ZONE: "zone-b"}), a_pod("free"), a_pod("free2")]
    assert pods_by_zone(a_problem(pods, instance_types=TYPES)) == {"zone-b": 1, "flexible": 2}
