"""Import the issues of beads, in `.beads/issues.jsonl`, as tasks.

The id of an issue is the task's fingerprint, so another import adds no second task and counts no sighting. Dependencies
come with their issue. An issue that beads closed closes its task. A task that is closed here stays closed.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, NamedTuple

from standfast import serial
from standfast.errors import Conflict, InvalidInput, NotFound
from standfast.interchange.transcripts.files import pieces
from standfast.interchange.transcripts.model import fit, short_id
from standfast.serial.redaction import redacted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from standfast.record.tasks import Task, Tasks

SOURCE = "beads"
PLACES = (".beads/issues.jsonl", ".beads/beads.jsonl")
CLOSED = frozenset(("closed", "done", "tombstone"))
BLOCKING = frozenset(("blocks", "blocked-by", "depends-on", ""))
ISSUES_MAX = 100_000
TITLE_MAX = 300
BODY_MAX = 20_000


class Taken(NamedTuple):
    """The result of one import of issues."""

    path: str
    dry_run: bool
    issues: int
    added: int
    known: int
    closed: int
    needs: int
    bad: int


def run(tasks: Tasks, path: str | None = None, *, dry_run: bool = False) -> Taken:
    """Import the issues at `path`: a file, or a directory that has one. Raises NotFound if there is none."""
    file = _file(path)
    issues, bad = _issues(file)
    counts = {"added": 0, "known": 0, "closed": 0, "needs": 0}
    if not dry_run:
        _take(tasks, issues, counts)
    return Taken(file, dry_run, len(issues), bad=bad, **counts)


def summary(taken: Taken) -> str:
    if taken.dry_run:
        return f"{taken.issues} issues in {taken.path}; nothing was written"
    return f"{taken.added} tasks added, {taken.known} known already, {taken.closed} closed, of {taken.issues} issues"


def _file(path: str | None) -> str:
    if path is not None and os.path.isfile(path):
        return path
    for name in PLACES:
        if os.path.isfile(place := os.path.join(path or ".", name)):
            return place
    raise NotFound(f"no issues of beads at {path or '.'}", "standfast import beads path/to/.beads/issues.jsonl")


def _issues(file: str) -> tuple[dict[str, dict[str, Any]], int]:
    found: dict[str, dict[str, Any]] = {}
    bad = 0
    with open(file, "rb") as opened:
        for piece in pieces(opened, 0):
            for record in piece:
                issue = record.value
                if isinstance(issue, dict) and isinstance(issue.get("id"), str) and isinstance(issue.get("title"), str):
                    found[issue["id"]] = issue  # the last line of an id counts
                else:
                    bad += 1
            bad += piece.broken + piece.oversized
            if len(found) > ISSUES_MAX:
                raise InvalidInput(f"{file} has more than {ISSUES_MAX:,} issues")
    return found, bad


def _take(tasks: Tasks, issues: dict[str, dict[str, Any]], counts: dict[str, int]) -> None:
    made: dict[str, Task] = {}
    for id in _in_order(issues):
        issue = issues[id]
        fingerprint = f"{SOURCE}:{short_id(id)}"
        before = _known(tasks, fingerprint)
        over = issue.get("status") in CLOSED
        if before is None and over:
            continue  # the issue was closed before its first import, so there is no task to add
        if before is None:
            needs = [made[need] for need in _needs(issue) if need in made]
            made[id] = _add(tasks, issue, fingerprint, needs)
            counts["added"] += 1
            counts["needs"] += len(needs)
            continue
        made[id] = before
        counts["known"] += 1
        if over and before.state != "closed":
            try:
                tasks.done(before.id, result={"beads": id, "reason": _text(issue.get("close_reason"), 500)})
                counts["closed"] += 1
            except Conflict:
                pass  # another worker has claimed the task and will close it


def _known(tasks: Tasks, fingerprint: str) -> Task | None:
    try:
        return tasks.get(fingerprint)
    except NotFound:
        return None


def _add(tasks: Tasks, issue: dict[str, Any], fingerprint: str, needs: list[Task]) -> Task:
    priority = issue.get("priority")
    return tasks.add(
        serial.clean(redacted(fit(issue["title"])), TITLE_MAX) or short_id(issue["id"]),
        body=_text(issue.get("description"), BODY_MAX),
        kind=short_id(issue.get("issue_type") or "task")[:50],
        source=SOURCE,
        fingerprint=fingerprint,
        priority=priority if isinstance(priority, int) and 0 <= priority <= 4 else 2,
        labels=_labels(issue.get("labels")),
        assignee=_text(issue.get("assignee"), 100),
        needs=[need.id for need in needs],
    )


def _labels(labels: Any) -> list[str]:
    texts = [label for label in labels if isinstance(label, str)] if isinstance(labels, list) else []
    return [text for text in texts if 0 < len(text) <= 60 and text.isprintable() and "," not in text][:20]


def _in_order(issues: dict[str, dict[str, Any]]) -> Iterator[str]:
    """The ids of issues, each after those it needs. In a cycle, the first issue that was reached comes last."""
    done: set[str] = set()
    for start in issues:
        stack = [(start, iter(_needs(issues[start])))]
        entered = {start}
        while stack:
            id, rest = stack[-1]
            need = next((n for n in rest if n in issues and n not in done and n not in entered), None)
            if need is not None:
                entered.add(need)
                stack.append((need, iter(_needs(issues[need]))))
                continue
            stack.pop()
            if id not in done:
                done.add(id)
                yield id


def _needs(issue: dict[str, Any]) -> list[str]:
    links = issue.get("dependencies")
    found = []
    for link in links if isinstance(links, list) else ():
        if isinstance(link, str):
            found.append(link)
        elif isinstance(link, dict) and link.get("type", "") in BLOCKING:
            need = link.get("depends_on_id") or link.get("id")
            if isinstance(need, str):
                found.append(need)
    return found


def _text(value: Any, limit: int) -> str | None:
    return redacted(fit(value))[:limit] if isinstance(value, str) and value.strip() else None
