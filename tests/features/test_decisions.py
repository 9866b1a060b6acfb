"""Decisions: written before acting, once for any number of runs, and found again by the next process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

import standfast
from standfast import crash, when
from standfast.clock import ManualClock
from standfast.errors import (
    ApprovalRequired,
    EffectInDoubt,
    IllegalTransition,
    InvalidInput,
    LeaseLost,
    NotFound,
    StandfastError,
)
from standfast.ledger.decisions import Decision
from tests.interfaces.test_cli import run

DAY_US = 24 * 60 * 60 * 1_000_000


def told(sf: standfast.Standfast, id: str) -> list[str]:
    return [event.type for event in sf.journal.about(id)]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def timed(engine_url: str, tmp_path: Path, clock: ManualClock) -> Iterator[standfast.Standfast]:
    """A store whose time passes only on request."""
    with standfast.open(engine_url, data_dir=tmp_path / "data", agent="coder", clock=clock) as store:
        yield store


# -- in a session ------------------------------------------------------------------------------------------


def test_a_decision_is_on_disk_before_the_block_begins(sf: standfast.Standfast) -> None:
    """001-27, 001-33, 001-36: decision, rationale and planned action before acting; the outcome is empty until then."""
    with sf.session("fix-42", agent="coder") as s:
        s.say("user", "the build is red")
        with s.decide("edit parser.py", why="the test names it", then="patch, test, open a PR", tags=["ci"]) as d:
            with standfast.open(sf.settings.target.location, data_dir=sf.settings.data_dir) as other:
                (found,) = other.decisions.incomplete()
            assert found.replace(id="", created_us=0, session_id="", node_id="") == Decision(
                id="",
                scope="",
                repository=sf._store.caller.keyspace.repository,
                session_id="",
                node_id="",
                position=2,
                what="edit parser.py",
                why="the test names it",
                then="patch, test, open a PR",
                n=1,
                state="open",
                outcome=None,
                agent="coder",
                tags=("ci",),
                created_us=0,
                closed_us=None,
                session_key="fix-42",
                session_state="active",
            )
            d.outcome = "patched"
    done = sf.decisions.show(d.id)
    assert (done.state, done.outcome, done.closed_us is not None) == ("done", "patched", True)
    assert told(sf, d.id) == ["decision.made", "decision.done"]


def test_leaving_closes_it_as_done_without_an_outcome(sf: standfast.Standfast) -> None:
    with sf.session("k") as s, s.decide("go") as d:
        pass
    assert (d.state, d.decision.outcome) == ("done", None)


def test_an_exception_fails_it_with_its_last_line(sf: standfast.Standfast) -> None:
    with pytest.raises(ValueError, match="no way"), sf.session("k") as s, s.decide("go"):
        raise ValueError("no way\nout")
    (found,) = sf.decisions.list()
    assert (found.state, found.outcome) == ("failed", "ValueError: no way out")
    assert found.session_state == "failed"


@pytest.mark.parametrize(
    "error",
    [
        EffectInDoubt("outcome unknown"),
        ApprovalRequired("a person must say yes"),
        LeaseLost("taken over"),
        KeyboardInterrupt(),
        GeneratorExit(),
        BaseExceptionGroup("both", [EffectInDoubt("outcome unknown"), KeyboardInterrupt()]),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_decision_stays_open_if_the_session_will_continue(sf: standfast.Standfast, error: BaseException) -> None:
    with pytest.raises(type(error)), sf.session("k") as s, s.decide("go") as d:
        raise error
    assert sf.decisions.show(d.id).state == "open"
    with sf.session("k") as s, s.decide("go") as again:
        assert again.resumed
        assert again.id == d.id
    assert sf.decisions.show(d.id).state == "done"


@pytest.mark.parametrize(("code", "state"), [(0, "done"), (None, "done"), (3, "failed")])
def test_exiting_closes_it_by_its_code(sf: standfast.Standfast, code: int | None, state: str) -> None:
    with pytest.raises(SystemExit), sf.session("k") as s, s.decide("go") as d:
        sys.exit(code)
    assert sf.decisions.show(d.id).state == state


def test_a_program_run_from_the_top_decides_once(sf: standfast.Standfast) -> None:
    """The README's example run three times: one decision, closed, its outcome the first one."""
    runs = []
    for outcome in ("first", "second", "third"):
        with sf.session("k") as s, s.decide("edit", why=f"reason {outcome}", then="patch") as d:
            runs.append(outcome)
            d.outcome = outcome
    assert runs == ["first", "second", "third"]
    (found,) = sf.decisions.list()
    assert (found.outcome, found.why, found.state) == ("first", "reason first", "done")
    assert told(sf, found.id) == ["decision.made", "decision.done"]


