"""The keys users, dashboards and other controllers know: labels, annotations, taints, finalizers."""

GROUP = "karpenter.sh"
OWN_DOMAIN = "karpenter-py.dev"
"""The domain of annotations that only this implementation knows."""
KUBERNETES_HOSTNAME = "kubernetes.io/hostname"
ZONE = "topology.kubernetes.io/zone"
REGION = "topology.kubernetes.io/region"
INSTANCE_TYPE = "node.kubernetes.io/instance-type"
ARCH = "kubernetes.io/arch"
OS = "kubernetes.io/os"
WINDOWS_BUILD = "node.kubernetes.io/windows-build"
EXCLUDE_FROM_LOAD_BALANCERS = "node.kubernetes.io/exclude-from-external-load-balancers"

NODEPOOL = "karpenter.sh/nodepool"
INITIALIZED = "karpenter.sh/initialized"
REGISTERED = "karpenter.sh/registered"
DO_NOT_SYNC_TAINTS = "karpenter.sh/do-not-sync-taints"
CAPACITY_TYPE = "karpenter.sh/capacity-type"

CAPACITY_SPOT = "spot"
CAPACITY_ON_DEMAND = "on-demand"
CAPACITY_RESERVED = "reserved"

DO_NOT_DISRUPT = "karpenter.sh/do-not-disrupt"
SURGE = f"{OWN_DOMAIN}/surge"
"""Of a pod: `true` lets its Deployment bring up a stand-in before a drain takes the pod."""
SURGED_FOR = f"{OWN_DOMAIN}/surged-for"
"""Of a Deployment's pod template: the uid of the Node whose drain rolled it out last."""
NODEPOOL_HASH = "karpenter.sh/nodepool-hash"
NODEPOOL_HASH_VERSION = "karpenter.sh/nodepool-hash-version"
NODEPOOL_HASH_VERSION_VALUE = "v3"
TERMINATION_TIMESTAMP = "karpenter.sh/nodeclaim-termination-timestamp"
MIN_VALUES_RELAXED = "karpenter.sh/nodeclaim-min-values-relaxed"
PRICE_OVERLAY_APPLIED = "karpenter.sh/price-overlay-applied"
CAPACITY_OVERLAY_APPLIED = "karpenter.sh/capacity-overlay-applied"
REQUESTED_DRA_DRIVERS = "karpenter.sh/requested-dra-drivers"
POD_DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"

TERMINATION_FINALIZER = "karpenter.sh/termination"
DISRUPTED_TAINT = "karpenter.sh/disrupted"
UNREGISTERED_TAINT = "karpenter.sh/unregistered"

WELL_KNOWN_LABELS: frozenset[str] = frozenset(
    {NODEPOOL, ZONE, REGION, INSTANCE_TYPE, ARCH, OS, CAPACITY_TYPE, WINDOWS_BUILD}
)
"""Labels that pods may select without a NodePool defining them. Providers add theirs (`WellKnown`)."""

ALIASES: dict[str, str] = {
    "failure-domain.beta.kubernetes.io/zone": ZONE,
    "failure-domain.beta.kubernetes.io/region": REGION,
    "beta.kubernetes.io/arch": ARCH,
    "beta.kubernetes.io/os": OS,
    "beta.kubernetes.io/instance-type": INSTANCE_TYPE,
    "topology.disk.csi.azure.com/zone": ZONE,
    "topology.ebs.csi.aws.com/zone": ZONE,
    "topology.gke.io/zone": ZONE,
}
"""Keys that mean the same as another: retired ones, and the zones of CSI drivers, which are those of the node
(the drivers put theirs on a node only once they run there, too late for planning)."""

NODE_NAME_FIELD = "metadata.name"
"""The one field that `matchFields` of a node selector term may name; requirements treat it as a label that a
Node has from the start, and a node still to be bought never."""

RESTRICTED_DOMAINS: frozenset[str] = frozenset({GROUP})
RESTRICTED_LABELS: frozenset[str] = frozenset({KUBERNETES_HOSTNAME})
KNOWN_VALUES: dict[str, frozenset[str]] = {
    CAPACITY_TYPE: frozenset({CAPACITY_ON_DEMAND, CAPACITY_SPOT, CAPACITY_RESERVED})
}


def nodeclass_label(group: str, kind: str) -> str:
    """Return the label that ties nodes and claims to their node class."""
    return f"{group}/{kind.lower()}"
