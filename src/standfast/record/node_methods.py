"""The methods of an open session and of each of its sub-agents.

Each method is bound to one node with its own messages, steps and effects. Effects, decisions, budgets, checkpoints and
artifacts are implemented elsewhere. The methods here pass the current opening to them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from typing import TYPE_CHECKING, Any, Generic, Never, ParamSpec, Self, TypeVar, cast, overload

from standfast import crash, serial
from standfast.errors import NoAttribute
from standfast.ledger import current
from standfast.ledger.openings import Opening
from standfast.record import messages, nodes
from standfast.record.messages import Message
from standfast.record.nodes import Node, Path, Segment

if TYPE_CHECKING:
    from typing import Unpack

    from standfast.checkpoint.checkpoints import Checkpoint, Context, Said
    from standfast.clock import Duration
    from standfast.core.artifact_sources import Source
    from standfast.core.artifacts import Artifact
    from standfast.ledger.budgets import Spending
    from standfast.ledger.budgets.amounts import Usd
    from standfast.ledger.budgets.models import Hold
    from standfast.ledger.decisions import Deciding
    from standfast.ledger.effects.call import Call
    from standfast.ledger.effects.types import AnyDeclared, NamedOptions
    from standfast.record.events import Appended
    from standfast.record.model_calls import ModelCall
    from standfast.record.open_session import Session

P = ParamSpec("P")
T = TypeVar("T")
A = TypeVar("A")


# The last overloads of `step` and `effect` name these classes. No caller has a value of them, so these overloads always
# fail. mypy reports the one that resembles the call, in one line, instead of listing all overloads.


class Given(Generic[A]):
    """Arguments of this type do not match the function."""


class NameFunctionArguments:
    """`s.step` takes a name, a function and its arguments: `s.step("plan", make_plan, issue)`."""


class NameIntentDoOptions:
    """`s.effect` takes a name, an intent, a function of one `call`, and options: `do=deploy, by="app", retry=3`."""


class DeclareEffectFirst:
    """`s.effect` takes a function that was declared: `@standfast.effect("deploy", by=("app",))`."""


class NodeMethods:
    """The methods of a session, bound to one of its nodes."""

    awaited = True
    """Under an event loop its methods are awaited too."""

    def __init__(self, session: Session, path: Path) -> None:
        self._session = session
        self._path = path
        self._node: Node | None = None
        self._segments: tuple[Segment, ...] = ()

    # -- messages --------------------------------------------------------------------------------

    def say(self, role: str, content: serial.Json, *, key: str | None = None) -> Message:
        """Add one message at the end. With a key it is stored once, no matter how often this line runs.

        Raises KeyConflict if the key was used for another message.
        """
        opening = self._session.opening
        said = messages.utterance(role, content, key=key, redact=opening.store.redact)
        spoken = opening.store.write(lambda tx: messages.say(tx, opening.session_id, self._segments, said))
        crash.point("message.after_say")
        return spoken

    def messages(self, *, last: int = 50, after: int | None = None) -> list[Message]:
        """The newest `last` messages in order, without reading the others; with `after`, the next ones after it."""
        return self._session.opening.store.read(
            lambda tx: messages.page(tx, self._segments, last=last, after=after),
        )

    def subagent(self, name: str, *, title: str | None = None) -> Subagent:
        """The sub-agent of this name, with its own conversation. The same name is the same sub-agent."""
        return self._session._at((*self._path, nodes.checked_name(name)), title)

    @property
    def node_id(self) -> str:
        assert self._node is not None
        return self._node.id

    # -- steps and effects -----------------------------------------------------------------------

    @overload
    def step(self, name: str, fn: Callable[..., Any], /, *args: Any, returns: type[T], **kwargs: Any) -> T: ...
    @overload
    def step(self, name: str, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T: ...
    @overload
    def step(self, name: str, fn: Callable[[Given[A]], Never], /, *args: A, **kwargs: A) -> Any: ...
    @overload
    def step(self, name: Sequence[NameFunctionArguments], /, *args: object, **kwargs: object) -> Any: ...
    @overload
    def step(self, name: Callable[[NameFunctionArguments], Never], /, *args: object, **kwargs: object) -> Any: ...
    # The last two overloads are never called.
    def step(self, name: str, fn: Any = None, /, *args: Any, **kwargs: Any) -> Any:  # type: ignore[misc]
        """Run `fn` once for this name and these arguments. Later calls return the stored result.

        The result follows the function's return annotation, or `returns=`. An exception records
        nothing. Raises InvalidInput for arguments or results that cannot be stored, LeaseLost
        if the session was taken over.
        """
        return self._session.steps.perform(self._path, name, fn, args, kwargs)

    # A declared function keeps its own signature, so a type checker refuses options here: they go to `with_options`.
    @overload
    def effect(self, what: AnyDeclared[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T: ...
    @overload
    def effect(
        self,
        what: str,
        intent: Any = None,
        /,
        *,
        do: Callable[[Call], Any],
        returns: type[T],
        **options: Unpack[NamedOptions],
    ) -> T: ...
    @overload
    def effect(
        self, what: str, intent: Any = None, /, *, do: Callable[[Call], T], **options: Unpack[NamedOptions]
    ) -> T: ...
    @overload
    def effect(self, what: AnyDeclared[[Given[A]], Never], /, *args: A, **kwargs: A) -> Any: ...
    @overload
    def effect(self, what: Sequence[NameIntentDoOptions], /, *args: object, **kwargs: object) -> Any: ...
    @overload
    def effect(self, what: Callable[[DeclareEffectFirst], Never], /, *args: object, **kwargs: object) -> Any: ...
    def effect(self, what: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Change an outside system once; later calls return the recorded result.

        `what` is a function declared with `@standfast.effect`, followed by its arguments; or a name and an intent,
        with do=, probe=, compensate=, by=, key=, idempotent=, not_applied=, retry=, approve=, wait=, settle=, per=,
        again=, returns=. An exception of the function passes unchanged. Raises InProgress, EffectInDoubt,
        ApprovalRequired, KeyConflict or LeaseLost: docs/concepts/effects.md.
        """
        from standfast.ledger.effects.perform import perform

        return perform(self._opening(), what, args, kwargs)

    if not TYPE_CHECKING:  # a type checker must refuse unknown names

        def __getattr__(self, name: str) -> Any:
            session = self.__dict__.get("_session")
            handle = None if session is None else session.__dict__.get("_handle")
            known = hasattr(type(handle), name) and not name.startswith("_")
            hint = f"the store has it: s.store.{name}" if known else ""
            raise NoAttribute(f"{type(self).__name__!r} object", name, dir(self), hint)

    def bind(self, function: Callable[P, T]) -> Callable[P, T]:
        """`function` with this session as the current one, for a thread or an executor: `pool.submit(s.bind(f))`."""
        import contextvars
        import functools
        import inspect

        context = contextvars.copy_context()
        context.run(self._bind)
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def run_async(*args: P.args, **kwargs: P.kwargs) -> Any:
                self._bind()
                try:
                    return await function(*args, **kwargs)
                finally:
                    self._unbind()

            return cast("Callable[P, T]", run_async)

        @functools.wraps(function)
        def run(*args: P.args, **kwargs: P.kwargs) -> T:
            return context.copy().run(function, *args, **kwargs)

        return run

    def tools(self, *functions: Callable[..., Any]) -> list[Callable[..., Any]]:
        """The same declared functions. Every call of one is an effect of this session."""
        from standfast.ledger.effects.agent_tools import tools

        return tools(self._opening(), *functions)

    def decide(
        self,
        what: str,
        *,
        why: str | None = None,
        then: str | None = None,
        tags: Iterable[str] = (),
        agent: str | None = None,
    ) -> Deciding:
        """Record a decision before you act on it: `with s.decide("edit parser.py", why=…, then=…) as d`."""
        from standfast.ledger import decisions

        return decisions.decide(self._opening(), what, why=why, then=then, tags=tags, agent=agent)

    def budget(
        self,
        subject: str | None = None,
        *,
        tokens: int | None = None,
        usd: Usd | None = None,
        calls: int = 1,
        time: Duration | None = None,
        key: str | None = None,
        note: str | None = None,
    ) -> Spending:
        """Reserve an amount for a call, and settle it when the block ends: `with s.budget(tokens=3000) as b`.

        It counts in the budgets of `subject`, of this session, of its agent, and in `all`. `b.spent(tokens=812)`
        reports the used amount; without it the whole reserved amount counts. Entering raises Conflict
        (`budget_exhausted`).
        """
        from standfast.ledger.budgets.block import spending

        return spending(self._opening(), subject, tokens=tokens, usd=usd, calls=calls, time=time, key=key, note=note)

    def model_call(
        self,
        model: str,
        *,
        prompt: serial.Json,
        response: serial.Json,
        usage: object,
        context_tokens: int | None = None,
        hold: Hold | None = None,
        key: str | None = None,
    ) -> ModelCall:
        """Record one call of an LLM: its prompt, its response and its usage, in one transaction.

        `usage` is a provider's object, a mapping such as {"input_tokens": 812, "output_tokens": 120}, or a ModelUsage.
        With `hold` the same transaction settles the hold; otherwise the usage counts in the budgets of this session. A
        text over 64 kB is stored as an artifact. With a key it is recorded once. Raises InvalidInput, KeyConflict.
        """
        from standfast.record import model_calls

        said: dict[str, Any] = {"prompt": prompt, "response": response, "usage": usage}
        return model_calls.record(self, model, **said, context_tokens=context_tokens, hold=hold, key=key)

    def model_calls(self, *, after: str = "", limit: int = 50) -> list[ModelCall]:
        """The calls of LLMs recorded in this session, in order. `after` is the last id you have."""
        from standfast.record import model_calls

        opening = self._session.opening
        return opening.store.read(lambda tx: model_calls.listed(tx, opening.session_id, after=after, limit=limit))

    def wrap_model(
        self,
        function: Callable[P, T],
        model: str,
        *,
        tokens: int | None = None,
        usd: Usd | None = None,
        subject: str | None = None,
        usage: Callable[[T], object] | None = None,
        response: Callable[[T], serial.Json] | None = None,
    ) -> Callable[P, T]:
        """`function`, with `tokens` and `usd` reserved before each call, and the call recorded and settled after it.

        The first argument is the prompt. `usage` and `response` get the answer and return its parts; the default is the
        answer's `usage`, and its `text` or the answer itself. If the call raises `NotApplied`, the hold is released.
        Any other exception leaves the hold in doubt.
        """
        from standfast.record import model_calls

        return model_calls.wrapped(
            self,
            function,
            model,
            spending=lambda: self.budget(subject, tokens=tokens, usd=usd, note=model),
            usage=usage,
            response=response,
        )

    def log(
        self,
        type: str,
        data: serial.Json = None,
        *,
        stream: str | None = None,
        summary: str | None = None,
        key: str | None = None,
    ) -> Appended:
        """Append an event to `stream`, by default to the session's own stream, whose name is the session's id.

        With a key it is appended once, no matter how often this line runs.
        """
        from standfast.record.events import Events

        opening = self._session.opening
        events = Events(opening.store)
        return events.append(
            stream or opening.session_id, type, data, key=key, summary=summary, session=opening.session_id
        )

    def ask(self, to: str, body: serial.Json, *, key: str, timeout: Duration | None = None) -> Any:
        """Ask another agent, wait, and return its answer: `s.ask("reviewer", {"pr": 7}, key="review:7")`.

        The question is sent once per `key` of this session, and a program that was killed gets the same answer. `to` is
        an address as in `mail.send`; `sf.mail.answer` is the other end. Raises NoAnswer after `timeout`, which is 24 h
        unless you name another, or if the question became a dead letter. The same call then asks again.
        """
        from standfast.clock import DAY_US, duration_us
        from standfast.record.mail.ask import ask

        timeout_us = DAY_US if timeout is None else duration_us(timeout, "timeout")
        return ask(self._opening(), to, body, key=key, timeout_us=timeout_us)

    # -- folds -----------------------------------------------------------------------------------

    def checkpoint(
        self,
        upto: int | None = None,
        *,
        summary: str | None = None,
        data: serial.Json = None,
        cursor: serial.Json = None,
        versions: Mapping[str, str] | None = None,
        cache_keys: Iterable[str] = (),
    ) -> Checkpoint:
        """Store a summary of the messages up to position `upto`, or of all messages so far. The messages stay."""
        from standfast.checkpoint.checkpoints import Checkpoints

        opening = self._opening()
        opening.usable()
        words: dict[str, Any] = {"summary": summary, "data": data, "cursor": cursor}
        pins: dict[str, Any] = {"versions": versions, "cache_keys": cache_keys}
        return Checkpoints(opening.store).add(self.node_id, upto, **words, **pins)

    def fold(
        self,
        fn: Callable[[list[Said]], serial.Json],
        *,
        keep_last: int = 10,
        cursor: serial.Json = None,
        versions: Mapping[str, str] | None = None,
        cache_keys: Iterable[str] = (),
    ) -> Checkpoint | None:
        """Let `fn` fold all but the last messages into a text or JSON value. None if there are no messages to fold."""
        from standfast.checkpoint import checkpoints

        pins: dict[str, Any] = {"cursor": cursor, "versions": versions, "cache_keys": cache_keys}
        return checkpoints.fold(self._opening(), fn, keep_last=keep_last, **pins)

    def context(self, *, last: int = 200, versions: Mapping[str, str] | None = None) -> Context:
        """The newest checkpoint and the messages after it, as the context for an LLM."""
        from standfast.checkpoint.checkpoints import Checkpoints

        return Checkpoints(self._opening().store).context(self.node_id, last=last, versions=versions)

    @property
    def artifacts(self) -> SessionArtifacts:
        """The artifacts (large bytes) of this session: `s.artifacts.put(Path("build.log"))`."""
        return SessionArtifacts(self._session.opening)

    def _bind(self) -> None:
        """Make effects and steps that are called in this context belong to this node, until `_unbind`."""
        current.bind(self, self._opening())

    def _unbind(self) -> None:
        current.unbind(self)

    def _opening(self) -> Opening:
        """The opening of the session, for this node."""
        opening = copy(self._session.opening)  # shares the counts, so a repeat by any node is a repeat
        opening.node_id = self.node_id
        return opening


class Subagent(NodeMethods):
    """A sub-agent of an open session. In `with s.subagent("x"):`, called effects and steps belong to it."""

    def __enter__(self) -> Self:
        self._bind()
        return self

    def __exit__(self, *error: object) -> None:
        self._unbind()

    def __repr__(self) -> str:
        return f"<Subagent {'/'.join(self._path)} of {self._session.key}>"


class SessionArtifacts:
    """The artifacts (large bytes) of one session."""

    awaited = True

    def __init__(self, opening: Opening) -> None:
        self._opening = opening

    def put(self, data: Source, *, name: str | None = None, kind: str = "file", retention: str = "keep") -> Artifact:
        """Store bytes, the content of a path, or a binary stream. It is on disk when this returns."""
        from standfast.core.artifacts import Artifacts

        self._opening.usable()
        resource = Artifacts(self._opening.store)
        return resource.put(data, name=name, kind=kind, session=self._opening.session_id, retention=retention)

    def get(self, which: str) -> bytes:
        """The bytes of an artifact, checked against their digest. `which` is an id, the end of an id, or a name."""
        from standfast.core.artifacts import Artifacts

        return Artifacts(self._opening.store).get(which)
