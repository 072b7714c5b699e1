"""The best plan for a tiny problem, found by trying everything: what the solver's plans are measured by.

It uses the verifier's rules, and no idea of the solver's: a plan is right when there is an order in which
kube-scheduler can bind all its pods where they are planned. One rule is stricter here. kube-scheduler
measures a spread by the emptiest domain that has a node; which domains have one is for the plan to say, so a
plan could put all its pods into one zone and keep nodes out of the others. Nobody means that by a spread:
like upstream, every domain counts in which a node could be bought for the pod, and a node of its own that
could be bought is an empty host. A domain that has no node and can have none counts nothing.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from heapq import heappop, heappush
from itertools import product

import msgspec

from karpenter.apis import labels as known
from karpenter.apis.core import Pod
from karpenter.model.pods import pod_key
from karpenter.model.problem import Plan, PlannedClaim, Problem
from karpenter.model.snapshot import NodeView
from karpenter.scheduling.check_fit import Load
from karpenter.scheduling.check_likeness import Likeness
from karpenter.scheduling.check_market import Market
from karpenter.scheduling.check_neighbours import quarrels
from karpenter.scheduling.check_nodes import node_faults
from karpenter.scheduling.check_openings import claims_for, topology_keys
from karpenter.scheduling.check_order import Newcomer, unbindable
from karpenter.scheduling.check_places import ClaimPlace, Machines, places_and_residents
from karpenter.scheduling.check_tallies import Spread
from karpenter.testing.plans import a_plan

Counts = tuple[int, ...]
"""How many pods of each kind."""


class TooLarge(Exception):
    """The problem has more plans than may be tried."""


class _Option(msgspec.Struct, frozen=True):
    price: float
    claim: PlannedClaim
    """For no pods yet."""


def urgencies(pods: Iterable[Pod]) -> tuple[int, ...]:
    """Return the priorities of `pods`, the highest first; of what may be refused the lowest is refused."""
    return tuple(sorted((pod.spec.priority or 0 for pod in pods), reverse=True))


def best_plan(problem: Problem, most_tries: int = 20_000) -> Plan:
    """Return a plan that refuses nobody, or as few and as little urgent pods as can be, at the least cost.

    Rather several pods are refused than one of a higher priority.

    Raises:
        TooLarge: when more than `most_tries` combinations would have to be judged.
        ValueError: when a pool has limits or minValues, which this does not understand.
    """
    for offer in problem.pools:
        if offer.remaining or any(r.min_values for r in offer.pool.spec.template.spec.requirements):
            raise ValueError(f"NodePool {offer.pool.name} has limits or minValues: take a problem without")
    return _Everything(problem, most_tries).best()


class _Everything:
    """All plans for one problem."""

    def __init__(self, problem: Problem, most_tries: int) -> None:
        self.problem, self.market = problem, Market(problem)
        self.tries_left = most_tries
        self.keys = [key for key in topology_keys(problem) if key != known.KUBERNETES_HOSTNAME]
        likes = Likeness()
        members: dict[int, list[Pod]] = {}
        for pod in problem.pods:
            members.setdefault(id(likes.first_like(pod)), []).append(pod)
        self.kinds = list(members.values())
        self.pods = {pod_key(p): p for p in problem.pods}
        self._options: dict[Counts, list[_Option]] = {}
        self._domains: dict[tuple[int, str], set[str]] = {}

    @cached_property
    def all(self) -> Counts:
        return tuple(len(kind) for kind in self.kinds)

    def best(self) -> Plan:
        """Try to refuse nobody, then whoever is least urgent, and so on."""
        choices: dict[tuple[int, ...], list[Counts]] = {}
        for left_out in product(*(range(n + 1) for n in self.all)):
            choices.setdefault(self._urgencies(left_out), []).append(left_out)
        for _, equal in sorted(choices.items()):
            found: Plan | None = None
            for left_out in equal:
                found = self._cheapest(_minus(self.all, left_out), found)
            if found is not None:
                return found
        raise AssertionError("refusing everybody is always a plan")

    def _urgencies(self, counts: Counts) -> tuple[int, ...]:
        """Return the priorities of these pods, the highest first."""
        return urgencies(kind[0] for kind, n in zip(self.kinds, counts, strict=True) for _ in range(n))

    def _cheapest(self, wanted: Counts, found: Plan | None) -> Plan | None:
        """Return the cheapest plan that places exactly `wanted`, if it is cheaper than `found`."""
        for on_nodes in self._on_nodes(wanted, self.problem.nodes):
            rest = wanted
            for counts in on_nodes:
                rest = _minus(rest, counts)
            for contents in self._contents(rest, rest):
                for claims in _by_price([self.options(c) for c in contents]):
                    if found is not None and sum(o.price for o in claims) >= found.cost - 1e-9:
                        break
                    plan = self._plan(on_nodes, contents, claims)
                    if self._works(plan):
                        found = plan
                        break
        return found

    def _on_nodes(self, wanted: Counts, nodes: Sequence[NodeView]) -> Iterator[list[Counts]]:
        """Yield every way to put some of `wanted` on existing nodes."""
        if not nodes:
            yield []
            return
        for here in product(*(range(n + 1) for n in wanted)):
            if not any(here) or not any(node_faults(self.problem, nodes[0], self._load(here))):
                for others in self._on_nodes(_minus(wanted, here), nodes[1:]):
                    yield [here, *others]

    def _contents(self, wanted: Counts, most: Counts) -> Iterator[list[Counts]]:
        """Yield every way to divide `wanted` among new nodes, the largest content first."""
        if not any(wanted):
            yield []
            return
        for content in product(*(range(n, -1, -1) for n in wanted)):
            if any(content) and content <= most and self.options(content):
                for others in self._contents(_minus(wanted, content), content):
                    yield [content, *others]

    def options(self, content: Counts) -> list[_Option]:
        """Return the cheapest node for such content in each combination of domains."""
        if content not in self._options:
            cheapest: dict[tuple[frozenset[str], ...], _Option] = {}
            load = self._load(content)
            for claim in claims_for(self.market, load, each_type=bool(self.problem.snapshot.daemons)):
                machines = Machines(self.market, claim)
                domains = tuple(machines.values(key) for key in self.keys)
                if domains not in cheapest or claim.price < cheapest[domains].price:
                    cheapest[domains] = _Option(claim.price, claim)
            self._options[content] = sorted(cheapest.values(), key=lambda o: o.price)
        return self._options[content]

    def _load(self, counts: Counts) -> Load:
        return [(kind[0], n) for kind, n in zip(self.kinds, counts, strict=True) if n]

    def _plan(self, on_nodes: list[Counts], contents: list[Counts], claims: Sequence[_Option]) -> Plan:
        """Name the pods."""
        names = [iter(pod_key(p) for p in kind) for kind in self.kinds]

        def take(counts: Counts) -> tuple[str, ...]:
            pairs = zip(names, counts, strict=True)
            return tuple(sorted(next(name) for name, n in pairs for _ in range(n)))

        placements: Mapping[str, tuple[str, ...]] = {
            node.name: take(counts)
            for node, counts in zip(self.problem.nodes, on_nodes, strict=True)
            if any(counts)
        }
        named = [
            msgspec.structs.replace(option.claim, pods=take(counts))
            for option, counts in zip(claims, contents, strict=True)
        ]
        return a_plan(self.problem, *named, nodes=placements)

    def _works(self, plan: Plan) -> bool:
        """Judge what no node shows by itself."""
        self.tries_left -= 1
        if self.tries_left < 0:
            raise TooLarge(f"{len(self.problem.pods)} pods have too many plans to try them all")
        places, residents = places_and_residents(self.market, plan, self.pods)
        snapshot = self.problem.snapshot
        return (
            not any(quarrels(snapshot, residents))
            and not any(unbindable(snapshot, places, residents))
            and not any(unbindable(snapshot, places, residents, Newcomer("", self._possible_domains)))
        )

    def _possible_domains(self, spread: Spread) -> set[str]:
        """Return the domains in which a node could be bought for the pod that carries `spread`."""
        key = (id(spread.owner), spread.key)
        if key not in self._domains:
            claims = claims_for(self.market, [(spread.owner, 1)], each_type=False)
            machines = [Machines(self.market, claim) for claim in claims]
            places = [ClaimPlace(f"bought {number}", m) for number, m in enumerate(machines)]
            counted = [place for place in places if spread.looks_at(place)]
            alike = counted[:1] if spread.key == known.KUBERNETES_HOSTNAME else counted
            self._domains[key] = {value for place in alike for value in place.values(spread.key)}
        return self._domains[key]


def _minus(left: Counts, right: Counts) -> Counts:
    return tuple(a - b for a, b in zip(left, right, strict=True))


def _by_price(options: Sequence[Sequence[_Option]]) -> Iterator[list[_Option]]:
    """Yield every choice of one option each, the cheapest choices first."""
    if not options:
        yield []
        return
    start = (0,) * len(options)
    queue = [(sum(o[0].price for o in options), start)]
    seen = {start}
    while queue:
        _, chosen = heappop(queue)
        yield [o[i] for o, i in zip(options, chosen, strict=True)]
        for k, at in enumerate(chosen):
            following = (*chosen[:k], at + 1, *chosen[k + 1 :])
            if at + 1 < len(options[k]) and following not in seen:
                seen.add(following)
                heappush(queue, (sum(o[i].price for o, i in zip(options, following, strict=True)), following))
