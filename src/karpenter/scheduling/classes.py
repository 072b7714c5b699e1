"""Pods grouped by everything that matters to scheduling, and what each group asks for.

A class has *variants*: what it asks for with all its preferences, then with ever fewer. A pod is placed by
the first variant for which there is a place.
"""

from collections.abc import Iterable, Sequence

import msgspec

from karpenter.apis import labels
from karpenter.apis.core import Pod, Toleration
from karpenter.base.quantity import Resources
from karpenter.model.pods import has_dra_requirements, host_ports, pod_key, requests
from karpenter.model.problem import Problem, SolveOptions
from karpenter.model.reasons import Refusal
from karpenter.model.requirements import Requirements
from karpenter.scheduling.drives import Drives
from karpenter.scheduling.terms import node_terms, term_requirements
from karpenter.scheduling.topology import Profile, Topology
from karpenter.scheduling.volumes import VolumeProblem, alternatives

TOLERATE_PREFERENCES = Toleration(operator="Exists", effect="PreferNoSchedule")
_MAX_VARIANTS = 256

Port = tuple[str, int, str]


class Variant(msgspec.Struct, frozen=True, cache_hash=True):
    """One set of demands that would do for a pod."""

    requirements: Requirements
    tolerations: tuple[Toleration, ...]
    tier: int = 0
    """How many preferences are given up: variants of one tier are as good as each other."""


class PodClass(msgspec.Struct, frozen=True, kw_only=True):
    """Pods that are all the same to the solver."""

    pods: tuple[str, ...]
    """Keys, oldest first."""
    requests: Resources
    """Of one pod, `pods: 1` included."""
    variants: tuple[Variant, ...]
    """In the order in which they are tried; none when `refusal` says why."""
    ports: frozenset[Port]
    priority: int
    profile: Profile = Profile()
    """What the class has to do with other pods."""
    refusal: Refusal | None = None
    """Set when no place at all can take these pods."""

    @property
    def count(self) -> int:
        return len(self.pods)


class _Kind(msgspec.Struct, frozen=True, cache_hash=True):
    """What two pods of one class have in common, besides what they have to do with other pods."""

    requests: tuple[tuple[str, int], ...]
    variants: tuple[Variant, ...]
    ports: frozenset[Port]
    priority: int
    refused: tuple[str, str, str] | None


def classify(problem: Problem, topology: Topology, drives: Drives) -> list[PodClass]:
    """Return the classes of `problem.pods`: largest first, by cpu, then memory, then age.

    Raises:
        ValueError: when a pod's quantity cannot be read.
    """
    prefer_no_schedule = any(
        taint.effect == "PreferNoSchedule"
        for taints in (
            *(o.pool.spec.template.spec.taints for o in problem.pools),
            *(n.taints for n in problem.nodes),
        )
        for taint in taints
    )
    kinds: dict[bytes, _Kind] = {}
    known: dict[bytes, tuple[Variant, ...]] = {}
    groups: dict[tuple[_Kind, Profile], list[Pod]] = {}
    for group in topology.alike:
        kind = kinds.get(group.shape)
        if kind is None:
            alike = topology.constraints(group)
            kind = kinds[group.shape] = _kind_of(
                group.pods[0], problem, drives, prefer_no_schedule, known, alike
            )
        profile = Profile() if kind.refused else topology.profile(group)
        groups.setdefault((kind, profile), []).extend(group.pods)
    classes = []
    for (kind, profile), members in groups.items():
        ages = [_age(pod) for pod in members]
        if len(ages) > 1:
            ages.sort()
        classes.append(
            (
                ages[0],
                PodClass(
                    pods=tuple([key for _, _, key in ages]),
                    requests=dict(kind.requests),
                    variants=_avoiding(kind.variants, profile.avoid),
                    ports=kind.ports,
                    priority=kind.priority,
                    profile=profile,
                    refusal=_refusal(kind.refused),
                ),
            )
        )
    classes.sort(key=lambda c: (-c[1].requests.get("cpu", 0), -c[1].requests.get("memory", 0), c[0]))
    return [c for _, c in classes]


def _age(pod: Pod) -> tuple[str, str, str]:
    """Return what orders pods from the oldest to the youngest; its key comes last."""
    return (pod.metadata.creation_timestamp or "", pod.metadata.uid, pod_key(pod))


def _refusal(refused: tuple[str, str, str] | None) -> Refusal | None:
    if refused is None:
        return None
    constraint, message, remedy = refused
    return Refusal(place="", constraint=constraint, message=message, remedy=remedy)  # type: ignore[arg-type]


