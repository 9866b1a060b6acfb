"""Bugs of the resources: keys that are ignored, fencing tokens that are not compared, actions that run too early.

sweep resource:World    the crash sweep of that crash program
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
        given = [approvals.Approval.from_row(row) for row in rows if row["state"] == "granted"]
        return given[0] if given else current(tx, asked)

    return patched


def without_directory(fields: Any) -> Any:
    """The request does not name the directory in which a command runs."""
    return lambda value: {name: part for name, part in fields(value).items() if name != "cwd"}


def renamed(field: str) -> Any:
    """The key is different in every process."""

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
    """The file is removed before its records are stored."""
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
    "an approval for another question": Mutant(
        "a grant is not bound to the hash of the question",
        "sweep approvals:Reworded",
        swapped(approvals, "_current", any_yes),
    ),
    "a consumed approval stays granted": Mutant(
        "its state does not change at the dispatch",
        "sweep approvals:Approvals",
        reworded(approvals.SQL, "consume", "THEN 'consumed'", "THEN 'granted'"),
    ),
    "a grant used twice": Mutant(
        "the dispatch does not consume its grant",
        "check spent",
        reworded(
            approvals.SQL,
            "consume",
            "SET attempts_used = attempts_used + 1,\n    state = CASE WHEN attempts_used + 1",
            "SET attempts_used = 0,\n    state = CASE WHEN 0",
        ),
    ),
    "the directory is not in the question": Mutant(
        "a grant for one directory is valid in another",
        "check directory",
        swapped(questions, "_dict", without_directory),
    ),
    "labels are not cleaned": Mutant(
        "an agent can change what the approver's terminal shows",
        "check screen",
        swapped(import_module("standfast.cli.render"), "clean", lambda _: lambda text, **__: text),
    ),
    "an agent is not refused": Mutant(
        "an agent's command can answer an approval", "check agent", swapped(people, "agent_sign", lambda _: nothing)
    ),
    "the last answer wins": Mutant(
        "a later grant replaces a denial",
        "model approvals",
        reworded(approvals.SQL, "answer", "AND state = 'requested'", ""),
    ),
    "mail ended without a fence": Mutant(
        "a late holder can finish the mail of another holder",
        "model mail",
        both(
            swapped(claims.CLAIMS, "refusal", lambda _: nothing),
            swapped(leases, "may_act_for", lambda _: lambda tx, row: True),
        ),
    ),
    "mail is sent again": Mutant(
        "the key of a mail is ignored", "sweep mail:Mails", swapped(send, "letter", renamed("key"))
    ),
    "mail of a dead reader is not returned": Mutant(
        "mail that a killed process had claimed is never ready again",
        "sweep mail:Mails",
        swapped(claims.CLAIMS, "dead", lambda _: lambda tx: []),
    ),
    "an attempt has no end": Mutant(
        "the outcome of an attempt is not recorded", "sweep mail:Mails", without(claims, "end_attempt")
    ),
    "a webhook event is received twice": Mutant(
        "a repeated event id gets a second row",
        "sweep webhooks:Payments",
        swapped(receive, "delivery", renamed("event_id")),
    ),
    "another payload is swallowed": Mutant(
        "another payload under a known event id is accepted",
        "model webhooks",
        swapped(receive, "_differing", lambda _: lambda *a: []),
    ),
    "done before it is handled": Mutant(
        "a killed handler loses its event", "sweep webhooks:Payments", handled_when_received
    ),
    "usage is not booked": Mutant(
        "a settled call costs nothing",
        "sweep budgets:Calls",
        reworded(budgets.SQL, "give_back", "spent_tokens = spent_tokens + :spent_tokens, ", ""),
    ),
    "a settled hold stays held": Mutant(
        "its amount is never free again",
        "sweep budgets:Calls",
        reworded(budgets.SQL, "give_back", "held_tokens = held_tokens - :most_tokens, ", ""),
    ),
    "a call is made again under its key": Mutant(
        "a settled hold is not returned for its key",
        "sweep budgets:Calls",
        swapped(budgets, "_same", lambda _: nothing),
    ),
    "credits without a key": Mutant(
        "a repeated payment is credited again", "sweep webhooks:Payments", swapped(credits, "_wanted", renamed("key"))
    ),
    "a balance falls below zero": Mutant(
        "a spend does not compare the balance",
        "model credits",
        swapped(credits, "_refuse_uncovered", lambda _: nothing),
    ),
    "a swap over any version": Mutant(
        "of two writers the first is overwritten",
        "campaign state",
        both(
            reworded(values.SQL, "swap", "AND version = :version", ""),
            swapped(values, "_over", lambda _: lambda *args: True),
        ),
        {"calls": 60, "kills": 6},
    ),
    "a version is reused": Mutant(
        "a deleted key starts at version 1 again",
        "model state",
        reworded(values.SQL, "delete", "version = version + 1", "version = 0"),
    ),
    "an event is appended again": Mutant(
        "the key of an event is ignored", "sweep events:Events", swapped(append_event, "_before", lambda _: nothing)
    ),
    "appended at any version": Mutant(
        "the expected version is not compared", "model events", swapped(append_event, "append", whatever_version)
    ),
    "any reader moves the cursor": Mutant(
        "two consumers of one name skip each other's events",
        "model events",
        reworded(consumers.SQL, "move", "AND cursor = :before", ""),
    ),
    "one problem becomes many tasks": Mutant(
        "the fingerprint is ignored",
        "sweep tasks:Tasks",
        swapped(sightings, "fingerprint_of", lambda made: lambda *a, **k: made(*a, **k)[:-8] + os.urandom(4).hex()),
    ),
    "two workers claim one task": Mutant(
        "every caller gets it", "model tasks", swapped(leases, "_ran_out", lambda _: lambda tx, row: True)
    ),
    "a step runs again": Mutant(
        "its stored result is ignored", "sweep sessions:Sessions", swapped(steps.Steps, "_found", lambda _: nothing)
    ),
    "a message is stored twice": Mutant(
        "the key of a message is ignored", "sweep sessions:Sessions", swapped(messages, "by_key", lambda _: nothing)
    ),
    "no sync of the directory": Mutant(
        "after power loss an artifact has a row and no file",
        "campaign images",
        without(artifact_files, "_sync_directory"),
        {"images": 300},
    ),
    "a spool file is removed before its import": Mutant(
        "a kill then loses the records of hooks", "sweep spool:Spooling", spool_gone
    ),
}
