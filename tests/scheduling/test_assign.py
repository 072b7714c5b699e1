"""Dealing many pods at once sends them where dealing them one by one would."""

from unittest.mock import patch

from hypothesis import example, given, settings
from hypothesis import strategies as st

from karpenter.apis import labels
from karpenter.scheduling.assign import UNBOUNDED, Cell, Dealt, _Deal, deal
from karpenter.scheduling.domains import DomainLedger, Spread, Wide
from karpenter.scheduling.terms import Group

ZONES = ("a", "b", "c", "d")
COUNTS = st.fixed_dictionaries(dict.fromkeys(ZONES, st.integers(0, 6)))


def a_ledger(counts: list[dict[str, int]]) -> DomainLedger:
    """Return a ledger with one spread group over zones for each of `counts`."""
    ledger = DomainLedger()
    for number, by_zone in enumerate(counts):
        group = Group(
            kind="spread",
            key=labels.ZONE,
            namespaces=frozenset(["default"]),
            selector=None,
            identity=bytes([number]),
        )
        tally = ledger.groups[ledger.number(group)]
        for zone, count in by_zone.items():
            tally.present.add(zone)
            tally.add(zone, count)
    return ledger


@st.composite
def cells(draw: st.DrawFn) -> list[Cell]:
    """Draw zones to go to, some with little room, some with nodes, some dearer or less liked."""
    found = []
    for zone in draw(st.lists(st.sampled_from((*ZONES, "")), min_size=1, unique=True)):
        room = draw(st.sampled_from([UNBOUNDED, UNBOUNDED, 3, 10]))
        free = min(room, draw(st.sampled_from([0, 0, 0, 2])))
        price, tier = draw(st.sampled_from([1.0, 2.0])), draw(st.sampled_from([0, 0, 0, 1]))
        found.append(Cell(values=(zone,), tier=tier, price=price, room=room, free=free))
    return found


def a_cell(zone: str, *, free: int = 0) -> Cell:
    """Return a zone with room for anybody, `free` of them on nodes that are there."""
    return Cell(values=(zone,), tier=0, price=1.0, room=UNBOUNDED, free=free)


@example(counts=[{}], places=[a_cell("a", free=2), a_cell("b")], pods=3, selected={0}, spread=None)
@example(counts=[{"a": 3}], places=[a_cell(""), a_cell("a")], pods=9, selected={0}, spread=None)
@example(counts=[{"d": 1}], places=[a_cell("a"), a_cell("b")], pods=9, selected={0}, spread=(1, 0, 1))
@example(counts=[{}, {}], places=[a_cell("a"), a_cell("b")], pods=9, selected={0, 1}, spread=(1, 0, 1))
@example(counts=[{}], places=[a_cell("a"), a_cell("b")], pods=9, selected={0}, spread=(1, 0, 3))
@example(counts=[{}], places=[a_cell("a"), a_cell("b")], pods=9, selected=set(), spread=(1, 0, 1))
@settings(max_examples=300)
@given(
    counts=st.lists(COUNTS, min_size=1, max_size=3),
    places=cells(),
    pods=st.integers(1, 60),
    selected=st.sets(st.integers(0, 2)),
    spread=st.none() | st.tuples(st.integers(1, 4), st.sampled_from([0, 0, 5]), st.sampled_from([1, 1, 3])),
)
def test_pods_are_dealt_at_once_as_one_by_one(
    counts: list[dict[str, int]],
    places: list[Cell],
    pods: int,
    selected: set[int],
    spread: tuple[int, int, int] | None,
) -> None:
    """Whatever zones hold already, whoever counts the pods, whatever they are spread by themselves."""
    numbers = tuple(sorted(n for n in selected if n < len(counts)))
    spreads: tuple[Spread, ...] = ()
    if spread:
        skew, weight, domains = spread
        spreads = (Spread(group=0, max_skew=skew, min_domains=domains, itself=0 in numbers, weight=weight),)
    wide = Wide(spreads=spreads, selected=numbers, keys=(labels.ZONE,), firm=True)

    def dealt() -> Dealt:
        return deal(wide, places, pods, a_ledger(counts))

    at_once = dealt()
    with patch.object(_Deal, "_evenly", return_value=0), patch.object(_Deal, "_levelled", return_value=0):
        one_by_one = dealt()
    assert at_once == one_by_one
