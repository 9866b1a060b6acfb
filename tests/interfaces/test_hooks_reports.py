"""Hooks that only report go to the spool and open no store (RULES §17), on both engines."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import standfast
from standfast.interchange.hooks import spool
from tests.hooks import PATIENT, PROGRAM, bash, enter, environment, heard, payload

KEY = "claude-code:s1"
AGO_US = 61_000_000


class Agent:
    """A started agent. Each of its hooks runs in a new process."""

    def __init__(self, url: str, tmp_path: Path) -> None:
        self.url, self.data, self.cwd = url, tmp_path / "data", tmp_path
        standfast.open(url, data_dir=self.data).close()
        self.tell(payload("SessionStart", source="startup", cwd=tmp_path))

    def tell(self, given: dict[str, Any], **more: str) -> str:
        """Run a hook and return its output."""
        more["STANDFAST_DB_URL"] = self.url
        ran = enter("claude-code", {**given, "cwd": str(self.cwd)}, self.data, program=("-c", PATIENT), **more)
        assert (ran.returncode, ran.stderr) == ((-9 if "STANDFAST_CRASH_AT" in more else 0), b"")
        return ran.stdout.decode()

    def call(self, id: str, command: str = "ls", **more: str) -> str:
        return self.tell(bash("PreToolUse", command, id=id), **more)

    def answer(self, id: str, **more: str) -> str:
        return self.tell(bash("PostToolUse", "ls", id=id, tool_response={"stdout": "a"}), **more)

    def spooled(self) -> list[str]:
        """The kinds of the records in the spool."""
        path = self.data / "spool" / "open.ndjson"
        lines = path.read_text().splitlines() if path.exists() else []
        return [json.loads(line.partition(" ")[2])["kind"] for line in lines if line]

    def stored(self) -> list[str]:
        """The rows of this session in the store."""
        with standfast.open(self.url, data_dir=self.data) as sf:
            session = sf.sessions.get(KEY).id
            rows = sf.rows("SELECT type FROM event WHERE session_id = :id ORDER BY seq", {"id": session})
            return [row["type"] for row in rows if row["type"].partition(".")[0] not in ("session", "gate")]

    def session(self) -> dict[str, Any]:
        with standfast.open(self.url, data_dir=self.data) as sf:
            return sf.sessions.get(KEY).as_dict()

    @property
    def attention(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.data / "attention.json").read_text())["agents"]
        return found

    def age(self) -> None:
        """Make the entry of this session older than 60 s."""
        agents = self.attention
        agents[KEY]["at_us"] -= AGO_US
        (self.data / "attention.json").write_text(json.dumps({"schema_version": 1, "agents": agents}))


@pytest.fixture
def agent(engine_url: str, tmp_path: Path) -> Agent:
    return Agent(engine_url, tmp_path)


def test_a_call_and_its_answer_are_spooled(agent: Agent) -> None:
    """RULES §17: a hook spools only `call` and `answer` records; nothing is printed."""
    assert (agent.call("t1"), agent.answer("t1")) == ("", "")
    assert agent.spooled() == ["call", "answer"]
    assert agent.stored() == ["agent.started"]


def test_a_spooled_record_loads_no_engine(agent: Agent) -> None:
    """RULES §17: a hook that only reports opens no store, so it imports none."""
    given = json.dumps({**bash("PreToolUse", "ls"), "cwd": str(agent.cwd)}).encode()
    ran = subprocess.run(
        [sys.executable, "-X", "importtime", "-c", PATIENT, "claude-code"],
        input=given,
        capture_output=True,
        env=environment(agent.data, STANDFAST_DB_URL=agent.url),
    )
    assert agent.spooled() == ["call"]
    imported = {line.rpartition(b"|")[2].strip().decode() for line in ran.stderr.splitlines()}
    assert "standfast.interchange.hooks.attention" in imported
    assert imported & {"apsw", "psycopg", "standfast.handle", "standfast.db.store", "click"} == set()


@pytest.mark.parametrize("event", ["SessionStart", "UserPromptSubmit", "PreToolUse", "Stop", "SessionEnd"])
def test_a_hook_that_opens_the_store_imports_nothing_heavy(tmp_path: Path, event: str) -> None:
    """RULES §10: `dataclasses` alone costs 10 ms of CPU, because it imports `inspect`."""
    ran = subprocess.run(
        [sys.executable, "-X", "importtime", "-c", PATIENT, "claude-code"],
        input=json.dumps({**bash(event, "ls"), "cwd": str(tmp_path), "prompt": "go on"}).encode(),
        capture_output=True,
        env=environment(tmp_path),
    )
    imported = {line.rpartition(b"|")[2].strip().decode() for line in ran.stderr.splitlines()}
    assert "apsw" in imported
    assert imported & {"click", "dataclasses", "difflib", "hashlib", "inspect", "psycopg", "subprocess"} == set()


@pytest.mark.parametrize(
    ("given", "type"),
    [
        (payload("SessionStart", source="resume"), "agent.started"),
        (payload("UserPromptSubmit", prompt="go on"), "prompt.submitted"),
        (payload("Stop"), "turn.ended"),
        (payload("SessionEnd", reason="exit"), "agent.ended"),
        (payload("PreCompact", trigger="auto"), "compaction.started"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_all_other_events_open_the_store_and_drain(agent: Agent, given: dict[str, Any], type: str) -> None:
    """RULES §17: start, prompt, stop, end and compaction always open the store."""
    agent.call("t1")
    agent.tell(given)
    assert agent.spooled() == []
    assert sorted(agent.stored()) == sorted(["agent.started", "tool.called", type])


def test_files_older_than_60_s_make_a_hook_open_the_store_drain_and_renew(agent: Agent) -> None:
    """RULES §17: the hook opens the store, drains the spool, renews leases and refreshes both files."""
    agent.tell(payload("UserPromptSubmit", prompt="go on"))
    agent.call("t1")
    before, refreshed_us = agent.session(), agent.attention[KEY]["at_us"]
    agent.age()
    agent.answer("t1")
    after = agent.session()
    assert agent.spooled() == []
    assert sorted(agent.stored()) == ["agent.started", "prompt.submitted", "tool.answered", "tool.called"]
    assert after["lease_until_us"] > before["lease_until_us"]
    assert agent.attention[KEY]["at_us"] > refreshed_us
    agent.call("t2")
    assert agent.spooled() == ["call"]


def test_an_entry_of_the_future_counts_as_old(agent: Agent) -> None:
    """RULES §17: after the clock was set back, the age of the files is unknown."""
    agents = agent.attention
    agents[KEY]["at_us"] += 3600 * 1_000_000
    (agent.data / "attention.json").write_text(json.dumps({"schema_version": 1, "agents": agents}))
    agent.call("t1")
    assert agent.stored() == ["agent.started", "tool.called"]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"agents": {"claude-code:s1": {}}}', '{"agents": 7}'])
def test_a_damaged_file_makes_the_hook_open_the_store(agent: Agent, text: str) -> None:
    """RULES §17: the hook opens the store and writes the file again."""
    (agent.data / "attention.json").write_text(text)
    agent.call("t1")
    assert agent.stored() == ["agent.started", "tool.called"]
    assert agent.attention[KEY]["waits"] == []


def test_a_gate_of_this_host_holds_the_next_call(agent: Agent) -> None:
    """RULES §17: `gates.json` has something for this agent, so the hook opens the store and judges."""
    agent.call("t1")
    with standfast.open(agent.url, data_dir=agent.data) as sf:
        gate = sf.gates.add("git push*", scope="")
    assert "standfast approve" in agent.call("t2", "git push origin main")
    assert agent.attention[KEY]["waits"] == ["gates"]
    assert agent.spooled() == []
    with standfast.open(agent.url, data_dir=agent.data) as sf:
        sf.gates.remove(gate.id, scope="")
    assert agent.call("t3", "git push origin main") == ""
    assert agent.stored().count("tool.called") == 3
    agent.answer("t3")
    assert agent.spooled() == ["answer"]


def test_a_gate_of_another_host_holds_within_60_s(agent: Agent, tmp_path: Path) -> None:
    """RULES §17, Delay: a gate from another host, here another data directory, takes effect within 60 s."""
    with standfast.open(agent.url, data_dir=tmp_path / "another host") as sf:
        sf.gates.add("git push*", scope="")
    assert agent.call("t1", "git push origin main") == ""
    agent.age()
    assert "standfast approve" in agent.call("t2", "git push origin main")
    assert (agent.data / "gates.json").exists()


def test_a_hook_in_another_repository_opens_the_store(agent: Agent, tmp_path: Path) -> None:
    """RULES §17: the files describe one repository only."""
    other = tmp_path / "other"
    (other / ".git" / "objects").mkdir(parents=True)
    (other / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    with contextlib.chdir(other), standfast.open(agent.url, data_dir=tmp_path / "another host") as sf:
        sf.gates.add("git push*")
    assert agent.call("t1", "git push origin main") == ""
    assert agent.spooled() == ["call"]
    agent.cwd = other
    assert "standfast approve" in agent.call("t2", "git push origin main")


def test_mail_for_the_agent_makes_its_hooks_open_the_store(agent: Agent) -> None:
    """RULES §17: `attention.json` lists the mail that waits for this agent, until a hook has announced it."""
    for box in (KEY, f"session:{KEY}"):
        with standfast.open(agent.url, data_dir=agent.data) as sf:
            sf.mail.send(box, "please stop")
        agent.tell(payload("PreCompact"))
        assert agent.attention[KEY]["waits"] == ["mail"]
        agent.call(box)
        agent.answer(box)
        assert agent.spooled() == []
        assert agent.attention[KEY]["waits"] == []
    agent.call("again")
    assert agent.spooled() == ["call"]


def test_the_entry_of_one_session_serves_no_other(agent: Agent) -> None:
    """RULES §17: each agent's own hooks renew its leases, so each has its own 60 s."""
    agent.tell(bash("PreToolUse", "ls", session="s2"))
    assert agent.spooled() == []
    assert set(agent.attention) == {KEY, "claude-code:s2"}


