"""The brief: the working set of a starting agent, within its tokens, each line traced to an id."""

from __future__ import annotations

import difflib
import json
from pathlib import Path

import pytest

import standfast
from standfast.clock import ManualClock
from standfast.ids import is_id
from standfast.views.brief import Brief
from tests.interfaces.test_cli import run


def store(engine_url: str, tmp_path: Path, clock: ManualClock) -> standfast.Standfast:
    return standfast.open(engine_url, data_dir=tmp_path / "data", agent="coder", clock=clock)


def filled(sf: standfast.Standfast, clock: ManualClock) -> None:
    sf.decisions.record("never force-push", why="it lost work", standing=True)
    sf.decisions.record("edit the parser", why="the test names it", then="patch")
    done = sf.decisions.record("take SQLite")
    sf.decisions.done(done.id, "it is fast enough")
    sf.tasks.add("flaky test", priority=1)
    sf.tasks.claim(sf.tasks.add("half done"))
    sf.tasks.add("for the reviewer", assignee="reviewer")
    sf.mail.send("coder", {"please": "look\x1b[2J at this"}, sender="reviewer")
    sf.state.set("branch", "main")
    sf.state.set("head", "abc", verify="touch /tmp/never-run-by-a-brief")
    with sf.session("deploy") as s:
        s.say("user", "move the files")
        s.checkpoint(summary="half of the files are moved")
        with pytest.raises(RuntimeError, match="the line is dead"):
            s.effect("deploy.run", {"to": "production"}, do=_dies)
    clock.advance("3h")


def _dies(call: standfast.Call) -> None:
    raise RuntimeError("the line is dead")


def names(made: Brief) -> list[str]:
    return [section.name for section in made.sections]


def test_a_starting_agent_reads_the_most_important_first(engine_url: str, tmp_path: Path) -> None:
    """001-12, 001-14, 001-16: standing orders, then effects in doubt, open items, its own work, state, decisions."""
    clock = ManualClock()
    with store(engine_url, tmp_path, clock) as sf:
        filled(sf, clock)
        made = sf.brief()
        assert names(made) == [
            "orders",
            "in_doubt",
            "decisions",
            "sessions",
            "mail",
            "tasks",
            "checkpoint",
            "facts",
            "recent",
        ]
        text = made.markdown
    said = {section.name: [fact.text for fact in section.facts] for section in made.sections}
    assert said["orders"] == ['"never force-push" (because "it lost work")']
    assert "was sent, and its outcome is unknown" in said["in_doubt"][0]
    assert said["tasks"] == ['yours: "half done" (p2)', '"flaky test" (p1)']
    assert said["recent"] == ['"take SQLite" → "it is fast enough" (done)']
    assert "3h)" in text
    assert "\x1b" not in text


def test_everything_in_it_can_be_traced_to_an_id(engine_url: str, tmp_path: Path) -> None:
    clock = ManualClock()
    with store(engine_url, tmp_path, clock) as sf:
        filled(sf, clock)
        facts = [fact for section in sf.brief().sections for fact in section.facts]
        assert all(is_id(fact.id) or fact.id.startswith(("state:", "box:", "lock:")) for fact in facts)
        assert all(fact.id[-6:] in sf.brief().markdown for fact in facts)


def test_the_same_store_at_the_same_moment_gives_the_same_brief(engine_url: str, tmp_path: Path) -> None:
    """001-13: the brief is plain text, and one change in the store changes one line."""
    clock = ManualClock()
    with store(engine_url, tmp_path, clock) as sf:
        filled(sf, clock)
        assert sf.brief() == sf.brief()
        before = list(sf.rows("SELECT count(*) AS n FROM event"))
        sf.brief(agent="reviewer")
        assert list(sf.rows("SELECT count(*) AS n FROM event")) == before

        was = sf.brief().markdown.splitlines()
        sf.tasks.add("a new one", priority=3)
        (changed,) = [line for line in difflib.ndiff(was, sf.brief().markdown.splitlines()) if line[0] in "+-"]
        assert changed.startswith('+ - "a new one" (p3) by coder (unknown)')


