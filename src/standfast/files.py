"""Plain files as a small store: read, write, append to and lock JSON, TOML and TSV files, safely at a crash.

    from standfast import files

    plan = files.read("plan.json")                       # a missing file reads as empty
    files.write("plan.json", {"next": "tests"})          # whole old or whole new, never half
    files.append("runs.tsv", {"run": 7, "state": "ok"})  # locked; on disk when it returns

    with files.locked("plan.json") as plan:              # read, change, write, one process at a time
        plan["runs"] = plan.get("runs", 0) + 1

The ending of the name decides the form: .json, .toml, .tsv, and .yaml or .yml for reading if PyYAML is installed.
A JSON or TOML file holds one mapping or list. A TSV file holds rows of text under a header line.

A write goes to a temporary file in the same directory, which is synced and renamed over the old one. An append is
one write and one fsync. A row that a crash cut off has no end of line: readers warn and ignore it, and the next
append moves it to `.runs.tsv.cut`. A lock is flock on a file beside it (`.plan.json.lock`). It holds between
processes of one host that use this module.

A file is fit for a few thousand records, because each write rewrites the whole file. Past the limits below a
`FileStoreLimit` warning names `standfast import files`, which copies the records into the store.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from standfast.clock import Duration, duration_s
from standfast.errors import Busy, InvalidInput

RECORDS_MAX = 10_000
"""Records of a JSON, TOML or YAML file before the warning."""
BYTES_MAX = 8 * 1024 * 1024
"""Bytes of a JSON, TOML or YAML file before the warning."""
LINES_MAX = 100_000
"""Lines of a TSV file before the warning."""
LOCK_CHECK_S = 0.02
KINDS = ("json", "toml", "tsv", "yaml", "yml")


class FileStoreLimit(UserWarning):
    """A file is too large for fast writes. The text names the command that imports the file."""


class CutLine(UserWarning):
    """The last line of a TSV file has no end of line: a crash cut it off, or an editor left it so."""


def read(path: str | os.PathLike[str], default: Any = None, *, returns: Any = None) -> Any:
    """Return what the file holds. A missing file is `default`, else `{}`, or `[]` for TSV.

    `returns` is the type that the value is read as, for example `list[Person]` of a dataclass: a missing field takes
    its default, a renamed field is also read from its old name, and an unknown field is ignored. Raises InvalidInput,
    naming the file and the line, if the content does not have the form of its file name.
    """
    kind = _kind(path)
    try:
        with open(path, "rb") as file:
            content = file.read()
    except FileNotFoundError:
        return default if default is not None else _empty(kind)
    except IsADirectoryError:
        raise InvalidInput(f"{os.fspath(path)} is a directory, not a file") from None
    if kind == "tsv":
        content = _whole_lines(content, path)
    value = _parsed(kind, content, path)
    _warn_past_limits(kind, value, len(content), path)
    if returns is None:
        return value
    from standfast import serial

    return serial.decode(value, returns, what=os.fspath(path))


def write(path: str | os.PathLike[str], value: Any) -> None:
    """Replace the file whole. If the process is killed at any moment, the file is the old one or the new one."""
    content = _encoded(_kind(path), value, path)
    _warn_past_limits(_kind(path), value, len(content), path)
    replace(path, content)


def append(path: str | os.PathLike[str], row: Mapping[str, Any], *, timeout: Duration = "10s") -> None:
    """Add one row to a TSV file; it is on disk when this returns.

    The first row's names become the header. Raises InvalidInput if a later row has other names, Busy if another
    process holds the lock for longer than `timeout`.
    """
    if _kind(path) != "tsv":
        raise InvalidInput(f"only .tsv files take rows at their end, not {os.fspath(path)}", "use files.locked(path)")
    with _lock(path, timeout):
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            _append(fd, row, path)
        finally:
            os.close(fd)


@contextmanager
def locked(path: str | os.PathLike[str], *, timeout: Duration = "10s") -> Iterator[Any]:
    """Lock the file, give its value to change in place, and write it at the end of the block.

    After an exception inside the block nothing is written. The lock holds between processes of one host that use this
    function; do not nest two of them. Raises Busy if the lock is not free within `timeout`.
    """
    with _lock(path, timeout):
        value = read(path)
        if not isinstance(value, dict | list):
            raise InvalidInput(f"{os.fspath(path)} holds one {type(value).__name__}, which cannot be changed in place")
        yield value
        write(path, value)


def replace(path: str | os.PathLike[str], content: bytes, *, mode: int | None = None) -> None:
    """Put `content` at `path` by a synced temporary file and a rename.

    The new file has the permissions `mode`, else those of the old file, else those that the umask leaves.
    """
    place = os.path.realpath(path)
    # A pid alone is not unique: a killed process may have left a file, and containers reuse pids soon.
    temporary = f"{place}.{os.getpid()}.{os.urandom(4).hex()}.tmp"
    try:
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode or 0o666)
    except OSError as error:
        error.filename = os.fspath(path)  # the caller knows no temporary file
        raise
    try:
        if (kept := _mode(place) if mode is None else mode) is not None:
            os.fchmod(fd, kept)
        _write_all(fd, content, at=0)
        os.fsync(fd)
        os.replace(temporary, place)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(temporary)
        raise
    finally:
        os.close(fd)
    sync_directory(os.path.dirname(place))


def sync_directory(path: str) -> None:
    """Make a rename in this directory survive a power loss."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _mode(path: str) -> int | None:
    try:
        return os.stat(path).st_mode & 0o777
    except FileNotFoundError:
        return None