def test_after_a_stop_the_next_call_opens_the_session_again(agent: Agent) -> None:
    """A spooled record opens no session, so a call after the end of a turn is not spooled."""
    agent.tell(payload("Stop"))
    assert agent.session()["state"] == "completed"
    agent.call("t1")
    assert agent.session()["state"] == "active"


def test_a_spool_over_8_mb_is_drained_by_the_next_hook(agent: Agent) -> None:
    """RULES §17, Size."""
    large = heard(bash("PostToolUse", "ls", tool_response="a")).replace(output="x" * 900_000)
    for n in range(10):
        one = large.replace(call_id=f"large{n}", at_us=n + 1)
        assert spool.append([str(agent.data / "spool")], str(agent.data), KEY, "", one)
    agent.call("t1")
    assert agent.stored().count("tool.called") == 1
    assert agent.stored().count("tool.answered") > 0


def test_a_command_that_a_person_types_drains(agent: Agent) -> None:
    """RULES §17, Size: a person's command drains the spool first, so its output includes spooled records."""
    agent.call("t1")
    shown = subprocess.run(
        [PROGRAM, "timeline", "--all"],
        env=environment(agent.data, STANDFAST_DB_URL=agent.url),
        cwd=agent.cwd,
        capture_output=True,
        check=True,
    )
    assert agent.spooled() == []
    assert b"tool.called" in shown.stdout or b"Bash" in shown.stdout
    assert agent.stored().count("tool.called") == 1


