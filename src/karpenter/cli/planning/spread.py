"""`--scheduler-config` for a plan: the cluster's default spread, with selectors deduced from the files."""

from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from karpenter.apis.core import Pod, ReplicationController, Service, TopologySpreadConstraint
from karpenter.apis.meta import LabelSelector, ObjectMeta
from karpenter.apis.workloads import ReplicaSet, StatefulSet
from karpenter.cli.manifests import Unreadable
from karpenter.cli.planning.inventory import Inventory
from karpenter.embedded.controllers.rollout import HASH_LABEL
from karpenter.model.defaultspread import Owner, controller_of, deduced_selector, with_default_spread
from karpenter.operator.schedulerconfig import parse_scheduler_config


def default_constraints(text: str) -> tuple[TopologySpreadConstraint, ...]:
    """Return the constraints that `text` asks for: the name of a file, or what would be in it.

    Raises:
        Unreadable: when it is neither, with everything that is wrong.
    """
    if not text:
        return ()
    try:
        # What is written out has a colon and may be longer than any name of a file.
        content = text if "\n" in text or "{" in text else Path(text).read_text()
        return parse_scheduler_config(content)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise Unreadable(f"--scheduler-config {text if len(text) < 80 else '...'}: {why}") from error


def spread_by_default(
    inventory: Inventory, pods: Iterable[Pod], constraints: Sequence[TopologySpreadConstraint]
) -> tuple[Pod, ...]:
    """Return `pods` as kube-scheduler spreads them where they say nothing about it themselves."""
    if not constraints:
        return tuple(pods)
    services: dict[str, list[Service]] = {}
    for key in sorted(inventory.services):
        service = inventory.services[key]
        services.setdefault(service.metadata.namespace, []).append(service)
    known: dict[tuple[object, ...], LabelSelector | None] = {}
    found = []
    for pod in pods:
        owner = controller_of(pod)
        namespace = pod.metadata.namespace
        kind = (namespace, owner and (owner.kind, owner.name), *sorted(pod.metadata.labels.items()))
        if kind not in known:
            known[kind] = deduced_selector(pod, services.get(namespace, ()), _owner(inventory, pod))
        found.append(with_default_spread(pod, constraints, known[kind]))
    return tuple(found)


def _owner(inventory: Inventory, pod: Pod) -> Owner | None:
    """Return the controller of `pod` if its selector counts; a Deployment's ReplicaSet need not be given."""
    reference = controller_of(pod)
    if reference is None:
        return None
    workload = inventory.workloads.get((reference.kind, pod.namespace, reference.name))
    digest = pod.metadata.labels.get(HASH_LABEL, "")
    extra: dict[str, str] = {}
    if workload is None and reference.kind == "ReplicaSet" and digest:
        deployment = reference.name.removesuffix(f"-{digest}")
        workload = inventory.workloads.get(("Deployment", pod.namespace, deployment))
        extra = {HASH_LABEL: digest}
    if workload is None:
        return None
    raw = workload.spec.get("selector")
    metadata = ObjectMeta(name=reference.name, namespace=pod.namespace)
    if reference.kind == "ReplicationController":
        labels = raw or workload.template.metadata.labels
        empty = ReplicationController(metadata=metadata)
        return msgspec.structs.replace(empty, spec=msgspec.structs.replace(empty.spec, selector=labels))
    if reference.kind not in ("ReplicaSet", "StatefulSet") or raw is None:
        return None
    selector = msgspec.convert(raw, LabelSelector)
    selector = msgspec.structs.replace(selector, match_labels={**selector.match_labels, **extra})
    owner = (
        ReplicaSet(metadata=metadata) if reference.kind == "ReplicaSet" else StatefulSet(metadata=metadata)
    )
    return msgspec.structs.replace(owner, spec=msgspec.structs.replace(owner.spec, selector=selector))
