"""How many evictions each PodDisruptionBudget allows right now."""

from typing import Any

import msgspec

from karpenter.apis.core import Pod
from karpenter.apis.workloads import PodDisruptionBudget
from karpenter.base.clock import Clock, format_time
from karpenter.base.metrics import Metrics
from karpenter.base.randomness import Random
from karpenter.embedded.controllers.kinds import FullDeployment, FullReplicaSet, FullStatefulSet
from karpenter.embedded.controllers.pods import (
    controller_of,
    is_finished,
    is_ready,
    own_key,
    pod_cache,
    watch_pods,
)
from karpenter.embedded.controllers.rollout import scaled_value
from karpenter.embedded.scheduler.predicates import label_selector_holds
from karpenter.kube.errors import NotFound
from karpenter.kube.informer import Cache, Change
from karpenter.kube.patch import merge
from karpenter.runtime import Controller, Result


def plan_budget(budget: PodDisruptionBudget, pods: list[Pod], expected: int, now: float) -> dict[str, Any]:
    """Return the status of a budget over `pods`, of which `expected` are meant to exist.

    Both limits round up; a pod counts as healthy when it is ready and not on its way out.
    """
    healthy = sum(is_ready(pod) and not pod.deleting for pod in pods)
    spec = budget.spec
    if spec.max_unavailable is not None:
        desired = max(0, expected - scaled_value(spec.max_unavailable, expected, 0, up=True))
    else:
        desired = scaled_value(spec.min_available, expected, 0, up=True)
    allowed = max(0, healthy - desired) if expected > 0 else 0
    generation = budget.metadata.generation
    condition = {
        "type": "DisruptionAllowed",
        "status": "True" if allowed else "False",
        "reason": "SufficientPods" if allowed else "InsufficientPods",
        "message": "",
        "observedGeneration": generation,
        "lastTransitionTime": format_time(now),
    }
    return {
        "disruptionsAllowed": allowed,
        "currentHealthy": healthy,
        "desiredHealthy": desired,
        "expectedPods": expected,
        "observedGeneration": generation,
        "conditions": [condition],
    }


def _labels(pod: Pod) -> list[str]:
    return [f"{pod.namespace}/{key}={value}" for key, value in pod.metadata.labels.items()]


class DisruptionBudgetController:
    """Keeps the statuses of PodDisruptionBudgets."""

    def __init__(self, cache: Cache, *, clock: Clock, rng: Random, metrics: Metrics) -> None:
        self._client = cache.client
        self._clock = clock
        self._budgets = cache.informer(PodDisruptionBudget)
        self._budgets.add_index("namespace", lambda budget: [budget.namespace])
        self._pods = pod_cache(cache)
        self._pods.add_index("namespace", lambda pod: [pod.namespace])
        self._pods.add_index("label", _labels)
        self._deployments = cache.informer(FullDeployment)
        self._replica_sets = cache.informer(FullReplicaSet)
        self._stateful_sets = cache.informer(FullStatefulSet)
        self.controller = Controller(
            "disruption-budget", self.reconcile, clock=clock, rng=rng, metrics=metrics, concurrency=4
        )
        self.controller.watch(self._budgets, own_key)
        watch_pods(self.controller, self._pods, self._over)
        for informer in (self._deployments, self._replica_sets, self._stateful_sets):
            self.controller.watch(informer, self._scaled)

    def _over(self, change: Change[Pod]) -> list[str]:
        labels = change.object.metadata.labels
        return [
            budget.key
            for budget in self._budgets.by_index("namespace", change.object.namespace)
            if label_selector_holds(budget.spec.selector, labels)
        ]

    def _scaled(self, change: Change[Any]) -> list[str]:
        if change.old is not None and change.old.spec.replicas == change.object.spec.replicas:
            return []
        return [budget.key for budget in self._budgets.by_index("namespace", change.object.namespace)]

    async def reconcile(self, key: str) -> Result:
        """Count one budget's pods and report."""
        namespace, _, name = key.partition("/")
        budget = self._budgets.get(name, namespace)
        if budget is None:
            return Result()
        pods = [
            pod
            for pod in self._candidates(budget)
            if label_selector_holds(budget.spec.selector, pod.metadata.labels) and not is_finished(pod)
        ]
        status = plan_budget(budget, pods, self._expected(budget, pods), self._clock.now())
        current = msgspec.to_builtins(budget.status)
        if any(current.get(field, 0) != value for field, value in status.items() if field != "conditions"):
            try:
                await self._client.patch(
                    PodDisruptionBudget,
                    name,
                    merge({"status": status}),
                    namespace=namespace,
                    subresource="status",
                )
            except NotFound:
                return Result()
        return Result()

    def _candidates(self, budget: PodDisruptionBudget) -> list[Pod]:
        """Return the pods that share one label with the selector, rather than the whole namespace."""
        selector = budget.spec.selector
        if selector is None:
            return []
        if not selector.match_labels:
            return self._pods.by_index("namespace", budget.namespace)
        key, value = min(selector.match_labels.items())
        return self._pods.by_index("label", f"{budget.namespace}/{key}={value}")

    def _expected(self, budget: PodDisruptionBudget, pods: list[Pod]) -> int:
        """Return how many pods should exist: what their controllers ask for, if the limit needs to know."""
        spec = budget.spec
        if spec.max_unavailable is None and not isinstance(spec.min_available, str):
            return len(pods)
        scales: dict[str, int] = {}
        lone = 0
        for pod in pods:
            found = self._scale_of(pod)
            if found is None:
                lone += 1
            else:
                scales[found[0]] = found[1]
        return sum(scales.values()) + lone

    def _scale_of(self, pod: Pod) -> tuple[str, int] | None:
        owner = controller_of(pod)
        if owner is None:
            return None
        if owner.kind == "ReplicaSet":
            replica_set = self._replica_sets.get(owner.name, pod.namespace)
            above = controller_of(replica_set) if replica_set else None
            if above is not None and above.kind == "Deployment":
                deployment = self._deployments.get(above.name, pod.namespace)
                if deployment is not None:
                    return deployment.metadata.uid, deployment.spec.replicas
            return (replica_set.metadata.uid, replica_set.spec.replicas) if replica_set else None
        if owner.kind == "StatefulSet":
            stateful = self._stateful_sets.get(owner.name, pod.namespace)
            return (stateful.metadata.uid, stateful.spec.replicas) if stateful else None
        return None
