"""The git actions: each command is recognised, probed before it runs, and probed afterwards. Real git, real remotes."""

from __future__ import annotations

import os
import select
import subprocess
from pathlib import Path

import pytest

import standfast
from standfast.actions import git, table
from standfast.actions.action import Answer, CannotTell, Place
from tests.repositories import AUTHOR, Repository


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Repository:
    for name, value in AUTHOR.items():
        monkeypatch.setenv(name, value)
    return Repository(tmp_path)


def asked_around(shop: Repository, line: str, *, words: tuple[str, ...] = ()) -> tuple[Answer, Answer]:
    """Run the command. Returns the probe's answers before it and after it."""
    argv = [*line.split(), *words]
    known = table.recognised(argv, str(shop.path))
    assert known is not None, line
    facts = known.before()
    before = table.check(facts, Place(str(shop.path)))
    subprocess.run(argv, cwd=shop.path, check=True, capture_output=True)
    return before, table.check(facts, Place(str(shop.path)))


@pytest.mark.parametrize(
    ("line", "seen"),
    [
        ("git push origin main", "is on origin/main"),
        ("git push -u origin HEAD", "is on origin/main"),
        ("git push origin HEAD:refs/heads/fix-42", "is on origin/fix-42"),
        ("git push --force-with-lease origin +main:other", "is on origin/other"),
        ("git push origin v1", "is on origin/v1"),
        ("git push origin tag v1", "is on origin/v1"),
        ("git -C . push origin main v1", "is on origin/main; "),
    ],
)
def test_a_push_is_looked_up_at_the_remote(shop: Repository, line: str, seen: str) -> None:
    """001-34: whether a push happened is read from the remote, not inferred."""
    shop("tag", "-a", "-m", "first", "v1")
    before, after = asked_around(shop, line)
    assert before.happened is False
    assert after.happened is True
    assert seen in after.evidence


def test_a_later_commit_and_a_forced_push_are_recognised_from_the_state_before(shop: Repository) -> None:
    """002-7: if the remote is at the old commit, the push did not arrive, even if it rewrote history."""
    shop("push", "-q", "-u", "origin", "main")
    old = shop("rev-parse", "HEAD")
    new = shop.commit("two")
    before, after = asked_around(shop, "git push")
    assert before == Answer(False, f"origin/main is at {old[:7]}, not at {new[:7]}")
    assert after == Answer(True, f"{new[:7]} is on origin/main")
    shop("commit", "-q", "--amend", "-m", "three")
    before, after = asked_around(shop, "git push --force origin main")
    assert (before.happened, after.happened) == (False, True)
    shop("push", "-q", "origin", "main:other")
    before, after = asked_around(shop, "git push origin --delete other")
    assert (before.happened, after.happened) == (False, True)


def test_a_push_under_a_newer_commit_arrived_and_an_unrelated_one_is_ambiguous(
    shop: Repository, tmp_path: Path
) -> None:
    """002-15: if the probe cannot decide, the outcome is unknown."""
    pushed = shop.commit("two")
    known = table.recognised(["git", "push", "origin", "main"], str(shop.path))
    assert known is not None
    facts = known.before()
    shop("push", "-q", "origin", "main")
    shop.commit("three")
    shop("push", "-q", "origin", "main")
    found = table.check(facts, Place(str(shop.path)))
    assert found.happened is True
    assert f"{pushed[:7]} is on origin/main, which is at" in found.evidence
    other = Repository(tmp_path / "other")
    other.commit("unrelated")
    other("push", "-q", "--force", str(shop.remote), "main")
    assert table.check(facts, Place(str(shop.path))).happened is None


def test_a_commit_and_a_tag_are_looked_up_in_the_repository(shop: Repository) -> None:
    """001-34."""
    shop.write("changed")
    before, after = asked_around(shop, "git commit -q -am", words=("fix the parser",))
    assert (before.happened, after.happened) == (False, True)
    assert after.result == shop("rev-parse", "HEAD")
    before, after = asked_around(shop, "git commit -q --amend -m better")
    assert (before.happened, after.happened) == (False, True)
    before, after = asked_around(shop, "git tag -a -m x v2")
    assert (before.happened, after.happened) == (False, True)
    shop.commit("later")
    before, after = asked_around(shop, "git tag -f v2")
    assert (before.happened, after.happened) == (False, True)


def test_a_commit_of_another_program_is_ambiguous(shop: Repository) -> None:
    """002-15."""
    known = table.recognised(["git", "commit", "-am", "mine"], str(shop.path))
    assert known is not None
    facts = known.before()
    shop.commit("theirs")
    assert table.check(facts, Place(str(shop.path))).happened is None


@pytest.mark.parametrize(
    "line",
    [
        "git push --mirror origin",
        "git push --receive-pack=evil origin main",
        "git push origin refs/heads/*:refs/heads/*",
        "git -c core.sshCommand=evil push origin main",
        "git status",
        "git tag -d v1",
        "git",
        "make push",
    ],
)
def test_a_command_line_that_is_not_understood_has_no_probe(line: str, tmp_path: Path) -> None:
    assert table.recognised(line.split(), str(tmp_path)) is None


