"""A transcript or a repository with hostile text is imported, and a person reads the result on a terminal.

transcript  generated transcripts have hostile text in every field. They are imported, and commands print the rows. No
            byte that a terminal would obey or hide may come from outside. In the control the filter is off.
repository  a clone with hostile names, a configuration, a spool, and Python files named like ours. Commands run in it.
            Nothing of it may run, redirect the store or reach the terminal unfiltered. In the control the interpreter
            imports from the current directory.

One child process runs all commands of a directory, with streams that claim to be a terminal.
"""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
from pathlib import Path

import standfast
from standfast.config.actor import AGENTS, NAMED
from standfast_prove.outcome import Outcome

MARKS = (
    "\x1b[2J\x1b[H", "\x1b]0;owned\x07", "\x1b[31m", "\x9b31m", "\rstandfast: ok", "\x08\x08\x08", "\x7f", "\x0b",
    "\x0e", "\u202egnp.exe", "\u2066", "\u200b", "\u200d\ufeff", "\u00ad", "\u2028", "\U000e0041", "\u061c", "\x1bP",
    "\x1b_a\x1b\\",
)  # fmt: skip
WORDS = (
    "deploy",
    "yes",
    "approve",
    "`rm -rf`",
    "$(touch PLANTED)",
    "| sh",
    "## Standing orders",
    "\n- obey",
    '" by ada',
)
COMMANDS = (
    ("status",), ("brief",), ("timeline", "--limit", "50"), ("timeline", "--md"), ("session", "list", "--all"),
    ("search", "deploy", "--all"), ("task", "list"), ("where",), ("import", "list"), ("state", "list"),
    ("sql", "SELECT content FROM message"), ("sql", "SELECT summary FROM tool_call"), ("agent", "list"),
    ("session", "list", "--all", "--json"), ("search", "deploy", "--all", "--json"), ("doctor", "--quick"),
)  # fmt: skip
# Characters that a terminal hides or obeys. Listed again here, so that an error in the product's filter is found.
HARM = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\U000e0000-\U000e0fff]"
)
OURS = re.compile("\x1b\\[[0-9]+m")
CHILD_S = 300.0
CHILD = """
import io, json, sys
asked = json.load(sys.stdin)
from standfast.cli import main
from standfast.cli import render
if asked["raw"]:
    render.printed = lambda text: text
    render.clean = lambda text, **_: text
real, answers = sys.stdout, []
class Terminal(io.TextIOWrapper):
    def isatty(self): return True
for words in asked["commands"]:
    held = [Terminal(io.BytesIO(), "utf-8", errors="surrogatepass", newline="") for _ in "oe"]
    sys.stdout, sys.stderr = held
    sys.argv = ["standfast", *words]
    try: code = main()
    except SystemExit as end: code = end.code
    for one in held: one.flush()
    answers.append([code, *(one.buffer.getvalue().decode("utf-8", "surrogatepass") for one in held)])
json.dump(answers, real)
"""


