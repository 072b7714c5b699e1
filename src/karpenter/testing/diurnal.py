"""A day's traffic: services that follow the sun, busy hours, rollouts, and jobs at night.

Drawn from a seed; everything in hours since the day began. What it does to a cluster is done by `live`, as an
autoscaler of replicas and a few teams would.
"""

import math
from collections.abc import Sequence
from typing import Any

import msgspec

from karpenter.base.randomness import Random, seeded
from karpenter.testing.manifests import Raw, deployment, disruption_budget, node_class, pod_spec, pool
from karpenter.testing.world import World

SIZES = (
    ("100m", "256Mi"),
    ("250m", "512Mi"),
    ("250m", "1Gi"),
    ("500m", "1Gi"),
    ("500m", "2Gi"),
    ("1", "1Gi"),
    ("1", "4Gi"),
    ("2", "4Gi"),
)
"""Requests of cpu and memory."""
PODS_A_NODE = 12
"""How many of such pods a machine of eight cores takes, about."""
PEAK_HOUR = 15.0
TOLERANCE = 0.1
"""By which share the wanted replicas have to differ before anybody acts, as with HorizontalPodAutoscalers."""
STEP_SECONDS = 60.0
SCALE_EVERY_MINUTES = 5
"""How often a service's replicas are looked at; services take turns."""


class Burst(msgspec.Struct, frozen=True):
    """Some minutes of more traffic."""

    start: float
    hours: float
    factor: float


class Service(msgspec.Struct, frozen=True, kw_only=True):
    """A Deployment that follows the day."""

    name: str
    cpu: str
    memory: str
    peak: int
    """Replicas at the busiest hour of an ordinary day."""
    low: float
    """Share of them that the quietest hour needs."""
    shift: float
    """By how many hours its day is behind the others'."""
    unavailable: str = ""
    """Its PodDisruptionBudget's maxUnavailable; empty: it has none."""
    rollouts: tuple[float, ...] = ()
    bursts: tuple[Burst, ...] = ()

    def wanted(self, hour: float, noise: float) -> int:
        """Return how many replicas the traffic of an hour asks for; `noise` is a share, about 0."""
        sun = (1 + math.cos((hour - PEAK_HOUR - self.shift) * math.pi / 12)) / 2
        share = self.low + (1 - self.low) * sun
        for burst in self.bursts:
            if burst.start <= hour < burst.start + burst.hours:
                share *= burst.factor
        return max(1, round(self.peak * share * (1 + noise)))


class Day(msgspec.Struct, frozen=True):
    """All that happens."""

    services: tuple[Service, ...]
    jobs: tuple[tuple[float, int], ...]
    """When a Job starts, with so many pods."""
    hours: float


