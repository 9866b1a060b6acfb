"""Named statements, written once for both engines.

`mail.sql` is beside `mail.py`. Each statement begins with `-- name: send`. Where the engines differ, a variant named
`-- name: claim [postgres]` replaces the first text for that engine. The comment above it has the reason. Parameters are
`:name`.

These fragments in braces are replaced by the text of the engine:

    {skip_locked}      FOR UPDATE SKIP LOCKED, or nothing where one writer is alone anyway
    {for_update}       FOR UPDATE, likewise
    {lease_over:t}     the lease of row `t` has run out (RULES: monotonic time on one host)
    {lease_live:t}     the opposite
    {lease_set}        take a lease: the holder, its actor and the columns of `leases.new_lease`
    {lease_none}       no holder and no lease
    {now_us}           the time of the transaction, also before the server has reported it
    {columns:mail}     the columns of table `mail` that its model reads: db/columns.py; {columns:mail:m} with an alias
    {here:t}           row `t` is of the repository :here or of none; every row if that is NULL: core/repositories.py

The module's own loader reads the texts, so that they are also found in a zipapp.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from functools import cached_property
from operator import itemgetter

from standfast.db import columns

_NAMED = "\n-- name: "
_DIALECTS = ("", "[sqlite]", "[postgres]")
_FRAGMENT = re.compile(r"\{(\w+)(?::(\w+))?(?::(\w+))?\}")
# Strings, comments and casts come first so that a colon inside them is not a parameter.
_TOKEN = re.compile(r"'(?:[^']|'')*'|--[^\n]*|::|:([a-z_][a-z0-9_]*)|%")

SERVER_NOW_US = "CAST(extract(epoch FROM transaction_timestamp()) * 1000000 AS bigint)"
"""The time of a transaction on PostgreSQL."""
_FRAGMENTS = {
    "sqlite": {
        "skip_locked": "",
        "for_update": "",
        "lease_over": "({t}lease_boot IS NULL OR {t}lease_boot <> :boot_id OR {t}lease_mono_us <= :mono_us)",
        "lease_live": "({t}lease_boot = :boot_id AND {t}lease_mono_us > :mono_us)",
        "now_us": ":now_us",
    },
    "postgres": {
        "skip_locked": "FOR UPDATE SKIP LOCKED",
        "for_update": "FOR UPDATE",
        "lease_over": "({t}lease_until_us IS NULL OR {t}lease_until_us <= :now_us)",
        "lease_live": "({t}lease_until_us > :now_us)",
        "now_us": f"COALESCE(CAST(:now_us AS bigint), {SERVER_NOW_US})",
    },
}
_HERE = (
    "(CAST(:here AS TEXT) IS NULL OR ({t}git_dir IS NULL AND {t}origin IS NULL)"
    " OR {t}git_dir IN (SELECT repository.git_dir FROM repository WHERE repository.id = :here)"
    " OR {t}origin IN (SELECT repository.origin FROM repository WHERE repository.id = :here))"
)
for _fragments in _FRAGMENTS.values():
    _fragments["lease_set"] = ", ".join(f"{name} = :{name}" for name in columns.LEASE.split())
    _fragments["lease_none"] = ", ".join(f"{name} = NULL" for name in columns.LEASE.split() if name != "actor")
    _fragments["here"] = _HERE


class Statement:
    """One named statement: `text` for each engine and the names of its parameters."""

    def __init__(self, name: str, sqlite: str, postgres: str, *, varies: bool = False) -> None:
        self.name = name
        self._texts = {"sqlite": sqlite, "postgres": postgres}
        self.varies = varies
        # Filled by the SQLite engine when the statement first returns a row.
        self.columns: tuple[str, ...] | None = None

    # These are computed on first use, because a process uses one engine and few statements.

    @cached_property
    def sqlite(self) -> str:
        return _expand(self._texts["sqlite"], "sqlite")

    @cached_property
    def postgres(self) -> str:
        return _TOKEN.sub(_to_percent, _expand(self._texts["postgres"], "postgres"))

    @cached_property
    def params(self) -> frozenset[str]:
        return frozenset(_named(_expand(self._texts["postgres"], "postgres")))

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The parameters in the order SQLite counts them."""
        return tuple(_named(self.sqlite))

    @cached_property
    def bind(self) -> Callable[[dict[str, object]], tuple[object, ...]]:
        """A function that orders the values as SQLite numbers its parameters.

        Binding by position takes half the time.
        """
        names = self.names
        if len(names) > 1:
            return itemgetter(*names)
        return (lambda params: (params[names[0]],)) if names else lambda params: ()

    def replaced(self, old: str, new: str) -> Statement:
        """A copy of the statement with `old` replaced. Only for numbers that must be part of the text, never for
        values."""
        texts = {dialect: text.replace(old, new) for dialect, text in self._texts.items()}
        return Statement(self.name, **texts, varies=self.varies)

    def __repr__(self) -> str:
        return f"<Statement {self.name}>"


