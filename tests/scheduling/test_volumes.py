"""Where a pod's volumes let it run, and which keep it from running at all."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from karpenter.apis import labels
from karpenter.apis.core import CSISource, NodeSelectorTerm, Pod, PVCSource, Volume
from karpenter.model.requirements import Requirement, Requirements
from karpenter.model.volumerules import VolumeRules
from karpenter.scheduling.volumes import (
    VolumeProblem,
    alternatives,
    claim_keys,
    exclusive_users,
    volume_error,
)
from karpenter.testing.builders import a_pod, a_term, a_view, an_expression
from karpenter.testing.storage import (
    a_claim,
    a_storage_class,
    a_user,
    a_volume,
    an_ephemeral_volume,
    storage,
)

HOST = labels.KUBERNETES_HOSTNAME
ANYWHERE = Requirements()


def in_zones(*zones: str) -> NodeSelectorTerm:
    """Return a term that asks for one of `zones`."""
    return a_term((labels.ZONE, "In", zones))


def places(**permitted: str) -> Requirements:
    """Return what a node must be; keys are short names, values separated by spaces."""
    keys = {"zone": labels.ZONE, "arch": labels.ARCH, "host": HOST, "name": labels.NODE_NAME_FIELD}
    return Requirements.of(*(Requirement.of(keys[k], "In", v.split()) for k, v in permitted.items()))


BY_NAME = NodeSelectorTerm(match_fields=[an_expression("metadata.name", "In", ["n"])])


@pytest.mark.parametrize(
    ("terms", "spec", "expected"),
    [
        ((), {}, [ANYWHERE]),
        ((in_zones("a"),), {}, [places(zone="a")]),
        ((in_zones("a"), in_zones("b")), {}, [places(zone="a"), places(zone="b")]),
        (
            (a_term((labels.ZONE, "In", ["a"]), (labels.ARCH, "In", ["arm64"])),),
            {},
            [places(zone="a", arch="arm64")],
        ),
        ((a_term(("topology.ebs.csi.aws.com/zone", "In", ["a"])),), {}, [places(zone="a")]),
        ((a_term(("failure-domain.beta.kubernetes.io/zone", "In", ["a"])),), {}, [places(zone="a")]),
        ((a_term((HOST, "In", ["n"])),), {}, [places(host="n")]),
        ((BY_NAME,), {}, [places(name="n")]),
        ((a_term((HOST, "In", ["n"])),), {"local": {"path": "/"}}, [ANYWHERE]),
        ((BY_NAME,), {"local": {"path": "/"}}, [ANYWHERE]),
        (
            (a_term((HOST, "In", ["n"]), (labels.ZONE, "In", ["a"])),),
            {"host_path": {"path": "/"}},
            [places(zone="a")],
        ),
        ((NodeSelectorTerm(), in_zones("b")), {}, [places(zone="b")]),
    ],
)
def test_a_bound_volume_says_where_it_is(
    terms: tuple[NodeSelectorTerm, ...], spec: dict[str, Any], expected: list[Requirements]
) -> None:
    """Each term is an alternative; the host of a local volume is left out; empty terms match nothing."""
    snapshot = storage(a_claim("data", "pv"), a_volume("pv", *terms, spec=spec))
    assert alternatives(a_user("data"), snapshot) == expected


@pytest.mark.parametrize(
    ("topologies", "expected"),
    [
        ((), [ANYWHERE]),
        (([(labels.ZONE, ["a", "b"])],), [places(zone="a b")]),
        (([(labels.ZONE, ["a"])], [(labels.ZONE, ["b"])]), [places(zone="a"), places(zone="b")]),
        (([("topology.gke.io/zone", ["a"])],), [places(zone="a")]),
    ],
)
def test_an_unbound_claim_goes_where_its_class_allows(
    topologies: tuple[Any, ...], expected: list[Requirements]
) -> None:
    """Each of the allowed topologies is an alternative."""
    snapshot = storage(a_claim(storage_class="fast"), a_storage_class(topologies=topologies))
    assert alternatives(a_user("data"), snapshot) == expected


def test_a_claim_without_a_class_has_the_newest_default_one() -> None:
    """Its topology counts, as if the claim named it."""
    old = a_storage_class("old", default=True, created="2025-01-01T00:00:00Z", mode="Immediate")
    new = a_storage_class(
        "new", default=True, created="2026-01-01T00:00:00Z", topologies=[[(labels.ZONE, ["b"])]]
    )
    assert alternatives(a_user("data"), storage(a_claim(), old, new)) == [places(zone="b")]


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        (["a", "b"], ["b", "c"], [places(zone="b")]),
        (["a"], [], [places(zone="a")]),
        (["a", "b"], ["a", "b"], [places(zone="a"), places(zone="b")]),
        (["a"], ["b"], None),
    ],
)
def test_several_volumes_must_be_in_one_place(
    first: list[str], second: list[str], expected: list[Requirements] | None
) -> None:
    """Only combinations that a node can meet remain; without any, the volumes are named."""
    snapshot = storage(
        a_claim("one", "pv-one"),
        a_claim("two", "pv-two"),
        a_volume("pv-one", *(in_zones(z) for z in first)),
        a_volume("pv-two", *(in_zones(z) for z in second)),
    )
    if expected is None:
        with pytest.raises(VolumeProblem, match="volumes one, two have no place in common"):
            alternatives(a_user("one", "two"), snapshot)
    else:
        assert alternatives(a_user("one", "two"), snapshot) == expected


def test_too_many_combinations_are_refused() -> None:
    """With the volumes named, instead of searching for ever."""
    terms = {name: [a_term((f"example.com/{name}", "In", [str(i)])) for i in range(9)] for name in "ab"}
    snapshot = storage(
        *(a_claim(name, f"pv-{name}") for name in terms),
        *(a_volume(f"pv-{name}", *each) for name, each in terms.items()),
    )
    with pytest.raises(VolumeProblem, match="volumes a, b allow more than 64 combinations"):
        alternatives(a_user("a", "b"), snapshot)


@given(st.lists(st.sets(st.sampled_from("abcd"), min_size=1), min_size=1, max_size=5))
def test_a_place_is_one_of_every_volume(zones: list[set[str]]) -> None:
    """Any number of zonal volumes allows just the zones they share."""
    names = [f"v{i}" for i in range(len(zones))]
    snapshot = storage(
        *(a_claim(name, f"pv-{name}") for name in names),
        *(a_volume(f"pv-{n}", *(in_zones(z) for z in sorted(s))) for n, s in zip(names, zones, strict=True)),
    )
    shared = set.intersection(*zones)
    try:
        found = {r.single_value(labels.ZONE) for r in alternatives(a_user(*names), snapshot)}
    except VolumeProblem:
        found = set()
    assert found == shared


GONE = "2026-01-01T00:00:00Z"
FAST = a_storage_class()


@pytest.mark.parametrize(
    ("objects", "error"),
    [
        ([], "persistentvolumeclaim default/data not found"),
        ([a_claim(storage_class="fast"), FAST], ""),
        ([a_claim(storage_class="fast", deleted=GONE), FAST], "is being deleted"),
        ([a_claim(volume="pv", phase="Lost"), a_volume()], "has lost its volume"),
        ([a_claim(volume="pv"), a_volume()], ""),
        ([a_claim(volume="pv", storage_class=""), a_volume()], ""),
        ([a_claim(volume="pv", storage_class="missing"), a_volume()], ""),
        ([a_claim(volume="pv")], "persistentvolume pv of persistentvolumeclaim default/data not found"),
        ([a_claim(volume="pv"), a_volume(deleted=GONE)], "persistentvolume pv .* is being deleted"),
        ([a_claim(volume="pv", complete=False), a_volume()], "is not fully bound to persistentvolume pv yet"),
        ([a_claim()], "must define a storage class"),
        ([a_claim(), a_storage_class(default=True)], ""),
        ([a_claim(storage_class=""), a_storage_class(default=True)], "must define a storage class"),
        ([a_claim(storage_class="fast")], "storageclass fast of .* not found"),
        ([a_claim(storage_class="fast"), a_storage_class(mode="Immediate")], "is not yet bound"),
        ([a_claim(storage_class="fast"), a_storage_class(mode=None)], "is not yet bound"),
        ([a_claim(storage_class="fast"), a_storage_class(topologies=[[]])], "match no node"),
        ([a_claim(volume="pv"), a_volume("pv", NodeSelectorTerm())], "matches no node"),
    ],
)
def test_a_claim_must_be_in_order(objects: list[object], error: str) -> None:
    """What is missing, lost, going, or waiting for somebody else keeps the pod from any node."""
    if not error:
        assert alternatives(a_user("data"), storage(*objects)) == [ANYWHERE]
        return
    with pytest.raises(VolumeProblem, match=error):
        alternatives(a_user("data"), storage(*objects))


def test_an_ephemeral_volume_has_a_claim_of_its_own() -> None:
    """Called after pod and volume, and made for this pod; another pod's of that name will not do."""
    pod = a_pod("web", spec={"volumes": [an_ephemeral_volume("scratch")]})
    other = a_pod("other")
    assert claim_keys(pod) == ["default/web-scratch"]
    its = a_claim("web-scratch", storage_class="fast", owner=pod)
    assert alternatives(pod, storage(its, FAST)) == [ANYWHERE]
    for foreign in (a_claim("web-scratch", "pv", owner=other), a_claim("web-scratch", "pv")):
        with pytest.raises(VolumeProblem, match="default/web-scratch was not created for"):
            alternatives(pod, storage(foreign, a_volume()))


