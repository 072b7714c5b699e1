"""The scheduling loop: informer events into the model and the queue, decisions out through the API.

Decisions are taken one pod after the other, without awaiting, against the model; a pod is *assumed* on its
node at once and the binding is carried out behind by a keyed controller, which retries. If a binding is
refused the assumption is taken back and the pod queued again.
"""

import asyncio
from typing import Any

import msgspec
import numpy as np
import structlog

from karpenter.apis.core import Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod
from karpenter.apis.meta import LabelSelector
from karpenter.apis.workloads import (
    CSINode,
    PodDisruptionBudget,
    ReplicaSet,
    StatefulSet,
    StorageClass,
    Workload,
)
from karpenter.base.clock import Clock, format_time
from karpenter.base.metrics import Metrics
from karpenter.base.randomness import Random
from karpenter.embedded.scheduler.filters import Evaluation, affinity_passes, evaluate, reasons, taints_pass
from karpenter.embedded.scheduler.model import ClusterModel, Placed
from karpenter.embedded.scheduler.podclass import PodClass, signature_of
from karpenter.embedded.scheduler.preemption import Eviction, find_eviction
from karpenter.embedded.scheduler.queue import GroupKey, SchedulingQueue
from karpenter.embedded.scheduler.scores import chosen
from karpenter.embedded.scheduler.volumes import SELECTED_NODE, VolumePlan, VolumeView, plan_volumes
from karpenter.kube.errors import Conflict, Invalid, NotFound, error_of
from karpenter.kube.informer import Cache, Change
from karpenter.kube.patch import merge, strategic
from karpenter.runtime import Controller, Recorder, Requeue, Result

NAME = "default-scheduler"
FLUSH_SECONDS = 300.0
"""Parked pods are tried again after this long even if nothing seems to have changed."""
BURST = 50
"""Decisions between two turns of the event loop."""
TERMINAL = ("Succeeded", "Failed")

log = structlog.get_logger(controller="scheduler")


class Bind(msgspec.Struct, frozen=True):
    """Bind a pod to its node, after its claims."""

    pod: Pod
    node: str
    claims: tuple[str, ...] = ()


class Report(msgspec.Struct, frozen=True):
    """Say on the pod why it waits; with an eviction, make room first."""

    pod: Pod
    reason: str
    message: str
    eviction: Eviction | None = None


