"""DaemonSets: one pod on every node that may have it, placed by name through node affinity."""

from typing import Any

import msgspec

from karpenter.apis.core import Node, Pod, PodSpec, Taint, Toleration
from karpenter.base.clock import Clock
from karpenter.base.metrics import Metrics
from karpenter.base.randomness import Random
from karpenter.embedded.controllers.kinds import FullDaemonSet
from karpenter.embedded.controllers.pods import (
    Expectations,
    available_in,
    decode,
    delete_pod,
    is_finished,
    is_ready,
    own_key,
    owned_by,
    owner_key,
    pod_cache,
    pod_from,
    post,
    watch_pods,
)
from karpenter.embedded.controllers.rollout import scaled_value, template_hash
from karpenter.embedded.scheduler.predicates import affinity_holds, untolerated
from karpenter.kube.errors import NotFound
from karpenter.kube.informer import Cache, Change
from karpenter.kube.patch import merge
from karpenter.runtime import Controller, Result

REVISION_LABEL = "controller-revision-hash"
PREFIX = "node.kubernetes.io/"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
TOLERATED = (
    ("not-ready", "NoExecute"),
    ("unreachable", "NoExecute"),
    ("disk-pressure", "NoSchedule"),
    ("memory-pressure", "NoSchedule"),
    ("pid-pressure", "NoSchedule"),
    ("unschedulable", "NoSchedule"),
)
"""Taints every daemon pod tolerates, as (name under node.kubernetes.io/, effect)."""


class DaemonPlan(msgspec.Struct, frozen=True):
    """Nodes that get a pod, pods to delete, and the status to report."""

    create: list[str]
    delete: list[Pod]
    status: dict[str, Any]
    look_again: float | None = None


def daemon_spec(template: dict[str, Any]) -> PodSpec:
    """Return the part of a template that decides on which nodes its pods belong, tolerations included."""
    spec = msgspec.convert(template.get("spec") or {}, PodSpec)
    return msgspec.structs.replace(
        spec,
        tolerations=[*spec.tolerations, *(msgspec.convert(t, Toleration) for t in tolerations(template))],
    )


def tolerations(template: dict[str, Any]) -> list[dict[str, str]]:
    """Return the tolerations that daemon pods get beside their own."""
    result = [{"key": PREFIX + key, "operator": "Exists", "effect": effect} for key, effect in TOLERATED]
    if (template.get("spec") or {}).get("hostNetwork"):
        key = f"{PREFIX}network-unavailable"
        result.append({"key": key, "operator": "Exists", "effect": "NoSchedule"})
    return result


def belongs(spec: PodSpec, node: Node) -> tuple[bool, bool]:
    """Tell whether a daemon pod should run on the node, and whether a running one may go on."""
    if not affinity_holds(spec, node.metadata.labels, node.name):
        return False, False
    taints = node.spec.taints
    if not any(c.type == "Ready" for c in node.status.conditions):
        taints = [*taints, Taint(PREFIX + "not-ready", "", "NoSchedule")]
    # Daemons start on nodes that are not ready yet (their network may depend on it).
    relevant = [t for t in taints if t.key not in (PREFIX + "not-ready", PREFIX + "unreachable")]
    may_go_on = untolerated(relevant, spec.tolerations, ("NoExecute",)) is None
    should_run = untolerated(relevant, spec.tolerations, ("NoSchedule", "NoExecute")) is None
    return should_run, may_go_on


def plan_daemonset(daemonset: FullDaemonSet, nodes: list[Node], pods: list[Pod], now: float) -> DaemonPlan:
    """Decide which nodes get or lose a daemon pod and what the DaemonSet reports."""
    template = decode(daemonset.spec.template)
    spec = daemon_spec(template)
    update = template_hash(template)
    by_node: dict[str, list[Pod]] = {}
    for pod in pods:
        by_node.setdefault(target_node(pod), []).append(pod)
    create: list[str] = []
    delete: list[Pod] = []
    wanted: dict[str, Pod | None] = {}
    misscheduled = 0
    for node in nodes:
        here = sorted(by_node.get(node.name, []), key=lambda p: (p.metadata.creation_timestamp or "", p.name))
        should_run, may_go_on = (False, False) if node.deleting and not here else belongs(spec, node)
        alive = [p for p in here if not p.deleting and not is_finished(p)]
        delete += [p for p in here if is_finished(p) and not p.deleting]
        if should_run:
            wanted[node.name] = alive[0] if alive else None
            delete += alive[1:]
            if not here:
                create.append(node.name)
        elif alive:
            misscheduled += 1
            if not may_go_on:
                delete += alive
    there = {node.name for node in nodes}
    # Nothing can ever bind a pod that is pinned to a node that has gone; bound ones are the pod collector's.
    delete += [p for p in pods if not p.spec.node_name and not p.deleting and target_node(p) not in there]
    delete += [] if delete else _outdated(daemonset, wanted, update, now)
    status, look_again = _status(daemonset, wanted, misscheduled, update, now)
    return DaemonPlan(create, delete, status, look_again)


def _outdated(daemonset: FullDaemonSet, wanted: dict[str, Pod | None], update: str, now: float) -> list[Pod]:
    strategy = daemonset.spec.update_strategy
    if strategy.type != "RollingUpdate":
        return []
    rolling = strategy.rolling_update
    allowed = max(1, scaled_value(rolling.max_unavailable if rolling else None, len(wanted), 1, up=True))
    seconds = daemonset.spec.min_ready_seconds
    broken = {n for n, p in wanted.items() if p is None or available_in(p, seconds, now) != 0.0}
    old = [p for p in wanted.values() if p is not None and p.metadata.labels.get(REVISION_LABEL) != update]
    # Broken old pods go freely; healthy ones only as long as enough others are up.
    doomed = [p for p in old if target_node(p) in broken]
    room = max(0, allowed - len(broken))
    return doomed + [p for p in old if target_node(p) not in broken][:room]


