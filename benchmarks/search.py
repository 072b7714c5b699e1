"""How near to the cheapest possible nodes the search alone comes, and how soon.

    python benchmarks/search.py [--smoke] [--only NAME] [--seconds 0.25 1 3]

The search without the solver around it (`gap.py` measures whole plans). Prints two rows per scenario, for no
fee per node and for the default one: the lower bound, the cost of the first-fit plan that the search starts
from, and for each budget of CPU seconds the cost, its gap to the bound, nodes, and CPU seconds used. Instance
types and prices are EC2's of us-east-1 as shipped; spot prices are modelled. Each node carries a daemon of
200m CPU, 256Mi and three pods. `gap` includes the slack of the bound.
"""

import argparse
import csv
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from time import process_time

import msgspec
import numpy as np

from karpenter.apis import labels
from karpenter.model.instancetype import InstanceType
from karpenter.providers.kwok.catalogue import EC2_LABELS, ec2_instance_types
from karpenter.scheduling.search import NodePattern, Packing, PackingProblem, improve

RESOURCES = ("cpu", "memory", "pods", "nvidia.com/gpu")
DAEMON = np.array([200, 256 << 20, 3, 0])
MIB = 1 << 20
DOMAIN = "karpenter.k8s.aws/instance-"
MODELS = {"T4": "t4", "V100M16": "v100", "V100M32": "v100", "A10": "a10g", "P100": "t4"}
assert {DOMAIN + "category", DOMAIN + "generation"} <= EC2_LABELS


class Offer(msgspec.Struct, frozen=True):
    """One type in one zone, on demand or spot."""

    kind: InstanceType
    zone: str
    spot: bool
    price: float


class Ask(msgspec.Struct, frozen=True):
    """Pods that are all alike, and what they select."""

    cpu: int
    memory: int
    count: int
    gpus: int = 0
    zone: str = ""
    arch: str = ""
    on_demand: bool = False
    gpu_names: tuple[str, ...] = ()

    def allows(self, offer: Offer) -> bool:
        """Return whether pods of the ask may be on nodes of `offer`."""
        has = offer.kind.requirements
        return (
            self.zone in ("", offer.zone)
            and self.arch in ("", has.single_value(labels.ARCH))
            and not (self.on_demand and offer.spot)
            and (not self.gpu_names or has.single_value(DOMAIN + "gpu-name") in self.gpu_names)
        )


def offers(
    categories: str = "cmr", *, spot: bool = False, arm: bool = False, cores: int = 10_000, zones: int = 1
) -> list[Offer]:
    """Return what can be bought: generation 3 and later, no metal, no Neuron."""
    found = []
    for kind in ec2_instance_types():
        has = kind.requirements
        generation = has.single_value(DOMAIN + "generation")
        if has.single_value(DOMAIN + "category") not in tuple(categories) or ".metal" in kind.name:
            continue
        if not generation or int(generation) < 3 or kind.capacity["cpu"] > cores * 1000:
            continue
        if not arm and has.single_value(labels.ARCH) != "amd64":
            continue
        names = sorted({o.zone for o in kind.offerings})[:zones]
        found += [
            Offer(kind, o.zone, o.capacity_type == labels.CAPACITY_SPOT, o.price)
            for o in kind.offerings
            if o.zone in names and (spot or o.capacity_type == labels.CAPACITY_ON_DEMAND)
        ]
    return found


def problem(asks: Sequence[Ask], bought: Sequence[Offer], fee: float) -> PackingProblem:
    """Return the arrays of `asks` on `bought`, without limits."""
    room = np.array([[o.kind.allocatable.get(name, 0) for name in RESOURCES] for o in bought]) - DAEMON
    kept = np.flatnonzero((room >= 0).all(axis=1)).tolist()
    return PackingProblem(
        wanted=np.array([[a.cpu, a.memory * MIB, 1, a.gpus] for a in asks]),
        count=np.array([a.count for a in asks]),
        most=np.full(len(asks), 1 << 40),
        room=room[kept],
        price=np.array([bought[i].price for i in kept]),
        allowed=np.array([[a.allows(bought[i]) for i in kept] for a in asks]),
        usage=np.zeros((len(kept), 0), dtype=np.int64),
        remaining=np.zeros(0, dtype=np.int64),
        fee=fee,
    )


