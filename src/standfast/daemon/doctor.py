"""Findings of `doctor` about the daemon: whether it runs, whether its parts fail, and whether a loop needs it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from standfast.admin.doctor import Finding
from standfast.clock import SYSTEM
from standfast.config.actor import account
from standfast.config.scope import OUTSIDE
from standfast.core.leases import Lease, holder_text
from standfast.daemon import leader_lease, status
from standfast.errors import NotFound, StandfastError, UnsafeStorage

if TYPE_CHECKING:
    from standfast.config import Settings
    from standfast.daemon.status import Status
    from standfast.handle import Standfast

START = "standfast daemon start"


def examine(settings: Settings, connect: Callable[[Settings], Standfast]) -> Iterator[Finding]:
    """One finding. None if the store cannot be opened: another finding reports that."""
    try:
        found = status.read(settings.data_dir, SYSTEM)
    except UnsafeStorage as error:
        yield Finding("daemon", "error", error.message, error.hint)
        return
    except OSError as error:
        yield Finding("daemon", "error", f"its pid file cannot be read: {error.strerror}", "standfast doctor")
        return
    if found.state != "stopped":
        yield _running(found, settings)
        return
    try:
        with connect(settings._replace(scope="", label=OUTSIDE)) as sf:
            yield _stopped(found, wanted=_wanted(sf), leader=_leader(sf))
    except StandfastError:
        return


def _running(found: Status, settings: Settings) -> Finding:
    name = f"process {found.pid}"
    failing = [part for part in found.parts if part["state"] == "failing"]
    if found.store is not None and found.store != settings.target.shown:
        return Finding(
            "daemon", "warn", f"{name} serves {found.store}", "standfast daemon stop && standfast daemon start"
        )
    if failing:
        said = "; ".join(f"{part['name']}: {part['error']}" for part in failing)
        return Finding("daemon", "warn", f"{name} runs, and parts of it fail: {said}", "standfast daemon status")
    if found.state == "waiting":
        return Finding("daemon", "warn", f"{name} waits for the store: {found.note}", "standfast daemon status")
    words = f"is on standby for {found.leader}" if found.state == "standby" else "is there"
    return Finding("daemon", "ok", f"{name} {words}")


def _stopped(found: Status, *, wanted: int, leader: Lease | None) -> Finding:
    if leader is not None:
        return Finding("daemon", "ok", f"{holder_text(leader.holder)} is the daemon of this store")
    if not wanted:
        return Finding("daemon", "ok", "no daemon runs, and no loop needs one")
    last = f"; the last one ended: {found.note}" if found.note else "; the last one was killed" if found.store else ""
    return Finding("daemon", "warn", f"{wanted} loop{'s' * (wanted > 1)} and no daemon: nothing is fired{last}", START)


def _wanted(sf: Standfast) -> int:
    """Loops that a daemon of this account would fire."""
    accounts = (account(), *sf.settings.options.accounts)
    found = sf.loops.list(state="active", everywhere=True, limit=1000)
    return sum(one.account in accounts for one in found)


def _leader(sf: Standfast) -> Lease | None:
    try:
        found = sf.leases.get(leader_lease.name_of((account(), *sf.settings.options.accounts)))
    except NotFound:
        return None
    return found if found.standing == "live" else None
