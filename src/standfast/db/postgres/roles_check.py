"""Check the roles of a store for `doctor`: grants that are wider or narrower than `roles.grants`.

Only catalogues are read, which every role may read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from standfast.db import catalogue
from standfast.db.contract import Row, Tx
from standfast.db.migrations.m0001_guards import GUARDS
from standfast.db.postgres.roles import POLICIES, ROLES, Grant, grants, named
from standfast.db.sql import statement

NAMED_MAX = 6


class Owner(NamedTuple):
    """The owner of the store, and foreign triggers and rules in it."""

    role: str
    strangers: list[str]
    """Objects of the schema that another role owns."""
    triggers: list[str]
    """Triggers of ours that are disabled, and triggers of others on our tables."""
    functions: list[str]


class Roles(NamedTuple):
    prefix: str | None
    """None: `standfast db roles` was never run."""
    wider: list[str]
    narrower: list[str]


def owner(tx: Tx) -> Owner:
    triggers = {one.name for one in catalogue.wanted("postgres") if one.kind == "trigger"}
    strange = [
        f"{row['name']} on {row['of']} ({row['function']})" + ("" if row["name"] not in triggers else ": disabled")
        for row in tx.all(_TRIGGERS)
        if row["name"] not in triggers or row["enabled"] != "O" or row["schema"] != "standfast"
    ]
    functions = [
        f"{row['name']} of {row['owner']}" for row in tx.all(_FUNCTIONS) if not _ours(row["name"], row["source"])
    ]
    role = tx.one(_OWNER)["owner"]
    return Owner(role, [f"{row['name']} of {row['owner']}" for row in tx.all(_STRANGERS)], strange, functions)


def _ours(name: str, source: str) -> bool:
    """Whether a function has the body that the migration gave it."""
    body = "\n".join(line.removesuffix(" -- [postgres]") for line in source.splitlines()).strip()
    return f"CREATE FUNCTION {name}()" in GUARDS and body in GUARDS


def roles(tx: Tx) -> Roles:
    row = tx.maybe(_PREFIX)
    if row is None:
        return Roles(None, [], [])
    prefix = row["value"]
    found, wanted = {Grant(*one.values()) for one in tx.all(_GRANTED)}, set(_wanted(prefix))
    wider = [_said(one) for one in sorted(found - wanted)]
    wider += [*_attributes(tx, prefix), *_members(tx, prefix), *_policies(tx, prefix)]
    return Roles(prefix, wider, [_said(one) for one in sorted(wanted - found)])


def _wanted(prefix: str) -> Iterator[Grant]:
    yield from (one._replace(role=named(prefix, one.role)) for one in grants())
    for role in ROLES[1:]:
        yield Grant(named(prefix, role), "USAGE", "")
        yield Grant(named(prefix, role), "SELECT", "effect_transition")


def _said(one: Grant) -> str:
    what = f"{one.table}.{one.column}" if one.column else one.table or "the schema"
    return f"{one.role} {one.privilege} on {what}"


def _attributes(tx: Tx, prefix: str) -> Iterator[str]:
    for row in tx.all(_ATTRIBUTES):
        if row["name"] in {named(prefix, role) for role in ROLES}:
            yield f"{row['name']} is {row['attribute']}"


def _members(tx: Tx, prefix: str) -> Iterator[str]:
    """A role of ours that is a member of another role, and a login that can both request and answer approvals."""
    ours = {named(prefix, role): role for role in ROLES}
    belongs: dict[str, set[str]] = {}
    for row in tx.all(_MEMBERS):
        if row["whole"] in ours:
            belongs.setdefault(row["one"], set()).add(ours[row["whole"]])
        if row["one"] in ours and not row["through"]:
            yield f"{row['one']} is a member of {row['whole']}"
    for name, roles in sorted(belongs.items()):
        if "approver" in roles and roles & {"writer", "daemon"} and "owner" not in roles and name not in ours:
            yield f"{name} is a member of {named(prefix, 'approver')} and of {named(prefix, 'writer')} or daemon"


def _policies(tx: Tx, prefix: str) -> Iterator[str]:
    wanted = {(name, table, change, tuple(sorted(named(prefix, role) for role in roles)))
              for name, (table, change, roles, _) in POLICIES.items()}  # fmt: skip
    rows = tx.all(_POLICIES)
    found = {(row["name"], row["of"], row["change"], tuple(sorted(row["roles"].split(",")))) for row in rows}
    yield from (f"policy {name} on {table}" for name, table, *_ in sorted(found - wanted))
    yield from (f"policy {name} on {table} is missing" for name, table, *_ in sorted(wanted - found))
    yield from (f"row security of {row['name']} is off" for row in tx.all(_UNSECURED))


def brief(found: Iterable[str]) -> str:
    """The first of them and how many more there are."""
    lines = list(found)
    more = len(lines) - NAMED_MAX
    return "; ".join(lines[:NAMED_MAX]) + (f" and {more} more" if more > 0 else "")


class Blocker(NamedTuple):
    pid: int
    role: str
    application: str
    open_s: float | None
    waiting: int
    """The number of processes that wait for the lock."""


def blockers(tx: Tx) -> list[Blocker]:
    """Processes in this database that others wait for, the one with most waiting processes first."""
    return [Blocker(*_values(row)) for row in tx.all(_BLOCKERS)]


def _values(row: Row) -> tuple[int, str, str, float | None, int]:
    return row["pid"], row["role"] or "?", row["application"] or "", row["open_s"], row["waiting"]


_PREFIX = statement("SELECT value FROM meta WHERE key = 'roles'", name="roles_prefix")
_OWNER = statement(
    "SELECT CAST(pg_get_userbyid(nspowner) AS text) AS owner FROM pg_namespace WHERE nspname = 'standfast'"
)
_STRANGERS = statement("""
SELECT CAST(relname AS text) AS name, CAST(pg_get_userbyid(relowner) AS text) AS owner
FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace
WHERE nspname = 'standfast' AND relowner <> nspowner AND relkind IN ('r', 'p', 'v')
ORDER BY relname LIMIT 100
""")
_TRIGGERS = statement("""
SELECT CAST(tgname AS text) AS name, CAST(relname AS text) AS of, CAST(tgenabled AS text) AS enabled,
       CAST(CAST(tgfoid AS regprocedure) AS text) AS function, CAST(spaces.nspname AS text) AS schema
