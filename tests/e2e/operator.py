"""`karpenter run` as a process of its own, with the rights and settings that the chart gives it."""

import os
import sys
import urllib.request

from tests.e2e.harness import ControlPlane, Process, free_ports
from tests.e2e.helmchart import Installed


class Operator:
    """`karpenter run` against the control plane, and what can be asked of it."""

    def __init__(self, plane: ControlPlane, installed: Installed, name: str = "e2e-0") -> None:
        self.plane = plane
        self.metrics_port, self.health_port = free_ports(2)
        environ = {**os.environ, **installed.environ, "POD_NAME": name}
        self.process: Process = plane.run("karpenter", self._command(installed), environ)

    def _command(self, installed: Installed) -> list[str]:
        return [
            *(sys.executable, "-m", "karpenter", "run"),
            f"--kubeconfig={installed.kubeconfig}",
            f"--metrics-port={self.metrics_port}",
            f"--health-probe-port={self.health_port}",
        ]

    def stop(self) -> int:
        """End it and return its exit code; from here on the control plane does not miss it."""
        if self.process in self.plane.processes:
            self.plane.processes.remove(self.process)
        return self.process.stop()

    def ready(self) -> bool:
        """Whether /readyz says so."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.health_port}/readyz", timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def metrics(self) -> str:
        """Return /metrics."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.metrics_port}/metrics", timeout=5) as answer:
            text: str = answer.read().decode()
            return text

    def log(self, level: str) -> list[str]:
        """Return the lines of its log of `level`, which is in capitals."""
        lines = self.process.log.read_text("utf-8").splitlines()
        return [line for line in lines if line.startswith("{") and f'"level":"{level}"' in line]
