"""`standfast backup`: take, list, verify, test and forget copies, or freeze the store for another copy tool."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from standfast import hints
from standfast.cli import exits, values
from standfast.cli.answers import Many, One, literal, show
from standfast.cli.confirm import CONFIRM, require_consent
from standfast.cli.frame import Noun, argument, command_line, option
from standfast.cli.open_store import opened
from standfast.cli.output import Out
from standfast.cli.progress import watched
from standfast.cli.render import Column, clean_lines
from standfast.config import load, people
from standfast.errors import InvalidInput, StandfastError, StorageError

if TYPE_CHECKING:
    from standfast.admin.copies.keep import Plan
    from standfast.admin.copies.resource import Copy, Tested
    from standfast.handle import Standfast

COLUMNS = ("id", "state", "taken_us taken", "why", "seq", "size_bytes bytes", "artifacts", "note")
PLACE = {
    "metavar": "PLACE",
    "help": "Use copies in this directory or s3://BUCKET/NAME.  [default: the configured place]",
}


class _Backup(Noun):
    """`standfast backup` with options and no verb takes a copy."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        own = args[: args.index("--")] if "--" in args else args
        known = self.list_commands(ctx)
        named = any(word in known for word in own) or (own and not own[0].startswith("-"))
        if not named and not {"-h", "--help"} & set(own):
            args = ["take", *args]
        return super().parse_args(ctx, args)


backup = _Backup("backup", "Take, list, verify, test and forget copies of the store.", default="take")


@backup.verb("take", examples=("standfast backup", "standfast backup --to /mnt/nas/agents --note 'before the upgrade'"))
@option(
    "--to",
    metavar="PLACE",
    help="Write to this directory or s3://BUCKET/NAME.  [default: ~/.local/state/standfast/copies]",
)
@option("--note", metavar="TEXT", help="Add a note to the copy.")
@option("--no-verify", is_flag=True, help="Do not read the copy back to verify it.")
@option("--freeze", is_flag=True, help="Block writers while COMMAND copies the file of the store.")
@command_line()
def take(out: Out, to: str | None, note: str | None, no_verify: bool, freeze: bool, command: tuple[str, ...]) -> None:
    """Take a copy of the store and verify it. Other processes can write meanwhile."""
    if freeze or command:
        raise click.exceptions.Exit(_freeze(freeze, command))
    with _opened() as sf, watched(out, "copying") as progress:
        made = sf.copies.take(to=to, note=note, verify=not no_verify, progress=progress)
    held = f"{made.size_bytes} bytes and {values.counted(made.artifacts, 'artifact')}"
    text = f"{made.id} {made.state}: {held} in {made.place}"
    damage = f"{values.counted(made.unreadable, 'artifact')} of the store cannot be read: standfast artifact verify"
    then = _command("backup test {id}", to)
    show(out, One(made, [text], then, say=damage if made.unreadable else "", extra={"state": made.state}))


@backup.verb("list", examples=("standfast backup list", "standfast backup list --from s3://team/agents --json"))
@option("--from", "place", **PLACE)
def list_(out: Out, place: str | None) -> None:
    """List the copies of this store, the newest first: taken, verified, tested or damaged."""
    from standfast.cli.open_store import NoStore
    from standfast.errors import StorageError

    try:
        with _opened() as sf:
            found, then = sf.copies.list(place=place), "backup show {id}"
            empty = "no copy here yet: standfast backup; for another place: standfast backup list --from PLACE"
    except (NoStore, StorageError) as error:  # copies are needed most when the store is lost
        found, then, empty = _without_store(place), "restore {id} --to look", "no copy here"
        out.say(f"standfast: {error.message}")
    show(out, Many(found, COLUMNS, then=_command(then, place), empty=empty, plain=plain))