def test_the_same_again_in_one_opening_is_another(sf: standfast.Standfast) -> None:
    for _ in range(2):
        with sf.session("k") as s:
            for n in (1, 2, 3):
                with s.decide("push", then="git push") as d:
                    d.outcome = n
                assert d.decision.n == n
    assert [(found.n, found.outcome) for found in sf.decisions.list()] == [(3, "3"), (2, "2"), (1, "1")]


def test_another_text_is_another_decision(sf: standfast.Standfast) -> None:
    with sf.session("k") as s:
        ids = {s.decide(what, then=then).id for what, then in [("a", "b"), ("a", None), ("b", "a"), ("b", "b")]}
        assert len(ids) == 4
    with sf.session("other") as s:
        assert s.decide("a", then="b").id not in ids


def test_two_sub_agents_may_decide_the_same(sf: standfast.Standfast) -> None:
    for _ in range(2):
        with sf.session("k") as s:
            made = {who.decide("approve it").id for who in (s, s.subagent("reader"), s.subagent("writer"))}
            assert len(made) == 3
    assert len(sf.decisions.list()) == 3


def test_a_failed_one_is_taken_up_again(sf: standfast.Standfast) -> None:
    """The journal has the failure, and the record has the final outcome."""
    with pytest.raises(ConnectionError), sf.session("k") as s, s.decide("deploy") as d:
        raise ConnectionError("down")
    with sf.session("k") as s, s.decide("deploy") as again:
        assert (again.id, again.resumed, again.state, again.outcome) == (d.id, True, "open", None)
        again.outcome = "live"
    assert sf.decisions.show(d.id).outcome == "live"
    assert told(sf, d.id) == ["decision.made", "decision.failed", "decision.reopened", "decision.done"]


def test_it_can_be_closed_by_hand_inside_the_block(sf: standfast.Standfast) -> None:
    with sf.session("k") as s:
        with s.decide("a") as a:
            assert a.done("early").outcome == "early"
        with s.decide("b") as b:
            sf.decisions.fail(b.id, "another person refused")
        assert (b.state, b.decision.outcome) == ("failed", "another person refused")
        with s.decide("c") as c:
            c.fail("not worth it")
        assert c.state == "failed"


def test_closing_never_fails_because_of_its_text(sf: standfast.Standfast) -> None:
    class Odd:
        def __str__(self) -> str:
            return "odd"

    outcomes = [{"b": 1, "a": [2]}, 7, Odd(), "nul\0 half\ud800", "x" * 30_000, float("nan")]
    kept = ['{"a":[2],"b":1}', "7", "odd", "nul half", "x" * 19_999 + "…", "nan"]
    with sf.session("k") as s:
        for n, (outcome, text) in enumerate(zip(outcomes, kept, strict=True)):
            with s.decide(f"try {n}") as d:
                d.outcome = outcome
            assert sf.decisions.show(d.id).outcome == text


def test_a_forked_child_closes_nothing_of_its_parents(sf: standfast.Standfast) -> None:
    with sf.session("k") as s, s.decide("go") as d:
        pid = os.fork()
        if pid == 0:
            try:
                d.__exit__(None, None, None)
                os._exit(0)
            except BaseException:  # noqa: BLE001  the parent sees the exit code
                os._exit(1)
        assert os.waitpid(pid, 0)[1] == 0
        assert sf.decisions.show(d.id).state == "open"
    assert sf.decisions.show(d.id).state == "done"


