"""Messages: positions, keys, sub-agents, forks and redaction, and reading the last few of 100,000."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import standfast
from standfast import config, handle, serial
from standfast.db.sql import statement
from standfast.record.messages import Message
from standfast.serial.redaction import SHAPES, redacted


def said(messages: list[Message]) -> list[tuple[int, str, Any]]:
    return [(message.position, message.role, message.content) for message in messages]


def test_messages_are_returned_unchanged_and_in_order(sf: standfast.Standfast) -> None:
    """003-10: each message has a position, in order and unique in its conversation."""
    with sf.session("k") as s:
        first = s.say("user", "hello\nthere\t“quoted”")
        second = s.say("assistant", {"text": "hi", "calls": [1, 2.5, None]})
        third = s.say("tool", "")
        assert said(s.messages()) == [
            (1, "user", "hello\nthere\t“quoted”"),
            (2, "assistant", {"text": "hi", "calls": [1, 2.5, None]}),
            (3, "tool", ""),
        ]
    assert (first.format, second.format, third.format) == ("text", "json", "text")
    assert [m.receipt is not None for m in (first, second, third)] == [True] * 3
    assert [m.id for m in sf.sessions.messages("k")] == [first.id, second.id, third.id]
    heard = sf.journal.about(first.id)
    assert [(e.type, e.source, e.summary) for e in heard] == [("message.said", "said", "user: hello there “quoted”")]


def test_a_text_that_looks_like_json_stays_a_text(sf: standfast.Standfast) -> None:
    with sf.session("k") as s:
        s.say("user", '{"a": 1}')
        s.say("user", "null")
        s.say("user", None)
        assert [m.content for m in s.messages()] == ['{"a": 1}', "null", None]


def test_a_key_stores_one_message_and_another_content_is_a_conflict(sf: standfast.Standfast) -> None:
    """000-19: a caller may retry with the same key. Other content under that key is refused."""
    with sf.session("k") as s:
        one = s.say("user", "hello", key="greeting")
        again = s.say("user", "hello", key="greeting")
        assert (again.id, again.position, again.receipt) == (one.id, 1, None)
        for role, content in (("user", "goodbye"), ("assistant", "hello"), ("user", ["hello"])):
            with pytest.raises(standfast.KeyConflict, match="'greeting' was used for another message: user at"):
                s.say(role, content, key="greeting")
        s.say("user", "hello")
        assert [m.content for m in s.messages()] == ["hello", "hello"]
    assert sf.sessions.say("k", "user", "hello", key="greeting").id == one.id


def test_concurrent_messages_get_a_position_each_and_a_key_still_counts_once(sf: standfast.Standfast) -> None:
    """002-16: any process may add a message, with or without the lease of the session."""
    with sf.session("k"):
        pass
    start = threading.Barrier(8)

    def speak(name: int) -> None:
        start.wait()
        for n in range(10):
            sf.sessions.say("k", "assistant", f"{name}.{n}")
        sf.sessions.say("k", "assistant", "the same", key="once")

    threads = [threading.Thread(target=speak, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    heard = sf.sessions.messages("k", last=200)
    assert [m.position for m in heard] == list(range(1, 82))
    assert len({m.content for m in heard}) == 81


def test_the_last_few_and_pages_behind_a_position(sf: standfast.Standfast) -> None:
    with sf.session("k") as s:
        for n in range(1, 11):
            s.say("user", n)
        assert [m.content for m in s.messages(last=3)] == [8, 9, 10]
        assert [m.content for m in s.messages(after=0, last=4)] == [1, 2, 3, 4]
        assert [m.content for m in s.messages(after=8, last=4)] == [9, 10]
        assert s.messages(after=10) == []
        for last in (0, -1, 1001):
            with pytest.raises(standfast.InvalidInput, match="last is a number from 1 to 1000"):
                s.messages(last=last)


def test_sub_agents_have_conversations_of_their_own(sf: standfast.Standfast) -> None:
    """003-12: each sub-agent has one node with its own log, which survives restarts."""
    with sf.session("k") as s:
        s.say("user", "root")
        reviewer = s.subagent("reviewer", title="reads the diff")
        reviewer.say("user", "review")
        reviewer.subagent("tests").say("user", "run them")
        assert s.subagent("reviewer") is reviewer
        ids = (s.node_id, reviewer.node_id, reviewer.subagent("tests").node_id)
    with sf.session("k") as s:
        reviewer = s.subagent("reviewer")
        assert (s.node_id, reviewer.node_id, reviewer.subagent("tests").node_id) == ids
        reviewer.say("assistant", "fine")
        assert said(reviewer.messages()) == [(1, "user", "review"), (2, "assistant", "fine")]
        assert said(s.messages()) == [(1, "user", "root")]
        assert s.resumed is not None
        assert s.resumed.messages == 3
    assert [(n.name, n.title) for n in sf.sessions.nodes("k")] == [
        ("", None),
        ("reviewer", "reads the diff"),
        ("tests", None),
    ]
    assert said(sf.sessions.messages("k", node="reviewer/tests")) == [(1, "user", "run them")]
    with pytest.raises(standfast.NotFound, match="has no sub-agent 'missing'"):
        sf.sessions.messages("k", node="missing")
    sf.sessions.say("k", "user", "hello", node="missing")
    assert said(sf.sessions.messages("k", node="missing")) == [(1, "user", "hello")]


@pytest.mark.parametrize("name", ["", "a/b", "x" * 201, "a\0", "\n"])
def test_a_bad_name_of_a_sub_agent_is_refused(sf: standfast.Standfast, name: str) -> None:
    with sf.session("k") as s, pytest.raises(standfast.InvalidInput, match="sub-agent's name"):
        s.subagent(name)


BAD: dict[str, tuple[Any, str]] = {
    "nan": ({"a": float("nan")}, r"content\.a: NaN is not JSON"),
    "infinity": ([float("inf")], r"content\[0\]: Infinity"),
    "nul": ("a\0b", "content: a NUL character"),
    "surrogate": ("a\udc80", r"content: a lone surrogate \(U\+DC80\)"),
    "bytes": (b"raw", "content: bytes is not a value"),
    "big integer": (2**63, "content: an integer must be"),
    "oversized": ("x" * (serial.PAYLOAD_MAX_BYTES + 1), "content: 8,388,6.. bytes, and the limit is"),
    "object": (object(), "content: object is not"),
}


@pytest.mark.parametrize("what", BAD)
def test_what_cannot_be_stored_is_refused_by_name_and_nothing_changes(sf: standfast.Standfast, what: str) -> None:
    content, wanted = BAD[what]
    with sf.session("k") as s:
        for key in (None, "key"):
            with pytest.raises(standfast.InvalidInput, match=wanted):
                s.say("user", content, key=key)
        assert s.messages() == []
        s.say("user", "after")
        assert s.messages()[0].position == 1


@pytest.mark.parametrize(("role", "key"), [("", None), ("x" * 51, None), ("user", ""), ("user", "a\0"), ("a\nb", None)])
def test_a_bad_role_or_key_is_refused_by_name(sf: standfast.Standfast, role: str, key: str | None) -> None:
    with sf.session("k") as s, pytest.raises(standfast.InvalidInput, match=r"^(role|key) "):
        s.say(role, "x", key=key)


def test_a_message_joins_a_transaction(sf: standfast.Standfast) -> None:
    with sf.session("k"):
        pass
    with pytest.raises(standfast.NotFound), sf.transaction() as tx:
        tx.state.set("never", tx.sessions.say("k", "user", "never").id and tx.sessions.get("missing").id)
    with sf.transaction() as tx:
        tx.sessions.say("k", "user", "one")
        tx.state.set("seen", 1)
    assert said(sf.sessions.messages("k")) == [(1, "user", "one")]


# -- forks --------------------------------------------------------------------------------------------


def test_a_fork_shares_the_messages_before_the_cut_and_copies_nothing(sf: standfast.Standfast) -> None:
    """002-21, 001-59: a fork points to the messages of its parent, and copies none."""
    with sf.session("main") as s:
        for n in range(1, 6):
            s.say("user", n)
            s.cursor = n
            s.step("double", lambda n: n * 2, n)
            s.state["n"] = n
        s.subagent("helper").say("user", "late")
    fork = sf.sessions.fork("main", "try", at=3)
    assert (fork.state, fork.cut_position, fork.openings, fork.reason) == ("waiting", 3, 0, "forked from main at 3")
    ran = []
    with sf.session("try") as s:
        assert s.resumed is not None
        assert (s.resumed.state, s.resumed.messages) == ("waiting", 3)
        assert said(s.messages()) == [(1, "user", 1), (2, "user", 2), (3, "user", 3)]
        assert (s.cursor, s.state["n"]) == (3, 3)
        for n in range(1, 6):
            s.step("double", lambda n: ran.append(n) or n * 2, n)
        assert ran == [4, 5]
        assert s.say("user", "another way").position == 4
        assert s.subagent("helper").messages() == []
        assert [m.content for m in s.messages(last=2)] == [3, "another way"]
        assert [m.content for m in s.messages(after=1, last=2)] == [2, 3]
        assert [m.content for m in s.messages(after=2, last=2)] == [3, "another way"]
        s.state["n"] = 30
        del s.state["n"]
        assert dict(s.state) == {}
    with sf.session("main") as s:
        assert s.say("user", "goes on").position == 6
        assert s.state["n"] == 5
    assert [m.content for m in sf.sessions.messages("try")] == [1, 2, 3, "another way"]
    count = next(sf.rows("SELECT count(*) AS n FROM message"))["n"]
    assert count == 5 + 1 + 1 + 1


def test_a_fork_of_a_fork_sees_through_both_cuts(sf: standfast.Standfast) -> None:
    with sf.session("a") as s:
        for n in (1, 2, 3):
            s.say("user", f"a{n}")
        s.say("user", "greeting", key="hello")
        s.subagent("helper").say("user", "helped")
    sf.sessions.fork("a", "b")
    with sf.session("b") as s:
        s.say("user", "b5")
        assert s.say("user", "greeting", key="hello").position == 4
        assert [m.content for m in s.subagent("helper").messages()] == ["helped"]
        assert s.subagent("helper").say("user", "again").position == 2
    sf.sessions.fork("b", "c")
    with sf.session("c") as s:
        assert [m.content for m in s.messages()] == ["a1", "a2", "a3", "greeting", "b5"]
        assert [m.content for m in s.subagent("helper").messages()] == ["helped", "again"]
        s.say("user", "c6")
        assert [m.content for m in s.messages(last=3)] == ["greeting", "b5", "c6"]
    early = sf.sessions.fork("c", "d", at=2)
    assert early.cut_position == 2
    with sf.session("d") as s:
        assert [m.content for m in s.messages()] == ["a1", "a2"]
        assert [m.content for m in s.context().messages] == ["a1", "a2"]
        assert s.subagent("helper").messages() == []
        assert s.say("user", "greeting", key="hello").position == 3


def test_the_same_fork_again_is_the_one_there_is(sf: standfast.Standfast) -> None:
    with sf.session("a") as s:
        s.say("user", 1)
    with sf.session("other"):
        pass
    fork = sf.sessions.fork("a", "b", at=1)
    assert sf.sessions.fork("a", "b", at=1).id == sf.sessions.fork("a", "b").id == fork.id
    assert sf.sessions.fork("a", at=1).key == sf.sessions.fork("a").key == "a@1"
    for parent, new, at in (("a", "b", 0), ("a", "other", None), ("other", "b", None)):
        with pytest.raises(standfast.KeyConflict, match="is no fork of this one"):
            sf.sessions.fork(parent, new, at=at)
    for at in (-1, 2):
        with pytest.raises(standfast.InvalidInput, match=f"no position {at}: it has 1 messages"):
            sf.sessions.fork("a", "c", at=at)
    with pytest.raises(standfast.InvalidInput, match="the new key"):
        sf.sessions.fork("a", "")


def test_a_value_in_a_fork_is_the_one_at_the_cut(sf: standfast.Standfast) -> None:
    with sf.session("a") as s:
        s.state["kept"] = "then"
        s.state["gone"] = "then"
        sf.sessions.fork("a", "b")
        s.state["kept"] = "now"
        del s.state["gone"]
        s.state["new"] = "now"
    with sf.session("b") as s:
        assert dict(s.state) == {"kept": "then", "gone": "then"}
        del s.state["gone"]
        assert sorted(s.state) == ["kept"]
        with pytest.raises(KeyError):
            s.state["gone"]
    with sf.session("a") as s:
        assert dict(s.state) == {"kept": "now", "new": "now"}


# -- redaction ----------------------------------------------------------------------------------------

SECRETS = {
    "anthropic": "sk-ant-api03-" + "aB3_" * 20,
    "openai": "sk-proj-" + "aB3-" * 20,
    "openai, the old shape": "sk-" + "aB3d" * 12,
    "github": "ghp_" + "aB3d" * 9,
    "github, fine-grained": "github_pat_" + "aB3d" * 15,
    "gitlab": "glpat-" + "aB3d" * 5,
    "aws": "AKIA" + "A1B2" * 4,
    "aws, the secret": "aws_secret_access_key = " + "aB3/" * 10,
    "google": "AIza" + "aB3d_" * 7,
    "google, oauth": "ya29." + "aB3d" * 10,
    "google, client": "GOCSPX-" + "aB3d" * 7,
    "slack": "xoxb-" + "123-abc" * 4,
    "slack, app": "xapp-1-" + "A1B2" * 8,
    "slack, hook": "https://hooks.slack.com/services/T000/B000/" + "aB3d" * 6,
    "stripe": "sk_live_" + "aB3d" * 6,
    "stripe, webhook": "whsec_" + "aB3d" * 8,
    "npm": "npm_" + "aB3d" * 9,
    "pypi": "pypi-AgEIcHlwaS5vcmc" + "aB3d" * 15,
    "huggingface": "hf_" + "aB3d" * 8,
    "groq": "gsk_" + "aB3d" * 12,
    "xai": "xai-" + "aB3d" * 15,
    "sendgrid": "SG." + "aB3d" * 5 + "." + "aB3d" * 10,
    "digitalocean": "dop_v1_" + "ab12" * 16,
    "docker": "dckr_pat_" + "aB3d" * 6,
    "vault": "hvs." + "aB3d" * 8,
    "age": "AGE-SECRET-KEY-1" + "A1" * 29,
    "jwt": "eyJ" + "aB3d" * 5 + ".eyJ" + "aB3d" * 5 + "." + "aB3d" * 5,
    "private-key": "-----BEGIN OPENSSH PRIVATE KEY-----\naB3d\n-----END OPENSSH PRIVATE KEY-----",
    "bearer": "Authorization: Bearer " + "aB3d" * 8,
    "password": "postgresql://me:s3cr%40t@host/db",
}
INNOCENT = [
    "task-management-with-a-long-descriptive-name-1",
    "sk-learn-compatible-estimators-in-the-wild-2",
    "task-0123456789abcdef0123456789abcdef on shelf_0123456789abcdef0123456789abcdef",
    "the risk-based-approach-to-everything-we-do-here",
    "see https://example.com:8080/path and http://host/a:b@c",
    "ghp_short, AKIA, sk-, eyJ, Bearer of news, npm_install, hf_hub_download, xai-grok",
    "-----BEGIN PUBLIC KEY-----\nabc\n-----END PUBLIC KEY-----",
    "commit 8f14e45fceea167a5a36dedd4bea2543 by a@b.c",
]


def test_secrets_of_well_known_shape_are_not_stored(sf: standfast.Standfast) -> None:
    with sf.session("k") as s:
        for kind, secret in SECRETS.items():
            name = kind.partition(",")[0]
            s.say("user", f"use {secret}, please")
            s.say("tool", {"output": f"\n{secret}\n", "ok": True})
            s.say("tool", f"\x1b[31m[{secret}]\x1b[0m")
            plain, value, coloured = (m.content for m in s.messages(last=3))
            assert plain.startswith("use "), kind
            assert plain.endswith(", please"), kind
            assert value["ok"] is True
            assert [f"[redacted:{name}]" in text for text in (plain, value["output"], coloured)] == [True] * 3, kind
    everything = json.dumps(list(sf.rows("SELECT content FROM message")))
    everything += json.dumps([event.summary for event in sf.journal.tail(limit=1000).events])
    assert sf.sessions.get("k").preview == "use [redacted:anthropic], please"
    for token in ("aB3d", "A1B2", "aB3", "ab12", "s3cr"):
        assert token not in everything


def test_every_shape_has_its_example() -> None:
    told = {shape: [s for s in SECRETS.values() if re.search(shape.pattern, s)] for shape in SHAPES}
    assert [shape.name for shape, examples in told.items() if not examples] == []


@pytest.mark.parametrize("text", INNOCENT)
def test_a_text_that_only_resembles_a_secret_stays(text: str) -> None:
    assert redacted(text) == text


def test_redaction_is_idempotent_and_leaves_json_json() -> None:
    for secret in SECRETS.values():
        text = serial.dumps({"a": f'"{secret}"', "b": [secret]})
        once = redacted(text)
        assert redacted(once) == once
        assert set(json.loads(once)) == {"a", "b"}


def test_the_same_secret_under_one_key_is_stored_once_and_another_is_a_conflict(sf: standfast.Standfast) -> None:
    with sf.session("k") as s:
        s.say("user", SECRETS["github"], key="a")
        assert s.say("user", SECRETS["github"], key="a").content == "[redacted:github]"
        with pytest.raises(standfast.KeyConflict):
            s.say("user", SECRETS["github"].swapcase().replace("GHP", "ghp"), key="a")


def test_redaction_can_be_switched_off(engine_url: str, tmp_path: Path) -> None:
    settings = config.load(engine_url, data_dir=tmp_path / "data")
    settings = settings._replace(options=settings.options.replace(redact=False))
    with handle.connect(settings) as sf, sf.session("k") as s:
        s.say("user", SECRETS["github"])
        assert s.messages()[0].content == SECRETS["github"]


# -- 100,000 messages -----------------------------------------------------------------------------------

FILL = statement(
    """
    WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < :count)
    INSERT INTO message (id, session_id, node_id, position, role, format, content, hash, actor, created_us,
                         occurred_us)
    SELECT :node_id || '-' || i, :session_id, :node_id, i, 'user', 'text', 'message ' || i, 'h', 'a', 1, 1
    FROM n
    """
)
COUNTED = statement("UPDATE node SET next_position = :count + 1 WHERE id = :node_id")


def fill(sf: standfast.Standfast, key: str, count: int) -> None:
    with sf.session(key) as s:
        node = {"node_id": s.node_id, "count": count}
        sf._store.write(lambda tx: (tx.run(FILL, session_id=s.id, **node), tx.run(COUNTED, **node)))


def resume(url: str, data: Path, key: str) -> None:
    with standfast.open(url, data_dir=data) as sf, sf.session(key) as s:
        assert s.resumed is not None
        last = s.messages(last=50)
        assert last[-1].position == s.resumed.messages
        s.say("user", "next")


@contextmanager
def steps_of_sqlite(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """The number of steps that SQLite's virtual machine takes for each statement."""
    import apsw

    from standfast.db.sqlite.open_store import OpenStore

    done: list[int] = []
    connect = OpenStore.connect

    def traced(store: OpenStore) -> apsw.Connection:
        connection = connect(store)
        connection.trace_v2(
            apsw.SQLITE_TRACE_PROFILE, lambda told: done.append(told["stmt_status"]["SQLITE_STMTSTATUS_VM_STEP"])
        )
        return connection

    with monkeypatch.context() as patch:
        patch.setattr(OpenStore, "connect", traced)
        yield done


