"""Tasks: one per problem, claimed by one worker, closed once; every verb on both engines."""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import standfast
from standfast import config, handle, when
from standfast.clock import DAY_US, ManualClock
from standfast.errors import Conflict, IllegalTransition, InProgress, InvalidInput, LeaseLost, NotFound
from standfast.record.tasks import Progress, Task, fingerprint
from standfast.record.tasks.fingerprint import normalised
from tests.others import Other

Open = Callable[..., standfast.Standfast]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def place(engine_url: str, tmp_path: Path, clock: ManualClock) -> Iterator[Open]:
    """Open handles on one store: `place("ann")` is ann at a command line, `place()` is this process."""
    handles: list[standfast.Standfast] = []

    def enter(actor: str | None = None) -> standfast.Standfast:
        settings = config.load(engine_url, data_dir=tmp_path / "data", actor=actor)
        handles.append(handle.connect(settings, clock=clock, as_actor=actor is not None))
        return handles[-1]

    yield enter
    for store in handles:
        store.close()


@pytest.fixture
def ann(place: Open) -> standfast.Standfast:
    return place("ann")


@pytest.fixture
def bob(place: Open) -> standfast.Standfast:
    return place("bob")


def events(sf: standfast.Standfast, task: Task | str) -> list[str]:
    return [event.type.removeprefix("task.") for event in sf.tasks.history(task)]


def titles(tasks: list[Task]) -> list[str]:
    return [task.title for task in tasks]


# -- fingerprints --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("title", "same"),
    [
        ("  Flaky\tTest in   CI ", "flaky test in ci"),
        ("STRASSE", "straße"),
        ("run 0198A7B2-1c3d-7e4f-8a9b-0c1d2e3f4a5b failed", "run 0198a7b2-ffff-7e4f-8a9b-0c1d2e3f4a5b failed"),
        ("late at 2026-11-15T03:00:00.123Z", "late at 2026-11-16 04:15 UTC"),
        ("late at 20261115T030000Z", "late at 2026-11-16T04:15:00+01:00"),
        ("03:00:00 no answer", "04:15:30.5 no answer"),
        ("commit 3f2a9c1d is red", "commit 9c1d0e3f2a9c1d0e3f2a9c1d0e3f2a9c1d0e3f2a is red"),
        ("segfault at 0x7ffe12ab34", "segfault at 0x7ffe99cd34"),
    ],
)
def test_what_changes_between_two_sightings_does_not_count(title: str, same: str) -> None:
    """000-23: the fingerprint is computed from the content and is stable."""
    assert normalised(title) == normalised(same)
    assert fingerprint(title, kind="task", source="ci") == fingerprint(same, kind="task", source="ci")


@pytest.mark.parametrize(
    ("title", "other"),
    [
        ("parser.py:12:30 unused import", "parser.py:14:30 unused import"),
        ("order 12345678 is stuck", "order 12345679 is stuck"),
        ("backup of 2026-11-15 is missing", "backup of 2026-11-16 is missing"),
        ("error 0x80070005", "error 0x80070057"),
        ("the facade is defaced", "the facade is effaced"),
        ("disk 91% full", "disk 92% full"),
    ],
)
def test_differences_that_separate_two_problems_count(title: str, other: str) -> None:
    """000-25: a new problem that looks similar is another task."""
    assert fingerprint(title, kind="task", source="ci") != fingerprint(other, kind="task", source="ci")


def test_the_rule_is_frozen() -> None:
    """Stored rows depend on the rule, so another rule needs another prefix."""
    digest = "28af9ad4f8a6f4e17af5a8a0ceeee79544b5778fb09e413c0b90a158fe5d6aff"
    assert hashlib.sha256(b'["ci","task","flaky test"]').hexdigest() == digest
    assert fingerprint("Flaky  test", kind="task", source="ci") == f"f1:{digest}"


def test_source_and_kind_count_and_labels_body_and_priority_never(sf: standfast.Standfast) -> None:
    first = sf.tasks.add("flaky", source="ci", kind="bug", labels=["a"], body="one", priority=1)
    again = sf.tasks.add("flaky", source="ci", kind="bug", labels=["b"], body="two", priority=0)
    assert (again.id, again.occurrences, again.sighting) == (first.id, 2, "again")
    assert sf.tasks.add("flaky", source="cd", kind="bug").id != first.id
    assert sf.tasks.add("flaky", source="ci", kind="task").id != first.id


def test_a_fingerprint_of_the_callers_own_replaces_the_derived_one(sf: standfast.Standfast) -> None:
    first = sf.tasks.add("disk 91% full", fingerprint="disk:/var")
    assert sf.tasks.add("disk 97% full", fingerprint="disk:/var").id == first.id
    assert sf.tasks.get("disk:/var").title == "disk 97% full"


# -- sightings and episodes ------------------------------------------------------------------------------


