"""`standfast backup`: take, list, verify, test and forget copies; hold the store still for a copy by another tool."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from standfast.cli import exits, values
from standfast.cli.answers import Many, One, show
from standfast.cli.confirm import CONFIRM, require_consent
from standfast.cli.frame import Noun, argument, command_line, option
from standfast.cli.open_store import opened
from standfast.cli.output import Out
from standfast.cli.progress import reported
from standfast.cli.render import Column, clean_lines
from standfast.config import load, people
from standfast.errors import InvalidInput, StandfastError, StorageError

if TYPE_CHECKING:
    from standfast.admin.copies.keep import Plan
    from standfast.admin.copies.resource import Copy
    from standfast.handle import Standfast

COLUMNS = ("id", "state", "taken_us taken", "why", "seq", "size_bytes bytes", "artifacts", "note")
PLACE = {"metavar": "PLACE", "help": "A directory or s3://BUCKET/NAME, if it is not where copies usually go."}


class _Backup(Noun):
    """`standfast backup` with options and no verb takes a copy."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        own = args[: args.index("--")] if "--" in args else args
        named = any(word in self.commands for word in own) or (own and not own[0].startswith("-"))
        if not named and not {"-h", "--help"} & set(own):
            args = ["take", *args]
        return super().parse_args(ctx, args)


backup = _Backup("backup", "Take, list, verify, test and forget copies of the store.", default="take")


@backup.verb("take", examples=("standfast backup", "standfast backup --to /mnt/nas/agents --note 'before the upgrade'"))
@option("--to", metavar="PLACE", help="A directory, or s3://BUCKET/NAME.  [default: ~/.local/state/standfast/copies]")
@option("--note", metavar="TEXT", help="A few words about this copy.")
@option("--no-verify", is_flag=True, help="Do not read the copy back.")
@option("--freeze", is_flag=True, help="Hold the store still while COMMAND copies its files.")
@command_line()
def take(out: Out, to: str | None, note: str | None, no_verify: bool, freeze: bool, command: tuple[str, ...]) -> None:
    """Take a copy of the store and verify it. Writers continue meanwhile."""
    if freeze or command:
        raise click.exceptions.Exit(_freeze(freeze, command))
    with _opened() as sf:
        made = sf.copies.take(to=to, note=note, verify=not no_verify, progress=reported(out))
    text = f"{made.id} {made.state}: {made.size_bytes} bytes and {made.artifacts} artifacts in {made.place}"
    damage = f"{made.unreadable} artifacts of the store cannot be read: standfast artifact verify"
    show(out, One(made, [text], "backup test {id}", say=damage if made.unreadable else "", extra={"state": made.state}))


@backup.verb("list", examples=("standfast backup list", "standfast backup list --from s3://team/agents --json"))
@option("--from", "place", **PLACE)
def list_(out: Out, place: str | None) -> None:
    """List the copies of this store, the newest first: taken, verified, tested or damaged."""
    from standfast.cli.open_store import NoStore
    from standfast.errors import StorageError

    try:
        with _opened() as sf:
            found, then, empty = sf.copies.list(place=place), "backup show {id}", "no copy yet: standfast backup"
    except (NoStore, StorageError) as error:  # without its store a copy is worth most
        found, then, empty = _without_store(place), "restore {id} --to look", "no copy here"
        out.say(f"standfast: {error.message}")
    show(out, Many(found, COLUMNS, then=then, empty=empty, plain=plain))


@backup.verb("show", examples=("standfast backup show", "standfast backup show 9k2m4x --json"))
@argument("copy", required=False, metavar="[ID]")
@option("--from", "place", **PLACE)
def show_(out: Out, copy: str | None, place: str | None) -> None:
    """Show one copy; without an ID the newest verified one."""
    from standfast.admin.copies.resource import chosen
    from standfast.cli.open_store import NoStore
    from standfast.errors import StorageError

    try:
        with _opened() as sf:
            found, then = sf.copies.get(copy, place=place), "backup test {id}"
    except (NoStore, StorageError) as error:
        found, then = chosen(_without_store(place), copy, place or "this place"), "restore {id} --to look"
        out.say(f"standfast: {error.message}")
    show(out, One(found, then=then, extra={"state": found.state}))


