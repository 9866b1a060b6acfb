"""A pull request that is opened once: whatever crashes, and however the model words it the next time.

The answer to the first request is lost on the way. Nobody can know from here whether it arrived, so
nothing is sent again blindly: the next call asks the probe, which looks, finds it and settles it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import standfast

SERVER = Path("pull-requests.log")  # the remote: a line a request that arrived


@dataclass(frozen=True)
class PullRequest:
    number: int
    branch: str


@standfast.effect("github.open_pr", by=("repo", "branch"))  # a title is no identity
def open_pr(repo: str, branch: str, title: str, body: str = "") -> PullRequest:
    with SERVER.open("a") as server:
        server.write(f"{branch}\n")
    raise TimeoutError("the answer was lost")


@open_pr.probe
def find_pr(repo: str, branch: str) -> standfast.Applied | standfast.NotApplied:
    branches = SERVER.read_text().splitlines() if SERVER.exists() else []
    if branch in branches:
        return standfast.Applied(PullRequest(branches.index(branch) + 1, branch))
    return standfast.NotApplied()


@open_pr.undo  # for later: sf.effects.undo(id, open_pr)
def close_pr(pr: PullRequest) -> None: ...


def agent(sf: standfast.Standfast, title: str) -> PullRequest:
    with sf.session("fix-42") as s:
        return s.effect(open_pr, repo="a/b", branch="fix-42", title=title)


with standfast.open() as sf:
    try:
        pr = agent(sf, "Fix the parser")
    except TimeoutError:  # it carries a note: what is in doubt, and how to settle it by hand
        pr = agent(sf, "Parser: fix")
    print(f"pull request {pr.number}, {len(SERVER.read_text().splitlines())} on the server")
    (effect,) = sf.effects.list(session="fix-42")
    print(f"{effect.shown}: {effect.state}, {effect.evidence}")
