"""One control plane for all end-to-end tests, with our custom kinds installed."""

from collections.abc import Iterator

import msgspec
import pytest
from tests.e2e.binary import binary
from tests.e2e.harness import ControlPlane, control_plane
from tests.e2e.helmchart import Installed, install

from karpenter.apis.crds import load_crds


@pytest.fixture(scope="session")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """Return a running control plane that serves our kinds."""
    with control_plane(binary(), tmp_path_factory.mktemp("controlplane") / "state") as running:
        for crd in load_crds():
            running.kubectl("apply", "--server-side", "-f", "-", stdin=msgspec.json.encode(crd).decode())
        running.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=30s")
        yield running


@pytest.fixture(scope="session")
def installed(plane: ControlPlane) -> Installed:
    """Return the chart, installed: whatever runs as an operator runs with its rights and settings."""
    return install(plane, "--set=settings.further.INSTANCE_CATALOGUE=ec2")
