"""Which machine a pod with volumes gets: where its volumes are, or where they can be made."""

from collections.abc import Iterable
from typing import Any

import pytest
from msgspec.structs import replace

from karpenter.apis import labels
from karpenter.apis.core import NodeSelectorTerm, Pod, PVCSource, Volume
from karpenter.model.problem import Problem
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
from karpenter.testing.company import spread
from karpenter.testing.outcomes import domains, places, planned, refusals, refused, the_claim
from karpenter.testing.storage import a_claim, a_storage_class, a_user, a_volume, an_ephemeral_volume, storage

ZONES = ["zone-a", "zone-b", "zone-c"]
TYPES = [
    an_instance_type(f"in-{zone}", price=price, zones=[zone])
    for zone, price in zip(ZONES, (1.0, 2.0, 3.0), strict=True)
]
"""One type a zone: cheap, dearer, dearest."""


def over(pods: Iterable[Pod], *objects: object, nodes: Iterable[NodeView] = (), **more: Any) -> Problem:
    """Return a problem over three zones with claims, volumes and storage classes in the cluster."""
    problem = a_problem(pods, instance_types=TYPES, nodes=nodes, **more)
    stored = storage(*objects)
    return replace(
        problem,
        snapshot=replace(
            problem.snapshot,
            volume_claims=stored.volume_claims,
            volumes=stored.volumes,
            storage_classes=stored.storage_classes,
        ),
    )


def in_zone(*zones: str) -> NodeSelectorTerm:
    """Return a term that asks for one of some zones."""
    return a_term((labels.ZONE, "In", zones))


def bound(name: str, *terms: NodeSelectorTerm, **fields: object) -> tuple[object, object]:
    """Return a claim and the volume it is bound to, which is where one of `terms` holds."""
    return a_claim(name, f"pv-{name}"), a_volume(f"pv-{name}", *terms, spec=fields)


LOCAL = {"local": {"path": "/mnt"}}
HERE = a_term((labels.KUBERNETES_HOSTNAME, "In", ["gone"]))


@pytest.mark.parametrize(
    ("objects", "type"),
    [
        pytest.param(bound("data"), "in-zone-a", id="bound, anywhere"),
        pytest.param(bound("data", in_zone("zone-b")), "in-zone-b", id="bound in a zone"),
        pytest.param(bound("data", in_zone("zone-c", "zone-b")), "in-zone-b", id="in several zones"),
        pytest.param(bound("data", in_zone("zone-c"), in_zone("zone-b")), "in-zone-b", id="two terms"),
        pytest.param(bound("data", HERE, **LOCAL), "in-zone-a", id="local: its host has gone"),
        pytest.param(bound("data", HERE), None, id="on one host, not local"),
        pytest.param(bound("data", in_zone("zone-x")), None, id="in a zone that nobody sells"),
        pytest.param((a_claim(storage_class="fast"), a_storage_class()), "in-zone-a", id="to be made"),
        pytest.param(
            (a_claim(storage_class="fast"), a_storage_class(topologies=[[(labels.ZONE, ["zone-c"])]])),
            "in-zone-c",
            id="to be made in a zone",
        ),
        pytest.param(
            (
                a_claim(storage_class="fast"),
                a_storage_class(topologies=[[(labels.ZONE, ["zone-c"])], [(labels.ZONE, ["zone-b"])]]),
            ),
            "in-zone-b",
            id="to be made in either zone",
        ),
        pytest.param(
            (a_claim(storage_class="fast"), a_storage_class(mode="Immediate")),
            None,
            id="somebody else's turn",
        ),
    ],
)
def test_a_machine_is_bought_where_the_volume_is_or_can_be(
    objects: tuple[object, ...], type: str | None
) -> None:
    """Of several places the cheapest; without any the pod waits, and hears that it is for its volume."""
    problem = over([a_user("data")], *objects)
    if type is None:
        plan = planned(problem)
        assert refused(plan) == ["pod"]
        assert not plan.claims
    else:
        assert the_claim(problem).instance_types[0] == type


@pytest.mark.parametrize(
    ("claim", "type"),
    [
        ({"storage_class": "slow"}, "in-zone-c"),
        ({}, "in-zone-b"),
        ({"volume": "pv"}, "in-zone-a"),
        (None, None),
    ],
)
def test_an_ephemeral_volume_is_made_where_its_class_can(
    claim: dict[str, Any] | None, type: str | None
) -> None:
    """The claim's class says where, or the default one; until the claim is made the pod waits."""
    pod = a_pod(spec={"volumes": [an_ephemeral_volume("scratch")]})
    objects: list[object] = [
        a_storage_class("slow", topologies=[[(labels.ZONE, ["zone-c"])]]),
        a_storage_class("usual", topologies=[[(labels.ZONE, ["zone-b"])]], default=True),
        a_volume("pv", in_zone("zone-a")),
    ]
    if claim is not None:
        objects.append(a_claim("pod-scratch", owner=pod, **claim))
    claims = planned(over([pod], *objects)).claims
    assert [c.instance_types for c in claims] == ([(type,)] if type else [])


