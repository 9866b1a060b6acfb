"""An agent asks a person and waits for the answer. Killed and started again, it does not ask a second time and
continues to wait.

The person uses the command line; here a few lines play the person.

Run it: python examples/mail_ask_a_human.py
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile

import standfast


def agent(directory: str) -> str | None:
    """The agent. Each start runs it from the top."""
    with standfast.open(data_dir=directory, agent="agent") as sf:
        question = sf.mail.send("role:human", "Which colour, red or blue?", key="colour", for_="1d")
        for answer in sf.mail.follow("agent", thread=question.id, timeout=0.1):
            sf.mail.done(answer)
            return str(answer.body)
        print(f"no answer yet: {sf.mail.delivered(question).state}")
        return None


def person(directory: str, *words: str) -> dict[str, str]:
    environment = {**os.environ, "STANDFAST_DATA_DIR": directory, "STANDFAST_ACTOR": "ada"}
    command = [sys.executable, "-m", "standfast", "mail", *words, "--json"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    found: dict[str, str] = json.loads(done.stdout)["data"]
    return found


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        agent(directory)
        agent(directory)  # started again: the question is already there
        mail = person(directory, "read", "--to", "role:human")
        print(f"ada reads: {mail['body']}")
        person(directory, "reply", mail["id"], "blue", "--done")
        print(f"the agent goes on with {agent(directory)}")


if __name__ == "__main__":
    main()
