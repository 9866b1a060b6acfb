"""Programs that write in every way there is, and the checks of what they wrote.

`Writer` does one thing at a time and notes each answer in a line. `found` reads the same lines out of a store. It
reports a row without its event, an event without its row, and a counter with a wrong value.

Import this before you fork children, so that they need not import the features themselves.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from zlib import crc32

# Loaded here on purpose: see above.
import standfast.checkpoint.checkpoints
import standfast.core.artifacts
import standfast.ledger.effects.resource
import standfast.record.mail
import standfast.record.messages
import standfast.record.sessions
import standfast.record.state
import standfast.record.steps
import standfast.record.tasks  # noqa: F401
from standfast.core import artifact_files, journal
from standfast.db.sql import statement
from standfast.interchange.hooks import payloads, spool
from standfast_prove.faults.rows import COUNT_UP, INSERT, VALUE

if TYPE_CHECKING:
    from standfast.db.contract import Tx

Note = Callable[[str], object]

KINDS = ("row", "effect", "step", "say", "checkpoint", "artifact", "mail", "task", "state", "spool")

FOUND = statement(
    """
SELECT 'row ' || key AS line FROM meta WHERE key LIKE 'k%'
UNION ALL SELECT 'sent ' || key FROM effect WHERE state IN ('dispatched', 'acknowledged', 'in_doubt')
UNION ALL SELECT 'done ' || key FROM effect WHERE state = 'acknowledged'
UNION ALL SELECT 'step ' || name FROM step
UNION ALL SELECT 'said ' || key FROM message WHERE key IS NOT NULL
UNION ALL SELECT 'checkpoint ' || id FROM checkpoint
UNION ALL SELECT 'artifact ' || digest FROM artifact
UNION ALL SELECT 'mail ' || id FROM mail
UNION ALL SELECT 'read ' || id FROM mail WHERE state = 'done'
UNION ALL SELECT 'task ' || id FROM task
UNION ALL SELECT 'closed ' || id FROM task WHERE state = 'closed'
UNION ALL SELECT 'state ' || key FROM state
UNION ALL SELECT 'spooled ' || e.occurred_us FROM event e
WHERE e.type = 'prompt.submitted'
  -- A hook that could not read its key leaves an unsealed record; said again with the seal, it is another record.
  AND (e.actor <> 'unsealed' OR NOT EXISTS (SELECT 1 FROM event s WHERE s.type = e.type
                                            AND s.occurred_us = e.occurred_us AND s.actor <> 'unsealed'))
""",
    name="prove_found",
)
_HALF = statement(
    """
WITH thing (id) AS (
    SELECT key FROM meta WHERE key LIKE 'k%' UNION ALL SELECT id FROM effect UNION ALL SELECT id FROM artifact
    UNION ALL SELECT id FROM mail UNION ALL SELECT id FROM task UNION ALL SELECT id FROM checkpoint
    UNION ALL SELECT id FROM step
)
SELECT 'not in the journal: ' || id AS line FROM thing WHERE id NOT IN (SELECT subject FROM event)
UNION ALL
SELECT 'only in the journal: ' || subject FROM event
WHERE type IN (
        'prove.row', 'mail.sent', 'task.opened', 'artifact.stored', 'effect.dispatched', 'checkpoint.added',
        'step.recorded'
    ) AND subject NOT IN (SELECT id FROM thing)
UNION ALL
SELECT 'counted: ' || value FROM meta WHERE key = 'n:rows'
    AND CAST(value AS INTEGER) <> (SELECT count(*) FROM meta WHERE key LIKE 'k%')
