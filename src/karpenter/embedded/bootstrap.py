"""What every cluster has before anybody asks: namespaces, service accounts, a storage class, priorities."""

from typing import Any

from karpenter.embedded.controllers.pods import create_unless_there
from karpenter.kube.client import Client

NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")
PRIORITIES = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
PROVISIONER = "simulated.csi.karpenter.sh"


def _object(api_version: str, kind: str, name: str, **fields: Any) -> dict[str, Any]:
    metadata = {"name": name, **fields.pop("metadata", {})}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **fields}


def service_account(namespace: str) -> dict[str, Any]:
    """Return the account that pods of a namespace run as unless they say otherwise."""
    return _object("v1", "ServiceAccount", "default", metadata={"namespace": namespace})


async def ensure_system_objects(client: Client) -> None:
    """Create what is missing; what is there stays as it is."""
    for namespace in NAMESPACES:
        await create_unless_there(client, "/api/v1/namespaces", _object("v1", "Namespace", namespace))
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts"
        await create_unless_there(client, path, service_account(namespace))
    for name, value in PRIORITIES.items():
        await create_unless_there(
            client,
            "/apis/scheduling.k8s.io/v1/priorityclasses",
            _object("scheduling.k8s.io/v1", "PriorityClass", name, value=value, globalDefault=False),
        )
    await create_unless_there(
        client,
        "/apis/storage.k8s.io/v1/storageclasses",
        _object(
            "storage.k8s.io/v1",
            "StorageClass",
            "standard",
            metadata={"annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
            provisioner=PROVISIONER,
            reclaimPolicy="Delete",
            volumeBindingMode="WaitForFirstConsumer",
        ),
    )
