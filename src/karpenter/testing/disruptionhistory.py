"""One random history of disruption: a small cluster that its users, its cloud and chance give no peace."""

from collections import Counter
from typing import Any

import msgspec

from karpenter.apis import conditions
from karpenter.apis.annotations import PRICE_LIMIT
from karpenter.apis.core import Node, Pod
from karpenter.apis.karpenter import NodeClaim
from karpenter.base.clock import format_time
from karpenter.kube.patch import merge, strategic
from karpenter.model import pods as podlib
from karpenter.testing.auditor import Auditor
from karpenter.testing.dice import Dice
from karpenter.testing.fakeprovider import FakeCloud
from karpenter.testing.faults import Faults
from karpenter.testing.manifests import Raw, disruption_budget, node_class, pod_spec, pool
from karpenter.testing.world import World, world

QUIET_SECONDS = 2400.0
"""So long nothing may have moved for the cluster to be at rest: longer than any wait or protection."""
RESTLESS_SECONDS = 4 * 3600.0
"""How long it may take to come to rest."""
SLACK_SECONDS = 3.0
"""How long the operator may be behind with what others do."""
FAULTY_SLACK_SECONDS = 120.0
"""… while requests fail."""
SPARE = "spare"
"""The pool that never runs out."""

_FAKE = "kwok.x-k8s.io/node"
_DO_NOT_DISRUPT = "karpenter.sh/do-not-disrupt"
_BUDGETS: tuple[list[Raw], ...] = (
    [{"nodes": "100%"}],
    [{"nodes": "10%"}],
    [{"nodes": "1"}],
    [{"nodes": "2"}],
    [{"nodes": "50%"}, {"nodes": "1", "reasons": ["Drifted"]}],
    [{"nodes": "100%"}, {"nodes": "1", "reasons": ["Underutilized", "Empty"]}],
    [{"nodes": "40%"}, {"nodes": "0", "schedule": "*/20 * * * *", "duration": "10m"}],
    [{"nodes": "0", "schedule": "@hourly", "duration": "30m"}, {"nodes": "1", "reasons": ["Drifted"]}],
    [{"nodes": "0"}],
)
_GUARDS: tuple[dict[str, Any] | None, ...] = (
    None,
    None,
    {"maxUnavailable": 1},
    {"minAvailable": 1},
    {"maxUnavailable": "40%"},
    {"minAvailable": "50%"},
    {"maxUnavailable": 1, "unhealthyPodEvictionPolicy": "AlwaysAllow"},
    {"maxUnavailable": 0},
)
_LIMITS: tuple[Raw, ...] = ({}, {"cpu": "24"}, {"nodes": 4}, {"cpu": "12", "nodes": 3})
_SIZES = ("250m", "500m", "1", "1700m", "3")


async def history(seed: int, dice: Dice) -> Counter[str]:
    """Live through one history; return what happened.

    Raises:
        AssertionError: when something was disrupted that must not be, or the cluster does not come to rest.
    """
    cloud = _a_cloud(dice) if dice.chance(50) else None
    async with world(seed=seed, cloud=cloud, arguments=_arguments(dice), steps=20) as w:
        w.may_delete_pods = True  # the auditor looks at each
        life = _Life(w, dice)
        await life.begin()
        for _ in range(dice.integer(4, 10)):
            await life.something_happens()
            await w.wait(dice.choice([1.0, 0.0, 7.0, 20.0, 45.0, 200.0, 900.0]))
            w.check()
        await life.calm_down()
        w.check()
        return life.told()


def _arguments(dice: Dice) -> tuple[str, ...]:
    gates = f"NodeRepair=true,SpotToSpotConsolidation={str(dice.chance(50)).lower()}"
    found = [
        "--disable-leader-election=true",
        "--disable-cluster-state-observability=true",
        f"--feature-gates={gates}",
    ]
    if dice.chance(25):
        found.append("--consolidation-search=upstream")
    if dice.chance(30):
        found.append("--consolidation-restart-cost=0s")
    return tuple(found)


