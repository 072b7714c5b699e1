"""What a NodeClaim carries: everything its machine must be, and where it comes from."""

import pytest

from karpenter.apis import labels
from karpenter.apis.core import Taint
from karpenter.apis.karpenter import NodeClaim, NodeClassRef, NodePool, RequirementSpec
from karpenter.apis.nodepool_hash import nodepool_hash
from karpenter.base.virtualtime import run_virtual
from karpenter.controllers.provisioning.claims import claim_for, create_claims
from karpenter.kube.patch import merge
from karpenter.testing.builders import (
    Expression,
    a_daemon,
    a_nodepool,
    a_pod,
    a_problem,
    a_term,
    an_instance_type,
    node_affinity,
)
from karpenter.testing.environment import environment
from karpenter.testing.fakeprovider import FakeCloud, FakeProvider
from karpenter.testing.outcomes import the_claim

TEAM = "example.com/team"
CORES = "example.com/cores"
TYPES = [
    an_instance_type(f"t{n}", cpu=str(n), memory=f"{4 * n}Gi", labels={CORES: str(n)}) for n in (2, 4, 8)
]
WELL_KNOWN = labels.WELL_KNOWN_LABELS | {CORES}


def created(pool: NodePool | None = None, *, strict: bool = True, **pod: object) -> NodeClaim:
    """Return the NodeClaim for one pod and one daemon."""
    problem = a_problem(
        [a_pod(**pod)],  # type: ignore[arg-type]
        pools=[pool or a_nodepool()],
        instance_types=TYPES,
        daemons=[a_daemon(cpu="100m", memory="128Mi")],
        well_known_labels=WELL_KNOWN,
        min_values_strict=strict,
    )
    planned = the_claim(problem)
    return claim_for(planned, "default-abcde", nodepool_hash(planned.pool), TYPES, WELL_KNOWN)


def required(claim: NodeClaim) -> dict[str, list[tuple[str, list[str]]]]:
    """Return a claim's requirements by key."""
    found: dict[str, list[tuple[str, list[str]]]] = {}
    for r in claim.spec.requirements:
        found.setdefault(r.key, []).append((r.operator, list(r.values or [])))
    return found


def test_the_template_is_carried_over() -> None:
    """Labels, annotations, taints of both kinds, node class, expiry and grace period are the pool's."""
    taint, startup = Taint(key="a", effect="NoExecute"), Taint(key="b", effect="NoSchedule")
    pool = a_nodepool(
        "pool",
        labels={TEAM: "blue"},
        annotations={"example.com/note": "x"},
        taints=[Taint(key="soft", effect="PreferNoSchedule")],
        startup_taints=[taint, startup],
        node_class=NodeClassRef(group="karpenter.kwok.sh", kind="KWOKNodeClass", name="special"),
        expire_after="24h",
        termination_grace_period="5m",
    )
    claim = created(pool)
    assert claim.metadata.labels[TEAM] == "blue"
    assert claim.metadata.annotations["example.com/note"] == "x"
    assert [t.key for t in claim.spec.taints] == ["soft"]
    assert claim.spec.startup_taints == [taint, startup]
    assert claim.spec.node_class_ref.name == "special"
    assert (claim.spec.expire_after, claim.spec.termination_grace_period) == ("24h", "5m")


def test_a_claim_knows_its_pool_and_class() -> None:
    """By label, by owner reference and by the hash of the template it was made from."""
    pool = a_nodepool("pool")
    claim = created(pool)
    assert claim.metadata.labels[labels.NODEPOOL] == "pool"
    assert claim.metadata.labels["karpenter.kwok.sh/kwoknodeclass"] == "default"
    (owner,) = claim.metadata.owner_references
    assert (owner.api_version, owner.kind, owner.name) == ("karpenter.sh/v1", "NodePool", "pool")
    assert owner.uid == pool.metadata.uid
    assert owner.block_owner_deletion
    assert not owner.controller
    assert claim.metadata.annotations[labels.NODEPOOL_HASH] == nodepool_hash(pool)
    assert claim.metadata.annotations[labels.NODEPOOL_HASH_VERSION] == "v3"
    assert labels.TERMINATION_FINALIZER in claim.metadata.finalizers
    assert claim.metadata.generate_name == "pool-"


