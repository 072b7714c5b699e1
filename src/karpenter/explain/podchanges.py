"""What removes one reason why a pod has no place: a patch of the pod's template or of the NodePool."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import msgspec

from karpenter.apis import labels as known
from karpenter.apis.annotations import PRICE_LIMIT, format_usd, price_limit
from karpenter.apis.core import Pod, PodAffinityTerm, Taint
from karpenter.apis.karpenter import NodePool
from karpenter.base.quantity import format_units, resources_of, to_units
from karpenter.explain.answer import Change, Operation
from karpenter.model.pods import requests
from karpenter.model.reasons import Refusal
from karpenter.model.taints import tolerates

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


class Template(NamedTuple):
    """Where what a pod asks for is written down."""

    api_version: str
    kind: str
    namespace: str
    name: str
    root: str
    """JSON pointer to what looks like a pod."""
    recreate: bool
    """It cannot be changed in place."""

    def change(self, text: str, *patch: Operation) -> Change:
        """Return a change; its paths begin at the pod."""
        operations = tuple(
            Operation(op=each.op, path=self.root + each.path, value=each.value) for each in patch
        )
        return Change(
            text=f"{text} in {self.kind.lower()}/{self.name} of namespace {self.namespace}",
            api_version=self.api_version,
            kind=self.kind,
            namespace=self.namespace,
            name=self.name,
            patch=operations,
            recreate=self.recreate,
        )


def template_of(pod: Pod) -> Template:
    """Return the object to change so that pods like `pod` ask for something else: its workload, or itself.

    The Deployment of a ReplicaSet's pod is told by the hash that the ReplicaSet's name ends with.
    """
    owner = next((o for o in pod.metadata.owner_references if o.controller), None)
    if owner is None:
        return Template("v1", "Pod", pod.namespace, pod.name, "", True)
    template = "/spec/template"
    suffix = "-" + pod.metadata.labels.get("pod-template-hash", "")
    if owner.kind == "ReplicaSet" and len(suffix) > 1 and owner.name.endswith(suffix):
        return Template(
            "apps/v1", "Deployment", pod.namespace, owner.name.removesuffix(suffix), template, False
        )
    fixed = owner.kind in ("Job", "ReplicaSet")  # one is immutable, the other replaces no pod
    return Template(owner.api_version, owner.kind, pod.namespace, owner.name, template, fixed)


def changes_for(pod: Pod, refusal: Refusal, pool: NodePool | None) -> tuple[Change, ...]:
    """Return what removes the reason `refusal` of `pool` (None: no pool's), all together; empty: unknown."""
    if pool is not None and refusal.constraint in _OF_POOL:
        return of_pool(pool, refusal)
    if refusal.constraint == "priority":
        option = f"--expendable-pods-priority-cutoff={pod.spec.priority or 0}"
        return (Change(text=f"start the operator with {option}", option=option),)
    of_pod = _OF_POD.get(refusal.constraint)
    found = of_pod(pod, refusal, pool) if of_pod is not None else ()
    if not found and pool is not None and refusal.constraint in ("requirements", "offering"):
        return _unrestricted(pool, str(refusal.detail.get("poolKey", "")))
    return found


def of_pool(pool: NodePool, refusal: Refusal) -> tuple[Change, ...]:
    """Return what removes a reason that the pool gives whatever a pod asks for; empty for other reasons."""
    change = _OF_POOL.get(refusal.constraint)
    return change(pool, refusal) if change is not None else ()


def pointer(*names: str | int) -> str:
    """Return the JSON pointer to a field by its names."""
    return "".join(f"/{str(name).replace('~', '~0').replace('/', '~1')}" for name in names)


def removed(*names: str | int) -> Operation:
    """Return the operation that removes a field."""
    return Operation(op="remove", path=pointer(*names))


def replaced(value: object, *names: str | int) -> Operation:
    """Return the operation that puts another value into a field that is there."""
    return Operation(op="replace", path=pointer(*names), value=value)


def added(value: object, *names: str | int) -> Operation:
    """Return the operation that sets a field."""
    return Operation(op="add", path=pointer(*names), value=value)


def of_nodepool(pool: NodePool, text: str, *patch: Operation) -> Change:
    """Return a change of a NodePool."""
    return Change(
        text=f"{text} in nodepool/{pool.name}",
        api_version="karpenter.sh/v1",
        kind="NodePool",
        name=pool.name,
        patch=patch,
    )


# --- what pods ask for ----------------------------------------------------------------------------------


def _smaller(pod: Pod, refusal: Refusal, pool: NodePool | None) -> tuple[Change, ...]:
    """Let the container that asks for most ask for so much less that the largest machine has it."""
    most: Mapping[str, str] = refusal.detail.get("atMost", {})
    wanted, patch, words = requests(pod), [], []
    for name in sorted(most):
        asked = [resources_of(c.resources.requests).get(name, 0) for c in pod.spec.containers]
        number = max(range(len(asked)), key=lambda i: (asked[i], -i))
        left = to_units(name, most[name]) - (wanted.get(name, 0) - asked[number])
        if left <= 0:
            return ()
        amount = format_units(name, left)
        words.append(f"{amount} {name}")
        patch.append(replaced(amount, "spec", "containers", number, "resources", "requests", name))
    if not patch:
        return ()
    return (template_of(pod).change(f"request {' and '.join(words)}", *patch),)


def _unselective(pod: Pod, refusal: Refusal, pool: NodePool | None) -> tuple[Change, ...]:
    """Leave out the one label of the selection that nothing has."""
    key = str(refusal.detail.get("key", ""))
    if not key:
        return ()
    selected = [name for name in sorted(pod.spec.node_selector) if known.ALIASES.get(name, name) == key]
    patch = [removed("spec", "nodeSelector", name) for name in selected]
    affinity = pod.spec.affinity.node_affinity if pod.spec.affinity else None
    terms = affinity.required.node_selector_terms if affinity is not None and affinity.required else []
    path = ("spec", "affinity", "nodeAffinity", _REQUIRED)
    for t, term in enumerate(terms):
        named = [i for i, e in enumerate(term.match_expressions) if known.ALIASES.get(e.key, e.key) == key]
        if named and len(named) == len(term.match_expressions) and not term.match_fields:
            patch = [p for p in patch if "/affinity/" not in p.path]
            patch.append(removed(*path))  # a term that asks for nothing: everything will do
            break
        for i in reversed(named):
            patch.append(removed(*path, "nodeSelectorTerms", t, "matchExpressions", i))
    if not patch:
        return ()
    return (template_of(pod).change(f"do not ask for {key}", *patch),)


def _tolerant(pod: Pod, refusal: Refusal, pool: NodePool | None) -> tuple[Change, ...]:
    if pool is None:
        return ()
    lacking = [
        t for t in pool.spec.template.spec.taints if _matters(t) and tolerates([t], pod.spec.tolerations)
    ]
    if not lacking:
        return ()
    values = [
        {
            "key": taint.key,
            **({"operator": "Equal", "value": taint.value} if taint.value else {"operator": "Exists"}),
            "effect": taint.effect,
        }
        for taint in lacking
    ]
    # The whole list, since a template may lack it: admission gives pods some that are not written there.
    own = [
        msgspec.to_builtins(t) for t in pod.spec.tolerations if not t.key.startswith("node.kubernetes.io/")
    ]
    names = ", ".join(str(taint) for taint in lacking)
    return (template_of(pod).change(f"tolerate {names}", added([*own, *values], "spec", "tolerations")),)


def _matters(taint: Taint) -> bool:
    return taint.effect != "PreferNoSchedule"


def _unspread(pod: Pod, refusal: Refusal, pool: NodePool | None) -> tuple[Change, ...]:
    """Make the spread over the label a wish."""
    key = refusal.detail.get("key")
    patch = [
        replaced("ScheduleAnyway", "spec", "topologySpreadConstraints", i, "whenUnsatisfiable")
        for i, each in enumerate(pod.spec.topology_spread_constraints)
        if each.topology_key == key and each.when_unsatisfiable == "DoNotSchedule"
    ]
    if not patch:
        return ()
    return (template_of(pod).change(f"let the spread over {key} be ScheduleAnyway", *patch),)


def _uncompanied(pod: Pod, refusal: Refusal, pool: NodePool | None) -> tuple[Change, ...]:
    """Leave out the required affinity, or anti-affinity, over the label."""
    key, near = refusal.detail.get("key"), refusal.constraint == "podAffinity"
    affinity = pod.spec.affinity
    name, terms = ("podAffinity", _terms(affinity.pod_affinity if affinity else None))
    if not near:
        name, terms = ("podAntiAffinity", _terms(affinity.pod_anti_affinity if affinity else None))
    patch = [
        removed("spec", "affinity", name, _REQUIRED, i)
        for i in reversed(range(len(terms)))
        if terms[i].topology_key == key
    ]
    if not patch:
        return ()
    what = "affinity" if near else "anti-affinity"
    return (template_of(pod).change(f"do not require {what} over {key}", *patch),)


def _terms(part: object) -> list[PodAffinityTerm]:
    return list(getattr(part, "required", None) or [])


# --- what pools allow -----------------------------------------------------------------------------------


def _raised(pool: NodePool, refusal: Refusal) -> tuple[Change, ...]:
    """Raise the limits by what the smallest machine that would do takes beyond them."""
    more: Mapping[str, str] = refusal.detail.get("raise", {})
    limits = resources_of(pool.spec.limits)
    patch, words = [], []
    for name in sorted(more):
        amount = format_units(name, limits.get(name, 0) + to_units(name, more[name]))
        words.append(f"limits.{name} {amount}")
        patch.append(replaced(amount, "spec", "limits", name))
    money: Mapping[str, int] = refusal.detail.get("raiseMicroUsd", {})
    if "cluster" in money:
        return ()  # an option of the operator, whose value the pool does not know
    own = price_limit(pool)
    if "nodepool" in money and own is not None:
        usd = format_usd(own + money["nodepool"]).removeprefix("$")
        words.append(f"annotation {PRICE_LIMIT} {usd}")
        patch.append(replaced(usd, "metadata", "annotations", PRICE_LIMIT))
    return (of_nodepool(pool, f"set {' and '.join(words)}", *patch),) if patch else ()


def _less_choosy(pool: NodePool, refusal: Refusal) -> tuple[Change, ...]:
    """Lower minValues to what there is."""
    there: Mapping[str, int] = refusal.detail.get("minValues", {})
    patch = [
        replaced(there[each.key], "spec", "template", "spec", "requirements", i, "minValues")
        for i, each in enumerate(pool.spec.template.spec.requirements)
        if there.get(each.key) and each.min_values is not None
    ]
    return (of_nodepool(pool, "lower minValues", *patch),) if patch else ()


def _unrestricted(pool: NodePool, key: str) -> tuple[Change, ...]:
    """Drop what the pool itself requires of the label."""
    patch = [
        removed("spec", "template", "spec", "requirements", i)
        for i, each in reversed(list(enumerate(pool.spec.template.spec.requirements)))
        if known.ALIASES.get(each.key, each.key) == key
    ]
    return (of_nodepool(pool, f"do not require {key}", *patch),) if patch else ()


_OF_POD: Mapping[str, Callable[[Pod, Refusal, NodePool | None], tuple[Change, ...]]] = {
    "resources": _smaller,
    "requirements": _unselective,
    "offering": _unselective,
    "taints": _tolerant,
    "topologySpread": _unspread,
    "podAffinity": _uncompanied,
    "podAntiAffinity": _uncompanied,
}
_OF_POOL: Mapping[str, Callable[[NodePool, Refusal], tuple[Change, ...]]] = {
    "limits": _raised,
    "minValues": _less_choosy,
}