def day(seed: int, *, nodes: int, hours: float = 24.0) -> Day:
    """Draw a day that needs about so many machines of eight cores at its busiest hour."""
    rng = seeded(f"day/{seed}")
    count = max(4, min(40, nodes // 5))
    weights = [1 / (rank + 1) ** 0.7 for rank in range(count)]
    pods = nodes * PODS_A_NODE
    services = tuple(
        _service(rng, number, max(1, round(pods * weight / sum(weights))))
        for number, weight in enumerate(weights)
    )
    each = max(1, nodes // 10)
    jobs = tuple(sorted((rng.uniform(0, 5), rng.randint(1, 4) * each) for _ in range(12)))
    return Day(services, jobs, hours)


def _service(rng: Random, number: int, peak: int) -> Service:
    cpu, memory = rng.choice(SIZES)
    return Service(
        name=f"service-{number:02d}",
        cpu=cpu,
        memory=memory,
        peak=peak,
        low=rng.uniform(0.25, 0.6),
        shift=rng.uniform(-2, 2),
        unavailable=rng.choice(("", "", "10%", "25%")) if peak > 1 else "",
        rollouts=tuple(sorted(rng.uniform(9, 18) for _ in range(rng.choice((0, 0, 1, 2))))),
        bursts=tuple(
            Burst(rng.uniform(6, 22), rng.uniform(0.25, 1.0), rng.uniform(1.2, 1.6))
            for _ in range(rng.choice((0, 0, 1)))
        ),
    )


def _service_objects(service: Service) -> list[Raw]:
    spread = {
        "maxSkew": 1,
        "topologyKey": "topology.kubernetes.io/zone",
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": {"app": service.name}},
    }
    obj = deployment(
        service.name,
        service.wanted(0.0, 0.0),
        cpu=service.cpu,
        memory=service.memory,
        terminationGracePeriodSeconds=30,
        topologySpreadConstraints=[spread],
    )
    budgets = (
        [disruption_budget(service.name, maxUnavailable=service.unavailable)] if service.unavailable else []
    )
    return [obj, *budgets]


def objects(of: Day, *, cores: int) -> list[Raw]:
    """Return what there is at midnight: pools with machines of at most so many cores, and the services."""
    machines = [
        {"key": "karpenter.k8s.aws/instance-category", "operator": "In", "values": ["c", "m", "r"]},
        {"key": "karpenter.k8s.aws/instance-generation", "operator": "Gt", "values": ["2"]},
        {"key": "karpenter.k8s.aws/instance-cpu", "operator": "Lt", "values": [str(cores + 1)]},
        {"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]},
    ]

    def of_kind(kind: str) -> list[Raw]:
        return [*machines, {"key": "karpenter.sh/capacity-type", "operator": "In", "values": [kind]}]

    settings: dict[str, Any] = {"consolidate_after": "60s", "budgets": [{"nodes": "10%"}]}
    return [
        node_class(delay="20s"),
        pool("services", requirements=of_kind("on-demand"), **settings),
        pool(
            "night",
            requirements=of_kind("spot"),
            template={"taints": [{"key": "night", "effect": "NoSchedule"}]},
            **settings,
        ),
        *(obj for service in of.services for obj in _service_objects(service)),
    ]


def _job(number: int, pods: int) -> Raw:
    spec = pod_spec(
        cpu="2",
        memory="4Gi",
        restartPolicy="Never",
        nodeSelector={"karpenter.sh/nodepool": "night"},
        tolerations=[{"key": "night", "operator": "Exists"}],
    )
    annotations = {
        "karpenter.sh/do-not-disrupt": "true",
        "pod-complete.stage.kwok.x-k8s.io/delay": f"{10 + number % 4 * 10}m",
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": f"night-{number:02d}", "namespace": "default"},
        "spec": {
            "parallelism": pods,
            "completions": pods,
            "ttlSecondsAfterFinished": 60,
            "template": {"metadata": {"annotations": annotations}, "spec": spec},
        },
    }


def _restart(service: Service, number: int, replicas: int) -> Raw:
    obj = _service_objects(service)[0]
    obj["spec"]["replicas"] = replicas
    obj["spec"]["template"]["metadata"]["annotations"] = {"rollout": str(number)}
    return obj


class _Team:
    """Who looks after one service."""

    def __init__(self, service: Service, rng: Random) -> None:
        self.service = service
        self.replicas = service.wanted(0.0, 0.0)
        self._rng = rng
        self._rolled = 0

    async def look(self, w: World, hour: float) -> None:
        """Scale to the traffic."""
        wanted = self.service.wanted(hour, self._rng.gauss(0.0, 0.03))
        if abs(wanted - self.replicas) > TOLERANCE * self.replicas:
            self.replicas = wanted
            await w.scale(self.service.name, wanted)

    async def roll(self, w: World, hour: float) -> None:
        """Roll out a new revision if one is due."""
        due = sum(at <= hour for at in self.service.rollouts)
        if due > self._rolled:
            self._rolled = due
            await w.apply(_restart(self.service, due, self.replicas))


async def live(w: World, of: Day, *, seed: int) -> None:
    """Let the day pass, from midnight (the world's present) to its end."""
    started = w.clock.now()
    teams = [_Team(service, seeded(f"day/{seed}/{service.name}")) for service in of.services]
    jobs: Sequence[tuple[float, int]] = of.jobs
    begun, minute = 0, 0
    while (hour := (w.clock.now() - started) / 3600) < of.hours:
        for number, team in enumerate(teams):
            if number % SCALE_EVERY_MINUTES == minute % SCALE_EVERY_MINUTES:
                await team.look(w, hour)
            await team.roll(w, hour)
        while begun < len(jobs) and jobs[begun][0] <= hour:
            await w.apply(_job(begun, jobs[begun][1]))
            begun += 1
        minute += 1
        await w.wait(STEP_SECONDS)
