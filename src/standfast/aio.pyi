"""The types of the asynchronous handle. Written by `make stubs`; change `tests/aio_stub.py` instead."""

import builtins
import os
from abc import ABCMeta
from collections.abc import AsyncIterable, AsyncIterator, Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, BinaryIO, Generic, Never, Self, TypeVar, Unpack, overload, type_check_only

import standfast.admin.undo
import standfast.checkpoint.checkpoints
import standfast.core.artifact_sources
import standfast.core.progress
import standfast.handle
import standfast.interchange.imports
import standfast.ledger.credits
import standfast.ledger.webhooks.claims
import standfast.ledger.webhooks.models
import standfast.ledger.webhooks.resource
import standfast.record.events.resource
import standfast.record.items
import standfast.record.loops.resource
import standfast.record.loops.runs
import standfast.record.mail.claims
import standfast.record.mail.models
import standfast.record.mail.resource
import standfast.record.node_methods
import standfast.record.sessions.models
import standfast.record.state.resource
import standfast.record.tasks.changes
import standfast.record.tasks.models
import standfast.record.tasks.resource
import standfast.record.threads.models
import standfast.record.threads.resource
import standfast.views.recovery
from standfast import config, serial
from standfast.admin.copies import keep
from standfast.admin.copies.manifest import Manifest
from standfast.admin.copies.resource import Copy, Found, Newest, Tested
from standfast.admin.undo import ChangeList, Undone
from standfast.checkpoint.checkpoints import CheckpointList, Context, Said
from standfast.clock import Duration, Time
from standfast.core.artifacts import Artifact, Collected, Faults
from standfast.core.authors import Author
from standfast.core.digests import Checked
from standfast.core.journal import Event, Page
from standfast.core.leases import Lease
from standfast.core.receipts import Receipt
from standfast.db.contract import Engine, Row, Tx
from standfast.handle import Standfast, Transaction
from standfast.ids import Id
from standfast.interchange.bundle_export import Bundle
from standfast.interchange.bundle_import import BundleImport
from standfast.interchange.text_export import TextExport
from standfast.interchange.text_import import TextImport
from standfast.ledger.approvals import Approval, Question
from standfast.ledger.budgets.amounts import Usd
from standfast.ledger.budgets.block import Spending
from standfast.ledger.budgets.models import Budget, BudgetList, BudgetReport, Hold, HoldList
from standfast.ledger.budgets.resource import Asked
from standfast.ledger.credits import Balance, BalanceList, CreditEntry
from standfast.ledger.dead_letters import DeadLetter
from standfast.ledger.decisions.models import Caught, Decision
from standfast.ledger.decisions.resource import CaughtList, DecisionList, UnwrittenList
from standfast.ledger.effects.call import Call
from standfast.ledger.effects.declared import Declared
from standfast.ledger.effects.models import Effect, Many, Verdict
from standfast.ledger.effects.types import AnyDeclared, Idempotent, NamedOptions
from standfast.ledger.gate_patterns import Gate
from standfast.ledger.openings import Opening
from standfast.ledger.webhooks.models import Handled, WebhookEvent
from standfast.ledger.webhooks.resource import Do
from standfast.record.agents import Agent, AgentList
from standfast.record.apply.models import Applied
from standfast.record.events.models import Appended, Batch, Consumer, Difference, Folded, Listed, Stream, Upcasts
from standfast.record.events.queries import Moment
from standfast.record.events.resource import AppendedList, ConsumerList, S, StreamList
from standfast.record.items import FoundList, Item, ItemList, Path, PathList
from standfast.record.knowledge import Embedder, Forgotten, Indexed, Knowledge, KnowledgeList, Vector
from standfast.record.loops.models import Loop, Run
from standfast.record.loops.resource import AbsentList, LoopList
from standfast.record.mail.models import Delivery, Mail
from standfast.record.mail.resource import DeliveryList, MailList
from standfast.record.messages import Message
from standfast.record.model_calls import ModelCall, UsageRecord
from standfast.record.node_methods import A, DeclareEffectFirst, Given, NameFunctionArguments, NameIntentDoOptions, P
from standfast.record.nodes import Node
from standfast.record.sessions import ownership
from standfast.record.sessions.models import InDoubt, Opened, Resumed, SessionRecord
from standfast.record.state.hot import HotState
from standfast.record.state.models import Entry
from standfast.record.state.resource import NamespaceList
from standfast.record.steps import Steps
from standfast.record.tasks.models import Note, Task
from standfast.record.tasks.resource import GoalList, TaskList
from standfast.record.threads.encryption import Seal
from standfast.record.threads.models import Ancestry, Stored, Value, Write
from standfast.record.threads.resource import ThreadList
from standfast.views.brief import Brief
from standfast.views.search import Hits
from standfast.views.timeline import Timeline
from standfast.views.usage import UsageList

_A = TypeVar("_A")
_T = TypeVar("_T")

@type_check_only
class _Entered(Coroutine[Any, Any, _T], AbstractAsyncContextManager[_T], metaclass=ABCMeta):
    """Await it or enter it."""

@type_check_only
class _Iterated(AbstractAsyncContextManager[_A], AsyncIterable[_T], Generic[_A, _T], metaclass=ABCMeta):
    """Iterate it, or enter it first."""

class AsyncObject:
    def __init__(self, owner: AsyncStandfast, inner: Any) -> None: ...
    def __getattr__(self, name: str) -> Any: ...

class AsyncStandfast:
    settings: config.Settings
    @property
    def agent(self) -> str: ...
    async def apply(
        self, spec: Mapping[str, Any] | str | os.PathLike[str], *, key: str | None = ..., mode: str = ...
    ) -> Applied:
        """The changes that a specification (a mapping, or the path of a TOML or JSON file) would make. Nothing is"""
    async def backup(self, to: str | os.PathLike[str] | None = ..., *, note: str | None = ...) -> Copy:
        """Take a copy of the store and verify it: `sf.backup("/mnt/nas/agents")`. Writers continue meanwhile."""
    @property
    def engine(self) -> Engine: ...
    @overload
    async def export(
        self,
        *sessions: str,
        to: str | os.PathLike[str],
        hand_over: bool = ...,
        progress: standfast.core.progress.Progress = ...,
    ) -> Bundle: ...
    @overload
    async def export(
        self, *, text: str | os.PathLike[str], check: bool = ..., progress: standfast.core.progress.Progress = ...
    ) -> TextExport: ...
    async def read(self, body: Callable[[Tx], standfast.handle.T]) -> standfast.handle.T:
        """Run a function of a transaction on one snapshot, for queries that have no method."""
    def rows(self, text: str, params: dict[str, object] | None = ...) -> AsyncIterable[Row]:
        """Stream a read-only query, an object by column name for each row."""
    @property
    def scope(self) -> str: ...
    async def undo(
        self, what: str | Receipt | None = ..., *, agent: str | None = ..., since: Time | None = ...
    ) -> Undone:
        """Put back what a change overwrote or deleted: `sf.undo(task.receipt)`, or all by an agent since a time."""
    async def brief(self, *, agent: str | None = ..., max_tokens: int = ..., everywhere: bool | None = ...) -> Brief:
        """A summary for an agent that starts, of at most `max_tokens`: `print(sf.brief().markdown)`."""
    async def search(
        self,
        text: str,
        *,
        agent: str | None = ...,
        repo: str | None = ...,
        since: Time | None = ...,
        tool: str | None = ...,
        role: str | None = ...,
        kind: str | None = ...,
        session: str | None = ...,
        everywhere: bool = ...,
        by_rank: bool = ...,
        after: str | None = ...,
        limit: int = ...,
        progress: Callable[[int], object] = ...,
    ) -> Hits:
        """Words in messages, decisions, tool calls, mail and tasks, the newest first: `sf.search("flaky parser")`."""
    async def timeline(
        self,
        at: Time = ...,
        *,
        window: Duration = ...,
        start: Time | None = ...,
        end: Time | None = ...,
        session: str | None = ...,
        agent: str | None = ...,
        subject: str | None = ...,
        type: str | None = ...,
        problems: bool = ...,
        everywhere: bool | None = ...,
        limit: int = ...,
    ) -> Timeline:
        """The events around a time, `sf.timeline(at="tue 03:00")`, or from `start` to `end`."""
    @property
    def agents(self) -> AsyncAgents: ...
    @property
    def approvals(self) -> AsyncApprovals: ...
    @property
    def gates(self) -> AsyncGates: ...
    @property
    def sessions(self) -> AsyncSessions: ...
    @property
    def state(self) -> AsyncState: ...
    @property
    def effects(self) -> AsyncEffects: ...
    @property
    def tasks(self) -> AsyncTasks: ...
    @property
    def items(self) -> AsyncItems: ...
    @property
    def threads(self) -> AsyncThreads: ...
    @property
    def copies(self) -> AsyncCopies: ...
    @property
    def removed(self) -> AsyncRemoved: ...
    @property
    def events(self) -> AsyncEvents: ...
    @property
    def webhooks(self) -> AsyncWebhooks: ...
    @property
    def credits(self) -> AsyncCredits: ...
    @property
    def budgets(self) -> AsyncBudgets: ...
    @property
    def usage(self) -> AsyncUsage: ...
    @property
    def mail(self) -> AsyncMails: ...
    @property
    def loops(self) -> AsyncLoops: ...
    @property
    def runs(self) -> AsyncRuns: ...
    @property
    def recovery(self) -> AsyncRecovery: ...
    @property
    def search_index(self) -> AsyncSearchIndex: ...
    @property
    def artifacts(self) -> AsyncArtifacts: ...
    @property
    def checkpoints(self) -> AsyncCheckpoints: ...
    @property
    def decisions(self) -> AsyncDecisions: ...
    @property
    def imports(self) -> AsyncImports: ...
    @property
    def journal(self) -> AsyncJournal: ...
    @property
    def knowledge(self) -> AsyncKnowledgeStore: ...
    @property
    def leases(self) -> AsyncLeases: ...
    def __init__(self, connect: Callable[[], Standfast]) -> None: ...
    async def __aenter__(self) -> Self: ...
    async def __aexit__(self, *exc: object) -> None: ...
    async def close(self) -> None: ...
    @property
    def sync(self) -> Standfast: ...
    async def transaction(self, body: Callable[[Transaction], _T]) -> _T: ...
    def session(self, key: str, *, agent: str | None = ...) -> AbstractAsyncContextManager[AsyncSession]: ...

