"""Finding clouds: each is an entry point of the group `karpenter.cloudproviders`.

A third party adds one by installing a package; nothing here changes.
"""

from importlib.metadata import entry_points

from karpenter.cloudprovider import CloudProvider, ProviderContext
from karpenter.operator.options import OptionError

GROUP = "karpenter.cloudproviders"


def load_provider(name: str, context: ProviderContext) -> CloudProvider:
    """Return the cloud called `name`.

    Raises:
        OptionError: when no installed package offers it, or it cannot use its settings.
    """
    known = {point.name: point for point in entry_points(group=GROUP)}
    point = known.get(name)
    if point is None:
        raise OptionError(
            f"--cloud-provider has value {name!r}: installed are {', '.join(sorted(known)) or 'none'}"
        )
    factory = point.load()
    try:
        provider: CloudProvider = factory(context)
    except ValueError as error:
        raise OptionError(f"cloud provider {name}: {error}") from error
    return provider
