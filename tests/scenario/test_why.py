"""Staged situations: `karpenter why` names the true cause, and a change that, once made, does unlock it.

The question goes the whole way: Lease, pod proxy, leader; the change is made as it is given, patch by patch.
"""

from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from karpenter.apis.core import Node, Pod
from karpenter.apis.karpenter import NodeClaim, NodePool
from karpenter.base.virtualtime import run_virtual
from karpenter.cli.why import MISTAKEN, Unanswered, WhyOptions, ask
from karpenter.embedded.patches import json_patch
from karpenter.explain.answer import Answer, Change
from karpenter.explain.text import answer_text
from karpenter.kube.errors import error_of
from karpenter.kube.patch import merge
from karpenter.operator.health import without_socket
from karpenter.operator.options import parse_options
from karpenter.testing.manifests import deployment, disruption_budget, node_class, pod_spec, pool
from karpenter.testing.world import World, world

PORT = 8080
ZONE = "topology.kubernetes.io/zone"


async def serve_operator(w: World) -> None:
    """Give the operator the pod behind which it answers, whichever run of it is on."""
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "karpenter-0", "namespace": "kube-system"}}
    await w.apply({**pod, "spec": {"schedulerName": "nobody", "containers": [{"name": "c", "image": "k"}]}})

    async def backend(method: str, path: str, query: Any) -> Any:
        operator = w.operator
        return await without_socket(operator.metrics, operator.why)(method, path, query)

    w.kubernetes.server.proxy.serve("kube-system", "karpenter-0", PORT, backend)


async def why(w: World, kind: str, name: str, namespace: str = "default") -> Answer:
    options = WhyOptions(
        kind=kind,
        name=name,
        namespace=namespace,
        output="json",
        kubeconfig="",
        context="",
        operator_namespace="kube-system",
        lease="karpenter-leader-election",
        port=PORT,
        address="",
    )
    answer = msgspec.json.decode(await ask(options, w.client.transport), type=Answer)
    assert answer_text(answer).startswith(f"{answer.kind} ")
    return answer


async def make(w: World, changes: tuple[Change, ...]) -> None:
    """Make exactly what an answer says."""
    assert changes
    for change in changes:
        assert not change.option
        where = {"apiVersion": change.api_version, "kind": change.kind}
        path = w._path({**where, "metadata": {"name": change.name, "namespace": change.namespace}})
        patch = msgspec.json.encode(change.patch)
        if change.recreate:
            await recreate(w, path, msgspec.json.decode(patch))
            continue
        kind = "application/json-patch+json"
        response = await w.client.transport.request("PATCH", path, body=patch, content_type=kind)
        if response.status >= 400:
            raise error_of(response.status, response.body)


async def recreate(w: World, path: str, patch: Any) -> None:
    """Delete the object and create it with the patch applied, as `kubectl replace --force` would."""
    transport = w.client.transport
    obj = msgspec.json.decode((await transport.request("GET", path)).body)
    changed = json_patch(obj, patch)
    changed["metadata"] = {
        k: changed["metadata"][k] for k in ("name", "namespace", "labels") if k in changed["metadata"]
    }
    del changed["status"]
    await transport.request("DELETE", path, query={"gracePeriodSeconds": "0"})
    response = await transport.request("POST", path.rpartition("/")[0], body=msgspec.json.encode(changed))
    assert response.status == 201, response.body


def a_pod(name: str, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "labels": {"app": name}},
        "spec": pod_spec(**spec),
    }


async def runs(w: World, app: str) -> bool:
    pods = await w.pods(app)
    return bool(pods) and all(pod.spec.node_name for pod in pods)


async def the_pending(w: World, app: str) -> Pod:
    return next(pod for pod in await w.pods(app) if not pod.spec.node_name)


# --- pods that wait -------------------------------------------------------------------------------------


@pytest.mark.parametrize("workload", [True, False])
def test_a_pod_that_is_too_big(workload: bool) -> None:
    """The answer says what the largest machine has; a pod that asks for so much runs."""

    async def scenario() -> None:
        async with world() as w:
            await serve_operator(w)
            big: dict[str, Any] = {"cpu": "1000", "memory": "1Gi"}
            await w.apply(
                [node_class(), pool(), deployment("big", 1, **big) if workload else a_pod("big", **big)]
            )
            await w.wait(20)
            pod = await the_pending(w, "big")
            answer = await why(w, "pod", pod.name)
            assert answer.code == "resources"
            assert "no instance type has enough resources" in answer.summary
            assert answer.remedy.startswith("request at most ")
            assert answer.findings[0].works
            assert answer.findings[0].price_per_hour
            (change,) = answer.changes
            assert change.kind == ("Deployment" if workload else "Pod")
            assert change.recreate is not workload
            await make(w, answer.changes)
            await w.until("it runs", lambda: runs(w, "big"))

    run_virtual(scenario())


