"""Scripts for `karpenter up`: steps that change the cluster, each waited for until nothing moves any more."""

from collections.abc import Callable
from pathlib import Path

import msgspec
import yaml

from karpenter.apis.workloads import Deployment
from karpenter.base.clock import Clock
from karpenter.cli.up.manifests import ManifestError, apply_manifests, read_manifests
from karpenter.cli.up.picture import Picture
from karpenter.kube.client import Client
from karpenter.kube.patch import merge

_POLL_SECONDS = 0.25
_QUIET_SECONDS = 1.0


class ScriptError(Exception):
    """The script cannot be read, or a step failed; the message says which."""


class Scale(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Set the replicas of a Deployment (`namespace/name`, or a name in `default`)."""

    deployment: str
    replicas: int


class Step(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One change; exactly one of `scale` and `apply` is given."""

    name: str
    scale: Scale | None = None
    apply: str = ""
    """A file or folder of manifests."""
    timeout_seconds: float = 300.0


class StepResult(msgspec.Struct, frozen=True, kw_only=True):
    """What one step led to."""

    name: str
    all_running_seconds: float | None
    """From the change to the last pod Ready; None when there was nothing to run."""
    settled_seconds: float
    """From the change until nothing moved any more."""
    picture: Picture
    """At its largest, when all pods ran (at its end, when there was nothing to run)."""


TUTORIAL = (
    Step("3 replicas", scale=Scale("scaleup", 3)),
    Step("30 replicas", scale=Scale("scaleup", 30)),
    Step("0 replicas", scale=Scale("scaleup", 0)),
)


def load_script(name: str) -> tuple[Step, ...]:
    """Return the built-in script `tutorial`, or the steps of a YAML file.

    Raises:
        ScriptError: when the file cannot be read or is not a list of steps.
    """
    if name == "tutorial":
        return TUTORIAL
    try:
        document = yaml.load(Path(name).read_text("utf-8"), Loader=yaml.CSafeLoader)
        steps = msgspec.convert(document, tuple[Step, ...])
    except (OSError, UnicodeDecodeError, yaml.YAMLError, msgspec.ValidationError) as error:
        raise ScriptError(f"script {name}: {error}") from error
    for step in steps:
        if (step.scale is None) == (not step.apply):
            raise ScriptError(f"script {name}: step {step.name!r} needs exactly one of scale and apply")
    return steps


async def run_script(
    steps: tuple[Step, ...],
    client: Client,
    clock: Clock,
    picture: Callable[[], Picture],
    report: Callable[[str], None],
) -> list[StepResult]:
    """Carry out `steps` in order, each until nothing moves any more, telling `report` in plain words.

    Raises:
        ScriptError: when a step fails or does not settle in time.
    """
    results = []
    for step in steps:
        report(f"step: {step.name}")
        started = clock.monotonic()
        wanted = await _change(step, client)
        results.append(await _settle(step, wanted, started, clock, picture))
        last = results[-1]
        report(f"step: {step.name}: settled after {last.settled_seconds:.0f} s, ${last.picture.price:.4f}/h")
    return results


async def _change(step: Step, client: Client) -> int | None:
    """Make the step's change; return how many workload pods it asks for, where it says so."""
    if step.scale is None:
        try:
            await apply_manifests(client.transport, read_manifests([Path(step.apply)]))
        except ManifestError as error:
            raise ScriptError(f"step {step.name!r}: {error}") from error
        return None
    namespace, _, name = step.scale.deployment.rpartition("/")
    await client.patch(
        Deployment, name, merge({"spec": {"replicas": step.scale.replicas}}), namespace=namespace or "default"
    )
    return step.scale.replicas


async def _settle(
    step: Step, wanted: int | None, started: float, clock: Clock, picture: Callable[[], Picture]
) -> StepResult:
    all_running: float | None = None
    at_full: Picture | None = None
    quiet_since: float | None = None
    while True:
        now = clock.monotonic()
        seen = picture()
        total = sum(seen.pods.values())
        reached = wanted is None or total == wanted
        if reached and total and seen.running == total and all_running is None:
            all_running, at_full = now - started, seen
        if reached and seen.settled:
            quiet_since = now if quiet_since is None else quiet_since
            if now - quiet_since >= _QUIET_SECONDS:
                return StepResult(
                    name=step.name,
                    all_running_seconds=all_running,
                    settled_seconds=quiet_since - started,
                    picture=at_full or seen,
                )
        else:
            quiet_since = None
        if now - started > step.timeout_seconds:
            raise ScriptError(
                f"step {step.name!r} did not settle within {step.timeout_seconds:.0f} s: "
                f"{seen.running} of {total} pods run, {len(seen.nodes)} nodes"
            )
        await clock.sleep(_POLL_SECONDS)
