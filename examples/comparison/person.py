"""The person of the comparison, in a process of its own: approves the deployment, and notes when a run asks for help.

`python person.py standfast|dbos|json`. The file `asked` appears when a run stops and needs a person.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

PAUSE_S = 0.1


def standfast() -> None:
    import standfast

    with standfast.open(agent="person") as sf:
        while True:
            for approval in sf.approvals.list(state="requested"):
                sf.approvals.grant(approval.id, approver="person")
            if sf.sessions.list(state="waiting") and (doubts := sf.effects.in_doubt()):
                Path("asked").write_text("\n".join(effect.shown for effect in doubts))
            time.sleep(PAUSE_S)


def dbos() -> None:
    from dbos import DBOSClient  # type: ignore[import-not-found,unused-ignore]

    client = DBOSClient(system_database_url="sqlite:///shop.sqlite")
    while client.get_event("fix-42", "why", timeout_seconds=PAUSE_S) is None:
        time.sleep(PAUSE_S)
    client.send("fix-42", True, topic="approval", idempotency_key="approval")


def json() -> None:
    from on_json import once, wait

    wait("coder", "asks")
    once("person", "approved", lambda: "yes")


if __name__ == "__main__":
    {"standfast": standfast, "dbos": dbos, "json": json}[sys.argv[1]]()
