"""Bugs of the rooms: keys that are not looked at, fences that are not compared, deeds that come too early.

sweep room:World    the crash sweep of that world
model NAME          random programs against the model of that feature
campaign NAME       a campaign of the catalogue
"""

from __future__ import annotations

import os
from contextlib import suppress
from importlib import import_module
from typing import Any

from standfast import crash
from standfast.config import people
from standfast.footings import artifact_files, leases
from standfast.interchange.hooks import spool
from standfast.ledger import approvals, credits
from standfast.ledger.webhooks import receiving, working
from standfast.record import messages, steps
from standfast.record.events import appending, consuming
from standfast.record.mail import delivery, sending
from standfast.record.state import values
from standfast.record.tasks import sightings
from standfast_prove.mutants.patching import Mutant, Setter, both, reworded, swapped, without


def nothing(*_: Any, **__: Any) -> None:
    """Nobody is found, nothing is refused."""


def any_yes(current: Any) -> Any:
    """Whoever was given a yes for this effect may do anything in its name."""

    def patched(tx: Any, asked: Any) -> Any:
        rows = tx.all(approvals.SQL.standing, effect_id=asked.effect["id"], question_hash=asked.question_hash)
        given = [approvals._approval(row) for row in rows if row["state"] == "granted"]
        return given[0] if given else current(tx, asked)

    return patched


def without_directory(context: Any) -> Any:
    """The question does not say where a command runs."""
    return lambda effect: {name: value for name, value in context(effect).items() if name != "cwd"}


def renamed(field: str) -> Any:
    """A key that is another one in every process."""

    def make(wanted: Any) -> Any:
        def patched(*args: Any, **more: Any) -> Any:
            made = wanted(*args, **more)
            return (
                made
                if getattr(made, field) is None
                else made._replace(**{field: f"{getattr(made, field)} {os.getpid()}"})
            )

        return patched

    return make


def handled_when_received(m: Setter) -> None:
    """The event counts as done as soon as somebody has taken it."""
    taken = working._taken

    def patched(tx: Any, row: Any, for_us: Any) -> Any:
        event = taken(tx, row, for_us)
        working.done(tx, event, None)
        return event

    m.setattr(working, "_taken", patched)


def whatever_version(append: Any) -> Any:
    def patched(tx: Any, stream: Any, items: Any, *, expected_version: Any = None, **more: Any) -> Any:
        return append(tx, stream, items, **more)

    return patched


def spool_gone(m: Setter) -> None:
    """The file is removed, then its records are kept."""
    opened, kept = spool._open, spool._keep
    last: list[tuple[str, int]] = []

    def remember(name: str, flags: int, directory: int) -> Any:
        last[:] = [(name, directory)]
        return opened(name, flags, directory)

    def keep(store: Any, source: Any, records: Any) -> Any:
        for name, directory in last:
            with suppress(OSError):
                os.unlink(name, dir_fd=directory)
        crash.point("spool.before_remove")
        return kept(store, source, records)

    m.setattr(spool, "_open", remember)
    m.setattr(spool, "_keep", keep)


