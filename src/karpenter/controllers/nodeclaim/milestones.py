"""Telling, once, what a claim has reached.

A step may run again on a stale copy of its claim, and does so after every crash. What it reached counts when
the API server has accepted the status that says so: that write is guarded by the version read, so it succeeds
once. Log lines and metrics hang on it, not on the step.
"""

import structlog

from karpenter.apis import labels as known
from karpenter.apis.conditions import is_true
from karpenter.apis.karpenter import NodeClaim
from karpenter.controllers.context import Context
from karpenter.controllers.nodeclaim.facts import facts
from karpenter.controllers.nodeclaim.poolhealth import record_success

log = structlog.get_logger()

LAUNCHED = "launched nodeclaim"
REGISTERED = "registered nodeclaim"
INITIALIZED = "initialized nodeclaim"


class Milestones:
    """Compares a claim before and after a write."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._nodes_created = context.metrics.counter(
            "karpenter_nodes_created", "Nodes registered, by pool and zone.", ["nodepool", "zone"]
        )

    async def tell(self, before: NodeClaim, after: NodeClaim) -> None:
        """Say what `after`, as it was just written, has that `before` had not."""

        def reached(type: str) -> bool:
            return is_true(after.status.conditions, type) and not is_true(before.status.conditions, type)

        said = facts(self._context, after)
        if reached("Launched"):
            log.info(LAUNCHED, **said)
        if reached("Registered"):
            log.info(REGISTERED, **said)
            labels = after.metadata.labels
            self._nodes_created.labels(labels.get(known.NODEPOOL, ""), labels.get(known.ZONE, "")).inc()
            await record_success(self._context, after)
        if reached("Initialized"):
            log.info(INITIALIZED, **said, allocatable=dict(after.status.allocatable))
