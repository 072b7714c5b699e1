"""`--scheduler-config`: what is accepted, and how clearly the rest is refused."""

import json

import pytest

from karpenter.apis.core import TopologySpreadConstraint
from karpenter.operator.options import OptionError, describe_options, parse_options
from karpenter.operator.schedulerconfig import parse_scheduler_config

ZONE = "topology.kubernetes.io/zone"
PATH = "podTopologySpread.defaultConstraints"
GOOD = {"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule"}


def config(*constraints: object) -> str:
    """Return a configuration with these constraints, as JSON, which is YAML too."""
    return json.dumps({"podTopologySpread": {"defaultConstraints": constraints}})


@pytest.mark.parametrize("text", ["", "{}", "# nothing\n", "podTopologySpread: {}", config()])
def test_nothing_asked_for_is_nothing(text: str) -> None:
    """An empty configuration, at whatever depth, has no constraints."""
    assert parse_scheduler_config(text) == ()


def test_constraints_are_read_in_their_order() -> None:
    """From YAML as from JSON, with the optional fields."""
    text = f"""
podTopologySpread:
  defaultConstraints:
  - maxSkew: 3
    topologyKey: {ZONE}
    whenUnsatisfiable: DoNotSchedule
    minDomains: 2
    nodeAffinityPolicy: Ignore
    nodeTaintsPolicy: Honor
  - {{maxSkew: 5, topologyKey: kubernetes.io/hostname, whenUnsatisfiable: ScheduleAnyway}}
"""
    assert parse_scheduler_config(text) == (
        TopologySpreadConstraint(
            max_skew=3,
            topology_key=ZONE,
            when_unsatisfiable="DoNotSchedule",
            min_domains=2,
            node_affinity_policy="Ignore",
            node_taints_policy="Honor",
        ),
        TopologySpreadConstraint(
            max_skew=5, topology_key="kubernetes.io/hostname", when_unsatisfiable="ScheduleAnyway"
        ),
    )


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("[", "not YAML: line 2"),
        ("a: 1\na: 2", "line 2: a is there twice"),
        ("text", "the document: want a mapping, not text"),
        ("podTopologySpred: {}", "podTopologySpred: unknown field; did you mean podTopologySpread?"),
        ("podTopologySpread: []", "podTopologySpread: want a mapping, not a list"),
        (
            "podTopologySpread: {defaultingType: List}",
            "podTopologySpread.defaultingType: unknown field; known: defaultConstraints",
        ),
        ("podTopologySpread: {defaultConstraints: {}}", f"{PATH}: want a list, not a mapping"),
        (config(GOOD, "x"), f"{PATH}[1]: want a mapping, not text"),
        (config({**GOOD, "maxSkew": 0}), f"{PATH}[0].maxSkew: want a whole number above 0, not 0"),
        (config({**GOOD, "maxSkew": True}), f"{PATH}[0].maxSkew: want a whole number above 0, not True"),
        (config({**GOOD, "maxSkew": "1"}), f"{PATH}[0].maxSkew: want a whole number above 0, not '1'"),
        (config({**GOOD, "topologyKey": ""}), f"{PATH}[0].topologyKey: want a label key, not ''"),
        (config({**GOOD, "topologyKey": "a b"}), f"{PATH}[0].topologyKey: want a label key, this is not"),
        (
            config(GOOD, {"maxSkew": 1, "topologyKey": "a"}),
            f"{PATH}[1].whenUnsatisfiable: want DoNotSchedule or ScheduleAnyway, not None",
        ),
        (
            config({**GOOD, "labelSelector": {"matchLabels": {"a": "b"}}}),
            f"{PATH}[0].labelSelector: must not",
        ),
        (config({**GOOD, "matchLabelKeys": ["a"]}), f"{PATH}[0].matchLabelKeys: must not be set"),
        (config({**GOOD, "maxSkw": 1}), f"{PATH}[0].maxSkw: unknown field; did you mean maxSkew?"),
        (config({**GOOD, "minDomains": -1}), f"{PATH}[0].minDomains: want a whole number above 0, not -1"),
        (
            config({**GOOD, "minDomains": 2, "whenUnsatisfiable": "ScheduleAnyway"}),
            f"{PATH}[0].minDomains: goes with whenUnsatisfiable DoNotSchedule only",
        ),
        (
            config({**GOOD, "nodeTaintsPolicy": "Maybe"}),
            f"{PATH}[0].nodeTaintsPolicy: want Honor or Ignore, not 'Maybe'",
        ),
        (
            config(GOOD, {**GOOD, "maxSkew": 2}),
            f"{PATH}: topologyKey {ZONE} with whenUnsatisfiable DoNotSchedule is there twice",
        ),
    ],
)
def test_what_is_wrong_is_named_with_its_path(text: str, error: str) -> None:
    """Unknown, missing, doubled, forbidden, out of range, or of another type."""
    with pytest.raises(ValueError) as caught:
        parse_scheduler_config(text)
    assert error in str(caught.value)


def test_everything_wrong_is_told_at_once() -> None:
    """One start is enough to see all mistakes."""
    with pytest.raises(ValueError, match=r"\[0\].maxSkew: .*; .*\[1\].topologyKey: ") as caught:
        parse_scheduler_config(config({**GOOD, "maxSkew": 0}, {**GOOD, "topologyKey": None}))
    assert str(caught.value).count(PATH) == 2


def test_the_option_is_read_at_start() -> None:
    """From flag or environment; a mistake ends the start, naming option and path."""
    assert parse_options([], {}).scheduler_config == ()
    assert len(parse_options([], {"SCHEDULER_CONFIG": config(GOOD)}).scheduler_config) == 1
    with pytest.raises(OptionError, match=r"--scheduler-config has value .*\[0\].maxSkew"):
        parse_options([f"--scheduler-config={config({**GOOD, 'maxSkew': 0})}"], {})
    assert "[SCHEDULER_CONFIG; default ]" in describe_options()
