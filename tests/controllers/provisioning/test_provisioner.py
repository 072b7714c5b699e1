"""From pending pods to machines: once, within limits, whatever happens in between."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from karpenter.apis import labels as known
from karpenter.apis.core import Pod, PVCSource, Service, ServiceSpec, TopologySpreadConstraint, Volume
from karpenter.apis.karpenter import NodeClaim
from karpenter.apis.meta import ObjectMeta
from karpenter.base.virtualtime import run_virtual
from karpenter.cloudprovider import InsufficientCapacity
from karpenter.controllers.context import Settings
from karpenter.kube.transport import Response, TransportError
from karpenter.state.reservations import planned_pods
from karpenter.testing.builders import a_nodepool, a_pod, some_pods
from karpenter.testing.environment import Environment, environment
from karpenter.testing.storage import a_claim, a_storage_class, a_user

APART = TopologySpreadConstraint(
    max_skew=1, topology_key=known.KUBERNETES_HOSTNAME, when_unsatisfiable="DoNotSchedule"
)
"""At most one pod more on any node than on the emptiest."""


def test_pending_pods_get_a_node() -> None:
    """Pods without a node get one: claim, launch, registration, initialization, binding."""

    async def scenario() -> None:
        async with environment() as env:
            await env.create(a_nodepool())
            pods = await env.create_all(some_pods(2))
            await env.expect_provisioned(pods, claims=1)
            claim = (await env.claims())[0]
            claim = await env.expect_condition(claim.name, "Ready")
            assert planned_pods(claim) == tuple(p.key for p in pods)
            assert claim.metadata.owner_references[0].kind == "NodePool"
            assert claim.status.node_name == claim.name
            node = (await env.nodes())[0]
            assert not node.spec.taints
            assert node.metadata.labels["karpenter.sh/initialized"] == "true"
            await env.expect_event("Nominated")
            created = env.metric(
                "karpenter_nodeclaims_created_total",
                reason="provisioned",
                nodepool="default",
                min_values_relaxed="false",
            )
            assert created == 1
            assert env.metric("karpenter_nodes_created_total", nodepool="default", zone="zone-a") == 1

    run_virtual(scenario())


def test_slow_machines_are_not_bought_twice() -> None:
    """While machines take long to launch and to join, their pods trigger again and again, in vain."""

    async def scenario() -> None:
        async with environment() as env:
            env.cloud.create_seconds, env.cloud.join_seconds = 45.0, 120.0
            await env.create(a_nodepool())
            pods = await env.create_all(some_pods(40, cpu="900m"))
            await env.wait(30)
            claims = len(await env.claims())
            await env.expect_provisioned(pods, claims=claims, within=300)

    run_virtual(scenario())


def test_an_unlaunched_claim_does_not_hold_up_others() -> None:
    """Pods that come while a claim hangs in its launch get machines of their own at once."""

    async def scenario() -> None:
        async with environment() as env:
            await env.create(a_nodepool())
            env.cloud.create_seconds = 200.0
            early = await env.create_all(some_pods(2, "early"))
            await env.expect_claims(1, within=10)
            env.cloud.create_seconds = 0.0
            late = await env.create_all(some_pods(2, "late"))

            async def two_run() -> bool:  # which two is the scheduler's choice
                return sum(bool(p.spec.node_name) for p in await env.client.list(Pod)) == 2

            await env.expect("two pods are bound", two_run, within=15)
            assert len(env.cloud.created) == 1
            await env.expect_provisioned([*early, *late], claims=2, within=300)

    run_virtual(scenario())


async def _bought(kills: list[float], count: int) -> int:
    async with environment() as env:
        env.cloud.create_seconds, env.cloud.join_seconds = 2.0, 6.0
        await env.create(a_nodepool())
        pods = await env.create_all(some_pods(count, cpu="1300m"))
        for pause in kills:
            await env.wait(pause)
            await env.restart()
        await env.expect_scheduled(pods, within=120)
        await env.wait(60)
        assert len(await env.claims()) == len(env.cloud.instances) == len(env.cloud.created)
        return len(env.cloud.created)


@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(kills=st.lists(st.floats(0.0, 5.0), min_size=1, max_size=3))
def test_a_killed_operator_buys_nothing_twice(kills: list[float]) -> None:
    """Killed at any moments and started again without memory, it buys what it would have bought anyway."""
    assert run_virtual(_bought(kills, 12)) == run_virtual(_bought([], 12))


def test_lost_answers_to_creates_buy_nothing_twice() -> None:
    """A create that was carried out but never answered is found again by its name."""

    class Lossy:
        """Loses the answer to the first creates of NodeClaims."""

        def __init__(self, inner: object) -> None:
            self._inner = inner
            self.lost = 0

        def __getattr__(self, name: str) -> object:
            return getattr(self._inner, name)

        async def request(self, method: str, path: str, **more: object) -> Response:
            answer: Response = await self._inner.request(method, path, **more)  # type: ignore[attr-defined]
            if method == "POST" and path.endswith("/nodeclaims") and self.lost < 5:
                self.lost += 1
                raise TransportError("connection reset")
            return answer

    async def scenario() -> None:
        async with environment(transport=Lossy) as env:
            await env.create(a_nodepool())
            pods = await env.create_all(some_pods(12, cpu="1300m"))
            await env.expect_scheduled(pods)
            assert len(env.cloud.created) == len(await env.claims())
            planned = [key for claim in await env.claims() for key in planned_pods(claim)]
            assert sorted(planned) == sorted({p.key for p in pods})

    run_virtual(scenario())


def test_pods_of_a_failed_launch_are_planned_anew() -> None:
    """Without capacity the claim goes, an event tells, and its pods get another machine at once."""

    async def scenario() -> None:
        async with environment() as env:
            env.cloud.next_errors = [InsufficientCapacity("none left")]
            await env.create(a_nodepool())
            pods = await env.create_all(some_pods(2))
            await env.expect_provisioned(pods, claims=1, within=20)
            await env.expect_event("InsufficientCapacityError")
            assert (
                env.metric(
                    "karpenter_nodeclaims_disrupted_total",
                    reason="insufficient_capacity",
                    nodepool="default",
                    capacity_type="spot",
                    consolidation_policy="",
                    termination_mode="graceful",
                )
                + env.metric(
                    "karpenter_nodeclaims_disrupted_total",
                    reason="insufficient_capacity",
                    nodepool="default",
                    capacity_type="",
                    consolidation_policy="",
                    termination_mode="graceful",
                )
                == 1
            )

    run_virtual(scenario())


async def _cores(env: Environment) -> int:
    return sum(int(str(c.status.capacity.get("cpu", "0"))) for c in await env.claims())


@pytest.mark.parametrize("limit", [2, 4, 10])
def test_limits_hold_over_many_batches(limit: int) -> None:
    """However many waves of pods come while claims are on their way, the pool's limit is never passed."""

    async def scenario() -> None:
        async with environment() as env:
            env.cloud.create_seconds, env.cloud.join_seconds = 20.0, 20.0
            await env.create(a_nodepool(limits={"cpu": str(limit)}))
            for wave in range(5):
                await env.create_all(some_pods(4, f"wave{wave}"))
                await env.wait(6)
            await env.wait(120)
            assert 0 < await _cores(env) <= limit
            await env.expect_event("FailedScheduling")

    run_virtual(scenario())


