"""Damaged bundles and text exports are refused with a message within a second, and the store stays unchanged.

Each try damages a sound bundle or text export in one way: bytes are flipped or cut, members exchanged, removed or
added, rows and manifests get other values with correct hashes. An import that is accepted must bring the content of
the undamaged one.
"""

from __future__ import annotations

import io
import json
import random
import shutil
import time
import zipfile
import zlib
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import standfast
from standfast import Standfast
from standfast.db.contract import Row
from standfast.db.sql import statement
from standfast.errors import StandfastError
from standfast.ids import new_id
from standfast.interchange import bundle_import, bundles, text_export, text_import, text_records
from standfast_prove.mutants.patching import Patching
from standfast_prove.outcome import Outcome

SECONDS_MAX = 1.0
TABLES = ("session", "node", "message", "step", "effect", "decision", "state", "artifact", "task", "gate", "event")
VALUES: tuple[Any, ...] = (
    None,
    True,
    -1,
    2**63,
    2**70,
    0.5,
    "",
    "x",
    "\0",
    "\ud800",
    [],
    {},
    "ses_" + "0" * 26,
    "A" * 5000,
    "../../x",
)
Members = dict[str, bytes]
Damage = Callable[[Members, random.Random], bytes]


def filled(sf: Standfast, key: str = "far") -> None:
    """Make rows of every kind that an export contains."""
    with sf.session(key, agent="coder") as s:
        for n in range(5):
            s.say("user", f"question {n}")
        s.step("plan", lambda: {"title": "fix"})
        with s.decide("edit parser.py", why="the test names it"):
            s.effect("github.open_pr", {"title": "fix"}, do=lambda call: {"number": 7}, key=f"pr:{key}")
        s.state["branch"] = {"name": key}
        s.artifacts.put(b"log\n" * 50, name="build.log", kind="log")
    first = sf.tasks.add("fix the parser", labels=["ci"])
    sf.tasks.add("write tests", needs=[first.id], due="2d")
    sf.decisions.record("never force-push", standing=True)
    sf.state.set("mode", {"fast": True})
    sf.gates.add("git push*")


COUNTS = statement(f"SELECT {', '.join(f'(SELECT count(*) FROM {table}) AS {table}_rows' for table in TABLES)}")


def state_of(sf: Standfast) -> Row:
    """Rows of each table. Every change of a row adds one to `event`."""
    return sf._store.read(lambda tx: tx.one(COUNTS))


# -- bundles -------------------------------------------------------------------------------------------


def packed(found: Members) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in found.items():
            archive.writestr(name, content)
    return made.getvalue()


def sealed(found: Members) -> Members:
    """Write a bundle with correct hashes, as a program that knows the format could forge it."""
    manifest = json.loads(found["bundle.json"])
    hashes = {name: sha256(content).hexdigest() for name, content in found.items() if name != "bundle.json"}
    manifest |= {"members": hashes, "content": bundles.content_hash(hashes)}
    return {**found, "bundle.json": json.dumps(manifest).encode()}


def _flipped(found: Members, chance: random.Random) -> bytes:
    data = bytearray(packed(found))
    for _ in range(chance.randint(1, 6)):
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    return bytes(data)


def _cut(found: Members, chance: random.Random) -> bytes:
    data = packed(found)
    return data[: chance.randrange(len(data))]


def _noise(found: Members, chance: random.Random) -> bytes:
    return chance.randbytes(chance.randint(0, 3000))


def _removed(found: Members, chance: random.Random) -> bytes:
    gone = chance.choice(list(found))
    return packed({name: content for name, content in found.items() if name != gone})


def _exchanged(found: Members, chance: random.Random) -> bytes:
    one, other = chance.sample([name for name, content in found.items() if content], 2)
    return packed({**found, one: found[other], other: found[one]})


def _added(found: Members, chance: random.Random) -> bytes:
    name = chance.choice(("x", "../x", "/etc/x", "rows/loop.jsonl", "rows/session.jsonl/", "artifacts/zz", "README.MD"))
    return packed(sealed({**found, name: b"{}"}))


def _row(found: Members, chance: random.Random) -> bytes:
    name = chance.choice([name for name, content in found.items() if name.startswith("rows/") and content])
    rows = [json.loads(line) for line in found[name].splitlines()]
    row = chance.choice(rows)
    act = chance.randrange(4)
    if act == 0:
        row[chance.choice(list(row))] = chance.choice(VALUES)
    elif act == 1:
        del row[chance.choice([column for column in row if column in ("id", "session_id", "state", "key", *row)])]
    elif act == 2:
        rows.append(row)
    else:
        rows.remove(row)
    lines = b"".join(json.dumps(one).encode() + b"\n" for one in rows)
    return packed(sealed({**found, name: lines}))


def _manifest(found: Members, chance: random.Random) -> bytes:
    manifest = json.loads(found["bundle.json"])
    manifest[chance.choice(list(manifest))] = chance.choice(VALUES)
    return packed({**found, "bundle.json": json.dumps(manifest).encode()})


ZIPS: tuple[Damage, ...] = (_flipped, _cut, _noise, _removed, _exchanged, _added, _row, _manifest)


def zips(place: Path, *, seed: int = 0, url: str | None = None, inputs: int = 200, unhashed: bool = False) -> Outcome:
    """Damaged bundles are imported: zip files with changed members or manifests.

    With `unhashed`, the control, the import compares no hash of a member.
    """
    outcome, chance = Outcome("interchange-zips"), random.Random(seed)
    with Patching() as patch:
        if unhashed:
            patch.setattr(bundle_import, "_hash", lambda archive, info: _Any())
        _zips(outcome, chance, place, seed, url, inputs)
    return outcome


