"""`standfast artifact`: store large content by its digest."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from standfast.cli import exits
from standfast.cli.answers import Many, One
from standfast.cli.frame import argument, noun, option
from standfast.cli.open_store import opened
from standfast.cli.output import Out
from standfast.cli.values import plain

if TYPE_CHECKING:
    from standfast.core.artifacts import Collected, Fault
    from standfast.handle import Standfast

artifact = noun(
    "artifact",
    "Store large content such as logs, diffs and whole answers by its digest.",
    default="list",
    of="standfast.core.artifacts:Artifacts",
)


def _opened_file(asked: dict[str, Any]) -> None:
    if asked["data"] == "-":
        if "name" not in asked:
            raise click.UsageError("bytes from stdin need a name: --name build.log")
        asked["data"] = sys.stdin.buffer
    else:
        asked["data"] = Path(asked["data"])


artifact.generate(
    "put",
    creates=True,
    in_session=True,
    prepare=_opened_file,
    answer=lambda _, made: One(made, [made.id], then="artifact get {id}"),
    options={"data": {"metavar": "FILE"}, "retention": {"type": click.Choice(["keep", "session", "scratch"])}},
    examples=("standfast artifact put build.log --kind log", "make 2>&1 | standfast artifact put - --name build.log"),
)


@artifact.verb(
    "get", examples=("standfast artifact get 9k2m4x -o build.log", "standfast artifact get build.log | less")
)
@argument("artifact")
@option("-o", "--output", metavar="PATH", help="Write to this path.  [default: stdout]")
def get(out: Out, artifact: str, output: str | None) -> None:
    """Print the bytes of an ARTIFACT (id or name) after they were compared with their digest."""
    if output is None and not out.for_people:
        raise click.UsageError("bytes are not JSON: write them to a file with -o PATH")
    with opened(create=False) as sf:
        if output is None:
            sf.artifacts.get(artifact, sys.stdout.buffer)
            return
        found = sf.artifacts.get(artifact, Path(output))
    out.record({**plain(found), "output": output}, [output])


artifact.generate(
    "list",
    examples=("standfast artifact list", "standfast artifact list --session fix-42 --kind log"),
    then="artifact get {id}",
    empty="no artifact matches",
)
artifact.generate("show", examples=("standfast artifact show 9k2m4x", "standfast artifact show build.log --json"))
artifact.generate("remove", text="removed {id} ({name})", then="artifact collect")


def _faults(faults: Sequence[Fault]) -> list[dict[str, Any]]:
    return [{**plain(fault.artifact), "fault": fault.state} for fault in faults]


FAULTS = "fault", "id", "name", "kind", "size_bytes bytes", "retention keep", "created_us when", "digest"


def _verified(_: Standfast, found: Many) -> Many:
    return found._replace(models=_faults(found.models), columns=FAULTS, exit_code=exits.FAILED * bool(found.models))


artifact.generate(
    "verify",
    answer=_verified,
    columns=FAULTS,
    options={"which": {"metavar": "ID"}},
    empty="all bytes match their digests",
    examples=("standfast artifact verify", "standfast artifact verify 9k2m4x"),
)


def _collected(_: Standfast, done: Collected) -> One:
    text = f"removed {done.removed} artifacts and {done.garbage_bytes} bytes of garbage in {done.garbage} pieces"
    lines = [text, *(f"{fault.state}: {fault.artifact.id} ({fault.artifact.name})" for fault in done.faults)]
    extra = {"faults": _faults(done.faults)}
    return One(done, lines, extra=extra, exit_code=exits.FAILED * bool(done.faults))


artifact.generate("collect", answer=_collected)
