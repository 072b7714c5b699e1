"""`karpenter why`: asks the operator that leads, through the API server, why something is as it is."""

import asyncio
from collections.abc import Mapping
from typing import NamedTuple, TextIO
from urllib.parse import quote

import msgspec

from karpenter.apis.workloads import Lease
from karpenter.base.clock import Clock
from karpenter.explain.answer import KINDS, Answer, Problem, kind_of
from karpenter.explain.text import answer_text
from karpenter.kube.client import Client
from karpenter.kube.config import ClientConfig, ConfigError, load_config
from karpenter.kube.errors import ApiError, Forbidden, NotFound, error_of
from karpenter.kube.http import HttpTransport
from karpenter.kube.transport import Response, Transport, TransportError

ANSWERED, UNREACHABLE, MISTAKEN = 0, 1, 2


class WhyOptions(NamedTuple):
    """What the command line said."""

    kind: str
    name: str
    namespace: str
    """Of a pod; empty: the kubeconfig's."""
    output: str
    kubeconfig: str
    context: str
    operator_namespace: str
    lease: str
    """`NAME`, or `NAMESPACE/NAME` where it is not where the operator is."""
    port: int
    address: str
    """Where the operator itself is to be asked, without API server; empty: through it."""


class Unanswered(Exception):
    """There is no answer; the message says why, and what to do."""

    def __init__(self, message: str, code: int = UNREACHABLE) -> None:
        super().__init__(message)
        self.code = code


def why_command(
    options: WhyOptions, *, out: TextIO, err: TextIO, clock: Clock, environ: Mapping[str, str]
) -> int:
    """Print the answer; return 0, 1 when nobody could be asked, 2 for what cannot be asked."""
    try:
        _check(options)
        config = _config(options, environ)
        return asyncio.run(_run(options, config, out, clock))
    except (Unanswered, ConfigError) as error:
        print(f"karpenter why: {error}", file=err)
        return error.code if isinstance(error, Unanswered) else MISTAKEN


def _check(options: WhyOptions) -> None:
    if kind_of(options.kind) is None:
        raise Unanswered(f"KIND {options.kind!r} is none of {', '.join(KINDS)}", MISTAKEN)
    if options.output not in ("text", "json"):
        raise Unanswered(f"--output {options.output!r} is neither text nor json", MISTAKEN)
    if not options.name or "/" in options.name:
        raise Unanswered(f"NAME {options.name!r} is not a name (a pod's namespace goes to -n)", MISTAKEN)
    if options.address and not options.address.startswith(("http://", "https://")):
        raise Unanswered(f"--address {options.address!r} is no URL: want http://HOST:PORT", MISTAKEN)


def _config(options: WhyOptions, environ: Mapping[str, str]) -> ClientConfig:
    if options.address:
        return ClientConfig(server=options.address.rstrip("/"))
    return load_config(options.kubeconfig or None, environ=environ, context=options.context or None)


async def _run(options: WhyOptions, config: ClientConfig, out: TextIO, clock: Clock) -> int:
    options = options._replace(namespace=options.namespace or config.namespace)
    transport = HttpTransport(config, clock=clock)
    try:
        body = await ask(options, transport)
    finally:
        await transport.close()
    if options.output == "json":
        print(msgspec.json.format(body, indent=2).decode(), file=out)
    else:
        print(answer_text(msgspec.json.decode(body, type=Answer)), file=out)
    return ANSWERED


async def ask(options: WhyOptions, transport: Transport) -> bytes:
    """Return the answer as the operator gives it.

    Raises:
        Unanswered: when there is none.
    """
    kind, query = kind_of(options.kind) or options.kind, {}
    if kind == "pod":
        query = {"namespace": options.namespace or "default"}
    path = f"/why/{kind}/{quote(options.name)}"
    try:
        if options.address:
            return _body(await transport.request("GET", path, query=query))
        return await _through_api_server(options, transport, path, query)
    except TransportError as error:
        raise Unanswered(f"no answer: {error}") from error


async def _through_api_server(
    options: WhyOptions, transport: Transport, path: str, query: dict[str, str]
) -> bytes:
    pod, renewed = await leader(options, transport)
    namespace = options.operator_namespace
    url = f"/api/v1/namespaces/{namespace}/pods/{pod}:{options.port}/proxy{path}"
    response = await transport.request("GET", url, query=query)
    if response.status < 400 or _problem(response) is not None:
        return _body(response)
    error = error_of(response.status, response.body)
    if isinstance(error, Forbidden):
        raise Unanswered(
            f"{error.message}; you need the verb get on pods/proxy in namespace {namespace} "
            "(docs/why.md has a Role)"
        )
    if isinstance(error, NotFound):
        raise Unanswered(
            f"Lease {options.lease} is held by {pod!r}, which is no pod of namespace {namespace}: ask an "
            f"operator outside of the cluster with --address http://HOST:PORT (its --metrics-port){renewed}"
        )
    raise Unanswered(
        f"pod {namespace}/{pod} leads, and does not answer on port {options.port}: {error.message} "
        f"(--port is the operator's --metrics-port; 0 there turns answers off){renewed}"
    )


async def leader(options: WhyOptions, transport: Transport) -> tuple[str, str]:
    """Return the name of the pod that holds the Lease, and when it was renewed last, in words.

    Raises:
        Unanswered: when nobody does, or that may not be read.
    """
    namespace, _, name = options.lease.rpartition("/")
    namespace = namespace or options.operator_namespace
    try:
        lease = await Client(transport).get(Lease, name, namespace)
    except NotFound:
        raise Unanswered(
            f"there is no Lease {namespace}/{name}: no operator leads here (--operator-namespace and --lease "
            "take others; one without leader election is asked with --address)"
        ) from None
    except Forbidden as error:
        raise Unanswered(
            f"{error.message}; you need the verb get on leases (coordination.k8s.io) in namespace {namespace}"
        ) from None
    except ApiError as error:
        raise Unanswered(f"Lease {namespace}/{name} cannot be read: {error}") from error
    holder = lease.spec.holder_identity or ""
    if not holder:
        raise Unanswered(f"nobody holds Lease {namespace}/{name} right now: try again in a moment")
    renewed = f"; the Lease was renewed last at {lease.spec.renew_time}" if lease.spec.renew_time else ""
    return holder.partition("_")[0], renewed  # names of pods have no _; what follows tells processes apart


def _body(response: Response) -> bytes:
    """Return a good answer's body.

    Raises:
        Unanswered: with the operator's own words.
    """
    if response.status == 200:
        return response.body
    problem = _problem(response)
    if problem is None:
        text = response.body[:200].decode(errors="replace").strip()
        raise Unanswered(f"the operator answers {response.status}: {text}")
    code = MISTAKEN if problem.error in ("notFound", "badRequest") else UNREACHABLE
    raise Unanswered(problem.message, code)


def _problem(response: Response) -> Problem | None:
    try:
        return msgspec.json.decode(response.body, type=Problem)
    except msgspec.MsgspecError:
        return None
