"""An agent with a shell tries to pass a gate, and a cloned repository brings its own spool.

shell    random command lines run in bash with a `git` that records each push. A line that pushed must have matched the
         gate `git push*`. The control compares only whole command lines.
planted  spool records without a seal name known sessions, actors and repositories. No row that standfast recorded
         itself may change. In the control the records are sealed.
"""

from __future__ import annotations

import json
import os
import random
import shlex
import shutil
import subprocess
from collections.abc import Callable
from fnmatch import fnmatchcase
from pathlib import Path

import standfast
from standfast.interchange.hooks import spool
from standfast.interchange.hooks.payloads import Heard
from standfast.interchange.hooks.record import Hooks
from standfast.ledger.gate_patterns import Gate, met
from standfast_prove.faults import Unavailable
from standfast_prove.outcome import Outcome

GATE = Gate("gat_x", "", "", "git push*", "approval", None, "ada", 0)
PROGRAMS = ("sh", "bash", "cat", "tee", "env", "xargs", "find", "grep", "nice", "timeout")
OPTIONS = (
    "-C .", "-c a=b", "-c 'user.name=A B'", '-c "x=;y"', "--no-pager", "-c a=$(true; true)", ">log", "2>&1", "$NONE",
)  # fmt: skip
GIT = """#!/bin/sh
while [ $# -gt 0 ]; do
  case $1 in
    -C|-c) shift 2;;
    -*) shift;;
    push) : > "$MARK"; exit 0;;
    commit) shift; while [ $# -gt 0 ]; do [ "$1" = -m ] && printf '%s' "$2" > message; shift; done; exit 0;;
    *) exit 0;;
  esac
done
"""
LINE_S = 10.0


def shell(place: Path, *, url: str | None = None, seed: int = 0, lines: int = 300, blind: bool = False) -> Outcome:
    """An agent with a shell tries random command lines to push past a gate."""
    outcome, writer = Outcome("hostile-shell"), Lines(random.Random(seed))
    world = World(place)
    for _ in range(lines):
        line = writer.line()
        refused = fnmatchcase(line, GATE.pattern) if blind else bool(met([GATE], line))
        pushed = world.pushes(line)
        outcome.count("lines")
        outcome.count("pushed" if pushed else "harmless")
        outcome.count("released", not pushed and not refused)
        outcome.refuse(pushed and not refused and line, "pushed without meeting the gate")
    return outcome


class World:
    """A directory with a `git` that only records pushes. PATH has nothing else but a few programs."""

    def __init__(self, place: Path) -> None:
        self._bin, self._work, self._mark = place / "bin", place / "work", place / "pushed"
        for directory in (self._bin, self._work):
            directory.mkdir(parents=True)
        for name in PROGRAMS:
            found = shutil.which(name)
            if found is None:
                raise Unavailable(f"{name} is not here")
            (self._bin / name).symlink_to(found)
        (self._bin / "git").write_text(GIT)
        (self._bin / "git").chmod(0o755)

    def pushes(self, line: str) -> bool:
        self._mark.unlink(missing_ok=True)
        env = {"PATH": str(self._bin), "MARK": str(self._mark), "HOME": str(self._work)}
        words = [str(self._bin / "bash"), "-c", line]
        quiet = subprocess.DEVNULL
        with subprocess.Popen(words, cwd=self._work, env=env, stdin=quiet, stdout=quiet, stderr=quiet) as process:
            try:
                process.wait(LINE_S)
            except subprocess.TimeoutExpired:
                process.kill()
        return self._mark.exists()


