"""Volumes as a resource: how many of each CSI driver a pod brings, and how many a node can still attach.

A volume that several pods share counts for each of them: rather a node too many than a pod that waits.
"""

from collections.abc import Mapping

import msgspec

from karpenter.apis.core import Pod
from karpenter.base.quantity import Resources
from karpenter.model.instancetype import InstanceType
from karpenter.model.pods import pod_key
from karpenter.model.problem import Problem
from karpenter.model.snapshot import NodeView, Snapshot
from karpenter.scheduling.attachments import (
    LearnedLimits,
    attached,
    attachments,
    learned_volume_limits,
    limits_of_node,
    limits_of_type,
)

_PREFIX = "attachable-volumes/"
_ENDLESS = 2**40


def is_drive(resource: str) -> bool:
    """Tell whether a resource is one of these."""
    return resource.startswith(_PREFIX)


def driver_of(resource: str) -> str:
    """Return the CSI driver that a resource stands for."""
    return resource.removeprefix(_PREFIX)


class Drives(msgspec.Struct, frozen=True):
    """What the pods of a problem bring, and what nodes take."""

    by_pod: Mapping[str, Resources]
    learned: LearnedLimits
    drivers: frozenset[str]

    @staticmethod
    def of(problem: Problem) -> "Drives":
        """Look at the volumes of all pods to place."""
        brought = {
            pod_key(pod): attachments(pod, problem.snapshot) for pod in problem.pods if pod.spec.volumes
        }
        by_pod = {
            pod: {_PREFIX + driver: len(claims) for driver, claims in found.items()}
            for pod, found in brought.items()
        }
        drivers = frozenset(driver_of(name) for found in by_pod.values() for name in found)
        learned = learned_volume_limits(problem.snapshot) if drivers else {}
        return Drives(by_pod, learned, drivers)

    def wanted_by(self, pod: Pod) -> Resources:
        """Return how many volumes of each driver `pod` brings."""
        return self.by_pod.get(pod_key(pod), {})

    def free_on(self, node: NodeView, snapshot: Snapshot) -> Resources:
        """Return how many more volumes of each driver a node takes; never negative."""
        if not self.drivers:
            return {}
        limits, there = limits_of_node(node, self.learned), attached(node, snapshot)
        return {
            _PREFIX + driver: max(0, limits.get(driver, _ENDLESS) - len(there.get(driver, ())))
            for driver in self.drivers
        }

    def room_of(self, instance_type: InstanceType) -> Resources:
        """Return how many volumes of each driver a new node of a type takes."""
        if not self.drivers:
            return {}
        limits = limits_of_type(instance_type, self.learned)
        return {_PREFIX + driver: limits.get(driver, _ENDLESS) for driver in self.drivers}
