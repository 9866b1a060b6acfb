"""The configuration files: their keys, whether they are trusted, and how they are written.

A project's `.standfast/config.toml` comes with the repository. It counts only after the data directory lists its real
path and its content. Otherwise a clone could send a user's records to another database, or run its `notify` command.
`trusted.toml` in the data directory lists the trusted files. A file is read once, and the same bytes are hashed and
parsed.

Files are replaced whole: temporary file, fsync, rename, fsync of the directory; 0600 in directories of 0700. If the
process is killed at any moment, the file is the old one or the new one.
"""

from __future__ import annotations

import os
from typing import Any, Literal, NamedTuple

from standfast import files
from standfast.config import regular_files
from standfast.config.target import Target, mask
from standfast.errors import InvalidInput

NAME = "config.toml"
TRUSTED = "trusted.toml"
FILE_MAX_BYTES = 1 << 20
ACCOUNTS_MAX = 100
KEEP = r"[1-9]\d{0,3}[hdw](, ?[1-9]\d{0,3}[hdw])*"
"""The form of `keep`: numbers of hours, days and weeks, such as 24h,14d,8w."""

Place = Literal["project", "global"]
Trust = Literal["trusted", "changed", "unknown"]


class Key(NamedTuple):
    """One setting: the check of its value, and a description."""

    kind: type
    accepted: str
    only: str = ""
    """The one place that may set it: "project" or "global"."""


# docs/operating/configure.md says the same at length; a test compares the two.
KEYS = {
    "db_url": Key(str, "a text: a file path, sqlite:PATH or postgresql://…"),
    "scope": Key(str, "a text: the name that separates this project's keys from others", only="project"),
    "notify": Key(list, "a list of texts: a command and its arguments"),
    "redact": Key(bool, "true or false"),
    "unsafe_storage": Key(bool, "true or false"),
    "artifact_max_bytes": Key(int, "a whole number of bytes, 1 or more"),
    "artifact_bucket": Key(str, "a text: s3://BUCKET/NAME, without a key in it", only="global"),
    "daemon": Key(dict, 'a table: [daemon] accounts = ["user@host"]', only="global"),
    "copies": Key(
        dict, 'a table: [copies] enabled = true, to = "DIR", keep = "24h,14d,8w", max_age = "1d"', only="global"
    ),
}


class File(NamedTuple):
    """A configuration file. The same bytes decide whether it is trusted and what its values are."""

    path: str
    content: bytes

    @property
    def sha256(self) -> str:
        import hashlib

        return hashlib.sha256(self.content).hexdigest()

    def values(self, place: Place) -> dict[str, Any]:
        """Its values. Raises InvalidInput(code="configuration") naming the file, the key and the accepted values."""
        data = parsed(self.content, self.path)
        for key, value in data.items():
            _check(self.path, place, key, value)
        return data


def read(path: str, *, project: bool = False) -> File:
    """The file's bytes. Raises InvalidInput if the file cannot be read.

    Only a regular file is read. A symbolic link is refused for a `project`, because a clone may contain any link.
    """
    try:
        content = regular_files.read(path, FILE_MAX_BYTES + 1, follow=not project)
    except OSError as error:
        raise refused(path, f"cannot be read: {error.strerror}") from None
    if len(content) > FILE_MAX_BYTES:
        raise refused(path, f"is larger than {FILE_MAX_BYTES} bytes")
    return File(path, content)


def parsed(content: bytes, path: str) -> dict[str, Any]:
    import tomllib

    try:
        return tomllib.loads(content.decode())
    except UnicodeDecodeError as error:
        fact = f"is not TOML: byte {error.start} is no UTF-8"
    except tomllib.TOMLDecodeError as error:
        fact = f"is not TOML: {mask(str(error))}"
    raise refused(path, fact)  # raised out here: otherwise the error above, which quotes the file, would be its context


def refused(path: str, fact: str, hint: str = "") -> InvalidInput:
    return InvalidInput(f"{path} {fact}", hint or "docs/operating/configure.md lists every key", code="configuration")


def _check(path: str, place: Place, key: str, value: object) -> None:
    known = KEYS.get(key)
    if known is None:
        import difflib

        near = difflib.get_close_matches(key, KEYS, 1)
        meant = f"; did you mean {near[0]!r}?" if near else ""
        raise refused(path, f"has an unknown key {key!r}{meant}", f"accepted keys: {', '.join(KEYS)}")
    if known.only == "project" and place == "global":
        raise refused(path, f"has the key {key!r}, which only a project can set", "move it to .standfast/config.toml")
    if known.only == "global" and place == "project":
        raise refused(
            path, f"has the key {key!r}, which no project can set", "move it to config.toml in the data directory"
        )
    fits = isinstance(value, known.kind) and (not isinstance(value, list) or _is_words(value))
    if known.kind is int:
        fits = fits and not isinstance(value, bool) and 0 < int(str(value)) < 2**63
    special = {"scope": _is_scope, "artifact_bucket": _is_bucket, "daemon": _is_daemon, "copies": _is_copies}
    if not fits or (key in special and not special[key](value)):
        raise refused(path, f"has a wrong value for {key!r}", f"{key} is {known.accepted}")


