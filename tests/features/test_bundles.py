"""Bundles: sessions that travel as one file, and files that are refused before anything is written."""

from __future__ import annotations

import io
import json
import random
import re
import signal
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import standfast
from standfast import Standfast
from standfast.cli import app
from standfast.db.tables import tables
from standfast.interchange import bundles
from tests.interfaces.test_cli import run

Members = dict[str, bytes]
SECRET = "ghp_" + "a1B2" * 9


def filled(sf: Standfast, key: str = "fix-42") -> None:
    """A session with every kind of row of a bundle."""
    with sf.session(key, agent="coder") as s:
        s.say("user", "why is the build red?")
        s.say("assistant", {"text": "a test fails", "n": 1})
        s.step("plan", lambda: {"title": "fix the parser"})
        with s.decide("edit parser.py", why="the test names it"):
            s.effect("github.open_pr", {"title": "fix"}, do=lambda call: {"number": 7}, key=f"pr:{key}")
        s.state["branch"] = {"name": "fix-42"}
        s.artifacts.put(b"build log\n" * 20, name="build.log", kind="log")
        s.checkpoint(summary="so far it is red")


@pytest.fixture
def other(tmp_path: Path) -> Iterator[Standfast]:
    with standfast.open(tmp_path / "other.db", data_dir=tmp_path / "other") as store:
        yield store


@pytest.fixture
def bundle(sf: Standfast, tmp_path: Path) -> Path:
    filled(sf)
    sf.export("fix-42", to=tmp_path / "fix-42.zip")
    return tmp_path / "fix-42.zip"


def counts(sf: Standfast) -> dict[str, Any]:
    counted = ", ".join(f'(SELECT count(*) FROM {one.name}) AS "{one.name}"' for one in tables())
    return next(iter(sf.rows(f"SELECT {counted}")))


def members(path: Path) -> Members:
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_a_bundle_has_pages_rows_events_and_the_digest(sf: Standfast, bundle: Path) -> None:
    """002-44, 002-3: a summary, traces and metadata; fixed names and a versioned schema."""
    found = members(bundle)
    assert set(found) >= {"bundle.json", "README.md", "timeline.md", "schema.json", "events.jsonl"}
    manifest = json.loads(found["bundle.json"])
    assert (manifest["form"], manifest["store"]) == ("standfast.bundle/1", sf.engine.store_id)
    assert manifest["digest"].count(":") == 2
    assert "- edit parser.py, because the test names it (done" in found["README.md"].decode()
    assert "github.open\\_pr" in found["README.md"].decode()
    events = [json.loads(line) for line in found["events.jsonl"].splitlines()]
    assert {event["specversion"] for event in events} == {"1.0"}
    assert "standfast.effect.acknowledged" in {event["type"] for event in events}
    schema = json.loads(found["schema.json"])
    for table in bundles.BY_SESSION:
        for line in found[f"rows/{table}.jsonl"].splitlines():
            assert set(json.loads(line)) <= set(schema["$defs"][table]["properties"])


def test_the_same_sessions_give_the_same_bytes(sf: Standfast, bundle: Path, tmp_path: Path) -> None:
    sf.export("fix-42", to=tmp_path / "again.zip")
    assert (tmp_path / "again.zip").read_bytes() == bundle.read_bytes()


def test_another_machine_exports_the_same_content(
    sf: Standfast, other: Standfast, bundle: Path, tmp_path: Path
) -> None:
    """002-3: export, import into another store and export again give the same hash, between both engines."""
    first = json.loads(members(bundle)["bundle.json"])["content"]
    done = other.imports.bundle(bundle)
    assert (done.content, done.taken, done.rows) == (first, False, done.added + done.artifacts)
    assert other.export("fix-42", to=tmp_path / "back.zip").content == first
    again = other.imports.bundle(bundle)
    assert (again.added, counts(other)["message"]) == (0, 2)
    found = other.sessions.get("fix-42")
    assert (found.state, found.reason) == ("completed", f"imported from {sf.engine.store_id}")
    (log,) = other.artifacts.list(session="fix-42")
    assert (log.name, other.artifacts.get(log.id)) == ("build.log", b"build log\n" * 20)
    assert [one.tool for one in other.effects.list(session="fix-42")] == ["github.open_pr"]
    assert [one.what for one in other.decisions.list(session="fix-42")] == ["edit parser.py"]