def test_a_sighting_updates_reported_fields_and_keeps_those_set_by_a_person(sf: standfast.Standfast) -> None:
    """000-23: a sighting of a known problem updates its task and inserts none."""
    first = sf.tasks.add("Flaky test", body="at night", labels=["ci"], assignee="ann", priority=3, branch="main")
    sf.tasks.edit(first, priority=0, labels=["ci", "urgent"], assignee="bob")
    again = sf.tasks.add("flaky  test", body="at noon", labels=["x"], assignee="eve", priority=9, branch="dev")
    assert (again.title, again.body, again.occurrences) == ("flaky test", "at noon", 2)
    assert (again.priority, again.labels, again.assignee, again.branch) == (0, ("ci", "urgent"), "bob", "main")
    assert sf.tasks.add("flaky test").body == "at noon"
    assert events(sf, first) == ["opened", "edited", "seen", "seen"]


def test_a_problem_that_returns_opens_the_next_episode(place: Open, clock: ManualClock) -> None:
    """000-25: a returning problem is neither absorbed by the closed task nor a new task at every sighting."""
    sf = place()
    first = sf.tasks.add("flaky", body="it was so")
    sf.tasks.done(first, reason="fixed")
    clock.advance("1s")
    back = sf.tasks.add("flaky")
    assert (back.sighting, back.episode, back.state, back.occurrences) == ("returned", 2, "open", 1)
    assert back.id != first.id
    assert back.body is None
    old = sf.tasks.get(first.id)
    assert (old.state, old.occurrences, old.reason) == ("closed", 1, "fixed")
    assert sf.tasks.get(first.fingerprint).id == back.id
    assert [one.episode for one in sf.tasks.show(back).episodes] == [1, 2]


def test_within_its_cool_down_a_return_is_counted_and_stays_closed(place: Open, clock: ManualClock) -> None:
    sf = place()
    first = sf.tasks.add("flaky", cool_down="30m")
    sf.tasks.done(first)
    clock.advance("29m")
    cooling = sf.tasks.add("flaky")
    assert (cooling.id, cooling.sighting, cooling.state, cooling.occurrences) == (first.id, "cooling", "closed", 2)
    assert events(sf, first) == ["opened", "closed", "seen"]
    clock.advance("1m")
    back = sf.tasks.add("flaky")
    assert (back.sighting, back.episode, back.occurrences) == ("returned", 2, 1)


def test_a_cool_down_may_be_given_when_it_is_closed(place: Open, clock: ManualClock) -> None:
    sf = place()
    first = sf.tasks.add("flaky")
    sf.tasks.done(first, cool_down="1h")
    assert sf.tasks.add("flaky").sighting == "cooling"
    clock.advance("1h")
    assert sf.tasks.add("flaky").sighting == "returned"


def test_a_snoozed_task_is_counted_and_wakes_by_itself(place: Open, clock: ManualClock) -> None:
    sf = place()
    first = sf.tasks.add("flaky")
    asleep = sf.tasks.snooze(first, for_="2d")
    assert (asleep.state, asleep.snoozed_until_us) == ("snoozed", clock.now_us() + 2 * DAY_US)
    assert (sf.tasks.next(), sf.tasks.claim()) == ([], None)
    assert sf.tasks.add("flaky").state == "snoozed"
    assert titles(sf.tasks.list(state="snoozed")) == ["flaky"]
    clock.advance("2d")
    awake = sf.tasks.get(first)
    assert (awake.state, awake.occurrences) == ("open", 2)
    assert titles(sf.tasks.list(state="open")) == ["flaky"]
    assert sf.tasks.list(state="snoozed") == []
    claimed = sf.tasks.claim()
    assert claimed is not None
    assert (claimed.id, claimed.state, claimed.snoozed_until_us) == (first.id, "open", None)


def test_an_accepted_task_is_counted_and_not_handed_out(sf: standfast.Standfast) -> None:
    first = sf.tasks.add("flaky")
    accepted = sf.tasks.accept(first, reason="by design")
    assert (accepted.state, accepted.reason) == ("accepted", "by design")
    again = sf.tasks.add("flaky")
    assert (again.id, again.state, again.occurrences) == (first.id, "accepted", 2)
    assert (sf.tasks.next(), sf.tasks.claim()) == ([], None)
    with pytest.raises(IllegalTransition, match="accepted and cannot be claimed"):
        sf.tasks.claim(first)
    assert sf.tasks.list() == []
    assert titles(sf.tasks.list(state="accepted")) == ["flaky"]
    assert sf.tasks.reopen(first).state == "open"
    assert titles(sf.tasks.next()) == ["flaky"]


def test_a_reopened_task_is_in_the_same_episode_unless_the_problem_returned_since(sf: standfast.Standfast) -> None:
    first = sf.tasks.add("flaky")
    sf.tasks.done(first, result={"pr": 7})
    opened = sf.tasks.reopen(first)
    assert (opened.id, opened.episode, opened.state, opened.closed_us, opened.reason) == (
        first.id,
        1,
        "open",
        None,
        None,
    )
    sf.tasks.done(first)
    back = sf.tasks.add("flaky")
    with pytest.raises(Conflict, match="has a later episode 2"):
        sf.tasks.reopen(first)
    assert sf.tasks.reopen(back).receipt is None


