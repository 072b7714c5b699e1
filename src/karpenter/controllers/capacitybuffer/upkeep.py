"""Noticing that room was taken, has come free or is ready: then buffers are planned for again at once."""

from karpenter.apis import conditions
from karpenter.apis.core import Pod
from karpenter.apis.karpenter import NodeClaim
from karpenter.controllers.context import Context
from karpenter.kube.informer import Change
from karpenter.model.pods import is_terminal


def watch_room(context: Context) -> None:
    """With buffers, ask for a pass whenever a pod is bound, finishes or goes, or a machine is ready."""
    buffers = context.cluster.buffers

    def on_pod(change: Change[Pod]) -> None:
        if buffers and _moves_room(change):
            buffers.ask()

    def on_claim(change: Change[NodeClaim]) -> None:
        if buffers and _is_ready(change.object) and change.old is not None and not _is_ready(change.old):
            buffers.ask()

    context.cache.informer(Pod).subscribe(on_pod)
    context.cache.informer(NodeClaim).subscribe(on_claim)


def _is_ready(claim: NodeClaim) -> bool:
    return conditions.is_true(claim.status.conditions, "Initialized")


def _moves_room(change: Change[Pod]) -> bool:
    pod, old = change.object, change.old
    if not pod.spec.node_name:
        return False
    if change.type == "DELETED":
        return not is_terminal(pod)
    if old is None or not old.spec.node_name:
        return not is_terminal(pod)
    return is_terminal(pod) and not is_terminal(old)
