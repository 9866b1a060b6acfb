"""`standfast hook AGENT`: the command that the hooks of an agent call, hundreds of times an hour.

It runs inside a turn of the agent, and starts before click is loaded. It always exits 0, ends within a deadline, and
prints only the brief at the start, a refusal by a gate or a budget, and lines about mail and budgets:

    read stdin ─▶ one record ─┬─▶ a call or an answer, and nothing waits for this agent: the spool
                              └─▶ else the store, for at most a second ─▶ else the spool
                                        │
                                        └── a tool call? ──▶ gates: from the store, else from their copy

`attention.json` and `gates.json` say whether anything waits for the agent. A hook that opens the store updates these
files (see `attention`), drains the spool and renews the leases of the agent.

A separate thread opens the store. If it is not done in time, the record is also appended to the spool, and the process
ends without waiting. If the thread commits the record after all, the copy in the spool changes nothing. The hook waits
longer only while the thread commits the use of a grant, so that the answer agrees with the record.

One deadline covers the whole hook, including reading stdin. After the deadline a call is refused if it contains a
literal word of a gate, or if the gates cannot be read; all other calls pass.
"""

from __future__ import annotations

import os
import sys
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from standfast.config import Settings
    from standfast.interchange.hooks.payloads import Heard
    from standfast.interchange.hooks.record import Kept

WAIT_S = 1.0
"""How long the hook waits for the store. A commit takes milliseconds; a stuck store must not block the agent."""
DEADLINE_S = 4.0
"""The deadline of a hook. Agents wait 10 s for a hook, and make the call if it does not answer."""
GRACE_S = 1.5
"""Additional time for the commit of the use of a grant, and for reading the copy of the gates."""
READ_MAX_BYTES = 64 << 20
GATES = "gates.json"
"""The copy of the gates in the data directory. It exists once the store has had a gate."""
KEEP_S = 0.8
"""The part of the deadline that is reserved for recording the probes' answers."""
DRAINED_MAX = 2000
DRAINED_MAX_S = 0.5
"""How many records of a spool one hook drains, and for how long, because the agent waits meanwhile."""
SPOOL_FULL_BYTES = 8 << 20
"""The next hook drains a spool that is larger than this, even if the hook only reports."""

USAGE = """Usage: standfast hook AGENT < payload.json

Record what a hook of an agent reports. `standfast install AGENT` sets it up.
AGENT is claude-code, codex, gemini-cli or opencode. Always exits 0.

Examples:
  standfast install claude-code
  echo '{"hook_event_name": "Stop", "session_id": "1"}' | standfast hook claude-code
"""


def main(words: list[str]) -> int:
    """The entry point. It returns 0 even after an error, so that the agent continues."""
    if not words or words[0] in ("-h", "--help"):
        sys.stdout.write(USAGE)
        return 0
    if words[0] == "git-pre-push":
        from standfast.cli import hook_git

        return hook_git.main(words[1:])
    watch = Watch(words[0])
    said = ""
    try:
        said = _answer(watch, words[1:])
    except Exception as error:  # noqa: BLE001  a failing hook must not stop the agent
        if os.environ.get("STANDFAST_HOOK_DEBUG"):
            print(f"standfast: {type(error).__name__}: {error}", file=sys.stderr)
        with suppress(Exception):  # a call that could not be judged is refused if a gate may apply
            said = watch.blindly()
    watch.end(said)
    return 0


def _answer(watch: Watch, more: list[str]) -> str:
    from standfast.interchange.hooks import payloads

    if more and more[0].startswith("{"):
        watch.read.append(more[0].encode("utf-8", "surrogateescape"))
    else:
        _stdin(watch.read)
    payload = payloads.parsed(b"".join(watch.read)) if watch.agent in payloads.AGENTS else None
    if payload is None:
        return ""
    watch.hearing = Hearing(watch.agent, payload, watch)
    return watch.hearing.said()