def going(pod: Pod) -> Pod:
    """Return `pod` as it is after its deletion was asked for."""
    return replace(pod, metadata=replace(pod.metadata, deletion_timestamp=GONE))


RULES = VolumeRules(
    unsupported_provisioners=frozenset({"kubernetes.io/aws-ebs"}),
    unsupported_topology_keys=frozenset({"example.com/rack"}),
)


@pytest.mark.parametrize(
    ("objects", "error"),
    [
        ([a_claim(storage_class="fast"), FAST], ""),
        ([a_claim(storage_class="fast"), a_storage_class(provisioner="ebs.csi.aws.com")], "provisioner ebs"),
        (
            [a_claim(storage_class="fast"), a_storage_class(provisioner="kubernetes.io/aws-ebs")],
            "provisioner",
        ),
        (
            [a_claim(volume="pv"), a_volume(spec={"csi": CSISource(driver="ebs.csi.aws.com")})],
            "persistentvolume pv: driver ebs",
        ),
        ([a_claim(volume="pv"), a_volume(spec={"aws_elastic_block_store": {}})], "driver ebs"),
        (
            [a_claim(storage_class="fast"), a_storage_class(topologies=[[("example.com/rack", ["1"])]])],
            "allowedTopologies uses key example.com/rack",
        ),
    ],
)
def test_a_provider_may_rule_storage_out(objects: list[object], error: str) -> None:
    """By provisioner, whether written the old way or the new, and by topology key; otherwise nothing is."""
    pod = a_user("data")
    found = volume_error(pod, pod.spec.volumes[0], storage(*objects), RULES)
    assert (error in found) if error else not found
    assert not volume_error(pod, pod.spec.volumes[0], storage(*objects))


