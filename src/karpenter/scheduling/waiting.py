"""Who waits for a new node: asks in order, as arrays, so that most need not be looked at one by one."""

from collections.abc import Sequence

import numpy as np

from karpenter.model.requirements import Requirements
from karpenter.scheduling.asks import Ask
from karpenter.scheduling.catalogue import Amounts, Mask
from karpenter.scheduling.classes import Port, Variant
from karpenter.scheduling.space import PoolSpace
from karpenter.scheduling.topology import Occupancy, Profile, Rule

_EPSILON = 1e-9
_NOWHERE = -1
_NOBODY: Mask = np.zeros(0, dtype=np.bool_)
_MOST_STATES = 4096
"""Of how many states of a node it is remembered whom they let in."""
_SOME, _FULL, _TOO_MANY, _OWNED = 1, 2, 3, 4
"""How many pods that a rule selects a node holds, for its maxSkew; the last: an owner of the rule, too."""
_STATES = 2 * _OWNED
Key = tuple[Variant, Profile, frozenset[Port]]


class Manners:
    """What the pods on one node mean for others, by profile, asked for many profiles at once."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        """Start with no profiles."""
        self._rules = rules
        self._each = np.arange(len(rules))
        self._numbers: dict[Profile, int] = {}
        self._barring: list[Mask] = []
        """By profile: by rule and its state on a node, whether that bars the profile."""
        self._table: Mask = np.zeros((len(rules), _STATES, 0), dtype=np.bool_)
        """The same by rule, state and profile."""

    def number(self, profile: Profile) -> int:
        """Return the position of `profile` in what `barred` returns."""
        found = self._numbers.get(profile)
        if found is None:
            found = self._numbers[profile] = len(self._numbers)
            self._barring.append(self._bars(profile))
        return found

    def _bars(self, profile: Profile) -> Mask:
        """Return, by rule and its state on a node, whether that bars a profile."""
        states = np.arange(_STATES)
        level, owned = states % _OWNED, states >= _OWNED
        barring = np.zeros((len(self._rules), _STATES), dtype=np.bool_)
        for rule in profile.owned:
            anti = self._rules[rule].kind == "anti"
            least = _SOME if anti else _FULL if rule in profile.selected else _TOO_MANY
            barring[rule] |= level >= least
        for rule in profile.selected:
            barring[rule] |= owned & ((level >= _FULL) | (self._rules[rule].kind == "anti"))
        for rule in profile.near:
            barring[rule] |= level == 0
        return barring

    def state(self, here: Occupancy) -> bytes:
        """Return all that matters here about a node that holds `here`: a byte for each rule."""
        state = bytearray(len(self._rules))
        for number, count in here.selected.items():
            if count:
                skew = self._rules[number].max_skew
                state[number] = _SOME if count < skew else _FULL if count == skew else _TOO_MANY
        for number, count in here.owners.items():
            if count:
                state[number] |= _OWNED
        return bytes(state)

    def barred(self, state: bytes) -> Mask:
        """Return, by profile, whether a node in this state takes no pod of it, for now or for good."""
        if self._table.shape[2] != len(self._barring):
            self._table = np.stack(self._barring, axis=2)
        here = self._table[self._each, np.frombuffer(state, dtype=np.uint8)]
        barred: Mask = np.logical_or.reduce(here)
        return barred


class Waiting:
    """Asks that want new nodes. Whatever changes one of them tells by `update`."""

    def __init__(self, asks: Sequence[Ask], rules: Sequence[Rule]) -> None:
        """Line up `asks`, of which there is at least one."""
        self.asks = asks
        self._at = {ask.index: at for at, ask in enumerate(asks)}
        wanted = np.array([ask.wanted for ask in asks], dtype=np.int64)
        self.columns: Amounts = np.flatnonzero(wanted.any(axis=0))
        """The resources that any of them wants, as columns of the axis."""
        self.wanted: Amounts = np.ascontiguousarray(wanted[:, self.columns].T)
        """What a pod wants, by resource of `columns` and ask."""
        self._home = np.full(len(asks), _NOWHERE, dtype=np.int64)
        self.kind = np.zeros(len(asks), dtype=np.int64)
        self._kinds: dict[Key, int] = {}
        self._variants: list[Variant] = []
        self._profiles: list[int] = []
        self._profile_of: Amounts = np.zeros(0, dtype=np.int64)
        self._manners = Manners(rules)
        self._welcomed: dict[bytes, Mask] = {}
        self._admitted: dict[tuple[int, Requirements, int], Mask] = {}
        self._friends = _friends(asks)
        for ask in asks:
            self.update(ask)

    def update(self, ask: Ask) -> None:
        """Look again at what is left of an ask, and at what it wants now."""
        at = self._at.get(ask.index)
        if at is None:
            return
        self._home[at] = ask.home if ask.remaining and ask.home is not None else _NOWHERE
        key = (ask.demands, ask.profile, ask.ports)
        kind = self._kinds.get(key)
        if kind is None:
            kind = self._kinds[key] = len(self._kinds)
            self._variants.append(ask.demands)
            self._profiles.append(self._manners.number(ask.profile))
        self.kind[at] = kind

    def behind(self, ask: Ask) -> "Queue":
        """Return `ask` and, behind it, all others that would buy from the same pool."""
        at = self._at[ask.index]
        others = np.flatnonzero(self._home == ask.home)
        if self._friends:
            others = np.array([i for i in others.tolist() if not self._holds_off(i, at)], dtype=np.int64)
        return Queue(self, np.concatenate([[at], others[others != at]]))

    def _holds_off(self, at: int, first: int) -> bool:
        """Tell whether an ask would rather wait for a friend's node than share one opened for `first`."""
        friends = self._friends.get(at, frozenset())
        return first not in friends and any(self._home[i] != _NOWHERE for i in friends)

    def admitted(self, space: PoolSpace, start: Requirements, chosen: int) -> Mask:
        """Return, by kind, whether its pods may join a node that is `start` at no extra price."""
        key = (id(space), start, chosen)
        known = self._admitted.get(key, _NOBODY)
        if len(known) != len(self._variants):
            price = space.evaluate(start).price[chosen] + _EPSILON
            answers = []
            for variant in self._variants[len(known) :]:
                merged = space.admit(start, variant)
                answers.append(not isinstance(merged, str) and space.evaluate(merged).price[chosen] <= price)
            known = self._admitted[key] = np.append(known, np.array(answers, dtype=np.bool_))
        return known

    def welcomed(self, here: Occupancy) -> Mask:
        """Return, by kind, whether the pods on a node that holds `here` let its pods in."""
        if len(self._profile_of) < len(self._profiles):
            self._profile_of = np.array(self._profiles, dtype=np.int64)
            self._welcomed.clear()
        state = self._manners.state(here)
        known = self._welcomed.get(state)
        if known is None:
            if len(self._welcomed) >= _MOST_STATES:
                self._welcomed.clear()
            known = self._welcomed[state] = ~self._manners.barred(state)[self._profile_of]
        return known


