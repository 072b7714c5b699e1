"""What plans cost once kube-scheduler has bound the pods: `python benchmarks/realised.py`.

    PYTHONPATH=src:. python benchmarks/realised.py [--only NAME] [--seeds N] [--reference PROGRAM] [--smoke]

A plan's machines arrive one by one; the embedded scheduler (kube-scheduler's filters and default scores)
binds pods that wait in the order of their creation, a drawn one, or the biggest first. What then waits is
planned for again, until all are bound. `nominated`: each pod's nominatedNodeName is set as soon as its
machine is there, and machines arrive in the order of the plan; `drawn`: in one drawn by lot, so that pods
whose machine is still to come take what room others leave; `together`: they become ready only when all of
them are there. Without nominations, machines arriving in drawn orders: `tight` is the same plan, `loose` the
one that the planner makes when told so; `reference` are the original's plans, each machine the cheapest that
it allows.

A row is over all orders and seeds: the planned $/h; the least share of pods bound where planned in the first
round, equal pods taken for each other (`as plan.`), and every one for itself (`itself`); the most pods left
over then; the most that the total was above the plan; the median total; the most rounds; pods that never
found a node; and, without nomination, how much less the median total is than the reference's, and the
greatest total than the reference's greatest.

The reference is the program given, or the one that `make bench-reference` has built; without, it is left out.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from statistics import median
from time import process_time
from typing import Any

import msgspec
from benchmarks.reference.program import PROGRAM
from benchmarks.workloads import decoded, deployments, generic, machines

from karpenter.apis import labels
from karpenter.apis.core import Pod
from karpenter.base.quantity import total
from karpenter.base.randomness import seeded
from karpenter.model.instancetype import InstanceType
from karpenter.model.pods import pod_key, requests
from karpenter.model.problem import Budget, Problem
from karpenter.model.snapshot import NodeView
from karpenter.providers.kwok.catalogue import EC2_LABELS
from karpenter.scheduling import solve
from karpenter.testing.builders import a_problem, some_pods
from karpenter.testing.realised import (
    ORDERS,
    Decision,
    Planner,
    Purchase,
    Realised,
    decided,
    nodes_after,
    realise,
)
from karpenter.testing.scenarios import scenario_of

BIG = 8_000
"""CPU of big pods, in thousandths."""


def preferring(pods: int) -> list[Pod]:
    """Return pods of 20 Deployments; every other one would rather be away from its own, or in one zone."""
    zone = {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["us-east-1b"]}
    found = []
    for i, pod in enumerate(deployments(20, pods)):
        app = pod.metadata.labels
        away = {"labelSelector": {"matchLabels": app}, "topologyKey": "kubernetes.io/hostname"}
        wishes: tuple[dict[str, Any], ...] = (
            {},
            {
                "podAntiAffinity": {
                    "preferredDuringSchedulingIgnoredDuringExecution": [
                        {"weight": 10, "podAffinityTerm": away}
                    ]
                }
            },
            {},
            {
                "nodeAffinity": {
                    "preferredDuringSchedulingIgnoredDuringExecution": [
                        {"weight": 10, "preference": {"matchExpressions": [zone]}}
                    ]
                }
            },
        )
        wish = wishes[int(app["app"][1:]) % 4]
        spec = decoded({"affinity": wish}) if wish else {}
        kept = msgspec.structs.replace(pod.spec, **spec) if spec else pod.spec
        name = msgspec.structs.replace(pod.metadata, name=f"{pod.name}-{i}", uid=f"{pod.name}-{i}")
        found.append(msgspec.structs.replace(pod, metadata=name, spec=kept))
    return found


def big_and_small(pods: int) -> list[Pod]:
    """Return a tenth big pods, the rest small."""
    big = some_pods(pods // 10, "big", cpu=f"{BIG}m", memory="30Gi", labels={"app": "big"})
    return big + generic(pods - len(big), name="small")


def asked(pods: Iterable[Pod], types: Sequence[InstanceType], nodes: Iterable[NodeView] = ()) -> Problem:
    """Return `pods` to place on nodes of a pool that sells `types`; no daemons run."""
    return a_problem(
        pods, instance_types=types, nodes=nodes, well_known_labels=labels.WELL_KNOWN_LABELS | EC2_LABELS
    )


def on_half_full_nodes(pods: int) -> Problem:
    """Return generic pods, for a cluster that has nodes for as many, but half of these have gone."""
    types, rng = machines(cores=32, zones=3), seeded(5)
    views = []
    for view in nodes_after(asked(generic(pods, name="old"), types), ours(0.2)):
        kept = tuple(pod for pod in view.pods if rng.random() < 0.5)
        amounts = total(requests(pod) for pod in kept)
        views.append(msgspec.structs.replace(view, pods=kept, requested=amounts))
    return asked(generic(pods), types, views)


def scenarios(pods: int) -> dict[str, Callable[[], Problem]]:
    """Return problems by name, of about so many pods."""
    one, three = machines(cores=32), machines(cores=32, zones=3)
    every = machines(spot=True, arm=True, zones=3)
    return {
        "generic": lambda: asked(generic(pods), machines()),
        "generic, <= 8 cores": lambda: asked(generic(pods), machines(cores=8)),
        "50 deployments": lambda: asked(deployments(50, pods), one),
        "zone spread": lambda: asked(deployments(30, pods, company=("zone",)), three),
        "selectors, spot": lambda: asked(deployments(40, pods, picky=True), every),
        "apart by host": lambda: asked(deployments(25, pods, company=("anti",)), three),
        "preferences": lambda: asked(preferring(pods), three),
        "big and small": lambda: asked(big_and_small(pods), three),
        "existing nodes": lambda: on_half_full_nodes(pods),
    }


def ours(seconds: float, *, nominated: bool = True) -> Planner:
    """Return this project's planner with so much time to search; `nominated`: as if pods obeyed the plan."""

    def plan(problem: Problem) -> Decision:
        options = msgspec.structs.replace(problem.options, nominated=nominated)
        question = msgspec.structs.replace(problem, options=options)
        return decided(problem, solve(question, Budget(seconds=seconds), monotonic=process_time))

    return _remembering(plan)


