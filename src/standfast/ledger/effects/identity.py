"""The identity of an effect, as pure functions: keys, hashes, and the comparison of intents.

Scope, session, tool and the fields named in `by` identify an effect. Their hash is its key, which begins with `by:`.
A caller's own `key` replaces that key and identifies the effect in every session of the scope. Text that an LLM writes
belongs in neither. It is part of the intent, which is recorded; if it differs in a later call, the journal says so.
The remote service gets neither key. It gets `sf_` and a hash, the same for every attempt.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from standfast import crash, serial
from standfast.clock import SECOND_US, Duration, duration_us
from standfast.config.scope import Label
from standfast.core import keys
from standfast.errors import InvalidInput

if TYPE_CHECKING:
    from standfast.clock import Clock
    from standfast.db.contract import Row, Tx
    from standfast.ledger.effects.call import Call
    from standfast.ledger.openings import Opening

DERIVED: Final = "by:"
COMPENSATE: Final = "compensate:"
KEY_MAX: Final = 500
TOOL_MAX: Final = 200
PER: Final = (None, "session", "store")
SETTLE_US = 0 if crash.TRACE in os.environ else 10 * SECOND_US
"""A probe's "not there" counts only this long after the last possible sending, because a request of a dead process may
still be in flight."""
FAR_FUTURE_US: Final = 2**62
"""`idempotent=True`: the remote never forgets the key."""

_NUMBERED = r" #[0-9]+$"
SHOWN_MAX = 160
_VALUE_MAX = 48


class Asking(NamedTuple):
    """A probe, and how long after the last possible sending its "not there" does not count."""

    tool: str
    ask: Callable[[serial.Json, Call], Any]
    """Calls the probe with the recorded intent."""
    name: str | None
    settle_us: int
    returns: Any = None
    """The type that the value of `Applied` must decode to."""
    read: Callable[[Any], Any] | None = None
    """Turns the value that a `find` function returned into Applied or NotApplied."""
    wait: Callable[[Clock, int], None] | None = None
    """Waits before the probe is asked again. None sleeps."""


class Request(NamedTuple):
    """All that `begin` and `perform` need to know about one call. Made before the store is read."""

    scope: str
    tool: str
    key: str
    """The stored key: derived or given by the caller, with ` #2` at its second use."""
    n: int
    by: tuple[str, ...] | None
    fields: serial.Json
    """The fields of the intent that identify the effect; without `by`, all of them."""
    shown: str
    """The tool and these fields in one line."""
    by_hash: str
    intent: serial.Json
    intent_text: str
    intent_hash: str
    context: str | None
    idempotent_us: int | None
    approve: bool = False
    why: str | None = None
    gate: str | None = None
    opening: Opening | None = None
    """The opening that calls, which must own its session when the intent is written."""
    session_id: str | None = None
    label: Label | None = None
    """The repository of the session; None for the caller's."""
    task_id: str | None = None
    holder: str | None = None
    """The process that does the work, if it is not the caller: the child of `once`."""
    for_us: int | None = None
    plan: bool = False
    still: Callable[[], bool] | None = None
    """Asked just before the dispatch. False means that the caller no longer waits, and refuses the dispatch."""
    shape: str | None = None
    """The shape of the result, for the template that a person fills in; None if any JSON value fits."""
    of_session: bool = False
    """True if the session is part of the identity. It is not with `key` or `per="store"`."""
    begins_us: int | None = None
    """The start of the period in the key of `once --per`. None: the period may have begun at any time."""
    unheard: bool = False
    """True if there is probably no row with this identity. Then the call inserts without a lookup."""
    again: bool = False
    retry: int = 1
    """The maximum of attempts. The next attempt is made only if the last one is known not applied."""
    wait_us: int | None = None
    """How long the call waits for an approval."""
    not_applied: tuple[type[BaseException], ...] = ()
    returns: Any = None
    act: Callable[[serial.Json, Call], Any] | None = None
    """Calls the function: with the recorded intent if that is sent again, else with the caller's arguments."""
    asking: Asking | None = None
    function: Callable[..., Any] | None = None

    def repository(self, tx: Tx) -> Label:
        """The repository in which the effect is recorded: that of its session, wherever the program runs."""
        if self.opening is not None:
            return self.opening.label
        return tx.caller.label if self.label is None else self.label

    def within(self, session: Row | None) -> Request:
        """A copy of this request for a session, given as a row with id, git_dir and origin."""
        if session is None:
            return self
        return self._replace(session_id=session["id"], label=Label(session["git_dir"], session["origin"]))

    def owner(self) -> dict[str, Any]:
        """The columns that name the session and its node, with the fence and the holder that must be current."""
        if self.opening is None:
            return {"session_id": self.session_id, "node_id": None, "session_fence": None, "session_holder": None}
        return {**self.opening.guarded(), "node_id": self.opening.node_id, "session_holder": self.opening.holder}


def checked_tool(tool: object) -> str:
    """The name of a tool. Raises InvalidInput for an invalid or reserved name."""
    tool = keys.checked(tool, "a tool's name", limit=TOOL_MAX)
    if tool.startswith(COMPENSATE):
        raise InvalidInput(f"{tool[:60]!r}: names beginning with {COMPENSATE!r} are reserved", "choose another name")
    return tool


