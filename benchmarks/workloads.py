"""Pods and machines for the benchmarks of whole plans: from upstream's recipes, Deployments, a GPU trace."""

import csv
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from karpenter.apis import labels
from karpenter.apis.core import Pod
from karpenter.base.randomness import Random, seeded
from karpenter.model.instancetype import InstanceType
from karpenter.model.problem import Problem
from karpenter.providers.kwok.catalogue import EC2_LABELS, ec2_instance_types
from karpenter.testing.builders import a_daemon, a_nodepool, a_pod, a_problem

ZONES = ("us-east-1a", "us-east-1b", "us-east-1c")
CPUS = (100, 250, 500, 1000, 1500)
MEMORIES = (100, 256, 512, 1024, 2048, 4096)
LETTERS = "abcdefg"
MODELS = {"T4": "t4", "V100M16": "v100", "V100M32": "v100", "A10": "a10g", "P100": "t4"}
"""GPU models of the trace that EC2 has, or has something like."""
DOMAIN = "karpenter.k8s.aws/instance-"
assert {DOMAIN + "category", DOMAIN + "generation", DOMAIN + "gpu-name"} <= EC2_LABELS


def machines(
    categories: str = "cmr", *, spot: bool = False, arm: bool = False, cores: int = 10_000, zones: int = 1
) -> list[InstanceType]:
    """Return EC2's types of us-east-1: generation 3 and later, no metal; prices of spot are modelled."""
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
        sold = tuple(
            o
            for o in kind.offerings
            if o.zone in ZONES[:zones] and (spot or o.capacity_type == labels.CAPACITY_ON_DEMAND)
        )
        if sold:
            found.append(msgspec.structs.replace(kind, offerings=sold))
    return found


def problem(pods: Iterable[Pod], types: Sequence[InstanceType]) -> Problem:
    """Return `pods` to place on new nodes of a pool that sells `types`; one small daemon runs on each."""
    return a_problem(
        pods,
        pools=[a_nodepool()],
        instance_types=types,
        daemons=[a_daemon(cpu="200m", memory="256Mi")],
        well_known_labels=labels.WELL_KNOWN_LABELS | EC2_LABELS,
    )


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


def generic(pods: int, rng: Random | None = None, name: str = "generic") -> list[Pod]:
    """Return pods of upstream's 30 shapes, drawn one by one."""
    rng = rng or seeded(42)
    return [
        a_pod(f"{name}-{i:05d}", labels={"my-label": rng.choice(LETTERS)}, **_shape(rng)) for i in range(pods)
    ]


def _shape(rng: Random) -> dict[str, Any]:
    return {"cpu": f"{rng.choice(CPUS)}m", "memory": f"{rng.choice(MEMORIES)}Mi"}


def diverse(pods: int) -> list[Pod]:
    """Return upstream's diverse pods.

    A fifth each: without constraints, spread over zones, over host names, beside pods of their label in a
    zone, never beside another on a node.
    """
    rng, part = seeded(42), pods // 5
    found = generic(pods - 4 * part, rng)
    for kind in ("spread-zone", "spread-host", "affinity", "anti"):
        for i in range(part):
            own, other = rng.choice(LETTERS), rng.choice(LETTERS)
            tags, spec = _company(kind, own, other)
            found.append(a_pod(f"{kind}-{i:05d}", labels=tags, spec=spec, **_shape(rng)))
    return found


def _company(kind: str, own: str, other: str) -> tuple[dict[str, str], dict[str, object]]:
    if kind.startswith("spread"):
        key = labels.ZONE if kind == "spread-zone" else labels.KUBERNETES_HOSTNAME
        return {"my-label": own}, decoded(spreads([key], {"my-label": other}))
    tags = {"my-affinity": own} if kind == "affinity" else {"app": "nginx"}
    side = "podAffinity" if kind == "affinity" else "podAntiAffinity"
    key = labels.ZONE if kind == "affinity" else labels.KUBERNETES_HOSTNAME
    term = {"labelSelector": {"matchLabels": tags}, "topologyKey": key}
    return tags, decoded({"affinity": {side: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}})


