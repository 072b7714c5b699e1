"""helm, built from Go modules, and our charts as it renders and installs them."""

import subprocess
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import yaml
from tests.e2e.harness import ControlPlane

from karpenter.testing.gobinary import GoProgram

CHARTS = Path(__file__).parents[2] / "charts"
_CHARTUTIL = "helm.sh/helm/v3/pkg/chartutil"

Json = dict[str, Any]


@cache
def helm() -> Path:
    """Return helm's binary; one without these flags takes every cluster for an ancient one."""
    told = [f"-X {_CHARTUTIL}.k8sVersion{part}={n}" for part, n in (("Major", 1), ("Minor", 36))]
    program = GoProgram(
        "helm",
        Path(__file__).parent / "helm",
        link_flags=("-s", "-w", *told),
        package="helm.sh/helm/v3/cmd/helm",
    )
    return program.binary()


def run_helm(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run helm in the folder of the charts."""
    command = [str(helm()), *arguments]
    return subprocess.run(command, cwd=CHARTS, capture_output=True, text=True, timeout=120, check=False)


def rendered(chart: str, *arguments: str, namespace: str = "kube-system") -> list[Json]:
    """Return the objects of a release called karpenter.

    Raises:
        AssertionError: helm refuses.
    """
    ran = run_helm("template", "karpenter", chart, f"--namespace={namespace}", *arguments)
    assert ran.returncode == 0, ran.stderr
    return [document for document in yaml.safe_load_all(ran.stdout) if document]


def one(objects: list[Json], kind: str, name: str = "karpenter") -> Json:
    """Return the only object of a kind and name."""
    (found,) = (o for o in objects if o["kind"] == kind and o["metadata"]["name"] == name)
    return found


class Right(NamedTuple):
    """A verb on a resource, `pods` or `pods/eviction`."""

    group: str
    resource: str
    verb: str


class Installed(NamedTuple):
    """The chart on a control plane: all but the pods, which have no image here."""

    objects: list[Json]
    kubeconfig: Path
    """Of the chart's ServiceAccount."""

    @property
    def environ(self) -> dict[str, str]:
        """The environment of the chart's container, without what a kubelet fills in."""
        (container,) = one(self.objects, "Deployment")["spec"]["template"]["spec"]["containers"]
        return {each["name"]: each["value"] for each in container["env"] if "value" in each}

    def rights(self) -> set[Right]:
        """Return all that the chart's ServiceAccount may do."""
        found: set[Right] = set()
        bound = {o["roleRef"]["name"] for o in self.objects if o["kind"].endswith("RoleBinding")}
        for role in self.objects:
            if role["kind"] in ("ClusterRole", "Role") and role["metadata"]["name"] in bound:
                for rule in role["rules"]:
                    found.update(
                        map(Right._make, product(*(rule[k] for k in ("apiGroups", "resources", "verbs"))))
                    )
        return found


def install(plane: ControlPlane, *arguments: str) -> Installed:
    """Apply the rendered chart, with no replica, and return what was applied."""
    objects = rendered("karpenter", "--set=replicas=0", *arguments)
    text = "\n---\n".join(msgspec.json.encode(each).decode() for each in objects)
    plane.kubectl("apply", "--server-side", "--force-conflicts", "--validate=strict", "-f", "-", stdin=text)
    account = one(objects, "ServiceAccount")["metadata"]["name"]
    return Installed(objects, plane.kubeconfig_of(account))


def right_of(event: Json) -> Right:
    """Return what was asked for by an entry of the API server's audit log."""
    asked = event.get("objectRef", {})
    resource = "/".join(filter(None, (asked.get("resource", ""), asked.get("subresource", ""))))
    return Right(asked.get("apiGroup", ""), resource, event["verb"])
