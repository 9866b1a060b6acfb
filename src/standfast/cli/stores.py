"""`standfast store`: the stores this host remembers, and starting again with an empty one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from standfast.cli import exits
from standfast.cli.frame import argument, noun, option
from standfast.cli.output import Out
from standfast.cli.render import Column
from standfast.footings import hints

if TYPE_CHECKING:
    from standfast.db.store_memory import Place, Remembered
    from standfast.upkeep.store_reset import Plan

store = noun("store", "The stores that this host remembers; create or reset one.", default="list")

COLUMNS = [
    Column("store_id", show=lambda id: id[-6:]),
    Column("state"),
    Column("place"),
    Column("opened"),
    Column("seq"),
    Column("gates", show=lambda gates: "yes" if gates else "no"),
]


@store.verb("list", examples=("standfast store list", "standfast store list --json"))
def list_(out: Out) -> None:
    """List the remembered stores: where each is, when it was last opened, and whether it is still there."""
    from standfast.db import store_memory

    here = _here()
    found = [plain(known, here) for known in store_memory.stores()]
    out.rows(
        found,
        COLUMNS,
        then="standfast store show" if found else "standfast status",
        empty="no store is remembered on this host",
    )


@store.verb("show", examples=("standfast store show", "standfast store show 9k2m4x --json"))
@argument("store_id", required=False, metavar="[ID]")
def show(out: Out, store_id: str | None) -> None:
    """Show one remembered store: the ID or the end of it; without one, the store that is configured here."""
    from standfast.db import store_memory
    from standfast.errors import InvalidInput, NotFound

    here = _here()
    if store_id is None:
        found = store_memory.at(here) if here is not None else []
    else:
        found = [known for known in store_memory.stores() if known.store_id.endswith(store_id.lower())]
        if len(found) > 1:
            raise InvalidInput(f"{store_id!r} names {len(found)} stores", "give more of its characters")
    if not found:
        what = f"{store_id!r}" if store_id else "this place"
        raise NotFound(f"no store is remembered by {what}", "standfast store list")
    data = plain(found[0], here)
    shown = [(name, value) for name, value in data.items() if name != "places"]
    out.record(data, out.pairs([*shown, *(("was at", place) for place in data["places"][1:])]))


@store.verb("create", examples=("standfast store create", "standfast store create --if-missing"))
@option("--if-missing", is_flag=True, help="Exit 0 if there is a store already: for unattended starts.")
def create(out: Out, if_missing: bool) -> None:
    """Create an empty store, also where a remembered one is missing; then refused to agents."""
    from standfast.config import load
    from standfast.db import store_memory
    from standfast.errors import Conflict
    from standfast.handle import connect

    settings = load()
    place = store_memory.place_of(settings.target)
    lost = store_memory.at(place) if place is not None else []
    created = False

    def on_create() -> None:
        nonlocal created
        if lost and place is not None:
            store_memory.give_up(place)
        created = True

    with connect(settings, as_actor=True, on_create=on_create) as sf:
        data: dict[str, Any] = {"store_id": sf.engine.store_id, "place": settings.target.shown, "created": created}
    if not created and not if_missing:
        raise Conflict(f"there is a store at {settings.target.shown}: {data['store_id']}", "standfast status")
    data["instead_of"] = [known.store_id for known in lost] if created else []
    out.record(data, out.pairs(data.items()))


@store.verb("reset", examples=("standfast store reset", "standfast store reset --confirm 3f9a0c71b2d4"))
@option("--confirm", metavar="HASH", help="The hash of the plan, where there is no terminal to ask on.")
def reset(out: Out, confirm: str | None) -> None:
    """Move the store aside and forget it. Nothing is deleted. For people: refused to agents."""
    from standfast.config import load, people
    from standfast.errors import Conflict
    from standfast.upkeep import store_reset

    people.refuse("resets the store")
    settings = load()
    made = store_reset.plan(settings)
    if confirm is not None and confirm != made.hash:
        raise Conflict(
            f"the plan is {made.hash} now, not {confirm}: the store changed since it was shown", "standfast store reset"
        )
    if confirm is None and not _agreed(out, made):
        out.say("nothing was changed")
        raise click.exceptions.Exit(exits.NEEDS_A_PERSON)
    store_reset.reset(settings, made)
    done = {**_planned(made), "reset": True}
    out.record(done, [f"moved to {made.to}" if made.moves else "forgotten; nothing was there to move"])
    out.then("standfast status")


def _agreed(out: Out, made: Plan) -> bool:
    """Ask on the terminal; without one, print the plan and refuse."""
    from standfast.cli.approve import terminal_of_a_person
    from standfast.errors import ApprovalRequired

    try:
        with terminal_of_a_person("standfast store reset") as terminal:
            for line in _lines(made):
                terminal.write(line + "\n")
            return terminal.ask("\nType yes to reset this store: ").lower() == "yes"
    except ApprovalRequired:
        out.record(_planned(made), _lines(made))
        raise ApprovalRequired(
            "standfast store reset asks a person, and there is no terminal here",
            f"a person confirms this plan: {hints.command('store', 'reset', '--confirm', made.hash)}",
            code="confirm_required",
        ) from None


def _planned(made: Plan) -> dict[str, Any]:
    return {**made._asdict(), "hash": made.hash}


def _lines(made: Plan) -> list[str]:
    from standfast.cli.render import clean_lines

    stores = ", ".join(made.store_ids) or "not remembered"
    lines = [f"Reset the store at {made.place} ({stores})."]
    if made.moves:
        lines += ["These are moved, not deleted:", *(f"  {name}" for name in made.moves), f"to {made.to}"]
    else:
        lines += ["There is nothing to move: the store is missing."]
    lines += ["The memory of this store is removed; the next command starts with an empty store.", f"plan {made.hash}"]
    return [clean_lines(line) for line in lines]


def plain(known: Remembered, here: Place | None) -> dict[str, Any]:
    """One remembered store as commands print it."""
    from standfast.clock import iso
    from standfast.db import store_memory

    place = known.places[0] if known.places else None
    there = store_memory.present(place) if place is not None else False
    state = "given up" if known.given_up else {True: "present", False: "missing", None: "not checked"}[there]
    return {
        "store_id": known.store_id,
        "state": state,
        "place": place.shown if place is not None else "",
        "host": place.host if place is not None else "",
        "opened": iso(known.time_us),
        "seq": known.seq,
        "hash": known.hash,
        "epoch": known.epoch,
        "gates": known.gates,
        "configured_here": here is not None and here in known.places,
        "places": [one.shown for one in known.places],
    }


def _here() -> Place | None:
    from standfast.config import load
    from standfast.db.store_memory import place_of

    return place_of(load(quiet=True).target)