def test_pods_that_nothing_can_be_done_for_are_told_so() -> None:
    """A pod with an unknown volume claim gets an event and no machine; it does not stop the others."""

    async def scenario() -> None:
        async with environment() as env:
            await env.create(a_nodepool())
            data = Volume(name="data", persistent_volume_claim=PVCSource(claim_name="absent"))
            await env.create(a_pod("stuck", spec={"volumes": [data]}))
            good = await env.create(a_pod("good"))
            await env.expect_provisioned([good], claims=1)
            event = await env.expect_event("FailedScheduling")
            assert event.involved_object.name == "stuck"
            assert "persistentvolumeclaim default/absent not found" in event.message

    run_virtual(scenario())


def test_no_machine_for_a_pool_that_is_not_ready() -> None:
    """A pool whose node class is missing buys nothing until the class is there."""

    async def scenario() -> None:
        async with environment() as env:
            pool = a_nodepool()
            reference = type(pool.spec.template.spec.node_class_ref)(
                group="karpenter.kwok.sh", kind="KWOKNodeClass", name="absent"
            )
            await env.create(a_nodepool(node_class=reference))
            pod = await env.create(a_pod())
            await env.expect_not_scheduled([pod])
            assert not await env.claims()

    run_virtual(scenario())


def test_the_same_history_twice_is_the_same() -> None:
    """Two runs from one seed create the same claims with the same pods at the same moments."""

    async def history() -> list[tuple[str, str, tuple[str, ...]]]:
        async with environment() as env:
            await env.create(a_nodepool())
            pods: list[Pod] = await env.create_all(some_pods(9, cpu="700m"))
            await env.expect_scheduled(pods)
            claims: list[NodeClaim] = await env.claims()
            return [(c.name, c.metadata.creation_timestamp or "", planned_pods(c)) for c in claims]

    assert run_virtual(history()) == run_virtual(history())


