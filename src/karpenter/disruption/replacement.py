"""What may replace nodes that consolidation takes away: only what is cheaper, however the launch turns out.

A claim lists many types, and the cloud picks. So every type stays only while the dearest offering that it may
be launched with costs less than what goes. Spot is replaced by spot only where users allow it, and a single
node only while enough types are cheaper still: otherwise consolidation walks down to the cheapest type there
is, which is the one interrupted next.
"""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from msgspec.structs import replace

from karpenter.apis import labels
from karpenter.disruption.candidates import Candidate
from karpenter.disruption.command import Command
from karpenter.disruption.market import Market, Quote, enough_values
from karpenter.disruption.rounds import Policy
from karpenter.disruption.simulation import Outcome
from karpenter.disruption.verdicts import Code, Method, Verdict
from karpenter.model.problem import PlannedClaim
from karpenter.model.requirements import Requirement, Requirements

SPOT_FLEXIBILITY = 15
"""So many cheaper types a spot node needs before one node is replaced by spot."""

_SHOWN_PODS = 5
_SEVERAL = "search with --consolidation-search=sets: it may buy several nodes for one"
_CHEAPER = "Can't replace with a cheaper node"


class _Why(NamedTuple):
    """Why a claim cannot be bought for little enough."""

    code: Code
    message: str
    remedy: str
    names: tuple[str, ...] = ()
    """The instance types that would do, where they are too few."""


def replacement_of(
    candidates: Sequence[Candidate],
    outcome: Outcome,
    market: Market,
    policy: Policy,
    *,
    method: Method,
    most: int = 1,
) -> Command | Verdict:
    """Return the command that an outcome of taking `candidates` away comes to, or why it is none.

    Args:
        candidates: the nodes that would go, at least one; the verdict names the first.
        outcome: where their pods would go.
        market: what the claims of `outcome` could be launched for.
        policy: whether spot may replace spot.
        method: whose command it will be.
        most: how many nodes may be bought for those that go (upstream: one). The dearest that all of them
            together may come to is less than what goes costs.
    """
    before = sum(c.price for c in candidates)

    def verdict(code: Code, message: str, remedy: str = "", **detail: Any) -> Verdict:
        return Verdict(
            node=candidates[0].node.name,
            method=method,
            code=code,
            message=message,
            saving=None if outcome.stranded else before - outcome.price,
            remedy=remedy,
            detail=detail,
        )

    if outcome.stranded:
        return verdict("noPlace", stranded_in_words(outcome), way_out(outcome))
    if len(outcome.claims) > most:
        text = f"Can't remove without creating {len(outcome.claims)} candidates"
        return verdict("tooMany", text, _SEVERAL if most == 1 else "")
    claims: tuple[PlannedClaim, ...] = ()
    if outcome.claims:
        found = _cheaper(candidates, outcome.claims, market, policy)
        if isinstance(found, _Why):
            more = {"instanceTypes": found.names} if found.names else {}
            return verdict(found.code, found.message, found.remedy, **more)
        claims = found
    return Command(
        reason="Underutilized",
        method=method,
        candidates=tuple(candidates),
        replacements=claims,
        worst_price=sum(max(q.worst for q in market.of_claim(claim)) for claim in claims),
        placements=outcome.placements,
    )


