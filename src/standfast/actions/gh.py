"""The commands of `gh`, GitHub's own client: `gh pr`, `gh issue` and `gh release`.

The probes run `gh api`, which has the credentials of `gh`. They find a text by its marker, an HTML comment
`<!-- standfast:… -->`. They find any other text by its hash and its time. The time is GitHub's, from the header `Date`,
so a wrong clock of this machine does no harm.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from time import time_ns
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

from standfast.actions.action import Action, Answer, CannotTell, Facts, Place, absent, arrived, unknown
from standfast.actions.command_lines import Words, split
from standfast.actions.programs import run

REPO = re.compile(r"[A-Za-z0-9_.-]+/[A-Za-z0-9_.-]+")
_SLUG = re.compile(r"(?:([a-z0-9.:-]+)/)?([A-Za-z0-9_.-]+/[A-Za-z0-9_.-]+)")
_URL = re.compile(r"https?://([^/]+)/([^/]+/[^/]+)/(?:pull|issues)/(\d+)/?")
MARKER = re.compile(r"<!-- standfast:[^\n]{1,200}? -->")
HERE = "{owner}/{repo}"
"""`gh api` replaces this with the repository of the current directory."""
PAGE = 100
_NEWEST = {"sort": "created", "direction": "desc", "per_page": PAGE}
SLACK_US = 2_000_000
"""GitHub's times have no fractions."""
BEFORE_US = 600_000_000


class Got(NamedTuple):
    """The answer of `gh api`."""

    status: int
    body: Any
    ahead_us: int
    """How far GitHub's clock is ahead of ours."""


def _api(facts: Facts, place: Place, path: str) -> Got:
    named = facts.get("host")
    if named not in (None, os.environ.get("GH_HOST") or "github.com"):
        # Without this check, gh would send the caller's token to any host that a stored row names.
        raise CannotTell(f"the server may get your token only if you set GH_HOST={str(named)[:60]}")
    ended = run(("gh", "api", "--include", "--method", "GET", path), cwd=place.cwd, within_s=place.within_s)
    head, _, body = ended.stdout.replace("\r\n", "\n").partition("\n\n")
    status = re.match(r"HTTP/[\d.]+ (\d+)", head)
    if status is None:
        raise CannotTell(f"gh: {ended.why}")
    date = re.search(r"(?mi)^date: (.+)$", head)
    ahead_us = 0
    if date is not None:
        seconds = int(parsedate_to_datetime(date[1].strip()).timestamp())
        ahead_us = seconds * 1_000_000 - time_ns() // 1_000
    try:
        return Got(int(status[1]), json.loads(body) if body.strip() else None, ahead_us)
    except ValueError:
        raise CannotTell(f"gh: {ended.why}") from None


def _listed(got: Got) -> list[Any]:
    if got.status != 200 or not isinstance(got.body, list):
        raise CannotTell(f"GitHub answered {got.status}")
    return got.body


def _repo(facts: Facts) -> str:
    repo = facts.get("repo") or HERE
    if repo != HERE and not REPO.fullmatch(repo):
        raise CannotTell(f"{str(repo)[:60]!r} is not a repository name")
    return str(repo)


def _since(got: Got, one: Any, place: Place) -> bool:
    """Whether an entry was created after the command was started."""
    if place.sent_us is None:
        return False
    created = datetime.fromisoformat(one["created_at"])
    return int(created.timestamp()) * 1_000_000 + 999_999 - got.ahead_us >= place.sent_us - SLACK_US


def _hashed(text: str) -> str:
    return hashlib.sha256("\n".join(line.rstrip() for line in text.strip().splitlines()).encode()).hexdigest()


# -- command line ------------------------------------------------------------------------------------------

_TEXT = "-b --body -F --body-file -R --repo"


def _words(args: Sequence[str], flags: str, values: str) -> tuple[Words, Facts] | None:
    """The parsed words of the command line, and the repository that `-R` names."""
    words = split(args, flags=flags, values=f"-R --repo {values}")
    if words is None:
        return None
    given = words.value("-R", "--repo")
    slug = _SLUG.fullmatch(given) if given is not None else None
    if given is not None and slug is None:
        return None
    return words, ({"host": slug[1], "repo": slug[2]} if slug is not None else {})


def _numbered(words: Words, facts: Facts) -> Facts | None:
    """The issue or pull request of a command: a number, a URL, or None for the current branch."""
    if len(words.rest) != 1:
        return {**facts, "number": None} if not words.rest else None
    number = words.rest[0].removeprefix("#")
    if number.isdecimal():
        return {**facts, "number": int(number)}
    url = _URL.fullmatch(number)
    host = None if url is None or url[1] == "github.com" else url[1]
    return None if url is None else {"host": host, "repo": url[2], "number": int(url[3])}


def _body(words: Words) -> Facts | None:
    text, file = words.value("-b", "--body"), words.value("-F", "--body-file")
    if (text is None) == (file is None) or file == "-":
        return None
    return _identified(text) if text is not None else {"file": file}


def _identified(text: str) -> Facts:
    """The marker of a text, if it has one, and its hash."""
    found = MARKER.search(text)
    return {"body": _hashed(text), **({"marker": found[0]} if found else {})}


