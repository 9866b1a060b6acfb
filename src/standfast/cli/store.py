"""`standfast store`: list, create and reset the stores that this host remembers."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, NamedTuple

from standfast import hints
from standfast.cli.confirm import CONFIRM, require_consent
from standfast.cli.frame import argument, choose_store, noun, option
from standfast.cli.open_store import opened
from standfast.cli.output import Out
from standfast.cli.progress import reported
from standfast.cli.render import Column, clean_lines
from standfast.clock import iso
from standfast.config import load, people
from standfast.core.units import size
from standfast.errors import Conflict, InvalidInput, NotFound

if TYPE_CHECKING:
    from standfast.admin.copies.places import CopyPlace
    from standfast.admin.store_reset import Plan
    from standfast.db.store_memory import Place, Remembered

store = noun("store", "List, create or reset stores, or copy a journal to another place.", default="list")


def _time(iso: str) -> str:
    return f"{iso[:19].replace('T', ' ')} UTC" if iso else ""


COLUMNS = [
    Column("name"),
    Column("store_id", "id", show=lambda id: id[-6:]),
    Column("state"),
    Column("size_bytes", "size", show=lambda count: size(count) if count else ""),
    Column("written", show=_time),
    Column("copied", show=_time),
    Column("place"),
]


@store.verb("list", examples=("standfast store list", "standfast store list --json"))
def list_(out: Out) -> None:
    """List your named stores and all other stores that this host remembers."""
    from standfast.db import store_memory

    around = _around()
    found = [plain(known, around) for known in store_memory.stores()]
    places = {row["place"] for row in found}
    found += [_unknown(name, path, around.here) for path, name in around.names.items() if path not in places]
    found.sort(key=lambda row: (row["name"] == "", row["name"]))
    known = [row["store_id"][-6:] for row in found if row["store_id"]]
    out.rows(
        found,
        COLUMNS,
        then=hints.command("store", "show", known[0]) if known else "standfast status",
        empty="no store is remembered on this host",
    )


@store.verb("show", examples=("standfast store show", "standfast store show 9k2m4x --json"))
@argument("store_id", required=False, metavar="[ID]")
def show(out: Out, store_id: str | None) -> None:
    """Show one remembered store; without ID, the configured store."""
    from standfast.db import store_memory

    around = _around()
    if store_id is None:
        found = store_memory.at(around.here) if around.here is not None else []
    else:
        found = [known for known in store_memory.stores() if known.store_id.endswith(store_id.lower())]
        if len(found) > 1:
            raise InvalidInput(f"{store_id!r} names {len(found)} stores", "give more of its characters")
    if not found:
        what = f"{store_id!r}" if store_id else "this place"
        raise NotFound(f"no store is remembered for {what}", "standfast store list")
    data = plain(found[0], around)
    out.record(data, out.pairs(_details(data)))


def _details(data: dict[str, Any]) -> list[tuple[str, Any]]:
    return [
        ("name", data["name"]),
        ("id", data["store_id"]),
        ("state", data["state"] + (", configured here" if data["configured_here"] else "")),
        ("size", size(data["size_bytes"]) if data["size_bytes"] else ""),
        *((name, _time(data[name])) for name in ("opened", "written", "copied")),
        ("place", data["place"]),
        *(("was at", place) for place in data["places"][1:]),
        ("host", data["host"]),
        ("epoch", data["epoch"]),
        ("journal", f"row {data['seq']:,}, {data['hash']}" if data["seq"] else "empty"),
        ("gates", "yes" if data["gates"] else "none"),
    ]


@store.verb("create", examples=("standfast store create", "standfast store create scratch --if-missing"))
@argument("name", required=False, callback=choose_store, expose_value=False)
@option("--if-missing", is_flag=True, help="Exit 0 if the store exists; for unattended starts.")
def create(out: Out, if_missing: bool) -> None:
    """Create an empty store: NAME, or the configured one. Agents may not replace a remembered store."""
    from standfast.db import store_memory
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
    exists = f"there is a store at {settings.target.shown}: {data['store_id']}"
    if not created and not if_missing:
        raise Conflict(exists, "standfast status")
    data["instead_of"] = [known.store_id for known in lost] if created else []
    text = f"created the store {data['store_id']} at {data['place']}" if created else f"{exists}; nothing changed"
    given_up = [f"gave up {', '.join(data['instead_of'])}, which was here before"] if data["instead_of"] else []
    out.record(data, [text, *given_up])
    out.then("standfast status")


@store.verb("push", examples=("standfast store push s3://team/journals", "standfast store push postgresql://hub/all"))
@argument("to", metavar="TO")
@option("--payloads", is_flag=True, help="Also send the data of each event, without known secrets.")
def push(out: Out, to: str, payloads: bool) -> None:
    """Copy the journal to PostgreSQL, s3://BUCKET/NAME or a directory, each event once."""
    from standfast.admin import push as pushing

    with opened(create=False) as sf:
        done = pushing.push(sf._store, to, payloads=payloads, progress=reported(out))
    text = f"pushed {done.sent:,} events to {done.to}; it has all up to {done.upto_seq:,}"
    out.record(done.as_dict(), [text])


