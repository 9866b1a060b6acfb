"""`sf.state`: the methods on values."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from standfast import crash, serial
from standfast.clock import Duration, duration_us
from standfast.config.scope import Keyspace
from standfast.core import repositories, user_code
from standfast.core.checks import NOT_GIVEN, page_size
from standfast.db.contract import Row, Tx
from standfast.db.sql import Statement
from standfast.db.store import Resource, query, refused_inside, transactional
from standfast.errors import InvalidInput, NotFound, VersionConflict
from standfast.ids import is_id
from standfast.record.state import values
from standfast.record.state.models import Entry, Namespace, Place, entry
from standfast.record.state.values import SQL, Wish
from standfast.serial.read_only import changeable

if TYPE_CHECKING:
    from standfast.record.state.hot import HotState

ATTEMPTS_MAX = 20
"""The default number of attempts of `update`."""
EXPIRE_MAX = 1000
PAUSE_MAX_S = 0.05

# In the resource `list` and `set` are methods, so that the types need other names there.
EntryList: TypeAlias = "list[Entry]"
NamespaceList: TypeAlias = "list[Namespace]"


class State(Resource):
    """Values by name: get, set, swap, update, delete, list."""

    __slots__ = ("_hot",)

    @property
    def hot(self) -> HotState:
        """Values that may be lost at any time: in Valkey if STANDFAST_HOT_URL is set, otherwise in the store."""
        from standfast.record.state.hot import HotState  # it uses this class

        if not hasattr(self, "_hot"):
            self._hot = HotState(self.store, self.tx)
        return self._hot

    # -- single values -------------------------------------------------------------------------------

    def get(self, key: str, *, namespace: str = "", returns: Any = None) -> Entry:
        """Get the value of a key, unless it has expired.

        - `namespace`: the namespace of the key; the namespace of a session is its id.

        Raises NotFound. `returns` is the type to decode to: a missing field gets its default, a renamed one is read
        from its old name too, an unknown one is ignored.
        """
        found = self._read(lambda tx: self._entry(tx, key, namespace))
        return found if returns is None else found.replace(value=serial.decode(found.value, returns, what=key))

    def _entry(self, tx: Tx, key: str, namespace: str) -> Entry:
        place = self._place(tx, namespace)
        found = values.look(tx, place, key)
        if found is None:
            raise values.unknown(place, key)
        return found

    def _place(self, tx: Tx, namespace: str) -> Place:
        """The namespace in this repository. The values of a session belong to the session in every repository."""
        row = tx.maybe(SQL.session, id=namespace) if is_id(namespace) else None
        if row is None:
            return Place(self.keyspace, namespace)
        return Place(Keyspace(row["scope"]), namespace, label=repositories.labelled(row))

    # -- writes --------------------------------------------------------------------------------------

    @transactional
    def set(
        self,
        tx: Tx,
        key: str,
        value: serial.Json,
        *,
        namespace: str = "",
        for_: Duration | None = None,
        json_schema: serial.Json = NOT_GIVEN,
        verify: str | None = NOT_GIVEN,
    ) -> Entry:
        """Store a value, also over an older one. With `for_` it expires after that time.

        `json_schema` is checked at this write and at every later one. `verify` is a command that only
        `standfast state check` runs. Both stay with the key until a call gives another one, or None.
        Raises InvalidInput that names the field which does not fit the schema.
        """
        for_us = duration_us(for_, "for_")
        wish = Wish(for_us=for_us, json_schema=json_schema, verify=verify)
        return values.put(tx, self._place(tx, namespace), key, value, wish)

    @transactional
    def swap(
        self,
        tx: Tx,
        key: str,
        value: serial.Json,
        *,
        version: int,
        namespace: str = "",
        for_: Duration | None = None,
        json_schema: serial.Json = NOT_GIVEN,
        verify: str | None = NOT_GIVEN,
    ) -> Entry:
        """Store a value only over this version; 0 means that the key must have no value.

        Raises VersionConflict with the current version.
        """
        for_us = duration_us(for_, "for_")
        wish = Wish(for_us=for_us, json_schema=json_schema, verify=verify)
        return values.put(tx, self._place(tx, namespace), key, value, wish, version=version)

    def update(
        self,
        key: str,
        fn: Callable[[Any], Any],
        *,
        namespace: str = "",
        default: Any = NOT_GIVEN,
        returns: Any = None,
        for_: Duration | None = None,
        attempts_max: int = ATTEMPTS_MAX,
    ) -> Entry:
        """Store the result of `fn(value)`. If another writer was faster, read again and call `fn` again.

        `fn` runs outside any transaction, once per attempt. If the key has no value, `fn` gets `default`; without a
        default, NotFound is raised. The expiry stays, unless `for_` is given. With `returns`, `fn` gets and returns
        that type, and unknown fields stay as they are. Raises VersionConflict after `attempts_max` attempts; then
        nothing was written.
        """
        for_us = duration_us(for_, "for_")
        refused_inside(self.tx, "state.update")
        if attempts_max < 1:
            raise InvalidInput("attempts_max is 1 or more")
        for attempt in range(1, attempts_max + 1):
            try:
                return self._updated(key, fn, namespace, default, returns, for_us)
            except VersionConflict as error:
                if attempt == attempts_max:
                    message = f"state {key!r} changed {attempt} times while it was updated: {error.message}"
                    raise VersionConflict(message, error.hint) from None
                _stand_back(attempt)
        raise AssertionError("unreachable")

    def _updated(
        self, key: str, fn: Callable[[Any], Any], namespace: str, default: Any, returns: Any, for_us: int | None
    ) -> Entry:
        found = self._found(key, namespace)
        if found is None and default is NOT_GIVEN:
            raise values.unknown(Place(self.keyspace, namespace), key)
        stored = default if found is None else changeable(found.value)
        given = stored if returns is None or found is None else serial.decode(stored, returns, what=key)
        made = user_code.call(fn, given)
        if returns is not None and found is not None:
            made = serial.kept(made, found.value)
        crash.point("state.before_swap")
        wish = Wish(for_us=for_us, keep_end=for_us is None)
        try:
            version = found.version if found else 0
            return self._write(lambda tx: values.put(tx, self._place(tx, namespace), key, made, wish, version=version))
        except NotFound as error:  # it was deleted or expired after it was read
            raise VersionConflict(error.message, error.hint) from None

    def _found(self, key: str, namespace: str) -> Entry | None:
        try:
            return self.get(key, namespace=namespace)
        except NotFound:
            return None

    @transactional
    def delete(self, tx: Tx, key: str, *, version: int | None = None, namespace: str = "") -> Entry:
        """Delete a key with its schema and its command. A later value gets the next version.

        - `version`: delete only this version.
        - `namespace`: the namespace of the key; the namespace of a session is its id.

        Raises NotFound, or VersionConflict if the version is another one.
        """
        return values.remove(tx, self._place(tx, namespace), key, version=version)

    @transactional
    def expire(self, tx: Tx, *, limit: int = EXPIRE_MAX) -> int:
        """Empty expired values in every scope, to free space, and return their number; 0 when none is left.

        Reads skip expired values anyway.
        """
        return values.expire(tx, page_size(limit, EXPIRE_MAX))

    # -- verification ----------------------------------------------------------------------------------

    @query
    def to_verify(self, tx: Tx, *, namespace: str = "", after: str = "", limit: int = 50) -> EntryList:
        """The values with a command that verifies them, by key. This runs no command."""
        return self._page(tx, SQL.page_to_verify, namespace, after, limit)

    @transactional
    def verified(
        self, tx: Tx, key: str, *, version: int, verdict: str, evidence: str | None = None, namespace: str = ""
    ) -> Entry:
        """Record the verdict about one version: fresh, stale or unknown. The version does not change.

        Raises VersionConflict if the value has another version now.
        """
        place = self._place(tx, namespace)
        return values.verified(tx, place, key, version=version, verdict=verdict, evidence=evidence)

    def _page(self, tx: Tx, statement: Statement, namespace: str, after: str, limit: int) -> EntryList:
        where = self._place(tx, namespace).columns
        rows = tx.all(statement, after=after, now_us=tx.now_us(), limit=page_size(limit), **where)
        return [entry(row) for row in rows]

    # -- lists ---------------------------------------------------------------------------------------

    @query
    def namespaces(self, tx: Tx, *, after: str | None = None, limit: int = 50) -> NamespaceList:
        """List the namespaces of this repository with their number of values; a session's is its id.

        - `after`: start after this namespace, the last one of the page before.
        """
        asked = {"after": after or "", "first": int(after is None), "now_us": tx.now_us()}
        where: Row = {**self.keyspace._asdict(), **repositories.filtered(tx)}
        rows = tx.all(SQL.namespaces, limit=page_size(limit), **asked, **where)
        return [Namespace(row["namespace"], row["n"]) for row in rows]

    @query
    def list(self, tx: Tx, *, namespace: str = "", after: str = "", limit: int = 50) -> EntryList:
        """List the values of a namespace by key, without expired ones.

        - `namespace`: the namespace of the keys; the namespace of a session is its id.
        - `after`: start after this key, the last one of the page before.
        """
        return self._page(tx, SQL.page, namespace, after, limit)


def _stand_back(attempt: int) -> None:
    """Sleep for a random time that grows with each attempt, so that other writers can finish."""
    import random
    import time

    time.sleep(random.uniform(0, min(PAUSE_MAX_S, 0.001 * 2**attempt)))
