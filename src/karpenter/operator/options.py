"""The operator's options: upstream's flags and environment variables, with its names and defaults.

A flag beats the environment, which beats the default. Unlike upstream, an environment variable that cannot
be parsed is refused at start, as a flag is, instead of silently becoming the default.
"""

import difflib
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from karpenter.apis.annotations import MICRO, parse_usd
from karpenter.apis.core import TopologySpreadConstraint
from karpenter.base.duration import format_duration, parse_duration
from karpenter.base.quantity import to_units
from karpenter.operator.schedulerconfig import parse_scheduler_config

FEATURE_GATES: dict[str, bool] = {
    "NodeRepair": False,
    "ReservedCapacity": True,
    "SpotToSpotConsolidation": False,
    "NodeOverlay": False,
    "StaticCapacity": False,
    "CapacityBuffer": False,
}
"""Gates and their defaults, as upstream's."""


class OptionError(ValueError):
    """An option is unknown or has a value it cannot have; the message says which, and what it wants."""


class Option(msgspec.Struct, frozen=True):
    """One option: how it is written, what it means without being set."""

    flag: str
    """Without dashes; the environment variable is this in capitals with underscores."""
    default: Any
    help: str
    parse: Callable[[str], Any]

    @property
    def env(self) -> str:
        return self.flag.upper().replace("-", "_")

    @property
    def field(self) -> str:
        return self.flag.replace("-", "_")


def _text(value: str) -> str:
    return value


def _integer(value: str) -> int:
    try:
        return int(value)
    except ValueError:
        raise ValueError("want a whole number") from None


def _boolean(value: str) -> bool:
    if value not in ("true", "false"):
        raise ValueError("want true or false")
    return value == "true"


def _seconds(value: str) -> float:
    seconds = parse_duration(value)
    if seconds < 0:
        raise ValueError("want a duration of zero or more, e.g. 10s")
    return seconds


def _priority(value: str) -> int | None:
    if value and not re.fullmatch(r"[+-]?\d{1,10}", value):
        raise ValueError("want a whole number, e.g. -10")
    return int(value) if value else None


def _dollars(value: str) -> float:
    return parse_usd(value) / MICRO


def _cores(value: str) -> int | None:
    if not value:
        return None
    milli = to_units("cpu", value)
    if milli <= 0:
        raise ValueError("want cores, more than 0, e.g. 64")
    return milli


def _usd(value: str) -> int | None:
    return parse_usd(value) if value else None


def _one_of(*choices: str) -> Callable[[str], str]:
    def parse(value: str) -> str:
        if value not in choices:
            raise ValueError(f"want one of {', '.join(choice or '(empty)' for choice in choices)}")
        return value

    return parse


def _cpu(value: str) -> int:
    milli = _integer(value)
    return milli if milli > 0 else 1000


def parse_feature_gates(text: str) -> dict[str, bool]:
    """Return every gate's value from `Gate=true,Other=false`; unlisted ones keep their default.

    Unknown gates are ignored, as upstream does, so that one set of values serves several versions.

    Raises:
        ValueError: when an entry is not `NAME=true` or `NAME=false`.
    """
    gates = dict(FEATURE_GATES)
    for entry in filter(None, (part.strip() for part in text.split(","))):
        name, _, value = (part.strip() for part in entry.partition("="))
        if value.lower() not in ("true", "false"):
            raise ValueError(f"gate {entry!r}: want NAME=true or NAME=false")
        if name in gates:
            gates[name] = value.lower() == "true"
    return gates


OPTIONS: tuple[Option, ...] = (
    Option(
        "cloud-provider", "kwok", "which cloud to use (an entry point of karpenter.cloudproviders)", _text
    ),
    Option("karpenter-service", "", "accepted for compatibility; unused", _text),
    Option("metrics-port", 8080, "port of /metrics; 0 turns it off", _integer),
    Option("health-probe-port", 8081, "port of /healthz and /readyz; 0 turns it off", _integer),
    Option("kube-client-qps", 200, "requests per second to the API server", _integer),
    Option("kube-client-burst", 300, "requests to the API server that may come at once", _integer),
    Option("enable-profiling", False, "accepted for compatibility; no profiles are served yet", _boolean),
    Option(
        "disable-controller-warmup", True, "accepted for compatibility; caches fill after election", _boolean
    ),
    Option("disable-leader-election", False, "act without holding the Lease (one replica only)", _boolean),
    Option("disable-cluster-state-observability", False, "no metrics of pods, nodes, conditions", _boolean),
    Option("leader-election-name", "karpenter-leader-election", "name of the Lease", _text),
    Option("leader-election-namespace", "", "namespace of the Lease (default: our own)", _text),
    Option("memory-limit", -1, "accepted for compatibility; bytes", _integer),
    Option("cpu-requests", 1000, "thousandths of a core we may count on; sets concurrency", _cpu),
    Option("log-level", "info", "debug, info or error", _one_of("", "debug", "info", "error")),
    Option("log-output-paths", "stdout", "where logs go: stdout, stderr or files, by commas", _text),
    Option("log-error-output-paths", "stderr", "where errors of logging go", _text),
    Option("batch-max-duration", 10.0, "longest time to collect pending pods", _seconds),
    Option("batch-idle-duration", 1.0, "a batch ends when no new pod came for this long", _seconds),
    Option("preference-policy", "Respect", "Respect or Ignore preferred rules", _one_of("Respect", "Ignore")),
    Option("min-values-policy", "Strict", "Strict or BestEffort", _one_of("Strict", "BestEffort")),
    Option(
        "ignore-dra-requests", True, "refuse pods with resource claims instead of planning them", _boolean
    ),
    Option("cluster-price-limit", None, "most that all nodes may cost, USD per hour, e.g. 12.50", _usd),
    Option(
        "expendable-pods-priority-cutoff", None, "buy nothing for pods of lower priority, e.g. -10", _priority
    ),
    Option("node-fee", 0.02, "what a new node counts besides its price, USD per hour", _dollars),
    Option(
        "concentration-penalty", 0.0, "what a node of all pods that are alike counts, USD per hour", _dollars
    ),
    Option("max-node-cpu", None, "most cores that a new node may have, e.g. 64", _cores),
    Option(
        "initialization-timeout", 0.0, "replace nodes that are not initialized by then; 0s: never", _seconds
    ),
    Option("feature-gates", dict(FEATURE_GATES), "NAME=true,NAME=false", parse_feature_gates),
    Option("scheduler-config", (), "default topology spread constraints (YAML)", parse_scheduler_config),
    Option("solve-budget", 1.0, "longest time to search for a cheaper plan", _seconds),
    Option(
        "consolidation-search",
        "sets",
        "sets, or upstream: one search over prefixes and one over single nodes",
        _one_of("sets", "upstream"),
    ),
    Option(
        "consolidation-restart-cost", 2700.0, "what restarting a pod costs, in time on its node", _seconds
    ),
    Option("consolidation-payback", 43200.0, "a move has to save what its restarts cost within", _seconds),
    Option("consolidation-budget", 30.0, "longest time of one search for cheaper nodes", _seconds),
    Option("instance-types-file-path", "", "kwok: instance types in upstream's JSON format", _text),
    Option("instance-catalogue", "generic", "kwok: generic or ec2", _one_of("generic", "ec2")),
)
"""Every option of `karpenter run`, in the order in which help prints them."""

