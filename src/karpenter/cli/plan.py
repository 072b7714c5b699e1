"""`karpenter plan`: which nodes these manifests need, offline: no cluster, no cloud, nothing is created."""

from typing import Any, BinaryIO, NamedTuple, TextIO

import msgspec
import yaml

from karpenter.apis import labels as known
from karpenter.apis.annotations import parse_usd
from karpenter.apis.karpenter import (
    NodeClaimTemplate,
    NodeClaimTemplateSpec,
    NodeClassRef,
    NodePool,
    NodePoolSpec,
    RequirementSpec,
)
from karpenter.apis.meta import ObjectMeta
from karpenter.base.clock import Clock
from karpenter.base.collector import uncollected
from karpenter.base.duration import parse_duration
from karpenter.cli.manifests import Unreadable
from karpenter.cli.planning.amounts import judge_amounts
from karpenter.cli.planning.catalogues import catalogue_named, in_zones
from karpenter.cli.planning.cluster import Ask, Catalogues, problem_of, snapshot_of
from karpenter.cli.planning.consolidating import Consolidating, Work, consolidation_of, searches_named
from karpenter.cli.planning.consolidationtable import write_consolidation
from karpenter.cli.planning.expansion import expand
from karpenter.cli.planning.inventory import Inventory
from karpenter.cli.planning.reading import is_scenario, read_inputs
from karpenter.cli.planning.report import Record, Report, Timing, report_of
from karpenter.cli.planning.scenario import add_scenario
from karpenter.cli.planning.spread import default_constraints, spread_by_default
from karpenter.cli.planning.table import write_table
from karpenter.cli.planning.whatif import priced
from karpenter.controllers.provisioning.demand import Demand
from karpenter.disruption.aftermath import Broken
from karpenter.model.instancetype import InstanceType
from karpenter.model.problem import Budget, Plan, Problem
from karpenter.model.snapshot import Snapshot
from karpenter.operator.options import OptionError, parse_options
from karpenter.scheduling import solve
from karpenter.scheduling.catalogue import compiled

PLANNED, UNSCHEDULABLE, REFUSED = 0, 1, 2
OUTPUTS = ("table", "json", "yaml")
DEFAULT_CATALOGUE = "ec2"
_MOST_TOLD = 50
_DETERMINISTIC_STEPS = 200
_EPOCH = 1_767_225_600.0


class PlanOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of the command, as they were written."""

    files: tuple[str, ...]
    instance_types: str = ""
    zones: str = ""
    preference_policy: str = ""
    min_values_policy: str = ""
    cluster_price_limit: str = ""
    expendable_below: int | None = None
    node_fee: str = "0.02"
    concentration_penalty: str = "0"
    max_node_cpu: str = ""
    scheduler_config: str = ""
    """A file, or YAML."""
    solve_budget: str = "1s"
    deterministic: bool = False
    exit_code: bool = False
    output: str = "table"
    consolidate: Consolidating | None = None
    """None: only plan for pods that wait."""


class Refused(Exception):
    """The command cannot be carried out as it is written; the message says why and what would do."""


class Question(NamedTuple):
    """What the files come to: a problem, and what is needed to tell of its answer."""

    problem: Problem
    demand: Demand
    catalogues: Catalogues
    inventory: Inventory
    ask: Ask
    """Puts the question again, about another cluster."""


def plan_command(options: PlanOptions, *, stdin: BinaryIO, out: TextIO, err: TextIO, clock: Clock) -> int:
    """Plan, print the plan to `out` and everything else to `err`; return the exit code.

    0 when a plan was made (1 with `--exit-code` when it leaves pods out), 2 when the input is no good.
    """
    try:
        question = question_of(options, stdin=stdin, err=err, clock=clock)
        plan, timing = _solved(options, question.problem, clock)
        _tell(question.inventory, plan, err)
        report = report_of(
            plan,
            question.problem.snapshot,
            question.demand,
            question.catalogues,
            timing,
            _usd(options.cluster_price_limit),
            priced(question.problem, plan),
        )
        if options.consolidate is not None:
            _consolidate(options, options.consolidate, question, plan, report, clock, out)
        else:
            _write(options, report, question.inventory, out)
    except (Unreadable, Refused, Broken) as error:
        err.write(f"karpenter plan: {error}\n")
        return REFUSED
    return UNSCHEDULABLE if options.exit_code and report.unschedulable else PLANNED


def _tell(inventory: Inventory, plan: Plan, err: TextIO) -> None:
    for wrong in plan.distrusted:
        err.write(f"note: a cheaper plan was dropped because it broke a rule: {wrong}\n")
    for note in inventory.notes[:_MOST_TOLD]:
        err.write(f"note: {note}\n")
    unread = inventory.unread()
    if unread:
        err.write(f"note: without meaning for a plan: {', '.join(unread)}\n")


def _consolidate(
    options: PlanOptions,
    wish: Consolidating,
    question: Question,
    plan: Plan,
    report: Report,
    clock: Clock,
    out: TextIO,
) -> None:
    """Carry `plan` out on paper, consolidate what is then there, print what that comes to."""
    found = consolidation_of(
        wish,
        question.problem,
        plan,
        report,
        Work(
            question.ask,
            question.catalogues,
            question.inventory.settings.spot_to_spot,
            Budget() if options.deterministic else Budget(seconds=parse_duration(wish.round_budget)),
        ),
        None if options.deterministic else clock,
    )
    if options.output == "table":
        write_consolidation(found, question.inventory, out)
    else:
        _dump(options, found, out)


def question_of(options: PlanOptions, *, stdin: BinaryIO, err: TextIO, clock: Clock) -> Question:
    """Return what the files ask; findings in them go to `err`.

    Raises:
        Unreadable: a file cannot be read, or is no catalogue where one is named.
        Refused: an option, or something in the files, is no good.
    """
    _check(options)
    constraints = default_constraints(options.scheduler_config)
    inventory = _read(options, stdin, err)
    catalogues = _catalogues(options, inventory, err)
    snapshot = snapshot_of(inventory, catalogues, _EPOCH if options.deterministic else clock.now())
    settings, tastes = inventory.settings, _tastes(options)

    def asked(about: Snapshot) -> tuple[Problem, Demand]:
        problem, demand = problem_of(
            about,
            catalogues,
            respect_preferences=(options.preference_policy or settings.preference_policy) != "Ignore",
            min_values_strict=(options.min_values_policy or settings.min_values_policy) != "BestEffort",
            reserved_capacity=settings.reserved_capacity,
            price_limit=_usd(options.cluster_price_limit),
            expendable_below=options.expendable_below,
        )
        pods = spread_by_default(inventory, problem.pods, constraints)
        chosen = msgspec.structs.replace(problem.options, **tastes)
        return msgspec.structs.replace(problem, pods=pods, options=chosen), demand

    problem, demand = asked(snapshot)
    return Question(problem, demand, catalogues, inventory, lambda about: asked(about)[0])


def _check(options: PlanOptions) -> None:
    """Raise Refused when an option has a value it cannot have."""
    for name, value, choices in (
        ("--preference-policy", options.preference_policy, ("Respect", "Ignore")),
        ("--min-values-policy", options.min_values_policy, ("Strict", "BestEffort")),
        ("--output", options.output, OUTPUTS),
    ):
        if value and value not in choices:
            raise Refused(f"{name} {value}: want one of {', '.join(choices)}")
    if not options.files:
        raise Refused("nothing to plan: name files or folders with -f, or - for standard input")
    _seconds("--solve-budget", options.solve_budget)
    _usd(options.cluster_price_limit)
    _tastes(options)
    if options.consolidate is not None:
        _seconds("--round-budget", options.consolidate.round_budget)
        try:
            searches_named(options.consolidate.methods)
        except ValueError as error:
            raise Refused(f"--consolidation-methods: {error}") from error


def _tastes(options: PlanOptions) -> dict[str, Any]:
    """Return the solver's options that say which of the possible nodes are liked."""
    texts = {
        "node-fee": options.node_fee,
        "concentration-penalty": options.concentration_penalty,
        "max-node-cpu": options.max_node_cpu,
    }
    try:
        parsed = parse_options([f"--{name}={text}" for name, text in texts.items()], {})
    except OptionError as error:
        raise Refused(str(error)) from error
    return {
        "node_fee": parsed.node_fee,
        "concentration_penalty": parsed.concentration_penalty,
        "max_node_cpu": parsed.max_node_cpu,
    }


def _usd(text: str) -> int | None:
    try:
        return parse_usd(text) if text else None
    except ValueError as error:
        raise Refused(f"--cluster-price-limit {text}: {error}") from error


def _seconds(option: str, text: str) -> float:
    try:
        seconds = parse_duration(text)
    except ValueError:
        seconds = -1.0
    if seconds < 0:
        raise Refused(f"{option} {text}: want a duration of 0s or more, e.g. 1s")
    return seconds


