"""Options: upstream's names and defaults, and clear refusals."""

import pytest

from karpenter.operator.assembly import settings_of
from karpenter.operator.options import (
    FEATURE_GATES,
    OPTIONS,
    OptionError,
    describe_options,
    parse_options,
)


def test_nothing_set_means_upstreams_defaults() -> None:
    """Without flags and environment, every option has upstream's default."""
    options = parse_options([], {})
    assert (options.metrics_port, options.health_probe_port) == (8080, 8081)
    assert (options.kube_client_qps, options.kube_client_burst) == (200, 300)
    assert (options.batch_max_duration, options.batch_idle_duration) == (10.0, 1.0)
    assert options.leader_election_name == "karpenter-leader-election"
    assert options.feature_gates == FEATURE_GATES
    assert options.preference_policy == "Respect"
    assert options.ignore_dra_requests is True


def test_a_flag_beats_the_environment_which_beats_the_default() -> None:
    """The three sources rank as upstream's do."""
    environ = {"METRICS_PORT": "9000", "BATCH_IDLE_DURATION": "2s"}
    options = parse_options(["--metrics-port=9001"], environ)
    assert options.metrics_port == 9001
    assert options.batch_idle_duration == 2.0
    assert options.health_probe_port == 8081


@pytest.mark.parametrize(
    "arguments",
    [["--disable-leader-election"], ["--disable-leader-election=true"], ["-disable-leader-election"]],
)
def test_boolean_flags_may_stand_alone(arguments: list[str]) -> None:
    """As in Go, a boolean flag without a value is true, and one dash is as good as two."""
    assert parse_options(arguments, {}).disable_leader_election is True


def test_values_may_follow_after_a_space() -> None:
    """`--flag value` is `--flag=value`."""
    assert parse_options(["--log-level", "debug"], {}).log_level == "debug"


@pytest.mark.parametrize(
    ("text", "changed"),
    [
        ("SpotToSpotConsolidation\t= true", {"SpotToSpotConsolidation": True}),
        ("NodeRepair=true,ReservedCapacity=false", {"NodeRepair": True, "ReservedCapacity": False}),
        ("SomethingNew=true", {}),
        ("", {}),
    ],
)
def test_feature_gates_keep_defaults_of_what_is_not_listed(text: str, changed: dict[str, bool]) -> None:
    """Gates come as NAME=bool pairs; spaces are allowed, unknown names ignored."""
    assert parse_options([f"--feature-gates={text}"], {}).feature_gates == {**FEATURE_GATES, **changed}


@pytest.mark.parametrize(("given", "used"), [("2000", 2000), ("0", 1000), ("-50", 1000)])
def test_cpu_requests_that_say_nothing_count_as_one_core(given: str, used: int) -> None:
    """Zero or less stands for the default of one core."""
    assert parse_options([], {"CPU_REQUESTS": given}).cpu_requests == used


@pytest.mark.parametrize(
    ("arguments", "environ", "message"),
    [
        (["--metrics-prot=1"], {}, "unknown option --metrics-prot; did you mean --metrics-port?"),
        (["--metrics-port=x"], {}, "--metrics-port has value 'x': want a whole number"),
        (["--metrics-port"], {}, "--metrics-port needs a value"),
        (["metrics-port"], {}, "unexpected argument 'metrics-port'"),
        (["--enable-profiling=1"], {}, "want true or false"),
        (["--log-level=loud"], {}, "want one of"),
        ([], {"PREFERENCE_POLICY": "Maybe"}, "environment variable PREFERENCE_POLICY has value 'Maybe'"),
        ([], {"BATCH_MAX_DURATION": "10"}, "is not a duration"),
        ([], {"BATCH_MAX_DURATION": "-1s"}, "zero or more"),
        ([], {"FEATURE_GATES": "NodeRepair"}, "want NAME=true or NAME=false"),
    ],
)
def test_bad_options_are_refused_with_name_value_and_fix(
    arguments: list[str], environ: dict[str, str], message: str
) -> None:
    """A bad option stops the start, whichever way it came."""
    with pytest.raises(OptionError) as refused:
        parse_options(arguments, environ)
    assert message in str(refused.value)


def test_help_names_every_option_with_its_variable() -> None:
    """`karpenter run --help` lists each flag, its environment variable and its default."""
    text = describe_options()
    assert all(f"--{option.flag}" in text and option.env in text for option in OPTIONS)
    assert "default 10s" in text


def test_nodes_may_take_as_long_as_they_like_to_start_unless_told_otherwise() -> None:
    """The initialization timeout is off by default, and a duration."""
    assert settings_of(parse_options([], {})).initialization_timeout is None
    options = parse_options(["--initialization-timeout=45m"], {})
    assert settings_of(options).initialization_timeout == 2700.0


def test_tastes_about_nodes_are_read_in_dollars_and_cores() -> None:
    """Fee and penalty are USD per hour, the ceiling is cores; what makes no sense is refused by name."""
    options = parse_options(["--node-fee=0.05", "--concentration-penalty", "0.1", "--max-node-cpu=64"], {})
    assert (options.node_fee, options.concentration_penalty, options.max_node_cpu) == (0.05, 0.1, 64_000)
    plain = parse_options([], {})
    assert (plain.node_fee, plain.concentration_penalty, plain.max_node_cpu) == (0.02, 0.0, None)
    for flag, value in (("node-fee", "cheap"), ("max-node-cpu", "0"), ("max-node-cpu", "big")):
        with pytest.raises(OptionError, match=flag):
            parse_options([f"--{flag}={value}"], {})