def test_scopes_are_independent(engine_url: str, tmp_path: Path) -> None:
    """000-6: one store has many scopes, each found by its name. A second store is a second directory."""
    here, there = (
        handle.connect(config.load(engine_url, data_dir=tmp_path / "data", scope=scope)) for scope in ("here", "there")
    )
    with here, there:
        first, second = here.tasks.add("flaky"), there.tasks.add("flaky")
        assert first.id != second.id
        assert first.fingerprint == second.fingerprint
        assert here.tasks.claim() is not None
        assert here.tasks.claim() is None
        assert titles(here.tasks.list()) == ["flaky"]
        assert {task.scope.partition(" @ ")[0] for task in here.tasks.list(everywhere=True)} == {"here", "there"}
        with pytest.raises(NotFound):
            here.tasks.get("no-such")
    with standfast.open(data_dir=tmp_path / "another") as elsewhere:
        assert elsewhere.tasks.list(everywhere=True) == []


# -- sweeps ------------------------------------------------------------------------------------------------


def test_what_a_source_no_longer_sees_is_closed_after_enough_sweeps(sf: standfast.Standfast) -> None:
    """000-26: an unattended loop closes the tasks whose problems are no longer seen."""
    first = sf.tasks.sweep("lint", seen=["a", "b", {"title": "c", "priority": 0, "labels": ["x"]}], absent_max=2)
    assert (first.n, first.seen, len(first.opened), first.closed) == (1, 3, 3, ())
    second = sf.tasks.sweep("lint", seen=["a"], absent_max=2)
    assert (second.n, second.opened, second.closed) == (2, (), ())
    third = sf.tasks.sweep("lint", seen=["a", "b"], absent_max=2)
    assert titles([sf.tasks.get(id) for id in third.closed]) == ["c"]
    closed = sf.tasks.get(third.closed[0])
    assert (closed.state, closed.reason) == ("closed", "absent from 2 sweeps of lint")
    assert [(task.title, task.occurrences) for task in sf.tasks.list()] == [("a", 3), ("b", 2)]
    assert events(sf, closed) == ["opened", "closed"]
    assert events(sf, sf.tasks.list()[1]) == ["opened", "seen"]


def test_only_consecutive_absences_of_its_own_source_count(sf: standfast.Standfast) -> None:
    sf.tasks.sweep("lint", seen=["a"], absent_max=2)
    for seen in ([], ["a"], [], ["a"], []):
        assert sf.tasks.sweep("lint", seen=seen, absent_max=2).closed == ()
    for _ in range(5):
        assert sf.tasks.sweep("types", seen=[], absent_max=1).closed == ()
    assert len(sf.tasks.sweep("lint", seen=[], absent_max=2).closed) == 1


def test_a_problem_reported_between_two_sweeps_gets_its_full_number_of_them(sf: standfast.Standfast) -> None:
    sf.tasks.sweep("lint", seen=[])
    sf.tasks.add("late", source="lint")
    assert sf.tasks.sweep("lint", seen=[], absent_max=2).closed == ()
    assert len(sf.tasks.sweep("lint", seen=[], absent_max=2).closed) == 1


def test_a_sweep_counts_each_problem_once_and_keeps_their_order(sf: standfast.Standfast) -> None:
    swept = sf.tasks.sweep("lint", seen=["b", "a", "B", "  b "])
    assert (swept.seen, len(swept.opened)) == (2, 2)
    assert titles(sf.tasks.next()) == ["b", "a"]
    assert [task.occurrences for task in sf.tasks.list()] == [1, 1]


def test_an_accepted_or_claimed_task_is_not_closed_by_its_absence(
    ann: standfast.Standfast, bob: standfast.Standfast
) -> None:
    for title in ("accepted", "held", "snoozed", "free"):
        ann.tasks.add(title, source="lint")
    ann.tasks.accept(fingerprint("accepted", kind="task", source="lint"))
    ann.tasks.snooze(fingerprint("snoozed", kind="task", source="lint"), for_="1d")
    held = bob.tasks.claim(fingerprint("held", kind="task", source="lint"))
    closed = ann.tasks.sweep("lint", seen=[], absent_max=1).closed
    assert sorted(titles([ann.tasks.get(id) for id in closed])) == ["free", "snoozed"]
    bob.tasks.done(held)
    assert ann.tasks.sweep("lint", seen=[], absent_max=1).closed == ()


def test_a_task_of_a_dead_process_is_closed_by_its_absence(
    sf: standfast.Standfast, engine_url: str, tmp_path: Path
) -> None:
    sf.tasks.add("held", source="lint")
    with Other(engine_url, tmp_path / "data", "say(sf.tasks.claim().title)\nwait()") as other:
        other.hear("held")
        assert sf.tasks.sweep("lint", seen=[], absent_max=1).closed == ()
        other.kill()
        (closed,) = sf.tasks.sweep("lint", seen=[], absent_max=1).closed
    assert (sf.tasks.get(closed).state, sf.tasks.get(closed).fence) == ("closed", 2)


def test_without_a_number_a_sweep_closes_nothing(sf: standfast.Standfast) -> None:
    sf.tasks.sweep("lint", seen=["a"])
    for _ in range(10):
        assert sf.tasks.sweep("lint", seen=[], absent_max=None).closed == ()


def test_a_sweep_is_counted_as_a_whole_or_not_at_all(sf: standfast.Standfast) -> None:
    with pytest.raises(NotFound):
        sf.tasks.sweep("lint", seen=["a", {"title": "b", "parent": "no-such-goal"}])
    assert sf.tasks.list(state="any") == []
    assert sf.tasks.sweep("lint", seen=["a"]).n == 1