def _read_body(facts: Facts, place: Place) -> Facts:
    if "file" not in facts:
        return facts
    try:
        with open(os.path.join(place.cwd, facts["file"]), encoding="utf-8") as file:
            return {**{name: facts[name] for name in facts if name != "file"}, **_identified(file.read())}
    except (OSError, ValueError) as error:
        raise CannotTell(str(error)) from None


def _branch(place: Place) -> str:
    ended = run(("git", "symbolic-ref", "--short", "HEAD"), cwd=place.cwd, within_s=place.within_s)
    if ended.code != 0 or place.sent_us is not None:  # after the call another branch may be checked out
        raise CannotTell("the branch of the command is unknown")
    return ended.stdout.strip()


# -- gh pr create ------------------------------------------------------------------------------------------


def _parse_pr(args: Sequence[str]) -> Facts | None:
    found = _words(
        args,
        "-d --draft -f --fill --fill-first --no-maintainer-edit",
        "-t --title -b --body -F --body-file -B --base -H --head -a --assignee -l --label -r --reviewer -m --milestone "
        "-p --project",
    )
    if found is None or found[0].rest:
        return None
    words, facts = found
    return {**facts, "head": words.value("-H", "--head"), "base": words.value("-B", "--base")}


def _before_pr(facts: Facts, place: Place) -> Facts:
    return {**facts, "head": facts["head"] or _branch(place)}


def _find_pr(facts: Facts, place: Place) -> Answer:
    owner, colon, branch = facts["head"].rpartition(":")
    got = _api(facts, place, f"repos/{_repo(facts)}/pulls?{urlencode({'state': 'all', **_NEWEST})}")
    listed = _listed(got)
    ours = [one for one in listed if one["head"]["ref"] == branch and facts["base"] in (None, one["base"]["ref"])]
    ours = [one for one in ours if one["state"] == "open" or _since(got, one, place)]
    named = [one for one in ours if _owner(one["head"]) == (owner if colon else _owner(one["base"]))]
    if named:
        return arrived(f"pull request {named[0]['number']} is there: {named[0]['html_url']}", named[0]["html_url"])
    if ours:
        return unknown(f"pull request {ours[0]['number']} is from a branch of this name in another fork")
    if len(listed) == PAGE and not any(not _since(got, one, place) for one in listed):
        return unknown(f"more than {PAGE} pull requests were opened since")
    return absent(f"there is no pull request of {facts['head']}")


def _owner(side: Any) -> str | None:
    return side["label"].partition(":")[0] if isinstance(side.get("label"), str) else None


# -- gh pr merge -------------------------------------------------------------------------------------------


def _parse_merge(args: Sequence[str]) -> Facts | None:
    found = _words(
        args,
        "-m --merge -s --squash -r --rebase -d --delete-branch --auto --admin",
        "-b --body -F --body-file -t --subject --match-head-commit",
    )
    facts = None if found is None else _numbered(*found)
    return None if facts is None or found is None else {**facts, "auto": found[0].has("--auto")}


def _before_number(facts: Facts, place: Place) -> Facts:
    """The number of the open pull request of this branch, if the command names none."""
    facts = _read_body(facts, place)
    if facts["number"] is not None:
        return facts
    branch = _branch(place)
    listed = _listed(_api(facts, place, f"repos/{_repo(facts)}/pulls?state=open&per_page={PAGE}"))
    numbers = [one["number"] for one in listed if one["head"]["ref"] == branch]
    if len(numbers) != 1:
        raise CannotTell(f"{branch} has {len(numbers)} open pull requests")
    return {**facts, "number": numbers[0]}


def _find_merge(facts: Facts, place: Place) -> Answer:
    number = int(facts["number"])
    got = _api(facts, place, f"repos/{_repo(facts)}/pulls/{number}")
    if got.status != 200:
        raise CannotTell(f"GitHub answered {got.status}")
    if got.body.get("merged"):
        return arrived(f"pull request {number} is merged as {str(got.body.get('merge_commit_sha'))[:7]}")
    if facts["auto"] and got.body.get("auto_merge"):
        return arrived(f"pull request {number} merges automatically once its checks pass")
    return absent(f"pull request {number} is {got.body.get('state')} and not merged")


# -- comments and issues -----------------------------------------------------------------------------------


def _parse_comment(args: Sequence[str]) -> Facts | None:
    found = _words(args, "", "-b --body -F --body-file")
    facts = None if found is None else _numbered(*found)
    body = None if found is None else _body(found[0])
    return None if facts is None or body is None else {**facts, **body}


def _find_comment(facts: Facts, place: Place) -> Answer:
    number = int(facts["number"])
    asked = urlencode({"since": _iso((place.sent_us or 0) - BEFORE_US), "per_page": PAGE})
    got = _api(facts, place, f"repos/{_repo(facts)}/issues/{number}/comments?{asked}")
    return _texts(got, facts, place, f"on {number}")


