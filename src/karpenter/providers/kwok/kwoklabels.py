"""The labels that every simulated machine has, whatever its catalogue."""

from karpenter.model.requirements import Requirement

_GROUP = "karpenter.kwok.sh"
_SIZE, _FAMILY = f"{_GROUP}/instance-size", f"{_GROUP}/instance-family"
_CPU, _MEMORY = f"{_GROUP}/instance-cpu", f"{_GROUP}/instance-memory"

RESERVATION = f"{_GROUP}/reservation-id"
"""Names the reservation of a reserved offering, and of the machines bought from it."""
KWOK_LABELS: frozenset[str] = frozenset({_SIZE, _FAMILY, _CPU, _MEMORY})
"""Labels of simulated types; pods may select them without a NodePool naming them."""


def shape(*, size: str, family: str, cores: int, memory_mib: int) -> tuple[Requirement, ...]:
    """Return the requirements that say how large a type is, and of which family."""
    return (
        Requirement.of(_SIZE, "In", [size]),
        Requirement.of(_FAMILY, "In", [family]),
        Requirement.of(_CPU, "In", [str(cores)]),
        Requirement.of(_MEMORY, "In", [str(memory_mib)]),
    )
