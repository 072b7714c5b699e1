"""How many pods of each app serve, at every write: what somebody watching the Service would see."""

from collections import Counter
from typing import Any

from karpenter.embedded.store import Journal
from karpenter.testing.watchdog import Watchdog


class ServingWatch:
    """Counts pods that are Ready and not on their way out, by their label `app`."""

    def __init__(self, watchdog: Watchdog) -> None:
        """Be told of every write, beside whoever was told before."""
        self.least: Counter[str] = Counter()
        """The fewest at any moment since `begin`."""
        self._serving: dict[str, dict[str, bool]] = {}
        self._before, watchdog.then = watchdog.then, self.look

    def begin(self) -> None:
        """Count from here on."""
        self.least = self.now()

    def now(self) -> Counter[str]:
        """Return how many serve now."""
        return Counter({app: sum(pods.values()) for app, pods in self._serving.items()})

    def look(self, entry: Journal) -> None:
        """Take in one write."""
        if self._before is not None:
            self._before(entry)
        if entry.group_resource != "pods":
            return
        pod: dict[str, Any] = entry.record.object()
        meta = pod["metadata"]
        states = pod.get("status", {}).get("conditions", [])
        ready = any(c["type"] == "Ready" and c["status"] == "True" for c in states)
        stays = entry.type != "DELETED" and "deletionTimestamp" not in meta
        app = meta.get("labels", {}).get("app", "")
        pods = self._serving.setdefault(app, {})
        pods[meta["name"]] = ready and stays
        if entry.type == "DELETED":
            del pods[meta["name"]]
        self.least[app] = min(self.least.get(app, 0), sum(pods.values()))
