"""`sf.loops`: the methods on loops."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from standfast import hints, serial
from standfast.clock import Duration, Time, duration_us
from standfast.config.actor import account
from standfast.core import notices
from standfast.core.checks import bounded_us, future_us, page_size, whole
from standfast.db.contract import Tx
from standfast.db.store import Resource, query, transactional
from standfast.record.loops import edit, fire, schedule
from standfast.record.loops.models import (
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
    checked_one_of,
    checked_reason,
    loop,
)

# Inside the resource class `list` is a method, so annotations there use these names instead of `list[…]`.
LoopList: TypeAlias = "list[Loop]"
RunList: TypeAlias = "list[Run]"
AbsentList: TypeAlias = "list[Absent]"

PAUSED = "paused by hand"


class Loops(Resource):
    """Schedules. Every slot gets exactly one row."""

    __slots__ = ()

    def add(
        self,
        name: str,
        command: Sequence[str],
        *,
        every: Duration | None = None,
        cron: str | None = None,
        at: Time | None = None,
        zone: str | None = None,
        catch_up: str = "latest",
        catch_up_max: int = CATCH_UP_MAX,
        overlap: str = "skip",
        retries_max: int = 0,
        backoff: Duration = "30s",
        timeout: Duration | None = None,
        failures_max: int = FAILURES_MAX,
        cwd: str | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> Loop:
        """Run COMMAND on a schedule as the loop NAME, or change the loop of that name.

        - `every`: run it at this interval: 90s, 15m, 1h30m.
        - `cron`: run it at minute, hour, day, month and weekday; or @hourly, @daily, @weekly, @monthly.
        - `at`: run it once at this time: "tomorrow 03:00", "2026-11-20 09:00 UTC", 2h.
        - `zone`: read --cron in this time zone.  [default: this machine's]
        - `catch_up`: after a time without a daemon, run the latest missed slot, all of them, or none.
        - `catch_up_max`: with `--catch-up all`, run at most N missed slots.
        - `overlap`: if the last run still runs, skip the slot or queue it.
        - `retries_max`: retry a failed run up to N times.
        - `backoff`: wait this long before the first retry; each further wait is twice as long, up to 1h.
        - `timeout`: end a run that takes longer: 30m.
        - `failures_max`: pause the loop after N failed runs in a row; 0 never pauses it.
        - `environment`: set this variable for the command; may be given several times.
        - `cwd`: run it in this directory.  [default: the current directory]

        A daemon runs it: `standfast daemon start`. The same call again changes nothing; `change` of the answer is new,
        same or changed.
        """
        asked = wanted(
            name,
            command,
            every=every,
            cron=cron,
            at_us=future_us(at, self.store.caller.clock.now_us(), "at"),
            zone=zone,
            catch_up=catch_up,
            catch_up_max=catch_up_max,
            overlap=overlap,
            retries_max=retries_max,
            backoff_us=duration_us(backoff, "backoff"),
            timeout_us=duration_us(timeout, "timeout"),
            failures_max=failures_max,
            cwd=cwd,
            environment=environment,
        )
        return self._write(lambda tx: edit.add(tx, asked))

    @query
    def get(self, tx: Tx, name: str) -> Loop:
        """Show a loop: its command, its rules, and its last runs.

        By its name, its id or the end of its id. Raises NotFound.
        """
        return loop(edit.find(tx, name))

    @query
    def list(
        self,
        tx: Tx,
        *,
        state: str | None = None,
        everywhere: bool = False,
        limit: int = 50,
        after: str | None = None,
    ) -> LoopList:
        """List the loops: their schedules, the next slot, and the last one.

        - `state`: only of this state.  [default: all but removed]

        In the order of their names. `after` is the id of the last one you have.
        """
        if state is not None:
            checked_one_of(state, "a loop's state", LOOP_STATES)
        return edit.page(tx, state=state, everywhere=everywhere, limit=limit, after=after)

    def pause(self, name: str, reason: str = PAUSED) -> Loop:
        """Pause a loop: its slots are skipped until it is resumed, and queued runs are cancelled.

        - `reason`: the reason, which each skipped slot shows.
        """
        why = checked_reason(reason)
        return self._write(lambda tx: edit.pause(tx, edit.locked(tx, name), why))

    @transactional
    def resume(self, tx: Tx, name: str) -> Loop:
        """Resume a loop: its slots run again from now on, and its failures are counted from 0."""
        return edit.resume(tx, edit.locked(tx, name))

    @transactional
    def remove(self, tx: Tx, name: str) -> Loop:
        """Remove a loop. Its runs stay, queued ones are cancelled, and its name is free."""
        return edit.remove(tx, edit.locked(tx, name))

    # -- methods for the daemon ------------------------------------------------------------------------------

    def fire_due(self, *, limit: int = 100, accounts: Sequence[str] = ()) -> RunList:
        """Write the rows of all due slots, in every scope of the store, for up to `limit` loops.

        Only loops of the caller's account and of `accounts` (`user@host`) are fired. Due runs are queued. More loops
        may be due: see `next_due_us`.
        """
        own = (account(), *accounts)
        fired = self._write(lambda tx: fire.fire_due(tx, page_size(limit), own))
        for one in fired.missed:
            span = schedule.shown(one.first_us, one.zone) + (f" and {one.slots - 1} more" if one.slots > 1 else "")
            hint = hints.command("loop", "runs", one.name)
            notices.tell(self.store, "run.missed", one.loop_id, f"{one.name} missed {span}", hint, tx=self.tx)
        for row in fired.paused:
            hint = hints.command("loop", "show", row["name"])
            notices.tell(self.store, "loop.paused", row["id"], f"{row['name']}: {row['reason']}", hint, tx=self.tx)
        return fired.runs

    def next_due_us(self, *, slots: bool = True, runs: bool = True, accounts: Sequence[str] = ()) -> int | None:
        """The time of the next slot to fire or queued run to claim, for these accounts; None if there is none."""
        own = (account(), *accounts)
        return self._read(lambda tx: fire.next_due_us(tx, slots=slots, runs=runs, accounts=own))

    @query
    def absent(self, tx: Tx, *, everywhere: bool = False, limit: int = 100) -> AbsentList:
        """Due slots without a row: their loops have stopped firing.

        It is computed from the schedules alone, so it is correct while no daemon runs.
        """
        return fire.absent(tx, self.scope, everywhere=everywhere, limit=page_size(limit))


def wanted(
    name: str,
    command: Sequence[str],
    *,
    every: Duration | None = None,
    cron: str | None = None,
    at_us: int | None = None,
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
) -> edit.Wanted:
    """The arguments of `add`, checked and in their stored form. No store is read."""
    when = schedule.spec(every=every, cron=cron, at_us=at_us, zone=schedule.local_zone() if zone is None else zone)
    given = checked_environment(environment)
    columns = {
        "kind": when.kind,
        "schedule": when.text,
        "zone": when.zone,
        "command": serial.dumps(list(checked_command(command)), what="command"),
        "cwd": checked_directory(os.path.abspath(cwd or os.getcwd())),
        "environment": serial.canonical(given, what="environment") if given else None,
        "catch_up": checked_one_of(catch_up, "catch_up", CATCH_UPS),
        "catch_up_max": whole(catch_up_max, "catch_up_max", least=1, most=SINGLE_MAX),
        "overlap": checked_one_of(overlap, "overlap", OVERLAPS),
        "timeout_us": None if timeout_us is None else bounded_us(timeout_us, "timeout", most_us=TIMEOUT_MAX_US),
        "retries_max": whole(retries_max, "retries_max", least=0, most=RETRIES_MAX),
        "backoff_us": bounded_us(backoff_us, "backoff", least_us=0, most_us=BACKOFF_MAX_US),
        "failures_max": whole(failures_max, "failures_max", least=0, most=1_000_000),
    }
    return edit.Wanted(checked_name(name), columns, account())
