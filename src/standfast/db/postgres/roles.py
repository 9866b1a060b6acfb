"""The roles of a store on PostgreSQL: the grants of each, and the statements that create them.

    owner      owns the schema; migrations run as this role
    daemon     the daemon and the operator's commands: as writer, and loops, runs, gates and stored commands
    writer     agents: everything else, but no answer to an approval
    reader     reads every column
    approver   reads, and answers approvals: a mail whose answer waited for one becomes ready
    auditor    reads every column but payloads

A person or an agent has a login of its own that is a member of one of them; `event.db_user` names the login. Row
policies and triggers restrict which state a row may get. Grants cannot do this. `grants` is the only list. `create`
applies it, and `roles_check` compares a server with it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from standfast.config.people import for_people
from standfast.db import catalogue
from standfast.db.postgres.address import Address
from standfast.db.postgres.connect import connect
from standfast.db.postgres.faults import spoken
from standfast.errors import InvalidInput
from standfast.serial import PAYLOAD_COLUMNS

if TYPE_CHECKING:
    from standfast.db.postgres.driver import psycopg

PREFIX = "standfast"
ROLES = ("owner", "daemon", "writer", "reader", "approver", "auditor")

COMMANDS = ("loop", "run", "gate")
"""Tables that only the daemon's role writes: their rows start or stop commands in another process."""
OWNERS = ("meta", "migration")
ADDED_TO = ("credit_entry", "digest", "repository", "step", "task_note")
"""Tables whose rows are never changed."""
DELETED = (
    "artifact", "artifact_chunk", "checkpoint", "consumer", "item", "item_vector", "knowledge", "message",
    "removed",
    "search_entry", "search_mark", "snapshot", "task_need", "thread_checkpoint", "thread_value",
    "thread_write", "tool_call", "usage",
)  # fmt: skip
SET_BY_SERVER = ("seq", "xid", "db_user")
"""Columns of the journal that no role may set."""
IDENTITY = ("id", "scope", "key")
"""Columns of an effect to which an approval is bound."""
LIMITS = (
    "scope", "name", "parent", "per", "action", "max_tokens", "max_microusd", "max_calls", "max_duration_us",
    "removed_us",
)  # fmt: skip
"""Columns of a budget that agents set once and do not change."""
ANSWER = ("state", "approver", "rationale", "method", "proof", "answered_us")

_UNASKED = "approver IS NULL AND rationale IS NULL AND method IS NULL AND answered_us IS NULL AND consumed_us IS NULL"
_EXACT = "question_hash = 'h1:' || encode(sha256(convert_to(question, 'UTF8')), 'hex')"
_ANSWERS = "type NOT IN ('approval.granted', 'approval.denied')"
_COMMANDS = (
    "type !~ '^(loop|run|store)[.]'"
    " AND type NOT IN ('gate.added', 'gate.removed', 'gate.paused', 'gate.resumed', 'gate.undone')"
)
_ANSWERED = "state IN ('granted', 'denied') AND approver IS NOT NULL"
POLICIES = {
    "all_read": ("approval", "SELECT", ROLES[1:], "USING (true)"),
    "asked": ("approval", "INSERT", ("writer", "daemon"),
              f"WITH CHECK (state = 'requested' AND attempts_used = 0 AND {_UNASKED} AND {_EXACT})"),
    "expired": ("approval", "UPDATE", ("writer", "daemon"),
                "USING (state IN ('requested', 'granted')) WITH CHECK (state = 'expired')"),
    "answered": ("approval", "UPDATE", ("approver",),
                 f"USING (state = 'requested') WITH CHECK (state = 'expired' OR ({_ANSWERED}))"),
    "all_follow": ("event", "SELECT", ROLES[1:], "USING (true)"),
    "agents_tell": ("event", "INSERT", ("writer",), f"WITH CHECK ({_ANSWERS} AND {_COMMANDS})"),
    "daemons_tell": ("event", "INSERT", ("daemon",), f"WITH CHECK ({_ANSWERS})"),
    "approvers_tell": ("event", "INSERT", ("approver",), "WITH CHECK (type LIKE 'approval.%')"),
}  # fmt: skip
"""Row policies by name: table, statement, roles, condition. Without a policy a role sees and changes no row."""


