"""`standfast verify`: prove that the journal, or a receipt in it, is unchanged."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from standfast.cli import exits, values
from standfast.cli.frame import argument, command, option
from standfast.cli.open_store import opened
from standfast.cli.output import Out
from standfast.cli.progress import reported
from standfast.errors import InvalidInput

if TYPE_CHECKING:
    from standfast.core.journal import Journal
    from standfast.handle import Standfast


@command(
    "verify",
    examples=(
        "standfast verify 4711:h2:9f2c…",
        "standfast verify --against /mnt/nas/agents/sto_…/cpy_….json",
    ),
)
@argument("receipt", required=False)
@option(
    "--against",
    metavar="MANIFEST",
    help="Compare the journal with this manifest of a copy: a file, or the id of a copy.",
)
def verify(out: Out, receipt: str | None, against: str | None) -> None:
    """Prove that a RECEIPT is in the journal and unchanged; without one, check the whole journal. Exits 1 if not."""
    if receipt is not None and against is not None:
        raise click.UsageError("give RECEIPT or --against, not both")
    with opened(create=False) as sf:
        if receipt is None:
            _check(out, sf.journal, None if against is None else _witness(sf, against))
            return
        event = sf.journal.verify(receipt)
    data = event.as_dict()
    out.record({"verified": True, **data}, [f"verified: {event.seq} {event.type} {event.subject} by {event.agent}"])


def _check(out: Out, journal: Journal, against: str | None) -> None:
    done = journal.check(against=against, progress=reported(out))
    rows, newer = values.counted(done.events, "row"), values.counted(done.open, "newer row")
    digests = f"digests up to row {done.upto_seq:,}; {newer} without a digest yet" if done.upto_seq else "no digest yet"
    lines = [one.text for one in done.findings] or [f"verified: {rows}, {digests}"]
    out.record({"verified": not done.findings, **values.plain(done)}, lines)
    if done.findings:
        out.say("read a copy from before the change: standfast restore --to DIR")
        raise click.exceptions.Exit(exits.FAILED)


def _witness(sf: Standfast, named: str) -> str:
    """The digest in the manifest of a copy, given as a file or by the id of the copy."""
    from standfast.admin.copies import manifest

    if os.path.exists(named):
        try:
            with open(named, "rb") as file:
                found = manifest.loads(file.read(manifest.MAX_BYTES), os.path.basename(named).partition(".")[0], named)
        except OSError as error:
            raise InvalidInput(f"{named} cannot be read: {error.strerror}", "--against FILE") from None
    else:
        found = sf.copies.manifest(named)
    if found.store_id != sf.engine.store_id:
        raise InvalidInput(f"{found.id} is a copy of {found.store_id}, not of this store", "standfast backup list")
    if found.digest is None:
        raise InvalidInput(f"{found.id} has no digest: it was taken {found.why}", "standfast backup list")
    return found.digest
