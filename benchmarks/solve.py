"""How fast the solver is, and how dear its plans are.

    python benchmarks/solve.py [--catalogue made-up] [--pods 5000] [--smoke] [--reference PROGRAM]

Prints one row per workload: seconds to compile the catalogue, seconds to solve, nodes, $/h, the bound and the
gap, refused pods, violations found by the checker. The catalogue is EC2's as shipped, or a made-up one of the
same shape. `--reference` is a program that reads a scenario file as its last argument and prints JSON with
`newNodesCostPerHour`, `newNodeCountPerRun` and `timing`; its figures are shown beside ours.
"""

import argparse
import json
import subprocess
import tempfile
from time import perf_counter
from typing import Any

import msgspec

from karpenter.apis import labels
from karpenter.apis.core import Pod
from karpenter.base.quantity import format_resources
from karpenter.base.randomness import Random, seeded
from karpenter.model.instancetype import InstanceType
from karpenter.model.problem import Problem
from karpenter.providers.kwok.catalogue import ec2_instance_types
from karpenter.scheduling import solve
from karpenter.scheduling.catalogue import Catalogue
from karpenter.scheduling.check import violations
from karpenter.testing.builders import a_daemon, a_nodepool, a_pod, a_problem, an_instance_type, an_offering

ZONES = ("us-east-1a", "us-east-1b", "us-east-1c")
CPUS = (100, 250, 500, 1000, 1500, 2000, 4000)
MEMORIES = (100, 256, 512, 1024, 2048, 4096, 8192)


def ec2_types(spot: bool) -> list[InstanceType]:
    """Return EC2's types of us-east-1: general, compute and memory families, no metal."""
    return [
        msgspec.structs.replace(
            kind,
            offerings=tuple(
                o for o in kind.offerings if spot or o.capacity_type == labels.CAPACITY_ON_DEMAND
            ),
        )
        for kind in ec2_instance_types()
        if kind.name[0] in "cmr" and ".metal" not in kind.name
    ]


def made_up_types(spot: bool) -> list[InstanceType]:
    """Return about 1,300 types of EC2's shape: three ratios of memory, many generations, 2 to 192 cores."""
    found = []
    for ratio, letter, core_price in ((2, "c", 0.0425), (4, "m", 0.048), (8, "r", 0.063)):
        for generation in range(5, 9):
            for variant, factor, arch in (("i", 1.0, "amd64"), ("a", 0.9, "amd64"), ("g", 0.8, "arm64")):
                for disk, extra_price in (("", 1.0), ("d", 1.13), ("n", 1.25), ("b", 1.2)):
                    for cores in (2, 4, 8, 16, 32, 48, 64, 96, 192):
                        name = f"{letter}{generation}{variant}{disk}.{cores}x"
                        price = round(
                            cores * core_price * factor * extra_price * (1 + (generation - 5) * 0.03), 5
                        )
                        savings = (hash_of(name) % 50 + 20) if spot else 0
                        found.append(
                            a_type(name, cores, cores * ratio * 1024, price, ZONES, arch, savings, {}, 234)
                        )
    return found


def hash_of(text: str) -> int:
    """Return a small number that follows from `text` alone."""
    value = 7
    for character in text:
        value = (value * 31 + ord(character)) % 1_000_003
    return value


def a_type(
    name: str,
    cores: int,
    mib: int,
    price: float,
    zones: Any,
    arch: str,
    savings: int,
    extra: dict[str, str],
    pods: int,
) -> InstanceType:
    """Return one EC2 type; a zone's spot price differs from the next by a few per cent."""
    offerings = [an_offering(z, labels.CAPACITY_ON_DEMAND, price) for z in zones]
    if savings:
        offerings += [
            an_offering(
                z,
                labels.CAPACITY_SPOT,
                round(price * (1 - savings / 100) * (1 + hash_of(name + z) % 9 / 100), 6),
            )
            for z in zones
        ]
    return an_instance_type(
        name,
        cpu=str(cores),
        memory=f"{mib}Mi",
        pods=str(pods),
        offerings=offerings,
        arch=arch,
        extra=extra,
        overhead={"cpu": f"{60 + 5 * cores}m", "memory": f"{int(mib * 0.075) + 355 + 11 * min(pods, 110)}Mi"},
    )


