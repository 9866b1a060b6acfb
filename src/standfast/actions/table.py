"""The table of known actions: find the entry of a command line, and ask its probe.

    known = table.recognised(["git", "push", "origin", "fix-42"], cwd)      # None: no entry understands it
    facts = known.before()                      # stored with the intent, before the command runs
    answer = table.check(facts, Place(cwd))     # later, perhaps in another process

The store holds only facts. `check` finds the entry by the action's name and runs the fixed commands of that entry.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import Any, NamedTuple

from standfast import serial
from standfast.actions.action import Action, Answer, CannotTell, Facts, Place, unknown

MODULES = {
    **dict.fromkeys(("git",), "git"),
    **dict.fromkeys(("gh",), "github"),
    **dict.fromkeys(("npm", "twine", "uv"), "packages"),
    **dict.fromkeys(("docker", "podman"), "containers"),
    **dict.fromkeys(("terraform", "kubectl"), "deployments"),
    **dict.fromkeys(("curl", "mail", "mailx", "sendmail", "msmtp", "mutt", "swaks"), "http"),
    **dict.fromkeys(("cp",), "files"),
}
"""The module of each program. It is imported on first use."""
EVIDENCE_MAX = 300
BEFORE_MAX_S = 5.0
"""The longest time that reading the facts may delay a command."""


class Known(NamedTuple):
    """A command line that an entry understands."""

    action: Action
    facts: Facts
    cwd: str
    """The directory of the action, which may differ from the shell's: `git -C DIR`."""

    def before(self, sent_us: int | None = None, within_s: float = BEFORE_MAX_S) -> Facts:
        """The facts for the probe, as plain JSON. Raises CannotTell."""
        place = Place(self.cwd, sent_us, within_s)
        read = self.facts if self.action.before is None else guarded(self.action.before, self.facts, place)
        return {"action": self.action.name, **({"dir": self.cwd} if self.cwd else {}), **read}


def actions() -> Iterator[Action]:
    """Every entry."""
    for module in dict.fromkeys(MODULES.values()):
        yield from import_module(f"standfast.actions.{module}").ACTIONS


def recognised(argv: Sequence[str], cwd: str) -> Known | None:
    """The entry that understands a command line."""
    if not argv or not all(isinstance(word, str) for word in argv):
        return None
    program = os.path.basename(argv[0])
    module = MODULES.get(program)
    if module is None:
        return None
    loaded = import_module(f"standfast.actions.{module}")
    inside = getattr(loaded, f"inside_{program}", None)
    found = (None, list(argv[1:])) if inside is None else inside(argv[1:])
    if found is None:
        return None
    directory, args = found
    there = cwd if directory is None else os.path.normpath(os.path.join(cwd, directory))
    for action, given in _begun_by([program, *args], loaded.ACTIONS):
        facts = action.parse(given)
        if facts is not None:
            return Known(action, facts, there)
    return None


def _begun_by(words: list[str], among: Sequence[Action]) -> Iterator[tuple[Action, list[str]]]:
    """The entries whose command these words begin with, each with the words after it."""
    for action in among:
        for command in action.commands:
            own = command.split(" ")
            if words[: len(own)] == own:
                yield action, words[len(own) :]


def named(name: object) -> Action | None:
    """The entry with this name, which is stored with the facts."""
    return next((one for one in actions() if one.name == name), None)


def check(facts: Facts, place: Place) -> Answer:
    """Ask the probe of an action. The answer is unknown for facts without an entry."""
    action = named(facts.get("action"))
    if action is None:
        return unknown("standfast has no probe for it")
    if action.find is None:
        again = "the server recognises its key for 24 hours, so it may be sent again"
        return unknown(again if action.idempotent_s is not None else f"the probe cannot know {action.cannot}")
    try:
        found = guarded(action.find, facts, place._replace(cwd=str(facts.get("dir") or place.cwd)))
    except CannotTell as error:
        found = unknown(str(error))
    assert isinstance(found, Answer)
    return found._replace(evidence=serial.clean(found.evidence, EVIDENCE_MAX))


def guarded(function: object, facts: Facts, place: Place) -> Any:
    """Call a function of an entry. Stored facts may have any form, so errors of reading them become CannotTell."""
    try:
        return function(facts, place)  # type: ignore[operator]
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, OSError) as error:
        raise CannotTell(f"{type(error).__name__}: {error}") from error


def shown(facts: Facts) -> str:
    """The command or URL that the probe of these facts reads, in one line for people."""
    action = named(facts.get("action"))
    if action is None or action.looks is None:
        return "nothing: standfast has no probe for it"
    try:
        text = str(guarded(lambda facts, _: action.looks(facts), facts, Place("/")))
    except CannotTell:
        return f"nothing: the recorded facts of {action.name} are not readable"
    return serial.clean(text, 200)
