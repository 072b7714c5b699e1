"""`karpenter`: run, up, plan, why, validate, version. Each command imports what it needs when called."""

import sys
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(
    name="karpenter",
    help="A Kubernetes node autoscaler with Karpenter's API that explains every decision.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


@app.command(
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []},
    help="Run the operator against a cluster (kubeconfig or in-cluster); --help lists its options.",
)
def run(context: typer.Context) -> None:
    """Run the operator; its options are upstream's (`karpenter run --help`)."""
    from karpenter.cli.run import run_operator

    raise typer.Exit(run_operator(context.args))


@app.command()
def up(
    manifests: Annotated[
        list[Path] | None,
        typer.Option(help="Files or folders to apply at the start (default: the tutorial's)."),
    ] = None,
    script: Annotated[str, typer.Option(help="Steps to drive: `tutorial`, or a YAML file of steps.")] = "",
    exit_when_settled: Annotated[
        bool,
        typer.Option("--exit-when-settled", help="End when the script is done, if any, and nothing changes."),
    ] = False,
    state: Annotated[Path | None, typer.Option(help="Keep the cluster in this file across restarts.")] = None,
    kubeconfig: Annotated[Path, typer.Option(help="Where to write the kubeconfig for kubectl.")] = Path(
        ".karpenter/kubeconfig"
    ),
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port of the API server on 127.0.0.1 (0: any free one).")
    ] = 0,
    cloud_provider: Annotated[str, typer.Option(help="Which cloud to use.")] = "kwok",
    instance_types_file_path: Annotated[
        str, typer.Option(help="Instance types in upstream's JSON format instead of the EC2 catalogue.")
    ] = "",
    seed: Annotated[int | None, typer.Option(help="Draw names and delays from this seed.")] = None,
    plain: Annotated[bool, typer.Option("--plain", help="Print lines instead of the live view.")] = False,
) -> None:
    """Start a cluster in this process with the operator in it, and watch it scale itself."""
    from karpenter.cli.up.command import UpOptions, up_command

    raise typer.Exit(
        up_command(
            UpOptions(
                manifests=tuple(manifests or ()),
                script=script,
                exit_when_settled=exit_when_settled,
                state=state,
                kubeconfig=kubeconfig,
                port=port,
                cloud_provider=cloud_provider,
                instance_types_file_path=instance_types_file_path,
                seed=seed,
                plain=plain or not sys.stdout.isatty(),
            )
        )
    )


@app.command()
def plan(
    files: Annotated[
        list[str] | None,
        typer.Option("--filename", "-f", help="YAML or JSON files, scenario files, folders; - is stdin."),
    ] = None,
    more: Annotated[list[str] | None, typer.Argument(help="More files.", metavar="[FILES]...")] = None,
    instance_types: Annotated[
        str,
        typer.Option(help="Catalogue: ec2 (default), generic, or a file (upstream's or a scenario's)."),
    ] = "",
    zones: Annotated[str, typer.Option(help="Buy in these zones only, by commas.")] = "",
    preference_policy: Annotated[str, typer.Option(help="Respect (default) or Ignore.")] = "",
    min_values_policy: Annotated[str, typer.Option(help="Strict (default) or BestEffort.")] = "",
    cluster_price_limit: Annotated[
        str, typer.Option(help="Most that all nodes may cost, USD per hour, e.g. 12.50.")
    ] = "",
    expendable_pods_priority_cutoff: Annotated[
        int | None, typer.Option(help="Buy nothing for pods of lower priority.")
    ] = None,
    node_fee: Annotated[
        str, typer.Option(help="What a new node counts besides its price, USD per hour.")
    ] = "0.02",
    concentration_penalty: Annotated[
        str, typer.Option(help="What a new node of all pods that are alike counts, USD per hour.")
    ] = "0",
    max_node_cpu: Annotated[str, typer.Option(help="Most cores that a new node may have, e.g. 64.")] = "",
    scheduler_config: Annotated[
        str, typer.Option(help="Default topology spread constraints: a file, or YAML.")
    ] = "",
    solve_budget: Annotated[str, typer.Option(help="Longest time to search for a cheaper plan.")] = "1s",
    deterministic: Annotated[
        bool, typer.Option("--deterministic", help="Count steps, not seconds: same input, same bytes.")
    ] = False,
    exit_code: Annotated[
        bool, typer.Option("--exit-code", help="Return 1 when the plan leaves pods out.")
    ] = False,
    output: Annotated[str, typer.Option("--output", "-o", help="table, json or yaml.")] = "table",
    consolidate: Annotated[
        bool, typer.Option("--consolidate", help="Then say what consolidation would do, command by command.")
    ] = False,
    consolidation_methods: Annotated[
        str, typer.Option(help="With --consolidate: which methods, by commas, in their order.")
    ] = "",
    free_moves: Annotated[
        bool,
        typer.Option("--free-moves", help="With --consolidate: put budgets aside, and what restarts cost."),
    ] = False,
    no_provision: Annotated[
        bool, typer.Option("--no-provision", help="With --consolidate: leave waiting pods alone.")
    ] = False,
    max_commands: Annotated[
        int | None, typer.Option(min=1, help="With --consolidate: stop after so many commands.")
    ] = None,
    round_budget: Annotated[
        str, typer.Option(help="With --consolidate: longest time to look for one command.")
    ] = "1m",
) -> None:
    """Say which nodes these manifests need and what they cost, without a cluster."""
    from karpenter.base.clock import SystemClock
    from karpenter.cli.plan import PlanOptions, plan_command
    from karpenter.cli.planning.consolidating import Consolidating

    consolidating = Consolidating(
        methods=tuple(name for name in consolidation_methods.split(",") if name),
        free_moves=free_moves,
        provision=not no_provision,
        most_commands=max_commands,
        round_budget=round_budget,
    )

    options = PlanOptions(
        files=(*(files or ()), *(more or ())),
        instance_types=instance_types,
        zones=zones,
        preference_policy=preference_policy,
        min_values_policy=min_values_policy,
        cluster_price_limit=cluster_price_limit,
        expendable_below=expendable_pods_priority_cutoff,
        node_fee=node_fee,
        concentration_penalty=concentration_penalty,
        max_node_cpu=max_node_cpu,
        scheduler_config=scheduler_config,
        solve_budget=solve_budget,
        deterministic=deterministic,
        exit_code=exit_code,
        output=output,
        consolidate=consolidating if consolidate else None,
    )
    raise typer.Exit(
        plan_command(options, stdin=sys.stdin.buffer, out=sys.stdout, err=sys.stderr, clock=SystemClock())
    )