@pytest.mark.parametrize(
    "affinity",
    [
        node_affinity(preferred=[(100, in_zone("zone-a"))]),
        node_affinity(required=[in_zone("zone-a"), in_zone("zone-b")]),
        node_affinity(required=[in_zone("zone-a"), in_zone("zone-b")], preferred=[(1, in_zone("zone-a"))]),
    ],
)
def test_preferences_and_other_terms_give_way_to_a_volume(affinity: Any) -> None:
    """What the pod would like, or could do as well, is given up; where its volume is never."""
    user = a_user("data")
    pod = replace(user, spec=replace(user.spec, affinity=affinity))
    claim = the_claim(over([pod], *bound("data", in_zone("zone-b"))))
    assert claim.requirements.single_value(labels.ZONE) == "zone-b"


def test_a_pod_that_must_be_elsewhere_than_its_volume_waits() -> None:
    """Nobody else does."""
    user = a_user("data", name="torn")
    torn = replace(user, spec=replace(user.spec, node_selector={labels.ZONE: "zone-a"}))
    plan = planned(over([torn, a_pod("free")], *bound("data", in_zone("zone-b"))))
    assert refused(plan) == ["torn"]
    assert len(plan.claims) == 1


def test_pods_with_invalid_volumes_hold_up_nobody() -> None:
    """A claim that does not exist keeps its own pod waiting."""
    plan = planned(over([a_user("absent", name="lost"), a_user("data", name="fine")], *bound("data")))
    assert refused(plan) == ["lost"]
    assert refusals(plan, "lost")[0].constraint == "volumes"


def test_several_volumes_are_brought_together() -> None:
    """One that may be in two places goes where the other one is."""
    objects = [
        *bound("one", in_zone("zone-a"), in_zone("zone-c")),
        *bound("two", in_zone("zone-b", "zone-c")),
    ]
    assert the_claim(over([a_user("one", "two")], *objects)).instance_types == ("in-zone-c",)


def test_pods_with_volumes_in_different_zones_get_a_machine_each() -> None:
    """However well they would fit on one."""
    objects = [*bound("one", in_zone("zone-a")), *bound("two", in_zone("zone-b"))]
    pods = [a_user("one", name="first"), a_user("two", name="second")]
    assert domains(planned(over(pods, *objects))) == {"zone-a": 1, "zone-b": 1}


@pytest.mark.parametrize(
    ("zone", "terms", "there"),
    [
        ("zone-a", [in_zone("zone-a")], True),
        ("zone-a", [in_zone("zone-b")], False),
        ("zone-a", [in_zone("zone-b"), in_zone("zone-a")], True),
        ("zone-a", [a_term((labels.KUBERNETES_HOSTNAME, "In", ["node"]))], True),
        ("zone-a", [a_term((labels.KUBERNETES_HOSTNAME, "In", ["other"]))], False),
        ("zone-a", [], True),
    ],
)
def test_a_node_takes_a_pod_whose_volume_it_can_reach(
    zone: str, terms: list[NodeSelectorTerm], there: bool
) -> None:
    """Its labels have to match one of the volume's terms."""
    node = a_view("node", labels={labels.ZONE: zone, labels.KUBERNETES_HOSTNAME: "node"})
    plan = planned(over([a_user("data")], *bound("data", *terms), nodes=[node]))
    assert (places(plan).get("pod") == "node") == there


def test_a_local_volume_binds_its_pod_to_its_host_nowhere() -> None:
    """Karpenter replaces nodes: the host of a local volume is left out, its zone is not."""
    term = a_term((labels.KUBERNETES_HOSTNAME, "In", ["gone"]), (labels.ZONE, "In", ["zone-b"]))
    assert the_claim(over([a_user("data")], *bound("data", term, **LOCAL))).instance_types == ("in-zone-b",)


def test_volumes_take_part_in_a_spread_over_zones() -> None:
    """One of three is tied by its volume; the others get the zones that are left, for minDomains as well."""
    spec = spread(min_domains=3)
    data = Volume(name="data", persistent_volume_claim=PVCSource(claim_name="data"))
    tied = a_pod("web1", labels={"app": "web"}, spec={**spec, "volumes": [data]})
    free = [a_pod(f"web{i}", labels={"app": "web"}, spec=spec) for i in (2, 3)]
    problem = over([tied, *free], *bound("data", in_zone("zone-b")))
    plan = planned(problem)
    assert domains(plan) == {"zone-a": 1, "zone-b": 1, "zone-c": 1}
    (own,) = [c for c in plan.claims if "default/web1" in c.pods]
    assert own.requirements.single_value(labels.ZONE) == "zone-b"


def test_a_pool_in_other_zones_is_no_help() -> None:
    """The refusal tells which pool cannot go where the volume is."""
    pools = [a_nodepool(requirements=[(labels.ZONE, "In", ["zone-a"])])]
    plan = planned(over([a_user("data")], *bound("data", in_zone("zone-b")), pools=pools))
    assert refused(plan) == ["pod"]
    assert "zone" in refusals(plan)[0].message
