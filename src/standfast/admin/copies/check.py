"""Verify and test a copy.

A copy is *taken* if its manifest exists. It is *verified* if every file was read back and has the hash in the manifest.
It is *tested* if it was restored into a scratch directory, opened, and passed every check.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

from standfast.admin.copies import compression
from standfast.admin.copies.manifest import Manifest, damaged, name_of
from standfast.admin.copies.places import CopyPlace, reason
from standfast.admin.copies.restore import DATABASE, restore
from standfast.admin.copies.take import artifact_name
from standfast.config.target import Target
from standfast.core import artifact_files
from standfast.core.progress import Progress
from standfast.errors import StandfastError, StorageError
from standfast.models import Model

SHOWN_MAX = 5
_DOCTOR = frozenset(("config", "store", "schema", "integrity", "guard", "loops", "imports", "engine", "permissions"))
"""The findings of `doctor` about the store. The others are about this machine."""


class Check(Model):
    """The result of one check."""

    name: str
    ok: bool
    text: str


def verify(manifest: Manifest, place: CopyPlace, progress: Progress) -> None:
    """Read every file back and compare every hash. Raises Corrupt naming the copy and the files."""
    wrong = list(_wrong(manifest, place, progress))
    if wrong:
        more = f" and {len(wrong) - SHOWN_MAX} more" if len(wrong) > SHOWN_MAX else ""
        raise damaged(manifest.id, place.shown, "; ".join(wrong[:SHOWN_MAX]) + more)


def _wrong(manifest: Manifest, place: CopyPlace, progress: Progress) -> Iterator[str]:
    file = manifest.file
    for name, total, blocks in (
        (file.name, file.raw_bytes, compression.unpacked(place.read(file.name), file)),
        *((f"artifact {one}", size, _artifact(place, one, size)) for one, size in manifest.artifacts.items()),
    ):
        done = 0
        try:
            for block in blocks:
                done += len(block)
                progress("verifying", done, total)
        except FileNotFoundError:
            yield f"{name} is missing"
        except OSError as error:
            yield f"{name} cannot be read: {reason(error)}"
        except StorageError as error:
            if error.code == "missing_extra":
                raise
            yield error.message


def _artifact(place: CopyPlace, digest: str, size_bytes: int) -> Iterator[bytes]:
    return artifact_files.compared(place.read(artifact_name(digest)), digest, size_bytes)


def test(manifest: Manifest, place: CopyPlace, progress: Progress) -> list[Check]:
    """Restore into a scratch directory and check every invariant. Raises Corrupt if it cannot be restored."""
    with place.working() as scratch:
        restore(manifest, place, Target("sqlite", scratch), progress)
        progress("checking", 0, 1)
        return [*_compared(manifest, scratch), *_examined(manifest, scratch)]


test.__test__ = False  # type: ignore[attr-defined]  # pytest would collect it


def _compared(manifest: Manifest, scratch: str) -> Iterator[Check]:
    """Compare the restored rows with the manifest."""
    from standfast.db.sqlite import copies

    facts, hashes, broken = copies.examine(os.path.join(scratch, DATABASE), manifest.by_rows)
    yield Check("identity", (facts.store_id, facts.epoch) == (manifest.store_id, manifest.epoch), facts.store_id)
    yield Check("journal", facts.seq == manifest.seq, f"ends at {facts.seq}, the manifest says {manifest.seq}")
    named = {name: rows for name, rows in manifest.tables.items() if name != "meta"}
    short = [name for name, rows in named.items() if facts.rows.get(name) != rows.rows]
    yield Check("rows", not short, f"{len(named)} tables" if not short else f"other counts in {', '.join(short)}")
    other = [name for name, hash in hashes.items() if name in named and named[name].hash != hash]
    if manifest.by_rows:
        yield Check("hashes", not other, f"{len(hashes)} tables" if not other else f"other rows in {', '.join(other)}")
    yield Check("references", not broken, "every foreign key has its row" if not broken else "; ".join(broken[:5]))
    lost = sorted(set(facts.artifacts) - set(manifest.artifacts) - set(manifest.unreadable))
    yield Check("artifacts", not lost, f"{len(manifest.artifacts)} with the right bytes" if not lost else str(lost[:5]))


def has(manifest: Manifest, place: CopyPlace, receipt: str, progress: Progress) -> bool:
    """Whether the copy has the row of a receipt. A copy with a higher number may lack it after a restore."""
    with place.working() as scratch:
        restore(manifest.replace(artifacts={}), place, Target("sqlite", scratch), progress)
        return _asked(["verify", receipt], scratch).returncode == 0


def _asked(words: list[str], scratch: str) -> subprocess.CompletedProcess[str]:
    """Run a standfast command on the restored store."""
    own = {"STANDFAST_DATA_DIR": scratch, "STANDFAST_REMEMBER": "0", "STANDFAST_ACTOR": "backup-test"}
    kept = {name: value for name, value in os.environ.items() if not name.startswith("STANDFAST_")}
    command = [sys.executable, "-P", "-m", "standfast", *words, "--json"]
    return subprocess.run(command, env={**kept, **own}, cwd=scratch, capture_output=True, text=True, check=False)


def _examined(manifest: Manifest, scratch: str) -> Iterator[Check]:
    """Run `doctor`, `verify` and the views on the restored store."""
    with open(os.path.join(scratch, name_of(manifest.id)), "wb") as file:
        file.write(manifest.dumps())
    witness = ["--against", file.name] if manifest.digest else []
    for words in (["doctor"], ["verify", *witness], ["timeline", "--all"], ["brief"], ["status", "--all"]):
        done = _asked(words, scratch)
        data = json.loads(done.stdout)["data"] if done.stdout else None
        if data is not None and words[0] in ("doctor", "verify"):
            bad = data["findings"] if words[0] == "verify" else [one for one in data if _is_error(one)]
            yield Check(words[0], not bad, "; ".join(one["text"] for one in bad) or "no error")
        else:
            text = "" if done.returncode == 0 else done.stderr.strip().rpartition("\n")[2]
            yield Check(words[0], done.returncode == 0, text or "answers")


def _is_error(finding: dict[str, Any]) -> bool:
    return finding["id"] in _DOCTOR and finding["state"] == "error"


def refused(manifest: Manifest, place: CopyPlace, checks: list[Check]) -> StandfastError | None:
    """The error for a failed test; None if every check passed."""
    bad = [f"{check.name}: {check.text}" for check in checks if not check.ok]
    return damaged(manifest.id, place.shown, "; ".join(bad)) if bad else None