def without_same_types(command: Command, market: Market) -> Command | Verdict:
    """Return `command` with a replacement that is cheaper than any node it could be the like of.

    Replacing three nodes by one of the type of the third is nothing but deleting the other two, with a launch
    for nothing. So where a type of the replacement is that of a node that goes, only types that cost less
    than such a node stay. Commands with another number of replacements than one are returned as they are.
    """
    if len(command.replacements) != 1:
        return command
    (claim,) = command.replacements
    prices: dict[str, float] = {}
    for candidate in command.candidates:
        kind = candidate.instance_type
        if kind is None:
            continue
        quotes = market.quotes(
            candidate.pool.name, Requirements.from_labels(candidate.node.labels), [kind.name]
        )
        price = quotes[0].best if quotes else candidate.price
        prices[kind.name] = min(price, prices.get(kind.name, price))
    limit = min((prices[name] for name in claim.instance_types if name in prices), default=None)
    if limit is None:
        return command
    kept = _bought(claim, market, limit)
    if isinstance(kept, _Why):
        return Verdict(
            node=command.candidates[0].node.name,
            method=command.method,
            code=kept.code,
            message=kept.message,
            saving=command.savings,
            remedy=kept.remedy,
        )
    return replace(
        command, replacements=(kept,), worst_price=max(quote.worst for quote in market.of_claim(kept))
    )


def only_types(claim: PlannedClaim, market: Market, names: Iterable[str]) -> PlannedClaim | None:
    """Return `claim` with those of its types that are among `names`; None when too few of them are left."""
    wanted = set(names)
    quotes = [quote for quote in market.of_claim(claim) if quote.name in wanted]
    kinds = [kind for q in quotes if (kind := market.kind(claim.pool.name, q.name)) is not None]
    if not quotes or enough_values(claim.requirements, kinds)[1]:
        return None
    return _listing(claim, quotes)


def _cheaper(
    candidates: Sequence[Candidate], claims: Sequence[PlannedClaim], market: Market, policy: Policy
) -> tuple[PlannedClaim, ...] | _Why:
    """Return `claims`, narrowed so that together they cost less than `candidates` whatever is launched."""
    before = sum(c.price for c in candidates)
    all_spot = all(c.capacity_type == labels.CAPACITY_SPOT for c in candidates)
    variants = []
    for claim in claims:
        from_spot = all_spot and _admits(claim.requirements, labels.CAPACITY_SPOT)
        if from_spot and not policy.spot_to_spot:
            return _Why(
                "spotToSpot",
                "SpotToSpotConsolidation is disabled, can't replace a spot node with a spot node",
                "turn on the feature gate SpotToSpotConsolidation",
            )
        variants.append(_variants(claim, market, from_spot))
    least = [min((_least(variant, market) for variant in own), default=float("inf")) for own in variants]
    slack = (before - sum(least)) / len(claims)
    chosen = []
    for claim, own, cost in zip(claims, variants, least, strict=True):
        found: PlannedClaim | _Why = _Why("notCheaper", _CHEAPER, _something_cheaper(claim, before))
        for variant in own:
            found = _bought(variant, market, cost + slack if len(claims) > 1 else before)
            if not isinstance(found, _Why):
                break
        if isinstance(found, _Why):
            return found
        if all_spot and len(candidates) == 1 and _admits(found.requirements, labels.CAPACITY_SPOT):
            flexible = _flexible(found, market)
            if isinstance(flexible, _Why):
                return flexible
            found = flexible
        chosen.append(found)
    return tuple(chosen)


def _variants(claim: PlannedClaim, market: Market, from_spot: bool) -> list[PlannedClaim]:
    """Return what `claim` may be narrowed to, the cheapest first.

    Where it admits both spot and on-demand it must be one of them: were spot to run out at launch, a dearer
    on-demand node would come of what was to save money.
    """
    both = _admits(claim.requirements, labels.CAPACITY_SPOT) and _admits(
        claim.requirements, labels.CAPACITY_ON_DEMAND
    )
    if not both and not from_spot:
        return [claim]
    narrowed = [_of_capacity_type(claim, labels.CAPACITY_SPOT)]
    if both and not from_spot:
        narrowed.append(_of_capacity_type(claim, labels.CAPACITY_ON_DEMAND))
    return sorted(narrowed, key=lambda variant: _least(variant, market))