def _status(
    daemonset: FullDaemonSet, wanted: dict[str, Pod | None], misscheduled: int, update: str, now: float
) -> tuple[dict[str, Any], float | None]:
    present = [p for p in wanted.values() if p is not None]
    ages = [available_in(p, daemonset.spec.min_ready_seconds, now) for p in present]
    available = sum(age == 0.0 for age in ages)
    soon = [age for age in ages if age]
    return {
        "observedGeneration": daemonset.metadata.generation,
        "desiredNumberScheduled": len(wanted),
        "currentNumberScheduled": len(present),
        "numberMisscheduled": misscheduled,
        "numberReady": sum(is_ready(p) for p in present),
        "updatedNumberScheduled": sum(p.metadata.labels.get(REVISION_LABEL) == update for p in present),
        "numberAvailable": available,
        "numberUnavailable": len(wanted) - available,
    }, (min(soon) if soon else None)


def target_node(pod: Pod) -> str:
    """Return the node a daemon pod is meant for, bound or not."""
    if pod.spec.node_name:
        return pod.spec.node_name
    affinity = pod.spec.affinity.node_affinity if pod.spec.affinity else None
    for term in affinity.required.node_selector_terms if affinity and affinity.required else []:
        for field in term.match_fields:
            if field.key == "metadata.name" and field.values:
                return field.values[0]
    return ""


def pod_for(daemonset: FullDaemonSet, node_name: str) -> dict[str, Any]:
    """Return the daemon pod for one node."""
    template = decode(daemonset.spec.template)
    spec = dict(template.get("spec") or {})
    affinity = dict(spec.get("affinity") or {})
    node_affinity = dict(affinity.get("nodeAffinity") or {})
    pinned = [{"key": "metadata.name", "operator": "In", "values": [node_name]}]
    terms = (node_affinity.get(REQUIRED) or {}).get("nodeSelectorTerms") or [{}]
    # The node's name replaces field terms; label terms are anded to it, each on its own.
    node_affinity[REQUIRED] = {
        "nodeSelectorTerms": [{**{k: v for k, v in t.items() if v}, "matchFields": pinned} for t in terms]
    }
    affinity["nodeAffinity"] = node_affinity
    return pod_from(
        template,
        daemonset,
        labels={REVISION_LABEL: template_hash(template)},
        spec={
            "affinity": affinity,
            "tolerations": [*(spec.get("tolerations") or []), *tolerations(template)],
        },
    )


class DaemonSetController:
    """Keeps DaemonSets' pods."""

    def __init__(self, cache: Cache, *, clock: Clock, rng: Random, metrics: Metrics) -> None:
        self._client = cache.client
        self._clock = clock
        self._sets = cache.informer(FullDaemonSet)
        self._nodes = cache.informer(Node)
        self._pods = pod_cache(cache)
        self._expectations = Expectations(clock)
        self._owner = owner_key("DaemonSet")
        self.controller = Controller(
            "daemonset", self.reconcile, clock=clock, rng=rng, metrics=metrics, concurrency=4
        )
        self._pods.subscribe(self._observe)
        self.controller.watch(self._sets, own_key)
        watch_pods(self.controller, self._pods, self._owner)
        self.controller.watch(self._nodes, self._all_sets)

    def _all_sets(self, change: Change[Node]) -> list[str]:
        new, old = change.object, change.old
        if (
            change.type == "MODIFIED"
            and old is not None
            and (old.metadata.labels, old.spec, old.deleting, bool(old.status.conditions))
            == (new.metadata.labels, new.spec, new.deleting, bool(new.status.conditions))
        ):
            return []
        return [daemonset.key for daemonset in self._sets.items()]

    def _observe(self, change: Change[Pod]) -> None:
        for key in self._owner(change):
            self._expectations.observe(key, change)

    async def reconcile(self, key: str) -> Result:
        """Bring one DaemonSet's pods in line with the nodes and report."""
        namespace, _, name = key.partition("/")
        daemonset = self._sets.get(name, namespace)
        if daemonset is None:
            return Result()
        pods = owned_by(self._pods, daemonset)
        plan = plan_daemonset(daemonset, self._nodes.items(), pods, self._clock.now())
        if not daemonset.deleting and self._expectations.satisfied(key):
            await self._carry_out(key, daemonset, plan)
        current = msgspec.to_builtins(daemonset.status)
        if any(current.get(field, 0) != value for field, value in plan.status.items()):
            try:
                await self._client.patch(
                    FullDaemonSet,
                    name,
                    merge({"status": plan.status}),
                    namespace=namespace,
                    subresource="status",
                )
            except NotFound:
                return Result()
        return Result(plan.look_again)

    async def _carry_out(self, key: str, daemonset: FullDaemonSet, plan: DaemonPlan) -> None:
        path = Pod.resource.path(daemonset.namespace)
        for node_name in plan.create:
            created = await post(self._client, path, msgspec.json.encode(pod_for(daemonset, node_name)))
            seen = self._pods.get(created.name, daemonset.namespace)
            if seen is None or seen.metadata.uid != created.uid:
                self._expectations.expect(key, created.uid)
        for pod in plan.delete:
            self._expectations.expect(key, f"-{pod.metadata.uid}")
            await delete_pod(self._client, pod)
