"""The demo: two agents are killed at the same moment, one with standfast and one with a file.

The server kills each process with a real `kill -9`, after it has stored the request and before it answers.
The server also counts the pull requests.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import chdir
from typing import TYPE_CHECKING, Any

from standfast import hints, when
from standfast.cli.demo.server import PullServer
from standfast.cli.open_store import opened
from standfast.cli.output import Out
from standfast.ids import is_id, short

if TYPE_CHECKING:
    from standfast.handle import Standfast


class Story:
    """One run of the demo: the server, the output, and the counts."""

    def __init__(self, out: Out, server: PullServer) -> None:
        self.out = out
        self.server = server
        self.key = f"demo-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"

    def say(self, text: str = "", style: str = "") -> None:
        if self.out.for_people:
            self.out.text(self.out.styled(text, style) if style else text)
            sys.stdout.flush()

    def life(self, module: str, argument: str, *, number: int, killed: bool) -> int:
        """Run an agent in its own process. With `killed`, the server kills it during a request."""
        environment = {**os.environ, "DEMO_LIFE": str(number)}
        child = subprocess.Popen(
            [sys.executable, "-P", "-m", f"standfast.cli.demo.{module}", self.server.url, argument],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.server.on_post = (lambda: _kill(child)) if killed else (lambda: None)
        told, complaints = child.communicate(timeout=60)
        for line in told.splitlines():
            self.say(f"    {line}")
        if killed and child.returncode == -signal.SIGKILL:
            self.say(
                f"    process {child.pid}: kill -9, after the server stored the request, before it answered", "red"
            )
        elif child.returncode:
            self.say(complaints, "red")
        return child.returncode

    def act(self, title: str, module: str, argument: str) -> tuple[bool, int]:
        """Run one agent twice. Returns whether both runs ended as expected, and the count of the server."""
        before = len(self.server.pulls)
        self.say(title, "bold")
        self.say("  first run")
        first = self.life(module, argument, number=1, killed=True)
        self.say("  second run: the agent starts from its first line; the model changes the request's text")
        second = self.life(module, argument, number=2, killed=False)
        count = len(self.server.pulls) - before
        self.say(f"  pull requests on the server: {count}", "green" if count == 1 else "red")
        self.say()
        return (first, second) == (-signal.SIGKILL, 0), count


def tell(out: Out) -> int:
    """Run the demo. Exits 0 only if the counts are as promised."""
    import tempfile

    started = time.monotonic()
    # An empty working directory is outside any repository, so the demo writes nothing into the scope of a project.
    with PullServer() as server, tempfile.TemporaryDirectory() as directory, chdir(directory):
        story = Story(out, server)
        story.say("An agent opens a pull request. Its process is killed before the server's answer arrives.")
        story.say()
        ours_ok, ours = story.act("With standfast", "agent", story.key)
        blob_ok, blob = story.act("With the session in one JSON file", "blob", os.path.join(directory, "session.json"))
        with _opened() as sf:
            place = str(sf.settings.target.shown)
            rows = list(_timeline(sf, story.key))
            session_id = sf.sessions.get(story.key).id
        _end(story, place, rows, session_id)
        seconds = time.monotonic() - started
    ok = ours_ok and blob_ok and ours == 1
    if not out.for_people:
        counts: dict[str, Any] = {"pull_requests_standfast": ours, "pull_requests_json_file": blob}
        out.record({"ok": ok, **counts, "session": story.key, "store": place, "seconds": round(seconds, 2)})
    return 0 if ok else 1


def _end(story: Story, place: str, rows: list[str], session_id: str) -> None:
    story.say("What the journal says happened", "bold")
    for row in rows:
        story.say(f"  {row}")
    story.say()
    story.say(f"The session is stored in {place}")
    story.out.then(hints.command("session", "show", session_id[-6:]))  # the key would not be found inside a repository


def _timeline(sf: Standfast, key: str) -> Iterator[str]:
    for entry in sf.timeline(window="10m", session=key).entries:
        about = short(entry.subject) if is_id(entry.subject) else entry.subject
        summary = f"  {entry.summary}" if entry.summary else ""
        yield f"{when.shown(entry.occurred_us).local[15:]}  {entry.source}  {entry.type:<22} {about}{summary}"


def _opened() -> Standfast:
    return opened()


def _kill(child: subprocess.Popen[str]) -> None:
    child.kill()
    child.wait()