def spreads(keys: Sequence[str], selected: Mapping[str, str]) -> dict[str, object]:
    """Return a pod spec's hard spread constraints, maxSkew 1, over `keys`."""
    return {
        "topologySpreadConstraints": [
            {
                "maxSkew": 1,
                "topologyKey": key,
                "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": {"matchLabels": dict(selected)},
            }
            for key in keys
        ]
    }


def decoded(spec: Mapping[str, object]) -> dict[str, object]:
    """Return fields of a pod spec as the builders want them."""
    wire = {"metadata": {"name": "any"}, "spec": {"containers": [], **spec}}
    pod = msgspec.convert(wire, Pod)
    names = {"affinity": "affinity", "topologySpreadConstraints": "topology_spread_constraints"}
    return {names[key]: getattr(pod.spec, names[key]) for key in spec}


def deployments(
    number: int,
    pods: int,
    *,
    zipf: bool = False,
    picky: bool = False,
    company: Sequence[str] = (),
) -> list[Pod]:
    """Return the pods of Deployments of random shape, of equal size or by Zipf's law.

    `picky`: six of ten select a zone, an architecture or a capacity type, or several. `company`: what each
    wants of its own pods in turn: spread over `zone`s, `host`s, `both`, or `anti`: never two on a node.
    """
    rng = seeded(2)
    found: list[Pod] = []
    for rank in range(number):
        cpu = min(round(math.exp(rng.gauss(math.log(500), 0.9)) / 50 + 1) * 50, 16_000)
        memory = min(round(cpu * math.exp(rng.gauss(math.log(3.5), 0.8)) / 64 + 1) * 64, 65_536)
        count = max(1, int(pods / (rank + 1) / math.log(number))) if zipf else pods // number
        selector = _selector(rng) if picky and rng.random() < 0.6 else {}
        app = {"app": f"d{rank:03d}"}
        spec = _own_company(company[rank % len(company)], app) if company else None
        first = a_pod(
            app["app"], cpu=f"{cpu}m", memory=f"{memory}Mi", labels=app, node_selector=selector, spec=spec
        )
        found += copies(first, count)
    return found


def _selector(rng: Random) -> dict[str, str]:
    """Return one of 24 node selectors; the empty one is among them."""
    found = {}
    if rng.random() < 0.4:
        found[labels.ZONE] = rng.choice(ZONES)
    if rng.random() < 0.4:
        found[labels.ARCH] = "arm64" if rng.random() < 0.3 else "amd64"
    if rng.random() < 0.4:
        found[labels.CAPACITY_TYPE] = labels.CAPACITY_ON_DEMAND
    return found


def _own_company(kind: str, app: Mapping[str, str]) -> dict[str, object]:
    if kind == "anti":
        term = {"labelSelector": {"matchLabels": dict(app)}, "topologyKey": labels.KUBERNETES_HOSTNAME}
        wanted = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
        return decoded({"affinity": wanted})
    keys = {"zone": [labels.ZONE], "host": [labels.KUBERNETES_HOSTNAME]}
    return decoded(spreads(keys.get(kind, [labels.ZONE, labels.KUBERNETES_HOSTNAME]), app))


def openb(*, models: bool = False) -> list[Pod]:
    """Return the pods of Alibaba's GPU trace; with `models`, they select GPU models where EC2 has them."""
    found: list[Pod] = []
    with (Path(__file__).parent / "data" / "openb-pods.csv").open() as file:
        for number, row in enumerate(csv.DictReader(file)):
            names = sorted({MODELS[m] for m in row["gpu_models"].split() if m in MODELS})
            first = a_pod(
                f"openb-{number:03d}",
                cpu=f"{row['cpu_milli']}m",
                memory=f"{row['memory_mib']}Mi",
                requests={"nvidia.com/gpu": row["gpus"]} if row["gpus"] != "0" else {},
                node_selector={DOMAIN + "gpu-name": names[0]} if models and names else {},
            )
            found += copies(first, int(row["pods"]))
    return found


def distinct(pods: int) -> list[Pod]:
    """Return pods of which hardly two are alike."""
    rng = seeded(3)
    return [
        a_pod(f"p{i:05d}", cpu=f"{rng.randint(50, 4000)}m", memory=f"{rng.randint(64, 8192)}Mi")
        for i in range(pods)
    ]
