"""`sf.tasks`: the methods on tasks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias, overload

from standfast import crash, hints, serial
from standfast.clock import Duration, Time, duration_us
from standfast.core import authors, journal
from standfast.core.authors import Author
from standfast.core.checks import NOT_GIVEN, PRIORITY_DEFAULT, bounded_us, future_us, page_size
from standfast.core.claims import keep_while_alive
from standfast.core.journal import Event
from standfast.db.contract import Row, Tx
from standfast.db.store import Resource, query, transactional
from standfast.errors import Conflict, IllegalTransition, InvalidInput
from standfast.ids import short
from standfast.record import agents
from standfast.record.tasks import changes, claims, graph, queries, sightings
from standfast.record.tasks.changes import Which
from standfast.record.tasks.models import (
    Goal,
    Note,
    Progress,
    Shown,
    Swept,
    Task,
    checked_name,
    checked_priority,
    checked_text,
    checked_title,
    joined_labels,
    like_label,
    task,
)

# In the resource `list` and `next` are methods, so that the types need other names there.
TaskList: TypeAlias = "list[Task]"
GoalList: TypeAlias = "list[Goal]"
EventList: TypeAlias = "list[Event]"


class Tasks(Resource):
    """Tasks: one row per problem, however often it is reported, and one worker per task."""

    __slots__ = ()

    # -- reports -------------------------------------------------------------------------------------

    def add(
        self,
        title: str,
        *,
        body: str | None = None,
        kind: str = sightings.KIND,
        source: str = "",
        fingerprint: str | None = None,
        priority: int = PRIORITY_DEFAULT,
        labels: Iterable[str] = (),
        branch: str | None = None,
        assignee: str | None = None,
        parent: str | None = None,
        needs: Iterable[Which] = (),
        session: str | None = None,
        cool_down: Duration | None = None,
        due: Time | None = None,
    ) -> Task:
        """Report a task. If it was already reported, its count goes up; no second task is created.

        - `body`: describe the task; - reads stdin.
        - `kind`: the kind of task; it is part of its identity.
        - `source`: the reporter, such as a linter or a loop; it is part of its identity.
        - `fingerprint`: identify the task by this text instead of source, kind and title.
        - `priority`: set the priority; 0 is the most urgent.
        - `labels`: add this label; may be given several times.
        - `branch`: the branch that it belongs to.
        - `assignee`: only offer it to this agent.
        - `parent`: the goal that it belongs to.
        - `needs`: close this task first; may be given several times.
        - `session`: session that found it.
        - `cool_down`: keep it closed if it is reported again within this time.
        - `due`: set the due date: "fri 17:00", 2026-11-20.

        Reports are the same if source, kind and title match. Case, spaces, UUIDs, times and long hexadecimal numbers
        in the title do not count. `sighting` of the result is new, again, returned (it was closed: the next episode)
        or cooling (closed less than its cool-down ago: counted, and it stays closed). A repeated report updates title
        and body, and leaves priority, labels, assignee and the other fields.
        """
        cool_down_us = duration_us(cool_down, "cool_down")
        due_us = future_us(due, self.store.caller.clock.now_us(), "due")
        seen = sightings.report(
            title,
            body=body,
            kind=kind,
            source=source,
            fingerprint=fingerprint,
            priority=priority,
            labels=labels,
            branch=branch,
            assignee=assignee,
            parent=parent,
            cool_down_us=cool_down_us,
            due_us=due_us,
        )
        wanted = tuple(needs)
        return self._write(lambda tx: sightings.add(tx, seen, needs=wanted, session=session))

    def sweep(
        self,
        source: str,
        *,
        seen: Iterable[str | Mapping[str, Any]],
        absent_max: int | None = sightings.ABSENT_DEFAULT,
        cool_down: Duration | None = None,
    ) -> Swept:
        """Report everything that SOURCE sees now, and close tasks that it missed several times in a row.

        - `seen`: a title that SOURCE saw; without any, lines of stdin: titles or JSON objects.
        - `absent_max`: close a task that N sweeps in a row missed; 0 closes none.
        - `cool_down`: keep a task closed if it is reported again within this time.

        In Python, `seen` has titles, or mappings with `title` and the other arguments of `add`, and
        `absent_max=None` closes no task. An accepted task and a task that a live worker holds stay open.
        """
        cool_down_us = duration_us(cool_down, "cool_down")
        if absent_max is not None and absent_max < 1:
            raise InvalidInput("absent_max counts sweeps: 1 or more, or None to close nothing")
        reports = sightings.reports(source, seen, cool_down_us)
        return self._write(lambda tx: sightings.sweep(tx, source, reports, absent_max=absent_max))

    # -- claims --------------------------------------------------------------------------------------

    @query
    def next(
        self,
        tx: Tx,
        *,
        label: str | None = None,
        kind: str | None = None,
        source: str | None = None,
        assignee: str | None = None,
        limit: int = 10,
    ) -> TaskList:
        """List tasks that can be claimed now, the most urgent first, then the oldest.

        - `label`: only list tasks with this label.
        - `kind`: only list tasks of this kind.
        - `source`: only list rows from this source.
        - `assignee`: include tasks assigned to this agent instead of the caller.

        A task is ready if it is open, without a live holder, every task that it needs is closed, and no task below it
        is open. A task that is assigned to another agent is not listed.
        """
        return claims.next_ready(tx, _asked(tx, label, kind, source, assignee), page_size(limit))

    @overload
    def claim(self, which: Which, *, for_: Duration | None = None) -> Task: ...

    @overload
    def claim(
        self,
        which: None = None,
        *,
        label: str | None = None,
        kind: str | None = None,
        source: str | None = None,
        assignee: str | None = None,
        for_: Duration | None = None,
    ) -> Task | None: ...

    def claim(
        self,
        which: Which | None = None,
        *,
        label: str | None = None,
        kind: str | None = None,
        source: str | None = None,
        assignee: str | None = None,
        for_: Duration | None = None,
    ) -> Task | None:
        """Claim a task, or the next one that is ready. Prints its id; exit 3 if none is ready.

        - `label`: only list tasks with this label.
        - `kind`: only list tasks of this kind.
        - `source`: only list rows from this source.
        - `assignee`: include tasks assigned to this agent instead of the caller.
        - `for_`: hold it for this long after your last command.  [default: 15m]

        A process holds it while it lives. Returns None if no task is ready. Raises InProgress if a live holder has
        the named task, Conflict if it needs other tasks first.
        """
        for_us = duration_us(for_, "for_")

        def claim(tx: Tx) -> Task | None:
            asked = _asked(tx, label, kind, source, assignee, for_us)
            return claims.claim_next(tx, asked) if which is None else claims.claim(tx, which, asked)

        claimed = self._write(claim)
        if claimed is not None:
            keep_while_alive(self.store, self.tx, claimed.holder)
            agents.notice(self.store, self.tx)
        return claimed

    @transactional
    def renew(self, tx: Tx, which: Which, *, for_: Duration | None = None) -> Task:
        """Renew the lease of a task that you hold.

        - `for_`: hold it for this long from now.  [default: the duration of the claim]

        Not journalled. Raises LeaseLost if the caller no longer holds it.
        """
        for_us = duration_us(for_, "for_")
        return task(tx, changes.CLAIMS.renew(tx, which, for_us))

    @transactional
    def release(self, tx: Tx, which: Which, *, force: bool = False) -> Task:
        """Release a task without closing it.

        - `force`: take it from its holder; later calls of the holder are refused.

        Raises LeaseLost if another holder has it.
        """
        return claims.release(tx, which, force=force)

    @transactional
    def done(
        self,
        tx: Tx,
        which: Which,
        *,
        result: serial.Json = None,
        reason: str = "done",
        cool_down: Duration | None = None,
    ) -> Task:
        """Close a task, claimed or not; refused (exit 4) if another holder has it.

        - `result`: record the result.
        - `reason`: record why it is closed.
        - `cool_down`: keep it closed if it is reported again within this time.

        A repeated call by the same agent returns the first result. Raises LeaseLost if a live holder has it or the
        given claim was lost; IllegalTransition if another agent closed it.
        """
        cool_down_us = duration_us(cool_down, "cool_down")
        row = changes.locked_alone(tx, which)
        if row["state"] == "closed":
            return _closed_before(tx, row, which)
        changes.CLAIMS.check(tx, row, which)
        text = None if result is None else serial.dumps(result, what="result")
        return changes.close(
            tx, row, _reason(reason), result=text, cool_down_us=sightings.checked_cool_down(cool_down_us)
        )

    # -- later states ----------------------------------------------------------------------------------

    @transactional
    def snooze(self, tx: Tx, which: Which, *, until: Time | None = None, for_: Duration | None = None) -> Task:
        """Hide a task from `next` for a time. Reports still count, and it is ready again by itself.

        - `until`: snooze it until this time: "mon 09:00", 2026-11-20.
        - `for_`: snooze it for this time: 2h, 3d.
        """
        until_us = future_us(until, tx.now_us(), "until")
        for_us = duration_us(for_, "for_")
        if (until_us is None) == (for_us is None):
            raise InvalidInput("snooze needs one of for_ and until", "in a shell: --for 2d, or --until 'mon 09:00'")
        if for_us is not None:
            bounded_us(for_us, "a snooze", hint="for example: --for 2d")
        until_us = until_us if until_us is not None else tx.now_us() + (for_us or 0)
        return changes.rest(
            tx, which, "snoozed", "task.snoozed", snoozed_until_us=until_us, data={"until_us": until_us}
        )

    @transactional
    def accept(self, tx: Tx, which: Which, *, reason: str | None = None) -> Task:
        """Accept a task as it is: reports still count, and no agent is handed it.

        - `reason`: record why the problem may stay.
        """
        words = None if reason is None else _reason(reason)
        return changes.rest(tx, which, "accepted", "task.accepted", snoozed_until_us=None, reason=words)

    @transactional
    def reopen(self, tx: Tx, which: Which) -> Task:
        """Open a task again that was closed, accepted or snoozed; its episode stays the same.

        Raises Conflict if it has a later episode.
        """
        row = changes.locked_alone(tx, which)
        if row["state"] == "open":
            return task(tx, row)
        newest = changes.current(tx, row)
        if newest is not None and newest["id"] != row["id"]:
            raise Conflict(
                f"{changes.named(row)} has a later episode {newest['episode']}: {short(newest['id'])}",
                hints.command("task", "show", short(newest["id"])),
            )
        crash.point("task.before_change")
        data = {"was": row["state"]}
        return changes.change(
            tx, row, "task.reopened", data=data, state="open", reason=None, snoozed_until_us=None, closed_us=None
        )

    def edit(
        self,
        which: Which,
        *,
        title: str = NOT_GIVEN,
        body: str | None = NOT_GIVEN,
        priority: int = NOT_GIVEN,
        labels: Iterable[str] = NOT_GIVEN,
        branch: str | None = NOT_GIVEN,
        assignee: str | None = NOT_GIVEN,
        parent: Which | None = NOT_GIVEN,
        cool_down: Duration | None = NOT_GIVEN,
        due: Time | None = NOT_GIVEN,
        needs: Iterable[Which] = NOT_GIVEN,
        no_needs: Iterable[Which] = NOT_GIVEN,
    ) -> Task:
        """Change the given fields of a task; all of them, or none if one is refused.

        - `title`: set the title; the identity of the task stays.
        - `body`: describe the task; - reads stdin.
        - `priority`: set the priority; 0 is the most urgent.
        - `labels`: replace its labels; may be given several times.
        - `branch`: the branch that it belongs to.
        - `assignee`: only offer it to this agent; empty offers it to all.
        - `parent`: the goal that it belongs to; empty for none.
        - `due`: set the due date: "fri 17:00".
        - `needs`: close this task first; may be given several times.
        - `no_needs`: this task need not be closed first; may be given several times.

        Raises Conflict if the new parent or a new need already waits for it.
        """
        cool_down_us = cool_down if cool_down is NOT_GIVEN else duration_us(cool_down, "cool_down")
        due_us = due if due is NOT_GIVEN else future_us(due, self.store.caller.clock.now_us(), "due")
        given: dict[str, Any] = {
            "title": title if title is NOT_GIVEN else checked_title(title),
            "body": body if body is NOT_GIVEN or body is None else checked_text(body, "a task's body"),
            "priority": priority if priority is NOT_GIVEN else checked_priority(priority),
            "labels": labels if labels is NOT_GIVEN else joined_labels(labels),
            "branch": branch if branch is NOT_GIVEN else checked_name(branch, "a branch"),
            "assignee": assignee if assignee is NOT_GIVEN else checked_name(assignee, "an assignee"),
            "cool_down_us": cool_down_us if cool_down_us is NOT_GIVEN else sightings.checked_cool_down(cool_down_us),
            "due_us": due_us,
        }
        columns = {name: value for name, value in given.items() if value is not NOT_GIVEN}
        more = () if needs is NOT_GIVEN else tuple(needs)
        fewer = () if no_needs is NOT_GIVEN else tuple(no_needs)

        def edit(tx: Tx) -> Task:
            edited = _edited(tx, which, columns, parent)
            for other in more:
                edited = graph.need(tx, edited.id, other)
            for other in fewer:
                edited = graph.unneed(tx, edited.id, other)
            return edited

        return self._write(edit)

    @query
    def author(self, tx: Tx, which: Which) -> Author:
        """The author of its title and body. If an agent wrote part of them, the agent and not a person."""
        return authors.of_events(tx, changes.find(tx, which)["id"], *authors.TASK_TEXT)

    @transactional
    def note(self, tx: Tx, which: Which, text: str) -> Note:
        """Add a note to a task; - reads it from stdin."""
        return changes.note(tx, which, text)

    @transactional
    def need(self, tx: Tx, which: Which, on: Which) -> Task:
        """Let `which` wait until `on` is closed. Raises Conflict if `on` already waits for it."""
        return graph.need(tx, which, on)

    @transactional
    def unneed(self, tx: Tx, which: Which, on: Which) -> Task:
        """Let `which` no longer wait for `on`."""
        return graph.unneed(tx, which, on)

    # -- lists and details ---------------------------------------------------------------------------

    @query
    def get(self, tx: Tx, which: Which) -> Task:
        """By id, the end of an id, or fingerprint (its newest episode). Raises NotFound."""
        return task(tx, changes.find(tx, which))

    @query
    def list(
        self,
        tx: Tx,
        *,
        state: str | None = None,
        label: str | None = None,
        kind: str | None = None,
        source: str | None = None,
        branch: str | None = None,
        assignee: str | None = None,
        session: str | None = None,
        held: bool = False,
        everywhere: bool = False,
        limit: int = 50,
        after: str | None = None,
    ) -> TaskList:
        """List open and snoozed tasks, the most urgent first. `after` is the `place` of the last one you have.

        `state` is one of open, snoozed, accepted, closed, any. Accepted and closed tasks come newest first.
        """
        named: Row = {"kind": kind, "source": source, "branch": branch, "assignee": assignee}
        return queries.page(
            tx, state, named, label=label, session=session, held=held, everywhere=everywhere, limit=limit, after=after
        )

    @query
    def goals(self, tx: Tx, *, limit: int = 50, after: str | None = None) -> GoalList:
        """List tasks with tasks below them, with their progress."""
        return queries.goals(tx, limit=limit, after=after)

    @query
    def progress(self, tx: Tx, which: Which) -> Progress:
        """Count the tasks below a goal by state."""
        return graph.progress(tx, changes.find(tx, which)["id"])

    @query
    def show(self, tx: Tx, which: Which) -> Shown:
        """Show a task: its notes, the tasks it needs, its episodes, and its newest changes."""
        return queries.show(tx, which)

    @query
    def history(self, tx: Tx, which: Which, *, after: int = 0, limit: int = 50) -> EventList:
        """Every change of a task, in order. `after` is the `seq` of the last one you have."""
        row = changes.find(tx, which)
        return journal.Journal(self.store, tx).about(row["id"], after=after, limit=limit)


# -- private functions -------------------------------------------------------------------------------


def _asked(
    tx: Tx,
    label: str | None,
    kind: str | None,
    source: str | None,
    assignee: str | None,
    for_us: int | None = None,
) -> claims.ClaimFilter:
    return claims.ClaimFilter(like_label(label), kind or "", source or "", assignee or tx.caller.actor, for_us)


def _edited(tx: Tx, which: Which, columns: Row, parent: Any) -> Task:
    row = changes.locked(tx, which)
    if parent is not NOT_GIVEN:
        above = None if parent is None else changes.find(tx, parent)
        if above is not None:
            changes.lock_fingerprint(tx, changes.keyspace_of(row), "graph")
            graph.refuse_circle(tx, above["id"], row)
        columns = columns | {"parent_id": above["id"] if above is not None else None}
    columns = {name: value for name, value in columns.items() if row[name] != value}
    if not columns:
        return task(tx, row)
    crash.point("task.before_change")
    told = {name: {"was": row[name], "is": value} for name, value in columns.items() if name != "body"}
    return changes.change(tx, row, "task.edited", data=told, **columns)


def _closed_before(tx: Tx, row: Row, which: Which) -> Task:
    if changes.CLAIMS.ended_by_caller(tx, row, which):
        return task(tx, row)
    raise IllegalTransition(
        f"{changes.named(row)} was closed by {row['actor']}: {row['reason']}",
        hints.command("task", "show", short(row["id"])),
    )


def _reason(text: str) -> str:
    reason = checked_text(text, "a reason").strip()
    if not reason:
        raise InvalidInput("a reason is empty", "write a sentence")
    return reason
