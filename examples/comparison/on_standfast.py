"""The nine-part system on standfast: at most 40 lines of code, nine concepts. `run.py` kills it.

Start it again after a crash, and it resumes. docs/comparison.md says what happens if it dies at a numbered line.
"""

import sys

import world

import standfast

plan = standfast.step(world.plan)
edit = standfast.step(world.edit)
post_review = standfast.effect("github.review", by=("pr",), find=world.find_review)(world.post_review)
send_report = standfast.effect("mail.report", by=("night",), find=world.find_report)(world.send_report)


@standfast.effect("github.open_pr", by=("branch",), find=world.find_pr)
def open_pr(branch: str) -> str:
    return world.open_pr(branch)  # 4


# One approval allows one attempt: a second one asks the person again.
# `wait`: the call waits up to 10 minutes for the approval. Then it raises ApprovalRequired, and nothing is sent.
@standfast.effect("shop.deploy", by=("version",), find=world.find_deployment, approve=True, wait="10m")
def deploy(version: str) -> str:
    return world.deploy(version)  # 8


def coder() -> None:
    with standfast.session("fix-42", agent="coder") as s:  # 1
        s.store.loops.add("nightly", [sys.executable, __file__, "nightly"], cron="0 3 * * *", retries_max=2)  # 2
        branch = edit(plan("issue 42"))  # 3
        pr = open_pr(branch)
        verdict = s.ask("reviewer", {"pr": pr}, key="review", timeout="10m")  # 5
        with s.decide("deploy v42", why=f"the reviewer says: {verdict}"):  # 6
            deploy("v42")  # 7


def reviewer() -> None:
    with standfast.open(agent="reviewer") as sf:
        sf.mail.answer("reviewer", lambda mail: post_review(mail.body["pr"]))  # 9


def nightly() -> None:
    with standfast.session(f"nightly {world.tonight()}", agent="nightly"):
        send_report(world.tonight())  # 10


def what_happened(time: str = "03:00") -> None:
    with standfast.open() as sf:
        for entry in sf.timeline(at=time).entries:
            print(entry.agent, entry.type, entry.summary)


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