def _a_cloud(dice: Dice) -> FakeCloud:
    cloud = FakeCloud()
    cloud.create_seconds = dice.choice([0.0, 3.0])
    cloud.join_seconds = dice.choice([2.0, 0.5, 30.0])
    cloud.delete_seconds = dice.choice([0.0, 4.0])
    return cloud


class _Life:
    """What one history knows of its cluster."""

    def __init__(self, w: World, dice: Dice) -> None:
        self.w, self.dice = w, dice
        self.auditor = Auditor(w.watchdog, w.clock.now, w.is_operators, slack=SLACK_SECONDS)
        self.apps: dict[str, Raw] = {}
        self.pools: dict[str, Raw] = {}
        self.dead: str = ""
        self.faulty_at = -FAULTY_SLACK_SECONDS
        self.ages = False
        """Whether nodes expire: then there is never rest."""

    async def begin(self) -> None:
        """Bring up pools and workloads."""
        await self.w.apply([node_class(), pool(SPARE)])
        self.pools[SPARE] = pool(SPARE)
        for number in range(self.dice.integer(1, 3)):
            made = _a_pool(self.dice, f"pool-{number}")
            self.ages |= "expireAfter" in made["spec"]["template"]["spec"]
            self.pools[made["metadata"]["name"]] = made
            await self.w.apply(made)
        for number in range(self.dice.integer(2, 5)):
            await self._new_app(f"app-{number}")
        await self.w.wait(self.dice.choice([30.0, 90.0]))

    async def _new_app(self, name: str) -> None:
        app, more = _an_app(self.dice, name)
        self.apps[name] = app
        await self.w.apply([app, *more])

    async def something_happens(self) -> None:
        """Let users, the cloud or chance do one thing."""
        self._look_closely()
        await self.dice.choice(
            [
                self._scale,
                self._scale,
                self._scale,
                self._roll_out,
                self._drift,
                self._drift,
                self._delete,
                self._restart,
                self._faults,
                self._die,
                self._change_budget,
                self._change_prices,
                self._interrupt,
            ]
        )()

    async def _scale(self) -> None:
        names = [name for name, app in sorted(self.apps.items()) if "replicas" in app["spec"]]
        if names:
            app = self.apps[self.dice.choice(names)]
            app["spec"]["replicas"] = self.dice.choice([1, 0, 2, 4, 7])
            await self.w.apply(app)

    async def _roll_out(self) -> None:
        names = [name for name, app in sorted(self.apps.items()) if "replicas" in app["spec"]]
        if names:
            app = self.apps[self.dice.choice(names)]
            labels = app["spec"]["template"]["metadata"]["labels"]
            labels["revision"] = str(int(labels.get("revision", "0")) + 1)
            await self.w.apply(app)

    async def _drift(self) -> None:
        made = self.pools[self.dice.choice(sorted(self.pools))]
        labels = made["spec"]["template"]["metadata"]["labels"]
        labels["example.com/revision"] = str(int(labels.get("example.com/revision", "0")) + 1)
        await self.w.apply(made)

    async def _change_budget(self) -> None:
        made = self.pools[self.dice.choice(sorted(self.pools))]
        made["spec"]["disruption"]["budgets"] = self.dice.choice(_BUDGETS)
        await self.w.apply(made)

    async def _delete(self) -> None:
        found: list[NodeClaim | Node] = [*await self.w.claims()]
        if self.dice.chance(40):
            found = [*await self.w.nodes()]
        if found:
            victim = self.dice.choice(found)
            await self.w.client.delete(type(victim), victim.name)

    async def _restart(self) -> None:
        await self.w.kill_operator(graceful=self.dice.chance(30))
        await self.w.wait(self.dice.choice([0.0, 1.0, 20.0]))
        await self.w.start_operator()

    async def _faults(self) -> None:
        chance = self.dice.choice([0.0, 0.02, 0.1])
        self.w.faults.set(Faults.all(chance))
        if chance:
            self.auditor.slack = FAULTY_SLACK_SECONDS

    def _look_closely(self) -> None:
        """Let the operator be behind no longer than it must, once requests have not failed for a while."""
        if self.w.faults.refuse:
            self.faulty_at = self.w.clock.now()
        if self.w.clock.now() >= self.faulty_at + FAULTY_SLACK_SECONDS:
            self.auditor.slack = SLACK_SECONDS

    async def _die(self) -> None:
        """Let the kubelet of one node fall silent, once in a history."""
        nodes = [node.name for node in await self.w.nodes() if not node.deleting]
        if not nodes or self.dead:
            return
        self.dead = self.dice.choice(nodes)
        silent = {
            "type": "Ready",
            "status": "Unknown",
            "reason": "NodeStatusUnknown",
            "lastTransitionTime": format_time(self.w.clock.now()),
        }
        await self.w.client.patch(Node, self.dead, merge({"metadata": {"annotations": {_FAKE: None}}}))
        await self.w.client.patch(
            Node, self.dead, strategic({"status": {"conditions": [silent]}}), subresource="status"
        )

    async def _change_prices(self) -> None:
        """Let some types become dearer, others cheaper."""
        if self.w.cloud is not None:
            factors = {kind.name: self.dice.choice([1.0, 0.6, 1.5]) for kind in self.w.cloud.types}
            self.w.cloud.types = tuple(
                msgspec.structs.replace(
                    kind,
                    offerings=tuple(
                        msgspec.structs.replace(o, price=o.price * factors[kind.name]) for o in kind.offerings
                    ),
                )
                for kind in self.w.cloud.types
            )

    async def _interrupt(self) -> None:
        """Let the cloud take a machine away."""
        if self.w.cloud is not None and self.w.cloud.instances:
            victim = self.dice.choice(sorted(self.w.cloud.instances))
            self.auditor.vanished.add(victim)
            self.w.cloud.end(victim)

    # --- the end ------------------------------------------------------------------------------------------

    async def calm_down(self) -> None:
        """Let nothing happen any more: all pods are to run, and the operator to come to rest, and stay so."""
        self.w.faults.set(Faults())
        began = self.w.clock.now()
        self._look_closely()
        while (trouble := await self._restless()) and self.w.clock.now() < began + RESTLESS_SECONDS:
            await self.w.wait(60.0)
            self._look_closely()
            self.w.check()
        assert not trouble, f"no rest within {RESTLESS_SECONDS:g} s: {trouble}"
        if self.ages:
            return
        still = self.auditor.moved_at
        await self.w.wait(self.dice.choice([1800.0, 3600.0, 12 * 3600.0]) if self.dice.chance(20) else 600.0)
        assert self.auditor.moved_at == still, "something moved after all was at rest"

    async def _restless(self) -> str:
        """Return what is not at rest yet."""
        waiting = [
            f"{pod.name} ({pod.status.phase} on {pod.spec.node_name!r}{', leaving' if pod.deleting else ''})"
            for pod in await self.w.pods()
            if not _is_well(pod)
        ]
        if waiting:
            return f"pods do not run: {waiting[:5]} ({len(waiting)})"
        if any(
            pod.metadata.owner_references and pod.metadata.owner_references[0].kind == "Job"
            for pod in await self.w.pods()
            if podlib.is_active(pod)
        ):
            return "jobs run"
        missing = await self._missing()
        if missing:
            return f"too few pods: {missing}"
        if self.ages:
            return ""
        moved = self.w.clock.now() - max(self.auditor.moved_at, self.auditor.stirred_at)
        return f"something moved {moved:g} s ago" if moved < QUIET_SECONDS else ""

    async def _missing(self) -> list[str]:
        """Return the workloads that have fewer pods than they should."""
        return [
            name
            for name, app in sorted(self.apps.items())
            if "replicas" in app["spec"] and len(await self.w.pods(name)) != app["spec"]["replicas"]
        ]

    def told(self) -> Counter[str]:
        """Return what the history came to, as counts."""
        a = self.auditor
        return Counter(
            hours=round(self.w.clock.monotonic() / 3600),
            claims=self.w.watchdog.claims_created,
            operators=self.w.runs,
            evictions=a.evictions,
            forced=a.forced,
            **{f"disrupted {reason}": count for reason, count in sorted(a.disruptions.items())},
            **{f"ended: {cause}": count for cause, count in sorted(a.ended.items())},
        )


