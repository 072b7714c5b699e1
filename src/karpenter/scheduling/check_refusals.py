"""Was it necessary to refuse these pods?"""

from karpenter.apis import labels as known
from karpenter.apis.core import Pod
from karpenter.base.quantity import fits, total
from karpenter.model.instancetype import InstanceType
from karpenter.model.pods import pod_key, requests
from karpenter.model.problem import Plan, PoolOffer, Problem
from karpenter.model.requirements import Requirements
from karpenter.scheduling.check_claims import daemons_on
from karpenter.scheduling.check_company import means, repelled_by
from karpenter.scheduling.check_fit import hard_taints, port_clashes, unsupported, ways


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
        if repelled or any(unsupported(pod)) or any(r.constraint == "unsupported" for r in refused.refusals):
            continue
        for offer in problem.pools:
            if hard_taints(offer.pool.spec.template.spec.taints, pod):
                continue
            found += [
                f"{refused.pod} was refused, but {offer.pool.name} could buy {instance_type.name}"
                for instance_type in offer.instance_types
                if _could_take(problem, offer, instance_type, pod)
            ]
    return found


def _could_take(problem: Problem, offer: PoolOffer, instance_type: InstanceType, pod: Pod) -> bool:
    daemons = daemons_on(problem, offer, instance_type)
    if not fits(total([requests(pod), *(requests(d) for d in daemons)]), instance_type.allocatable):
        return False
    if any(port_clashes([pod, *daemons], [pod])):
        return False
    template = offer.pool.spec.template
    node = Requirements.from_specs(template.spec.requirements).merge(
        Requirements.from_labels({**template.metadata.labels, known.NODEPOOL: offer.pool.name})
    )
    well_known = problem.options.well_known_labels
    for wanted in ways(pod):
        if node.compatible(wanted, well_known):
            continue
        merged = node.merge(wanted)
        if not merged.intersects(instance_type.requirements) and any(
            o.available and not merged.compatible(o.requirements, well_known) for o in instance_type.offerings
        ):
            return True
    return False