def test_requests_are_those_of_pods_and_daemons_once() -> None:
    """One core and the daemon's tenth, two pods: nothing is counted twice."""
    claim = created(cpu="1", memory="1Gi")
    assert claim.spec.resources.requests == {"cpu": "1100m", "memory": "1152Mi", "pods": "2"}


@pytest.mark.parametrize(
    ("term", "listed"),
    [
        ((labels.ZONE, "In", ["zone-a"]), [("In", ["zone-a"])]),
        ((labels.ZONE, "NotIn", ["zone-a"]), [("NotIn", ["zone-a"])]),
        ((labels.ARCH, "In", ["amd64"]), [("In", ["amd64"])]),
        ((CORES, "Gt", ["2"]), [("Gte", ["3"])]),
        ((CORES, "Lt", ["8"]), [("Lte", ["7"])]),
        ((CORES, "Gte", ["4"]), [("Gte", ["4"])]),
        ((CORES, "Exists", []), [("Exists", [])]),
    ],
)
def test_requirements_of_pods_are_requirements_of_the_claim_not_labels(
    term: Expression, listed: list[tuple[str, list[str]]]
) -> None:
    """Labels that the cloud sets are required; which value the machine gets is for the cloud to say."""
    claim = created(affinity=node_affinity(required=[a_term(term)]))
    assert required(claim)[term[0]] == listed
    assert term[0] not in claim.metadata.labels


def test_bounds_on_both_sides_are_two_entries() -> None:
    """Between 3 and 7, excluding 5: nothing of it is lost."""
    terms: list[Expression] = [(CORES, "Gt", ["2"]), (CORES, "Lt", ["8"]), (CORES, "NotIn", ["5"])]
    claim = created(affinity=node_affinity(required=[a_term(*terms)]))
    assert required(claim)[CORES] == [("Gte", ["3"]), ("Lte", ["7"]), ("NotIn", ["5"])]


@pytest.mark.parametrize(
    ("of_pool", "of_pod", "label"),
    [
        ((TEAM, "In", ["blue"]), None, "blue"),
        ((TEAM, "In", ["blue", "red"]), ("In", ["red"]), "red"),
        ((TEAM, "Exists", []), ("In", ["green"]), "green"),
        ((TEAM, "In", ["4", "3"]), ("NotIn", ["3"]), "4"),
        ((TEAM, "Gt", ["6"]), None, "7"),
        ((TEAM, "NotIn", ["blue"]), None, None),
        ((TEAM, "DoesNotExist", []), None, None),
    ],
)
def test_custom_requirements_become_labels(
    of_pool: Expression, of_pod: tuple[str, list[str]] | None, label: str | None
) -> None:
    """Nobody else sets such a label: the claim gets a value that is allowed, unless it may go without."""
    affinity = node_affinity(required=[a_term((TEAM, *of_pod))]) if of_pod else None
    claim = created(a_nodepool(requirements=[of_pool]), affinity=affinity)
    assert claim.metadata.labels.get(TEAM) == label


def test_types_and_capacity_types_are_listed() -> None:
    """What fits, and how it is sold."""
    listed = required(created(cpu="3"))
    assert listed[labels.INSTANCE_TYPE] == [("In", ["t4", "t8"])]
    assert listed[labels.CAPACITY_TYPE] == [("In", ["on-demand"])]


def test_labels_of_the_simulation_are_left_out() -> None:
    """Host name, registered and initialized are nothing to ask of a cloud."""
    claim = created()
    for key in (labels.KUBERNETES_HOSTNAME, labels.REGISTERED, labels.INITIALIZED):
        assert key not in required(claim)
        assert key not in claim.metadata.labels


