"""`/why/KIND/NAME`: what the operator knows of one object, as JSON; `karpenter why` is its client.

Answers are made from what is in memory: no request goes out, nothing is written. What it takes the
solver to tell is asked beside the event loop.
"""

from collections.abc import Callable, Mapping, Sequence

import msgspec

from karpenter.apis.core import Pod
from karpenter.apis.karpenter import NodeClaim, NodePool
from karpenter.controllers.context import Context
from karpenter.controllers.disruption import searches
from karpenter.controllers.disruption.survey import considered
from karpenter.controllers.nodeclaim.initialization import missing
from karpenter.controllers.nodeclaim.liveness import LAUNCH_SECONDS, REGISTRATION_SECONDS
from karpenter.controllers.provisioning.demand import problem_of
from karpenter.controllers.provisioning.words import idle_text
from karpenter.explain.answer import KINDS, Answer, Kind, Problem, kind_of
from karpenter.explain.facts import Facts, Timeouts
from karpenter.explain.node import explain_node
from karpenter.explain.nodeclaim import explain_nodeclaim
from karpenter.explain.nodepool import explain_nodepool
from karpenter.explain.pod import explain_pod
from karpenter.explain.trials import tried, valued
from karpenter.kube.transport import Response
from karpenter.model.pods import is_reschedulable
from karpenter.model.problem import Budget, Plan
from karpenter.model.problem import Problem as SolverProblem
from karpenter.model.snapshot import Snapshot
from karpenter.operator.options import FEATURE_GATES
from karpenter.scheduling import solve

PREFIX = "/why/"
_STATUS = {"notFound": 404, "badRequest": 400, "notLeading": 503, "notReady": 503}
_HEADERS = {"content-type": "application/json"}


class Why:
    """Answers by path and query."""

    def __init__(self, context: Context, refusal: Callable[[], Problem | None]) -> None:
        """Prepare; `refusal` tells why this replica answers nothing now, None when it does."""
        self._context = context
        self._refusal = refusal
        self._executor = context.executor.aside()

    async def __call__(self, path: str, query: Mapping[str, str]) -> Response:
        """Answer `/why/KIND/NAME` (of pods in `namespace`, `default` unless given), whatever comes of it."""
        found = self._refusal() or await self._answer(path, query)
        status = _STATUS[found.error] if isinstance(found, Problem) else 200
        return Response(status, msgspec.json.encode(found), _HEADERS)

    async def _answer(self, path: str, query: Mapping[str, str]) -> Answer | Problem:
        parts = path.removeprefix(PREFIX).split("/")
        kind = kind_of(parts[0])
        if kind is None or len(parts) != 2 or not parts[1]:
            usage = f"want {PREFIX}KIND/NAME with KIND one of {', '.join(KINDS)}"
            return Problem(error="badRequest", message=f"{path!r} asks for nothing there is: {usage}")
        namespace = (query.get("namespace") or "default") if kind == "pod" else ""
        facts = facts_of(self._context)
        answer = explained(kind, parts[1], namespace, facts)
        if answer is not None:
            return await self._tried(answer, facts)
        where = f" in namespace {namespace} (-n takes another)" if namespace else ""
        return Problem(error="notFound", message=f"there is no {kind} {parts[1]!r}{where}")

    async def _tried(self, answer: Answer, facts: Facts) -> Answer:
        """Return an answer with what only the solver can tell: whether changes for a pod work, what keeping a
        node costs."""
        if answer.kind in ("node", "nodeclaim") and answer.findings:
            first = answer.findings[0]
            worth_it = first.saving_at_most or first.code == "noPlace"
            return await self._valued(answer, facts) if worth_it else answer
        pod = facts.pod(answer.name, answer.namespace) if answer.kind == "pod" else None
        if pod is None or pod.spec.node_name or not any(finding.changes for finding in answer.findings):
            return answer
        problem = self._problem(facts.snapshot, [pod], facts)
        found = await self._executor.run(tried, problem, pod, answer.findings, _plain_plan)
        return explain_pod(pod, facts, found)

    async def _valued(self, answer: Answer, facts: Facts) -> Answer:
        """Return the answer about a node that may not be disrupted with what disrupting it would save."""
        node = facts.node(answer.name) if answer.kind == "node" else facts.machine(answer.name)
        price = facts.price(node.claim) if node is not None and node.claim is not None else None
        if node is None or price is None or not node.initialized:
            return answer
        without = considered(facts.snapshot, frozenset({node.provider_id}))
        problem = self._problem(without, [pod for pod in node.pods if is_reschedulable(pod)], facts)
        before, *others = answer.findings
        first = await self._executor.run(valued, problem, node, price, before, _plain_plan)
        return msgspec.structs.replace(
            answer,
            summary=answer.summary.replace(before.message, first.message),
            findings=(first, *others),
            changes=first.changes,
        )

    def _problem(self, snapshot: Snapshot, pods: Sequence[Pod], facts: Facts) -> SolverProblem:
        catalogues = {pool.name: facts.catalogue(pool.name) for pool in snapshot.nodepools}
        return problem_of(self._context, snapshot, pods, catalogues, {})


def _plain_plan(problem: SolverProblem) -> Plan:
    return solve(problem, Budget(steps=0))


def explained(kind: Kind, name: str, namespace: str, facts: Facts) -> Answer | None:
    """Return the answer about one object; None when there is no such object."""
    if kind == "pod":
        pod = facts.pod(name, namespace)
        return explain_pod(pod, facts) if pod is not None else None
    if kind == "node":
        view = facts.node(name)
        return explain_node(view, facts) if view is not None and view.node is not None else None
    if kind == "nodeclaim":
        claim = facts.claim(name)
        return explain_nodeclaim(claim, facts) if claim is not None else None
    pool = facts.pool(name)
    return explain_nodepool(pool, facts) if pool is not None else None


def facts_of(context: Context) -> Facts:
    """Return everything that answers are made from, as it is now."""
    cluster, cache, settings = context.cluster, context.cache, context.settings
    methods = dict.fromkeys(s.method for s in (*searches.quick(), *searches.thorough(settings)))
    return Facts(
        snapshot=cluster.snapshot(),
        refusals=cluster.refusals,
        verdicts=cluster.verdicts,
        methods=tuple(methods),
        pod=cache.informer(Pod).get,
        claim=cache.informer(NodeClaim).get,
        pool=cache.informer(NodePool).get,
        expected_on=cluster.reserved_for,
        missing=missing,
        idle=lambda pool, has_types: idle_text(pool, has_types=has_types),
        price=cluster.price,
        spent=cluster.price_commitments(),
        committed=cluster.pool_commitment,
        catalogue=cluster.catalogue,
        cluster_price_limit=settings.cluster_price_limit,
        timeouts=Timeouts(LAUNCH_SECONDS, REGISTRATION_SECONDS, settings.initialization_timeout),
        gates={g: on for g, on in settings.feature_gates.items() if on != FEATURE_GATES.get(g)},
    )
