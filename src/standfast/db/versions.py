"""Which driver libraries are here, and which SQLite is really linked."""

from __future__ import annotations


def library_versions() -> dict[str, str | None]:
    """Name → version, None for a driver that is not installed. Opens nothing."""
    import apsw

    return {"apsw": apsw.apsw_version(), "sqlite": apsw.sqlite_lib_version(), "psycopg": _psycopg()}


def _psycopg() -> str | None:
    # Asked of the installation, because importing psycopg costs more than everything else here.
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("psycopg")
    except PackageNotFoundError:
        return None