def _kind_of(
    pod: Pod,
    problem: Problem,
    drives: Drives,
    prefer_no_schedule: bool,
    known: dict[bytes, tuple[Variant, ...]],
    constraints: bytes,
) -> _Kind:
    """Return the kind of `pod`; `known` are the variants of others without volumes, by their constraints."""
    variants: tuple[Variant, ...] = () if pod.spec.volumes else known.get(constraints, ())
    refused = unsupported(pod, problem.options)
    if refused is None and not variants:
        try:
            variants = tuple(_variants(pod, problem, prefer_no_schedule))
            if not pod.spec.volumes:
                known[constraints] = variants
        except VolumeProblem as error:
            refused = ("volumes", str(error), "")
        except ValueError as error:
            refused = ("requirements", str(error), "correct the pod's node selection")
        else:
            if not variants:
                refused = ("requirements", "none of the pod's node affinity terms can match a node", "")
    return _Kind(
        requests=tuple(sorted({**requests(pod), **drives.wanted_by(pod)}.items())),
        variants=() if refused else variants,
        ports=host_ports(pod),
        priority=pod.spec.priority or 0,
        refused=refused,
    )


def _avoiding(variants: tuple[Variant, ...], places: Requirements) -> tuple[Variant, ...]:
    """Return `variants`, each of them with `places` to keep out of."""
    if not places:
        return variants
    return tuple(Variant(v.requirements.merge(places), v.tolerations, v.tier) for v in variants)


def unsupported(pod: Pod, options: SolveOptions) -> tuple[str, str, str] | None:
    """Return the constraint, message and remedy of a demand that no plan can honour yet, if `pod` has one.

    Such a pod is refused rather than placed on a node that may be wrong.
    """
    if has_dra_requirements(pod):
        words = "are not yet supported by Karpenter"
        message = f"pod has Dynamic Resource Allocation requirements that {words} (spec.resourceClaims)"
        return ("dra", message, "request the device as an extended resource")
    affinity = pod.spec.affinity
    required = affinity.node_affinity.required if affinity and affinity.node_affinity else None
    for term in required.node_selector_terms if required else ():
        for expression in term.match_expressions:
            if expression.key == labels.NODEPOOL and expression.operator == "DoesNotExist":
                return ("nodepool", "configured to not run on a Karpenter provisioned node", "")
    return None


def _variants(pod: Pod, problem: Problem, prefer_no_schedule: bool) -> Iterable[Variant]:
    """Yield what would do for `pod`, best first.

    Preferences count as demands, the heaviest of those not yet given up; for each, the terms of the required
    node affinity are tried in order (so no combination is missed), and for each of these the volumes' places.
    Tolerating PreferNoSchedule taints comes last.
    """
    affinity = pod.spec.affinity
    preferred = list(affinity.node_affinity.preferred) if affinity and affinity.node_affinity else []
    preferred = sorted(preferred, key=lambda p: -p.weight) if problem.options.respect_preferences else []
    places = alternatives(pod, problem.snapshot) if pod.spec.volumes else [Requirements()]
    hopes = [Requirements.from_specs(p.preference.match_expressions) for p in preferred]
    demands = [term_requirements(pod, term) for term in node_terms(pod)]
    tolerations = tuple(pod.spec.tolerations)
    steps = [(tier, hope, demand) for tier, hope in enumerate([*hopes, Requirements()]) for demand in demands]
    seen: dict[tuple[Requirements, bool], Variant] = {}
    for tier, hope, demand in steps:
        for place in places:
            merged = demand.merge(hope).merge(place)
            seen.setdefault((merged, False), Variant(merged, tolerations, tier))
    for demand in demands if prefer_no_schedule else ():
        for place in places:
            merged = demand.merge(place)
            last = Variant(merged, (*tolerations, TOLERATE_PREFERENCES), len(hopes) + 1)
            seen.setdefault((merged, True), last)
    variants = list(seen.values())
    # A contradiction can never be met; the last variant stays, so that its refusal can be explained.
    possible = [v for v in variants if not v.requirements.impossible()]
    return (possible or variants[-1:])[:_MAX_VARIANTS]


def total_requests(classes: Sequence[PodClass]) -> Resources:
    """Return the sum over all pods of `classes`."""
    amounts: Resources = {}
    for c in classes:
        for name, amount in c.requests.items():
            amounts[name] = amounts.get(name, 0) + amount * c.count
    return amounts
