"""The data directory, and the named stores in it: each is a data directory of its own in `stores/`.

`STANDFAST_DATA_DIR` moves the data directory as a whole; HOME is read at every call. `STANDFAST_STORE` chooses a store.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from standfast.config.target import expand_home, home
from standfast.errors import InvalidInput

STORE_VARIABLE = "STANDFAST_STORE"
DEFAULT_STORE = "default"
STORES = "stores"
"""The directory of the named stores, in the data directory."""
STORE_NAME_MAX = 64


def default_data_dir(environ: Mapping[str, str] | None = None) -> str:
    return os.path.join(home(environ), ".standfast")


def store_name(environ: Mapping[str, str] | None = None) -> str | None:
    """The store that STANDFAST_STORE names; None for the default one. Raises InvalidInput for a bad name."""
    given = (os.environ if environ is None else environ).get(STORE_VARIABLE, "").strip()
    if given in ("", DEFAULT_STORE):
        return None
    plain = given.isascii() and given.replace("-", "").replace("_", "").replace(".", "").isalnum()
    if not plain or given[0] in ".-" or len(given) > STORE_NAME_MAX:
        raise InvalidInput(
            f"{given[:80]!r} is not a store name",
            f"begin with a letter or digit; then letters, digits, '.', '_' and '-'; at most {STORE_NAME_MAX}",
            code="configuration",
        )
    return given


def named_stores(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """The database files of this account's named stores, by name. Opens nothing."""
    env = os.environ if environ is None else environ
    base = resolve(
        None, {name: value for name, value in env.items() if name != STORE_VARIABLE}, current_directory(None)
    )
    places = {DEFAULT_STORE: os.path.join(base, "standfast.db")}
    try:
        names = sorted(os.listdir(os.path.join(base, STORES)))
    except FileNotFoundError:
        names = []
    places |= {name: os.path.join(base, STORES, name, "standfast.db") for name in names}
    return {name: path for name, path in places.items() if os.path.isfile(path)}


def data_dir(environ: Mapping[str, str] | None = None) -> str:
    """The data directory that STANDFAST_DATA_DIR and STANDFAST_STORE select."""
    return resolve(None, os.environ if environ is None else environ, current_directory(None))


def current_directory(cwd: str | os.PathLike[str] | None) -> str | None:
    if cwd is not None:
        return os.path.abspath(os.fspath(cwd))
    try:
        return os.getcwd()
    except FileNotFoundError:  # the directory was removed under us: no project, no repository
        return None


def resolve(given: str | os.PathLike[str] | None, env: Mapping[str, str], here: str | None) -> str:
    text = os.fspath(given) if given is not None else env.get("STANDFAST_DATA_DIR", "").strip()
    path = expand_home(text, env) if text else default_data_dir(env)
    path = os.path.normpath(os.path.join(here or "/", path))
    name = None if given is not None else store_name(env)
    # A child process may have both variables, and its STANDFAST_DATA_DIR may be that of the named store already.
    if name is None or path.endswith(os.path.join("", STORES, name)):
        return path
    return os.path.join(path, STORES, name)
