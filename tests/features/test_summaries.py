"""Summary columns hold no secret of a well-known form, whichever method wrote them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path

import pytest

import standfast
from standfast import serial
from standfast.interchange.hooks.payloads import heard
from standfast.interchange.hooks.record import Hooks
from tests.interfaces.test_cli import run
from tests.walks import RESOURCES, Names, opened

TOKEN = "ghp_" + "A" * 36
PARTED = "ghp_\x1b[0m" + "A" * 20 + "\u200b" + "A" * 16
NAMES = replace(
    Names(), **{one.name: f"{one.default}-{TOKEN}" for one in fields(Names) if one.name not in ("scope", "actor")}
)


def summaries(sf: standfast.Standfast) -> Iterator[str]:
    """Every text in every column called summary, and the previews made of these texts."""
    for table in ("event", "checkpoint", "message", "tool_call"):
        yield from (row["summary"] for row in sf.rows(f"SELECT summary FROM {table} WHERE summary IS NOT NULL"))
    yield from (row["preview"] for row in sf.rows("SELECT preview FROM session WHERE preview IS NOT NULL"))


@pytest.mark.parametrize("resource", RESOURCES)
def test_no_method_writes_a_secret_into_a_summary(engine_url: str, tmp_path: Path, resource: str) -> None:
    """R34: the test calls every method that writes, with a token in every name and text that it passes."""
    with opened(engine_url, tmp_path, NAMES) as sf:
        steps = sum(1 for _ in RESOURCES[resource].walk(sf, NAMES))
        found = list(summaries(sf))
    assert steps
    assert found
    assert [text for text in found if TOKEN in text] == []


def test_the_walks_really_bring_a_secret(engine_url: str, tmp_path: Path) -> None:
    """The control: some of these summaries show that a token was removed."""
    with opened(engine_url, tmp_path, NAMES) as sf:
        for _ in RESOURCES["tasks"].walk(sf, NAMES):
            pass
        for _ in RESOURCES["decisions"].walk(sf, NAMES):
            pass
        assert any("[redacted:github]" in text for text in summaries(sf))


def test_a_checkpoint_and_its_preview_hold_no_secret(engine_url: str, tmp_path: Path) -> None:
    """R34: a checkpoint's summary is redacted and not shortened."""
    with opened(engine_url, tmp_path, Names()) as sf, sf.session("s") as s:
        s.say("user", f"use {TOKEN}")
        assert s.checkpoint(summary=f"{'x ' * 300}{TOKEN}").summary == f"{'x ' * 300}[redacted:github]"
        assert sf.checkpoints.add("s", summary=TOKEN).summary == "[redacted:github]"
        assert not any(TOKEN in text for text in summaries(sf))


@pytest.mark.parametrize("redact", [True, False])
def test_what_a_hook_hears_has_no_secret_in_its_summary(engine_url: str, tmp_path: Path, redact: bool) -> None:
    """R34: also with `redact = false`, which applies to contents only."""
    base = {"session_id": "s1", "cwd": str(tmp_path)}
    call = {"tool_name": "Bash", "tool_use_id": "t1", "tool_input": {"command": f"curl -H {PARTED}"}}
    prompt = {"hook_event_name": "UserPromptSubmit", "prompt": f"use {TOKEN}"}
    with opened(engine_url, tmp_path, Names()) as sf:
        for number, payload in enumerate(({"hook_event_name": "PreToolUse", **call}, prompt)):
            said = heard("claude-code", {**base, **payload}, number, redact=redact)
            assert said is not None
            Hooks(sf._store).keep(said)
        found = list(summaries(sf))
    assert any("[redacted:github]" in text for text in found)
    assert not any(TOKEN in text for text in found)


def test_once_keeps_no_token_of_its_command_in_the_journal(tmp_path: Path) -> None:
    """R34: event.summary once had the token three times."""
    assert run("once", "k", "--", "true", TOKEN, home=tmp_path).returncode == 0
    said = run("sql", "SELECT summary FROM event", "--json", home=tmp_path).stdout
    assert "[redacted:github]" in said
    assert TOKEN not in said


@pytest.mark.parametrize("text", [TOKEN, f"a {TOKEN} b", PARTED, "x" * 190 + f" {TOKEN}", f"{' ' * 5000}{TOKEN}"])
def test_a_secret_is_found_before_the_summary_is_cut(text: str) -> None:
    """R34: a secret is not recognised after it was cut, or with an escape sequence in it."""
    made = serial.summary(text)
    assert "AAAA" not in made
    assert len(made) <= 200


@pytest.mark.parametrize("unit", ["eyJ", "ghp_", "\x1b]", "\x1b[0", "://a:", "-----BEGIN PRIVATE KEY-----"])
def test_only_the_beginning_of_a_long_text_is_read(unit: str) -> None:
    """R34: the work is bounded, because only the first 8,000 characters of a text are read."""
    text = (unit * 4_000_000)[:4_000_000]
    assert serial.summary(text) == serial.summary(text[: serial.SUMMARY_READ_MAX])
