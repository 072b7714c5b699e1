"""The charts, by helm and the API server: they render, are valid, and refuse what cannot be."""

import msgspec
import pytest
from tests.e2e.harness import ControlPlane
from tests.e2e.helmchart import one, rendered, run_helm

pytestmark = pytest.mark.e2e

EVERYTHING = (
    "--set=networkPolicy.enabled=true,dashboards.enabled=true,hostNetwork=true,terminationGracePeriodSeconds=30",
    "--set=settings.schedulerConfig.podTopologySpread.defaultConstraints[0].maxSkew=1",
    "--set=settings.featureGates.nodeOverlay=true,settings.featureGates.capacityBuffer=true",
    "--set=settings.ignoreDRARequests=false,settings.clusterPriceLimit=12.5,logLevel=debug",
    "--set=controller.resources.requests.cpu=1500m,controller.resources.limits.memory=1Gi",
    "--set=additionalLabels.team=a,additionalAnnotations.note=b,podLabels.c=d,podAnnotations.e=f",
    "--set=controller.image.digest=sha256:0123,imagePullSecrets[0].name=key,dnsConfig.nameservers[0]=10.0.0.1",
    "--set=affinity.podAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].weight=1",
    "--set=affinity.podAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].podAffinityTerm.topologyKey=z",
)


@pytest.mark.parametrize("chart", ["karpenter", "karpenter-crd"])
def test_helm_finds_nothing_wrong(chart: str) -> None:
    """`helm lint --strict`."""
    ran = run_helm("lint", "--strict", chart)
    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.mark.parametrize("settings", [(), EVERYTHING], ids=["defaults", "everything set"])
def test_the_api_server_takes_what_helm_renders(plane: ControlPlane, settings: tuple[str, ...]) -> None:
    """With strict validation: no unknown field, no duplicate, nothing that is refused."""
    text = "\n---\n".join(msgspec.json.encode(each).decode() for each in rendered("karpenter", *settings))
    plane.kubectl(
        *("apply", "--server-side", "--dry-run=server", "--validate=strict", "--force-conflicts", "-f", "-"),
        stdin=text,
    )


def test_kinds_can_be_installed_by_a_chart_of_their_own(plane: ControlPlane) -> None:
    """As they are, with annotations added."""
    crds = rendered("karpenter-crd", "--set=additionalAnnotations.note=b")
    assert {crd["metadata"]["annotations"]["note"] for crd in crds} == {"b"}
    assert len(crds) == 5
    text = "\n---\n".join(msgspec.json.encode(each).decode() for each in crds)
    plane.kubectl(
        *("apply", "--server-side", "--dry-run=server", "--validate=strict", "--force-conflicts", "-f", "-"),
        stdin=text,
    )


def test_pods_are_kept_apart_and_off_our_own_nodes() -> None:
    """Rules without a selector select the operator's own pods; rights follow the settings."""
    objects = rendered("karpenter", *EVERYTHING)
    spec = one(objects, "Deployment")["spec"]["template"]["spec"]
    own = {"app.kubernetes.io/name": "karpenter", "app.kubernetes.io/instance": "karpenter"}
    (apart,) = spec["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    (near,) = spec["affinity"]["podAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    (spread,) = spec["topologySpreadConstraints"]
    for rule in (apart, near["podAffinityTerm"], spread):
        assert rule["labelSelector"] == {"matchLabels": own}
    environ = {each["name"]: each.get("value") for each in spec["containers"][0]["env"]}
    assert environ["CPU_REQUESTS"] == "1500"
    assert environ["CLUSTER_PRICE_LIMIT"] == "12.5"
    assert environ["IGNORE_DRA_REQUESTS"] == "false"
    core = one(objects, "ClusterRole", "karpenter-core")
    assert any("nodeoverlays" in rule["resources"] for rule in core["rules"])
    assert any("resourceslices" in rule["resources"] for rule in core["rules"])


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("settings.batchMaxDuration=10", "batchMaxDuration"),
        ("settings.batchMaxDurations=10s", "batchMaxDurations"),
        ("settings.featureGates.nodeRepairs=true", "nodeRepairs"),
        ("settings.preferencePolicy=Maybe", "preferencePolicy"),
        ("controller.metrics.port=99999", "port"),
        ("serviceAccount.create=false", "serviceAccount.name is needed"),
    ],
)
def test_values_that_cannot_be_are_refused(setting: str, said: str) -> None:
    """Misspelt or of the wrong kind: helm names the value."""
    ran = run_helm("template", "karpenter", "karpenter", f"--set={setting}")
    assert ran.returncode != 0
    assert said in ran.stderr
