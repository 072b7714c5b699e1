"""Volumes that have to be attached: nodes take only so many."""

import pytest

from karpenter.apis import labels
from karpenter.model.problem import Plan, Problem
from karpenter.scheduling import solve
from karpenter.scheduling.check import violations
