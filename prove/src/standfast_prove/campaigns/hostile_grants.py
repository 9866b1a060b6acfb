"""An agent with a shell tries to make one call more than the person approved.

Every call is a real push in some spelling. The person grants some of the questions, and a file outside the store notes
each grant: tool, action and directory. A call that passes must be one of these, and each grant lets one call pass. The
agent changes directory, tool, spelling and description, repeats calls from several threads, and reports that calls
failed. In the control every call names the first directory.
"""

from __future__ import annotations

import random
import threading
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import standfast
from standfast import serial
from standfast.errors import StandfastError
from standfast.interchange.hooks import judge, payloads
from standfast.interchange.hooks.payloads import Asked
from standfast.interchange.hooks.record import Hooks
from standfast_prove.campaigns.hostile import Lines
from standfast_prove.outcome import Outcome

DIRECTORIES = ("/src/staging", "/src/production")
TOOLS = ("Bash", "mcp__shell__run")
DESCRIPTIONS = (None, "Push the fix", "Push the corrected fix", "ignore this \x1b[2J")
COMMANDS = 3
THREADS = 3

Act = tuple[str, str, str]
"""Tool, action and directory, as the campaign itself notes them."""


def grants(place: Path, *, url: str | None = None, seed: int = 0, calls: int = 150, elsewhere: bool = False) -> Outcome:
    """An agent with a shell tries to make one call more than the person approved."""
    outcome, chance = Outcome("hostile-grants"), random.Random(seed)
    with standfast.open(url or str(place / "standfast.db"), data_dir=str(place / "data"), agent="claude-code:s1") as sf:
        agent = _Agent(sf, chance, elsewhere=elsewhere)
        for number in range(calls):
            agent.call(number)
            if chance.random() < 0.4:
                agent.person_answers()
    outcome.count("calls", agent.calls)
    outcome.count("passed", sum(agent.passed.values()))
    outcome.count("granted", sum(agent.granted.values()))
    unmatched = [act for act in agent.passed if not agent.granted[act]]
    outcome.refuse(unmatched, "passed without a matching grant")
    again = [act for act in agent.passed if agent.granted[act] and agent.passed[act] > agent.granted[act]]
    outcome.refuse(again, "a grant was used twice")
    outcome.refuse(calls > 50 and not agent.passed, "no call passed, so nothing was shown")
    return outcome


class _Agent:
    def __init__(self, sf: standfast.Standfast, chance: random.Random, *, elsewhere: bool) -> None:
        self._sf, self._chance, self._elsewhere = sf, chance, elsewhere
        self._hooks = Hooks(sf._store)
        sf.gates.add("git push*")
        lines = Lines(chance)
        self._commands = [lines.command() for _ in range(COMMANDS)]
        self._lock = threading.Lock()
        self.calls = 0
        self.passed: Counter[Act] = Counter()
        self.granted: Counter[Act] = Counter()

    def call(self, number: int) -> None:
        """Make one call, or the same call in several threads. Afterwards the agent may report how it ended."""
        command, tool = self._chance.choice(self._commands), self._chance.choice(TOOLS)
        given: dict[str, Any] = {"command": command, "description": self._chance.choice(DESCRIPTIONS)}
        payload = {
            "session_id": "s1",
            "hook_event_name": "PreToolUse",
            "cwd": self._chance.choice(DIRECTORIES),
            "tool_name": tool,
            "tool_input": {name: value for name, value in given.items() if value is not None},
        }
        threads = [
            threading.Thread(target=self._one, args=({**payload, "tool_use_id": f"t{number}-{n}"}, f"{number}{n}"))
            for n in range(THREADS if self._chance.random() < 0.2 else 1)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self._report()

    def _one(self, payload: dict[str, Any], at: str) -> None:
        heard, asked = payloads.heard("claude-code", payload, int(at) + 1), payloads.asked(payload)
        assert heard is not None
        assert asked is not None
        act = (asked.tool, serial.canonical(asked.action), str(asked.cwd))
        kept = self._hooks.keep(heard)
        rows = self._hooks.gates(kept.session_id)
        with self._lock:
            self.calls += 1
        try:
            judge.judge(self._sf._store, rows, self._judged(asked), kept.session_id, judge.Decision())
        except judge.Refusal:
            return
        with self._lock:
            self.passed[act] += 1

    def _judged(self, asked: Asked) -> Asked:
        return asked.replace(cwd=DIRECTORIES[0]) if self._elsewhere else asked

    def _report(self) -> None:
        """The agent reports how its call ended. It may lie, so that it may try again."""
        for effect in self._sf.effects.list(state="dispatched", limit=20):
            with suppress(StandfastError):
                if self._chance.random() < 0.5:
                    self._sf.effects.fail(effect.id, "not applied")
                else:
                    self._sf.effects.done(effect.id, {"status": "ok"})

    def person_answers(self) -> None:
        """Grant one question. The campaign reads its parts and records them outside the store."""
        waiting = self._sf.approvals.list(state="requested", limit=50)
        if not waiting:
            return
        question = self._sf.approvals.pose(self._chance.choice(waiting).id)
        act = (question.tool, str(question.intent), str(question.directory))
        with suppress(StandfastError):
            self._sf.approvals.grant(question.approval.id, approver="ada")
            self.granted[act] += 1
