"""Working out what each CapacityBuffer wants, and telling its status."""

from typing import Any

import msgspec
import structlog

from karpenter.apis import conditions
from karpenter.apis.autoscaling import CapacityBuffer, CapacityBufferStatus, PodTemplateRef
from karpenter.apis.meta import Condition, ConditionStatus, KubeObject
from karpenter.base.timestamps import format_time
from karpenter.controllers import conditions as writing
from karpenter.controllers.capacitybuffer.sizing import desired_units
from karpenter.controllers.capacitybuffer.sources import NotSynced, Sources, Unit, Unresolved, reference_of
from karpenter.controllers.capacitybuffer.virtualpods import virtual_pods
from karpenter.controllers.context import Context
from karpenter.kube.errors import NotFound
from karpenter.kube.patch import merge
from karpenter.model.pods import requests
from karpenter.runtime import Controller, Result
from karpenter.state.buffers import Outcome

log = structlog.get_logger()

READY, PROVISIONING = "ReadyForProvisioning", "Provisioning"
UNRESOLVED = "capacity buffer has nothing to keep room for"

MOST_UNITS = 10_000
"""A buffer of more is a slip of the finger, and must not take the memory of the process."""
AGAIN_SECONDS = 30.0
"""A buffer asks for a pass at least this often."""
UNSYNCED_SECONDS = 1.0


