"""Leader election on a Lease, by client-go's rules: of several replicas, one acts.

The holder renews every couple of seconds; whoever sees the same record unchanged for the lease's duration, by
its own clock, may take it. A holder that cannot renew for `renew_deadline` stops acting before others may
start. The Lease is released on the way out, so that a rolling update hands over at once.
"""

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from karpenter.apis.meta import ObjectMeta
from karpenter.apis.workloads import Lease, LeaseSpec
from karpenter.base.clock import Clock, format_micro_time
from karpenter.base.metrics import Metrics
from karpenter.base.randomness import Random
from karpenter.kube.client import Client
from karpenter.kube.errors import AlreadyExists, ApiError, Conflict, NotFound
from karpenter.kube.patch import merge
from karpenter.kube.transport import TransportError

log = structlog.get_logger()

LEASE_SECONDS = 15.0
RENEW_DEADLINE_SECONDS = 10.0
RETRY_SECONDS = 2.0


class LeadershipLost(Exception):
    """The Lease could not be renewed in time; the process should end and be started anew."""


class LeaderElector:
    """Acts only while it holds the Lease."""

    def __init__(
        self,
        client: Client,
        *,
        clock: Clock,
        rng: Random,
        identity: str,
        name: str,
        namespace: str,
        metrics: Metrics | None = None,
    ) -> None:
        self._client = client
        self._clock = clock
        self._rng = rng
        self.identity = identity
        self._name = name
        self._namespace = namespace
        self._seen: tuple[str, float] = ("", 0.0)  # the record, and since when we know it unchanged
        self._taken = False  # somebody else held it when we last looked
        self.leading = False
        self.holder = ""
        """Whoever held the Lease when we last looked; empty: nobody, or nothing is known."""
        self._gauge = metrics and metrics.gauge(
            "leader_election_master_status", "Whether this replica leads.", ["name"]
        ).labels(name)

    async def run(self, lead: Callable[[], Awaitable[None]]) -> None:
        """Wait for the Lease, run `lead` while holding it, and release it at the end.

        Raises:
            LeadershipLost: when the Lease was lost; `lead` has been cancelled.
        """
        while True:
            asked = self._clock.monotonic()
            if await self._try(RENEW_DEADLINE_SECONDS):
                break
            await self._clock.sleep(RETRY_SECONDS * (1 + self._rng.random() * 0.2))
        log.info("successfully acquired lease", identity=self.identity, lease=self._name)
        self._set(True)
        lost: ExceptionGroup[LeadershipLost] | None = None
        try:
            async with asyncio.TaskGroup() as tasks:
                renewing = tasks.create_task(self._renew(asked), name="lease")
                await lead()
                renewing.cancel()
        except* LeadershipLost as group:
            lost = group
        finally:
            self._set(False)
            await self._release()
        if lost is not None:
            raise LeadershipLost(str(lost.exceptions[0])) from lost

    def _set(self, leading: bool) -> None:
        self.leading = leading
        if self._gauge:
            self._gauge.set(float(leading))

    async def _renew(self, renewed: float) -> None:
        """Renew until that fails for the deadline, counted from when the last good renewal was *asked* for.

        Others count from when they see it, which is later: so we have stopped before they start.
        """
        while True:
            left = renewed + RENEW_DEADLINE_SECONDS - self._clock.monotonic()
            await self._clock.sleep(min(RETRY_SECONDS, left))
            asked = self._clock.monotonic()
            left = renewed + RENEW_DEADLINE_SECONDS - asked
            if left > 0 and await self._try(left):
                renewed = asked
            # The same sum as above: written another way, rounding could make both untrue for ever.
            elif self._taken or renewed + RENEW_DEADLINE_SECONDS - self._clock.monotonic() <= 0:
                reason = "was taken by another" if self._taken else "was not renewed in time"
                raise LeadershipLost(f"lease {self._namespace}/{self._name} {reason}")

    async def _try(self, within: float) -> bool:
        """Create, renew or take over the Lease; tell whether it is ours now."""
        try:
            async with asyncio.timeout(min(within, RENEW_DEADLINE_SECONDS / 2)):
                return await self._acquire()
        except (ApiError, TransportError, TimeoutError) as error:
            log.debug("lease was not acquired", lease=self._name, error=str(error))
            return False

    async def _acquire(self) -> bool:
        now = format_micro_time(self._clock.now())
        try:
            lease = await self._client.get(Lease, self._name, self._namespace)
        except NotFound:
            return await self._create(now)
        holder = lease.spec.holder_identity or ""
        record = f"{holder}/{lease.spec.renew_time}/{lease.spec.lease_transitions}"
        if record != self._seen[0]:
            self._seen = (record, self._clock.monotonic())
        ours = holder == self.identity
        self._taken = bool(holder) and not ours
        self.holder = holder
        duration = lease.spec.lease_duration_seconds or LEASE_SECONDS
        if holder and not ours and self._clock.monotonic() - self._seen[1] < duration:
            return False
        spec: dict[str, object] = {
            "holderIdentity": self.identity,
            "leaseDurationSeconds": int(LEASE_SECONDS),
            "renewTime": now,
        }
        if not ours:
            spec |= {"acquireTime": now, "leaseTransitions": (lease.spec.lease_transitions or 0) + 1}
        try:
            await self._patch(spec, lease.metadata.resource_version)
        except Conflict:
            return False
        return True

    async def _create(self, now: str) -> bool:
        spec = LeaseSpec(
            holder_identity=self.identity,
            lease_duration_seconds=int(LEASE_SECONDS),
            acquire_time=now,
            renew_time=now,
            lease_transitions=0,
        )
        try:
            await self._client.create(
                Lease(metadata=ObjectMeta(name=self._name, namespace=self._namespace), spec=spec)
            )
        except AlreadyExists:
            return False
        return True

    async def _release(self) -> None:
        """Give the Lease up, if it is still ours, so that the next one need not wait."""
        try:
            async with asyncio.timeout(RETRY_SECONDS):
                lease = await self._client.get(Lease, self._name, self._namespace)
                if lease.spec.holder_identity == self.identity:
                    await self._patch(
                        {"holderIdentity": "", "leaseDurationSeconds": 1}, lease.metadata.resource_version
                    )
        except (ApiError, TransportError, TimeoutError) as error:
            log.debug("lease was not released", lease=self._name, error=str(error))

    async def _patch(self, spec: dict[str, object], resource_version: str) -> None:
        await self._client.patch(
            Lease,
            self._name,
            merge({"spec": spec}, resource_version=resource_version),
            namespace=self._namespace,
        )
