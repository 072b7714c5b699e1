"""The scenarios that both are given: kept ones, and workloads that the reference program generates."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import yaml
from benchmarks.reference.ec2 import ec2_types
from benchmarks.reference.program import generate

CORPUS = Path(__file__).parents[1] / "corpus"


class Bought(msgspec.Struct, frozen=True):
    """A share of EC2's catalogue, on demand: letters of categories, and how many vCPUs at most."""

    categories: str = "cmr"
    cores: int = 1 << 30


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """A workload that the reference program generates, and what is expected of us."""

    name: str
    workload: str
    pods: int
    deployments: int = 100
    types: int | Bought = 400
    """That many of the made-up types of the original's benchmark, or EC2's."""
    seed: int = 42
    faster: float = 0.0
    """How many times faster our first complete plan has to be; 0: not a matter of speed."""
    runs: int = 1
    quick: bool = False
    """Done within a few seconds by both."""

    def write(self, path: Path) -> None:
        """Generate the scenario."""
        arguments = ["-workload", self.workload, "-pods", str(self.pods), "-seed", str(self.seed)]
        arguments += ["-deployments", str(self.deployments)]
        if isinstance(self.types, int):
            generate([*arguments, "-instance-types", f"fake:{self.types}"], path)
            return
        bought = ec2_types(categories=self.types.categories, cores=self.types.cores, spot=False)
        listed = path.with_suffix(".types.json")
        listed.write_text(json.dumps(bought))
        generate([*arguments, "-linux-amd64", "-instance-types", f"file:{listed}"], path)


CASES: Sequence[Case] = (
    Case(name="diverse 1k", workload="diverse", pods=1_000, quick=True),
    Case(name="diverse 5k", workload="diverse", pods=5_000, faster=20),
    Case(name="diverse 20k", workload="diverse", pods=20_000, faster=50),
    Case(name="100 deployments x 10", workload="deployments", pods=1_000, quick=True),
    Case(name="100 deployments x 500", workload="deployments", pods=50_000, faster=100),
    Case(name="preferences 300", workload="preference", pods=300, quick=True),
    Case(name="preferences 4k", workload="preference", pods=4_000, faster=100),
    Case(name="topology 20 x 25", workload="topology", pods=500, deployments=20, quick=True),
    Case(name="topology 50 x 100", workload="topology", pods=5_000, deployments=50),
    Case(name="anti 20 x 25", workload="anti", pods=500, deployments=20, quick=True),
    Case(name="anti 50 x 100", workload="anti", pods=5_000, deployments=50),
    Case(name="ec2, diverse 2k", workload="diverse", pods=2_000, types=Bought(), runs=3),
)


class Mix(msgspec.Struct, frozen=True):
    """Workloads without constraints, bought on demand from one share of EC2's catalogue."""

    name: str
    bought: Bought
    saving: float
    """The median saving wanted, as a share of what the reference pays."""

    def cases(self) -> Iterator[Case]:
        """Yield the workloads: the benchmark's thirty shapes, and Deployments; several sizes and seeds."""
        for workload, pods, deployments, seed in _UNCONSTRAINED:
            shape = f"{deployments} deployments" if workload == "deployments" else "mix"
            name = f"{self.name}, {shape} {pods} #{seed}"
            yield Case(
                name=name,
                workload=workload,
                pods=pods,
                deployments=deployments,
                types=self.bought,
                seed=seed,
            )


_UNCONSTRAINED = (
    ("generic", 1_000, 1, 1),
    ("generic", 3_000, 1, 2),
    ("deployments", 1_000, 20, 3),
    ("deployments", 2_000, 50, 4),
    ("deployments", 3_000, 100, 5),
)
MIXES = (
    Mix("<= 8 vCPU", Bought(cores=8), 0.07),
    Mix("<= 32 vCPU", Bought(cores=32), 0.07),
    Mix("all of c, m, r", Bought(), 0.25),
)


def kept() -> list[Path]:
    """Return the scenarios of the corpus, by name."""
    return sorted(CORPUS.glob("*.yaml"))


def complete(kept_scenario: Path) -> dict[str, Any]:
    """Return a scenario with the instance types it means: EC2's where it lists none."""
    scenario: dict[str, Any] = yaml.safe_load(kept_scenario.read_text())
    if "instanceTypes" not in scenario:
        scenario["instanceTypes"] = ec2_types()
    return scenario


def write_complete(kept_scenario: Path, path: Path) -> None:
    """Write a scenario of the corpus with its instance types."""
    path.write_text(json.dumps(complete(kept_scenario)))
