"""Files of `standfast once`: `--in` files are compared with the key, `--out` files are stored and written again.

The content of an `--in` file is part of the intent: the same key with other content raises KeyConflict. An `--out` file
is stored as an artifact when the command exits 0. A replay writes the file again if it is missing. It never overwrites
an existing file.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from standfast import hints
from standfast.errors import InvalidInput, NotFound
from standfast.ids import short

if TYPE_CHECKING:
    from standfast.cli.output import Out
    from standfast.handle import Standfast


def digests(paths: tuple[str, ...]) -> dict[str, str]:
    """The SHA-256 of each file. Raises NotFound or InvalidInput before anything is recorded."""
    return {path: _digest(path) for path in paths}


def _digest(path: str) -> str:
    from hashlib import file_digest

    try:
        with open(path, "rb") as file:
            return file_digest(file, "sha256").hexdigest()
    except FileNotFoundError:
        raise NotFound(f"there is no file {path}", "check the path after --in") from None
    except IsADirectoryError:
        raise InvalidInput(f"{path} is a directory, and --in takes files", "name each file: --in A --in B") from None


def stored(out: Out, sf: Standfast, paths: tuple[str, ...]) -> dict[str, str]:
    """Store each file that the command wrote. Returns the path and the artifact id of each."""
    found: dict[str, str] = {}
    for path in paths:
        if os.path.isfile(path):
            with open(path, "rb") as file:
                found[path] = sf.artifacts.put(file, name=os.path.basename(path), kind="output").id
        else:
            out.say(f"standfast: the command did not write the file {path}")
    return found


def written_again(out: Out, sf: Standfast, files: object) -> None:
    """Write stored files that are missing, and print a message for files whose content has changed."""
    for path, id in files.items() if isinstance(files, dict) else ():
        artifact = sf.artifacts.show(id)
        if not os.path.lexists(path):
            sf.artifacts.get(id, to=path)
            out.say(f"standfast: wrote {path} again ({artifact.size_bytes:,} bytes)")
        elif not os.path.isfile(path) or _digest(path) != artifact.digest.rpartition(":")[2]:
            out.say(
                f"standfast: {path} has changed since the command wrote it, and was not overwritten",
                f"  {hints.command('artifact', 'get', short(id), '-o', f'{path}.stored')}",
            )