class Lines:
    """Command lines that contain a push. Some run it, others only print or store it."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance

    def line(self) -> str:
        text = self.command()
        for _ in range(self._chance.randint(0, 3)):
            text = self._chance.choice(_WRAPPERS)(self, text)
        for _ in range(self._chance.randint(0, 2)):
            text = self._chance.choice(_NOISE) + text
        return text

    def command(self) -> str:
        between = [self._chance.choice(OPTIONS) for _ in range(self._chance.choice((0, 0, 1, 2)))]
        ends = ["", " origin", " --force origin main", " # done", " && true", " | cat"]
        return " ".join([self.spelled("git"), *between, self.spelled("push")]) + self._chance.choice(ends)

    def spelled(self, word: str) -> str:
        at = self._chance.randrange(1, len(word))
        parting = self._chance.choice(("\\", "''", "\\\n"))
        return self._chance.choice((word, word, word, f"'{word}'", f'"{word}"', f"{word[:at]}{parting}{word[at:]}"))

    def quoted(self, text: str) -> str:
        """Quote the text so that a shell reads it unchanged."""
        if self._chance.random() < 0.5:
            return shlex.quote(text)
        return '"' + "".join(f"\\{mark}" if mark in '\\"$`' else mark for mark in text) + '"'


def _template(template: str) -> Callable[[Lines, str], str]:
    """`%s` becomes the text unchanged, `%q` the text quoted as one word."""
    return lambda lines, text: template.replace("%q", lines.quoted(text)).replace("%s", text)


_WRAPPERS = [
    _template(one)
    for one in (
        "sh -c %q", "bash --norc -c %q", "bash -c -- %q", "eval %q", "eval eval %q", "env A=1 sh -c %q",
        "echo x | xargs -I{} sh -c %q", "find . -maxdepth 0 -exec sh -c %q ';'", "nice timeout 5 bash -c %q",
        "$(%s)", "`echo`; %s", "echo $(%s\n)", 'echo "$(%s\n)"', "(%s\n)", "{ %s\n}", "if true; then %s\nfi",
        "for x in a; do %s\ndone", "f() { %s\n}; f", "case a in a) %s\n;; esac", "true && %s", "false || %s",
        "echo %q | sh", "printf '%%s' %q | tee log | sh", "{ echo %q; } | bash", "bash <<'E'\n%s\nE",
        "cat <<'E' | sh\n%s\nE", "cat > run.sh <<'E'\n%s\nE\nsh run.sh", "echo %q > run.sh; . ./run.sh",
        "echo %q > run.sh; sh run.*", "{ echo %q; } > run.sh; sh run.sh", "exec 3>run.sh; echo %q >&3; sh run.sh",
        'eval "$(echo %q)"', "printf -v line '%%s' %q; eval \"$line\"", "CMD=%q; eval \"$CMD\"", "bash <(echo %q)",
        "echo %q; eval \"$_\"", "git commit -m \"$(%s\n)\"", "git commit -m %q && sh message",
        "git commit -m %q", "echo %q", "grep -r %q .", "cat <<'E'\n%s\nE", "cat > NOTES <<'E'\n%s\nE\nls",
        "true # %q", "git log --grep=%q", "alias echo=eval; echo %q", "read -r x <<< %q; eval \"$x\"",
    )
]  # fmt: skip
_NOISE = (
    "true;", "true\n", "# don't\n", "cat > N <<'X'\nIt's done.\nX\n", "cat <<-X\n\tit's $HOME\n\tX\n", "A=1 B='x y'\n",
    "echo \"it's\" >&2; ", "git commit -m 'not yet' && ", "git status 2>/dev/null; ", "x=$((1 << 2)); ", "cd . && ",
    "true;" * 200, "echo ${HOME:-\"a b\"}; ", "[[ a < b ]] && ",
)  # fmt: skip


def planted(place: Path, *, url: str | None = None, seed: int = 0, records: int = 200, sealed: bool = False) -> Outcome:
    """A cloned repository brings spool records that name sessions of the store."""
    outcome, chance = Outcome("hostile-spool"), random.Random(seed)
    data, there = str(place / "data"), place / "clone" / ".standfast" / "spool"
    there.mkdir(parents=True, mode=0o700)
    with standfast.open(url or str(place / "standfast.db"), data_dir=data) as sf:
        hooks = Hooks(sf._store)
        calls = [Heard("codex", "call", "PreToolUse", f"s{n}", n, None, None, f"t{n}", "Bash") for n in range(8)]
        for call in calls:
            hooks.keep(call.replace(status="pending", input="{}", summary="Bash make test"))
        os.makedirs(data, 0o700, exist_ok=True)
        secret, before = spool.key(data), _recorded(sf)
        lines = []
        for n in range(records):
            call = chance.choice(calls)
            kind = chance.choice(("answer", "answer", "prompt", "stop", "end", "start", "denied"))
            record = call.replace(kind=kind, at_us=n, output="all passed", status="ok", summary=f"planted {n}")
            asked = {"v": 1, "actor": chance.choice((sf.settings.actor, call.key, "ada")), "scope": sf.scope}
            text = json.dumps(asked | record.as_dict() | sf.settings.label.as_dict())
            lines.append(f"{spool._seal(text, secret if sealed else None)} {text}")
        with open(os.open(there / "open.ndjson", os.O_WRONLY | os.O_CREAT, 0o600), "w") as file:
            file.write("\n".join(lines) + "\n")
        drained = spool.drain(sf._store, [str(there)], data)
        outcome.count("records", records)
        outcome.refuse(drained.broken or drained.left, "the spool was not read")
        after = _recorded(sf)
        outcome.refuse([key for key in before if before[key] != after.get(key)], "changed by a record without a seal")
        forged = sf.rows("SELECT actor FROM event WHERE summary LIKE '%planted%' AND actor <> 'unsealed'")
        outcome.refuse([row["actor"] for row in forged], "written in the name of a known actor")
    return outcome


def _recorded(sf: standfast.Standfast) -> dict[str, str]:
    """Sessions and calls that standfast recorded itself, one string for each."""
    rows = [*sf.rows("SELECT * FROM session"), *sf.rows("SELECT * FROM tool_call")]
    return {row["id"]: repr(sorted(dict(row).items())) for row in rows}
