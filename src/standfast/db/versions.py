"""The versions of the installed drivers and of the linked SQLite."""

from __future__ import annotations


def library_versions() -> dict[str, str | None]:
    """Name → version, None for a driver that is not installed. Opens nothing."""
    import apsw

    return {"apsw": apsw.apsw_version(), "sqlite": apsw.sqlite_lib_version(), "psycopg": _psycopg()}


def _psycopg() -> str | None:
    # Read from the package metadata, because importing psycopg is slow.
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("psycopg")
    except PackageNotFoundError:
        return None
