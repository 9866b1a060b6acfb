"""Sessions: opened, left, crashed and taken over. One owner at a time, on both engines."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import standfast
from standfast import config, handle
from standfast.clock import ManualClock
from standfast.record.sessions import SessionRecord
from tests.others import Other


def events(sf: standfast.Standfast, session: str) -> list[str]:
    return [event.type for event in sf.journal.about(sf.sessions.get(session).id)]


def actor(url: str, data: Path, name: str, clock: ManualClock | None = None) -> standfast.Standfast:
    """The handle of a shell: its leases outlive the process."""
    return handle.connect(config.load(url, data_dir=data, actor=name), clock=clock, as_actor=True)


# -- opening and leaving ---------------------------------------------------------------------------


def test_a_new_key_is_a_new_session_and_leaving_the_block_completes_it(sf: standfast.Standfast) -> None:
    """002-2: a session may span several processes. This one is the first."""
    with sf.session("fix-42", agent="fixer") as s:
        assert s.resumed is None
        inside = sf.sessions.get("fix-42")
        assert (inside.state, inside.standing, inside.fence, inside.openings) == ("active", "live", 1, 1)
        assert (s.key, s.id, s.agent, s.fence) == ("fix-42", inside.id, "fixer", 1)
    after = sf.sessions.get("fix-42")
    assert (after.state, after.standing, after.holder, after.reason) == ("completed", "free", None, None)
    assert after.ended_us is not None
    assert events(sf, "fix-42") == ["session.opened", "session.completed"]


def test_the_same_key_resumes_and_returns_the_earlier_state(sf: standfast.Standfast) -> None:
    """001-27: opening the session again returns its earlier state."""
    with sf.session("fix-42") as s:
        s.say("user", "please")
        s.step("plan", lambda: "a plan")
        s.subagent("reviewer").say("assistant", "looks good")
        first = s.id
    with sf.session("fix-42") as s:
        found = s.resumed
        assert s.id == first
        assert s.fence == 2
    assert found is not None
    assert (found.state, found.crashed, found.openings, found.by) == ("completed", False, 1, sf.agent)
    assert (found.messages, found.steps, found.effects) == (2, 1, 0)
    assert (found.in_doubt, found.decisions, found.reason) == ((), (), None)
    assert events(sf, "fix-42")[-2:] == ["session.resumed", "session.completed"]
    assert sf.sessions.get("fix-42").openings == 2


def test_an_exception_fails_it_and_keeps_its_last_line(sf: standfast.Standfast) -> None:
    """001-57: the next process reads the error."""
    with pytest.raises(ValueError, match="no such branch"), sf.session("fix-42"):
        raise ValueError("no such branch: main\nsecond line")
    failed = sf.sessions.get("fix-42")
    assert (failed.state, failed.reason) == ("failed", "ValueError: no such branch: main")
    with sf.session("fix-42") as s:
        assert s.resumed is not None
        assert (s.resumed.state, s.resumed.reason) == ("failed", "ValueError: no such branch: main")
    assert sf.sessions.get("fix-42").reason is None


def test_a_secret_in_an_exception_is_not_stored(sf: standfast.Standfast) -> None:
    with pytest.raises(ValueError, match="token"), sf.session("fix-42"):
        raise ValueError("bad token ghp_" + "a1B2" * 9)
    assert sf.sessions.get("fix-42").reason == "ValueError: bad token [redacted:github]"


LEFT: dict[str, tuple[BaseException, str, str | None]] = {
    "in doubt": (standfast.EffectInDoubt("sent?"), "waiting", "sent?"),
    "approval": (standfast.ApprovalRequired("may I?", "standfast approve x"), "waiting", "may I?"),
    "ctrl-c": (KeyboardInterrupt(), "waiting", "interrupted"),
    "cancelled": (asyncio.CancelledError(), "waiting", "cancelled"),
    "exit 0": (SystemExit(0), "completed", None),
    "exit": (SystemExit(), "completed", None),
    "exit 3": (SystemExit(3), "failed", "exited: 3"),
    "exit text": (SystemExit("no key"), "failed", "exited: no key"),
    "no words": (KeyError(), "failed", "KeyError"),
    "busy": (standfast.Busy("locked", "wait"), "failed", "Busy: locked"),
    "both wait": (
        BaseExceptionGroup("g", [standfast.ApprovalRequired("a?"), standfast.EffectInDoubt("b?")]),
        "waiting",
        "a?; b?",
    ),
    "one fails": (
        BaseExceptionGroup("g", [standfast.ApprovalRequired("a?"), ValueError("no")]),
        "failed",
        "ExceptionGroup: g (2 sub-exceptions)",
    ),
}


@pytest.mark.parametrize("how", LEFT)
def test_the_way_out_of_the_block_decides_the_state_of_the_session(sf: standfast.Standfast, how: str) -> None:
    error, state, reason = LEFT[how]
    with pytest.raises(BaseException) as caught, sf.session("k"):  # noqa: PT011  any ValueError
        raise error
    assert caught.value is error
    left = sf.sessions.get("k")
    assert (left.state, left.reason, left.holder) == (state, reason, None)
    assert (left.ended_us is None) == (state == "waiting")


def test_a_generator_that_is_closed_leaves_its_session_waiting(sf: standfast.Standfast) -> None:
    def turns() -> Iterator[int]:
        with sf.session("k"):
            yield 1
            yield 2

    running = turns()
    assert next(running) == 1
    running.close()  # type: ignore[attr-defined]
    assert (sf.sessions.get("k").state, sf.sessions.get("k").reason) == ("waiting", "its generator was closed")


def test_pause_leaves_it_waiting_with_its_reason(sf: standfast.Standfast) -> None:
    """002-46: a session is paused for a person and resumed later."""
    with sf.session("k") as s:
        s.pause("the reviewer is asleep")
    left = sf.sessions.get("k")
    assert (left.state, left.reason, left.ended_us) == ("waiting", "the reviewer is asleep", None)
    with sf.session("k") as s:
        assert s.resumed is not None
        assert (s.resumed.state, s.resumed.reason, s.resumed.crashed) == ("waiting", "the reviewer is asleep", False)
    assert sf.sessions.get("k").state == "completed"
    assert "session.paused" in events(sf, "k")


def test_end_inside_the_block_is_final(sf: standfast.Standfast) -> None:
    with sf.session("k") as s:
        s.end("failed", reason="not worth it")
        with pytest.raises(standfast.InvalidInput, match="is not open"):
            s.step("plan", lambda: 1)
    assert (sf.sessions.get("k").state, sf.sessions.get("k").reason) == ("failed", "not worth it")


def test_outside_its_block_a_session_does_nothing(sf: standfast.Standfast) -> None:
    s = sf.session("k")
    uses: list[Callable[[], object]] = [
        lambda: s.say("user", "x"),
        s.messages,
        lambda: s.step("plan", lambda: 1),
        lambda: s.subagent("a"),
        lambda: s.state,
        lambda: s.pause("why"),
        lambda: s.record,
    ]
    for use in uses:
        with pytest.raises(standfast.InvalidInput, match=r"with standfast\.session"):
            use()
    with pytest.raises(standfast.NotFound):
        sf.sessions.get("k")


def test_one_session_object_can_be_entered_again(sf: standfast.Standfast) -> None:
    s = sf.session("k")
    with s:
        assert s.resumed is None
        with pytest.raises(standfast.InvalidInput, match="open already"), s:
            pass
    with s:
        assert s.resumed is not None


def test_an_opening_that_is_interrupted_does_not_stay_held(
    sf: standfast.Standfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(_: object, before: object) -> None:
        raise KeyboardInterrupt

    with sf.session("my key"):
        pass
    with monkeypatch.context() as patch:
        patch.setattr("standfast.record.sessions.Sessions.found", interrupted)
        with pytest.raises(KeyboardInterrupt), sf.session("my key"):
            pass
    left = sf.sessions.get("my key")
    assert (left.state, left.reason, left.holder) == ("waiting", "its opening was interrupted", None)
    with sf.session("my key"), pytest.raises(standfast.InProgress, match="session take 'my key'"):
        sf.session("my key").__enter__()


def test_the_session_is_named_by_its_id_too(sf: standfast.Standfast) -> None:
    with sf.session("fix-42") as s:
        s.say("user", "hello")
        id = s.id
    with sf.session(id) as s:
        assert s.key == "fix-42"
        assert s.messages()[0].content == "hello"
    assert sf.sessions.get(id[-6:]).key == sf.sessions.get(id).key == "fix-42"
    unknown = "ses_" + "0" * 26
    with pytest.raises(standfast.NotFound), sf.session(unknown):
        pass


def test_the_cursor_is_stored(sf: standfast.Standfast) -> None:
    """002-38: sessions have a cursor."""
    with sf.session("k") as s:
        assert s.cursor is None
        s.cursor = {"page": 3, "seen": ["a"]}
        assert s.cursor == {"page": 3, "seen": ["a"]}
    with sf.session("k") as s:
        assert s.cursor == {"page": 3, "seen": ["a"]}
    assert sf.sessions.get("k").cursor == {"page": 3, "seen": ["a"]}
    assert "session.moved" in events(sf, "k")


# -- one owner ----------------------------------------------------------------------------------------


def test_a_second_owner_in_this_process_is_refused(sf: standfast.Standfast) -> None:
    with (
        sf.session("k"),
        pytest.raises(standfast.InProgress, match=f"process {os.getpid()} .*this process") as caught,
        sf.session("k"),
    ):
        pass
    assert "standfast session take k" in str(caught.value)
    assert sf.sessions.get("k").state == "completed"


def test_of_many_threads_one_opens_it(sf: standfast.Standfast) -> None:
    start, refused, owned = threading.Barrier(8), list[str](), list[int]()
    done = threading.Event()

    def run() -> None:
        start.wait()
        try:
            with sf.session("k") as s:
                owned.append(s.fence)
                done.wait(60)
        except standfast.InProgress as error:
            refused.append(error.code)
        if len(refused) == 7:
            done.set()

    threads = [threading.Thread(target=run) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (owned, refused) == ([1], ["in_progress"] * 7)


def test_threads_that_open_and_leave_it_all_the_time_never_have_it_together(sf: standfast.Standfast) -> None:
    """002-11: one thread at a time is in the session. Each opening has its own fencing token."""
    inside, together, opened = list[int](), list[int](), list[int]()

    def run(number: int) -> None:
        for _ in range(25):
            try:
                with sf.session("k") as s:
                    inside.append(number)
                    together.append(len(inside))
                    opened.append(s.fence)
                    inside.remove(number)
            except standfast.InProgress:
                pass

    threads = [threading.Thread(target=run, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(together) == {1}
    assert len(set(opened)) == len(opened), "two openings had one fence"


def test_a_session_that_was_dropped_can_be_opened_again(sf: standfast.Standfast) -> None:
    """A notebook that forgot to leave a block can open the session again."""
    dropped = sf.session("k")
    dropped.__enter__()
    del dropped
    gc.collect()
    with sf.session("k") as s:
        assert s.resumed is not None
        assert (s.resumed.state, s.resumed.crashed) == ("active", False)


def test_a_second_process_is_refused_with_the_name_of_the_owner(
    engine_url: str, tmp_path: Path, sf: standfast.Standfast
) -> None:
    with Other(engine_url, tmp_path / "data", "with sf.session('k'):\n    say('open'); wait()") as other:
        other.hear("open")
        with pytest.raises(standfast.InProgress, match=f"session 'k' is held by process {other.pid} on ") as caught:
            sf.session("k").__enter__()
        assert "standfast session take k" in caught.value.hint
        other.go()
        other.end()
    with sf.session("k") as s:
        assert s.resumed is not None
        assert s.resumed.state == "completed"


def test_a_killed_process_is_taken_over_at_once(engine_url: str, tmp_path: Path, sf: standfast.Standfast) -> None:
    """000-2: there is no recovery mode: the next process opens the session."""
    code = """
        with sf.session("k") as s:
            s.say("user", "hello")
            s.step("plan", lambda: "a plan")
            say("working")
            wait()
    """
    with Other(engine_url, tmp_path / "data", code) as other:
        other.hear("working")
        other.kill()
    crashed = sf.sessions.get("k")
    assert (crashed.state, crashed.standing, crashed.crashed) == ("active", "gone", True)
    assert [record.key for record in sf.sessions.list(state="crashed")] == ["k"]
    with sf.session("k") as s:
        found = s.resumed
        assert s.step("plan", lambda: pytest.fail("it is recorded")) == "a plan"
    assert found is not None
    assert (found.state, found.crashed, found.steps, found.messages) == ("active", True, 1, 1)
    assert f"process {other.pid}" in found.by
    taken = [event for event in sf.journal.about(crashed.id) if event.type == "session.taken_over"]
    assert [event.data for event in taken] == [{"holder": crashed.holder, "was": "gone", "since_us": found.since_us}]
    assert sf.sessions.list(state="crashed") == []


def test_crashed_sessions_are_listed_in_pages(engine_url: str, tmp_path: Path, sf: standfast.Standfast) -> None:
    """R37: a crashed session on a later page is found."""
    code = """
        for key in ("a", "b", "c"):
            sf.sessions.open(key)
        say("working")
        wait()
    """
    with Other(engine_url, tmp_path / "data", code) as other:
        other.hear("working")
        other.kill()
    found: list[str] = []
    after = None
    while page := sf.sessions.list(state="crashed", limit=1, after=after):
        found.append(page[0].key)
        after = page[0].place
    assert found == ["a", "b", "c"]


def test_two_processes_resume_one_crashed_session_and_one_wins(engine_url: str, tmp_path: Path) -> None:
    """The second process gets the holder's name. When the first one is killed too, the second takes the session
    over.
    """
    code = """
        try:
            with sf.session("k") as s:
                say(f"won {s.fence}"); wait()
        except standfast.InProgress as error:
            say("held by " + error.message.split("process ")[1].split(" ")[0]); wait()
    """
    data = tmp_path / "data"
    with Other(engine_url, data, "sf.session('k').__enter__(); say('open'); wait()") as first:
        first.hear("open")
        first.kill()
    with Other(engine_url, data, code) as one, Other(engine_url, data, code) as two:
        said = {one.listen(): one, two.listen(): two}
        winner = said["won 2"]
        assert set(said) == {"won 2", f"held by {winner.pid}"}
        winner.kill()
    with Other(engine_url, data, code) as three:
        three.hear("won 3")


def test_a_paused_owner_that_wakes_up_late_is_refused_by_its_fence(
    engine_url: str, tmp_path: Path, sf: standfast.Standfast
) -> None:
    code = """
        ran = []
        with sf.session("k") as s:
            say("open"); wait()
            tries = {
                "step": lambda: s.step("late", lambda: ran.append(1)),
                "state": lambda: s.state.set("a", 1),
                "cursor": lambda: setattr(s, "cursor", 1),
                "end": lambda: s.end(),
            }
            for name, use in tries.items():
                try:
                    use()
                except standfast.LeaseLost as error:
                    say(f"{name}: {error.code}")
    """
    with Other(engine_url, tmp_path / "data", code) as other:
        other.hear("open")
        other.send(signal.SIGSTOP)
        with pytest.raises(standfast.InProgress):
            sf.session("k").__enter__()
        taken = sf.sessions.take("k")
        assert (taken.state, taken.fence, taken.holder) == ("waiting", 2, None)
        assert taken.reason is not None
        assert taken.reason.startswith(f"taken from process {other.pid} ")
        with sf.session("k") as s:
            assert s.fence == 3
            assert s.step("late", lambda: "mine") == "mine"
            other.send(signal.SIGCONT)
            other.go()
            heard = other.end().splitlines()
            assert heard == ["step: lease_lost", "state: lease_lost", "cursor: lease_lost", "end: lease_lost"]
            assert (s.state.get("a"), s.cursor) == (None, None)
    assert sf.sessions.get("k").state == "completed"


def test_a_lease_that_ran_out_is_taken_over_and_its_owner_is_refused(engine_url: str, tmp_path: Path) -> None:
    """A holder that may be alive loses the session when its lease ends. Its fencing token is then refused."""
    clock = ManualClock()
    first = standfast.open(engine_url, data_dir=tmp_path / "data", clock=clock)
    second = actor(engine_url, tmp_path / "data", "worker", clock)
    with first, second:
        s = first.session("k").__enter__()
        clock.advance("59s")
        with pytest.raises(standfast.InProgress, match="ends in 1s"):
            second.sessions.open("k")
        clock.advance("1s")
        opened = second.sessions.open("k")
        assert opened.before is not None
        assert (opened.before.crashed, opened.record.fence, opened.record.holder) == (True, 2, "a:worker")
        with pytest.raises(standfast.LeaseLost, match="worker has it now"):
            s.step("late", lambda: 1)
        with pytest.raises(standfast.LeaseLost):
            s.__exit__(None, None, None)
        assert second.sessions.get("k").state == "active"


def test_losing_the_lease_does_not_hide_what_went_wrong(sf: standfast.Standfast) -> None:
    def go_wrong() -> None:
        sf.sessions.take("k")
        raise ValueError("the real one")

    with pytest.raises(ValueError, match="the real one") as caught, sf.session("k"):
        go_wrong()
    assert any("could not be ended" in note for note in caught.value.__notes__)
    assert sf.sessions.get("k").state == "waiting"


def test_an_actor_that_opens_it_again_keeps_it(engine_url: str, tmp_path: Path) -> None:
    """In a shell, each command is another process of the same actor."""
    clock = ManualClock()
    with actor(engine_url, tmp_path / "data", "me", clock) as one:
        first = one.sessions.open("k")
    clock.advance("10m")
    with actor(engine_url, tmp_path / "data", "me", clock) as two:
        again = two.sessions.open("k")
        assert (again.record.fence, again.record.openings) == (1, 1)
        assert again.record.lease_until_us == (first.record.lease_until_us or 0) + 600_000_000
        with (
            actor(engine_url, tmp_path / "data", "you", clock) as other,
            pytest.raises(standfast.InProgress, match="held by me"),
        ):
            other.sessions.open("k")
        assert two.sessions.end("k").state == "completed"


def test_only_the_owner_ends_a_session_while_it_lives(engine_url: str, tmp_path: Path, sf: standfast.Standfast) -> None:
    with actor(engine_url, tmp_path / "data", "me") as me, actor(engine_url, tmp_path / "data", "you") as you:
        me.sessions.open("k")
        with pytest.raises(standfast.InProgress, match="held by me"):
            you.sessions.end("k")
        assert me.sessions.end("k", "failed", reason="no").reason == "no"
        assert you.sessions.end("k", "completed").state == "completed"
        with pytest.raises(standfast.Conflict, match="has no holder"):
            you.sessions.take("k")
        with pytest.raises(standfast.InvalidInput, match="not as 'active'"):
            you.sessions.end("k", "active")


def test_a_forked_child_does_not_end_its_parents_session(engine_url: str, tmp_path: Path) -> None:
    code = """
        refused = []
        with sf.session("k") as s:
            pid = os.fork()
            if pid == 0:
                try:
                    s.step("child", lambda: 1)
                except standfast.StorageError as error:
                    refused.append(error.code)
                try:
                    sf.session("k").__enter__()
                except standfast.InProgress as error:
                    refused.append(error.code)
            else:
                say(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
        if pid == 0:
            os._exit(0 if refused == ["forked", "in_progress"] else 1)
        say(sf.sessions.get("k").state)
    """
    with Other(engine_url, tmp_path / "data", code) as other:
        assert other.end().split() == ["0", "completed"]


def test_a_session_is_refused_inside_a_transaction(sf: standfast.Standfast) -> None:
    with sf.transaction(), pytest.raises(standfast.InvalidInput, match="session cannot run inside a transaction"):
        sf.session("k").__enter__()


def test_the_lease_of_an_open_session_is_renewed(engine_url: str, tmp_path: Path) -> None:
    from standfast.core.leases import renew_all

    clock = ManualClock()
    with standfast.open(engine_url, data_dir=tmp_path / "data", clock=clock) as sf, sf.session("k"):
        for _ in range(5):
            clock.advance("30s")
            sf._store.write(renew_all, durable=False)
        assert sf.sessions.get("k").standing == "live"
        clock.advance("61s")
        assert sf.sessions.get("k").crashed


# -- scopes, lists, chats -------------------------------------------------------------------------------


def repository(place: Path, origin: str) -> Path:
    place.mkdir()
    subprocess.run(["git", "init", "-q", str(place)], check=True)
    subprocess.run(["git", "-C", str(place), "remote", "add", "origin", origin], check=True)
    return place


def test_one_key_in_two_repositories_and_two_scopes_is_two_sessions(
    engine_url: str, tmp_path: Path, sf: standfast.Standfast
) -> None:
    code = "with sf.session('fix') as s:\n    s.say('user', os.getcwd()); say(s.id)\n    say(len(s.messages()))"
    said = []
    for name, origin in (("one", "git@github.com:a/one.git"), ("two", "https://github.com/a/two")):
        place = repository(tmp_path / name, origin)
        with Other(engine_url, tmp_path / "data", code, cwd=place, STANDFAST_SCOPE=name) as other:
            said.append(other.end().split())
    assert [count for _, count in said] == ["1", "1"]
    assert said[0][0] != said[1][0]
    found = {(record.scope, record.origin) for record in sf.sessions.list(everywhere=True)}
    assert found == {("one", "github.com/a/one"), ("two", "github.com/a/two")}


def test_a_session_opened_by_its_id_is_the_same_from_anywhere(
    engine_url: str, tmp_path: Path, sf: standfast.Standfast
) -> None:
    place = repository(tmp_path / "one", "git@github.com:a/one.git")
    code = """
        with sf.session("fix") as s:
            s.state["n"] = 1
            s.effect("mail.send", {"to": "ada"}, do=lambda call: "sent")
            say(s.id)
    """
    with Other(engine_url, tmp_path / "data", code, cwd=place) as other:
        id = other.end()
    with sf.session(id) as s:
        assert (s.record.origin, s.state["n"], list(s.state)) == ("github.com/a/one", 1, ["n"])
        assert s.effect("mail.send", {"to": "ada"}, do=lambda call: pytest.fail("it was sent")) == "sent"
        s.state["n"] = 2
    code = "with sf.session('fix') as s:\n    say(s.state['n'])"
    with Other(engine_url, tmp_path / "data", code, cwd=place) as other:
        assert other.end() == "2"


def test_an_actor_hands_its_hold_to_a_process_of_its_own(engine_url: str, tmp_path: Path) -> None:
    data = tmp_path / "data"
    with actor(engine_url, data, "me") as shell, standfast.open(engine_url, data_dir=data, agent="me") as sf:
        shell.sessions.open("k")
        with sf.session("k") as s:
            assert s.resumed is not None
            assert (s.resumed.state, s.resumed.crashed, s.fence) == ("active", False, 2)
            with pytest.raises(standfast.InProgress):
                shell.sessions.open("k")


def test_a_chat_with_a_process_per_turn(engine_url: str, tmp_path: Path, sf: standfast.Standfast) -> None:
    """001-1, 001-11: each turn is a new process without memory. It reads all earlier turns and adds its own answer."""
    code = """
        question = wait()
        with sf.session("chat") as s:
            s.say("user", question)
            heard = [m.content for m in s.messages(last=50) if m.role == "user"]
            answer = s.step("answer", lambda asked: f"{len(asked)}: {asked[-1]}", heard)
            s.say("assistant", answer)
            say(answer)
    """
    answers = []
    for question in ("hello", "and now", "hello"):
        with Other(engine_url, tmp_path / "data", code) as turn:
            turn.go(question)
            answers.append(turn.end())
    assert answers == ["1: hello", "2: and now", "3: hello"]
    roles = [message.role for message in sf.sessions.messages("chat")]
    assert roles == ["user", "assistant"] * 3


def test_an_example_that_runs_three_times_stores_one_message(
    engine_url: str, tmp_path: Path, sf: standfast.Standfast
) -> None:
    code = """
        def make_plan(issue: str) -> dict:
            open(os.environ["RAN"], "a").write("x")
            return {"title": "fix " + issue}

        with sf.session("fix-42") as s:
            plan = s.step("plan", make_plan, "the parser")
            s.say("assistant", "opened " + plan["title"], key="opened")
    """
    for _ in range(3):
        with Other(engine_url, tmp_path / "data", code, RAN=str(tmp_path / "ran")) as run:
            run.end()
    assert [message.content for message in sf.sessions.messages("fix-42")] == ["opened fix the parser"]
    assert (tmp_path / "ran").read_text() == "x"
    assert sf.sessions.get("fix-42").openings == 3


def test_lists_show_the_newest_first_in_pages_with_the_first_user_message(sf: standfast.Standfast) -> None:
    """003-32: the first user message is the preview."""
    for n in range(5):
        with sf.session(f"k{n}") as s:
            s.say("system", "be kind")
            s.say("user", f"question {n}\nwith  more\x1b[31m lines")
            s.say("user", "another")
    seen: list[SessionRecord] = []
    page = sf.sessions.list(limit=2)
    while page:
        seen += page
        page = sf.sessions.list(limit=2, after=page[-1].place)
    assert [record.key for record in seen] == ["k4", "k3", "k2", "k1", "k0"]
    assert seen[0].preview == "question 4 with more lines"
    assert [r.key for r in sf.sessions.list(state="completed", limit=1)] == ["k4"]
    assert sf.sessions.list(state="waiting") == []
    for bad in ("crushed", "ACTIVE"):
        with pytest.raises(standfast.InvalidInput, match="there is no state"):
            sf.sessions.list(state=bad)
    with pytest.raises(standfast.InvalidInput, match="not a cursor of this list"):
        sf.sessions.list(after="yesterday")


BAD_KEYS = {"empty": "", "blank": "  ", "long": "x" * 501, "nul": "a\0b", "line": "a\nb", "surrogate": "a\ud800"}


@pytest.mark.parametrize("how", BAD_KEYS)
def test_a_bad_key_is_refused_by_name(sf: standfast.Standfast, how: str) -> None:
    with pytest.raises(standfast.InvalidInput, match="a session's key"), sf.session(BAD_KEYS[how]):
        pass
    with pytest.raises(standfast.InvalidInput, match="key"):
        sf.sessions.get(BAD_KEYS[how])
    assert sf.sessions.list(everywhere=True) == []


def test_an_unknown_session_is_not_found(sf: standfast.Standfast) -> None:
    for use in (sf.sessions.get, sf.sessions.messages, sf.sessions.nodes, sf.sessions.end, sf.sessions.take):
        with pytest.raises(standfast.NotFound, match="there is no session 'missing'"):
            use("missing")
    with pytest.raises(standfast.NotFound):
        sf.sessions.say("missing", "user", "hello")
    with pytest.raises(standfast.NotFound):
        sf.sessions.fork("missing", "new")


def test_a_receipt_proves_the_opening(sf: standfast.Standfast) -> None:
    with sf.session("k") as s:
        assert s.record.receipt is not None
        assert sf.journal.verify(str(s.record.receipt)).type == "session.opened"


def test_under_an_event_loop_the_same_names_are_awaited(engine_url: str, tmp_path: Path) -> None:
    async def plan(issue: str) -> list[str]:
        await asyncio.sleep(0)
        return [issue]

    async def main() -> None:
        async with standfast.aopen(engine_url, data_dir=tmp_path / "data") as sf:
            async with sf.session("k") as s:
                assert s.resumed is None
                await s.say("user", "hello", key="a")
                assert await s.step("plan", plan, "x") == ["x"]
                reviewer = await s.subagent("reviewer")
                await reviewer.say("user", "look")
                assert [m.content for m in await s.messages()] == ["hello"]
                await s.state.set("a", 1)
                assert await s.state.get("a") == 1
            with pytest.raises(standfast.ApprovalRequired):
                async with sf.session("k") as s:
                    raise standfast.ApprovalRequired("may I?")
            assert (await sf.sessions.get("k")).state == "waiting"

    asyncio.run(main())


def test_a_cancelled_task_leaves_its_session_waiting(engine_url: str, tmp_path: Path) -> None:
    async def main() -> str:
        async with standfast.aopen(engine_url, data_dir=tmp_path / "data") as sf:
            entered = asyncio.Event()

            async def work() -> None:
                async with sf.session("k"):
                    entered.set()
                    await asyncio.sleep(60)

            task = asyncio.create_task(work())
            await entered.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            return (await sf.sessions.get("k")).reason or ""

    assert asyncio.run(main()) == "cancelled"
