"""Instance types as pools see them while overlays and catalogues come and go."""

from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from karpenter.apis.karpenter import NodeOverlay, NodePool
from karpenter.base.clock import LoopClock
from karpenter.base.virtualtime import run_virtual
from karpenter.cloudprovider import NodeClaimNotFound, UnevaluatedNodePool
from karpenter.cloudprovider.overlaid import OverlaidProvider
from karpenter.cloudprovider.overlayevaluation import PoolTypes
from karpenter.cloudprovider.overlays import overlay_of, pool_labels
from karpenter.cloudprovider.overlaystore import OverlayStore
from karpenter.testing.builders import a_nodeclaim, a_nodepool, some_instance_types
from karpenter.testing.fakeprovider import FakeCloud, FakeProvider
from karpenter.testing.overlays import an_overlay, requirement

TYPES = tuple(sorted(some_instance_types(), key=lambda t: t.name))
SMALL = requirement("node.kubernetes.io/instance-type", "In", "general-2")
CHEAP = an_overlay("cheap", SMALL, price="0.01")


def put(store: OverlayStore, overlays: Sequence[NodeOverlay], *pools: NodePool) -> bool:
    """Put `overlays` in force for `pools` over `TYPES`."""
    judged = [PoolTypes(pool_labels(pool), TYPES) for pool in pools or (a_nodepool(),)]
    return store.replace(tuple(overlay_of(o) for o in overlays), judged)


def test_an_unevaluated_pool() -> None:
    """Until overlays are judged for a pool, and again when it is left out, nobody knows its prices."""
    store = OverlayStore()
    with pytest.raises(UnevaluatedNodePool, match='nodepool "default" is awaiting evaluation'):
        store.apply("default", TYPES)
    put(store, [])
    assert store.apply("default", TYPES) is TYPES
    put(store, [], a_nodepool("other"))
    with pytest.raises(UnevaluatedNodePool):
        store.apply("default", TYPES)


def test_the_same_tuple_while_nothing_changes() -> None:
    """Compiled catalogues live by the tuple's identity; types that no overlay is for keep theirs too."""
    store = OverlayStore()
    assert put(store, [CHEAP]) is True
    seen = store.apply("default", TYPES)
    assert [t.name for t in seen if t.price_overlaid] == ["general-2"]
    assert {t.name for t, base in zip(seen, TYPES, strict=True) if t is base} == {
        "general-4",
        "general-8",
        "general-16",
    }
    assert store.apply("default", TYPES) is seen
    assert put(store, [CHEAP]) is False
    assert store.apply("default", TYPES) is seen
    assert put(store, [an_overlay("cheap", SMALL, price="0.02")]) is True
    assert store.apply("default", TYPES) is not seen


def test_pools_that_see_the_same_share_it() -> None:
    """One catalogue is compiled for them, not one each."""
    store = OverlayStore()
    put(store, [CHEAP], a_nodepool("red"), a_nodepool("blue"))
    assert store.apply("red", TYPES) is store.apply("blue", TYPES)


def test_a_new_catalogue_is_overlaid_at_once() -> None:
    """Types that came after the judgement are seen through the overlays; who judges is told, once."""
    store, told = OverlayStore(), list[bool]()
    store.on_unjudged_types(lambda: told.append(True))
    put(store, [CHEAP])
    before = store.apply("default", TYPES)
    newer = (replace(TYPES[0], name="general-1"), *TYPES[1:])
    after = store.apply("default", newer)
    assert after[0] is newer[0]
    assert all(new is old for new, old in zip(after[1:], before[1:], strict=True))
    store.apply("default", newer)
    assert told == [True]
    store.apply("default", newer[1:])
    assert told == [True, True]


def test_prices_and_stock_do_not_call_for_another_judgement() -> None:
    """Only what overlays choose by does; the price of the moment is adjusted all the same."""
    store, told = OverlayStore(), list[bool]()
    store.on_unjudged_types(lambda: told.append(True))
    put(store, [an_overlay("dearer", priceAdjustment="+1")])
    offerings = tuple(replace(o, price=5.0, available=False, stock=1) for o in TYPES[0].offerings)
    seen = store.apply("default", (replace(TYPES[0], offerings=offerings), *TYPES[1:]))
    assert {o.price for o in seen[0].offerings} == {6.0}
    assert {(o.available, o.stock) for o in seen[0].offerings} == {(False, 1)}
    assert told == []


def test_a_cloud_seen_through_overlays() -> None:
    """Only instance types change; every other call goes on to the cloud."""

    async def scenario() -> None:
        cloud, store = FakeCloud(), OverlayStore()
        cloud.drift["c"] = "AMIDrift"
        inner = FakeProvider(cloud, None, LoopClock())  # type: ignore[arg-type]
        provider, claim = OverlaidProvider(inner, store), a_nodeclaim("c")
        with pytest.raises(UnevaluatedNodePool):
            await provider.instance_types(a_nodepool())
        put(store, [CHEAP])
        assert [t.price_overlaid for t in await provider.instance_types(a_nodepool())].count(True) == 1
        assert (provider.name, provider.node_classes) == (inner.name, inner.node_classes)
        assert provider.repair_policies() == inner.repair_policies()
        assert await provider.drift_reason(claim) == "AMIDrift"
        launched = await provider.create(claim)
        assert await provider.list() == [launched]
        assert await provider.get(launched.status.provider_id) is launched
        with pytest.raises(NodeClaimNotFound):
            await provider.delete(launched)

    run_virtual(scenario())
