"""git: push, commit and tag, as effects to call in a session and as entries of the table.

    from standfast.actions import git

    with standfast.session("fix-42"):
        made = git.commit("fix the parser", parent=git.head())
        git.push("origin", "fix-42", made)

The probe of a push runs `git ls-remote`: the push arrived if the remote has the commit, or one on top of it. The probes
of a commit and a tag read the repository. All probes run only `git ls-remote`, `git rev-parse`, `git log` and
`git merge-base`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

from standfast.actions.action import Action, Answer, CannotTell, Facts, Place, absent, arrived, unknown
from standfast.actions.command_lines import split
from standfast.actions.programs import Ended, run, word
from standfast.ledger.effects.call import NotApplied
from standfast.ledger.effects.declared import effect
from standfast.record.steps import step

HEADS = "refs/heads/"
TAGS = "refs/tags/"
REFS_MAX = 20
DO_MAX_S = 600.0
_ID = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")


def _git(place: Place, *args: str, within_s: float | None = None) -> Ended:
    return run(("git", *args), cwd=place.cwd, within_s=place.within_s if within_s is None else within_s)


def _object(place: Place, name: str) -> str | None:
    """The id of an object; None if the repository has none of that name. Raises CannotTell outside a repository."""
    ended = _git(place, "rev-parse", "--verify", "--quiet", "--end-of-options", name)
    if ended.code == 0:
        return ended.stdout.strip()
    if ended.stderr.strip():
        raise CannotTell(ended.why)
    return None


def _short(id: str | None) -> str:
    return "nothing" if id is None else id[:7]


def _remote_refs(place: Place, remote: str, refs: Sequence[str]) -> dict[str, str]:
    """The remote's objects under these names. Raises CannotTell if the remote does not answer."""
    # This option overrides a command in the repository's configuration.
    words = ("ls-remote", "--upload-pack=git-upload-pack", "--", word(remote), *map(word, refs))
    ended = _git(place, *words)
    if ended.code != 0:
        raise CannotTell(f"{remote} did not answer: {ended.why}")
    lines = (line.split("\t") for line in ended.stdout.splitlines())
    return {parts[1]: parts[0] for parts in lines if len(parts) == 2 and parts[1] in refs}


def _is_ancestor(place: Place, old: str, new: str) -> bool:
    """Whether `new` is on top of `old`. False if the repository lacks one of them."""
    return _git(place, "merge-base", "--is-ancestor", old, new).code == 0


# -- git push ----------------------------------------------------------------------------------------------

_PUSH_FLAGS = (
    "-u --set-upstream -f --force --force-with-lease --force-if-includes --no-force-with-lease -q --quiet -v --verbose "
    "--progress --no-progress --no-verify --verify --atomic --porcelain -d --delete --thin --no-thin -4 -6 --ipv4 "
    "--ipv6 --signed --no-signed"
)
_PUSH_VALUES = "-o --push-option --recurse-submodules"


def _parse_push(args: Sequence[str]) -> Facts | None:
    words = split(args, flags=_PUSH_FLAGS, values=_PUSH_VALUES)
    if words is None or len(words.rest) > REFS_MAX:
        return None
    remote, specs = (words.rest[0], words.rest[1:]) if words.rest else (None, [])
    if "tag" in specs:  # `git push origin tag v1`
        specs = [f"{TAGS}{spec}" for spec in specs if spec != "tag"] if specs[0] == "tag" and len(specs) == 2 else [""]
    if any(not spec.strip("+") or "*" in spec for spec in specs):
        return None
    if words.has("-d", "--delete"):
        return {"remote": remote, "specs": [f":{spec}" for spec in specs]} if specs else None
    return {"remote": remote, "specs": specs}


def _before_push(facts: Facts, place: Place) -> Facts:
    """The commit that each ref must get, and the commit that it had at the last fetch."""
    remote, specs = facts["remote"], facts["specs"] or ["HEAD"]
    if not facts["specs"]:
        upstream = _pushed_to(place)
        named, _, branch = upstream.removeprefix("refs/remotes/").partition("/")
        if remote not in (None, named):
            raise CannotTell(f"the branch is pushed to {named}, not to {remote}")
        remote, specs = named, [f"HEAD:{HEADS}{branch}"]
    refs: dict[str, str | None] = {}
    was: dict[str, str | None] = {}
    for spec in specs:
        ref, id = _aim(spec, place)
        refs[ref] = id
        was[ref] = _object(place, f"refs/remotes/{remote}/{ref.removeprefix(HEADS)}") if ref.startswith(HEADS) else None
    return {"remote": remote, "refs": refs, "was": was}


def _pushed_to(place: Place) -> str:
    ended = _git(place, "rev-parse", "--symbolic-full-name", "@{push}")
    if ended.code != 0 or not ended.stdout.startswith("refs/remotes/"):
        raise CannotTell("the push target of this branch is unknown")
    return ended.stdout.strip()