def _is_well(pod: Pod) -> bool:
    if podlib.is_terminal(pod):
        return True
    return not pod.deleting and conditions.is_true(pod.status.conditions, "Ready")


# --- what there is -----------------------------------------------------------------------------------------


def _a_pool(dice: Dice, name: str) -> Raw:
    template: Raw = {}
    if period := dice.choice([None, None, "20s", "3m"]):
        template["terminationGracePeriod"] = period
    if dice.chance(8):
        template["expireAfter"] = dice.choice(["30m", "2h"])
    kinds = dice.choice([["spot", "on-demand"], ["on-demand"], ["spot"]])
    made = pool(
        name,
        weight=dice.choice([10, 20]),
        limits=dice.choice(_LIMITS),
        consolidate_after=dice.choice(["5s", "0s", "30s", "4m", "Never"]),
        budgets=dice.choice(_BUDGETS),
        requirements=[{"key": "karpenter.sh/capacity-type", "operator": "In", "values": kinds}],
        template=template,
    )
    made["spec"]["disruption"]["consolidationPolicy"] = dice.choice(
        ["WhenEmptyOrUnderutilized", "WhenEmptyOrUnderutilized", "Balanced", "WhenEmpty"]
    )
    if dice.chance(10):
        protected = {_DO_NOT_DISRUPT: dice.choice(["true", "15m"])}
        made["spec"]["template"]["metadata"]["annotations"] = protected
    if dice.chance(15):
        made["metadata"]["annotations"] = {PRICE_LIMIT: dice.choice(["0.5", "0.2", "1"])}
    return made


