"""`sf.loops`: the verbs on loops."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from standfast import serial
from standfast.config.actor import account
from standfast.db.contract import Tx
from standfast.db.store import Room, query, verb
from standfast.errors import StandfastError
from standfast.footings import hints, notices
from standfast.record.loops import firing, keeping, schedule
from standfast.record.loops.nouns import (
    BACKOFF_MAX_US,
    BACKOFF_US,
    CATCH_UP_MAX,
    CATCH_UPS,
    FAILURES_MAX,
    LOOP_STATES,
    OVERLAPS,
    RETRIES_MAX,
    SINGLE_MAX,
    TIMEOUT_MAX_US,
    Absent,
    Loop,
    Run,
    checked_command,
    checked_directory,
    checked_environment,
    checked_name,
    checked_number,
    checked_one_of,
    checked_reason,
    checked_us,
    loop,
)

if TYPE_CHECKING:
    from datetime import datetime

# In the room `list` is a verb, so that the types need other names there.
LoopList: TypeAlias = "list[Loop]"
RunList: TypeAlias = "list[Run]"
AbsentList: TypeAlias = "list[Absent]"

PAUSED = "paused by hand"


class Loops(Room):
    """Schedules: what is due when, and that every slot gets its one row."""

    __slots__ = ()

    def add(
        self,
        name: str,
        command: Sequence[str],
        *,
        every: str | int | None = None,
        cron: str | None = None,
        at: int | datetime | None = None,
        zone: str | None = None,
        catch_up: str = "latest",
        catch_up_max: int = CATCH_UP_MAX,
        overlap: str = "skip",
        retries_max: int = 0,
        backoff_us: int = BACKOFF_US,
        timeout_us: int | None = None,
        failures_max: int = FAILURES_MAX,
        cwd: str | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> Loop:
        """One loop per name: the same again changes nothing, another specification changes it.

        `every` is "15m" or microseconds, `cron` five fields read in `zone` (this machine's, unless
        given), `at` a moment. `change` of the answer says what was done: new, same or changed.
        """
        return self._add(
            wanted(
                name,
                command,
                every=every,
                cron=cron,
                at=at,
                zone=zone,
                catch_up=catch_up,
                catch_up_max=catch_up_max,
                overlap=overlap,
                retries_max=retries_max,
                backoff_us=backoff_us,
                timeout_us=timeout_us,
                failures_max=failures_max,
                cwd=cwd,
                environment=environment,
            )
        )

    @verb
    def _add(self, tx: Tx, wanted: keeping.Wanted) -> Loop | StandfastError:
        return keeping.add(tx, wanted)

    @query
    def get(self, tx: Tx, name: str) -> Loop | StandfastError:
        """By its name, its id or the end of its id. Raises NotFound."""
        row = keeping.find(tx, name)
        return row if isinstance(row, StandfastError) else loop(row)

    @query
    def list(
        self,
        tx: Tx,
        *,
        state: str | None = None,
        everywhere: bool = False,
        limit: int = 50,
        after: str | None = None,
    ) -> LoopList | StandfastError:
        """By name; without `state`, all but the removed ones. `after` is the id of the last one you have."""
        if state is not None:
            checked_one_of(state, "a loop's state", LOOP_STATES)
        return keeping.page(tx, state=state, everywhere=everywhere, limit=limit, after=after)

    def pause(self, name: str, reason: str = PAUSED) -> Loop:
        """Pause a loop: its slots are skipped until it is resumed, and queued runs are cancelled.

        - `reason`: why; each skipped slot says so.
        """
        return self._pause(name, checked_reason(reason))

    @verb
    def _pause(self, tx: Tx, name: str, reason: str) -> Loop | StandfastError:
        row = keeping.locked(tx, name)
        return row if isinstance(row, StandfastError) else keeping.pause(tx, row, reason)

    def resume(self, name: str) -> Loop:
        """Resume a loop: its slots run again from now on, and its failures are counted from 0.

        A loop without an account becomes yours.
        """
        return self._resume(name, account())

    @verb
    def _resume(self, tx: Tx, name: str, account: str) -> Loop | StandfastError:
        row = keeping.locked(tx, name)
        return row if isinstance(row, StandfastError) else keeping.resume(tx, row, account)

    @verb
    def remove(self, tx: Tx, name: str) -> Loop | StandfastError:
        """Remove a loop. Its runs stay, queued ones are cancelled, and its name is free."""
        row = keeping.locked(tx, name)
        return row if isinstance(row, StandfastError) else keeping.remove(tx, row)

    # -- for whoever fires: the daemon, with no private way in ---------------------------------------

    def fire_due(self, *, limit: int = 100, accounts: Sequence[str] = ()) -> RunList:
        """Give every slot that is due its row, in every scope of the store; up to `limit` loops at once.

        Only loops of the caller's account and of `accounts` (`user@host`). What is to be run is queued. More may be
        due: ask `next_due_us`.
        """
        fired = self._fire_due(limit, (account(), *accounts))
        for one in fired.missed:
            span = schedule.shown(one.first_us, one.zone) + (f" and {one.slots - 1} more" if one.slots > 1 else "")
            hint = hints.command("loop", "runs", one.name)
            notices.tell(self.store, "run.missed", one.loop_id, f"{one.name} missed {span}", hint, tx=self.tx)
        for row in fired.paused:
            hint = hints.command("loop", "show", row["name"])
            notices.tell(self.store, "loop.paused", row["id"], f"{row['name']}: {row['reason']}", hint, tx=self.tx)
        return fired.runs

    @verb
    def _fire_due(self, tx: Tx, limit: int, accounts: tuple[str, ...]) -> firing.Fired:
        return firing.fire_due(tx, max(1, min(limit, keeping.PAGE_MAX)), accounts)

    def next_due_us(self, *, slots: bool = True, runs: bool = True, accounts: Sequence[str] = ()) -> int | None:
        """When there is something to do next for these accounts: a slot to fire, or a queued run to claim."""
        return self._next_due_us(slots, runs, (account(), *accounts))

    @query
    def _next_due_us(self, tx: Tx, slots: bool, runs: bool, accounts: tuple[str, ...]) -> int | None:
        return firing.next_due_us(tx, slots=slots, runs=runs, accounts=accounts)

    @query
    def absent(self, tx: Tx, *, everywhere: bool = False, limit: int = 100) -> AbsentList:
        """Loops that have stopped firing: slots that should have a row by their schedule and have none.

        Computed from the schedules alone, so that it is known while nothing runs that could have noticed.
        """
        return firing.absent(tx, self.scope, everywhere=everywhere, limit=max(1, min(limit, keeping.PAGE_MAX)))


def wanted(
    name: str,
    command: Sequence[str],
    *,
    every: str | int | None = None,
    cron: str | None = None,
    at: int | datetime | None = None,
    zone: str | None = None,
    catch_up: str = "latest",
    catch_up_max: int = CATCH_UP_MAX,
    overlap: str = "skip",
    retries_max: int = 0,
    backoff_us: int = BACKOFF_US,
    timeout_us: int | None = None,
    failures_max: int = FAILURES_MAX,
    cwd: str | None = None,
    environment: Mapping[str, str] | None = None,
) -> keeping.Wanted:
    """What `add` was told, checked and as it is stored. No store is asked."""
    when = schedule.spec(
        every=every, cron=cron, at=_moment_us(at), zone=schedule.local_zone() if zone is None else zone
    )
    given = checked_environment(environment)
    columns = {
        "kind": when.kind,
        "schedule": when.text,
        "zone": when.zone,
        "command": serial.dumps(list(checked_command(command)), what="command"),
        "cwd": checked_directory(os.path.abspath(cwd or os.getcwd())),
        "environment": serial.canonical(given, what="environment") if given else None,
        "catch_up": checked_one_of(catch_up, "catch_up", CATCH_UPS),
        "catch_up_max": checked_number(catch_up_max, "catch_up_max", 1, SINGLE_MAX),
        "overlap": checked_one_of(overlap, "overlap", OVERLAPS),
        "timeout_us": checked_us(timeout_us, "a timeout", TIMEOUT_MAX_US),
        "retries_max": checked_number(retries_max, "retries_max", 0, RETRIES_MAX),
        "backoff_us": checked_number(backoff_us, "backoff_us", 0, BACKOFF_MAX_US),
        "failures_max": checked_number(failures_max, "failures_max", 0, 1_000_000),
    }
    return keeping.Wanted(checked_name(name), columns, account())


def _moment_us(at: int | datetime | None) -> int | None:
    if at is None or isinstance(at, int):
        return at
    from standfast.errors import InvalidInput

    if getattr(at, "tzinfo", None) is None:
        raise InvalidInput("a moment without a time zone could be any of many", "datetime(…, tzinfo=UTC)")
    return round(at.timestamp() * 1_000_000)