@backup.verb("verify", examples=("standfast backup verify", "standfast backup verify --all --json"))
@argument("copy", required=False, metavar="[ID]")
@option("--all", "everything", is_flag=True, help="Every copy in the place.")
@option("--from", "place", **PLACE)
def verify(out: Out, copy: str | None, everything: bool, place: str | None) -> None:
    """Read a copy back and compare every hash; without an ID the newest. Exits 1 if one differs."""
    with _opened() as sf:
        ids = [one.id for one in sf.copies.list(place=place)] if everything else [copy]
        found, errors = [], []
        for one in ids:
            try:
                found.append(sf.copies.verify(one, place=place, progress=reported(out)))
            except StandfastError as error:
                if not everything or not isinstance(error, StorageError):
                    raise
                errors.append(error)
    show(out, Many(found, COLUMNS, empty="no copy verified", plain=plain))
    for wrong in errors:
        out.error(wrong.code, wrong.message, wrong.hint)
    if errors:
        raise click.exceptions.Exit(exits.FAILED)


@backup.verb("test", examples=("standfast backup test", "standfast backup test 9k2m4x --json"))
@argument("copy", required=False, metavar="[ID]")
@option("--from", "place", **PLACE)
def test(out: Out, copy: str | None, place: str | None) -> None:
    """Restore a copy into a scratch directory and check every invariant; without an ID the newest."""
    with _opened() as sf:
        done = sf.copies.test(copy, place=place, progress=reported(out))
    lines = [f"{check.name:<11}  {check.text}" for check in done.checks]
    extra = {"state": done.copy.state, "checks": [check.as_dict() for check in done.checks]}
    show(out, One(done.copy, [*lines, f"{done.copy.id} restores, and every check held"], extra=extra))


@backup.verb("forget", examples=("standfast backup forget 9k2m4x", "standfast backup forget --keep 24h,14d,8w"))
@argument("copies", nargs=-1, metavar="[ID]...")
@option("--keep", "rule", metavar="RULE", help="The newest of so many hours, days and weeks: 24h,14d,8w.")
@option("--from", "place", **PLACE)
@option("--confirm", **CONFIRM)
def forget(out: Out, copies: tuple[str, ...], rule: str | None, place: str | None, confirm: str | None) -> None:
    """Remove copies, named or by a rule. The newest and the newest verified stay. For people: refused to agents."""
    people.refuse("forgets copies")
    with _opened() as sf:
        made = sf.copies.plan(copies, rule=rule, place=place)
        plan = {**made.as_dict(), "hash": made.hash}
        words = ["backup", "forget", *copies]
        words += ["--keep", rule] if rule else []
        words += ["--from", place] if place else []
        if made.forget:
            require_consent(out, words, "Type yes to remove them: ", plan, _lines(made), confirm)
            sf.copies.forget(made, place=place)
    out.record(plan, [f"removed {len(made.forget)} copies, {len(made.keep)} stay"])
    out.then("standfast backup list")


@backup.verb("audit", examples=("standfast backup audit s3://team/agents", "standfast backup audit rds:production"))
@argument("target", metavar="TARGET")
def audit(out: Out, target: str) -> None:
    """Report what s3://BUCKET/NAME, postgresql://…, rds:NAME or DIR promises. Only reads; exits 1 on an error."""
    from standfast.admin.copies.audit import audit as audited

    found = audited(target)
    rows = [one.as_dict() for one in found]
    out.rows(rows, [Column("state"), Column("id"), Column("text"), Column("remedy")])
    if any(one.state == "error" for one in found):
        raise click.exceptions.Exit(exits.FAILED)


def _lines(plan: Plan) -> list[str]:
    lines = [f"Remove these copies in {plan.place}:", *(f"  {one}" for one in plan.forget)]
    return [clean_lines(line) for line in (*lines, f"{len(plan.keep)} stay.")]


def plain(copy: Copy) -> dict[str, Any]:
    return {**values.plain(copy), "state": copy.state}


def _without_store(place: str | None) -> list[Copy]:
    """The copies that the place itself lists, while the store is gone or cannot be read."""
    from standfast.admin.copies import choose, resource
    from standfast.config import load

    return [copy for one in choose.places_of(load(), place) for copy in resource.listed(one)]


def _opened() -> Standfast:
    return opened(create=False)


def _freeze(freeze: bool, command: tuple[str, ...]) -> int:
    """Run COMMAND while no process writes and the whole store is in its one file; its exit code."""
    import subprocess

    if not freeze or not command:
        raise click.UsageError("--freeze and a command belong together: standfast backup --freeze -- cp …")
    target = load().target
    if target.engine == "postgres" or target.is_memory:
        raise InvalidInput("--freeze is for a SQLite file", "copy a server with pg_dump, or: standfast backup")
    from standfast.db.sqlite.copying import frozen

    with frozen(target.location):
        try:
            return subprocess.run(command, check=False).returncode
        except OSError as error:
            raise InvalidInput(f"{command[0]} cannot be run: {error.strerror}") from None