@store.verb("reset", examples=("standfast store reset", "standfast store reset --confirm 3f9a0c71b2d4"))
@option("--confirm", **CONFIRM)
def reset(out: Out, confirm: str | None) -> None:
    """Move the store to another directory and forget it; nothing is deleted. Agents may not do this."""
    from standfast.admin import store_reset

    people.refuse("resets the store")
    settings = load()
    made = store_reset.plan(settings)
    words, question = ("store", "reset"), "Type yes to reset this store: "
    require_consent(out, words, question, _planned(made), _lines(made), confirm)
    store_reset.reset(settings, made)
    done = {**_planned(made), "reset": True}
    out.record(done, [f"moved to {made.to}" if made.moves else "forgotten; there was nothing to move"])
    out.then("standfast status")


def _planned(made: Plan) -> dict[str, Any]:
    return {**made._asdict(), "hash": made.hash}


def _lines(made: Plan) -> list[str]:
    stores = ", ".join(made.store_ids) or "not remembered"
    lines = [f"Reset the store at {made.place} ({stores})."]
    if made.moves:
        lines += ["These are moved, not deleted:", *(f"  {name}" for name in made.moves), f"to {made.to}"]
    else:
        lines += ["There is nothing to move: the store is missing."]
    lines += ["The memory of this store is removed; the next command starts with an empty store."]
    return [clean_lines(line) for line in lines]


def plain(known: Remembered, around: Around) -> dict[str, Any]:
    """A remembered store as JSON."""
    from standfast.db import store_memory

    place = known.places[0] if known.places else None
    there = store_memory.present(place) if place is not None else False
    state = "given up" if known.given_up else {True: "present", False: "missing", None: "not checked"}[there]
    return {
        "name": around.names.get(place.name, "") if place is not None else "",
        "store_id": known.store_id,
        "state": state,
        **_on_disk(place.name if there and place is not None else None),
        "copied": _copied(around.copies, known.store_id),
        "place": place.shown if place is not None else "",
        "host": place.host if place is not None else "",
        "opened": iso(known.time_us),
        "seq": known.seq,
        "hash": known.hash,
        "epoch": known.epoch,
        "gates": known.gates,
        "configured_here": around.here in known.places,
        "places": [one.shown for one in known.places],
    }


def _unknown(name: str, path: str, here: Place | None) -> dict[str, Any]:
    """A named store that this host does not remember, for example because it is in a temporary directory."""
    configured = here is not None and here.name == path
    row = {"name": name, "store_id": "", "state": "present", **_on_disk(path), "copied": "", "place": path}
    return row | {"configured_here": configured, "places": [path]}


def _on_disk(path: str | None) -> dict[str, Any]:
    """Size and last write of the database and its WAL. The files are not opened."""
    found = [os.stat(path + end) for end in ("", "-wal") if os.path.exists(path + end)] if path is not None else []
    written = max((one.st_mtime_ns // 1000 for one in found), default=None)
    return {"size_bytes": sum(one.st_size for one in found), "written": iso(written) if written else ""}


def _copied(copies: CopyPlace, store_id: str) -> str:
    """The time of the newest copy in a directory. S3 is not asked: it needs a round trip for each store."""
    from standfast.admin.copies.places import Directory

    if not isinstance(copies, Directory):
        return ""
    try:
        with os.scandir(copies.of(store_id).path) as entries:
            times = [entry.stat().st_mtime_ns // 1000 for entry in entries if entry.name.endswith(".json")]
    except OSError:
        return ""
    return iso(max(times)) if times else ""


class Around(NamedTuple):
    """Values that all rows of the list need."""

    here: Place | None
    """Where the configured store is."""
    names: dict[str, str]
    """The names of named stores by their real paths."""
    copies: CopyPlace


def _around() -> Around:
    from standfast.admin.copies.places import configured
    from standfast.config.named_stores import named_stores
    from standfast.db.store_memory import place_of

    settings = load(quiet=True)
    names = {os.path.realpath(path): name for name, path in named_stores().items()}
    return Around(place_of(settings.target), names, configured(settings.options.copies.to))
