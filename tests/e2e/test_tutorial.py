"""The tutorial on a real control plane: `karpenter run` as its own process, kwok's kubelets, kubectl."""

import re
import time
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from tests.e2e.harness import ControlPlane
from tests.e2e.helmchart import Installed, Right, right_of
from tests.e2e.operator import Operator

from karpenter.cli.up.applying import tutorial_manifests

pytestmark = pytest.mark.e2e
Json = dict[str, Any]
_LEASE = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/karpenter-leader-election"
_NODECLAIMS = "/apis/karpenter.sh/v1/nodeclaims"
SELDOM = {
    Right("karpenter.sh", "nodepools", "get"),  # after a conflict
    Right("", "pods/eviction", "create"),  # no node of the tutorial goes while pods are on it
    Right("", "pods", "delete"),  # past a deadline
    Right("apps", "replicasets", "get"),  # stand-ins
    Right("apps", "deployments", "get"),
    Right("apps", "deployments", "patch"),
}
"""Rights that the tutorial gives no occasion to use."""
_PODS = "/api/v1/namespaces/default/pods"


@pytest.fixture(scope="module")
def operator(plane: ControlPlane, installed: Installed) -> Iterator[Operator]:
    """Return an operator that is ready, with the tutorial's objects applied."""
    running = Operator(plane, installed)
    try:
        seconds = plane.wait(running.ready, "the operator is ready")
        print(f"\noperator ready after {seconds:.1f} s")
        for document in tutorial_manifests():
            plane.kubectl("apply", "-f", "-", stdin=msgspec.json.encode(document.obj).decode())
        yield running
    finally:
        running.stop()


def _running(plane: ControlPlane) -> list[Json]:
    return [
        pod
        for pod in plane.objects(_PODS)
        if pod["status"]["phase"] == "Running" and "deletionTimestamp" not in pod["metadata"]
    ]


def _scale(plane: ControlPlane, replicas: int) -> None:
    plane.kubectl("scale", "deployment", "scaleup", f"--replicas={replicas}")
    seconds = plane.wait(lambda: len(_running(plane)) == replicas, f"{replicas} pods run", 60)
    print(f"\n{replicas} pods running after {seconds:.1f} s")


@pytest.mark.parametrize("replicas", [3, 30])
def test_pods_run_on_machines_bought_for_them(plane: ControlPlane, operator: Operator, replicas: int) -> None:
    """However many pods come, all run, and only on nodes of our NodePool that a NodeClaim stands for."""
    _scale(plane, replicas)
    nodes = {node["metadata"]["name"]: node for node in plane.objects("/api/v1/nodes")}
    claimed = {claim["status"].get("nodeName") for claim in plane.objects(_NODECLAIMS)}
    used = {pod["spec"]["nodeName"] for pod in _running(plane)}
    assert used <= claimed
    for name in used:
        assert nodes[name]["metadata"]["labels"]["karpenter.sh/nodepool"] == "default"


def _rows(table: str) -> list[dict[str, str]]:
    """Return kubectl's table as one mapping of heading to cell per row."""
    heading, *lines = table.splitlines()
    starts = [match.start() for match in re.finditer(r"\S+( \S+)*", heading)]
    names = heading.split()
    ends = [*starts[1:], None]
    return [
        {name: line[start:end].strip() for name, start, end in zip(names, starts, ends, strict=True)}
        for line in lines
    ]


def test_kubectl_shows_pools_and_claims(plane: ControlPlane, operator: Operator) -> None:
    """The columns that people look at are filled."""
    plane.wait(
        lambda: all(row["READY"] == "True" for row in _rows(plane.kubectl("get", "nodeclaims"))),
        "every NodeClaim is ready",
        30,
    )
    claims = _rows(plane.kubectl("get", "nodeclaims"))
    plane.wait(
        lambda: _rows(plane.kubectl("get", "nodepools"))[0]["NODES"] == str(len(claims)),
        "the NodePool counts its nodes",
        10,
    )
    (pool,) = _rows(plane.kubectl("get", "nodepools"))
    print("\n" + plane.kubectl("get", "nodepools,nodeclaims"))
    assert pool["NAME"] == "default"
    assert pool["NODECLASS"] == "default"
    assert pool["READY"] == "True"
    for claim in claims:
        assert re.fullmatch(r"[cmr]\d\w*\.\w+", claim["TYPE"]), claim
        assert claim["CAPACITY"] in ("spot", "on-demand")
        assert claim["ZONE"]
        assert claim["NODE"]


def test_metrics_count_what_was_bought(plane: ControlPlane, operator: Operator) -> None:
    """As many NodeClaims are counted as created as there are; none goes while pods need them."""
    text = operator.metrics()
    counts = re.findall(r"^karpenter_nodeclaims_created_total\{.*\} (\S+)$", text, re.MULTILINE)
    assert sum(map(float, counts)) >= len(plane.objects(_NODECLAIMS)) > 0


def test_nothing_is_left_without_pods(plane: ControlPlane, operator: Operator) -> None:
    """Scaled to zero, every node and NodeClaim goes, with no finalizer left hanging."""
    _scale(plane, 0)
    seconds = plane.wait(
        lambda: not plane.objects("/api/v1/nodes") and not plane.objects(_NODECLAIMS),
        "all nodes and NodeClaims are gone",
        90,
    )
    print(f"\nnodes gone after {seconds:.1f} s")


def test_sigterm_ends_it_in_order(plane: ControlPlane, operator: Operator) -> None:
    """Asked to end it does so soon, with exit code 0, and gives the Lease back for the next one."""
    lease = plane.get(_LEASE)
    assert lease is not None
    assert msgspec.json.decode(lease)["spec"]["holderIdentity"] == "e2e-0"
    started = time.monotonic()
    assert operator.stop() == 0
    print(f"\nended after {time.monotonic() - started:.2f} s")
    lease = plane.get(_LEASE)
    assert lease is not None
    assert not msgspec.json.decode(lease)["spec"].get("holderIdentity")


def test_it_was_never_refused_a_right(plane: ControlPlane, operator: Operator) -> None:
    """The chart's roles hold all that the operator does."""
    refused = [e for e in plane.audited() if e.get("responseStatus", {}).get("code") == 403]
    assert [(e["verb"], e["requestURI"]) for e in refused] == []


def test_rights_that_it_has_are_rights_that_it_uses(plane: ControlPlane, installed: Installed) -> None:
    """But for those that only drains, conflicts and stand-ins need."""
    used = set(map(right_of, plane.audited()))
    assert installed.rights() - used <= SELDOM


def test_nothing_went_wrong(operator: Operator) -> None:
    """Through all of that the log tells of no error, and holds no traceback."""
    assert operator.log("ERROR") == []
    assert operator.log("WARNING") == []
    assert operator.log("INFO"), "the log is not what this test takes it for"
    assert "Traceback" not in operator.process.log.read_text("utf-8")
