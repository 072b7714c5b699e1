"""Clusters to consolidate: provisioned by the reference, then a part of their pods removed at random.

They are kept in `benchmarks/clusters` without what can be filled in again (instance types, sizes of nodes),
with what the reference's consolidation made of them beside (`NAME.reference.json`).

    python benchmarks/reference/clusters.py [NAME...]     makes and records them anew
"""

import gzip
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec
from benchmarks.reference.ec2 import ec2_types, generic_types
from benchmarks.reference.program import Converged, converge, generate, snapshot, version

KEPT = Path(__file__).parents[1] / "clusters"
RUNS = 3
_SECONDS = 240
Budgets = Literal["free", "budgets"]
"""Whether all of a pool's nodes may go at once, or a tenth of them (the default)."""
BUDGETS: dict[Budgets, str] = {"free": "100%", "budgets": "10%"}


class Cluster(msgspec.Struct, frozen=True, kw_only=True):
    """How a cluster is made."""

    name: str
    workload: str
    pods: int
    """Before any are removed."""
    catalogue: Literal["generic", "ec2"]
    deployments: int = 50
    cores: int = 16
    """Of the largest machine on offer."""
    drop: float = 0.5
    """Which share of the pods is removed."""
    seed: int = 1
    """Of the choice of the pods removed."""
    provisioned_only: bool = False
    """No consolidation of the reference's to beat: it finds nothing."""

    def types(self) -> list[dict[str, Any]]:
        """Return what is on offer."""
        if self.catalogue == "generic":
            return generic_types(cores=self.cores)
        return ec2_types(categories="cmr", cores=self.cores, spot=False)

    def arguments(self) -> list[str]:
        """Return what the reference's generator is told, the catalogue apart."""
        return [
            *("-workload", self.workload, "-pods", str(self.pods)),
            *("-deployments", str(self.deployments)),
            *("-linux-amd64", "-capacity-type", "on-demand"),
        ]

    def made_by(self) -> list[str]:
        """Return the commands that make it, for people."""
        cut = f" -drop {self.drop} -seed {self.seed}" if self.drop else ""
        return [
            f"reference gen {' '.join(self.arguments())} -instance-types file:TYPES.json -o S.json",
            f"reference snapshot{cut} -dump CLUSTER.json S.json",
            "reference converge CLUSTER.json",
        ]

    @property
    def path(self) -> Path:
        """Where it is kept."""
        return KEPT / f"{self.name}.json.gz"


