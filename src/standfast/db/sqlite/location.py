"""Check whether a database file may be at a path, and make its directory private.

A write-ahead log needs shared memory and working locks. Network file systems have neither, and a file-sync program
replaces files of a running process. Both lose data without an error, so both are refused unless the caller allows
them.
"""

from __future__ import annotations

import os
import re
import sys
from contextlib import suppress

from standfast.errors import StorageError, UnsafeStorage

_NETWORK = frozenset(
    [
        "9p",
        "afs",
        "beegfs",
        "ceph",
        "cifs",
        "coda",
        "davfs",
        "fuse.sshfs",
        "fuse.s3fs",
        "fuse.rclone",
        "fuse.gcsfuse",
        "fuse.glusterfs",
        "glusterfs",
        "gpfs",
        "lustre",
        "ncpfs",
        "nfs",
        "nfs4",
        "ocfs2",
        "gfs2",
        "orangefs",
        "prl_fs",
        "smb2",
        "smb3",
        "smbfs",
        "vboxsf",
        "virtiofs",
        "vmhgfs",
        "fuse.vmhgfs-fuse",
        "webdav",
        "drvfs",
    ]
)
_SYNCED_NAMES = [
    "dropbox", "onedrive", "google drive", "googledrive", "my drive", "icloud drive", "iclouddrive",
    "mobile documents", "cloudstorage", "com~apple~clouddocs", "nextcloud", "owncloud", "pcloud drive",
    "pclouddrive", "box sync", "syncthing",
]  # fmt: skip
"""Names of folders in lower case."""
_SYNCED_STARTS = ("dropbox (", "onedrive - ")
_SYNCED_MARK = (".stfolder", ".dropbox", ".dropbox.cache", ".sync", ".owncloudsync.log", ".nextcloudsync.log")


RESTORED = ".restored"
"""Suffix of a restored database before it takes the place of the database that is moved aside: see `move_aside.swap`.
"""


def is_empty(path: str) -> bool:
    """Whether there is no store yet at `path`: no file, or one without a byte. Opens nothing."""
    return not os.path.lexists(path + RESTORED) and _no_bytes(path)


def _no_bytes(path: str) -> bool:
    try:
        return os.stat(path).st_size == 0
    except OSError:
        return True


def complete_restore(path: str) -> None:
    """Finish the restore of a process that was killed after it had moved the store aside. The caller has the lock."""
    if os.path.lexists(path + RESTORED) and not os.path.lexists(path):
        os.rename(path + RESTORED, path)


def prepare(path: str, *, allow_unsafe: bool = False) -> str:
    """Make the directory of `path` (0700) and return the real path of the file in it.

    Raises UnsafeStorage for a place that loses data, and StorageError if the directory cannot be created.
    """
    directory = os.path.dirname(os.path.abspath(path))
    try:
        make_private(directory)
    except OSError as error:
        raise StorageError(
            f"{directory} cannot be created: {error.strerror}",
            "choose another place: STANDFAST_DATA_DIR=/some/dir standfast where",
            code="not_writable",
        ) from error
    real = os.path.join(os.path.realpath(directory), os.path.basename(path))
    check(real, allow_unsafe=allow_unsafe)
    return real


def check(path: str, *, allow_unsafe: bool = False) -> None:
    """Refuse a link in place of the file, and (unless allowed) a place that loses data."""
    if os.path.islink(path):
        raise UnsafeStorage(f"{path} is a symbolic link", f"name the file itself: {os.path.realpath(path)}")
    if os.path.isdir(path):
        raise UnsafeStorage(f"{path} is a directory", f"name a file in it: {os.path.join(path, 'standfast.db')}")
    if os.path.exists(path) and os.stat(path).st_nlink > 1:
        raise UnsafeStorage(
            f"{path} has a second name (a hard link): two names would have two logs",
            "remove the other name, or move the store: standfast db sqlite PATH",
        )
    mounted = mounted_file(path)
    if mounted:
        raise UnsafeStorage(
            f"{mounted} is a mount point: the file has another path, and each path would have its own log",
            f"mount the directory instead: {os.path.dirname(path)}",
        )
    reason = None if allow_unsafe else unsafe(os.path.dirname(path))
    if reason:
        raise UnsafeStorage(
            f"{path} is {reason}: SQLite loses data there",
            "choose a local directory with STANDFAST_DATA_DIR, or a server with STANDFAST_DB_URL; "
            "to insist, set STANDFAST_UNSAFE_STORAGE=1",
        )


def unsafe(directory: str) -> str | None:
    """Why this directory would lose data, or None."""
    kind = file_system(directory)
    if kind in _NETWORK:
        return f"on a network file system ({kind})"
    synced = synced_by(directory)
    return f"in a folder that is synchronised ({synced})" if synced else None


def synced_by(directory: str) -> str | None:
    """The ancestor directory of a file-sync program, found by its name or by its marker file."""
    home = os.path.realpath(os.path.expanduser("~"))
    while True:
        if _is_synced_name(os.path.basename(directory).lower()):
            return directory
        # Dropbox keeps its settings in ~/.dropbox, which does not make the home a synced folder.
        if directory != home and any(os.path.lexists(os.path.join(directory, mark)) for mark in _SYNCED_MARK):
            return directory
        parent = os.path.dirname(directory)
        if parent == directory:
            return None
        directory = parent


def _is_synced_name(name: str) -> bool:
    return name in _SYNCED_NAMES or name.startswith(_SYNCED_STARTS)


def file_system(directory: str) -> str:
    """The type of the file system that holds `directory`: "ext4"; "" if the system does not show it."""
    if sys.platform != "linux":
        return ""
    try:
        with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
            return find_type(file.read(), os.path.realpath(directory))
    except OSError:
        return ""


def mounted_file(path: str) -> str | None:
    """A file of this database that is itself a mount point, as with `docker run -v FILE:FILE`."""
    if sys.platform != "linux":
        return None
    files = (path, f"{path}-wal", f"{path}-shm")
    try:
        with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as mounts:
            points = {_unescape(line.split(" ", 5)[4]) for line in mounts}
    except OSError:
        return None
    return next((file for file in files if file in points), None)


def find_type(mountinfo: str, directory: str) -> str:
    """The last mount on the longest mount point above `directory`."""
    best, kind = -1, ""
    for line in mountinfo.splitlines():
        left, _, right = line.partition(" - ")
        point = _unescape(left.split(" ")[4])
        inside = directory == point or directory.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= best:
            best, kind = len(point), right.split(" ")[0]
    return kind


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match.group(1), 8)), text)


def make_private(directory: str) -> None:
    """Make the directory and its parents, private to their owner. Existing directories stay as they are."""
    if os.path.isdir(directory):
        return
    parent = os.path.dirname(directory)
    if parent != directory:
        make_private(parent)
    with suppress(FileExistsError):  # another process may be faster
        os.mkdir(directory, 0o700)
