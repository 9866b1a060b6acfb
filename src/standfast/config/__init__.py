"""The only module that decides where the store is, which scope and repository its keys have, and who the actor is.

    the `url` argument  >  STANDFAST_DB_URL or STANDFAST_STORE  >  a trusted project's .standfast/config.toml
        >  config.toml in the data directory  >  standfast.db in the data directory

`load` reads and decides; it creates nothing. Without a database URL the default file is used. A project's file that
the data directory does not list as trusted is ignored, with one line on stderr. `STANDFAST_DATA_DIR` moves the data
directory as a whole; HOME is read at every call. `STANDFAST_STORE` names one of several stores. Each has a data
directory of its own, in `stores/` of the data directory.

    target.py        what a text means as a database, and how to show it without its password
    named_stores.py  the data directory, and the stores of other names in it
    scope.py         the repository, from git's files; its label; the scope
    actor.py         who is asking
    files.py         the TOML files: keys, trust, atomic writing; loaded only if there is one
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from standfast.config.actor import actor as actor_of
from standfast.config.actor import agent_present, checked, claimed
from standfast.config.named_stores import (
    STORE_VARIABLE,
    current_directory,
    data_dir,
    default_data_dir,
    resolve,
    store_name,
)
from standfast.config.people import for_people
from standfast.config.scope import (
    OUTSIDE,
    SCOPE_VARIABLE,
    Keyspace,
    Label,
    Repository,
    checked_scope,
    label_of,
    repository,
    upwards,
)
from standfast.config.target import MEMORY, Target, flag, home, mask, parse_db_target
from standfast.errors import InvalidInput
from standfast.models import Model

__all__ = [
    "Choice",
    "CopyOptions",
    "Label",
    "MEMORY",
    "Options",
    "Repository",
    "Settings",
    "Target",
    "agent_present",
    "default_data_dir",
    "data_dir",
    "load",
    "mask",
    "parse_db_target",
    "save_target",
    "store_name",
    "trust",
]

Source = Literal["argument", "environment", "project", "global", "default"]

_warned: set[str] = set()
"""Untrusted files that this process has already warned about. Each is named once."""


class CopyOptions(Model):
    """`[copies]` of the configuration: copies that standfast takes by itself."""

    enabled: bool = True
    """Whether standfast takes copies by itself."""
    to: str | None = None
    """A directory or s3://…. None means the directory beside the memory of stores."""
    keep: str = "24h,14d,8w"
    """The copies that the daemon keeps: the newest of each of the last 24 hours, 14 days and 8 weeks, for example."""
    max_age: str = "1d"
    """`status` and `doctor` warn when the last verified copy is older."""


class Options(Model):
    """Settings other than the place of the store. A project's value overrides the global one."""

    notify: tuple[str, ...] = ()
    """A command to run for every request, in-doubt effect, dead letter and missed slot."""
    redact: bool = True
    """Whether secrets are taken out of recorded messages and tool calls."""
    unsafe_storage: bool = False
    """True allows a store where it may lose data: on a network file system or in a synchronised folder."""
    artifact_max_bytes: int = 1024 * 1024 * 1024
    """The most bytes one artifact may have."""
    artifact_bucket: str | None = None
    """s3://BUCKET/NAME for artifacts. None means beside the store. A project's file cannot set it."""
    accounts: tuple[str, ...] = ()
    """Other accounts (`user@host`) whose loops this account's daemon runs. A project's file cannot set it."""
    copies: CopyOptions = CopyOptions()


class Choice(NamedTuple):
    """One source that names a store, and whether it was used."""

    source: Source
    where: str
    target: Target | None
    """None for an untrusted file, whose values are not read."""
    state: Literal["used", "overridden", "untrusted"]


class Settings(NamedTuple):
    """The decided settings, and the source of each decision."""

    data_dir: str
    target: Target
    source: Source
    where: str
    """The variable or file that decided."""
    scope: str
    """The name that a user sets to separate keys; empty by default."""
    label: Label
    """The repository that every written row records. A child process has that of its parent."""
    actor: str
    agent: str | None
    """The coding agent whose environment variables are set, or None."""
    options: Options
    choices: tuple[Choice, ...]
    """Every source that names a store, the strongest first. The one that is `used` decided."""
    project_dir: str | None
    """The directory in which a project's settings are saved: the one with `.standfast`, else the root of the
    repository."""
    project_file: str | None
    """The project's configuration, trusted or not."""
    repository: Repository | None
    """The repository around the current directory."""
    outside: bool = False
    """`--global`: lists show only what belongs to no repository."""

    @property
    def keyspaces(self) -> tuple[Keyspace, ...]:
        """The keyspaces that may hold gates of this repository, for a hook that cannot read the store."""
        parts = [part for part in (self.label.git_dir, self.label.origin) if part] or [""]
        return tuple(Keyspace(self.scope, part) for part in parts)

    @property
    def default_path(self) -> str:
        return os.path.join(self.data_dir, "standfast.db")


