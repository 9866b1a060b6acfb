"""The list of all campaigns. A new campaign is a line here and a function in `campaigns/`.

This table is shown without importing any campaign. A campaign is `run(place, seed=…, url=…, **arguments)`: a short
run in an empty directory, on SQLite, or on the PostgreSQL of `url`, that returns an `Outcome`. It raises
`Unavailable` where the machine cannot do it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

SQLITE, POSTGRES = "sqlite", "postgres"
BOTH = (SQLITE, POSTGRES)
ONLY_SQLITE = (SQLITE,)
ONLY_POSTGRES = (POSTGRES,)

WORKLOADS = {
    "crashes": "processes are killed before and after each write, and again while they recover",
    "actors": "many processes use one store: schedulers, workers, approvers, auditors, daemons",
    "migration": "work in progress is interrupted, migrated from every older schema, and resumed",
    "audit": "an auditor who may not read payloads still finds out what happened",
    "growth": "bytes per event, latency of frequent calls and recovery time as the history grows",
    "power": "power loss, full disks, failing disks and damaged files",
    "time": "clocks jump, leases expire, and loops fire for simulated years",
    "partitions": "machines cannot reach each other or their server",
    "simulation": "all features at once on a virtual clock; the same seed repeats the same run",
    "histories": "recorded calls of many processes are checked for linearizability",
    "models": "random programs are compared with a model of a few lines",
    "inputs": "random and damaged input at every entry point",
    "hostile": "a hostile repository, transcript or agent tries to pass gates, approvals and the terminal filter",
}

_NONE: Mapping[str, Any] = MappingProxyType({})


class Campaign(NamedTuple):
    """One campaign: its function, its workload and its share of the time."""

    name: str
    workload: str
    place: str
    """ "module:function", the module inside `standfast_prove.campaigns`."""
    unit: str
    """The count in `seen` of its outcome that is one try."""
    share: float = 1.0
    """Its share of the time, relative to the other campaigns."""
    engines: tuple[str, ...] = ONLY_SQLITE
    arguments: Mapping[str, Any] = _NONE
    control: str = ""
    """For a control: the protection that is switched off. Then the campaign has to fail."""


def _crashes(resource: str, share: float = 1.0, *, firsts: int = 6, seconds: int = 20) -> Campaign:
    """Kill the crash programs of a resource: `firsts` first crashes of each program, and `seconds` second crashes in
    all.
    """
    asked = {"resource": resource, "firsts": firsts, "seconds": seconds}
    return Campaign(f"crashes-{resource}", "crashes", "crashes:run", "schedules", share, BOTH, asked)


CAMPAIGNS: tuple[Campaign, ...] = (
    _crashes("core"),
    _crashes("sessions"),
    _crashes("effects", 4, firsts=3, seconds=12),
    _crashes("approvals", 2, firsts=3, seconds=12),
    _crashes("budgets"),
    _crashes("checkpoints"),
    _crashes("conversations"),
    _crashes("hooks"),
    _crashes("artifacts"),
    _crashes("copies", firsts=3, seconds=6),
    _crashes("knowledge"),
    _crashes("state"),
    _crashes("apply"),
    _crashes("tasks"),
    _crashes("undo"),
    _crashes("events"),
    _crashes("mail"),
    _crashes("loops"),
    _crashes("threads"),
    _crashes("webhooks"),
    _crashes("imports"),
    _crashes("spool"),
    _crashes("daemon", firsts=3, seconds=6),
    Campaign(
        "crashes-control",
        "crashes",
        "crashes:run",
        "schedules",
        0.2,
        ONLY_SQLITE,
        {"resource": "control", "firsts": 12, "seconds": 0},
        control="waiting for the commit",
    ),
    Campaign("budgets", "crashes", "budgets:run", "calls", 1, BOTH),
    Campaign(
        "budgets-control",
        "crashes",
        "budgets:run",
        "calls",
        0.2,
        BOTH,
        {"check_then_add": True},
        control="the reservation before the call",
    ),
    Campaign("spools", "crashes", "spools:run", "kills", 1, BOTH),
    Campaign("copies", "crashes", "copies:run", "copies", 1, BOTH),
    Campaign(
        "copies-control",
        "crashes",
        "copies:run",
        "copies",
        0.2,
        BOTH,
        {"manifest_first": True},
        control="a manifest that is written last",
    ),
    Campaign("disasters", "crashes", "disasters:run", "disasters", 2, BOTH, {"disasters": 30}),
    Campaign(
        "disasters-control",
        "crashes",
        "disasters:run",
        "disasters",
        0.2,
        BOTH,
        {"disasters": 6, "tools": ("cp",), "forgetful": True},
        control="the host's memory of its stores",
    ),
    Campaign("disasters-servers", "crashes", "disaster_servers:run", "disasters", 2, ONLY_POSTGRES, {"disasters": 10}),
    Campaign(
        "disasters-servers-control",
        "crashes",
        "disaster_servers:run",
        "disasters",
        0.2,
        ONLY_POSTGRES,
        {"disasters": 4, "forgetful": True},
        control="the host's memory of its stores",
    ),
    Campaign("moves", "crashes", "moves:run", "moves", 2, ONLY_POSTGRES, {"moves": 40}),
    Campaign(
        "moves-control",
        "crashes",
        "moves:run",
        "moves",
        0.2,
        ONLY_POSTGRES,
        {"moves": 5, "renaming": True},
        control="a source that stays in its place",
    ),
    Campaign("undo", "models", "undo:run", "programs", 1, BOTH),
    Campaign(
        "undo-control",
        "models",
        "undo:run",
        "programs",
        0.5,
        BOTH,
        {"unchecked": True},
        control="the check that the row is still as the change wrote it",
    ),
    Campaign("digests", "models", "digests:run", "rounds", 1, BOTH),
    Campaign(
        "digests-control",
        "models",
        "digests:run",
        "rounds",
        0.5,
        BOTH,
        {"witness": False},
        control="a witness outside the store",
    ),
    Campaign("interrupts", "crashes", "interrupts:run", "interrupts", 1, ONLY_SQLITE),
    Campaign(
        "interrupts-control",
        "crashes",
        "interrupts:run",
        "interrupts",
        0.5,
        ONLY_SQLITE,
        {"leading": True, "patience_s": 3.0},
        control="the writer thread",
    ),
    Campaign("damage", "power", "damage:run", "acts", 2, ONLY_SQLITE, {"acts": 1000}),
    Campaign(
        "damage-control",
        "power",
        "damage:run",
        "acts",
        0.2,
        ONLY_SQLITE,
        {"acts": 20, "checked": False},
        control="the identity check",
    ),
    Campaign("probes", "crashes", "probes:run", "tries", 2, ONLY_SQLITE, {"tries": 6}),
    Campaign("vandal", "power", "vandal:run", "acts", 2, ONLY_SQLITE, {"acts": 60}),
    Campaign(
        "vandal-control",
        "power",
        "vandal:run",
        "acts",
        0.2,
        ONLY_SQLITE,
        {"acts": 20, "kinds": ("rm", "mv directory", "replace"), "careless": True},
        control="the handle's pin and the host's memory of its stores",
    ),
    Campaign(
        "vandal-chmod-ddl-full",
        "power",
        "vandal:run",
        "acts",
        1,
        ONLY_SQLITE,
        {
            "acts": 60,
            "kinds": ("chmod db", "chmod wal", "chmod directory", "drop table", "alter table", "full disk"),
        },
    ),
    Campaign("vandal-ordinary", "power", "vandal:ordinary", "rows acknowledged", 1, ONLY_SQLITE, {"seconds": 60}),
    Campaign("actors-family", "actors", "actors:run", "jobs", 3, BOTH, {"families": 4}),
    Campaign(
        "actors-family-control",
        "actors",
        "actors:run",
        "jobs",
        0.5,
        BOTH,
        {"families": 4, "careless": True, "patience_s": 20},
        control="the check whether a holder is alive",
    ),
    Campaign(
        "actors-crowd",
        "actors",
        "actors:run",
        "jobs",
        1,
        ONLY_SQLITE,
        {"jobs": 48, "workers": 55, "others": 4, "kills": 16},
    ),
    Campaign(
        "actors-crowd",
        "actors",
        "actors:run",
        "jobs",
        1,
        ONLY_POSTGRES,
        {"jobs": 48, "workers": 104, "others": 4, "kills": 16},
    ),
    Campaign("places", "actors", "places:run", "starts", 1, BOTH, {"jobs": 8, "late": True, "varied": True}),
    Campaign(
        "places-late-control",
        "actors",
        "places:run",
        "starts",
        0.3,
        BOTH,
        {"jobs": 4, "late": True, "settle": "0s"},
        control="the settle time of probes",
    ),
    Campaign(
        "places-varied-control",
        "actors",
        "places:run",
        "starts",
        0.3,
        BOTH,
        {"jobs": 3, "varied": True, "proceed": True},
        control="sessions that stop while an effect is in doubt",
    ),
    Campaign(
        "places-unnamed-control",
        "actors",
        "places:run",
        "starts",
        0.3,
        BOTH,
        {"jobs": 2, "varied": True, "unnamed": True},
        control="errors that name what they refuse",
    ),
    Campaign(
        "places-control",
        "actors",
        "places:run",
        "starts",
        0.3,
        BOTH,
        {"jobs": 2, "yesterday": True},
        control="keys that do not depend on the directory",
    ),
    Campaign("boot", "actors", "boot:run", "rounds", 1, BOTH, {"rounds": 20}),
    Campaign("migration-pending", "migration", "migration:run", "schedules", 3, BOTH, {"schedules": 20}),
    Campaign(
        "migration-pending-control",
        "migration",
        "migration:run",
        "schedules",
        0.5,
        BOTH,
        {"schedules": 20, "torn": True},
        control="one transaction for all migration steps",
    ),
    Campaign("boot-old", "migration", "boot:run", "rounds", 1, BOTH, {"rounds": 20, "old": True}),
    Campaign("audit-blind", "audit", "audit:run", "facts", 1, BOTH, {"histories": 5, "things": 120}),
    Campaign(
        "audit-blind-control",
        "audit",
        "audit:run",
        "facts",
        0.2,
        BOTH,
        {"things": 120, "forgetful": True},
        control="a journal row for every change",
    ),
    Campaign("growth-folds", "growth", "growth:run", "events", 1, BOTH),
    Campaign(
        "growth-folds-control",
        "growth",
        "growth:run",
        "events",
        0.2,
        BOTH,
        {"sizes": (1_000,), "samples": 5, "kills": 0, "forged": True},
        control="a journal that nothing rewrites",
    ),
    Campaign("torture", "actors", "torture:run", "kills", 4, ONLY_SQLITE, {"seconds": 10}),
    Campaign(
        "torture-control",
        "actors",
        "torture:run",
        "kills",
        0.5,
        ONLY_SQLITE,
        {"seconds": 5, "guard": False},
        control="the guard of SQLite's locks",
    ),
    Campaign("tail", "actors", "followers:run", "events", 1, BOTH),
    Campaign("events", "actors", "events:run", "events", 1, BOTH),
    Campaign("checkpoints", "power", "checkpoints:run", "rows", 1, ONLY_SQLITE, {"seconds": 10}),
    Campaign("power", "power", "power:run", "losses", 4, ONLY_SQLITE, {"losses": 36}),
    Campaign(
        "power-control",
        "power",
        "power:run",
        "losses",
        0.5,
        ONLY_SQLITE,
        {"losses": 12, "synced": False},
        control="fsync",
    ),
    Campaign("power-failing", "power", "power:run_failing", "losses", 2, ONLY_SQLITE, {"losses": 24}),
    Campaign("images", "power", "images:run", "images", 6, ONLY_SQLITE, {"images": 3000}),
    Campaign(
        "images-control",
        "power",
        "images:run",
        "images",
        0.2,
        ONLY_SQLITE,
        {"images": 600, "protection": "sync"},
        control="fsync",
    ),
    Campaign(
        "images-waiting-control",
        "power",
        "images:run",
        "images",
        0.2,
        ONLY_SQLITE,
        {"images": 600, "protection": "waiting"},
        control="waiting for fsync",
    ),
    Campaign(
        "images-names-control",
        "power",
        "images:run",
        "images",
        0.2,
        ONLY_SQLITE,
        {"images": 600, "protection": "names"},
        control="the fsync of an artifact's directory",
    ),
    Campaign("cuts", "power", "power:run_cuts", "cuts", 2, ONLY_SQLITE, {"losses": 36}),
    Campaign(
        "cuts-control",
        "power",
        "power:run_cuts",
        "cuts",
        0.5,
        ONLY_SQLITE,
        {"losses": 12, "synced": False},
        control="fsync",
    ),
    Campaign("simulation", "simulation", "simulation:run", "simulations", 3, BOTH, {"simulations": 100}),
    Campaign("histories", "histories", "histories:run", "histories", 3, BOTH),
    Campaign(
        "histories-control",
        "histories",
        "histories:run",
        "histories",
        0.3,
        ONLY_SQLITE,
        {"crews": 1, "careless": True},
        control="the compare-and-set",
    ),
    Campaign("models", "models", "models:run", "programs", 3, BOTH, {"examples": 20}),
    Campaign("loops", "time", "loops:run", "slots", 2, BOTH, {"years": 1}),
    Campaign("mail", "histories", "mail:run", "mails", 2, BOTH),
    Campaign("state", "histories", "state:run", "calls", 1, BOTH, {"calls": 100, "kills": 16}),
    Campaign("daemon-kills", "actors", "daemons:kills", "kills", 1, ONLY_SQLITE, {"seconds": 30}),
    Campaign(
        "daemon-kills-control",
        "actors",
        "daemons:kills",
        "kills",
        0.5,
        ONLY_SQLITE,
        {"seconds": 10, "careless": True},
        control="the check which workers still run",
    ),
    Campaign("daemon-keepers", "actors", "daemons:keepers", "kills", 0.5, ONLY_SQLITE, {"seconds": 30}),
    Campaign("daemon-rivals", "actors", "daemons:rivals", "kills", 0.5, ONLY_SQLITE, {"seconds": 30}),
    Campaign("daemon-lives", "actors", "daemons:lives", "slots", 0.5, ONLY_SQLITE, {"seconds": 60}),
    Campaign("daemon-locked-out", "actors", "daemons:locked_out", "slots", 0.5, ONLY_SQLITE, {"seconds": 35}),
    Campaign("daemon-full-disk", "power", "daemons:full_disk", "slots", 0.5, ONLY_SQLITE, {"seconds": 20}),
    Campaign("server-cuts", "power", "server_cuts:run", "cuts", 1, ONLY_POSTGRES, {"losses": 12}),
    Campaign(
        "server-cuts-control",
        "power",
        "server_cuts:run",
        "cuts",
        0.2,
        ONLY_POSTGRES,
        {"losses": 3, "waits": False},
        control="waiting for the commit",
    ),
    Campaign("clocks", "time", "clocks:run", "jumps", 1, ONLY_SQLITE, {"steps": 600}),
    Campaign(
        "clocks-control",
        "time",
        "clocks:run",
        "jumps",
        0.1,
        ONLY_SQLITE,
        {"steps": 600, "awake": False},
        control="leases that count time awake",
    ),
    Campaign("disk", "power", "disk:run", "faults", 3, ONLY_SQLITE, {"faults": 60}),
    Campaign(
        "disk-control",
        "power",
        "disk:run",
        "faults",
        0.2,
        ONLY_SQLITE,
        {"kinds": ("rum", "s"), "believes": True},
        control="an error for a refused operation",
    ),
    Campaign("partitions", "partitions", "partitions:run", "partitions", 3, ONLY_POSTGRES, {"partitions": 60}),
    Campaign(
        "partitions-control",
        "partitions",
        "partitions:run",
        "partitions",
        0.3,
        ONLY_POSTGRES,
        {"partitions": 60, "careless": True},
        control="an idempotency key that stays the same",
    ),
    Campaign("interrupts-postgres", "crashes", "interrupts_postgres:run", "interrupts", 1, ONLY_POSTGRES),
    Campaign(
        "interrupts-postgres-control",
        "crashes",
        "interrupts_postgres:run",
        "interrupts",
        0.2,
        ONLY_POSTGRES,
        {"careless": True},
        control="closing a connection whose transaction the server did not end",
    ),
    Campaign(
        "daemon-machines",
        "partitions",
        "daemons:machines",
        "partitions",
        1,
        ONLY_POSTGRES,
        {"rounds": 1, "haste": True},
    ),
)


_INPUTS = (
    Campaign("inputs-values", "inputs", "inputs:run", "inputs", 0.5, ONLY_SQLITE, {"door": "values", "inputs": 5000}),
    Campaign("inputs-verbs", "inputs", "inputs:run", "inputs", 2, BOTH, {"door": "verbs", "inputs": 1000}),
    Campaign("inputs-apply", "inputs", "inputs:run", "inputs", 1, BOTH, {"door": "apply", "inputs": 500}),
    Campaign("inputs-config", "inputs", "inputs:run", "inputs", 0.5, ONLY_SQLITE, {"door": "config", "inputs": 2000}),
    Campaign("inputs-transcripts", "inputs", "inputs:run", "inputs", 1, BOTH, {"door": "transcripts", "inputs": 300}),
    Campaign("inputs-bundles", "inputs", "interchange:zips", "inputs", 1, BOTH, {"inputs": 1000}),
    Campaign(
        "inputs-bundles-control",
        "inputs",
        "interchange:zips",
        "inputs",
        0.1,
        BOTH,
        {"inputs": 200, "unhashed": True},
        control="the hashes of bundle members",
    ),
    Campaign("inputs-text", "inputs", "interchange:lines", "inputs", 1, BOTH, {"inputs": 1000}),
    Campaign(
        "inputs-text-control",
        "inputs",
        "interchange:lines",
        "inputs",
        0.1,
        BOTH,
        {"inputs": 200, "unread": True},
        control="reading every file before the first write",
    ),
    Campaign("inputs-hooks", "inputs", "inputs:run", "inputs", 0.5, BOTH, {"door": "hooks", "inputs": 2000}),
    *(
        Campaign(
            f"inputs-{door}",
            "inputs",
            "inputs:run",
            "inputs",
            1,
            ONLY_SQLITE,
            {"door": door, "inputs": 100, "program": True},
        )
        for door in ("commands", "hook", "stores", "mcp")
    ),
)

_HOSTILE = (
    Campaign("hostile-shell", "hostile", "hostile:shell", "lines", 1, ONLY_SQLITE, {"lines": 300}),
    Campaign(
        "hostile-shell-control",
        "hostile",
        "hostile:shell",
        "lines",
        0.2,
        ONLY_SQLITE,
        {"lines": 100, "blind": True},
        control="the search for a gate's words anywhere in the line",
    ),
    Campaign("hostile-spool", "hostile", "hostile:planted", "records", 0.5, BOTH, {"records": 200}),
    Campaign(
        "hostile-spool-control",
        "hostile",
        "hostile:planted",
        "records",
        0.2,
        ONLY_SQLITE,
        {"records": 50, "sealed": True},
        control="the seal of spool records",
    ),
    Campaign("hostile-grants", "hostile", "hostile_grants:grants", "calls", 1, BOTH, {"calls": 150}),
    Campaign(
        "hostile-grants-control",
        "hostile",
        "hostile_grants:grants",
        "calls",
        0.2,
        ONLY_SQLITE,
        {"calls": 150, "elsewhere": True},
        control="the directory in the approver's question",
    ),
    Campaign("hostile-transcript", "hostile", "hostile_text:transcript", "texts", 1, BOTH, {"texts": 150}),
    Campaign(
        "hostile-transcript-control",
        "hostile",
        "hostile_text:transcript",
        "texts",
        0.2,
        ONLY_SQLITE,
        {"texts": 20, "uncleaned": True},
        control="the filter for control characters",
    ),
    Campaign("hostile-repository", "hostile", "hostile_text:repository", "outputs", 1, ONLY_SQLITE, {"clones": 2}),
    Campaign(
        "hostile-repository-control",
        "hostile",
        "hostile_text:repository",
        "clones",
        0.2,
        ONLY_SQLITE,
        {"clones": 1, "importing": True},
        control="Python's option -P",
    ),
    Campaign("hostile-sql", "hostile", "hostile_sql:run", "statements", 1, ONLY_POSTGRES, {"statements": 300}),
    Campaign(
        "hostile-sql-control",
        "hostile",
        "hostile_sql:run",
        "statements",
        0.2,
        ONLY_POSTGRES,
        {"statements": 100, "owner": True},
        control="the PostgreSQL role of an agent",
    ),
)

CAMPAIGNS += _INPUTS
CAMPAIGNS += _HOSTILE
CAMPAIGNS += (Campaign("soak", "actors", "soak:run", "kills", 1, BOTH, {"seconds": 40}),)


def named(names: tuple[str, ...]) -> Iterator[Campaign]:
    """The campaigns with these names or workloads. Without names, all campaigns.

    Some workloads and campaigns have the same name: "power" means the campaign, "power/" the workload.
    """
    own = {one.name for one in CAMPAIGNS}
    for one in CAMPAIGNS:
        plain = one.workload in names and one.workload not in own
        if not names or one.name in names or plain or f"{one.workload}/" in names:
            yield one


def known() -> list[str]:
    return [*WORKLOADS, *(f"{workload}/" for workload in WORKLOADS), *(one.name for one in CAMPAIGNS)]
