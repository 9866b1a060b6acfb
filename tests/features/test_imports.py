"""The guarantees of an import, one small file per rule, on both engines."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import standfast
from standfast import when
from standfast.interchange.imports import Imported
from standfast.interchange.transcripts import files
from standfast.interchange.transcripts.codex import Codex
from standfast.serial import redaction
from standfast_prove.transcripts import (
    SESSION,
    append,
    assistant,
    at,
    call,
    claude,
    codex,
    item,
    message,
    meta,
    night,
    result,
    rollout,
    text,
    user,
    write,
)

KEY = "ghp_" + "a1B2" * 9
THREAD = "0199812e-64f0-7f73-91fc-095dda01c36e"
OTHER = "0199812e-64f0-7f73-91fc-095dda01c37f"


@pytest.fixture
def lite(tmp_path: Path) -> Iterator[standfast.Standfast]:
    """One engine is enough for tests of readers, because all readers write in the same way."""
    with standfast.open(tmp_path / "lite" / "standfast.db", data_dir=tmp_path / "data") as store:
        yield store


def run(sf: standfast.Standfast, agent: str, path: Path) -> Imported:
    (source,) = sf.imports.run(agent, path).sources
    return source


def rows(sf: standfast.Standfast, query: str, **params: Any) -> list[dict[str, Any]]:
    return list(sf.rows(query, params))


def said(sf: standfast.Standfast, key: str = f"claude-code:{SESSION}") -> list[tuple[str, str]]:
    found = rows(
        sf,
        "SELECT m.role AS role, m.content AS content FROM message m JOIN session s ON s.id = m.session_id"
        " WHERE s.key = :key ORDER BY m.node_id, m.position",
        key=key,
    )
    return [(row["role"], row["content"]) for row in found]


def calls(sf: standfast.Standfast) -> list[tuple[Any, ...]]:
    found = rows(sf, "SELECT call_id, tool, status, output, exit_code FROM tool_call ORDER BY call_id")
    return [tuple(row.values()) for row in found]


def everything(sf: standfast.Standfast) -> dict[str, list[dict[str, Any]]]:
    """The imported rows without ids and times of writing, which differ in each run."""
    return {
        "message": rows(
            sf,
            "SELECT n.name, m.position, m.role, m.content, m.native, m.occurred_us, m.import_offset, m.retracted_us"
            " FROM message m JOIN node n ON n.id = m.node_id ORDER BY m.native",
        ),
        "tool_call": rows(
            sf, "SELECT call_id, tool, status, input, output, called_us, answered_us FROM tool_call ORDER BY call_id"
        ),
        "usage": rows(sf, "SELECT response, input_tokens, output_tokens FROM usage ORDER BY response"),
        "checkpoint": rows(sf, "SELECT summary, to_position FROM checkpoint ORDER BY to_position"),
        "session": rows(sf, "SELECT key, state, preview, updated_us FROM session ORDER BY key"),
        "import_source": rows(sf, "SELECT path, upto, state, counts FROM import_source ORDER BY path"),
    }


# -- reading -----------------------------------------------------------------------------------------------------


def test_a_conversation_with_its_calls_and_answers(sf: standfast.Standfast, tmp_path: Path) -> None:
    """000-9, 001-6: messages have the order of the file, and each call has its result and its time."""
    found = run(sf, "claude-code", write(tmp_path / f"{SESSION}.jsonl", *night()))
    assert (found.outcome, found.messages, found.native_id) == ("new", 4, SESSION)
    assert [role for role, _ in said(sf)] == ["user", "tool", "tool", "assistant"]
    assert calls(sf) == [("toolu_0", "Bash", "error", "1 failed", None)]
    session = sf.sessions.get(f"claude-code:{SESSION}")
    assert (session.state, session.agent, session.preview) == ("completed", "claude-code", "why is the build red? (0)")
    assert not session.crashed
    assert session.updated_us == 1_794_279_600_000_000


def test_two_records_on_one_line_are_two(lite: standfast.Standfast, tmp_path: Path) -> None:
    line = json.dumps(user("u1", "one")) + json.dumps(user("u2", "two"))
    found = run(lite, "claude-code", write(tmp_path / "s.jsonl", line, user("u3", "three")))
    assert [words for _, words in said(lite)] == ["one", "two", "three"]
    assert (found.counts["records"], found.counts["multi_object_lines"]) == (3, 1)


def test_an_unfinished_last_line_is_read_at_the_next_import(lite: standfast.Standfast, tmp_path: Path) -> None:
    """An agent is still writing the file: a half-written record is neither lost nor imported in part."""
    whole = json.dumps(user("u2", "whole by now"))
    path = write(tmp_path / "s.jsonl", user("u1", "one"), whole[:40], end="")
    assert run(lite, "claude-code", path).counts["bad"] == 0
    assert [words for _, words in said(lite)] == ["one"]
    with path.open("a") as file:
        file.write(whole[40:])
    found = run(lite, "claude-code", path)
    assert (found.outcome, found.messages) == ("more", 1)
    assert [words for _, words in said(lite)] == ["one", "whole by now"]
    append(path, "", user("u3", "and more"))
    assert run(lite, "claude-code", path).messages == 1


def test_a_broken_line_in_the_middle_is_counted_and_stored(lite: standfast.Standfast, tmp_path: Path) -> None:
    path = write(tmp_path / "s.jsonl", user("u1", "one"), '{"type": "user", "uu', user("u2", "two"))
    found = run(lite, "claude-code", path)
    assert (found.counts["bad"], found.counts["records"], found.messages) == (1, 2, 2)
    (batch,) = rows(lite, "SELECT raw FROM import_batch")
    import zlib

    assert b'{"type": "user", "uu' in zlib.decompress(bytes(batch["raw"]))


def test_records_of_unknown_types_are_stored_and_counted(lite: standfast.Standfast, tmp_path: Path) -> None:
    records = [claude("hologram", "h1"), {"no": "type"}, [1, 2], user("u1", "one"), claude("hologram", "h2")]
    found = run(lite, "claude-code", write(tmp_path / "s.jsonl", *records))
    assert found.counts["unknown"] == {"hologram": 2, "(no type)": 1, "(not an object)": 1}
    assert found.counts["types"]["user"] == 1


def test_the_raw_record_is_one_call_away(sf: standfast.Standfast, tmp_path: Path) -> None:
    path = write(tmp_path / "s.jsonl", user("u1", "one", gadget=[1, 2]), user("u2", "two"))
    run(sf, "claude-code", path)
    (first, second) = rows(sf, "SELECT id FROM message ORDER BY position")
    assert json.loads(sf.imports.raw(first["id"]))["gadget"] == [1, 2]
    assert json.loads(sf.imports.raw(second["id"]))["uuid"] == "u2"
    with pytest.raises(standfast.NotFound):
        sf.imports.raw("msg_none")


def test_an_import_again_writes_nothing(sf: standfast.Standfast, tmp_path: Path) -> None:
    path = write(tmp_path / "s.jsonl", *night(count=3))
    run(sf, "claude-code", path)
    before, cursor = everything(sf), sf.journal.now()
    assert run(sf, "claude-code", path).outcome == "same"
    os.utime(path)  # the file was touched, but its content is unchanged
    assert run(sf, "claude-code", path).outcome == "same"
    assert (everything(sf), sf.journal.now()) == (before, cursor)


def test_lines_appended_within_one_tick_of_the_clock_are_read(sf: standfast.Standfast, tmp_path: Path) -> None:
    """000-9: the file's modification time is unchanged, but its larger size shows that lines were added."""
    path = write(tmp_path / "s.jsonl", *night(count=2))
    run(sf, "claude-code", path)
    before = os.stat(path)
    append(path, *night(count=4)[8:])
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert run(sf, "claude-code", path).outcome == "more"


