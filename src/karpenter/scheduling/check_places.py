"""Where pods are or will be: existing nodes and planned ones, and the domains these are in."""

from collections.abc import Callable, Hashable, Mapping
from typing import Protocol

from karpenter.apis import labels as known
from karpenter.apis.core import Pod, Taint
from karpenter.model.pods import is_active, pod_key
from karpenter.model.problem import Plan, PlannedClaim
from karpenter.model.snapshot import NodeView
from karpenter.scheduling.check_company import company
from karpenter.scheduling.check_fit import hard_taints, labels_of, selected, ways
from karpenter.scheduling.check_market import Market


class Place(Protocol):
    """A node, or a claim that will become one."""

    @property
    def name(self) -> str:
        """As messages call it; no two places share it."""

    @property
    def likeness(self) -> Hashable:
        """What places share that differ in nothing but their host name."""

    def values(self, key: str) -> frozenset[str]:
        """Return the values the node may have for a label; empty when it will not have the label."""

    def takes(self, pod: Pod, *, affinity: bool, taints: bool) -> bool:
        """Tell whether a spread constraint of `pod` looks at this node, by its inclusion policies."""


class Resident:
    """A pod and where it is or will be."""

    __slots__ = ("kind", "place", "planned", "pod")

    def __init__(self, pod: Pod, place: Place, kind: bytes, *, planned: bool) -> None:
        """Say that `pod` runs on `place`, or with `planned` that it will; `kind` is the same for its like."""
        self.pod, self.place, self.kind, self.planned = pod, place, kind, planned

    @property
    def key(self) -> str:
        """The key of the pod."""
        return pod_key(self.pod)


class NodePlace:
    """An existing node."""

    def __init__(self, node: NodeView) -> None:
        """Look at `node` as a place; its host name is its name unless a label says otherwise."""
        self.node = node
        self.name = f"node {node.name}"
        self._labels = labels_of(node)

    @property
    def likeness(self) -> Hashable:
        """Itself: nodes are not compared."""
        return self

    def values(self, key: str) -> frozenset[str]:
        """Return the one value of the label, or nothing."""
        return frozenset({self._labels[key]}) if key in self._labels else frozenset()

    def takes(self, pod: Pod, *, affinity: bool, taints: bool) -> bool:
        """Tell whether the node passes the pod's node selection and tolerations, as far as asked."""
        return (not affinity or selected(pod, self._labels)) and (
            not taints or not hard_taints(self.node.taints, pod)
        )


class Machines:
    """What a planned node may turn out to be; equal claims share it."""

    def __init__(self, market: Market, claim: PlannedClaim) -> None:
        """Collect the types that `claim` lists."""
        self._market, self._pool, self._requirements = market, claim.pool.name, claim.requirements
        self._taints: list[Taint] = market.offers[self._pool].pool.spec.template.spec.taints
        self._given = {known.NODEPOOL: self._pool, **claim.requirements.labels(market.well_known)}
        catalogue = market.types[self._pool]
        self._types = [catalogue[name] for name in claim.instance_types if name in catalogue]
        self._values: dict[str, frozenset[str]] = {}

    def values(self, key: str) -> frozenset[str]:
        """Return the values that some of them would have."""
        if key not in self._values:
            self._values[key] = frozenset({self._given[key]}) if key in self._given else self._choices(key)
        return self._values[key]

    def _choices(self, key: str) -> frozenset[str]:
        # Types and their offerings say few different things about one label.
        said = self._market.said(self._pool, self._requirements, [t.name for t in self._types], key)
        mine = self._requirements.get(key)
        return frozenset(
            value
            for by_type, by_offering in said
            for value in mine.intersection(by_type).intersection(by_offering).permitted()
        )

    def takes(self, pod: Pod, *, affinity: bool, taints: bool) -> bool:
        """Tell whether some of them pass the pod's node selection and tolerations, as far as asked."""
        if taints and hard_taints(self._taints, pod):
            return False
        return not affinity or any(
            not self._requirements.compatible(way, self._market.well_known)
            and any(not t.requirements.intersects(way) for t in self._types)
            for way in ways(pod)
        )


class ClaimPlace:
    """A planned node: one of several machines, perhaps in one of several zones."""

    def __init__(self, name: str, machines: Machines) -> None:
        """Say that the claim called `name` becomes one of `machines`; it is its own host."""
        self.name, self._machines = name, machines
        self._host = frozenset({name})

    @property
    def likeness(self) -> Hashable:
        """Return the machines it may become."""
        return self._machines

    def values(self, key: str) -> frozenset[str]:
        """Return the values that some machine the claim may become would have."""
        return self._host if key == known.KUBERNETES_HOSTNAME else self._machines.values(key)

    def takes(self, pod: Pod, *, affinity: bool, taints: bool) -> bool:
        """Tell whether the claim may become a node that passes what is asked of it."""
        return self._machines.takes(pod, affinity=affinity, taints=taints)


def places_and_residents(
    market: Market, plan: Plan, pods: Mapping[str, Pod], kind_of: Callable[[Pod], bytes] = company
) -> tuple[list[Place], list[Resident]]:
    """Return the nodes there will be, and all pods with a place: running ones that stay, then planned ones.

    Nodes that are not to be used (they go away) are no places, but what runs there still counts. `kind_of`
    tells apart pods that differ to their company.
    """
    problem = market.problem
    nodes = {n.name: NodePlace(n) for n in problem.snapshot.nodes}
    nodes |= {n.name: NodePlace(n) for n in problem.nodes}
    usable: list[Place] = [nodes[n.name] for n in problem.nodes]
    residents = [
        Resident(pod, nodes[node.name], kind_of(pod), planned=False)
        for node in problem.snapshot.nodes
        for pod in node.pods
        if is_active(pod) and pod_key(pod) not in pods
    ]
    for name, keys in plan.placements.items():
        if name in nodes:
            residents += [Resident(pods[key], nodes[name], kind_of(pods[key]), planned=True) for key in keys]
    shapes: dict[tuple[object, ...], Machines] = {}
    for number, claim in enumerate(plan.claims):
        if claim.pool.name not in market.offers:
            continue
        shape = (claim.pool.name, claim.requirements, claim.instance_types)
        if shape not in shapes:
            shapes[shape] = Machines(market, claim)
        place = ClaimPlace(f"claim {number}", shapes[shape])
        usable.append(place)
        residents += [Resident(pods[key], place, kind_of(pods[key]), planned=True) for key in claim.pods]
    return usable, residents
