"""`standfast demo destroy` and `demo restore`: the store of an agent is deleted, or put back in time.

Both use a temporary store, which is removed afterwards. Every command is one that a person would type. Every count
is from the payment service. For comparison, the same agent also runs with a plain file of charges.

    destroy    the directory is deleted while the agent waits for the answer to its third charge
    restore    the store is put back to before the third charge
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from standfast.cli.demo.charges import ORDERS
from standfast.cli.demo.server import PullServer
from standfast.cli.output import Out
from standfast.config import people
from standfast.errors import InvalidInput


class Scene:
    """An agent with its data directory, a payment service, and its counts."""

    def __init__(self, out: Out, server: PullServer, directory: Path, module: str) -> None:
        self._out, self._server, self._module = out, server, module
        self.data, self.copy = directory / "data", directory / "copy"
        self.data.mkdir()
        own = {"STANDFAST_DATA_DIR": self.data, "XDG_STATE_HOME": directory / "state", "DEMO_FILE": self.data / "file"}
        kept = {name: value for name, value in os.environ.items() if not name.startswith("STANDFAST_")}
        self._environment = {**kept, **{name: str(value) for name, value in own.items()}}

    def say(self, text: str = "", style: str = "") -> None:
        if self._out.for_people:
            self._out.text(self._out.styled(text, style) if style else text)
            sys.stdout.flush()

    def agent(self, count: int = len(ORDERS)) -> int:
        """Run the agent from its start, and stop it after `count` orders."""
        return self._run(f"standfast.cli.demo.{self._module}", self._server.url, str(count))

    def standfast(self, *words: str) -> int:
        self.say(f"  $ standfast {' '.join(words)}")
        return self._run("standfast", *words)

    def _run(self, module: str, *words: str) -> int:
        command = [sys.executable, "-P", "-m", module, *words]
        directory, own = self.data.parent, self._environment
        done = subprocess.run(command, env=own, cwd=directory, capture_output=True, text=True, check=False)
        for line in (done.stdout + done.stderr).splitlines():
            if not line.startswith("next: "):  # the store of the demo is removed, so the line could not be pasted
                self.say(f"    {line.replace(str(self.data.parent), '~')}")
        return done.returncode

    def delete_at(self, number: int) -> None:
        """Delete the data directory between a request and its answer."""
        before = len(self._server.pulls)

        def on_post() -> None:
            if len(self._server.pulls) == before + number:
                shutil.rmtree(self.data)

        self._server.on_post = on_post

    def counted(self) -> dict[str, int]:
        """How often each order was charged."""
        counts = Counter(charge["order"] for charge in self._server.pulls)
        twice = [order for order in ORDERS if counts[order] > 1]
        words = f"; twice: {', '.join(twice)}" if twice else ""
        self.say(f"  charges at the payment service: {counts.total()} for {len(ORDERS)} orders{words}")
        self.say()
        return {order: counts[order] for order in ORDERS}


def tell(out: Out, what: str) -> int:
    """Run the demo. Exits 0 only if the counts are as promised."""
    people.refuse("restores the store")  # a restore needs a person, so an agent could not complete the demo
    started, counts = time.monotonic(), {}
    for name, title, module in (
        ("standfast", "With standfast", "charges"),
        ("file", "With the charges in one JSON file", "charges_blob"),
    ):
        with PullServer() as server, tempfile.TemporaryDirectory(prefix="demo-", dir=_parent()) as directory:
            scene = Scene(out, server, Path(directory), module)
            scene.say(title, "bold")
            (_destroyed if what == "destroy" else _put_back)(scene, name == "file")
            counts[name] = scene.counted()
    ok = all(times == 1 for times in counts["standfast"].values())
    if not out.for_people:
        charges = {f"charges_{name}": sum(found.values()) for name, found in counts.items()}
        out.record({"ok": ok, **charges, "seconds": round(time.monotonic() - started, 2)})
    out.then("standfast backup list")
    return 0 if ok else 1


def _parent() -> str:
    """A directory outside the temporary one, because a store in a temporary directory has no copies."""
    from standfast.config.target import Target, state_dir
    from standfast.db.sqlite.location import make_private
    from standfast.db.store_memory import place_of

    parent = state_dir(os.environ)
    if place_of(Target("sqlite", os.path.join(parent, "demo", "standfast.db"))) is None:
        raise InvalidInput(
            f"{parent} is a temporary directory, or STANDFAST_REMEMBER is 0: no copies are taken there",
            "XDG_STATE_HOME=/some/dir standfast demo destroy",
        )
    make_private(parent)
    return parent


def _destroyed(scene: Scene, plain: bool) -> None:
    scene.say("  An agent charges four orders. While it waits for the third answer: rm -rf of its directory.")
    scene.delete_at(3)
    scene.agent()
    scene.data.mkdir(exist_ok=True)
    if not plain:
        scene.standfast("restore", "--if-missing")
    scene.say("  The agent runs again, from its first line.")
    scene.agent()


def _put_back(scene: Scene, plain: bool) -> None:
    scene.say("  An agent charges two orders; a copy is taken; it charges the third.")
    scene.agent(2)
    if plain:
        shutil.copytree(scene.data, scene.copy)
    else:
        scene.standfast("backup")
    scene.agent(3)
    scene.say("  The directory is deleted, and the copy takes its place.")
    shutil.rmtree(scene.data)
    if plain:
        shutil.copytree(scene.copy, scene.data)
    else:
        scene.standfast("restore", "--if-missing")
    scene.say("  The agent runs again, from its first line, and does not know of the third charge.")
    scene.agent()
