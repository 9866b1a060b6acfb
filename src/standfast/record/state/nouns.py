"""Entries as callers see them, and what a row of the table says about one."""

from __future__ import annotations

from typing import Any, NamedTuple

from standfast import serial
from standfast.config.scope import Label, scope_of
from standfast.db.contract import Row
from standfast.errors import InvalidInput
from standfast.footings import keys
from standfast.footings.checks import bounded_us
from standfast.footings.journal import Receipt

NAMESPACE_MAX = 200
VALUE_MAX_BYTES = 1024 * 1024
COMMAND_MAX = 4_000
EVIDENCE_MAX = 500
VERDICTS = ("fresh", "stale", "unknown")

KEEP: Any = object()
"""Not given: a key's schema and its command stay as they are."""


class Entry(NamedTuple):
    """One value as it stands."""

    scope: str
    namespace: str
    key: str
    value: serial.Json
    version: int
    actor: str
    updated_us: int
    expires_us: int | None
    json_schema: serial.Json = None
    """What every value of this key has to fit."""
    verify: str | None = None
    """The command that compares the value with the world. `standfast state verify` alone runs it."""
    verify_by: str | None = None
    """Who gave the command; None if it was imported, and then nothing runs it."""
    verdict: str | None = None
    """What it last found about this very version: fresh, stale or unknown; None: never asked."""
    evidence: str | None = None
    verified_us: int | None = None
    receipt: Receipt | None = None

    @staticmethod
    def columns() -> tuple[str, ...]:
        return "key", "version v", "value", "verdict", "updated_us changed", "expires_us expires", "actor by"


class Namespace(NamedTuple):
    """A namespace, and how many values it holds."""

    name: str
    values: int


class Place(NamedTuple):
    """Where a key means something; a session's own namespace is its id."""

    scope: str
    namespace: str
    session_id: str | None = None
    label: Label | None = None
    """The repository of a session; the caller's, if it is not given."""

    @property
    def own_scope(self) -> str:
        """The scope that was chosen on purpose. A session's values are kept under its scope, others under a home."""
        return scope_of(self.scope) if self.label is None else self.scope

    def named(self, key: str) -> Row:
        if self.namespace:
            keys.checked(self.namespace, "a namespace", limit=NAMESPACE_MAX)
        return {"scope": self.scope, "namespace": self.namespace, "key": keys.checked(key, "a state's key")}

    def subject(self, key: str) -> str:
        """By which the journal knows it."""
        return f"state:{self.namespace}:{key}"


def entry(row: Row) -> Entry:
    command = serial.read(row["verify"]) if row["verify"] is not None else {}
    verdict, _, evidence = (row["verdict"] or "").partition(": ")
    return Entry(
        scope=row["scope"],
        namespace=row["namespace"],
        key=row["key"],
        value=serial.read(row["value"]),
        version=row["version"],
        actor=row["actor"],
        updated_us=row["updated_us"],
        expires_us=row["expires_us"],
        json_schema=None if row["json_schema"] is None else serial.read(row["json_schema"]),
        verify=command.get("command"),
        verify_by=command.get("actor"),
        verdict=verdict or None,
        evidence=evidence or None,
        verified_us=row["verified_us"],
    )


# -- what callers give ---------------------------------------------------------------------------------


def command_text(command: object, actor: str | None) -> str | None:
    """A command as it is stored, with whoever gave it; without an actor it was imported."""
    if command is None:
        return None
    if not isinstance(command, str) or not command.strip() or len(command) > COMMAND_MAX:
        raise InvalidInput(f"verify is a command of 1 to {COMMAND_MAX:,} characters", "--verify 'test -d build'")
    return serial.dumps({"command": command, "actor": actor}, what="verify")


def checked_term(for_us: int | None) -> int | None:
    return None if for_us is None else bounded_us(for_us, "a value's duration", hint="for example: --for 30m")
