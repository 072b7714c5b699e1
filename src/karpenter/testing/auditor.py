"""Judges every disruption at the moment it is written, knowing nothing of how it was decided.

It is told of each write of the store, and whether the operator wrote. What it holds the operator to:

- A node is disrupted for a reason its pool allows, within budgets, left alone for consolidateAfter, and only
  if neither it nor its pods object. What changed by others within `slack` seconds may not be known yet.
- A pod is evicted only if it does not object, and its PodDisruptionBudget can spare it; it is deleted past
  both only when its node's deadline says so.
- A NodeClaim is deleted for a disruption, or for a cause that can be seen.
- No pool buys beyond its limits (on resources: the watchdog's part).
- A machine ends when its pods have gone. Replacements are ready before what they replace goes.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from karpenter.base.duration import parse_duration
from karpenter.base.timestamps import parse_time
from karpenter.embedded.store import Journal
from karpenter.testing import rights
from karpenter.testing.rights import Raw, holds, leaving
from karpenter.testing.watchdog import CLAIMS, NODES, PODS, POOLS, Watchdog

PDBS = "poddisruptionbudgets.policy"
_SCALED = {
    "ReplicaSet": "replicasets.apps",
    "Deployment": "deployments.apps",
    "StatefulSet": "statefulsets.apps",
}
_POOL = "karpenter.sh/nodepool"
_DEADLINE = "karpenter.sh/nodeclaim-termination-timestamp"
_REPLACES = "karpenter-py.dev/replaces"
_NOTED_SECONDS = 10.0
"""Two notes of pods that come and go are at least that far apart."""
_STUCK_SECONDS = 60.0
"""A pod that should have ended so long ago is not waited for."""
_PRICE_LIMIT = "karpenter-py.dev/price-limit-per-hour"
_PRICE = "eks-node-viewer/instance-price"
_ROUNDING_USD = 1e-6
_ROUNDING = 1.0
"""Times in objects are whole seconds."""


class Auditor:
    """Put beside a `Watchdog`, whose `violations` it adds to and whose objects it looks at."""

    def __init__(
        self, watchdog: Watchdog, now: Callable[[], float], by_operator: Callable[[], bool], *, slack: float
    ) -> None:
        """Be told of every write, beside whoever was told before. `slack` may be changed at any time."""
        self.slack = slack
        self.disruptions: Counter[str] = Counter()
        """Nodes disrupted, by reason."""
        self.evictions = 0
        self.forced = 0
        """Pods deleted past everything for a deadline's sake."""
        self.ended: Counter[str] = Counter()
        """NodeClaims the operator deleted for other causes, by cause."""
        self.moved_at = 0.0
        """When the operator last created, marked or deleted a claim, or evicted a pod."""
        self.stirred_at = 0.0
        """When a pod last came to a node, or went."""
        self.vanished: set[str] = set()
        """Provider ids of machines that the cloud took away."""
        self._watchdog = watchdog
        self._now = now
        self._by_operator = by_operator
        self._before, watchdog.then = watchdog.then, self.look
        self._others: dict[str, dict[str, Raw]] = {kind: {} for kind in (PDBS, *_SCALED.values())}
        self._bound_at: dict[str, float] = {}
        self._gone_at: dict[str, float] = {}
        """When a pod last left a node, by node."""
        self._suffered_at: dict[str, float] = {}
        """Since when a node is going, or not ready, by no will of the operator."""
        self._changes: deque[tuple[float, Raw, bool]] = deque()
        """Pods that began or ceased to serve (the last tells whether by an eviction), budgets and scales that
        changed, of the last while."""
        self._totals: dict[str, deque[tuple[float, int]]] = {}
        self._pool_changed_at: dict[str, float] = {}

    # --- what happens -------------------------------------------------------------------------------------

    def look(self, entry: Journal) -> None:
        """Take in one write, before the watchdog notes it."""
        if self._before is not None:
            self._before(entry)
        kind, key = entry.group_resource, entry.record.key
        known = self._watchdog.objects.get(kind, self._others.get(kind))
        if known is None:
            return
        old, new = known.get(key), entry.record.object()
        gone = entry.type == "DELETED"
        for line in self._judged(kind, old, new, gone):
            self._watchdog.violations.append(f"{self._now():.3f}: {kind} {key}: {line}")
        if kind in self._others:
            self._changes.append((self._now(), new, False))
            if gone:
                known.pop(key, None)
            else:
                known[key] = new

    def _judged(self, kind: str, old: Raw | None, new: Raw, gone: bool) -> Iterator[str]:
        if kind == PODS:
            yield from self._pod(old, new, gone)
        elif kind == CLAIMS:
            yield from self._claim(old, new, gone)
        elif kind == NODES:
            self._note_node(old, new, gone)
            if old is None:
                yield from self._over_price_limit(new)
        elif kind == POOLS:
            self._pool_changed_at[new["metadata"]["name"]] = self._now()

    def _pod(self, old: Raw | None, new: Raw, gone: bool) -> Iterator[str]:
        now, name = self._now(), new["metadata"]["name"]
        node = new["spec"].get("nodeName", "")
        if node and (old is None or not old["spec"].get("nodeName")):
            self._bound_at[name] = self.stirred_at = now
        was = old is not None and rights.is_active(old)
        if node and was and (gone or not rights.is_active(new)):
            self._gone_at[node] = self.stirred_at = now
        evicted = _is_evicted(new) and (old is None or not _is_evicted(old))
        if self._by_operator() and evicted:
            self.evictions += 1
            self.moved_at = now
            yield from self._evicted(new)
        elif self._by_operator() and was and (gone or leaving(new)) and not _is_evicted(new):
            self.moved_at = now
            if new.get("status", {}).get("phase") == "Pending":
                self.evictions += 1  # the Eviction API lets pods that never started go, and marks them not
                if rights.is_protected(new, now + _ROUNDING):
                    yield "deleted, and is protected by do-not-disrupt"
            else:
                self.forced += 1
                yield from self._forced(new)
        if old is None or gone or rights.is_healthy(old) != rights.is_healthy(new):
            self._changes.append((now, new, _is_evicted(new)))

    def _claim(self, old: Raw | None, new: Raw, gone: bool) -> Iterator[str]:
        now, name = self._now(), new["metadata"]["name"]
        before: Raw = old or {"metadata": {}, "status": {}}
        begins = holds(new, "DisruptionReason") and not holds(before, "DisruptionReason")
        ends = not leaving(before) and (leaving(new) or gone)
        if ends and not self._by_operator():
            self._suffered_at.setdefault(_node_of(new), now)
        if self._by_operator() and (begins or ends or old is None):
            self.moved_at = now
        if begins and self._by_operator():
            reason = rights.condition(new, "DisruptionReason")["reason"]
            self.disruptions[reason] += 1
            for trouble in self._disrupted(new, reason):
                yield f"disrupted as {reason}: {trouble}"
        if ends and self._by_operator():
            yield from self._ended(name, new)
        if holds(new, "InstanceTerminating") and not holds(before, "InstanceTerminating"):
            yield from self._machine_ends(new)
        self._note_total(new)

    def _note_node(self, old: Raw | None, node: Raw, gone: bool) -> None:
        name = node["metadata"]["name"]
        deleted = leaving(node) and (old is None or not leaving(old)) and not self._by_operator()
        if gone:
            self._suffered_at.pop(name, None)
        elif deleted or not holds(node, "Ready"):
            self._suffered_at.setdefault(name, self._now())
        elif not leaving(node):
            self._suffered_at.pop(name, None)

    def _note_total(self, claim: Raw) -> None:
        pool = claim["metadata"]["labels"].get(_POOL, "")
        totals = self._totals.setdefault(pool, deque([(0.0, 0)]))
        count = len(self._counted(pool))
        if totals[-1][1] != count:
            totals.append((self._now(), count))

    def _over_price_limit(self, node: Raw) -> Iterator[str]:
        """The machines of a pool whose end has not begun cost no more than it may spend."""
        pool_name = node["metadata"].get("labels", {}).get(_POOL, "")
        pool = self._objects(POOLS).get(pool_name, {"metadata": {}})
        limit = pool["metadata"].get("annotations", {}).get(_PRICE_LIMIT)
        ending = {_node_of(c) for c in self._objects(CLAIMS).values() if leaving(c)}
        there = [
            n
            for n in (*self._objects(NODES).values(), node)
            if n["metadata"].get("labels", {}).get(_POOL) == pool_name
            if not leaving(n) and _name(n) not in ending
        ]
        spent = sum(float(n["metadata"]["labels"].get(_PRICE, 0)) for n in there)
        if limit is not None and spent > float(limit) + _ROUNDING_USD * len(there):
            yield f"pool {pool_name} spends ${spent:.4f} an hour, its limit is ${limit}"

    # --- nodes --------------------------------------------------------------------------------------------

    def _disrupted(self, claim: Raw, reason: str) -> Iterator[str]:
        """Judge a node that is marked now."""
        now, pool_name = self._now(), claim["metadata"]["labels"].get(_POOL, "")
        pool, node = self._objects(POOLS).get(pool_name), self._objects(NODES).get(_node_of(claim))
        if not holds(claim, "Initialized"):
            yield "it is not initialized"
        if pool is None or node is None:
            yield "it has no pool, or no Node"
            return
        yield from self._over_budget(claim, pool, reason)
        if rights.is_protected_node((node, claim), claim["metadata"]["creationTimestamp"], now - self.slack):
            yield "node is protected by do-not-disrupt"
        if reason == "Drifted" and not holds(claim, "Drifted"):
            yield "it is not drifted"
        if reason != "Drifted" and now - self._pool_changed_at[pool_name] > self.slack:
            yield from self._against_policy(claim, pool, reason)
        if reason != "Drifted" or "terminationGracePeriod" not in claim["spec"]:
            for pod in self._pods_on(_node_of(claim), settled=self.slack):
                yield from self._objects_to(pod)

    def _over_budget(self, claim: Raw, pool: Raw, reason: str) -> Iterator[str]:
        """More nodes of the pool are going than it allows, what only just happened to them left aside."""
        now, name = self._now(), pool["metadata"]["name"]
        if now - self._pool_changed_at[name] <= self.slack:
            return
        going = [other for other in self._counted(name) if other is not claim and self._is_going(other)]
        names = {_name(other) for other in going} | {_name(claim)}
        totals = self._totals.get(name, deque())
        recent = [count for at, count in totals if at >= now - self.slack]
        last = next((count for at, count in reversed(totals) if at < now - self.slack), 0)
        most = max(
            rights.allowed(pool, reason, total, moment)
            for total in (last, *recent, len(self._counted(name)))
            for moment in (now, now - self.slack)
        )
        if len(names) > most:
            yield f"{len(names)} nodes of pool {name} go ({sorted(names)}), budgets allow {most}"

    def _counted(self, pool: str) -> list[Raw]:
        """Return the claims of a pool that percentages are of."""
        return [
            claim
            for claim in self._objects(CLAIMS).values()
            if claim["metadata"]["labels"].get(_POOL) == pool
            and holds(claim, "Initialized")
            and not holds(claim, "InstanceTerminating")
            and _node_of(claim) in self._objects(NODES)
        ]

    def _is_going(self, claim: Raw) -> bool:
        """Tell whether a node takes from budgets, and has for longer than may go unnoticed."""
        since = self._suffered_at.get(_node_of(claim))
        if since is not None and self._now() - since <= self.slack:
            return False
        return since is not None or leaving(claim) or holds(claim, "DisruptionReason")

    def _against_policy(self, claim: Raw, pool: Raw, reason: str) -> Iterator[str]:
        rules, name = pool["spec"]["disruption"], _node_of(claim)
        after = rules.get("consolidateAfter", "0s")
        moving = [pod for pod in self._pods_on(name, settled=self.slack) if rights.has_to_move(pod)]
        if reason == "Empty" and moving:
            yield f"pods would have to move: {[_name(pod) for pod in moving]}"
        if reason == "Underutilized" and rules["consolidationPolicy"] == "WhenEmpty":
            yield "the policy is WhenEmpty"
        if after == "Never":
            yield "consolidateAfter is Never"
            return
        came = [self._bound_at[_name(pod)] for pod in self._pods_on(name, settled=0.0)]
        last = max([*came, self._gone_at.get(name, 0.0)])
        waited, least = self._now() - last, parse_duration(after) - _NOTED_SECONDS - _ROUNDING - self.slack
        if waited < least:
            yield f"pods came or went {waited:.1f} s ago, consolidateAfter is {after}"

    def _ended(self, name: str, claim: Raw) -> Iterator[str]:
        """Judge a NodeClaim that the operator deletes now."""
        for other in self._objects(CLAIMS).values():
            if name in _replaced_by(other) and not holds(other, "Initialized"):
                yield f"deleted before its replacement {_name(other)} is ready"
        if holds(claim, "DisruptionReason"):
            return
        cause = self._cause(claim)
        if cause:
            self.ended[cause] += 1
        else:
            yield "deleted without a cause"

    def _cause(self, claim: Raw) -> str:
        """Return what may be the cause of a deletion that is no disruption; empty when none can be seen."""
        age = self._now() - parse_time(claim["metadata"]["creationTimestamp"])
        expires = claim["spec"].get("expireAfter", "Never")
        node = self._objects(NODES).get(_node_of(claim))
        if expires != "Never" and age >= parse_duration(expires) - _ROUNDING:
            return "expired"
        if not holds(claim, "Registered"):
            return "never registered"
        if node is None:
            return "node gone"
        if self._is_gone(claim):
            return "machine gone"
        if leaving(node):
            return "node deleted"
        if not holds(node, "Ready"):
            return "not ready"
        moving = any(rights.has_to_move(pod) for pod in self._pods_on(_name(node), settled=self.slack))
        return "not needed" if _REPLACES in claim["metadata"].get("annotations", {}) and not moving else ""

    def _is_gone(self, claim: Raw) -> bool:
        return claim.get("status", {}).get("providerID", "") in self.vanished

    def _machine_ends(self, claim: Raw) -> Iterator[str]:
        """Judge the end of a machine: its pods have gone, or its time is over, or it broke."""
        node, now = self._objects(NODES).get(_node_of(claim)), self._now()
        if node is None or not holds(node, "Ready") or self._is_overdue(claim, 0.0) or self._is_gone(claim):
            return
        for pod in self._pods_on(_name(node), settled=self.slack):
            end = pod["metadata"].get("deletionTimestamp")
            if rights.is_over(pod) or rights.owner(pod)[0] == "DaemonSet" or rights.stays_through(pod):
                continue
            if end is None or now < parse_time(end) + _STUCK_SECONDS:
                yield f"its machine ends while pod {_name(pod)} runs there"

    # --- pods ---------------------------------------------------------------------------------------------

    def _objects_to(self, pod: Raw) -> Iterator[str]:
        """Say whether a pod, or its budget, forbids to disrupt its node."""
        if not rights.is_active(pod):
            return
        if rights.is_protected(pod, self._now() + _ROUNDING) and rights.is_protected(pod, self._now()):
            yield f"pod {_name(pod)} is protected by do-not-disrupt"
        if not rights.stays_through(pod):
            yield from self._spared(pod, self.slack, going=False)

    def _evicted(self, pod: Raw) -> Iterator[str]:
        if rights.is_protected(pod, self._now() + _ROUNDING):
            yield "evicted, and is protected by do-not-disrupt"
        for trouble in self._spared(pod, 0.0, going=True):
            yield f"evicted, and {trouble}"

    def _spared(self, pod: Raw, slack: float, *, going: bool) -> Iterator[str]:
        """Say which budget cannot spare a pod, if none of its pods came or went within `slack` seconds."""
        budgets = [b for b in self._others[PDBS].values() if rights.covers(b, pod)]
        if len(budgets) > 1:
            yield f"{len(budgets)} budgets cover pod {_name(pod)}"
        for budget in budgets:
            covered = [p for p in self._objects(PODS).values() if rights.covers(budget, p)]
            serving = sum(rights.is_healthy(p) for p in covered if not (going and _name(p) == _name(pod)))
            needed = rights.wanted(budget, self._scale(covered))
            left = serving - needed + going
            if not rights.is_healthy(pod) and rights.goes_unasked(budget, serving, needed):
                continue
            if left <= 0 and not self._stirred(budget, covered, slack):
                yield f"budget {_name(budget)} needs {needed} of its pods, {serving} serve"

    def _scale(self, pods: list[Raw]) -> int:
        """Return how many pods their owners (in namespace default) mean there to be; others count singly."""
        scales: dict[tuple[str, str], int] = {}
        lone = 0
        for pod in pods:
            kind, name = rights.owner(pod)
            made = self._owned(kind, name)
            if made is not None and kind == "ReplicaSet" and rights.owner(made)[0] == "Deployment":
                kind, name = rights.owner(made)
                made = self._owned(kind, name)
            if made is None:
                lone += rights.is_active(pod)
            else:
                scales[kind, name] = made["spec"].get("replicas", 1)
        return sum(scales.values()) + lone

    def _owned(self, kind: str, name: str) -> Raw | None:
        return self._others[_SCALED[kind]].get(f"default/{name}") if kind in _SCALED else None

    def _stirred(self, budget: Raw, covered: list[Raw], slack: float) -> bool:
        """Tell whether anything a budget counts has changed within `slack` seconds, or at this moment."""
        while self._changes and self._changes[0][0] < self._now() - 2 * max(self.slack, 1.0):
            self._changes.popleft()
        owners = {rights.owner(pod)[1] for pod in covered}
        return any(
            at >= self._now() - slack
            and (slack > 0 or not evicted)
            and (rights.covers(budget, obj) or _name(obj) == _name(budget) or _name(obj) in owners)
            for at, obj, evicted in self._changes
        )

    def _forced(self, pod: Raw) -> Iterator[str]:
        """Judge the deletion of a pod around the Eviction API."""
        node = pod["spec"].get("nodeName", "")
        claim = next((c for c in self._objects(CLAIMS).values() if _node_of(c) == node), None)
        grace = pod["spec"].get("terminationGracePeriodSeconds", 30)
        if claim is None or not self._is_overdue(claim, grace):
            yield "deleted around the Eviction API"

    def _is_overdue(self, claim: Raw, ahead: float) -> bool:
        """Tell whether a claim's deadline is over, or in less than `ahead` seconds, and rightly is one."""
        text = claim["metadata"].get("annotations", {}).get(_DEADLINE, "")
        if not text or self._now() + ahead < parse_time(text) - _ROUNDING:
            return False
        node = self._objects(NODES).get(_node_of(claim))
        broken = node is not None and not holds(node, "Ready")
        period = claim["spec"].get("terminationGracePeriod")
        begun = claim["metadata"].get("deletionTimestamp")
        kept = period and begun and parse_time(text) >= parse_time(begun) + parse_duration(period) - _ROUNDING
        return broken or bool(kept)

    # --- what is there ------------------------------------------------------------------------------------

    def _objects(self, kind: str) -> dict[str, Raw]:
        return self._watchdog.objects[kind]

    def _pods_on(self, node: str, *, settled: float) -> list[Raw]:
        """Return the pods that have been bound to a node for longer than `settled` seconds."""
        pods = self._objects(PODS).values()
        until = self._now() - settled
        return [p for p in pods if p["spec"].get("nodeName") == node and self._bound_at[_name(p)] <= until]


def _name(obj: Raw) -> str:
    return str(obj["metadata"]["name"])


def _node_of(claim: Raw) -> str:
    return str(claim.get("status", {}).get("nodeName", ""))


def _is_evicted(pod: Raw) -> bool:
    return rights.condition(pod, "DisruptionTarget").get("reason") == "EvictionByEvictionAPI"


def _replaced_by(claim: Raw) -> list[str]:
    """Return the names of the claims that a claim was bought to replace."""
    text = claim["metadata"].get("annotations", {}).get(_REPLACES, "")
    note: dict[str, Any] = msgspec.json.decode(text) if text else {}
    return [str(name) for name in note.get("nodeClaims", [])]
