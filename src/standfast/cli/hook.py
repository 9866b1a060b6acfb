"""`standfast hook AGENT`: what an agent's hooks call, hundreds of times an hour.

A guest in somebody else's process. It is entered before click is loaded; it never fails, never
waits long, and prints nothing but the brief at the start and a refusal by a gate:

    read stdin ─▶ one record ─▶ the store, for at most a second ─▶ else the spool
                      │                        │
                      └── a tool call? ──▶ gates: from the store, else from their copy

The store is asked on a thread of its own. When time is up the record goes to the spool as well, and
the process ends without waiting: if the store has it after all, the copy in the spool adds nothing.
"""

from __future__ import annotations

import os
import sys
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from standfast.config import Settings
    from standfast.interchange.hooks.hearing import Heard

WAIT_S = 1.0
"""How long the store may take. A commit takes milliseconds; a stuck one must not be the agent's problem."""
READ_MAX_BYTES = 64 << 20
GATES = "gates.json"
"""In the data directory: the copy of the gates, there once a gate stood anywhere in the store."""
DRAINED_MAX = 100
"""Records of a spool that one hook brings home: more would make its agent wait."""

USAGE = """Usage: standfast hook AGENT < payload.json

Tell standfast what an agent's hook reports. `standfast install AGENT` sets it up.
AGENT is claude-code, codex, gemini-cli or opencode. Always exits 0.

Examples:
  standfast install claude-code
  echo '{"hook_event_name": "Stop", "session_id": "1"}' | standfast hook claude-code
"""


def main(words: list[str]) -> int:
    """The door. Whatever happens, the agent goes on."""
    if not words or words[0] in ("-h", "--help"):
        sys.stdout.write(USAGE)
        return 0
    try:
        _answer(words[0], words[1:])
    except Exception as error:  # noqa: BLE001  a guest does not break the house
        if os.environ.get("STANDFAST_HOOK_DEBUG"):
            print(f"standfast: {type(error).__name__}: {error}", file=sys.stderr)
    with suppress(OSError):
        sys.stdout.flush()
    # A thread may still wait for the store; ending must not wait for it.
    os._exit(0)


def _answer(agent: str, more: list[str]) -> None:
    from standfast.interchange.hooks import hearing

    data = _stdin() if not (more and more[0].startswith("{")) else more[0].encode("utf-8", "surrogateescape")
    payload = hearing.parsed(data) if agent in hearing.AGENTS else None
    if payload is None:
        return
    said = Hearing(agent, payload).said()
    if said:
        sys.stdout.write(said)


def _stdin() -> bytes:
    """All of it, so that the agent's write does not fail; of what is too large, only the beginning is kept."""
    from standfast.interchange.hooks.hearing import PAYLOAD_MAX_BYTES

    kept, size = [], 0
    while size < READ_MAX_BYTES and (part := os.read(0, 1 << 20)):
        if size <= PAYLOAD_MAX_BYTES:
            kept.append(part)
        size += len(part)
    return b"".join(kept)


