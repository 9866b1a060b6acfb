"""`attention.json` in the data directory lists what waits for each agent, so that its hooks need not open the store.

A hook that opens the store writes an entry for its session: the store, the keyspaces whose gates apply, and a list of
waiting things (gates, mail, exhausted budgets). For the next 60 s, a hook that only reports reads this entry and
`gates.json`, and then spools its record. If the entry is older, the hook opens the store and renews leases.

The file is a copy. Hooks replace it as a whole, without a lock. If two hooks write at the same time, one entry is lost,
and the next hook of that session opens the store.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

from standfast.config.scope import Keyspace

if TYPE_CHECKING:
    from collections.abc import Iterable

    from standfast.config import Settings

FILE = "attention.json"
GATES = "gates.json"
"""The copy of the gates in the same directory. It exists if the store ever had a gate."""
FRESH_US = 60_000_000
FILE_MAX_BYTES = 1 << 20
AGENTS_MAX = 1000


def nothing_waits(settings: Settings, key: str, now_us: int) -> bool:
    """Whether both files are fresh and list nothing for the session `key`. False if a file cannot be read."""
    try:
        found = _read(settings.data_dir).get(key)
        if not found or not _is_fresh(found, now_us) or found["store"] != _store(settings) or found["waits"]:
            return False
        known = [Keyspace(*one) for one in found["keyspaces"]]
        if not set(known).issuperset(settings.keyspaces):
            return False  # the agent moved to another repository, and the entry does not have its gates
        gates = [Keyspace(gate["scope"], gate["repository"]) for gate in _gates(settings.data_dir)]
        return not any(here.within(gate) for gate in gates for here in known)
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return False


def refresh(settings: Settings, key: str, now_us: int, *, keyspaces: Iterable[Keyspace], waits: list[str]) -> None:
    """Write the entry of the session `key` and remove all entries that are no longer fresh."""
    known = sorted({*keyspaces, *settings.keyspaces})
    entry = {"at_us": now_us, "store": _store(settings), "keyspaces": known, "waits": waits}
    _write(settings.data_dir, key, entry, now_us)


def forget(settings: Settings, key: str, now_us: int) -> None:
    """Remove the entry of a session at the end of its turn, so that its next hook opens the store."""
    if os.path.exists(os.path.join(settings.data_dir, FILE)):
        _write(settings.data_dir, key, None, now_us)


def _write(data_dir: str, key: str, entry: dict[str, Any] | None, now_us: int) -> None:
    try:
        agents = {one: found for one, found in _read(data_dir).items() if one != key and _is_fresh(found, now_us)}
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        agents = {}
    if entry is not None and len(agents) < AGENTS_MAX:
        agents[key] = entry
    path = os.path.join(data_dir, FILE)
    temporary = f"{path}.{os.urandom(6).hex()}.tmp"
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with open(fd, "w", encoding="utf-8") as file:  # not synced: after a power loss the next hook writes it again
        json.dump({"schema_version": 1, "agents": agents}, file)
    os.replace(temporary, path)


def _read(data_dir: str) -> dict[str, Any]:
    agents: dict[str, Any] = _document(data_dir, FILE).get("agents", {})
    return agents


def _gates(data_dir: str) -> list[dict[str, Any]]:
    return [gate for gates in _document(data_dir, GATES).get("stores", {}).values() for gate in gates]


def _document(data_dir: str, name: str) -> dict[str, Any]:
    from standfast.config import regular_files

    try:
        data = regular_files.read(os.path.join(data_dir, name), FILE_MAX_BYTES + 1)
    except FileNotFoundError:
        return {}
    document: dict[str, Any] = json.loads(data)
    return document


def _is_fresh(entry: dict[str, Any], now_us: int) -> bool:
    """Whether the entry is young enough. False also for a time in the future, because then the clock was set back."""
    return bool(0 <= now_us - entry["at_us"] < FRESH_US)


def _store(settings: Settings) -> list[str]:
    return [settings.target.shown, settings.scope]