@pytest.mark.parametrize(
    ("seen", "words"),
    [
        ("a title", "a list of titles"),
        ([{"body": "no title"}], "needs a title"),
        ([{"title": "a", "colour": "red"}], "no 'colour'"),
        ([f"problem {n}" for n in range(2001)], "the limit is 2,000"),
        ([""], "empty"),
    ],
)
def test_a_sweep_that_makes_no_sense_is_refused(sf: standfast.Standfast, seen: object, words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        sf.tasks.sweep("lint", seen=seen)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="1 or more"):
        sf.tasks.sweep("lint", seen=[], absent_max=0)


# -- ready tasks -----------------------------------------------------------------------------------------


def test_the_most_urgent_comes_first_then_the_oldest(place: Open, clock: ManualClock) -> None:
    sf = place()
    for title, priority in (("late", 2), ("some day", 4), ("now", 0), ("later", 2)):
        sf.tasks.add(title, priority=priority)
        clock.advance("1s")
    assert titles(sf.tasks.next()) == ["now", "late", "later", "some day"]
    assert titles(sf.tasks.next(limit=1)) == ["now"]
    assert titles(sf.tasks.list()) == ["now", "late", "later", "some day"]
    claimed = [sf.tasks.claim() for _ in range(5)]
    assert [task.title if task else None for task in claimed] == ["now", "late", "later", "some day", None]


def test_what_needs_others_waits_until_they_are_closed(sf: standfast.Standfast) -> None:
    schema, code = sf.tasks.add("schema"), sf.tasks.add("code")
    docs = sf.tasks.add("docs", needs=[schema.id, code], priority=0)
    assert titles(sf.tasks.next()) == ["schema", "code"]
    with pytest.raises(Conflict, match=r"needs .* first"):
        sf.tasks.claim(docs)
    sf.tasks.done(schema)
    assert titles(sf.tasks.next()) == ["code"]
    sf.tasks.done(code)
    assert titles(sf.tasks.next()) == ["docs"]
    shown = sf.tasks.show(docs)
    assert [(one.title, one.state) for one in shown.needs] == [("schema", "closed"), ("code", "closed")]
    assert [one.title for one in sf.tasks.show(code).needed_by] == ["docs"]


def test_a_need_that_would_close_a_circle_is_refused(sf: standfast.Standfast) -> None:
    a, b, c = (sf.tasks.add(title) for title in "abc")
    sf.tasks.need(a, b)
    sf.tasks.need(b, c)
    for waiting, on in ((c, a), (c, b), (a, a)):
        with pytest.raises(Conflict, match="each would wait for the other") as caught:
            sf.tasks.need(waiting, on)
        assert caught.value.code == "circle"
    sf.tasks.unneed(a, b)
    assert sf.tasks.need(c, a).receipt is not None
    assert sf.tasks.need(c, a).receipt is None


def test_an_edit_is_refused_as_a_whole(sf: standfast.Standfast) -> None:
    """DESIGN §5: `task edit` changes all given fields or none."""
    first, second = sf.tasks.add("first"), sf.tasks.add("second")
    edited = sf.tasks.edit(first, title="renamed", needs=[second])
    assert (edited.title, [one.id for one in sf.tasks.show(first.id).needs]) == ("renamed", [second.id])
    with pytest.raises(Conflict):
        sf.tasks.edit(second, priority=0, needs=[first])
    assert (sf.tasks.get(second.id).priority, sf.tasks.show(second.id).needs) == (second.priority, ())
    sf.tasks.edit(first, no_needs=[second])
    assert sf.tasks.show(first.id).needs == ()


def test_a_need_that_is_refused_leaves_nothing_of_its_task(sf: standfast.Standfast) -> None:
    with pytest.raises(NotFound):
        sf.tasks.add("docs", needs=["no-such-task"])
    assert sf.tasks.list(state="any") == []


def test_a_goal_waits_for_its_children_and_counts_their_progress(sf: standfast.Standfast) -> None:
    """000-8, 002-39: the progress of a goal is counted from its children."""
    goal = sf.tasks.add("ship 1.2", priority=0)
    part = sf.tasks.add("documentation", parent=goal.id)
    leaves = [sf.tasks.add(title, parent=part.id) for title in ("why", "start")]
    leaves.append(sf.tasks.add("code", parent=goal.id))
    assert titles(sf.tasks.next()) == ["why", "start", "code"]
    assert sf.tasks.progress(goal) == Progress(total=3, closed=0, accepted=0, held=0)
    sf.tasks.claim(leaves[0])
    sf.tasks.done(leaves[1])
    assert sf.tasks.progress(goal) == Progress(total=3, closed=1, accepted=0, held=1)
    assert sf.tasks.progress(part).share == 0.5
    sf.tasks.done(leaves[0])
    assert titles(sf.tasks.next()) == ["documentation", "code"]
    sf.tasks.done(part)
    sf.tasks.accept(leaves[2])
    assert titles(sf.tasks.next()) == ["ship 1.2"]
    assert sf.tasks.progress(goal) == Progress(total=3, closed=2, accepted=1, held=0)
    assert sf.tasks.progress(goal).share == 1.0
    (shown,) = [one for one in sf.tasks.goals() if one.task.id == goal.id]
    assert shown.progress.share == 1.0