class Scheduler:
    """kube-scheduler for pods that ask for `default-scheduler`."""

    def __init__(
        self, cache: Cache, *, clock: Clock, rng: Random, metrics: Metrics, recorder: Recorder
    ) -> None:
        self.model = ClusterModel()
        self.queue = SchedulingQueue()
        self._clock = clock
        self._rng = rng
        self._recorder = recorder
        self._client = cache.client
        self._wake = asyncio.Event()
        self._pending: dict[str, Pod] = {}
        self._classes: dict[str, PodClass] = {}
        self._assumed: dict[str, str] = {}  # pod key to uid
        self._failures: dict[bytes, str] = {}  # class to why it fits nowhere, until something happens
        self._actions: dict[str, Bind | Report] = {}
        self._dirty_nodes: dict[str, None] = {}
        self._shape_changed = False  # something happened that spreading or pod affinity could feel
        self._volumes_changed = False
        self._arrivals = 0.0
        self._flush_at = 0.0
        self._pods = cache.informer(Pod)
        self._nodes = cache.informer(Node)
        self._replica_sets = cache.informer(ReplicaSet)
        self._stateful_sets = cache.informer(StatefulSet)
        self._budgets = cache.informer(PodDisruptionBudget)
        self._namespaces = cache.informer(Namespace)
        self._pvcs = cache.informer(PersistentVolumeClaim)
        self._pvs = cache.informer(PersistentVolume)
        self._storage_classes = cache.informer(StorageClass)
        self._csi_nodes = cache.informer(CSINode)
        self._volume_view = VolumeView(
            claim=lambda namespace, name: self._pvcs.get(name, namespace),
            volume=lambda name: self._pvs.get(name),
            storage_class=lambda name: self._storage_classes.get(name),
        )
        self._namespaces.subscribe(self._on_namespace)
        self._nodes.subscribe(self._on_node)
        self._pods.subscribe(self._on_pod)
        self._csi_nodes.subscribe(self._on_csi_node)
        for informer in (self._pvcs, self._pvs, self._storage_classes):
            informer.subscribe(self._on_volume)
        self._actor = Controller(
            "scheduler-binding", self._carry_out, clock=clock, rng=rng, metrics=metrics, concurrency=16
        )
        self._scheduled = metrics.counter(
            "scheduler_schedule_attempts_total", "Attempts by result", ["result"]
        )

    async def run(self) -> None:
        """Schedule until cancelled."""
        for informer in (
            *(self._pods, self._nodes, self._replica_sets, self._stateful_sets, self._namespaces),
            *(self._pvcs, self._pvs, self._storage_classes, self._csi_nodes, self._budgets),
        ):
            await informer.wait_synced()
        self._flush_at = self._clock.now() + FLUSH_SECONDS
        async with asyncio.TaskGroup() as group:
            group.create_task(self._actor.run())
            group.create_task(self._loop())

    async def _loop(self) -> None:
        while True:
            self._wake.clear()
            for _ in range(BURST):
                self._notice()
                item = self.queue.pop(self._clock.now())
                if item is None:
                    break
                self._schedule(*item)
            else:
                await self._clock.sleep(0)
                continue
            wakes = [at for at in (self.queue.next_wake(), self._flush_at if len(self.queue) else None) if at]
            timeout = max(0.0, min(wakes) - self._clock.now()) if wakes else None
            try:
                async with asyncio.timeout(timeout):
                    await self._wake.wait()
            except TimeoutError:
                pass

    # --- what happened -----------------------------------------------------------------------------

    def _on_namespace(self, change: Change[Namespace]) -> None:
        gone = change.type == "DELETED"
        self.model.set_namespace(change.object.name, None if gone else change.object.metadata.labels)

    def _on_node(self, change: Change[Node]) -> None:
        node = change.object
        if change.type == "DELETED":
            self.model.remove_node(node.name)
            self._shape_changed = True
        elif self.model.set_node(node):
            self._dirty_nodes[node.name] = None
            csi_node = self._csi_nodes.get(node.name)
            if csi_node is not None:
                self._set_limits(csi_node)
        else:
            return
        self._wake.set()

    def _on_csi_node(self, change: Change[CSINode]) -> None:
        if change.type != "DELETED":
            self._set_limits(change.object)
            self._volumes_changed = True
            self._wake.set()

    def _set_limits(self, csi_node: CSINode) -> None:
        entry = self.model.nodes.get(csi_node.name)
        if entry is not None:
            entry.volume_limits = {
                driver.name: driver.allocatable.count
                for driver in csi_node.spec.drivers
                if driver.allocatable is not None and driver.allocatable.count is not None
            }

    def _on_volume(self, change: Change[Any]) -> None:
        self._volumes_changed = True
        self._wake.set()

    def _on_pod(self, change: Change[Pod]) -> None:
        pod, key = change.object, change.object.key
        if change.type == "DELETED" or pod.status.phase in TERMINAL:
            self._forget(key)
        elif pod.spec.node_name:
            self._note_bound(pod, change)
        elif key in self._assumed:
            return  # our own doing; the binding is on its way
        elif pod.deleting or pod.spec.scheduler_name not in ("", NAME):
            self._forget(key)
        else:
            self._note_pending(pod, change)

    def _note_bound(self, pod: Pod, change: Change[Pod]) -> None:
        key = pod.key
        self._assumed.pop(key, None)
        self._pending.pop(key, None)
        self.queue.discard(key)
        self.model.nominate(key, "", None)
        pod_class = self._class_of(pod, change.old)
        placed = self.model.pods.get(key)
        if (
            placed is None
            or placed.pod_class is not pod_class
            or placed.node != pod.spec.node_name
            or placed.terminating != pod.deleting
        ):
            self.model.place(self._placed(pod, pod_class, pod.spec.node_name))
            self._shape_changed = True
            self._wake.set()

    def _placed(self, pod: Pod, pod_class: PodClass, node: str) -> Placed:
        plan = plan_volumes(self._volume_view, pod.namespace, pod_class.claims) if pod_class.claims else None
        volumes = plan.attachments if isinstance(plan, VolumePlan) else ()
        return Placed(pod.key, node, pod_class, pod.deleting, pod.status.start_time or "", volumes)

    def _note_pending(self, pod: Pod, change: Change[Pod]) -> None:
        key = pod.key
        if self.model.remove(key) is not None:
            self._shape_changed = True
        self._pending[key] = pod
        pod_class = self._class_of(pod, change.old)
        if pod.spec.scheduling_gates:
            self.queue.discard(key)
            self._tell(pod, "SchedulingGated", "Scheduling is blocked due to non-empty scheduling gates")
            return
        nominated = pod.status.nominated_node_name
        self.model.nominate(key, nominated, pod_class)
        group = (pod_class.signature, nominated)
        if key not in self.queue:
            self._arrivals += 1.0
        self.queue.add(key, group, pod_class.priority, self._arrivals)
        if self.queue.is_parked(group) and not _told(pod):
            self._tell(pod, "Unschedulable", self._failures.get(pod_class.signature, ""))
        self._wake.set()

    def _forget(self, key: str) -> None:
        self._assumed.pop(key, None)
        self._pending.pop(key, None)
        self._actions.pop(key, None)
        self.queue.discard(key)
        self.model.nominate(key, "", None)
        placed = self.model.remove(key)
        if placed is not None:
            self._dirty_nodes[placed.node] = None
            self._shape_changed = True
            self._wake.set()
        pod_class = self._classes.pop(key, None)
        if pod_class is not None:
            self._release(pod_class)

    def _class_of(self, pod: Pod, old: Pod | None) -> PodClass:
        known = self._classes.get(pod.key)
        if (
            known is not None
            and old is not None
            and old.metadata.uid == pod.metadata.uid
            and old.spec == pod.spec
            and old.metadata.labels == pod.metadata.labels
        ):
            return known
        owner_selector = self._owner_selector(pod)
        signature = signature_of(pod, owner_selector)
        if known is not None and known.signature == signature:
            return known
        found = self.model.classes.get(signature)
        if found is None:
            found = self.model.intern(PodClass(signature, pod, owner_selector))
        found.pods += 1
        self._classes[pod.key] = found
        if known is not None:
            self._release(known)
        return found

    def _release(self, pod_class: PodClass) -> None:
        pod_class.pods -= 1
        if pod_class.pods == 0:
            self.model.release(pod_class)
            self._failures.pop(pod_class.signature, None)

    def _owner_selector(self, pod: Pod) -> LabelSelector | None:
        for owner in pod.metadata.owner_references:
            found: Workload | None = None
            if owner.controller and owner.kind == "ReplicaSet":
                found = self._replica_sets.get(owner.name, pod.namespace)
            elif owner.controller and owner.kind == "StatefulSet":
                found = self._stateful_sets.get(owner.name, pod.namespace)
            if found is not None:
                return found.spec.selector
        return None

    def _notice(self) -> None:
        """Bring parked classes back that something could have helped."""
        now = self._clock.now()
        flush = now >= self._flush_at
        if flush:
            self._flush_at = now + FLUSH_SECONDS
        if not (flush or self._dirty_nodes or self._shape_changed or self._volumes_changed):
            return
        nodes = [self.model.nodes[name].row for name in self._dirty_nodes if name in self.model.nodes]
        rows = np.array(nodes, np.int64)
        for signature in self.queue.parked_classes():
            pod_class = self.model.classes[signature]
            if (
                flush
                or (self._shape_changed and self._feels_shape(pod_class))
                or (self._volumes_changed and pod_class.claims)
            ):
                self._failures.pop(signature, None)
                self.queue.activate(signature, now)
            elif len(rows) and self._could_help(pod_class, rows):
                self._failures.pop(signature, None)
                self.queue.activate_for(signature, self._dirty_nodes, now)
        self._dirty_nodes.clear()
        self._shape_changed = self._volumes_changed = False

    def _feels_shape(self, pod_class: PodClass) -> bool:
        return bool(
            pod_class.hard_spread
            or pod_class.affinity
            or pod_class.anti_affinity
            or pod_class.ports
            or self.model.holders(pod_class, "anti")
        )

    def _could_help(self, pod_class: PodClass, rows: "np.ndarray[Any, np.dtype[np.int64]]") -> bool:
        model = self.model
        columns, amounts = model.request_vector(pod_class)
        fits = (model.alloc[rows][:, columns] - model.used[rows][:, columns] >= amounts).all(axis=1)
        if not fits.any():
            return self._may_preempt(pod_class)
        return bool(
            (fits & taints_pass(model, pod_class)[rows] & affinity_passes(model, pod_class)[rows]).any()
        )

    # --- deciding ----------------------------------------------------------------------------------

    def _volumes_of(self, pod: Pod, pod_class: PodClass) -> VolumePlan | str | None:
        """Return what the pod's volumes demand, if it has any, or why no node can do as things are."""
        if pod.spec.resource_claims:  # there is no API for them here, as on clusters without devices
            return f'resourceclaim.resource.k8s.io "{pod.spec.resource_claims[0].name}" not found'
        if not pod_class.claims:
            return None
        return plan_volumes(self._volume_view, pod.namespace, pod_class.claims)

    def _schedule(self, key: str, group: GroupKey) -> None:
        pod = self._pending[key]
        pod_class = self._classes[key]
        plan = self._volumes_of(pod, pod_class)
        if isinstance(plan, str):
            self._fail(pod, pod_class, group, f"0/{len(self.model.nodes)} nodes are available: {plan}.")
            return
        failure = self._failures.get(pod_class.signature)
        if failure is not None and not self._worth_trying(pod_class, group[1]):
            self._fail(pod, pod_class, group, failure)
            return
        evaluation = evaluate(self.model, pod_class, plan, key=key)
        node = chosen(self.model, pod_class, evaluation, group[1], self._rng)
        if node is None:
            self._refuse(pod, pod_class, group, evaluation, plan)
            return
        self.queue.discard(key)
        if failure is None and node != group[1]:
            self.queue.activate_next(pod_class.signature, self._clock.now())
        self.model.nominate(key, "", None)
        self.model.place(
            Placed(key, node, pod_class, False, "", plan.attachments if plan is not None else ())
        )
        self._assumed[key] = pod.metadata.uid
        self._pending.pop(key, None)
        self._shape_changed = True
        self._actions[key] = Bind(pod, node, plan.to_bind if plan is not None else ())
        self._actor.enqueue(key)

    def _worth_trying(self, pod_class: PodClass, nominated: str) -> bool:
        """Tell whether the promised node could take a pod of a class that fits nowhere else."""
        entry = self.model.nodes.get(nominated)
        return entry is not None and self._could_help(pod_class, np.array([entry.row]))

    def _may_preempt(self, pod_class: PodClass) -> bool:
        return pod_class.may_preempt and any(
            c.priority < pod_class.priority for c in self.model.classes.values()
        )

    def _refuse(
        self, pod: Pod, pod_class: PodClass, group: GroupKey, evaluation: Evaluation, plan: VolumePlan | None
    ) -> None:
        nodes = len(self.model.nodes)
        if nodes == 0:
            self._fail(pod, pod_class, group, "no nodes available to schedule pods")
            return
        eviction = None
        if self._may_preempt(pod_class) and not self._awaits_victims(pod_class, group[1]):
            eviction = find_eviction(
                self.model, pod_class, evaluation, self._budgets.items(), plan, key=pod.key
            )
        tally = reasons(self.model, evaluation)
        message = f"0/{nodes} nodes are available: {_joined(tally)}. preemption: "
        if not pod_class.may_preempt:
            message += "not eligible due to preemptionPolicy=Never."
        else:
            helpful = int(evaluation.resolvable(self.model.live).sum())
            parts = {
                "No preemption victims found for incoming pod": helpful,
                "Preemption is not helpful for scheduling": nodes - helpful,
            }
            message += f"0/{nodes} nodes are available: {_joined({k: v for k, v in parts.items() if v})}."
        self._fail(pod, pod_class, group, message, eviction)

    def _awaits_victims(self, pod_class: PodClass, nominated: str) -> bool:
        entry = self.model.nodes.get(nominated)
        return entry is not None and any(
            p.terminating and p.pod_class.priority < pod_class.priority for p in entry.pods.values()
        )

    def _fail(
        self, pod: Pod, pod_class: PodClass, group: GroupKey, message: str, eviction: Eviction | None = None
    ) -> None:
        self._scheduled.labels("unschedulable").inc()
        waiting = self.queue.park(group, self._clock.now())
        if eviction is None:
            self._failures[pod_class.signature] = message
        else:
            # The room is this pod's; another of its class must look again.
            self.queue.discard(pod.key)
            self._arrivals += 1.0
            self.model.nominate(pod.key, eviction.node, pod_class)
            own = (pod_class.signature, eviction.node)
            self.queue.add(pod.key, own, pod_class.priority, self._arrivals)
            self.queue.park(own, self._clock.now())
            if group != own:
                self.queue.activate(pod_class.signature, self._clock.now())
                self.queue.park(own, self._clock.now())
        self._tell(pod, "Unschedulable", message, eviction)
        if eviction is None:
            for key in waiting:
                if key != pod.key and not _told(self._pending[key]):
                    self._tell(self._pending[key], "Unschedulable", message)

    def _tell(self, pod: Pod, reason: str, message: str, eviction: Eviction | None = None) -> None:
        if eviction is None and any(
            c.type == "PodScheduled" and (c.status, c.reason, c.message) == ("False", reason, message)
            for c in pod.status.conditions
        ):
            return
        self._actions[pod.key] = Report(pod, reason, message, eviction)
        self._actor.enqueue(pod.key)

    # --- carrying out ------------------------------------------------------------------------------

    async def _carry_out(self, key: str) -> Result:
        action = self._actions.get(key)
        if isinstance(action, Bind):
            await self._bind(key, action)
        elif isinstance(action, Report):
            await self._report(key, action)
        if action is not None and self._actions.get(key) is action:
            del self._actions[key]
        return Result()

    async def _bind(self, key: str, action: Bind) -> None:
        pod = action.pod
        if self._assumed.get(key) != pod.metadata.uid:
            return
        try:
            await self._bind_claims(pod.namespace, action)
            await self._post_binding(pod, action.node)
        except (NotFound, Conflict, Invalid) as error:
            log.info("binding refused", pod=key, node=action.node, error=str(error))
            self._scheduled.labels("error").inc()
            if self._assumed.pop(key, None) is not None:
                self.model.remove(key)
                self._dirty_nodes[action.node] = None
                current = self._pods.get(pod.name, pod.namespace)
                if current is not None:
                    self._on_pod(Change("MODIFIED", current, None))
                self._wake.set()
            return
        self._scheduled.labels("scheduled").inc()
        self._recorder.publish(
            pod,
            "Normal",
            "Scheduled",
            f"Successfully assigned {key} to {action.node}",
            dedupe=(pod.metadata.uid,),
        )

    async def _bind_claims(self, namespace: str, action: Bind) -> None:
        missing = False
        for name in action.claims:
            claim = self._pvcs.get(name, namespace)
            if claim is not None and claim.spec.volume_name:
                continue
            missing = True
            if claim is None or claim.metadata.annotations.get(SELECTED_NODE) != action.node:
                annotations = {SELECTED_NODE: action.node}
                await self._client.patch(
                    PersistentVolumeClaim,
                    name,
                    merge({"metadata": {"annotations": annotations}}),
                    namespace=namespace,
                )
        if missing:
            raise Requeue(f"claims of {namespace}/{action.pod.name} are not bound yet")

    async def _post_binding(self, pod: Pod, node: str) -> None:
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": pod.name, "namespace": pod.namespace, "uid": pod.metadata.uid},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}/binding"
        answer = await self._client.transport.request("POST", path, body=msgspec.json.encode(body))
        if answer.status >= 400:
            raise error_of(answer.status, answer.body)

    async def _report(self, key: str, report: Report) -> None:
        pod = report.pod
        current = self._pods.get(pod.name, pod.namespace)
        if current is None or current.metadata.uid != pod.metadata.uid or current.spec.node_name:
            return
        status: dict[str, Any] = {
            "conditions": [
                {
                    "type": "PodScheduled",
                    "status": "False",
                    "reason": report.reason,
                    "message": report.message,
                    "lastProbeTime": None,
                    "lastTransitionTime": format_time(self._clock.now()),
                }
            ]
        }
        if report.eviction is not None:
            await self._evict(pod, report.eviction)
            status["nominatedNodeName"] = report.eviction.node
        try:
            await self._client.patch(
                Pod, pod.name, strategic({"status": status}), namespace=pod.namespace, subresource="status"
            )
        except NotFound:
            return
        if report.reason == "Unschedulable":
            self._recorder.publish(
                pod, "Warning", "FailedScheduling", report.message, dedupe=(pod.metadata.uid,)
            )

    async def _evict(self, preemptor: Pod, eviction: Eviction) -> None:
        for victim in eviction.victims:
            namespace, _, name = victim.key.partition("/")
            condition = {
                "type": "DisruptionTarget",
                "status": "True",
                "reason": "PreemptionByScheduler",
                "message": f"{NAME}: preempting to accommodate a higher priority pod",
                "lastTransitionTime": format_time(self._clock.now()),
            }
            current = self._pods.get(name, namespace)
            if current is None or current.deleting:
                continue
            uid = current.metadata.uid
            try:
                await self._client.patch(
                    Pod,
                    name,
                    strategic({"metadata": {"uid": uid}, "status": {"conditions": [condition]}}),
                    namespace=namespace,
                    subresource="status",
                )
                await self._client.delete(Pod, name, namespace=namespace, uid=uid)
            except (NotFound, Conflict):
                continue
            self._recorder.publish(
                current,
                "Normal",
                "Preempted",
                f"Preempted by pod {preemptor.metadata.uid} on node {eviction.node}",
            )


def _told(pod: Pod) -> bool:
    return any(c.type == "PodScheduled" and c.reason == "Unschedulable" for c in pod.status.conditions)


def _joined(tally: dict[str, int]) -> str:
    return ", ".join(sorted(f"{count} {reason}" for reason, count in tally.items()))
