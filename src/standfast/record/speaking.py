"""What can be said and done in an open session, by itself and by each of its sub-agents.

Every verb is bound to one node: a conversation, steps and effects of its own name. Effects,
decisions, checkpoints and artifacts are other rooms' work; here they are only given the opening.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from copy import copy
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, overload

from standfast import crash, serial
from standfast.ledger.opening import Opening
from standfast.record import messages, nodes
from standfast.record.messages import Message
from standfast.record.nodes import Node, Path, Segment

if TYPE_CHECKING:
    from standfast.checkpoint.checkpoints import Checkpoint, Context, Said
    from standfast.footings.artifacts import Artifact, Source
    from standfast.ledger.decisions import Deciding
    from standfast.ledger.effects.call import Call
    from standfast.ledger.effects.declared import Declared
    from standfast.record.events import Appended
    from standfast.record.live import Session

P = ParamSpec("P")
T = TypeVar("T")


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

    def log(
        self,
        type: str,
        data: serial.Json = None,
        *,
        stream: str | None = None,
        summary: str | None = None,
        key: str | None = None,
    ) -> Appended:
        """Append an event of this session: to its own stream, which has the session's id for a name, or to `stream`.

        With a key it is appended once, however often this line is run.
        """
        from standfast.record.events import Events

        opening = self._session.opening
        events = Events(opening.store)
        return events.append(
            stream or opening.session_id, type, data, key=key, summary=summary, session=opening.session_id
        )

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
