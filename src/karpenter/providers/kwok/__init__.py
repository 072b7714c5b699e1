"""The kwok provider: machines that are only Node objects, kept alive by kwok or by the embedded kubelets."""

from karpenter.cloudprovider import CloudProvider, ProviderContext
from karpenter.providers.kwok.catalogue import (
    ec2_instance_types,
    generic_instance_types,
    load_instance_types,
)
from karpenter.providers.kwok.provider import KwokProvider

__all__ = ["KwokProvider", "factory"]


def factory(context: ProviderContext) -> CloudProvider:
    """Return the provider; settings choose its catalogue (a file, `ec2`, or the generic grid).

    Raises:
        CatalogueError: when the file of instance types cannot be used.
    """
    path = context.settings.get("instance-types-file-path", "")
    if path:
        types = load_instance_types(path)
    elif context.settings.get("instance-catalogue") == "ec2":
        types = ec2_instance_types()
    else:
        types = generic_instance_types()
    return KwokProvider(context, types)