@backup.verb("show", examples=("standfast backup show", "standfast backup show 9k2m4x --json"))
@argument("copy", required=False, metavar="[ID]")
@option("--from", "place", **PLACE)
def show_(out: Out, copy: str | None, place: str | None) -> None:
    """Show one copy, by default the newest verified one."""
    from standfast.admin.copies.resource import chosen
    from standfast.cli.open_store import NoStore
    from standfast.errors import StorageError

    try:
        with _opened() as sf:
            found, then = sf.copies.get(copy, place=place), "backup test {id}"
    except (NoStore, StorageError) as error:
        copies = _without_store(place)
        if not copies:
            raise  # nothing can be copied, so `standfast backup` is not the next command
        found, then = chosen(copies, copy, place or "this place"), "restore {id} --to look"
        out.say(f"standfast: {error.message}")
    show(out, One(found, then=_command(then, place), extra={"state": found.state}))


@backup.verb("verify", examples=("standfast backup verify", "standfast backup verify --all --json"))
@argument("copy", required=False, metavar="[ID]")
@option("--all", "everything", is_flag=True, help="Verify all copies in the place.")
@option("--from", "place", **PLACE)
def verify(out: Out, copy: str | None, everything: bool, place: str | None) -> None:
    """Read a copy back and compare all hashes; by default the newest copy. Exits 1 if a hash differs."""
    with _opened() as sf:
        ids = [one.id for one in sf.copies.list(place=place)] if everything else [copy]
        found, errors = [], []
        for one in ids:
            try:
                with watched(out, "verifying") as progress:
                    found.append(sf.copies.verify(one, place=place, progress=progress))
            except StandfastError as error:
                if not everything or not isinstance(error, StorageError):
                    raise
                errors.append(error)
    show(out, Many(found, COLUMNS, empty="no copy verified", plain=plain))
    for wrong in errors:
        out.error(wrong.code, wrong.message, wrong.hint)
    if errors:
        raise click.exceptions.Exit(exits.FAILED)


def _tested(_: Standfast, done: Tested) -> One:
    lines = [f"{check.name:<11}  {check.text}" for check in done.checks]
    extra = {"state": done.copy.state, "checks": [check.as_dict() for check in done.checks]}
    return One(done.copy, [*lines, f"{done.copy.id} restores, and every check held"], extra=extra)


backup.generate(
    "test",
    of="standfast.admin.copies.resource:Copies",
    answer=_tested,
    options={"which": {"metavar": "ID"}, "place": {"flag": "--from", **PLACE}},
    examples=("standfast backup test", "standfast backup test 9k2m4x --json"),
)


@backup.verb("forget", examples=("standfast backup forget 9k2m4x", "standfast backup forget --keep 24h,14d,8w"))
@argument("copies", nargs=-1, metavar="[ID]...")
@option(
    "--keep", "rule", metavar="RULE", help="Keep the newest copy of each of the last hours, days and weeks: 24h,14d,8w."
)
@option("--from", "place", **PLACE)
@option("--confirm", **CONFIRM)
def forget(out: Out, copies: tuple[str, ...], rule: str | None, place: str | None, confirm: str | None) -> None:
    """Remove copies by ID or by a rule; the newest and the newest verified copy stay. Agents may not do this."""
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
    """Report how s3://BUCKET/NAME, postgresql://…, rds:NAME or DIR protects data. Only reads. Exits 1 on an error."""
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


def _command(template: str, place: str | None) -> str:
    """The next command, for a copy in this place."""
    return template if place is None else f"{template} --from {literal(hints.word(place))}"


def _without_store(place: str | None) -> list[Copy]:
    """The copies in the place, if the store is lost or cannot be read."""
    from standfast.admin.copies import choose, resource
    from standfast.config import load

    return [copy for one in choose.places_of(load(), place) for copy in resource.listed(one)]


def _opened() -> Standfast:
    return opened(create=False)


def _freeze(freeze: bool, command: tuple[str, ...]) -> int:
    """Run COMMAND while no process can write and the WAL is in the file. Returns its exit code."""
    import subprocess

    if not freeze or not command:
        raise click.UsageError(
            "--freeze needs a command, and a command needs --freeze: standfast backup --freeze -- cp …"
        )
    target = load().target
    if target.engine == "postgres" or target.is_memory:
        raise InvalidInput("--freeze is for a SQLite file", "copy a server with pg_dump, or: standfast backup")
    from standfast.db.sqlite.copies import frozen

    with frozen(target.location):
        try:
            return subprocess.run(command, check=False).returncode
        except OSError as error:
            raise InvalidInput(f"{command[0]} cannot be run: {error.strerror}") from None