class _Any:
    """A hash that equals every hash."""

    def __ne__(self, other: object) -> bool:
        return False


def _zips(outcome: Outcome, chance: random.Random, place: Path, seed: int, url: str | None, inputs: int) -> None:
    sound = place / "sound.zip"
    with standfast.open(place / "far.db", data_dir=place / "far") as far:
        filled(far)
        right = far.export("far", to=sound).content
    found = _members(sound)
    with standfast.open(url or place / "here.db", data_dir=place / "here") as sf:
        before, path = state_of(sf), place / "bad.zip"
        for n in range(inputs):
            damage = chance.choice(ZIPS)
            named = f"{damage.__name__} {seed}/{n}"
            path.write_bytes(damage(found, chance))
            content = _tried(outcome, named, lambda: sf.imports.bundle(path).content)
            outcome.count("inputs")
            if content is None:
                outcome.refuse(state_of(sf) != before, f"a refused bundle changed the store ({named})")
            elif damage is not _row:  # a row with another valid value gives another valid bundle
                same = content == right and _is_sound(path, found)
                outcome.refuse(not same, f"a damaged bundle was imported ({named})")
            before = state_of(sf)


def _is_sound(path: Path, found: Members) -> bool:
    """A manifest may name another store; the other members are those of the sound bundle."""
    try:
        return {**_members(path), bundles.MANIFEST: found[bundles.MANIFEST]} == found
    except (zipfile.BadZipFile, zlib.error):
        return False


def _members(path: Path) -> Members:
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def _tried(outcome: Outcome, named: str, act: Callable[[], Any]) -> Any:
    """The return value, or None if the import was refused with a message. Any other error is a violation."""
    begun = time.process_time()
    try:
        found = act()
        outcome.count("accepted")
    except StandfastError as error:
        outcome.count("refused")
        outcome.refuse(error.code == "internal" or len(error.message) < 10, f"no clear message ({named})")
        found = None
    except Exception as error:  # noqa: BLE001  any other error is the finding
        outcome.bad.append(f"{type(error).__name__}: {error} ({named})")
        found = None
    outcome.refuse(time.process_time() - begun > SECONDS_MAX, f"took longer than {SECONDS_MAX} s of CPU ({named})")
    return found


# -- text ----------------------------------------------------------------------------------------------


def lines(place: Path, *, seed: int = 0, url: str | None = None, inputs: int = 200, unread: bool = False) -> Outcome:
    """Damaged text exports are imported: each also has a sound new decision, which must not be written either.

    With `unread`, the control, each file is imported before the next one is read.
    """
    outcome, chance = Outcome("interchange-lines"), random.Random(seed)
    with Patching() as patch:
        if unread:
            patch.setattr(text_import, "run", _file_by_file)
        _lines(outcome, chance, place, seed, url, inputs)
    return outcome


def _file_by_file(store: Any, directory: str, *, commit: bool, theirs: bool, progress: Any) -> list[Any]:
    done = []
    for kind, path in text_import._paths(directory):
        found = list(text_records.parsed(kind, text_export.member(directory, path).split(b"\n"), path))
        done.append(text_import.taken(store, directory, found, {}, commit=commit, theirs=theirs, progress=progress))
    return done


def _lines(outcome: Outcome, chance: random.Random, place: Path, seed: int, url: str | None, inputs: int) -> None:
    sound, bad = place / "sound", place / "bad"
    with standfast.open(url or place / "here.db", data_dir=place / "here") as sf:
        filled(sf, f"far-{seed}")
        sf.export(text=sound)
        for n in range(inputs):
            shutil.rmtree(bad, ignore_errors=True)
            shutil.copytree(sound, bad)
            _new_decision(bad, n)
            named = _damaged_line(bad, chance)
            before = state_of(sf)
            taken = _tried(outcome, f"{named} {seed}/{n}", lambda: sf.imports.text(bad, commit=True))
            outcome.count("inputs")
            if taken is None:
                outcome.refuse(state_of(sf) != before, f"refused text changed the store ({named} {seed}/{n})")


def _new_decision(directory: Path, n: int) -> None:
    """Add a decision to the first file that an import reads."""
    first = min(directory.glob("decisions/*.jsonl"))
    with first.open("a") as file:
        file.write(json.dumps({"id": new_id("dec"), "state": "open", "what": f"decision {n}"}) + "\n")


def _damaged_line(directory: Path, chance: random.Random) -> str:
    path = chance.choice([*directory.rglob("*.jsonl"), directory / "head.json"])
    content = path.read_bytes()
    act = chance.randrange(5)
    if act == 0 or not content:
        path.write_bytes(content + chance.randbytes(chance.randint(1, 60)))
    elif act == 1:
        path.write_bytes(content[: chance.randrange(len(content))])
    elif act == 2:
        data = bytearray(content)
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        path.write_bytes(data)
    elif act == 3:
        path.write_bytes(content + content.splitlines(keepends=True)[0])
    else:
        first, *rest = content.splitlines()
        try:
            fields = json.loads(first)
        except ValueError:
            fields = {}
        fields[chance.choice([*fields, "other"])] = chance.choice(VALUES)
        path.write_bytes(b"\n".join([json.dumps(fields).encode(), *rest]) + b"\n")
    return f"{path.name} act {act}"