def test_the_next_episode_of_a_child_is_a_child_and_counts_instead_of_the_last(sf: standfast.Standfast) -> None:
    goal = sf.tasks.add("no findings")
    child = sf.tasks.add("finding", parent=goal.id)
    sf.tasks.done(child)
    assert sf.tasks.progress(goal) == Progress(total=1, closed=1, accepted=0, held=0)
    back = sf.tasks.add("finding")
    assert (back.episode, back.parent_id) == (2, goal.id)
    assert sf.tasks.progress(goal) == Progress(total=1, closed=0, accepted=0, held=0)
    assert [one.id for one in sf.tasks.show(goal).children] == [back.id]


def test_goals_and_needs_form_one_graph_without_circles(sf: standfast.Standfast) -> None:
    goal = sf.tasks.add("goal")
    child = sf.tasks.add("child", parent=goal.id)
    with pytest.raises(Conflict, match="each would wait"):
        sf.tasks.need(child, goal)
    with pytest.raises(Conflict, match="each would wait"):
        sf.tasks.edit(goal, parent=child)
    with pytest.raises(Conflict, match="each would wait"):
        sf.tasks.edit(goal, parent=goal)
    other = sf.tasks.add("other")
    sf.tasks.need(goal, other)
    with pytest.raises(Conflict, match="each would wait"):
        sf.tasks.edit(goal, parent=other)
    assert sf.tasks.edit(child, parent=None).parent_id is None
    assert sf.tasks.need(child, goal).receipt is not None


def test_an_assigned_task_is_offered_only_to_its_assignee(ann: standfast.Standfast, bob: standfast.Standfast) -> None:
    ann.tasks.add("for ann", assignee="ann", priority=0)
    ann.tasks.add("for reviewers", assignee="reviewer", priority=1)
    ann.tasks.add("for anybody")
    assert titles(bob.tasks.next()) == ["for anybody"]
    assert titles(ann.tasks.next()) == ["for ann", "for anybody"]
    assert titles(bob.tasks.next(assignee="reviewer")) == ["for reviewers", "for anybody"]
    claimed = bob.tasks.claim(assignee="reviewer")
    assert claimed is not None
    assert claimed.title == "for reviewers"


def test_a_worker_may_ask_for_a_label_a_kind_or_a_source(sf: standfast.Standfast) -> None:
    sf.tasks.add("one", labels=["ci", "100%_sure"], kind="bug", source="lint")
    sf.tasks.add("two", labels=["cicd"], kind="chore")
    assert titles(sf.tasks.next(label="ci")) == ["one"]
    assert titles(sf.tasks.next(label="100%_sure")) == ["one"]
    assert sf.tasks.next(label="100__sure") == []
    assert titles(sf.tasks.next(kind="chore")) == ["two"]
    assert titles(sf.tasks.next(source="lint")) == ["one"]
    assert sf.tasks.claim(kind="chore", source="lint") is None
    claimed = sf.tasks.claim(label="cicd")
    assert claimed is not None
    assert claimed.title == "two"


# -- claims -----------------------------------------------------------------------------------------------


def test_one_worker_gets_it_and_the_refusal_names_who(ann: standfast.Standfast, bob: standfast.Standfast) -> None:
    task = ann.tasks.add("flaky")
    claimed = ann.tasks.claim(task)
    assert (claimed.holder, claimed.agent, claimed.fence, claimed.standing) == ("a:ann", "ann", 1, "live")
    assert bob.tasks.claim() is None
    with pytest.raises(InProgress, match="is held by ann"):
        bob.tasks.claim(task)
    for refused in (bob.tasks.done, bob.tasks.accept, bob.tasks.release, bob.tasks.renew):
        with pytest.raises(LeaseLost, match="is held by ann with fence 1, not by bob"):
            refused(task.id)
    with pytest.raises(LeaseLost):
        bob.tasks.snooze(task, for_="1d")
    assert bob.tasks.note(task, "me too").agent == "bob"
    assert ann.tasks.done(task.id).state == "closed"
    assert events(ann, task) == ["opened", "claimed", "noted", "closed"]


def test_an_actor_claims_in_one_process_and_is_done_in_another(place: Open) -> None:
    """The store keeps the fencing token per actor, so the caller does not pass it."""
    first, second = place("ann"), place("ann")
    task = first.tasks.add("flaky")
    assert first.tasks.claim(task).fence == 1
    assert second.tasks.claim(task).fence == 1  # ann has it already, so her lease is extended
    closed = second.tasks.done(task.id, result="merged")
    assert (closed.state, closed.result, closed.holder, closed.fence) == ("closed", "merged", None, 1)
    assert second.tasks.done(task.id).receipt is None  # a second `done` changes nothing: the first outcome stays