def test_only_appended_lines_are_read_again(sf: standfast.Standfast, tmp_path: Path) -> None:
    path = write(tmp_path / "s.jsonl", *night(count=2))
    run(sf, "claude-code", path)
    append(path, *night(count=4)[8:])
    found = run(sf, "claude-code", path)
    assert (found.outcome, found.messages, found.counts["duplicates"]) == ("more", 8, 0)
    once = tmp_path / "once"
    with standfast.open(once / "standfast.db", data_dir=once) as fresh:
        run(fresh, "claude-code", path)
        assert everything(fresh)["message"] == everything(sf)["message"]
        assert everything(fresh)["import_source"] == everything(sf)["import_source"]


def test_a_file_that_became_another_is_read_from_its_start_and_nothing_is_doubled(
    sf: standfast.Standfast, tmp_path: Path
) -> None:
    path = write(tmp_path / "s.jsonl", *night(count=3))
    run(sf, "claude-code", path)
    write(path, *night(count=3)[4:], user("new", "after the rewrite"))
    found = run(sf, "claude-code", path)
    assert (found.messages, found.counts["duplicates"]) == (1, 8)
    assert len(said(sf)) == 13
    (source,) = sf.imports.list()
    assert (source.generation, source.state) == (2, "current")


def test_a_file_rewritten_behind_its_head_is_noticed(lite: standfast.Standfast, tmp_path: Path) -> None:
    """The new file has the same first pages and is longer, but no line ends where the last imported line ended."""
    long = user("u0", "x" * 5000)
    path = write(tmp_path / "s.jsonl", long, user("u1", "one"))
    run(lite, "claude-code", path)
    write(path, long, user("u2", "another line, and a longer one"), user("u3", "three"))
    run(lite, "claude-code", path)
    assert [words for _, words in said(lite)][1:] == ["one", "another line, and a longer one", "three"]


def test_a_newer_reader_reads_everything_again_and_doubles_nothing(
    lite: standfast.Standfast, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "s.jsonl", *night(count=2))
    run(lite, "claude-code", path)
    before = everything(lite)["message"]
    from standfast.interchange.transcripts.claude_code import ClaudeCode

    monkeypatch.setattr(ClaudeCode, "version", 2)
    assert run(lite, "claude-code", path).messages == 0
    assert everything(lite)["message"] == before
    assert run(lite, "claude-code", path).outcome == "same"


def test_a_source_that_disappears_leaves_the_session_and_a_note(sf: standfast.Standfast, tmp_path: Path) -> None:
    """Agents delete their transcripts. The imported records stay, and one note says that the file is missing."""
    path = write(tmp_path / "projects" / "s.jsonl", *night())
    sf.imports.run("claude-code", tmp_path / "projects")
    path.unlink()
    (gone,) = sf.imports.run("claude-code", tmp_path / "projects").sources
    assert gone.outcome == "gone"
    assert gone.note is not None
    assert "stays" in gone.note
    assert sf.imports.run("claude-code", tmp_path / "projects").sources == []
    assert len(said(sf)) == 4
    (source,) = sf.imports.list()
    assert (source.state, source.note) == ("gone", gone.note)
    write(path, *night(count=2))
    (back,) = sf.imports.run("claude-code", tmp_path / "projects").sources
    assert (back.outcome, back.messages, sf.imports.list()[0].state) == ("more", 4, "current")


def test_a_dry_run_counts_and_writes_nothing(lite: standfast.Standfast, tmp_path: Path) -> None:
    path = write(tmp_path / "s.jsonl", *night(count=3))
    report = lite.imports.run("claude-code", path, dry_run=True)
    assert (report.dry_run, report.messages, report.totals["records"]) == (True, 12, 12)
    assert (lite.imports.list(), lite.journal.tail().events) == ([], [])


def test_since_skips_older_records(lite: standfast.Standfast, tmp_path: Path) -> None:
    old = write(tmp_path / "p" / "old.jsonl", *night())
    write(tmp_path / "p" / "new.jsonl", *night("99999999-2222-4333-8444-555555555555"))
    os.utime(old, (1_000_000, 1_000_000))
    report = lite.imports.run("claude-code", tmp_path / "p", since=when.utc(2_000_000_000_000))
    assert [Path(source.path).name for source in report.sources] == ["new.jsonl"]


# -- Claude Code -------------------------------------------------------------------------------------------------


def test_usage_is_counted_once_per_response_with_the_largest_of_each_field(
    sf: standfast.Standfast, tmp_path: Path
) -> None:
    """001-26: tokens of prompt and answer. A response has several records, and the early ones hold placeholders."""
    path = write(
        tmp_path / "s.jsonl",
        assistant("a1", text("one"), id="m1", usage={"input_tokens": 10, "output_tokens": 1}),
        assistant("a2", call("t1"), id="m1", usage={"input_tokens": 10, "output_tokens": 90}),
        assistant("a3", text("two"), id="m2", usage={"input_tokens": 5, "cache_read_input_tokens": 7}),
    )
    run(sf, "claude-code", path)
    fork = write(tmp_path / "fork.jsonl", assistant("a9", text("x"), id="m1", usage={"input_tokens": 10}))
    run(sf, "claude-code", fork)
    found = rows(sf, "SELECT input_tokens, cached_input_tokens, output_tokens FROM usage ORDER BY response")
    assert [tuple(row.values()) for row in found] == [(10, 0, 90), (5, 7, 0)]


def test_a_call_without_an_answer_is_unknown_and_never_failed(sf: standfast.Standfast, tmp_path: Path) -> None:
    """000-18: the outcome is recorded as unknown, because the answer may still come."""
    path = write(tmp_path / "s.jsonl", assistant("a1", call("t1", command="deploy")))
    run(sf, "claude-code", path)
    assert calls(sf) == [("t1", "Bash", "unknown", None, None)]
    append(path, result("r1", "t1", "deployed"))
    run(sf, "claude-code", path)
    assert calls(sf) == [("t1", "Bash", "ok", "deployed", None)]


def test_an_answer_without_its_call_is_stored(lite: standfast.Standfast, tmp_path: Path) -> None:
    run(lite, "claude-code", write(tmp_path / "s.jsonl", result("r1", "t9", [text("late"), text("word")])))
    assert calls(lite) == [("t9", None, "ok", "late\nword", None)]


