"""Which methods of disruption there are, in the order in which they are asked."""

from karpenter.controllers.context import Settings
from karpenter.disruption.emptiness import Emptiness
from karpenter.disruption.rounds import Search


def quick(settings: Settings) -> list[Search]:
    """Return the methods that answer at once: what is empty goes, what has drifted is replaced."""
    del settings
    return [Emptiness()]


def thorough(settings: Settings) -> list[Search]:
    """Return the methods that search for something cheaper, and may take their time."""
    del settings
    return []


def waits(search: Search) -> bool:
    """Tell whether commands of a method take a second look before they are carried out."""
    return search.reason != "Drifted"