def _bought(claim: PlannedClaim, market: Market, below: float) -> PlannedClaim | _Why:
    """Return `claim` with those of its types only that cost less than `below` however they are launched."""
    quotes = [quote for quote in market.of_claim(claim) if quote.worst < below]
    if not quotes:
        return _Why("notCheaper", _CHEAPER, _something_cheaper(claim, below))
    kinds = [kind for q in quotes if (kind := market.kind(claim.pool.name, q.name)) is not None]
    _, missing = enough_values(claim.requirements, kinds)
    if missing:
        wanted = {key: claim.requirements[key].min_values for key in sorted(missing)}
        keys = ", ".join(f"{key} ({missing[key]} of {number})" for key, number in wanted.items())
        return _Why(
            "notCheaper",
            f"Filtering by price: minValues requirement is not met for label(s) {keys}",
            f"lower minValues of nodepool/{claim.pool.name}",
        )
    return _listing(claim, quotes)


def _flexible(claim: PlannedClaim, market: Market) -> PlannedClaim | _Why:
    """Return a spot claim with its cheapest types only, unless there are too few of them."""
    quotes = market.of_claim(claim)
    if len(quotes) < SPOT_FLEXIBILITY:
        return _Why(
            "spotToSpot",
            f"SpotToSpotConsolidation requires {SPOT_FLEXIBILITY} cheaper instance type options than the "
            f"current candidate to consolidate, got {len(quotes)}",
            f"let nodepool/{claim.pool.name} buy {SPOT_FLEXIBILITY - len(quotes)} more instance types that "
            "are cheaper",
            tuple(quote.name for quote in quotes),
        )
    kinds = [kind for q in quotes if (kind := market.kind(claim.pool.name, q.name)) is not None]
    needed, _ = enough_values(claim.requirements, kinds)
    return _listing(claim, quotes[: max(SPOT_FLEXIBILITY, needed)])


def _listing(claim: PlannedClaim, quotes: Sequence[Quote]) -> PlannedClaim:
    """Return `claim` with just the types of `quotes`."""
    names = tuple(quote.name for quote in quotes)
    listed = Requirement.of(labels.INSTANCE_TYPE, "In", names)
    return replace(
        claim, instance_types=names, requirements=claim.requirements.add(listed), price=quotes[0].best
    )


def _of_capacity_type(claim: PlannedClaim, capacity_type: str) -> PlannedClaim:
    only = Requirement.of(labels.CAPACITY_TYPE, "In", [capacity_type])
    return replace(claim, requirements=claim.requirements.add(only))


def _admits(requirements: Requirements, capacity_type: str) -> bool:
    return requirements.get(labels.CAPACITY_TYPE).has(capacity_type)


def _least(claim: PlannedClaim, market: Market) -> float:
    """Return what the claim can be bound to cost at most, USD per hour; infinite when it cannot be bought."""
    return min((quote.worst for quote in market.of_claim(claim)), default=float("inf"))


def _something_cheaper(claim: PlannedClaim, below: float) -> str:
    if below <= 0:
        return "see why the price of the node is not known: its instance type, zone and capacity type"
    cores = claim.requests.get("cpu", 0) / 1000
    memory = claim.requests.get("memory", 0) / 2**30
    return (
        f"let nodepool/{claim.pool.name} buy a type with {cores:g} cores and {memory:.3g} GiB "
        f"for less than ${below:.4f} an hour"
    )


def stranded_in_words(outcome: Outcome) -> str:
    """Return which pods would have no place and why, in upstream's words."""
    shown = "; ".join(f"{each.pod} => {each}" for each in outcome.stranded[:_SHOWN_PODS])
    more = len(outcome.stranded) - _SHOWN_PODS
    return f"Not all pods would schedule, {shown}" + (f" and {more} other(s)" if more > 0 else "")


def way_out(outcome: Outcome) -> str:
    """Return the change that the solver knows for the first pod that has no place."""
    for each in outcome.stranded:
        for refusal in each.refusals:
            if refusal.remedy:
                return f"pod {each.pod}: {refusal.remedy}" + (f" ({refusal.place})" if refusal.place else "")
    return ""