@app.command()
def why(
    kind: Annotated[str, typer.Argument(metavar="KIND", help="pod, node, nodepool or nodeclaim.")],
    name: Annotated[str, typer.Argument(metavar="NAME", help="Its name.")],
    namespace: Annotated[
        str, typer.Option("--namespace", "-n", help="Of a pod (default: the kubeconfig's).")
    ] = "",
    output: Annotated[str, typer.Option("--output", "-o", help="text or json.")] = "text",
    kubeconfig: Annotated[str, typer.Option(help="Where the cluster is, as for kubectl.")] = "",
    context: Annotated[str, typer.Option(help="Which context of the kubeconfig.")] = "",
    operator_namespace: Annotated[
        str, typer.Option(help="Where the operator's pod and Lease are.")
    ] = "kube-system",
    lease: Annotated[
        str, typer.Option(help="The operator's Lease, NAME or NAMESPACE/NAME.")
    ] = "karpenter-leader-election",
    port: Annotated[int, typer.Option(min=1, max=65535, help="The operator's --metrics-port.")] = 8080,
    address: Annotated[
        str, typer.Option(help="Ask the operator itself there, e.g. http://127.0.0.1:8080.")
    ] = "",
) -> None:
    """Ask a running operator why something is as it is, and what would change it."""
    import os

    from karpenter.base.clock import SystemClock
    from karpenter.cli.why import WhyOptions, why_command

    options = WhyOptions(
        kind=kind,
        name=name,
        namespace=namespace,
        output=output,
        kubeconfig=kubeconfig,
        context=context,
        operator_namespace=operator_namespace,
        lease=lease,
        port=port,
        address=address,
    )
    raise typer.Exit(
        why_command(options, out=sys.stdout, err=sys.stderr, clock=SystemClock(), environ=os.environ)
    )


@app.command()
def validate(
    files: Annotated[list[str], typer.Option("--filename", "-f", help="YAML or JSON files, or folders.")],
    provider: Annotated[
        str, typer.Option(help="Instance types to check requirements against: ec2, generic, or none.")
    ] = "ec2",
    output: Annotated[str, typer.Option("--output", "-o", help="text or json.")] = "text",
) -> None:
    """Check manifests as the API server and the controllers would, and look for mistakes beyond that."""
    from karpenter.cli.validate import validate_files

    raise typer.Exit(
        validate_files(
            files, provider=None if provider == "none" else provider, out=sys.stdout, output=output
        )
    )


@app.command()
def version() -> None:
    """Print the version."""
    from karpenter import __version__

    typer.echo(f"karpenter {__version__}")
