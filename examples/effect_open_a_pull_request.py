"""A pull request that is opened once, although its answer is lost and the LLM words it differently the next time.

The call raises TimeoutError: the request may have arrived. The next call checks before it sends: it calls `find_pr`,
which looks at the server and returns the pull request.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import standfast

SERVER = Path("pull-requests.log")  # the remote service: one line for each request that arrived


@dataclass(frozen=True)
class PullRequest:
    number: int
    branch: str


def find_pr(branch: str) -> PullRequest | None:
    branches = SERVER.read_text().splitlines() if SERVER.exists() else []
    return PullRequest(branches.index(branch) + 1, branch) if branch in branches else None


@standfast.effect("github.open_pr", by=("repo", "branch"), find=find_pr)  # a title does not identify a pull request
def open_pr(repo: str, branch: str, title: str, body: str = "") -> PullRequest:
    with SERVER.open("a") as server:
        server.write(f"{branch}\n")
    raise TimeoutError("the answer was lost")


@open_pr.compensate  # for later: sf.effects.compensate(id, open_pr)
def close_pr(pr: PullRequest) -> None: ...


def agent(sf: standfast.Standfast, title: str) -> PullRequest:
    with sf.session("fix-42"):
        return open_pr("a/b", "fix-42", title=title)


with standfast.open() as sf:
    try:
        pr = agent(sf, "Fix the parser")
    except TimeoutError:  # the exception's note names the effect in doubt and the command that settles it
        pr = agent(sf, "Parser: fix")
    print(f"pull request {pr.number}, {len(SERVER.read_text().splitlines())} on the server")
    (effect,) = sf.effects.list(session="fix-42")
    print(f"{effect.shown}: {effect.state}, {effect.evidence}")
