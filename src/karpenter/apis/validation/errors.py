"""What is wrong with one field."""

from typing import Any

import msgspec


class FieldError(msgspec.Struct, frozen=True):
    """One finding: where, what is there, what is wrong, and what would be right."""

    field: str
    """Such as `spec.template.spec.requirements[0].operator`; empty for the whole object."""
    value: Any
    message: str
    """In the API server's words where it has words for it."""
    fix: str = ""

    def __str__(self) -> str:
        return f"{self.field or '<root>'}: {self.message}"
