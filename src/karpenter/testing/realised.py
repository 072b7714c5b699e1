"""What a plan costs once kube-scheduler has had its way with it.

A plan says which pods are meant for which machine, but kube-scheduler binds them, by scores of its own. Here
the machines of a plan arrive one by one, the embedded scheduler's filters and scores bind pods, and what is
left without a node is planned for again, until nobody waits. Pure: no API server, no time.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import msgspec

from karpenter.apis import labels as known
from karpenter.apis.core import Pod
from karpenter.apis.karpenter import NodeClaimTemplate
from karpenter.apis.meta import LabelSelector
from karpenter.base.quantity import format_resources, total
from karpenter.base.randomness import Random, seeded
from karpenter.embedded.scheduler.filters import evaluate
from karpenter.embedded.scheduler.model import ClusterModel, Placed
from karpenter.embedded.scheduler.podclass import PodClass, signature_of
from karpenter.embedded.scheduler.scores import chosen
from karpenter.model.instancetype import InstanceType
from karpenter.model.pods import pod_key, requests
from karpenter.model.problem import Plan, PlannedClaim, Problem
from karpenter.model.snapshot import NodeView
from karpenter.testing.builders import a_view

MOST_ROUNDS = 6
BEHIND = 2
"""How many pods kube-scheduler binds before a place is passed on: in 40 ms at its default of 50 a second."""
ORDERS = ("creation", "random", "biggest")
"""In which order pods may wait: as they were created, drawn by lot, the biggest first."""
ARRIVALS = ("planned", "drawn", "together")
"""How machines may become ready: one by one in the plan's order, in one drawn by lot, all at once."""

Keys = tuple[str, ...]


class Purchase(msgspec.Struct, frozen=True, kw_only=True):
    """A machine that was decided on."""

    pool: str
    instance_type: str
    zone: str
    capacity_type: str
    price: float
    """USD per hour."""
    pods: Keys
    """Keys of the pods meant for it."""


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """What a planner answers: machines to buy, and pods meant for those there are."""

    purchases: tuple[Purchase, ...]
    placements: dict[str, Keys] = {}

    @property
    def cost(self) -> float:
        """USD per hour of what is bought."""
        return sum(p.price for p in self.purchases)


Planner = Callable[[Problem], Decision]