class Queries:
    """The statements of one file, as attributes: `SQL.send`."""

    def __init__(self, where: str, text: str) -> None:
        self._where = where
        self._text = text

    @cached_property
    def _statements(self) -> dict[str, Statement]:
        """The statements of a file. They are parsed on first use, because a process imports many files and uses
        few."""
        return parse(self._text)

    def __getattr__(self, name: str) -> Statement:
        if name.startswith("__") or name not in self._statements:
            raise AttributeError(f"{self._where} has no statement named {name!r}")
        self.__dict__.update(self._statements)
        return self._statements[name]

    def __iter__(self) -> object:
        return iter(self._statements.values())


def load(module: str) -> Queries:
    """The named statements of the `.sql` file beside `module`: call as `load(__name__)`."""
    return Queries(f"{module.rpartition('.')[2]}.sql", beside(module))


def beside(module: str) -> str:
    """The text of the `.sql` file beside `module`.

    Read at import, because an upgrade may replace the file later.
    """
    spec = sys.modules[module].__spec__
    assert spec is not None
    assert spec.origin is not None
    raw: bytes = spec.loader.get_data(os.path.splitext(spec.origin)[0] + ".sql")  # type: ignore[union-attr]
    return raw.decode()


def parse(text: str) -> dict[str, Statement]:
    """Split a file into its statements; the text before the first name is commentary."""
    texts: dict[str, dict[str, str]] = {}
    for part in f"\n{text}".split(_NAMED)[1:]:
        head, _, body = part.partition("\n")
        name, _, dialect = head.rstrip().partition(" ")
        assert name.isidentifier(), f"{name!r} is no name of a statement"
        assert dialect in _DIALECTS, f"{name} is written for {dialect}, which is no engine"
        variants = texts.setdefault(name, {})
        assert dialect not in variants, f"{name} {dialect} is written twice"
        variants[dialect] = body
    return {name: _statement(name, variants) for name, variants in texts.items()}


def statement(text: str, *, name: str = "inline") -> Statement:
    """A statement written in code, for modules that get the names of tables as values."""
    return Statement(name, text, text)


def _statement(name: str, variants: dict[str, str]) -> Statement:
    cleaned = {dialect: _strip(text) for dialect, text in variants.items()}
    both = cleaned.get("", "")
    sqlite, postgres = cleaned.get("[sqlite]", both), cleaned.get("[postgres]", both)
    assert sqlite, f"{name} lacks a text for SQLite"
    assert postgres, f"{name} lacks a text for PostgreSQL"
    return Statement(name, sqlite, postgres, varies=len(cleaned) > 1 or "" not in cleaned)


def _strip(text: str) -> str:
    lines = (line for line in text.splitlines() if not line.lstrip().startswith("--"))
    return "\n".join(lines).strip().removesuffix(";")


def _expand(text: str, dialect: str) -> str:
    def fragment(match: re.Match[str]) -> str:
        name, table, alias = match.groups()
        if name == "columns":
            return columns.listed(table, alias)
        return _FRAGMENTS[dialect][name].replace("{t}", f"{table}." if table else "")

    return _FRAGMENT.sub(fragment, text)


def _named(text: str) -> list[str]:
    """The parameters of a text, each once, in the order of their first use."""
    return list(dict.fromkeys(match.group(1) for match in _TOKEN.finditer(text) if match.group(1)))


def _to_percent(match: re.Match[str]) -> str:
    if match.group(1):
        return f"%({match.group(1)})s"
    return match.group(0).replace("%", "%%")