def _stdin(kept: list[bytes]) -> None:
    """Read all of stdin, so that the write of the agent does not fail. Only the beginning of a large input is kept."""
    from standfast.interchange.hooks.payloads import PAYLOAD_MAX_BYTES

    size = 0
    while size < READ_MAX_BYTES and (part := os.read(0, 1 << 20)):
        if size <= PAYLOAD_MAX_BYTES:
            kept.append(part)
        size += len(part)


class Watch:
    """The deadline of a hook. The hook itself or this timer answers, and the first answer ends the process."""

    def __init__(self, agent: str) -> None:
        import time

        self.agent = agent
        self.read: list[bytes] = []
        """The input that was read so far."""
        self.hearing: Hearing | None = None
        self._clock = time.monotonic
        self._end = self._clock() + DEADLINE_S
        self._answering = threading.Lock()
        threading.Thread(target=self._run, name="standfast-deadline", daemon=True).start()

    def left(self) -> float:
        """Seconds until the deadline."""
        return max(0.0, self._end - self._clock())

    def late(self) -> bool:
        return self._clock() > self._end

    def end(self, said: str) -> None:
        """Print the answer and end the process without waiting for threads."""
        self._answering.acquire()
        with suppress(OSError):
            sys.stdout.write(said)
            sys.stdout.flush()
        os._exit(0)

    def _run(self) -> None:
        while (left := self.left()) > 0:
            threading.Event().wait(left)
        if self.hearing is not None and self.hearing.committing:  # the commit ends within GRACE_S
            threading.Event().wait(GRACE_S)
        said = [_denied(self.agent, b"".join(self.read), OVERDUE)]
        judging = threading.Thread(target=self._judge, args=(said,), daemon=True)
        judging.start()
        judging.join(GRACE_S)
        self.end(said[0])

    def _judge(self, said: list[str]) -> None:
        with suppress(Exception):  # on an error the refusal stays
            said[0] = self.blindly()

    def blindly(self) -> str:
        """A refusal if a gate may apply to the input; otherwise an empty text."""
        data = b"".join(self.read)
        refused = _denied(self.agent, data, OVERDUE)
        if not refused or (self.hearing is not None and not self.hearing.asks):
            return ""
        from standfast.config import data_dir as configured
        from standfast.ledger.gate_patterns import may_meet, standing
        from standfast.ledger.gates import read_copy

        data_dir = self.hearing._data_dir() if self.hearing is not None else configured()
        settings = self.hearing.settings if self.hearing is not None else None
        if not os.path.exists(os.path.join(data_dir, GATES)):
            return refused if _may_have_gates(settings, data_dir) else ""
        gates = standing(read_copy(data_dir), settings.keyspaces if settings is not None else None)
        text = data.decode("utf-8", "replace")
        return refused if gates and ("\\u" in text or may_meet(gates, text)) else ""


OVERDUE = (
    f"standfast could not judge this call within {DEADLINE_S:.0f} s, and a gate may apply, so it is refused. "
    "Try again. If it is refused again, a person runs: standfast doctor"
)


def _denied(agent: str, data: bytes, reason: str) -> str:
    """A refusal if the hook is about a tool call; otherwise an empty text."""
    from standfast.interchange.hooks import answers

    event = next((name for name in ("PreToolUse", "BeforeTool") if f'"{name}"'.encode() in data), None)
    return answers.denied(agent, event, reason) if event else ""


def _may_have_gates(settings: Settings | None, data_dir: str) -> bool:
    """Whether the store may have gates although their copy is missing."""
    from standfast.db import store_memory

    place = store_memory.place_of(settings.target) if settings is not None else None
    if settings is None:
        known, there = store_memory.stores(), _is_there(os.path.join(data_dir, "standfast.db"))
    else:
        known = store_memory.at(place) if place is not None else []
        there = place is not None if settings.target.engine == "postgres" else _is_there(settings.target.location)
    return any(one.gates for one in known) if known else there


def _is_there(path: str) -> bool:
    try:
        return os.stat(path).st_size > 0
    except OSError:
        return False


