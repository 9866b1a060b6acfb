"""`standfast apply`: create or change tasks, loops, values and gates as a file says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from standfast import hints
from standfast.cli.frame import argument, command, option
from standfast.cli.output import Out
from standfast.cli.render import clean_lines

if TYPE_CHECKING:
    from standfast.record.apply import Applied, Change, Spec

MARKS = {"new": "+", "changed": "~", "same": "=", "closed": "="}
SHOWN_MAX = 80


@command(
    "apply",
    examples=(
        "standfast apply fleet.toml --preflight",
        "standfast apply fleet.toml --commit --key fleet-2026-11-15",
    ),
)
@argument("file")
@option(
    "--dry-run",
    "mode",
    flag_value="dry-run",
    default=True,
    help="Print the changes and write nothing; this is the default.",
)
@option("--preflight", "mode", flag_value="preflight", help="Print each check that fails and write nothing.")
@option("--commit", "mode", flag_value="commit", help="Apply all changes in one transaction, or none of them.")
@option("--key", help="Apply the file once per key; a repeated call changes nothing.")
def apply(out: Out, file: str, mode: str, key: str | None) -> None:
    """Create or change tasks, loops, values and gates as FILE (TOML or JSON) says; - reads stdin.

    Rows that FILE does not mention stay as they are. Exit 1 if a check fails, 4 if the key was used for another file.
    """
    spec = _spec(file)
    applied = _commit(spec, key) if mode == "commit" else _look(spec, key, mode)
    out.record(plain(applied), [*_lines(out, applied)])
    if applied.problems:
        raise click.exceptions.Exit(1)
    if mode != "commit" and out.for_people:
        out.then(hints.command("apply", file, "--commit", "--key", key or "KEY"))


def plain(applied: Applied) -> dict[str, Any]:
    """The JSON of the answer: the fields, the references and the receipt."""
    return {
        **applied.as_dict(),
        "changes": [change.as_dict() for change in applied.changes],
        "refs": applied.refs,
        "receipt": applied.receipt.as_json() if applied.receipt else None,
    }


# -- private functions -------------------------------------------------------------------------------


def _spec(file: str) -> Spec:
    from standfast.record.apply import read_file, read_text

    if file != "-":
        return read_file(file)
    import sys

    return read_text(sys.stdin.buffer.read(), what="stdin")


def _commit(spec: Spec, key: str | None) -> Applied:
    from standfast.cli.open_store import opened
    from standfast.record.apply import apply as apply_spec

    if key is None:
        raise click.UsageError("--commit needs --key: a repeated call with the same key and file changes nothing")
    if spec.problems:  # report them before a store is created
        from standfast.record.apply.commit import refuse

        refuse(spec.problems)
    with opened() as sf:
        return apply_spec(sf._store, spec, key=key, mode="commit")


def _look(spec: Spec, key: str | None, mode: str) -> Applied:
    """Compare the file with the store, without creating a store and without renewing leases."""
    from standfast.config import load
    from standfast.db.migrations import MIGRATIONS
    from standfast.db.schema_version import schema_version
    from standfast.errors import StorageError
    from standfast.handle import connect
    from standfast.record.apply import against_nothing
    from standfast.record.apply import apply as apply_spec

    settings = load()
    target, latest = settings.target, MIGRATIONS[-1].version
    found = 0 if target.is_memory else schema_version(target.engine, target.location)
    if found == 0:
        return against_nothing(spec, mode, key)
    if found < latest:
        raise StorageError(
            f"this store has schema {found}; opening it would migrate it to {latest}, which is a write",
            "any other command migrates it: standfast status",
            code="schema_older",
        )
    with connect(settings, as_actor=True) as sf:
        return apply_spec(sf._store, spec, key=key, mode=mode)


def _lines(out: Out, applied: Applied) -> list[str]:
    lines = []
    for change in applied.changes:
        lines.append(f"{MARKS[change.action]} {change.section:<5}  {clean_lines(change.name)}{_ref(change)}")
        lines += [f"    {name}: {_difference(fact)}" for name, fact in change.fields.items()]
    lines += [f"! {clean_lines(problem)}" for problem in applied.problems]
    if applied.replayed:
        out.say("standfast: already applied with this key and this file; nothing was changed")
    elif applied.mode == "preflight" and not applied.problems:
        out.say(f"standfast: every check passes, {len(applied.changes)} entries")
    elif not applied.changes and not applied.problems:
        out.say("standfast: this file is empty")
    return lines


def _ref(change: Change) -> str:
    closed = " (closed: it stays closed)" if change.action == "closed" else ""
    return (f"  {change.ref}" if change.ref else "") + closed


def _difference(fact: Any) -> str:
    if not isinstance(fact, dict):
        return str(fact)
    return f"{_shown(fact['was'])} → {_shown(fact['is'])}"


def _shown(value: Any) -> str:
    from standfast import serial

    return serial.clean(serial.canonical(value), SHOWN_MAX)
