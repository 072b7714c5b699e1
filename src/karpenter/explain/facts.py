"""What answers are made from: the cluster at one moment, and what decisions have said."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from karpenter.apis.core import Node, Pod
from karpenter.apis.karpenter import NodeClaim, NodePool
from karpenter.base.quantity import Resources
from karpenter.disruption.verdicts import Method
from karpenter.model.instancetype import InstanceType
from karpenter.model.snapshot import NodeView, Snapshot
from karpenter.state.refusallog import RefusalLog
from karpenter.state.verdictlog import VerdictLog


class Timeouts(NamedTuple):
    """How long NodeClaims may take, seconds."""

    launch: float
    registration: float
    initialization: float | None
    """From registration; None: for ever."""


class Facts(NamedTuple):
    """Everything an answer may look at. Functions only read; they belong to the same moment."""

    snapshot: Snapshot
    refusals: RefusalLog
    verdicts: VerdictLog
    methods: tuple[Method, ...]
    """Those that are asked, in their order."""
    pod: Callable[[str, str], Pod | None]
    """A pod by name and namespace."""
    claim: Callable[[str], NodeClaim | None]
    pool: Callable[[str], NodePool | None]
    """Whether managed or not."""
    expected_on: Callable[[Pod], str]
    """The claim on its way that a pod is expected on; empty: none."""
    missing: Callable[[NodeClaim, Node], tuple[str, str]]
    """What a registered node lacks to be initialized, as reason and message; empty when nothing."""
    idle: Callable[[NodePool, bool], str]
    """Why a pool is not asked for machines, given whether it has instance types; empty when it is."""
    price: Callable[[NodeClaim], float | None]
    """USD per hour."""
    spent: Mapping[str, int]
    """What each pool's machines cost, micro-USD per hour."""
    committed: Callable[[str], Resources]
    """The most that a pool may come to have: what its limits are held against."""
    catalogue: Callable[[str], tuple[InstanceType, ...]]
    """What a pool could buy when it was last asked."""
    cluster_price_limit: int | None
    """Micro-USD per hour; None: no limit."""
    timeouts: Timeouts
    gates: Mapping[str, bool]
    """Feature gates that are not at their defaults."""

    @property
    def now(self) -> float:
        return self.snapshot.taken_at

    def node(self, name: str) -> NodeView | None:
        """Return a machine by the name of its Node, or of its claim while there is no Node."""
        return next((view for view in self.snapshot.nodes if view.name == name), None)

    def machine(self, claim: str) -> NodeView | None:
        """Return a machine by the name of its claim."""
        return next((v for v in self.snapshot.nodes if v.claim is not None and v.claim.name == claim), None)
