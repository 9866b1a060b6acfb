"""`standfast artifact`: large bytes beside the record, known by what they contain."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from standfast.cli import exits
from standfast.cli.frame import argument, noun, option, place, scope_options
from standfast.cli.output import Out
from standfast.cli.render import Column

if TYPE_CHECKING:
    from standfast.footings.artifacts import Artifact

artifact = noun("artifact", "Large bytes: logs, diffs, whole answers, known by what they contain.", default="list")


def _moment(us: int) -> str:
    from time import localtime, strftime

    return strftime("%Y-%m-%d %H:%M", localtime(us // 1_000_000))


COLUMNS = [
    Column("id", show=lambda id: str(id)[-6:]),
    Column("name"),
    Column("kind"),
    Column("size_bytes", "bytes"),
    Column("retention", "keep"),
    Column("created_us", "when", _moment),
    Column("digest", show=lambda digest: str(digest)[:19]),
]


@artifact.verb(
    "put",
    examples=("standfast artifact put build.log --kind log", "make 2>&1 | standfast artifact put - --name build.log"),
)
@argument("file")
@option("--name", help="What it is called; a label, not a path. Default: the file's own name.")
@option("--kind", default="file", show_default=True, help="What it is: log, diff, text/plain.")
@option("--session", envvar="STANDFAST_SESSION", help="The session it belongs to: its key or id.")
@option("--retention", type=click.Choice(["keep", "session", "scratch"]), default="keep", show_default=True)
def put(out: Out, file: str, name: str | None, kind: str, session: str | None, retention: str) -> None:
    """Store the bytes of FILE, or of stdin (-), durably. Prints the id. The same bytes are stored once."""
    from standfast.cli.store import opened

    if file == "-" and name is None:
        raise click.UsageError("bytes from stdin need a name: --name build.log")
    with opened() as sf:
        source = sys.stdin.buffer if file == "-" else Path(file)
        session = session or sf._store.caller.session_id
        made = sf.artifacts.put(source, name=name, kind=kind, session=session, retention=retention)
    out.record(plain(made), [made.id])
    out.then(f"standfast artifact get {made.id[-6:]}")


@artifact.verb(
    "get", examples=("standfast artifact get 9k2m4x -o build.log", "standfast artifact get build.log | less")
)
@argument("artifact")
@option("-o", "--output", help="Write to this path; without it, to stdout.")
def get(out: Out, artifact: str, output: str | None) -> None:
    """Print the bytes of an ARTIFACT (id, its end, or name), compared with their digest first."""
    from standfast.cli.store import opened

    if output is None and not out.for_people:
        raise click.UsageError("bytes are not JSON: say where they go with -o PATH")
    with opened(create=False) as sf:
        if output is None:
            sf.artifacts.get(artifact, sys.stdout.buffer)
            return
        found = sf.artifacts.get(artifact, Path(output))
    out.record({**plain(found), "output": output}, [output])


@artifact.verb("list", examples=("standfast artifact list", "standfast artifact list --session fix-42 --kind log"))
@option("--session", help="Only of this session: its key or id.")
@option("--kind", help="Only of this kind.")
@option("--name", help="Only of this name.")
@option("--after", callback=place, help="Where the page before ended.")
@option("--limit", default=50, show_default=True, type=click.IntRange(1, 1000))
@scope_options
def list_(out: Out, limit: int, scope_choice: str | None, **asked: Any) -> None:
    """List artifacts, the newest first."""
    from standfast.cli.store import opened
    from standfast.config import load

    with opened(load(outside=scope_choice == "global"), create=False) as sf:
        found = sf.artifacts.list(everywhere=scope_choice == "all", limit=limit, **asked)
    out.rows(
        [plain(one) for one in found],
        COLUMNS,
        next=found[-1].id if len(found) == limit else None,
        then=f"standfast artifact get {found[0].id[-6:]}" if found else "",
        empty="there are no artifacts here",
    )


@artifact.verb("show", examples=("standfast artifact show 9k2m4x", "standfast artifact show build.log --json"))
@argument("artifact")
def show(out: Out, artifact: str) -> None:
    """Show what is known about an ARTIFACT, without its bytes."""
    from standfast.cli.store import opened

    with opened(create=False) as sf:
        found = sf.artifacts.show(artifact)
    out.record(plain(found), out.pairs([(k, v) for k, v in found._asdict().items() if v is not None]))


@artifact.verb("verify", examples=("standfast artifact verify", "standfast artifact verify 9k2m4x"))
@argument("artifact", required=False)
def verify(out: Out, artifact: str | None) -> None:
    """Read the bytes of one ARTIFACT, or of all, and compare them with their digests. Exit 1 if one is wrong."""
    from standfast.cli.store import opened

    with opened(create=False) as sf:
        faults = sf.artifacts.verify(artifact)
    out.rows(
        [{**plain(fault.artifact), "fault": fault.state} for fault in faults],
        [Column("fault"), *COLUMNS],
        empty="all bytes are there, and the right ones",
    )
    if faults:
        raise click.exceptions.Exit(exits.FAILED)


@artifact.verb("remove", examples=("standfast artifact remove 9k2m4x", "standfast artifact remove 9k2m4x --json"))
@argument("artifact")
def remove(out: Out, artifact: str) -> None:
    """Forget an ARTIFACT; its bytes go with a later collection, if nothing else speaks of them."""
    from standfast.cli.store import opened

    with opened(create=False) as sf:
        removed = sf.artifacts.remove(artifact)
    out.record(plain(removed), [f"removed {removed.id} ({removed.name})"])
    out.then("standfast artifact collect")


@artifact.verb("collect", examples=("standfast artifact collect", "standfast artifact collect --json"))
def collect(out: Out) -> None:
    """Remove what has outlived its purpose, and bytes that nothing speaks of, once they are a day old."""
    from standfast.cli.store import opened

    with opened(create=False) as sf:
        done = sf.artifacts.collect()
    data = {**done._asdict(), "faults": [{**plain(fault.artifact), "fault": fault.state} for fault in done.faults]}
    text = f"removed {done.removed} artifacts and {done.garbage_bytes} bytes of garbage in {done.garbage} pieces"
    out.record(data, [text, *(f"{fault.state}: {fault.artifact.id} ({fault.artifact.name})" for fault in done.faults)])
    if done.faults:
        raise click.exceptions.Exit(exits.FAILED)


def plain(found: Artifact) -> dict[str, Any]:
    """The noun's own fields, and its receipt as commands print it."""
    return {**found._asdict(), "receipt": found.receipt.as_json() if found.receipt else None}
