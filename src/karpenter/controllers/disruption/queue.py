"""Carrying commands out: mark the nodes, buy what replaces them, wait until that is ready, delete the nodes.

Each command goes its own way, one key of one controller: a command that waits holds up nobody. What cannot be
carried out is undone: marks are taken back, and replacements that nobody needs are deleted
(`karpenter.controllers.disruption.undoing`).

The process may die after any line. What it leaves behind are marks, and replacements that say what they are
for; the next one goes on from there (`karpenter.controllers.disruption.leftovers`).
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

import structlog

from karpenter.apis import conditions
from karpenter.apis.karpenter import NodeClaim
from karpenter.controllers.context import Context
from karpenter.controllers.disruption.books import Books
from karpenter.controllers.disruption.halts import Halts
from karpenter.controllers.disruption.marks import Going, Marks
from karpenter.controllers.disruption.notes import REPLACES, Note, note_of
from karpenter.controllers.disruption.pauses import Pauses
from karpenter.controllers.disruption.telling import CommandTeller
from karpenter.controllers.disruption.underway import Underway, timeout_seconds
from karpenter.controllers.disruption.undoing import Undoing
from karpenter.controllers.provisioning.claims import create_claims
from karpenter.controllers.static.census import census
from karpenter.controllers.static.provisioning import node_limit
from karpenter.disruption.candidates import Candidate
from karpenter.disruption.command import Command
from karpenter.kube.errors import ApiError, Conflict, NotFound
from karpenter.kube.informer import Change
from karpenter.kube.transport import TransportError
from karpenter.model.pods import pod_key
from karpenter.model.problem import PlannedClaim
from karpenter.runtime import Controller, Result

log = structlog.get_logger()

STARTED = "disrupting node(s)"
GIVEN_UP = "giving up a disruption"

VALIDATION_SECONDS = 15.0
"""Between a decision and its second look: what was about to come has come."""
_LOOK_SECONDS = 5.0
_CONCURRENCY = 50

Validate = Callable[[Command, frozenset[str]], Awaitable[Command | None]]
"""Takes the second look; returns what still holds of a command, given the provider ids of nodes that other
commands take before."""


class CommandQueue:
    """The commands underway."""

    def __init__(self, context: Context, halts: Halts, pauses: Pauses, books: Books) -> None:
        self._context = context
        self._halts = halts
        self._pauses = pauses
        self._books = books
        self.validate: Validate = _holds
        """The second look."""
        self._marks = Marks(context)
        self._teller = CommandTeller(context)
        self._undoing = Undoing(context, self._marks)
        self._commands: dict[str, Underway] = {}
        self._claims = context.cache.informer(NodeClaim)
        self.controller = Controller(
            "disruption.queue",
            self._reconcile,
            clock=context.clock,
            rng=context.rng,
            metrics=context.metrics,
            concurrency=_CONCURRENCY,
        )
        self.controller.watch(self._claims, self._commands_of)

    def _commands_of(self, change: Change[NodeClaim]) -> Iterable[str]:
        note = note_of(change.object)
        return [note.command] if note is not None and note.command in self._commands else []

    @property
    def underway(self) -> frozenset[str]:
        """Provider ids of the nodes that are being disrupted, or wait for it."""
        return frozenset(i for c in self._commands.values() for i in c.provider_ids)

    def _ahead_of(self, c: Underway) -> frozenset[str]:
        """Return provider ids of the nodes of commands that were decided before `c`, or are carried out.

        Those that came later gave way to `c`: would it give way to them in turn, nobody got anywhere.
        """
        found: set[str] = set()
        before = True
        for other in self._commands.values():
            if other is c:
                before = False
            elif before or other.phase != "waiting":
                found.update(other.provider_ids)
        return frozenset(found)

    def knows(self, command: str) -> bool:
        """Tell whether a command of this id is underway."""
        return command in self._commands

    def accept(self, command: Command, *, wait: bool) -> None:
        """Carry `command` out, after a second look if it is to `wait` for one."""
        now = self._context.clock.now()
        self._add(
            Underway(
                id=f"{self._context.rng.getrandbits(64):016x}",
                command=command,
                phase="waiting" if wait else "starting",
                since=now,
                decision=command.decision,
                left=list(command.candidates),
            )
        )

    def resume(self, note: Note, left: list[Candidate], replacements: list[str]) -> None:
        """Go on with a command that somebody else began: its nodes are marked, its replacements created."""
        c = Underway(
            id=note.command,
            command=Command(reason=note.reason, method=note.method, candidates=tuple(left)),
            phase="replacing",
            since=self._context.clock.now(),
            decision="replace",
            left=left,
            replacements=replacements,
        )
        self._context.cluster.mark_for_deletion(c.provider_ids)
        self._add(c)

    def _add(self, c: Underway) -> None:
        self._commands[c.id] = c
        self.controller.enqueue(c.id)

    async def _reconcile(self, key: str) -> Result:
        c = self._commands.get(key)
        if c is None:
            return Result()
        if c.phase == "waiting":
            seconds = c.since + VALIDATION_SECONDS - self._context.clock.now()
            if seconds > 0:
                return Result(seconds)
            if not await self._still_holds(c):
                return Result()
        if c.phase == "starting":
            await self._start(c)
        if c.phase == "replacing":
            return await self._proceed(c)
        if c.phase == "failing":
            await self._undoing.undo(c)
            del self._commands[c.id]
        return Result()

    async def _still_holds(self, c: Underway) -> bool:
        """Take the second look; a command of which nothing is left is dropped."""
        command = await self.validate(c.command, self._ahead_of(c))
        if command is None:
            del self._commands[c.id]
            self._context.cluster.mark_unconsolidated()  # or its nodes would not be looked at again
            return False
        c.command, c.left, c.decision = command, list(command.candidates), command.decision
        c.phase = "starting"
        return True

    # --- starting -----------------------------------------------------------------------------------------

    async def _start(self, c: Underway) -> None:
        command = c.command
        c.since = self._context.clock.now()
        log.info(
            STARTED,
            command=str(command),
            reason=c.reason,
            decision=c.decision,
            nodes=[candidate.node.name for candidate in command.candidates],
            replacements=len(command.replacements),
            pods=command.moved,
            savings=round(command.savings, 4),
        )
        if not await self._mark(c):
            return
        static = [k.node.provider_id for k in c.left if k.pool.static]
        # Replaced nodes of static pools do not count as surplus while their replacements come up.
        self._context.cluster.mark_for_deletion(static)
        if not await self._buy(c):
            return
        # Only now: before, their pods would have been provisioned for twice.
        self._context.cluster.mark_for_deletion(c.provider_ids)
        self._nominate(c)
        self._teller.started(c)
        c.phase = "replacing"

    async def _mark(self, c: Underway) -> bool:
        """Mark the nodes; tell whether to go on (with what could be marked, if nothing replaces it)."""
        errors = await asyncio.gather(*(self._mark_one(c, candidate) for candidate in c.left))
        marked = [k for k, error in zip(c.left, errors, strict=True) if not error]
        if marked == c.left:
            return True
        why = next(error for error in errors if error)
        if c.command.replacements or not marked:
            self._fail(c, why)
            return False
        await asyncio.gather(
            *(self._undoing.unmark(k) for k, error in zip(c.left, errors, strict=True) if error),
            return_exceptions=True,  # what is left of their marks is taken away by the next pass
        )
        c.left = marked
        return True

    async def _mark_one(self, c: Underway, candidate: Candidate) -> str:
        """Mark a node; return why that was not possible."""
        node, claim = candidate.node.node, candidate.node.claim
        if node is None or claim is None:
            return f"{candidate.node.name} has no Node or no NodeClaim"
        try:
            await self._marks.put(node.name, claim, c.command.reason)
        except Going:
            return f"node/{node.name} is on its way out already"
        except (ApiError, TransportError) as error:
            return f"node/{node.name} could not be marked: {error}"
        return ""

    async def _buy(self, c: Underway) -> bool:
        """Create the replacements; tell whether all of them were."""
        wanted = c.command.replacements
        if not wanted:
            return True
        note = Note(
            command=c.id,
            reason=c.command.reason,
            method=c.command.method,
            node_claims=tuple(k.node.claim.name for k in c.left if k.node.claim is not None),
            replacements=len(wanted),
        )
        with self._granted(wanted) as refused:
            if refused:
                self._fail(c, refused)
                return False
            notes = [{REPLACES: note.render(), **more} for more in self._books.annotations(c.command)]
            created = await create_claims(self._context, wanted, c.reason, annotations=notes)
        c.replacements = [made.claim.name for made in created if made.claim is not None]
        error = next((made.error for made in created if made.claim is None), "")
        if error:
            self._fail(c, f"a replacement could not be created: {error}")
        return not error

    @contextmanager
    def _granted(self, wanted: Sequence[PlannedClaim]) -> Iterator[str]:
        """Reserve room under `limits.nodes` of static pools for the block; tell why there is none."""
        pools = {claim.pool.name: claim.pool for claim in wanted if claim.pool.static}
        with ExitStack() as grants:
            for name in sorted(pools):
                count = sum(claim.pool.name == name for claim in wanted)
                granted = grants.enter_context(
                    self._context.cluster.grants.grant(
                        name,
                        limit=node_limit(pools[name]),
                        present=census(self._context, name).present,
                        wanted=count,
                    )
                )
                if granted < count:
                    yield f"limits of nodepool {name} exceeded: nodes"
                    return
            yield ""

    def _nominate(self, c: Underway) -> None:
        """Keep the room that pods will need on existing nodes, and tell them."""
        cluster = self._context.cluster
        pods = {pod_key(pod): pod for k in c.left for pod in k.movable}
        rows = {row.name: row for row in cluster.nodes()} if c.command.placements else {}
        for name, keys in sorted(c.command.placements.items()):
            if name in rows:
                cluster.nominate(name)
                self._teller.nominated(rows[name], [pods[key] for key in keys if key in pods])

    # --- until the nodes are gone -------------------------------------------------------------------------

    async def _proceed(self, c: Underway) -> Result:
        for name in c.replacements:
            if name not in c.ready:
                problem = await self._look_at(c, name)
                if problem:
                    self._fail(c, problem)
                    return Result(0.0)
        missing = [name for name in c.replacements if name not in c.ready]
        if missing:
            limit = timeout_seconds(len(self._commands))
            seconds = c.since + limit - self._context.clock.now()
            if seconds > 0:
                return Result(min(_LOOK_SECONDS, seconds))
            self._fail(
                c, f"replacement nodeclaim/{missing[0]} was not initialized within {limit / 60:g} minutes"
            )
            return Result(0.0)
        await self._end(c)
        return Result()

    async def _look_at(self, c: Underway, name: str) -> str:
        """See how a replacement is doing; return what is wrong when it will never be ready."""
        claim = self._claims.get(name)
        if claim is None:
            try:
                claim = await self._context.client.get(NodeClaim, name)
            except NotFound:
                return f"replacement nodeclaim/{name} was deleted"
        if conditions.is_true(claim.status.conditions, "Launched"):
            c.launched.add(name)
        if self._context.cluster.is_ending(claim):
            return f"replacement nodeclaim/{name} is being deleted"
        self._teller.launching(c, claim)
        if conditions.is_true(claim.status.conditions, "Initialized"):
            c.ready.add(name)
        else:
            self._teller.waiting(claim)
        return ""

    async def _end(self, c: Underway) -> None:
        """Begin the end of the nodes; those where that fails are tried again."""
        if not c.noted:
            await self._books.note(c)
            c.noted = True
        outcomes = await asyncio.gather(*(self._end_one(c, k) for k in c.left), return_exceptions=True)
        c.left = [k for k, gone in zip(c.left, outcomes, strict=True) if gone is not True]
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome
        del self._commands[c.id]
        self._books.count(c)
        if c.command.reason == "Drifted" and c.replacements:
            for pool in c.pools:
                self._halts.succeeded(pool)
        elif c.replacements:
            self._pauses.succeeded(c.bought_from)

    async def _end_one(self, c: Underway, candidate: Candidate) -> bool:
        claim = candidate.node.claim
        assert claim is not None
        try:
            await self._context.client.delete(NodeClaim, claim.name, uid=claim.metadata.uid)
        except NotFound:
            return True
        except Conflict:
            present = await self._context.client.get(NodeClaim, claim.name)
            if present.metadata.uid != claim.metadata.uid:
                return True  # another one of the same name
            raise
        if self._context.cluster.note_claim_ended(claim):
            self._teller.terminating(c, candidate)
        return True

    def _fail(self, c: Underway, why: str) -> None:
        """Give a command up; what it has done is undone next."""
        c.failure, c.phase = why, "failing"
        log.warning(GIVEN_UP, command=str(c.command), reason=c.reason, error=why)
        self._teller.failed(c)
        if c.command.reason == "Drifted":
            bought = bool(c.launched - c.ready)
            for pool in c.pools:
                self._halts.failed(pool, why, bought=bought)
        elif c.replacements:
            self._pauses.failed(c.bought_from, why)


async def _holds(command: Command, _: frozenset[str]) -> Command | None:
    return command
