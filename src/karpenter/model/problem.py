"""What is asked of the solver, and what it answers. Plain data: either may cross a process boundary."""

import msgspec

from karpenter.apis.core import Pod
from karpenter.apis.karpenter import NodePool
from karpenter.base.quantity import Resources
from karpenter.model.instancetype import InstanceType
from karpenter.model.reasons import Unschedulable
from karpenter.model.requirements import Requirements
from karpenter.model.snapshot import NodeView, Snapshot

_DOUBTED = 1_000
"""More than any weight that a pool may have."""


class PoolOffer(msgspec.Struct, frozen=True, kw_only=True):
    """A NodePool that new nodes may come from, with what it can buy."""

    pool: NodePool
    instance_types: tuple[InstanceType, ...]
    """As the provider lists them, unfiltered, by name."""
    remaining: Resources = {}
    """What is left of `spec.limits` (resources, `nodes`) and of the pool's price limit (`price`, in micro-USD
    per hour); only keys that are limited."""
    interruption_cost: float = 0.0
    """USD that an interruption of one of its nodes costs: makes offerings that are interrupted dearer."""
    capacity_type_mix: dict[str, int] = {}
    """Shares of vCPU, in per cent, that its nodes are steered to, by capacity type; empty: no wish."""
    doubted: bool = False
    """Its machines have lately not become nodes: all other pools come first."""
    catalogue_version: int = 0
    """Changes when `instance_types` do; the compiled catalogue is cached by (pool, generation, version)."""

    @property
    def weight(self) -> int:
        """Which pools come first: those of higher weight."""
        return (self.pool.spec.weight or 0) - (_DOUBTED if self.doubted else 0)


class SolveOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Policies a user chose."""

    respect_preferences: bool = True
    min_values_strict: bool = True
    well_known_labels: frozenset[str]
    """Core's and the provider's: what pods may select without a pool defining it."""
    ignore_dra_requests: bool = True
    reservation_label: str = ""
    """The label under which reserved offerings carry their reservation's id; empty: the cloud has none."""
    reserved_strict: bool = False
    """Pods don't go on to the next pool while reserved capacity of this one is only held by claims on their
    way, one of which might fail."""
    price_remaining: int | None = None
    """What all new nodes together may cost, micro-USD per hour; None: no limit."""
    expendable_below: int | None = None
    """No node is bought for pods of lower priority than this; None: for all."""
    reserved_capacity: bool = True
    """Whether reserved offerings may be bought from at all."""
    node_fee: float = 0.02
    """USD per hour that every new node counts besides its price: many tiny nodes are no bargain."""
    concentration_penalty: float = 0.0
    """USD per hour that a new node counts besides when it holds all of several pods that are alike; less the
    fewer of them it holds, nothing up to half of them."""
    max_node_cpu: int | None = None
    """Thousandths of a core that a new node may have at most; None: any size."""
    nominated: bool = True
    """Pods will be bound where they are planned; False: kube-scheduler decides, and plans allow for that."""


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """Which machines should exist for these pods?"""

    snapshot: Snapshot
    pods: tuple[Pod, ...]
    """To be placed, by key: pending ones, and those of nodes that go away."""
    nodes: tuple[NodeView, ...]
    """Existing and in-flight capacity that may be used, by name (deleting ones left out)."""
    pools: tuple[PoolOffer, ...]
    """In order of preference: weight descending, then name descending."""
    options: SolveOptions
    held: dict[str, int] = {}
    """Reservations that claims on their way (not launched) will use, by reservation id: how many claims."""
    first: tuple[str, ...] = ()
    """Names of nodes that take pods before the others, in this order; those go by name."""


class Budget(msgspec.Struct, frozen=True, kw_only=True):
    """How long a search may go on; steps under virtual time, seconds otherwise."""

    steps: int | None = None
    seconds: float | None = None


class PlannedClaim(msgspec.Struct, frozen=True, kw_only=True):
    """A NodeClaim to create."""

    pool: NodePool
    requirements: Requirements
    """Everything the node must satisfy, instance types and capacity types included."""
    instance_types: tuple[str, ...]
    """Every type that still fits, cheapest first (ties by name)."""
    requests: Resources
    """Sum of its pods and the daemons that will run on it, `pods` counted."""
    pods: tuple[str, ...]
    """Keys of the pods meant for it, sorted."""
    price: float
    """USD per hour of its cheapest available compatible offering."""
    min_values_relaxed: bool = False
    lot: str = ""
    """What it draws on of which there is only so much (`karpenter.scheduling.stock`); empty: nothing."""


class LimitPrice(msgspec.Struct, frozen=True, kw_only=True):
    """What a limit that binds costs, by the prices that prove the plan's lower bound."""

    place: str
    """`nodepool/NAME`, or `cluster`."""
    resource: str
    """As in `PoolOffer.remaining`."""
    amount: str
    """One unit more: `1`, or `1Gi` of memory and storage."""
    usd: float
    """USD per hour that plans could be cheaper with `amount` more, about."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """The solver's answer."""

    claims: tuple[PlannedClaim, ...]
    placements: dict[str, tuple[str, ...]]
    """Pods (keys, sorted) meant for existing nodes, by node name."""
    unschedulable: tuple[Unschedulable, ...]
    """By pod key."""
    cost: float
    """USD per hour of the new claims."""
    lower_bound: float | None = None
    """No plan for these pods can cost less; None when it was not computed."""
    limit_prices: tuple[LimitPrice, ...] = ()
    """Of the limits that make the plan dearer, by place and resource; none without a search."""
    distrusted: tuple[str, ...] = ()
    """What was wrong with a cheaper plan that the search had found; this is the plain one instead."""
