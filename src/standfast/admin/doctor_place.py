"""The place of a SQLite file, for `doctor`: file system, permissions, free space and the lock."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterator

from standfast.admin.doctor import Finding, State
from standfast.config import Settings
from standfast.core.units import size

LOCK_WAIT_S = 2.0
"""How long one process may hold the lock before it counts as stuck; a commit takes milliseconds."""
DISK_ERROR_BYTES = 64 << 20
DISK_WARN_BYTES = 1 << 30


def examine(settings: Settings, fix: bool) -> Iterator[Finding]:
    from standfast.db.sqlite import location

    path = settings.target.location
    directory = os.path.realpath(os.path.dirname(path))
    reason = location.unsafe(directory)
    if reason:
        state: State = "warn" if settings.options.unsafe_storage else "error"
        remedy = "choose a local directory with STANDFAST_DATA_DIR, or a server: standfast db pg URL"
        yield Finding("place", state, f"{directory} is {reason}: SQLite loses data there", remedy)
    else:
        kind = location.file_system(directory)
        yield Finding("place", "ok", f"{directory} is local" + (f" ({kind})" if kind else ""))
    yield _permissions(settings, directory, fix)
    yield _disk(directory)


def _permissions(settings: Settings, directory: str, fix: bool) -> Finding:
    """Whether the files are ours and no other user may read them."""
    loose: dict[str, int] = {}
    for name, mode in _private(settings, directory).items():
        info = os.stat(name)
        if info.st_uid != os.geteuid() and os.geteuid() != 0:
            remedy = f"let its owner give it to you: sudo chown {os.geteuid()} {name}"
            return Finding("permissions", "error", f"{name} belongs to user {info.st_uid}, not to you", remedy)
        if not os.access(name, os.R_OK | os.W_OK):
            return Finding("permissions", "error", f"you cannot read and write {name}", f"chmod u+rw {name}")
        if stat.S_IMODE(info.st_mode) & ~mode:
            loose[name] = mode
    if not loose:
        return Finding("permissions", "ok", "private to you")
    names = ", ".join(sorted(os.path.basename(name) for name in loose))
    if fix:
        # Use the path, never a descriptor: closing a descriptor of the file would drop SQLite's locks.
        for name, mode in loose.items():
            os.chmod(name, mode)
        return Finding("permissions", "ok", f"made private: {names}", fixed=True)
    return Finding("permissions", "warn", f"others on this machine may open {names}", "standfast doctor --fix")


def _private(settings: Settings, directory: str) -> dict[str, int]:
    """Files that only their owner may read. A directory that the user chose for the file may have any mode."""
    path = settings.target.location
    files = [path + end for end in ("", "-wal", "-shm", ".lock", ".bell")]
    files += [os.path.join(settings.data_dir, name) for name in ("config.toml", "trusted.toml")]
    wanted = dict.fromkeys(files, 0o600)
    if directory == os.path.realpath(settings.data_dir):
        wanted[directory] = 0o700
    return {name: mode for name, mode in wanted.items() if os.path.exists(name)}


def _disk(directory: str) -> Finding:
    while not os.path.isdir(directory):
        directory = os.path.dirname(directory)
    info = os.statvfs(directory)
    free = info.f_bavail * info.f_frsize
    text = f"{size(free)} free"
    if free < DISK_ERROR_BYTES:
        return Finding("disk", "error", text, "free some space: writes are about to fail")
    if free < DISK_WARN_BYTES:
        return Finding("disk", "warn", text, "free some space before it runs out")
    return Finding("disk", "ok", text)


def lock(path: str) -> Finding:
    """Whether the lock is free, in use, or held by one process for LOCK_WAIT_S."""
    from standfast.db.sqlite import lock as file_lock

    if not os.path.exists(path):
        return Finding("lock", "ok", "free")
    first, end = file_lock.holder(path), time.monotonic() + LOCK_WAIT_S
    while not file_lock.free_now(path):
        pid = file_lock.holder(path)
        if time.monotonic() > end and pid == first:
            who = f"process {pid}" if pid else "a process this one cannot see (another container?)"
            remedy = (
                f"see what it does (ps -fp {pid}); if it hangs, end it: kill {pid}"
                if pid
                else "look for it on the host"
            )
            return Finding("lock", "error", f"{who} has held the lock for {LOCK_WAIT_S:.0f} s", remedy)
        if time.monotonic() > end:
            return Finding("lock", "ok", f"busy, and moving: process {pid} has it now")
        time.sleep(0.005)
    return Finding("lock", "ok", "free")
