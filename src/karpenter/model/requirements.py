"""What a label must be: the algebra of node requirements.

A `Requirement` is a set of permitted label values, plus whether the label may be missing altogether. Keeping
"may be missing" apart from "has no permitted value" makes the algebra exact: two contradicting requirements
are impossible, they do not turn into "the label must not be there".
"""

import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Protocol

import msgspec

from karpenter.apis import labels as known
from karpenter.apis.karpenter import RequirementSpec

_MAX_INT = sys.maxsize
_SHOWN_VALUES = 5
_SHORTEST_HINTED = 3  # a letter or two resemble every label

SIMULATION_LABELS: frozenset[str] = frozenset({known.REGISTERED, known.INITIALIZED})
"""Labels a node gets only later; plans assume them so that daemons selecting them count."""


class Expression(Protocol):
    """Anything shaped like a node selector requirement: a key, an operator and values."""

    @property
    def key(self) -> str: ...
    @property
    def operator(self) -> str: ...
    @property
    def values(self) -> list[str] | None: ...


@lru_cache(maxsize=65536)
def _integer(value: str) -> int | None:
    try:
        return int(value)
    except ValueError:
        return None


class Requirement(msgspec.Struct, frozen=True, cache_hash=True, kw_only=True):
    """The permitted values of one label.

    Build with `Requirement.of`, which knows the operators and normalises retired keys.
    """

    key: str
    complement: bool
    """`values` are the forbidden ones (True) or the only permitted ones (False)."""
    values: frozenset[str] = frozenset()
    gte: int | None = None
    """Smallest permitted integer; a bounded requirement permits integers only."""
    lte: int | None = None
    absent: bool = False
    """The node may also lack the label."""
    min_values: int | None = None
    """How many distinct values the instance types of one claim must offer."""

    @staticmethod
    def of(
        key: str, operator: str, values: Iterable[str] = (), min_values: int | None = None
    ) -> "Requirement":
        """Return the requirement `key operator values`.

        Raises:
            ValueError: when the operator is unknown, or a bound is not an integer.
        """
        key = known.ALIASES.get(key, key)
        listed = frozenset(values)
        match operator:
            case "In":
                return Requirement(key=key, complement=False, values=listed, min_values=min_values)
            case "NotIn":
                return Requirement(
                    key=key, complement=True, values=listed, absent=True, min_values=min_values
                )
            case "Exists":
                return Requirement(key=key, complement=True, min_values=min_values)
            case "DoesNotExist":
                return Requirement(key=key, complement=False, absent=True, min_values=min_values)
            case "Gt" | "Lt" | "Gte" | "Lte":
                bound = _integer(next(iter(listed), ""))
                if bound is None or len(listed) != 1:
                    raise ValueError(
                        f'requirement {key} {operator} {sorted(listed)}: want exactly one integer, e.g. ["4"]'
                    )
                gte = bound + 1 if operator == "Gt" else bound if operator == "Gte" else None
                lte = bound - 1 if operator == "Lt" else bound if operator == "Lte" else None
                bounded = Requirement(key=key, complement=True, gte=gte, lte=lte, min_values=min_values)
                return bounded._canonical()
            case _:
                raise ValueError(
                    f"requirement {key}: operator {operator!r} is unknown "
                    "(want In, NotIn, Exists, DoesNotExist, Gt, Lt, Gte or Lte)"
                )

    def _canonical(self) -> "Requirement":
        """Return the one way to write this set: bounds only on complements, empty ranges as no values."""
        if not self.complement:
            if self.gte is None and self.lte is None:
                return self
            kept = frozenset(v for v in self.values if self._in_bounds(v))
            return msgspec.structs.replace(self, values=kept, gte=None, lte=None)
        if self.gte is None and self.lte is None:
            return self
        excluded = frozenset(v for v in self.values if self._in_bounds(v))
        low, high = max(self.gte or 0, 0), _MAX_INT if self.lte is None else self.lte
        size = high - low + 1
        if size <= 0 or (size <= len(excluded) and all(str(n) in excluded for n in range(low, high + 1))):
            return Requirement(key=self.key, complement=False, absent=self.absent, min_values=self.min_values)
        return msgspec.structs.replace(self, values=excluded)

    def _in_bounds(self, value: str) -> bool:
        if self.gte is None and self.lte is None:
            return True
        number = _integer(value)
        if number is None:
            return False
        return (self.gte is None or number >= self.gte) and (self.lte is None or number <= self.lte)

    def has(self, value: str) -> bool:
        """Tell whether the label may have `value`."""
        return (value in self.values) != self.complement and self._in_bounds(value)

    @property
    def impossible(self) -> bool:
        """Neither a value nor the absence of the label satisfies it."""
        return not self.complement and not self.values and not self.absent

    @property
    def operator(self) -> str:
        """The operator that describes it best, as Karpenter prints it (`Exists` or `NotIn` if bounded)."""
        if self.complement:
            return "NotIn" if self.values else "Exists"
        return "In" if self.values else "DoesNotExist"

    def __len__(self) -> int:
        """How many values are permitted (of an open set: all integers less the excluded)."""
        return _MAX_INT - len(self.values) if self.complement else len(self.values)

    def __bool__(self) -> bool:
        return True

    def permitted(self) -> tuple[str, ...]:
        """The permitted values, sorted, when they are a finite list; empty otherwise."""
        return () if self.complement else tuple(sorted(self.values))

    def intersection(self, other: "Requirement") -> "Requirement":
        """Return what satisfies both; the key stays this one's, `min_values` is the larger."""
        gte = _larger(self.gte, other.gte)
        lte = _smaller(self.lte, other.lte)
        if self.complement and other.complement:
            complement, values = True, self.values | other.values
        elif self.complement:
            complement, values = False, other.values - self.values
        elif other.complement:
            complement, values = False, self.values - other.values
        else:
            complement, values = False, self.values & other.values
        return Requirement(
            key=self.key,
            complement=complement,
            values=values,
            gte=gte,
            lte=lte,
            absent=self.absent and other.absent,
            min_values=_larger(self.min_values, other.min_values),
        )._canonical()

    def has_intersection(self, other: "Requirement") -> bool:
        """Tell whether some value, or the label's absence, satisfies both."""
        if not self.complement and not other.complement and not (self.absent and other.absent):
            return not self.values.isdisjoint(other.values)
        return not self.intersection(other).impossible

    def any(self) -> str:
        """Return the smallest permitted value (as an integer where bounded); empty when there is none."""
        if not self.complement:
            return min(self.values, key=_value_order) if self.values else ""
        low = max(self.gte or 0, 0)
        return next(str(n) for n in range(low, low + len(self.values) + 1) if str(n) not in self.values)

    def to_specs(self) -> list[RequirementSpec]:
        """Return it as the API writes it: several entries where bounds, exclusions and existence mix."""
        if not self.complement:
            # An impossible requirement has no faithful form; In [] is refused by the API, as it should be.
            operator = "In" if self.values or not self.absent else "DoesNotExist"
            return [self._spec(operator, sorted(self.values))]
        specs: list[RequirementSpec] = []
        if self.gte is not None:
            specs.append(self._spec("Gte", [str(self.gte)]))
        if self.lte is not None:
            specs.append(self._spec("Lte", [str(self.lte)]))
        if not specs and not self.absent:
            specs.append(self._spec("Exists", []))
        if self.values:
            specs.append(self._spec("NotIn", sorted(self.values)))
        return specs

    def _spec(self, operator: str, values: list[str]) -> RequirementSpec:
        return RequirementSpec(key=self.key, operator=operator, values=values, min_values=self.min_values)

    def __str__(self) -> str:
        text = f"{self.key} {self.operator}"
        if self.values:
            shown = sorted(self.values)[:_SHOWN_VALUES]
            more = (
                f" and {len(self.values) - _SHOWN_VALUES} others" if len(self.values) > _SHOWN_VALUES else ""
            )
            text += f" [{' '.join(shown)}{more}]"
        if self.gte is not None:
            text += f" >={self.gte}"
        if self.lte is not None:
            text += f" <={self.lte}"
        if self.min_values is not None:
            text += f" minValues {self.min_values}"
        return text


