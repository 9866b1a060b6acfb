"""Recovery: the unsettled rows of the store, with the command that settles each.

There is no recovery mode. Opening a session again resumes it. This report only lists what needs a person, or what the
next worker will claim. It changes nothing.

It judges every open row of the store, page by page, so that memory is bounded. Then it keeps the first `limit` items of
each kind, and counts the others and those of other repositories.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import takewhile

from standfast import hints, serial
from standfast.clock import DAY_US, MINUTE_US, format_duration
from standfast.core import authors, leases
from standfast.core.authors import quoted
from standfast.core.checks import page_size
from standfast.db.contract import Row, Tx
from standfast.db.sql import Statement, load
from standfast.db.store import Resource, query
from standfast.ids import short
from standfast.models import Model
from standfast.views import coverage
from standfast.views.coverage import Place, Places
from standfast.views.resume_lines import resume_line

SQL = load(__name__)

EACH_MAX = 100
"""Items of each kind that a report lists by default."""
LIMIT_MAX = 10_000
PAGE = 500
"""Rows that are in memory while they are judged."""
REASONS_MAX = 20
UNREAD_US = 15 * MINUTE_US
"""Mail that waits for a reader this long is reported."""

LATE_US = MINUTE_US
"""A loop's slot is absent if it is this late."""
RUN_LATE_US = 5 * MINUTE_US
"""A run that is queued this long is reported."""

DAEMON = "daemon"
"""The lock of the process that fires loops."""

KINDS = (
    *("effect_in_doubt", "approval_waiting", "dead_letter", "session_crashed", "session_failed", "session_waiting"),
    *("decision_open", "webhook_waiting", "mail_waiting", "loop_absent", "loop_stopped", "run_waiting", "lock_expired"),
)
"""The most urgent first."""
PROBLEMS = frozenset(
    (
        *("effect_in_doubt", "dead_letter", "session_crashed", "session_failed", "webhook_waiting"),
        *("loop_absent", "loop_stopped", "run_waiting", "lock_expired"),
    )
)
"""The kinds of items that went wrong, without those that only wait for an answer."""
NEWEST_FIRST = frozenset(("session_crashed", "session_failed", "session_waiting"))
FAILED_US = 7 * DAY_US
"""How long a failed session is listed, unless it is opened again."""


class Item(Model):
    """One item to settle."""

    kind: str
    """One of KINDS."""
    id: str
    what: str
    since_us: int
    who: str
    scope: str
    """The repository and the scope, if they are not the caller's own."""
    session_id: str | None
    command: str
    here: bool
    """True if the repository and the scope are the caller's."""
    session: str | None = None
    """The key of its session."""


class Report(Model):
    """The items that are not settled, the most urgent first."""

    items: list[Item]
    counts: dict[str, int]
    """The number of items of each kind, listed or not."""
    elsewhere: dict[str, int]
    """The number of items of each other repository or scope; empty if the report covers the whole store."""

    def __bool__(self) -> bool:
        return bool(self.items or self.elsewhere)

    @property
    def truncated(self) -> bool:
        """More is unsettled here than the report lists."""
        return sum(self.counts.values()) > len(self.items)

    @property
    def complete(self) -> bool:
        return not self.truncated

    def of(self, kind: str) -> list[Item]:
        return [item for item in self.items if item.kind == kind]


