"""Noticing that room was taken, or has come free: then buffers are planned for again at once."""

from karpenter.apis.core import Pod
from karpenter.controllers.context import Context
from karpenter.kube.informer import Change
from karpenter.model.pods import is_terminal


def watch_pods(context: Context) -> None:
    """Ask for a pass whenever a pod is bound, finishes or goes, as long as there are buffers."""
    buffers = context.cluster.buffers

    def on_pod(change: Change[Pod]) -> None:
        if buffers and _moves_room(change):
            buffers.ask()

    context.cache.informer(Pod).subscribe(on_pod)


def _moves_room(change: Change[Pod]) -> bool:
    pod, old = change.object, change.old
    if not pod.spec.node_name:
        return False
    if change.type == "DELETED":
        return not is_terminal(pod)
    if old is None or not old.spec.node_name:
        return not is_terminal(pod)
    return is_terminal(pod) and not is_terminal(old)
