"""`python -m standfast_prove.bench.crashes`: each contestant in its own process, then a table and a result file."""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from importlib import metadata
from pathlib import Path
from typing import Any

from standfast_prove import results
from standfast_prove.bench import peers
from standfast_prove.bench.crashes.programs import PROGRAMS, Program

COLUMNS = ("schedules", "kills", "effects", "lost", "duplicated", "in_doubt", "errors", "never_ended")


def main() -> int:
    options = _options()
    with ExitStack() as stack:
        url = _server(stack, options.only)
        rows = [_played(PROGRAMS[name], name, url, options) for name in options.only or PROGRAMS]
    print(table(rows))
    if options.results:
        _write(Path(options.results), rows)
    ours = [row for row in rows if row["name"].startswith("standfast") and not row.get("not_run")]
    return int(any(row["lost"] or row["duplicated"] or row["never_ended"] for row in ours))


def table(rows: list[dict[str, Any]]) -> str:
    lines = [f"{'':42}" + "".join(f"{column.replace('_', ' '):>12}" for column in COLUMNS) + f"{'recovery':>11}"]
    for row in rows:
        if row.get("not_run"):
            lines.append(f"{row['label']:42}NOT RUN: {row['not_run']}")
            continue
        figures = "".join(f"{row[column]:>12,}" for column in COLUMNS)
        lines.append(f"{row['label'] + ' ' + row['version']:42}{figures}{row['recovery_ms']:>8,} ms")
    return "\n".join(lines)


def _played(program: Program, name: str, url: str, options: argparse.Namespace) -> dict[str, Any]:
    row: dict[str, Any] = {"name": name, "label": program.label, "version": _version(program)}
    path = [] if program.requirement is None else [peers.installed(program.requirement)]
    if None in path:
        return row | {"not_run": f"{program.requirement} could not be installed"}
    print(f"{program.label} …", file=sys.stderr, flush=True)
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="standfast-crashes-", dir=memory) as place, ExitStack() as stack:
        server = _database(stack, url) if program.server else ""
        environment = _environment([str(one) for one in path if one], place)
        command = [sys.executable, "-P", "-m", "standfast_prove.bench.crashes.driver", name, place, server]
        command += [str(options.kills), str(options.seed)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        return row | {"not_run": f"its driver failed: {done.stderr.strip()[-300:]}"}
    tally: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    took = tally.pop("recovery_s")
    return row | tally | {"recovery_ms": round(statistics.median(took) * 1000) if took else 0}


def _environment(path: list[str], place: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("STANDFAST_")}
    found = os.pathsep.join([*(one for one in sys.path if one), os.getcwd(), *path])
    return {**kept, "PYTHONPATH": found, "STANDFAST_DATA_DIR": place, "HOME": place}


def _version(program: Program) -> str:
    if program.requirement:
        return program.requirement.partition("==")[2]
    return metadata.version(program.version_of) if program.version_of else ""


def _server(stack: ExitStack, only: list[str] | None) -> str:
    if only and not any(PROGRAMS[name].server for name in only):
        return ""
    from standfast_prove.postgres import TemporaryPostgres

    return os.environ.get("STANDFAST_TEST_PG_URL") or stack.enter_context(TemporaryPostgres()).url


def _database(stack: ExitStack, url: str) -> str:
    from standfast_prove.postgres import fresh_database

    return stack.enter_context(fresh_database(url))


def _write(directory: Path, rows: list[dict[str, Any]]) -> None:
    from standfast_prove.versions import versions

    command = "python -m standfast_prove.bench.crashes " + " ".join(sys.argv[1:])
    table = results.Table("peers", command.strip(), versions(), [_shown(row) for row in rows])
    print(f"written to {results.write_table(directory, table)}", file=sys.stderr)


def _shown(row: dict[str, Any]) -> dict[str, Any]:
    """The table, in the form of the docs page."""
    who = {"contestant": f"{row['label']} {row['version']}".strip()}
    if row.get("not_run"):
        return who | {"schedules": f"not run: {row['not_run']}"}
    figures = {column.replace("_", " "): row[column] for column in COLUMNS}
    return who | figures | {"recovery": f"{row['recovery_ms']:,} ms", "what it said": "; ".join(row["words"])}


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m standfast_prove.bench.crashes", description=sys.modules[__name__].__doc__
    )
    parser.add_argument(
        "--kills", type=int, default=60, help="moments spread over each life, besides the six named (60)"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", action="append", choices=list(PROGRAMS), help="this contestant; may be repeated")
    parser.add_argument("--results", metavar="DIR", help="also write a result file there")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
