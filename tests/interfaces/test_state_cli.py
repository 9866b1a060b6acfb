"""State in a shell, and `state check`, the only command that runs a stored command of a state value."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import standfast
from standfast import config, handle
from standfast.record.state import values
from standfast.record.state.models import Place
from standfast.record.state.values import Wish
from tests.interfaces.test_cli import run

SOURCE = Path(standfast.__file__).parent


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


def said(*words: str, home: Path, input: str | None = None, **variables: str) -> Any:
    """The `data` of a command that must succeed."""
    done = run("--json", *words, home=home, cwd=None, input=input, **variables)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["data"]


def outside(home: Path) -> standfast.Standfast:
    """The store that the commands use outside any repository, opened as the person who types them."""
    return handle.connect(config.load(data_dir=home / ".standfast", outside=True, actor=f"ada@{os.uname().nodename}"))


def code(done: subprocess.CompletedProcess[str]) -> tuple[int, str]:
    return done.returncode, json.loads(done.stderr)["error"]["code"]


def test_a_value_is_set_read_swapped_and_deleted_in_a_shell(home: Path, tmp_path: Path) -> None:
    """001-68: key, value and version. A write over an old version is refused with the current one."""
    assert run("state", "get", "n", home=home).returncode == 3
    assert not (home / ".standfast").exists()
    made = said("state", "set", "n", '{"a": [1, true]}', "--for", "1h", home=home)
    assert (made["value"], made["version"]) == ({"a": [1, True]}, 1)
    assert made["expires_us"] - made["updated_us"] == 3_600_000_000
    assert run("state", "get", "n", home=home).stdout == '{"a":[1,true]}\n'
    assert said("state", "swap", "n", "-", "--version", "1", home=home, input="two lines\nof text\n")["version"] == 2
    assert said("state", "get", "n", home=home)["value"] == "two lines\nof text"
    assert code(run("state", "swap", "n", "3", "--version", "1", "--json", home=home)) == (4, "version_conflict")
    (tmp_path / "value").write_text("3\n")
    assert said("state", "set", "n", "--file", str(tmp_path / "value"), "--as", "text", home=home)["value"] == "3"
    assert said("state", "set", "n", "--as=json", "--", "-3", home=home)["value"] == -3
    assert said("state", "set", "other", "x", "--namespace", "ns", home=home)["namespace"] == "ns"
    assert [one["key"] for one in said("state", "list", home=home)] == ["n"]
    assert said("state", "namespaces", home=home) == [{"name": "", "values": 1}, {"name": "ns", "values": 1}]
    assert said("state", "delete", "n", home=home)["version"] == 5
    assert code(run("state", "delete", "n", "--json", home=home)) == (3, "not_found")


BAD = {
    "no value": (["set", "n"], "give VALUE"),
    "two values": (["set", "n", "1", "--file", "x"], "give VALUE"),
    "half an object": (["set", "n", '{"a": 1'], "line 1 column 8"),
    "not JSON": (["set", "n", "abc", "--as", "json"], "line 1 column 1"),
    "a key twice": (["set", "n", '{"a": 1, "a": 2}'], "a"),
    "no file": (["set", "n", "--file", "/nonexistent"], "cannot be read"),
    "no schema": (["set", "n", "1", "--schema", "/nonexistent"], "cannot be read"),
    "both": (["set", "n", "1", "--verify", "true", "--no-verify"], "contradict"),
    "no duration": (["set", "n", "1", "--for", "soon"], "soon"),
    "no version": (["swap", "n", "1"], "--version"),
    "a negative version": (["swap", "n", "1", "--version", "-1"], "-1"),
    "an empty key": (["set", "", "1"], "a state's key is empty"),
    "an empty command": (["set", "n", "1", "--verify", " "], "verify is a command"),
}


@pytest.mark.parametrize("what", BAD)
def test_invalid_values_are_refused_by_name(home: Path, what: str) -> None:
    words, wanted = BAD[what]
    done = run("state", *words, home=home)
    assert (done.returncode, done.stdout) == (2, "")
    assert wanted in done.stderr


def test_bytes_that_are_no_text_are_refused(home: Path, tmp_path: Path) -> None:
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    done = run("state", "set", "n", "--file", str(tmp_path / "bytes"), home=home)
    assert (done.returncode, "is not UTF-8 at byte 0" in done.stderr) == (2, True)


# -- verify ----------------------------------------------------------------------------------------------


COMMANDS = {
    "test -n fresh": ("fresh", "exit 0"),
    "echo gone >&2; exit 1": ("stale", "exit 1: gone"),
    "exit 128": ("stale", "exit 128"),
    "no-such-command-here": ("unknown", "exit 127"),
    "kill -9 $$": ("unknown", "signal 9"),
    "exec sleep 60": ("unknown", "no answer in 0.5 s"),
    'test "$STANDFAST_STATE_VALUE" = main && test "$(cat)" = \'"main"\'': ("fresh", "exit 0"),
    "yes | head -c 3000000; exit 4": ("stale", "exit 4: y y"),
    "sleep 60 & echo left behind": ("fresh", "exit 0: left behind"),
}


def test_verify_stores_the_answer_of_the_command_within_limits(home: Path) -> None:
    """001-63, 001-65: verify, don't infer; a command that fails to answer proves nothing."""
    with outside(home) as sf:
        for number, command in enumerate(COMMANDS):
            sf.state.set(f"k{number}", "main", verify=command)
    began = time.monotonic()
    done = run("state", "check", "--timeout", "500ms", "--json", home=home)
    assert done.returncode == 1
    assert time.monotonic() - began < 30
    found = json.loads(done.stdout)["data"]
    for one, (verdict, evidence) in zip(found, COMMANDS.values(), strict=True):
        assert (one["verdict"], one["evidence"][: len(evidence)]) == (verdict, evidence)
        assert len(one["evidence"]) <= 500
        assert one["verified_us"] is not None
    assert run("state", "check", "k0", home=home).returncode == 0
    shown = run("state", "get", "k1", home=home)
    assert (shown.stdout, shown.stderr) == ("main\n", "standfast: stale: exit 1: gone\n")


