"""What every controller is handed."""

from dataclasses import dataclass

from karpenter.base.clock import Clock
from karpenter.base.metrics import Metrics
from karpenter.base.randomness import Random
from karpenter.cloudprovider import CloudProvider
from karpenter.kube.client import Client
from karpenter.kube.informer import Cache
from karpenter.model.problem import Budget
from karpenter.runtime import Executor, Recorder
from karpenter.state.cluster import Cluster


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The options that controllers heed."""

    batch_max_seconds: float = 10.0
    batch_idle_seconds: float = 1.0
    preference_policy: str = "Respect"
    min_values_policy: str = "Strict"
    feature_gates: dict[str, bool]
    cpu_requests_milli: int = 1000
    solve_budget: Budget
    ignore_dra_requests: bool = True
    observability: bool = True


@dataclass(frozen=True, kw_only=True)
class Context:
    """The assembly, as controllers see it."""

    client: Client
    cache: Cache
    cluster: Cluster
    provider: CloudProvider
    clock: Clock
    rng: Random
    metrics: Metrics
    recorder: Recorder
    executor: Executor
    settings: Settings
