"""Which records a list or watch wants: label and field selectors, compiled to one predicate."""

from collections.abc import Callable, Mapping

from karpenter.base.selectors import parse_field_selector, parse_label_selector
from karpenter.embedded.errors import bad_request
from karpenter.embedded.kinds import Kind
from karpenter.embedded.store import Record

Accepts = Callable[[Record], bool]


def compile_selectors(kind: Kind, query: Mapping[str, str], name: str = "") -> Accepts | None:
    """Return the predicate of a request's selectors (and `name`), None when it wants everything.

    Raises:
        StatusError: 400, when a selector is malformed or selects by a field that cannot be.
    """
    label_text, field_text = query.get("labelSelector", ""), query.get("fieldSelector", "")
    try:
        labels = parse_label_selector(label_text) if label_text else None
        terms = parse_field_selector(field_text) if field_text else ()
    except ValueError as error:
        raise bad_request(f"unable to parse the selector: {error}") from None
    for term in terms:
        if term.path not in kind.selectable:
            raise bad_request(f"field label not supported for {kind.kind}: {term.path}")
    fields = [(term.path, term.value, term.op == "!=") for term in terms]
    if name:
        fields.append(("metadata.name", name, False))
    if labels is None and not fields:
        return None

    def accepts(record: Record) -> bool:
        for path, value, negated in fields:
            if (record.fields.get(path, "") == value) is negated:
                return False
        return labels is None or labels.matches(record.labels)

    return accepts