def test_nothing_is_run_by_a_dry_run_for_an_agent_or_for_an_imported_value(home: Path, tmp_path: Path) -> None:
    """RULES: never by an agent's tools, never for imported rows."""
    proof = tmp_path / "proof"
    with outside(home) as sf:
        sf.state.set("own", 1, verify=f"touch {proof}")
        place, wish = Place(sf._store.caller.keyspace, ""), Wish(verify=f"touch {proof}", imported=True)
        sf._store.write(lambda tx: values.put(tx, place, "foreign", 1, wish))
        sf.state.set("foreign", 2)
    assert len(said("state", "check", "--dry-run", home=home)) == 2
    assert code(run("state", "check", "--json", home=home, CLAUDECODE="1")) == (5, "agent_present")
    done = run("state", "check", "foreign", "--json", home=home)
    assert (done.returncode, json.loads(done.stdout)["data"][0]["verdict"]) == (1, None)
    assert "imported" in json.loads(done.stdout)["data"][0]["evidence"]
    for words in (["state", "list"], ["state", "get", "own"], ["status"], ["timeline"], ["doctor"]):
        run(*words, home=home)
    assert not proof.exists()
    assert run("state", "check", "own", home=home).returncode == 0
    assert proof.exists()


def test_a_value_that_changes_while_it_is_verified_gets_no_verdict(home: Path) -> None:
    with outside(home) as sf:
        sf.state.set("k", 1, verify='"$STANDFAST_PYTHON" -m standfast state set k 2')
        sf.state.set("after", 1, verify="true")
        done = run("state", "check", "k", "after", "--json", home=home, STANDFAST_PYTHON=sys.executable)
        first, second = json.loads(done.stdout)["data"]
        assert (done.returncode, first["verdict"], second["verdict"]) == (1, None, "fresh")
        assert "changed while its command ran" in first["evidence"]
        assert (sf.state.get("k").value, sf.state.get("k").verdict) == (2, None)


def test_only_state_check_can_run_a_stored_command() -> None:
    """Only the command imports the module that runs it; the library has no such method."""
    guilty = []
    for path in SOURCE.rglob("*.py"):
        text = path.read_text()
        if "state_check" in text and path.name not in ("state.py", "state_check.py"):
            guilty.append(path.name)
    assert guilty == []
    for path in (SOURCE / "record" / "state").glob("*.py"):
        names = {node.names[0].name for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Import)}
        assert not names & {"subprocess", "os"}