def test_death_between_deciding_and_acting_is_found(tmp_path: Path) -> None:
    """001-34, 001-35: the next process finds the open decision and continues it."""
    code = """
import os, sys, standfast
with standfast.open(sys.argv[1]) as sf, sf.session("k") as s, s.decide("deploy", then="make deploy"):
    os.kill(os.getpid(), 9)
"""
    path = str(tmp_path / "standfast.db")
    assert subprocess.run([sys.executable, "-c", code, path]).returncode == -signal.SIGKILL
    with standfast.open(path) as sf:
        (found,) = sf.decisions.incomplete()
        assert (found.what, found.then, found.session_key, found.session_state) == (
            "deploy",
            "make deploy",
            "k",
            "active",
        )
        with sf.session("k") as s:
            assert s.resumed is not None
            assert [one.what for one in s.resumed.decisions] == ["deploy"]
            with s.decide("deploy", then="make deploy") as d:
                assert d.resumed
        assert sf.decisions.incomplete() == []


@pytest.mark.parametrize("point", [name for name in crash.POINTS if name.startswith("decision.")])
def test_killed_at_every_point_there_is_one_decision_and_it_is_closed(tmp_path: Path, point: str) -> None:
    code = """
import sys, standfast
with standfast.open(sys.argv[1]) as sf, sf.session("k") as s, s.decide("deploy", then="now") as d:
    d.outcome = "deployed"
"""
    command = [sys.executable, "-c", code, str(tmp_path / "standfast.db")]
    killed = subprocess.run(command, env={**os.environ, "STANDFAST_CRASH_AT": point})
    assert killed.returncode == -signal.SIGKILL
    assert subprocess.run(command).returncode == 0
    with standfast.open(tmp_path / "standfast.db") as sf:
        (found,) = sf.decisions.list()
        assert (found.state, found.outcome) == ("done", "deployed")
        assert told(sf, found.id) == ["decision.made", "decision.done"]


def test_deciding_takes_part_in_a_transaction(sf: standfast.Standfast) -> None:
    with pytest.raises(ZeroDivisionError), sf.transaction() as tx:
        raise ZeroDivisionError(tx.decisions.record("never"))
    with sf.transaction() as tx:
        made = tx.decisions.record("together")
        tx.decisions.done(made.id, "at once")
    assert [(found.what, found.state) for found in sf.decisions.list()] == [("together", "done")]


# -- the resource ------------------------------------------------------------------------------------------------


def test_record_and_done_are_two_commands_of_one_decision(sf: standfast.Standfast) -> None:
    """001-9: a decision has its rationale and its session. The newest is listed first."""
    with sf.session("k", agent="coder"):
        first = sf.decisions.record("upgrade", why="a hole", then="pip install -U", session="k")
        assert first.agent == "coder"
        assert sf.decisions.record("upgrade", then="pip install -U", session="k").id == first.id
        done = sf.decisions.done(first.id, "upgraded")
        assert done.receipt is not None
        assert sf.decisions.done(first.id, "upgraded").id == first.id
        second = sf.decisions.record("upgrade", then="pip install -U", session="k")
        assert (second.id != first.id, second.n) == (True, 2)
        assert sf.journal.verify(str(done.receipt)).type == "decision.done"
    assert [found.id for found in sf.decisions.list()] == [second.id, first.id]


def test_outside_a_session_an_open_one_is_found_again_by_its_maker(sf: standfast.Standfast) -> None:
    made = sf.decisions.record("rotate the key", agent="ops")
    assert sf.decisions.record("rotate the key", agent="ops").id == made.id
    assert sf.decisions.record("rotate the key", agent="dev").id != made.id
    sf.decisions.done(made.id)
    assert sf.decisions.record("rotate the key", agent="ops").id != made.id


def test_a_closed_decision_stays_closed(sf: standfast.Standfast) -> None:
    made = sf.decisions.record("a")
    sf.decisions.done(made.id[-8:], "x")
    with pytest.raises(IllegalTransition, match="is done already, with another outcome"):
        sf.decisions.done(made.id, "y")
    with pytest.raises(IllegalTransition, match="is done and cannot become failed"):
        sf.decisions.fail(made.id)
    with pytest.raises(IllegalTransition):
        sf.decisions.withdraw(made.id)
    for unknown in ("dec_" + "0" * 26, "zzzzzz", "x", "art_" + "0" * 26):
        with pytest.raises(NotFound, match="there is no decision"):
            sf.decisions.done(unknown)
    with pytest.raises(NotFound, match="there is no session 'nope'"):
        sf.decisions.record("a", session="nope")