@type_check_only
class AsyncNodeMethods:
    @property
    def artifacts(self) -> AsyncSessionArtifacts: ...
    async def ask(self, to: str, body: serial.Json, *, key: str, timeout: Duration | None = ...) -> Any:
        """Ask another agent, wait, and return its answer: `s.ask("reviewer", {"pr": 7}, key="review:7")`."""
    async def budget(
        self,
        subject: str | None = ...,
        *,
        tokens: int | None = ...,
        usd: Usd | None = ...,
        calls: int = ...,
        time: Duration | None = ...,
        key: str | None = ...,
        note: str | None = ...,
    ) -> Spending:
        """Reserve an amount for a call, and settle it when the block ends: `with s.budget(tokens=3000) as b`."""
    async def checkpoint(
        self,
        upto: int | None = ...,
        *,
        summary: str | None = ...,
        data: serial.Json = ...,
        cursor: serial.Json = ...,
        versions: Mapping[str, str] | None = ...,
        cache_keys: Iterable[str] = ...,
    ) -> standfast.checkpoint.checkpoints.Checkpoint:
        """Store a summary of the messages up to position `upto`, or of all messages so far. The messages stay."""
    async def context(self, *, last: int = ..., versions: Mapping[str, str] | None = ...) -> Context:
        """The newest checkpoint and the messages after it, as the context for an LLM."""
    def decide(
        self,
        what: str,
        *,
        why: str | None = ...,
        then: str | None = ...,
        tags: Iterable[str] = ...,
        agent: str | None = ...,
    ) -> _Entered[AsyncDeciding]:
        """Record a decision before you act on it: `with s.decide("edit parser.py", why=…, then=…) as d`."""
    @overload
    async def effect(
        self,
        what: AnyDeclared[P, Coroutine[Any, Any, standfast.record.node_methods.T]],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> standfast.record.node_methods.T: ...
    @overload
    async def effect(
        self, what: AnyDeclared[P, standfast.record.node_methods.T], /, *args: P.args, **kwargs: P.kwargs
    ) -> standfast.record.node_methods.T: ...
    @overload
    async def effect(
        self,
        what: str,
        intent: Any = ...,
        /,
        *,
        do: Callable[[Call], Any],
        returns: type[standfast.record.node_methods.T],
        **options: Unpack[NamedOptions],
    ) -> standfast.record.node_methods.T: ...
    @overload
    async def effect(
        self,
        what: str,
        intent: Any = ...,
        /,
        *,
        do: Callable[[Call], Coroutine[Any, Any, standfast.record.node_methods.T]],
        **options: Unpack[NamedOptions],
    ) -> standfast.record.node_methods.T: ...
    @overload
    async def effect(
        self,
        what: str,
        intent: Any = ...,
        /,
        *,
        do: Callable[[Call], standfast.record.node_methods.T],
        **options: Unpack[NamedOptions],
    ) -> standfast.record.node_methods.T: ...
    @overload
    async def effect(self, what: AnyDeclared[[Given[A]], Never], /, *args: A, **kwargs: A) -> Any: ...
    @overload
    async def effect(self, what: Sequence[NameIntentDoOptions], /, *args: object, **kwargs: object) -> Any: ...
    @overload
    async def effect(self, what: Callable[[DeclareEffectFirst], Never], /, *args: object, **kwargs: object) -> Any: ...
    async def fold(
        self,
        fn: Callable[[list[Said]], serial.Json],
        *,
        keep_last: int = ...,
        cursor: serial.Json = ...,
        versions: Mapping[str, str] | None = ...,
        cache_keys: Iterable[str] = ...,
    ) -> standfast.checkpoint.checkpoints.Checkpoint | None:
        """Let `fn` fold all but the last messages into a text or JSON value. None if there are no messages to fold."""
    async def log(
        self,
        type: str,
        data: serial.Json = ...,
        *,
        stream: str | None = ...,
        summary: str | None = ...,
        key: str | None = ...,
    ) -> Appended:
        """Append an event to `stream`, by default to the session's own stream, whose name is the session's id."""
    async def messages(self, *, last: int = ..., after: int | None = ...) -> list[Message]:
        """The newest `last` messages in order, without reading the others; with `after`, the next ones after it."""
    async def model_call(
        self,
        model: str,
        *,
        prompt: serial.Json,
        response: serial.Json,
        usage: object,
        context_tokens: int | None = ...,
        hold: Hold | None = ...,
        key: str | None = ...,
    ) -> ModelCall:
        """Record one call of an LLM: its prompt, its response and its usage, in one transaction."""
    async def model_calls(self, *, after: str = ..., limit: int = ...) -> list[ModelCall]:
        """The calls of LLMs recorded in this session, in order. `after` is the last id you have."""
    @property
    def node_id(self) -> str: ...
    async def say(self, role: str, content: serial.Json, *, key: str | None = ...) -> Message:
        """Add one message at the end. With a key it is stored once, no matter how often this line runs."""
    @overload
    async def step(
        self,
        name: str,
        fn: Callable[..., Any],
        /,
        *args: Any,
        returns: type[standfast.record.node_methods.T],
        **kwargs: Any,
    ) -> standfast.record.node_methods.T: ...
    @overload
    async def step(
        self,
        name: str,
        fn: Callable[P, Coroutine[Any, Any, standfast.record.node_methods.T]],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> standfast.record.node_methods.T: ...
    @overload
    async def step(
        self, name: str, fn: Callable[P, standfast.record.node_methods.T], /, *args: P.args, **kwargs: P.kwargs
    ) -> standfast.record.node_methods.T: ...
    @overload
    async def step(self, name: str, fn: Callable[[Given[A]], Never], /, *args: A, **kwargs: A) -> Any: ...
    @overload
    async def step(self, name: Sequence[NameFunctionArguments], /, *args: object, **kwargs: object) -> Any: ...
    @overload
    async def step(self, name: Callable[[NameFunctionArguments], Never], /, *args: object, **kwargs: object) -> Any: ...
    def subagent(self, name: str, *, title: str | None = ...) -> _Entered[AsyncSubagent]:
        """The sub-agent of this name, with its own conversation. The same name is the same sub-agent."""
    async def wrap_model(
        self,
        function: Callable[P, standfast.record.node_methods.T],
        model: str,
        *,
        tokens: int | None = ...,
        usd: Usd | None = ...,
        subject: str | None = ...,
        usage: Callable[[standfast.record.node_methods.T], object] | None = ...,
        response: Callable[[standfast.record.node_methods.T], serial.Json] | None = ...,
    ) -> Callable[P, standfast.record.node_methods.T]:
        """`function`, with `tokens` and `usd` reserved before each call, and the call recorded and settled after it."""
    def tools(self, *functions: Callable[..., Any]) -> list[Callable[..., Coroutine[Any, Any, Any]]]: ...
    def bind(self, function: Callable[..., _T]) -> Callable[..., _T]: ...

@type_check_only
class AsyncSession(AsyncNodeMethods):
    resumed: Resumed | None
    @property
    def agent(self) -> str | None: ...
    async def close(self) -> None:
        """End a session that was opened with `open()`: it is completed, or waiting after `s.pause(…)`."""
    @property
    def cursor(self) -> serial.Json: ...
    @cursor.setter
    def cursor(self, value: serial.Json) -> None: ...
    async def end(self, state: str = ..., *, reason: str | None = ...) -> SessionRecord:
        """End the session before the block ends: completed, failed or waiting."""
    @property
    def fence(self) -> int: ...
    @property
    def id(self) -> str: ...
    @property
    def key(self) -> str: ...
    async def open(self) -> Self:
        """Open it without a block, as in a notebook: `s = standfast.session("fix-42").open()`. `close()` ends it."""
    @property
    def opening(self) -> Opening: ...
    async def pause(self, reason: str) -> None:
        """Make the session wait, with this reason, when the block ends. It does not complete."""
    async def proceed(self, reason: str | None = ...) -> tuple[InDoubt, ...]:
        """Continue although effects of this session are in doubt, and return those. New effects are sent."""
    @property
    def record(self) -> SessionRecord: ...
    @property
    def state(self) -> AsyncSessionState: ...
    @property
    def steps(self) -> Steps: ...
    @property
    def store(self) -> AsyncStandfast: ...

@type_check_only
class AsyncSubagent(AsyncNodeMethods):
    """Nothing of its own."""

@type_check_only
class AsyncSessionArtifacts:
    async def get(self, which: str) -> bytes:
        """The bytes of an artifact, checked against their digest. `which` is an id, the end of an id, or a name."""
    async def put(
        self,
        data: standfast.core.artifact_sources.Source,
        *,
        name: str | None = ...,
        kind: str = ...,
        retention: str = ...,
    ) -> Artifact:
        """Store bytes, the content of a path, or a binary stream. It is on disk when this returns."""

@type_check_only
class AsyncSessionState:
    async def delete(self, key: str) -> Entry:
        """Delete a value. Raises NotFound."""
    async def entry(self, key: str) -> Entry | None:
        """The value with its version, or None."""
    async def get(self, key: str, default: Any = ...) -> Any: ...
    async def set(self, key: str, value: serial.Json, *, for_: Duration | None = ...) -> Entry:
        """Store a value. Raises LeaseLost if the session was taken over."""
    async def setdefault(self, key: str, default: serial.Json = ...) -> serial.Json:
        """The value of a key. If there is none, `default` is stored first. Values that you read are read-only."""
    async def swap(self, key: str, value: serial.Json, *, version: int, for_: Duration | None = ...) -> Entry:
        """Store a value only over this version; 0 means that the key must have no value."""
    async def keys(self) -> list[str]: ...
    async def items(self) -> list[tuple[str, Any]]: ...
    async def values(self) -> list[Any]: ...
    async def pop(self, key: str, default: Any = ...) -> Any: ...
    async def update(self, values: Mapping[str, Any] = ..., /, **more: Any) -> None: ...
    async def clear(self) -> None: ...

@type_check_only
class AsyncDeciding:
    decision: Decision
    resumed: bool
    outcome: object
    async def done(self, outcome: object = ...) -> Decision:
        """Close it now, before the block ends or without a block."""
    async def fail(self, why: object = ...) -> Decision:
        """Close it as failed: the plan was not carried out, or did not work."""
    @property
    def id(self) -> str: ...
    @property
    def state(self) -> str: ...
    @property
    def what(self) -> str: ...

@type_check_only
class AsyncConsuming(AsyncIterable[Event]):
    def __aiter__(self) -> AsyncIterator[Event]: ...
    async def commit(self) -> None:
        """Commit the event in hand, without asking for the next."""
    async def close(self) -> None:
        """Stop waiting."""

@type_check_only
class AsyncFollow(AsyncIterable[Mail]):
    def __aiter__(self) -> AsyncIterator[Mail]: ...
    patience_s: float | None
    async def close(self) -> None:
        """Stop. The mail in hand is not renewed any more: unless it is done, it returns when its lease ends."""

@type_check_only
class AsyncFollowing(AsyncIterable[Event]):
    def __aiter__(self) -> AsyncIterator[Event]: ...
    patience_s: float | None
    on_held_back: Callable[[str], object]
    async def close(self) -> None:
        """Stop waiting."""

@type_check_only
class AsyncAgents:
    async def get(self, name: str | None = ...) -> Agent:
        """Show one agent: its status, what it holds, its configuration; without a name, the caller."""
    async def list(
        self,
        *,
        status: str | None = ...,
        kind: str | None = ...,
        config: Mapping[str, Any] | None = ...,
        crashed: bool | None = ...,
        stale: bool | None = ...,
        everywhere: bool = ...,
        after: tuple[str, str] | None = ...,
        limit: int = ...,
    ) -> AgentList:
        """List agents by name."""
    async def name(self, name: str, *, agent: str | None = ...) -> Agent:
        """Give an agent's session a NAME: mail to NAME or role:NAME reaches it."""
    async def set(
        self,
        name: str | None = ...,
        *,
        kind: str | None = ...,
        status: str = ...,
        why: str | None = ...,
        task: str | None = ...,
        config: serial.Json = ...,
        metadata: serial.Json = ...,
    ) -> Agent:
        """Record the status or configuration of an agent; without a name, of the caller. Other fields stay."""

@type_check_only
class AsyncApprovals:
    async def deny(self, approval: str, *, approver: str, rationale: str | None = ..., method: str = ...) -> Approval:
        """Deny a request. The first answer wins; the errors are those of `grant`."""
    async def get(self, approval: str) -> Approval:
        """The approval and its state. If it has an answer, that is on disk. Raises NotFound."""
    async def grant(self, approval: str, *, approver: str, rationale: str | None = ..., method: str = ...) -> Approval:
        """Grant a request. The first answer wins. `method` says how the answer was obtained."""
    async def list(
        self,
        *,
        state: str | None = ...,
        session: str | None = ...,
        scope: str | None = ...,
        everywhere: bool = ...,
        after: str | None = ...,
        limit: int = ...,
    ) -> builtins.list[Approval]:
        """List approvals, the newest first. `session` is an id or a key; `after` is the last id of a page."""
    async def pose(self, approval: str) -> Question:
        """The question for a person who is about to answer it."""
    async def question(self, approval: str) -> Question:
        """Show the question of one APPROVAL, as `standfast approve` does."""
    async def request(
        self, effect: str, *, why: str | None = ..., gate: str | None = ..., for_: Duration = ..., again: bool = ...
    ) -> Approval:
        """Ask a person to approve a planned EFFECT (id, its end, or key). Repeating a request changes nothing."""
    async def wait(self, approval: str, timeout: Duration | None = ...) -> Approval:
        """Wait for a person's answer. Exit 0: granted. Exit 5: denied, expired, or the timeout has passed."""

@type_check_only
class AsyncGates:
    async def add(self, pattern: str, *, need: str = ..., why: str | None = ..., scope: str | None = ...) -> Gate:
        """Stop commands and tools that match PATTERN (a glob: quote it) until they have what the gate needs."""
    async def add_preset(
        self, preset: str, *, need: str = ..., why: str | None = ..., scope: str | None = ...
    ) -> builtins.list[Gate]:
        """Add every gate of a preset (git-push, publish, terraform, kubectl-delete), all or none. See `add`."""
    async def check(
        self, command: str | Sequence[str], *, tool: str | None = ..., scope: str | None = ...
    ) -> builtins.list[Gate]:
        """List the gates that match a COMMAND line: exit 0 for none, 5 needs approval, 4 must be an effect."""
    async def list(
        self, *, scope: str | None = ..., everywhere: bool = ..., after: Id | None = ..., limit: int = ...
    ) -> builtins.list[Gate]:
        """List the gates that apply here, paused ones included: those of this scope and those of every scope."""
    async def mirror(self) -> bool:
        """Write `gates.json` if it differs from the store, and return whether it did. Raises StorageError."""
    async def mirror_after(self) -> None:
        """Write `gates.json` now, or after the commit of the transaction that this resource is in."""
    async def pause(self, gate: str, *, for_: Duration, why: str, scope: str | None = ...) -> Gate:
        """Pause a GATE, given by its pattern or id: it stops nothing for a while. Refused to agents."""
    async def remove(self, gate: str, *, scope: str | None = ...) -> Gate:
        """Remove a GATE, given by its pattern in this scope, its id, or the end of its id. Refused to agents."""
    async def resume(self, gate: str, *, scope: str | None = ...) -> Gate:
        """End the pause of a GATE, given by its pattern or id. Does nothing if it is not paused. Raises NotFound."""

@type_check_only
class AsyncSessions:
    async def end(
        self,
        session: str,
        state: str = ...,
        *,
        reason: str | None = ...,
        fence: int | None = ...,
        holder: str | None = ...,
    ) -> SessionRecord:
        """End a session: completed, failed or waiting. Its owner may do it, or any process after its owner exited."""
    async def exited(self, session: str, *, holder: str, code: int) -> SessionRecord:
        """End the session that the process `holder` held when it exited with this code (negative for a signal)."""
    async def fork(self, session: str, new_key: str | None = ..., *, at: int | None = ...) -> SessionRecord:
        """Make NEW_KEY, a session that shares the first messages of KEY, and its steps and effects until then."""
    async def found(self, before: SessionRecord) -> Resumed:
        """The earlier state and the counts of a resumed session. Messages are not read."""
    async def get(self, session: str) -> SessionRecord:
        """Get a session by its key, its id or the end of its id. Raises NotFound."""
    async def keep(self) -> None:
        """Renew the caller's leases from now on, until the store is closed."""
    async def leave(self, session: str, *, fence: int, stops: ownership.Stops | None = ...) -> SessionRecord:
        """Leave the block of an opening: completed, or waiting if a person has to settle something."""
    async def list(
        self, *, state: str | None = ..., everywhere: bool = ..., after: str | None = ..., limit: int = ...
    ) -> builtins.list[SessionRecord]:
        """List sessions, the newest first, with the first message of their user."""
    async def messages(
        self, session: str, *, last: int = ..., after: int | None = ..., node: str | None = ...
    ) -> builtins.list[Message]:
        """The newest `last` messages in order, without reading the others; or the next ones after position `after`."""
    async def nodes(self, session: str) -> builtins.list[Node]:
        """The root and the sub-agents, in the order of their creation."""
    async def open(
        self,
        key: str,
        *,
        agent: str | None = ...,
        command: tuple[str, ...] | None = ...,
        cwd: str | None = ...,
        for_: Duration | None = ...,
        alone: bool = ...,
        join: str | None = ...,
    ) -> Opened:
        """Open or resume the session KEY and hold it until it is ended."""
    async def proceed(self, session: str, *, opening: Opening, reason: str | None = ...) -> tuple[InDoubt, ...]:
        """Continue although effects of a session are in doubt: new effects are sent. Each doubt is journalled."""
    async def say(
        self,
        session: str,
        role: str,
        content: serial.Json,
        *,
        key: str | None = ...,
        node: str | None = ...,
        occurred: Time | None = ...,
    ) -> Message:
        """Add one message at the end of a session, or of its sub-agent `node`. Any process may do this."""
    async def show(
        self, session: str, *, last: int = ..., after: int | None = ..., node: str | None = ...
    ) -> standfast.record.sessions.models.Shown:
        """Show one session, KEY or id: its state, its sub-agents, its last messages."""
    async def take(self, session: str) -> SessionRecord:
        """End the hold of any holder, alive or not. Later calls of the old holder are refused."""

@type_check_only
class AsyncState:
    async def delete(self, key: str, *, version: int | None = ..., namespace: str = ...) -> Entry:
        """Delete a key with its schema and its command. A later value gets the next version."""
    async def expire(self, *, limit: int = ...) -> int:
        """Empty expired values in every scope, to free space, and return their number; 0 when none is left."""
    async def get(self, key: str, *, namespace: str = ..., returns: Any = ...) -> Entry:
        """Get the value of a key, unless it has expired."""
    @property
    def hot(self) -> HotState: ...
    async def list(
        self, *, namespace: str = ..., after: str = ..., limit: int = ...
    ) -> standfast.record.state.resource.EntryList:
        """List the values of a namespace by key, without expired ones."""
    async def namespaces(self, *, after: str | None = ..., limit: int = ...) -> NamespaceList:
        """List the namespaces of this repository with their number of values; a session's is its id."""
    async def set(
        self,
        key: str,
        value: serial.Json,
        *,
        namespace: str = ...,
        for_: Duration | None = ...,
        json_schema: serial.Json = ...,
        verify: str | None = ...,
    ) -> Entry:
        """Store a value, also over an older one. With `for_` it expires after that time."""
    async def swap(
        self,
        key: str,
        value: serial.Json,
        *,
        version: int,
        namespace: str = ...,
        for_: Duration | None = ...,
        json_schema: serial.Json = ...,
        verify: str | None = ...,
    ) -> Entry:
        """Store a value only over this version; 0 means that the key must have no value."""
    async def to_verify(
        self, *, namespace: str = ..., after: str = ..., limit: int = ...
    ) -> standfast.record.state.resource.EntryList:
        """The values with a command that verifies them, by key. This runs no command."""
    async def update(
        self,
        key: str,
        fn: Callable[[Any], Any],
        *,
        namespace: str = ...,
        default: Any = ...,
        returns: Any = ...,
        for_: Duration | None = ...,
        attempts_max: int = ...,
    ) -> Entry:
        """Store the result of `fn(value)`. If another writer was faster, read again and call `fn` again."""
    async def verified(
        self, key: str, *, version: int, verdict: str, evidence: str | None = ..., namespace: str = ...
    ) -> Entry:
        """Record the verdict about one version: fresh, stale or unknown. The version does not change."""

@type_check_only
class AsyncEffects:
    async def begin(
        self,
        tool: str,
        intent: serial.Json = ...,
        *,
        by: str | tuple[str, ...] | None = ...,
        key: str | None = ...,
        session: str | None = ...,
        task: str | None = ...,
        idempotent: Idempotent = ...,
        approve: bool = ...,
        attempts: int = ...,
        again: bool = ...,
        why: str | None = ...,
        gate: str | None = ...,
        plan: bool = ...,
        per: str | None = ...,
        for_: Duration | None = ...,
        holder: str | None = ...,
        context: dict[str, serial.Json] | None = ...,
        still: Callable[[], bool] | None = ...,
    ) -> Effect:
        """Record that TOOL is about to be used with INTENT: act only if the answer's state is "dispatched"."""
    async def compensate(self, effect: str, how: Callable[..., Any] | Declared[Any]) -> Effect:
        """Reverse an acknowledged effect, once. `how` is the declared effect, or a function of its result."""
    async def dispatch(self, effect: str, *, for_: Duration | None = ..., holder: str | None = ...) -> Effect:
        """Record the next attempt of an effect that is planned or failed, then act."""
    async def done(
        self, effect: str, result: serial.Json = ..., *, attempt: int | None = ..., external_ref: str | None = ...
    ) -> Effect:
        """Record the RESULT (JSON, or text; - is stdin) of an EFFECT that you began: id, its end, or key."""
    async def fail(self, effect: str, why: str = ..., *, attempt: int | None = ...) -> Effect:
        """Record that nothing was sent, and WHY. The next call sends it. If you do not know, leave it in doubt."""
    async def get(self, effect: str) -> Effect:
        """One effect by id, key, or the end of its id. Raises NotFound."""
    async def in_doubt(self, *, everywhere: bool = ..., limit: int = ...) -> Many:
        """List effects in doubt: they were sent, their outcome is unknown, and no live process runs them."""
    async def list(
        self,
        *,
        state: str | None = ...,
        tool: str | None = ...,
        session: str | None = ...,
        scope: str | None = ...,
        everywhere: bool = ...,
        limit: int = ...,
        after: Id | None = ...,
    ) -> builtins.list[Effect]:
        """List effects, the newest first."""
    async def may_replay(self, effect: str) -> Verdict:
        """Show one EFFECT: its intent, its state, its history, and what the next call would do."""
    async def plan(self, tool: str, intent: serial.Json = ..., **options: Any) -> Effect:
        """Record the intent and stop before it is sent. The options are those of `begin`."""
    async def resolve(
        self, effect: str, answer: str, *, evidence: str, result: serial.Json = ..., attempt: int | None = ...
    ) -> Effect:
        """Settle an EFFECT in doubt after you looked at the outside system: "applied" or "not_applied"."""
    async def supersede(self, effect: str, *, by: str | None = ..., reason: str | None = ...) -> Effect:
        """Record that a planned effect will not be sent. `by` is the effect that takes its place."""

@type_check_only
class AsyncTasks:
    async def accept(self, which: standfast.record.tasks.changes.Which, *, reason: str | None = ...) -> Task:
        """Accept a task as it is: reports still count, and no agent is handed it."""
    async def add(
        self,
        title: str,
        *,
        body: str | None = ...,
        kind: str = ...,
        source: str = ...,
        fingerprint: str | None = ...,
        priority: int = ...,
        labels: Iterable[str] = ...,
        branch: str | None = ...,
        assignee: str | None = ...,
        parent: str | None = ...,
        needs: Iterable[standfast.record.tasks.changes.Which] = ...,
        session: str | None = ...,
        cool_down: Duration | None = ...,
        due: Time | None = ...,
    ) -> Task:
        """Report a task. If it was already reported, its count goes up; no second task is created."""
    async def author(self, which: standfast.record.tasks.changes.Which) -> Author:
        """The author of its title and body. If an agent wrote part of them, the agent and not a person."""
    @overload
    async def claim(self, which: standfast.record.tasks.changes.Which, *, for_: Duration | None = ...) -> Task: ...
    @overload
    async def claim(
        self,
        which: None = ...,
        *,
        label: str | None = ...,
        kind: str | None = ...,
        source: str | None = ...,
        assignee: str | None = ...,
        for_: Duration | None = ...,
    ) -> Task | None: ...
    async def done(
        self,
        which: standfast.record.tasks.changes.Which,
        *,
        result: serial.Json = ...,
        reason: str = ...,
        cool_down: Duration | None = ...,
    ) -> Task:
        """Close a task, claimed or not; refused (exit 4) if another holder has it."""
    async def edit(
        self,
        which: standfast.record.tasks.changes.Which,
        *,
        title: str = ...,
        body: str | None = ...,
        priority: int = ...,
        labels: Iterable[str] = ...,
        branch: str | None = ...,
        assignee: str | None = ...,
        parent: standfast.record.tasks.changes.Which | None = ...,
        cool_down: Duration | None = ...,
        due: Time | None = ...,
        needs: Iterable[standfast.record.tasks.changes.Which] = ...,
        no_needs: Iterable[standfast.record.tasks.changes.Which] = ...,
    ) -> Task:
        """Change the given fields of a task; all of them, or none if one is refused."""
    async def get(self, which: standfast.record.tasks.changes.Which) -> Task:
        """By id, the end of an id, or fingerprint (its newest episode). Raises NotFound."""
    async def goals(self, *, limit: int = ..., after: str | None = ...) -> GoalList:
        """List tasks with tasks below them, with their progress."""
    async def history(
        self, which: standfast.record.tasks.changes.Which, *, after: int = ..., limit: int = ...
    ) -> standfast.record.tasks.resource.EventList:
        """Every change of a task, in order. `after` is the `seq` of the last one you have."""
    async def list(
        self,
        *,
        state: str | None = ...,
        label: str | None = ...,
        kind: str | None = ...,
        source: str | None = ...,
        branch: str | None = ...,
        assignee: str | None = ...,
        session: str | None = ...,
        held: bool = ...,
        everywhere: bool = ...,
        limit: int = ...,
        after: str | None = ...,
    ) -> TaskList:
        """List open and snoozed tasks, the most urgent first. `after` is the `place` of the last one you have."""
    async def need(self, which: standfast.record.tasks.changes.Which, on: standfast.record.tasks.changes.Which) -> Task:
        """Let `which` wait until `on` is closed. Raises Conflict if `on` already waits for it."""
    async def next(
        self,
        *,
        label: str | None = ...,
        kind: str | None = ...,
        source: str | None = ...,
        assignee: str | None = ...,
        limit: int = ...,
    ) -> TaskList:
        """List tasks that can be claimed now, the most urgent first, then the oldest."""
    async def note(self, which: standfast.record.tasks.changes.Which, text: str) -> Note:
        """Add a note to a task; - reads it from stdin."""
    async def progress(self, which: standfast.record.tasks.changes.Which) -> standfast.record.tasks.models.Progress:
        """Count the tasks below a goal by state."""
    async def release(self, which: standfast.record.tasks.changes.Which, *, force: bool = ...) -> Task:
        """Release a task without closing it."""
    async def renew(self, which: standfast.record.tasks.changes.Which, *, for_: Duration | None = ...) -> Task:
        """Renew the lease of a task that you hold."""
    async def reopen(self, which: standfast.record.tasks.changes.Which) -> Task:
        """Open a task again that was closed, accepted or snoozed; its episode stays the same."""
    async def show(self, which: standfast.record.tasks.changes.Which) -> standfast.record.tasks.models.Shown:
        """Show a task: its notes, the tasks it needs, its episodes, and its newest changes."""
    async def snooze(
        self, which: standfast.record.tasks.changes.Which, *, until: Time | None = ..., for_: Duration | None = ...
    ) -> Task:
        """Hide a task from `next` for a time. Reports still count, and it is ready again by itself."""
    async def sweep(
        self,
        source: str,
        *,
        seen: Iterable[str | Mapping[str, Any]],
        absent_max: int | None = ...,
        cool_down: Duration | None = ...,
    ) -> standfast.record.tasks.models.Swept:
        """Report everything that SOURCE sees now, and close tasks that it missed several times in a row."""
    async def unneed(
        self, which: standfast.record.tasks.changes.Which, on: standfast.record.tasks.changes.Which
    ) -> Task:
        """Let `which` no longer wait for `on`."""

@type_check_only
class AsyncItems:
    async def change(self, changes: Sequence[standfast.record.items.Change]) -> None:
        """Set and delete items: all of them or none. Of several changes of one item, the last counts."""
    async def get(self, path: Path, key: str, *, refresh: bool = ...) -> Item | None:
        """One item, or None. Its time to live starts again, unless `refresh` is false."""
    async def nearest(
        self,
        prefix: Path,
        vector: Sequence[float],
        *,
        by: str = ...,
        matches: standfast.record.items.Matches | None = ...,
        limit: int = ...,
        offset: int = ...,
        refresh: bool = ...,
    ) -> FoundList:
        """Items at or below a path that have vectors, the nearest first. The nearest vector of an item counts."""
    async def paths(self) -> PathList:
        """Every path with an item, sorted."""
    async def refresh(self, names: Sequence[tuple[Path, str]]) -> None:
        """Start the time to live of these items again. Not journalled, like the renewal of a lease."""
    async def search(
        self,
        prefix: Path = ...,
        *,
        matches: standfast.record.items.Matches | None = ...,
        limit: int = ...,
        offset: int = ...,
        refresh: bool = ...,
    ) -> ItemList:
        """Items at or below a path, the last changed first."""
    async def sweep(self, *, limit: int = ...) -> int:
        """Remove expired items and return their number; 0 when nothing is left."""

@type_check_only
class AsyncThreads:
    async def ancestry(
        self, thread: str, id: str, channels: Sequence[str], *, namespace: str = ..., seal: Seal | None = ...
    ) -> dict[str, Ancestry]:
        """For each channel, the writes at the ancestors of a checkpoint, back to the one that stores its value."""
    async def copy(self, source: str, target: str) -> int:
        """Copy all rows of one thread into another, which keeps its own. Returns the target's number of checkpoints."""
    async def delete(self, thread: str) -> None:
        """Delete all rows of a thread in one transaction. A tombstone stays, so that late writes are refused."""
    async def delete_runs(self, run_ids: Sequence[str]) -> int:
        """Delete the checkpoints of these runs and their writes; return the count."""
    async def get(
        self, thread: str, id: str | None = ..., *, namespace: str = ..., seal: Seal | None = ...
    ) -> standfast.record.threads.models.Checkpoint | None:
        """One checkpoint, or the newest of its namespace; None if there is none."""
    async def ids(self, thread: str) -> set[tuple[str, str]]:
        """The namespace and id of each checkpoint of a thread."""
    async def is_deleted(self, thread: str) -> bool:
        """Whether a thread of this key was deleted."""
    def list(
        self,
        thread: str | None = ...,
        *,
        namespace: str | None = ...,
        before: str | None = ...,
        matches: standfast.record.threads.resource.Matches | None = ...,
        limit: int | None = ...,
        seal: Seal | None = ...,
    ) -> AsyncIterable[standfast.record.threads.models.Checkpoint]:
        """Checkpoints of one thread or of all, the newest first. No transaction is open while the caller uses one."""
    def newest(
        self, thread: str, *, seal: Seal | None = ...
    ) -> AsyncIterable[standfast.record.threads.models.Checkpoint]:
        """The newest checkpoint of each namespace of a thread."""
    async def path(self, thread: str, id: str, channels: Sequence[str], *, namespace: str = ...) -> Sequence[str]:
        """The ancestors that are needed to rebuild these channels of a checkpoint."""
    async def prune(self, thread: str, *, keep: Mapping[str, Sequence[str]] | None = ...) -> int:
        """Delete the checkpoints of a thread, except the newest of each namespace and those in `keep`."""
    async def put(
        self,
        thread: str,
        id: str,
        *,
        header: bytes,
        metadata: bytes = ...,
        namespace: str = ...,
        parent_id: str | None = ...,
        values: Mapping[str, bool],
        value_of: Callable[[str], Value],
        run_id: str | None = ...,
        expect_head: bool = ...,
        seal: Seal | None = ...,
    ) -> Stored:
        """Store one checkpoint. The same id again replaces it."""
    async def put_writes(
        self,
        thread: str,
        checkpoint_id: str,
        writes: Sequence[Write],
        *,
        namespace: str = ...,
        replace: bool = ...,
        seal: Seal | None = ...,
    ) -> None:
        """Store the writes of a task, also before their checkpoint. A stored write stays, unless `replace`."""
    async def threads(self, *, before: Time | None = ..., limit: int = ...) -> ThreadList:
        """List the threads of this scope, the last changed first."""

@type_check_only
class AsyncCopies:
    async def apply_rule(self) -> Sequence[str]:
        """Remove what `[copies] keep` does not keep: for the daemon, which does not ask."""
    async def due(self, every: Duration) -> bool:
        """Whether the last copy is older than `every` and something happened since. Never for a fresh store."""
    async def forget(self, plan: keep.Plan, *, place: str | None = ...) -> None:
        """Remove the copies of a plan. Raises Conflict if there are other copies now. A person has been asked."""
    async def get(self, which: str | None = ..., *, place: str | None = ...) -> Copy:
        """One copy by its id or the end of it; without one, the newest verified. Raises NotFound."""
    async def list(self, *, place: str | None = ...) -> Found:
        """The copies of this store in a place, the newest first; by default where copies are taken to."""
    async def manifest(self, which: str | None = ..., *, place: str | None = ...) -> Manifest:
        """The manifest of one copy, chosen as by `get`. Raises NotFound; Corrupt naming the copy."""
    async def newest(self) -> Newest:
        """When the newest copies were taken, as this store knows."""
    async def plan(self, which: Sequence[str] = ..., *, rule: str | None = ..., place: str | None = ...) -> keep.Plan:
        """What `forget` would remove: the copies named, or those that a rule (24h,14d,8w) does not keep."""
    async def take(
        self,
        *,
        to: str | None = ...,
        note: str | None = ...,
        why: str = ...,
        verify: bool = ...,
        progress: standfast.core.progress.Progress = ...,
    ) -> Copy:
        """Take a copy, and verify it unless `verify` is false. Raises StorageError naming the copy."""
    async def test(
        self, which: str | None = ..., *, place: str | None = ..., progress: standfast.core.progress.Progress = ...
    ) -> Tested:
        """Restore a copy into a temporary directory and check all invariants; by default the newest copy."""
    async def verify(
        self, which: str | None = ..., *, place: str | None = ..., progress: standfast.core.progress.Progress = ...
    ) -> Copy:
        """Read a copy back and compare every hash; without a name the newest. Raises Corrupt naming what differs."""

@type_check_only
class AsyncRemoved:
    async def find(self, which: str) -> standfast.admin.undo.Change:
        """The change that a receipt, a sequence number, an id or the end of an id names. Raises NotFound."""
    async def list(
        self, *, agent: str | None = ..., since: Time | None = ..., before: int | None = ..., limit: int = ...
    ) -> ChangeList:
        """List the changes that can be undone, the newest first; of the last day, unless `since` says more."""
    async def undo(self, which: str | None = ..., *, agent: str | None = ..., since: Time | None = ...) -> Undone:
        """Undo one change, or all by an agent since a time: all of them or none."""

@type_check_only
class AsyncEvents:
    async def append(
        self,
        stream: str,
        type: str,
        data: serial.Json = ...,
        *,
        expected_version: int | None = ...,
        key: str | None = ...,
        summary: str | None = ...,
        occurred: Time | None = ...,
        session: object = ...,
    ) -> Appended:
        """Append one event to a stream. It gets the next version, without a gap."""
    async def append_many(
        self,
        stream: str,
        events: Iterable[object],
        *,
        expected_version: int | None = ...,
        key: str | None = ...,
        session: object = ...,
    ) -> AppendedList:
        """Append events with consecutive versions: all of them, or none."""
    async def commit(self, batch: Batch) -> Consumer:
        """Move the consumer's cursor to the end of this batch, also inside your own transaction."""
    def consume(
        self,
        name: str,
        stream: str | None = ...,
        *,
        type: str | None = ...,
        follow: bool = ...,
        idle: Duration | None = ...,
    ) -> _Iterated[AsyncConsuming, Event]:
        """Yield the events of a consumer. Asking for an event commits the one before."""
    async def consumer(self, name: str, stream: str | None = ..., *, start: str = ...) -> Consumer:
        """Create the consumer if it does not exist, at the beginning, or at the end with start="now". Return it."""
    async def consumers(self, *, limit: int = ..., after: tuple[str, str] = ...) -> ConsumerList:
        """List the consumers of this scope, with their cursors and the number of events they are behind."""
    async def delete_snapshots(self, fold: str | None = ..., stream: str | None = ...) -> int:
        """Delete the snapshots of folds, all of this scope or some, and return their number."""
    @overload
    async def diff(
        self,
        stream: str,
        function: Callable[[S, Event], S],
        start: S,
        *,
        between: tuple[Moment, Moment],
        name: str | None = ...,
        upcasts: Upcasts | None = ...,
        returns: Any = ...,
    ) -> Difference[S]: ...
    @overload
    async def diff(
        self,
        stream: str,
        function: Callable[[S, Event], S],
        start: Any,
        *,
        between: tuple[Moment, Moment],
        name: str | None = ...,
        upcasts: Upcasts | None = ...,
        returns: Any = ...,
    ) -> Difference[S]: ...
    @overload
    async def fold(
        self,
        stream: str,
        function: Callable[[S, Event], S],
        start: S,
        *,
        name: str | None = ...,
        at: Moment = ...,
        upcasts: Upcasts | None = ...,
        returns: Any = ...,
        snapshot_every: int = ...,
    ) -> Folded[S]: ...
    @overload
    async def fold(
        self,
        stream: str,
        function: Callable[[S, Event], S],
        start: Any,
        *,
        name: str | None = ...,
        at: Moment = ...,
        upcasts: Upcasts | None = ...,
        returns: Any = ...,
        snapshot_every: int = ...,
    ) -> Folded[S]: ...
    def follow(
        self,
        stream: str | None = ...,
        *,
        type: str | None = ...,
        after: int | str | None = ...,
        idle: Duration | None = ...,
    ) -> _Iterated[AsyncFollowing, Event]:
        """Yield events as they come, from now on, or after `after`: a version of the stream, or a journal cursor."""
    async def forget(self, name: str, stream: str | None = ...) -> Consumer:
        """Delete a consumer and its cursor. Raises NotFound."""
    async def get(self, stream: str, version: int) -> Event:
        """One event. Raises NotFound."""
    async def list(
        self,
        stream: str | None = ...,
        *,
        type: str | None = ...,
        since: Time | None = ...,
        until: Time | None = ...,
        newest: bool = ...,
        everywhere: bool = ...,
        limit: int = ...,
        after: str | int | None = ...,
    ) -> Listed:
        """List the events of STREAM, or of the whole journal, oldest first."""
    async def poll(self, name: str, stream: str | None = ..., *, type: str | None = ..., limit: int = ...) -> Batch:
        """The next events of a consumer. The same events are returned until they are committed."""
    async def read(
        self, stream: str, *, after: int = ..., upto: int | None = ..., limit: int = ...
    ) -> standfast.record.events.resource.EventList:
        """Events of a stream after version `after`, in order, up to version `upto`."""
    async def seek(self, name: str, stream: str | None = ..., *, to: str | int) -> Consumer:
        """Move a consumer's cursor. It reads later events next, and skips or repeats the others."""
    async def stream(self, name: str) -> Stream:
        """A stream and its last version. Raises NotFound."""
    async def streams(self, *, limit: int = ..., after: str = ...) -> StreamList:
        """List the streams of this scope by name, each with its last version."""

@type_check_only
class AsyncWebhooks:
    @overload
    async def claim(
        self, which: standfast.ledger.webhooks.claims.Which, *, for_: Duration | None = ...
    ) -> WebhookEvent: ...
    @overload
    async def claim(
        self, which: None = ..., *, source: str | None = ..., kind: str | None = ..., for_: Duration | None = ...
    ) -> WebhookEvent | None: ...
    async def dead(
        self, *, everywhere: bool = ..., settled: bool = ..., after: Id | None = ..., limit: int = ...
    ) -> standfast.ledger.webhooks.resource.LetterList:
        """List dead letters with the reason, the newest first."""
    async def done(self, which: standfast.ledger.webhooks.claims.Which, result: serial.Json = ...) -> WebhookEvent:
        """Record that an event was handled; refused (exit 4) if another holder has it."""
    async def fail(
        self,
        which: standfast.ledger.webhooks.claims.Which,
        reason: str,
        *,
        again: Duration | None = ...,
        dead: bool = ...,
    ) -> WebhookEvent:
        """Record that handling an event failed. It is retried later; after the last attempt it is a dead letter."""
    async def get(self, which: standfast.ledger.webhooks.claims.Which) -> WebhookEvent:
        """One event by its id, the end of its id, or `source/event id`. Raises NotFound."""
    async def handle(self, source: str, fn: Do, *, kind: str | None = ..., limit: int = ...) -> Handled:
        """Call `fn(event)` for every event of `source` that is ready, one after another, until none is left."""
    async def list(
        self,
        *,
        state: str | None = ...,
        source: str | None = ...,
        kind: str | None = ...,
        everywhere: bool = ...,
        after: Id | None = ...,
        limit: int = ...,
    ) -> standfast.ledger.webhooks.resource.EventList:
        """List received events, the newest first."""
    async def receive(
        self,
        source: str,
        event_id: str,
        payload: serial.Json,
        *,
        kind: str | None = ...,
        ignore: Iterable[str] = ...,
        attempts_max: int = ...,
        do: Do | None = ...,
    ) -> WebhookEvent:
        """Record one delivery. `source` and `event_id` identify the event. Later deliveries get the `state` and the"""
    async def renew(
        self, which: standfast.ledger.webhooks.claims.Which, *, for_: Duration | None = ...
    ) -> WebhookEvent:
        """Renew the lease of an event that you hold."""
    async def resolve(
        self, which: standfast.ledger.webhooks.claims.Which, *, note: str, result: serial.Json = ...
    ) -> WebhookEvent:
        """Mark a dead letter as done, because a person handled the event in another way."""
    async def retry(self, which: standfast.ledger.webhooks.claims.Which, *, note: str | None = ...) -> WebhookEvent:
        """Make an event ready now. A dead letter gets all its attempts again."""
    async def show(self, which: standfast.ledger.webhooks.claims.Which) -> standfast.ledger.webhooks.models.Shown:
        """Show an event: its body, its result, its dead letter, and every change."""

@type_check_only
class AsyncCredits:
    async def balance(self, account: str, *, unit: str = ..., at: Time | None = ...) -> Balance:
        """The balance of an account; with `at`, of the entries that had happened by then. An unknown account has 0."""
    async def balances(
        self,
        account: str | None = ...,
        *,
        unit: str | None = ...,
        at: Time | None = ...,
        after: tuple[str, str] | None = ...,
        limit: int = ...,
    ) -> BalanceList:
        """Show the balance of ACCOUNT, or of all accounts, by unit."""
    async def get(self, which: str) -> CreditEntry:
        """Show the entry with this key or id."""
    async def grant(
        self,
        account: str,
        amount: int,
        *,
        key: str,
        unit: str = ...,
        reason: str | None = ...,
        occurred: Time | None = ...,
    ) -> CreditEntry:
        """Grant an amount to an account, once per key. A repeated call returns the first entry."""
    async def list(
        self, account: str | None = ..., *, unit: str | None = ..., after: int | None = ..., limit: int = ...
    ) -> standfast.ledger.credits.EntryList:
        """List the entries of one account, or of all, the newest first."""
    async def refund(
        self, of: str, *, amount: int | None = ..., reason: str | None = ..., occurred: Time | None = ...
    ) -> CreditEntry:
        """Reverse the entry with this key, once: pay a spend back, or take a grant back."""
    async def spend(
        self,
        account: str,
        amount: int,
        *,
        key: str,
        unit: str = ...,
        reason: str | None = ...,
        occurred: Time | None = ...,
        below_zero: bool = ...,
    ) -> CreditEntry:
        """Take an amount from an account, once per key, if the balance covers it."""

@type_check_only
class AsyncBudgets:
    async def get(self, name: str) -> Budget:
        """The budget of this name. Raises NotFound."""
    async def give_up(self, which: str | Hold, *, note: str | None = ...) -> Hold:
        """Record that the outcome of the call is unknown. The hold is in doubt at once."""
    async def hold(self, which: str) -> Hold:
        """One hold by its id, the end of its id, or its key (the newest with it). Raises NotFound."""
    async def hold_for(self, asked: Asked, *, known: bool = ...) -> Hold:
        """Reserve for a session. With `known`, the subject must have a budget."""
    async def holds(
        self, name: str | None = ..., *, ended: bool = ..., after: str | None = ..., limit: int = ...
    ) -> HoldList:
        """List holds, the oldest first: those of the budget NAME, or all."""
    async def list(self, *, after: str = ..., limit: int = ...) -> BudgetList:
        """List the budgets by name, with the amounts spent, held and left."""
    async def release(self, which: str | Hold, *, note: str | None = ...) -> Hold:
        """Give a whole hold back: the call was not made, and nothing was used."""
    async def remove(self, name: str) -> Budget:
        """Remove the limit of NAME. Its holds stay, and they still count in the budgets around it."""
    async def report(self, name: str) -> BudgetReport:
        """Show how much is left of NAME, who holds how much of it, and which holds are in doubt."""
    async def reserve(
        self,
        subject: str,
        *,
        tokens: int | None = ...,
        usd: Usd | None = ...,
        calls: int = ...,
        time: Duration | None = ...,
        key: str | None = ...,
        note: str | None = ...,
    ) -> Hold:
        """Reserve the most that a call may use, if every budget in which it counts has enough left."""
    async def set(
        self,
        name: str,
        *,
        tokens: int | None = ...,
        usd: Usd | None = ...,
        calls: int | None = ...,
        time: Duration | None = ...,
        per: str | None = ...,
        within: str | None = ...,
        action: str | None = ...,
    ) -> Budget:
        """Limit what NAME may use. A limit that is not given stays as it is."""
    async def settle(
        self,
        which: str | Hold,
        *,
        tokens: int | None = ...,
        usd: Usd | None = ...,
        calls: int | None = ...,
        time: Duration | None = ...,
        note: str | None = ...,
    ) -> Hold:
        """Book what a call used, and give the rest of its hold back. A unit that is not given counts as reserved."""

@type_check_only
class AsyncUsage:
    async def list(
        self, *, by: str = ..., since: Time | None = ..., everywhere: bool = ..., limit: int = ...
    ) -> UsageList:
        """Sum tokens and imported cost by session, agent, model, day or repository."""
    async def record(
        self,
        session: str,
        model: str,
        *,
        input_tokens: int,
        output_tokens: int,
        cached_input_tokens: int = ...,
        usd: Usd | None = ...,
        key: str | None = ...,
        hold: str | None = ...,
    ) -> UsageRecord:
        """Record the tokens of one call of MODEL in SESSION, and count them in its budgets."""

@type_check_only
class AsyncMails:
    async def answer(self, box: str, function: Callable[[Mail], serial.Json], *, timeout: Duration | None = ...) -> int:
        """Answer each mail of `box` with what `function(mail)` returns, in a session of its own; returns how many."""
    async def bound(self, to: str, bound: int | None) -> None:
        """Set the number of mails that may wait in a box; None for the default of 1,000. A full box refuses mail."""
    async def claim(
        self,
        to: str | None = ...,
        *,
        thread: standfast.record.mail.claims.Which | None = ...,
        for_: Duration | None = ...,
    ) -> Mail | None:
        """Claim the next mail of a box; None if none is ready. Without `to`, of the caller's own box."""
    async def dead(
        self, *, settled: bool = ..., everywhere: bool = ..., limit: int = ..., after: Id | None = ...
    ) -> standfast.record.mail.resource.LetterList:
        """List dead letters with the reason, the newest first."""
    async def defer(
        self,
        which: standfast.record.mail.claims.Which,
        *,
        for_: Duration | None = ...,
        until: Time | None = ...,
        reason: str | None = ...,
    ) -> Mail:
        """Return a mail to its box until later. It counts as an attempt."""
    async def delivered(self, which: standfast.record.mail.claims.Which) -> Delivery:
        """The receipt of a mail, by its id or its key: its state and its attempts. Raises NotFound."""
    async def done(self, which: standfast.record.mail.claims.Which, *, note: str | None = ...) -> Mail:
        """Record that a mail was handled; refused (exit 4) if another holder has it."""
    def follow(
        self,
        to: str | None = ...,
        *,
        thread: standfast.record.mail.claims.Which | None = ...,
        for_: Duration | None = ...,
        timeout: Duration | None = ...,
    ) -> _Iterated[AsyncFollow, Mail]:
        """Yield mail as it comes: `for m in sf.mail.follow("reviewer"): …; sf.mail.done(m)`."""
    async def get(self, which: standfast.record.mail.claims.Which) -> Mail:
        """Get a mail by its id, the end of its id, or its key, without marking it as read. Raises NotFound."""
    async def has_reader(self, to: str) -> bool:
        """Whether a live session or process reads the box TO now. Mail to a box without one waits."""
    async def history(
        self, which: standfast.record.mail.claims.Which, *, after: int = ..., limit: int = ...
    ) -> standfast.record.mail.resource.EventList:
        """Every change of a mail, in order. `after` is the `seq` of the last one you have."""
    async def list(
        self,
        to: str | None = ...,
        *,
        mine: bool = ...,
        state: str | None = ...,
        sender: str | None = ...,
        everywhere: bool = ...,
        limit: int = ...,
        after: str | None = ...,
    ) -> MailList:
        """List the mail that waits for TO, or for all, in its order. Nothing is marked."""
    async def read(
        self,
        which: standfast.record.mail.claims.Which | None = ...,
        *,
        to: str | None = ...,
        thread: standfast.record.mail.claims.Which | None = ...,
        for_: Duration | None = ...,
    ) -> Mail | None:
        """Claim a mail and mark it as read: the named one, or the next of a box. None if none is ready."""
    async def receipts(self, *, sender: str | None = ..., limit: int = ..., after: str | None = ...) -> DeliveryList:
        """The receipts of the mail that the caller or `sender` sent, the newest first."""
    async def refuse(self, which: standfast.record.mail.claims.Which, reason: str) -> Mail:
        """Refuse a mail that no reader can handle: it is a dead letter at once."""
    async def release(self, which: standfast.record.mail.claims.Which, *, reason: str | None = ...) -> Mail:
        """Return a mail to its box for the next reader. It counts as an attempt."""
    async def renew(self, which: standfast.record.mail.claims.Which, *, for_: Duration | None = ...) -> Mail:
        """Renew the lease of a mail that you hold."""
    async def reply(
        self,
        which: standfast.record.mail.claims.Which,
        body: serial.Json,
        *,
        done: bool = ...,
        key: str | None = ...,
        subject: str | None = ...,
        priority: int | None = ...,
        for_: Duration | None = ...,
        attempts_max: int = ...,
        sender: str | None = ...,
        session: str | None = ...,
    ) -> Mail:
        """Answer MAIL with BODY (- is stdin): to its sender, in its thread."""
    async def resolve(
        self, which: standfast.record.mail.claims.Which | DeadLetter, *, note: str | None = ...
    ) -> DeadLetter:
        """Settle a dead letter that a person handled in another way: it is not delivered again."""
    async def retry(
        self,
        which: standfast.record.mail.claims.Which | DeadLetter,
        *,
        attempts: int = ...,
        for_: Duration | None = ...,
        note: str | None = ...,
    ) -> Mail:
        """Return a dead or expired mail to its box."""
    async def send(
        self,
        to: str,
        body: serial.Json,
        *,
        key: str | None = ...,
        subject: str | None = ...,
        priority: int | None = ...,
        for_: Duration | None = ...,
        expires: Time | None = ...,
        attempts_max: int = ...,
        thread: standfast.record.mail.claims.Which | None = ...,
        reply_to: standfast.record.mail.claims.Which | None = ...,
        sender: str | None = ...,
        session: str | None = ...,
    ) -> Mail:
        """Send BODY (- is stdin) to TO: an agent's name, role:NAME, session:KEY, or a session's id."""
    async def show(self, which: standfast.record.mail.claims.Which) -> standfast.record.mail.models.Shown:
        """Show MAIL, by id or key: its body, every attempt with its reason, its thread. Nothing is marked."""
    async def sweep(self, *, limit: int = ...) -> standfast.record.mail.models.Swept:
        """Return mail of dead or late readers to its boxes, and mark expired mail. The daemon does this too."""
    async def thread(self, which: standfast.record.mail.claims.Which, *, limit: int = ...) -> MailList:
        """The conversation of a mail, the first mail first."""
    async def wait(
        self, which: standfast.record.mail.claims.Which, *, until: str = ..., timeout: Duration | None = ...
    ) -> Delivery:
        """Wait until the mail is done; or with `until`, until it is `"read"` or `"leased"`. Returns its receipt."""

@type_check_only
class AsyncLoops:
    async def absent(self, *, everywhere: bool = ..., limit: int = ...) -> AbsentList:
        """Due slots without a row: their loops have stopped firing."""
    async def add(
        self,
        name: str,
        command: Sequence[str],
        *,
        every: Duration | None = ...,
        cron: str | None = ...,
        at: Time | None = ...,
        zone: str | None = ...,
        catch_up: str = ...,
        catch_up_max: int = ...,
        overlap: str = ...,
        retries_max: int = ...,
        backoff: Duration = ...,
        timeout: Duration | None = ...,
        failures_max: int = ...,
        cwd: str | None = ...,
        environment: Mapping[str, str] | None = ...,
    ) -> Loop:
        """Run COMMAND on a schedule as the loop NAME, or change the loop of that name."""
    async def fire_due(
        self, *, limit: int = ..., accounts: Sequence[str] = ...
    ) -> standfast.record.loops.resource.RunList:
        """Write the rows of all due slots, in every scope of the store, for up to `limit` loops."""
    async def get(self, name: str) -> Loop:
        """Show a loop: its command, its rules, and its last runs."""
    async def list(
        self, *, state: str | None = ..., everywhere: bool = ..., limit: int = ..., after: str | None = ...
    ) -> LoopList:
        """List the loops: their schedules, the next slot, and the last one."""
    async def next_due_us(self, *, slots: bool = ..., runs: bool = ..., accounts: Sequence[str] = ...) -> int | None:
        """The time of the next slot to fire or queued run to claim, for these accounts; None if there is none."""
    async def pause(self, name: str, reason: str = ...) -> Loop:
        """Pause a loop: its slots are skipped until it is resumed, and queued runs are cancelled."""
    async def remove(self, name: str) -> Loop:
        """Remove a loop. Its runs stay, queued ones are cancelled, and its name is free."""
    async def resume(self, name: str) -> Loop:
        """Resume a loop: its slots run again from now on, and its failures are counted from 0."""

@type_check_only
class AsyncRuns:
    async def abandon_dead(self, *, limit: int = ...) -> standfast.record.loops.runs.RunList:
        """End running runs whose worker has exited or whose lease has expired: abandoned, or queued again."""
    async def adopt(self, run_id: str, attempt: int) -> Run:
        """Take over an attempt from a worker that has exited. Its child continues, and the attempt stays the same."""
    async def ask(self, name: str) -> Run:
        """Queue a run now, of a loop in any state but removed. It waits for the loop's earlier runs."""
    async def cancel(self, run: str, reason: str = ...) -> Run:
        """Cancel a RUN: a queued run at once. The daemon ends a running one."""
    async def claim(self, *, host: str, run_id: str | None = ..., accounts: Sequence[str] = ...) -> Run | None:
        """Claim a run that is ready, with its attempt and its `job`; None if there is none."""
    async def finish(
        self,
        run_id: str,
        attempt: int,
        *,
        exit_code: int | None = ...,
        timed_out: bool = ...,
        cancelled: bool = ...,
        duration: Duration,
        stdout_id: str | None = ...,
        stderr_id: str | None = ...,
        reason: str | None = ...,
    ) -> Run:
        """Record the outcome of this attempt. A failed run with retries left is queued again in its slot."""
    async def get(self, run_id: str) -> Run:
        """Get a run by its id or the end of its id. Raises NotFound."""
    async def left(self, *, limit: int = ...) -> standfast.record.loops.runs.RunList:
        """Running runs whose worker has exited or whose lease has expired. The next worker finds out their outcome."""
    async def list(
        self,
        loop: str | None = ...,
        *,
        since: Time | None = ...,
        until: Time | None = ...,
        state: str | None = ...,
        everywhere: bool = ...,
        limit: int = ...,
        after: str | None = ...,
    ) -> standfast.record.loops.runs.RunList:
        """List the runs of a loop, of this scope, or of the whole store, the newest slot first."""
    async def mine(self, *, limit: int = ...) -> standfast.record.loops.runs.RunList:
        """Running runs that this process holds."""
    async def requeue(self, run_id: str, attempt: int, *, reason: str) -> Run:
        """Queue a claimed run again in its slot: its worker has exited and had not started the command."""
    async def started(self, run_id: str, attempt: int, *, pid: int, process: str) -> Run:
        """Record the child process; `process` identifies it. Raises LeaseLost if another worker has the run."""
    async def to_cancel(self, *, limit: int = ...) -> standfast.record.loops.runs.RunList:
        """Runs of this process that were cancelled: kill the child, then `finish(cancelled=True)`."""

@type_check_only
class AsyncRecovery:
    async def report(self, *, everywhere: bool | None = ..., limit: int = ...) -> standfast.views.recovery.Report:
        """Rows that are in doubt, waiting, crashed, open or expired now: at most `limit` items of each kind."""
    async def unsettled_of(self, subjects: frozenset[str]) -> dict[str, str]:
        """The kind of each of these ids that is unsettled now, in the whole store. Never truncated."""
    async def waiting_elsewhere(self, kind: str) -> int:
        """The number of items of this kind in other repositories and scopes."""
    async def why_it_waits(self, session_id: str) -> str:
        """Why a waiting session waits now; empty if the store does not say."""

@type_check_only
class AsyncSearchIndex:
    async def catch_up(self, progress: Callable[[int], object] = ...) -> int:
        """Index all rows that are not indexed, and return their number. `progress` gets it after each batch."""
    async def clear(self) -> None:
        """Delete the whole index. The next search makes it again."""

@type_check_only
class AsyncArtifacts:
    async def collect(self) -> Collected:
        """Remove expired artifacts, and bytes that no artifact names, once they are a day old."""
    @overload
    async def get(self, which: str) -> bytes: ...
    @overload
    async def get(self, which: str, to: str | os.PathLike[str] | BinaryIO) -> Artifact: ...
    async def list(
        self,
        *,
        session: object = ...,
        kind: str | None = ...,
        name: str | None = ...,
        everywhere: bool = ...,
        limit: int = ...,
        after: Id | None = ...,
    ) -> builtins.list[Artifact]:
        """List artifacts, the newest first."""
    async def put(
        self,
        data: standfast.core.artifact_sources.Source,
        *,
        name: str | None = ...,
        kind: str = ...,
        session: object = ...,
        retention: str = ...,
    ) -> Artifact:
        """Store the bytes of a FILE, or of stdin (-), durably; the same bytes are stored once."""
    async def read(self, which: str) -> bytes:
        """The bytes, compared with their digest."""
    async def remove(self, which: str) -> Artifact:
        """Remove an artifact. A later collection removes its bytes if no other artifact has them."""
    async def show(self, which: str) -> Artifact:
        """Show an artifact without its bytes, by id, the end of its id, or name (the newest)."""
    async def verify(self, which: str | None = ..., *, progress: standfast.core.progress.Progress = ...) -> Faults:
        """Read the bytes of one artifact, or of all, and list those that are missing or damaged."""

@type_check_only
class AsyncCheckpoints:
    async def add(
        self,
        where: object,
        upto: int | None = ...,
        *,
        summary: str | None = ...,
        data: serial.Json = ...,
        cursor: serial.Json = ...,
        versions: Mapping[str, str] | None = ...,
        cache_keys: Iterable[str] = ...,
    ) -> standfast.checkpoint.checkpoints.Checkpoint:
        """Fold all messages up to position `upto`; without it, all messages so far. The messages stay."""
    async def context(self, where: object, *, last: int = ..., versions: Mapping[str, str] | None = ...) -> Context:
        """The newest fold and the messages after it: the input for an LLM to continue."""
    async def delete_all(self, session: object = ..., *, everywhere: bool = ...) -> int:
        """Delete the checkpoints of a session, or of this scope, and return their number. Nothing else is lost."""
    async def latest(
        self, where: object, *, versions: Mapping[str, str] | None = ...
    ) -> standfast.checkpoint.checkpoints.Checkpoint | None:
        """The newest checkpoint of a node, or None; with `versions`, the newest made with those."""
    async def list(
        self, *, session: object = ..., everywhere: bool = ..., limit: int = ..., after: str | None = ...
    ) -> CheckpointList:
        """List checkpoints, the newest first. `after` is the last id of a page."""

@type_check_only
class AsyncDecisions:
    async def catch(self, what: str, *, control: str, notes: str | None = ..., session: object = ...) -> Caught:
        """Record that a decision was made but not recorded, and which control noticed it."""
    async def caught(self, *, everywhere: bool = ..., limit: int = ..., after: int | None = ...) -> CaughtList:
        """List decisions that controls found to be unrecorded, the newest first."""
    async def done(self, which: str, outcome: object = ...) -> Decision:
        """Close an open decision with its outcome."""
    async def fail(self, which: str, why: object = ...) -> Decision:
        """Close an open decision as failed: the plan was not carried out, or did not work."""
    async def incomplete(
        self, *, session: object = ..., everywhere: bool = ..., limit: int = ..., after: str | None = ...
    ) -> DecisionList:
        """List open decisions, with the state of their sessions. A recovery looks at these first."""
    async def list(
        self,
        *,
        agent: str | None = ...,
        tag: str | None = ...,
        since: Time | None = ...,
        until: Time | None = ...,
        text: str | None = ...,
        state: str | None = ...,
        session: object = ...,
        everywhere: bool = ...,
        limit: int = ...,
        after: Id | None = ...,
    ) -> DecisionList:
        """List decisions: standing orders first, then the newest."""
    async def record(
        self,
        what: str,
        *,
        why: str | None = ...,
        then: str | None = ...,
        session: object = ...,
        tags: Collection[str] = ...,
        agent: str | None = ...,
        standing: bool = ...,
    ) -> Decision:
        """Record a decision before acting on it. It stays open until you close it with its outcome."""
    async def reopen(self, which: str) -> Decision:
        """Open a closed or withdrawn decision again. A standing order applies again."""
    async def show(self, which: str) -> Decision:
        """Show one decision, by its id or the end of its id."""
    async def unwritten(self, session: object, *, limit: int = ..., after: Id | None = ...) -> UnwrittenList:
        """List effects of a session that were sent while no decision was open in it, in order."""
    async def withdraw(self, which: str, why: object = ...) -> Decision:
        """Withdraw a standing order, or an open decision that is no longer followed."""

@type_check_only
class AsyncImports:
    async def bundle(
        self,
        path: str | os.PathLike[str],
        *,
        take: bool = ...,
        source_lost: bool = ...,
        progress: standfast.core.progress.Progress = ...,
    ) -> BundleImport:
        """Import the sessions of a bundle as history, or continue them here."""
    async def list(
        self, *, agent: str = ..., after: int = ..., limit: int = ...
    ) -> builtins.list[standfast.interchange.imports.Source]:
        """List the files that were read: their state, their size, and how many messages they had."""
    async def raw(self, message_id: str) -> str:
        """The original record of an imported message, redacted."""
    async def run(
        self,
        agent: str,
        path: str | os.PathLike[str] | None = ...,
        *,
        since: Time | None = ...,
        dry_run: bool = ...,
        progress: standfast.core.progress.Progress | None = ...,
    ) -> standfast.interchange.imports.Report:
        """Import the sessions that this agent or tool recorded: all of them, or those at PATH."""
    async def text(
        self,
        directory: str | os.PathLike[str],
        *,
        commit: bool = ...,
        theirs: bool = ...,
        progress: standfast.core.progress.Progress = ...,
    ) -> TextImport:
        """Compare a text export with the store. With `commit`, import its changes since the last export."""

@type_check_only
class AsyncJournal:
    async def about(self, subject: str, *, after: int = ..., limit: int = ...) -> list[Event]:
        """The events about one subject, in the order in which they were recorded."""
    async def check(
        self, *, against: str | None = ..., progress: Callable[[str, int, int], object] | None = ...
    ) -> Checked:
        """Compare every journal row with its digest and with a witness: `digest` in the manifest of a copy."""
    async def now(self) -> str:
        """A cursor behind all rows that are visible now."""
    async def tail(self, after: str | None = ..., limit: int = ...) -> Page:
        """The next events after a cursor. None is skipped, also if it was committed late, and none is repeated."""
    async def verify(self, receipt: str) -> Event:
        """The event of a receipt, if its row is unchanged."""

@type_check_only
class AsyncKnowledgeStore:
    async def add(
        self,
        text: str,
        *,
        source: str | None = ...,
        agent: str | None = ...,
        embedding: Vector | Embedder | None = ...,
        tags: Collection[str] = ...,
        supersedes: str | None = ...,
        fresh_for: Duration | None = ...,
    ) -> Knowledge:
        """Add a text that an agent learned, once per repository, agent and source. A repeat returns the first row."""
    async def forget(self, which: str) -> Forgotten:
        """Delete a text. `standfast undo` brings it back for 30 days."""
    async def index(self) -> Indexed:
        """Make an HNSW index of the vectors on PostgreSQL, so that a search need not compare all of them."""
    async def list(
        self,
        *,
        agent: str | None = ...,
        tags: Collection[str] = ...,
        superseded: bool = ...,
        everywhere: bool = ...,
        limit: int = ...,
        after: Id | None = ...,
    ) -> KnowledgeList:
        """List what agents learned, the newest first."""
    async def search(
        self,
        query: str,
        *,
        k: int = ...,
        agent: str | None = ...,
        tags: Collection[str] = ...,
        embedding: Vector | Embedder | None = ...,
        superseded: bool = ...,
        everywhere: bool = ...,
    ) -> KnowledgeList:
        """Find the texts that match a query best, by words and, with an embedding, by meaning."""
    async def show(self, which: str) -> Knowledge:
        """Show one text with its source, by its id or the end of its id."""

@type_check_only
class AsyncLeases:
    async def acquire(self, name: str, *, for_: Duration | None = ..., note: str | None = ...) -> Lease:
        """Hold `name` exclusively for `for_`. An agent that holds it already keeps its fence."""
    async def get(self, name: str) -> Lease: ...
    def hold(
        self, name: str, *, for_: Duration | None = ..., note: str | None = ...
    ) -> AbstractAsyncContextManager[Lease]:
        """Hold `name` during the block. A process renews its lease in the background."""
    async def list(self, *, everywhere: bool = ..., after: str = ..., limit: int = ...) -> builtins.list[Lease]:
        """List the locks that are held. An expired holder is listed until another caller takes over."""
    async def release(self, name: str, fence: int | None = ...) -> Lease:
        """Release a lock. Without `fence`, the lock of the caller, also one that a process of its agent holds."""
    async def renew(self, name: str, fence: int, *, for_: Duration | None = ...) -> Lease:
        """Extend the lease of a lock. It is not journalled. Raises LeaseLost if another holder has taken the lock."""