# -- locks -------------------------------------------------------------------------------------------


@contextmanager
def _lock(path: str | os.PathLike[str], timeout: Duration) -> Iterator[None]:
    place = os.path.realpath(path)
    beside = os.path.join(os.path.dirname(place), f".{os.path.basename(place)}.lock")
    fd = os.open(beside, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
    try:
        _wait_for(fd, duration_s(timeout, "timeout") or 0.0, place)
        yield
    finally:
        os.close(fd)  # releases the lock; the file stays, because removing it would race with a waiting process


def _wait_for(fd: int, seconds: float, path: str) -> None:
    import fcntl
    import time

    deadline = time.monotonic() + seconds
    while True:
        try:
            return fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                raise Busy(
                    f"another process has held the lock of {path} for {seconds:g} s", "wait, or give a longer timeout"
                ) from None
            time.sleep(LOCK_CHECK_S)


# -- file formats ------------------------------------------------------------------------------------


def _kind(path: str | os.PathLike[str]) -> str:
    kind = os.path.splitext(os.fspath(path))[1].removeprefix(".").lower()
    if kind not in KINDS:
        raise InvalidInput(f"{os.fspath(path)}: the name must end in .json, .toml, .tsv, .yaml or .yml")
    return kind


def _empty(kind: str) -> Any:
    return [] if kind == "tsv" else {}


def _parsed(kind: str, content: bytes, path: str | os.PathLike[str]) -> Any:
    if not content.strip():
        return _empty(kind)
    try:
        return _PARSERS[kind](content.decode())
    except (ValueError, RecursionError) as error:  # UnicodeDecodeError, JSONDecodeError, TOMLDecodeError
        fact = str(error) or type(error).__name__
    raise InvalidInput(f"{os.fspath(path)} is not {kind.upper()}: {fact}")


def _encoded(kind: str, value: Any, path: str | os.PathLike[str]) -> bytes:
    if kind in ("yaml", "yml"):
        raise InvalidInput(f"standfast reads YAML and does not write it: {os.fspath(path)}", "write a .json file")
    try:
        return _ENCODERS[kind](value).encode()
    except (TypeError, ValueError, RecursionError) as error:
        fact = str(error) or type(error).__name__
    raise InvalidInput(f"{os.fspath(path)} cannot hold this value as {kind.upper()}: {fact}")


def _json(text: str) -> Any:
    import json

    return json.loads(text)


def _to_json(value: Any) -> str:
    import json

    return json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n"


def _toml(text: str) -> Any:
    import tomllib

    return tomllib.loads(text)


def _yaml(text: str) -> Any:
    import importlib

    try:
        yaml = importlib.import_module("yaml")  # not a dependency: used if it is installed
    except ImportError:
        raise InvalidInput("reading YAML needs PyYAML", "pip install pyyaml, or keep the file as .json") from None
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from None


# -- TOML --------------------------------------------------------------------------------------------


def _to_toml(value: Any) -> str:
    if not isinstance(value, Mapping):
        raise TypeError(f"a TOML file holds one mapping, not a {type(value).__name__}")
    lines: list[str] = []
    _table(value, (), lines)
    return "\n".join(lines).lstrip("\n") + "\n"


def _table(table: Mapping[str, Any], path: tuple[str, ...], lines: list[str]) -> None:
    inner = {key: value for key, value in table.items() if isinstance(value, Mapping)}
    if path and (len(inner) < len(table) or not table):
        lines.append(f"\n[{'.'.join(_toml_key(key) for key in path)}]")
    lines += [f"{_toml_key(key)} = {_toml_value(value)}" for key, value in sorted(table.items()) if key not in inner]
    for key, value in sorted(inner.items()):
        _table(value, (*path, key), lines)


def _toml_key(key: object) -> str:
    if not isinstance(key, str):
        raise TypeError(f"keys are texts, not {type(key).__name__}")
    return key if key.isascii() and key.replace("-", "").replace("_", "").isalnum() else toml_text(key)


def _toml_value(value: Any) -> str:
    import datetime

    match value:
        case bool():
            return str(value).lower()
        case str():
            return toml_text(value)
        case int() | float():
            return repr(value)
        case datetime.datetime() | datetime.date() | datetime.time():
            return value.isoformat()
        case Mapping():
            return "{" + ", ".join(f"{_toml_key(k)} = {_toml_value(v)}" for k, v in sorted(value.items())) + "}"
        case Sequence():
            return "[" + ", ".join(_toml_value(item) for item in value) + "]"
    raise TypeError(f"TOML has no form for {type(value).__name__}")


def toml_text(text: str) -> str:
    """A TOML basic string."""
    import json

    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


# -- TSV ---------------------------------------------------------------------------------------------

_ESCAPES = {"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"}


def _tsv(text: str) -> list[dict[str, str]]:
    lines = text.split("\n")[:-1]
    names = _cells(lines[0])
    rows = []
    for number, line in enumerate(lines[1:], start=2):
        cells = _cells(line)
        if len(cells) != len(names):
            raise ValueError(f"line {number} has {len(cells)} cells, the header has {len(names)}")
        rows.append(dict(zip(names, cells, strict=True)))
    return rows


def _whole_lines(content: bytes, path: str | os.PathLike[str]) -> bytes:
    whole, end, cut = content.rpartition(b"\n")
    if cut:
        import warnings

        text = f"{os.fspath(path)}: the last line has no end of line, so it is ignored ({len(cut)} bytes)"
        warnings.warn(text, CutLine, stacklevel=3)
    return whole + end


def _to_tsv(rows: Any) -> str:
    if not isinstance(rows, list) or not all(isinstance(row, Mapping) for row in rows):
        raise TypeError("a TSV file holds a list of mappings")
    if not rows:
        return ""
    names = list(rows[0])
    return tsv_line(names) + "".join(_row(row, names) for row in rows)


def _row(row: Mapping[str, Any], names: list[str]) -> str:
    if set(row) != set(names):
        raise ValueError(f"the columns are {', '.join(names)}; this row has {', '.join(map(str, row))}")
    return tsv_line(row[name] for name in names)


def tsv_line(cells: Any) -> str:
    """One line of a TSV file."""
    texts = ("" if cell is None else str(cell) for cell in cells)
    return "\t".join("".join(_ESCAPES.get(character, character) for character in text) for text in texts) + "\n"


def _cells(line: str) -> list[str]:
    if "\\" not in line:
        return line.split("\t")
    import re

    plain = {escaped: character for character, escaped in _ESCAPES.items()}
    return [re.sub(r"\\.", lambda m: plain.get(m[0], m[0]), cell) for cell in line.split("\t")]


def _append(fd: int, row: Mapping[str, Any], path: str | os.PathLike[str]) -> None:
    with os.fdopen(os.dup(fd), "rb") as file:
        header = file.readline()
        end = _whole_bytes(file)
    names = _cells(header.decode().rstrip("\n")) if end else list(map(str, row))
    try:
        line = _row(row, names)
    except ValueError as error:
        raise InvalidInput(f"{os.fspath(path)}: {error}") from None
    _set_aside(fd, end, path)
    _write_all(fd, (line if end else tsv_line(names) + line).encode(), at=end)
    os.fsync(fd)
    if not end:
        sync_directory(os.path.dirname(os.path.realpath(path)))
    if end // len(line) > LINES_MAX:
        read(path)  # counts the lines and warns


def _set_aside(fd: int, end: int, path: str | os.PathLike[str]) -> None:
    """Move a last line without an end of line into `.NAME.cut`: a crash cut it off, or an editor left it so."""
    if cut := os.pread(fd, os.fstat(fd).st_size - end, end):
        place = os.path.realpath(path)
        with open(os.path.join(os.path.dirname(place), f".{os.path.basename(place)}.cut"), "ab") as aside:
            aside.write(cut + b"\n")
        os.ftruncate(fd, end)


def _write_all(fd: int, data: bytes, *, at: int) -> None:
    while data:
        written = os.pwrite(fd, data, at)
        data, at = data[written:], at + written


def _whole_bytes(file: Any) -> int:
    """The offset after the last complete line."""
    size: int = file.seek(0, os.SEEK_END)
    while size > 0:
        start = max(0, size - 4096)
        file.seek(start)
        found: int = file.read(size - start).rfind(b"\n")
        if found >= 0:
            return start + found + 1
        size = start
    return 0


# -- limits ------------------------------------------------------------------------------------------


def _warn_past_limits(kind: str, value: Any, size: int, path: str | os.PathLike[str]) -> None:
    count = len(value) if isinstance(value, dict | list) else 0
    if kind == "tsv":
        return _warn(count > LINES_MAX, f"{count:,} lines; {LINES_MAX:,} is the limit", path)
    _warn(count > RECORDS_MAX, f"{count:,} records; {RECORDS_MAX:,} is the limit", path)
    return _warn(size > BYTES_MAX, f"{size:,} bytes; {BYTES_MAX:,} is the limit", path)


def _warn(past: bool, fact: str, path: str | os.PathLike[str]) -> None:
    if past:
        import warnings

        from standfast import hints

        command = hints.command("import", "files", os.fspath(path))
        warnings.warn(f"{os.fspath(path)} has {fact} for a plain file. Run: {command}", FileStoreLimit, stacklevel=3)


_PARSERS: dict[str, Callable[[str], Any]] = {"json": _json, "toml": _toml, "tsv": _tsv, "yaml": _yaml, "yml": _yaml}
_ENCODERS: dict[str, Callable[[Any], str]] = {"json": _to_json, "toml": _to_toml, "tsv": _to_tsv}