def _friends(asks: Sequence[Ask]) -> dict[int, frozenset[int]]:
    """Return, by position of those who would like to share a node with others, the positions of these."""
    wanted = {at: set(a.profile.fond).difference(a.profile.selected) for at, a in enumerate(asks)}
    members: dict[int, list[int]] = {rule: [] for rules in wanted.values() for rule in rules}
    for at, ask in enumerate(asks) if members else ():
        for rule in members.keys() & set(ask.profile.selected):
            members[rule].append(at)
    return {
        at: frozenset(friend for rule in rules for friend in members[rule])
        for at, rules in wanted.items()
        if rules
    }


class Queue:
    """Those of the asks that one new node may be for; the first is the one that it is opened for."""

    def __init__(self, waiting: Waiting, order: Amounts) -> None:
        """Take the asks of `waiting` at the positions `order`."""
        self.waiting = waiting
        self._order = order
        self.kind: Amounts = waiting.kind[order]

    def __len__(self) -> int:
        """Count them."""
        return len(self._order)

    def __getitem__(self, position: int) -> Ask:
        """Return one of them."""
        return self.waiting.asks[self._order.item(position)]

    def wanted(self, positions: Amounts | slice) -> Amounts:
        """Return what a pod wants, by resource and ask, of those at some positions in the queue."""
        found: Amounts = self.waiting.wanted[:, self._order[positions]]
        return found

    def front(self, count: int) -> list[Ask]:
        """Return the first `count` of them."""
        return [self.waiting.asks[at] for at in self._order[:count].tolist()]