class Recovery(Resource):
    __slots__ = ()

    @query
    def report(self, tx: Tx, *, everywhere: bool | None = None, limit: int = EACH_MAX) -> Report:
        """Rows that are in doubt, waiting, crashed, open or expired now: at most `limit` items of each kind.

        It covers this repository, and outside one the whole store; `everywhere` decides otherwise. What waits
        in other repositories and scopes is counted.
        """
        limit = page_size(limit, LIMIT_MAX)
        whole = coverage.covers_all(tx.caller, everywhere)
        kept: dict[str, list[Item]] = {kind: [] for kind in KINDS}
        counts: dict[str, int] = {}
        elsewhere: dict[str, int] = {}
        for item in unsettled(tx):
            if not whole and not item.here:
                elsewhere[item.scope] = elsewhere.get(item.scope, 0) + 1
                continue
            counts[item.kind] = counts.get(item.kind, 0) + 1
            kept[item.kind].append(item)
            if len(kept[item.kind]) >= 2 * limit:
                kept[item.kind] = _first(kept[item.kind], limit)
        items = [item for found in kept.values() for item in _first(found, limit)]
        return Report([_explained(tx, item) for item in items], counts, elsewhere)

    @query
    def unsettled_of(self, tx: Tx, subjects: frozenset[str]) -> dict[str, str]:
        """The kind of each of these ids that is unsettled now, in the whole store. Never truncated."""
        return {item.id: item.kind for item in unsettled(tx) if item.id in subjects}

    @query
    def why_it_waits(self, tx: Tx, session_id: str) -> str:
        """Why a waiting session waits now; empty if the store does not say."""
        return why_it_waits(tx, session_id, said=str)

    @query
    def waiting_elsewhere(self, tx: Tx, kind: str) -> int:
        """The number of items of this kind in other repositories and scopes."""
        return sum(item.kind == kind and not item.here for item in unsettled(tx))


def unsettled(tx: Tx) -> Iterator[Item]:
    """Every unsettled item of the store, judged now."""
    now_us = tx.now_us()
    clock = tx.lease_clock()
    gone, places = _Gone(tx), coverage.Places(tx)
    yield from _in_doubt(places, gone, _pages(tx, SQL.dispatched_effects, **clock))
    yield from _approvals(places, _pages(tx, SQL.waiting_approvals, now_us=now_us))
    yield from _dead(places, _pages(tx, SQL.dead_letters))
    yield from _crashed(places, gone, _pages(tx, SQL.held_sessions, **clock))
    yield from _failed(places, _pages(tx, SQL.failed_sessions, since_us=now_us - FAILED_US))
    yield from _waiting(places, _pages(tx, SQL.waiting_sessions))
    yield from _decisions(places, _pages(tx, SQL.open_decisions))
    yield from _webhooks(places, _pages(tx, SQL.waiting_webhooks, late_us=now_us - UNREAD_US))
    yield from _boxes(tx, places, _pages(tx, SQL.waiting_boxes))
    if late := tx.one(SQL.late_loops, late_us=now_us - LATE_US)["late"]:
        yield from _absent(tx, places, late)
    yield from _stopped(places, _pages(tx, SQL.stopped_loops))
    yield from _waiting_runs(places, _pages(tx, SQL.waiting_runs, late_us=now_us - RUN_LATE_US))
    yield from _locks(places, gone, _pages(tx, SQL.held_locks, **clock))


class _Gone:
    """The holders that are dead processes. It asks the kernel once for each, because one may hold thousands of rows."""

    def __init__(self, tx: Tx) -> None:
        self._clock = tx.caller.clock
        self._known: dict[str, bool] = {}

    def has(self, row: Row) -> bool:
        holder = row["holder"]
        if holder is None:
            return False
        if holder not in self._known:
            self._known[holder] = leases.is_gone(holder, self._clock)
        return self._known[holder]

    def live(self, row: Row) -> bool:
        """Whether a holder that may be alive has this row. SQL has judged the expiry."""
        return row["holder"] is not None and not row["is_over"] and not self.has(row)


def _pages(tx: Tx, statement: Statement, **asked: object) -> Iterator[Row]:
    """Every row, one page in memory at a time."""
    at_us, id = -1, ""
    while True:
        rows = tx.all(statement, at_us=at_us, id=id, limit=PAGE, **asked)
        yield from rows
        if len(rows) < PAGE:
            return
        at_us, id = rows[-1]["at_us"], rows[-1]["id"]


