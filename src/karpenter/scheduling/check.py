"""Is this plan right? An independent, slow and obvious verifier.

It shares no code with the solver but the model: every constraint is derived again from the pods' own specs,
object by object, against every node that a claim could become. Tests run it on every plan.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations, product

import msgspec

from karpenter.apis import labels as known
from karpenter.apis.core import Pod, Taint
from karpenter.apis.meta import SelectorRequirement
from karpenter.base.quantity import Resources, fits, subtract, total
from karpenter.model.instancetype import InstanceType, Offering
from karpenter.model.pods import (
    has_dra_requirements,
    host_ports,
    pod_key,
    ports_conflict,
    requests,
)
from karpenter.model.problem import Plan, PlannedClaim, PoolOffer, Problem
from karpenter.model.requirements import SIMULATION_LABELS, Requirement, Requirements
from karpenter.model.snapshot import NodeView, Snapshot
from karpenter.model.taints import untolerated
from karpenter.scheduling.check_neighbours import means, neighbours, repelled_by

_MOST_TYPES = 600
_TOLERANCE = 1e-6
Labels = Mapping[str, str]


def violations(problem: Problem, plan: Plan) -> list[str]:
    """Return everything that is wrong with `plan`, one sentence each; empty when it is right."""
    pods = {pod_key(p): p for p in problem.pods}
    wrong = [*_each_pod_once(pods, plan)]
    if wrong:
        return wrong
    wrong += _nodes(problem, plan, pods)
    offers = {o.pool.name: o for o in problem.pools}
    for number, claim in enumerate(plan.claims):
        offer = offers.get(claim.pool.name)
        if offer is None:
            wrong.append(f"claim {number}: NodePool {claim.pool.name} is not on offer")
        else:
            wrong += [f"claim {number}: {text}" for text in _claim(problem, offer, claim, pods)]
    wrong += _limits(problem, plan)
    wrong += neighbours(problem, plan, pods)
    cost = sum(c.price for c in plan.claims)
    if abs(cost - plan.cost) > _TOLERANCE:
        wrong.append(f"cost is {plan.cost}, the claims cost {cost}")
    if plan.lower_bound is not None and plan.lower_bound > plan.cost + _TOLERANCE:
        wrong.append(f"lower bound {plan.lower_bound} is above the cost {plan.cost}")
    return wrong


def needless_refusals(problem: Problem, plan: Plan) -> list[str]:
    """Return the refused pods that a new node of their own could take, whatever limits and minValues say.

    Only for pods that ask for nothing the solver refuses on principle, and that no running pod keeps away.
    """
    pods = {pod_key(p): p for p in problem.pods}
    found = []
    for refused in plan.unschedulable:
        pod = pods[refused.pod]
        repelled = any(
            means(problem.snapshot, term, other, pod)
            for node in problem.snapshot.nodes
            for other in node.pods
            for term in repelled_by(other)
            if term.topology_key != known.KUBERNETES_HOSTNAME
        )
        if repelled or any(_unsupported(pod)):
            continue
        for offer in problem.pools:
            if _hard_taints(offer.pool.spec.template.spec.taints, pod):
                continue
            found += [
                f"{refused.pod} was refused, but {offer.pool.name} could buy {instance_type.name}"
                for instance_type in offer.instance_types
                if _could_take(problem, offer, instance_type, pod)
            ]
    return found


def _each_pod_once(pods: Mapping[str, Pod], plan: Plan) -> Iterator[str]:
    seen: dict[str, int] = dict.fromkeys(pods, 0)
    everywhere = [
        *(key for claim in plan.claims for key in claim.pods),
        *(key for keys in plan.placements.values() for key in keys),
        *(u.pod for u in plan.unschedulable),
    ]
    for key in everywhere:
        if key not in seen:
            yield f"pod {key} was not asked for"
        else:
            seen[key] += 1
    for key, times in seen.items():
        if times != 1:
            yield f"pod {key} is dealt with {times} times"
    for refused in plan.unschedulable:
        if not refused.refusals:
            yield f"pod {refused.pod} is refused without a reason"


# --- existing nodes -------------------------------------------------------------------------------------


def _nodes(problem: Problem, plan: Plan, pods: Mapping[str, Pod]) -> Iterator[str]:
    views = {n.name: n for n in problem.nodes}
    for name, keys in plan.placements.items():
        node = views.get(name)
        if node is None:
            yield f"node {name} is not there"
            continue
        placed = [pods[key] for key in keys]
        here = {known.KUBERNETES_HOSTNAME: name, **node.labels}
        for pod in placed:
            yield from (f"node {name}: {text}" for text in _unfit(pod, here, node.taints, problem.snapshot))
        asked = total(requests(p) for p in placed)
        left = subtract(subtract(node.allocatable, node.requested), _daemons_to_come(problem, node, here))
        if not all(amount <= left.get(resource, 0) for resource, amount in asked.items() if amount):
            yield f"node {name}: pods ask for {asked}, free is {left}"
        yield from (f"node {name}: {text}" for text in _port_clashes([*placed, *node.pods], placed))


def _daemons_to_come(problem: Problem, node: NodeView, here: Labels) -> Resources:
    expected = total(
        requests(d)
        for d in problem.snapshot.daemons
        if not has_dra_requirements(d) and not _refuses(d, node.taints) and _selected(d, here)
    )
    missing = subtract(expected, node.daemon_requested)
    return {resource: max(0, amount) for resource, amount in missing.items()}


# --- planned nodes --------------------------------------------------------------------------------------


def _claim(problem: Problem, offer: PoolOffer, claim: PlannedClaim, pods: Mapping[str, Pod]) -> Iterator[str]:
    placed = [pods[key] for key in claim.pods]
    if not placed:
        yield "is for no pod"
    catalogue = {t.name: t for t in offer.instance_types}
    types = [catalogue[name] for name in claim.instance_types if name in catalogue]
    if len(types) != len(claim.instance_types) or not types:
        yield f"lists types that {offer.pool.name} does not have, or none: {claim.instance_types[:5]}"
        return
    if len(types) > _MOST_TYPES:
        yield f"lists {len(types)} instance types, more than {_MOST_TYPES}"
    prices = [(_cheapest(problem, claim.requirements, t), t.name) for t in types]
    if prices != sorted(prices):
        yield "instance types are not ordered by price and name"
    if abs(prices[0][0] - claim.price) > _TOLERANCE:
        yield f"price is {claim.price}, the cheapest offering costs {prices[0][0]}"
    pool_taints = offer.pool.spec.template.spec.taints
    for pod in placed:
        yield from (f"{pod_key(pod)}: {text}" for text in _unsupported(pod))
        yield from (f"{pod_key(pod)} does not tolerate {t}" for t in _hard_taints(pool_taints, pod))
    yield from _pool_requirements(offer, claim, types)
    asked = total(requests(p) for p in placed)
    for resource, amount in asked.items():
        if claim.requests.get(resource, 0) < amount:
            yield f"requests {claim.requests.get(resource, 0)} {resource}, its pods {amount}"
    for instance_type in types:
        daemons = _daemons_on(problem, offer, instance_type)
        needed = total([asked, *(requests(d) for d in daemons)])
        if not fits(needed, instance_type.allocatable):
            yield f"{instance_type.name} has {instance_type.allocatable}, pods and daemons need {needed}"
        yield from _port_clashes([*placed, *daemons], placed)
        if _cheapest(problem, claim.requirements, instance_type) == float("inf"):
            yield f"{instance_type.name} has no available offering under {claim.requirements}"
    yield from _labels_on_every_node(problem, offer, claim, types, placed)


def _pool_requirements(offer: PoolOffer, claim: PlannedClaim, types: Sequence[InstanceType]) -> Iterator[str]:
    """The claim must be no wider than its pool, and offer the variety that minValues ask for."""
    template = offer.pool.spec.template
    asked = Requirements.from_specs(template.spec.requirements).merge(
        Requirements.from_labels({**template.metadata.labels, known.NODEPOOL: offer.pool.name})
    )
    for key, requirement in asked.items():
        mine = claim.requirements.get(key)
        narrowed = mine.intersection(requirement)
        if msgspec.structs.replace(narrowed, min_values=None) != msgspec.structs.replace(
            mine, min_values=None
        ):
            yield f"{mine} is wider than the pool's {requirement}"
        if requirement.min_values is not None and not claim.min_values_relaxed:
            values = {v for t in types for v in t.requirements.get(key).permitted()}
            if len(values) < requirement.min_values:
                yield f"offers {len(values)} values of {key}, minValues is {requirement.min_values}"


def _labels_on_every_node(
    problem: Problem,
    offer: PoolOffer,
    claim: PlannedClaim,
    types: Sequence[InstanceType],
    placed: Sequence[Pod],
) -> Iterator[str]:
    """Every node the claim may become must have labels that every pod accepts."""
    distinct = {
        msgspec.msgpack.encode((p.spec.node_selector, p.spec.affinity)): p
        for p in placed
        if not p.spec.volumes
    }
    checked = [*distinct.values(), *(p for p in placed if p.spec.volumes)]
    keys = {known.ALIASES.get(key, key) for p in checked for key in _mentioned(p, problem.snapshot)}
    if not keys:
        return
    seen: set[tuple[tuple[str, str], ...]] = set()
    for instance_type in types:
        for offering in instance_type.offerings:
            if not offering.available or claim.requirements.compatible(
                offering.requirements, problem.options.well_known_labels
            ):
                continue
            for here in _possible_labels(problem, offer, claim, instance_type, offering, keys):
                mark = tuple(sorted(here.items()))
                if mark in seen:
                    continue
                seen.add(mark)
                for pod in checked:
                    if not _selected(pod, here) or not _volumes_reach(pod, here, problem.snapshot):
                        yield f"{pod_key(pod)} does not accept a node with {here} ({instance_type.name})"


def _possible_labels(
    problem: Problem,
    offer: PoolOffer,
    claim: PlannedClaim,
    instance_type: InstanceType,
    offering: Offering,
    keys: Iterable[str],
) -> Iterator[dict[str, str]]:
    """Yield every set of labels, as far as `keys` go, that a node of this offering may have."""
    given = claim.requirements.labels(problem.options.well_known_labels)
    given |= {known.NODEPOOL: offer.pool.name, **dict.fromkeys(SIMULATION_LABELS, "true")}
    choices: list[list[tuple[str, str] | None]] = []
    for key in sorted(keys):
        if key in given:
            choices.append([(key, given[key])])
            continue
        allowed = claim.requirements.get(key).intersection(instance_type.requirements.get(key))
        allowed = allowed.intersection(offering.requirements.get(key))
        choices.append([(key, value) for value in allowed.permitted()] or [_open_choice(key, allowed)])
    for combination in product(*choices):
        yield dict(pair for pair in combination if pair is not None)


def _open_choice(key: str, allowed: Requirement) -> tuple[str, str] | None:
    return None if allowed.absent else (key, allowed.any())


def _daemons_on(problem: Problem, offer: PoolOffer, instance_type: InstanceType) -> list[Pod]:
    """Return the daemons that a new node of the pool and type has to expect."""
    template = offer.pool.spec.template
    ref = template.spec.node_class_ref
    fixed = {
        **template.metadata.labels,
        known.NODEPOOL: offer.pool.name,
        known.nodeclass_label(ref.group, ref.kind): ref.name,
        **dict.fromkeys(SIMULATION_LABELS, "true"),
    }
    node = Requirements.from_specs(template.spec.requirements).merge(Requirements.from_labels(fixed))
    found = []
    for daemon in problem.snapshot.daemons:
        if has_dra_requirements(daemon) or _refuses(daemon, template.spec.taints):
            continue
        for wanted in _ways(daemon):
            if node.compatible(wanted, problem.options.well_known_labels):
                continue
            if not instance_type.requirements.intersects(wanted):
                found.append(daemon)
                break
    return found


def _could_take(problem: Problem, offer: PoolOffer, instance_type: InstanceType, pod: Pod) -> bool:
    daemons = _daemons_on(problem, offer, instance_type)
    if not fits(total([requests(pod), *(requests(d) for d in daemons)]), instance_type.allocatable):
        return False
    if any(_port_clashes([pod, *daemons], [pod])):
        return False
    template = offer.pool.spec.template
    node = Requirements.from_specs(template.spec.requirements).merge(
        Requirements.from_labels({**template.metadata.labels, known.NODEPOOL: offer.pool.name})
    )
    well_known = problem.options.well_known_labels
    for wanted in _ways(pod):
        if node.compatible(wanted, well_known):
            continue
        merged = node.merge(wanted)
        if not merged.intersects(instance_type.requirements) and any(
            o.available and not merged.compatible(o.requirements, well_known) for o in instance_type.offerings
        ):
            return True
    return False


def _cheapest(problem: Problem, requirements: Requirements, instance_type: InstanceType) -> float:
    return min(
        (
            o.price
            for o in instance_type.offerings
            if o.available and not requirements.compatible(o.requirements, problem.options.well_known_labels)
        ),
        default=float("inf"),
    )


# --- limits ---------------------------------------------------------------------------------------------


def _limits(problem: Problem, plan: Plan) -> Iterator[str]:
    """Even if every claim becomes the largest machine it lists, no limit is passed."""
    for offer in problem.pools:
        claims = [c for c in plan.claims if c.pool.name == offer.pool.name]
        catalogue = {t.name: t for t in offer.instance_types}
        for resource, left in offer.remaining.items():
            if resource == "nodes":
                used = len(claims)
            else:
                used = sum(
                    max(
                        (catalogue[n].capacity.get(resource, 0) for n in c.instance_types if n in catalogue),
                        default=0,
                    )
                    for c in claims
                )
            if used > max(left, 0):
                yield f"NodePool {offer.pool.name}: {used} {resource} planned, {left} left of the limit"


# --- one pod, one node ----------------------------------------------------------------------------------


def _unfit(pod: Pod, here: Labels, node_taints: Sequence[Taint], snapshot: Snapshot) -> Iterator[str]:
    for text in _unsupported(pod):
        yield f"{pod_key(pod)}: {text}"
    for taint in _hard_taints(node_taints, pod):
        yield f"{pod_key(pod)} does not tolerate {taint}"
    if not _selected(pod, here) or not _volumes_reach(pod, here, snapshot):
        yield f"{pod_key(pod)} does not accept its labels"


def _unsupported(pod: Pod) -> Iterator[str]:
    """Demands that no plan honours yet: whoever has one must have been refused."""
    if has_dra_requirements(pod):
        yield "resource claims"
    if any(
        c.when_unsatisfiable == "DoNotSchedule" and c.topology_key != known.KUBERNETES_HOSTNAME
        for c in pod.spec.topology_spread_constraints
    ):
        yield "topology spread"
    affinity = pod.spec.affinity
    if affinity and affinity.pod_affinity and affinity.pod_affinity.required:
        yield "pod affinity"
    if any(t.topology_key != known.KUBERNETES_HOSTNAME for t in repelled_by(pod)):
        yield "pod anti-affinity"


def _hard_taints(node_taints: Iterable[Taint], pod: Pod) -> list[Taint]:
    hard = [t for t in node_taints if t.effect != "PreferNoSchedule"]
    return untolerated(hard, pod.spec.tolerations)


def _refuses(daemon: Pod, node_taints: Iterable[Taint]) -> bool:
    return bool(_hard_taints(node_taints, daemon))


def _terms(pod: Pod) -> list[list[SelectorRequirement]] | None:
    affinity = pod.spec.affinity
    required = affinity.node_affinity.required if affinity and affinity.node_affinity else None
    return None if required is None else [t.match_expressions for t in required.node_selector_terms]


def _ways(pod: Pod) -> list[Requirements]:
    selector = Requirements.from_labels(pod.spec.node_selector)
    terms = _terms(pod)
    if terms is None:
        return [selector]
    return [selector.merge(Requirements.from_specs(term)) for term in terms if term]


def _mentioned(pod: Pod, snapshot: Snapshot) -> Iterator[str]:
    yield from pod.spec.node_selector
    for term in _terms(pod) or ():
        yield from (e.key for e in term)
    for terms in _volume_terms(pod, snapshot):
        yield from (e.key for term in terms for e in term)


def _selected(pod: Pod, here: Labels) -> bool:
    """Node selector and required node affinity, as kube-scheduler reads them."""
    if any(_label(here, key) != value for key, value in pod.spec.node_selector.items()):
        return False
    terms = _terms(pod)
    return terms is None or any(term and all(_holds(e, here) for e in term) for term in terms)


def _label(here: Labels, key: str) -> str | None:
    return here.get(known.ALIASES.get(key, key), here.get(key))


def _holds(expression: SelectorRequirement, here: Labels) -> bool:
    value = _label(here, expression.key)
    values = expression.values or []
    match expression.operator:
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
    if value is None or not value.lstrip("-").isdigit():
        return False
    number, bound = int(value), int(values[0])
    match expression.operator:
        case "Gt":
            return number > bound
        case "Gte":
            return number >= bound
        case "Lt":
            return number < bound
        case "Lte":
            return number <= bound
    raise ValueError(f"operator {expression.operator!r} is unknown")


def _volume_terms(pod: Pod, snapshot: Snapshot) -> Iterator[list[list[SelectorRequirement]]]:
    """Yield, for each volume of `pod` that is tied to places, the alternatives of which one must hold."""
    for volume in pod.spec.volumes:
        if volume.persistent_volume_claim is not None:
            name = volume.persistent_volume_claim.claim_name
        elif volume.ephemeral is not None:
            name = f"{pod.name}-{volume.name}"
        else:
            continue
        claim = snapshot.volume_claims.get(f"{pod.namespace}/{name}")
        if claim is None:
            continue
        bound = snapshot.volumes.get(claim.spec.volume_name)
        if bound is not None:
            affinity = bound.spec.node_affinity
            local = bound.spec.local is not None or bound.spec.host_path is not None
            if affinity is not None and affinity.required is not None:
                yield [
                    [e for e in t.match_expressions if not (local and e.key == known.KUBERNETES_HOSTNAME)]
                    for t in affinity.required.node_selector_terms
                ]
            continue
        storage_class = snapshot.storage_classes.get(claim.spec.storage_class_name or "")
        if bound is None and storage_class is not None and storage_class.allowed_topologies:
            yield [
                [
                    SelectorRequirement(key=e.key, operator="In", values=e.values)
                    for e in t.match_label_expressions
                ]
                for t in storage_class.allowed_topologies
            ]


def _volumes_reach(pod: Pod, here: Labels, snapshot: Snapshot) -> bool:
    return all(
        any(all(_holds(e, here) for e in term) for term in terms) for terms in _volume_terms(pod, snapshot)
    )


def _port_clashes(everyone: Sequence[Pod], placed: Sequence[Pod]) -> Iterator[str]:
    ours = {pod_key(p) for p in placed}
    with_ports = [(pod_key(p), host_ports(p)) for p in everyone]
    for (left, left_ports), (right, right_ports) in combinations([x for x in with_ports if x[1]], 2):
        if (left in ours or right in ours) and any(
            ports_conflict(a, b) for a in left_ports for b in right_ports
        ):
            yield f"{left} and {right} want the same host port"
