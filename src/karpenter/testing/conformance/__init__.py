"""What an API server does, as a table that any server can be asked: the real one, and the embedded one.

Every case holds on Kubernetes 1.36. Known to differ, and therefore in no case: the embedded server keeps
`managedFields` only from the first apply on, answers 400 where the real one fails with 500 (a resource
version on a create, a watch from one that is no number, a binding without a node), puts no protection
finalizers on volumes and claims, has no `deprecated.daemonset.template.generation`, and words the causes of
a 422 its own way (fields and reasons agree).
"""

from karpenter.testing.conformance import kinds, patches, pods, reads, writes
from karpenter.testing.conformance.steps import Case, Step, namespace_of, play

__all__ = ["Case", "Step", "conformance_cases", "namespace_of", "play"]


def conformance_cases() -> list[Case]:
    """Return all cases; their names differ."""
    return [case for table in (writes, pods, patches, reads, kinds) for case in table.cases()]
