"""Text for git: exports that differ only where records do, three-way imports, and importing an old commit."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import standfast
from standfast import Standfast
from standfast.cli import app
from standfast.interchange import text_history, text_import
from tests.interfaces.test_cli import run

Opener = Callable[[str], Standfast]
LOG = ("events/", "head.json", ".base.json")


@pytest.fixture
def text(tmp_path: Path) -> Path:
    return tmp_path / "work" / "record"


def git(directory: Path, *words: str) -> str:
    own = ("-c", "user.name=ada", "-c", "user.email=ada@example.org", "-c", "commit.gpgsign=false")
    done = subprocess.run(["git", *own, *words], cwd=directory, capture_output=True, text=True, check=True)
    return done.stdout


def commit(text: Path) -> None:
    if not (text.parent / ".git").exists():
        git(text.parent, "init", "-q")
    git(text.parent, "add", "-A", "record")
    git(text.parent, "commit", "-q", "-m", "export")


def contents(text: Path) -> dict[str, str]:
    """The files of an export, without those that are only appended to."""
    found = {str(path.relative_to(text)): path.read_text() for path in sorted(text.rglob("*")) if path.is_file()}
    return {name: content for name, content in found.items() if not name.startswith(LOG)}


def filled(sf: Standfast) -> None:
    first = sf.tasks.add("fix the parser", body="line 1\nline 2", labels=["ci"], priority=1, due="2d")
    goal = sf.tasks.add("release 2.0")
    sf.tasks.add("write tests", needs=[first.id], parent=goal.id, cool_down="30m")
    sf.tasks.snooze(sf.tasks.add("later").id, for_="3d")
    sf.tasks.accept(sf.tasks.add("as it is").id, reason="costs more than it gives")
    sf.tasks.done(sf.tasks.add("flaky").id, result={"pr": 7})
    sf.tasks.add("flaky")
    sf.decisions.record("use the old parser", why="it is tested", then="edit parser.py", tags=["parser"])
    sf.decisions.done(sf.decisions.record("merge", why="green").id, "merged as a1b2c3")
    sf.decisions.record("never force-push", why="it lost work", standing=True)
    sf.state.set("mode", {"fast": True}, json_schema={"type": "object"})
    sf.state.set("level", None, namespace="deploy")
    sf.state.set("token", "short-lived", for_="1h")
    sf.gates.add("git push*", why="main is protected")
    sf.loops.add("nightly", ["echo", "hi"], every="1h")


def test_two_exports_without_a_change_are_equal(sf: Standfast, text: Path) -> None:
    """001-21: the text is deterministic, and `check` names the files that differ."""
    filled(sf)
    made = sf.export(text=text)
    assert (made.records, made.files) == (13, len(made.changed))
    before = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in text.rglob("*") if path.is_file()}
    assert sf.export(text=text).changed == []
    assert sf.export(text=text, check=True).changed == []
    assert {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in before} == before
    sf.state.set("level", 2, namespace="deploy")
    changed = sf.export(text=text, check=True).changed
    assert [name.partition("/")[0] for name in changed] == ["state.jsonl", "events"]
    assert b"short-lived" not in b"".join(content for content, _ in before.values())


def test_a_line_has_one_record_with_sorted_keys(sf: Standfast, text: Path) -> None:
    """000-5, 001-21: each line is one record with sorted keys, so that people and git can read it."""
    filled(sf)
    sf.export(text=text)
    for path in text.rglob("*.jsonl"):
        lines = path.read_text().splitlines()
        assert [json.dumps(json.loads(line), sort_keys=True, ensure_ascii=False) for line in lines] == lines
    (order,) = (text / "orders.jsonl").read_text().splitlines()
    assert json.loads(order)["what"] == "never force-push"
    assert "- never force-push (" in (text / "DECISIONS.md").read_text()
    assert "## Open (4)" in (text / "TASKS.md").read_text()
    head = json.loads((text / "head.json").read_text())
    assert (head["form"], head["store"]) == ("standfast.text/1", sf.engine.store_id)


def test_an_old_commit_brings_everything_back(sf: Standfast, text: Path) -> None:
    """001-21: after checkout and import of an old commit, an export writes the same files, except for a longer log."""
    filled(sf)
    sf.export(text=text)
    commit(text)
    old = contents(text)
    tasks = {task.title: task for task in sf.tasks.list(state="any", limit=50)}
    sf.tasks.done(tasks["fix the parser"].id, reason="fixed")
    sf.tasks.edit(tasks["write tests"].id, title="write more", no_needs=[tasks["fix the parser"].id], parent=None)
    sf.tasks.reopen(tasks["as it is"].id)
    sf.tasks.edit(tasks["release 2.0"].id, labels=["x"], priority=9, assignee="ben")
    (standing,) = sf.decisions.list(state="standing")
    sf.decisions.withdraw(standing.id, "we squash now")
    (open_,) = sf.decisions.list(state="open")
    sf.decisions.fail(open_.id, "too slow")
    sf.state.delete("mode")
    sf.state.set("level", 3, namespace="deploy")
    sf.gates.remove("git push*")
    sf.export(text=text)
    commit(text)
    assert contents(text) != old
    git(text.parent, "checkout", "-q", "HEAD~1", "--", "record")
    looked = sf.imports.text(text)
    assert {one.action for one in looked.differences} == {"add", "change"}
    assert sf.decisions.list(state="standing") == []
    done = sf.imports.text(text, commit=True)
    assert (done.left, done.differences) == ([], looked.differences)
    sf.export(text=text)
    assert contents(text) == old
    assert sf.imports.text(text).differences == []


def test_a_lost_store_is_filled_from_the_text(sf: Standfast, text: Path, elsewhere: Standfast) -> None:
    """001-83: the new store has the ids, episodes, needs and states of the files."""
    filled(sf)
    sf.export(text=text)
    old = contents(text)
    done = elsewhere.imports.text(text, commit=True)
    assert done.left == []
    elsewhere.export(text=text)
    assert contents(text) == old | {"loops.jsonl": ""}


@pytest.fixture
def elsewhere(tmp_path: Path) -> Iterator[Standfast]:
    with standfast.open(tmp_path / "other.db", data_dir=tmp_path / "other") as other:
        yield other


def test_the_newer_side_wins_and_both_is_a_conflict(sf: Standfast, text: Path) -> None:
    """001-21: the three sides are the common base, the store and the file."""
    for name in ("file", "store", "both", "none"):
        sf.state.set(name, 1)
    sf.export(text=text)
    path = text / "state.jsonl"
    path.write_text(path.read_text().replace('"file", "value": 1', '"file", "value": 2'))
    path.write_text(path.read_text().replace('"both", "value": 1', '"both", "value": 2'))
    sf.state.set("store", 3)
    sf.state.set("both", 3)
    done = sf.imports.text(text, commit=True)
    found = {one.name: one.action for one in done.differences}
    assert found == {"file": "change", "store": "keep", "both": "conflict"}
    assert [sf.state.get(name).value for name in ("file", "store", "both", "none")] == [2, 3, 3, 1]
    sf.imports.text(text, commit=True, theirs=True)
    assert [sf.state.get(name).value for name in ("file", "store", "both", "none")] == [2, 1, 2, 1]


def test_a_missing_line_deletes_nothing(sf: Standfast, text: Path) -> None:
    filled(sf)
    sf.export(text=text)
    before = sf.tasks.list(state="any")
    for path in text.rglob("*.jsonl"):
        path.write_text("")
    assert sf.imports.text(text, commit=True).differences == []
    assert (sf.tasks.list(state="any"), len(sf.gates.list())) == (before, 1)


def test_what_a_method_refuses_is_listed_and_the_rest_is_taken(sf: Standfast, text: Path) -> None:
    decided = sf.decisions.record("use the old parser")
    sf.state.set("secret", "-")
    sf.state.set("mode", "safe")
    sf.export(text=text)
    for path in (text / "state.jsonl", *text.glob("decisions/*")):
        changed = path.read_text().replace("old parser", "new parser").replace('"-"', '"[redacted:github]"')
        path.write_text(changed.replace('"safe"', '"fast"'))
    done = sf.imports.text(text, commit=True)
    assert [(one.kind, one.action) for one in done.differences] == [
        ("decision", "refused"),
        ("state", "change"),
        ("state", "refused"),
    ]
    assert sf.decisions.show(decided.id).what == "use the old parser"
    assert (sf.state.get("mode").value, sf.state.get("secret").value) == ("fast", "-")


@pytest.fixture
def shell(sf: Standfast, engine_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "work").mkdir()
    monkeypatch.setenv("STANDFAST_DB_URL", engine_url)
    monkeypatch.setenv("STANDFAST_DATA_DIR", str(tmp_path / "data"))


@pytest.mark.usefixtures("shell")
def test_an_agent_brings_no_gate_back(
    sf: Standfast, text: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sf.gates.add("git push*")
    sf.state.set("mode", "safe")
    assert app.run(["export", "--text", str(text)]) == 0
    sf.gates.remove("git push*")
    sf.state.delete("mode")
    with monkeypatch.context() as agent:
        agent.setenv("CLAUDECODE", "1")
        assert app.run(["import", "text", str(text), "--commit"]) == 4
    assert "CLAUDECODE" in capsys.readouterr().out
    assert (sf.gates.list(), sf.state.get("mode").value) == ([], "safe")
    assert app.run(["import", "text", str(text), "--commit"]) == 0
    assert [gate.pattern for gate in sf.gates.list()] == ["git push*"]


@pytest.mark.usefixtures("shell")
def test_check_exits_1_on_a_difference(sf: Standfast, text: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sf.tasks.add("fix the parser")
    assert app.run(["export", "--text", str(text), "--check"]) == 1
    assert not text.exists()
    assert app.run(["export", "--text", str(text)]) == 0
    assert app.run(["export", "--text", str(text), "--check"]) == 0
    sf.tasks.add("more")
    assert app.run(["export", "--text", str(text), "--check", "--json"]) == 1
    assert '"tasks/' in capsys.readouterr().out


@pytest.mark.usefixtures("shell")
def test_a_lost_log_is_restored_from_git_and_a_lost_backlog_from_its_events(
    sf: Standfast, text: Path, elsewhere: Standfast, capsys: pytest.CaptureFixture[str]
) -> None:
    """001-83: an event log is restored from `git log`, a backlog from its events. A second run adds nothing."""
    task = sf.tasks.add("fix the parser")
    sf.state.set("mode", "safe")
    sf.export(text=text)
    commit(text)
    sf.tasks.done(task.id, reason="fixed")
    sf.export(text=text)
    commit(text)
    assert text_history.append(elsewhere.events, str(text), "log", dry_run=False) == (3, 0)
    sf.state.set("mode", "fast")
    sf.export(text=text)
    commit(text)
    assert text_history.append(elsewhere.events, str(text), "log", dry_run=False) == (1, 3)
    assert text_history.append(elsewhere.events, str(text), "log", dry_run=False) == (0, 4)
    told = [event.data for event in elsewhere.events.read("log")]
    assert [(one["change"], one["kind"]) for one in told] == [
        ("added", "state"),
        ("added", "task"),
        ("changed", "task"),
        ("changed", "state"),
    ]
    assert (told[0]["author"], len(told[0]["commit"])) == ("ada", 40)
    found = text_history.records(elsewhere.events, "log")
    done = text_import.taken(elsewhere._store, "", found, {}, commit=True, theirs=False)
    assert done.left == []
    back = elsewhere.tasks.get(task.id)
    assert (back.title, back.state, back.reason) == ("fix the parser", "closed", "fixed")
    assert elsewhere.state.get("mode").value == "fast"
    assert app.run(["import", "text", str(text), "--log", "log", "--commit"]) == 0
    assert "added 4 events" in capsys.readouterr().out
    assert app.run(["import", "text", "--events", "log"]) == 0
    assert app.run(["import", "text", str(text), "--events", "log"]) == 2


DAMAGE = [
    ("head.json", "{", "head.json"),
    ("head.json", '{"form": "standfast.text/9"}', "this version reads standfast.text/1"),
    ("state.jsonl", "{}\n", "state.jsonl:1: the state has no key"),
    ("state.jsonl", '{"key": "a", "value": 1}\n{"key": "a", "value": 2}\n', "occurs twice"),
    ("state.jsonl", '{"key": "a", "value": 1, "verify": "rm -rf /"}\n', "no field 'verify'"),
    ("state.jsonl", '{"key": "a", "value": 1, "key": "b"}\n', "state.jsonl:1"),
    ("gates.jsonl", '{"pattern": "x", "need": "nothing"}\n', "a gate needs"),
    ("tasks/2026-11.jsonl", '{"id": "tsk_1"}\n', "tasks/2026-11.jsonl:1"),
    ("decisions/2026-11.jsonl", "[1]\n", "is a JSON object, not list"),
    ("decisions/2026-11.jsonl", "\xff\n", "decisions/2026-11.jsonl:1"),
]


@pytest.mark.parametrize(("name", "content", "fact"), DAMAGE)
def test_a_damaged_line_changes_nothing(sf: Standfast, text: Path, name: str, content: str, fact: str) -> None:
    sf.state.set("mode", "safe")
    sf.export(text=text)
    sf.state.set("mode", "fast")
    (text / name).parent.mkdir(exist_ok=True)
    (text / name).write_bytes(content.encode("latin-1"))
    before = sf.state.get("mode")
    with pytest.raises(standfast.InvalidInput, match=fact.replace("(", ".")):
        sf.imports.text(text, commit=True, theirs=True)
    assert sf.state.get("mode") == before


def test_no_file_is_written_or_read_through_a_link(sf: Standfast, text: Path, tmp_path: Path) -> None:
    sf.state.set("mode", "safe")
    sf.export(text=text)
    outside = tmp_path / "outside"
    outside.write_text("mine")
    (text / "state.jsonl").unlink()
    (text / "state.jsonl").symlink_to(outside)
    with pytest.raises(standfast.InvalidInput, match="symbolic link"):
        sf.imports.text(text)
    with pytest.raises(standfast.StorageError, match="symbolic link"):
        sf.export(text=text)
    (text / "state.jsonl").unlink()
    os.mkfifo(text / "state.jsonl")
    with pytest.raises(standfast.InvalidInput, match="not a regular file"):
        sf.imports.text(text)
    assert outside.read_text() == "mine"


def test_a_directory_of_yours_is_not_written_into(sf: Standfast, tmp_path: Path) -> None:
    (tmp_path / "mine.md").write_text("notes")
    with pytest.raises(standfast.InvalidInput, match="it is not a text export"):
        sf.export(text=tmp_path)
    with pytest.raises(standfast.InvalidInput, match="is not a directory"):
        sf.export(text=tmp_path / "mine.md")
    with pytest.raises(standfast.NotFound):
        sf.imports.text(tmp_path / "nowhere")


@pytest.mark.usefixtures("shell")
def test_killed_between_two_files_the_next_export_ends_it(
    sf: Standfast, text: Path, tmp_path: Path, engine_url: str
) -> None:
    """001-29: each file is either old or new, and importing a mixture of them reverts no change."""
    sf.state.set("mode", "safe")
    sf.tasks.add("one")
    sf.export(text=text)
    sf.state.set("mode", "fast")
    sf.tasks.add("two")
    place = {"home": tmp_path, "STANDFAST_DB_URL": engine_url}
    killed = run("export", "--text", str(text), STANDFAST_CRASH_AT="export.before_file:2", **place)
    assert killed.returncode == -signal.SIGKILL
    assert {one.action for one in sf.imports.text(text, commit=True).differences} <= {"keep"}
    assert sf.state.get("mode").value == "fast"
    sf.export(text=text)
    assert sf.export(text=text, check=True).changed == []


@pytest.mark.usefixtures("shell")
def test_a_killed_bundle_import_continues(sf: Standfast, text: Path, tmp_path: Path, engine_url: str) -> None:
    filled(sf)
    sf.export(text=text)
    old = contents(text)
    for name in ("mode", "level"):
        sf.state.delete(name, namespace="deploy" if name == "level" else "")
    for task in sf.tasks.list(state="open"):
        sf.tasks.done(task.id)
    place = {"home": tmp_path, "STANDFAST_DB_URL": engine_url, "STANDFAST_CRASH_AT": "import.after_batch:3"}
    killed = run("import", "text", str(text), "--commit", "--theirs", **place)
    assert killed.returncode == -signal.SIGKILL
    sf.imports.text(text, commit=True, theirs=True)
    sf.export(text=text)
    assert contents(text) == old


def test_a_decision_is_reopened_as_it_was_made(sf: Standfast) -> None:
    open_, order = sf.decisions.record("a"), sf.decisions.record("b", standing=True)
    sf.decisions.done(open_.id, "ok")
    sf.decisions.withdraw(order.id, "no")
    assert (sf.decisions.reopen(open_.id).state, sf.decisions.reopen(order.id).state) == ("open", "standing")
    again = sf.decisions.show(open_.id)
    assert (again.outcome, again.closed_us) == (None, None)
    reopened = sf.decisions.reopen(order.id)
    assert reopened.state == "standing"
    sf.undo(order.id)
    assert sf.decisions.show(order.id).state == "withdrawn"
    sf.decisions.record("b", standing=True)
    with pytest.raises(standfast.Conflict, match="same standing order"):
        sf.decisions.reopen(order.id)


def test_secrets_are_replaced(sf: Standfast, text: Path) -> None:
    """Secrets of known forms are replaced in the exported text."""
    secret = "ghp_" + "a1B2" * 9
    sf.tasks.add(f"rotate {secret}", body=f"it is\n{secret}")
    sf.decisions.record("rotate", why=secret)
    sf.state.set("token", {"value": secret})
    sf.gates.add("curl*", why=secret)
    sf.export(text=text)
    written = "".join(path.read_text() for path in text.rglob("*") if path.is_file())
    assert secret not in written
    assert written.count("[redacted:github]") >= 5
    assert sf.imports.text(text).differences == []
