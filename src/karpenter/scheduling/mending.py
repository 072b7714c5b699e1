"""A plan that the checker finds wrong is made again without the pods that could not be bound as it says.

Constraints on company can chase each other in ways that no pass over the classes foresees. Who is left out
waits for the next pass, when those that were placed are bound and count where they are.
"""

from collections.abc import Callable

import msgspec

from karpenter.model.pods import pod_key
from karpenter.model.problem import Plan, Problem
from karpenter.model.reasons import Refusal, Unschedulable
from karpenter.scheduling.check import quick_violations

_MOST_ROUNDS = 4
_CHASED = Refusal(
    place="",
    constraint="podAffinity",
    message="no way was found to place the pod together with the others that its constraints are about",
    remedy="it is planned for again once those are bound",
)


def mended(problem: Problem, plan: Plan, again: Callable[[Problem], Plan]) -> Plan:
    """Return `plan` if it is right, else one without the pods that are wrong in it, made by `again`.

    Where that does not help either, the plan says itself that it is not to be trusted.
    """
    out: set[str] = set()
    for _ in range(_MOST_ROUNDS):
        wrong = quick_violations(problem, plan)
        if not wrong:
            return plan
        keys = [pod_key(pod) for pod in problem.pods]
        named = {key for key in keys if key not in out and any(f"{key} " in text for text in wrong)}
        if not named:
            break
        out |= named
        left = tuple(pod for pod in problem.pods if pod_key(pod) not in out)
        smaller = again(msgspec.structs.replace(problem, pods=left))
        waiting = [Unschedulable(pod=key, refusals=(_CHASED,)) for key in out]
        plan = msgspec.structs.replace(
            smaller,
            unschedulable=tuple(sorted([*smaller.unschedulable, *waiting], key=lambda u: u.pod)),
        )
    return msgspec.structs.replace(plan, distrusted=tuple(quick_violations(problem, plan)[:5]))
