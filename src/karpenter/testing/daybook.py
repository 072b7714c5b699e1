"""What a cluster's day came to, hour by hour, read from the API server's journal.

Independent of the operator's own figures: a machine costs from its launch until its NodeClaim is gone, a pod
waits from its creation until it is bound.
"""

from collections import Counter
from collections.abc import Callable, Iterable

import msgspec

from karpenter.apis import labels
from karpenter.embedded.store import Journal
from karpenter.model.instancetype import InstanceType

EVICTED = "EvictionByEvictionAPI"


class _Meta(msgspec.Struct, frozen=True, rename="camel"):
    uid: str
    labels: dict[str, str] = {}
    deletion_timestamp: str = ""


class _PodSpec(msgspec.Struct, frozen=True, rename="camel"):
    node_name: str = ""


class _Condition(msgspec.Struct, frozen=True):
    type: str
    status: str = ""
    reason: str = ""


class _Status(msgspec.Struct, frozen=True, rename="camel"):
    provider_id: str = msgspec.field(name="providerID", default="")
    conditions: list[_Condition] = []


class _Pod(msgspec.Struct, frozen=True):
    metadata: _Meta
    spec: _PodSpec = _PodSpec()
    status: _Status = _Status()


class _Claim(msgspec.Struct, frozen=True):
    metadata: _Meta
    status: _Status = _Status()


class Hour(msgspec.Struct):
    """One hour; `pods` and `nodes` as they are at its end, all else summed over it."""

    pods: int = 0
    nodes: int = 0
    usd: float = 0.0
    evictions: int = 0
    """Pods evicted through the Eviction API, which nobody but the operator uses."""
    starts: int = 0
    """Pods created."""
    waiting_seconds: float = 0.0
    """Of pods not bound yet."""
    longest_wait: float = 0.0
    """Of pods bound within the hour."""
    launched: int = 0
    gone: int = 0
    writes: Counter[str] = msgspec.field(default_factory=Counter)
    """Writes by resource."""


Place = tuple[str, str, str]
"""Instance type, zone, capacity type."""


class Daybook:
    """Takes down every write that matters; `take` goes where `Store.journal` goes, or beside it."""

    def __init__(self, now: Callable[[], float], types: Iterable[InstanceType]) -> None:
        self._now = now
        self._started = self._until = now()
        self._prices = {
            (kind.name, offering.zone, offering.capacity_type): offering.price
            for kind in types
            for offering in kind.offerings
        }
        self.hours: list[Hour] = [Hour()]
        self.rates: dict[str, float] = {}
        """USD per hour of each machine, by the uid of its claim."""
        self._rate = 0.0
        self._waiting: dict[str, float] = {}
        self._alive: set[str] = set()
        self._evicted: set[str] = set()
        self._pods = msgspec.json.Decoder(_Pod)
        self._claims = msgspec.json.Decoder(_Claim)

    def take(self, entry: Journal) -> None:
        """Note one write."""
        hour = self.advance()
        kind = entry.group_resource
        hour.writes[kind] += 1
        if kind == "pods":
            self._pod(entry, hour)
        elif kind == "nodeclaims.karpenter.sh":
            self._claim(entry, hour)
        hour.pods, hour.nodes = len(self._alive), len(self.rates)

    def advance(self) -> Hour:
        """Account for the time since the last note; return the hour it is now."""
        now, rate = self._now(), self._rate
        while True:
            hour = self.hours[-1]
            end = self._started + 3600 * len(self.hours)
            until = min(now, end)
            hour.usd += rate * (until - self._until) / 3600
            hour.waiting_seconds += len(self._waiting) * (until - self._until)
            self._until = until
            if now < end:
                return hour
            self.hours.append(Hour(pods=hour.pods, nodes=hour.nodes))

    def _pod(self, entry: Journal, hour: Hour) -> None:
        pod = self._pods.decode(entry.record.body)
        uid = pod.metadata.uid
        if entry.type == "DELETED":
            self._alive.discard(uid)
            self._waiting.pop(uid, None)
            self._evicted.discard(uid)
            return
        if entry.type == "ADDED":
            hour.starts += 1
            self._alive.add(uid)
            if not pod.spec.node_name:
                self._waiting[uid] = self._now()
        elif pod.spec.node_name and uid in self._waiting:
            hour.longest_wait = max(hour.longest_wait, self._now() - self._waiting.pop(uid))
        if pod.metadata.deletion_timestamp:
            self._waiting.pop(uid, None)
        if uid not in self._evicted and any(c.reason == EVICTED for c in pod.status.conditions):
            self._evicted.add(uid)
            hour.evictions += 1

    def _claim(self, entry: Journal, hour: Hour) -> None:
        claim = self._claims.decode(entry.record.body)
        uid, where = claim.metadata.uid, claim.metadata.labels
        if entry.type == "DELETED":
            hour.gone += self.rates.pop(uid, None) is not None
        elif uid not in self.rates and claim.status.provider_id:
            place = (
                where.get(labels.INSTANCE_TYPE, ""),
                where.get(labels.ZONE, ""),
                where.get(labels.CAPACITY_TYPE, ""),
            )
            self.rates[uid] = self._prices[place]
            hour.launched += 1
        self._rate = sum(self.rates.values())