def load(
    url: str | os.PathLike[str] | None = None,
    *,
    data_dir: str | os.PathLike[str] | None = None,
    actor: str | None = None,
    scope: str | None = None,
    outside: bool = False,
    cwd: str | os.PathLike[str] | None = None,
    environ: Mapping[str, str] | None = None,
    quiet: bool = False,
) -> Settings:
    """Decide all settings. Creates nothing. With `outside`, as if the program had started outside any repository.

    Raises InvalidInput, with the code "configuration" if a variable or a file is wrong.
    """
    env = os.environ if environ is None else environ
    here = current_directory(cwd)
    data = resolve(data_dir, env, here)
    named = data_dir is None and store_name(env) is not None
    if named and url is None and env.get("STANDFAST_DB_URL", "").strip():
        raise InvalidInput(
            f"both {STORE_VARIABLE} and STANDFAST_DB_URL name a store", "unset one of them", code="configuration"
        )
    refuse_foreign(data)
    found = repository(here) if here else None
    project = _project_file(here, data, env, found) if here else None

    project_values, trusted = _project_values(project, data, store_name(env), quiet=quiet)
    global_values = _global_values(data)
    said: list[_Said] = [
        ("argument", "the url argument", None if url is None else os.fspath(url), here),
        ("environment", "STANDFAST_DB_URL", env.get("STANDFAST_DB_URL"), here),
        ("project", project or "", None if named else project_values.get("db_url"), _holder(project)),
        ("global", os.path.join(data, "config.toml"), global_values.get("db_url"), data),
    ]
    choices = _choices(said, os.path.join(data, "standfast.db"), env)
    if project and not trusted:
        choices.append(Choice("project", project, None, "untrusted"))
    used = choices[0]
    assert used.target is not None
    return Settings(
        data_dir=data,
        target=used.target,
        source=used.source,
        where=used.where,
        scope=_scope(scope, env, project_values, project or ""),
        label=OUTSIDE if outside else label_of(env, found),
        actor=claimed(checked(actor, "actor", code="invalid_input"), env) if actor is not None else actor_of(env),
        agent=agent_present(env),
        options=_options(global_values | project_values, env),
        choices=tuple(choices),
        project_dir=_holder(project) or (found.root if found else None),
        project_file=project,
        repository=found,
        outside=outside,
    )


def refuse_foreign(data: str) -> None:
    """Raise if another user can write the data directory: its files decide which commands run as this user."""
    try:
        found = os.stat(data)
    except OSError:
        return
    if found.st_uid != os.geteuid():
        raise InvalidInput(
            f"the data directory {data} belongs to uid {found.st_uid}, and this process runs as uid {os.geteuid()}",
            "set STANDFAST_DATA_DIR to a directory of your own",
            code="configuration",
        )
    if found.st_mode & 0o022:
        from standfast import hints

        raise InvalidInput(
            f"other users can write the data directory {data} (mode {found.st_mode & 0o777:04o})",
            f"chmod go-w {hints.word(data)}",
            code="configuration",
        )


@for_people("redirects the store")
def save_target(
    where: Literal["project", "global"],
    target: Target,
    *,
    data_dir: str | os.PathLike[str] | None = None,
    cwd: str | os.PathLike[str] | None = None,
    environ: Mapping[str, str] | None = None,
) -> str:
    """Write `target` into the project's or the account's configuration and return that file's path.

    A new project's file is trusted. An existing file that is not trusted is refused, because trusting our line would
    trust all its other lines.
    """
    from standfast.config import files

    env = os.environ if environ is None else environ
    here = current_directory(cwd) or "/"
    data = resolve(data_dir, env, here)
    refuse_foreign(data)
    default = os.path.join(data, "standfast.db")
    if where == "global":
        files.private_directory(data)
        return files.set_db_url(os.path.join(data, files.NAME), target, default).path
    found = repository(here)
    root = _holder(_project_file(here, data, env, found)) or (found.root if found else here)
    path = files.project_file(root, _never_projects(data, env))
    if os.path.exists(path) and files.trust_of(files.read(path, project=True), data) != "trusted":
        raise InvalidInput(f"{path} is not trusted, and saving would trust all of it", _TRUST_HINT)
    if files.private_directory(os.path.dirname(path)):
        # A path or a password belongs to this machine: keep it out of the repository.
        files.write(os.path.join(os.path.dirname(path), ".gitignore"), "*\n")
    file = files.set_db_url(path, target, default)
    files.trust(file, data)
    return path