def _aim(spec: str, place: Place) -> tuple[str, str | None]:
    """The remote's ref of a refspec, and the object that it must get; None for a deletion."""
    source, colon, target = spec.removeprefix("+").partition(":")
    if colon and not source:
        return _full(target, HEADS), None
    id = _object(place, source)
    if id is None:
        raise CannotTell(f"there is no {source[:60]!r} to push")
    named = _git(place, "rev-parse", "--symbolic-full-name", "--verify", "--quiet", "--end-of-options", source)
    full = named.stdout.strip()
    _refuse_moved(place, full)
    if not colon:
        if not full.startswith((HEADS, TAGS)):
            raise CannotTell(f"{source[:60]!r} is neither a branch nor a tag")
        return full, id
    return _full(target, TAGS if full.startswith(TAGS) else HEADS), id


def _full(ref: str, kind: str) -> str:
    """The full name of a ref. A short name gets `kind` in front."""
    return ref if ref.startswith("refs/") else f"{kind}{ref}"


def _refuse_moved(place: Place, ref: str) -> None:
    """Raise CannotTell if the branch has moved since the push, because its old commit is then unknown."""
    if place.sent_us is None or not ref.startswith(HEADS):
        return
    ended = _git(place, "log", "-g", "-1", "--format=%gd", "--date=unix", "--end-of-options", ref)
    moved = re.search(r"@\{(\d+)\}", ended.stdout)
    if ended.code != 0 or moved is None or int(moved[1]) > place.sent_us // 1_000_000:
        raise CannotTell(f"{ref.removeprefix(HEADS)} has moved since the push")


def _find_push(facts: Facts, place: Place) -> Answer:
    remote, refs = facts["remote"], facts["refs"]
    for id in filter(None, refs.values()):
        if _object(place, f"{word(id)}^{{object}}") is None:
            raise CannotTell(f"the repository in {place.cwd} does not have {_short(id)}")
    there = _remote_refs(place, remote, list(refs))
    seen = [_pushed(ref, id, there.get(ref), facts, place) for ref, id in refs.items()]
    if len({one.happened for one in seen}) == 1:
        return seen[0]._replace(evidence="; ".join(one.evidence for one in seen))
    return unknown(f"only a part of it arrived: {'; '.join(one.evidence for one in seen)}")


def _pushed(ref: str, want: str | None, there: str | None, facts: Facts, place: Place) -> Answer:
    name = f"{facts['remote']}/{ref.removeprefix(HEADS).removeprefix(TAGS)}"
    if want is None:
        return arrived(f"{name} is not there any more") if there is None else absent(f"{name} is still there")
    if there == want:
        return arrived(f"{_short(want)} is on {name}")
    if there is None:
        return absent(f"{name} is not there")
    if _is_ancestor(place, want, there):
        return arrived(f"{_short(want)} is on {name}, which is at {_short(there)} now")
    if there == facts.get("was", {}).get(ref) or _is_ancestor(place, there, want):
        return absent(f"{name} is at {_short(there)}, not at {_short(want)}")
    return unknown(f"{name} is at {_short(there)}, which is neither {_short(want)} nor an ancestor of it")


def _look_push(facts: Facts) -> str:
    return " ".join(("git ls-remote", str(facts["remote"]), *facts.get("refs", {})))


# -- git commit --------------------------------------------------------------------------------------------

_COMMIT_FLAGS = (
    "-a --all -q --quiet -v --verbose -s --signoff -n --no-verify --amend --no-edit --allow-empty -S --gpg-sign "
    "--no-gpg-sign --no-signoff --verify --allow-empty-message"
)
_COMMIT_VALUES = "-m --message -F --file --author --date -C --reuse-message --fixup --squash --trailer --cleanup"


def _parse_commit(args: Sequence[str]) -> Facts | None:
    words = split(args, flags=_COMMIT_FLAGS, values=_COMMIT_VALUES)
    if words is None:
        return None
    subject = (words.value("-m", "--message") or "").strip().partition("\n")[0].strip()
    return {"amend": words.has("--amend"), "subject": subject or None}


