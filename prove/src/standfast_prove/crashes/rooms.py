"""Which worlds there are, by the room they live in. A new one is a line here."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from standfast_prove.crashes.world import World

ROOMS: dict[str, tuple[str, ...]] = {
    "footings": ("footings:Writes", "footings:Locks", "footings:Migrations"),
    "sessions": ("sessions:Sessions",),
    "effects": (
        "effects:ThreeKinds",
        "effects:OnlyPlain",
        "effects:OnlyProbed",
        "effects:OnlyIdempotent",
        "effects:Failing",
        "effects:Shrugging",
        "effects:Approved",
    ),
    "approvals": (
        "approvals:Approvals",
        "approvals:Probed",
        "approvals:Reworded",
        "approvals:Denied",
        "approvals:Asked",
    ),
    "checkpoints": ("checkpoints:Folds",),
    "conversations": ("conversations:Talks",),
    "hooks": ("hooks:Hooks",),
    "artifacts": ("artifacts:Artifacts", "artifacts:Collected"),
    "state": ("state:Values",),
    "apply": ("apply:Fleet",),
    "tasks": ("tasks:Tasks",),
    "events": ("events:Events",),
    "mail": ("mail:Mails",),
    "loops": ("loops:Loops",),
    "threads": ("threads:Threads",),
    "webhooks": ("webhooks:Payments",),
    "imports": ("imports:Imports",),
    "spool": ("spool:Spooling",),
    "daemon": ("daemon:Scheduled", "daemon:Sweeps"),
}

CONTROL = ("footings:TooEarly",)
"""Programs that are wrong: a sweep has to say so."""


def world(name: str, place: Path, url: str | None = None) -> World:
    """The world "module:Class", with a directory of its own in `place`."""
    module, _, kind = name.partition(":")
    made: World = getattr(import_module(f"standfast_prove.crashes.{module}"), kind)(place / kind.lower(), url)
    return made
