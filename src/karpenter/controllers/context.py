"""What every controller is handed: the outside world, as seams."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from karpenter.apis import labels
from karpenter.apis.core import TopologySpreadConstraint
from karpenter.base.clock import Clock
from karpenter.base.metrics import Metrics
from karpenter.base.randomness import Random
from karpenter.cloudprovider import CloudProvider
from karpenter.kube.client import Client
from karpenter.kube.features import Server
from karpenter.kube.informer import Cache
from karpenter.model.problem import Budget
from karpenter.runtime import Executor, Recorder
from karpenter.state.cluster import Cluster


@dataclass(frozen=True)
class Settings:
    """What users chose by flag, as far as controllers care. Times in seconds."""

    batch_max_seconds: float = 10.0
    batch_idle_seconds: float = 1.0
    preference_policy: str = "Respect"
    """`Respect` or `Ignore`: whether preferences of pods count when buying nodes."""
    min_values_policy: str = "Strict"
    """`Strict` or `BestEffort`: whether minValues may be lowered when they cannot be met."""
    feature_gates: Mapping[str, bool] = field(default_factory=lambda: MappingProxyType({}))
    cpu_requests_milli: int = 1000
    """The operator's own CPU request; concurrency scales with it."""
    solve_budget: Budget = field(default_factory=Budget)
    consolidation_search: str = "sets"
    """`sets` or `upstream`: which searches for something cheaper there are."""
    restart_cost_seconds: float = 2700.0
    """What it costs to restart a pod, as time that it runs on its node."""
    payback_seconds: float = 12 * 3600.0
    """Within which time a consolidation has to save what it costs."""
    consolidation_budget: Budget = field(default_factory=lambda: Budget(steps=1000))
    """How long one of them may go on."""
    ignore_dra_requests: bool = True
    cluster_price_limit: int | None = None
    """What machines of all pools together may cost, micro-USD per hour; None: as much as they like."""
    expendable_below: int | None = None
    """No machine is bought for pods of lower priority; None: for all."""
    node_fee: float = 0.02
    """USD per hour that every new machine counts besides its price."""
    concentration_penalty: float = 0.0
    """USD per hour that a new machine counts besides when it holds all of several pods that are alike."""
    max_node_cpu_milli: int | None = None
    """How large a new machine may be; None: any size."""
    default_spread: tuple[TopologySpreadConstraint, ...] = ()
    """Topology spread of pods that bring no constraints of their own."""
    initialization_timeout: float | None = None
    """From registration; machines that are not initialized by then are replaced. None: never."""
    observability: bool = True
    """Whether per-object metrics are exported."""

    def concurrency(self, least: int, most: int) -> int:
        """Return the workers for the CPU at hand: `least` at one core, `most` at sixty, linear between."""
        cores = max(1, -(-self.cpu_requests_milli // 1000))
        return max(least, min(most, int((most - least) / 59 * (cores - 1)) + least))


@dataclass(frozen=True)
class Context:
    """The seams of one running operator."""

    client: Client
    cache: Cache
    cluster: Cluster
    provider: CloudProvider
    clock: Clock
    rng: Random
    metrics: Metrics
    recorder: Recorder
    executor: Executor
    settings: Settings = field(default_factory=Settings)
    server: Server = field(default_factory=Server)

    @property
    def well_known_labels(self) -> frozenset[str]:
        """Labels that pods may select without a pool defining them: the core's and the cloud's."""
        return labels.WELL_KNOWN_LABELS | self.provider.well_known_labels
