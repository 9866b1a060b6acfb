"""The nodes of a session: its own conversation, and one for each sub-agent, as a tree.

A node is known by its path of names from the root, so the same sub-agent is the same node in
every opening. In a fork a node begins where the cut was: positions below its `first_position`
are the parent's, read from there and never copied.
"""

from __future__ import annotations

from typing import NamedTuple

from standfast.core import journal, keys
from standfast.core.checks import NAME_MAX
from standfast.db.contract import Row, Tx
from standfast.db.sql import load
from standfast.errors import InvalidInput, NotFound
from standfast.ids import new_id
from standfast.ledger.opening_counts import Lineage
from standfast.models import Model

SQL = load(__name__)

NODES_MAX = 1000

Path = tuple[str, ...]


class Node(Model):
    """One conversation of a session. The root has no name."""

    id: str
    session_id: str
    parent_id: str
    name: str
    title: str | None
    first_position: int
    next_position: int
    created_us: int


class Segment(NamedTuple):
    """Positions of a conversation that stand in one node: `first` up to but not including `before`."""

    node_id: str
    first: int
    before: int


POSITION_MAX = 2**62


def path_of(text: str | None) -> Path:
    """`reviewer/tests` as a path; nothing is the root."""
    return tuple(checked_name(name) for name in text.split("/")) if text else ()


def checked_name(name: str) -> str:
    if "/" in keys.checked(name, "a sub-agent's name", limit=NAME_MAX):
        raise InvalidInput(
            f"a sub-agent's name cannot hold a slash: {name!r}", "nest it: s.subagent('a').subagent('b')"
        )
    return name


def add_root(tx: Tx, session_id: str, *, first_position: int = 1) -> Node:
    return _add(tx, session_id, "", "", None, first_position)


def find(tx: Tx, session_id: str, path: Path) -> Node | None:
    """The node at `path`, from the root down."""
    row = tx.maybe(SQL.node, session_id=session_id, parent_id="", name="")
    for name in path:
        if row is None:
            return None
        row = tx.maybe(SQL.node, session_id=session_id, parent_id=row["id"], name=name)
    return _node(row) if row is not None else None


def root(tx: Tx, session_id: str) -> Node:
    found = find(tx, session_id, ())
    assert found is not None, f"{session_id} has no root"
    return found


def open_at(tx: Tx, session_id: str, path: Path, lineage: Lineage, *, title: str | None = None) -> Node:
    """The node at `path`; missing nodes on the way are created and journalled."""
    node = root(tx, session_id)
    for depth, name in enumerate(path, 1):
        row = tx.maybe(SQL.node, session_id=session_id, parent_id=node.id, name=name)
        if row is not None:
            node = _node(row)
            continue
        first = _first_position(tx, path[:depth], lineage)
        node = _add(tx, session_id, node.id, name, title if depth == len(path) else None, first)
        journal.append(tx, "node.opened", node.id, session_id=session_id, summary="/".join(path[:depth]))
    return node


def all_of(tx: Tx, session_id: str) -> list[Node]:
    return [_node(row) for row in tx.all(SQL.nodes, session_id=session_id, limit=NODES_MAX)]


def segments(tx: Tx, node: Node, path: Path, lineage: Lineage) -> tuple[Segment, ...]:
    """The positions of the conversation at `path`, newest first: this node, then its ancestors' of the same path."""
    found = [Segment(node.id, node.first_position, POSITION_MAX)]
    before = node.first_position
    for session_id, _ in lineage if before > 1 else ():
        ancestor = find(tx, session_id, path)
        # The cut may lie before an ancestor's own: then that one has nothing to add.
        if ancestor is not None and ancestor.first_position < before:
            found.append(Segment(ancestor.id, ancestor.first_position, before))
            before = ancestor.first_position
    return tuple(found)


def unknown(path: Path, session_key: str) -> NotFound:
    return NotFound(f"session {session_key!r} has no sub-agent {'/'.join(path)!r}", "standfast session show KEY")


def _first_position(tx: Tx, path: Path, lineage: Lineage) -> int:
    """In a fork a new node goes on behind what its ancestors of the same path said before the cut."""
    for session_id, cut_seq in lineage:
        ancestor = find(tx, session_id, path)
        if ancestor is None:
            continue
        said = tx.maybe(SQL.said_before, node_id=ancestor.id, cut_seq=cut_seq)
        if said is not None:
            return int(said["position"]) + 1
    return 1


def _add(tx: Tx, session_id: str, parent_id: str, name: str, title: str | None, first_position: int) -> Node:
    made = {"session_id": session_id, "parent_id": parent_id, "name": name}
    row = tx.maybe(
        SQL.add,
        id=new_id("nod"),
        title=title,
        first_position=first_position,
        now_us=tx.now_us(),
        **made,
    )
    # On PostgreSQL another process may have made it since we looked: then that one is it.
    return _node(row if row is not None else tx.one(SQL.node, **made))


def _node(row: Row) -> Node:
    return Node(*(row[name] for name in Node.field_names()))
