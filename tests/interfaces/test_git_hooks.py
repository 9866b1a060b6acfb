"""`standfast install git-hooks`: git itself stops an agent's push that a gate holds."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

import standfast
from tests.hooks import PATIENT, PROGRAM, bash, enter, environment

AGENT = {"CLAUDECODE": "1", "CLAUDE_CODE_SESSION_ID": "s1"}


class Repository:
    """A clone with a bare origin, and a store whose gates apply in every repository."""

    def __init__(self, home: Path) -> None:
        self.work, self.origin, self.data = home / "shop", home / "origin.git", home / "data"
        self.env = {**environment(self.data), "HOME": str(home), "GIT_CONFIG_NOSYSTEM": "1"}
        for name in ("author", "committer"):
            self.env |= {f"GIT_{name.upper()}_NAME": "Ada", f"GIT_{name.upper()}_EMAIL": "ada@example.org"}
        self.run("git", "init", "-q", "--bare", str(self.origin), cwd=home)
        self.run("git", "clone", "-q", str(self.origin), str(self.work), cwd=home)
        self.commit()

    def run(self, *words: str, cwd: Path | None = None, **more: str) -> subprocess.CompletedProcess[str]:
        env = {**self.env, **more}
        return subprocess.run(words, cwd=cwd or self.work, env=env, capture_output=True, text=True, timeout=120)

    def commit(self) -> None:
        assert self.run("git", "commit", "-q", "--allow-empty", "-m", "more").returncode == 0

    def pushed(self, *words: str, **more: str) -> bool:
        """Run a push or a script with a push. Returns whether it reached the origin."""
        self.commit()
        self.last = self.run(*(words or ("git", "push", "origin", "HEAD:main")), **more)
        there = self.run("git", "rev-parse", "main", cwd=self.origin).stdout
        return there == self.run("git", "rev-parse", "HEAD").stdout

    def install(self, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
        return self.run(PROGRAM, "install", "git-hooks", *words, **more)

    def gate(self, **given: Any) -> None:
        with standfast.open(data_dir=self.data) as sf:
            sf.gates.add("git push*", scope="", **given)

    @property
    def hook(self) -> Path:
        return self.work / ".git" / "hooks" / "pre-push"


@pytest.fixture
def shop(tmp_path: Path) -> Repository:
    return Repository(tmp_path)


def test_a_push_hidden_in_a_script_is_stopped_and_passes_once_after_an_approval(shop: Repository) -> None:
    """002-20: `make release` hides the push from the agent's hooks; git does not."""
    assert shop.install().returncode == 0
    shop.gate(why="main is protected")
    release = shop.work / "release.sh"
    release.write_text("git push origin HEAD:main\n")
    assert not shop.pushed("sh", "release.sh", **AGENT)
    assert "main is protected" in shop.last.stderr
    with standfast.open(data_dir=shop.data) as sf:
        (asked,) = sf.approvals.list(everywhere=True)
        question = sf.approvals.pose(asked.id)
        head = shop.run("git", "rev-parse", "HEAD").stdout.strip()
        assert head in (question.intent or "")
        assert "git push origin HEAD:refs/heads/main" in (question.intent or "")
        assert asked.id[-6:] in shop.last.stderr
        sf.approvals.grant(asked.id, approver="ada")
    again = shop.run("sh", "release.sh", **AGENT)
    assert again.returncode == 0, again.stderr
    with standfast.open(data_dir=shop.data) as sf:
        assert [effect.state for effect in sf.effects.list(tool="git pre-push", everywhere=True)] == ["acknowledged"]
    assert not shop.pushed("sh", "release.sh", **AGENT)  # another commit needs another approval


def test_a_person_pushes_as_always_and_so_does_an_agent_without_a_gate(shop: Repository) -> None:
    shop.install()
    assert shop.pushed(**AGENT)
    shop.gate()
    assert shop.pushed()


