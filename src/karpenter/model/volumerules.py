"""Storage that a cloud's nodes cannot use, as its provider declares it."""

import msgspec


class VolumeRules(msgspec.Struct, frozen=True, kw_only=True):
    """What makes a volume unusable on any node that the provider launches."""

    unsupported_provisioners: frozenset[str] = frozenset()
    """Provisioners of storage classes, and CSI drivers of volumes (in-tree names are translated)."""
    unsupported_topology_keys: frozenset[str] = frozenset()
    """Labels of `allowedTopologies` that the provider's nodes never have."""