def _first(items: list[Item], limit: int) -> list[Item]:
    """Sort sessions by the newest first, and all other items by the oldest first."""
    return sorted(items, key=lambda item: -item.since_us if item.kind in NEWEST_FIRST else item.since_us)[:limit]


def _item(kind: str, id: str, what: str, since_us: int, who: str, place: Place, session: str | None, then: str) -> Item:
    return Item(kind, id, what, since_us, who, place.name, session, then, place.here)


def _in_doubt(places: Places, gone: _Gone, rows: Iterator[Row]) -> Iterator[Item]:
    for row in rows:
        from standfast.ledger.effects import texts  # imported on use, because agents start often

        if row["gave_up_us"] is None and gone.live(row):
            continue
        why = f": {quoted(row['error'])}" if row["error"] else ""
        what = f"was sent, and its outcome is unknown{why}"
        since_us, who = row["dispatched_us"] or row["updated_us"], row["actor"] or leases.holder_text(row["holder"])
        place, then = places.of(row), texts.settling(row)
        yield _item("effect_in_doubt", row["id"], what, since_us, who, place, row["session_id"], then)


def _approvals(places: Places, rows: Iterator[Row]) -> Iterator[Item]:
    for row in rows:
        why = f": {quoted(row['why'])}" if row["why"] else ""
        what = f"waits for approval{why}"
        then = hints.command("approve", short(row["id"]))
        place = places.of(row)
        yield _item("approval_waiting", row["id"], what, row["at_us"], row["requester"], place, row["session_id"], then)


def _dead(places: Places, rows: Iterator[Row]) -> Iterator[Item]:
    for row in rows:
        times = f"{row['attempts']} attempt{'s' * (row['attempts'] != 1)}"
        what = f"{row['kind']} {short(row['subject'])} was given up after {times}: {quoted(row['reason'])}"
        then = hints.command(row["kind"], "retry", short(row["subject"]))
        yield _item("dead_letter", row["id"], what, row["at_us"], row["kind"], places.of(row), None, then)


def _crashed(places: Places, gone: _Gone, rows: Iterator[Row]) -> Iterator[Item]:
    for row in rows:
        if not gone.live(row):
            ended = "its process is gone" if gone.has(row) else "its lease ran out"
            item = _session(places, row, "session_crashed", f"session {row['key']!r} crashed: {ended}")
            yield item.replace(command=resume_line(row["agent"], row["key"], row["cwd"]) or item.command)


def _failed(places: Places, rows: Iterator[Row]) -> Iterator[Item]:
    for row in rows:
        why = f": {quoted(row['reason'])}" if row["reason"] else ""
        yield _session(places, row, "session_failed", f"session {row['key']!r} failed{why}")


def _webhooks(places: Places, rows: Iterator[Row]) -> Iterator[Item]:
    for row in rows:
        what = f"webhook {authors.name(row['event_id'])} of {authors.name(row['source'])} is not handled"
        then = hints.command("webhook", "claim", "--source", row["source"])
        yield _item("webhook_waiting", row["id"], what, row["at_us"], row["source"], places.of(row), None, then)


def _waiting(places: Places, rows: Iterator[Row]) -> Iterator[Item]:
    for row in rows:
        yield _session(places, row, "session_waiting", f"session {row['key']!r} waits")


def _session(places: Places, row: Row, kind: str, what: str) -> Item:
    place = places.of(row)
    who = row["agent"] or row["actor"] or leases.holder_text(row["holder"])
    then = hints.command("session", "show", row["key"] if place.here else short(row["id"]))
    return _item(kind, row["id"], what, row["updated_us"], who, place, row["id"], then)


def _decisions(places: Places, rows: Iterator[Row]) -> Iterator[Item]:
    for row in rows:
        what = f"decided and not finished: {quoted(row['what'])}"
        then = hints.command("decision", "done", short(row["id"]), "--outcome", "TEXT")
        place = places.of_keyspace(row)
        yield _item("decision_open", row["id"], what, row["at_us"], row["actor"], place, row["session_id"], then)


