"""Every hint that a command prints works when it is pasted where it was printed.

The scripts type every command. Each hint that a line prints is pasted, and then the home gets its files back, so that a
hint cannot change what later lines find. A further test types every command in states in which it fails.
tests/interfaces/test_screens.py pastes the hints of the screens.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext
from pathlib import Path

import click
import pytest

from standfast.cli import app, exits
from standfast.cli.frame import LISTS, CommandLine, Noun
from standfast.cli.registry import BY_NAME
from standfast_prove.postgres import fresh_database
from tests import commands, remembering

TRANSCRIPTS = Path(__file__).parents[1] / "fixtures" / "transcripts"
LANGGRAPH = """
CREATE TABLE checkpoints (thread_id, checkpoint_ns, checkpoint_id, parent_checkpoint_id, type, checkpoint, metadata);
CREATE TABLE writes (thread_id, checkpoint_ns, checkpoint_id, task_id, idx, channel, type, value);
INSERT INTO checkpoints VALUES ('t1', '', 'c1', NULL, 'json', '{}', '{}');
"""
IDS = re.compile(r"\b([a-z]{3})_[0-9a-hjkmnp-tv-z]{26}\b")
NEXT = re.compile(r"(?m)^(?:next|  or): (.+)$")
HINT = re.compile(
    r"(?<![\w/.-])(?<!\$ )standfast ((?:--(?:scope|store) \S+ )?[a-z](?:(?!, or |, standfast )[^\n`;()])*)"
)
ALONE = re.compile(r"(?m)^(?:next: |  or: |  )standfast ([a-z]\S*)")
"""The first word of a command that has a line of its own. Elsewhere `standfast` may be the subject of a sentence."""
ENDLESS = {"event follow": "--idle 1ms", "mail follow": "--idle 1ms", "approval wait": "--timeout 1ms", "top": "--once"}
"""The option that ends a command that waits."""
IN_A_CHILD = (
    *("approve", "deny", "backup forget", "db move", "db trust", "effect check", "loop run"),  # these may ask a person
    *("restore", "session resume", "state check", "store reset"),  # these too
    *("bench", "daemon run", "daemon start", "daemon stop", "effect compensate", "hook", "mcp"),
)
"""A child process runs these. It has streams of its own, and a terminal where a person types yes to each question."""
SCRIPT = r"""
task add "fix the parser" --kind ci
task claim {tsk}
task renew {tsk}
task note {tsk} "looked"
task release {tsk}
task snooze {tsk} --for 2h
task reopen {tsk}
task edit {tsk} --title "repair the parser"
task accept {tsk} --reason known
task reopen {tsk}
task done {tsk} --result ok
task sweep lint --seen "unused import"
task next
task show {tsk}
session open fix-42
session say fix-42 "I look first"
session fork fix-42 --new-key fix-43
session end fix-42
session show fix-42
session run nightly -- true
session resume nightly
decide "edit parser.py" --why "the test names it" --then "patch it"
decision done {dec} --outcome ok
decision reopen {dec}
decision fail {dec} --why "it grew"
decide "never force-push" --why "it lost work" --standing
decision withdraw {dec} --why "it is blocked now"
decision catch "changed the schema" --control review
decision list
decision caught
effect begin deploy to=prod --key deploy:42
effect done {eff} '{{"url": "https://shop"}}'
effect show {eff}
effect begin deploy to=test --key deploy:43
effect fail {eff} --why "no network"
effect begin deploy to=stage --key deploy:44 --plan
approval request {eff} --why "release day"
approval show {apr}
approval list
approve
deny
effect list
once build -- true
once build -- true
once upload -- sh -c 'exit 9'
once upload -- sh -c 'exit 9'
once upload --again -- sh -c 'exit 9'
effect resolve upload --not-applied --evidence "the bucket is empty"
once deletion --approve --why "disk is full" -- true
state set branch fix-42
state swap branch fix-43 --version 1
state set checked 1 --verify "test 1 = 1"
state check checked
state delete branch
state list
artifact put note.txt
artifact show {art}
artifact verify
artifact list
artifact remove {art}
mail send reviewer "please look at #42" --key review:42
mail receipts {mal}
mail read --to reviewer
mail renew {mal}
mail defer {mal} --until 1h
mail list reviewer
mail send tester "run it"
mail read --to tester
mail reply {mal} "it is green" --done
mail send tester "run it again"
mail read --to tester
mail refuse {mal} --reason "no such test"
mail dead
mail retry {mal}
mail show {mal}
lock deploy --for 10m
lock
lock deploy --release
loop add nightly --cron "0 3 * * *" -- true
loop pause nightly --reason "disk is full"
loop resume nightly
loop run nightly --here
loop runs nightly
loop list
loop show nightly
loop remove nightly
agent set coder --kind codex
agent list
agent show coder
event append orders order.paid '{{"n": 1}}'
event list orders
event streams
event consume billing orders
event consume billing orders
webhook receive stripe note.json --event-id e1 --kind invoice.paid
webhook list
webhook claim --source stripe
webhook fail {whk} --reason "no invoice"
webhook show {whk}
webhook receive stripe note.json --event-id e2
webhook done {whk}
credit add ada 100 --key c1
credit spend ada 10 --key c2
credit refund c2
credit list
gate add "git push*"
gate test "git push origin"
gate list
gate remove "git push*"
apply plan.toml
apply plan.toml --commit --key plan:1
search parser
show {tsk}
brief
usage
top --once
undo
backup
backup list
backup verify
backup test
restore --to look
verify
export fix-42 --to fix-42.zip
export --text record
export --text record --check
import text record
import files note.json
import list
sql "SELECT count(*) AS n FROM task"
doctor
where
db
store list
timeline
timeline --problems
install --check
completion bash
daemon status
status
task list
session list
session take fix-43 --yes
decision show {dec}
decision unwritten fix-42
state set attempts 3
state get attempts
state namespaces
knowledge add "CI needs node 20" --source https://ci.example.com/41
knowledge list
knowledge search node
knowledge show {knw}
knowledge forget {knw}
usage record fix-42 m-1 --input-tokens 800 --output-tokens 12
usage list
artifact put note.txt
artifact get {art}
artifact collect
mail send tester "and the docs"
mail read --to tester
mail release {mal} --reason "not for me"
mail read --to tester
mail done {mal}
mail send tester "and the site"
mail read --to tester
mail refuse {mal} --reason "no site"
mail resolve {mal} --note "looked by hand"
webhook receive stripe note.json --event-id e3
webhook claim --source stripe
webhook renew {whk}
webhook fail {whk} --reason "no invoice" --dead
webhook dead
webhook retry {whk}
webhook claim --source stripe
webhook fail {whk} --reason "no invoice" --dead
webhook resolve {whk} --note "refunded by hand"
loop add weekly --every 1w -- true
loop run weekly
loop cancel {run}
agent name boss
event consumers
event diff orders --from 0
credit balance
credit show c1
gate add --preset git-push
gate pause "git push*" --for 2h --why "release day"
gate list
gate resume "git push*"
budget set agent:coder --tokens 5000 --per day
budget reserve agent:coder --tokens 3000 --key call:7
budget show agent:coder
budget holds
budget settle call:7 --tokens 812
budget reserve agent:coder --tokens 3000 --key call:8
budget doubt call:8
budget release call:8
budget list
budget remove agent:coder
backup take
backup show {cpy}
backup audit look
store push pushed
import bundle fix-42.zip
db status
db sqlite
effect begin git.tag name=v1 commit={head} --key tag:v1 --for 1ms
effect check tag:v1
effect compensate deploy:42 -- true
effect begin deploy to=dev --key deploy:45 --plan
approval request {eff} --why "release day"
approval wait {apr} --timeout 1ms
deny {apr} --why "not on a Friday"
event follow orders --idle 1ms
mail follow reviewer --idle 1ms
mcp
mcp --tools
hook claude-code
help all
import beads
import claude-code {transcripts}/claude-code
import codex {transcripts}/codex
import gemini-cli {transcripts}/gemini-cli
import opencode {transcripts}/opencode
import json session.json
import langgraph checkpoints.sqlite
daemon install
db trust
backup
backup forget --keep 1h
db move sqlite other.db
db move sqlite other.db --commit
status
store create other
"""
"""Lines typed one after the other in one store."""
WITH_A_DAEMON = """
loop add hourly --every 1h -- echo done
daemon start
! daemon run
daemon status
loop run hourly
loop output hourly
daemon stop
daemon stop
"""
ON_A_SERVER = """
! db roles
db pg {url}
db
task add "fix the parser"
db roles --print
! knowledge index
status
db move sqlite
db
db move pg {other}
db
"""
REMEMBERED = """
task add "fix the parser"
store show
store list
backup
store reset
status
"""
LONG = """
demo restore
demo
prove --list
bench --quick --only opening
! bench --only none
crash --count sent.txt --points "session.*" -- {python} agent.py
! crash --count note.txt -- true
"""

ROWS = """
task add "fix the parser"
session open fix-42
effect begin deploy to=prod --key deploy:42
mail send reviewer "please look"
loop add nightly --cron "0 3 * * *" -- true
gate add "git push*"
"""
"""The rows of a store that has none of the ids in the lines of `failures`."""
CANNOT_FAIL = ("daemon run", "daemon start", "demo", "prove", "bench")
"""Without a store or an id these start to work."""

FILES = {
    "note.txt": "hello",
    "note.json": '{"a": 1}',
    "plan.toml": '[[tasks]]\ntitle = "write the docs"\n',
    "payload.json": '{"hook_event_name": "Stop", "session_id": "1"}',
    "session.json": '{"id": "night-1", "messages": [{"role": "user", "content": "fix it"}]}',
    ".beads/issues.jsonl": '{"id": "bd-1", "title": "think", "status": "open"}\n',
    "agent.py": 'import standfast\nwith standfast.session("job") as s:\n    s.step("plan", lambda: 1)\n',
}
STOPPED = ("daemon status", "install --check")
"""These exit with 3: no daemon runs, no agent is installed."""
PASSES = (exits.OK, exits.NEEDS_A_PERSON)
TO_FILL = re.compile(r"zzzzzz|\b(?:PATH|FILE|KEY)\b|\bpath/to/")
"""A hint with the unknown id, or with a word that a person replaces, may find nothing."""


class Shell:
    """A home with a repository and a store, and the printed text."""

    def __init__(self, home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self.home, self.repository = home, home / "shop"
        self.environment, self.capsys = monkeypatch, capsys
        for name, text in FILES.items():
            path = self.repository / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        git = ["git", "-C", str(self.repository), "-c", "user.name=ada", "-c", "user.email=ada@example.com"]
        for words in (["init", "-q", "--template="], ["commit", "-q", "--allow-empty", "-m", "one"]):
            subprocess.run([*git, *words], check=True)
        head = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout.strip()
        with closing(sqlite3.connect(self.repository / "checkpoints.sqlite")) as threads, threads:
            threads.executescript(LANGGRAPH)
        self.filled = {
            "apply FILE": f"apply {self.repository}/plan.toml",
            "import langgraph PATH": f"import langgraph {self.repository}/checkpoints.sqlite",
            "install AGENT": "install codex",
            "PATH": f"{self.repository}/note.json",
        }
        """Words of hints that a person replaces before pressing Enter, and the values."""
        self.values = {"head": head, "transcripts": str(TRANSCRIPTS), "python": sys.executable}
        monkeypatch.setenv("HOME", str(home))
        monkeypatch.setenv("STANDFAST_STORE", "default")  # a line of the script chooses another one
        monkeypatch.delenv("STANDFAST_DATA_DIR")
        monkeypatch.chdir(self.repository)

    def run(self, line: str) -> tuple[int, str]:
        """Run a command here, and return its exit code and the printed text."""
        line, _, file = line.partition(" < ")
        words, given = shlex.split(line), Path(file.strip()).read_text() if file else None
        if file or line.startswith(IN_A_CHILD):
            done = commands.run(*words, environment=os.environ, cwd=Path.cwd(), input=given, answer="yes")
            return done.returncode, f"{done.stdout}\n{done.stderr}"
        code = app.run(words)
        out, err = self.capsys.readouterr()
        return code, f"{out}\n{err}"

    def typed(self, line: str) -> tuple[int, str]:
        code, printed = self.run(line.format_map(self.values))
        self.values |= {found[1]: found[0] for found in IDS.finditer(printed)}
        return code, printed

    def pasted(self, hint: str) -> tuple[int, str]:
        more = next((words for start, words in ENDLESS.items() if hint.startswith(start)), "")
        for words, value in self.filled.items():
            hint = hint.replace(words, value)
        try:
            return self.run(f"{hint} {more}")
        finally:
            if hint.startswith("daemon start"):
                self.run("daemon stop --now")

    @contextmanager
    def on_a_server(self, server_url: str) -> Iterator[str]:
        """The URL of an empty database. A person fills it in."""
        with fresh_database(server_url) as url:
            (self.home / "url.txt").write_text(url)
            self.environment.setenv("DATABASE", url)
            self.filled |= {"< FILE": f"< {self.home}/url.txt", "--env NAME": "--env DATABASE"}
            self.filled |= {"postgresql://USER@HOST/DB": url, "URL": url}
            yield url

    @contextmanager
    def put_back(self) -> Iterator[None]:
        """Afterwards the home has the files that it has now."""
        here, kept = Path.cwd(), Path(tempfile.mkdtemp(prefix=f"{self.home.name}-", dir=self.home.parent))
        shutil.copytree(self.home, kept, symlinks=True, dirs_exist_ok=True)
        try:
            yield
        finally:
            shutil.rmtree(self.home)
            kept.rename(self.home)
            os.chdir(here)


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Shell:
    return Shell(tmp_path / "home", monkeypatch, capsys)


def hints(printed: str) -> list[str]:
    """The commands in a text, without the word `standfast`."""
    found = [line.strip().rstrip(".,") for line in HINT.findall(printed)]
    words = {*BY_NAME, "--store", "--scope", *ALONE.findall(printed)}
    return [line for line in dict.fromkeys(found) if shlex.split(line)[0] in words]


def wrong_hints(shell: Shell, line: str, found: list[str], *, put_back: bool = True) -> list[tuple[object, ...]]:
    """Paste the hints of a line, and return those that fail."""
    wrong: list[tuple[object, ...]] = []
    for hint in found:
        with shell.put_back() if put_back else nullcontext():
            code, said = shell.pasted(hint)
        if code not in PASSES and not hint.startswith(STOPPED):
            wrong.append((line, hint, code, said.strip()[-300:]))
    return wrong


def test_every_hint_after_a_command_that_writes_can_be_pasted(shell: Shell) -> None:
    """003-40: each command runs, or says that a person has to type it; a shell parses each `next:` line as it is."""
    wrong: list[tuple[object, ...]] = []
    lines: list[str] = []
    lists: dict[str, int] = {}
    for line in SCRIPT.strip().splitlines():
        code, printed = shell.typed(line)
        if code in (exits.USAGE, exits.NOT_FOUND) and not line.startswith(STOPPED):
            wrong.append(("the script itself", line, printed))
        if "None" in printed:
            wrong.append((line, "prints None", printed))
        lines += NEXT.findall(printed)
        if LISTS.intersection(line.split()[:2]) and "\t" in printed:
            lists[line] = len(NEXT.findall(printed))
        wrong += wrong_hints(shell, line, hints(printed))
    assert not wrong, "\n\n".join(map(str, wrong))
    assert [line for line, count in lists.items() if not count] == [], "a list ends with the next command"
    parsed = subprocess.run(["bash", "-n", "-c", "\n".join(lines)], capture_output=True, text=True)
    assert parsed.stderr == ""
    assert len(lines) > 80
    assert [line for line in lines if line.startswith("standfast deny ")]


def paste_all(shell: Shell, script: str, *, put_back: bool = True) -> None:
    """Type the lines of a script and paste their hints. A line after `!` fails."""
    wrong: list[tuple[object, ...]] = []
    for line in script.strip().splitlines():
        code, printed = shell.typed(line.removeprefix("! "))
        if (code != exits.OK) != line.startswith("! "):
            wrong.append((line, code, printed))
        wrong += wrong_hints(shell, line, hints(printed), put_back=put_back)
    assert not wrong, "\n\n".join(map(str, wrong))


def test_every_hint_beside_a_daemon_can_be_pasted(shell: Shell) -> None:
    """003-40: the hints are pasted in the home that the daemon uses."""
    try:
        paste_all(shell, WITH_A_DAEMON, put_back=False)
    finally:
        shell.run("daemon stop --now")


def test_every_hint_about_a_server_can_be_pasted(shell: Shell, pg_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """003-40: each hint of `db move` moves the store."""
    monkeypatch.delenv("STANDFAST_STORE")
    with fresh_database(pg_url) as other, shell.on_a_server(pg_url) as url:
        shell.values |= {"url": url, "other": other}
        paste_all(shell, ON_A_SERVER, put_back=False)


@pytest.mark.parametrize("script", [REMEMBERED, pytest.param(LONG, marks=pytest.mark.slow)], ids=["store", "long"])
def test_every_hint_about_a_remembered_store_can_be_pasted(
    script: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """003-40."""
    with remembering.home() as home:
        shell = Shell(home / "ada", monkeypatch, capsys)
        monkeypatch.delenv("STANDFAST_REMEMBER")
        paste_all(shell, script)


@pytest.mark.parametrize("state", ["no store", "outside every repository", "wrong option", "missing value"])
def test_every_hint_of_a_failing_command_can_be_pasted(shell: Shell, pg_url: str, state: str) -> None:
    """003-40: of every command."""
    if state == "outside every repository":
        for line in ROWS.strip().splitlines():
            shell.typed(line)
        (shell.home / "elsewhere").mkdir()
        os.chdir(shell.home / "elsewhere")
    wrong: list[tuple[object, ...]] = []
    seen: set[str] = set()
    with shell.on_a_server(pg_url):
        for line in failures(state):
            with shell.put_back():
                _, printed = shell.pasted(line)
                new = [hint for hint in hints(printed) if hint not in seen]
                wrong += wrong_hints(shell, line, new)
            seen |= set(new)
    unexpected = [one for one in wrong if one[2] != exits.NOT_FOUND or not TO_FILL.search(str(one[1]))]
    assert not unexpected, "\n\n".join(map(str, unexpected))
    assert len(seen) > 20


def failures(state: str) -> Iterator[str]:
    """A line of each command that can fail, with an unknown id for each value that it needs."""
    for name, command in every_command().items():
        needed = [param for param in command.get_params(click.Context(command)) if param.required]
        if state == "missing value":
            yield from [name] if needed else []
        elif name not in CANNOT_FAIL:
            yield f"{name} --wrong" if state == "wrong option" else " ".join([name, *map(value_of, needed)])


def value_of(param: click.Parameter) -> str:
    if isinstance(param, CommandLine):
        return "-- true"
    value = param.type.choices[0] if isinstance(param.type, click.Choice) else "zzzzzz"
    return f"{param.opts[0]} {value}" if isinstance(param, click.Option) else str(value)


def every_command() -> dict[str, click.Command]:
    root = app.build()
    every: dict[str, click.Command] = {}
    for name in BY_NAME:
        found = root.get_command(click.Context(root), name)
        assert found is not None
        if isinstance(found, Noun):
            every |= {f"{name} {verb}": command for verb, command in found.every_command().items()}
        else:
            every[name] = found
    return every


def test_the_scripts_have_every_command() -> None:
    scripts = (SCRIPT, WITH_A_DAEMON, ON_A_SERVER, REMEMBERED, LONG)
    lines = [line.removeprefix("! ").split() for script in scripts for line in script.strip().splitlines()]
    typed = {" ".join(words[:n]) for words in lines for n in (1, 2)}
    assert set(every_command()) - typed == set()


@pytest.mark.parametrize("name", ["", *BY_NAME])
def test_the_help_of_a_command_fits_a_terminal_and_cuts_no_sentence(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """003-40: at 80 columns; examples are commands to paste and may be longer."""
    monkeypatch.setenv("COLUMNS", "80")
    assert app.run([*([name] if name else []), "--help"]) == 0
    text = capsys.readouterr().out.partition("\nExamples:")[0]
    cut = [line for line in text.splitlines()[1:] if len(line) > 80 or line.endswith("...")]
    assert cut == []
    assert "INTEGER" not in text