def test_a_session_that_was_handed_over_continues_there(
    sf: Standfast, other: Standfast, bundle: Path, tmp_path: Path
) -> None:
    """000-49: the target sends and computes nothing twice, and the source reports that it was handed over."""
    with pytest.raises(standfast.Conflict, match="did not hand") as refused:
        other.imports.bundle(bundle, take=True)
    assert refused.value.code == "not_handed_over"
    assert counts(other)["session"] == 0
    made = sf.export("fix-42", to=tmp_path / "over.zip", hand_over=True)
    assert made.content == json.loads(members(bundle)["bundle.json"])["content"]
    assert sf.sessions.get("fix-42").reason == "handed over: over.zip"
    with pytest.raises(standfast.Conflict, match="handed over") as there, sf.session("fix-42"):
        pass
    assert there.value.code == "handed_over"
    other.imports.bundle(tmp_path / "over.zip", take=True)
    ran: list[str] = []
    with other.session("fix-42") as s:
        assert s.step("plan", lambda: ran.append("plan")) == {"title": "fix the parser"}
        again = s.effect("github.open_pr", {"title": "fix"}, do=lambda call: ran.append("pr"), key="pr:fix-42")
        assert again == {"number": 7}
        assert s.state["branch"] == {"name": "fix-42"}
        assert [message.role for message in s.messages()] == ["user", "assistant"]
    assert ran == []


def test_a_session_of_a_lost_store_is_taken_if_a_person_says_so(other: Standfast, bundle: Path) -> None:
    other.imports.bundle(bundle)
    other.imports.bundle(bundle, take=True, source_lost=True)
    assert other.sessions.get("fix-42").state == "waiting"


def test_a_held_session_is_not_handed_over(sf: Standfast, tmp_path: Path) -> None:
    with sf.session("busy"), pytest.raises(standfast.Conflict, match="cannot be handed over"):
        sf.export("busy", to=tmp_path / "busy.zip", hand_over=True)
    assert list(tmp_path.glob("busy*")) == []


def test_stored_commands_and_grants_stay_at_the_source(sf: Standfast, tmp_path: Path) -> None:
    """A bundle has no command, path, lease or approval."""
    filled(sf)
    sf.export("fix-42", to=tmp_path / "b.zip")
    named = {name for table in bundles.BY_SESSION for name in bundles.columns(table)}
    assert named.isdisjoint(("command", "cwd", "verify", "holder", "git_dir", "approval_id", "scope", "repository"))
    assert "approval" not in bundles.BY_SESSION


def test_secrets_are_replaced_also_in_artifacts(sf: Standfast, tmp_path: Path) -> None:
    with sf.session("leaky") as s:
        s.say("user", f"use {SECRET}")
        s.step("token", lambda: SECRET)
        s.state["token"] = SECRET
        s.artifacts.put(b"\xff\x00 " + SECRET.encode() + b" \xff", name="core", kind="dump")
        with s.decide("rotate", why=SECRET):
            s.effect("vault.rotate", {"old": SECRET}, do=lambda call: SECRET)
    sf.export("leaky", to=tmp_path / "b.zip")
    for name, content in members(tmp_path / "b.zip").items():
        assert SECRET.encode() not in content, name


def test_edits_are_diffs(sf: Standfast, tmp_path: Path) -> None:
    """002-44: the changes of files."""
    from standfast.interchange import bundle_pages

    edit = {"file_path": "a.py", "old_string": "x = 1", "new_string": "x = 2"}
    patch = {"input": "*** Begin Patch\n*** Update File: b.py\n"}
    calls = [{"input": json.dumps(one), "status": "ok"} for one in (edit, patch, {"command": "ls"})]
    first, second = bundle_pages.diffs(calls)
    assert "--- a/a.py\n+++ b/a.py\n@@" in first
    assert "-x = 1\n+x = 2\n" in first
    assert second.startswith("*** Begin Patch")


def test_a_fork_needs_its_parent(sf: Standfast, other: Standfast, tmp_path: Path) -> None:
    filled(sf)
    fork = sf.sessions.fork("fix-42", at=1)
    with pytest.raises(standfast.InvalidInput, match="is a fork"):
        sf.export(fork.key, to=tmp_path / "b.zip")
    sf.export(fork.key, "fix-42", to=tmp_path / "b.zip")
    assert other.imports.bundle(tmp_path / "b.zip").sessions == ["fix-42", fork.key]


# -- refusals ------------------------------------------------------------------------------------------


