"""GitHub: pull requests, issues, comments and releases, as effects to call in a session.

    from standfast.actions import github

    with standfast.session("fix-42"):
        pr = github.open_pr("a/b", "fix-42", "main", title="Fix the parser", body=text)
        github.comment("a/b", pr.number, review, topic="review")

They use the REST API with the token in `GITHUB_TOKEN` or `GH_TOKEN`. `GITHUB_API_URL` names another server. The body of
a comment or an issue gets an invisible marker, an HTML comment with the effect's key. The probe finds the marker.
"""

from __future__ import annotations

import json
import os
from typing import Any
from urllib.parse import quote, urlencode

from standfast.actions import gh, web
from standfast.actions.action import CannotTell
from standfast.ledger.effects.call import Call, NotApplied
from standfast.ledger.effects.declared import effect
from standfast.models import Model

ACTIONS = gh.ACTIONS
PAGE = 100
PAGES_MAX = 10
WITHIN_S = 20.0


class PullRequest(Model):
    number: int
    url: str
    state: str


class Issue(Model):
    number: int
    url: str


class Comment(Model):
    id: int
    url: str


class Release(Model):
    id: int
    url: str
    tag: str


# -- pull requests -----------------------------------------------------------------------------------------


def find_pr(repo: str, branch: str, base: str | None = None) -> PullRequest | None:
    """The open pull request of a branch; None if there never was one. Raises if only closed ones are there.

    `branch` may be OWNER:BRANCH of a fork. Without `base` it also raises if the branch has several open ones.
    """
    label = branch if ":" in branch else f"{repo.partition('/')[0]}:{branch}"
    asked = {"head": label, "state": "all", "per_page": PAGE, **({} if base is None else {"base": base})}
    found = [_pr(one) for one in _get(f"repos/{_repo(repo)}/pulls?{urlencode(asked)}")]
    if not found:
        return None
    open_ = [one for one in found if one.state == "open"]
    if not open_:
        raise CannotTell(f"pull request {found[0].number} of {branch} is closed: it may be this one or an older one")
    if len(open_) > 1:
        raise CannotTell(f"{branch} has {len(open_)} open pull requests: name the base")
    return open_[0]


@effect("github.create_pr", by=("repo", "branch", "base"), find=find_pr, settle="10s")
def open_pr(repo: str, branch: str, base: str, title: str, body: str = "", draft: bool = False) -> PullRequest:
    """Open a pull request of a branch into `base`."""
    given = {"title": title, "head": branch, "base": base, "body": body, "draft": draft}
    return _pr(_send("POST", f"repos/{_repo(repo)}/pulls", given))


@open_pr.compensate
def close_pr(pr: PullRequest, repo: str) -> None:
    _send("PATCH", f"repos/{_repo(repo)}/pulls/{pr.number}", {"state": "closed"})


def find_merge(repo: str, number: int) -> str | None:
    """The commit that a pull request was merged as; None while it is not merged."""
    found = _get(f"repos/{_repo(repo)}/pulls/{number:d}")
    return str(found["merge_commit_sha"]) if found.get("merged") else None


@effect("github.merge_pr", by=("repo", "number"), find=find_merge, settle="10s")
def merge_pr(repo: str, number: int, method: str = "merge") -> str:
    """Merge a pull request by `merge`, `squash` or `rebase`. Returns the commit."""
    return str(_send("PUT", f"repos/{_repo(repo)}/pulls/{number:d}/merge", {"merge_method": method})["sha"])


# -- issues and comments -----------------------------------------------------------------------------------


def marker(call: Call) -> str:
    """The marker by which the probe finds a text of this effect. GitHub does not show it."""
    return f"<!-- standfast:{call.key} -->"


def find_comment(repo: str, number: int, call: Call) -> Comment | None:
    """The comment with this effect's marker."""
    found = _marked(f"repos/{_repo(repo)}/issues/{number:d}/comments?", marker(call))
    return None if found is None else Comment(found["id"], found["html_url"])


@effect("github.comment", by=("repo", "number", "topic"), find=find_comment, settle="10s")
def comment(call: Call, repo: str, number: int, body: str, topic: str = "comment") -> Comment:
    """Comment on an issue or a pull request. `topic` is yours: one comment per topic."""
    given = {"body": f"{body}\n\n{marker(call)}"}
    made = _send("POST", f"repos/{_repo(repo)}/issues/{number:d}/comments", given)
    return Comment(made["id"], made["html_url"])


