"""Kubernetes quantities as exact integers.

The scheduler's own units: `cpu` in thousandths of a core, every other resource in whole units (bytes,
counts), both rounded up, as kube-scheduler does. Integers make sums exact and fit int64 arrays.
"""

import re
from collections.abc import Iterable, Mapping
from fractions import Fraction
from functools import lru_cache

Resources = dict[str, int]
"""Amounts by resource name, in scheduler units (`cpu` milli, all else whole)."""

_SUFFIX: dict[str, Fraction] = {
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 10**3),
    "": Fraction(1),
    "k": Fraction(10**3),
    "M": Fraction(10**6),
    "G": Fraction(10**9),
    "T": Fraction(10**12),
    "P": Fraction(10**15),
    "E": Fraction(10**18),
    "Ki": Fraction(2**10),
    "Mi": Fraction(2**20),
    "Gi": Fraction(2**30),
    "Ti": Fraction(2**40),
    "Pi": Fraction(2**50),
    "Ei": Fraction(2**60),
}
_QUANTITY = re.compile(
    r"([+-]?)(\d+\.?\d*|\.\d+)(?:([eE][+-]?\d{1,3})|(n|u|m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei))?"
)


@lru_cache(maxsize=65536)
def parse_quantity(text: str) -> Fraction:
    """Return the exact value of a quantity such as `100m`, `1.5Gi` or `2e3`.

    Raises:
        ValueError: when `text` is not a Kubernetes quantity.
    """
    match = _QUANTITY.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a quantity (want e.g. 100m, 2, 1.5Gi)")
    sign, digits, exponent, suffix = match.groups()
    scale = Fraction(10) ** int(exponent[1:]) if exponent else _SUFFIX[suffix or ""]
    value = Fraction(digits) * scale
    return -value if sign == "-" else value


@lru_cache(maxsize=65536)
def to_units(resource: str, text: str) -> int:
    """Return `text` in the scheduler's unit of `resource`, rounded up (away from zero when negative).

    Raises:
        ValueError: when `text` is not a Kubernetes quantity.
    """
    value = parse_quantity(text) * (1000 if resource == "cpu" else 1)
    return -(-value.numerator // value.denominator) if value >= 0 else value.numerator // value.denominator


def resources_of(quantities: Mapping[str, str] | Mapping[str, int | str] | None) -> Resources:
    """Return a whole resource list in scheduler units; bare numbers are as good as text.

    Raises:
        ValueError: when one entry is not a quantity.
    """
    return {name: to_units(name, str(text)) for name, text in (quantities or {}).items()}


def format_units(resource: str, units: int) -> str:
    """Render `units` of `resource` canonically: `1500m`, `2`, `4Gi`, `12345`."""
    if resource == "cpu":
        return f"{units}m" if units % 1000 else str(units // 1000)
    if resource in ("memory", "ephemeral-storage", "storage") or resource.startswith("hugepages-"):
        for suffix, size in (("Ei", 60), ("Pi", 50), ("Ti", 40), ("Gi", 30), ("Mi", 20), ("Ki", 10)):
            if units and units % (1 << size) == 0:
                return f"{units >> size}{suffix}"
    return str(units)


def format_resources(resources: Mapping[str, int]) -> dict[str, str]:
    """Render a resource list for the API, keys sorted."""
    return {name: format_units(name, resources[name]) for name in sorted(resources)}


def add(left: Mapping[str, int], right: Mapping[str, int]) -> Resources:
    """Return the sum over the union of the keys."""
    total = dict(left)
    for name, amount in right.items():
        total[name] = total.get(name, 0) + amount
    return total


def total(lists: Iterable[Mapping[str, int]]) -> Resources:
    """Return the sum of any number of resource lists."""
    result: Resources = {}
    for resources in lists:
        for name, amount in resources.items():
            result[name] = result.get(name, 0) + amount
    return result


def subtract(left: Mapping[str, int], right: Mapping[str, int]) -> Resources:
    """Return `left - right` over the union of the keys (negative where `left` lacks)."""
    result = dict(left)
    for name, amount in right.items():
        result[name] = result.get(name, 0) - amount
    return result


def maximum(left: Mapping[str, int], right: Mapping[str, int]) -> Resources:
    """Return the larger amount of each key of the union."""
    result = dict(left)
    for name, amount in right.items():
        if amount > result.get(name, amount - 1):
            result[name] = amount
    return result


def fits(requests: Mapping[str, int], available: Mapping[str, int]) -> bool:
    """Tell whether `requests` fit into `available`; what is absent there counts as none.

    As upstream, nothing fits where any amount of `available` is negative.
    """
    return all(amount >= 0 for amount in available.values()) and all(
        amount <= available.get(name, 0) for name, amount in requests.items()
    )
