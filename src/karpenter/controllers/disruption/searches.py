"""Which methods of disruption there are, in the order in which they are asked."""

from karpenter.controllers.context import Settings
from karpenter.disruption.drift import Drift
from karpenter.disruption.emptiness import Emptiness
from karpenter.disruption.multi import MultiNode
from karpenter.disruption.rounds import Search
from karpenter.disruption.sets import SetSearch
from karpenter.disruption.single import SingleNode
from karpenter.disruption.staticdrift import StaticDrift


def quick() -> list[Search]:
    """Return the methods that answer at once: what is empty goes, what has drifted is replaced."""
    return [Emptiness(), StaticDrift(), Drift()]


def thorough(settings: Settings) -> list[Search]:
    """Return the methods that search for something cheaper, and may take their time.

    What is empty comes first here too, or pods would be moved to nodes that are about to go for that.
    """
    if settings.consolidation_search == "upstream":
        return [Emptiness(), MultiNode(), SingleNode()]
    return [Emptiness(), SetSearch()]


def waits(search: Search) -> bool:
    """Tell whether commands of a method take a second look before they are carried out."""
    return search.reason != "Drifted"