def test_an_actors_claim_ends_by_time_and_is_suspect_before_that(
    ann: standfast.Standfast, bob: standfast.Standfast, clock: ManualClock
) -> None:
    """001-64: the claim of a silent actor is first shown as suspect, then as reclaimable."""
    task = ann.tasks.add("flaky")
    ann.tasks.claim(task)
    clock.advance("7m")
    assert bob.tasks.get(task).suspect is False
    clock.advance("1m")
    seen = bob.tasks.get(task)
    assert (seen.standing, seen.suspect, seen.reclaimable) == ("live", True, False)
    assert titles(bob.tasks.list(held=True)) == ["flaky"]
    clock.advance("7m")
    seen = bob.tasks.get(task)
    assert (seen.standing, seen.suspect, seen.reclaimable) == ("over", True, True)
    assert titles(bob.tasks.next()) == ["flaky"]
    taken = bob.tasks.claim()
    assert taken is not None
    assert (taken.fence, taken.holder, taken.suspect) == (2, "a:bob", False)
    with pytest.raises(LeaseLost):
        ann.tasks.done(task.id)
    bob.tasks.done(taken)
    with pytest.raises(IllegalTransition, match="was closed by bob"):
        ann.tasks.done(task.id)
    assert events(ann, task) == ["opened", "claimed", "taken_over", "closed"]


def test_a_long_claim_of_a_silent_actor_is_suspect_all_the_same(
    ann: standfast.Standfast, bob: standfast.Standfast, clock: ManualClock
) -> None:
    """001-64: the actor crashed two hours ago, but its lease has not ended."""
    task = ann.tasks.add("flaky")
    ann.tasks.claim(task, for_="1d")
    clock.advance("2h")
    seen = bob.tasks.get(task)
    assert (seen.standing, seen.suspect, seen.reclaimable) == ("live", True, False)
    ann.tasks.renew(task)
    assert bob.tasks.get(task).suspect is False


def test_a_late_worker_may_finish_a_task_that_was_not_claimed_again(
    ann: standfast.Standfast, clock: ManualClock
) -> None:
    task = ann.tasks.add("flaky")
    ann.tasks.claim(task)
    clock.advance("2h")
    assert ann.tasks.renew(task).standing == "live"
    clock.advance("2h")
    assert ann.tasks.done(task.id).fence == 1


def test_the_claim_that_was_lost_is_refused_even_under_its_own_name(place: Open, clock: ManualClock) -> None:
    """The fencing token distinguishes two claims of one actor."""
    ann = place("ann")
    ann.tasks.add("flaky")
    first = ann.tasks.claim()
    assert first is not None
    clock.advance("16m")
    second = ann.tasks.claim()
    assert second is not None
    assert (first.fence, second.fence) == (1, 2)
    for refused in (ann.tasks.done, ann.tasks.renew, ann.tasks.release, ann.tasks.accept):
        with pytest.raises(LeaseLost, match="no longer held with fence 1"):
            refused(first)
    ann.tasks.done(second)
    with pytest.raises(LeaseLost, match="no longer held with fence 1"):
        ann.tasks.done(first)
    assert ann.tasks.done(second).receipt is None


def test_a_task_of_a_dead_process_keeps_its_place_in_the_queue(
    sf: standfast.Standfast, engine_url: str, tmp_path: Path
) -> None:
    sf.tasks.add("urgent", priority=0)
    sf.tasks.add("usual")
    code = "say(sf.tasks.claim().title)\nwait()"
    with Other(engine_url, tmp_path / "data", code) as other:
        other.hear("urgent")
        assert titles(sf.tasks.next()) == ["usual"]
        held = sf.tasks.list(held=True)[0]
        assert (held.title, held.standing, held.suspect) == ("urgent", "live", False)
        other.kill()
        gone = sf.tasks.get(held)
        assert (gone.standing, gone.suspect, gone.reclaimable) == ("gone", True, True)
        assert titles(sf.tasks.next()) == ["urgent", "usual"]
        taken = sf.tasks.claim()
    assert taken is not None
    assert (taken.title, taken.fence) == ("urgent", 2)
    assert events(sf, taken) == ["opened", "claimed", "taken_over"]


def test_a_task_of_a_dead_process_is_found_when_nothing_else_is_ready(
    sf: standfast.Standfast, engine_url: str, tmp_path: Path
) -> None:
    sf.tasks.add("only one")
    with Other(engine_url, tmp_path / "data", "say(sf.tasks.claim().title)\nwait()") as other:
        other.hear("only one")
        assert sf.tasks.claim() is None
        other.kill()
        taken = sf.tasks.claim()
    assert taken is not None
    assert taken.fence == 2


def test_any_caller_may_close_a_task_of_a_dead_process_whose_token_is_then_refused(
    sf: standfast.Standfast, engine_url: str, tmp_path: Path
) -> None:
    task = sf.tasks.add("left")
    with Other(engine_url, tmp_path / "data", "say(sf.tasks.claim().title)\nwait()") as other:
        other.hear("left")
        with pytest.raises(LeaseLost):
            sf.tasks.done(task)
        other.kill()
        closed = sf.tasks.done(task)
    assert (closed.state, closed.fence) == ("closed", 2)


def test_a_process_does_not_get_what_it_has(sf: standfast.Standfast) -> None:
    task = sf.tasks.add("flaky")
    claimed = sf.tasks.claim(task)
    with pytest.raises(InProgress, match="this process"):
        sf.tasks.claim(task)
    assert sf.tasks.renew(claimed).fence == 1
    released = sf.tasks.release(claimed)
    assert (released.holder, released.fence, released.standing) == (None, 1, "free")
    assert sf.tasks.release(claimed).receipt is None
    assert sf.tasks.claim(task).fence == 2