def test_standing_orders_come_first_until_they_are_withdrawn(sf: standfast.Standfast) -> None:
    """001-16, 001-31, 001-32: standing orders are explicit rules, always listed before recent decisions."""
    order = sf.decisions.record("write to a file, not to context only", why="contexts end", standing=True)
    assert sf.decisions.record("write to a file, not to context only", standing=True).id == order.id
    recent = [sf.decisions.record(f"d{n}").what for n in range(5)]
    first = sf.decisions.list(limit=3)
    assert [found.what for found in first] == [order.what, "d4", "d3"]
    rest = sf.decisions.list(limit=9, after=first[-1].id)
    assert [found.what for found in rest] == ["d2", "d1", "d0"]
    with pytest.raises(IllegalTransition, match="standing"):
        sf.decisions.done(order.id)
    withdrawn = sf.decisions.withdraw(order.id, "we have a store now")
    assert (withdrawn.state, withdrawn.outcome) == ("withdrawn", "we have a store now")
    assert [found.what for found in sf.decisions.list(limit=5)] == recent[::-1]
    assert told(sf, order.id) == ["decision.made", "decision.withdrawn"]
    again = sf.decisions.record("write to a file, not to context only", standing=True)
    assert again.id != order.id


def test_by_agent_tag_time_and_text_is_one_question(timed: standfast.Standfast, clock: ManualClock) -> None:
    """001-23: all decisions by agent X in the last 7 days about topic Y."""
    record = timed.decisions.record
    record("old one about the parser", agent="x", tags=["parser"])
    clock.advance("8d")
    moment_us = clock.now_us()
    record("rewrite it", why="The Parser is slow", agent="x", tags=["parser", "speed"])
    clock.advance("1d")
    record("leave it", agent="y", tags=["parser"])
    record("100% of it", agent="x", tags=["speed_up"])
    seen = {}

    def ask(name: str, **asked: object) -> None:
        seen[name] = [found.what for found in timed.decisions.list(**asked)]  # type: ignore[arg-type]

    ask("x, 7 days, parser", agent="x", since="7d", tag="parser")
    ask("as two datetimes", since=when.utc(moment_us), until=when.utc(moment_us + DAY_US))
    ask("as a datetime", until=datetime.fromtimestamp(moment_us / 1e6, UTC))
    ask("words, in any case", text="PARSER")
    ask("a percent sign is one", text="0% of")
    ask("and not anything", text="1%%f")
    ask("a tag is whole", tag="speed")
    ask("an underscore is one", tag="speed_up")
    ask("by the actor", agent="coder")
    ask("open", state="open", agent="y")
    ask("done", state="done")
    assert seen == {
        "x, 7 days, parser": ["rewrite it"],
        "as two datetimes": ["rewrite it"],
        "as a datetime": ["old one about the parser"],
        "words, in any case": ["rewrite it", "old one about the parser"],
        "a percent sign is one": ["100% of it"],
        "and not anything": [],
        "a tag is whole": ["rewrite it"],
        "an underscore is one": ["100% of it"],
        "by the actor": ["100% of it", "leave it", "rewrite it", "old one about the parser"],
        "open": ["leave it"],
        "done": [],
    }


def test_one_question_is_one_statement(sf: standfast.Standfast, monkeypatch: pytest.MonkeyPatch) -> None:
    """001-23: one query."""
    from standfast.db.postgres.tx import PostgresTx
    from standfast.db.sqlite.tx import SqliteTx

    asked: list[str] = []
    for kind in (SqliteTx, PostgresTx):
        real = kind.all

        def counted(tx, statement, /, real=real, **params):  # type: ignore[no-untyped-def]
            asked.append(statement.name)
            return real(tx, statement, **params)

        monkeypatch.setattr(kind, "all", counted)
    sf.decisions.list(agent="x", tag="y", since="7d", text="z", state="open", session="k")
    assert asked == ["page"]


