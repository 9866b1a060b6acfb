"""Shells complete commands, and ids, keys and names in the store."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.shell_completion import BashComplete

import standfast
from standfast.cli import app
from standfast.ids import short
from tests.interfaces.test_cli import environment

OFFERED = {
    "session show": "fix-42",
    "session open": "fix-42",
    "timeline --session": "fix-42",
    "task done": "TASK",
    "once --task": "TASK",
    "loop show": "nightly",
    "loop pause": "nightly",
    "loop output": "nightly",
    "effect show": "deploy:7",
    "approve": "APPROVAL",
    "deny": "APPROVAL",
    "approval show": "APPROVAL",
    "mail read": "MAIL",
    "state get": "build.count",
    "gate remove": "GATE",
    "decision done": "DECISION",
}


def fill(sf: standfast.Standfast) -> dict[str, str]:
    with sf.session("fix-42"):
        pass
    with sf.session("a key with spaces"):
        pass
    sf.loops.add("nightly", ["true"], every="1h", cwd="/")
    sf.state.set("build.count", 1)
    asked = sf.effects.plan("deploy", {"to": "prod"}, key="deploy:7")
    made = {
        "TASK": sf.tasks.add("flaky test").id,
        "APPROVAL": sf.approvals.request(asked.id, why="release").id,
        "MAIL": sf.mail.send("reviewer", "look").id,
        "GATE": sf.gates.add("git push*").id,
        "EFFECT": sf.effects.plan("deploy", {"to": "test"}).id,
        "DECISION": sf.decisions.record("use postgres", why="it scales", then="migrate").id,
    }
    return {name: short(id) for name, id in made.items()}


@pytest.fixture
def ids(sf: standfast.Standfast, engine_url: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    monkeypatch.setenv("STANDFAST_DB_URL", engine_url)
    return fill(sf)


def offered(line: str, incomplete: str = "") -> list[str]:
    complete = BashComplete(app.build(), {}, app.NAME, app.COMPLETE_VARIABLE)
    return [item.value for item in complete.get_completions(line.split(), incomplete)]


def test_ids_keys_and_names_are_offered(ids: dict[str, str]) -> None:
    """003-40: the shell offers values that the command accepts and that begin with the typed text."""
    missing = {line: offered(line) for line, name in OFFERED.items() if ids.get(name, name) not in offered(line)}
    assert missing == {}
    assert "fix-42" in offered("session show", "fi")
    assert "fix-42" not in offered("session show", "fo")
    keys = offered("effect show")
    assert ids["EFFECT"] in keys
    assert not any(name.startswith("by:") for name in keys)
    assert offered("effect show", ids["EFFECT"][:4]) == [ids["EFFECT"]]
    assert not any(" " in name for name in offered("session show"))  # the shell offers its id instead


def test_new_text_and_choices_are_not_replaced_by_names(ids: dict[str, str]) -> None:
    assert offered("loop add") == []
    assert offered("task add") == []
    assert offered("task list --state", "o") == ["open"]
    assert "done" in offered("task", "do")
    assert offered("", "timel") == ["timeline"]


def test_without_a_store_nothing_is_offered_and_none_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STANDFAST_DATA_DIR", str(tmp_path / "none"))
    assert offered("session show") == []
    assert not (tmp_path / "none").exists()


BASH = """
eval "$(standfast completion bash)"
COMP_WORDS=(standfast session show fi) COMP_CWORD=3
_standfast_completion standfast
echo "${COMPREPLY[@]}"
COMP_WORDS=(standfast sesion show fi)
_standfast_completion standfast
"""
ASKED = {
    "zsh_complete": {"COMP_WORDS": "standfast session show fi", "COMP_CWORD": "3"},
    "fish_complete": {"COMP_WORDS": "standfast session show fi", "COMP_CWORD": "fi"},
}


@pytest.fixture
def store(tmp_path: Path) -> dict[str, str]:
    with standfast.open(tmp_path / "data" / "standfast.db") as sf, sf.session("fix-42"):
        pass
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "standfast").write_text(f'#!/bin/sh\nexec {sys.executable} -m standfast "$@"\n')
    (programs / "standfast").chmod(0o755)
    return {
        **environment(tmp_path, STANDFAST_DATA_DIR=str(tmp_path / "data")),
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
    }


def test_a_real_bash_completes_a_key(store: dict[str, str]) -> None:
    bash = shutil.which("bash")
    assert bash is not None
    done = subprocess.run([bash, "-c", BASH], env=store, capture_output=True, text=True)
    assert (done.stdout.split(), done.stderr) == (["fix-42"], "")


@pytest.mark.parametrize("shell", ASKED)
def test_zsh_and_fish_are_answered_in_their_form(store: dict[str, str], shell: str) -> None:
    """Their scripts run this command with these variables."""
    env = {**store, **ASKED[shell], app.COMPLETE_VARIABLE: shell}
    done = subprocess.run(["standfast"], env=env, capture_output=True, text=True)
    assert "fix-42" in done.stdout
    assert done.stderr == ""
