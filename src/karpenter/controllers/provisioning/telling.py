"""Telling pods, pools and metrics what a pass decided."""

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

import structlog

from karpenter.apis import conditions
from karpenter.apis.core import Pod
from karpenter.apis.karpenter import NodePool
from karpenter.controllers.context import Context
from karpenter.controllers.nominated import NominationTeller, places_of
from karpenter.controllers.provisioning.claims import Creation
from karpenter.controllers.provisioning.demand import Demand
from karpenter.controllers.provisioning.meters import Meters
from karpenter.controllers.provisioning.validation import NOT_OURS
from karpenter.controllers.provisioning.words import failure_text
from karpenter.model.instancetype import InstanceType
from karpenter.model.pods import pod_key
from karpenter.model.problem import Plan
from karpenter.model.reasons import Refusal, Unschedulable
from karpenter.model.requirements import Requirements
from karpenter.model.snapshot import Snapshot
from karpenter.scheduling.purse import PRICE

log = structlog.get_logger()

IGNORED = "ignoring pod"

SCHEDULING_EVENT_SECONDS = 300.0
POOL_EVENT_SECONDS = 60.0

Pods = Mapping[str, Pod]
"""The pods of a pass by key."""
Catalogues = Mapping[str, tuple[InstanceType, ...]]
"""Instance types by pool."""


