"""Run the code blocks of README.md and docs/: each command works and prints the output that the page shows.

    ```console   lines with `$ ` run in bash on a terminal of 80 columns; the other lines are their output
    ```python    runs in one interpreter per page, where `sf = standfast.open()`; `# NAME.py` is written to that file
    ```sh        `# NAME.sh` is written to that file; other blocks are checked with `bash -n`

`<!-- sketch -->` above a block excludes it. `# exit 6` at the end of a command is its expected exit code.
`python -m tests.blocks [PAGE…]` (`make blocks`) writes the real output into the pages where it differs.
"""

from __future__ import annotations

import getpass
import json
import os
import pty
import re
import select
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BLOCK = re.compile(r"(?P<mark><!-- sketch -->\n)?^```(?P<kind>\w*)[^\n]*\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)
SHORT_ID = re.compile(r"[0-9a-hjkmnp-tv-z]{6}")
LONG_ID = re.compile(r"[a-z]{3}_[0-9a-hjkmnp-tv-z]{26}")
WAIT_S = 60
DRIVER = """
import ast, asyncio, contextlib, inspect, io, json, sys, traceback
import standfast
names = {"__name__": "__main__", "standfast": standfast, "sf": standfast.open()}
for line in sys.stdin:
    error = None
    try:
        code = compile(json.loads(line), "block", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        with contextlib.redirect_stdout(sys.stderr):
            result = eval(code, names)
            if inspect.isawaitable(result):
                asyncio.run(result)
    except BaseException:
        error = traceback.format_exc()
    print(json.dumps(error), flush=True)
"""


def pages() -> list[Path]:
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(text: str) -> list[re.Match[str]]:
    return list(BLOCK.finditer(text))


@dataclass
class Reader:
    """One reader of one page: a home, a repository, and the ids on the page mapped to the ids of this run."""

    home: Path
    ids: dict[str, str] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    interpreter: subprocess.Popen[str] | None = None

    def __post_init__(self) -> None:
        (self.home / "shop").mkdir(parents=True)
        subprocess.run(["git", "init", "-q", str(self.home / "shop")], check=True, capture_output=True)
        (self.home / ".cwd").write_text(str(self.home / "shop"))

    @property
    def environment(self) -> dict[str, str]:
        keep = {name: value for name, value in os.environ.items() if not name.startswith("STANDFAST_")}
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        ours = {"HOME": str(self.home), "PATH": path, "COLUMNS": "80", "NO_COLOR": "1", "TZ": "UTC", "EDITOR": "true"}
        return {**keep, **ours, "STANDFAST_ACTOR": "you@laptop", "BASH_ENV": str(self.home / ".env")}

    # -- console ---------------------------------------------------------------------------------------------

    def console(self, body: str) -> str:
        """Run the commands. Returns the block, with the real output where the page differs."""
        written = ""
        for command, expected in _commands(body):
            actual, code = self.type(command)
            wanted = re.search(r"#.*\bexit (\d+)", command)
            if code != (int(wanted[1]) if wanted else 0):
                self.problems.append(f"$ {command}\nexit {code}:\n{actual}")
            written += f"$ {command}\n" + (expected if self.same(expected, actual) else actual)
        return written

    def type(self, command: str) -> tuple[str, int]:
        for ours, theirs in self.ids.items():
            command = command.replace(ours, theirs)
        where, environment = self.home / ".cwd", self.home / ".env"
        script = f"{command}\ncode=$?\npwd >'{where}'\nexport -p >'{environment}'\nexit $code"
        leader, follower = pty.openpty()
        os.set_blocking(leader, True)
        subprocess.run(["stty", "cols", "80", "rows", "50"], stdin=follower)
        child = subprocess.Popen(
            ["timeout", "--foreground", str(WAIT_S), "bash", "-c", script],
            cwd=where.read_text().strip(),
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=follower,
            stderr=follower,
            start_new_session=True,
        )
        os.close(follower)
        output = b"".join(_read(leader))
        os.close(leader)
        text = output.decode(errors="replace").replace("\r\n", "\n").replace(str(self.home), "~")
        text = re.sub(r"[^\n]*\x1b\[K", "", text)  # a progress line, which a slow machine shows and then erases
        return _on_a_laptop(text), child.wait(timeout=60)

    def same(self, expected: str, actual: str) -> bool:
        ours, theirs = expected.splitlines(), actual.splitlines()
        learned = dict(self.ids)
        if len(ours) != len(theirs) or not all(_same_line(*pair, learned) for pair in zip(ours, theirs, strict=True)):
            return False
        self.ids.update(learned)
        return True

    # -- python and files -------------------------------------------------------------------------------------

    def python(self, body: str) -> None:
        if self.interpreter is None:
            self.interpreter = subprocess.Popen(
                [sys.executable, "-c", DRIVER],
                cwd=self.home / "shop",
                env={**self.environment, "PYTHONPATH": str(self.home / "shop")},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
        assert self.interpreter.stdin
        assert self.interpreter.stdout
        self.interpreter.stdin.write(json.dumps(body) + "\n")
        self.interpreter.stdin.flush()
        ready, _, _ = select.select([self.interpreter.stdout], [], [], WAIT_S)
        answer = self.interpreter.stdout.readline() if ready else ""
        if error := json.loads(answer or '"the interpreter ended or did not answer"'):
            self.problems.append(f"{body}\n{error}")

    def write(self, name: str, body: str) -> None:
        path = self.home / "shop" / name
        path.write_text(body)
        path.chmod(0o755)

    def check(self, body: str) -> None:
        done = subprocess.run(["bash", "-n"], input=body, text=True, capture_output=True)
        if done.returncode:
            self.problems.append(f"{body}\n{done.stderr}")

    def close(self) -> None:
        if self.interpreter is not None:
            assert self.interpreter.stdin
            assert self.interpreter.stdout
            self.interpreter.stdin.close()
            self.interpreter.stdout.close()
            self.interpreter.kill()
            self.interpreter.wait()


def follow(page: Path) -> tuple[str, list[str]]:
    """Run the blocks of a page. Returns the page with the real output, and the failures."""
    text = page.read_text()
    with tempfile.TemporaryDirectory(prefix="sf-", dir="/tmp", ignore_cleanup_errors=True) as home:
        reader, written, end = Reader(Path(home) / "you"), "", 0
        try:
            for block in blocks(text):
                body = block["body"]
                if not block["mark"]:
                    _run(reader, block["kind"], body)
                    if block["kind"] == "console":
                        body = reader.console(body)
                written += text[end : block.start("body")] + body
                end = block.end("body")
        finally:
            reader.close()
    return written + text[end:], reader.problems


def _run(reader: Reader, kind: str, body: str) -> None:
    named = re.match(r"# ([\w-]+\.(?:py|sh))\b", body)
    if kind in ("python", "sh") and named:
        reader.write(named[1], ("#!/bin/sh\n" if kind == "sh" else "") + body)
    elif kind == "python":
        reader.python(body)
    elif kind == "sh":
        reader.check(body)


def _commands(body: str) -> Iterator[tuple[str, str]]:
    yield from re.findall(r"^\$ ((?:.*\\\n)*.*)\n((?:(?!\$ ).*\n)*)", body, re.MULTILINE)


def _read(leader: int) -> Iterator[bytes]:
    try:
        while chunk := os.read(leader, 65536):
            yield chunk
    except OSError:
        return  # every process has closed the terminal


def _on_a_laptop(text: str) -> str:
    """Replaces this machine's account and host name by those of the reader."""
    host = re.escape(os.uname().nodename)
    account = re.escape(getpass.getuser())
    text = re.sub(
        r"^bash: line \d+: +\d+ Killed\b.*", "Killed", text, flags=re.MULTILINE
    )  # the format of an interactive bash
    return re.sub(rf"\b{host}\b", "laptop", re.sub(rf"\b{account}@{host}\b", "you@laptop", text))


def _at_any_time(line: str) -> str:
    """The line without weekdays, file sizes and ages, because these differ by day and machine."""
    line = re.sub(r"\b[\d.]+ [kM]B\b", "0 kB", line)
    line = re.sub(r"\b(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)\b", "Day", line)
    line = re.sub(r" to Day \d{4}-\d\d-\d\d ", " to ", line)  # shortly before midnight a window ends on the next day
    line = re.sub(r"\b\d+ ?(?:ms|s|m|min) (?:ago|old)\b", "now", line)
    return re.sub(r"\bin \d+[smhd]+\b", "in 0s", line)


def _same_line(ours: str, theirs: str, ids: dict[str, str]) -> bool:
    """Whether two lines are equal except for ids, numbers, times, and the ends of truncated columns."""
    left, right = _at_any_time(ours).split(), _at_any_time(theirs).split()
    if "…" in ours or "…" in theirs:
        return True
    return len(left) == len(right) and all(_same_word(*pair, ids) for pair in zip(left, right, strict=True))


def _same_word(ours: str, theirs: str, ids: dict[str, str]) -> bool:
    for kind in (LONG_ID, SHORT_ID):
        mine, other = kind.search(ours), kind.search(theirs)
        # One short id in ten has no digit. In that case the whole word must look like an id.
        is_id = mine and (re.search(r"\d", mine[0]) or mine[0] == ours)
        if mine and other and is_id and ours.replace(mine[0], other[0]) == theirs:
            ids[mine[0]] = other[0]
            ids[mine[0][-6:]] = other[0][-6:]
            return True
    return _masked(ours) == _masked(theirs)


def _masked(word: str) -> str:
    word = re.sub(r"\d+", "0", re.sub(r"[0-9a-f]{12,}", "HASH", word))
    return word.replace("0ms", "0s")  # a slow machine needs several seconds


def main() -> None:
    names = [Path(name).resolve() for name in sys.argv[1:]] or pages()
    for page in names:
        text, problems = follow(page)
        if text != page.read_text():
            page.write_text(text)
            print(f"written: {page.relative_to(ROOT)}")
        for problem in problems:
            print(f"{page.relative_to(ROOT)}: {problem}")


if __name__ == "__main__":
    assert shutil.which("bash")
    main()