def _boxes(tx: Tx, places: Places, rows: Iterator[Row]) -> Iterator[Item]:
    """Mail for the caller, and mail without a reader. New mail of others is not reported yet."""
    for row in rows:
        from standfast.record.mail.models import BOUND_DEFAULT  # on use, as above

        full = row["waiting"] >= (row["bound"] or BOUND_DEFAULT)
        yours = row["box"] == tx.caller.actor
        old = row["at_us"] <= tx.now_us() - UNREAD_US
        if not (full or yours or old or row["seen_us"] is None):
            continue
        words = f"{row['waiting']} mail{'s' * (row['waiting'] != 1)} for {row['box']}"
        words += ", which is full" if full else ""
        if not yours:
            words += "; that box has never been read" if row["seen_us"] is None else ""
        place = places.of(row)
        then = _in_scope(place, row, "mail", "list", row["box"])
        yield _item("mail_waiting", f"box:{row['box']}", words, row["at_us"], row["box"], place, None, then)


def _locks(places: Places, gone: _Gone, rows: Iterator[Row]) -> Iterator[Item]:
    for row in rows:
        if gone.live(row):
            continue
        place = places.of(row)
        what = f"the lock {row['name']!r} was not released"
        then = _in_scope(place, row, "lock", row["name"], "--release")
        if row["scope"] == "" and row["name"].startswith(f"{DAEMON}:"):
            what, then = "the daemon was killed: no loop is fired until one runs again", "standfast daemon start"
        who = row["actor"] or leases.holder_text(row["holder"])
        yield _item("lock_expired", f"lock:{row['name']}", what, row["at_us"], who, place, None, then)


def _in_scope(place: Place, row: Row, *words: str) -> str:
    """A command about a name that is unique in its scope. It names the scope if that is not the caller's."""
    return hints.command(*words) if place.here else hints.command("--scope", row["scope"], *words)


def _absent(tx: Tx, places: Places, late_loops: int) -> Iterator[Item]:
    """Loops whose slot was not fired. They are computed from the schedules, so no daemon has to run."""
    from standfast.record.loops import fire, schedule  # on use, as above

    for late in fire.absent(tx, "", everywhere=True, limit=late_loops):
        since = schedule.shown(late.slot_us, late.zone)
        span = f"{late.slots} slots since" if late.slots > 1 else "the slot of"
        what = f"the loop {late.name!r} did not run: {fire.ABSENT}, {span} {since}"
        place = places.of(late.as_dict())
        yield _item("loop_absent", late.loop_id, what, late.slot_us, "", place, None, "standfast daemon status")


def _stopped(places: Places, rows: Iterator[Row]) -> Iterator[Item]:
    for row in rows:
        place = places.of(row)
        what = f"the loop {row['name']!r} paused itself: {quoted(row['reason'] or '')}"
        then = hints.command("loop", "runs", row["name"] if place.here else short(row["id"]))
        yield _item("loop_stopped", row["id"], what, row["at_us"], row["actor"], place, None, then)


def _waiting_runs(places: Places, rows: Iterator[Row]) -> Iterator[Item]:
    for row in rows:
        what = f"a run of {row['name']!r} is queued and no worker runs it"
        yield _item("run_waiting", row["id"], what, row["at_us"], "", places.of(row), None, "standfast daemon status")


# -- reasons to wait -----------------------------------------------------------------------------------------


def _explained(tx: Tx, item: Item) -> Item:
    """With its subject and the key of its session; why a session waits is derived from the present rows."""
    from standfast.ledger import subjects  # on use, as above

    if item.session_id is not None:
        item = item.replace(session=tx.one(SQL.key_of, id=item.session_id)["key"])
    if (action := subjects.journalled(tx, item.id)) is not None:
        item = item.replace(what=f"{action.quoted} {item.what}")
    if item.kind == "effect_in_doubt":
        return _observed_effect(tx, item)
    if item.kind == "session_crashed":
        return item.replace(what="; ".join((item.what, *_never_answered(tx, item.id))))
    if item.kind != "session_waiting":
        return item
    whole = why_it_waits(tx, item.id, said=quoted)
    if whole.startswith("waits "):
        return item.replace(what=f"{item.what}{whole.removeprefix('waits')}")
    return item.replace(what=f"{item.what}: {whole}" if whole else item.what)