def _before_commit(facts: Facts, place: Place) -> Facts:
    if place.sent_us is None:
        return {**facts, "head": _object(place, "HEAD")}
    return {**facts, "since_s": place.sent_us // 1_000_000}


def _find_commit(facts: Facts, place: Place) -> Answer:
    """Compare HEAD with its commit before the call. A hook does not know that commit and reads HEAD's reflog."""
    head = _object(place, "HEAD")
    if "since_s" in facts:
        return _committed_since(facts, place, head)
    before = facts["head"]
    if head == before:
        return absent(f"HEAD is still at {_short(head)}{_lock_left(place)}")
    if head is None:
        return unknown("HEAD has no commit any more")
    made = _on_top(place, before, head, amend=facts["amend"])
    if made is None:
        return unknown(f"HEAD is at {_short(head)}, which is not a commit on top of {_short(before)}")
    return _same_subject(facts, place, made)


def _lock_left(place: Place) -> str:
    """Name the lock of a killed git: git refuses every commit until a person removes it."""
    ended = _git(place, "rev-parse", "--git-path", "index.lock")
    path = os.path.join(place.cwd, ended.stdout.strip())
    return f"; git left a lock: rm {path}" if ended.code == 0 and os.path.exists(path) else ""


def _on_top(place: Place, before: str | None, head: str, *, amend: bool) -> str | None:
    """The first commit on top of `before` in the history of `head`."""
    span = head if before is None or amend else f"{before}..{head}"
    ended = _git(place, "log", "--first-parent", "--format=%H %P", "--reverse" if not amend else "-1", span, "--")
    lines = ended.stdout.splitlines()
    first, _, parents = lines[0].partition(" ") if ended.code == 0 and lines else ("", "", "")
    if amend:
        return first if first and parents == _parents(place, before) else None
    return first if first and (parents.split(" ")[0] or None) == before else None


def _parents(place: Place, id: str | None) -> str:
    return _git(place, "log", "-1", "--format=%P", word(id), "--").stdout.strip() if id else ""


def _same_subject(facts: Facts, place: Place, made: str) -> Answer:
    subject = _git(place, "log", "-1", "--format=%s", made, "--").stdout.strip()
    if facts["subject"] is not None and " ".join(facts["subject"].split()) != " ".join(subject.split()):
        return unknown(f"{_short(made)} was committed, with another message")
    return arrived(f"{_short(made)} is the commit", made)


def _committed_since(facts: Facts, place: Place, head: str | None) -> Answer:
    ended = _git(place, "log", "-g", "-1", "--format=%gd%x00%gs%x00%H", "--date=unix", "HEAD", "--")
    moved = re.match(r"HEAD@\{(\d+)\}\0(commit|commit \(initial\)|commit \(amend\)): [^\0]*\0([0-9a-f]+)", ended.stdout)
    at = re.match(r"HEAD@\{(\d+)\}", ended.stdout)
    if head is None and ended.code != 0:
        return absent("HEAD has no commit")
    if at is not None and int(at[1]) < facts["since_s"]:
        return absent(f"HEAD is still at {_short(head)}")
    if moved is None or facts["subject"] is None or moved[3] != head:
        return unknown(f"HEAD has moved since, to {_short(head)}")
    return _same_subject(facts, place, moved[3])


# -- git tag -----------------------------------------------------------------------------------------------


def _parse_tag(args: Sequence[str]) -> Facts | None:
    words = split(
        args, flags="-a --annotate -s --sign -f --force --no-sign -d --delete", values="-m --message -F --file -u"
    )
    if words is None or not 1 <= len(words.rest) <= 2 or words.has("-d", "--delete"):
        return None
    return {"tag": words.rest[0], "at": (*words.rest[1:], "HEAD")[0], "force": words.has("-f", "--force")}


def _before_tag(facts: Facts, place: Place) -> Facts:
    target = _object(place, f"{facts['at']}^{{commit}}")
    if target is None or (place.sent_us is not None and facts["force"]):
        raise CannotTell(f"the commit of the tag {facts['tag'][:60]!r} is unknown")
    was = None if place.sent_us is not None else _object(place, f"{TAGS}{facts['tag']}^{{commit}}")
    return {"tag": facts["tag"], "target": target, "was": was}


def _find_tag(facts: Facts, place: Place) -> Answer:
    name, target, was = word(facts["tag"]), facts["target"], facts["was"]
    there = _object(place, f"{TAGS}{name}^{{commit}}")
    if there == target:
        return arrived(f"the tag {name} is at {_short(target)}", target)
    if there is None or there == was:
        return absent(f"the tag {name} is {'not there' if there is None else f'still at {_short(there)}'}")
    return unknown(f"the tag {name} is at {_short(there)}, not at {_short(target)}")


# -- effects -----------------------------------------------------------------------------------------------


@step("git.head")
def head(repository: str = ".") -> str:
    """The commit that HEAD names. In a session it is a step: a resumed program gets the same one."""
    found = _object(Place(repository), "HEAD")
    if found is None:
        raise ValueError(f"{repository} has no commit yet")
    return found


def find_push(remote: str, branch: str, commit: str, repository: str = ".") -> bool:
    """Whether the remote's branch has the commit, or one on top of it. Raises if the answer is unknown."""
    facts = {"remote": remote, "refs": {_full(branch, HEADS): _commit_id(commit)}}
    return _settled(_find_push(facts, Place(repository))).happened is True


@effect("git.push", by=("remote", "branch", "commit"), find=find_push, settle="15s")
def push(remote: str, branch: str, commit: str, repository: str = ".", force_with_lease: str | None = None) -> None:
    """Push a commit to a branch of a remote. `force_with_lease` is the commit that the branch may have now."""
    lease = () if force_with_lease is None else (f"--force-with-lease={branch}:{_commit_id(force_with_lease)}",)
    target = f"{_commit_id(commit)}:{_full(word(branch), HEADS)}"
    _done(repository, "push", "--quiet", *lease, "--", word(remote), target)


def find_commit(message: str, parent: str, repository: str = ".") -> str | None:
    """The commit with this message on top of `parent`, in the history of HEAD. Raises if the answer is unknown."""
    facts: Facts = {"amend": False, "subject": message.strip().partition("\n")[0], "head": _commit_id(parent)}
    found: str | None = _settled(_find_commit(facts, Place(repository))).result
    return found


@effect("git.commit", by=("message", "parent"), find=find_commit, settle="1s")
def commit(message: str, parent: str, repository: str = ".", all: bool = True) -> str:
    """Commit all changes of tracked files on top of `parent`, which `git.head()` returns. Returns the commit's id."""
    if _object(Place(repository), "HEAD") != _commit_id(parent):
        raise NotApplied(f"HEAD is not at {parent[:7]}")
    _done(repository, "commit", "--quiet", *(["--all"] if all else []), "-m", message)
    made = find_commit(message, parent, repository)
    assert made is not None
    return made


def find_tag(name: str, commit: str, repository: str = ".") -> str | None:
    """The commit that the tag names; None if there is no such tag. Raises if it names another one."""
    facts = {"tag": name, "target": _commit_id(commit), "was": None}
    found: str | None = _settled(_find_tag(facts, Place(repository))).result
    return found


@effect("git.tag", by=("name", "commit"), find=find_tag, settle="1s")
def tag(name: str, commit: str, repository: str = ".", message: str | None = None) -> str:
    """Tag a commit. Returns the commit's id."""
    words = () if message is None else ("-a", "-m", message)
    _done(repository, "tag", *words, "--", word(name), _commit_id(commit))
    return commit


@tag.compensate
def delete_tag(_: str, name: str, repository: str = ".") -> None:
    _done(repository, "tag", "--delete", "--", word(name))


def _commit_id(text: str) -> str:
    if not _ID.fullmatch(text):
        raise ValueError(f"{str(text)[:60]!r} is not a full commit id: use git.head() or the result of git.commit()")
    return text


def _settled(answer: Answer) -> Answer:
    if answer.happened is None:
        raise CannotTell(answer.evidence)
    return answer


def _done(repository: str, *words: str) -> None:
    ended = _git(Place(repository), *words, within_s=DO_MAX_S)
    if ended.code != 0:
        raise RuntimeError(f"git {words[0]}: {ended.why}")


# -- the entries -------------------------------------------------------------------------------------------


def inside_git(args: Sequence[str]) -> tuple[str | None, list[str]] | None:
    """The directory of `git -C DIR`, and the words after git's own options; None if an option is unknown."""
    left = list(args)
    directory = None
    while left and left[0].startswith("-"):
        option = left.pop(0)
        if option == "-C" and left and directory is None:
            directory = left.pop(0)
        elif option not in ("--no-pager", "-P"):
            return None
    return directory, left


ACTIONS = (
    Action(
        name="git push",
        commands=("git push",),
        tools=("git.push",),
        by="remote, ref and commit",
        compensate="git push --force-with-lease with the commit that was there, or git push --delete",
        cannot="a branch that another program moved to an unrelated commit meanwhile",
        settle="15s",
        settle_why="the server runs its hooks after the client is gone",
        parse=_parse_push,
        before=_before_push,
        find=_find_push,
        looks=_look_push,
    ),
    Action(
        name="git commit",
        commands=("git commit",),
        tools=("git.commit",),
        by="the commit that HEAD was at, and the message",
        compensate="git reset --soft to the commit before, or git revert",
        cannot="whose commit it is, if another program commits the same message; a killed git leaves `index.lock`",
        settle="1s",
        settle_why="only the killed process itself writes the commit",
        parse=_parse_commit,
        before=_before_commit,
        find=_find_commit,
        looks=lambda facts: "git log HEAD",
    ),
    Action(
        name="git tag",
        commands=("git tag",),
        tools=("git.tag",),
        by="the tag's name and commit",
        compensate="git tag --delete",
        cannot="the message of an annotated tag",
        settle="1s",
        settle_why="only the killed process itself writes the tag",
        parse=_parse_tag,
        before=_before_tag,
        find=_find_tag,
        looks=lambda facts: f"git rev-parse {TAGS}{facts['tag']}",
    ),
)