def test_a_claim_whose_answer_was_lost_can_be_continued_or_released(sf: standfast.Standfast) -> None:
    """After CommitUnknown the task may be claimed by this process. The error of a second call says how to continue."""
    for way, state in (("get", "closed"), ("release", "open")):
        task = sf.tasks.add(f"to {way}")
        sf.tasks.claim(task)  # the caller did not get this result
        assert [held.id for held in sf.tasks.list(held=True)] == [task.id]
        with pytest.raises(InProgress) as raised:
            sf.tasks.claim(task)
        called = re.search(rf'tasks\.{way}\("(\w+)"\)', raised.value.hint)
        assert called, raised.value.hint
        found = getattr(sf.tasks, way)(called[1])
        assert (found.id, (sf.tasks.done(found) if way == "get" else found).state) == (task.id, state)
    assert sf.tasks.list(held=True) == []


def test_a_hold_may_be_ended_by_force(ann: standfast.Standfast, bob: standfast.Standfast) -> None:
    task = ann.tasks.add("flaky")
    claimed = ann.tasks.claim(task)
    free = bob.tasks.release(task, force=True)
    assert (free.holder, free.fence) == (None, 2)
    with pytest.raises(LeaseLost, match="no longer held with fence 1"):
        ann.tasks.done(claimed)
    assert bob.tasks.claim(task).fence == 3


def test_snoozed_or_accepted_by_its_holder_it_is_given_back(ann: standfast.Standfast) -> None:
    task = ann.tasks.add("flaky")
    claimed = ann.tasks.claim(task)
    assert ann.tasks.snooze(claimed, for_="1d").holder is None
    claimed = ann.tasks.claim(task)  # a claim by name also takes a snoozed task, and wakes it
    assert (claimed.state, claimed.fence) == ("open", 2)
    assert ann.tasks.accept(claimed).holder is None


def test_done_works_unclaimed_and_reports_it(sf: standfast.Standfast) -> None:
    task = sf.tasks.add("flaky")
    closed = sf.tasks.done(task.id[-6:], reason="duplicate", result={"of": "another"})
    assert (closed.state, closed.reason, closed.result) == ("closed", "duplicate", {"of": "another"})
    assert closed.closed_us is not None
    for refused in (sf.tasks.accept, sf.tasks.claim):
        with pytest.raises(IllegalTransition):
            refused(task)
    assert titles(sf.tasks.list(state="closed")) == ["flaky"]


def test_a_task_joins_a_callers_transaction(sf: standfast.Standfast) -> None:
    """One transaction changes several features: all changes are committed, or none."""

    def half() -> None:
        with sf.transaction() as tx:
            tx.tasks.add("rolled back")
            tx.state.set("n", 1)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        half()
    assert sf.tasks.list(state="any") == []
    with sf.transaction() as tx:
        first = tx.tasks.add("one")
        tx.tasks.add("two", needs=[first])
        claimed = tx.tasks.claim()
        assert claimed is not None
        tx.tasks.done(claimed)
    assert titles(sf.tasks.next()) == ["two"]


def test_the_same_verbs_are_awaited(engine_url: str, tmp_path: Path) -> None:
    async def work() -> list[str]:
        async with standfast.aopen(engine_url, data_dir=tmp_path / "data") as sf:
            await asyncio.gather(*(sf.tasks.add(f"task {n % 5}") for n in range(20)))
            done = []
            while task := await sf.tasks.claim():
                await sf.tasks.done(task)
                done.append(f"{task.title}: {task.occurrences}")
            return sorted(done)

    assert asyncio.run(work()) == [f"task {n}: 4" for n in range(5)]


def test_claims_belong_to_the_child_after_a_fork(sf: standfast.Standfast) -> None:
    sf.tasks.add("one")
    claimed = sf.tasks.claim()
    assert claimed is not None
    if (pid := os.fork()) == 0:
        try:
            with pytest.raises(LeaseLost):
                sf.tasks.done(claimed.id)
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitpid(pid, 0)[1] == 0
    assert sf.tasks.done(claimed).state == "closed"


# -- lists and counts --------------------------------------------------------------------------------------


def test_a_task_is_found_by_id_by_its_end_and_by_its_fingerprint(sf: standfast.Standfast) -> None:
    task = sf.tasks.add("flaky")
    assert [sf.tasks.get(name).id for name in (task.id, task.id[-6:], task.id[-10:].upper(), task.fingerprint)] == [
        task.id
    ] * 4
    assert sf.tasks.get(task) == sf.tasks.get(task.id)
    for name in ("nothing", "tsk_" + "0" * 26, ""):
        with pytest.raises(NotFound, match="there is no task"):
            sf.tasks.get(name)


def test_pages_go_over_what_does_not_change_while_they_are_read(sf: standfast.Standfast) -> None:
    """Sightings that arrive between two pages move no task from one page to the other."""
    for n in range(7):
        sf.tasks.add(f"task {n}", priority=n % 3)
    seen: list[str] = []
    after = None
    while page := sf.tasks.list(limit=2, after=after):
        seen += titles(page)
        after = page[-1].place
        sf.tasks.add("task 0")
        sf.tasks.add("task 5")
    assert seen == ["task 0", "task 3", "task 6", "task 1", "task 4", "task 2", "task 5"]
    for n in range(4):
        sf.tasks.done(sf.tasks.next()[0], reason=f"{n}")
    for state, count in (("closed", 4), ("any", 7)):
        found: list[Task] = []
        while page := sf.tasks.list(state=state, limit=2, after=found[-1].place if found else None):
            found += page
        assert len(found) == count
        assert [task.id for task in found] == sorted((task.id for task in found), reverse=True)
    with pytest.raises(InvalidInput, match="not a cursor of this list"):
        sf.tasks.list(after="here")


