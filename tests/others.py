"""Runs other processes on the same store. A test exchanges lines with them, kills them or waits for them.

    with Other(url, data, "with sf.session('k') as s:\n    say('open')\n    wait()") as other:
        other.hear("open")
        other.kill()

The code runs with `sf` open, `say(text)` to send a line to the test and `wait()` to wait for `go()`.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Self

PRELUDE = """
import os, signal, sys
import standfast

def say(text):
    print(text, flush=True)

def wait():
    return sys.stdin.readline().strip()

sf = standfast.open(os.environ["OTHER_URL"], data_dir=os.environ["OTHER_DATA"])
"""


class Other:
    """One process. It ends when the `with` block ends, even after an error."""

    def __init__(self, url: str, data: Path, code: str, *, cwd: Path | None = None, **environment: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", PRELUDE + textwrap.dedent(code)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=cwd,
            env={**os.environ, "OTHER_URL": url, "OTHER_DATA": str(data), **environment},
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    def hear(self, text: str) -> None:
        """Wait until the process sends exactly this line."""
        assert self._process.stdout is not None
        heard = self._process.stdout.readline().strip()
        if heard != text:
            self._process.kill()
            raise AssertionError(f"{heard!r} was said, not {text!r}: {self._process.communicate()[1]}")

    def listen(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def go(self, text: str = "") -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(text + "\n")
        self._process.stdin.flush()

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def kill(self) -> None:
        """Kill the process with SIGKILL and reap it, so that it does not count as alive."""
        self._process.kill()
        self._process.wait()

    def end(self) -> str:
        """Wait until the process exits with 0, and return the lines that were not yet read."""
        said, complaint = self._process.communicate(timeout=60)
        assert self._process.returncode == 0, complaint
        return said.strip()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.communicate()