def test_the_brief_stays_within_its_tokens_and_counts_what_it_omits(engine_url: str, tmp_path: Path) -> None:
    clock = ManualClock()
    with store(engine_url, tmp_path, clock) as sf:
        filled(sf, clock)
        for n in range(60):
            sf.tasks.add(f"task number {'x' * n} {n}")
        for tokens in (100, 150, 200, 400, 800, 1500, 10_000):
            made = sf.brief(max_tokens=tokens)
            assert len(made.markdown) <= tokens * 4
            assert made.tokens <= tokens
            assert made.sections[0].name == "orders"
        assert "more: `standfast task list`" in sf.brief(max_tokens=800).markdown
        with pytest.raises(standfast.InvalidInput, match="at least 100"):
            sf.brief(max_tokens=99)


def test_a_fact_that_was_not_checked_lately_is_marked_and_nothing_is_run(engine_url: str, tmp_path: Path) -> None:
    """001-3, 001-63, 001-65: stale references are marked; only a person runs `verify`."""
    mark = tmp_path / "ran"
    clock = ManualClock()
    with store(engine_url, tmp_path, clock) as sf:
        sf.state.set("head", "abc", verify=f"touch {mark}")
        sf.state.set("plain", 1)
        assert [(fact.id, fact.stale) for fact in sf.brief().sections[0].facts] == [
            ("state:head", True),
            ("state:plain", False),
        ]
        assert 'STALE head = "abc" (never checked)' in sf.brief().markdown
    assert not mark.exists()


def test_another_agent_reads_its_own_brief(engine_url: str, tmp_path: Path) -> None:
    clock = ManualClock()
    with store(engine_url, tmp_path, clock) as sf:
        filled(sf, clock)
        said = {section.name: [fact.text for fact in section.facts] for section in sf.brief(agent="reviewer").sections}
    assert "mail" not in said
    assert said["tasks"] == ['yours: "for the reviewer" (p2)', '"flaky test" (p1)']


def test_the_command_prints_markdown_or_json_and_makes_no_store(tmp_path: Path) -> None:
    first = run("brief", home=tmp_path)
    assert (first.returncode, first.stdout) == (0, "Nothing is recorded here yet.\n")
    assert not (tmp_path / ".standfast" / "standfast.db").exists()
    assert run("task", "add", "flaky test", home=tmp_path).returncode == 0
    assert '## Tasks\n- "flaky test" (p2)' in run("brief", home=tmp_path).stdout
    data = json.loads(run("brief", "--json", home=tmp_path).stdout)["data"]
    assert data["sections"][0]["facts"][0]["id"].startswith("tsk_")
    assert run("brief", "--max-tokens", "0", home=tmp_path).returncode == 2
    assert run("brief", "--max-tokens", "5", home=tmp_path).returncode == 2


def test_an_agent_is_offered_only_what_it_may_run(sf: standfast.Standfast, tmp_path: Path) -> None:
    """RULES §9: no command of the brief answers an approval, resolves an effect or runs a stored check."""
    import re
    import subprocess
    import sys

    from tests.hooks import environment

    sf.effects.begin("mail.send", {"to": "ada"}, key="doubt", for_=0.000001)
    planned = sf.effects.plan("deploy", {"to": "prod"}, key="deploy", approve=True)
    asked = sf.approvals.request(planned.id)
    sf.state.set("branch", "main", verify="git rev-parse HEAD")
    text = sf.brief().markdown
    commands = re.findall(r"`standfast ([^`]+)`", text)
    assert f"approval wait {asked.id[-6:]}" in commands
    refused = ("approve", "deny", "effect resolve", "state check", "state verify", "gate remove")
    assert [line for line in commands if line.startswith(refused)] == []
    env = {**environment(tmp_path / "data"), "STANDFAST_DB_URL": sf.settings.target.shown, "CLAUDECODE": "1"}
    shown = [line for line in commands if line.split()[1:2] in (["show"], ["list"])]
    for line in shown:
        ran = subprocess.run(
            [sys.executable, "-m", "standfast", *line.split()], env=env, cwd=tmp_path, capture_output=True
        )
        assert ran.returncode == 0, (line, ran.stderr)
