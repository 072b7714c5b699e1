"""What every method of disruption is handed, and what it answers.

A round is one look at the cluster. The methods are asked in order; the first that has a command ends the
round, and the next round begins with what is then true. Methods are pure: rounds and decisions are data.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

import msgspec

from karpenter.disruption.budgets import Reason
from karpenter.disruption.candidates import Candidate
from karpenter.disruption.command import Command
from karpenter.disruption.memory import Memory
from karpenter.disruption.restarts import Restarts
from karpenter.disruption.simulation import Simulator
from karpenter.disruption.verdicts import Method, Verdict
from karpenter.model.instancetype import InstanceType
from karpenter.model.snapshot import Snapshot

Objection = Callable[[Command], Verdict | None]
"""Says why a command should not be carried out."""


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """What users chose by flag, as far as disruption cares."""

    spot_to_spot: bool = False
    """Whether spot nodes may be replaced by cheaper spot nodes."""
    min_values_strict: bool = True


class Round(NamedTuple):
    """One look at the cluster, and what may be done in it."""

    snapshot: Snapshot
    candidates: tuple[Candidate, ...]
    """Nodes that may be disrupted gracefully, by name."""
    eventual: tuple[Candidate, ...]
    """Nodes that may be disrupted although pods on them object, because their claims have a
    terminationGracePeriod; a superset of `candidates`. For drift."""
    remaining: Mapping[Reason, Mapping[str, int]]
    """How many more nodes budgets allow to be disrupted, by reason and pool."""
    simulator: Simulator
    catalogues: Mapping[str, Sequence[InstanceType]] = {}
    """The instance types of each pool, static ones included, by its name."""
    policy: Policy = Policy()
    objection: Objection = lambda _: None
    """Why a command should not be carried out although rules would allow it: it does not pay back, it undoes
    what was just done, its pods are in the middle of a rollout."""
    restarts: Restarts = Restarts()
    """What moving pods costs."""
    remembered: Memory = {}
    """What consolidation has moved lately."""
    more: Callable[[], bool] = lambda: True
    """Whether the search may go on, for one more step."""
    attempts: int | None = None
    """How many sets of nodes a search over sets may try in full, at most; None: as many as it ever would."""


class Move(msgspec.Struct, frozen=True, kw_only=True):
    """What a pool's policy said to a move that was possible and would have paid."""

    nodes: tuple[str, ...]
    """Of all pools, in the command's order."""
    pool: str
    policy: str
    """Its consolidationPolicy."""
    approved: bool
    """Policies that do not weigh moves approve of all."""
    score: float | None = None
    """Share of the cost saved by share of the disruption caused; None where policy does not weigh."""
    message: str = ""
    """The arithmetic, for an event; empty without a score."""


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """What a method wants done."""

    commands: tuple[Command, ...] = ()
    """To be started together; none when there is nothing to do."""
    verdicts: tuple[Verdict, ...] = ()
    """Why nodes are left alone, by node; those in `commands` are not among them."""
    moves: tuple[Move, ...] = ()
    """Moves that were weighed, pool by pool, in the order in which that happened."""
    eligible: int = 0
    """How many nodes the method is for, budgets and places aside."""
    settled: bool = True
    """Everything was looked at, and no budget or clock stood in the way: until something changes, there is
    no need to look again."""
    bound: bool = False
    """Everything was looked at, but a budget stood in the way: there is no need to look again until something
    changes, or budgets leave something else."""


class Search(Protocol):
    """A method of disruption."""

    method: Method
    reason: Reason

    def __call__(self, a_round: Round) -> Decision:
        """Decide. Pure, except that a search may remember where it had to stop."""
        ...