def _parse_issue(args: Sequence[str]) -> Facts | None:
    found = _words(args, "", "-t --title -b --body -F --body-file -a --assignee -l --label -m --milestone -p --project")
    body = None if found is None else _body(found[0])
    title = None if found is None else found[0].value("-t", "--title")
    if found is None or body is None or title is None or found[0].rest:
        return None
    return {**found[1], **body, "title": title}


def _find_issue(facts: Facts, place: Place) -> Answer:
    asked = urlencode({"since": _iso((place.sent_us or 0) - BEFORE_US), "state": "all", **_NEWEST})
    return _texts(_api(facts, place, f"repos/{_repo(facts)}/issues?{asked}"), facts, place, "with this title")


def _texts(got: Got, facts: Facts, place: Place, where: str) -> Answer:
    """Find the text by its marker; without a marker, by its hash and title among the texts written since."""
    listed = _listed(got)
    if place.sent_us is None:
        raise CannotTell("the time of the command is unknown")
    mark = facts.get("marker")
    since = [one for one in listed if facts.get("title") in (None, one.get("title")) and _since(got, one, place)]
    if mark is not None:
        same = [one for one in listed if mark in (one.get("body") or "")]
    else:
        same = [one for one in since if _hashed(one.get("body") or "") == facts["body"]]
    if len(same) == 1:
        return arrived(f"it is there: {same[0]['html_url']}", same[0]["html_url"])
    if same:
        return unknown(
            f"{len(same)} texts with this marker are there" if mark else f"{len(same)} equal texts are there"
        )
    edited = [one for one in since if one.get("updated_at") not in (None, one["created_at"])]
    if edited and mark is None:
        return unknown(f"a text that was written since was edited: {edited[0]['html_url']}")
    if len(listed) >= PAGE:
        return unknown(f"{PAGE} or more texts were written since")
    return absent(f"there is no such text {where}")


def _iso(us: int) -> str:
    return datetime.fromtimestamp(max(us, 0) // 1_000_000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


# -- gh release create -------------------------------------------------------------------------------------


def _parse_release(args: Sequence[str]) -> Facts | None:
    found = _words(
        args,
        "-p --prerelease --generate-notes --latest --verify-tag",
        "-t --title -n --notes -F --notes-file --target --discussion-category",
    )
    if found is None or not found[0].rest:
        return None
    return {**found[1], "tag": found[0].rest[0]}


def _find_release(facts: Facts, place: Place) -> Answer:
    repo, tag = _repo(facts), facts["tag"]
    got = _api(facts, place, f"repos/{repo}/releases/tags/{quote(tag, safe='')}")
    if got.status == 200:
        return arrived(f"the release {tag} is there: {got.body['html_url']}", got.body["html_url"])
    drafts = _listed(_api(facts, place, f"repos/{repo}/releases?per_page=30"))  # also proves that the token may read
    if got.status != 404 or any(one.get("tag_name") == tag for one in drafts):
        return unknown(
            f"the release {tag} is a draft: its files may be incomplete"
            if got.status == 404
            else f"GitHub answered {got.status}"
        )
    return absent(f"there is no release {tag}")


# -- the entries -------------------------------------------------------------------------------------------

_REACHED = "a request that GitHub has accepted is carried out after its client is gone"


def _action(command: str, tool: str, by: str, compensate: str, cannot: str, looks: str, **functions: Any) -> Action:
    return Action(
        name=f"gh {command}",
        commands=(f"gh {command}",),
        tools=(tool,),
        by=by,
        compensate=compensate,
        cannot=cannot,
        settle="10s",
        settle_why=_REACHED,
        looks=lambda facts: f"gh api repos/{_repo(facts)}/{looks.format_map(facts)}",
        **functions,
    )


_TWICE = "without a marker: whose text it is, if another program has written the same one since"
_COMMENT = _action(
    "pr comment",
    "github.comment",
    "the number, and a marker in the text; without one, the text and the time",
    "delete the comment",
    _TWICE,
    "issues/{number}/comments",
    parse=_parse_comment,
    before=_before_number,
    find=_find_comment,
)
ACTIONS = (
    _action(
        "pr create",
        "github.create_pr",
        "head and base",
        "gh pr close",
        "a branch of the same name in a fork, without --head OWNER:BRANCH",
        "pulls",
        parse=_parse_pr,
        before=_before_pr,
        find=_find_pr,
    ),
    _action(
        "pr merge",
        "github.merge_pr",
        "the number",
        "gh pr revert, or git revert",
        "who merged it",
        "pulls/{number}",
        parse=_parse_merge,
        before=_before_number,
        find=_find_merge,
    ),
    _COMMENT,
    _COMMENT._replace(name="gh issue comment", commands=("gh issue comment",)),
    _action(
        "issue create",
        "github.open_issue",
        "a marker in the text; without one, the title, the text and the time",
        "gh issue close",
        _TWICE,
        "issues",
        parse=_parse_issue,
        before=_read_body,
        find=_find_issue,
    ),
    _action(
        "release create",
        "github.create_release",
        "the tag",
        "gh release delete",
        "whether all files are there, while it is a draft",
        "releases/tags/{tag}",
        parse=_parse_release,
        find=_find_release,
    ),
)