def _read(options: PlanOptions, stdin: BinaryIO, err: TextIO) -> Inventory:
    """Return what the files contain.

    Raises:
        Unreadable: when a file cannot be read.
        Refused: when something in them is wrong; it has been told by then.
    """
    inventory = Inventory()
    count = 0
    for document in read_inputs(options.files, stdin):
        count += 1
        if is_scenario(document.obj):
            add_scenario(inventory, document)
        else:
            inventory.add(document)
    inventory.settle()
    if not any(f.severity == "error" for f in inventory.findings):
        expand(inventory)
        judge_amounts(inventory)
    findings = sorted(inventory.findings, key=lambda f: (f.severity, f.file, f.line, f.field, f.problem))
    for found in findings[:_MOST_TOLD]:
        err.write(f"{found}\n")
    if len(findings) > _MOST_TOLD:
        err.write(f"... and {len(findings) - _MOST_TOLD} more\n")
    errors = sum(f.severity == "error" for f in findings)
    if errors:
        raise Refused(f"{errors} error{'s' if errors > 1 else ''} in {count} objects; nothing is planned")
    return inventory


def _catalogues(options: PlanOptions, inventory: Inventory, err: TextIO) -> Catalogues:
    """Return what each pool can buy; without a pool, make one and say so."""
    types: tuple[InstanceType, ...]
    if options.instance_types or inventory.instance_types is None:
        types = catalogue_named(options.instance_types or DEFAULT_CATALOGUE)
    else:
        types = inventory.instance_types
    if options.zones:
        types = in_zones(types, [zone for zone in options.zones.split(",") if zone])
    if not inventory.pools and not inventory.pools_given:
        pool = default_pool()
        inventory.pools[pool.name] = pool
        err.write("note: no NodePool is given: planning with a default one (linux, amd64, on-demand)\n")
    found = {}
    for name in sorted(inventory.pools):
        only = inventory.pool_types.get(name)
        found[name] = types if only is None else tuple(t for t in types if t.name in set(only))
    return found


def default_pool() -> NodePool:
    """Return the pool that is used when none is given: any on-demand machine with linux on amd64."""
    wanted = {known.OS: "linux", known.ARCH: "amd64", known.CAPACITY_TYPE: known.CAPACITY_ON_DEMAND}
    reference = NodeClassRef(group="karpenter.kwok.sh", kind="KWOKNodeClass", name="default")
    spec = NodeClaimTemplateSpec(
        requirements=[RequirementSpec(key=k, operator="In", values=[v]) for k, v in sorted(wanted.items())],
        node_class_ref=reference,
    )
    return NodePool(
        api_version="karpenter.sh/v1",
        kind="NodePool",
        metadata=ObjectMeta(name="default", uid="nodepool/default"),
        spec=NodePoolSpec(template=NodeClaimTemplate(spec=spec)),
    )


def _solved(options: PlanOptions, problem: Problem, clock: Clock) -> tuple[Plan, Timing]:
    """Compile, make a first complete plan, improve it within the budget; time each."""
    started = clock.monotonic()
    for offer in problem.pools:
        compiled(offer.instance_types)
    prepared = clock.monotonic()
    seconds = _seconds("--solve-budget", options.solve_budget)
    budget = Budget(steps=_DETERMINISTIC_STEPS) if options.deterministic else Budget(seconds=seconds)
    watch = _Watch(clock)
    try:
        with uncollected():
            plan = solve(problem, budget, monotonic=watch.read)
    except ValueError as error:
        raise Refused(f"the problem cannot be solved as it is written: {error}") from error
    improved = clock.monotonic()
    solved = watch.second or improved
    if options.deterministic:
        return plan, Timing(compile_seconds=None, solve_seconds=None, improve_seconds=None)
    return plan, Timing(
        compile_seconds=round(prepared - started, 6),
        solve_seconds=round(solved - prepared, 6),
        improve_seconds=round(improved - solved, 6),
    )


class _Watch:
    """A clock that remembers when it was read for the second time: when the search had its first plan."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._reads = 0
        self.second = 0.0

    def read(self) -> float:
        """Return seconds on the clock."""
        now = self._clock.monotonic()
        self._reads += 1
        if self._reads == 2:
            self.second = now
        return now


def _write(options: PlanOptions, report: Report, inventory: Inventory, out: TextIO) -> None:
    if options.output == "table":
        write_table(report, inventory, out)
    else:
        _dump(options, report, out)


def _dump(options: PlanOptions, record: Record, out: TextIO) -> None:
    if options.output == "json":
        out.write(msgspec.json.format(msgspec.json.encode(record), indent=2).decode() + "\n")
    else:
        yaml.safe_dump(msgspec.to_builtins(record), out, sort_keys=False, width=110)
