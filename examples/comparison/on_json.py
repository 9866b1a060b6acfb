"""The nine-part system on JSON files: each process writes its own file and replaces it whole. `run.py` kills it."""

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import world


def read(name: str) -> dict[str, dict[str, str]]:
    file = Path(f"{name}.json")
    return json.loads(file.read_text()) if file.exists() else {}


def once(name: str, key: str, function: Callable[[], str], why: str = "") -> str:
    done = read(name)
    if key not in done:
        done[key] = {"result": function(), "at": time.strftime("%H:%M"), "why": why}
        with open(f"{name}.tmp", "w") as spare:
            json.dump(done, spare)
            spare.flush()
            os.fsync(spare.fileno())
        os.replace(f"{name}.tmp", f"{name}.json")
    return done[key]["result"]


def wait(name: str, key: str) -> str:
    while key not in read(name):
        time.sleep(0.05)
    return read(name)[key]["result"]


def coder() -> None:
    plan = once("coder", "plan", lambda: world.plan("issue 42"))
    branch = once("coder", "edit", lambda: world.edit(plan))
    pr = once("coder", "pr", lambda: world.find_pr(branch) or world.open_pr(branch))
    verdict = wait("reviewer", pr)
    once("coder", "asks", lambda: "deploy v42")
    wait("person", "approved")
    why = f"the reviewer says: {verdict}"
    once("coder", "deploy", lambda: world.find_deployment("v42") or world.deploy("v42"), why)


def reviewer() -> None:
    pr = wait("coder", "pr")
    once("reviewer", pr, lambda: world.find_review(pr) or world.post_review(pr))


def nightly() -> None:  # crontab: 0 3 * * * python on_json.py nightly
    night = world.tonight()
    once("nightly", night, lambda: world.find_report(night) or world.send_report(night))


def what_happened(at: str = "03:00") -> None:
    for name in ("coder", "reviewer", "nightly"):
        for key, entry in read(name).items():
            if entry["at"][:2] == at[:2]:
                print(name, key, entry)


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