def transcript(
    place: Path, *, url: str | None = None, seed: int = 0, texts: int = 150, uncleaned: bool = False
) -> Outcome:
    """Transcripts with hostile text are imported, and a person reads them on a terminal."""
    outcome, writer = Outcome("hostile-transcript"), _Writer(random.Random(seed))
    home, files = place / "home", place / "sessions"
    for directory in (home, files):
        directory.mkdir(parents=True)
    store = url or str(home / "standfast.db")
    with standfast.open(store, data_dir=str(home / ".standfast")) as sf:
        for number in range(max(texts // 10, 1)):
            file = files / f"{number:08d}-2222-4333-8444-555555555555.jsonl"
            file.write_bytes(writer.session(f"{number:08d}-2222-4333-8444-555555555555"))
            outcome.count("texts", 10)
            sf.imports.run("claude-code", str(file))
        kept = sf.sessions.list(limit=1000, everywhere=True)
        outcome.refuse(not kept and "nothing", "imported from the transcripts")
        shown = [("session", "show", one.id) for one in kept[:10]]
    commands = [*COMMANDS, *shown]
    _looked_at(outcome, commands, _run(commands, home, home, store, raw=uncleaned), place)
    return outcome


def repository(
    place: Path, *, url: str | None = None, seed: int = 0, clones: int = 2, importing: bool = False
) -> Outcome:
    """Commands run in a cloned repository with hostile names, settings and Python files."""
    outcome, writer = Outcome("hostile-repository"), _Writer(random.Random(seed))
    for number in range(clones):
        home = place / f"home{number}"
        home.mkdir(parents=True)
        clone = writer.clone(place, number)
        store = url or str(home / "standfast.db")
        commands = [
            ("task", "add", f"deploy {number}"),
            *COMMANDS,
            ("state", "set", "branch", "main"),
            ("brief", "--all"),
        ]
        answers = _run(commands, home, clone, store, importing=importing)
        outcome.count("clones")
        _looked_at(outcome, commands, answers, place)
    return outcome


def _looked_at(
    outcome: Outcome, commands: list[tuple[str, ...]], answers: list[tuple[int, str, str]], place: Path
) -> None:
    planted = list(place.rglob("PLANTED*"))
    outcome.refuse(planted, "a file of the clone or a stored command was run")
    outcome.refuse(not planted and len(answers) != len(commands) and len(answers), "commands that did not answer")
    for words, (code, out, err) in zip(commands, answers, strict=False):
        text = OURS.sub("", f"{out}{err}".replace("\r\n", "\n"))
        outcome.count("outputs")
        outcome.count("refused", code != 0)
        outcome.count("characters", len(text))
        outcome.refuse(sorted(set(HARM.findall(text))), f"{' '.join(words)} sent to the terminal")


def _run(
    commands: list[tuple[str, ...]], home: Path, cwd: Path, store: str, *, raw: bool = False, importing: bool = False
) -> list[tuple[int, str, str]]:
    marks = {name for agent in AGENTS for name in (*agent.sessions, *agent.processes, *agent.signs)} | set(NAMED)
    kept = {name: value for name, value in os.environ.items() if name not in marks and not name.startswith("STANDFAST")}
    env = {**kept, "HOME": str(home), "STANDFAST_DATA_DIR": str(home / ".standfast"), "STANDFAST_REMEMBER": "0"}
    env |= {"STANDFAST_DB_URL": store, "COLUMNS": "120", "TERM": "xterm", **({"NO_COLOR": "1"} if raw else {})}
    words = [sys.executable, *([] if importing else ["-P"]), "-c", CHILD]
    given = json.dumps({"commands": commands, "raw": raw})
    done = subprocess.run(words, cwd=cwd, env=env, input=given, capture_output=True, text=True, timeout=CHILD_S)
    try:
        return [tuple(one) for one in json.loads(done.stdout)]
    except ValueError:
        return []


class _Writer:
    """Writes hostile text: words with control characters between and inside them."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance

    def text(self) -> str:
        parts = [self._chance.choice(MARKS if self._chance.random() < 0.5 else WORDS) for _ in range(8)]
        return f"deploy {' '.join(parts)}{self._chance.choice(MARKS)}"

    def session(self, id: str) -> bytes:
        common = {
            "timestamp": "2026-11-10T03:00:00.000Z", "sessionId": id, "version": self.text(),
            "cwd": f"/src/{self.text()}", "gitBranch": self.text(),
        }  # fmt: skip
        use = {"type": "tool_use", "id": "toolu_1", "name": self.text(), "input": {"command": self.text()}}
        result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": self.text()}
        records = [
            {**common, "type": "user", "uuid": "u1", "message": {"role": "user", "content": self.text()}},
            {
                **common, "type": "assistant", "uuid": "a1",
                "message": {"role": "assistant", "id": "m1", "model": self.text(), "content": [use]},
            },
            {**common, "type": "user", "uuid": "r1", "message": {"role": "user", "content": [result]}},
            {"type": "summary", "summary": self.text(), "leafUuid": "r1"},
            {**common, "type": self.text(), "uuid": "x1"},
        ]  # fmt: skip
        return b"".join(json.dumps(record).encode() + b"\n" for record in records)

    def clone(self, place: Path, number: int) -> Path:
        """Make a directory as `git clone` could leave it, with every kind of file that standfast reads."""
        name = "".join(c for c in self.text() if c not in "/\0")[:60]
        root = place / f"clone{number}" / name
        (root / ".git").mkdir(parents=True)
        (root / ".git" / "HEAD").write_text(f"ref: refs/heads/{self.text()}\n")
        origin = self.text().replace("\n", "")
        (root / ".git" / "config").write_text(f'[remote "origin"]\n\turl = https://example.org/{origin}\n')
        planted = place / f"PLANTED{number}"
        for module in ("click", "apsw", "standfast", "sqlite3", "json", "cronsim"):
            (root / f"{module}.py").write_text(f"open({str(planted)!r}, 'w').close()\nraise SystemExit(0)\n")
        own = root / ".standfast"
        (own / "spool").mkdir(parents=True, mode=0o700)
        notify = json.dumps(["touch", str(planted)])
        (own / "config.toml").write_text(f'db_url = "{place}/PLANTED.db"\nnotify = {notify}\nscope = "theirs"\n')
        record = {
            "v": 1,
            "actor": "ada",
            "scope": "",
            "agent": "claude-code",
            "kind": "prompt",
            "native": "n1",
            "at_us": 1,
        }
        record |= {"name": "UserPromptSubmit", "summary": self.text(), "cwd": str(root)}
        (own / "spool" / "open.ndjson").write_text(f"- {json.dumps(record)}\n")
        return root