def test_open_decisions_are_listed_with_their_sessions(sf: standfast.Standfast) -> None:
    """001-44: decisions by session; incomplete ones joined to sessions."""
    with sf.session("a") as a:
        a.decide("one")
        a.decide("two").done()
        a.pause("lunch")
    sf.decisions.record("three")
    found = sf.decisions.incomplete()
    assert [(one.what, one.session_key, one.session_state) for one in found] == [
        ("three", None, None),
        ("one", "a", "waiting"),
    ]
    assert [one.what for one in sf.decisions.list(session="a")] == ["two", "one"]
    assert [one.what for one in sf.decisions.incomplete(session=a)] == ["one"]


@pytest.mark.parametrize(
    ("given", "fact"),
    [
        ({"what": ""}, "what is empty"),
        ({"what": " \n"}, "what is empty"),
        ({"what": "nul\0"}, r"what holds the character U\+0000"),
        ({"what": "\ud800"}, r"what holds the character U\+D800"),
        ({"what": "x" * 4001}, "what has 4,001 characters"),
        ({"what": 7}, "what is text, not int"),
        ({"what": "a", "why": "x" * 20_001}, "why has 20,001 characters"),
        ({"what": "a", "then": "\0"}, "then holds"),
        ({"what": "a", "tags": "ci"}, "tags are a list"),
        ({"what": "a", "tags": [7]}, "a tag is text, not int"),
        ({"what": "a", "tags": ["a,b"]}, "'a,b' is not a tag"),
        ({"what": "a", "tags": [""]}, "is not a tag"),
        ({"what": "a", "tags": [str(n) for n in range(21)]}, "21 tags"),
    ],
)
def test_an_invalid_text_is_refused_and_nothing_is_written(
    sf: standfast.Standfast, given: dict[str, object], fact: str
) -> None:
    with pytest.raises(InvalidInput, match=fact):
        sf.decisions.record(**given)  # type: ignore[arg-type]
    with sf.session("k") as s:
        with pytest.raises(InvalidInput, match=fact):
            s.decide(**given)  # type: ignore[arg-type]
        assert s.decide("fine").decision.n == 1
    assert [found.what for found in sf.decisions.list()] == ["fine"]


@pytest.mark.parametrize(
    "asked",
    [{"state": "perhaps"}, {"since": "a while"}, {"since": 5}, {"tag": "a,b"}],
)
def test_a_question_that_cannot_be_understood_is_refused(sf: standfast.Standfast, asked: dict[str, object]) -> None:
    with pytest.raises(InvalidInput):
        sf.decisions.list(**asked)  # type: ignore[arg-type]


def test_what_can_be_read_only_once_is_refused(sf: standfast.Standfast) -> None:
    """The body of a verb may run twice."""
    with pytest.raises(InvalidInput, match="tags are a list of texts, not generator"):
        sf.decisions.record("a", tags=(tag for tag in ["ci"]))  # type: ignore[arg-type]
    with sf.session("k") as s:
        assert s.decide("a", tags=(tag for tag in ["ci"])).decision.tags == ("ci",)


# -- the control -----------------------------------------------------------------------------------------------


def test_what_a_control_catches_is_a_report(sf: standfast.Standfast) -> None:
    """001-38: a control reports decisions that were made but not recorded."""
    with sf.session("k") as s:
        first = sf.decisions.catch("switched to pnpm", control="review", notes="seen in the lock file", session=s)
    second = sf.decisions.catch("dropped the cache", control="audit")
    found = sf.decisions.caught()
    assert [(one.what, one.control, one.notes, one.session_id) for one in found] == [
        ("dropped the cache", "audit", None, None),
        ("switched to pnpm", "review", "seen in the lock file", s.id),
    ]
    assert sf.decisions.caught(limit=1, after=found[0].seq) == [found[1]]
    assert first.receipt is not None
    assert second.receipt is not None
    event = sf.journal.verify(str(first.receipt))
    assert (event.type, event.source, event.summary) == ("decision.caught", "said", "switched to pnpm")