FROM pg_trigger JOIN pg_class ON pg_class.oid = tgrelid JOIN pg_proc ON pg_proc.oid = tgfoid
JOIN pg_namespace AS spaces ON spaces.oid = pronamespace
WHERE relnamespace = to_regnamespace('standfast') AND NOT tgisinternal
ORDER BY tgname LIMIT 1000
""")
_FUNCTIONS = statement("""
SELECT CAST(proname AS text) AS name, prosrc AS source, CAST(pg_get_userbyid(proowner) AS text) AS owner
FROM pg_proc WHERE pronamespace = to_regnamespace('standfast')
ORDER BY proname LIMIT 1000
""")
# Grants to other roles than the owner. 0 is PUBLIC.
_GRANTED = statement("""
SELECT COALESCE(CAST(pg_roles.rolname AS text), 'PUBLIC') AS role, privilege, of, attribute
FROM (
    SELECT (aclexplode(nspacl)).grantee AS grantee, (aclexplode(nspacl)).privilege_type AS privilege,
           '' AS of, '' AS attribute, nspowner AS owner
    FROM pg_namespace WHERE nspname = 'standfast'
    UNION ALL
    SELECT (aclexplode(relacl)).grantee, (aclexplode(relacl)).privilege_type, CAST(relname AS text), '', relowner
    FROM pg_class WHERE relnamespace = to_regnamespace('standfast') AND relkind IN ('r', 'p', 'v')
    UNION ALL
    SELECT (aclexplode(attacl)).grantee, (aclexplode(attacl)).privilege_type, CAST(relname AS text),
           CAST(attname AS text), relowner
    FROM pg_attribute JOIN pg_class ON pg_class.oid = attrelid
    WHERE relnamespace = to_regnamespace('standfast') AND attacl IS NOT NULL
) AS granted LEFT JOIN pg_roles ON pg_roles.oid = granted.grantee
WHERE granted.grantee <> granted.owner
ORDER BY 1, 2, 3, 4 LIMIT 10000
""")
_ATTRIBUTES = statement("""
SELECT CAST(rolname AS text) AS name, attribute
FROM pg_roles, LATERAL (VALUES ('SUPERUSER', rolsuper), ('CREATEROLE', rolcreaterole), ('CREATEDB', rolcreatedb),
                               ('BYPASSRLS', rolbypassrls)) AS attributes (attribute, held)
WHERE held ORDER BY 1, 2 LIMIT 10000
""")
_MEMBERS = statement("""
WITH RECURSIVE belongs (one, whole, through) AS (
    SELECT member, roleid, 0 FROM pg_auth_members
    UNION SELECT belongs.one, further.roleid, 1
    FROM belongs JOIN pg_auth_members AS further ON further.member = belongs.whole
)
SELECT CAST(pg_get_userbyid(one) AS text) AS one, CAST(pg_get_userbyid(whole) AS text) AS whole, through
FROM belongs ORDER BY 1, 2, 3 LIMIT 10000
""")
_POLICIES = statement("""
SELECT CAST(policyname AS text) AS name, CAST(tablename AS text) AS of, cmd AS change,
       array_to_string(roles, ',') AS roles
FROM pg_policies WHERE schemaname = 'standfast' ORDER BY 1 LIMIT 1000
""")
_UNSECURED = statement("""
SELECT CAST(relname AS text) AS name FROM pg_class
WHERE relnamespace = to_regnamespace('standfast') AND relname IN ('approval', 'event') AND NOT relrowsecurity
ORDER BY 1 LIMIT 10
""")
_BLOCKERS = statement("""
SELECT holder.pid AS pid, CAST(holder.usename AS text) AS role, holder.application_name AS application,
       CAST(extract(epoch FROM clock_timestamp() - holder.xact_start) AS double precision) AS open_s,
       COUNT(*) AS waiting
FROM pg_stat_activity AS waiter CROSS JOIN LATERAL unnest(pg_blocking_pids(waiter.pid)) AS blocked (by)
JOIN pg_stat_activity AS holder ON holder.pid = blocked.by
WHERE waiter.datname = current_database() AND waiter.wait_event_type = 'Lock'
GROUP BY 1, 2, 3, 4 ORDER BY waiting DESC, pid LIMIT 10
""")