@for_people("trusts a project's configuration")
def trust(
    path: str | os.PathLike[str],
    *,
    data_dir: str | os.PathLike[str] | None = None,
    environ: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Trust a project's configuration with its present content, and return its values."""
    from standfast.config import files

    env = os.environ if environ is None else environ
    file = files.read(os.path.abspath(os.fspath(path)), project=True)
    files.trust(file, resolve(data_dir, env, current_directory(None)))
    return file.values("project")


_TRUST_HINT = "read it, then: standfast db trust"

_Said = tuple[Source, str, str | None, str | None]
"""The source, its file or variable, its text, and the directory to which its relative paths refer."""


def _never_projects(data: str, env: Mapping[str, str]) -> set[str]:
    """Data directories of this account: the current one, and the default even if STANDFAST_DATA_DIR names another."""
    return {os.path.realpath(data), os.path.realpath(default_data_dir(env))}


def _project_file(here: str, data: str, env: Mapping[str, str], found: Repository | None) -> str | None:
    """The nearest `.standfast/config.toml` above this directory, up to the root of the repository; outside one, up to
    home."""
    last = found.root if found else home(env)
    for directory in upwards(here):
        path = os.path.join(directory, ".standfast", "config.toml")
        if os.path.isfile(path) and os.path.realpath(os.path.dirname(path)) not in _never_projects(data, env):
            return path
        if directory == last:
            return None
    return None


def _holder(project_file: str | None) -> str | None:
    return os.path.dirname(os.path.dirname(project_file)) if project_file else None


def _project_values(path: str | None, data: str, store: str | None, *, quiet: bool) -> tuple[dict[str, Any], bool]:
    if path is None:
        return {}, True
    from standfast.config import files

    try:
        file = files.read(path, project=True)
    except InvalidInput:  # it may be another user's file in a directory above
        return {}, False
    state = files.trust_of(file, data)
    if state == "trusted":
        return file.values("project"), True
    if not quiet and path not in _warned:
        _warned.add(path)
        listed = os.path.join(data, files.TRUSTED)
        reason = "changed since it was trusted" if state == "changed" else f"not trusted in {listed}"
        shown = "".join(c if c.isprintable() else "?" for c in f"{path} is ignored: {reason}")
        hint = _TRUST_HINT.replace("standfast", f"standfast --store {store}") if store else _TRUST_HINT
        print(f"standfast: {shown} ({hint})", file=sys.stderr)
    return {}, False


def _global_values(data: str) -> dict[str, Any]:
    path = os.path.join(data, "config.toml")
    if not os.path.exists(path):
        return {}
    from standfast.config import files

    return files.read(path).values("global")


def _choices(said: list[_Said], default: str, env: Mapping[str, str]) -> list[Choice]:
    choices: list[Choice] = []
    for source, where, text, relative_to in (*said, ("default", "built in", "sqlite:", None)):
        if text is None or not text.strip():
            continue
        try:
            target = parse_db_target(text, default_path=default, relative_to=relative_to, environ=env)
        except InvalidInput as error:
            if source == "argument":
                raise
            raise InvalidInput(f"{where}: {error.message}", error.hint, code="configuration") from None
        choices.append(Choice(source, where, target, "overridden" if choices else "used"))
    return choices


def _scope(given: str | None, env: Mapping[str, str], project: Mapping[str, Any], file: str) -> str:
    if given is not None:
        return checked_scope(given, "a scope", code="invalid_input")
    if SCOPE_VARIABLE in env:
        return checked_scope(env[SCOPE_VARIABLE], SCOPE_VARIABLE)
    return checked_scope(str(project.get("scope", "")), f"{file}: scope")


def _options(values: Mapping[str, Any], env: Mapping[str, str]) -> Options:
    return Options(
        notify=tuple(values.get("notify", ())),
        redact=bool(values.get("redact", True)),
        unsafe_storage=flag(env, "STANDFAST_UNSAFE_STORAGE", default=bool(values.get("unsafe_storage", False))),
        artifact_max_bytes=int(values.get("artifact_max_bytes", Options().artifact_max_bytes)),
        artifact_bucket=values.get("artifact_bucket"),
        accounts=tuple(values.get("daemon", {}).get("accounts", ())),
        copies=CopyOptions(**values.get("copies", {})),
    )
