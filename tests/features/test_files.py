"""`standfast.files`: a crash never leaves a half-written file, and a large file can be imported into the store."""

from __future__ import annotations

import datetime
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

import standfast
from standfast import files
from standfast.errors import Busy, Conflict, InvalidInput, NotFound
from standfast.interchange import plain_files
from tests.interfaces.test_cli import run

VALUE = {"a": [1, 2.5, None], "text": "tab\t, line\nend, ü", "deep": {"x": {"y": True}}}
TOML = {"title": 'it\'s "x"\\', "n": 1, "at": datetime.date(2026, 11, 18), "t": {"a b": [1, 2], "u": {"v": {"w": 0.5}}}}
ROWS = [{"id": "1", "text": "a\tb\\n\nc\r"}, {"id": "2", "text": ""}]


@pytest.mark.parametrize(
    ("name", "value"), [("s.json", VALUE), ("s.toml", TOML), ("s.tsv", ROWS), ("l.json", [1, "x"])]
)
def test_read_returns_the_written_value(tmp_path: Path, name: str, value: Any) -> None:
    """001-40: JSON, TOML and TSV."""
    files.write(tmp_path / name, value)
    assert files.read(tmp_path / name) == value
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_a_missing_file_reads_as_empty(tmp_path: Path) -> None:
    """001-40: reading a missing file returns an empty value, or the default that the caller gives."""
    assert files.read(tmp_path / "s.json") == files.read(tmp_path / "s.toml") == files.read(tmp_path / "s.yaml") == {}
    assert files.read(tmp_path / "s.tsv") == []
    assert files.read(tmp_path / "s.json", {"n": 0}) == {"n": 0}


