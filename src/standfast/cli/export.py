"""`standfast export`: sessions as a bundle, or the record of a repository as text for git."""

from __future__ import annotations

import click

from standfast import hints
from standfast.cli import exits
from standfast.cli.frame import argument, command, option
from standfast.cli.open_store import opened
from standfast.cli.output import Out
from standfast.cli.progress import reported
from standfast.cli.values import counted


@command("export", examples=("standfast export fix-42 --to fix-42.zip", "standfast export --text record"))
@argument("sessions", nargs=-1, metavar="[SESSION]...")
@option("--to", type=click.Path(), metavar="FILE.zip", help="Write the bundle to this file.  [default: SESSION.zip]")
@option("--hand-over", is_flag=True, help="Hand the sessions over: from now on this store refuses to open them.")
@option(
    "--text",
    "directory",
    type=click.Path(),
    metavar="DIR",
    help="Write the records of this repository as text to this directory, for git.",
)
@option("--check", is_flag=True, help="With --text: write nothing, and exit 1 if a file differs from the store.")
def export(
    out: Out, sessions: tuple[str, ...], to: str | None, hand_over: bool, directory: str | None, check: bool
) -> None:
    """Write sessions as a bundle that another store imports, or a repository as text for git."""
    if bool(sessions) == (directory is not None) or (directory is not None and (to or hand_over)):
        raise click.UsageError("give SESSION and --to FILE.zip, or --text DIR")
    if directory is not None:
        _text(out, directory, check)
    else:
        _bundle(out, sessions, to or f"{_file_name(sessions[0])}.zip", hand_over)


def _file_name(key: str) -> str:
    return "".join(letter if letter.isalnum() or letter in "-_.@" else "-" for letter in key).strip(".") or "session"


def _bundle(out: Out, sessions: tuple[str, ...], to: str, hand_over: bool) -> None:
    with opened(create=False) as sf:
        made = sf.export(*sessions, to=to, hand_over=hand_over, progress=reported(out))
    handed = "; handed over: this store no longer opens them" if hand_over else ""
    held = f"{counted(len(made.sessions), 'session')}, {counted(made.rows, 'row')}"
    lines = [f"{made.path}: {held}, {made.size_bytes:,} bytes{handed}"]
    out.record(made.as_dict(), text=[*lines, f"content {made.content}"])
    words = ("import", "bundle", made.path, *(("--take",) if hand_over else ()))
    if out.for_people:
        out.say("on another machine:")
    out.then(hints.command(*words))


def _text(out: Out, directory: str, check: bool) -> None:
    with opened(create=False) as sf:
        made = sf.export(text=directory, check=check, progress=reported(out))
    done = "differ" if check else "written"
    noun = "record" if made.records == 1 else "records"
    lines = [f"{made.records:,} {noun} in {directory}: {len(made.changed):,} of {made.files:,} files {done}"]
    out.record(made.as_dict(), text=[*lines, *(f"  {path}" for path in made.changed[:20])])
    if check and made.changed:
        out.then(hints.command("export", "--text", directory))
        raise click.exceptions.Exit(exits.FAILED)
    if not check:
        out.then(hints.command("import", "text", directory))
