"""Undo restores the overwritten or deleted row, unless another change was made since."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import standfast
from standfast import Standfast
from standfast.admin.undo import STATE
from standfast.cli import app
from standfast.clock import DAY_US
from standfast.core import removed
from standfast.db import row_statements, tables
from standfast.record.conversations import Conversations, line
from standfast.record.items import Change


def newest(sf: Standfast) -> str:
    return str(sf.removed.list()[0].seq)


def rows(sf: Standfast, table: str) -> list[dict[str, object]]:
    """All rows of a table, without the columns that an undo does not restore."""
    text = f"SELECT * FROM {table}"
    found = [{name: value for name, value in row.items() if name not in removed.NOT_KEPT} for row in sf.rows(text)]
    return sorted(found, key=repr)


def test_an_edited_task_is_restored(sf: Standfast) -> None:
    """000-42: the receipt of the edit undoes the edit, and the receipt of the undo undoes the undo."""
    task = sf.tasks.add("fix the parser", priority=2, labels=["ci"])
    edited = sf.tasks.edit(task.id, title="fix it", priority=1, labels=[])
    assert edited.receipt is not None
    done = sf.undo(edited.receipt)
    assert [(one.type, one.seq) for one in done.changes] == [("task.edited", edited.receipt.seq)]
    assert sf.tasks.get(task.id).replace(updated_us=0) == task.replace(updated_us=0, receipt=None, sighting=None)
    sf.undo(done.receipt)
    assert (sf.tasks.get(task.id).title, sf.tasks.get(task.id).priority) == ("fix it", 1)


def test_a_closed_task_is_open_again_without_its_old_lease(sf: Standfast) -> None:
    task = sf.tasks.add("fix the parser")
    claimed = sf.tasks.claim(task.id)
    done = sf.tasks.done(claimed)
    sf.undo(done.receipt)
    again = sf.tasks.get(task.id)
    assert (again.state, again.holder, again.closed_us, again.result) == ("open", None, None, None)
    assert sf.tasks.claim(task.id).fence > claimed.fence


def test_a_conflict_names_who_changed_the_row_since(sf: Standfast, sf_as: Standfast) -> None:
    task = sf.tasks.add("fix the parser", priority=2)
    edited = sf.tasks.edit(task.id, priority=1)
    later = sf_as.tasks.edit(task.id, priority=3)
    assert later.receipt is not None
    with pytest.raises(standfast.Conflict, match="ben changed it at") as caught:
        sf.undo(edited.receipt)
    assert caught.value.code == "changed_since"
    assert f"standfast undo {later.receipt.seq}" in caught.value.hint
    assert sf.tasks.get(task.id).priority == 3
    sf_as.tasks.edit(task.id, title="another column does not matter", priority=1)
    sf.undo(edited.receipt)
    assert (sf.tasks.get(task.id).title, sf.tasks.get(task.id).priority) == ("another column does not matter", 2)


@pytest.fixture
def sf_as(sf: Standfast, engine_url: str, tmp_path: Path) -> Iterator[Standfast]:
    with standfast.open(engine_url, data_dir=tmp_path / "data", agent="ben") as other:
        yield other


def test_a_problem_that_returned_keeps_its_name(sf: Standfast) -> None:
    task = sf.tasks.add("flaky", fingerprint="f")
    done = sf.tasks.done(task.id, cool_down="0s")
    sf.tasks.add("flaky", fingerprint="f")
    with pytest.raises(standfast.Conflict, match="has the same name"):
        sf.undo(done.receipt)


def test_values_are_restored_from_the_journal(sf: Standfast) -> None:
    """An undo writes a new version. Several changes of one key are undone one after another."""
    sf.state.set("mode", "safe")
    second, third = sf.state.set("mode", {"fast": True}), sf.state.set("mode", None)
    sf.undo(third.receipt)
    assert sf.state.get("mode").value == {"fast": True}
    sf.undo(second.receipt)
    assert (sf.state.get("mode").value, sf.state.get("mode").version) == ("safe", 5)
    deleted = sf.state.delete("mode")
    sf.undo("mode")
    assert (sf.state.get("mode").value, sf.state.get("mode").version) == ("safe", 7)
    with pytest.raises(standfast.Conflict, match="changed since"):
        sf.undo(deleted.receipt)


def test_the_first_value_of_a_key_is_undone_by_deleting_it(sf: Standfast) -> None:
    made = sf.state.set("new", 1)
    sf.undo(made.receipt)
    with pytest.raises(standfast.NotFound):
        sf.state.get("new")


def test_a_value_that_ends_by_itself_is_not_put_back(sf: Standfast) -> None:
    sf.state.set("token", "secret", for_="1h")
    second = sf.state.set("token", "plain")
    with pytest.raises(standfast.NotFound, match="ended by itself"):
        sf.undo(second.receipt)
    assert "secret" not in json.dumps([event.data for event in sf.journal.about("state::token")])


def test_a_removed_loop_runs_again_from_its_next_slot(sf: Standfast) -> None:
    loop = sf.loops.add("nightly", ["echo", "hi"], every="1h")
    gone = sf.loops.remove("nightly")
    sf.undo(gone.receipt)
    again = sf.loops.get("nightly")
    assert (again.state, again.reason, again.command) == ("active", None, loop.command)
    assert again.next_slot_us is not None
    changed = sf.loops.add("nightly", ["echo", "ho"], every="2h")
    sf.undo(changed.receipt)
    assert (sf.loops.get("nightly").command, sf.loops.get("nightly").schedule) == (loop.command, loop.schedule)


def test_a_gate_is_undone_by_a_person_only(
    sf: Standfast, engine_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    gone = sf.gates.remove(sf.gates.add("git push*").id)
    monkeypatch.setenv("STANDFAST_DB_URL", engine_url)
    monkeypatch.setenv("STANDFAST_DATA_DIR", str(tmp_path / "data"))
    with monkeypatch.context() as agent:
        agent.setenv("CLAUDECODE", "1")
        assert app.run(["undo", gone.id, "--commit"]) == 5
    assert "CLAUDECODE" in capsys.readouterr().err
    assert sf.gates.list() == []
    assert app.run(["undo", gone.id, "--commit"]) == 0
    assert [gate.pattern for gate in sf.gates.list()] == ["git push*"]
    assert "git push*" in (tmp_path / "data" / "gates.json").read_text()


def test_a_gate_of_an_application_is_undone_by_a_person_only(
    sf: Standfast, engine_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R33: the change includes a gate, so an agent may not undo any part of the change."""
    done = sf.apply({"tasks": [{"title": "one"}], "gates": [{"pattern": "rm -rf*"}]}, key="k", mode="commit")
    assert done.receipt is not None
    monkeypatch.setenv("STANDFAST_DB_URL", engine_url)
    monkeypatch.setenv("STANDFAST_DATA_DIR", str(tmp_path / "data"))
    which = str(done.receipt.seq)
    with monkeypatch.context() as agent:
        agent.setenv("CLAUDECODE", "1")
        assert app.run(["undo", which, "--commit"]) == 5
        assert app.run(["undo", "--since", "1h", "--commit"]) == 5
    assert [gate.pattern for gate in sf.gates.list()] == ["rm -rf*"]
    assert app.run(["undo", which, "--commit"]) == 0
    assert sf.gates.list() == []