""",
    name="prove_half",
)
_CHECK = statement("PRAGMA integrity_check(3)", name="prove_check")


def found(tx: Tx, *, checked: bool = False) -> tuple[list[str], list[str]]:
    """Return whole items and torn items. With `checked`, SQLite checks the whole file too."""
    lines = [row["line"] for row in tx.all(FOUND)]
    half = [row["line"] for row in tx.all(_HALF)]
    if checked:
        half += [row["integrity_check"] for row in tx.all(_CHECK) if row["integrity_check"] != "ok"]
    return lines, half


def take_away(protection: str) -> None:
    """In this process only: the product has no such switch."""
    import threading

    from standfast.db.sqlite import wal

    def sync_and_close(fd: int) -> None:
        os.fdatasync(fd)
        os.close(fd)

    def later(fd: int) -> None:
        threading.Timer(0.01, sync_and_close, (os.dup(fd),)).start()

    if protection == "sync":
        wal._sync = lambda fd: None
    elif protection == "waiting":
        wal._sync = later
    elif protection == "names":
        artifact_files._sync_directory = lambda path: None


class Writer:
    """Notes each answer. A request that first reaches the outside system is noted there too."""

    def __init__(self, sf: Any, note: Note, chance: random.Random, *, data_dir: str) -> None:
        self._sf, self._note, self._chance, self._data_dir = sf, note, chance, data_dir

    def write(self, kind: str, key: str) -> None:
        """Make one item of this kind. The same call again returns the same item."""
        getattr(self, kind)(key)

    def row(self, key: str) -> None:
        def body(tx: Tx) -> None:
            if tx.maybe(VALUE, key=key) is not None:
                return
            tx.run(INSERT, key=key, value=value)
            tx.run(COUNT_UP, key="n:rows")
            journal.append(tx, "prove.row", key)

        value = "x" * self._chance.choice((10, 300, 5000))
        self._sf._store.write(body)
        self._note(f"row {key}")

    def effect(self, key: str) -> None:
        def send(call: Any) -> str:
            self._note(f"sent {key}")
            return "x" * 100

        with self._sf.session(key) as session:
            session.effect("world.send", {"what": key}, do=send, key=key)
            self._note(f"done {key}")

    def step(self, key: str) -> None:
        with self._sf.session(key) as session:
            session.step(key, lambda: "x" * 200)
            self._note(f"step {key}")

    def say(self, key: str) -> None:
        with self._sf.session(key) as session:
            session.say("user", "x" * 500, key=key)
            self._note(f"said {key}")

    def checkpoint(self, key: str) -> None:
        with self._sf.session(key) as session:
            session.say("user", "x" * 100, key=key)
            self._note(f"checkpoint {session.checkpoint(summary=key).id}")

    def artifact(self, key: str) -> None:
        made = self._sf.artifacts.put(key.encode() * self._chance.choice((1, 40, 400)), name=key)
        self._note(f"artifact {made.digest}")

    def mail(self, key: str) -> None:
        sent = self._sf.mail.send(f"box-{key}", {"n": key}, key=key)
        self._note(f"mail {sent.id}")
        if (letter := self._sf.mail.read(to=f"box-{key}")) is not None:
            self._sf.mail.done(letter)
            self._note(f"read {sent.id}")

    def task(self, key: str) -> None:
        task = self._sf.tasks.add(key)
        self._note(f"task {task.id}")
        if task.state == "open":
            # This caller claimed it before, and the answer was lost.
            ours = task.holder == self._sf._store.caller.holder
            self._sf.tasks.done(task if ours else self._sf.tasks.claim(task.id))
            self._note(f"closed {task.id}")

    def state(self, key: str) -> None:
        self._sf.state.set(key, {"n": key})
        self._note(f"state {key}")

    def spool(self, key: str) -> None:
        """Write a record to the spool, then import it."""
        at = crc32(key.encode())
        payload = {"session_id": key, "cwd": "/", "hook_event_name": "UserPromptSubmit", "prompt": key}
        heard = payloads.heard("codex", payload, at)
        assert heard is not None
        place = os.path.join(self._data_dir, "spool")
        if spool.append([place], self._data_dir, "codex:prove", "", heard):
            self._note(f"spooled {at}")
        spool.drain(self._sf._store, [place], self._data_dir)