class Hearing:
    """One payload in flight."""

    def __init__(self, agent: str, payload: dict[str, Any], watch: Watch) -> None:
        import time

        from standfast.interchange.hooks import payloads

        self.agent = agent
        self.payload = payload
        self.watch = watch
        self.committing = False
        """A grant is being used: the answer waits for the commit."""
        self.settings = _settings(agent, payload)
        redact = self.settings.options.redact if self.settings is not None else True
        self.heard = payloads.heard(agent, payload, time.time_ns() // 1000, redact=redact)
        self.asks = payloads.asks(payload)
        self.refused = ""
        self.question = ""
        """The question for the agent's user."""
        self.brief = ""
        self.unanswered: list[Any] = []
        """Set when an agent restarts: the calls of this session without an answer."""
        self.kept = False
        self.missing = ""
        """Set if the store is missing: the line that is printed on stderr."""
        self._deciding = threading.Lock()
        self._decision: Any = None
        """A gating.Decision, made where a gate may apply."""

    def said(self) -> str:
        """What to print: nothing, the brief, or a refusal."""
        from standfast.interchange.hooks import answers

        if self._only_reports() and self._spooled():
            return ""
        thread = threading.Thread(target=self._guarded, name="standfast-hook", daemon=True)
        thread.start()
        thread.join(min(WAIT_S, self.watch.left()))
        if not self.kept and self.asks and not self._decided().refuse():
            self.committing = True
            thread.join(self.watch.left() + GRACE_S / 2)
        # Read the results once: the thread may still change them.
        kept, refused, question, brief = self.kept, self.refused, self.question, self.brief
        if not kept:
            refused = self._without_the_store()
        event = str(self.payload.get("hook_event_name") or "")
        if refused and self.heard is not None and self.heard.kind == "prompt":
            return answers.prompt_refused(self.agent, refused)
        if refused:
            return answers.denied(self.agent, event, refused)
        if kept and question:
            return answers.ask(event, question)
        brief = "\n\n".join(filter(None, (brief, self._observed()))) if kept else brief
        return answers.context(self.agent, event, brief) if brief else ""

    def _observed(self) -> str:
        """Look up calls without an answer within the deadline, and record the results."""
        if not self.unanswered:
            return ""
        from standfast.interchange.hooks import unanswered

        assert self.heard is not None
        within_s = max(self.watch.left() - KEEP_S, 0.1)
        seen = unanswered.observations(self.unanswered, self.heard.at_us, within_s)
        thread = threading.Thread(target=self._keep_observed, args=(seen,), name="standfast-observed", daemon=True)
        thread.start()
        thread.join(max(self.watch.left() - KEEP_S / 4, 0.05))
        return unanswered.text(seen)

    def _keep_observed(self, seen: list[Any]) -> None:
        from standfast.handle import connect
        from standfast.interchange.hooks import unanswered

        assert self.settings is not None
        with suppress(Exception), connect(self.settings, as_actor=True) as sf:  # the next start looks again
            unanswered.keep(sf._store, seen)

    def _decided(self) -> Any:
        with self._deciding:
            if self._decision is None:
                from standfast.interchange.hooks.judge import Decision

                self._decision = Decision()
            return self._decision

    def _only_reports(self) -> bool:
        """Whether the record may go to the spool without a look at the store: a tool call or its answer.

        Other records need the store, because a spooled record does not change the state of the session: after a spooled
        prompt a working agent would look finished, and after a spooled stop an idle agent would look crashed.
        """
        from standfast.interchange.hooks import attention
        from standfast.interchange.hooks.spool_paths import KEY, size_bytes

        settings, heard = self.settings, self.heard
        if settings is None or heard is None or heard.kind not in ("call", "answer"):
            return False
        directory = settings.data_dir
        return (
            attention.nothing_waits(settings, heard.key, heard.at_us)
            and (settings.target.engine == "postgres" or _is_there(settings.target.location))
            and os.access(directory, os.W_OK)
            and os.path.exists(os.path.join(directory, KEY))
            and size_bytes(self._places()[0]) <= SPOOL_FULL_BYTES
        )

    # -- hook with the store -----------------------------------------------------------------------

    def _guarded(self) -> None:
        try:
            self._with_the_store()
        except Exception as error:  # noqa: BLE001  on any error the record goes to the spool
            if getattr(error, "code", "") == "store_missing":
                self.missing = str(error).replace("\n", "; ")
            elif os.environ.get("STANDFAST_HOOK_DEBUG"):
                print(f"standfast: {type(error).__name__}: {error}", file=sys.stderr)

    def _with_the_store(self) -> None:
        from standfast.errors import StorageError
        from standfast.handle import connect
        from standfast.interchange.hooks.record import Hooks

        if self.settings is None or self.heard is None:
            self.kept = self.heard is None and not self.asks
            return
        with connect(self.settings, as_actor=True, register=False) as sf:
            hooks = Hooks(sf._store)
            kept = hooks.keep(self.heard)
            if kept.gates and (self.asks or self.heard.kind == "answer"):
                self._gates(hooks, kept.session_id, kept.gates)
            self.kept = True
            if self.heard.kind in ("start", "compacted"):
                self.brief = brief(sf)
            self.brief = "\n".join(text for text in (self.brief, kept.line) if text)
            spent = kept.limited and self._limits(sf, kept.session_id)
            with suppress(OSError, StorageError):  # the next hook opens the store again
                self._make_key()
                self._refresh(sf, kept, spent=spent)
            self._drain(sf)
            resumes = self.heard.kind == "start" and (self.heard.facts or {}).get("source") not in ("compact", "clear")
            if resumes and hooks.acted(kept.session_id):
                from standfast.interchange.hooks import unanswered

                cwd, at_us = self.heard.cwd, self.heard.at_us
                self.unanswered = unanswered.waiting(sf._store, kept.session_id, cwd, at_us)

    def _limits(self, sf: Any, session_id: str) -> bool:
        """Count the usage of the agent, and judge the call by its budgets. Returns whether a budget is exhausted."""
        from standfast.interchange.hooks import limits, payloads

        assert self.heard is not None
        limits.count(sf._store, self.agent, self.payload.get("transcript_path"))
        judged = limits.HookLimits(sf._store).judge(self.heard, session_id, payloads.asked(self.payload))
        self.brief = "\n".join(text for text in (self.brief, judged.line) if text)
        self.refused = self.refused or judged.refused
        return judged.waits

    def _refresh(self, sf: Any, kept: Kept, *, spent: bool) -> None:
        """Bring `gates.json` and `attention.json` up to the store."""
        from standfast.interchange.hooks import attention
        from standfast.interchange.hooks.record import LEAVING

        assert self.settings is not None
        assert self.heard is not None
        if kept.gates or os.path.exists(os.path.join(self.settings.data_dir, GATES)):
            sf.gates.mirror()
        key, now_us = self.heard.key, self.heard.at_us
        if self.heard.kind in LEAVING:
            attention.forget(self.settings, key, now_us)
        elif self.heard.kind != "check":
            waits = ["gates"] * bool(kept.gates) + ["mail"] * kept.mail + ["budgets"] * spent
            attention.refresh(self.settings, key, now_us, keyspaces=kept.keyspaces, waits=waits)

    def _gates(self, hooks: Any, session_id: str, rows: list[Any]) -> None:
        from standfast.interchange.hooks import judge, payloads

        assert self.heard is not None
        store = hooks.store
        try:
            if self.heard.kind == "answer":
                judge.settle(store, rows, self.heard, payloads.answered(self.payload), session_id)
                return
            asked_now = payloads.asked(self.payload)
            if asked_now is None:
                judge.unreadable(rows)
            else:
                can_ask = payloads.can_ask(self.agent, os.environ)
                gate = judge.judge(
                    store, rows, asked_now, session_id, self._decided(), self.watch.late, can_ask=can_ask
                )
                if gate is not None:
                    hooks.prompted(self.heard, gate, "asked")
                    self.question = judge.question(gate)
        except judge.Refusal as refusal:
            hooks.hold(self.heard, refusal.gate.id, refusal.gate.pattern)
            self.refused = str(refusal)

    def _make_key(self) -> None:
        """Create the key of the spool now, because a hook in a sandbox can read it but not create it."""
        from standfast.interchange.hooks.spool_paths import KEY

        if not os.path.exists(os.path.join(self._data_dir(), KEY)):
            from standfast.config.files import private_directory
            from standfast.interchange.hooks import spool

            private_directory(self._data_dir())  # with a store on a server, no other code creates it
            spool.key(self._data_dir())

    def _drain(self, sf: Any) -> None:
        from standfast.interchange.hooks.spool_paths import waiting

        assert self.settings is not None
        found = waiting(self._places())
        if found:
            from standfast.interchange.hooks import spool

            spool.drain(sf._store, found, self.settings.data_dir, limit=DRAINED_MAX, within_s=DRAINED_MAX_S)

    # -- hook without the store --------------------------------------------------------------------

    def _without_the_store(self) -> str:
        """Append the record to the spool, and judge the call by the copy of the gates. Returns the refusal, if any."""
        from standfast.interchange.hooks import payloads

        data_dir = self._data_dir()
        self._spooled()
        if self.missing:
            print(f"standfast: {self.missing}", file=sys.stderr)
        if not self.asks:
            return ""
        if self.missing and self._had_gates():
            return (
                f"the store that holds the gates is missing, so every call is refused. A person reads: {self.missing}"
            )
        if not os.path.exists(os.path.join(data_dir, GATES)):
            if not _may_have_gates(self.settings, data_dir):
                return ""
            return (
                f"neither the store nor {GATES} in {data_dir} can be read, so every call is refused. "
                "A person runs: standfast doctor"
            )
        from standfast.interchange.hooks import judge

        try:
            keyspaces = self.settings.keyspaces if self.settings else None
            judge.judge_blindly(data_dir, payloads.asked(self.payload), keyspaces, self.watch.late)
        except judge.Refusal as refusal:
            return str(refusal)
        return ""

    def _spooled(self) -> bool:
        """Append the record to a spool. Returns False if there is no record, or no spool can be written."""
        from standfast.config.scope import OUTSIDE
        from standfast.interchange.hooks import spool

        if self.heard is None:
            return False
        scope, label = (self.settings.scope, self.settings.label) if self.settings else ("", OUTSIDE)
        places = self._places()
        return spool.append(places, self._data_dir(), self._actor(), scope, self.heard, label=label) is not None

    def _had_gates(self) -> bool:
        from standfast.db.store_memory import at, place_of

        place = place_of(self.settings.target) if self.settings is not None else None
        return place is not None and any(known.gates for known in at(place))

    def _places(self) -> list[str]:
        from standfast.interchange.hooks.spool_paths import places

        return places(self._data_dir(), workspace(self.settings, self.heard))

    def _data_dir(self) -> str:
        if self.settings is not None:
            return self.settings.data_dir
        from standfast.config import data_dir

        return data_dir()

    def _actor(self) -> str:
        assert self.heard is not None
        return self.settings.actor if self.settings is not None else self.heard.key


def _settings(agent: str, payload: dict[str, Any]) -> Settings | None:
    """The settings for the directory and the name of the agent; None if the configuration is broken."""
    from standfast.config import load
    from standfast.errors import StandfastError

    native, cwd = payload.get("session_id") or payload.get("thread-id"), payload.get("cwd")
    there = isinstance(cwd, str) and cwd.startswith("/") and os.path.isdir(cwd)
    named = os.environ.get("STANDFAST_ACTOR", "").strip()
    actor = None if named else f"{agent}:{native}"
    try:
        return load(actor=actor, cwd=cwd if there else None, quiet=True)
    except (StandfastError, OSError, ValueError):
        return None


def workspace(settings: Settings | None, heard: Heard | None) -> str | None:
    """The directory an agent may write: the repository, else its working directory."""
    if settings is not None and settings.repository is not None:
        return settings.repository.root
    return heard.cwd if heard is not None and heard.cwd and os.path.isdir(heard.cwd) else None


def brief(sf: Any) -> str:
    """The brief of a starting agent; empty if there is nothing to report."""
    from standfast.views.brief import Briefs

    made = Briefs(sf._store).make()
    return str(made.markdown) if made else ""
