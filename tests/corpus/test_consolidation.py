"""Consolidation of clusters that lost half of their pods, held to what the original makes of them."""

from pathlib import Path

import pytest
from benchmarks.reference.clusters import BUDGETS, CLUSTERS, Budgets, Cluster, recorded, write
from benchmarks.reference.consolidated import asked, bound, broken_rules, consolidate

_DEARER = 1.005
_KEPT = ("small-generic-1", "diverse-generic-1")
"""Plain pods; and pods with spreads, affinities and anti-affinities."""
_SMALL = [cluster for cluster in CLUSTERS if cluster.name in _KEPT]


@pytest.mark.slow
@pytest.mark.parametrize("cluster", _SMALL, ids=lambda cluster: cluster.name)
@pytest.mark.parametrize("budgets", BUDGETS)
def test_it_ends_no_dearer_than_the_original(cluster: Cluster, budgets: Budgets, tmp_path: Path) -> None:
    """Within 0.5 %, never below what the pods need at least, and all rules kept where they end up."""
    path = tmp_path / "cluster.json"
    write(cluster, path, budgets)
    question = asked(path)
    ours, theirs = consolidate(question, free=budgets == "free"), recorded(cluster)
    assert theirs is not None
    assert ours.converged
    assert ours.cost_before == pytest.approx(theirs.within(budgets).cost_before)
    assert ours.cost_after <= theirs.within(budgets).cost_after * _DEARER
    assert ours.cost_after >= bound(question) - 1e-6
    assert broken_rules(question.ask, ours.after) == []
