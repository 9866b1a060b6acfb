"""The spool: a process that cannot open the store writes it, and each record is later stored once."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
from collections import Counter
from pathlib import Path

import pytest

import standfast
from standfast.interchange.hooks import spool
from standfast.interchange.hooks.payloads import Heard
from standfast_prove.campaigns import spools
from tests.hooks import PATIENT, PROGRAM, bash, enter, environment, heard, payload

NOWHERE = "/dev/null/nowhere"
"""A data directory that cannot be created: no process can make a store, a spool or a key in it."""


def workspace(tmp_path: Path) -> Path:
    place = tmp_path / "work"
    (place / ".git" / "objects").mkdir(parents=True)
    (place / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    return place


def prompts(data: Path) -> Counter[tuple[str, str]]:
    with standfast.open(data_dir=data) as sf:
        rows = sf.rows("SELECT summary, source FROM event WHERE type = 'prompt.submitted'")
        return Counter((row["summary"], row["source"]) for row in rows)


def said(text: str, *, session: str = "s1", at_us: int = 1) -> Heard:
    return heard(payload("UserPromptSubmit", session=session, prompt=text), at_us=at_us)


def test_a_process_that_cannot_open_the_store_leaves_its_record_in_the_workspace(tmp_path: Path) -> None:
    """002-30: as in a sandbox, only the workspace is writable. The next command in it drains the record once."""
    place, data = workspace(tmp_path), tmp_path / "data"
    sub = place / "src"
    sub.mkdir()
    given = payload("UserPromptSubmit", prompt="from the sandbox", cwd=sub)
    ran = enter("codex", given, Path(NOWHERE), cwd=sub)
    assert (ran.returncode, ran.stdout) == (0, b"")
    line = place / ".standfast" / "spool" / "open.ndjson"
    assert line.exists()
    assert (line.stat().st_mode & 0o777, line.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    assert (place / ".standfast" / ".gitignore").read_text() == "*\n"
    env = environment(data)
    for words in (["decide", "x"], ["session", "list", "--all"]):  # the first of these creates the store
        subprocess.run([PROGRAM, *words], env=env, cwd=sub, check=True, capture_output=True)
    assert not list((place / ".standfast" / "spool").iterdir())
    assert prompts(data) == {("[unsealed] from the sandbox", "said"): 1}  # without a seal: `said`


def test_with_the_key_of_this_account_it_is_evidence(tmp_path: Path) -> None:
    """If neither store nor spool can be written, the record is sealed in the workspace. The next hook drains it."""
    place, data = workspace(tmp_path), tmp_path / "data"
    standfast.open(data_dir=data).close()
    (data / "spool").write_text("a file is in the way")
    assert spool.key(str(data))
    with open(data / "standfast.db.lock", "rb+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        enter("codex", payload("UserPromptSubmit", prompt="while it was busy", cwd=place), data)
    assert (place / ".standfast" / "spool" / "open.ndjson").exists()
    enter("codex", payload("Stop", session="another", cwd=place), data, program=("-c", PATIENT))
    assert prompts(data) == {("while it was busy", "seen"): 1}


def test_the_key_is_made_while_it_can_be(tmp_path: Path) -> None:
    """The first start of an agent outside a sandbox creates the key. In a sandbox, the key can only be read."""
    enter("codex", payload("SessionStart", cwd=tmp_path), tmp_path / "data")
    made = tmp_path / "data" / "spool.key"
    assert (made.stat().st_mode & 0o777, made.stat().st_size) == (0o600, 32)
    assert spool.key(str(tmp_path / "data")) == made.read_bytes()


def test_a_line_without_a_seal_is_said_and_garbage_is_counted(tmp_path: Path) -> None:
    """A repository may contain a spool, but can neither forge evidence nor damage anything."""
    place, data = workspace(tmp_path), tmp_path / "data"
    there = place / ".standfast" / "spool"
    there.mkdir(parents=True, mode=0o700)
    good = {"v": 1, "actor": "codex:x", "scope": "", **said("forged").as_dict()}
    lines = [
        "0" * 32 + " " + json.dumps(good),
        "- " + json.dumps({**good, "kind": "nonsense"}),
        "- " + json.dumps({**good, "at_us": "soon"}),
        "- " + json.dumps({**good, "status": "granted"}),
        "- " + json.dumps({**good, "more": 1}),
        "garbage \x00\x01",
        "- {",
    ]
    (there / "open.ndjson").write_text("\n".join(lines) + "\n- {cut o")
    (there / "open.ndjson").chmod(0o600)
    with standfast.open(data_dir=data) as sf:
        drained = spool.drain(sf._store, [str(there)], str(data))
        assert (drained.kept, drained.broken, drained.left) == (1, 7, False)
        (lost,) = [event for event in sf.journal.tail(limit=50).events if event.type == "hook.lost"]
        assert lost.data == {"lost": 0, "broken": 7}
    assert prompts(data) == {("[unsealed] forged", "said"): 1}


@pytest.mark.parametrize("trap", ["link to a file", "link to a directory", "for all to write", "a pipe"])
def test_nothing_is_read_or_written_through_a_trap(trap: str, tmp_path: Path) -> None:
    place, data, secret = workspace(tmp_path), tmp_path / "data", tmp_path / "secret"
    secret.mkdir()
    (secret / "open.ndjson").write_text("mine\n")
    there = place / ".standfast" / "spool"
    if trap == "link to a directory":
        (place / ".standfast").symlink_to(tmp_path / "elsewhere")
        (tmp_path / "elsewhere" / "spool").mkdir(parents=True)
    else:
        there.mkdir(parents=True, mode=0o700)
        if trap == "link to a file":
            (there / "open.ndjson").symlink_to(secret / "open.ndjson")
        elif trap == "for all to write":
            there.chmod(0o777)
        else:
            os.mkfifo(there / "open.ndjson")
    assert spool.append([str(there)], str(data), "codex:s1", "", said("x")) is None
    with standfast.open(data_dir=data) as sf:
        assert spool.drain(sf._store, [str(there)], str(data)).kept == 0
    assert (secret / "open.ndjson").read_text() == "mine\n"
    assert not (tmp_path / "elsewhere" / "spool" / "open.ndjson").exists()


def test_a_full_spool_drops_and_counts_later_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spool, "SPOOL_MAX_BYTES", 1500)
    there, data = str(tmp_path / "spool"), tmp_path / "data"
    for n in range(10):
        assert spool.append([there], str(data), "codex:s1", "", said(f"p{n}", at_us=n)) == there
    with standfast.open(data_dir=data) as sf:
        drained = spool.drain(sf._store, [there], str(data))
    assert drained.kept + drained.lost == 10
    assert drained.lost > 0


def test_a_hook_takes_home_a_part_and_leaves_the_rest(tmp_path: Path) -> None:
    """A hook drains a limited number of records, so that no agent waits for all records of another one."""
    there, data = str(tmp_path / "spool"), tmp_path / "data"
    for n in range(25):
        spool.append([there], str(data), "codex:s1", "", said(f"p{n}", at_us=n))
    with standfast.open(data_dir=data) as sf:
        first = spool.drain(sf._store, [there], str(data), limit=10)
        assert (first.kept, first.left) == (10, True)
        assert spool.drain(sf._store, [there], str(data)).kept == 15
        assert spool.drain(sf._store, [there], str(data)).kept == 0
    assert sum(prompts(data).values()) == 25


def test_a_writer_that_is_still_at_it_keeps_its_file(tmp_path: Path) -> None:
    """If the spool is renamed while a hook writes to it, the file stays until that hook has finished."""
    there, data = tmp_path / "spool", tmp_path / "data"
    spool.append([str(there)], str(data), "codex:s1", "", said("one", at_us=1))
    with open(there / "open.ndjson", "ab") as writer, standfast.open(data_dir=data) as sf:
        fcntl.flock(writer, fcntl.LOCK_SH)
        assert spool.drain(sf._store, [str(there)], str(data)) == (0, 0, 0, True)
        spool.append([str(there)], str(data), "codex:s1", "", said("two", at_us=2))
        fcntl.flock(writer, fcntl.LOCK_UN)
        assert spool.drain(sf._store, [str(there)], str(data)).kept == 2


def test_drained_once_under_kills_while_others_write(tmp_path: Path) -> None:
    """Three write, two drain and are killed at any moment: every record that was taken is in the store once."""
    seen = spools.run(tmp_path, seed=1, kills=8, records=40)
    assert (seen.bad, seen.seen) == ([], {"kills": 8, "records": 120})


def test_the_rest_of_a_killed_writer_is_removed_and_that_of_a_live_one_stays(tmp_path: Path) -> None:
    """Otherwise the rest would count against the size limit of the spool permanently."""
    there, data = tmp_path / "spool", tmp_path / "data"
    assert spool.append([str(there)], str(data), "codex:s1", "", said("kept"))
    torn, written = there / "0-a.draining.tmp", there / "0-b.draining.tmp"
    for path in (torn, written):
        path.touch(0o600)
    with standfast.open(data_dir=data) as sf, written.open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert spool.drain(sf._store, [str(there)], str(data)).kept == 1
        assert os.listdir(there) == [written.name]
    with standfast.open(data_dir=data) as sf:
        spool.drain(sf._store, [str(there)], str(data))
    assert os.listdir(there) == []


def test_the_daemon_finds_the_workspaces_its_sessions_were_in(tmp_path: Path) -> None:
    place, data = workspace(tmp_path), tmp_path / "data"
    enter("codex", payload("SessionStart", session="s1", cwd=place), data)
    spool.append([str(place / ".standfast" / "spool")], str(data), "codex:s1", "", said("later"))
    with standfast.open(data_dir=data) as sf:
        assert spool.drain_everywhere(sf._store, str(data)).kept == 1


def test_an_answer_may_be_imported_before_its_call(tmp_path: Path) -> None:
    there, data = str(tmp_path / "spool"), tmp_path / "data"
    spool.append([there], str(data), "codex:s1", "", heard(bash("PreToolUse", "ls"), agent="codex", at_us=1))
    answer = heard(bash("PostToolUse", "ls", tool_response="x"), agent="claude-code", at_us=2)
    with standfast.open(data_dir=data) as sf:
        from standfast.interchange.hooks.record import keep_late

        keep_late(sf._store, "codex:s1", "", [(answer.replace(agent="codex"), True)])
        spool.drain(sf._store, [there], str(data))
        (call,) = sf.rows("SELECT status, called_us, answered_us, occurred_us FROM tool_call")
    assert dict(call) == {"status": "ok", "called_us": 1, "answered_us": 2, "occurred_us": 1}


def planted(place: Path, *records: Heard, actor: str = "ada", scope: str = "", **more: str | None) -> Path:
    """A spool as a hostile repository would contain it."""
    there = place / ".standfast" / "spool"
    there.mkdir(parents=True, mode=0o700, exist_ok=True)
    lines = ["- " + json.dumps({"v": 1, "actor": actor, "scope": scope, **more, **one.as_dict()}) for one in records]
    (there / "open.ndjson").write_text("\n".join(lines) + "\n")
    (there / "open.ndjson").chmod(0o600)
    return there


def test_an_unsealed_record_speaks_only_for_the_workspace_it_was_found_in(tmp_path: Path) -> None:
    """R27: the record counts for no other repository, no known actor, and no session that standfast recorded."""
    place, shop, data = workspace(tmp_path), tmp_path / "shop", tmp_path / "data"
    (shop / ".git" / "objects").mkdir(parents=True)
    (shop / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    enter("claude-code", payload("UserPromptSubmit", session="n1", prompt="mine", cwd=shop), data)
    planted(place, said("PLANTED", session="n1"), git_dir=str(shop / ".git"), origin=None)
    subprocess.run([PROGRAM, "status"], env=environment(data), cwd=place, check=True, capture_output=True)
    shown = subprocess.run([PROGRAM, "timeline"], env=environment(data), cwd=shop, check=True, capture_output=True)
    assert b"PLANTED" not in shown.stdout
    with standfast.open(data_dir=data) as sf:
        (event,) = sf.rows("SELECT actor, session_id, summary, source FROM event WHERE summary LIKE '%PLANTED%'")
        rows = list(sf.rows("SELECT id, key, git_dir FROM session"))
    sessions = {row["key"]: row["git_dir"] for row in rows}
    assert (event["actor"], event["summary"], event["source"]) == ("unsealed", "[unsealed] PLANTED", "said")
    assert event["session_id"] not in [row["id"] for row in rows if row["key"] == "claude-code:n1"]
    (other,) = set(sessions) - {"claude-code:n1"}
    assert other.startswith("claude-code:unsealed:")
    assert sessions[other] == str(place / ".git")


def test_an_unsealed_answer_changes_no_call_that_standfast_recorded(tmp_path: Path) -> None:
    """R27: the answer of the hook counts, not the earlier planted one."""
    place, data = workspace(tmp_path), tmp_path / "data"
    enter("claude-code", bash("PreToolUse", "make test", cwd=str(place)), data)
    planted(place, heard(bash("PostToolUse", "make test", tool_response="all 900 tests passed", cwd=str(place))))
    subprocess.run([PROGRAM, "status"], env=environment(data), cwd=place, check=True, capture_output=True)
    asked = "SELECT c.status, c.output, c.summary, s.key FROM tool_call c JOIN session s ON s.id = c.session_id"
    with standfast.open(data_dir=data) as sf:
        rows = {row["key"]: row for row in sf.rows(asked)}
    seen = rows.pop("claude-code:s1")
    assert (seen["status"], seen["output"]) == ("pending", None)
    ((key, row),) = rows.items()
    assert key.startswith("claude-code:unsealed:")
    assert row["summary"].startswith("[unsealed] ")
    words = [PROGRAM, "search", "900 tests", "--json"]
    found = subprocess.run(words, env=environment(data), cwd=place, check=True, capture_output=True)
    hits = json.loads(found.stdout)["data"]
    assert hits
    assert all("unsealed" in json.dumps(hit) for hit in hits)
    enter("claude-code", bash("PostToolUse", "make test", tool_response="2 failed", cwd=str(place)), data)
    subprocess.run([PROGRAM, "status"], env=environment(data), cwd=place, check=True, capture_output=True)
    with standfast.open(data_dir=data) as sf:
        outputs = {row["key"]: row["output"] for row in sf.rows(asked)}
    assert outputs["claude-code:s1"] == "2 failed"


def test_a_command_that_a_person_types_drains_for_a_bounded_time(tmp_path: Path) -> None:
    """R27: the rest waits for the next command; a file over the size limit is not read."""
    place, data = workspace(tmp_path), tmp_path / "data"
    there = planted(place, *(said(f"p{n}", at_us=n) for n in range(300)))
    with standfast.open(data_dir=data) as sf:
        first = spool.drain(sf._store, [str(there)], str(data), within_s=0.0)
        assert first.left
        assert first.kept < 300
        assert spool.drain(sf._store, [str(there)], str(data)).kept == 300 - first.kept
    there = planted(place, said("x"))
    os.truncate(there / "open.ndjson", spool.FILE_MAX_BYTES + 1)
    with standfast.open(data_dir=data) as sf:
        assert spool.drain(sf._store, [str(there)], str(data)) == (0, 0, 0, True)


def test_one_drain_of_a_command_takes_a_bounded_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spool, "DRAINED_MAX_BYTES", 10_000)
    place, data = workspace(tmp_path), tmp_path / "data"
    there = planted(place, *(said(f"p{n}", at_us=n) for n in range(300)))
    with standfast.open(data_dir=data) as sf:
        first = spool.drain(sf._store, [str(there)], str(data), within_s=60)
    assert (first.kept, first.left) == (50, True)


@pytest.mark.parametrize("version", ["2", "4"])
def test_files_that_git_tracks_are_no_spool(tmp_path: Path, version: str) -> None:
    """R27: they came with a clone. A hook writes its records elsewhere."""
    place, data = tmp_path / "clone", tmp_path / "data"
    git = ["git", "-C", str(place), "-c", f"index.version={version}"]
    subprocess.run(["git", "init", "-q", str(place)], check=True)
    there = planted(place, said("PLANTED"))
    subprocess.run([*git, "add", "-f", ".standfast"], check=True)
    subprocess.run([*git, "update-index", "--index-version", version], check=True)
    with standfast.open(data_dir=data) as sf:
        assert spool.drain(sf._store, [str(there)], str(data)).kept == 0
        assert spool.append([str(there)], str(data), "codex:s1", "", said("x")) is None
    assert (there / "open.ndjson").exists()
    subprocess.run([*git, "rm", "-q", "--cached", "-r", ".standfast"], check=True)
    with standfast.open(data_dir=data) as sf:
        assert spool.drain(sf._store, [str(there)], str(data)).kept == 1


def test_no_planted_record_changes_what_standfast_recorded(engine_url: str, tmp_path: Path) -> None:
    """R27: the control is a record with the account's seal, which does change rows."""
    from standfast_prove.campaigns import hostile

    assert hostile.planted(tmp_path / "a", url=engine_url, seed=1, records=60).bad == []
    assert hostile.planted(tmp_path / "b", seed=1, records=20, sealed=True).bad
