"""What the search is asked and what it answers."""

from collections.abc import Sequence

import msgspec
import numpy as np

from karpenter.scheduling.catalogue import Amounts, Mask, Prices


class PackingProblem(msgspec.Struct, frozen=True, kw_only=True):
    """Pods to place on nodes that can be bought. Arrays are read, never written.

    Amounts are whole numbers in whatever unit the caller likes, the same for `wanted` and `room`, and for
    `usage` and `remaining`.
    """

    wanted: Amounts
    """[ask, resource] What one pod of an ask requests. An ask is a class of pods that are all alike."""
    count: Amounts
    """[ask] Pods to place, more than 0."""
    most: Amounts
    """[ask] Most pods of the ask on one node; very large where nothing bounds it."""
    room: Amounts
    """[offer, resource] What pods can have on one node of an offer: daemons are already taken off."""
    price: Prices
    """[offer] USD per hour, more than 0. What a spot node's interruptions cost is in it already."""
    allowed: Mask
    """[ask, offer] Pods of the ask may be on nodes of the offer."""
    apart: Mask | None = None
    """[ask, ask] Symmetric: pods of the two asks are never together on one node. The diagonal is ignored:
    how many pods of one ask share a node is said by `most`."""
    usage: Amounts
    """[offer, limit] What one node of an offer takes of a limit."""
    remaining: Amounts
    """[limit] What is left of each limit; of shape (0,) where there are none."""
    fee: float = 0.02
    """USD per hour that every node adds to the objective, not to its cost: keeps nodes from being tiny."""
    concentration: float = 0.0
    """USD per hour that a node adds to the objective when it holds all pods of an ask of more than one pod;
    a node that holds half of them or less adds nothing, in between the square of the excess counts."""


class NodePattern(msgspec.Struct, frozen=True):
    """Nodes that are bought and filled alike."""

    offer: int
    """Which offer, by its row."""
    counts: tuple[tuple[int, int], ...]
    """(ask, pods on each node), by ask."""
    copies: int
    """How many such nodes."""


class Packing(msgspec.Struct, frozen=True, kw_only=True):
    """The best plan found, and what the search learned about prices on the way."""

    patterns: tuple[NodePattern, ...]
    """The nodes, by offer and content."""
    cost: float
    """USD per hour of all nodes, without fees and penalties."""
    lower_bound: float
    """USD per hour that no plan that places all the pods can beat; 0 when unknown."""
    duals: Prices
    """[ask] USD per hour that one more pod of the ask would cost, by the linear program."""
    limit_duals: Prices
    """[limit] USD per hour that one more unit of the limit would save."""
    unplaced: Amounts
    """[ask] Pods on no node."""
    steps: int
    """How often the search went on: the same number of steps gives the same plan."""


def penalty(problem: PackingProblem, counts: Amounts) -> Prices:
    """Return, by node, what `counts` [node, ask] adds to the objective for concentration, in USD per hour."""
    if problem.concentration <= 0:
        return np.zeros(len(counts))
    several = problem.count > 1
    share = counts[:, several] / problem.count[several]
    excess = np.maximum(share - 0.5, 0.0) * 2
    found: Prices = problem.concentration * (excess**2).sum(axis=1)
    return found


def checked(problem: PackingProblem) -> PackingProblem:
    """Return `problem`; raise ValueError when shapes don't agree or numbers make no sense."""
    asks, resources = problem.wanted.shape
    offers = len(problem.price)
    shapes: Sequence[tuple[str, tuple[int, ...], tuple[int, ...]]] = (
        ("count", problem.count.shape, (asks,)),
        ("most", problem.most.shape, (asks,)),
        ("room", problem.room.shape, (offers, resources)),
        ("allowed", problem.allowed.shape, (asks, offers)),
        ("usage", problem.usage.shape, (offers, len(problem.remaining))),
        ("apart", (asks, asks) if problem.apart is None else problem.apart.shape, (asks, asks)),
    )
    for name, found, needed in shapes:
        if found != needed:
            raise ValueError(f"PackingProblem.{name} has shape {found}; give it shape {needed}")
    for name, wrong, rule in (
        ("count", bool((problem.count <= 0).any()), "more than 0"),
        ("price", not bool((problem.price > 0).all()), "more than 0"),
        ("wanted", bool((problem.wanted < 0).any()), "0 or more"),
        ("usage", bool((problem.usage < 0).any()), "0 or more"),
    ):
        if wrong:
            low = getattr(problem, name).min()
            raise ValueError(f"PackingProblem.{name} has {low}; every value must be {rule}")
    return problem