def packed(found: Members, **more: Any) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in found.items():
            archive.writestr(name, content)
        for name, content in more.items():
            archive.writestr(name, content)
    return made.getvalue()


def sealed(found: Members) -> Members:
    """Compute correct hashes, as a program that knows the format would for a forged bundle."""
    from hashlib import sha256

    manifest = json.loads(found["bundle.json"])
    hashes = {name: sha256(content).hexdigest() for name, content in found.items() if name != "bundle.json"}
    manifest |= {"members": hashes, "content": bundles.content_hash(hashes)}
    return {**found, "bundle.json": json.dumps(manifest).encode()}


def _row(table: str, change: Callable[[dict[str, Any]], object]) -> Callable[[Members], bytes]:
    def made(found: Members) -> bytes:
        name = f"rows/{table}.jsonl"
        rows = [json.loads(line) for line in found[name].splitlines()]
        change(rows[0])
        lines = b"".join(json.dumps(row).encode() + b"\n" for row in rows)
        return packed(sealed({**found, name: lines}))

    return made


def _link(found: Members) -> bytes:
    made = io.BytesIO(packed({name: content for name, content in found.items() if name != "README.md"}))
    with zipfile.ZipFile(made, "a") as archive:
        info = zipfile.ZipInfo("README.md")
        info.external_attr = 0o120777 << 16
        archive.writestr(info, "/etc/passwd")
    return made.getvalue()


def _twice(found: Members) -> bytes:
    made = io.BytesIO(packed(found))
    with zipfile.ZipFile(made, "a") as archive, pytest.warns(UserWarning, match="Duplicate name"):
        archive.writestr("README.md", "other")
    return made.getvalue()