def test_a_fork_imports_only_its_new_records(sf: standfast.Standfast, tmp_path: Path) -> None:
    """A record in two files has the same uuid. It belongs to the session that had it first, and the fork names its
    origin.
    """
    run(sf, "claude-code", write(tmp_path / "a.jsonl", *night(count=2)))
    forked = [record | {"sessionId": "fork", "forkedFrom": {"sessionId": SESSION}} for record in night(count=2)]
    own = user("mine", "another way", sessionId="fork")
    found = run(sf, "claude-code", write(tmp_path / "b.jsonl", *forked, own))
    assert (found.messages, found.counts["duplicates"]) == (1, 8)
    assert said(sf, "claude-code:fork") == [("user", "another way")]
    assert len(calls(sf)) == 2
    assert sf.sessions.get("claude-code:fork").reason == f"forked from claude-code:{SESSION}"


@pytest.mark.parametrize("era", ["inline", "beside", "below"])
def test_sub_agents_are_nodes_of_their_session(lite: standfast.Standfast, tmp_path: Path, era: str) -> None:
    main = tmp_path / "p" / f"{SESSION}.jsonl"
    side: dict[str, Any] = {"isSidechain": True}
    first = user("s1", "look for it", parentUuid=None, **side)
    second = assistant("s2", text("found it"), parentUuid="s1", **side)
    if era == "inline":
        write(main, user("u1", "find it"), first, second, user("s3", "another", parentUuid=None, **side))
    else:
        folder = main.parent if era == "beside" else main.parent / SESSION / "subagents"
        write(main, user("u1", "find it"))
        write(folder / "agent-abc.jsonl", first | {"agentId": "abc"}, second | {"agentId": "abc"})
        write(folder / "agent-abc.meta.json", {"agentType": "explorer"})
    lite.imports.run("claude-code", main.parent)
    nodes = lite.sessions.nodes(f"claude-code:{SESSION}")
    names = {node.name: node.title for node in nodes}
    if era == "inline":
        assert set(names) == {"", "sidechain-s1", "sidechain-s3"}
    else:
        assert names == {"": None, "abc": "explorer"}
    assert len(rows(lite, "SELECT id FROM session")) == 1
    assert ("assistant", "found it") in said(lite)


def test_a_compaction_is_a_checkpoint_and_its_summary_stays_a_message(sf: standfast.Standfast, tmp_path: Path) -> None:
    path = write(
        tmp_path / "s.jsonl",
        *night(),
        claude("system", "c1", subtype="compact_boundary", content="compacted", compactMetadata={"trigger": "auto"}),
        user("c2", "the parser is broken; tests are red", isCompactSummary=True),
        user("u9", "go on"),
    )
    found = run(sf, "claude-code", path)
    assert found.counts["compactions"] == 1
    (kept,) = sf.checkpoints.list(session=f"claude-code:{SESSION}")
    assert (kept.summary, kept.to_position, kept.data) == (
        "the parser is broken; tests are red",
        6,
        {"trigger": "auto"},
    )
    assert ("summary", "the parser is broken; tests are red") in said(sf)


def test_what_the_program_put_in_the_persons_mouth_is_not_the_person(lite: standfast.Standfast, tmp_path: Path) -> None:
    path = write(
        tmp_path / "s.jsonl",
        user("u1", "<command-name>/clear</command-name>"),
        user("u2", "remember the milk", isMeta=True),
        user("u3", "really me"),
    )
    run(lite, "claude-code", path)
    assert [role for role, _ in said(lite)] == ["system", "system", "user"]
    assert lite.sessions.get(f"claude-code:{SESSION}").preview == "really me"


def test_a_summary_titles_the_session_its_leaf_belongs_to(lite: standfast.Standfast, tmp_path: Path) -> None:
    run(lite, "claude-code", write(tmp_path / "a.jsonl", *night()))
    leaf = {"type": "summary", "summary": "A red build", "leafUuid": f"{SESSION[:8]}-b0"}
    run(lite, "claude-code", write(tmp_path / "b.jsonl", leaf, user("x", "hi", sessionId="other")))
    titles = {node.title for node in lite.sessions.nodes(f"claude-code:{SESSION}")}
    assert titles == {"A red build"}


# -- Codex -------------------------------------------------------------------------------------------------------


def test_every_message_of_codex_is_there_twice_and_imported_once(lite: standfast.Standfast, tmp_path: Path) -> None:
    path = write(
        rollout(tmp_path, THREAD),
        meta(THREAD),
        message("user", "<environment_context>\n</environment_context>", id="m0"),
        message("user", "why?", id="m1"),
        codex("event_msg", {"type": "user_message", "message": "why?"}),
        item("reasoning", id="r1", summary=[{"type": "summary_text", "text": "hm"}]),
        message("assistant", "because", id="m2"),
        codex("event_msg", {"type": "agent_message", "message": "because"}),
    )
    run(lite, "codex", path)
    assert [role for role, _ in said(lite, f"codex:{THREAD}")] == ["system", "user", "reasoning", "assistant"]


def test_exit_codes_are_read_from_the_event_the_output_or_json_in_the_output(
    lite: standfast.Standfast, tmp_path: Path
) -> None:
    ended = {"type": "CommandExecution", "id": "c1", "exit_code": 3, "duration": {"secs": 1, "nanos": 500_000_000}}
    path = write(
        rollout(tmp_path, THREAD),
        meta(THREAD),
        item("function_call", call_id="c1", name="exec", arguments='{"cmd": "false"}'),
        codex("event_msg", {"type": "item_completed", "item": ended}),
        item("function_call_output", call_id="c1", output="nothing said"),
        item("function_call", call_id="c2", name="exec", arguments="{}"),
        item("function_call_output", call_id="c2", output="Wall time: 0\nProcess exited with code 1\nOutput:\nno"),
        item("function_call", call_id="c3", name="shell", arguments="{}"),
        item("function_call_output", call_id="c3", output='{"output": "yes", "metadata": {"exit_code": 0}}'),
        item("custom_tool_call", call_id="c4", name="apply_patch", input="*** Begin"),
        item("local_shell_call", call_id="c5", action={"command": ["ls", "-l"]}),
    )
    run(lite, "codex", path)
    assert [(id, status, code) for id, _, status, _, code in calls(lite)] == [
        ("c1", "error", 3),
        ("c2", "error", 1),
        ("c3", "ok", 0),
        ("c4", "unknown", None),
        ("c5", "unknown", None),
    ]
    (timed,) = rows(lite, "SELECT duration_us, summary FROM tool_call WHERE call_id = 'c1'")
    assert tuple(timed.values()) == (1_500_000, "exec false")


def test_codex_usage_is_per_response_or_the_last_total_never_a_sum(lite: standfast.Standfast, tmp_path: Path) -> None:
    run(lite, "codex", write(rollout(tmp_path, THREAD), meta(THREAD), total(5), total(5), total(9)))
    response = {"response_id": "resp_1", "usage": {"input_tokens": 4, "output_tokens": 2}}
    newer = [meta(OTHER), total(4), codex("token_usage_record", response), total(4)]
    run(lite, "codex", write(rollout(tmp_path, OTHER), *newer))
    found = rows(lite, "SELECT response, input_tokens FROM usage ORDER BY response")
    assert [tuple(row.values()) for row in found] == [
        (f"codex:{THREAD}:total", 9),
        (f"codex:{OTHER}:resp_1", 4),
    ]