@pytest.mark.parametrize("remote", ["--upload-pack=touch {mark}", "ext::touch% {mark}", "-oProxyCommand=touch {mark}"])
def test_a_stored_row_makes_no_probe_run_a_command(shop: Repository, tmp_path: Path, remote: str) -> None:
    """000-42: facts are passed as arguments of fixed commands, and a remote that runs a command is refused."""
    mark = tmp_path / "mark"
    refs = {"refs/heads/main": shop("rev-parse", "HEAD")}
    facts = {"action": "git push", "remote": remote.format(mark=mark), "refs": refs, "was": {}}
    assert table.check(facts, Place(str(shop.path))).happened is None
    assert not mark.exists()


def test_a_repository_that_names_its_own_upload_pack_runs_nothing(shop: Repository, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    shop("config", "remote.origin.uploadpack", f"touch {mark}; git-upload-pack")
    facts = {"action": "git push", "remote": "origin", "refs": {"refs/heads/x": None}, "was": {}}
    assert table.check(facts, Place(str(shop.path))).happened is True
    assert not mark.exists()


@pytest.mark.parametrize(
    "facts",
    [
        {"action": "git push"},
        {"action": "git push", "remote": None, "refs": {"refs/heads/main": 7}},
        {"action": "git push", "remote": "origin", "refs": ["a"]},
        {"action": "git commit", "head": {"a": 1}, "amend": False, "subject": None},
        {"action": "git tag", "tag": "-d", "target": "x", "was": None},
        {"action": "rm -rf"},
        {"action": ["git"]},
        {},
    ],
)
def test_facts_of_any_shape_are_at_most_unknown(shop: Repository, facts: dict[str, object]) -> None:
    assert table.check(facts, Place(str(shop.path))).happened is None


def test_a_remote_that_does_not_answer_in_time_is_unknown(shop: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    """002-15: a probe that runs out of time answers "unknown" and leaves no process behind."""
    held = shop.path / "held"
    os.mkfifo(held)
    reader = os.open(held, os.O_RDONLY | os.O_NONBLOCK)
    slow = shop.path / "slow.sh"
    slow.write_text(f"#!/bin/sh\nexec sleep 600 > {held}\n")
    slow.chmod(0o755)
    monkeypatch.setenv("GIT_SSH_COMMAND", str(slow))
    facts = {"action": "git push", "remote": "ssh://example.invalid/x", "refs": {"refs/heads/main": None}, "was": {}}
    found = table.check(facts, Place(str(shop.path), within_s=2.0))
    assert found == Answer(None, "git did not answer within 2 s")
    assert select.select([reader], [], [], 60)[0], "the program that git started has not ended"
    assert os.read(reader, 1) == b""
    os.close(reader)


def test_effects_of_git_are_called_in_a_session_and_found_after_a_crash(
    sf: standfast.Standfast, shop: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    """001-34, 002-11: a program that died after the push resumes without pushing again."""
    monkeypatch.chdir(shop.path)
    shop.write("fixed")
    with sf.session("fix-42"):
        made = git.commit("fix the parser", parent=git.head())
        git.push("origin", "fix-42", made)
        git.tag("v42", made)
    assert shop.on_remote("refs/heads/fix-42") == made == shop("rev-parse", "v42")
    with sf.session("fix-42") as s:
        assert git.commit("fix the parser", parent=git.head()) == made
        assert [one.tool for one in s.store.effects.list(session="fix-42")] == ["git.tag", "git.push", "git.commit"]


def test_find_functions_return_whether_it_exists_and_raise_if_they_cannot_know(shop: Repository) -> None:
    here = str(shop.path)
    first = shop("rev-parse", "HEAD")
    assert not git.find_push("origin", "main", first, here)
    shop("push", "-q", "origin", "main")
    assert git.find_push("origin", "main", first, here)
    assert git.find_commit("two", first, here) is None
    assert git.find_commit("two", first, here) != shop.commit("two")
    assert git.find_commit("two", first, here) == shop("rev-parse", "HEAD")
    assert git.find_tag("v1", first, here) is None
    with pytest.raises(CannotTell, match="did not answer"):
        git.find_push(str(shop.remote / "nothing"), "main", first, here)
    with pytest.raises(ValueError, match="is not a full commit id"):
        git.find_push("origin", "main", "HEAD", here)


def test_a_lookup_of_git_serves_as_find_of_your_own_effect(sf: standfast.Standfast, shop: Repository) -> None:
    """002-15, 002-20: the push arrived and its answer was lost. The next call finds the push and sends nothing."""
    sent = []

    @standfast.effect("git.ship_of_ours", by=("remote", "branch", "commit"), find=git.find_push)
    def ship(remote: str, branch: str, commit: str, repository: str) -> None:
        sent.append(branch)
        shop("push", "-q", remote, f"{commit}:refs/heads/{branch}")
        raise TimeoutError("the answer is lost")

    commit = shop("rev-parse", "HEAD")
    with sf.session("fix-42"), pytest.raises(TimeoutError):
        ship("origin", "fix-42", commit, repository=str(shop.path))
    with sf.session("fix-42"):
        ship("origin", "fix-42", commit, repository=str(shop.path))
    assert sent == ["fix-42"]
    assert shop.on_remote("refs/heads/fix-42") == commit
    assert not sf.effects.in_doubt()