@comment.compensate
def delete_comment(made: Comment, repo: str) -> None:
    _send("DELETE", f"repos/{_repo(repo)}/issues/comments/{made.id:d}", None)


def find_issue(repo: str, call: Call) -> Issue | None:
    """The issue with this effect's marker."""
    found = _marked(f"repos/{_repo(repo)}/issues?state=all&sort=created&direction=desc&", marker(call))
    return None if found is None else Issue(found["number"], found["html_url"])


@effect("github.open_issue", by=("repo", "topic"), find=find_issue, settle="10s")
def open_issue(call: Call, repo: str, title: str, body: str, topic: str) -> Issue:
    """Open an issue. `topic` is yours: one issue per topic."""
    made = _send("POST", f"repos/{_repo(repo)}/issues", {"title": title, "body": f"{body}\n\n{marker(call)}"})
    return Issue(made["number"], made["html_url"])


@open_issue.compensate
def close_issue(made: Issue, repo: str) -> None:
    _send("PATCH", f"repos/{_repo(repo)}/issues/{made.number:d}", {"state": "closed"})


# -- releases ----------------------------------------------------------------------------------------------


def find_release(repo: str, tag: str) -> Release | None:
    """The published release of a tag."""
    found = _get(f"repos/{_repo(repo)}/releases/tags/{quote(tag, safe='')}", missing=True)
    return None if found is None else Release(found["id"], found["html_url"], found["tag_name"])


@effect("github.create_release", by=("repo", "tag"), find=find_release, settle="10s")
def create_release(repo: str, tag: str, name: str = "", body: str = "") -> Release:
    """Publish a release of a tag."""
    made = _send("POST", f"repos/{_repo(repo)}/releases", {"tag_name": tag, "name": name or tag, "body": body})
    return Release(made["id"], made["html_url"], made["tag_name"])


@create_release.compensate
def delete_release(made: Release, repo: str) -> None:
    _send("DELETE", f"repos/{_repo(repo)}/releases/{made.id:d}", None)


# -- the API -----------------------------------------------------------------------------------------------


def _pr(found: Any) -> PullRequest:
    return PullRequest(found["number"], found["html_url"], found["state"])


def _repo(repo: str) -> str:
    if not gh.REPO.fullmatch(repo):
        raise ValueError(f"{repo[:60]!r} is not a repository: write owner/name")
    return repo


def _url(path: str) -> str:
    return f"{os.environ.get('GITHUB_API_URL') or 'https://api.github.com'}/{path}"


def _headers() -> dict[str, str]:
    token = os.environ.get("GITHUB_TOKEN") or os.environ.get("GH_TOKEN")
    kind = {"Accept": "application/vnd.github+json", "X-GitHub-Api-Version": "2022-11-28"}
    return {**kind, "Authorization": f"Bearer {token}"} if token else kind


def _get(path: str, *, missing: bool = False) -> Any:
    """The answer as JSON. With `missing`, None for a 404 in a repository that the token can read."""
    reply = web.read(_url(path), within_s=WITHIN_S, headers=_headers())
    if reply.status == 200:
        return reply.json()
    if reply.status == 404 and missing:
        owner_and_name = "/".join(path.split("/")[:3])
        if web.read(_url(owner_and_name), within_s=WITHIN_S, headers=_headers()).status == 200:
            return None
    raise CannotTell(f"GitHub answered {reply.status} to GET {path.partition('?')[0]}")


def _marked(path: str, mark: str) -> Any:
    """The entry with the marker in its body, among the first PAGES_MAX pages of a list; None if there is none."""
    for page in range(1, PAGES_MAX + 1):
        found = _get(f"{path}per_page={PAGE}&page={page}")
        for one in found:
            if mark in (one.get("body") or ""):
                return one
        if len(found) < PAGE:
            return None
    raise CannotTell(f"the marker is not in the first {PAGE * PAGES_MAX} entries")


def _send(method: str, path: str, given: dict[str, Any] | None) -> Any:
    body = b"" if given is None else json.dumps(given).encode()
    headers = {**_headers(), "Content-Type": "application/json"}
    reply = web.send(method, _url(path), body, within_s=60.0, headers=headers)
    if 400 <= reply.status < 500 and reply.status != 408:
        raise NotApplied(f"GitHub answered {reply.status}: {reply.body[:200].decode(errors='replace')}")
    if not 200 <= reply.status < 300:
        raise RuntimeError(f"GitHub answered {reply.status}")
    return reply.json() if reply.body else {}
