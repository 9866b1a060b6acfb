"""Write docs/operating/screens.md: the output of the operator's commands for a messy store. `make captures` runs it.

tests/messy.py makes the store. Each command runs on a terminal of 80 columns and on one of 120.
"""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from tests import blocks
from tests.messy import Messy

PAGE = blocks.ROOT / "docs" / "operating" / "screens.md"
WIDTHS = (80, 120)
SCREENS = {
    "": "What needs you",
    "timeline --since 9d": "What happened",
    "approval list --state any": "Approvals",
    "session list": "Sessions",
    "session show release-42": "One session",
    "loop runs": "Runs",
    "top --once": "Live sessions",
}
HEAD = """# The screens

Each command below ran outside every repository. The store holds three bad days in three repositories. `make captures`
writes this page. A test compares it with what the commands print.
"""
END = "\x1e"
DRIVER = """
import json, os, shlex, sys
from standfast.cli import app
for width, line in json.loads(sys.argv[1]):
    os.environ["COLUMNS"] = str(width)
    app.run(shlex.split(line))
    sys.stderr.flush()
    os.write(1, b"\\x1e")
"""


def captured(home: Path) -> dict[tuple[str, int], str]:
    """The output of each command at each width, with `~` for the directory above the repositories."""
    asked = [(width, line) for line in SCREENS for width in WIDTHS]
    keep = {name: value for name, value in os.environ.items() if not name.startswith("STANDFAST_")}
    ours = {"HOME": str(home), "TZ": "UTC", "NO_COLOR": "1", "TERM": "xterm", "STANDFAST_ACTOR": "you@laptop"}
    leader, follower = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-c", DRIVER, json.dumps(asked)],
        cwd=home,
        env={**keep, **ours, "STANDFAST_DATA_DIR": str(home / ".standfast")},
        stdin=subprocess.DEVNULL,
        stdout=follower,
        stderr=follower,
    ) as child:
        os.close(follower)
        output = b"".join(blocks._read(leader)).decode().replace("\r\n", "\n")
    os.close(leader)
    assert child.returncode == 0, output
    return {(line, width): text for (width, line), text in zip(asked, output.split(END)[:-1], strict=True)}


def made() -> dict[tuple[str, int], str]:
    with tempfile.TemporaryDirectory(prefix="sf-", dir="/tmp") as directory:
        messy = Messy(Path(directory) / "you")
        messy.fill()
        return captured(messy.home)


def page(screens: dict[tuple[str, int], str]) -> str:
    parts = [HEAD]
    for line, title in SCREENS.items():
        command = f"standfast {line}".strip()
        parts += [f"\n## {title}: `{command}`\n"]
        parts += [f"\n{width} columns:\n\n```text\n{screens[line, width].strip()}\n```\n" for width in WIDTHS]
    return "".join(parts)


def words(text: str) -> list[str]:
    """The words of a page, in any order, because the lengths of times and numbers decide where lines wrap.

    Ids, times, numbers and the count of absent slots differ in each run.
    """
    found = re.sub(blocks.LONG_ID, "ID", " ".join(text.split()))
    found = re.sub(r"; \d+ slots, the last \w+ \S+ \S+ UTC", "", found)
    found = re.sub(r"\d+ slots? since|the slot of", "slots since", found)
    found = re.sub(r"\b(?:\d+[dhms])+ ago\b", "before", blocks._at_any_time(found))
    found = re.sub(r"\b[0-9a-hjkmnp-tv-z]{6}\b", "ID", found)
    return sorted(re.sub(r"\d+", "0", word) for word in found.split())


if __name__ == "__main__":
    PAGE.write_text(page(made()))
