"""Every hint that a command prints works when it is pasted where it was printed.

A script uses each command that writes. After each line, each hint it printed runs on a copy of the store, so that
the hints cannot change what later lines find. tests/interfaces/test_screens.py pastes the hints of the screens.
"""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import click
import pytest

from standfast.cli import app, exits
from standfast.cli.frame import LISTS
from standfast.cli.registry import BY_NAME

IDS = re.compile(r"\b([a-z]{3})_[0-9a-hjkmnp-tv-z]{26}\b")
NEXT = re.compile(r"(?m)^(?:next|  or): (.+)$")
HINT = re.compile(r"(?<![\w/.-])standfast ((?:--(?:scope|store) \S+ )?[a-z][^\n`;()]*)")
ENDLESS = {"event follow": ["--idle", "1ms"], "approval wait": ["--timeout", "1ms"]}
"""What ends a command that waits."""
NOT_RUN = ("daemon start", "daemon install", "install codex", "demo")
"""These start a process or write outside the store: only their options are parsed."""
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
store create other
"""
NOT_TYPED = {
    *("approval wait", "daemon run", "event follow", "mail follow", "mcp", "hook"),  # wait
    *("bench", "crash", "demo", "prove"),  # these take longer than a test may
    *("daemon install", "daemon start", "daemon stop", "loop output"),  # these need a daemon
    *("db move", "db pg", "db roles", "knowledge index"),  # these need a server
    *("import beads", "import claude-code", "import codex", "import gemini-cli", "import json", "import langgraph"),
    *("import opencode", "effect check"),  # these need the files of another program
    *("effect compensate", "help", "store show"),  # these need real streams, print examples, or need a remembered store
    *("backup forget", "db trust", "store reset"),  # these ask a person
}
"""Commands that the script leaves out."""

FILES = {
    "note.txt": "hello",
    "note.json": '{"a": 1}',
    "plan.toml": '[[tasks]]\ntitle = "write the docs"\n',
}
STOPPED = ("daemon status", "install --check")
"""These exit with 3: no daemon runs, no agent is installed."""
PASSES = (exits.OK, exits.NEEDS_A_PERSON)


class Shell:
    """A directory in a repository, a store, and the printed text."""

    def __init__(self, home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self.home, self.data = home, home / ".standfast"
        self.env, self.capsys = monkeypatch, capsys
        self.ids: dict[str, str] = {}
        subprocess.run(["git", "init", "-q", str(home / "shop")], check=True)
        for name, text in FILES.items():
            (home / "shop" / name).write_text(text)
        monkeypatch.setenv("HOME", str(home))
        monkeypatch.setenv("STANDFAST_STORE", "default")  # a line of the script chooses another one
        monkeypatch.chdir(home / "shop")

    def run(self, line: str, data: Path) -> tuple[int, str]:
        self.env.setenv("STANDFAST_DATA_DIR", str(data))
        code = app.run(shlex.split(line))
        out, err = self.capsys.readouterr()
        return code, f"{out}\n{err}"

    def typed(self, line: str) -> tuple[int, str]:
        code, printed = self.run(line.format_map(self.ids), self.data)
        self.ids |= {found[1]: found[0] for found in IDS.finditer(printed)}
        return code, printed

    def pasted(self, hint: str) -> tuple[int, str]:
        """Run a hint on a copy of the store."""
        copy = self.home / "copy"
        shutil.rmtree(copy, ignore_errors=True)
        if self.data.exists():
            shutil.copytree(self.data, copy)
        more = next((words for start, words in ENDLESS.items() if hint.startswith(start)), [])
        if hint.startswith(NOT_RUN):
            more = ["--help"]
        return self.run(shlex.join([*shlex.split(hint), *more]), copy)


def hints(printed: str) -> list[str]:
    """The commands in a text, without the word `standfast`."""
    found = [line.strip().rstrip(".,") for line in HINT.findall(printed)]
    return [line for line in dict.fromkeys(found) if shlex.split(line)[0] in (*BY_NAME, "--store", "--scope")]


def test_every_hint_after_a_command_that_writes_can_be_pasted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """003-40: each command runs, or says that a person has to type it; a shell parses each `next:` line as it is."""
    shell = Shell(tmp_path, monkeypatch, capsys)
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
        for hint in hints(printed):
            code, said = shell.pasted(hint)
            if code not in PASSES and not hint.startswith(STOPPED):
                wrong.append((line, hint, code, said.strip()[-300:]))
    assert not wrong, "\n\n".join(map(str, wrong))
    assert [line for line, count in lists.items() if not count] == [], "a list ends with the next command"
    parsed = subprocess.run(["bash", "-n", "-c", "\n".join(lines)], capture_output=True, text=True)
    assert parsed.stderr == ""
    assert len(lines) > 80
    assert [line for line in lines if line.startswith("standfast deny ")]


def test_the_script_has_every_command() -> None:
    root = app.build()
    commands = set()
    for name in BY_NAME:
        found = root.get_command(click.Context(root), name)
        verbs = found.list_commands(click.Context(found)) if isinstance(found, click.Group) else []
        commands |= {f"{name} {verb}" for verb in verbs} or {name}
    typed = {" ".join(line.split()[:n]) for line in SCRIPT.strip().splitlines() for n in (1, 2)}
    assert commands - typed == NOT_TYPED


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
