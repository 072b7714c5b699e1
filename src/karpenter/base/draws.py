"""Chance by the array, for numerical search: numpy's generator, always seeded.

Apart from `karpenter.base.randomness` because numpy is slow to import and most commands do without it.
"""

import numpy as np

Draws = np.random.Generator
"""The type handed around; annotate with it, never name `numpy.random` elsewhere."""


def seeded_draws(seed: int) -> Draws:
    """Return a generator whose whole future follows from `seed`."""
    return np.random.default_rng(seed)