def test_a_session_of_100_000_messages_resumes_without_reading_them_on_sqlite(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """002-13: the cost of a resume does not depend on the number of earlier messages."""
    url, data = str(tmp_path / "standfast.db"), tmp_path / "data"
    with standfast.open(url, data_dir=data) as sf:
        fill(sf, "small", 100)
        fill(sf, "large", 100_000)
    work = {}
    for key in ("small", "large"):
        with steps_of_sqlite(monkeypatch) as done:
            resume(url, data, key)
        work[key] = sum(done)
    assert 0 < work["large"] <= work["small"] * 1.05


def test_a_session_of_100_000_messages_resumes_without_reading_them_on_postgres(
    pg_database: str, tmp_path: Path
) -> None:
    """002-13: the server counts the rows that it reads from the table."""
    import psycopg

    data = tmp_path / "data"
    with standfast.open(pg_database, data_dir=data) as sf:
        fill(sf, "large", 100_000)

    def read_so_far(wanted: int) -> int:
        """A server counts the statements of a connection only after it is closed."""
        with psycopg.connect(pg_database, autocommit=True) as db:
            db.execute("ANALYZE standfast.message")
            while True:
                db.execute("SELECT pg_stat_clear_snapshot()")
                row = db.execute(
                    "SELECT seq_tup_read, idx_tup_fetch, n_tup_ins FROM pg_stat_user_tables WHERE relname = 'message'"
                ).fetchone()
                assert row is not None
                if row[2] >= wanted:
                    return int(row[0]) + int(row[1])

    before = read_so_far(100_000)
    resume(pg_database, data, "large")
    assert read_so_far(100_001) - before <= 52