class Grant(NamedTuple):
    role: str
    privilege: str
    table: str
    column: str = ""
    """Empty: the whole table."""


class Made(NamedTuple):
    """The changes that `create` made, or would make."""

    roles: list[str]
    created: list[str]
    statements: list[str]


@cache
def grants() -> frozenset[Grant]:
    """All privileges of all roles. The names of roles are without prefix."""
    found: set[Grant] = set()
    columns = _columns()
    for table in columns:
        for role in ("daemon", "writer", "reader", "approver"):
            found.add(Grant(role, "SELECT", table))
        payloads = [name.partition(".")[2] for name in PAYLOAD_COLUMNS if name.partition(".")[0] == table]
        found |= _on("auditor", "SELECT", table, payloads)
        for role in ("daemon", "writer"):
            found |= set(_written(role, table))
    found |= _on("approver", "INSERT", "event", SET_BY_SERVER)
    found.add(Grant("approver", "UPDATE", "mail", "ready_us"))
    return frozenset(found | {Grant("approver", "UPDATE", "approval", column) for column in ANSWER})


def _written(role: str, table: str) -> Iterator[Grant]:
    if table == "event":
        yield from _on(role, "INSERT", table, SET_BY_SERVER)
    elif table == "approval":
        yield from (Grant(role, "INSERT", table), Grant(role, "UPDATE", table, "state"))
    elif table not in OWNERS and (role == "daemon" or table not in COMMANDS):
        yield Grant(role, "INSERT", table)
        if table not in ADDED_TO:
            yield from _on(role, "UPDATE", table, _fixed(role, table))
        if table in DELETED:
            yield Grant(role, "DELETE", table)


def _fixed(role: str, table: str) -> tuple[str, ...]:
    """Columns of a table that a role sets only when it inserts a row."""
    if table == "effect":
        return IDENTITY
    return LIMITS if table == "budget" and role == "writer" else ()


def _on(role: str, privilege: str, table: str, without: Iterable[str]) -> set[Grant]:
    """The privilege on the whole table, or on each column except `without`."""
    if not without:
        return {Grant(role, privilege, table)}
    return {Grant(role, privilege, table, column) for column in _columns()[table] if column not in set(without)}


@cache
def _columns() -> dict[str, list[str]]:
    """The tables of a store and their columns. The view is read through `event`, which has its own grants."""
    found: dict[str, list[str]] = {}
    for item in catalogue.wanted("postgres"):
        if item.kind == "column":
            found.setdefault(item.table, []).append(item.name.partition(".")[2])
    return {table: sorted(names) for table, names in sorted(found.items())}


def named(prefix: str, role: str) -> str:
    return f"{prefix}_{role}"


@for_people("changes roles")
def create(url: str, prefix: str = PREFIX, *, dry_run: bool = False) -> Made:
    """Create the six roles with exactly their grants, in one transaction. Repeated calls change nothing.

    The caller's role becomes a member of the owner. Raises StorageError where it may not create roles.
    """
    if not re.fullmatch("[a-z_][a-z0-9_]{0,40}", prefix):
        raise InvalidInput(f"a prefix has 1 to 41 small letters, digits and _ (got {prefix!r})", "--prefix shop")
    address = Address(url)
    with spoken(address), connect(address) as connection, connection.transaction(force_rollback=dry_run):
        created = _missing(connection, prefix)
        statements = []
        for text in _statements(connection, prefix, created):
            statements.append(text)
            connection.execute(text.encode())
    return Made([named(prefix, role) for role in ROLES], created, statements)


