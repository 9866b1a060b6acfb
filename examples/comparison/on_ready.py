"""The nine-part system with ready effects of `standfast.actions`: no probe and no lookup is written here.

The same parts as `on_standfast.py`. Its outside system speaks HTTP: `WORLD_URL`. `run_ready.py` kills it.
"""

import os
import sys

import world

import standfast
from standfast.actions import github, http

plan = standfast.step(world.plan)
edit = standfast.step(world.edit)
URL = os.environ.get("WORLD_URL", "")


def coder() -> None:
    with standfast.session("fix-42", agent="coder") as s:
        s.store.loops.add("nightly", [sys.executable, __file__, "nightly"], cron="0 3 * * *", retries_max=2)
        text = edit(plan("issue 42"))
        pr = github.open_pr("a/b", "fix-42", "main", title="Fix 42", body=text)
        verdict = s.ask("reviewer", {"pr": pr.number}, key="review", timeout="10m")
        with s.decide("deploy v42", why=f"the reviewer says: {verdict}"):
            deploy = {"order": "v42"}
            http.post.with_options(approve=True, wait="10m")(f"{URL}/v1/deployments", deploy, name="v42")


def review(number: int) -> str:
    return github.comment("a/b", number, "looks good", topic="review").url


def reviewer() -> None:
    with standfast.open(agent="reviewer") as sf:
        sf.mail.answer("reviewer", lambda mail: review(mail.body["pr"]))


def nightly() -> None:
    with standfast.session(f"nightly {world.tonight()}", agent="nightly"):
        http.post(f"{URL}/v1/reports", {"order": world.tonight()}, name=f"report {world.tonight()}")


def what_happened(time: str = "03:00") -> None:
    with standfast.open() as sf:
        for entry in sf.timeline(at=time).entries:
            print(entry.agent, entry.type, entry.summary)


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