def _observed_effect(tx: Tx, item: Item) -> Item:
    """With what a hook saw of it, and the command that asks its ready probe, if it has one."""
    seen = tx.maybe(SQL.observed, subject=item.id)
    what = item.what if seen is None else f"{item.what}; standfast saw: {seen['summary']}"
    ready = tx.one(SQL.context_of, id=item.id)["context"]
    if item.here and ready is not None and "action" in (serial.read(ready) or {}):
        return item.replace(what=what, command=hints.command("effect", "check", short(item.id)))
    return item.replace(what=what)


def _never_answered(tx: Tx, session_id: str) -> list[str]:
    """The known actions of a crashed session that were never answered, and what a hook saw of the last ones."""
    cwd = tx.one(SQL.directory, id=session_id)["cwd"]
    if cwd is None:
        return []
    from standfast.interchange.hooks import unanswered  # on use, as above

    open_ = [f"{quoted(call.text)} was never answered" for call in unanswered.calls(tx, session_id, cwd)]
    return [*open_, *(f"standfast saw: {line}" for line in unanswered.observed(tx, session_id))]


def why_it_waits(tx: Tx, session_id: str, *, said: Callable[[str], str]) -> str:
    """Why a waiting session waits now. `said` quotes the text of others, or returns it unchanged."""
    rows = tx.all(SQL.waits_for, id=session_id, limit=REASONS_MAX)
    effects = [row for row in rows if row["effect_id"] is not None]
    reason = rows[0]["reason"] if rows else None
    found = [(row["tool"], words) for row in effects if (words := _blocked_by(tx, row, said))]
    if not found:  # the effect in the stored reason may be settled by now
        found = [
            (row["tool"], f"{row['tool']} was settled since ({row['state'].replace('_', ' ')})")
            for row in effects
            if reason and row["tool"] in reason and row["state"] not in ("planned", "dispatched")
        ][:1]
    # Keep the parts of the stored reason before the first one that names a tool: "ended by SIGKILL".
    parts = reason.split("; ") if reason else []
    stored = "; ".join(takewhile(lambda part: not any(tool in part for tool, _ in found), parts))
    return "; ".join([*([said(stored)] if stored else []), *dict.fromkeys(words for _, words in found)])


def _blocked_by(tx: Tx, row: Row, said: Callable[[str], str]) -> str | None:
    """The reason why this effect is blocked now; None if it is not blocked."""
    if row["state"] == "dispatched":
        doubted = row["gave_up_us"] is not None or not leases.judge(tx, row).live
        return f"{row['tool']} is in doubt" if doubted else None
    if row["state"] != "planned" or row["approval_state"] is None:
        return None
    why = f": {said(row['rationale'])}" if row["rationale"] else ""
    past = tx.now_us() >= row["expires_us"]
    if row["approval_state"] == "denied":
        return f"{row['tool']} was denied by {authors.name(row['approver'])}{why}"
    if row["approval_state"] == "expired" or (past and row["approval_state"] in ("requested", "granted")):
        ago = f" {_age(tx, row['expires_us'])} ago" if past else ""
        return f"its request for {row['tool']} expired{ago}"
    if row["approval_state"] == "granted":
        return f"{row['tool']} was granted by {authors.name(row['approver'])}; run it again"
    if row["approval_state"] == "requested":
        return f"waits for approval of {row['tool']}, requested {_age(tx, row['requested_us'])} ago"
    return None


def _age(tx: Tx, us: int) -> str:
    return format_duration(max(tx.now_us() - us, 0), parts=1)
