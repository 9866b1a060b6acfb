"""Short histories of calls from several processes, and the models that say which answers are possible.

Each thing (a value, a lock, a task, an effect, an approval, a box) has a model of a few lines: a state, and
`step(state, asked, result, seen)`, which returns the state after a call, or None if the answer does not fit. `play`
makes the calls of a process. The death of a process is also a call: some time during this call its leases end.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from contextlib import suppress
from random import Random
from typing import Any, NamedTuple, TypeVar

from standfast.errors import (
    ApprovalRequired,
    Conflict,
    EffectInDoubt,
    IllegalTransition,
    InProgress,
    KeyConflict,
    LeaseLost,
    NotFound,
    StandfastError,
    VersionConflict,
)
from standfast.handle import Standfast

Asked = tuple[Any, ...]
Dead = frozenset[str]
NOBODY: Dead = frozenset()
S = TypeVar("S")
REFUSALS = (InProgress, LeaseLost, IllegalTransition, NotFound)


class Thing:
    """One thing that processes share, and its model."""

    start: Any

    def __init__(self, name: str) -> None:
        self.name = name

    def made(self, sf: Standfast) -> None:
        """Create the thing before any process plays."""

    def play(self, sf: Standfast, who: str, draw: Random, mine: dict[str, Any]) -> tuple[Asked, Callable[[], Any]]:
        """The next call, with its description. `mine` has the values that this process remembers of the thing."""
        raise NotImplementedError

    def step(self, state: Any, asked: Asked, result: Any, seen: bool) -> Any:
        raise NotImplementedError


def dies(state: Any, who: str) -> Any:
    return state._replace(dead=state.dead | {who})


def refused(call: Callable[[], object]) -> int:
    """Make the call. Returns 1, or 0 if it was refused."""
    try:
        call()
    except REFUSALS:
        return 0
    return 1


def fits(after: S, wanted: object, result: object, seen: bool) -> S | None:
    """The state after a call whose answer must be `wanted`."""
    return None if seen and result != wanted else after


# -- a value ------------------------------------------------------------------------------------------------


class Value(NamedTuple):
    version: int = 0
    value: str | None = None
    dead: Dead = NOBODY


class State(Thing):
    """Compare-and-set. A careless client compares first, and then writes."""

    start = Value()
    careless = False

    def play(self, sf: Standfast, who: str, draw: Random, mine: dict[str, Any]) -> tuple[Asked, Callable[[], Any]]:
        kind = draw.choice(["get", "get", "swap", "swap", "swap", "set", "delete"])
        value, version = f"{who}.{draw.randrange(10**6)}", mine.get("version", 0) if draw.random() < 0.8 else 0

        def call() -> Any:
            with suppress(NotFound, VersionConflict):
                if kind == "get":
                    found = sf.state.get(self.name)
                    mine["version"] = found.version
                    return [found.version, found.value]
                if kind == "set":
                    mine["version"] = sf.state.set(self.name, value).version
                elif kind == "delete":
                    mine["version"] = 0
                    return sf.state.delete(self.name).version
                elif self.careless:
                    mine["version"] = self._compared(sf, version, value)
                else:
                    mine["version"] = sf.state.swap(self.name, value, version=version).version
                return mine["version"]
            mine["version"] = 0
            return [0, None] if kind == "get" else 0

        return (kind, who, value, version), call

    def _compared(self, sf: Standfast, version: int, value: str) -> int:
        try:
            there = sf.state.get(self.name).version
        except NotFound:
            there = 0
        return sf.state.set(self.name, value).version if there == version else 0

    def step(self, state: Value, asked: Asked, result: Any, seen: bool) -> Value | None:
        kind, _, value, version = asked
        there = state.version if state.value is not None else 0
        if kind == "get":
            return state if not seen or result == [there, state.value] else None
        allowed = kind == "set" or (state.value is not None if kind == "delete" else version == there)
        if seen and result != (state.version + 1 if allowed else 0):
            return None
        return (
            state._replace(version=state.version + 1, value=None if kind == "delete" else value) if allowed else state
        )


# -- a lock, and a task ---------------------------------------------------------------------------------------


class Held(NamedTuple):
    holder: str | None = None
    fence: int = 0
    closed: bool = False
    dead: Dead = NOBODY

    @property
    def free(self) -> bool:
        return self.holder is None or self.holder in self.dead


class Lock(Thing):
    start = Held()

    def play(self, sf: Standfast, who: str, draw: Random, mine: dict[str, Any]) -> tuple[Asked, Callable[[], Any]]:
        fence = mine.get("fence", 0)
        kind = draw.choice(["acquire", "acquire", "get", *(["release"] * 4 if fence else [])])

        def call() -> Any:
            try:
                if kind == "get":
                    found = sf.leases.get(self.name)
                    return [found.fence, found.standing == "live"]
                if kind == "release":
                    mine["fence"] = 0
                    sf.leases.release(self.name, fence)
                    return 1
                taken = sf.leases.acquire(self.name).fence
            except REFUSALS:
                return [0, False] if kind == "get" else 0
            mine["fence"] = taken
            return taken

        return (kind, who, fence), call

    def step(self, state: Held, asked: Asked, result: Any, seen: bool) -> Held | None:
        kind, who, fence = asked
        if who in state.dead:
            return None  # dead processes make no calls
        if kind == "get":
            return fits(state, [state.fence, not state.free], result, seen)
        if kind == "acquire":
            taken = state._replace(holder=who, fence=state.fence + 1)
            after, wanted = (taken, taken.fence) if state.free else (state, 0)
            return fits(after, wanted, result, seen)
        own = (state.holder, state.fence) == (who, fence)
        return fits(state._replace(holder=None) if own else state, int(own), result, seen)


class Chore(Thing):
    """A task: it has one holder at a time, is closed with the fencing token of the claim, and is opened again."""

    start = Held()

    def made(self, sf: Standfast) -> None:
        sf.tasks.add(self.name, fingerprint=self.name)

    def play(self, sf: Standfast, who: str, draw: Random, mine: dict[str, Any]) -> tuple[Asked, Callable[[], Any]]:
        task = mine.get("task")
        kind = draw.choice(["claim", "claim", "get", "reopen", *(["done", "release"] * 2 if task else [])])

        def call() -> Any:
            if kind == "get":
                found = sf.tasks.get(self.name)
                return [found.state == "closed", found.fence]
            if kind == "reopen":
                return refused(lambda: sf.tasks.reopen(self.name))
            if kind in ("done", "release"):
                del mine["task"]
                return refused(lambda: getattr(sf.tasks, kind)(task))
            try:
                mine["task"] = sf.tasks.claim(self.name)
            except InProgress:
                return 0
            except IllegalTransition:
                return -1
            return mine["task"].fence

        return (kind, who, task.fence if task else 0), call

    def step(self, state: Held, asked: Asked, result: Any, seen: bool) -> Held | None:
        kind, who, fence = asked
        if who in state.dead:
            return None
        own = (state.holder, state.fence, state.closed) == (who, fence, False)
        taken = state._replace(holder=who, fence=state.fence + 1)
        free = state._replace(holder=None)
        after, wanted = {
            "get": (state, [state.closed, state.fence]),
            "reopen": (state._replace(closed=False), 1),
            "claim": (state, -1) if state.closed else (taken, taken.fence) if state.free else (state, 0),
            "release": (free, 1) if own else (state, 0),
            "done": (free._replace(closed=True), 1) if own else (state, 0),
        }[kind]
        return fits(after, wanted, result, seen)


# -- an effect, and an approval ---------------------------------------------------------------------------------


class Sent(NamedTuple):
    state: str = "nothing"
    attempt: int = 0
    holder: str | None = None
    words: str = ""
    result: str | None = None
    resolved: bool = False
    """Whether a person gave the result. A person may correct it."""
    dead: Dead = NOBODY

    @property
    def in_doubt(self) -> bool:
        return self.state == "dispatched" and self.holder in self.dead


class Effect(Thing):
    """An effect: one process begins it, its attempt ends it, and it is in doubt if its holder is dead."""

    start = Sent()

    def play(self, sf: Standfast, who: str, draw: Random, mine: dict[str, Any]) -> tuple[Asked, Callable[[], Any]]:
        attempt = mine.get("attempt", 0)
        ends = ["fail"] * 4 + ["done"] if attempt else []
        kind = draw.choice(["begin", "begin", "begin", "get", "resolve", *ends])
        what = draw.choice("aaaab") if kind == "begin" else f"{who}.{draw.randrange(10**6)}"
        if kind == "resolve" and draw.random() < 0.7:
            what = ""  # the request was not applied

        def call() -> Any:
            if kind in ("done", "fail"):
                mine["attempt"] = 0
            try:
                match kind:
                    case "get":
                        found = sf.effects.get(self.name)
                        return [found.state, found.attempt]
                    case "done":
                        sf.effects.done(self.name, what, attempt=attempt)
                    case "fail":
                        sf.effects.fail(self.name, "no", attempt=attempt)
                    case "resolve":
                        answer = "applied" if what else "not_applied"
                        sf.effects.resolve(self.name, answer, evidence="looked", result=what or None)
                    case _:
                        begun = sf.effects.begin("pay", {"words": what}, key=self.name)
                        if begun.state == "acknowledged":
                            return ["recorded", begun.result]
                        mine["attempt"] = begun.attempt
                        return ["sent", begun.attempt]
            except StandfastError as error:
                refusals = {InProgress: "busy", EffectInDoubt: "doubt", KeyConflict: "conflict"}
                if kind == "begin":
                    return [refusals[type(error)], None]
                if not isinstance(error, (*REFUSALS, Conflict)):
                    raise
                return ["nothing", 0] if kind == "get" else 0
            return 1

        return (kind, who, what, attempt), call

    def step(self, state: Sent, asked: Asked, result: Any, seen: bool) -> Sent | None:
        kind, who, what, attempt = asked
        if who in state.dead:
            return None
        if kind == "get":
            return fits(state, [state.state, state.attempt], result, seen)
        if kind == "begin":
            return self._begun(state, who, what, result, seen)
        if kind == "resolve":
            wanted = "acknowledged" if what else "failed"
            same = state.state == wanted and state.result == (what or None)
            counts = state.in_doubt or (state.resolved and what != "")
            after = state._replace(state=wanted, result=what or None, resolved=what != "") if counts else state
            return fits(after, int(counts or same), result, seen)
        wanted = "acknowledged" if kind == "done" else "failed"
        own = (state.state, state.attempt) == ("dispatched", attempt)
        after = state._replace(state=wanted, result=what if kind == "done" else None) if own else state
        again = kind == "fail" and state.state == "failed"
        return fits(after, int(own or again), result, seen)

    def _begun(self, state: Sent, who: str, words: str, result: Any, seen: bool) -> Sent | None:
        if state.state != "nothing" and state.words != words:
            return fits(state, ["conflict", None], result, seen)
        if state.state == "acknowledged":
            return fits(state, ["recorded", state.result], result, seen)
        if state.state == "dispatched":
            return fits(state, ["doubt" if state.in_doubt else "busy", None], result, seen)
        after = state._replace(state="dispatched", attempt=state.attempt + 1, holder=who, words=words, resolved=False)
        return fits(after, ["sent", after.attempt], result, seen)


class Answered(NamedTuple):
    state: str = "requested"
    attempts: int = 0
    dead: Dead = NOBODY


class Approval(Thing):
    """The first answer counts. An approval is for one dispatch."""

    start = Answered()

    def made(self, sf: Standfast) -> None:
        from standfast_prove.planned import plan

        sf.approvals.request(plan(sf, {"say": self.name}, key=self.name))

    def play(self, sf: Standfast, who: str, draw: Random, mine: dict[str, Any]) -> tuple[Asked, Callable[[], Any]]:
        from standfast_prove.planned import dispatch

        if "effect" not in mine:
            mine["effect"] = sf.effects.get(self.name).id
            mine["id"] = min(one.id for one in sf.approvals.list(limit=1000) if one.effect_id == mine["effect"])
        kind = draw.choice(["grant", "deny", "dispatch", "get"] if draw.random() < 0.15 else ["dispatch", "get"])

        def call() -> Any:
            if kind == "get":
                return sf.approvals.get(mine["id"]).state
            if kind == "dispatch":
                try:
                    return dispatch(sf, mine["effect"])
                except ApprovalRequired:
                    return 0
            return refused(lambda: getattr(sf.approvals, kind)(mine["id"], approver=who))

        return (kind, who), call

    def step(self, state: Answered, asked: Asked, result: Any, seen: bool) -> Answered | None:
        kind, _ = asked
        sent = state._replace(state="consumed", attempts=state.attempts + 1)
        open_ = state.state == "requested"
        after, wanted = {
            "get": (state, state.state),
            "grant": (state._replace(state="granted"), 1) if open_ else (state, 0),
            "deny": (state._replace(state="denied"), 1) if open_ else (state, 0),
            "dispatch": (sent, sent.attempts) if state.state == "granted" else (state, 0),
        }[kind]
        return fits(after, wanted, result, seen)


# -- a box ------------------------------------------------------------------------------------------------------


class Draft(NamedTuple):
    n: int
    holder: str | None = None
    fence: int = 0
    done: bool = False


class Letters(NamedTuple):
    there: tuple[Draft, ...] = ()
    dead: Dead = NOBODY


class Box(Thing):
    """Mail: sent once per key, with one holder at a time, ended with its fence. `None` fits at
    any time, because a claim skips mail that another process is just claiming."""

    start = Letters()

    def play(self, sf: Standfast, who: str, draw: Random, mine: dict[str, Any]) -> tuple[Asked, Callable[[], Any]]:
        mail = mine.get("mail")
        kind = draw.choice(["send", "claim", "claim", *(["done", "release"] * 2 if mail else [])])
        n = draw.randrange(5) if kind == "send" else mail.body if mail else 0

        def call() -> Any:
            if kind == "send":
                return int(not sf.mail.send(f"role:{self.name}", n, key=f"{self.name} {n}", attempts_max=1000).replayed)
            if kind in ("done", "release"):
                del mine["mail"]
                return refused(lambda: getattr(sf.mail, kind)(mail))
            found = sf.mail.claim(f"role:{self.name}")
            if found is None:
                return None
            mine["mail"] = found
            return [found.body, found.fence]

        # One session at a time: the other one is closed, and resumed when this process dies.
        if kind == "claim" and mail:
            mine.pop("mail")
        return (kind, who, n, mail.fence if mail else 0), call

    def step(self, state: Letters, asked: Asked, result: Any, seen: bool) -> Letters | None:
        kind, who, n, fence = asked
        if who in state.dead:
            return None
        found = next((one for one in state.there if one.n == n), None)
        if kind == "send":
            after = state if found else state._replace(there=(*state.there, Draft(n)))
            return fits(after, int(found is None), result, seen)
        if kind == "claim":
            return self._claimed(state, who, result, seen)
        own = found is not None and (found.holder, found.fence, found.done) == (who, fence, False)
        if found is None or not own:
            return fits(state, 0, result, seen)
        ended = (
            found._replace(holder=None, done=True) if kind == "done" else found._replace(holder=None, fence=fence + 1)
        )
        return fits(_with(state, ended), 1, result, seen)

    def _claimed(self, state: Letters, who: str, result: Any, seen: bool) -> Letters | None:
        if not seen or result is None:
            return state  # if the answer was lost, the holder is dead, and the next fencing token shows that
        for one in state.there:
            if one.n == result[0] and not one.done and (one.holder is None or one.holder in state.dead):
                # A holder whose answer was lost increased the fencing token twice: by its claim and its release.
                grown = result[1] - one.fence
                if grown > 0 and grown % 2 == (1 if one.holder is None else 0):
                    return _with(state, one._replace(holder=who, fence=result[1]))
        return None


def _with(state: Letters, letter: Draft) -> Letters:
    return state._replace(there=tuple(letter if one.n == letter.n else one for one in state.there))


KINDS: dict[str, type[Thing]] = {
    "state": State,
    "lock": Lock,
    "task": Chore,
    "effect": Effect,
    "approval": Approval,
    "mail": Box,
}


def stepping(thing: Thing, *, served: bool = False) -> Callable[[Hashable, Asked, Any, bool], Any]:
    """The model of a thing, including deaths of processes.

    With `served`, a server runs the calls. It finishes the last call of a process even if the process has died.
    """

    def step(state: Any, asked: Asked, result: Any, seen: bool) -> Any:
        if asked[0] == "dies":
            return dies(state, asked[1])
        if not (served and not seen and asked[1] in state.dead):
            return thing.step(state, asked, result, seen)
        after = thing.step(state._replace(dead=state.dead - {asked[1]}), asked, result, seen)
        return None if after is None else dies(after, asked[1])

    return step
