"""`standfast` and `standfast status`: items that need a person, counts by state, and the place of the store."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import click

from standfast import hints, when
from standfast.cli.frame import command, option, scope_options
from standfast.cli.open_store import exists, opened, refuse_missing
from standfast.cli.output import Out
from standfast.cli.values import ago, home_short, plain, repository_name
from standfast.config import load

if TYPE_CHECKING:
    from standfast.config import Settings
    from standfast.handle import Standfast

SHOWN_MAX = 20
LOOK_AGAIN_S = 2.0
KINDS = {
    "effect_in_doubt": "in doubt",
    "approval_waiting": "approval",
    "dead_letter": "dead letter",
    "session_crashed": "crashed",
    "session_failed": "failed",
    "session_waiting": "waiting",
    "decision_open": "decision",
    "webhook_waiting": "webhook",
    "mail_waiting": "mail",
    "loop_absent": "not run",
    "loop_stopped": "stopped",
    "run_waiting": "queued",
    "lock_expired": "lock",
}
"""The word before each item, by kind."""


@command("status", examples=("standfast", "standfast status --all --problems"))
@option("--problems", is_flag=True, help="Only show items that failed, crashed, are in doubt or did not run.")
@option("--follow", is_flag=True, help="Keep running, and print each new item as it appears.")
@option(
    "--limit",
    type=click.IntRange(1, 10_000),
    metavar="N",
    help="Show at most N items.  [default: 20; with --json 100 of each kind]",
)
@scope_options
def status_command(out: Out, problems: bool, follow: bool, limit: int | None, scope_choice: str | None) -> None:
    """Show the items that need a person, the counts by state, and the place of the store.

    Inside a repository it shows the items of that repository and counts the others. Outside it shows all items.
    """
    settings = load(outside=scope_choice == "global")
    refuse_missing(settings)
    asked = [f"--{scope_choice}"] * bool(scope_choice) + ["--problems"] * problems
    if exists(settings) or follow:
        with opened(settings) as sf:
            data = status(sf, scope_choice=scope_choice, limit=limit, problems=problems)
            if follow:
                _follow(out, sf, data, lambda: status(sf, scope_choice=scope_choice, problems=problems))
    else:
        data = nothing_yet(settings)
    out.record(data, _lines(out, data, limit or SHOWN_MAX, asked))
    out.then(_next(data))


def _next(data: dict[str, Any]) -> str:
    """The command of the first item; without items, the next command to look at."""
    if data["needs"]:
        return str(data["needs"][0]["command"])
    if data["elsewhere"]:
        return "standfast status --all"
    return "standfast help" if data["exists"] else "standfast demo"


def _follow(out: Out, sf: Standfast, data: dict[str, Any], look: Callable[[], dict[str, Any]]) -> None:
    """Print each item once. An item that is settled and appears again is printed again."""
    printed: set[str] = set()
    with sf._store.watch() as watch:
        while True:
            for need in data["needs"]:
                if need["id"] not in printed:
                    out.record(need, _need(out, need))
            out.flush()
            printed = {need["id"] for need in data["needs"]}
            watch.wait(LOOK_AGAIN_S)
            data = look()


def status(
    sf: Standfast, *, scope_choice: str | None = None, limit: int | None = None, problems: bool = False
) -> dict[str, Any]:
    """The data of `standfast status` for an open store."""
    from standfast.admin.counts import COUNT_MAX, counts, states
    from standfast.core.gap import warning
    from standfast.views import coverage, recovery

    report = sf.recovery.report(everywhere=coverage.choice(scope_choice), limit=limit or recovery.EACH_MAX)
    wanted = recovery.PROBLEMS if problems else frozenset(recovery.KINDS)
    return {
        **_place(sf.settings),
        "exists": True,
        "schema_version": sf.engine.schema_version(),
        "counts": sf.read(counts),
        "states": sf.read(states),
        "counts_max": COUNT_MAX,
        "needs": [plain(item) for item in report.items if item.kind in wanted],
        "waiting": {kind: count for kind, count in report.counts.items() if kind in wanted},
        "truncated": report.truncated,
        "elsewhere": report.elsewhere,
        "copies": _copies(sf),
        "gap": sf.read(warning),
    }


def _copies(sf: Standfast) -> dict[str, Any]:
    """The times of the newest copies, and a warning if a person should take one."""
    from standfast.admin.copies.resource import newest, stale

    found, now_us = sf.read(lambda tx: (newest(tx), tx.now_us()))
    return {**plain(found), "warning": stale(found, sf.settings.options.copies.max_age, now_us)}


def nothing_yet(settings: Settings) -> dict[str, Any]:
    """The data of `standfast status` without a store. Reading does not create a store."""
    empty: dict[str, Any] = {
        "counts": {},
        "states": {},
        "needs": [],
        "waiting": {},
        "truncated": False,
        "elsewhere": {},
        "gap": "",
    }
    empty["copies"] = {"taken_us": None, "verified_us": None, "tested_us": None, "seq": None, "warning": ""}
    return {**_place(settings), "exists": False, "schema_version": None, **empty}


def _place(settings: Settings) -> dict[str, Any]:
    from standfast.views import coverage

    return {
        "data_dir": settings.data_dir,
        "engine": settings.target.engine,
        "store": settings.target.shown,
        "source": settings.source,
        "decided_by": settings.where,
        "scope": settings.scope,
        "repository": settings.label.name,
        "actor": settings.actor,
        "unread_stores": coverage.unread_stores(settings),
    }


def _lines(out: Out, data: dict[str, Any], limit: int, options: list[str]) -> Iterator[str]:
    about = f"{data['engine']}, schema {data['schema_version']}" if data["exists"] else data["engine"]
    yield from out.pairs(
        [
            ("store", f"{home_short(data['store'])} ({about})"),
            ("repository", repository_name(data["repository"]) or "none: all repositories are shown"),
            *([("scope", data["scope"])] if data["scope"] else []),
            ("actor", data["actor"]),
            ("holds", _counted(data) if data["exists"] else "nothing yet: the first write makes the store"),
        ]
    )
    if data["needs"]:
        yield ""
        yield out.styled("What needs you now", "bold")
        for need in data["needs"][:limit]:
            yield from _need(out, need)
        total = sum(data["waiting"].values())
        if total > limit:
            yield f"  and {total - limit} more: {hints.command('status', *options, '--limit', str(total))}"
    if data["copies"]["warning"]:
        yield f"{data['copies']['warning']}: standfast backup"
    if data["gap"]:
        yield f"{data['gap']}: standfast restore finish"
    yield from verdict(data)


def _need(out: Out, need: dict[str, Any]) -> Iterator[str]:
    """The item, its place and time, and the command that settles it."""
    where = home_short(need["scope"]) or ("" if need["here"] else "no repository")
    named = need["kind"].startswith("session_")  # its first line names the session
    session = f"session {need['session']}" if need["session"] and not named else ""
    who = need["who"] if need["who"] != need["session"] else ""
    since = f"{ago(need['since_us'])} ({when.shown(need['since_us']).local[:-3]})"
    width = max(map(len, KINDS.values())) + 2
    label = out.styled(f"  {KINDS[need['kind']]:<{width}}", "yellow")
    first, *more = out.wrapped(need["what"], width + 2)
    yield f"{label}{first}"
    more += out.wrapped(", ".join(fact for fact in (since, who, session, where) if fact), width + 2)
    yield from (f"{'':{width + 2}}{line}" for line in [*more, need["command"]])


def verdict(data: dict[str, Any]) -> Iterator[str]:
    """The number of items elsewhere, or that nothing needs a person in the stores that were read."""
    from standfast.views import coverage

    unread = data["unread_stores"]
    if data["elsewhere"]:
        nothing = "" if data["needs"] else "Nothing needs you in this repository. "
        yield f"{nothing}{coverage.waiting_elsewhere(data['elsewhere'])}: standfast status --all"
    elif not data["needs"] and not data.get("gap"):
        yield "Nothing needs you now in this store." if unread else "Nothing needs you now."
    if unread:
        yield coverage.not_read(unread)


def _counted(data: dict[str, Any]) -> str:
    most = data["counts_max"]
    by_state = [
        f"{_plural(table)}: {', '.join(f'{n} {state}' for state, n in found.items())}"
        for table, found in data["states"].items()
    ]
    rest = {table: n for table, n in data["counts"].items() if n and table not in data["states"]}
    return "; ".join([*by_state, ", ".join(_amount(table, n, most) for table, n in rest.items())])


def _amount(table: str, n: int, most: int) -> str:
    return f"{n}{'+' if n >= most else ''} {_name(table) if n == 1 else _plural(table)}"


def _name(table: str) -> str:
    return "undoable change" if table == "removed" else table.replace("_", " ")


def _plural(table: str) -> str:
    name = _name(table)
    if name in ("mail", "usage", "state", "knowledge"):
        return name
    if name.endswith("y"):
        return f"{name[:-1]}ies"
    return f"{name}es" if name.endswith(("x", "s")) else f"{name}s"