def _statements(connection: psycopg.Connection[Any], prefix: str, missing: list[str]) -> Iterator[str]:
    """The statements in order. The caller must run each statement before it takes the next, which depends on the
    result."""
    owner, others = named(prefix, "owner"), ", ".join(named(prefix, role) for role in ROLES[1:])
    yield from (f"CREATE ROLE {name} NOLOGIN" for name in missing)
    yield from _rows(connection, _BELONGS, owner, owner)
    yield from _rows(connection, _OWNED, *[owner] * 6)
    yield f"REVOKE ALL ON SCHEMA standfast FROM PUBLIC, {others}"
    yield f"REVOKE ALL ON ALL TABLES IN SCHEMA standfast FROM PUBLIC, {others}"
    yield f"GRANT USAGE ON SCHEMA standfast TO {others}"
    yield f"GRANT SELECT ON standfast.effect_transition TO {others}"
    by_table: dict[tuple[str, str], dict[str, list[str]]] = {}
    for one in sorted(grants()):
        by_table.setdefault((one.role, one.table), {}).setdefault(one.privilege, []).append(one.column)
    for (role, table), privileges in by_table.items():
        words = [f"{name} ({', '.join(columns)})" if columns[0] else name for name, columns in privileges.items()]
        yield f"GRANT {', '.join(words)} ON standfast.{table} TO {named(prefix, role)}"
    for table in sorted({table for table, *_ in POLICIES.values()}):
        yield f"ALTER TABLE standfast.{table} ENABLE ROW LEVEL SECURITY"
    for name, (table, change, roles, condition) in POLICIES.items():
        whose = ", ".join(named(prefix, role) for role in roles)
        yield f"DROP POLICY IF EXISTS {name} ON standfast.{table}"
        yield f"CREATE POLICY {name} ON standfast.{table} FOR {change} TO {whose} {condition}"
    yield (
        f"INSERT INTO standfast.meta (key, value) VALUES ('roles', '{prefix}')"
        " ON CONFLICT (key) DO UPDATE SET value = excluded.value"
    )


# A superuser has every role without being a member. From PostgreSQL 16 on, a role that creates another is a member that
# may only pass it on.
_BELONGS = """
SELECT format('GRANT %%I TO %%I', CAST(%s AS text), current_user)
FROM pg_roles AS whole
WHERE whole.rolname = %s
  AND NOT (pg_has_role(whole.oid, 'USAGE')
           AND EXISTS (SELECT 1 FROM pg_auth_members JOIN pg_roles AS one ON one.oid = member
                       WHERE roleid = whole.oid AND one.rolname = current_user))
"""
_OWNED = """
SELECT format('GRANT CREATE ON DATABASE %%I TO %%I', current_database(), CAST(%s AS text)) AS text, 0 AS place
WHERE NOT has_database_privilege(CAST(%s AS name), current_database(), 'CREATE')
UNION ALL
SELECT format('ALTER SCHEMA standfast OWNER TO %%I', CAST(%s AS text)), 1 FROM pg_namespace
WHERE nspname = 'standfast' AND pg_get_userbyid(nspowner) <> %s
UNION ALL
SELECT format('ALTER %%s %%s OWNER TO ', kind, name) || quote_ident(%s), 2
FROM (SELECT CASE relkind WHEN 'v' THEN 'VIEW' ELSE 'TABLE' END AS kind, CAST(CAST(oid AS regclass) AS text) AS name,
             relowner AS owner
      FROM pg_class WHERE relnamespace = to_regnamespace('standfast') AND relkind IN ('r', 'p', 'v')
      UNION ALL
      SELECT 'FUNCTION', CAST(CAST(oid AS regprocedure) AS text), proowner
      FROM pg_proc WHERE pronamespace = to_regnamespace('standfast')) AS objects
WHERE pg_get_userbyid(owner) <> %s
ORDER BY place, text
"""


def _missing(connection: psycopg.Connection[Any], prefix: str) -> list[str]:
    there = {row[0] for row in connection.execute("SELECT CAST(rolname AS text) FROM pg_roles").fetchall()}
    return [name for role in ROLES if (name := named(prefix, role)) not in there]


def _rows(connection: psycopg.Connection[Any], text: str, *values: str) -> list[str]:
    return [str(row[0]) for row in connection.execute(text.encode(), values).fetchall()]