def test_a_list_is_narrowed_by_what_tasks_have(sf: standfast.Standfast) -> None:
    """001-19, 002-39: tasks are filtered by state, priority, worker, branch, session and labels."""
    with sf.session("fix-42"):
        pass
    sf.tasks.add("one", labels=["ci"], branch="fix-42", session="fix-42", assignee="ann", source="lint", kind="bug")
    sf.tasks.add("two", labels=["cd"])
    for asked in (
        {"label": "ci"},
        {"branch": "fix-42"},
        {"session": "fix-42"},
        {"assignee": "ann"},
        {"source": "lint"},
        {"kind": "bug"},
    ):
        for state in (None, "open", "any"):
            assert titles(sf.tasks.list(state=state, **asked)) == ["one"], asked  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="'lost' is not a state"):
        sf.tasks.list(state="lost")
    with pytest.raises(NotFound, match="no session"):
        sf.tasks.list(session="fix-43")


def test_everything_about_one_task_is_shown_at_once(sf: standfast.Standfast) -> None:
    task = sf.tasks.add("flaky", body="details")
    sf.tasks.note(task, "first")
    sf.tasks.note(task, "second")
    claimed = sf.tasks.claim()
    assert claimed is not None
    shown = sf.tasks.show(task)
    assert shown.task == sf.tasks.get(task)
    assert [note.text for note in shown.notes] == ["first", "second"]
    assert [event.type for event in shown.history] == ["task.opened", "task.noted", "task.noted", "task.claimed"]
    assert (shown.progress, shown.children, shown.needs) == (None, (), ())


def test_every_change_leaves_a_receipt_that_can_be_proved(sf: standfast.Standfast) -> None:
    task = sf.tasks.add("flaky")
    changed: list[Any] = [
        task,
        sf.tasks.edit(task, priority=0),
        sf.tasks.note(task, "hm"),
        sf.tasks.claim(task),
        sf.tasks.release(task),
        sf.tasks.snooze(task, for_="1d"),
        sf.tasks.reopen(task),
        sf.tasks.accept(task),
        sf.tasks.done(task),
        sf.tasks.sweep("lint", seen=["x"]),
    ]
    for one in changed:
        assert one.receipt is not None
        assert sf.journal.verify(str(one.receipt)).type.startswith("task.")
    assert len(sf.tasks.history(task)) == 9


def test_an_edit_without_a_change_is_not_journalled(sf: standfast.Standfast) -> None:
    task = sf.tasks.add("flaky", priority=1)
    assert sf.tasks.edit(task, priority=1, title="flaky").receipt is None
    edited = sf.tasks.edit(task, priority=0, body="x", due=when.utc(5))
    assert (edited.priority, edited.body, edited.due_us) == (0, "x", 5)
    assert sf.tasks.get(task).replace(receipt=edited.receipt) == edited
    (event,) = [event for event in sf.tasks.history(task) if event.type == "task.edited"]
    assert event.data == {"priority": {"was": 1, "is": 0}, "due_us": {"was": None, "is": 5}}


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"title": " "}, "title is empty"),
        ({"title": "x" * 1001}, "the limit is 1000"),
        ({"title": "a", "priority": -1}, "from 0 to 99"),
        ({"title": "a", "priority": True}, "from 0 to 99"),
        ({"title": "a", "labels": "ci"}, "a list of texts"),
        ({"title": "a", "labels": ["a,b"]}, "not a label"),
        ({"title": "a", "labels": [f"l{n}" for n in range(21)]}, "the limit is 20"),
        ({"title": "a", "kind": ""}, "kind is empty"),
        ({"title": "a", "body": "\0"}, "cannot be stored"),
        ({"title": "a", "body": "x" * 100_001}, "the limit is 100,000"),
        ({"title": "a", "cool_down": -1}, "cool_down must be between 0 s and a hundred years"),
        ({"title": 7}, "title is text"),
    ],
)
def test_what_cannot_be_a_task_is_refused_by_name(
    sf: standfast.Standfast, given: dict[str, object], words: str
) -> None:
    with pytest.raises(InvalidInput, match=words):
        sf.tasks.add(**given)  # type: ignore[arg-type]
    assert sf.tasks.list(state="any") == []


def test_a_generator_of_labels_or_sightings_is_read_once(sf: standfast.Standfast) -> None:
    """The body of a method may run twice, so a generator is turned into a list first."""
    task = sf.tasks.add("flaky", labels=(label for label in ("a", "b")), needs=iter(()))
    assert task.labels == ("a", "b")
    assert sf.tasks.sweep("lint", seen=(title for title in ("x", "y"))).seen == 2
    assert sf.tasks.edit(task, labels=(label for label in ("c",))).labels == ("c",)
