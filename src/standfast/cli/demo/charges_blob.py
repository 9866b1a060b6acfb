"""The agent of `charges.py` with its charges in one JSON file, which it saves after each charge."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from standfast.cli.demo.blob import save
from standfast.cli.demo.charges import ORDERS
from standfast.cli.demo.server import ask


def main(server: str, count: str) -> None:
    path = Path(os.environ["DEMO_FILE"])
    done = json.loads(path.read_text()) if path.exists() else {}
    for order in ORDERS[: int(count)]:
        if order not in done:
            done[order] = ask(f"{server}/charges", {"order": order, "cents": 4900})["number"]
            save(path, done)
        print(f"{order}: charge {done[order]}", flush=True)


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except OSError as error:
        sys.exit(str(error))
