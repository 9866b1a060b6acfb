"""A messy store for tests of operators' commands: three days of work in three repositories, on the manual clock.

The middle day begins two days before the last 03:00 UTC. Rows have times of the manual clock. The commands run in real
time.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import standfast
from standfast import config, handle
from standfast.clock import DAY_US, HOUR_US, SYSTEM, ManualClock

CALL = {"type": "tool_use", "name": "Bash", "input": {"command": "git status"}}
REPOSITORIES = {"shop": "https://github.com/acme/shop.git", "infra": None, "site": "https://github.com/acme/site.git"}


class Messy:
    """The store in the directory `home`, and its clock."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.data = home / ".standfast"
        self.night_us = ((SYSTEM.now_us() - 3 * HOUR_US) // DAY_US - 2) * DAY_US + 3 * HOUR_US
        self.clock = ManualClock(self.night_us - DAY_US)
        for name, origin in REPOSITORIES.items():
            subprocess.run(["git", "init", "-q", str(home / name)], check=True)
            if origin:
                subprocess.run(["git", "-C", str(home / name), "remote", "add", "origin", origin], check=True)

    @contextmanager
    def at(self, repository: str, actor: str) -> Iterator[standfast.Standfast]:
        settings = config.load(data_dir=self.data, cwd=self.home / repository, actor=actor)
        with handle.connect(settings, clock=self.clock) as sf:
            yield sf

    def fill(self) -> None:
        """Fill the store from 03:00 on the first day until midnight of the second. No daemon runs after that."""
        with self.at("infra", "claude-code:7f3a") as sf:
            sf.loops.add("nightly", ["make", "nightly"], cron="0 3 * * *", zone="UTC")
            with sf.session("audit", agent="claude-code") as s:
                s.say("user", "check the certificates")
                with s.decide("rotate the key", why="it expires on Friday"):
                    pass
        self.clock.advance("24h")  # the night
        with self.at("infra", "daemon:vm") as sf:
            sf.loops.fire_due()
            run = sf.runs.claim(host="vm")
            assert run is not None
            sf.runs.finish(run.id, run.attempt, exit_code=3, duration="2s", reason="exit 3: no such table")
        with self.at("shop", "coder") as sf:
            with suppress(ConnectionError), sf.session("release-42", agent="coder") as s:
                s.say("user", "release 42")
                s.say("assistant", [{"type": "text", "text": "I open the pull request."}, CALL])
                s.effect("github.open_pr", {"repo": "acme/shop", "branch": "r42"}, do=_times_out)
            self.clock.advance("5m")
            with suppress(standfast.ApprovalRequired), sf.session("deploy", agent="coder") as s:
                s.effect("deploy", {"to": "prod"}, do=lambda call: 1, approve=True, why="release day")
            (waiting,) = sf.approvals.list(state="requested")
            sf.approvals.deny(waiting.id, approver="ada@vm:pts/1", rationale="not on a Tuesday")
        self.clock.advance("55m")
        with self.at("site", "coder") as sf:
            for n in range(3):
                sf.effects.fail(sf.effects.begin("cdn.purge", {"path": "/"}, key="purge").id, f"503, try {n + 1}")
            with suppress(RuntimeError), sf.session("build", agent="codex") as s:
                s.say("user", "build the site")
                raise RuntimeError("out of memory")
            asked = sf.effects.plan("once", {"argv": ["git", "push", "origin", "HEAD"]}, key="push")
            sf.approvals.request(asked.id, why="the site is built", for_="20d")
        self.clock.advance("20h")


def _times_out(call: standfast.Call) -> None:
    raise ConnectionError("connection reset")