def test_a_directory_that_does_not_exist_is_reported_with_the_path_that_was_given(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as caught:
        files.replace(tmp_path / "none" / "x.zip", b"")
    assert caught.value.filename == str(tmp_path / "none" / "x.zip")


def test_yaml_is_read_by_the_safe_loader_and_not_written(tmp_path: Path) -> None:
    """001-40: the loader refuses a tag that would create a Python object."""
    (tmp_path / "s.yaml").write_text("a: [1, 2]\n")
    (tmp_path / "bad.yml").write_text("!!python/object/apply:os.system ['true']\n")
    assert files.read(tmp_path / "s.yaml") == {"a": [1, 2]}
    with pytest.raises(InvalidInput, match=r"bad\.yml is not YML: could not determine a constructor"):
        files.read(tmp_path / "bad.yml")
    with pytest.raises(InvalidInput, match="reads YAML and does not write it"):
        files.write(tmp_path / "s.yaml", {})


@pytest.mark.parametrize(
    ("name", "content", "fact"),
    [
        ("s.json", b"{", "is not JSON: Expecting property name"),
        ("s.json", b"\xff", "is not JSON: 'utf-8' codec"),
        ("s.json", b"[" * 200_000, "is not JSON: "),
        ("s.toml", b"a = = 1", "is not TOML: Invalid value"),
        ("s.tsv", b"a\tb\n1\n", "is not TSV: line 2 has 1 cells, the header has 2"),
        ("s.txt", b"", "must end in .json, .toml, .tsv, .yaml or .yml"),
    ],
)
def test_garbage_is_refused_by_its_name_and_stays_as_it_is(
    tmp_path: Path, name: str, content: bytes, fact: str
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(InvalidInput, match=fact):
        files.read(path)
    with pytest.raises(InvalidInput), files.locked(path) as value:
        value["n"] = 1
    assert path.read_bytes() == content


@pytest.mark.parametrize(
    ("name", "value", "fact"),
    [
        ("s.json", {"x": float("nan")}, "Out of range float values"),
        ("s.json", {"x": object()}, "not JSON serializable"),
        ("s.toml", [1], "a TOML file holds one mapping, not a list"),
        ("s.toml", {"x": None}, "TOML has no form for NoneType"),
        ("s.tsv", {"x": 1}, "a TSV file holds a list of mappings"),
        ("s.tsv", [{"a": 1}, {"b": 1}], "the columns are a; this row has b"),
    ],
)
def test_a_value_that_does_not_fit_leaves_the_old_file(tmp_path: Path, name: str, value: Any, fact: str) -> None:
    (tmp_path / name).write_text("old")
    with pytest.raises(InvalidInput, match=fact):
        files.write(tmp_path / name, value)
    assert (tmp_path / name).read_text() == "old"
    assert len(list(tmp_path.iterdir())) == 1


def test_a_write_keeps_permissions_and_follows_a_link(tmp_path: Path) -> None:
    (tmp_path / "real.json").write_text("{}")
    (tmp_path / "real.json").chmod(0o640)
    (tmp_path / "link.json").symlink_to("real.json")
    files.write(tmp_path / "link.json", {"n": 1})
    assert (tmp_path / "link.json").is_symlink()
    assert (tmp_path / "real.json").stat().st_mode & 0o777 == 0o640
    assert files.read(tmp_path / "real.json") == {"n": 1}


def test_a_block_that_fails_writes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "s.json"
    files.write(path, {"n": 1})
    with pytest.raises(ZeroDivisionError), files.locked(path) as value:
        value["n"] = 1 / 0
    assert files.read(path) == {"n": 1}


def test_a_lock_that_is_held_is_named_after_its_time(tmp_path: Path) -> None:
    path = tmp_path / "s.json"
    held = pytest.raises(Busy, match=r"held the lock of .*s\.json for 0\.05 s")
    with files.locked(path), held, files.locked(path, timeout=0.05):
        pass


def _count(path: str) -> None:
    for _ in range(25):
        with files.locked(path) as value:
            value["n"] = value.get("n", 0) + 1
        files.append(Path(path).with_suffix(".tsv"), {"pid": os.getpid(), "text": "x\ty"})


def test_four_processes_lose_no_change_and_no_row(tmp_path: Path) -> None:
    """001-66: one process at a time holds the file while it reads, changes and writes."""
    context = multiprocessing.get_context("spawn")
    children = [context.Process(target=_count, args=(str(tmp_path / "s.json"),)) for _ in range(4)]
    for child in children:
        child.start()
    for child in children:
        child.join(60)
    assert files.read(tmp_path / "s.json") == {"n": 100}
    assert len(files.read(tmp_path / "s.tsv")) == 100


KILLED = textwrap.dedent("""
    import os, signal, sys, types
    from standfast import files

    calls, limit = 0, int(sys.argv[2])

    class Counting(types.ModuleType):
        def __getattr__(self, name):
            real = getattr(os, name)
            if name in ("path", "PathLike", "fspath", "getpid", "urandom") or not callable(real):
                return real
            def call(*args, **named):
                global calls
                calls += 1
                if calls == limit:
                    os.kill(os.getpid(), signal.SIGKILL)
                return real(*args, **named)
            return call

    files.os = Counting("os")
    what, path = sys.argv[1], sys.argv[3]
    if what == "write":
        files.write(path, {"n": 2, "text": "y" * 10_000})
    elif what == "locked":
        with files.locked(path) as value:
            value.update(n=2, text="y" * 10_000)
    else:
        files.append(path, {"n": 2, "text": "y" * 10_000})
""")


@pytest.mark.parametrize("what", ["write", "locked", "append"])
def test_killed_at_any_system_call_the_file_is_old_or_new(tmp_path: Path, what: str) -> None:
    """001-28, 001-29: the test kills a process before its first system call, its second, and so on, until a run
    completes.
    """
    path = tmp_path / ("s.tsv" if what == "append" else "s.json")
    row = {"n": "1", "text": "x"}
    old, new = {"n": 1, "text": "x"}, {"n": 2, "text": "y" * 10_000}
    kills, seen = 0, []
    while True:
        path.unlink(missing_ok=True)
        files.write(path, [row] if what == "append" else old)
        child = subprocess.run([sys.executable, "-c", KILLED, what, str(kills + 1), str(path)], timeout=60)
        value = files.read(path)
        if what == "append":
            assert value in ([row], [row, {"n": "2", "text": "y" * 10_000}])
        else:
            assert value in (old, new)
        seen.append(len(value) > 1 if what == "append" else value == new)
        if child.returncode != -signal.SIGKILL:
            break
        kills += 1
    assert child.returncode == 0
    assert kills > 5
    assert seen[0] is False
    assert seen[-1] is True


def test_a_row_that_was_cut_off_is_ignored_and_set_aside(tmp_path: Path) -> None:
    path = tmp_path / "runs.tsv"
    files.append(path, {"id": 1, "state": "ok"})
    with path.open("ab") as file:
        file.write("2\tfäi".encode()[:-2])  # the cut is in the middle of a character
    with pytest.warns(files.CutLine, match=r"the last line has no end of line, so it is ignored \(4 bytes\)"):
        assert files.read(path) == [{"id": "1", "state": "ok"}]
    files.append(path, {"state": "ok", "id": 3})
    assert [row["id"] for row in files.read(path)] == ["1", "3"]
    assert (tmp_path / ".runs.tsv.cut").read_bytes() == b"2\tf\xc3\n"


def test_a_row_with_other_names_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "runs.tsv"
    files.append(path, {"id": 1})
    with pytest.raises(InvalidInput, match="the columns are id; this row has run"):
        files.append(path, {"run": 1})
    with pytest.raises(InvalidInput, match=r"only \.tsv files take rows"):
        files.append(tmp_path / "s.json", {"id": 1})
    assert files.read(path) == [{"id": "1"}]


@pytest.mark.parametrize(
    ("name", "value", "fact"),
    [
        ("s.json", {str(n): n for n in range(10_001)}, "10,001 records; 10,000 is the limit"),
        ("s.json", ["x" * 9_000_000], "bytes; 8,388,608 is the limit"),
        ("s.tsv", [{"n": n} for n in range(100_001)], "100,001 lines; 100,000 is the limit"),
    ],
)
def test_a_file_past_its_limit_warns_and_names_the_command(tmp_path: Path, name: str, value: Any, fact: str) -> None:
    """001-53: the limits are 10,000 records or 8 MB (JSON) and 100,000 lines (TSV)."""
    with pytest.warns(files.FileStoreLimit, match=f"{fact}.*standfast import files .*{name}"):
        files.write(tmp_path / name, value)
    with pytest.warns(files.FileStoreLimit, match=fact):
        files.read(tmp_path / name)
    if name == "s.tsv":
        with pytest.warns(files.FileStoreLimit, match="100,002 lines"):
            files.append(tmp_path / name, {"n": 1})


# -- import into the store ---------------------------------------------------------------------------


def test_a_mapping_becomes_state_once(sf: standfast.Standfast, tmp_path: Path) -> None:
    """001-53: a file that became too large moves into the store; importing it again changes nothing."""
    path = str(tmp_path / "plan.json")
    files.write(path, {"next": "tests", "n": 1, "deep": {"a": [1]}})
    first = plain_files.run(sf, path)
    assert (first.to, first.name, first.added, first.known) == ("state", "plan", 3, 0)
    assert sf.state.get("deep", namespace="plan").value == {"a": [1]}
    sf.state.set("n", 2, namespace="plan")
    files.write(path, {"next": "tests", "n": 1, "deep": {"a": [1]}, "new": None})
    again = plain_files.run(sf, path)
    assert (again.added, again.known, again.different) == (1, 2, ["n"])
    assert sf.state.get("n", namespace="plan").value == 2


def test_rows_become_a_stream_and_an_import_continues_at_its_end(sf: standfast.Standfast, tmp_path: Path) -> None:
    path = str(tmp_path / "runs.tsv")
    files.write(path, [{"id": str(n)} for n in range(1200)])
    assert plain_files.run(sf, path, dry_run=True).added == 1200
    assert plain_files.run(sf, path).added == 1200
    files.append(path, {"id": "last"})
    again = plain_files.run(sf, path)
    assert (again.added, again.known) == (1, 1200)
    assert sf.events.read("runs", after=1199)[-1].data == {"id": "last"}
    files.write(path, [{"id": "other"}])
    with pytest.raises(Conflict, match="event 1 of the stream 'runs' is not row 1 of"):
        plain_files.run(sf, path)


@pytest.mark.parametrize(
    ("name", "records", "known"), [("s.json", 250, plain_files.STATE_BATCH), ("s.tsv", 1100, plain_files.BATCH)]
)
def test_a_killed_import_continues_without_loss_or_repeat(
    engine_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, records: int, known: int
) -> None:
    monkeypatch.chdir(tmp_path)  # state belongs to a repository, and this command runs outside any repository
    path = str(tmp_path / name)
    files.write(
        path, [{"n": str(n)} for n in range(records)] if name == "s.tsv" else {f"k{n}": n for n in range(records)}
    )
    killed = run(
        "import", "files", path, home=tmp_path, STANDFAST_DB_URL=engine_url, STANDFAST_CRASH_AT="import.after_batch"
    )
    assert killed.returncode == -signal.SIGKILL
    with standfast.open(engine_url) as sf:
        again = plain_files.run(sf, path)
        assert (again.added, again.known) == (records - known, known)
        assert plain_files.run(sf, path).added == 0


def test_a_value_that_cannot_be_stored_writes_nothing(sf: standfast.Standfast, tmp_path: Path) -> None:
    path = tmp_path / "s.json"
    path.write_text('{"a": 1, "b": "\\ud800"}')
    with pytest.raises(InvalidInput):
        plain_files.run(sf, str(path))
    with pytest.raises(NotFound):
        sf.state.get("a", namespace="s")
    path.write_text("7")
    with pytest.raises(InvalidInput, match="holds one int"):
        plain_files.run(sf, str(path))


def test_the_command_prints_what_it_imported(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    files.write(path, {"a": 1})
    done = run("import", "files", str(path), home=tmp_path)
    assert f"1 records in {path}: added 1 to state, namespace 'plan', 0 known already" in done.stdout
    assert "standfast state list --namespace plan" in done.stderr + done.stdout
    assert run("import", "files", str(tmp_path / "none.json"), home=tmp_path).returncode == 3
    assert (
        json.loads(run("state", "list", "--namespace", "plan", "--json", home=tmp_path).stdout)["data"][0]["key"] == "a"
    )