@pytest.mark.parametrize(
    ("user", "marked", "mode", "users"),
    [
        (a_user("data", node_name="n"), False, "ReadWriteOncePod", {"default/data": "default/pod"}),
        (a_user("data", node_name="n"), False, "ReadWriteOnce", {}),
        (a_user("data", node_name="n"), True, "ReadWriteOncePod", {}),
        (a_user("data"), False, "ReadWriteOncePod", {}),
        (a_user("other", node_name="n"), False, "ReadWriteOncePod", {}),
        (going(a_user("data", node_name="n")), False, "ReadWriteOncePod", {}),
    ],
)
def test_who_has_what_only_one_may_use(user: Pod, marked: bool, mode: str, users: dict[str, str]) -> None:
    """A running pod on a node that stays; others give the claim up by themselves, or do not have it yet."""
    node = a_view("n", pods=[user], marked_for_deletion=marked)
    assert exclusive_users(storage(a_claim(access_modes=[mode]), nodes=(node,))) == users


def test_other_volumes_do_not_matter() -> None:
    """Config maps, empty directories and the like are everywhere."""
    pod: Pod = a_pod(spec={"volumes": [Volume(name="empty"), Volume(name="disk", gce_persistent_disk={})]})
    assert claim_keys(pod) == []
    assert alternatives(pod, storage()) == [ANYWHERE]
    assert claim_keys(
        a_pod(spec={"volumes": [Volume(name="v", persistent_volume_claim=PVCSource(claim_name="c"))]})
    ) == ["default/c"]
