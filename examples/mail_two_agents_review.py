"""Two agents review through mail: the writer asks, a reviewer dies with the mail in hand, the next one answers.

Run it: python examples/mail_two_agents_review.py
"""

from __future__ import annotations

import os
import signal
import tempfile

import standfast


def reviewer(directory: str, name: str, *, dies: bool) -> None:
    with standfast.open(data_dir=directory, agent=name) as sf:
        for mail in sf.mail.follow("role:reviewer", timeout=0):
            print(f"{name} reads {mail.body['pr']!r}, attempt {mail.attempts}", flush=True)
            if dies:
                os.kill(os.getpid(), signal.SIGKILL)  # the reader died, so the mail is ready again at once
            sf.mail.reply(mail, {"verdict": "merge it"}, done=True)  # reply and done in one transaction


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        with standfast.open(data_dir=directory, agent="writer") as sf:
            asked = sf.mail.send("role:reviewer", {"pr": "#42"}, key="review:42", subject="please review")
            again = sf.mail.send("role:reviewer", {"pr": "#42"}, key="review:42", subject="please review")
            print(f"sent once: {asked.id == again.id}")
        for name, dies in (("ann", True), ("bob", False)):
            if (pid := os.fork()) == 0:
                reviewer(directory, name, dies=dies)
                os._exit(0)
            os.waitpid(pid, 0)
        with standfast.open(data_dir=directory, agent="writer") as sf:
            receipt = sf.mail.wait("review:42", timeout=10)
            print(f"{receipt.state} by {receipt.by}; attempts: {[one.outcome for one in receipt.attempts]}")
            for answer in sf.mail.follow("writer", thread=asked.id, timeout=0):
                print(f"{answer.sender} says: {answer.body['verdict']}")
                sf.mail.done(answer)


if __name__ == "__main__":
    main()
