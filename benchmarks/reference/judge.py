"""Holds the reference's plans to our checker: it sometimes places pods where they can never be bound."""

from typing import Any

import msgspec

from karpenter.apis import labels
from karpenter.apis.karpenter import RequirementSpec
from karpenter.base.quantity import resources_of
from karpenter.model.pods import pod_key
from karpenter.model.problem import Plan, PlannedClaim, Problem
from karpenter.model.reasons import Refusal, Unschedulable
from karpenter.model.requirements import Requirements
from karpenter.scheduling.check import violations

_ITS_OWN = "karpenter.test.sh/testnodeclass"
"""A label that the program's cloud provider adds to every claim."""


def broken_rules(problem: Problem, answer: dict[str, Any]) -> list[str]:
    """Return what our checker has against the reference's plan, each node being the cheapest it may be.

    A node of one type has no variety of types: minValues are not judged.
    """
    return [wrong for wrong in violations(problem, plan_of(problem, answer)) if "minValues" not in wrong]


def plan_of(problem: Problem, answer: dict[str, Any]) -> Plan:
    """Return the reference's plan as one of ours."""
    claims = tuple(_claim(problem, node) for node in answer.get("newNodes") or [])
    existing = answer.get("existingNodes") or []
    asked = {pod_key(pod) for pod in problem.pods}
    refused = sorted(asked & (answer.get("unschedulable") or {}).keys())
    return Plan(
        claims=claims,
        placements={node["node"]: tuple(sorted(node["pods"])) for node in existing if node["pods"]},
        unschedulable=tuple(
            Unschedulable(pod=pod, refusals=(Refusal(place="", constraint="unsupported", message="refused"),))
            for pod in refused
        ),
        cost=sum(claim.price for claim in claims),
    )


def _claim(problem: Problem, node: dict[str, Any]) -> PlannedClaim:
    pool = next(o.pool for o in problem.pools if o.pool.name == node["nodePool"])
    launch = node["launch"]
    specs = [msgspec.convert(r, RequirementSpec) for r in node["requirements"] if r["key"] != _ITS_OWN]
    launched = {
        labels.INSTANCE_TYPE: launch["instanceType"],
        labels.ZONE: launch["zone"],
        labels.CAPACITY_TYPE: launch["capacityType"],
    }
    return PlannedClaim(
        pool=pool,
        requirements=Requirements.from_specs(specs).merge(Requirements.from_labels(launched)),
        instance_types=(launch["instanceType"],),
        requests=resources_of(node["requests"]),
        pods=tuple(sorted(node["pods"])),
        price=launch["price"],
    )
