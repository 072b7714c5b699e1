"""Random clusters on paper whose workload stays as it is: consolidated hour by hour, at prices that may move.

Every restart is written down with the machine it led to, so that a test can say what was moved to and fro.
"""

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from karpenter.apis import labels
from karpenter.apis.core import Pod
from karpenter.apis.karpenter import Budget, Disruption, NodePool
from karpenter.disruption.aftermath import Aftermath
from karpenter.disruption.converging import Converger, Rules, Step
from karpenter.disruption.emptiness import Emptiness
from karpenter.disruption.launching import launch_of, node_of
from karpenter.disruption.restarts import Restarts
from karpenter.disruption.sets import SetSearch
from karpenter.model.instancetype import InstanceType
from karpenter.model.pods import pod_key
from karpenter.model.problem import Problem
from karpenter.model.snapshot import NodeView, Snapshot
from karpenter.scheduling import solve
from karpenter.testing.builders import a_nodepool, a_pod, a_problem, an_instance_type, an_owner
from karpenter.testing.dice import Dice

HOUR = 3600.0
_SIZES = (2, 4, 8, 16)
_FAMILIES = {"lean": 2, "even": 4, "rich": 8}
"""GiB of memory per core."""
_MOST_PODS = 12


class Town:
    """A cluster of machines of a few sizes and families, with pods that nobody changes."""

    def __init__(self, dice: Dice, restarts: Restarts) -> None:
        """Make one up: as if it had been full once, and lost some pods since."""
        self._dice = dice
        self._restarts = restarts
        self._prices = {f"{family}-{size}": self._price(size) for family in _FAMILIES for size in _SIZES}
        self.types: Sequence[InstanceType] = ()
        self._priced()
        budgets = [Budget(nodes=dice.choice(["100%", "25%", "10%"]))]
        pool = a_nodepool()
        disruption = Disruption(
            consolidation_policy="WhenEmptyOrUnderutilized", consolidate_after="0s", budgets=budgets
        )
        self.pool: NodePool = replace(pool, spec=replace(pool.spec, disruption=disruption))
        nodes = [self._node(number) for number in range(dice.integer(2, 8))]
        snapshot = a_problem([], nodes=nodes, instance_types=self.types, pools=[self.pool]).snapshot
        self.state = Aftermath(snapshot=snapshot, prices={})
        self._reckon()
        self.left: dict[str, dict[str, float]] = {}
        """The types that pods of each workload were moved from, and when they last were, epoch seconds."""
        self.returns: list[str] = []
        """Workloads for whose pods a machine was bought of a type that they had left less than the payback
        time before."""

    def settle(self) -> list[Step]:
        """Consolidate until nothing is left to do now; return what was done.

        Raises:
            AssertionError: it does not come to rest.
        """
        converger = Converger(
            self.state,
            self._problem,
            {self.pool.name: self.types},
            [Emptiness(), SetSearch()],
            Rules(restarts=self._restarts, most_commands=200),
        )
        steps = []
        for step in converger.steps():
            self._write_down(step)
            steps.append(step)
        assert converger.converged, f"{converger.commands} commands, and no end"
        self.state = converger.state
        return steps

    def _problem(self, snapshot: Snapshot) -> Problem:
        return a_problem([], nodes=snapshot.nodes, instance_types=self.types, pools=[self.pool])

    def pass_time(self, hours: float, *, wobble: int = 0) -> None:
        """Let time pass; prices move by up to `wobble` per cent."""
        self._prices = {
            name: price * (1 + self._dice.integer(-wobble, wobble) / 100)
            for name, price in self._prices.items()
        }
        self._priced()
        snapshot = self.state.snapshot
        self.state = replace(
            self.state, snapshot=replace(snapshot, taken_at=snapshot.taken_at + hours * HOUR)
        )
        self._reckon()

    def _price(self, size: int) -> float:
        return 0.05 * size * self._dice.integer(70, 130) / 100

    def _priced(self) -> None:
        self.types = [
            an_instance_type(
                f"{family}-{size}",
                cpu=str(size),
                memory=f"{size * per_core}Gi",
                price=round(self._prices[f"{family}-{size}"], 6),
                overhead={"cpu": "100m", "memory": "256Mi"},
            )
            for family, per_core in _FAMILIES.items()
            for size in _SIZES
        ]

    def _reckon(self) -> None:
        """Let every machine cost what its like costs now."""
        prices = {n.name: round(self._prices[kind_of(n)], 6) for n in self.state.snapshot.nodes}
        self.state = replace(self.state, prices=prices)

    def _node(self, number: int) -> NodeView:
        """Return a machine with some pods that fit."""
        kind = self._dice.choice(self.types)
        cpu, memory = kind.allocatable["cpu"], kind.allocatable["memory"]
        pods = []
        for i in range(self._dice.integer(1, _MOST_PODS)):
            wants = self._dice.choice((100, 250, 500, 900, 1500))
            per_core = self._dice.choice((1, 2, 4, 7)) * 2**30
            asks = wants * per_core // 1000
            if wants > cpu or asks > memory:
                continue
            cpu, memory = cpu - wants, memory - asks
            owner = an_owner("ReplicaSet", f"{wants}m-{per_core >> 30}")
            pods.append(a_pod(f"p-{number}-{i}", cpu=f"{wants}m", memory=str(asks), owner=owner))
        filler = [a_pod("filler", cpu="1", memory="1Gi")]
        only = a_problem(filler, instance_types=[kind], pools=[self.pool])
        (claim,) = solve(only).claims
        left = [pod for pod in pods if self._dice.chance(60)]
        return node_of(claim, launch_of(claim, {kind.name: kind}), f"n-{number:02}", left)

    def _write_down(self, step: Step) -> None:
        now, payback = self.state.snapshot.taken_at, self._restarts.payback_hours * HOUR
        workloads = {pod_key(p): _owner(p) for c in step.command.candidates for p in c.reschedulable}
        for node, claim in zip(step.launched, step.command.replacements, strict=True):
            kind = kind_of(node)
            for name in sorted({workloads[pod] for pod in claim.pods}):
                if now - self.left.get(name, {}).get(kind, now - payback) < payback:
                    self.returns.append(f"{name} to {kind}")
        for candidate in step.command.candidates:
            for pod in candidate.reschedulable:
                self.left.setdefault(_owner(pod), {})[kind_of(candidate.node)] = now


def restart_cost(steps: Sequence[Step], restarts: Restarts) -> float:
    """Return what all restarts of some commands cost, USD."""
    return sum(restarts.of(c) for step in steps for c in step.command.candidates)


def kind_of(node: NodeView) -> str:
    """Return the name of a node's instance type."""
    found: Mapping[str, str] = node.labels
    return found[labels.INSTANCE_TYPE]


def _owner(pod: Pod) -> str:
    return pod.metadata.owner_references[0].name