def test_agents_decisions_and_needs_are_restored(sf: Standfast) -> None:
    sf.agents.set("ann", kind="coder", config={"model": "m1"})
    changed = sf.agents.set("ann", kind="reviewer", config={"model": "m2"})
    sf.undo(changed.receipt)
    assert (sf.agents.get("ann").kind, sf.agents.get("ann").config) == ("coder", {"model": "m1"})
    order = sf.decisions.record("no force push", standing=True)
    withdrawn = sf.decisions.withdraw(order.id)
    sf.undo(withdrawn.receipt)
    assert sf.decisions.show(order.id).state == "standing"
    one, two = sf.tasks.add("one"), sf.tasks.add("two")
    sf.tasks.need(one.id, two.id)
    sf.undo(sf.tasks.unneed(one.id, two.id).receipt)
    assert rows(sf, "task_need") == [{"task_id": one.id, "needs_id": two.id}]


def test_items_are_restored_with_their_vectors(sf: Standfast) -> None:
    """The items are also restored if another item got the number of the deleted one."""
    sf.items.change([Change(("a",), "k", {"n": 1}, None, {"f": [1.0, 2.0]})])
    before = rows(sf, "item")
    sf.items.change([Change(("a",), "k", None)])
    seq = newest(sf)
    sf.items.change([Change(("b",), "k", {"n": 2}, None, {"f": [2.0, 1.0]})])
    sf.undo(seq)
    assert rows(sf, "item")[:1] == before
    assert sf.items.nearest(("a",), [1.0, 2.0])[0].item.value == {"n": 1}
    sf.undo(newest(sf))
    assert sf.items.get(("a",), "k") is None
    assert sf.items.nearest(("b",), [2.0, 1.0])[0].item.value == {"n": 2}


def test_a_deleted_thread_is_restored_whole(sf: Standfast) -> None:
    for n, parent in (("1", None), ("2", "1")):
        values = {"messages": True}
        sf.threads.put(
            "t", n, parent_id=parent, header=b"h" + n.encode(), values=values, value_of=lambda _: ("bytes", b"\x00v")
        )
    names = ("thread", "thread_checkpoint", "thread_value", "thread_write")
    before = {table: rows(sf, table) for table in names}
    sf.threads.delete("t")
    sf.undo(newest(sf))
    assert {table: rows(sf, table) for table in names} == before


def test_a_cleared_conversation_is_restored_and_cleared_again(sf: Standfast) -> None:
    """A change of several rows is undone as a whole."""
    talk = Conversations(sf._store)
    talk.add("s", [line(n, role="user", summary=str(n), redact=False) for n in range(3)])
    talk.take_back("s")
    sf.undo(newest(sf))
    assert talk.items("s") == [0, 1, 2]
    talk.clear("s")
    seq = next(one.seq for one in sf.removed.list() if one.type == "session.cleared")
    done = sf.undo(str(seq))
    assert talk.items("s") == [0, 1, 2]
    sf.undo(done.receipt)
    assert talk.items("s") == []


