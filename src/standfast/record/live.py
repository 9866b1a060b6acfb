"""A session while it is open: what `with sf.session(key) as s` gives.

Entering opens or resumes it; `s.resumed` says what was found. Leaving completes it. An
exception fails it and keeps its last line, except those after which somebody is expected to come
back: in doubt, approval required, Ctrl-C, a cancelled task, a generator that was closed. They
leave it waiting, as does `s.pause(reason)`. `sys.exit()` completes it, `sys.exit(3)` fails it.
Whatever happens, the lease is given back; if the process dies, its lease dies with it.

A session and each of its sub-agents speak with the same verbs.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Mapping
from copy import copy
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypeVar, overload
from weakref import WeakValueDictionary

from standfast import crash, serial
from standfast.db.contract import Tx
from standfast.db.store import Store, refused_inside
from standfast.errors import ApprovalRequired, EffectInDoubt, InvalidInput, StandfastError
from standfast.footings import journal, leases
from standfast.ids import is_id
from standfast.ledger.opening import Opening
from standfast.record import messages, nodes, sessions
from standfast.record.messages import Message
from standfast.record.nodes import Node, Path, Segment
from standfast.record.sessions import Opened, Resumed, SessionRecord, Sessions
from standfast.record.steps import Steps

if TYPE_CHECKING:
    from types import TracebackType

    from standfast.checkpoint.checkpoints import Checkpoint, Context, Said
    from standfast.footings.artifacts import Artifact, Source
    from standfast.ledger.decisions import Deciding
    from standfast.ledger.effects.declared import Call, Declared
    from standfast.record.state import SessionState

P = ParamSpec("P")
T = TypeVar("T")

VARIABLE = "STANDFAST_SESSION"
"""Names the session that `session run` has opened for everything below it."""

_open_here: WeakValueDictionary[tuple[str, str], Session] = WeakValueDictionary()
"""Sessions that this process has open, or is opening: (scope, key). One that was dropped is gone from here."""
_mutex = threading.Lock()


def _forked() -> None:
    """A child has nothing open, and nobody of its threads holds the lock."""
    global _mutex
    _mutex = threading.Lock()
    _open_here.clear()


os.register_at_fork(after_in_child=_forked)


class Speaker:
    """The verbs of a session, bound to one of its nodes."""

    awaited = True
    """Under an event loop its methods are awaited too."""

    def __init__(self, session: Session, path: Path) -> None:
        self._session = session
        self._path = path
        self._node: Node | None = None
        self._segments: tuple[Segment, ...] = ()

    # -- saying and reading ----------------------------------------------------------------------

    def say(self, role: str, content: serial.Json, *, key: str | None = None) -> Message:
        """Put one message at the end. With a key it is said once, however often this line is run.

        Raises KeyConflict if the key said something else.
        """
        opening = self._session.opening
        said = messages.utterance(role, content, key=key, redact=opening.store.redact)
        spoken = opening.store.write(lambda tx: messages.say(tx, opening.session_id, self._segments, said))
        crash.point("message.after_say")
        return spoken

    def messages(self, *, last: int = 50, after: int | None = None) -> list[Message]:
        """The newest `last`, in order, without reading the rest; with `after`, the next ones behind it."""
        return self._session.opening.store.read(
            lambda tx: messages.page(tx, self._segments, last=last, after=after),
        )

    def subagent(self, name: str, *, title: str | None = None) -> Subagent:
        """The sub-agent of this name, with a conversation of its own; the same name is the same one."""
        return self._session._at((*self._path, nodes.checked_name(name)), title)

    @property
    def node_id(self) -> str:
        assert self._node is not None
        return self._node.id

    # -- working ---------------------------------------------------------------------------------

    @overload
    def step(self, name: str, fn: Callable[..., Any], /, *args: Any, returns: type[T], **kwargs: Any) -> T: ...
    @overload
    def step(self, name: str, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T: ...
    def step(self, name: str, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Run `fn` once for this name and these arguments, and return what was stored, ever after.

        The result follows the function's return annotation, or `returns=`. An exception records
        nothing. Raises InvalidInput for arguments or results that cannot be stored, LeaseLost
        if the session was taken over.
        """
        return self._session.steps.perform(self._path, name, fn, args, kwargs)

    # A declared function keeps its own signature; only a call with an option of ours is less exact.
    @overload
    def effect(self, what: Declared[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T: ...
    @overload
    def effect(self, what: Declared[..., T], /, *args: Any, again: bool, **kwargs: Any) -> T: ...
    @overload
    def effect(self, what: Declared[..., T], /, *args: Any, key: str, **kwargs: Any) -> T: ...
    @overload
    def effect(
        self, what: str, intent: Any = None, /, *, do: Callable[[Call], Any], returns: type[T], **options: Any
    ) -> T: ...
    @overload
    def effect(self, what: str, intent: Any = None, /, *, do: Callable[[Call], T], **options: Any) -> T: ...
    def effect(self, what: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Do something the outside world can see, once: the recorded result ever after.

        `what` is a function declared with `@standfast.effect`, followed by its arguments; or a
        name and an intent, with do=, probe=, undo=, by=, key=, idempotent=, not_applied=,
        approve=, again=, returns=. Whatever the function raises passes unchanged. Raises
        InProgress, EffectInDoubt, ApprovalRequired, KeyConflict or LeaseLost: docs/effects.md.
        """
        from standfast.ledger import effects

        return effects.perform(self._opening(), what, *args, **kwargs)

    def tools(self, *functions: Callable[..., Any]) -> list[Callable[..., Any]]:
        """The same functions, as declared with `@standfast.effect`; every call is an effect of this session."""
        from standfast.ledger import effects

        return effects.tools(self._opening(), *functions)

    def decide(
        self,
        what: str,
        *,
        why: str | None = None,
        then: str | None = None,
        tags: Iterable[str] = (),
        agent: str | None = None,
    ) -> Deciding:
        """Write down what and why, before acting: `with s.decide("edit parser.py", why=…, then=…) as d`."""
        from standfast.ledger import decisions

        return decisions.decide(self._opening(), what, why=why, then=then, tags=tags, agent=agent)

    # -- folding ---------------------------------------------------------------------------------

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
        """Let a few words stand for everything said up to position `upto`, or so far. The messages stay."""
        from standfast.checkpoint import checkpoints

        words: dict[str, Any] = {"summary": summary, "data": data, "cursor": cursor}
        return checkpoints.add(self._opening(), upto, versions=versions, cache_keys=cache_keys, **words)

    def fold(
        self,
        fn: Callable[[list[Said]], serial.Json],
        *,
        keep_last: int = 10,
        cursor: serial.Json = None,
        versions: Mapping[str, str] | None = None,
        cache_keys: Iterable[str] = (),
    ) -> Checkpoint | None:
        """Let `fn` fold all but the last messages into a text or JSON value; None if there is nothing to fold."""
        from standfast.checkpoint import checkpoints

        pins: dict[str, Any] = {"cursor": cursor, "versions": versions, "cache_keys": cache_keys}
        return checkpoints.fold(self._opening(), fn, keep_last=keep_last, **pins)

    def context(self, *, last: int = 200, versions: Mapping[str, str] | None = None) -> Context:
        """The newest fold and what was said after it: what a model is given to go on."""
        from standfast.checkpoint import checkpoints

        return checkpoints.context(self._opening(), last=last, versions=versions)

    @property
    def artifacts(self) -> SessionArtifacts:
        """Large bytes of this session: `s.artifacts.put(Path("build.log"))`."""
        return SessionArtifacts(self._session.opening)

    def _opening(self) -> Opening:
        """The opening of the session, as this node's."""
        opening = copy(self._session.opening)  # shares the counts: a repeat is a repeat, whoever repeats it
        opening.node_id = self.node_id
        return opening


class Subagent(Speaker):
    """A sub-agent of an open session."""

    def __repr__(self) -> str:
        return f"<Subagent {'/'.join(self._path)} of {self._session.key}>"


class SessionArtifacts:
    """Large bytes that belong to one session."""

    awaited = True

    def __init__(self, opening: Opening) -> None:
        self._opening = opening

    def put(self, data: Source, *, name: str | None = None, kind: str = "file", retention: str = "keep") -> Artifact:
        """Store bytes, the content of a path, or a binary stream. Durable when it returns."""
        from standfast.footings.artifacts import Artifacts

        self._opening.usable()
        room = Artifacts(self._opening.store)
        return room.put(data, name=name, kind=kind, session=self._opening.session_id, retention=retention)

    def get(self, which: str) -> bytes:
        """The bytes, compared with their digest. `which` is an id, its end, or a name."""
        from standfast.footings.artifacts import Artifacts

        return Artifacts(self._opening.store).get(which)


class Session(Speaker):
    """A session, to be entered. Outside its `with` block it owns nothing."""

    def __init__(self, store: Store, key: str, *, agent: str | None = None) -> None:
        super().__init__(self, ())
        self._store = store
        self._agent = agent
        self._given_key = key
        self._opened: Opened | None = None
        self._opening_now: Opening | None = None
        self._steps: Steps | None = None
        self._paused: str | None = None
        self._subagents: dict[Path, Subagent] = {}
        self._cursor: serial.Json = None
        self.resumed: Resumed | None = None
        """None for a new session; else what was found."""

    # -- entering and leaving -----------------------------------------------------------------------

    def __enter__(self) -> Self:
        self._open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._opening_now is None or self._opening_now.elsewhere:
            return  # ended already, or a forked child left its parent's block
        state, reason = _outcome(error, self._paused)
        if reason is not None and self._store.redact:
            from standfast.record.redaction import redacted

            reason = redacted(reason)
        try:
            self._end(state, reason)
        except StandfastError as refusal:
            if error is None:
                raise
            # What went wrong in the block is what the caller must see.
            error.add_note(f"standfast: session {self.key!r} could not be ended: {refusal}")

    def _open(self) -> None:
        refused_inside(self._store.held, "session")
        if self._opening_now is not None:
            raise InvalidInput(f"session {self.key!r} is open already", "use sf.session(…) anew for another opening")
        room = Sessions(self._store)
        key = room.get(self._given_key).key if is_id(self._given_key) else self._given_key
        with _mutex:
            # If nobody else in this process has it, a hold in our name is one that was dropped, or
            # one that `session run` took for us.
            alone = _open_here.setdefault((self._store.caller.scope, key), self) is self
        try:
            opened = room.open(self._given_key, agent=self._agent, alone=alone, join=os.environ.get(VARIABLE))
        except BaseException:
            self._forget()
            raise
        crash.point("session.after_open")
        self._adopt(opened)
        leases.renewer(self._store).start()

    def _adopt(self, opened: Opened) -> None:
        record = opened.record
        self._opened, self._node, self._cursor = opened, opened.root, record.cursor
        self._opening_now = Opening(
            self._store,
            session_id=record.id,
            session_key=record.key,
            node_id=opened.root.id,
            fence=record.fence,
            agent=record.agent,
            lineage=opened.lineage,
        )
        self._paused = None
        self._subagents = {}
        self._segments = (Segment(opened.root.id, opened.root.first_position, nodes.POSITION_MAX),)
        if opened.lineage:
            self._segments = self._store.read(lambda tx: nodes.segments(tx, opened.root, (), opened.lineage))
        # Counted after the commit, on a snapshot: nobody waits for it, and nobody else may add to it.
        self.resumed = None if opened.before is None else Sessions(self._store).found(opened.before)
        self._steps = Steps(self._opening_now, recorded=self.resumed.steps if self.resumed else 0)

    def _end(self, state: str, reason: str | None) -> SessionRecord:
        opening = self.opening
        try:
            ended = Sessions(self._store).end(opening.session_id, state, reason=reason, fence=opening.fence)
        finally:
            self._opening_now = None
            self._forget()
        crash.point("session.after_end")
        return ended

    def _forget(self) -> None:
        with _mutex:
            for name, session in list(_open_here.items()):
                if session is self:
                    del _open_here[name]

    def end(self, state: str = "completed", *, reason: str | None = None) -> SessionRecord:
        """End it before the block does: completed, failed or waiting."""
        return self._end(state, reason)

    def pause(self, reason: str) -> None:
        """Leaving the block will leave the session waiting, for this reason, instead of completing it."""
        self.opening.usable()
        self._paused = serial.clean(reason, sessions.REASON_MAX) or "paused"

    # -- what it is -----------------------------------------------------------------------------------

    @property
    def opening(self) -> Opening:
        """This opening. Raises InvalidInput outside the block."""
        if self._opening_now is None:
            raise InvalidInput(f"session {self._given_key!r} is not open", "enter it: with sf.session(key) as s")
        return self._opening_now

    @property
    def steps(self) -> Steps:
        self.opening.usable()
        assert self._steps is not None
        return self._steps

    @property
    def record(self) -> SessionRecord:
        """The session as it was when it was opened."""
        if self._opened is None:
            raise InvalidInput(f"session {self._given_key!r} was not opened yet", "enter it: with sf.session(key) as s")
        return self._opened.record

    @property
    def id(self) -> str:
        return self.record.id

    @property
    def key(self) -> str:
        return self._opened.record.key if self._opened else self._given_key

    @property
    def agent(self) -> str | None:
        return self.record.agent

    @property
    def fence(self) -> int:
        return self.opening.fence

    @property
    def cursor(self) -> serial.Json:
        """How far it has come, in the program's own terms: any JSON value, kept across openings."""
        return self._cursor

    @cursor.setter
    def cursor(self, value: serial.Json) -> None:
        opening = self.opening
        opening.usable()
        text = serial.dumps(value, what="cursor")

        def move(tx: Tx) -> StandfastError | None:
            moved = tx.maybe(
                sessions.SQL.move, cursor=text, now_us=tx.now_us(), holder=opening.holder, **opening.guarded()
            )
            if moved is None:
                return opening.guard(tx)
            journal.append(
                tx, "session.moved", opening.session_id, session_id=opening.session_id, data={"cursor": value}
            )
            return None

        self._store.write(move)
        self._cursor = serial.read(text)

    @property
    def state(self) -> SessionState:
        """Values of this session, by name: `s.state["branch"] = "fix-42"`."""
        from standfast.record.state import SessionState

        return SessionState(self.opening)

    def _at(self, path: Path, title: str | None) -> Subagent:
        found = self._subagents.get(path)
        if found is not None:
            return found
        opening = self.opening
        found = Subagent(self, path)
        # Mostly it is there already, and reading waits for nobody.
        node = self._store.read(lambda tx: nodes.find(tx, opening.session_id, path))
        if node is None:
            node = self._store.write(
                lambda tx: nodes.open_at(tx, opening.session_id, path, opening.lineage, title=title)
            )
        found._node = opened_at = node
        found._segments = self._store.read(lambda tx: nodes.segments(tx, opened_at, path, opening.lineage))
        return self._subagents.setdefault(path, found)

    def __repr__(self) -> str:
        return f"<Session {self.key}>"


# -- how a block was left ------------------------------------------------------------------------------


def _outcome(error: BaseException | None, paused: str | None) -> tuple[str, str | None]:
    """The state to leave the session in, and the reason to keep."""
    if error is None:
        return ("completed", None) if paused is None else ("waiting", paused)
    if isinstance(error, SystemExit):
        ok = error.code in (None, 0, False)
        return ("completed", None) if ok else ("failed", f"exited: {error.code}")
    if reason := _comes_back(error):
        return "waiting", reason
    return "failed", last_line(error)


def _comes_back(error: BaseException) -> str | None:
    """Why somebody will come back to this session; None if it failed."""
    if isinstance(error, (EffectInDoubt, ApprovalRequired)):
        return error.message
    if isinstance(error, KeyboardInterrupt):
        return "interrupted"
    if isinstance(error, GeneratorExit):
        return "its generator was closed"
    if type(error).__name__ == "CancelledError" and not isinstance(error, Exception):
        return "cancelled"
    if isinstance(error, BaseExceptionGroup):
        reasons = [_comes_back(one) for one in error.exceptions]
        return "; ".join(filter(None, reasons)) if all(reasons) else None
    return None


def last_line(error: BaseException) -> str:
    """As the last line of a traceback says it, and no more than that."""
    said = error.message if isinstance(error, StandfastError) else str(error)
    kind = type(error).__qualname__
    line = next((line for line in said.splitlines() if line.strip()), "")
    return serial.clean(f"{kind}: {line}" if line else kind, sessions.REASON_MAX)