REFUSED: dict[str, tuple[Callable[[Members], bytes], str]] = {
    "not a zip": (lambda found: b"PK nothing", "damaged or is no bundle"),
    "cut": (lambda found: packed(found)[:-200], "damaged or is no bundle"),
    "bomb": (lambda found: packed(found, **{"diffs/0001.patch": "0" * 50_000_000}), "would grow"),
    "link": (_link, "is a link"),
    "twice": (_twice, "occurs twice"),
    "unknown": (lambda found: packed(found, **{"x.sh": "rm"}), "unknown member 'x.sh'"),
    "path": (lambda found: packed(found, **{"../../x": "rm"}), "unknown member"),
    "absolute": (lambda found: packed(found, **{"/etc/cron.d/x": "rm"}), "unknown member"),
    "no manifest": (lambda found: packed({"README.md": b""}), "bundle.json is missing"),
    "form": (lambda found: packed({**found, "bundle.json": b'{"form": "standfast.bundle/9"}'}), "its form is not"),
    "hash": (lambda found: packed({**found, "README.md": b"other"}), "differs from bundle.json"),
    "missing": (
        lambda found: packed({name: text for name, text in found.items() if "message" not in name}),
        "the members differ",
    ),
    "type": (_row("message", lambda row: row.update(position="one")), "position"),
    "choice": (_row("effect", lambda row: row.update(state="sent")), "state"),
    "required": (_row("message", lambda row: row.pop("role")), "role"),
    "foreign session": (_row("message", lambda row: row.update(session_id="ses_" + "0" * 26)), "belongs to no session"),
    "no id": (_row("step", lambda row: row.update(id="stp_1")), "is not the id of a step"),
    "no node": (_row("message", lambda row: row.update(node_id="nod_" + "0" * 26)), "belongs to no node"),
    "no root": (_row("node", lambda row: row.update(name="x")), "has no root node"),
    "no bytes": (_row("artifact", lambda row: row.update(size_bytes=1)), "the bytes of artifact"),
    "big number": (_row("message", lambda row: row.update(position=2**70)), "rows/message.jsonl:1"),
    "nul": (_row("message", lambda row: row.update(role="a\0b")), "rows/message.jsonl:1"),
}


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle of another store, made once."""
    place = tmp_path_factory.mktemp("far")
    with standfast.open(place / "far.db", data_dir=place / "data") as far:
        filled(far, "far")
        far.export("far", to=place / "far.zip")
    return place / "far.zip"


@pytest.mark.parametrize("kind", REFUSED)
def test_a_damaged_or_forged_bundle_is_refused(sf: Standfast, sound: Path, tmp_path: Path, kind: str) -> None:
    """002-3: nothing is written, not even a part."""
    made, fact = REFUSED[kind]
    (tmp_path / "bad.zip").write_bytes(made(members(sound)))
    before = counts(sf)
    with pytest.raises(standfast.InvalidInput) as refused:
        sf.imports.bundle(tmp_path / "bad.zip", take=True, source_lost=True)
    assert fact in refused.value.message
    assert counts(sf) == before


def test_flipped_bytes_are_refused_or_change_nothing(sf: Standfast, sound: Path, tmp_path: Path) -> None:
    content, chance = sound.read_bytes(), random.Random(26)
    path, before, right = tmp_path / "flipped.zip", counts(sf), json.loads(members(sound)["bundle.json"])["content"]
    refused = 0
    for _ in range(25):
        damaged = bytearray(content)
        for _ in range(chance.randint(1, 4)):
            damaged[chance.randrange(len(damaged))] ^= 1 << chance.randrange(8)
        path.write_bytes(damaged)
        try:
            done = sf.imports.bundle(path)
        except standfast.InvalidInput:
            refused += 1
            assert counts(sf) == before
        else:  # a byte without a meaning, such as the time of a member
            assert done.content == right
            before = counts(sf)
    assert refused > 10


def test_a_key_that_is_used_here_is_a_conflict(sf: Standfast, other: Standfast, bundle: Path) -> None:
    with other.session("fix-42"):
        pass
    before = counts(other)
    with pytest.raises(standfast.KeyConflict, match="another session with the key"):
        other.imports.bundle(bundle)
    assert counts(other) == before


# -- hostile authors ---------------------------------------------------------------------------------------


def forged(bundle: Path, *changes: tuple[str, Callable[[dict[str, Any]], object]]) -> None:
    """Change the first row of each table, with correct hashes."""
    for table, change in changes:
        bundle.write_bytes(_row(table, change)(members(bundle)))


def test_no_effect_of_history_answers_or_stops_a_call_here(sf: Standfast, sound: Path, tmp_path: Path) -> None:
    """Imported results, doubts and intents do not apply here: the call is sent with its own arguments."""
    sent: list[Any] = []

    def do(call: Any) -> dict[str, int]:
        sent.append(call.intent if hasattr(call, "intent") else call)
        return {"number": 8}

    for n, state in enumerate(("acknowledged", "dispatched", "planned", "failed")):
        path = tmp_path / f"{state}.zip"
        path.write_bytes(fresh(sound, n))
        forged(path, ("effect", lambda row, state=state: row.update(state=state, key="refund:1042", tool="bank.pay")))
        sf.imports.bundle(path)
    with sf.session("mine") as s:
        paid = s.effect("bank.pay", {"order": 1042}, do=do, key="refund:1042", idempotent=True)
    assert (paid, len(sent)) == ({"number": 8}, 1)
    assert [one.state for one in sf.effects.list(limit=10)] == ["acknowledged"]


def fresh(sound: Path, n: int) -> bytes:
    """The same bundle with other ids and keys, as if another author had made it."""
    found = members(sound)
    rows = {name: text.decode() for name, text in found.items() if name.startswith("rows/") or name == "bundle.json"}
    ids = {word for text in rows.values() for word in re.findall(r"[a-z]{3}_[0-9a-z]{26}", text)}
    for id in ids - {json.loads(found["bundle.json"])["store"]}:
        other = id[:-1] + "0123456789abcdef"[n]
        rows = {name: text.replace(id, other) for name, text in rows.items()}
    rows = {name: text.replace('"far"', f'"far-{n}"') for name, text in rows.items()}
    return packed(sealed({**found, **{name: text.encode() for name, text in rows.items()}}))


def test_a_bundle_brings_no_standing_order_and_no_fork_of_a_session_here(sf: Standfast, sound: Path) -> None:
    with sf.session("mine"):
        pass
    own = sf.sessions.get("mine").id
    before = counts(sf)
    for change, fact in (
        (_row("decision", lambda row: row.update(state="standing")), "standing order"),
        (_row("session", lambda row: row.update(parent_id=own)), "parent of a forked session is not in the bundle"),
    ):
        path = sound.parent / "bad.zip"
        path.write_bytes(change(members(sound)))
        with pytest.raises(standfast.InvalidInput, match=fact):
            sf.imports.bundle(path, take=True, source_lost=True)
    assert counts(sf) == before


@pytest.mark.parametrize("take", [False, True])
def test_no_row_of_this_store_is_replaced_by_its_id_or_name(
    sf: Standfast, sound: Path, tmp_path: Path, take: bool
) -> None:
    """A bundle with ids of this store is refused. An artifact of the same name is added, but the newest one stays
    ours.
    """
    ours = sf.artifacts.put(b"ours", name="build.log", kind="log")
    path, before = tmp_path / "bad.zip", counts(sf)
    path.write_bytes(_row("artifact", lambda row: row.update(id=ours.id))(members(sound)))
    with pytest.raises(standfast.KeyConflict, match="another artifact with the id"):
        sf.imports.bundle(path, take=take, source_lost=take)
    assert counts(sf) == before
    sf.imports.bundle(sound)
    assert sf.artifacts.get("build.log") == b"ours"


def test_a_key_that_is_used_here_stops_a_take_and_changes_nothing(sf: Standfast, sound: Path) -> None:
    with sf.session("mine") as s:
        s.effect("github.open_pr", {"title": "ours"}, do=lambda call: {"number": 1}, key="pr:far")
    before = counts(sf)
    with pytest.raises(standfast.KeyConflict, match="another effect with the key 'pr:far'"):
        sf.imports.bundle(sound, take=True, source_lost=True)
    assert counts(sf) == before
    sf.imports.bundle(sound)
    before = counts(sf)
    with pytest.raises(standfast.KeyConflict, match="another effect with the key 'pr:far'"):
        sf.imports.bundle(sound, take=True, source_lost=True)
    assert (counts(sf), sf.sessions.get("far").state) == (before, "completed")


def test_bytes_that_are_here_under_the_same_name_are_no_loss(sf: Standfast, sound: Path, tmp_path: Path) -> None:
    """The artifact of the bundle keeps its id, so that a second export gives the same content."""
    sf.artifacts.put(b"build log\n" * 20, name="build.log", kind="log")
    content = sf.imports.bundle(sound, take=True, source_lost=True).content
    assert sf.export("far", to=tmp_path / "back.zip").content == content


@pytest.fixture
def shell(sf: Standfast, engine_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STANDFAST_DB_URL", engine_url)
    monkeypatch.setenv("STANDFAST_DATA_DIR", str(tmp_path / "data"))


@pytest.mark.usefixtures("shell")
def test_from_a_shell(sf: Standfast, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    filled(sf)
    path = str(tmp_path / "b.zip")
    assert app.run(["export", "fix-42", "--to", path]) == 0
    assert app.run(["import", "bundle", path]) == 0
    assert "0 of" in capsys.readouterr().out
    assert app.run(["export", "nowhere", "--to", path]) == 3
    assert app.run(["import", "bundle", path + "x"]) == 3
    assert app.run(["export"]) == 2
    assert app.run(["export", "fix-42", "--text", path]) == 2


@pytest.mark.usefixtures("shell")
def test_killed_after_the_hand_over_the_export_is_repeated(
    sf: Standfast, other: Standfast, tmp_path: Path, engine_url: str
) -> None:
    filled(sf)
    path = tmp_path / "b.zip"
    words = ("export", "fix-42", "--to", str(path), "--hand-over")
    place = {"home": tmp_path, "STANDFAST_DB_URL": engine_url}
    assert run(*words, STANDFAST_CRASH_AT="export.after_hand_over", **place).returncode == -signal.SIGKILL
    assert not path.exists()
    assert sf.sessions.get("fix-42").reason == "handed over: b.zip"
    sf.export("fix-42", to=path, hand_over=True)
    assert other.imports.bundle(path, take=True).taken


@pytest.mark.usefixtures("shell")
def test_a_killed_bundle_import_continues(sf: Standfast, tmp_path: Path, engine_url: str) -> None:
    with standfast.open(tmp_path / "source.db", data_dir=tmp_path / "source") as source:
        filled(source, "far")
        source.export("far", to=tmp_path / "far.zip", hand_over=True)
    place = {"home": tmp_path, "STANDFAST_DB_URL": engine_url, "STANDFAST_CRASH_AT": "import.after_batch"}
    killed = run("import", "bundle", str(tmp_path / "far.zip"), "--take", **place)
    assert killed.returncode == -signal.SIGKILL
    assert sf.sessions.get("far").reason == "the import of its bundle is not finished"
    done = sf.imports.bundle(tmp_path / "far.zip", take=True)
    assert (done.added, sf.sessions.get("far").state) == (0, "waiting")
    assert sf.artifacts.get("build.log") == b"build log\n" * 20