_BY_FLAG = {option.flag: option for option in OPTIONS}


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """Parsed options; durations in seconds."""

    cloud_provider: str
    karpenter_service: str
    metrics_port: int
    health_probe_port: int
    kube_client_qps: int
    kube_client_burst: int
    enable_profiling: bool
    disable_controller_warmup: bool
    disable_leader_election: bool
    disable_cluster_state_observability: bool
    leader_election_name: str
    leader_election_namespace: str
    memory_limit: int
    cpu_requests: int
    log_level: str
    log_output_paths: str
    log_error_output_paths: str
    batch_max_duration: float
    batch_idle_duration: float
    preference_policy: str
    min_values_policy: str
    ignore_dra_requests: bool
    cluster_price_limit: int | None
    """Micro-USD per hour."""
    expendable_pods_priority_cutoff: int | None
    node_fee: float
    concentration_penalty: float
    max_node_cpu: int | None
    """Thousandths of a core."""
    initialization_timeout: float
    """From a node's registration; 0: no limit."""
    feature_gates: dict[str, bool]
    scheduler_config: tuple[TopologySpreadConstraint, ...]
    solve_budget: float
    consolidation_search: str
    consolidation_restart_cost: float
    consolidation_payback: float
    consolidation_budget: float
    instance_types_file_path: str
    instance_catalogue: str


def parse_options(arguments: Sequence[str], environ: Mapping[str, str]) -> Options:
    """Return the options that `arguments` and `environ` ask for.

    Raises:
        OptionError: naming the flag or variable, its value, and what it wants.
    """
    values: dict[str, Any] = {option.field: option.default for option in OPTIONS}
    for option in OPTIONS:
        text = environ.get(option.env)
        if text is not None:
            values[option.field] = _parse(option, text, f"environment variable {option.env}")
    for flag, text in _flags(arguments):
        option = _BY_FLAG[flag]
        values[option.field] = _parse(option, text, f"--{flag}")
    return Options(**values)


def _flags(arguments: Sequence[str]) -> list[tuple[str, str]]:
    """Split `--flag=value`, `--flag value` and bare boolean flags (also with one dash, as Go allows)."""
    found: list[tuple[str, str]] = []
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        if not word.startswith("-"):
            raise OptionError(f"unexpected argument {word!r}: options are written --name=value")
        name, equals, value = word.lstrip("-").partition("=")
        option = _BY_FLAG.get(name)
        if option is None:
            close = difflib.get_close_matches(name, _BY_FLAG, n=1)
            raise OptionError(f"unknown option --{name}" + (f"; did you mean --{close[0]}?" if close else ""))
        if not equals:
            if option.parse is _boolean:
                value = "true"
            elif rest:
                value = rest.pop(0)
            else:
                raise OptionError(f"--{name} needs a value: --{name}=...")
        found.append((name, value))
    return found


def _parse(option: Option, text: str, source: str) -> Any:
    try:
        return option.parse(text)
    except ValueError as error:
        raise OptionError(f"{source} has value {text!r}: {error}") from None


def describe_options() -> str:
    """Return the help of every option, one per line."""
    lines = []
    for option in OPTIONS:
        default = option.default
        if option.parse is _seconds:
            default = format_duration(default)
        elif isinstance(default, dict):
            default = ",".join(f"{gate}={str(on).lower()}" for gate, on in default.items())
        elif default is None:
            default = "none"
        elif isinstance(default, bool):
            default = str(default).lower()
        elif default == ():
            default = ""
        lines.append(f"  --{option.flag:<38} {option.help} [{option.env}; default {default!s}]")
    return "\n".join(lines)
