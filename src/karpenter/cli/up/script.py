"""Scripts for `karpenter up`: steps that change the cluster, each waited for until nothing moves any more."""

from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import yaml

from karpenter.apis.workloads import Deployment
from karpenter.base.clock import Clock
from karpenter.cli.manifests import Unreadable, read_manifests
from karpenter.cli.up.applying import Refused, apply_manifests
from karpenter.cli.up.picture import Picture
from karpenter.kube.client import Client
from karpenter.kube.errors import ApiError
from karpenter.kube.patch import merge

_POLL_SECONDS = 0.25
_QUIET_SECONDS = 1.0
_EXAMPLE = "`- {name: up, scale: {deployment: default/web, replicas: 3}}` or `- {name: more, apply: FILE}`"


class ScriptError(Exception):
    """The script cannot be read, or a step failed; the message says which."""


class Scale(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Set the replicas of a Deployment (`namespace/name`, or a name in `default`)."""

    deployment: str
    replicas: int

    @property
    def namespace(self) -> str:
        return self.deployment.rpartition("/")[0] or "default"

    @property
    def name(self) -> str:
        return self.deployment.rpartition("/")[2]


class Step(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One change; at most one of `scale` and `apply` is given, in a file exactly one."""

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


SETTLE = (Step("as it is"),)
"""No change, but the same waiting: what to do when there is no script."""


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
    except OSError as error:
        raise ScriptError(f"script {name}: {error.strerror} (`tutorial` is the built-in one)") from error
    except yaml.MarkedYAMLError as error:
        line = f":{error.problem_mark.line + 1}" if error.problem_mark else ""
        raise ScriptError(f"script {name}{line}: not YAML: {error.problem or error.context}") from error
    except (UnicodeDecodeError, yaml.YAMLError) as error:
        raise ScriptError(f"script {name}: not YAML: {str(error).splitlines()[0]}") from error
    except msgspec.ValidationError as error:
        raise ScriptError(f"script {name}: {error}; steps look like {_EXAMPLE}") from error
    if not steps:
        raise ScriptError(f"script {name}: has no steps; they look like {_EXAMPLE}")
    for step in steps:
        if (step.scale is None) == (not step.apply):
            raise ScriptError(f"script {name}: step {step.name!r} needs exactly one of scale and apply")
    return steps


async def run_script(
    steps: Sequence[Step],
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
        await _change(step, client)
        results.append(await _settle(step, client, started, clock, picture))
        last = results[-1]
        report(f"step: {step.name}: settled after {last.settled_seconds:.0f} s, ${last.picture.price:.4f}/h")
    return results


async def _change(step: Step, client: Client) -> None:
    try:
        if step.apply:
            await apply_manifests(client.transport, read_manifests([step.apply]))
        if step.scale is not None:
            patch = merge({"spec": {"replicas": step.scale.replicas}})
            await client.patch(Deployment, step.scale.name, patch, namespace=step.scale.namespace)
    except (Unreadable, Refused) as error:
        raise ScriptError(f"step {step.name!r}: {error}") from error
    except ApiError as error:
        raise ScriptError(f"step {step.name!r}: {error.message}") from error


async def _reached(scale: Scale, client: Client, seen: Picture) -> bool:
    """Tell whether the Deployment has as many pods as it was scaled to, and the picture shows them."""
    deployment = await client.get(Deployment, scale.name, scale.namespace)
    return (
        (deployment.status.observed_generation or 0) >= (deployment.metadata.generation or 0)
        and (deployment.status.replicas or 0) == scale.replicas
        and seen.wanted >= scale.replicas
    )


async def _settle(
    step: Step, client: Client, started: float, clock: Clock, picture: Callable[[], Picture]
) -> StepResult:
    """Wait until all pods run and nothing moves any more.

    Raises:
        ScriptError: when that takes too long, or the Deployment is gone.
    """
    all_running: float | None = None
    at_full: Picture | None = None
    quiet_since: float | None = None
    while True:
        now = clock.monotonic()
        seen = picture()
        total = seen.wanted
        try:
            reached = step.scale is None or await _reached(step.scale, client, seen)
        except ApiError as error:
            raise ScriptError(f"step {step.name!r}: {error.message}") from error
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