def _an_app(dice: Dice, name: str) -> tuple[Raw, list[Raw]]:
    """Return a workload, and the budgets over its pods."""
    labels = {"app": name}
    spec = pod_spec(
        cpu=dice.choice(_SIZES), memory="512Mi", terminationGracePeriodSeconds=dice.choice([0, 5, 30])
    )
    if dice.chance(10):
        spec["priorityClassName"] = "system-cluster-critical"
    annotations: dict[str, str] = {}
    if dice.chance(20):
        annotations[_DO_NOT_DISRUPT] = dice.choice(["true", "2m", "20m", "nonsense"])
    key = dice.choice(["", "", "kubernetes.io/hostname", "topology.kubernetes.io/zone"])
    if key:
        spec["topologySpreadConstraints"] = [
            {
                "maxSkew": dice.choice([1, 2]),
                "topologyKey": key,
                "whenUnsatisfiable": dice.choice(["DoNotSchedule", "ScheduleAnyway"]),
                "labelSelector": {"matchLabels": labels},
            }
        ]
    template = {"metadata": {"labels": dict(labels), "annotations": annotations}, "spec": spec}
    budgets = _guards(dice, name)
    kind = dice.choice(["Deployment", "Deployment", "Deployment", "StatefulSet", "Job", "Pod"])
    metadata = {"name": name, "namespace": "default"}
    if kind == "Pod":
        bare = {"apiVersion": "v1", "kind": "Pod", "metadata": {**template["metadata"], **metadata}}
        return {**bare, "spec": spec}, budgets
    if kind == "Job":
        spec["restartPolicy"] = "Never"
        annotations["pod-complete.stage.kwok.x-k8s.io/delay"] = dice.choice(["30s", "10m", "40m"])
        whole: Raw = {"template": template, "parallelism": dice.choice([1, 3]), "completions": 3}
        return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": whole}, budgets
    whole = {
        "replicas": dice.choice([2, 1, 4, 7]),
        "selector": {"matchLabels": labels},
        "template": template,
    }
    if kind == "StatefulSet":
        whole["serviceName"] = name
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": metadata, "spec": whole}, budgets


def _guards(dice: Dice, name: str) -> list[Raw]:
    """Return the PodDisruptionBudgets over the pods of an app: none, one or, rarely, two."""
    guard = dice.choice(_GUARDS)
    if guard is None:
        return []
    first = disruption_budget(name, **guard)
    if not dice.chance(10):
        return [first]
    second = disruption_budget(name, maxUnavailable=2)
    second["metadata"] = {**second["metadata"], "name": f"{name}-again"}
    return [first, second]