def _is_words(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(word, str) and word for word in value)


def _is_daemon(value: object) -> bool:
    """Whether the table has only `accounts`, a list of `user@host`."""
    found = value.get("accounts") if isinstance(value, dict) and set(value) <= {"accounts"} else None
    if not isinstance(found, list) or not _is_words(found) or len(found) > ACCOUNTS_MAX:
        return False
    return all(word.isprintable() and all(word.partition("@")[::2]) and len(word) <= 200 for word in found)


def _is_copies(value: object) -> bool:
    """Whether the table has only `enabled`, `to`, `keep` and `max_age`, each with a valid value."""
    import re

    if not isinstance(value, dict):
        return False
    forms = {"to": r"\S(.*\S)?", "keep": KEEP, "max_age": r"[1-9]\d{0,5}[wdhms]"}
    texts = {name: text for name, text in value.items() if name != "enabled"}
    return isinstance(value.get("enabled", True), bool) and all(
        name in forms and isinstance(text, str) and re.fullmatch(forms[name], text) for name, text in texts.items()
    )


def _is_bucket(value: object) -> bool:
    import re

    return isinstance(value, str) and re.fullmatch(r"s3://[a-z0-9][a-z0-9.-]{1,62}(/[\w.-]+)*", value) is not None


def _is_scope(value: object) -> bool:
    return isinstance(value, str) and value.isprintable() and 0 < len(value.strip()) <= 200


# Trust.


def trust_of(file: File, data_dir: str) -> Trust:
    """Whether the data directory lists exactly these bytes at this real path as trusted."""
    entry = _trusted(data_dir).get(os.path.realpath(file.path))
    if entry is None:
        return "unknown"
    return "trusted" if entry == file.sha256 else "changed"


def trust(file: File, data_dir: str) -> None:
    """Trust this file with its present content. Raises InvalidInput if the file has a wrong key or value."""
    file.values("project")
    entries = _trusted(data_dir) | {os.path.realpath(file.path): file.sha256}
    lines = ["# Project configurations that are trusted with this data directory: `standfast db trust` adds one."]
    for path, sha256 in sorted(entries.items()):
        lines += ["", f"[{quoted(path)}]", f'sha256 = "{sha256}"']
    private_directory(data_dir)
    write(os.path.join(data_dir, TRUSTED), "\n".join(lines) + "\n")


def _trusted(data_dir: str) -> dict[str, str]:
    path = os.path.join(data_dir, TRUSTED)
    if not os.path.exists(path):
        return {}
    entries = parsed(read(path).content, path)
    return {name: entry["sha256"] for name, entry in entries.items() if isinstance(entry.get("sha256"), str)}


# Writing.


def set_db_url(path: str, target: Target, default_path: str) -> File:
    """Put `target` into the file at `path`, leaving every other line as it is."""
    old = read(path).content.decode() if os.path.exists(path) else ""
    before = parsed(old.encode(), path)
    value = "sqlite:" if target.location == default_path else target.location
    text = _with_db_url(old, value)
    # standfast replaces one line. If that would change anything else, the author has to edit the file.
    if parsed(text.encode(), path) != before | {"db_url": value}:
        raise refused(
            path, "is too unusual to edit safely", f"write this line yourself: db_url = {quoted(mask(value))}"
        )
    write(path, text)
    return File(path, text.encode())


def _with_db_url(text: str, value: str) -> str:
    line = f"db_url = {quoted(value)}\n"
    lines = text.splitlines(keepends=True)
    for at, old in enumerate(lines):
        if old.lstrip().startswith("["):
            break
        if old.partition("=")[0].strip() in ("db_url", '"db_url"', "'db_url'"):
            return "".join([*lines[:at], line, *lines[at + 1 :]])
    return line + text


def quoted(text: str) -> str:
    """A TOML basic string."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidInput("this path is not UTF-8 and cannot be written to a configuration file") from None
    return files.toml_text(text)


def private_directory(path: str) -> bool:
    """Make the directory for its owner alone; True if it was not there."""
    if os.path.isdir(path):
        return False
    os.makedirs(os.path.dirname(path), exist_ok=True)
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        return False
    return True


def write(path: str, text: str) -> None:
    """Replace the file at `path` whole, or leave it as it was. Only the owner can read it."""
    files.replace(path, text.encode(), mode=0o600)


def project_file(root: str, data_dirs: set[str]) -> str:
    """The path of a project's configuration. Raises InvalidInput if it is in a data directory of the account, or a link
    out of the project."""
    path = os.path.join(root, ".standfast", NAME)
    directory = os.path.realpath(os.path.dirname(path))
    if directory in data_dirs:
        raise InvalidInput(f"{root} is not a project: {directory} is the data directory", "say --global instead")
    if os.path.realpath(path) != os.path.join(os.path.realpath(root), ".standfast", NAME):
        raise InvalidInput(f"{path} is a link out of the project; standfast does not write through it")
    return path
