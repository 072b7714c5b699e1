"""Chance, handed in rather than drawn.

Everything random (names, uids, jitter) comes from a `random.Random` that the assembly passes down; seeded,
a run can be repeated exactly. This is the only module that may create one.
"""

import random
import uuid

Random = random.Random
"""The type handed around; annotate with it, never import `random` elsewhere."""

_NAME_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"  # Kubernetes' own: no vowels, nothing easily confused


def seeded(seed: int | str) -> Random:
    """Return a generator whose whole future follows from `seed`."""
    return random.Random(seed)


def unseeded() -> Random:
    """Return a generator seeded by the operating system, for production."""
    return random.Random()


def new_uid(rng: Random) -> str:
    """Return a version-4 UUID drawn from `rng`."""
    return str(uuid.UUID(int=rng.getrandbits(128), version=4))


def name_suffix(rng: Random, length: int = 5) -> str:
    """Return a suffix such as the API server appends to `generateName`."""
    return "".join(rng.choice(_NAME_ALPHABET) for _ in range(length))
