"""CEL rules (`x-kubernetes-validations`), behind one small door so that the engine could be changed.

Rules see the value as `self` and, on updates, the old one as `oldSelf`; a rule that mentions `oldSelf` is a
transition rule and holds vacuously on creation. A rule that cannot be evaluated fails, as in Kubernetes.
"""

import itertools
import re
from collections.abc import Callable
from functools import cached_property, lru_cache
from typing import Any

from karpenter.base.quantity import parse_quantity

MAX_EXPRESSION_LENGTH = 5 * 1024
_IMMUTABLE = "self == oldSelf"
_OLD_SELF = re.compile(r"\boldSelf\b")


class CelError(ValueError):
    """A rule is not CEL."""


class Facts:
    """A value, and the one it replaces, as rules see them: the engine takes them in once for all rules."""

    def __init__(self, value: Any, old: Any = None) -> None:
        self.value, self.old = value, old

    @cached_property
    def alone(self) -> Any:
        """For rules about the value."""
        return _engine().Context(variables={"self": self.value}, functions=_FUNCTIONS)

    @cached_property
    def both(self) -> Any:
        """For transition rules."""
        return _engine().Context(variables={"self": self.value, "oldSelf": self.old}, functions=_FUNCTIONS)


class Rule:
    """A compiled rule."""

    def __init__(self, text: str) -> None:
        if len(text) > MAX_EXPRESSION_LENGTH:
            raise CelError(f"rule is longer than {MAX_EXPRESSION_LENGTH} characters")
        self.text = text
        self.transition = bool(_OLD_SELF.search(text))
        try:
            self._program = _engine().compile(text)
        except ValueError as error:
            raise CelError(f"rule {text!r} is not CEL: {error}") from error

    def evaluate(self, facts: "Facts") -> Any:
        """Return what the expression gives.

        Raises:
            CelError: when it cannot be evaluated (no such key, wrong type, …).
        """
        try:
            return self._program.execute(facts.both if self.transition else facts.alone)
        except Exception as error:  # the engine raises whatever fits; all of it means "not evaluable"
            raise CelError(str(error)) from error

    def holds(self, facts: "Facts") -> bool:
        """Tell whether the rule holds; a rule that cannot be evaluated does not."""
        if self.text == _IMMUTABLE:
            return bool(facts.value == facts.old)  # as the engine would say, which takes milliseconds
        try:
            return self.evaluate(facts) is True
        except CelError:
            return False


@lru_cache(maxsize=1024)
def compile_rule(text: str) -> Rule:
    """Return the compiled rule.

    Raises:
        CelError: when `text` is not CEL.
    """
    return Rule(text)


@lru_cache(maxsize=1)
def _engine() -> Any:
    import cel  # half a second: only where a rule is really needed

    return cel


def _find(text: str, pattern: str) -> str:
    match = re.search(pattern, text)
    return match.group(0) if match else ""


def _find_all(text: str, pattern: str) -> list[str]:
    return [match.group(0) for match in re.finditer(pattern, text)]


def _split(text: str, separator: str) -> list[str]:
    return text.split(separator) if separator else list(text)


def _is_quantity(text: str) -> bool:
    try:
        parse_quantity(text)
    except ValueError:
        return False
    return True


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "find": _find,
    "findAll": _find_all,
    "split": _split,
    "join": lambda items, separator="": separator.join(items),
    "indexOf": lambda text, part: text.find(part),
    "lastIndexOf": lambda text, part: text.rfind(part),
    "substring": lambda text, start, end=None: text[start:end],
    "isSorted": lambda items: all(a <= b for a, b in itertools.pairwise(items)),
    "sum": sum,
    "isURL": lambda text: bool(re.match(r"(?:[a-z][a-z0-9+.-]*://[^\s/]|/)", text)),
    "isQuantity": _is_quantity,
    "lowerAscii": lambda text: text.lower(),
    "upperAscii": lambda text: text.upper(),
    "trim": lambda text: text.strip(),
    "replace": lambda text, old, new: text.replace(old, new),
}
"""Kubernetes' string extensions, as methods: `self.find("^a")`."""
