"""The real API server and its controllers agree with the table that the embedded server is held to."""

import asyncio

import pytest
from tests.e2e.harness import ControlPlane

from karpenter.base.clock import SystemClock
from karpenter.kube.config import load_config
from karpenter.kube.http import HttpTransport
from karpenter.testing.conformance import Case, conformance_cases, namespace_of, play

pytestmark = pytest.mark.e2e


@pytest.mark.parametrize("case", conformance_cases(), ids=lambda case: case.name)
def test_the_real_server_agrees(plane: ControlPlane, case: Case) -> None:
    """Every step of the case is answered as the table says."""

    async def main() -> list[str]:
        clock = SystemClock()
        transport = HttpTransport(load_config(str(plane.kubeconfig), environ={}), clock=clock)
        try:
            return await play(transport, clock, case)
        finally:
            await transport.close()

    try:
        assert asyncio.run(main()) == []
    finally:
        # Its workloads must not ask for nodes while other tests run.
        plane.request("DELETE", f"/api/v1/namespaces/{namespace_of(case)}")