MUTANTS: dict[str, Mutant] = {
    "a yes for other words": Mutant(
        "an approval is not bound to the bytes", "sweep approvals:Reworded", swapped(approvals, "_current", any_yes)
    ),
    "a yes that is never used up": Mutant(
        "consumed, and still granted",
        "sweep approvals:Approvals",
        reworded(approvals.SQL, "consume", "THEN 'consumed'", "THEN 'granted'"),
    ),
    "a grant used twice": Mutant(
        "a grant is not consumed by its dispatch",
        "check spent",
        reworded(
            approvals.SQL,
            "consume",
            "SET attempts_used = attempts_used + 1,\n    state = CASE WHEN attempts_used + 1",
            "SET attempts_used = 0,\n    state = CASE WHEN 0",
        ),
    ),
    "the directory is not in the question": Mutant(
        "a grant for one directory runs in another",
        "check directory",
        swapped(approvals, "_context", without_directory),
    ),
    "labels are not cleaned": Mutant(
        "an agent redraws the approver's screen",
        "check screen",
        swapped(import_module("standfast.cli.render"), "clean", lambda _: lambda text, **__: text),
    ),
    "an agent is not refused": Mutant(
        "an agent's command answers an approval", "check agent", swapped(people, "agent_sign", lambda _: nothing)
    ),
    "the last answer wins": Mutant(
        "a denial becomes a yes", "model approvals", reworded(approvals.SQL, "answer", "AND state = 'requested'", "")
    ),
    "mail ended without a fence": Mutant(
        "whoever was late ends what another has",
        "model mail",
        both(
            swapped(delivery.CLAIMS, "refusal", lambda _: nothing),
            swapped(leases, "acts_for", lambda _: lambda tx, row: True),
        ),
    ),
    "mail is sent again": Mutant(
        "its key is not looked at", "sweep mail:Mails", swapped(sending, "letter", renamed("key"))
    ),
    "the dead keep their mail": Mutant(
        "a killed reader's mail never comes back",
        "sweep mail:Mails",
        swapped(delivery.CLAIMS, "dead", lambda _: lambda tx: []),
    ),
    "an attempt has no end": Mutant(
        "nobody knows what became of it", "sweep mail:Mails", without(delivery, "end_attempt")
    ),
    "an event is received twice": Mutant(
        "no row per event id", "sweep webhooks:Payments", swapped(receiving, "delivery", renamed("event_id"))
    ),
    "another payload is swallowed": Mutant(
        "two events under one id are one", "model webhooks", swapped(receiving, "_differing", lambda _: lambda *a: [])
    ),
    "done before it is handled": Mutant(
        "a killed handler loses its event", "sweep webhooks:Payments", handled_when_received
    ),
    "credits without a key": Mutant(
        "a payment is credited again", "sweep webhooks:Payments", swapped(credits, "_wanted", renamed("key"))
    ),
    "spent without looking": Mutant(
        "a balance goes below nothing", "model credits", swapped(credits, "_refuse_uncovered", lambda _: nothing)
    ),
    "a swap over any version": Mutant(
        "of two writers one is forgotten",
        "campaign state",
        both(
            reworded(values.SQL, "swap", "AND version = :version", ""),
            swapped(values, "_over", lambda _: lambda *args: True),
        ),
        {"calls": 60, "kills": 6},
    ),
    "a version comes twice": Mutant(
        "what was deleted begins anew",
        "model state",
        reworded(values.SQL, "delete", "version = version + 1", "version = 0"),
    ),
    "an event is appended again": Mutant(
        "its key is not looked for", "sweep events:Events", swapped(appending, "_before", lambda _: nothing)
    ),
    "appended at any version": Mutant(
        "the expected version is not compared", "model events", swapped(appending, "append", whatever_version)
    ),
    "a place that anybody moves": Mutant(
        "two readers under one name skip each other's events",
        "model events",
        reworded(consuming.SQL, "move", "AND cursor = :before", ""),
    ),
    "one problem is many tasks": Mutant(
        "a fingerprint is not looked at",
        "sweep tasks:Tasks",
        swapped(sightings, "fingerprint_of", lambda made: lambda *a, **k: made(*a, **k)[:-8] + os.urandom(4).hex()),
    ),
    "a task for two": Mutant(
        "whoever asks gets it", "model tasks", swapped(leases, "_ran_out", lambda _: lambda tx, row: True)
    ),
    "a step runs again": Mutant(
        "its result is not looked for", "sweep sessions:Sessions", swapped(steps.Steps, "_found", lambda _: nothing)
    ),
    "said again": Mutant(
        "a message's key is not looked for", "sweep sessions:Sessions", swapped(messages, "by_key", lambda _: nothing)
    ),
    "no sync of the directory": Mutant(
        "an artifact's name is gone, its row is there",
        "campaign images",
        without(artifact_files, "_sync_directory"),
        {"images": 300},
    ),
    "a spool is removed first": Mutant("killed then, what hooks told is nowhere", "sweep spool:Spooling", spool_gone),
}