@pytest.mark.parametrize(("defaults", "claims"), [((), 1), ((APART,), 3)])
def test_default_constraints_spread_pods_that_bring_none(
    defaults: tuple[TopologySpreadConstraint, ...], claims: int
) -> None:
    """With the pods that their Service selects; small enough for one machine, they get one each."""

    async def scenario() -> None:
        async with environment(settings=Settings(default_spread=defaults)) as env:
            await env.create(a_nodepool())
            await env.create(
                Service(
                    api_version="v1",
                    kind="Service",
                    metadata=ObjectMeta(name="web", namespace="default"),
                    spec=ServiceSpec(selector={"app": "web"}),
                )
            )
            await env.wait(1)
            pods = await env.create_all(some_pods(3, cpu="100m", labels={"app": "web"}))
            await env.expect_provisioned(pods, claims=claims)

    run_virtual(scenario())


def test_a_pod_that_names_its_host_waits_for_it() -> None:
    """It gets its place on that node when there is room, and no other machine is bought for it."""

    async def scenario() -> None:
        async with environment() as env:
            await env.create(a_nodepool())
            await env.expect_provisioned([await env.create(a_pod("first"))], claims=1)
            host = (await env.nodes())[0].name
            selector = {known.KUBERNETES_HOSTNAME: host}
            fits = await env.create(a_pod("fits", cpu="100m", node_selector=selector))
            await env.expect_provisioned([fits], claims=1)
            await env.create(a_pod("too-large", cpu="64", node_selector=selector))
            await env.wait(60)
            assert len(await env.claims()) == 1
            event = await env.expect_event("FailedScheduling")
            assert event.involved_object.name == "too-large"

    run_virtual(scenario())


def test_a_claim_for_one_pod_at_a_time_buys_one_machine() -> None:
    """The second pod waits for the first, on no machine of its own, and is told so."""

    async def scenario() -> None:
        async with environment() as env:
            claim = a_claim(storage_class="fast", access_modes=["ReadWriteOncePod"])
            await env.create_all([a_nodepool(), a_storage_class(), claim])
            first = await env.create(a_user("data", name="first"))
            await env.expect_provisioned([first], claims=1)
            await env.create(a_pod("second", cpu="8", spec={"volumes": first.spec.volumes}))
            event = await env.expect_event("FailedScheduling")
            assert "ReadWriteOncePod is in use by pod default/first" in event.message
            await env.wait(30)
            assert len(await env.claims()) == 1

    run_virtual(scenario())
