"""Pods that mind who is beside them: short ways to write the constraints of tests."""

from collections.abc import Mapping

import msgspec

from karpenter.apis import labels as known
from karpenter.apis.core import Affinity, Pod, PodAffinity, PodAffinityTerm, TopologySpreadConstraint
from karpenter.apis.meta import LabelSelector
from karpenter.testing.builders import a_pod

Spec = dict[str, object]
"""Fields of a PodSpec, for `a_pod(spec=...)`."""


def of_app(name: str) -> LabelSelector:
    """Return the selector of the pods labelled `app: name`."""
    return LabelSelector(match_labels={"app": name})


def a_spread(
    app: str, key: str = known.ZONE, max_skew: int = 1, **fields: object
) -> TopologySpreadConstraint:
    """Return a hard spread of an app's pods; `fields` replaces others of the constraint."""
    constraint = TopologySpreadConstraint(
        max_skew=max_skew,
        topology_key=key,
        when_unsatisfiable="DoNotSchedule",
        label_selector=of_app(app),
    )
    return msgspec.structs.replace(constraint, **fields)


def spread(app: str = "web", key: str = known.ZONE, max_skew: int = 1, **fields: object) -> Spec:
    """Return the spec of pods that spread an app's pods."""
    return {"topology_spread_constraints": [a_spread(app, key, max_skew, **fields)]}


def a_company_term(app: str, key: str = known.ZONE, **fields: object) -> PodAffinityTerm:
    """Return an affinity term about an app's pods; `fields` replaces others of the term."""
    return msgspec.structs.replace(PodAffinityTerm(topology_key=key, label_selector=of_app(app)), **fields)


def beside(app: str, key: str = known.ZONE, **fields: object) -> Spec:
    """Return the spec of pods that must have one of an app's pods in their domain."""
    return {"affinity": Affinity(pod_affinity=PodAffinity(required=[a_company_term(app, key, **fields)]))}


def apart(app: str, key: str = known.ZONE, **fields: object) -> Spec:
    """Return the spec of pods that must have none of an app's pods in their domain."""
    return {
        "affinity": Affinity(pod_anti_affinity=PodAffinity(required=[a_company_term(app, key, **fields)]))
    }


def app_pods(*names: str, spec: Mapping[str, object] | None = None, **fields: object) -> list[Pod]:
    """Return small pods; the letters of a name say of which app one is (web1 is of web)."""
    defaults: dict[str, object] = {"cpu": "100m", "memory": "64Mi", "spec": spec}
    return [
        a_pod(name, **{**defaults, "labels": {"app": name.rstrip("0123456789")}, **fields})  # type: ignore[arg-type]
        for name in names
    ]