class Recorded(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """What the reference made of a cluster, the median run by cost."""

    reference: str
    """Which release."""
    made_by: list[str]
    """TYPES.json is our catalogue as `benchmarks.reference.ec2` lists it."""
    runs: int
    free: Converged
    budgets: Converged

    def within(self, budgets: Budgets) -> Converged:
        """Return the figures for these budgets."""
        return self.free if budgets == "free" else self.budgets


def _pair(name: str, pods: int, deployments: int, seeds: Sequence[int]) -> list[Cluster]:
    return [
        Cluster(
            name=f"{name}-{catalogue}-{seed}",
            workload="deployments",
            pods=pods,
            deployments=deployments,
            catalogue=catalogue,
            seed=seed,
        )
        for catalogue in ("generic", "ec2")
        for seed in seeds
    ]


CLUSTERS: Sequence[Cluster] = (
    *_pair("small", 1_000, 50, (1, 2, 3)),
    *_pair("large", 5_000, 100, (1, 2)),
    Cluster(name="mix-ec2-1", workload="generic", pods=1_000, catalogue="ec2"),
    Cluster(name="diverse-generic-1", workload="diverse", pods=500, catalogue="generic"),
    Cluster(name="diverse-ec2-1", workload="diverse", pods=500, catalogue="ec2"),
    Cluster(
        name="whole-ec2",
        workload="generic",
        pods=2_000,
        catalogue="ec2",
        cores=1 << 30,
        drop=0.0,
        provisioned_only=True,
    ),
    Cluster(
        name="whole-ec2-deployments",
        workload="deployments",
        pods=2_000,
        catalogue="ec2",
        cores=1 << 30,
        drop=0.0,
        provisioned_only=True,
    ),
)


def write(cluster: Cluster, path: Path, budgets: Budgets) -> None:
    """Write a cluster that is kept as a whole scenario."""
    scenario = json.loads(gzip.decompress(cluster.path.read_bytes()))
    scenario["instanceTypes"] = cluster.types()
    for pool in scenario["nodePools"]:
        pool["spec"]["disruption"]["budgets"] = [{"nodes": BUDGETS[budgets]}]
    path.write_text(json.dumps(scenario))


def recorded_path(cluster: Cluster) -> Path:
    """Return where the reference's figures are kept."""
    return KEPT / f"{cluster.name}.reference.json"


def recorded(cluster: Cluster) -> Recorded | None:
    """Return the reference's figures; None when they are not kept."""
    if not recorded_path(cluster).exists():
        return None
    return msgspec.json.decode(recorded_path(cluster).read_bytes(), type=Recorded)


def make(cluster: Cluster) -> None:
    """Have the reference make the cluster; keep what cannot be filled in again."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        types, asked, made = folder / "types.json", folder / "asked.json", folder / "made.json"
        types.write_text(json.dumps(cluster.types()))
        generate([*cluster.arguments(), "-instance-types", f"file:{types}"], asked)
        snapshot(asked, made, drop=cluster.drop, seed=cluster.seed)
        found = json.loads(made.read_text())
    kept = {
        "name": cluster.name,
        "options": found["options"],
        "nodePools": [_without(pool, "status", "uid") for pool in found["nodePools"]],
        "nodes": [
            {"metadata": {"name": n["metadata"]["name"], "labels": n["metadata"]["labels"]}}
            for n in found["nodes"]
        ],
        "pods": [_without(pod, "status", "uid", "creationTimestamp") for pod in found["pods"]],
    }
    KEPT.mkdir(exist_ok=True)
    cluster.path.write_bytes(gzip.compress(json.dumps(kept, sort_keys=True).encode(), mtime=0))


def ask(cluster: Cluster, *, seconds: int) -> Recorded:
    """Have the reference consolidate a cluster that is kept."""
    found: dict[Budgets, Converged] = {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "cluster.json"
        for budgets in BUDGETS:
            write(cluster, path, budgets)
            first = converge(path, seconds=seconds)
            runs = [first]
            if first.converged and first.user_seconds * RUNS < seconds:
                runs += [converge(path, seconds=seconds) for _ in range(RUNS - 1)]
            found[budgets] = sorted(runs, key=lambda run: run.cost_after)[len(runs) // 2]
    return Recorded(
        reference=f"sigs.k8s.io/karpenter {version()}",
        made_by=cluster.made_by(),
        runs=RUNS,
        free=found["free"],
        budgets=found["budgets"],
    )


def record(cluster: Cluster, *, seconds: int) -> Recorded:
    """Ask the reference and keep what it says."""
    answer = ask(cluster, seconds=seconds)
    text = msgspec.json.format(msgspec.json.encode(answer), indent=2).decode()
    recorded_path(cluster).write_text(text + "\n")
    return answer


def main() -> None:
    """Make the clusters that are named, or all, and record what the reference makes of them."""
    for cluster in CLUSTERS:
        if not sys.argv[1:] or cluster.name in sys.argv[1:]:
            make(cluster)
            answer = record(cluster, seconds=_SECONDS)
            print(f"{cluster.name}: ${answer.free.cost_after:.3f}/h", flush=True)


def _without(obj: dict[str, Any], *keys: str) -> dict[str, Any]:
    metadata = {key: value for key, value in obj["metadata"].items() if key not in keys}
    return {**{key: value for key, value in obj.items() if key not in keys}, "metadata": metadata}


if __name__ == "__main__":
    main()
