"""`--scheduler-config`: how pods spread that do not say so themselves, as kube-scheduler is told it.

    podTopologySpread:
      defaultConstraints:
      - {maxSkew: 1, topologyKey: topology.kubernetes.io/zone, whenUnsatisfiable: ScheduleAnyway}

Read strictly: what is not known, doubled or of another type is an error that says where it is.
"""

import difflib
from collections.abc import Callable, Hashable, Iterable
from typing import Any

import yaml

from karpenter.apis.core import TopologySpreadConstraint
from karpenter.apis.nodepool_validation import qualified_name

_PLUGIN = "podTopologySpread"
_LIST = "defaultConstraints"
_WHEN = ("DoNotSchedule", "ScheduleAnyway")
_POLICIES = ("Honor", "Ignore")
_FORBIDDEN = {
    "labelSelector": "it is deduced from the Services and the controller of each pod",
    "matchLabelKeys": "the selector is deduced from the Services and the controller of each pod",
}


def parse_scheduler_config(text: str) -> tuple[TopologySpreadConstraint, ...]:
    """Return the default topology spread constraints that `text`, YAML or JSON, asks for.

    Raises:
        ValueError: with everything that is wrong, each with its path.
    """
    try:
        document = yaml.load(text, Loader=_Strict)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"line {mark.line + 1}: " if mark else ""
        raise ValueError(f"not YAML: {where}{getattr(error, 'problem', None) or error}") from error
    if document is None:
        return ()
    problems: list[str] = []
    plugin = _mapping(document, "", (_PLUGIN,), problems).get(_PLUGIN)
    constraints = _mapping(plugin, _PLUGIN, (_LIST,), problems).get(_LIST) if plugin is not None else None
    path = f"{_PLUGIN}.{_LIST}"
    if constraints is not None and not isinstance(constraints, list):
        problems.append(f"{path}: want a list, not {_type(constraints)}")
        constraints = None
    found = [
        constraint
        for i, each in enumerate(constraints or ())
        if (constraint := _constraint(each, f"{path}[{i}]", problems)) is not None
    ]
    problems += _repeated(found, path)
    if problems:
        raise ValueError("; ".join(problems))
    return tuple(found)


def _constraint(raw: Any, path: str, problems: list[str]) -> TopologySpreadConstraint | None:
    """Return one constraint; None when something about it is wrong."""
    before = len(problems)
    fields = _mapping(raw, path, (*_FIELDS, *_FORBIDDEN), problems)
    for name, why in _FORBIDDEN.items():
        if fields.get(name):
            problems.append(f"{path}.{name}: must not be set: {why}")
    if len(problems) == before:
        for name, check in _FIELDS.items():
            if problem := check(fields.get(name)):
                problems.append(f"{path}.{name}: {problem}, not {fields.get(name)!r}")
    if fields.get("minDomains") is not None and fields.get("whenUnsatisfiable") == "ScheduleAnyway":
        problems.append(f"{path}.minDomains: goes with whenUnsatisfiable DoNotSchedule only")
    if len(problems) > before:
        return None
    return TopologySpreadConstraint(
        max_skew=fields["maxSkew"],
        topology_key=fields["topologyKey"],
        when_unsatisfiable=fields["whenUnsatisfiable"],
        min_domains=fields.get("minDomains"),
        node_affinity_policy=fields.get("nodeAffinityPolicy"),
        node_taints_policy=fields.get("nodeTaintsPolicy"),
    )


def _repeated(constraints: Iterable[TopologySpreadConstraint], path: str) -> list[str]:
    seen: set[tuple[str, str]] = set()
    problems = []
    for constraint in constraints:
        pair = (constraint.topology_key, constraint.when_unsatisfiable)
        if pair in seen:
            problems.append(f"{path}: topologyKey {pair[0]} with whenUnsatisfiable {pair[1]} is there twice")
        seen.add(pair)
    return problems


# --- values ---------------------------------------------------------------------------------------------


def _positive(value: Any) -> str:
    whole = isinstance(value, int) and not isinstance(value, bool)
    return "" if whole and value > 0 else "want a whole number above 0"


def _label_key(value: Any) -> str:
    if not isinstance(value, str) or not value:
        return "want a label key"
    errors = qualified_name(value, "")
    return f"want a label key, this {errors[0].message}" if errors else ""


def _one_of(*choices: str) -> Callable[[Any], str]:
    return lambda value: "" if value in choices else f"want {' or '.join(choices)}"


def _optional(check: Callable[[Any], str]) -> Callable[[Any], str]:
    return lambda value: "" if value is None else check(value)


_FIELDS: dict[str, Callable[[Any], str]] = {
    "maxSkew": _positive,
    "topologyKey": _label_key,
    "whenUnsatisfiable": _one_of(*_WHEN),
    "minDomains": _optional(_positive),
    "nodeAffinityPolicy": _optional(_one_of(*_POLICIES)),
    "nodeTaintsPolicy": _optional(_one_of(*_POLICIES)),
}
"""What each field must be: functions that return what they want when it is not."""


def _mapping(raw: Any, path: str, known: tuple[str, ...], problems: list[str]) -> dict[str, Any]:
    """Return `raw` when it is a mapping, noting keys that are not `known`."""
    if not isinstance(raw, dict):
        problems.append(f"{path or 'the document'}: want a mapping, not {_type(raw)}")
        return {}
    for key in raw:
        if key not in known:
            close = difflib.get_close_matches(str(key), known, n=1)
            hint = f"did you mean {close[0]}?" if close else f"known: {', '.join(known)}"
            problems.append(f"{path}.{key}: unknown field; {hint}".lstrip("."))
    return raw


def _type(value: Any) -> str:
    return {"NoneType": "nothing", "str": "text", "list": "a list", "dict": "a mapping"}.get(
        type(value).__name__, repr(value)
    )


class _Strict(yaml.CSafeLoader):
    """Refuses a key that is given twice; plain YAML would take the last."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[Any] = set()
        for key_node, _ in node.value:
            if isinstance(key_node, yaml.ScalarNode):
                if key_node.value in seen:
                    raise yaml.constructor.ConstructorError(
                        None, None, f"{key_node.value} is there twice", key_node.start_mark
                    )
                seen.add(key_node.value)
        return super().construct_mapping(node, deep=deep)