class Realised(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a plan."""

    pods: int
    """How many the first round planned for."""
    as_planned: int
    """How many of them were bound to a machine planned for them, or for as many pods that are equal to them:
    pods of one class, say of one ReplicaSet, may have changed places among themselves."""
    themselves: int
    """How many of them were bound to the very machine that they were planned for."""
    late: int
    """How many of them had no node when all machines of the first round had come."""
    planned_cost: float
    """USD per hour of the first round's machines."""
    cost: float
    """USD per hour of all rounds' machines."""
    rounds: int
    """How often something was bought."""
    waiting: Keys
    """Pods that never found a node, by key."""

    @property
    def share_as_planned(self) -> float:
        """Of the pods planned for, 0 to 1."""
        return self.as_planned / self.pods if self.pods else 1.0

    @property
    def share_themselves(self) -> float:
        """Of the pods planned for, 0 to 1: those on their very own machine."""
        return self.themselves / self.pods if self.pods else 1.0


def decided(problem: Problem, plan: Plan) -> Decision:
    """Return what becomes of `plan` when each claim gets the cheapest machine it allows."""
    types = {t.name: t for offer in problem.pools for t in offer.instance_types}
    return Decision(
        purchases=tuple(_purchase(claim, types) for claim in plan.claims), placements=dict(plan.placements)
    )


def _purchase(claim: PlannedClaim, types: Mapping[str, InstanceType]) -> Purchase:
    price, name, zone, capacity_type = min(
        (offering.price, name, offering.zone, offering.capacity_type)
        for name in claim.instance_types
        for offering in types[name].offerings
        if offering.available and not claim.requirements.intersects(offering.requirements)
    )
    return Purchase(
        pool=claim.pool.name,
        instance_type=name,
        zone=zone,
        capacity_type=capacity_type,
        price=price,
        pods=claim.pods,
    )


def realise(
    problem: Problem,
    planner: Planner,
    *,
    order: str = "creation",
    seed: int = 1,
    nominate: bool = False,
    arrival: str = "drawn",
    behind: int = BEHIND,
) -> Realised:
    """Let `planner` plan and kube-scheduler bind, in turns, until no pod waits or nothing more is bought.

    Pods wait in the given order (one of `ORDERS`), machines arrive in the given way (one of `ARRIVALS`);
    `seed` decides whatever is drawn by lot. With `nominate` each pod's `status.nominatedNodeName` is set as
    soon as the machine it is planned for is there. When a pod is bound in another zone, its place is passed
    on (`karpenter.controllers.nodeclaim.heirs`) after `behind` more pods. Pods that fit on the nodes there
    are at the start are bound there before anything is planned. DaemonSets do not run.

    Raises:
        ValueError: the order or the arrival is not a known one.
    """
    if arrival not in ARRIVALS:
        raise ValueError(f"arrival {arrival!r} is none of {', '.join(ARRIVALS)}")
    return _play(_Cluster(problem, order, seeded(seed), behind), planner, nominate=nominate, arrival=arrival)


def nodes_after(problem: Problem, planner: Planner, *, seed: int = 1) -> tuple[NodeView, ...]:
    """Return the nodes, with the pods on them, that `realise` ends with."""
    cluster = _Cluster(problem, "creation", seeded(seed))
    _play(cluster, planner)
    return cluster.problem().nodes


def strays(problem: Problem, plan: Plan) -> list[tuple[int, str]]:
    """Return which pods kube-scheduler could bind to a machine of the plan that comes before their own.

    By the machine's number in the plan: for each, all pods that are planned for it count as bound there. Each
    machine is looked at by itself, so that spreads over several of them hinder nobody.
    """
    cluster = _Cluster(msgspec.structs.replace(problem, nodes=()), "creation", seeded(1))
    found = []
    purchases = decided(problem, plan).purchases
    for number, purchase in enumerate(purchases):
        later = [key for other in purchases[number + 1 :] for key in other.pods]
        found += [(number, key) for key in cluster.welcome(purchase, later)]
    return found


def _play(
    cluster: "_Cluster", planner: Planner, *, nominate: bool = False, arrival: str = "drawn"
) -> Realised:
    cluster.bind()
    first: Realised | None = None
    cost, rounds = 0.0, 0
    for _ in range(MOST_ROUNDS):
        asked = cluster.problem()
        if not asked.pods:
            break
        decision = planner(asked)
        if not decision.purchases and not decision.placements:
            break
        meant = cluster.carry_out(decision, nominate=nominate, arrival=arrival)
        rounds += bool(decision.purchases)
        cost += decision.cost
        if first is None:
            first = Realised(
                pods=len(meant),
                as_planned=cluster.as_planned(meant),
                themselves=sum(cluster.node_of(key) == node for key, node in meant.items()),
                late=sum(not cluster.node_of(key) for key in meant),
                planned_cost=cost,
                cost=cost,
                rounds=1,
                waiting=(),
            )
    waiting = tuple(pod_key(p) for p in cluster.problem().pods)
    if first is None:
        return Realised(
            pods=0, as_planned=0, themselves=0, late=0, planned_cost=0, cost=0, rounds=0, waiting=waiting
        )
    return msgspec.structs.replace(first, cost=cost, rounds=rounds, waiting=waiting)


class _Cluster:
    """The nodes there are, the pods on them, and the pods that wait, in the order of the queue."""

    def __init__(self, problem: Problem, order: str, rng: Random, behind: int = BEHIND) -> None:
        self._asked, self._behind = problem, behind
        self._rng = rng
        self._model = ClusterModel()
        self._types = {t.name: t for offer in problem.pools for t in offer.instance_types}
        self._templates = {o.pool.name: o.pool.spec.template for o in problem.pools}
        self._views: dict[str, NodeView] = {}
        self._pods = {pod_key(p): p for p in problem.pods}
        self._waiting = {key: self._class_of(self._pods[key]) for key in _queued(problem.pods, order, rng)}
        self._promised: dict[str, str] = {}
        self._expected: dict[str, tuple[str, str]] = {}
        """On which node, in which zone, pods are expected that machines were bought for."""
        for view in problem.nodes:
            self._arrive(view)
            for pod in view.pods:
                self._model.place(Placed(pod_key(pod), view.name, self._class_of(pod)))

    def welcome(self, purchase: Purchase, others: Sequence[str]) -> list[str]:
        """Return which of the `others` could be bound to a machine that holds its own pods."""
        view = _machine("n", purchase, self._types[purchase.instance_type], self._templates)
        assert view.node is not None
        model = ClusterModel()
        model.set_node(view.node)
        classes = {key: self._class_of(self._pods[key]) for key in (*purchase.pods, *others)}
        for pod_class in set(classes.values()):
            model.intern(pod_class)
        for key in purchase.pods:
            model.place(Placed(key, "n", classes[key]))
        return [key for key in others if evaluate(model, classes[key]).feasible.any()]

    def as_planned(self, meant: Mapping[str, str]) -> int:
        """Return how many pods are where they were meant to be, by key, equal ones taken for each other."""
        signatures = {key: self._class_of(self._pods[key]).signature for key in meant}
        planned = Counter((signatures[key], node) for key, node in meant.items())
        found = Counter((signatures[key], self.node_of(key)) for key in meant)
        return (planned & found).total()

    def node_of(self, key: str) -> str:
        """Return where a pod is bound; empty: nowhere."""
        placed = self._model.pods.get(key)
        return placed.node if placed is not None else ""

    def problem(self) -> Problem:
        """Return the question that a planner is asked now."""
        bound: dict[str, list[Pod]] = {}
        for key, pod in self._pods.items():
            node = self.node_of(key)
            if node:
                spec = msgspec.structs.replace(pod.spec, node_name=node)
                bound.setdefault(node, []).append(msgspec.structs.replace(pod, spec=spec))
        views = tuple(_filled(view, bound.get(name, [])) for name, view in sorted(self._views.items()))
        turns = {key: str(turn) for turn, key in enumerate(self._waiting, 1)}
        pods = tuple(_marked(self._pods[key], turns[key]) for key in sorted(turns))
        snapshot = msgspec.structs.replace(self._asked.snapshot, nodes=views, pending=pods)
        return msgspec.structs.replace(self._asked, snapshot=snapshot, nodes=views, pods=pods)

    def carry_out(self, decision: Decision, *, nominate: bool, arrival: str) -> dict[str, str]:
        """Let the machines arrive; return the node that each pod was planned for."""
        meant = {key: name for name, keys in decision.placements.items() for key in keys}
        self._expected = {}
        start = len(self._views)
        named = [(f"n{i:05d}", purchase) for i, purchase in enumerate(decision.purchases, start)]
        self._promised = {}
        if nominate:
            self._promised = {key: meant[key] for key in sorted(meant)}
            self._nominate()
            self.bind()
            self._expected = {key: (name, p.zone) for name, p in named for key in p.pods}
        if arrival != "planned":
            self._rng.shuffle(named)
        for name, purchase in named:
            self._arrive(_machine(name, purchase, self._types[purchase.instance_type], self._templates))
            meant |= dict.fromkeys(purchase.pods, name)
            if nominate:
                self._promised |= {key: name for key, (node, _) in self._expected.items() if node == name}
                self._nominate()
            if arrival != "together":
                self.bind()
        while self.bind():
            continue
        return meant

    def bind(self) -> bool:
        """Bind every pod that some node can take, one after the other; tell whether places were passed on."""
        moved, passed, bound = True, False, list[tuple[str, str, PodClass]]()
        while moved:
            moved = False
            failed: set[tuple[bytes, str]] = set()
            for key, pod_class in list(self._waiting.items()):
                promised = self._promised.get(key, "")
                if (pod_class.signature, promised) in failed:
                    continue
                node = chosen(
                    self._model, pod_class, evaluate(self._model, pod_class, key=key), promised, self._rng
                )
                if node is None:
                    failed.add((pod_class.signature, promised))
                    continue
                moved = True
                del self._waiting[key]
                self._model.nominate(key, "", None)
                self._model.place(Placed(key, node, pod_class))
                bound.append((key, node, pod_class))
                if len(bound) > self._behind:
                    passed |= self._pass_on(*bound.pop(0))
        for late in bound:
            passed |= self._pass_on(*late)
        return passed

    def _pass_on(self, key: str, node: str, pod_class: PodClass) -> bool:
        """Give the place of a pod that went to another zone to the last like it that was meant for that."""
        planned, home = self._expected.pop(key, ("", ""))
        zone = self._views[node].labels.get(known.ZONE, "")
        if not planned or planned == node or home == zone:
            return False
        like = [k for k, c in self._waiting.items() if c is pod_class and k in self._expected]
        other = next((k for k in reversed(like) if self._expected[k][1] == zone), None)
        if other is not None:
            self._expected[other] = (planned, home)
            self._promised[other] = planned if planned in self._views else ""
            self._model.nominate(other, self._promised[other], pod_class)
        return other is not None

    def _nominate(self) -> None:
        for key, pod_class in self._waiting.items():
            self._model.nominate(key, self._promised.get(key, ""), pod_class)

    def _arrive(self, view: NodeView) -> None:
        assert view.node is not None
        self._views[view.name] = view
        self._model.set_node(view.node)

    def _class_of(self, pod: Pod) -> PodClass:
        app = {k: v for k, v in pod.metadata.labels.items() if k == "app"}
        owner = LabelSelector(match_labels=app) if app else None  # as if a ReplicaSet had made it
        signature = signature_of(pod, owner)
        return self._model.classes.get(signature) or self._model.intern(PodClass(signature, pod, owner))


def _queued(pods: Sequence[Pod], order: str, rng: Random) -> list[str]:
    """Return the keys in the order in which kube-scheduler's queue hands them out.

    Raises:
        ValueError: the order is none of `ORDERS`.
    """
    keys = sorted(pod_key(p) for p in pods)
    if order == "random":
        rng.shuffle(keys)
    elif order == "biggest":
        size = {pod_key(p): (requests(p).get("cpu", 0), requests(p).get("memory", 0)) for p in pods}
        keys.sort(key=lambda key: size[key], reverse=True)
    elif order != "creation":
        raise ValueError(f"order {order!r} is none of {', '.join(ORDERS)}")
    priority = {pod_key(p): p.spec.priority or 0 for p in pods}
    return sorted(keys, key=lambda key: -priority[key])


def _machine(
    name: str, purchase: Purchase, kind: InstanceType, templates: Mapping[str, NodeClaimTemplate]
) -> NodeView:
    template = templates[purchase.pool]
    single = {key: kind.requirements.single_value(key) for key in kind.requirements}
    labels = {
        **{key: value for key, value in single.items() if value},
        **template.metadata.labels,
        known.KUBERNETES_HOSTNAME: name,
        known.NODEPOOL: purchase.pool,
        known.ZONE: purchase.zone,
        known.CAPACITY_TYPE: purchase.capacity_type,
    }
    return a_view(
        name,
        labels=labels,
        allocatable=format_resources(kind.allocatable),
        nodepool=purchase.pool,
        taints=template.spec.taints,
    )


def _marked(pod: Pod, version: str) -> Pod:
    """Return `pod` with the version it got when kube-scheduler noted that it found no node."""
    metadata = msgspec.structs.replace(pod.metadata, resource_version=version)
    return msgspec.structs.replace(pod, metadata=metadata)


def _filled(view: NodeView, pods: Sequence[Pod]) -> NodeView:
    """Return `view` with `pods` on it besides those it came with."""
    found = tuple(sorted((*view.pods, *pods), key=pod_key))
    amounts = total([view.requested, *(requests(pod) for pod in pods)])
    return msgspec.structs.replace(view, pods=found, requested=amounts)