class Resolution:
    """The controller of CapacityBuffers."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._buffers = context.cache.informer(CapacityBuffer)
        self._sources = Sources(context.cache, self._on_source)
        self._asked: dict[str, float] = {}
        """When each buffer last asked for a pass, on the monotonic clock."""
        self._wanted = context.metrics.gauge(
            "karpenter_capacitybuffers_units", "Units of room that a buffer wants.", ["namespace", "name"]
        )
        self.controller = Controller(
            "capacitybuffer",
            self._reconcile,
            clock=context.clock,
            rng=context.rng,
            metrics=context.metrics,
            concurrency=10,
        )
        self.controller.watch(self._buffers, lambda change: [change.object.key])
        context.cluster.buffers.on_outcome(self.controller.enqueue)

    def _on_source(self, kind: type[KubeObject], key: str) -> None:
        """A template or workload has changed: look at the buffers that refer to it."""
        for buffer in self._buffers.items():
            try:
                reference = reference_of(buffer)
            except Unresolved:
                continue
            if reference is not None and (reference[0], f"{buffer.namespace}/{reference[1]}") == (kind, key):
                self.controller.enqueue(buffer.key)

    async def _reconcile(self, key: str) -> Result:
        namespace, name = key.split("/", 1)
        buffer = self._buffers.get(name, namespace)
        if buffer is None or buffer.deleting:
            self._forget(key)
            return Result()
        try:
            unit = self._sources.unit(buffer)
        except NotSynced:
            return Result(UNSYNCED_SECONDS)
        except Unresolved as problem:
            self._forget(key)
            log.info(UNRESOLVED, CapacityBuffer=key, reason=problem.reason, message=str(problem))
            await self._write(buffer, self._failed(buffer, problem))
            return Result(AGAIN_SECONDS)
        pods = virtual_pods(buffer, unit.template, 1)
        wanted = desired_units(buffer.spec, requests(pods[0]), unit.scale)
        count = min(wanted, MOST_UNITS)
        self._want(key, buffer, unit, count)
        outcome = self._context.cluster.buffers.outcome(key)
        capped = f"{wanted} are wanted, room is kept for {count}, the most for one buffer"
        note = capped if wanted > count else ""
        await self._write(buffer, self._resolved(buffer, unit, count, outcome, note))
        return Result(AGAIN_SECONDS)

    def _want(self, key: str, buffer: CapacityBuffer, unit: Unit, count: int) -> None:
        """Hand the buffer's pods to the provisioner; ask for a pass when they changed, or it is time."""
        buffers, now = self._context.cluster.buffers, self._context.clock.monotonic()
        self._wanted.labels(buffer.namespace, buffer.name).set(count)
        news = buffers.put(key, virtual_pods(buffer, unit.template, count))
        last = self._asked.get(key)
        if news or last is None or now - last >= AGAIN_SECONDS:
            self._asked[key] = now
            if count and not news:
                buffers.ask()

    def _forget(self, key: str) -> None:
        self._context.cluster.buffers.put(key, ())
        if self._asked.pop(key, None) is not None:
            self._wanted.remove(*key.split("/", 1))

    # --- status -------------------------------------------------------------------------------------------

    def _failed(self, buffer: CapacityBuffer, problem: Unresolved) -> CapacityBufferStatus:
        found = self._with(buffer, buffer.status.conditions, READY, "False", problem.reason, str(problem))
        found = self._with(
            buffer,
            found,
            PROVISIONING,
            "False",
            "NotReadyForProvisioning",
            "Buffer has nothing to keep room for",
        )
        return msgspec.structs.replace(
            buffer.status, conditions=found, provisioning_strategy=buffer.spec.provisioning_strategy
        )

    def _resolved(
        self, buffer: CapacityBuffer, unit: Unit, count: int, outcome: Outcome | None, note: str
    ) -> CapacityBufferStatus:
        found = self._with(buffer, buffer.status.conditions, READY, "True", "Resolved", note)
        if not count:
            found = self._with(
                buffer, found, PROVISIONING, "False", "BufferEmpty", "Buffer wants no capacity"
            )
        elif outcome is not None:
            found = self._with(buffer, found, PROVISIONING, *verdict(outcome))
        return CapacityBufferStatus(
            pod_template_ref=PodTemplateRef(name=unit.name) if unit.name else None,
            pod_template_generation=unit.generation,
            replicas=count,
            provisioning_strategy=buffer.spec.provisioning_strategy,
            conditions=found,
        )

    def _with(
        self,
        buffer: CapacityBuffer,
        present: list[Condition],
        type: str,
        status: ConditionStatus,
        reason: str,
        message: str,
    ) -> list[Condition]:
        """Return `present` with one condition set; its transition time moves only with its status."""
        old = conditions.get(present, type)
        kept = old.last_transition_time if old is not None and old.status == status else None
        new = Condition(
            type=type,
            status=status,
            reason=reason,
            message=message,
            observed_generation=buffer.metadata.generation,
            last_transition_time=kept or format_time(self._context.clock.now()),
        )
        return sorted([*(c for c in present if c.type != type), new], key=lambda c: c.type)

    async def _write(self, buffer: CapacityBuffer, status: CapacityBufferStatus) -> None:
        """Write the status if it changed; a conflict means: look again."""
        if status == buffer.status:
            return
        try:
            await self._context.client.patch(
                CapacityBuffer,
                buffer.name,
                merge({"status": _document(status)}, resource_version=buffer.metadata.resource_version),
                namespace=buffer.namespace,
                subresource="status",
            )
        except NotFound:
            return


def verdict(outcome: Outcome) -> tuple[ConditionStatus, str, str]:
    """Return status, reason and message of the condition `Provisioning`."""
    total = outcome.existing + outcome.new + outcome.failed
    if not (outcome.new or outcome.failed):
        return "True", "FitsExistingCapacity", f"All {total} virtual pods fit on existing capacity"
    text = f"{outcome.new}/{total} virtual pods required new capacity, {outcome.failed} failed"
    return "False", "RequiresNewCapacity", f"{text}: {outcome.error}" if outcome.error else text


def _document(status: CapacityBufferStatus) -> dict[str, Any]:
    """Return a status as a merge patch: what it has not is taken away."""
    reference = status.pod_template_ref
    return {
        "podTemplateRef": {"name": reference.name} if reference is not None else None,
        "podTemplateGeneration": status.pod_template_generation,
        "replicas": status.replicas,
        "provisioningStrategy": status.provisioning_strategy,
        "conditions": writing.document(status.conditions),
    }