def test_effects_that_went_out_undecided_are_listed(timed: standfast.Standfast, clock: ManualClock) -> None:
    """001-38: one query compares the times of effects and decisions."""

    def act(name: str) -> None:
        clock.advance("1s")
        s.effect(name, {"n": name}, do=lambda call: "ok")
        clock.advance("1s")

    with timed.session("k") as s:
        act("before")
        timed.decisions.record("always test", standing=True, session="k")
        with s.decide("go"):
            act("within")
        act("after")
        later = s.decide("left open")
        act("open")
    with timed.session("other") as s:
        act("elsewhere")
    found = timed.decisions.unwritten("k")
    assert [(one.tool, one.state) for one in found] == [("before", "acknowledged"), ("after", "acknowledged")]
    assert timed.decisions.unwritten("k", limit=1) == found[:1]
    assert timed.decisions.unwritten("k", limit=1, after=found[0].effect_id) == found[1:]
    assert [one.tool for one in timed.decisions.unwritten("other")] == ["elsewhere"]
    assert later.state == "open"
    with pytest.raises(NotFound):
        timed.decisions.unwritten("nope")


# -- other interfaces ----------------------------------------------------------------------------------------------


def test_on_an_event_loop_it_is_awaited(engine_url: str, tmp_path: Path) -> None:
    import asyncio

    async def work() -> str:
        async with standfast.aopen(engine_url, data_dir=tmp_path / "data") as sf:
            async with sf.session("k") as s, s.decide("go", then="now") as d:
                d.outcome = "gone"
            (found,) = await sf.decisions.list()
            return f"{found.what} {found.state} {found.outcome}"

    assert asyncio.run(work()) == "go done gone"


def test_the_commands_write_close_and_find(tmp_path: Path) -> None:
    def standfast_(*words: str, code: int = 0) -> str:
        done = run(*words, home=tmp_path)
        assert done.returncode == code, done.stderr
        return done.stdout

    id = standfast_("decide", "edit parser.py", "--why", "the test names it", "--then", "patch", "--tag", "ci").strip()
    assert standfast_("decide", "edit parser.py", "--then", "patch").strip() == id
    standing = standfast_("decide", "never force-push", "--standing").strip()
    listed = json.loads(standfast_("decision", "list", "--json"))
    assert [one["id"] for one in listed["data"]] == [standing, id]
    assert listed["next"] is None
    assert [one["id"] for one in json.loads(standfast_("decision", "list", "--open", "--json"))["data"]] == [id]
    assert json.loads(standfast_("decision", "list", "--since", "1h", "--tag", "ci", "--json"))["data"][0]["id"] == id
    assert json.loads(standfast_("decision", "list", "--until", "yesterday 10:00", "--json"))["data"] == []
    done = json.loads(standfast_("decision", "done", id[-6:], "--outcome", "merged", "--json"))["data"]
    assert (done["state"], done["outcome"]) == ("done", "merged")
    assert "verified" in standfast_("verify", f"{done['receipt']['seq']}:{done['receipt']['hash']}")
    standfast_("decision", "fail", id[-6:], code=4)
    standfast_("decision", "show", "zzzzzz", code=3)
    assert "edit parser.py" in standfast_("decision", "show", id[-6:])
    assert "withdrawn" in standfast_("decision", "withdraw", standing[-6:], "--why", "we squash")
    standfast_("decision", "catch", "switched to pnpm", "--control", "review")
    assert json.loads(standfast_("decision", "caught", "--jsonl"))["what"] == "switched to pnpm"
    standfast_("decide", "", code=2)
    standfast_("decide", "x", "--session", "nope", code=3)


def test_every_refusal_is_one_of_ours(sf: standfast.Standfast) -> None:
    calls: list[Callable[[], object]] = [
        lambda: sf.decisions.record("\0"),
        lambda: sf.decisions.show("\0"),
        lambda: sf.decisions.done("%"),
    ]
    for call in calls:
        with pytest.raises(StandfastError):
            call()


def test_a_standing_order_names_its_session_only_in_the_journal(sf: standfast.Standfast) -> None:
    """The order applies to the scope after the session has ended. The journal names its session."""
    with sf.session("job") as s:
        order = sf.decisions.record("never push on a Friday", standing=True, session="job")
    assert order.session_id is None
    (made,) = [event for event in sf.journal.tail(limit=1000).events if event.subject == order.id]
    assert (made.type, made.session_id) == ("decision.made", s.id)