class Hearing:
    """One payload on its way."""

    def __init__(self, agent: str, payload: dict[str, Any]) -> None:
        import time

        from standfast.interchange.hooks import hearing

        self.agent = agent
        self.payload = payload
        self.settings = _settings(agent, payload)
        redact = self.settings.options.redact if self.settings is not None else True
        self.heard = hearing.heard(agent, payload, time.time_ns() // 1000, redact=redact)
        self.asks = hearing.asks(payload)
        self.refused = ""
        self.brief = ""
        self.kept = False
        self.over = False

    def said(self) -> str:
        """What to print: nothing, the brief, or a refusal."""
        from standfast.interchange.hooks import answers

        if self._can_wait():
            return self._without_the_store()
        thread = threading.Thread(target=self._guarded, name="standfast-hook", daemon=True)
        thread.start()
        thread.join(WAIT_S)
        # Judged once: what the thread finds after this moment is not looked at any more.
        kept, refused, brief = self.kept, self.refused, self.brief
        self.over = not kept
        if not kept:
            refused = self._without_the_store()
        event = str(self.payload.get("hook_event_name") or "")
        if refused:
            return answers.denied(self.agent, event, refused)
        return answers.context(self.agent, event, brief) if brief else ""

    def _can_wait(self) -> bool:
        """Whether this is better left to the next hook: how a tool call ended, which nobody waits for.

        Going to a server costs as much again as the rest of a hook, and this is every second one. Nothing else waits:
        what comes late opens and ends nothing, so that after a prompt that waited an agent at work would look finished,
        and after a stop one at rest would look as if it had died. Where a gate stands, or may, the effect it let
        through has to be settled now.
        """
        from standfast.interchange.hooks.places import KEY

        if self.heard is None or self.heard.kind != "answer" or self.settings is None:
            return False
        directory = self.settings.data_dir
        return (
            self.settings.target.engine == "postgres"
            and os.access(directory, os.W_OK)
            and os.path.exists(os.path.join(directory, KEY))
            and not os.path.exists(os.path.join(directory, GATES))
        )

    # -- with the store ----------------------------------------------------------------------------

    def _guarded(self) -> None:
        try:
            self._with_the_store()
        except Exception as error:  # noqa: BLE001  whatever it is, the record goes to the spool
            if os.environ.get("STANDFAST_HOOK_DEBUG"):
                print(f"standfast: {type(error).__name__}: {error}", file=sys.stderr)

    def _with_the_store(self) -> None:
        from standfast.handle import connect
        from standfast.interchange.hooks.keeping import Hooks

        if self.settings is None or self.heard is None:
            self.kept = self.heard is None and not self.asks
            return
        if self.settings.target.engine == "postgres":
            from standfast.db.postgres.binding import one_shot

            one_shot()
        with connect(self.settings, as_actor=True) as sf:
            hooks = Hooks(sf._store)
            kept = hooks.keep(self.heard)
            if self.asks or self.heard.kind == "answer":
                self._gates(hooks, kept.session_id, kept.gates)
            self.kept = True
            if self.heard.kind in ("start", "compacted"):
                self.brief = brief(sf)
                self._make_key()
                if hooks.gates():  # somebody may have added them on another host: this one's copy has to know them
                    sf.gates.mirror()
            self._drain(sf)

    def _gates(self, hooks: Any, session_id: str, rows: list[Any]) -> None:
        from standfast.interchange.hooks import hearing

        assert self.heard is not None
        store = hooks.store
        if self.heard.kind != "call":  # an answer, or a call that could not be read
            rows = hooks.gates()
        if not rows:
            return
        from standfast.interchange.hooks import gating

        if not os.path.exists(os.path.join(self._data_dir(), GATES)):  # from now on answers may not wait
            from standfast.ledger.gates import Gates

            Gates(store).mirror()
        try:
            if self.heard.kind == "answer":
                given = self.payload.get("tool_input")
                asked = hearing.Asked(self.heard.tool or "", given, hearing.command_of(given))
                gating.settle(store, rows, self.heard, asked, session_id)
                return
            asked_now = hearing.asked(self.payload)
            if asked_now is None:
                gating.unreadable(rows)
            elif not self.over:  # a yes must not be used up for a call that is being refused
                gating.judge(store, rows, asked_now, session_id)
        except gating.Refusal as refusal:
            hooks.hold(self.heard, refusal.gate.id, refusal.gate.pattern)
            self.refused = str(refusal)

    def _make_key(self) -> None:
        """In a sandbox it can be read and not made: made here, while it can be."""
        from standfast.interchange.hooks.places import KEY

        if not os.path.exists(os.path.join(self._data_dir(), KEY)):
            from standfast.config.files import private_directory
            from standfast.interchange.hooks import spool

            private_directory(self._data_dir())  # with a store on a server nobody else has made it
            spool.key(self._data_dir())

    def _drain(self, sf: Any) -> None:
        from standfast.interchange.hooks.places import waiting

        assert self.settings is not None
        found = waiting(self._places())
        if found:
            from standfast.interchange.hooks import spool

            spool.drain(sf._store, found, self.settings.data_dir, limit=DRAINED_MAX)

    # -- without it --------------------------------------------------------------------------------

    def _without_the_store(self) -> str:
        """Keep the record for later, and judge by the copy of the gates. What the agent is refused with, if it is."""
        from standfast.interchange.hooks import hearing

        data_dir = self._data_dir()
        if self.heard is not None:
            from standfast.interchange.hooks import spool

            actor, scope = self._actor(), self.settings.scope if self.settings else ""
            spool.append(self._places(), data_dir, actor, scope, self.heard)
        if not self.asks:
            return ""
        from standfast.interchange.hooks import gating

        try:
            gating.judge_blindly(data_dir, hearing.asked(self.payload), self.settings.scope if self.settings else None)
        except gating.Refusal as refusal:
            return str(refusal)
        return ""

    def _places(self) -> list[str]:
        from standfast.interchange.hooks.places import places

        return places(self._data_dir(), workspace(self.settings, self.heard))

    def _data_dir(self) -> str:
        if self.settings is not None:
            return self.settings.data_dir
        from standfast.config import default_data_dir

        return os.environ.get("STANDFAST_DATA_DIR", "").strip() or default_data_dir()

    def _actor(self) -> str:
        assert self.heard is not None
        return self.settings.actor if self.settings is not None else self.heard.key


def _settings(agent: str, payload: dict[str, Any]) -> Settings | None:
    """What is decided for the agent's directory, in the agent's name; None if the configuration is broken."""
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
    """The directory an agent may write: the repository, else where it stands."""
    if settings is not None and settings.repository is not None:
        return settings.repository.root
    return heard.cwd if heard is not None and heard.cwd and os.path.isdir(heard.cwd) else None


def brief(sf: Any) -> str:
    """What a starting agent should know: the one place where the hook asks for it. Nothing to know is nothing said."""
    from standfast.views.brief import Briefs

    made = Briefs(sf._store).make()
    return str(made.markdown) if made else ""
