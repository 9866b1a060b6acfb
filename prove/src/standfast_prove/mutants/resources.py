"""Bugs of the resources: keys that are not looked at, fences that are not compared, deeds that come too early.

sweep resource:World    the crash sweep of that world
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
from standfast.core import artifact_files, leases
from standfast.interchange.hooks import spool
from standfast.ledger import approvals, credits, questions
from standfast.ledger.budgets import resource as budgets
from standfast.ledger.webhooks import claims as webhook_claims
from standfast.ledger.webhooks import receive
from standfast.record import messages, steps
from standfast.record.events import append as append_event
from standfast.record.events import consumers
from standfast.record.mail import claims, send
from standfast.record.state import values
from standfast.record.tasks import sightings
from standfast_prove.mutants.patching import Mutant, Setter, both, reworded, swapped, without


def nothing(*_: Any, **__: Any) -> None:
    """No holder is found, and nothing is refused."""


def any_yes(current: Any) -> Any:
    """An approval of this effect covers any other arguments too."""

    def patched(tx: Any, asked: Any) -> Any:
        rows = tx.all(approvals.SQL.standing, effect_id=asked.effect["id"], question_hash=asked.question_hash)
        given = [approvals._approval(row) for row in rows if row["state"] == "granted"]
        return given[0] if given else current(tx, asked)

    return patched


def without_directory(fields: Any) -> Any:
    """The question does not say where a command runs."""
    return lambda value: {name: part for name, part in fields(value).items() if name != "cwd"}


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
    """The event counts as done as soon as a process has claimed it."""
    taken = webhook_claims._taken

    def patched(tx: Any, row: Any, for_us: Any) -> Any:
        event = taken(tx, row, for_us)
        webhook_claims.done(tx, event, None)
        return event

    m.setattr(webhook_claims, "_taken", patched)


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
        swapped(questions, "_dict", without_directory),
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
        "a late holder ends the mail of another holder",
        "model mail",
        both(
            swapped(claims.CLAIMS, "refusal", lambda _: nothing),
            swapped(leases, "may_act_for", lambda _: lambda tx, row: True),
        ),
    ),
    "mail is sent again": Mutant(
        "its key is not looked at", "sweep mail:Mails", swapped(send, "letter", renamed("key"))
    ),
    "the dead keep their mail": Mutant(
        "a killed reader's mail never comes back",
        "sweep mail:Mails",
        swapped(claims.CLAIMS, "dead", lambda _: lambda tx: []),
    ),
    "an attempt has no end": Mutant(
        "the outcome of an attempt is not recorded", "sweep mail:Mails", without(claims, "end_attempt")
    ),
    "an event is received twice": Mutant(
        "no row per event id", "sweep webhooks:Payments", swapped(receive, "delivery", renamed("event_id"))
    ),
    "another payload is swallowed": Mutant(
        "two events under one id are one", "model webhooks", swapped(receive, "_differing", lambda _: lambda *a: [])
    ),
    "done before it is handled": Mutant(
        "a killed handler loses its event", "sweep webhooks:Payments", handled_when_received
    ),
    "usage is not booked": Mutant(
        "a settled call costs nothing",
        "sweep budgets:Calls",
        reworded(budgets.SQL, "give_back", "spent_tokens = spent_tokens + :spent_tokens, ", ""),
    ),
    "a hold is not given back": Mutant(
        "a settled call is held for ever",
        "sweep budgets:Calls",
        reworded(budgets.SQL, "give_back", "held_tokens = held_tokens - :most_tokens, ", ""),
    ),
    "a call is made again under its key": Mutant(
        "a settled hold does not answer its key", "sweep budgets:Calls", swapped(budgets, "_same", lambda _: nothing)
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
        "a deleted key starts at version 1 again",
        "model state",
        reworded(values.SQL, "delete", "version = version + 1", "version = 0"),
    ),
    "an event is appended again": Mutant(
        "its key is not looked for", "sweep events:Events", swapped(append_event, "_before", lambda _: nothing)
    ),
    "appended at any version": Mutant(
        "the expected version is not compared", "model events", swapped(append_event, "append", whatever_version)
    ),
    "a place that anybody moves": Mutant(
        "two readers under one name skip each other's events",
        "model events",
        reworded(consumers.SQL, "move", "AND cursor = :before", ""),
    ),
    "one problem is many tasks": Mutant(
        "a fingerprint is not looked at",
        "sweep tasks:Tasks",
        swapped(sightings, "fingerprint_of", lambda made: lambda *a, **k: made(*a, **k)[:-8] + os.urandom(4).hex()),
    ),
    "a task for two": Mutant(
        "every caller gets it", "model tasks", swapped(leases, "_ran_out", lambda _: lambda tx, row: True)
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
    "a spool is removed first": Mutant("a kill then loses the records of hooks", "sweep spool:Spooling", spool_gone),
}
