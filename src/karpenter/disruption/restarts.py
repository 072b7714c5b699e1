"""What moving pods costs, so that a move is made only if it pays.

A pod that is evicted starts again elsewhere: it is not there for a while, its caches are cold, somebody may
notice. That is counted as hours of its share of the machine, times its eviction cost (priority and
pod-deletion-cost, as in `karpenter.model.pods.eviction_cost`), plus the time that pods of its workload were
seen to need until they were ready. What a move saves has to come to that within the payback time, or within
what is left of the life of the nodes that go, if that is shorter.
"""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from karpenter.apis.core import Pod
from karpenter.base.duration import parse_duration
from karpenter.base.timestamps import parse_time
from karpenter.disruption.candidates import Candidate
from karpenter.model.pods import eviction_cost
from karpenter.model.snapshot import NodeView

_SIZES = ("cpu", "memory")


class Restarts(msgspec.Struct, frozen=True, kw_only=True):
    """How dear restarts are held to be."""

    hours: float = 0.75
    """Hours of its share of the machine that the restart of a pod of eviction cost 1 costs; 0: nothing."""
    payback_hours: float = 12.0
    """Within which time a move has to have saved what it cost."""
    ready_hours: Mapping[str, float] = {}
    """How long pods of a workload were seen to take until they were ready, by the uid of their controller."""

    @property
    def counted(self) -> bool:
        """Whether restarts cost anything: if not, there is nothing that moves would have to make up for."""
        return self.hours > 0

    def of(self, candidate: Candidate) -> float:
        """Return what it costs to restart the pods that would have to leave a node, USD."""
        pods = candidate.reschedulable
        if not self.counted or not pods:
            return 0.0
        return candidate.price * _share(candidate.node) * sum(map(self._weight, pods)) / len(pods)

    def horizon(self, candidates: Iterable[Candidate], now: float) -> float:
        """Return the hours within which taking `candidates` away has to pay."""
        return min([self.payback_hours, *(_hours_left(c.node, now) for c in candidates)])

    def least_saving(self, candidates: Sequence[Candidate], now: float) -> float:
        """Return the USD per hour that taking `candidates` away has to save."""
        return least_rate(sum(map(self.of, candidates)), self.horizon(candidates, now))

    def _weight(self, pod: Pod) -> float:
        """Return the hours of its share that a pod's restart costs."""
        ready = max((self.ready_hours.get(o.uid, 0.0) for o in pod.metadata.owner_references), default=0.0)
        return (self.hours + ready) * max(0.0, eviction_cost(pod))


def least_rate(cost: float, horizon: float) -> float:
    """Return the USD per hour that pay `cost` USD within `horizon` hours; infinite without any time."""
    return cost / horizon if horizon > 0 else float("inf")


def _share(node: NodeView) -> float:
    """Return how much of a node its pods have requested, daemons aside: the larger of cpu and memory."""
    used = {name: node.requested.get(name, 0) - node.daemon_requested.get(name, 0) for name in _SIZES}
    shares = (used[name] / node.allocatable[name] for name in _SIZES if node.allocatable.get(name))
    return min(1.0, max(shares, default=0.0))


def _hours_left(node: NodeView, now: float) -> float:
    """Return how long a node would stay if nothing else happened; for ever unless it expires."""
    claim = node.claim
    if claim is None or claim.spec.expire_after == "Never" or not claim.metadata.creation_timestamp:
        return float("inf")
    born = parse_time(claim.metadata.creation_timestamp)
    return max(0.0, (born + parse_duration(claim.spec.expire_after) - now) / 3600)