def first_fit(packing: PackingProblem) -> list[NodePattern]:
    """Return the plan of a first-fit pass over whole asks, largest first, as upstream's scheduler makes it.

    A node may become any type that still fits what is on it, so the first ones grow until only the largest
    types are left; each is then bought as the cheapest that holds it.
    """
    order = np.lexsort((-packing.wanted[:, 1], -packing.wanted[:, 0]))
    nodes: list[tuple[np.ndarray, dict[int, int], np.ndarray]] = []
    for ask in order.tolist():
        left = int(packing.count[ask])
        wanted = packing.wanted[ask]
        place = 0
        while left:
            if place == len(nodes):
                nodes.append((np.zeros(len(RESOURCES), dtype=np.int64), {}, np.arange(len(packing.price))))
            used, content, possible = nodes[place]
            fits = possible[packing.allowed[ask, possible]]
            space = packing.room[fits] - used
            pods = np.where(wanted > 0, space // np.maximum(wanted, 1), 1 << 40).min(axis=1, initial=1 << 40)
            take = min(left, int(pods.max(initial=0)))
            if not take and not content:
                nodes.pop()
                break
            if take:
                content[ask] = take
                nodes[place] = (used + wanted * take, content, fits[pods >= take])
                left -= take
            place += 1
    bought = [(possible[packing.price[possible].argmin()], content) for _, content, possible in nodes]
    return [NodePattern(int(offer), tuple(sorted(content.items())), 1) for offer, content in bought]


def mix(pods: int) -> list[Ask]:
    """Return the 30 shapes of upstream's benchmark, drawn at random."""
    rng = np.random.default_rng(1)
    shapes = [(c, m) for c in (100, 250, 500, 1000, 1500) for m in (100, 256, 512, 1024, 2048, 4096)]
    drawn = rng.multinomial(pods, [1 / len(shapes)] * len(shapes))
    return [Ask(c, m, int(n)) for (c, m), n in zip(shapes, drawn, strict=True) if n]


def deployments(number: int, pods: int, *, zipf: bool = False, constrained: bool = False) -> list[Ask]:
    """Return Deployments of random shape, equal or power-law size; if constrained, half select something."""
    rng = np.random.default_rng(2)
    found = []
    for rank in range(number):
        cpu = round(math.exp(rng.normal(math.log(500), 0.9)) / 50 + 1) * 50
        memory = round(cpu * math.exp(rng.normal(math.log(3.5), 0.8)) / 64 + 1) * 64
        count = max(1, int(pods * (1 / (rank + 1)) / math.log(number))) if zipf else pods // number
        picky = constrained and rng.random() < 0.6
        zone, arch, kind = rng.random(3) < 0.4 if picky else (False, False, False)
        ask = Ask(
            min(cpu, 16_000),
            min(memory, 65_536),
            count,
            zone="us-east-1" + "abc"[rng.integers(3)] if zone else "",
            arch=("amd64", "arm64")[int(rng.random() < 0.3)] if arch else "",
            on_demand=bool(kind),
        )
        found.append(ask)
    return found


def openb(models: bool) -> list[Ask]:
    """Return the pods of Alibaba's GPU trace; with `models`, GPU models that EC2 has are asked for."""
    found: dict[tuple[int, ...] | tuple[object, ...], int] = {}
    with (Path(__file__).parent / "data" / "openb-pods.csv").open() as file:
        for row in csv.DictReader(file):
            names = tuple(sorted({MODELS[m] for m in row["gpu_models"].split() if m in MODELS}))
            key = (int(row["cpu_milli"]), int(row["memory_mib"]), int(row["gpus"]), names if models else ())
            found[key] = found.get(key, 0) + int(row["pods"])
    return [Ask(k[0], k[1], n, gpus=k[2], gpu_names=k[3]) for k, n in found.items()]  # type: ignore[arg-type]


def distinct(pods: int) -> list[Ask]:
    """Return pods of which hardly two are alike."""
    rng = np.random.default_rng(3)
    return [Ask(int(rng.integers(50, 4000)), int(rng.integers(64, 8192)), 1) for _ in range(pods)]


def scenarios(smoke: bool) -> dict[str, Callable[[], tuple[list[Ask], list[Offer]]]]:
    """Return the asks and offers of each scenario by name, made when called."""
    if smoke:
        return {
            "mix 200": lambda: (mix(200), offers()),
            "20 deployments constrained": lambda: (
                deployments(20, 300, constrained=True),
                offers(spot=True, arm=True, zones=3, cores=32),
            ),
        }

    def everything() -> list[Offer]:
        return offers(spot=True, arm=True, zones=3)

    return {
        "mix 1k": lambda: (mix(1_000), offers()),
        "mix 10k": lambda: (mix(10_000), offers()),
        "mix 50k": lambda: (mix(50_000), offers()),
        "mix 10k, <= 32 cores": lambda: (mix(10_000), offers(cores=32)),
        "mix 10k, <= 8 cores": lambda: (mix(10_000), offers(cores=8)),
        "mix 50k, spot": lambda: (mix(50_000), offers(spot=True)),
        "100 x 500": lambda: (deployments(100, 50_000), offers()),
        "100 x 500, <= 32 cores": lambda: (deployments(100, 50_000), offers(cores=32, arm=True)),
        "100 x 500, constrained": lambda: (
            deployments(100, 50_000, constrained=True),
            everything(),
        ),
        "400 zipf": lambda: (deployments(400, 16_000, zipf=True), offers()),
        "400 zipf, constrained": lambda: (
            deployments(400, 16_000, zipf=True, constrained=True),
            everything(),
        ),
        "openb GPU": lambda: (openb(False), offers("cmrgp")),
        "openb GPU models": lambda: (openb(True), offers("cmrgp")),
        "5k distinct": lambda: (distinct(5_000), offers()),
    }


def measure(name: str, packing: PackingProblem, seconds: Sequence[float]) -> None:
    """Search within each budget and print a row."""
    start = first_fit(packing)
    cost = sum(packing.price[p.offer] * p.copies for p in start)
    results = [_search(packing, start, budget) for budget in seconds]
    bound = max(result.lower_bound for result, _ in results)
    row = f"{name:26s} {packing.count.sum():6d} {len(packing.count):5d} {len(packing.price):5d}"
    row += f" {packing.fee:5.2f} {bound:10.2f} {cost:10.2f} {100 * (cost / bound - 1 if bound else 0):+6.1f}%"
    for result, cpu in results:
        gap = 100 * (result.cost / bound - 1) if bound else 0.0
        nodes = sum(p.copies for p in result.patterns)
        missing = f" !{result.unplaced.sum()}" if result.unplaced.any() else ""
        row += f" | {result.cost:10.2f} {gap:+6.2f}% {nodes:5d} {cpu:5.2f}s{missing}"
    print(row, flush=True)


def _search(packing: PackingProblem, start: list[NodePattern], budget: float) -> tuple[Packing, float]:
    begun = process_time()
    result = improve(packing, start, lambda: process_time() - begun < budget)
    return result, process_time() - begun


def main() -> None:
    """Parse arguments, print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--smoke", action="store_true", help="two tiny scenarios")
    parser.add_argument("--only", default="", help="run scenarios whose name contains this")
    parser.add_argument("--seconds", type=float, nargs="+", default=[0.25, 1.0, 3.0])
    parser.add_argument("--fees", type=float, nargs="+", default=[0.0, 0.02])
    arguments = parser.parse_args()
    budgets = [0.1] if arguments.smoke else arguments.seconds
    head = (
        f"{'scenario':26s} {'pods':>6s} {'asks':>5s} {'offer':>5s} {'fee':>5s} {'bound':>10s} {'start':>18s}"
    )
    print(head + "".join(f" | {f'{b:g} s: $/h':>10s} {'gap':>7s} nodes    CPU" for b in budgets))
    for name, make in scenarios(arguments.smoke).items():
        if arguments.only in name:
            asks, bought = make()
            for fee in arguments.fees:
                measure(name, problem(asks, bought, fee), budgets)


if __name__ == "__main__":
    main()
