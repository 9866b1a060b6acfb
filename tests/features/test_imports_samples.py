"""Real transcripts from each version of the formats are imported with exactly the counts that a person counted.

The samples are in a folder beside this checkout and are never copied into it. Without the folder, the tests are
skipped.
"""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

import standfast
from standfast.interchange.imports import Imported, Report
from standfast.ledger.gate_patterns import met
from tests.features.test_gates_ordinary import GATES

SAMPLES = Path(__file__).resolve().parents[3] / "shared" / "data" / "transcripts"
EXPECTED: dict[str, dict[str, Any]] = (
    json.loads((SAMPLES / "EXPECTED.json").read_text()) if (SAMPLES / "EXPECTED.json").exists() else {}
)
pytestmark = pytest.mark.skipif(not EXPECTED, reason=f"NO SAMPLES at {SAMPLES}: no real transcript was imported")

COUNTED = ("lines", "records", "bad", "multi_object_lines", "types", "compactions", "sidechain", "error_results")
LISTED = ("versions", "sessions", "agent_ids")
TALLIED = ("tool_calls", "tool_results", "unanswered_calls", "orphan_results")
TALLY = """
SELECT (SELECT COUNT(*) FROM tool_call WHERE import_seq = :seq AND called_us IS NOT NULL) AS tool_calls,
       (SELECT COUNT(*) FROM tool_call WHERE import_seq = :seq AND answered_us IS NOT NULL) AS tool_results,
       (SELECT COUNT(*) FROM tool_call
        WHERE import_seq = :seq AND called_us IS NOT NULL AND answered_us IS NULL) AS unanswered_calls,
       (SELECT COUNT(*) FROM tool_call WHERE import_seq = :seq AND called_us IS NULL) AS orphan_results,
       count(*) AS api_responses, COALESCE(SUM(input_tokens), 0) AS input_tokens,
       COALESCE(SUM(cached_input_tokens), 0) AS cached_input_tokens,
       COALESCE(SUM(cache_write_tokens), 0) AS cache_write_tokens,
       COALESCE(SUM(output_tokens), 0) AS output_tokens, COALESCE(SUM(reasoning_tokens), 0) AS reasoning_tokens
FROM usage WHERE import_seq = :seq
"""


def of(agent: str) -> dict[str, dict[str, Any]]:
    return {name: counts for name, counts in EXPECTED.items() if name.startswith(f"{agent}/")}


def one(report: Report) -> Imported:
    (source,) = report.sources
    return source


def tallied(sf: standfast.Standfast, name: str) -> dict[str, int]:
    path = str(SAMPLES / name)
    (source,) = [source for source in sf.imports.list(limit=1000) if source.path == path]
    (found,) = sf.rows(TALLY, {"seq": source.seq})
    return {name: int(value) for name, value in found.items()}


def differences(expected: dict[str, Any], found: Imported, tally: dict[str, int]) -> dict[str, tuple[Any, Any]]:
    pairs = {name: (found.counts[name], expected[name]) for name in COUNTED if name in expected}
    pairs |= {name: (sorted(found.counts[name]), sorted(expected[name])) for name in LISTED if name in expected}
    pairs |= {name: (tally[name], expected[name]) for name in TALLIED if name in expected}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


def test_claude_code(sf: standfast.Standfast) -> None:
    """000-9: every record, call and answer is imported. The usage of a response is counted once."""
    for name, expected in of("claude-code").items():
        found = one(sf.imports.run("claude-code", SAMPLES / name))
        tally = tallied(sf, name)
        assert differences(expected, found, tally) == {}, name
        synthetic = found.counts.get("synthetic_responses", 0)
        assert tally["api_responses"] + synthetic == expected["api_responses"], name
        usage = {
            "input_tokens": tally["input_tokens"],
            "cache_read_input_tokens": tally["cached_input_tokens"],
            "cache_creation_input_tokens": tally["cache_write_tokens"],
            "output_tokens": tally["output_tokens"],
        }
        assert usage == expected["usage"], name


def test_codex(sf: standfast.Standfast) -> None:
    """000-9: the formats are bare rows, envelopes and ordinals. If responses have no counts, the total of the file
    counts.
    """
    for name, expected in of("codex").items():
        found = one(sf.imports.run("codex", SAMPLES / name))
        tally = tallied(sf, name)
        assert differences(expected, found, tally) == {}, name
        total = expected.get("total_token_usage_sum") or expected["total_token_usage"] or {}
        assert tally["input_tokens"] == total.get("input_tokens", 0), name
        assert tally["cached_input_tokens"] == total.get("cached_input_tokens", 0), name
        assert tally["output_tokens"] == total.get("output_tokens", 0), name
        assert tally["reasoning_tokens"] == total.get("reasoning_output_tokens", 0), name
        if expected["thread_id"]:
            own = expected["thread_id"]
            parent = expected["parent_thread_id"] and expected["session_id"]
            assert found.native_id == (f"{parent}/{own}" if parent else own), name


