"""Findings of `doctor` about a PostgreSQL server: the owner of the store, the grants of its roles, and locks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from standfast.admin.doctor import Finding
from standfast.db.postgres import roles_check

if TYPE_CHECKING:
    from standfast.admin.doctor import OpenStore

ROLES = "standfast db roles"


def examine(store: OpenStore) -> Iterator[Finding]:
    yield _owner(store)
    yield _roles(store)
    yield _locks(store)


def _owner(store: OpenStore) -> Finding:
    found = store.read(roles_check.owner)
    strange = [f"table {name}" for name in found.strangers] + [f"trigger {name}" for name in found.triggers]
    strange += [f"function {name}" for name in found.functions]
    if not strange:
        return Finding(
            "owner", "ok", f"role {found.role} owns the store, and every trigger and function is standfast's"
        )
    remedy = "they run with the rights of each caller: read them, and drop those that you do not know"
    return Finding(
        "owner", "warn", f"role {found.role} owns the store; not its own: {roles_check.brief(strange)}", remedy
    )


def _roles(store: OpenStore) -> Finding:
    found = store.read(roles_check.roles)
    if found.prefix is None:
        return Finding("roles", "ok", "none: each role that may write the store may also answer approvals")
    if found.wider:
        return Finding("roles", "warn", f"wider than they should be: {roles_check.brief(found.wider)}", ROLES)
    if found.narrower:
        return Finding("roles", "warn", f"missing: {roles_check.brief(found.narrower)}", ROLES)
    return Finding("roles", "ok", f"{found.prefix}_writer and the others have exactly their grants")


def _locks(store: OpenStore) -> Finding:
    found = store.read(roles_check.blockers)
    if not found:
        return Finding("locks", "ok", "no process waits for a lock")
    said = "; ".join(
        f"server process {one.pid} of {one.role}{f' ({one.application})' * bool(one.application)}"
        + ("" if one.open_s is None else f", in a transaction for {one.open_s:.0f} s,")
        + f" holds back {one.waiting}"
        for one in found
    )
    return Finding("locks", "warn", said, f"if it hangs, end it: SELECT pg_terminate_backend({found[0].pid})")