def theirs(program: str) -> Planner:
    """Return the planner of the reference program."""
    return _remembering(lambda problem: _asked(program, problem))


def _remembering(planner: Planner) -> Planner:
    """Return `planner`, giving the same answer to the same question."""
    known: dict[object, Decision] = {}

    def plan(problem: Problem) -> Decision:
        filled = ((n.name, *(pod_key(p) for p in n.pods)) for n in problem.nodes)
        question = (tuple((pod_key(p), p.metadata.resource_version) for p in problem.pods), *filled)
        if question not in known:
            known[question] = planner(problem)
        return known[question]

    return plan


def _asked(program: str, problem: Problem) -> Decision:
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(scenario_of(problem, "realised"), file)
        file.flush()
        done = subprocess.run(
            [program, "schedule", "-workers", "1", "-max-its", "1", file.name],
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode:
        raise RuntimeError(f"{program}: {done.stderr.strip()[-500:]}")
    answer = json.loads(done.stdout)
    return Decision(
        purchases=tuple(
            Purchase(
                pool=node["nodePool"],
                instance_type=node["launch"]["instanceType"],
                zone=node["launch"]["zone"],
                capacity_type=node["launch"]["capacityType"],
                price=node["launch"]["price"],
                pods=tuple(node["pods"]),
            )
            for node in answer.get("newNodes") or ()
        ),
        placements={n["node"]: tuple(n["pods"]) for n in answer.get("existingNodes") or () if n.get("pods")},
    )


def outcomes(
    problem: Problem, planner: Planner, seeds: int, *, nominate: bool = False, arrival: str = "drawn"
) -> list[Realised]:
    """Return what becomes of the planner's plans in every order, with every seed."""
    return [
        realise(problem, planner, order=order, seed=seed, nominate=nominate, arrival=arrival)
        for order in ORDERS
        for seed in range(1, seeds + 1)
    ]


def line(name: str, mode: str, found: list[Realised], reference: list[Realised]) -> str:
    """Return a row of the table."""
    first = found[0]
    over = max(r.cost / r.planned_cost - 1 if r.planned_cost else 0.0 for r in found)
    row = (
        f"{name:20} {mode:10} {first.pods:5} {first.planned_cost:9.3f} "
        f"{100 * min(r.share_as_planned for r in found):8.1f} % "
        f"{100 * min(r.share_themselves for r in found):8.1f} % "
        f"{100 * max(r.late / max(1, r.pods) for r in found):6.1f} % {100 * over:+7.1f} % "
        f"{median(r.cost for r in found):9.3f} {max(r.rounds for r in found):6} "
        f"{max(len(r.waiting) for r in found):5}"
    )
    if reference:
        usual = 1 - median(r.cost for r in found) / median(r.cost for r in reference)
        worst = 1 - max(r.cost for r in found) / max(r.cost for r in reference)
        row += f" {100 * usual:+7.1f} % {100 * worst:+7.1f} %"
    return row


HEAD = (
    f"{'scenario':20} {'mode':10} {'pods':>5} {'plan $/h':>9} {'as plan.':>10} {'itself':>10} "
    f"{'late':>8} {'over':>9} {'total $/h':>9} {'rounds':>6} {'wait':>5} {'saved':>9} {'at worst':>9}"
)


def measure(name: str, problem: Problem, seconds: float, seeds: int, program: str) -> None:
    """Print the rows of one scenario."""
    tight, loose = ours(seconds), ours(seconds, nominated=False)
    reference = outcomes(problem, theirs(program), seeds) if program else []
    for mode, arrival in (("together", "together"), ("nominated", "planned"), ("drawn", "drawn")):
        found = outcomes(problem, tight, seeds, nominate=True, arrival=arrival)
        print(line(name if mode == "together" else "", mode, found, []), flush=True)
    print(line("", "tight", outcomes(problem, tight, seeds), reference), flush=True)
    print(line("", "loose", outcomes(problem, loose, seeds), reference), flush=True)
    if reference:
        print(line("", "reference", reference, []), flush=True)


def main() -> int:
    """Parse arguments, print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="", help="scenarios with this in their name")
    parser.add_argument("--pods", type=int, default=600)
    parser.add_argument("--seconds", type=float, default=0.5, help="of search for each plan")
    parser.add_argument("--seeds", type=int, default=2, help="orders of arrival for each order of the pods")
    parser.add_argument("--reference", help="program to compare with")
    parser.add_argument("--smoke", action="store_true", help="few pods, two scenarios")
    given = parser.parse_args()
    program = given.reference or (str(PROGRAM.binary()) if PROGRAM.built() else "")
    if not program:
        print("reference: not built here (make bench-reference does); ours alone")
    pods, only = (60, ("50 deployments", "zone spread")) if given.smoke else (given.pods, ())
    print(HEAD)
    for name, making in scenarios(pods).items():
        if given.only in name and (not only or name in only):
            measure(name, making(), given.seconds, given.seeds, program)
    return 0


if __name__ == "__main__":
    sys.exit(main())