@pytest.mark.parametrize(
    ("strict", "minimum", "noted"), [(True, 2, "false"), (False, 2, "false"), (False, 9, "true")]
)
def test_min_values_are_carried_and_their_relaxation_noted(strict: bool, minimum: int, noted: str) -> None:
    """The requirement keeps its minValues; an annotation says whether they had to be lowered."""
    pool = a_nodepool(
        requirements=[RequirementSpec(key=labels.INSTANCE_TYPE, operator="Exists", min_values=minimum)]
    )
    claim = created(pool, strict=strict)
    assert claim.metadata.annotations[labels.MIN_VALUES_RELAXED] == noted
    (entry,) = [r for r in claim.spec.requirements if r.key == labels.INSTANCE_TYPE]
    assert entry.min_values == min(minimum, 3)


def test_two_bounds_both_carry_min_values() -> None:
    """Where one requirement needs two entries, each repeats the minValues."""
    pool = a_nodepool(
        requirements=[
            RequirementSpec(key=CORES, operator="Gt", values=["1"], min_values=2),
            RequirementSpec(key=CORES, operator="Lt", values=["9"]),
        ]
    )
    entries = [r for r in created(pool).spec.requirements if r.key == CORES]
    assert [(r.operator, r.min_values) for r in entries] == [("Gte", 2), ("Lte", 2)]


def test_labels_that_the_provider_knows_are_not_guessed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pod asks for more than two cores: the claim says so and leaves the number to the cloud."""
    monkeypatch.setattr(FakeProvider, "well_known_labels", frozenset({CORES}))

    async def scenario() -> None:
        async with environment(cloud=FakeCloud(TYPES)) as env:
            await env.create(a_nodepool())
            more = node_affinity(required=[a_term((CORES, "Gt", ["2"]))])
            await env.create(a_pod(affinity=more))
            (claim,) = await env.expect_claims(1)
            assert required(claim)[CORES] == [("Gte", ["3"])]
            assert claim.metadata.labels.get(CORES) != "3"

    run_virtual(scenario())


def test_a_claim_keeps_the_hash_of_the_template_it_was_made_from() -> None:
    """A pool that changes while its nodes are planned makes them drift at once, as it should."""

    async def scenario() -> None:
        async with environment() as env:
            pool = await env.create(a_nodepool(labels={TEAM: "red"}))
            await env.wait(5)
            planned = the_claim(a_problem([a_pod()], pools=[pool]))
            changed = merge({"spec": {"template": {"metadata": {"labels": {TEAM: "blue"}}}}})
            later = await env.client.patch(NodePool, pool.name, changed)
            await env.wait(5)
            (creation,) = await create_claims(env.operator.context, [planned], "provisioned")
            assert creation.claim is not None
            assert creation.claim.metadata.labels[TEAM] == "red"
            assert creation.claim.metadata.annotations[labels.NODEPOOL_HASH] == nodepool_hash(pool)
            assert nodepool_hash(pool) != nodepool_hash(later)

    run_virtual(scenario())


@pytest.mark.parametrize(
    ("of_cloud", "of_pool", "expected"),
    [(None, None, None), ("30m", None, "30m"), ("30m", "5m", "5m"), (None, "5m", "5m")],
)
def test_a_cloud_may_limit_terminations_where_the_pool_does_not(
    monkeypatch: pytest.MonkeyPatch, of_cloud: str | None, of_pool: str | None, expected: str | None
) -> None:
    """Its grace period is that of every claim whose pool sets none."""
    monkeypatch.setattr(FakeProvider, "default_termination_grace_period", of_cloud)

    async def scenario() -> None:
        async with environment() as env:
            await env.create(a_nodepool(termination_grace_period=of_pool))
            await env.create(a_pod())
            (claim,) = await env.expect_claims(1)
            assert claim.spec.termination_grace_period == expected

    run_virtual(scenario())
