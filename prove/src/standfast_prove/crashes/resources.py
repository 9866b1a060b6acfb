"""The crash programs ("worlds") of each feature. Add a line here for a new one."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from standfast_prove.crashes.world import World

RESOURCES: dict[str, tuple[str, ...]] = {
    "core": ("core:Writes", "core:Locks", "core:Migrations"),
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
    "budgets": ("budgets:Calls",),
    "checkpoints": ("checkpoints:Folds",),
    "conversations": ("conversations:Talks",),
    "hooks": ("hooks:Hooks",),
    "artifacts": ("artifacts:Artifacts", "artifacts:Collected"),
    "copies": ("copies:Copies",),
    "knowledge": ("knowledge:Facts",),
    "state": ("state:Values",),
    "apply": ("apply:Fleet",),
    "tasks": ("tasks:Tasks",),
    "undo": ("undo:Undone",),
    "events": ("events:Events",),
    "mail": ("mail:Mails", "asks:Asks"),
    "loops": ("loops:Loops",),
    "threads": ("threads:Threads",),
    "webhooks": ("webhooks:Payments",),
    "imports": ("imports:Imports",),
    "spool": ("spool:Spooling",),
    "daemon": ("daemon:Scheduled", "daemon:Sweeps"),
}

CONTROL = ("core:TooEarly",)
"""Programs with a defect. A sweep has to report it."""


def world(name: str, place: Path, url: str | None = None) -> World:
    """The crash program ("world") "module:Class", with its own directory in `place`."""
    module, _, kind = name.partition(":")
    made: World = getattr(import_module(f"standfast_prove.crashes.{module}"), kind)(place / kind.lower(), url)
    return made