@pytest.mark.parametrize("need", ["approval", "ask", "effect"])
def test_a_push_that_the_agents_hook_allowed_needs_no_second_approval(shop: Repository, need: str) -> None:
    """The session has the pending call, whether a grant, the prompt or an effect allowed it."""
    shop.install()
    shop.gate(need=need)
    call = bash("PreToolUse", "git push origin HEAD:main", cwd=shop.work)

    def hook(entrypoint: str = "sdk-cli") -> bytes:
        more = {"program": ("-c", PATIENT), "CLAUDE_CODE_ENTRYPOINT": entrypoint}
        return enter("claude-code", call, shop.data, cwd=shop.work, **more).stdout  # type: ignore[arg-type]

    if need == "ask":
        assert b'"ask"' in hook("cli")
    elif need == "approval":
        assert b"deny" in hook()
        with standfast.open(data_dir=shop.data) as sf:
            sf.approvals.grant(sf.approvals.list(everywhere=True)[0].id, approver="ada")
    else:
        intent = json.dumps({"command": "git push origin HEAD:main"})
        assert shop.run(PROGRAM, "effect", "begin", "push", intent, **AGENT).returncode == 0
    if need != "ask":
        call["tool_use_id"] = "t2"
        assert hook() == b""
    assert shop.pushed(**AGENT), shop.last.stderr
    done = {**call, "hook_event_name": "PostToolUse", "tool_response": {"stdout": "done"}}
    enter("claude-code", done, shop.data, cwd=shop.work, program=("-c", PATIENT))
    if need != "effect":  # there the effect is dispatched until it is done
        assert not shop.pushed(**AGENT)


def test_once_pushes_what_was_approved(shop: Repository) -> None:
    shop.install()
    shop.gate()
    line = (PROGRAM, "once", "push-1", "--", "git", "push", "origin", "HEAD:main")
    assert not shop.pushed(*line, **AGENT)
    with standfast.open(data_dir=shop.data) as sf:
        (asked,) = sf.approvals.list(everywhere=True)
        sf.approvals.grant(asked.id, approver="ada")
    done = shop.run(*line, **AGENT)
    assert done.returncode == 0, done.stderr
    assert shop.run("git", "rev-parse", "main", cwd=shop.origin).stdout == shop.run("git", "rev-parse", "HEAD").stdout


def test_without_a_readable_store_a_gate_still_stops_the_push(shop: Repository) -> None:
    shop.install()
    shop.gate()
    for name in ("standfast.db", "standfast.db-wal", "standfast.db-shm"):
        (shop.data / name).unlink(missing_ok=True)
    (shop.data / "standfast.db").write_bytes(b"this is no database" * 1000)
    assert not shop.pushed(**AGENT)
    assert "cannot read its store" in shop.last.stderr


def test_a_foreign_hook_is_not_changed_and_ours_can_be_removed(shop: Repository) -> None:
    shop.hook.parent.mkdir(exist_ok=True)
    shop.hook.write_text("#!/bin/sh\nexit 0\n")
    refused = shop.install()
    assert refused.returncode == 4
    assert 'hook git-pre-push "$@" || exit 1' in refused.stderr
    assert shop.hook.read_text() == "#!/bin/sh\nexit 0\n"
    assert shop.install("--check").returncode == 1
    assert shop.install("--remove").returncode == 0
    assert shop.hook.exists()
    shop.hook.unlink()
    assert shop.install("--dry-run").returncode == 0
    assert not shop.hook.exists()
    assert shop.install().returncode == 0
    assert shop.install("--check").returncode == 0
    assert shop.install("--remove", **AGENT).returncode == 5
    assert shop.install("--remove").returncode == 0
    assert not shop.hook.exists()
    outside = shop.run(PROGRAM, "install", "git-hooks", cwd=shop.data.parent)
    assert outside.returncode == 2
    assert "no git repository" in outside.stderr


def test_after_an_uninstallation_the_hook_prints_how_to_remove_it(shop: Repository) -> None:
    shop.install()
    shop.hook.write_text(shop.hook.read_text().replace(PROGRAM, "/nowhere/standfast"))
    assert not shop.pushed()
    assert "/nowhere/standfast is missing" in shop.last.stderr
    assert os.path.join(".git", "hooks", "pre-push") in shop.last.stderr
