"""The systemd user unit of the daemon. systemd starts it at boot, and again whenever it ends.

The unit has no sandbox, because its limits would also apply to the commands of the loops. systemd signals only the
daemon. Commands outlive a crash, and the next daemon adopts them; on a stop the daemon ends them itself.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from contextlib import suppress

from standfast.config.named_stores import store_name
from standfast.errors import Conflict, InvalidInput, NotFound

NAME = "standfast.service"
MARK = "# Written by `standfast daemon install`; `standfast daemon install --remove` takes it away."
STOP_S = 30.0
"""The time for the last writes to the store, added to the grace period of the commands."""

_TEXT = """{mark}
[Unit]
Description=standfast: fires loops, runs their commands, sweeps
StartLimitIntervalSec=300
StartLimitBurst=10

[Service]
Type=notify
ExecStart={command}
{environment}Restart=always
RestartSec=2
# After exit 78 a person has to act: a restart would not help.
RestartPreventExitStatus=78
# The daemon notifies systemd at every tick. A busy store may delay a tick by minutes.
WatchdogSec=600
KillMode=process
TimeoutStopSec={stop_s:.0f}
OOMPolicy=continue

[Install]
WantedBy=default.target
"""


def text(*, environ: Mapping[str, str], data_dir: str, grace_s: float) -> str:
    """The text of the unit: this interpreter, this data directory, and no password."""
    command = " ".join(_quoted(word) for word in (sys.executable, "-P", "-m", "standfast", "daemon", "run"))
    environment = ""
    if "STANDFAST_DATA_DIR" in environ or store_name(environ) is not None:
        environment = f"Environment={_quoted(f'STANDFAST_DATA_DIR={data_dir}')}\n"
    return _TEXT.format(mark=MARK, command=command, environment=environment, stop_s=grace_s + STOP_S)


def place(environ: Mapping[str, str]) -> str:
    """The directory in which systemd looks for a user's units. HOME is read at every call, so that a test can set
    it."""
    base = environ.get("XDG_CONFIG_HOME") or os.path.join(environ.get("HOME") or os.path.expanduser("~"), ".config")
    return os.path.join(base, "systemd", "user", NAME)


def write(path: str, content: str) -> bool:
    """Write the unit with one rename. False if it was there already. A unit of another program stays as it is."""
    found = _read(path)
    if found == content:
        return False
    if found is not None and MARK not in found:
        raise Conflict(f"{path} was not written by standfast", "move it away, or keep it: it is not touched")
    os.makedirs(os.path.dirname(path), exist_ok=True)
    fd = os.open(path + ".new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    with open(fd, "w") as file:
        file.write(content)
        file.flush()
        os.fsync(fd)
    os.rename(path + ".new", path)
    return True


def remove(path: str) -> None:
    found = _read(path)
    if found is None:
        raise NotFound(f"there is no unit at {path}", "standfast daemon install writes one")
    if MARK not in found:
        raise Conflict(f"{path} was not written by standfast", "remove it by hand if you want it gone")
    with suppress(FileNotFoundError):  # `systemctl enable` made this link; `systemctl disable` would need the unit
        os.unlink(os.path.join(os.path.dirname(path), "default.target.wants", os.path.basename(path)))
    os.unlink(path)


def _read(path: str) -> str | None:
    with suppress(FileNotFoundError), open(path, errors="replace") as file:
        return file.read(100_000)
    return None


def _quoted(word: str) -> str:
    """One word in systemd's quoting, without a character that could end the line."""
    if any(ord(letter) < 32 for letter in word):
        raise InvalidInput(f"{word!r} cannot be in a unit")
    word = word.replace("%", "%%").replace("$", "$$")
    if not any(letter in " \"'\\;" for letter in word):
        return word
    return '"' + word.replace("\\", "\\\\").replace('"', '\\"') + '"'
