"""`standfast db`: show the connected store and the setting that selects it, select another store, or move the store.

Selecting a store only saves a setting. Running processes keep their open store, no data is moved, and the environment
variable takes precedence over each file.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from standfast import hints
from standfast.cli import exits
from standfast.cli.confirm import CONFIRM, require_consent
from standfast.cli.frame import Noun, argument, option
from standfast.cli.open_store import exists, opened, refuse_missing
from standfast.cli.output import Out
from standfast.cli.progress import watched
from standfast.cli.render import Column
from standfast.cli.values import counted
from standfast.clock import parse_duration
from standfast.config import load, mask, parse_db_target, people, save_target
from standfast.config import trust as agree
from standfast.errors import Conflict, InvalidInput, NotFound, StandfastError

if TYPE_CHECKING:
    from standfast.config import Settings, Target


GLOBAL = "Save the setting in the data directory, for all projects, instead of in this project."
POLL_S = 0.2
"""How often `db move --wait` looks again."""


class _Db(Noun):
    """A URL instead of a verb selects PostgreSQL."""

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        if args and args[0].lower().startswith(("postgres://", "postgresql://")):
            args = ["pg", *args]
        return super().resolve_command(ctx, args)


db = _Db(
    "db", "Show the connected store and the setting that selects it; select SQLite or PostgreSQL.", default="status"
)


@db.verb("status", examples=("standfast db", "standfast db --json"))
def status(out: Out) -> None:
    """Show the connected store and the setting that selects it. Exits with the error of a failed connection."""
    settings = load(quiet=True)
    data: dict[str, Any] = {**_decided(settings), "connected": False, "exists": exists(settings)}
    failure: StandfastError | None = None
    try:
        refuse_missing(settings)
    except StandfastError as error:
        failure = error
    if data["exists"]:
        try:
            with opened(settings) as sf:
                data |= {"connected": True, "schema_version": sf.engine.schema_version(), "facts": sf.engine.facts()}
        except StandfastError as error:
            failure = error
    out.record(data, _lines(out, data))
    if failure is not None:
        out.error(failure.code, settings.target.hide(failure.message), settings.target.hide(failure.hint))
        raise click.exceptions.Exit(exits.code_of(failure))


@db.verb("sqlite", examples=("standfast db sqlite", "standfast db sqlite ~/state.db --global"))
@argument("path", required=False)
@option("--global", "everywhere", is_flag=True, help=GLOBAL)
def sqlite(out: Out, path: str | None, everywhere: bool) -> None:
    """Use the SQLite file PATH, by default the default file."""
    from standfast.db.sqlite import location

    people.refuse("redirects the store")
    settings = load(quiet=True)
    target = parse_db_target(f"sqlite:{path or ''}", default_path=settings.default_path)
    if target.is_memory:
        raise InvalidInput("a store in memory ends with its process, so it cannot be selected")
    _left_behind(out, settings, target)
    location.check(target.location, allow_unsafe=settings.options.unsafe_storage)
    _save(out, target, everywhere)


@db.verb("pg", examples=("standfast db pg postgresql://ada@db.example.org/state", "standfast db pg - < url.txt"))
@argument("url", required=False)
@option("--env", "variable", help="Read the URL from this variable.")
@option("--global", "everywhere", is_flag=True, help=GLOBAL)
@option("--no-test", is_flag=True, help="Save the setting without connecting first.")
def pg(out: Out, url: str | None, variable: str | None, everywhere: bool, no_test: bool) -> None:
    """Use the PostgreSQL database at URL, after a test connection.

    Other accounts of this machine can see the arguments of a command. Give a URL with a password on stdin (-) or with
    --env.
    """
    people.refuse("redirects the store")
    settings = load(quiet=True)
    target = parse_db_target(_url(url, variable), default_path=settings.default_path)
    if target.engine != "postgres":
        raise InvalidInput("this is not the URL of a PostgreSQL database", "standfast db pg postgresql://USER@HOST/DB")
    if not no_test:
        _test(settings._replace(target=target))
    _left_behind(out, settings, target)
    _save(out, target, everywhere)
    if url not in (None, "-") and target.shown != target.location:
        out.say(
            "the process list showed the password to other accounts; next time: standfast db pg - < FILE, or --env NAME"
        )


URL_MAX = 10_000


def _url(url: str | None, variable: str | None, command: str = "db pg") -> str:
    """The URL from the command line, stdin or a variable."""
    hint = ", or ".join(
        f"standfast {command} {form}" for form in ("postgresql://USER@HOST/DB", "- < FILE", "--env NAME")
    )
    if (url is None) == (variable is None):
        raise InvalidInput("name the database once: a URL, - for stdin, or --env NAME", hint)
    if variable is not None:
        found = os.environ.get(variable, "")
    else:
        assert url is not None
        found = sys.stdin.readline(URL_MAX) if url == "-" else url
    if not found.strip():
        raise InvalidInput("there is no URL in " + (f"the variable {variable}" if variable else "stdin"), hint)
    return found.strip()


@db.verb("trust", examples=("standfast db trust", "standfast db trust ../other-project"))
@argument("path", required=False)
def trust(out: Out, path: str | None) -> None:
    """Trust the current .standfast/config.toml of a project, and show its settings."""
    people.refuse("trusts a project's configuration")
    file = path or load(quiet=True).project_file
    if file is not None and os.path.isdir(file):
        file = os.path.join(file, ".standfast", "config.toml")
    if file is None:
        raise NotFound("this project has no .standfast/config.toml", "standfast db sqlite PATH   (makes one)")
    values = {key: mask(value) if isinstance(value, str) else value for key, value in agree(file).items()}
    out.record({"trusted": os.path.abspath(file), "values": values}, out.pairs(values.items()))
    trusted, directory = os.path.abspath(file), load(quiet=True).data_dir
    out.say(f"trusted until it changes, with the data directory {directory}: {trusted}")


@db.verb("roles", examples=("standfast db roles --print", "standfast db roles --prefix shop"))
@option("--prefix", default="standfast", show_default=True, help="Begin the names of the roles with this text.")
@option("--print", "dry_run", is_flag=True, help="Print the statements and change nothing.")
def roles(out: Out, prefix: str, dry_run: bool) -> None:
    """Create the roles of a PostgreSQL store and set their grants. A repeated call changes nothing."""
    people.refuse("changes roles")
    settings = load(quiet=True)
    if settings.target.engine != "postgres":
        raise InvalidInput(f"{settings.target.shown} is a file: it has no roles", "standfast db pg URL")
    opened(settings).close()
    from standfast.db.postgres.roles import create

    made = create(settings.target.location, prefix, dry_run=dry_run)
    lines = [f"{line};" for line in made.statements]
    if not dry_run:
        lines = [f"{name}: {'created' if name in made.created else 'existed'}, grants set" for name in made.roles]
    out.record({**made._asdict(), "changed": not dry_run}, lines)
    if not dry_run:
        login = f"CREATE ROLE agent_1 LOGIN PASSWORD '…' IN ROLE {prefix}_writer"
        out.say(f"create a login for each agent: {login}")
    out.then("standfast doctor")


@db.verb("move", examples=("standfast db move pg postgresql://ada@db/state", "standfast db move sqlite --commit"))
@argument("engine", type=click.Choice(["sqlite", "pg"]))
@argument("where", required=False, metavar="[PATH|URL]")
@option("--env", "variable", help="Read the URL from this variable.")
@option("--commit", is_flag=True, help="Move the store. Without this option the plan is shown.")
@option("--wait", metavar="DURATION", help="Wait this long for effects and runs of live processes to end.")
@option("--confirm", **CONFIRM)
@option("--global", "everywhere", is_flag=True, help=GLOBAL)
def move(
    out: Out,
    engine: str,
    where: str | None,
    variable: str | None,
    commit: bool,
    wait: str | None,
    confirm: str | None,
    everywhere: bool,
) -> None:
    """Move the store with all its rows to a SQLite file or a PostgreSQL database, and use it from then on."""
    settings = load(quiet=True)
    text = _url(where, variable, "db move pg") if engine == "pg" else f"sqlite:{where or ''}"
    target = parse_db_target(text, default_path=settings.default_path)
    if commit:
        people.refuse("moves the store")
    secret = where not in (None, "-") and target.shown != target.location
    given = ["--env", variable] if variable else ["URL"] if secret else [where] if where else []
    words = ["db", "move", engine, *given, *["--global"] * everywhere, *(["--wait", wait] if wait else []), "--commit"]
    if _moved(out, settings, target, words, commit=commit, wait=wait, confirm=confirm):
        _save(out, target, everywhere, moved=True)


def _moved(
    out: Out,
    settings: Settings,
    target: Target,
    words: list[str],
    *,
    commit: bool,
    wait: str | None,
    confirm: str | None,
) -> bool:
    """Show the plan and `words`, the command that commits it; or move the store. Returns whether it was moved."""
    from standfast.admin.copies.automatic import before_command
    from standfast.admin.move import move, plan

    what = plan(settings, target)
    shown = {**what.as_dict(), "hash": what.hash, "commit": commit}
    held = f"{counted(what.rows, 'row')} and {counted(what.artifacts, 'artifact')}"
    lines = [
        f"Move {what.store} from {what.source} to {what.target}: {held}.",
        "Processes that have it open are refused at their next write. The source stays there, sealed.",
    ]
    if not commit:
        if "--global" not in words:
            lines.append("The setting is saved for this project. With --global it is saved for the data directory.")
        out.record(shown, [*lines, f"plan {what.hash}"])
        out.then(hints.command(*words))
        return False
    require_consent(out, words, "Type yes to move it: ", shown, lines, confirm)
    waiting, end = False, time.monotonic() + (parse_duration(wait) / 1_000_000 if wait else 0)
    with watched(out, "copying the store") as progress:
        before_command(settings, what.store, "db move")
        while True:
            try:
                progress("moving the store", 0, 0)
                move(settings, target, what, progress)
                break
            except Conflict as error:
                if error.code != "under_way" or time.monotonic() >= end:
                    raise
                if not waiting:
                    out.say(f"{error.message}: waiting up to {wait}")
                waiting = True
                time.sleep(POLL_S)
    out.say(f"{what.store} is at {what.target}: {held}, compared")
    return True


def _test(settings: Settings) -> None:
    """Connect once. An error of the driver may quote the password in the URL, so it is masked."""
    try:
        opened(settings).close()
        return
    except StandfastError as error:
        message, hint = settings.target.hide(error.message), settings.target.hide(error.hint)
        refusal = type(error)(f"not saved: {message}", hint, code=error.code)
    raise refusal  # raised outside of `except`, so that the message of the driver is not chained to it


def _left_behind(out: Out, settings: Settings, target: Target) -> None:
    """Print how many rows stay in the store that was used before."""
    from standfast.admin.copies.restore_here import look

    try:
        there = None if settings.target.is_memory or settings.target == target else look(settings.target)
    except StandfastError:
        return  # an unreadable store is a reason to select another one
    if there is not None and there.seq and "moved" not in there.meta:
        command = hints.command("db", "move", "pg" if target.engine == "postgres" else "sqlite")
        out.say(f"{there.seq} journal rows stay in {settings.target.shown}; to move them: {command}")


def _save(out: Out, target: Target, everywhere: bool, *, moved: bool = False) -> None:
    where = "global" if everywhere else "project"
    path = save_target("global" if everywhere else "project", target)
    now = load(quiet=True)
    data = {"saved": path, "scope": where, "engine": target.engine, "store": target.shown, **_winner(now, path)}
    out.record(data, out.pairs([("saved", path), ("store", target.shown), ("engine", target.engine)]))
    if not data["in_effect"]:
        out.say(f"not in effect here: {now.where} selects {now.target.shown}")
    if target.engine == "postgres" and target.shown != target.location:
        out.say("the file contains a password: only you can read it; keep it out of git")
    if not moved:
        out.say("restart running processes to use it: they keep their open store; no data is moved")


def _winner(now: Settings, path: str) -> dict[str, Any]:
    return {"in_effect": os.path.realpath(now.where) == os.path.realpath(path), "decided_by": now.where}


def _decided(settings: Settings) -> dict[str, Any]:
    return {
        "engine": settings.target.engine,
        "store": settings.target.shown,
        "source": settings.source,
        "decided_by": settings.where,
        "sources": [
            {
                "source": choice.source,
                "where": choice.where,
                "store": choice.target.shown if choice.target else None,
                "state": choice.state,
            }
            for choice in settings.choices
        ],
    }


def _lines(out: Out, data: dict[str, Any]) -> Iterator[str]:
    state = "connected" if data["connected"] else "cannot be opened" if data["exists"] else "not created yet"
    facts = data.get("facts", {})
    versions = [f"{k.removesuffix('_version')} {v}" for k, v in facts.items() if k.endswith("_version")]
    yield from out.pairs(
        [
            ("store", data["store"]),
            ("engine", ", ".join([data["engine"], *versions])),
            ("state", f"{state}, schema {data['schema_version']}" if data["connected"] else state),
            ("decided by", data["decided_by"]),
        ]
    )
    yield ""
    yield from out.table(data["sources"], ["source", "state", "store", Column("where", "set in")])