def deployments(rng: Random, count: int, pods: int, constrained: bool = False) -> list[Pod]:
    """Return `pods` pods of `count` deployments; with `constrained`, a third has a node selector."""
    made: list[Pod] = []
    for i in range(count):
        selector: dict[str, str] = {}
        if constrained and i % 3 == 0:
            selector = rng.choice(
                [
                    {labels.ZONE: rng.choice(ZONES)},
                    {labels.ARCH: "amd64"},
                    {labels.CAPACITY_TYPE: "on-demand"},
                ]
            )
        first = a_pod(
            f"d{i:03d}",
            cpu=f"{rng.choice(CPUS)}m",
            memory=f"{rng.choice(MEMORIES)}Mi",
            node_selector=selector,
        )
        made += copies(first, pods // count)
    return made


def copies(first: Pod, count: int) -> list[Pod]:
    """Return `count` pods like `first`, as decoded from the API: nothing shared between them."""
    text = msgspec.json.encode(first)
    made = []
    for i in range(count):
        pod = msgspec.json.decode(text, type=Pod)
        name = f"{first.name}-{i:05d}"
        made.append(
            msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, name=name, uid=name))
        )
    return made


def distinct(rng: Random, pods: int) -> list[Pod]:
    """Return `pods` pods of which hardly two are alike."""
    return [
        a_pod(f"p{i:05d}", cpu=f"{rng.randint(50, 4000)}m", memory=f"{rng.randint(64, 8192)}Mi")
        for i in range(pods)
    ]


def measure(name: str, problem: Problem, compile_seconds: float, reference: str | None) -> None:
    """Solve `problem` three times and print the best, checked."""
    best = float("inf")
    for _ in range(3):
        start = perf_counter()
        plan = solve(problem)
        best = min(best, perf_counter() - start)
    errors = violations(problem, plan)
    bound = plan.lower_bound or 0.0
    gap = f"{100 * (plan.cost / bound - 1):6.1f} %" if bound else "     -"
    row = (
        f"{name:24s} {len(problem.pods):6d} {len(problem.pools[0].instance_types):6d} {compile_seconds:8.3f} "
        f"{best:8.3f} {len(plan.claims):6d} {plan.cost:10.3f} {bound:10.3f} {gap} "
        f"{len(plan.unschedulable):5d} {len(errors):4d}"
    )
    if reference:
        row += "  " + refer(reference, problem, plan.cost)
    print(row, flush=True)
    for error in errors[:3]:
        print("   !", error)


def refer(program: str, problem: Problem, ours: float) -> str:
    """Run the reference on the same problem; return its seconds, nodes, $/h, and how much dearer it is."""
    scenario = {
        "name": "benchmark",
        "instanceTypes": [
            {
                "name": t.name,
                "capacity": format_resources(t.capacity),
                "overhead": {"kubeReserved": format_resources(t.overhead)},
                "requirements": [
                    {
                        "key": labels.ARCH,
                        "operator": "In",
                        "values": [t.requirements.single_value(labels.ARCH)],
                    }
                ],
                "offerings": [
                    {
                        "zone": o.zone,
                        "capacityType": o.capacity_type,
                        "price": o.price,
                        "available": o.available,
                    }
                    for o in t.offerings
                ],
            }
            for t in problem.pools[0].instance_types
        ],
        "nodePools": [msgspec.to_builtins(o.pool) for o in problem.pools],
        "pods": [msgspec.to_builtins(p) for p in problem.pods],
    }
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(scenario, file)
        file.flush()
        done = subprocess.run(
            [program, "schedule", "-summary", "-max-its", "1", file.name],
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode:
        return f"reference failed: {done.stderr.strip()[:100]}"
    result = json.loads(done.stdout)
    seconds = result["timing"]["medianWallMs"] / 1000
    nodes, cost = result["newNodeCountPerRun"][0], result["newNodesCostPerHour"]
    return f"{seconds:8.3f} {nodes:6d} {cost:10.3f} {100 * (cost / ours - 1):+8.1f} %"


def main() -> None:
    """Parse arguments, print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--catalogue", choices=("ec2", "made-up"), default="ec2")
    parser.add_argument("--pods", type=int, default=5000)
    parser.add_argument("--smoke", action="store_true", help="200 pods")
    parser.add_argument("--reference")
    parser.add_argument("--only", default="", help="run workloads whose name contains this")
    arguments = parser.parse_args()
    head = f"{'workload':26s} pods  types  compile    solve  nodes        $/h      bound      gap unsch  bad"
    print(head + ("    ref. s  nodes        $/h    dearer" if arguments.reference else ""))
    for spot in (False, True):
        types = ec2_types(spot) if arguments.catalogue == "ec2" else made_up_types(spot)
        start = perf_counter()
        Catalogue(tuple(types))
        seconds = perf_counter() - start
        kind = "spot+od" if spot else "od"
        n = 200 if arguments.smoke else arguments.pods
        workloads = {
            f"50 deployments {kind}": deployments(seeded(1), 50, n),
            f"100 constrained {kind}": deployments(seeded(2), 100, n, constrained=True),
            f"all distinct {kind}": distinct(seeded(3), n),
        }
        for name, pods in workloads.items():
            if arguments.only in name:
                problem = a_problem(pods, pools=[a_nodepool()], instance_types=types, daemons=[a_daemon()])
                measure(name, problem, seconds, arguments.reference)


if __name__ == "__main__":
    main()
