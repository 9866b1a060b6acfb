"""The results of each scene, kept in `prove/results/probes.jsonl`, and the table of docs/concepts/actions.md.

    python -m standfast_prove.probes.table --tries 20 git-push-file npm-publish    # play, and add one line for each
    python -m standfast_prove.probes.table --write docs/concepts/actions.md        # the table of all lines

The table is between two comments of the page. A test compares the page with the results.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from standfast_prove import versions
from standfast_prove.campaigns import probes
from standfast_prove.probes.registries import program
from standfast_prove.probes.scenes import SCENES
from standfast_prove.results import FORMAT, Table

RESULTS = Path("prove/results/probes.jsonl")
FIGURES = ("tries", "doubts", "settled", "asked a person", "wrong", "locks of git removed")
BEGIN, END = "<!-- results of the campaign -->", "<!-- end of the results -->"
PROGRAMS = {
    "gh": ("gh",),
    "npm": ("npm", "verdaccio"),
    "twine": ("twine", "pypi-server"),
    "uv": ("uv", "pypi-server"),
    "podman": ("podman", "docker-registry"),
    "docker": ("docker", "dockerd", "docker-registry"),
    "terraform": ("terraform",),
    "kubectl": ("kubectl version --client",),
    "git": ("git",),
}
"""The programs of each scene, by the first word of the scene's name."""


def play(name: str, *, tries: int, seed: int) -> Table:
    """Play one scene and note the versions of its programs. Raises Unavailable if a program is not installed."""
    with tempfile.TemporaryDirectory(prefix="probes-", ignore_cleanup_errors=True) as place:
        outcome, scene = probes.play(Path(place) / name, name, tries=tries, seed=seed)
    used = {one.split(" ")[0]: _version(one) for one in PROGRAMS.get(name.partition("-")[0], ())}
    row: dict[str, Any] = {"scene": name, "action": scene.name, "remote": scene.remote, "seed": seed}
    row |= {what: outcome.seen.get(what, 0) for what in FIGURES} | {"bad": outcome.bad}
    return Table(
        "probes",
        f"python -m standfast_prove.probes.table --tries {tries} --seed {seed} {name}",
        versions.versions() | used,
        [row],
    )


def _version(command: str) -> str:
    name, *words = command.split(" ")
    said = subprocess.run([program(name), *(words or ["--version"])], capture_output=True, text=True)
    found = re.search(r"\d+\.\d+(\.\d+)?", said.stdout + said.stderr)
    return found[0] if found else "unknown"


def read(path: Path = RESULTS) -> list[Table]:
    found = [json.loads(line) for line in path.read_text().splitlines()]
    return [Table(**{name: one[name] for name in Table._fields if name in one}) for one in found]


def markdown(tables: Iterable[Table]) -> str:
    """One row for each scene, in the order of SCENES, and their sum."""
    rows: dict[str, dict[str, Any]] = {}
    for table in tables:
        for row in table.rows:
            known = rows.setdefault(row["scene"], {**row, **dict.fromkeys(FIGURES, 0), "versions": {}})
            known["versions"] |= {name: table.versions[name] for name in _used(row["scene"]) if name in table.versions}
            for what in FIGURES:
                known[what] += row[what]
    lines = [
        "| action | remote on loopback | tries | doubts | settled without a person | wrong |",
        "|---|---|---|---|---|---|",
    ]
    lines += [_row(f"`{one['action']}`", _remote(one), one) for name in SCENES if (one := rows.get(name))]
    total = {what: sum(one[what] for one in rows.values()) for what in FIGURES}
    share = f" ({100 * total['settled'] / max(total['doubts'], 1):.1f} %)"
    return "\n".join([*lines, _row("all", "", total, share)])


def block(tables: Iterable[Table]) -> str:
    """The table between its two comments."""
    return f"{BEGIN}\n\n{markdown(tables)}\n\n{END}"


def _used(scene: str) -> list[str]:
    return [one.split(" ")[0] for one in PROGRAMS.get(scene.partition("-")[0], ())]


def _remote(row: dict[str, Any]) -> str:
    programs = ", ".join(f"{name} {version}" for name, version in row["versions"].items())
    return f"{row['remote']} ({programs})" if programs else row["remote"]


def _row(action: str, remote: str, of: dict[str, Any], share: str = "") -> str:
    return f"| {action} | {remote} | {of['tries']} | {of['doubts']} | {of['settled']}{share} | {of['wrong']} |"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--tries", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--write", type=Path)
    parser.add_argument("scenes", nargs="*")
    options = parser.parse_args()
    for name in options.scenes:
        found = play(name, tries=options.tries, seed=options.seed)
        with RESULTS.open("a") as file:
            file.write(json.dumps({"format": FORMAT, **found._asdict()}, separators=(",", ":")) + "\n")
        print(found.rows[0], flush=True)
    if options.write:
        before, _, rest = options.write.read_text().partition(BEGIN)
        options.write.write_text(before + block(read()) + rest.partition(END)[2])


if __name__ == "__main__":
    main()
