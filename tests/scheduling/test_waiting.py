"""Who waits for a new node: the quick look at many of them agrees with the careful look at one."""

from hypothesis import given
from hypothesis import strategies as st

from karpenter.apis import labels
from karpenter.scheduling.terms import Group, Kind
from karpenter.scheduling.topology import Crowd, Occupancy, Profile, Rule
from karpenter.scheduling.waiting import Manners

KINDS: tuple[Kind, ...] = ("spread", "anti", "affinity")


def a_rule(kind: Kind, max_skew: int, number: int) -> Rule:
    """Return a rule over host names."""
    group = Group(
        kind=kind,
        key=labels.KUBERNETES_HOSTNAME,
        namespaces=frozenset(["default"]),
        selector=None,
        identity=bytes([number]),
    )
    return Rule(group, max_skew)


@st.composite
def profiles(draw: st.DrawFn, rules: list[Rule]) -> Profile:
    """Draw what a pod has to do with the rules: which it carries, and which count it."""
    numbers = range(len(rules))
    mine = draw(st.sets(st.sampled_from(numbers), max_size=3))
    return Profile(
        owned=tuple(sorted(n for n in mine if rules[n].kind != "affinity")),
        near=tuple(sorted(n for n in mine if rules[n].kind == "affinity")),
        selected=tuple(sorted(draw(st.sets(st.sampled_from(numbers), max_size=3)))),
    )


@given(st.data())
def test_who_is_barred_from_a_node_could_not_join_it(data: st.DataObject) -> None:
    """Whatever rules there are and whoever is there already: barred are just those of whom none may come."""
    kinds = data.draw(st.lists(st.tuples(st.sampled_from(KINDS), st.integers(1, 3)), min_size=1, max_size=5))
    rules = [a_rule(kind, skew, number) for number, (kind, skew) in enumerate(kinds)]
    here = Occupancy.empty()
    crowd, manners = Crowd(rules), Manners(rules)
    for there in data.draw(st.lists(profiles(rules), max_size=4)):
        here.add(there, data.draw(st.integers(1, 2)))
    crowd.append(here, 1)
    everybody = data.draw(st.lists(profiles(rules), min_size=1, max_size=4))
    numbers = [manners.number(profile) for profile in everybody]
    barred = manners.barred(manners.state(here))
    for number, profile in zip(numbers, everybody, strict=True):
        assert bool(barred[number]) == (int(crowd.allowance(profile)[0]) == 0)
