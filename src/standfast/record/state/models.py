"""Entries as callers see them, made from rows of the table, and the checks of arguments."""

from __future__ import annotations

from typing import NamedTuple

from standfast import serial
from standfast.config.scope import Keyspace, Label
from standfast.core import keys
from standfast.core.checks import bounded_us
from standfast.core.receipts import Receipt
from standfast.db.contract import Row
from standfast.errors import InvalidInput
from standfast.ids import is_id
from standfast.models import Model
from standfast.serial.read_only import read_only

NAMESPACE_MAX = 200
VALUE_MAX_BYTES = 1024 * 1024
COMMAND_MAX = 4_000
EVIDENCE_MAX = 500
VERDICTS = ("fresh", "stale", "unknown")


class Entry(Model):
    """One stored value."""

    scope: str
    repository: str
    """The id of the repository that it belongs to; empty outside any, and for the values of a session."""
    namespace: str
    key: str
    value: serial.Json
    version: int
    agent: str
    updated_us: int
    expires_us: int | None
    json_schema: serial.Json = None
    """The JSON schema of every value of this key."""
    verify: str | None = None
    """The command that verifies the value. Only `standfast state check` runs it."""
    verify_by: str | None = None
    """The actor that stored the command; None if it was imported. An imported command is never run."""
    verdict: str | None = None
    """The result of the command for this version: fresh, stale or unknown; None if it has not run."""
    evidence: str | None = None
    verified_us: int | None = None
    receipt: Receipt | None = None

    @staticmethod
    def columns() -> tuple[str, ...]:
        return "key", "version v", "value", "verdict", "updated_us changed", "expires_us expires", "agent by"


class Namespace(Model):
    """A namespace, and the number of its values."""

    name: str
    values: int


class Place(NamedTuple):
    """The namespace of a key. The namespace of a session is its id."""

    keyspace: Keyspace
    """A session's values belong to its scope and to no repository: its id is unique in the store."""
    namespace: str
    session_id: str | None = None
    label: Label | None = None
    """The repository of the session. Default: the caller's."""

    @property
    def columns(self) -> Row:
        return {**self.keyspace._asdict(), "namespace": self.namespace}

    def named(self, key: str) -> Row:
        if self.namespace:
            keys.checked(self.namespace, "a namespace", limit=NAMESPACE_MAX)
        return {**self.columns, "key": keys.checked(key, "a state's key")}

    def subject(self, key: str) -> str:
        """The subject of its journal entries."""
        return f"state:{self.namespace}:{key}"


def entry(row: Row) -> Entry:
    command = serial.read(row["verify"]) if row["verify"] is not None else {}
    verdict, _, evidence = (row["verdict"] or "").partition(": ")
    return Entry(
        scope=row["scope"],
        repository=row["repository"],
        namespace=row["namespace"],
        key=row["key"],
        value=stored(serial.read(row["value"]), row["namespace"], row["key"]),
        version=row["version"],
        agent=row["actor"],
        updated_us=row["updated_us"],
        expires_us=row["expires_us"],
        json_schema=None if row["json_schema"] is None else serial.read(row["json_schema"]),
        verify=command.get("command"),
        verify_by=command.get("actor"),
        verdict=verdict or None,
        evidence=evidence or None,
        verified_us=row["verified_us"],
    )


def stored(value: serial.Json, namespace: str, key: str) -> serial.Json:
    """The value as callers get it: read-only. A change raises InvalidInput that names the method to use."""
    if type(value) not in (dict, list):
        return value
    where = "" if not namespace else f", namespace={namespace!r}"
    method = f"s.state[{key!r}] = value" if is_id(namespace) else f"sf.state.update({key!r}, change{where})"
    return read_only(value, f"change a copy (copy.deepcopy) and store it: {method}")


# -- checks of arguments -------------------------------------------------------------------------------


def command_text(command: object, actor: str | None) -> str | None:
    """A command as it is stored, with the actor that stored it; None for an imported one."""
    if command is None:
        return None
    if not isinstance(command, str) or not command.strip() or len(command) > COMMAND_MAX:
        raise InvalidInput(f"verify is a command of 1 to {COMMAND_MAX:,} characters", "--verify 'test -d build'")
    return serial.dumps({"command": command, "actor": actor}, what="verify")


def checked_term(for_us: int | None) -> int | None:
    return None if for_us is None else bounded_us(for_us, "a value's duration", hint="for example: --for 30m")