class Teller:
    """Events, nominations and bookkeeping after a plan."""

    def __init__(self, context: Context, meters: Meters) -> None:
        self._context = context
        self._meters = meters
        self._nominations = NominationTeller(context)

    def placed(self, snapshot: Snapshot, plan: Plan, pods: Pods) -> None:
        """Nominate existing machines for the pods that are expected on them."""
        rows = {row.name: row for row in snapshot.nodes}
        for name, keys in plan.placements.items():
            self._context.cluster.nominate(name)
            row = rows[name]
            healthy = self._is_healthy(row.nodepool)
            for key in keys:
                self._nominate(pods[key], places_of(row), healthy)

    def created(self, creations: Sequence[Creation], pods: Pods) -> None:
        """Nominate new claims for their pods; pods whose claim was refused by the API server wait on."""
        for creation in creations:
            if creation.claim is None:
                for key in creation.planned.pods:
                    self._decide(pods[key], placed=False)
                continue
            self._context.cluster.nominate(creation.claim.name)
            healthy = self._is_healthy(creation.planned.pool.name)
            for key in creation.planned.pods:
                self._nominate(pods[key], f"nodeclaim/{creation.claim.name}", healthy)

    def unschedulable(self, snapshot: Snapshot, plan: Plan, pods: Pods, catalogues: Catalogues) -> None:
        """Tell pods why there is nothing for them, and pools that they allow no instance type.

        `catalogues` is what each pool could buy in this pass; a pool that could not tell is not in it.
        """
        self._meters.unschedulable.set(len(plan.unschedulable))
        cluster = self._context.cluster
        without_types = {pool.name for pool in snapshot.nodepools if not catalogues.get(pool.name)}
        refused: dict[str, bool] = {}
        broke: dict[str, tuple[int, str]] = {}
        for failure in plan.unschedulable:
            pod = pods[failure.pod]
            self._decide(pod, placed=False)
            self._refuse(pod, failure_text(failure, snapshot.nodepools, without_types))
            for refusal in failure.refusals:
                if refusal.place.startswith("nodepool/"):
                    name = refusal.place.removeprefix("nodepool/")
                    refused[name] = refused.get(name, False) or refusal.constraint == "minValues"
                    if refusal.detail.get("limit") == PRICE:
                        broke[name] = broke.get(name, (0, ""))[0] + 1, refusal.remedy
        for name, by_min_values in sorted(refused.items()):
            found = cluster.pool(name)
            if found is not None and (by_min_values or is_barren(found, catalogues.get(name, ()))):
                self._tell_barren(found, by_min_values)
        for name, (count, remedy) in sorted(broke.items()):
            found = cluster.pool(name)
            if found is not None:
                self._tell_broke(found, count, remedy)

    def invalid(self, demand: Demand) -> None:
        """Tell pods what is wrong with them; those that are not meant for us hear nothing."""
        self._meters.ignored.set(len(demand.invalid))
        for pod, error in demand.invalid:
            self._decide(pod, placed=False)
            log.debug(IGNORED, Pod=pod_key(pod), error=error)
            if error != NOT_OURS:
                self._refuse(pod, error)

    def remember(
        self,
        demand: Demand,
        refused: Iterable[Unschedulable],
        now: float,
        *,
        placed: Mapping[str, Iterable[str]] = MappingProxyType({}),
    ) -> None:
        """Keep why pods wait after this pass, for whoever asks, and count them by reason.

        `placed` are those that are expected on nodes that are there, by node.
        """
        invalid = (
            Unschedulable(
                pod=pod_key(pod), refusals=(Refusal(place="", constraint="unsupported", message=error),)
            )
            for pod, error in demand.invalid
        )
        log = self._context.cluster.refusals
        log.replace((*refused, *invalid), now, placed=placed)
        self._meters.refused.replace({(name,): float(n) for name, n in sorted(log.counts().items())})

    def _tell_barren(self, pool: NodePool, by_min_values: bool) -> None:
        self._context.recorder.publish(
            pool,
            "Warning",
            "NoCompatibleInstanceTypes",
            "NodePool requirements filtered out all compatible available instance types"
            + (" due to minValues incompatibility" if by_min_values else ""),
            dedupe=[pool.metadata.uid],
            dedupe_seconds=POOL_EVENT_SECONDS,
        )

    def _tell_broke(self, pool: NodePool, count: int, remedy: str) -> None:
        self._context.recorder.publish(
            pool,
            "Warning",
            "PriceLimitReached",
            f"{count} pod(s) wait because of limits on money; to fix: {remedy}",
            dedupe=[pool.metadata.uid],
            dedupe_seconds=SCHEDULING_EVENT_SECONDS,
        )

    def _nominate(self, pod: Pod, places: str, healthy: bool) -> None:
        if not pod.spec.node_name:
            self._decide(pod, placed=True, healthy=healthy)
        self._nominations.tell(pod, places)

    def _decide(self, pod: Pod, *, placed: bool, healthy: bool = False) -> None:
        waited = self._context.cluster.pod_times.decided(
            pod_key(pod), self._context.clock.now(), placed=placed, healthy_pool=healthy
        )
        if waited is not None:
            self._meters.decision_seconds.observe(waited)

    def _refuse(self, pod: Pod, error: str) -> None:
        self._context.recorder.publish(
            pod,
            "Warning",
            "FailedScheduling",
            f"Failed to schedule pod, {error}",
            dedupe=[pod.metadata.uid],
            dedupe_seconds=SCHEDULING_EVENT_SECONDS,
        )

    def _is_healthy(self, pool: str) -> bool:
        found = self._context.cluster.pool(pool)
        return found is not None and conditions.is_true(found.status.conditions, "NodeRegistrationHealthy")


def refused_claims(creations: Iterable[Creation]) -> list[Unschedulable]:
    """Return, for the pods of claims that were planned and not created, what stood in the way."""
    return [
        Unschedulable(
            pod=key,
            refusals=(
                Refusal(
                    place=f"nodepool/{creation.planned.pool.name}",
                    constraint="nodepool",
                    message=f"its NodeClaim could not be created: {creation.error}",
                    remedy="it is tried again",
                ),
            ),
        )
        for creation in creations
        if creation.claim is None
        for key in creation.planned.pods
    ]


def is_barren(pool: NodePool, types: Iterable[InstanceType]) -> bool:
    """Tell whether what `pool` itself asks for leaves nothing to buy, whatever the pods ask for."""
    template = pool.spec.template
    wanted = Requirements.from_specs(template.spec.requirements).merge(
        Requirements.from_labels(template.metadata.labels)
    )
    return not any(
        offering.available and not offering.requirements.intersects(wanted)
        for instance_type in types
        if not instance_type.requirements.intersects(wanted)
        for offering in instance_type.offerings
    )