@pytest.mark.parametrize("point", ["spool.before_keep", "spool.after_keep", "spool.before_remove"])
def test_killed_between_spooling_and_draining_nothing_is_lost_or_doubled(agent: Agent, point: str) -> None:
    """RULES §17: the hook that spooled is killed after its write, and the next one while it drains."""
    agent.call("t1", STANDFAST_CRASH_AT="spool.after_append")
    agent.answer("t1")
    assert agent.spooled() == ["call", "answer"]
    agent.tell(payload("UserPromptSubmit", prompt="go on"), STANDFAST_CRASH_AT=point)
    assert list((agent.data / "spool").iterdir()) != []
    agent.tell(payload("Stop"))
    assert list((agent.data / "spool").iterdir()) == []
    found = agent.stored()
    assert [found.count(type) for type in ("tool.called", "tool.answered", "prompt.submitted")] == [1, 1, 1]
    with standfast.open(agent.url, data_dir=agent.data) as sf:
        (call,) = sf.rows("SELECT status FROM tool_call WHERE call_id = 't1'")
    assert call["status"] == "ok"


def test_a_spool_that_takes_nothing_makes_the_hook_open_the_store(agent: Agent) -> None:
    """RULES §17: a record that cannot be spooled is written to the store."""
    (agent.data / "spool").write_text("a file is in the way")
    agent.cwd = Path("/proc")
    agent.call("t1", TMPDIR="/dev/null/nowhere")
    assert agent.stored() == ["agent.started", "tool.called"]


def test_a_payload_may_be_the_last_argument(tmp_path: Path) -> None:
    """Some agents start their notify program with the payload as an argument and nothing on stdin."""
    data = tmp_path / "data"
    given = json.dumps(bash("PreToolUse", "ls", cwd=str(tmp_path)))
    command = [sys.executable, "-c", PATIENT, "claude-code", given]
    ran = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, env=environment(data), timeout=60)
    assert (ran.returncode, ran.stderr) == (0, b"")
    with standfast.open(data / "standfast.db", data_dir=data) as sf:
        assert [one.key for one in sf.sessions.list(everywhere=True)] == [KEY]