def test_gemini_cli(sf: standfast.Standfast) -> None:
    for name, expected in of("gemini-cli").items():
        found = one(sf.imports.run("gemini-cli", SAMPLES / name))
        if "messages" not in expected:
            assert (found.outcome, found.messages) == ("empty", 0), name
            continue
        assert found.native_id == expected["session_id"], name
        assert (found.messages, found.counts["records"]) == (
            expected["messages"],
            expected["records"] if name.endswith(".jsonl") else expected["messages"] + 1,
        ), name
        tally = tallied(sf, name)
        tokens = expected["tokens"]
        assert tally["input_tokens"] == tokens["input"], name
        assert tally["cached_input_tokens"] == tokens["cached"], name
        assert tally["output_tokens"] == tokens["output"], name
        assert tally["reasoning_tokens"] == tokens["thoughts"], name
        (session,) = sf.rows("SELECT id FROM session WHERE key = :key", {"key": f"gemini-cli:{found.native_id}"})
        calls = sf.rows("SELECT status FROM tool_call WHERE session_id = :id", {"id": session["id"]})
        words = {"success": "ok", "error": "error", "cancelled": "cancelled"}
        wanted = sorted(words[word] for word, count in expected["tool_status"].items() for _ in range(count))
        assert sorted(call["status"] for call in calls) == wanted, name


def test_opencode(sf: standfast.Standfast) -> None:
    for name, expected in of("opencode").items():
        found = one(sf.imports.run("opencode", SAMPLES / name))
        assert found.messages == expected["messages"], name
        kinds = {kind.removeprefix("part/"): n for kind, n in found.counts["types"].items() if kind.startswith("part/")}
        assert kinds == expected["parts"], name
        for session in expected["sessions"]:
            key = f"opencode:{session['parent'] or session['id']}"
            (row,) = sf.rows("SELECT id FROM session WHERE key = :key", {"key": key})
            node = session["id"] if session["parent"] else ""
            costs = sf.rows(
                "SELECT u.cost_microusd AS cost FROM usage u JOIN node n ON n.id = u.node_id"
                " WHERE u.session_id = :id AND n.name = :node",
                {"id": row["id"], "node": node},
            )
            assert "cost" not in session or sum(u["cost"] for u in costs) == round(session["cost"] * 1e6), name
        (answers,) = sf.rows(
            "SELECT count(*) AS calls, sum(CASE WHEN status = 'ok' THEN 1 ELSE 0 END) AS good FROM tool_call"
            " WHERE import_seq = (SELECT max(seq) FROM import_source)"
        )
        assert (answers["calls"], answers["good"]) == (
            sum(expected["tool_status"].values()),
            expected["tool_status"]["completed"],
        ), name


def test_everything_again_writes_nothing(tmp_path: Path) -> None:
    """A first import reads a directory with all kinds of files. A second one writes nothing."""
    with standfast.open(tmp_path / "standfast.db", data_dir=tmp_path / "data") as sf:
        for agent in ("claude-code", "codex", "gemini-cli", "opencode"):
            first = sf.imports.run(agent, SAMPLES / agent)
            assert first.messages > 0
            assert {source.outcome for source in first.sources} <= {"new", "more", "empty"}
            before = sf.journal.now()
            again = sf.imports.run(agent, SAMPLES / agent)
            assert {source.outcome for source in again.sources} == {"same"}
            assert (again.messages, sf.journal.now()) == (0, before)


def test_no_gate_stops_a_command_of_the_samples(sf: standfast.Standfast) -> None:
    """002-20: none of these commands pushes, publishes, applies or deletes, so each of them passes."""
    for name in EXPECTED:
        agent = name.partition("/")[0]
        if agent in ("claude-code", "codex", "gemini-cli", "opencode"):
            sf.imports.run(agent, SAMPLES / name)
    commands = set()
    for row in sf.rows("SELECT input FROM tool_call"):
        text = str(row["input"])
        given = json.loads(text) if text.startswith("{") else None
        found = given.get("command") or given.get("cmd") if isinstance(given, dict) else None
        if found:
            commands.add(found if isinstance(found, str) else shlex.join(found))
    assert len(commands) >= 230
    assert [line for line in commands if met(GATES, line)] == []
