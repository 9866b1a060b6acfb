"""The command line for people and scripts, in real processes where this makes a difference."""

from __future__ import annotations

import json
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

import standfast
from standfast import errors
from standfast.cli import app, exits, render
from standfast.cli.frame import Command, Noun, command, scope_options
from standfast.cli.output import Format, Out, dumps
from standfast.cli.registry import BY_NAME, ENTRIES, FRONT, GROUPS
from standfast.cli.render import Column
from standfast.ids import new_id, short
from tests.commands import MAIN
from tests.commands import run as forked

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


def run(
    *words: str, home: Path, cwd: Path | None = None, input: str | None = None, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run `standfast words…` in a new process with its own home."""
    return forked(*words, environment=environment(home, **variables), cwd=cwd or home, input=input)


def environment(home: Path, **variables: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in ("STANDFAST_DATA_DIR", "TERM")}
    return {**kept, "HOME": str(home), "USER": "ada", **variables}


def on_a_terminal(*words: str, home: Path, **variables: str) -> str:
    """The output of both streams on a terminal of 80 columns."""
    controller, terminal = pty.openpty()
    command = [sys.executable, "-c", MAIN, *words]
    variables = {"TERM": "xterm", "COLUMNS": "80", **variables}
    process = subprocess.Popen(
        command, env=environment(home, **variables), cwd=home, stdin=terminal, stdout=terminal, stderr=terminal
    )
    os.close(terminal)
    seen = b""
    while chunk := _read(controller):
        seen += chunk
    os.close(controller)
    assert process.wait() == 0
    return seen.decode().replace("\r\n", "\n")


def _read(fd: int) -> bytes:
    try:
        return os.read(fd, 65536)
    except OSError:  # the other end of the pty is closed
        return b""


def make_store(home: Path) -> None:
    standfast.open(home / ".standfast" / "standfast.db", data_dir=home / ".standfast").close()


# Commands that only read create nothing.


@pytest.mark.parametrize(
    "words",
    [
        ["where"],
        ["where", "--json"],
        ["--help"],
        ["help", "all"],
        ["--version"],
        [],
        ["status", "--json"],
        ["db"],
        ["doctor"],
        ["completion", "bash"],
        ["sql", "SELECT 1"],
        ["verify", "1:h1:" + "0" * 64],
        ["migrate"],
    ],
    ids=" ".join,
)
def test_looking_creates_nothing(words: list[str], home: Path) -> None:
    """000-3, 003-3: `where` and other reading commands leave a fresh home unchanged."""
    done = run(*words, home=home)
    assert done.returncode in (0, 2, 3), done.stderr
    assert "Traceback" not in done.stderr
    assert list(home.iterdir()) == []


def test_where_has_a_one_path_answer(home: Path) -> None:
    """000-3, 003-6, 003-13: the answer to "where is my data" is one path."""
    done = run("where", home=home)
    assert (done.returncode, done.stderr) == (0, "")
    assert f"store   {home}/.standfast/standfast.db\nengine  sqlite\n" in done.stdout


def test_where_follows_home_and_the_data_directory(home: Path, tmp_path: Path) -> None:
    """000-31, 000-33: both are read when the command runs."""
    moved = json.loads(run("where", "--json", home=home, STANDFAST_DATA_DIR=str(tmp_path / "d")).stdout)["data"]
    assert moved["data_dir"] == str(tmp_path / "d")
    assert moved["store"] == str(tmp_path / "d" / "standfast.db")
    usual = json.loads(run("where", "--json", home=home).stdout)["data"]
    assert usual["data_dir"] == str(home / ".standfast")
    assert usual["exists"] is False


def test_where_masks_and_does_not_connect(home: Path) -> None:
    """003-4, 003-24: one variable selects the engine; its password is never printed."""
    done = run("where", home=home, STANDFAST_DB_URL="postgres://ada:hunter2@127.0.0.1:1/state")
    assert done.returncode == 0
    assert "engine  postgres" in done.stdout
    assert "postgres://ada:***@127.0.0.1:1/state" in done.stdout
    assert "hunter2" not in done.stdout + done.stderr


# Status.


def test_without_a_command_it_prints_the_status(home: Path) -> None:
    """003-8, 003-40: the first screen shows the store, its content and the next command."""
    first = run(home=home)
    assert "nothing yet" in first.stdout
    assert "next: standfast demo" in first.stderr
    make_store(home)
    data = json.loads(run("--json", home=home).stdout)["data"]
    assert data["exists"] is True
    assert data["schema_version"] >= 1
    assert data["counts"]["event"] == 0
    assert data["needs"] == []
    assert "Nothing needs you now." in run("status", home=home).stdout


# Formats.


def test_one_document_or_a_record_a_line(home: Path) -> None:
    document = json.loads(run("where", "--json", home=home).stdout)
    assert document.keys() == {"schema_version", "data"}
    assert document["schema_version"] == 1
    assert json.loads(run("where", "--jsonl", home=home).stdout) == document["data"]
    assert json.loads(run("--json", "where", home=home).stdout) == document


def test_a_list_has_its_cursor_beside_it(home: Path) -> None:
    listed = json.loads(run("help", "exit-codes", "--json", home=home).stdout)
    assert listed.keys() == {"schema_version", "data", "next"}
    assert listed["next"] is None
    lines = run("help", "exit-codes", "--jsonl", home=home).stdout.splitlines()
    assert [json.loads(line) for line in lines] == listed["data"]


def test_a_cursor_is_shown_in_every_format(capsys: pytest.CaptureFixture[str]) -> None:
    formats: list[Format] = ["text", "json", "jsonl"]
    for format in formats:
        Out(format).rows([{"a": 1}], ["a"], next="s:7", then="standfast where")
        shown = capsys.readouterr()
        if format == "json":
            assert json.loads(shown.out)["next"] == "s:7"
        else:
            assert "more: --after s:7" in shown.err
        assert ("next: standfast where" in shown.err) == (format == "text")


def test_errors_are_text_or_one_json_object_on_stderr(home: Path) -> None:
    for words in (["--json", "bogus"], ["where", "--bogus", "--json"], ["bogus", "--jsonl"]):
        done = run(*words, home=home)
        error = json.loads(done.stderr)["error"]
        assert (done.returncode, done.stdout, error["code"]) == (2, "", "usage")
        assert error.keys() == {"code", "message", "hint"}
    done = run("sql", "SELECT 1", "--json", home=home)
    assert (done.returncode, json.loads(done.stderr)["error"]["code"]) == (3, "not_found")
    done = run("sql", "SELECT 1", home=home)
    assert done.stderr.startswith("standfast: there is no store at ")
    assert done.stderr.count("\n") == 2


def test_json_after_two_dashes_belongs_to_the_command(home: Path) -> None:
    done = run("bogus", "--", "--json", home=home)
    assert done.stderr.startswith("standfast: there is no command bogus")


def test_any_value_of_a_row_is_printed_as_json() -> None:
    from datetime import UTC, datetime
    from decimal import Decimal

    row = {
        "bytes": b"\x00\xff",
        "nan": float("nan"),
        "inf": [float("inf")],
        "whole": Decimal(12345678901234567890),
        "part": Decimal("0.5"),
        "time": datetime(2026, 1, 2, tzinfo=UTC),
        "text": "ü\n\x1b",
        "set": {1},
    }
    assert json.loads(dumps(row)) == {
        "bytes": "00ff",
        "nan": "nan",
        "inf": ["inf"],
        "whole": 12345678901234567890,
        "part": 0.5,
        "time": "2026-01-02T00:00:00+00:00",
        "text": "ü\n\x1b",
        "set": [1],
    }


def test_output_is_valid_in_any_encoding_of_the_terminal(home: Path) -> None:
    make_store(home)
    done = run("sql", "SELECT 'ü→' AS x", "--json", home=home, PYTHONIOENCODING="ascii")
    assert json.loads(done.stdout)["data"] == [{"x": "ü→"}]
    assert run("sql", "SELECT 'ü→' AS x", home=home, PYTHONIOENCODING="ascii").returncode == 0


# Exit codes.


def test_the_exit_codes_are_frozen() -> None:
    """DESIGN §5: scripts branch on these."""
    classes: list[type[errors.StandfastError]] = [errors.StandfastError, *every_subclass(errors.StandfastError)]
    assert {cls.__name__: exits.code_of(cls("x")) for cls in classes} == {
        "StandfastError": 1,
        "InvalidInput": 2,
        "NotFound": 3,
        "Conflict": 4,
        "KeyConflict": 4,
        "InProgress": 75,
        "LeaseLost": 4,
        "VersionConflict": 4,
        "IllegalTransition": 4,
        "EffectInDoubt": 6,
        "ApprovalRequired": 5,
        "NoAnswer": 1,
        "NoSession": 1,
        "StorageError": 1,
        "Busy": 75,
        "CommitUnknown": 75,
        "SchemaTooNew": 78,
        "UnsafeStorage": 78,
        "Corrupt": 1,
    }
    assert exits.code_of(errors.InvalidInput("x", code="configuration")) == 78
    assert list(exits.MEANINGS) == [0, 1, 2, 3, 4, 5, 6, 7, 75, 78, 130, 141]


def every_subclass(cls: type[errors.StandfastError]) -> Iterator[type[errors.StandfastError]]:
    for sub in cls.__subclasses__():
        if sub.__module__ == "standfast.errors":
            yield sub
            yield from every_subclass(sub)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.InvalidInput("x"), 2),
        (errors.InvalidInput("x", code="configuration"), 78),
        (errors.NotFound("x"), 3),
        (errors.Busy("x"), 75),
        (errors.SchemaTooNew("x"), 78),
        (errors.Corrupt("x"), 1),
        (RuntimeError("x"), 1),
        (KeyboardInterrupt(), 130),
        (BrokenPipeError(), 141),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else str(value),
)
def test_every_exception_has_its_exit_code(
    error: BaseException, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(**_: object) -> None:
        raise error

    monkeypatch.setattr("standfast.config.load", fail)
    assert app.run(["where"]) == code
    said = capsys.readouterr()
    assert said.out == ""
    assert "Traceback" not in said.err
    assert bool(said.err) == (code not in (130, 141))


def test_a_bad_setting_exits_78(home: Path) -> None:
    (home / ".standfast").mkdir()
    (home / ".standfast" / "config.toml").write_text("db_ulr = 'x'")
    for words in (["where"], [], ["db"], ["sql", "SELECT 1"]):
        done = run(*words, home=home)
        assert done.returncode == 78
        assert "did you mean 'db_url'" in done.stderr
    assert run("where", home=home, STANDFAST_DB_URL="mysql://h/d", STANDFAST_DATA_DIR="x").returncode == 78


# Tracebacks.


@pytest.mark.parametrize("words", [["-v", "status"], ["--debug", "status"], ["status", "--debug"]], ids=" ".join)
def test_a_traceback_is_shown_on_request_and_holds_no_password(words: list[str], home: Path) -> None:
    """003-24: this includes errors and tracebacks."""
    url = "postgresql://ada:hunter2@127.0.0.1:1/state?connect_timeout=1&sslpassword=opensesame"
    done = run(*words, home=home, STANDFAST_DB_URL=url)
    assert done.returncode != 0
    assert "Traceback" in done.stderr
    assert "hunter2" not in done.stdout + done.stderr
    assert "opensesame" not in done.stdout + done.stderr
    quiet = run("status", home=home, STANDFAST_DB_URL=url)
    assert "Traceback" not in quiet.stderr
    assert "hunter2" not in quiet.stderr


# Signals and pipes.


def test_a_closed_pipe_is_not_an_error_message(home: Path) -> None:
    make_store(home)
    query = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i FROM n LIMIT 200000"
    for format in ([], ["--json"], ["--jsonl"]):
        process = subprocess.Popen(
            [sys.executable, "-c", MAIN, "sql", query, *format],
            env=environment(home),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() == 141
        process.stderr.close()


def test_a_short_answer_into_a_closed_pipe_is_quiet(home: Path) -> None:
    done = subprocess.run(
        ["sh", "-c", f'"{sys.executable}" -c "{MAIN}" where | true; exit 0'],
        env=environment(home),
        capture_output=True,
        text=True,
    )
    assert done.stderr == ""


def test_an_answer_that_cannot_be_written_is_a_failure(home: Path) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("this system has no device that is always full")
    command = [sys.executable, "-c", MAIN, "where"]
    with open("/dev/full", "w") as full:
        done = subprocess.run(command, env=environment(home), stdout=full, stderr=subprocess.PIPE, text=True)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "No space left on device" in done.stderr


def test_a_closed_stream_is_an_empty_one(home: Path) -> None:
    script = f'"{sys.executable}" -c "{MAIN}" where >&- 2>&-'
    assert subprocess.run(["sh", "-c", script], env=environment(home)).returncode == 0


def test_ctrl_c_is_quiet(home: Path) -> None:
    make_store(home)
    process = subprocess.Popen(
        [sys.executable, "-c", f"print('up', flush=True); {MAIN}", "sql", "-"],
        env=environment(home),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stdout.readline() == b"up\n"
    _until_it_reads(process.pid)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate()
    assert (process.returncode, out, err) == (130, b"", b"")


def _until_it_reads(pid: int) -> None:
    """Wait until the process sleeps in a read of its stdin."""
    end = time.monotonic() + 30
    while time.monotonic() < end:
        try:
            if Path(f"/proc/{pid}/syscall").read_text().startswith("0 0x0 "):
                return
        except OSError:
            pytest.skip("this system does not show what a process waits for")
        time.sleep(0.01)
    raise AssertionError("the command never came to read its input")


# Terminals.


def test_color_is_only_for_terminals_that_want_it(home: Path) -> None:
    assert "\x1b[" in on_a_terminal("help", "exit-codes", home=home)
    assert "\x1b[" not in on_a_terminal("help", "exit-codes", home=home, NO_COLOR="1")
    assert "\x1b[" not in on_a_terminal("help", "exit-codes", home=home, TERM="dumb")
    assert "\x1b[" not in run("help", "exit-codes", home=home).stdout
    assert "\x1b[" in run("doctor", home=home, FORCE_COLOR="1").stdout
    assert "\x1b[" not in run("doctor", home=home, FORCE_COLOR="1", NO_COLOR="1").stdout


def test_what_was_recorded_cannot_touch_the_terminal(home: Path) -> None:
    make_store(home)
    query = "SELECT 'a' || char(27) || ']0;owned' || char(7) || char(10) || 'b' || char(8238) AS x"
    assert run("sql", query, home=home).stdout == "x\na\\u001b]0;owned\\u0007 b\\u202e\n"
    assert "\x1b]" not in on_a_terminal("sql", query, home=home)


def test_a_table_fits_the_terminal_and_is_whole_in_a_pipe(home: Path) -> None:
    make_store(home)
    query = f"SELECT 1 AS n, '{'x' * 300}' AS long, 'short' AS s"
    seen = on_a_terminal("sql", query, home=home, NO_COLOR="1").splitlines()
    assert max(map(len, seen)) <= 80
    assert "".join(seen).count("x") == 300  # it wraps
    assert f"\n{'x' * 70}\n" in on_a_terminal("sql", f"SELECT '{'x' * 70}' AS x", home=home)  # without a size: 80
    assert run("sql", query, home=home).stdout == f"n\tlong\ts\n1\t{'x' * 300}\tshort\n"


NUMBERS = st.integers(-(2**63), 2**63)


@given(
    st.lists(st.fixed_dictionaries({"a": st.text(), "b": NUMBERS | st.none(), "c": st.text(max_size=3)})),
    st.integers(30, 120),
)
def test_no_text_breaks_a_table(rows: list[dict[str, object]], width: int) -> None:
    """Free text wraps. A number or a key is never cut: three escaped characters and the heading take 43 columns."""
    columns = [Column("a", wraps=True), Column("b"), Column("c", "the third")]
    for line in render.table(rows, columns, width=width):
        assert line.isprintable()
        assert render.width_of(line) <= max(width, 60)


WORDS = st.text(st.characters(categories=("L", "N"), max_codepoint=0x2FF), min_size=1, max_size=12)


@given(st.lists(st.tuples(WORDS, st.lists(WORDS, max_size=30)), min_size=1, max_size=5), st.integers(40, 120))
def test_a_table_cuts_no_key_and_no_word(rows: list[tuple[str, list[str]]], width: int) -> None:
    """003-40: a key is printed whole on one line, and free text wraps inside the width of the terminal."""
    columns = [Column("key"), Column("why"), Column("id")]
    given_rows = [{"key": key, "why": " ".join(words), "id": "9k-m4x"} for key, words in rows]
    lines = list(render.table(given_rows, columns, width=width))
    assert max(map(render.width_of, lines)) <= width
    printed = " ".join(lines)
    for key, words in rows:
        assert any(line.startswith(key) for line in lines)
        assert all(word in printed for word in words) or "…" in printed
    assert printed.count("9k-m4x") == len(rows)


def test_a_long_word_does_not_move_the_free_text_of_every_row_below() -> None:
    """A word is broken if the last free column would not fit beside the keys otherwise."""
    columns = [Column("who"), Column("what"), Column("id")]
    rows = [{"who": "w" * 30, "what": "restored from " + "c" * 38, "id": "i" * 12}]
    head, *_ = render.table(rows, columns, width=80)
    assert head.split() == ["who", "what", "id"]


def test_wide_and_combining_characters_are_measured() -> None:
    assert [render.width_of(text) for text in ("abc", "日本", "e\u0301", "")] == [3, 4, 1, 0]
    assert render.fit("日本語", 4) == "日…"
    assert render.pad("日本", 6) == "日本  "


def test_ids_are_short_in_tables() -> None:
    made = new_id("evt")
    (_, line) = render.table([{"id": made}], [Column("id", show=short)], width=80)
    assert line == made[-6:]


# Help.


def test_the_help_is_one_screen_in_six_groups() -> None:
    """003-40: at most 24 commands on the first screen, in their order; the rest is in `help all`."""
    lines = app.help_screen().splitlines()
    assert len(lines) <= 42
    assert max(map(len, lines)) <= 100
    assert len(GROUPS) == 6
    assert len(FRONT) == 24
    assert [entry.name for entry in ENTRIES if entry.front] == [name for name in FRONT if name in BY_NAME]
    assert {entry.group for entry in ENTRIES} <= GROUPS.keys()
    everything = app.help_screen(everything=True)
    assert [entry.name for entry in ENTRIES if f"\n  {entry.name} " not in everything] == []


def commands() -> list[tuple[str, click.Command]]:
    root = app.build()
    found: list[tuple[str, click.Command]] = []
    for name in BY_NAME:
        command = root.get_command(click.Context(root), name)
        assert command is not None
        found.append((name, command))
        if isinstance(command, Noun):
            found += [(f"{name} {verb}", inner) for verb, inner in command.every_command().items()]
    return found


@pytest.mark.parametrize(("name", "command"), commands(), ids=[name for name, _ in commands()])
def test_every_help_ends_with_two_examples(name: str, command: click.Command) -> None:
    assert isinstance(command, Command | Noun)
    text = command.get_help(click.Context(command, info_name=f"standfast {name}"))
    examples = text.rpartition("Examples:\n")[2].splitlines()
    assert len(examples) == 2
    assert all("standfast" in line for line in examples)
    assert "--json" in text
    assert "-h, --help" in text
    options = [p for p in command.get_params(click.Context(command)) if isinstance(p, click.Option) and not p.hidden]
    helps = {p.opts[0]: p.help or "" for p in options}
    assert [name for name, help in helps.items() if "\n" in help or not help.partition("[default:")[0].strip()] == []
    assert (command.help or "").splitlines()[0].endswith(".")


def test_help_shows_one_commands_page(home: Path) -> None:
    assert run("help", "db", "pg", home=home).stdout == run("db", "pg", "--help", home=home).stdout
    assert run("help", "where", home=home).stdout == run("where", "-h", home=home).stdout
    assert run("help", "where", "up", home=home).returncode == 2


def test_the_version_names_the_libraries_that_hold_the_data(home: Path) -> None:
    import apsw

    line = run("--version", home=home).stdout
    assert line.startswith(f"standfast {standfast.__version__} (python 3.")
    assert f"sqlite {apsw.sqlite_lib_version()}" in line
    assert "psycopg" in line
    assert json.loads(run("--version", "--json", home=home).stdout)["data"]["apsw"] == apsw.apsw_version()


def test_a_slip_of_the_finger_is_answered(home: Path) -> None:
    done = run("doctr", home=home)
    assert (done.returncode, done.stderr.splitlines()[-1]) == (2, "  standfast doctor")


# Completion.


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_completion_script_is_printed_and_is_a_script(shell: str, home: Path) -> None:
    done = run("completion", shell, home=home)
    assert done.returncode == 0
    assert "_STANDFAST_COMPLETE" in done.stdout
    assert done.stderr == ""  # a shell reads the script each time it starts
    if shutil.which(shell):
        checked = subprocess.run([shell, "-n"], input=done.stdout, capture_output=True, text=True)
        assert checked.returncode == 0, checked.stderr


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("standfast wh", {"where"}),
        ("standfast do", {"doctor"}),
        ("standfast --ver", {"--verbose", "--version"}),
        ("standfast db p", {"pg"}),
        ("standfast doctor --f", {"--fix"}),
        ("standfast completion z", {"zsh"}),
    ],
)
def test_commands_verbs_and_options_are_completed(typed: str, offered: set[str], home: Path) -> None:
    words = typed.split()
    done = run(home=home, _STANDFAST_COMPLETE="bash_complete", COMP_WORDS=typed, COMP_CWORD=str(len(words) - 1))
    assert {line.partition(",")[2] for line in done.stdout.splitlines()} == offered


# Scope flags.


def test_scope_flags_choose_every_repository_or_none() -> None:
    seen: list[str | None] = []

    @command("show", examples=("", ""))
    @scope_options
    def show(out: object, scope_choice: str | None) -> None:
        seen.append(scope_choice)

    for words in ([], ["--all"], ["--global"]):
        show.main(words, standalone_mode=False)
    assert seen == [None, "all", "global"]


# Cost.


HEAVY = [
    "asyncio", "hashlib", "importlib.metadata", "importlib.resources", "locale", "pathlib", "psycopg",
    "shutil", "socket", "ssl", "subprocess", "tomllib",
]  # fmt: skip


@pytest.mark.parametrize(
    ("words", "also"),
    [
        (["where"], ["apsw", "dataclasses", "json", "standfast.cli.aliases", "standfast.db"]),
        (["task", "list"], ["dataclasses", "difflib", "standfast.db.postgres", "standfast.record.messages"]),
    ],
)
def test_a_command_imports_nothing_heavy(home: Path, words: list[str], also: list[str]) -> None:
    """RULES §10: agents start this hundreds of times an hour."""
    make_store(home)
    code = (
        f"import sys; sys.argv = ['standfast', *{words!r}]; from standfast.cli import main; main()\n"
        f"print([name for name in {HEAVY + also!r} if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-S", "-c", code],
        env=environment(home, PYTHONPATH=os.pathsep.join(path for path in sys.path if path)),
        cwd=home,
        capture_output=True,
        text=True,
    )
    assert done.stdout.splitlines()[-1] == "[]", done.stdout + done.stderr


def test_an_answer_that_cannot_be_written_is_a_failure_and_a_hook_passes(home: Path) -> None:
    """DESIGN §5: on a full disk a command exits with another code, but a hook still lets the call pass."""
    for words, exit_code in ((["where"], 1), (["hook", "claude-code"], 0)):
        with open("/dev/full", "w") as full:
            done = subprocess.run([sys.executable, "-m", "standfast", *words], env=environment(home), stdout=full)
        assert done.returncode == exit_code


def test_a_hook_starts_without_importing_click(home: Path) -> None:
    """RULES §10: a hook must not import the command line's parser, which it does not use."""
    code = (
        "import sys, types; hook = types.ModuleType('hook'); hook.enter = lambda words: len(words) * 10\n"
        "sys.modules['hook'] = hook; sys.argv = ['standfast', 'hook', 'a', 'b']\n"
        "from standfast import cli; cli.DIRECT['hook'] = 'hook:enter'; code = cli.main()\n"
        "print(code, 'click' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], env=environment(home), capture_output=True, text=True)
    assert done.stdout == "20 False\n", done.stderr


def test_the_table_of_commands_has_no_unused_word() -> None:
    for entry in ENTRIES:
        assert re.fullmatch(r"[a-z-]+", entry.name)
        assert len(entry.summary) <= 60


def test_a_list_by_ids_refuses_an_invalid_cursor(home: Path) -> None:
    """RULES 7: a short id as a cursor would silently begin at a wrong row."""
    make_store(home)
    for words in (
        "effect list",
        "decision list",
        "artifact list",
        "mail dead",
        "webhook list",
        "approval list",
        "gate list",
    ):
        done = run(*words.split(), "--after", "9k2m4x", "--json", home=home)
        assert (done.returncode, json.loads(done.stderr)["error"]["code"]) == (2, "invalid_input"), words
