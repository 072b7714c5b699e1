"""metav1.LabelSelector, matched."""

from collections.abc import Mapping

from karpenter.apis.meta import LabelSelector, SelectorRequirement


def label_selector_matches(selector: LabelSelector | None, labels: Mapping[str, str]) -> bool:
    """Tell whether `labels` meet `selector`; None matches nothing, an empty one everything."""
    if selector is None:
        return False
    return all(labels.get(key) == value for key, value in selector.match_labels.items()) and all(
        _holds(requirement, labels) for requirement in selector.match_expressions
    )


def _holds(requirement: SelectorRequirement, labels: Mapping[str, str]) -> bool:
    """Tell whether one expression holds; an operator that does not exist matches nothing."""
    value = labels.get(requirement.key)
    values = requirement.values or ()
    match requirement.operator:
        case "In":
            return value is not None and value in values
        case "NotIn":
            return value is None or value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
    return False