def test_an_apply_is_undone_with_all_it_changed(sf: Standfast) -> None:
    sf.tasks.add("old", fingerprint="t1", priority=3)
    sf.state.set("mode", "a")
    spec = {"tasks": [{"title": "old", "fingerprint": "t1", "priority": 1}, {"title": "new"}], "state": [
        {"key": "mode", "value": "b"}]}  # fmt: skip
    done = sf.apply(spec, key="k", mode="commit")
    undone = sf.undo(done.receipt)
    assert sf.state.get("mode").value == "a"
    assert sf.tasks.get("t1").priority == 3
    assert len(undone.left) == 1


def test_all_changes_of_an_actor_are_undone_or_none(sf: Standfast, sf_as: Standfast) -> None:
    task = sf.tasks.add("one", priority=2)
    sf.state.set("a", 1)
    sf_as.state.set("a", 2)
    sf_as.state.set("a", 3)
    sf_as.tasks.edit(task.id, priority=0)
    sf_as.tasks.done(task.id)
    sf.tasks.edit(task.id, title="two")
    done = sf.undo(agent="ben", since="1h")
    assert [one.type for one in done.changes] == ["task.closed", "task.edited", "state.set", "state.set"]
    assert (sf.tasks.get(task.id).state, sf.tasks.get(task.id).priority) == ("open", 2)
    assert sf.state.get("a").value == 1
    sf_as.state.set("a", 4)
    sf_as.tasks.edit(task.id, priority=4)
    sf.state.set("a", 5)
    with pytest.raises(standfast.Conflict):
        sf.undo(agent="ben", since="1h")
    assert (sf.tasks.get(task.id).priority, sf.state.get("a").value) == (4, 5)


def test_an_effect_is_not_undone_but_compensated(sf: Standfast) -> None:
    with sf.session("s") as s:
        s.effect("mail.send", {"to": "a"}, do=lambda call: "sent")
    (effect,) = sf.effects.list()
    for which in (effect.id, str(sf.journal.about(effect.id)[0].seq)):
        with pytest.raises(standfast.InvalidInput, match="what was sent") as caught:
            sf.undo(which)
        assert f"standfast effect compensate {effect.id[-6:]}" in caught.value.hint


@pytest.mark.parametrize("which", ["", "nonsense", "999999", "tsk_000000", "1:h2:" + "0" * 64, "{}"])
def test_what_names_no_change_is_refused(sf: Standfast, which: str) -> None:
    sf.tasks.add("one")
    before = sf.journal.now()
    with pytest.raises((standfast.NotFound, standfast.InvalidInput)):
        sf.undo(which)
    assert sf.journal.now() == before


def test_images_are_stored_for_a_month_and_up_to_a_limit(sf: Standfast) -> None:
    """Images of the last day are always kept."""
    task = sf.tasks.add("one")
    for n in range(3):
        sf.tasks.edit(task.id, body=f"{n}" * 1000)
    now_us = sf.removed.list()[0].time_us

    def left(age_us: int, bytes_max: int) -> int:
        asked = {"month_ago_us": now_us - 30 * DAY_US + age_us, "day_ago_us": now_us - DAY_US + age_us}
        sf._store.write(lambda tx: tx.run(removed.SQL.purge, bytes_max=bytes_max, **asked))
        return len(list(sf.rows("SELECT id FROM removed")))

    assert left(0, 0) == 3
    assert left(2 * DAY_US, 10**9) == 3
    assert left(2 * DAY_US, 3_000) in (1, 2)
    assert left(31 * DAY_US, 10**9) == 0


def test_the_keys_of_images_are_unique_in_their_tables() -> None:
    """The columns named for an image exist, and its key identifies one row."""
    known = {table.name: table for table in tables.tables()}
    for table, key in removed.KEYS.items():
        assert set(key) <= set(known[table].columns)
        assert row_statements.get(table, key).postgres.endswith("FOR UPDATE")
    assert STATE == ("state.set", "state.deleted")


def test_undo_lists_without_commit(sf: Standfast, engine_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                   capsys: pytest.CaptureFixture[str]) -> None:  # fmt: skip
    monkeypatch.setenv("STANDFAST_DB_URL", engine_url)
    monkeypatch.setenv("STANDFAST_DATA_DIR", str(tmp_path / "data"))
    task = sf.tasks.add("one", priority=2)
    sf.tasks.edit(task.id, priority=1)
    assert app.run(["undo"]) == 0
    assert "task.edited" in capsys.readouterr().out
    assert app.run(["undo", task.id[-6:]]) == 0
    assert sf.tasks.get(task.id).priority == 1
    assert f"standfast undo {task.id[-6:]} --commit" in "".join(capsys.readouterr())
    assert app.run(["undo", task.id[-6:], "--commit", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["data"]["changes"][0]["type"] == "task.edited"
    assert sf.tasks.get(task.id).priority == 2
    assert app.run(["undo", "--commit"]) == 2
