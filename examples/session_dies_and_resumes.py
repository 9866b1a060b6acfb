"""A process is killed in the middle of its work; the next one continues where it was.

python examples/session_dies_and_resumes.py
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import dataclass

import standfast


@dataclass(frozen=True)
class Plan:
    title: str
    files: list[str]


def make_plan(issue: str) -> Plan:
    """Yours would ask an LLM, and pay for it once."""
    return Plan(f"fix {issue}", ["parser.py"])


def write_patch(plan: Plan, path: str) -> str:
    if os.environ.get("DIE"):
        os.kill(os.getpid(), signal.SIGKILL)
    return f"--- {path}\n+++ {path}\n# {plan.title}"


def agent() -> None:
    """The agent. A restarted process runs it from the top, and recorded steps and effects return their results."""
    with standfast.open() as sf, sf.session("example:dies") as s:
        plan = s.step("plan", make_plan, "the parser")
        patch = s.step("patch", write_patch, plan, plan.files[0])
        s.say("assistant", patch, key="patch")


def main() -> None:
    subprocess.run([sys.executable, __file__, "agent"], env={**os.environ, "DIE": "yes"}, check=False)
    subprocess.run([sys.executable, __file__, "agent"], check=True)
    with standfast.open() as sf:
        found = sf.sessions.get("example:dies")
        taken_over = [event.type for event in sf.journal.about(found.id) if event.type == "session.taken_over"]
        print(found.key, found.state, taken_over)
        for message in sf.sessions.messages(found.key):
            print(message.content)


if __name__ == "__main__":
    agent() if sys.argv[1:] == ["agent"] else main()