def test_a_spread_over_zones_that_cannot_be() -> None:
    """Zones that the pool may not buy in count as empty; the answer names the constraint to relax."""

    async def scenario() -> None:
        async with world() as w:
            await serve_operator(w)
            spread = [
                {
                    "maxSkew": 1,
                    "minDomains": 3,
                    "topologyKey": ZONE,
                    "whenUnsatisfiable": "DoNotSchedule",
                    "labelSelector": {"matchLabels": {"app": "web"}},
                }
            ]
            only = [{"key": ZONE, "operator": "In", "values": ["test-zone-a"]}]
            await w.apply([node_class(), pool(requirements=only)])
            await w.apply(deployment("web", 3, topologySpreadConstraints=spread))
            await w.wait(30)
            pod = await the_pending(w, "web")
            answer = await why(w, "pod", pod.name)
            assert answer.code == "topologySpread"
            assert "unsatisfiable topology constraint for spread" in answer.summary
            assert answer.findings[0].works
            await make(w, answer.changes)
            await w.until_replicas("web", 3)

    run_virtual(scenario())


# --- nodes that stay ------------------------------------------------------------------------------------


GATE = "--feature-gates=SpotToSpotConsolidation=true"
SPOT = {"key": "karpenter.sh/capacity-type", "values": ["spot"]}
ON_DEMAND = {"key": "karpenter.sh/capacity-type", "values": ["on-demand"]}
PROTECT = {"karpenter.sh/do-not-disrupt": "true"}
CPU = "karpenter.kwok.sh/instance-cpu"


def requires(*specs: dict[str, Any]) -> dict[str, Any]:
    """Return the default pool with these requirements; what it is changed to later drifts no node."""
    return pool(requirements=[{"operator": "In", **spec} for spec in specs])


async def a_node_too_large(w: World, *extra: dict[str, Any], on_node: bool = False, **more: Any) -> str:
    """Let a small pod run on a large node that something keeps, and then let the pool buy smaller ones.

    What keeps it: `extra` objects, what `more` says of the pod, or with `on_node` an annotation of the node.
    """
    await serve_operator(w)
    await w.apply([node_class(), requires(ON_DEMAND, {"key": CPU, "values": ["16"]}), *extra])
    await w.apply(deployment("web", 1, cpu="500m", **more))
    await w.until_replicas("web", 1)
    (node,) = await w.nodes()
    if on_node:
        await w.client.patch(Node, node.name, merge({"metadata": {"annotations": PROTECT}}))
    await w.apply(requires(ON_DEMAND, {"key": CPU, "values": ["1", "2", "16"]}))
    await w.wait(120)
    return node.name


def replaced(w: World, node: str) -> Callable[[], Awaitable[bool]]:
    async def holds() -> bool:
        return node not in [n.name for n in await w.nodes()] and await runs(w, "web")

    return holds


def test_a_budget_that_allows_no_eviction() -> None:
    """The answer names the PodDisruptionBudget and its arithmetic; with the change the node is replaced."""

    async def scenario() -> None:
        async with world() as w:
            node = await a_node_too_large(w, disruption_budget("web", minAvailable=1))
            answer = await why(w, "node", node)
            assert answer.code == "podDisruptionBudget"
            assert "PodDisruptionBudget=[default/web]" in answer.summary
            assert "can never allow an eviction" in answer.remedy
            assert 0.3 < (answer.findings[0].saving_per_hour or 0) < 0.43436
            (change,) = answer.changes
            assert (change.kind, change.name) == ("PodDisruptionBudget", "web")
            await make(w, answer.changes)
            await w.until("the node is replaced", replaced(w, node), within=600)

    run_virtual(scenario())


@pytest.mark.parametrize("owner", ["Pod", "Node"])
def test_do_not_disrupt(owner: str) -> None:
    """The answer names what carries the annotation; without it the node is replaced."""

    async def scenario() -> None:
        async with world() as w:
            node = await a_node_too_large(
                w, annotations=PROTECT if owner == "Pod" else None, on_node=owner == "Node"
            )
            answer = await why(w, "node", node)
            assert answer.code == ("podDoNotDisrupt" if owner == "Pod" else "doNotDisrupt")
            assert '"karpenter.sh/do-not-disrupt" annotation' in answer.summary
            (change,) = answer.changes
            assert change.kind == owner
            await make(w, answer.changes)
            await w.until("the node is replaced", replaced(w, node), within=600)

    run_virtual(scenario())