def total(tokens: int, output: int = 0) -> dict[str, Any]:
    usage = {"input_tokens": tokens, "output_tokens": output, "total_tokens": tokens + output}
    return codex("event_msg", {"type": "token_count", "info": {"total_token_usage": usage}})


def usage(sf: standfast.Standfast) -> list[tuple[Any, ...]]:
    found = rows(sf, "SELECT response, input_tokens, output_tokens FROM usage ORDER BY response")
    return [tuple(row.values()) for row in found]


def test_a_codex_counter_that_falls_is_another_one(sf: standfast.Standfast, tmp_path: Path) -> None:
    """001-26: a resumed session counts its tokens from 0 again. The importer adds the two counts."""
    path = rollout(tmp_path, THREAD)
    run(sf, "codex", write(path, meta(THREAD), total(1000, 1), total(5000, 7), total(300, 2), total(300, 2)))
    assert usage(sf) == [(f"codex:{THREAD}:total", 5300, 9)]


def test_a_codex_counter_falls_also_between_two_imports_and_when_all_is_read_again(
    sf: standfast.Standfast, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """001-26: the sum does not depend on where an import ended or whether the file is imported again."""
    path = rollout(tmp_path, THREAD)
    lines = [meta(THREAD), total(1000), total(5000), total(300), total(400), total(0), total(7)]
    for count in range(2, len(lines) + 1):
        run(sf, "codex", write(path, *lines[:count]))
    assert usage(sf) == [(f"codex:{THREAD}:total", 5407, 0)]
    assert run(sf, "codex", path).outcome == "same"
    monkeypatch.setattr(Codex, "version", Codex.version + 1)
    run(sf, "codex", path)
    assert usage(sf) == [(f"codex:{THREAD}:total", 5407, 0)]
    response = {"response_id": "resp_1", "usage": {"input_tokens": 4, "output_tokens": 2}}
    run(sf, "codex", write(path, *lines, codex("token_usage_record", response)))
    assert usage(sf) == [(f"codex:{THREAD}:resp_1", 4, 2)]


@pytest.mark.parametrize("dry", [False, True])
def test_a_file_that_takes_too_long_is_skipped_with_a_note(
    sf: standfast.Standfast, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dry: bool
) -> None:
    """000-9: the time for one file is limited, and the note says where the import stopped."""
    words = [message("user", f"word {n}") for n in range(10)]
    path = write(rollout(tmp_path, THREAD), meta(THREAD), *words)
    monkeypatch.setattr(files, "PIECE_LINES", 3)
    monkeypatch.setattr(files, "FILE_MAX_S", -1.0)
    (stopped,) = sf.imports.run("codex", path, dry_run=dry).sources
    assert stopped.messages == 2
    assert "run the import again" in (stopped.note or "")
    if not dry:
        monkeypatch.setattr(files, "FILE_MAX_S", 600.0)
        (rest,) = sf.imports.run("codex", path).sources
        assert (rest.messages, rest.note) == (8, None)
        assert len(said(sf, f"codex:{THREAD}")) == 10


def test_a_codex_fork_leaves_what_it_repeats_with_its_parent(sf: standfast.Standfast, tmp_path: Path) -> None:
    """Older forks copy the parent's rows without ids. Rows equal to the parent's are copies, up to the first
    different row.
    """
    shared = [message("user", "one"), message("assistant", "two"), message("user", "one")]
    run(sf, "codex", write(rollout(tmp_path, THREAD), meta(THREAD), *shared, message("assistant", "here")))
    own = [message("assistant", "there"), message("user", "one")]
    fork = write(rollout(tmp_path, OTHER), meta(OTHER, forked_from_id=THREAD), *shared, *own)
    assert run(sf, "codex", fork).messages == 2
    assert [words for _, words in said(sf, f"codex:{OTHER}")] == ["there", "one"]


@pytest.mark.parametrize("piece", [2, 3, 2000])
def test_a_codex_fork_that_was_imported_before_its_parent_ends_the_same(
    sf: standfast.Standfast, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, piece: int
) -> None:
    """The files are imported in either order while both grow: repeated records belong to the parent."""
    monkeypatch.setattr(files, "PIECE_LINES", piece)
    call = codex("response_item", {"type": "function_call", "call_id": "c1", "name": "exec", "arguments": "{}"})
    shared = [message("user", "one"), message("assistant", "two"), call, message("user", "three")]
    own = [message("assistant", "there"), message("user", "five")]
    fork = write(rollout(tmp_path, OTHER), meta(OTHER, forked_from_id=THREAD), *shared, own[0])
    third = "01a1e063-d05c-7193-8291-7ca81d32bbb9"
    short = write(rollout(tmp_path, third), meta(third, forked_from_id=THREAD), *shared[:2])
    assert run(sf, "codex", fork).messages == 5
    run(sf, "codex", short)
    parent = write(rollout(tmp_path, THREAD), meta(THREAD), *shared[:3])
    run(sf, "codex", parent)
    with fork.open("a") as file:
        file.write(json.dumps(own[1]) + "\n")
    run(sf, "codex", parent.with_name(fork.name))
    with parent.open("a") as file:
        file.write("".join(json.dumps(one) + "\n" for one in (shared[3], message("assistant", "here"))))
    run(sf, "codex", parent)
    with short.open("a") as file:
        file.write("".join(json.dumps(one) + "\n" for one in (*shared[2:], message("user", "else"))))
    run(sf, "codex", short)
    spoken = {
        key: [words for role, words in said(sf, f"codex:{key}") if role != "tool"] for key in (THREAD, OTHER, third)
    }
    assert spoken[THREAD] == ["one", "two", "three", "here"]
    assert spoken[OTHER] == ["there", "five"]
    assert spoken[third] == ["else"]
    assert len(rows(sf, "SELECT id FROM tool_call")) == 1
    assert run(sf, "codex", fork).outcome == "same"


def test_a_codex_sub_agent_is_a_node_and_what_it_inherited_is_not_repeated(
    lite: standfast.Standfast, tmp_path: Path
) -> None:
    spawn = {"thread_spawn": {"parent_thread_id": THREAD, "agent_nickname": "Faraday", "agent_role": "explorer"}}
    child = meta(
        OTHER,
        session_id=THREAD,
        parent_thread_id=THREAD,
        source={"subagent": spawn},
        subagent_history_start_ordinal=2,
    )
    write(rollout(tmp_path, THREAD), meta(THREAD), message("user", "ask around", id="m1"))
    write(
        tmp_path / f"rollout-2026-11-10T03-00-01-{OTHER}.jsonl",
        child | {"ordinal": 0},
        message("user", "ask around", id="m1", ordinal=1),
        message("assistant", "asked", id="m2", ordinal=2),
    )
    lite.imports.run("codex", tmp_path)
    assert [(n.name, n.title) for n in lite.sessions.nodes(f"codex:{THREAD}")] == [
        ("", None),
        (OTHER, "Faraday (explorer)"),
    ]
    assert sorted(words for _, words in said(lite, f"codex:{THREAD}")) == ["ask around", "asked"]


def test_rows_of_the_first_era_have_no_time_of_their_own(lite: standfast.Standfast, tmp_path: Path) -> None:
    path = write(
        rollout(tmp_path, THREAD),
        {"id": THREAD, "timestamp": at(0), "instructions": None},
        {"record_type": "state"},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hello"}]},
        {"type": "function_call", "name": "shell", "arguments": "{}", "call_id": "c1"},
        {"type": "function_call_output", "call_id": "c1", "output": "done"},
    )
    run(lite, "codex", path)
    assert {row["occurred_us"] for row in rows(lite, "SELECT occurred_us FROM message")} == {1_794_279_600_000_000}


def test_a_rollout_that_was_packed_meanwhile_is_the_same_one(lite: standfast.Standfast, tmp_path: Path) -> None:
    zstandard = pytest.importorskip("zstandard", reason="NO zstandard: packed rollouts were not read")
    path = write(rollout(tmp_path, THREAD), meta(THREAD), message("user", "cold", id="m1"))
    run(lite, "codex", path)
    packed = zstandard.ZstdCompressor().compress(
        path.read_bytes() + json.dumps(message("user", "er", id="m2")).encode()
    )
    Path(f"{path}.zst").write_bytes(packed)
    path.unlink()
    (source,) = lite.imports.run("codex", tmp_path).sources
    assert (source.outcome, source.messages) == ("more", 1)
    assert lite.imports.run("codex", tmp_path).sources[0].outcome == "same"


def test_a_packed_rollout_that_cannot_be_unpacked_here_is_named(
    lite: standfast.Standfast, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "zstandard", None)
    monkeypatch.setitem(sys.modules, "compression", None)
    Path(f"{rollout(tmp_path, THREAD)}.zst").write_bytes(b"\x28\xb5\x2f\xfd")
    (source,) = lite.imports.run("codex", tmp_path).sources
    assert source.outcome == "unreadable"
    assert source.note is not None
    assert "zstd" in source.note


# -- Gemini CLI --------------------------------------------------------------------------------------------------

HEADER = {"sessionId": "gem", "projectHash": "x", "startTime": at(0), "kind": "main"}


def gemini(id: str, type: str, content: Any, **more: Any) -> dict[str, Any]:
    return {"id": id, "timestamp": at(1), "type": type, "content": content, **more}


def test_a_growing_message_is_one_message_with_its_last_text(lite: standfast.Standfast, tmp_path: Path) -> None:
    asked = {"id": "c1", "name": "shell", "args": {"command": "ls"}, "status": "executing"}
    path = write(tmp_path / "chats" / "session-1.jsonl", HEADER, gemini("g1", "gemini", "Let"), end="\n")
    run(lite, "gemini-cli", path)
    append(path, gemini("g1", "gemini", "Let me look", toolCalls=[asked], tokens={"input": 3, "output": 1}))
    run(lite, "gemini-cli", path)
    assert calls(lite) == [("c1", "shell", "unknown", None, None)]
    response = {"functionResponse": {"id": "c1", "response": {"output": "a.txt"}}}
    done = asked | {"status": "success", "result": [response]}
    append(path, gemini("g1", "gemini", "Let me look", toolCalls=[done], tokens={"input": 3, "output": 9}))
    append(path, gemini("g2", "user", [response]), {"$set": {"lastUpdated": at(2)}})
    run(lite, "gemini-cli", path)
    assert [role for role, _ in said(lite, "gemini-cli:gem")] == ["assistant", "tool"]
    assert said(lite, "gemini-cli:gem")[0][1] == "Let me look"
    assert calls(lite) == [("c1", "shell", "ok", "a.txt", None)]
    assert rows(lite, "SELECT input_tokens, output_tokens FROM usage") == [{"input_tokens": 3, "output_tokens": 9}]


def test_a_retracted_message_is_stored_and_marked(sf: standfast.Standfast, tmp_path: Path) -> None:
    messages = [gemini(f"m{n}", "user", f"word {n}") for n in range(4)]
    path = write(tmp_path / "session-1.jsonl", HEADER, *messages, {"$rewindTo": "m2"}, gemini("m9", "user", "instead"))
    run(sf, "gemini-cli", path)
    found = rows(sf, "SELECT content, retracted_us FROM message ORDER BY position")
    assert [(row["content"], row["retracted_us"] is not None) for row in found] == [
        ("word 0", False),
        ("word 1", False),
        ("word 2", True),
        ("word 3", True),
        ("instead", False),
    ]
    append(path, {"$rewindTo": "outcome unknown"})
    run(sf, "gemini-cli", path)
    assert all(row["retracted_us"] for row in rows(sf, "SELECT retracted_us FROM message"))
    append(path, messages[0])
    run(sf, "gemini-cli", path)
    stands = rows(sf, "SELECT content FROM message WHERE retracted_us IS NULL")
    assert [row["content"] for row in stands] == ["word 0"]  # the record was added again, so it counts once more


def test_a_rewritten_document_is_compared_message_by_message(lite: standfast.Standfast, tmp_path: Path) -> None:
    path = tmp_path / "session-1.json"
    stages = [
        [gemini("m1", "user", "hi")],
        [gemini("m1", "user", "hi"), gemini("m2", "gemini", "hel")],
        [gemini("m1", "user", "hi"), gemini("m2", "gemini", "hello"), gemini("m3", "info", "bye")],
    ]
    added = []
    for messages in stages:
        path.write_text(json.dumps(HEADER | {"messages": messages}))
        added.append(run(lite, "gemini-cli", path).messages)
    assert added == [1, 1, 1]
    assert said(lite, "gemini-cli:gem") == [("user", "hi"), ("assistant", "hello"), ("system", "bye")]


# -- opencode, JSON, beads ---------------------------------------------------------------------------------------


def test_an_opencode_database_that_grows_is_read_again_where_it_changed(
    lite: standfast.Standfast, tmp_path: Path
) -> None:
    import apsw

    path = tmp_path / "opencode.db"
    database = apsw.Connection(str(path))
    for statement in (
        "CREATE TABLE session (id, parent_id, directory, title, version, time_created, time_updated)",
        "CREATE TABLE message (id, session_id, time_created, time_updated, data)",
        "CREATE TABLE part (id, message_id, session_id, time_created, time_updated, data)",
        "CREATE TABLE account (access_token)",
        "INSERT INTO account VALUES ('secret')",
        "INSERT INTO session VALUES ('ses_a', NULL, '/nowhere', 'A', '1.2', 1794279600000, 1)",
    ):
        database.execute(statement)

    def put(message: str, updated: int, part: dict[str, Any]) -> None:
        about = json.dumps({"role": "assistant", "time": {"created": 1794279600000}})
        database.execute("DELETE FROM message WHERE id = ?", (message,))
        database.execute("DELETE FROM part WHERE message_id = ?", (message,))
        database.execute("INSERT INTO message VALUES (?, 'ses_a', 1, ?, ?)", (message, updated, about))
        row = (f"p{message}", message, updated, json.dumps(part))
        database.execute("INSERT INTO part VALUES (?, ?, 'ses_a', 1, ?, ?)", row)

    tool = {"type": "tool", "tool": "bash", "callID": "c1"}
    put("m1", 5, {"type": "text", "text": "hi"})
    put("m2", 10, tool | {"state": {"status": "running", "input": {"command": "ls"}}})
    run(lite, "opencode", path)
    assert calls(lite) == [("c1", "bash", "unknown", None, None)]
    done = {"status": "completed", "input": {"command": "ls"}, "output": "a", "metadata": {"exit": 0}}
    put("m2", 20, tool | {"state": done})
    found = run(lite, "opencode", path)
    assert (found.messages, calls(lite)) == (0, [("c1", "bash", "ok", "a", 0)])
    assert found.counts["types"]["message"] == 1  # only the changed session was imported
    assert run(lite, "opencode", path).outcome == "same"
    database.close()


@pytest.mark.parametrize("table", ["session", "message", "part"])
def test_an_opencode_database_with_a_view_for_a_table_is_refused(
    lite: standfast.Standfast, tmp_path: Path, table: str
) -> None:
    """R45, 000-9: the importer reads only tables, because the rows of a view may never end."""
    import apsw

    path = tmp_path / "opencode.db"
    database = apsw.Connection(str(path))
    columns = {
        "session": "id, parent_id, directory, title, version, time_created, time_updated",
        "message": "id, session_id, time_created, time_updated, data",
        "part": "id, message_id, session_id, time_created, time_updated, data",
    }
    for name, listed in columns.items():
        if name != table:
            database.execute(f"CREATE TABLE {name} ({listed})")
    values = ", ".join(f"n AS {column.strip()}" for column in columns[table].split(","))
    endless = "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c) "
    database.execute(f"CREATE VIEW {table} AS {endless} SELECT {values} FROM c")
    database.close()
    found = run(lite, "opencode", path)
    assert (found.outcome, f"has no table '{table}'" in str(found.note)) == ("unreadable", True)


def test_an_opencode_database_that_takes_too_long_is_reported(
    lite: standfast.Standfast, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R45, 000-9: the time limit also stops a running SQLite query."""
    import apsw

    from standfast.interchange.transcripts import opencode

    path = tmp_path / "opencode.db"
    database = apsw.Connection(str(path))
    database.execute("CREATE TABLE session (id, parent_id, directory, title, version, time_created, time_updated)")
    database.execute("CREATE TABLE message (id, session_id, time_created, time_updated, data)")
    database.execute("CREATE TABLE part (id, message_id, session_id, time_created, time_updated, data)")
    database.execute(
        "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c LIMIT 20000)"
        " INSERT INTO message SELECT n, 'ses_a', n, n, '{}' FROM c"
    )
    database.close()
    monkeypatch.setattr(opencode, "FILE_MAX_S", 0.0)
    found = run(lite, "opencode", path)
    assert (found.outcome, "was not read within 0 s" in str(found.note)) == ("unreadable", True)


def test_a_json_session_is_imported_without_its_commands(sf: standfast.Standfast, tmp_path: Path) -> None:
    """001-6, 002-3: messages, tool results, decisions and values are imported, but not commands that verify a value
    (001-63).
    """
    path = tmp_path / "mine.json"
    path.write_text(
        json.dumps(
            {
                "id": "fix-42",
                "created_at": at(0),
                "messages": [
                    {"role": "user", "content": "fix it"},
                    {
                        "role": "assistant",
                        "tool_calls": [{"id": "c1", "function": {"name": "sh", "arguments": '{"command": "ls"}'}}],
                    },
                    {"role": "tool", "tool_call_id": "c1", "content": "a.txt"},
                ],
                "decisions": [{"what": "edit parser.py", "why": "the test names it"}],
                "files_read": ["a.txt"],
                "state": {"step": {"value": 3, "verify": "rm -rf /"}},
            }
        )
    )
    assert run(sf, "json", path).messages == 3
    assert calls(sf) == [("c1", "sh", "ok", "a.txt", None)]
    (decision,) = rows(sf, "SELECT what, why, state FROM decision")
    assert tuple(decision.values()) == ("edit parser.py", "the test names it", "done")
    values = rows(sf, "SELECT key, value, verify FROM state ORDER BY key")
    assert [tuple(row.values()) for row in values] == [("files_read", '["a.txt"]', None), ("step", "3", None)]
    (session,) = sf.sessions.list()
    assert sf.state.get("step", namespace=session.id).value == 3, "kept where the session reads it"
    assert run(sf, "json", path).outcome == "same"


def test_issues_of_beads_are_tasks_once(lite: standfast.Standfast, tmp_path: Path) -> None:
    from standfast.interchange import beads

    issues: list[dict[str, Any]] = [
        {
            "id": "bd-2",
            "title": "write it",
            "status": "open",
            "priority": 1,
            "dependencies": [{"depends_on_id": "bd-1"}],
        },
        {"id": "bd-1", "title": "think", "status": "open", "labels": ["x"], "description": "hard"},
        {"id": "bd-3", "title": "old", "status": "closed"},
        {"id": "bd-4", "title": "think", "status": "open", "dependencies": [{"depends_on_id": "bd-4"}]},
    ]
    path = write(tmp_path / ".beads" / "issues.jsonl", *issues)
    assert beads.run(lite.tasks, str(tmp_path))[2:] == (4, 3, 0, 0, 1, 0)
    assert [task.title for task in lite.tasks.list(limit=10)].count("think") == 2
    write(path, issues[0], issues[1] | {"status": "closed"})
    assert beads.run(lite.tasks, str(path))[2:] == (2, 0, 2, 1, 0, 0)
    assert {task.title: task.occurrences for task in lite.tasks.list(limit=10)} == {"write it": 1, "think": 1}
    with pytest.raises(standfast.NotFound):
        beads.run(lite.tasks, str(tmp_path / "nowhere"))


# -- secrets and strangers ---------------------------------------------------------------------------------------


def test_secrets_are_removed_before_anything_is_stored(sf: standfast.Standfast, tmp_path: Path) -> None:
    disguised = json.dumps(user("u2", "x")).replace('"x"', '"\\u0067hp_' + KEY[4:] + '"')
    path = write(
        tmp_path / "s.jsonl",
        user("u1", f"my key is {KEY}"),
        disguised,
        assistant("a1", call("t1", command=f"curl -H 'Authorization: Bearer {KEY}'")),
        result("r1", "t1", f"postgres://me:{KEY}@host/db"),
    )
    run(sf, "claude-code", path)
    import zlib

    batches = rows(sf, "SELECT raw FROM import_batch")
    kept = b"".join(zlib.decompress(bytes(row["raw"])) for row in batches).decode()
    kept += str(everything(sf)) + str(rows(sf, "SELECT summary, data FROM event"))
    kept += str(rows(sf, "SELECT summary FROM message")) + str(rows(sf, "SELECT summary FROM tool_call"))
    assert KEY not in kept
    assert KEY[4:] not in kept
    assert "[redacted:github]" in kept


def test_a_search_in_bulk_finds_what_a_search_by_line_finds() -> None:
    examples = {
        "sk-ant-" + "a" * 24,
        "sk-proj-" + "b" * 24,
        "sk-" + "c" * 40,
        "ghp_" + "d" * 36,
        "github_pat_" + "e" * 22,
        "glpat-" + "f" * 20,
        "AKIA" + "G" * 16,
        "aws_secret_access_key = " + "h" * 40,
        "AIza" + "i" * 35,
        "ya29." + "j" * 20,
        "GOCSPX-" + "k" * 20,
        "xoxb-" + "1" * 12,
        "xapp-1-" + "l" * 20,
        "hooks.slack.com/services/" + "M" * 24,
        "sk_live_" + "n" * 16,
        "rk_live_" + "n" * 16,
        "sk_test_" + "n" * 16,
        "whsec_" + "o" * 24,
        "npm_" + "p" * 36,
        "pypi-AgE" + "q" * 50,
        "hf_" + "r" * 30,
        "gsk_" + "s" * 40,
        "xai-" + "t" * 40,
        "SG." + "u" * 16 + "." + "v" * 16,
        "dop_v1_" + "a" * 64,
        "dckr_pat_" + "w" * 20,
        "hvs." + "x" * 24,
        "AGE-SECRET-KEY-1" + "Y" * 58,
        "eyJ" + "a" * 10 + ".eyJ" + "b" * 10 + "." + "c" * 10,
        "-----BEGIN PRIVATE KEY-----abc-----END PRIVATE KEY-----",
        "Bearer " + "z" * 20,
        "postgres://me:secret@host",
    }
    names = {shape.name for shape in redaction.SHAPES}
    assert {redaction.redacted(example).partition("redacted:")[2].partition("]")[0] for example in examples} == names
    for example in examples:
        assert redaction.suspicious(f"plain\n{example}\nplain".encode()), example
    assert redaction.suspicious(b"a task-list, https://example.org/path, some_long_name_in_code, disk-space") == []


HOSTILE = {
    "a megabyte in one line": json.dumps(user("u1", "x" * 1_000_000)),
    "too deep to decode": '{"type": "user", "message": ' + "[" * 100_000 + "]" * 100_000 + "}",
    "deep enough to decode": json.dumps(user("u1", "x"))[:-1] + ', "more": ' + "[" * 500 + "]" * 500 + "}",
    "a lone surrogate": '{"type":"user","uuid":"u1","sessionId":"s","message":{"content":"\\ud83d broken"}}',
    "a lone surrogate in an id": '{"type":"user","uuid":"\\ud83d","sessionId":"\\udc00","message":{"content":"x"}}',
    "NUL": '{"type":"user","uuid":"u\\u0000","sessionId":"s\\u0000","message":{"content":"a\\u0000b"}}',
    "a path for an id": json.dumps(
        user("../../u", "x", sessionId="../../../etc/passwd", agentId="../x", isSidechain=True)
    ),
    "an endless id": json.dumps(user("u" * 100_000, "x", sessionId="s" * 100_000)),
    "an id that is none": '{"type":"user","uuid":{"a":1},"sessionId":[1],"message":{"content":{"x":1}}}',
    "numbers without end": '{"type":"user","uuid":"u","message":{"content":"x"},"n":' + "9" * 10_000 + "}",
    "not a number": '{"type":"user","uuid":"u","timestamp":NaN,"message":{"content":"x","usage":{"input_tokens":NaN}}}',
    "wrong types": '{"type":"assistant","uuid":1,"message":[],"timestamp":{},"sessionId":0,"isSidechain":"y"}',
    "a time before time": '{"type":"user","uuid":"u","timestamp":"0001-01-01T00:00:00Z","message":{"content":"x"}}',
    "not UTF-8": '{"type":"user","uuid":"u","message":{"content":"\udcff\udcfe"}}',
    "control characters": json.dumps(user("u1", "\x1b[2J\x07bell", sessionId="\x1b[2J")),
}


@pytest.mark.parametrize("agent", ["codex", "gemini-cli", "json"])
def test_a_hostile_line_stops_no_other_agents_import_either(
    lite: standfast.Standfast, tmp_path: Path, agent: str
) -> None:
    survives(lite, tmp_path, agent)


def test_a_hostile_line_is_stored_or_counted_and_the_lines_around_it_are_imported(
    sf: standfast.Standfast, tmp_path: Path
) -> None:
    """A malicious line stops the import of no other line, and changes nothing outside the store."""
    survives(sf, tmp_path, "claude-code")


def survives(sf: standfast.Standfast, tmp_path: Path, agent: str) -> None:
    for number, (name, line) in enumerate(HOSTILE.items()):
        path = tmp_path / f"session-{number}.jsonl"
        good = {
            "claude-code": user("good", f"still here {number}", sessionId=f"good-{number}"),
            "codex": message("user", f"still here {number}"),
            "gemini-cli": gemini("good", "user", f"still here {number}"),
            "json": {"role": "user", "content": f"still here {number}"},
        }[agent]
        if agent == "claude-code":
            good["uuid"] = f"good-{number}"
        path.write_bytes((line + "\n").encode("utf-8", "surrogateescape") + json.dumps(good).encode() + b"\n")
        found = run(sf, agent, path)
        assert found.outcome == "new", name
        assert rows(sf, "SELECT id FROM message WHERE content = :text", text=f"still here {number}"), name
        assert run(sf, agent, path).outcome == "same", name
    keys = [row["key"] for row in rows(sf, "SELECT key FROM session")]
    assert all(key.isprintable() and len(key) < 300 for key in keys)
    assert sorted(entry.name for entry in tmp_path.iterdir() if entry.name.startswith("session")) == sorted(
        f"session-{number}.jsonl" for number in range(len(HOSTILE))
    )


def test_a_line_too_long_to_hold_is_passed_over_and_counted(
    lite: standfast.Standfast, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "LINE_MAX_BYTES", 2000)
    path = write(tmp_path / "s.jsonl", user("u1", "one"), user("u2", "x" * 5000), user("u3", "three"))
    found = run(lite, "claude-code", path)
    assert (found.messages, found.counts["oversized"]) == (2, 1)


def test_a_path_that_is_no_regular_file_is_skipped(lite: standfast.Standfast, tmp_path: Path) -> None:
    folder = tmp_path / "p"
    write(folder / "real.jsonl", *night())
    os.mkfifo(folder / "pipe.jsonl")
    (folder / "link.jsonl").symlink_to(folder / "real.jsonl")
    (folder / "round").symlink_to(folder)
    report = lite.imports.run("claude-code", folder)
    assert {Path(source.path).name: source.outcome for source in report.sources} == {
        "real.jsonl": "new",
        "pipe.jsonl": "unreadable",
    }
    with pytest.raises(standfast.NotFound):
        lite.imports.run("claude-code", tmp_path / "nowhere")
    with pytest.raises(standfast.InvalidInput, match="missing"):
        lite.imports.run("missing", folder)


# -- together with other importers -------------------------------------------------------------------------------


def test_many_importers_at_once_leave_what_one_leaves(
    engine_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two importers read one file: the slower one continues at the position of the faster one."""
    monkeypatch.setattr(files, "PIECE_LINES", 20)
    folder = tmp_path / "p"
    for number in range(3):
        write(folder / f"{number}.jsonl", *night(f"{number}{SESSION[1:]}", count=40))
    copied = [record | {"sessionId": "fork"} for record in night(f"0{SESSION[1:]}", count=40)]
    write(folder / "fork.jsonl", *copied, user("own", "mine", sessionId="fork"))
    alone = tmp_path / "alone"
    with standfast.open(alone / "standfast.db", data_dir=alone) as one:
        one.imports.run("claude-code", folder)
        wanted = everything(one)
    handles = [standfast.open(engine_url, data_dir=tmp_path / "data") for _ in range(3)]
    errors: list[BaseException] = []

    def work(lite: standfast.Standfast) -> None:
        try:
            lite.imports.run("claude-code", folder)
        except BaseException as error:  # noqa: BLE001 - the test checks the errors itself
            errors.append(error)

    threads = [threading.Thread(target=work, args=(lite,)) for lite in handles]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    found = everything(handles[0])
    assert found["tool_call"] == wanted["tool_call"]
    assert [row["native"] for row in found["message"]] == [row["native"] for row in wanted["message"]]
    assert found["usage"] == wanted["usage"]
    for lite in handles:
        lite.close()


def test_a_hook_and_an_import_share_the_session_and_the_call(sf: standfast.Standfast, tmp_path: Path) -> None:
    """Both use the agent and its session id as the key, so the transcript continues the session that a hook opened."""
    opened = sf.sessions.open(f"claude-code:{SESSION}", agent="claude-code")
    run(sf, "claude-code", write(tmp_path / "s.jsonl", *night()))
    session = sf.sessions.get(f"claude-code:{SESSION}")
    assert (session.id, session.state) == (opened.record.id, "active")
    assert len(said(sf)) == 4


def test_the_timeline_answers_about_last_tuesday_right_after_an_import(
    sf: standfast.Standfast, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """000-17: without hooks, the timeline shows the events of 3am on Tuesday. 000-18: its rows are marked `said`."""
    import time

    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    run(sf, "claude-code", write(tmp_path / "s.jsonl", *night()))
    found = sf.timeline(at="2026-11-10 03:00", window="1h")
    assert [(entry.type, entry.state, entry.source) for entry in found.entries] == [
        ("message.said", None, "said"),
        ("message.said", None, "said"),
        ("tool.called", "error", "said"),
    ]
    assert [entry.summary for entry in found.entries][-1] == "Bash make test"
    assert {entry.agent for entry in found.entries} == {"claude-code"}
    only = sf.timeline(at="2026-11-10 03:00", type="tool", session=f"claude-code:{SESSION}")
    assert [entry.type for entry in only.entries] == ["tool.called"]
    assert sf.timeline(at="2026-11-10 03:00", type="effect").entries == []
    gaps = sf.timeline(at="2026-11-10 02:00", window="30m").gaps
    assert [gap.until_us for gap in gaps] == [1_794_279_600_000_000]


def test_an_import_is_one_row_of_the_journal_per_batch(
    lite: standfast.Standfast, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "PIECE_LINES", 500)
    run(lite, "claude-code", write(tmp_path / "s.jsonl", *night(count=150)))
    events = [event.type for event in lite.journal.tail(limit=100).events]
    assert events.count("import.recorded") == 2  # 600 records in pieces of 500
    assert set(events) == {"import.recorded"}


def test_memory_is_flat_in_the_size_of_the_file(tmp_path: Path) -> None:
    """Measured: for a file that is 27 MB larger, memory grows by at most two pieces (8 MB)."""
    import tracemalloc

    peaks, path = [], tmp_path
    for size in (3000, 12000):  # growth of more than two pieces, for a file with more than eight
        folder = tmp_path / str(size)
        path = write(folder / "s.jsonl", *(user(f"{size}-{n}", "x" * 3000) for n in range(size)))
        with standfast.open(folder / "standfast.db", data_dir=folder) as sf:
            tracemalloc.start()
            sf.imports.run("claude-code", path)
            peaks.append(tracemalloc.get_traced_memory()[1])
            tracemalloc.stop()
    assert path.stat().st_size > 8 * files.PIECE_BYTES
    # The writer thread may still hold one piece while the reader fills the next: the peak varies by a piece.
    assert peaks[1] < peaks[0] + 2 * files.PIECE_BYTES
    assert peaks[1] < 9 * files.PIECE_BYTES


@pytest.mark.parametrize("agent", ["claude-code", "codex", "gemini-cli", "opencode"])
def test_one_conversation_in_the_format_of_each_agent_is_the_same(lite: standfast.Standfast, agent: str) -> None:
    """000-9: a question, a failed command and an answer, in the format of each agent."""
    (path,) = (Path(__file__).parents[1] / "fixtures" / "transcripts" / agent).iterdir()
    found = run(lite, agent, path)
    assert (found.outcome, found.counts["bad"], found.counts["unknown"]) == ("new", 0, {})
    spoken = rows(lite, "SELECT role, content FROM message WHERE role IN ('user', 'assistant') ORDER BY position")
    assert [tuple(row.values()) for row in spoken] == [
        ("user", "why is the build red?"),
        ("assistant", "the parser is broken"),
    ]
    assert [(id, status, output) for id, _, status, output, _ in calls(lite)] == [("call_1", "error", "1 failed")]
    (used,) = rows(lite, "SELECT sum(input_tokens) AS input, sum(output_tokens) AS output FROM usage")
    assert (used["input"], used["output"]) == (160, 12)
    assert run(lite, agent, path).outcome == "same"


def test_a_summary_is_one_line_of_at_most_its_limit() -> None:
    """002-36: a list shows summaries of at most 200 characters."""
    from standfast.interchange.transcripts.model import one_line

    assert one_line("a  b", 200) == "a b"
    assert one_line("word " * 100, 20) == "word word word word…"
    assert one_line("x" * 200, 200) == "x" * 200
    assert one_line("x" * 201, 200) == "x" * 199 + "…"


def test_the_output_of_a_gemini_call_is_the_text_of_every_part_of_its_result() -> None:
    from standfast.interchange.transcripts.gemini_cli import _output

    def response(**answer: Any) -> dict[str, Any]:
        return {"functionResponse": {"id": "c1", "response": answer}}

    assert _output([response(output="a.txt"), response(error="denied"), {"text": "b"}]) == "a.txt\ndenied\nb"
    assert _output([response(output=None), None, "x"]) == _output([response(output=None)])
    assert _output("a text") == ""