def _larger(left: int | None, right: int | None) -> int | None:
    return right if left is None else left if right is None else max(left, right)


def _smaller(left: int | None, right: int | None) -> int | None:
    return right if left is None else left if right is None else min(left, right)


def _value_order(value: str) -> tuple[bool, int, str]:
    number = _integer(value)
    return (number is None, number or 0, value)


def unconstrained(key: str) -> Requirement:
    """Return the requirement on `key` that everything satisfies."""
    return Requirement(key=known.ALIASES.get(key, key), complement=True, absent=True)


class Requirements:
    """An immutable set of requirements, at most one per key; iterates keys, sorted."""

    __slots__ = ("_by_key", "_has_min_values", "_hash")

    def __init__(self, by_key: Mapping[str, Requirement] | None = None) -> None:
        """Wrap `by_key` as it is; to combine requirements use `of` or `add`."""
        self._by_key = {key: by_key[key] for key in sorted(by_key)} if by_key else {}
        self._hash: int | None = None
        self._has_min_values: bool | None = None

    @classmethod
    def of(cls, *requirements: Requirement) -> "Requirements":
        """Return all of `requirements`, intersecting those of the same key."""
        return _EMPTY.add(*requirements)

    @classmethod
    def from_labels(cls, labels: Mapping[str, str]) -> "Requirements":
        """Return `key In [value]` for each label."""
        return cls.of(*(Requirement.of(key, "In", (value,)) for key, value in labels.items()))

    @classmethod
    def from_specs(cls, specs: Iterable[Expression]) -> "Requirements":
        """Return what a list of node selector requirements asks for, all of it.

        Raises:
            ValueError: when an operator is unknown, or a bound is not an integer.
        """
        return cls.of(
            *(
                Requirement.of(spec.key, spec.operator, spec.values or (), getattr(spec, "min_values", None))
                for spec in specs
            )
        )

    def __getitem__(self, key: str) -> Requirement:
        return self._by_key[key]

    def __contains__(self, key: object) -> bool:
        return key in self._by_key

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_key)

    def __len__(self) -> int:
        return len(self._by_key)

    def keys(self) -> Iterable[str]:
        return self._by_key.keys()

    def values(self) -> Iterable[Requirement]:
        return self._by_key.values()

    def items(self) -> Iterable[tuple[str, Requirement]]:
        return self._by_key.items()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Requirements) and self._by_key == other._by_key

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash(tuple(self._by_key.values()))
        return self._hash

    def __reduce__(self) -> tuple[object, ...]:
        return Requirements, (self._by_key,)

    def __repr__(self) -> str:
        return f"Requirements({self})"

    def __str__(self) -> str:
        """Render all entries, sorted, as messages show them (without the host name, which is ours)."""
        shown = [str(r) for key, r in self._by_key.items() if key not in known.RESTRICTED_LABELS]
        return ", ".join(sorted(shown))

    def get(self, key: str) -> Requirement:
        """Return the requirement on `key`; one that permits everything when there is none."""
        return self._by_key.get(key) or unconstrained(key)

    def add(self, *requirements: Requirement) -> "Requirements":
        """Return these and `requirements`, intersecting those of the same key."""
        if not requirements:
            return self
        merged = dict(self._by_key)
        for requirement in requirements:
            present = merged.get(requirement.key)
            merged[requirement.key] = present.intersection(requirement) if present else requirement
        return Requirements(merged)

    def merge(self, other: "Requirements") -> "Requirements":
        """Return what satisfies both."""
        return self.add(*other.values())

    def without(self, *keys: str) -> "Requirements":
        """Return these less the requirements on `keys`."""
        return Requirements({key: r for key, r in self._by_key.items() if key not in keys})

    @property
    def has_min_values(self) -> bool:
        """Some requirement asks for a number of distinct values."""
        if self._has_min_values is None:
            self._has_min_values = any(r.min_values is not None for r in self._by_key.values())
        return self._has_min_values

    def impossible(self) -> str:
        """Return the first key, sorted, whose requirements contradict each other; empty when none does."""
        return next((key for key, r in self._by_key.items() if r.impossible), "")

    def intersects(self, other: "Requirements") -> str:
        """Return why the requirements on shared keys cannot hold together; empty when they can."""
        mine, theirs = self._by_key, other._by_key
        small, large = (mine, theirs) if len(mine) <= len(theirs) else (theirs, mine)
        clashes = [
            f"key {key}, {theirs[key]} not in {mine[key]}"
            for key in small
            if key in large and not mine[key].has_intersection(theirs[key])
        ]
        return "; ".join(clashes)

    def compatible(self, other: "Requirements", allow_undefined: frozenset[str] = frozenset()) -> str:
        """Return why a node that meets these cannot be made to meet `other`; empty when it can.

        Labels that these do not define are missing on the node, unless `allow_undefined` lists them: then
        they may still get any value.
        """
        errors = []
        for key, requirement in other.items():
            if requirement.impossible:
                errors.append(f"key {key}, the requirements on it contradict each other")
            elif key not in self and key not in allow_undefined and not requirement.absent:
                hint = _typo_hint(key, sorted(known.WELL_KNOWN_LABELS | allow_undefined), list(self))
                errors.append(f'label "{key}" does not have known values{hint}')
        return "; ".join([*errors, *filter(None, [self.intersects(other)])])

    def single_value(self, key: str) -> str:
        """Return the one permitted value of `key`; empty when there is not exactly one."""
        requirement = self._by_key.get(key)
        if requirement is None or requirement.complement or len(requirement.values) != 1:
            return ""
        return next(iter(requirement.values))

    def labels(self, well_known: frozenset[str] = known.WELL_KNOWN_LABELS) -> dict[str, str]:
        """Return the custom labels that a node must be given to meet these, the smallest value each.

        Left out are labels that the cloud sets (`well_known`), restricted ones, and those the node may lack.
        """
        chosen = {
            key: r.any()
            for key, r in self._by_key.items()
            if key not in well_known and not is_restricted(key) and not r.absent
        }
        return {key: value for key, value in chosen.items() if value}

    def to_specs(self) -> list[RequirementSpec]:
        """Return them as the API writes them, by key."""
        return [spec for r in self._by_key.values() for spec in r.to_specs()]


_EMPTY = Requirements()


def is_restricted(key: str) -> bool:
    """Tell whether `key` is reserved: the host name, and whatever lies in karpenter.sh or below."""
    domain = key.rpartition("/")[0]
    return key in known.RESTRICTED_LABELS or any(
        domain == restricted or domain.endswith("." + restricted) for restricted in known.RESTRICTED_DOMAINS
    )


def _typo_hint(key: str, *candidates: list[str]) -> str:
    """Guess which label was meant: one that contains `key`, or ends like it."""
    suffix = key.rpartition("/")[2]
    if len(suffix) < _SHORTEST_HINTED:
        return ""
    for label in (label for group in candidates for label in group):
        if key in label or label.endswith(suffix):
            return f' (typo of "{label}"?)'
    return ""