@pytest.mark.parametrize("search", ["sets", "upstream"])
def test_a_spot_node_whose_pool_allows_too_few_types(search: str) -> None:
    """Eight cheaper types are not fifteen: the answer names the types to allow; with them it is replaced."""
    small = [f"{family}-{size}x-amd64-linux" for family in "cms" for size in (1, 2)]

    def types(*names: str) -> dict[str, Any]:
        return requires(SPOT, {"key": "node.kubernetes.io/instance-type", "values": list(names)})

    async def scenario() -> None:
        async with world(arguments=(GATE, f"--consolidation-search={search}")) as w:
            await serve_operator(w)
            await w.apply([node_class(), types("m-64x-amd64-linux"), deployment("web", 1, cpu="500m")])
            await w.until_replicas("web", 1)
            await w.apply(types("m-64x-amd64-linux", *small))
            await w.wait(120)
            (node,) = await w.nodes()
            answer = await why(w, "node", node.name)
            assert answer.code == "spotToSpot"
            assert "requires 15 cheaper instance type options than the current candidate" in answer.summary
            assert answer.findings[0].saving_per_hour
            (change,) = answer.changes
            assert (change.kind, change.name, len(change.patch)) == ("NodePool", "default", 1)
            await make(w, answer.changes)
            await w.until("the node is replaced", replaced(w, node.name), within=600)

    run_virtual(scenario())


def test_spot_for_spot_behind_its_gate() -> None:
    """While the gate is off, the change is the operator's option; started with it, the node is replaced."""

    async def scenario() -> None:
        async with world() as w:
            await serve_operator(w)
            await w.apply([node_class(), requires(SPOT, {"key": CPU, "values": ["16"]})])
            await w.apply(deployment("web", 1, cpu="500m"))
            await w.until_replicas("web", 1)
            await w.apply(requires(SPOT))
            await w.wait(120)
            (node,) = await w.nodes()
            answer = await why(w, "node", node.name)
            assert answer.code == "spotToSpot"
            (change,) = answer.changes
            w._options = parse_options((change.option,), {})
            await w.restart_operator(graceful=True)
            await w.until("the node is replaced", replaced(w, node.name), within=600)

    run_virtual(scenario())


def test_everything_has_an_answer_at_any_moment() -> None:
    """Machines come, drain and go: whatever is asked about is answered, or is gone by then."""
    codes: Counter[str] = Counter()

    async def all_asked(w: World) -> None:
        for kind, objects in (
            ("pod", await w.pods()),
            ("node", await w.nodes()),
            ("nodeclaim", await w.claims()),
            ("nodepool", await w.client.list(NodePool)),
        ):
            for obj in objects:
                try:
                    codes[f"{kind}/{(await why(w, kind, obj.name)).code}"] += 1
                except Unanswered as error:  # it is gone, or the operator does not know of it yet
                    if error.code != MISTAKEN:
                        raise

    async def scenario() -> None:
        async with world() as w:
            await serve_operator(w)
            four = {"key": CPU, "values": ["4"]}
            await w.apply([node_class(delay="5s"), requires(four), disruption_budget("held", minAvailable=1)])
            await w.apply([deployment("web", 6, cpu="1500m"), deployment("held", 1, cpu="1")])
            await w.apply(deployment("lost", 1, nodeSelector={"team": "blue"}))
            for step in range(60):
                await w.wait(2)
                await all_asked(w)
                if step == 15:
                    await w.scale("web", 1)
                if step == 40:
                    claims = await w.claims()
                    await w.client.delete(NodeClaim, claims[0].name)

    run_virtual(scenario())
    seen = {
        *("pod/expected", "pod/bound", "pod/requirements", "node/podDisruptionBudget", "node/nominated"),
        *("nodeclaim/NodeNotReady", "node/deleting", "nodepool/ready"),
    }
    assert seen <= set(codes), dict(codes)


def test_a_drifted_node_without_room_for_its_replacement() -> None:
    """The pool's limit leaves no second node: the answer raises it by what that takes, and the node goes."""

    async def scenario() -> None:
        async with world() as w:
            await serve_operator(w)
            sized = [{"key": CPU, "operator": "In", "values": ["16"]}]
            await w.apply([node_class(), pool(requirements=sized, limits={"cpu": "20"})])
            await w.apply(deployment("web", 1, cpu="500m"))
            await w.until_replicas("web", 1)
            (node,) = await w.nodes()
            await w.apply(pool(requirements=sized, limits={"cpu": "20"}, labels={"team": "blue"}))
            await w.wait(60)
            answer = await why(w, "node", node.name)
            assert answer.code == "noPlace"
            assert answer.findings[0].about == "drift"
            assert "exceed limits for nodepool" in answer.summary
            (change,) = answer.changes
            assert [(o.op, o.path, o.value) for o in change.patch] == [("replace", "/spec/limits/cpu", "32")]
            await make(w, answer.changes)
            await w.until("the node is replaced", replaced(w, node.name), within=300)

    run_virtual(scenario())