def checked_key(key: object) -> str:
    """A caller's key. Raises InvalidInput for an invalid key and for one that looks like a derived or numbered key."""
    key = keys.checked(key, "a key", limit=KEY_MAX)
    if key.startswith(DERIVED):
        raise InvalidInput(f"{key[:60]!r}: keys beginning with {DERIVED!r} are made by standfast", "choose another key")
    if re.search(_NUMBERED, key):
        raise InvalidInput(
            f"{key[:60]!r}: ' #' and a number at the end mean again=True", "choose another key, or pass again=True"
        )
    return key


def derived_key(session_id: str | None, tool: str, fields: serial.Json) -> str:
    """The key of an effect for which the caller gave none."""
    return DERIVED + serial.hash([session_id, tool, fields], what="intent").removeprefix("h1:")[:40]


def numbered(key: str, n: int) -> str:
    """The key of the n-th time, for `again=True`."""
    return key if n == 1 else f"{key} #{n}"


def call_key(store_id: str, scope: str, key: str) -> str:
    """The idempotency key for the remote service. It is the same for every attempt, and never the raw key."""
    return "sf_" + serial.hash([store_id, scope, key]).removeprefix("h1:")[:32]


def project(intent: serial.Json, by: tuple[str, ...]) -> dict[str, serial.Json]:
    """The fields named in `by`. Raises InvalidInput if the intent lacks one."""
    if not isinstance(intent, dict):
        raise InvalidInput("by names fields, so the intent must be an object", 'for example {"branch": "fix-42"}')
    missing = [name for name in by if name not in intent]
    if missing:
        has = ", ".join(map(repr, sorted(intent))) or "none"
        raise InvalidInput(f"by names {missing[0]!r}, which the intent does not have", f"its fields are: {has}")
    return {name: intent[name] for name in by}


def same_fields(wanted: Request, by_hash: str, intent: serial.Json) -> bool:
    """Whether the recorded intent of the key equals the present one."""
    if by_hash == wanted.by_hash:
        return True
    # Since the row was recorded, the code may have changed `by`. Then compare the values of the fields it names now.
    if wanted.by is None or not isinstance(intent, dict):
        return bool(intent is not None and serial.hash(intent) == wanted.intent_hash)
    return all(name in intent and serial.hash(intent[name]) == serial.hash(wanted.fields[name]) for name in wanted.by)


def differences(recorded: serial.Json, now: serial.Json) -> list[str]:
    """The names of the fields that differ; [""] if the values differ and are not objects."""
    if not isinstance(recorded, dict) or not isinstance(now, dict):
        return [] if serial.canonical(recorded) == serial.canonical(now) else [""]
    names = sorted(recorded.keys() | now.keys())
    return [name for name in names if not _same(recorded, now, name)]


def _same(one: dict[str, Any], other: dict[str, Any], name: str) -> bool:
    return name in one and name in other and serial.canonical(one[name]) == serial.canonical(other[name])


def told(wanted: Request, recorded: serial.Json) -> str:
    """The identifying fields that differ, for people: `branch was a, is b`."""
    now = wanted.fields if wanted.by is not None else wanted.intent
    if not isinstance(recorded, dict) or not isinstance(now, dict):
        return f"it was {_value(recorded)}, is {_value(now)}"
    before = {name: recorded[name] for name in recorded if wanted.by is None or name in wanted.by}
    parts = []
    for name in differences(before, now)[:5]:
        was = _field(name, before[name]) if name in before else "not there"
        called = "it" if name == "argv" else name
        parts.append(f"{called} was {was}, is {_field(name, now[name]) if name in now else 'not there'}")
    return "; ".join(parts)


def _field(name: str, value: serial.Json) -> str:
    """A value for people: `argv` as a command line."""
    if name != "argv" or not isinstance(value, list):
        return _value(value)
    import shlex

    return serial.clean(shlex.join(map(str, value)), SHOWN_MAX)


def describe(tool: str, fields: serial.Json) -> str:
    """The effect in one line: `github.open_pr repo=a/b branch=fix-42`."""
    if isinstance(fields, dict) and fields.keys() == {"argv"} and isinstance(fields["argv"], list):
        import shlex

        words = [shlex.join(map(str, fields["argv"]))]
    elif isinstance(fields, dict):
        words = [f"{name}={_value(value)}" for name, value in fields.items()]
    else:
        words = [] if fields is None else [_value(fields)]
    return serial.clean(" ".join([tool, *words]), SHOWN_MAX)


def _value(value: serial.Json) -> str:
    return serial.clean(value if isinstance(value, str) else serial.canonical(value), _VALUE_MAX)


def settle_us(settle: Duration | None) -> int:
    """`settle=` in microseconds. Raises InvalidInput for a value that is no duration."""
    return SETTLE_US if settle is None else duration_us(settle, "settle")


def wait_us(wait: Duration | None) -> int | None:
    """`wait=` in microseconds; None does not wait for an approval. Raises InvalidInput for a value that is no
    duration."""
    return duration_us(wait, "wait")


def idempotent_us(idempotent: bool | Duration | None) -> int | None:
    """`idempotent=` as it is stored: None is no, a duration is how long the remote knows the key."""
    if idempotent is None or idempotent is False:
        return None
    if idempotent is True:
        return FAR_FUTURE_US
    window_us = duration_us(idempotent, "idempotent")
    if window_us == 0:
        raise InvalidInput("idempotent is True, False, or a duration longer than 0 s", 'idempotent="24h"')
    return window_us
