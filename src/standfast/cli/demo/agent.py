"""The agent over standfast: it plans, decides, opens a pull request and reports it.

After a crash the agent starts from its first line. Finished steps return their stored results. Before it sends
an effect in doubt again, a probe asks the server whether the first request arrived.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

import standfast
from standfast.cli.demo import model
from standfast.cli.demo.server import ask


@dataclass
class PullRequest:
    number: int
    url: str


SERVER = ""


def find_pr(branch: str) -> PullRequest | None:
    found = ask(f"{SERVER}/pulls?branch={branch}")
    return PullRequest(found[0]["number"], found[0]["url"]) if found else None


@standfast.effect(
    "demo.open_pr", by=("repo", "branch"), find=find_pr, settle="1s"
)  # the server of the demo answers immediately
def open_pr(repo: str, branch: str, title: str, body: str) -> PullRequest:
    answer = ask(f"{SERVER}/pulls", {"repo": repo, "branch": branch, "title": title, "body": body})
    return PullRequest(answer["number"], answer["url"])


def main(server: str, key: str) -> None:
    global SERVER
    SERVER = server
    with standfast.open() as sf, sf.session(key, agent="demo") as s:
        plan = s.step("plan", model.plan, "an empty line ends it early")
        with s.decide("edit parser.py", why="the failing test names it", then="patch, test, open a pull request"):
            body = model.describe(plan["title"])
            pr = open_pr("demo/parser", plan["branch"], title=plan["title"], body=body)
        s.say("assistant", f"opened {pr.url}", key="opened")
        print(f"opened {pr.url}")


if __name__ == "__main__":
    main(*sys.argv[1:])
