"""Items that need a person are all found before a list is truncated; items of other scopes are counted."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

import standfast
from standfast.clock import ManualClock
from standfast.config.scope import Label
from standfast.core import repositories
from standfast.views import recovery
from tests import remembering
from tests.interfaces.test_cli import run
from tests.others import Other

KILLED = """
import os
with sf.session("ship") as s:
    s.effect("deploy", {"to": "prod"}, do=lambda call: os._exit(0))
"""


def repository(path: Path, origin: str) -> Path:
    path.mkdir(parents=True)
    subprocess.run(["git", "init", "-q"], cwd=path, check=True)
    subprocess.run(["git", "remote", "add", "origin", f"https://example.org/{origin}"], cwd=path, check=True)
    return path


def in_doubt(sf: standfast.Standfast, tool: str = "deploy") -> None:
    def dies(call: standfast.Call) -> None:
        raise RuntimeError("the line is dead")

    with pytest.raises(RuntimeError):
        sf.session(f"job of {tool}").__enter__().effect(tool, {"to": "prod"}, do=dies)


def in_repository(sf: standfast.Standfast, origin: str | None) -> None:
    caller = sf._store.caller
    caller.label = Label(None, origin)
    caller.repository = repositories.known(sf._store, caller)


# -- everything outside a repository, and what waits elsewhere inside one -----------------------------------


def test_outside_a_repository_everything_is_shown_and_inside_one_the_rest_is_counted(sf: standfast.Standfast) -> None:
    """000-17, 000-50: every list and search reports an effect in doubt, in every repository."""
    in_repository(sf, "example.org/shop")
    in_doubt(sf)
    report = sf.recovery.report()
    assert ([item.kind for item in report.items], report.elsewhere) == (["effect_in_doubt"], {})
    in_repository(sf, "example.org/other")
    report = sf.recovery.report()
    assert (report.items, report.elsewhere, report.complete) == ([], {"example.org/shop": 1}, True)
    assert report  # an item waits, so the answer must not be "nothing to do"
    assert [item.scope for item in sf.recovery.report(everywhere=True).items] == ["example.org/shop"]
    in_repository(sf, None)
    report = sf.recovery.report()
    assert ([item.scope for item in report.items], report.elsewhere) == (["example.org/shop"], {})


def test_effects_of_a_session_and_of_everywhere_are_listed_from_another_repository(sf: standfast.Standfast) -> None:
    """A list without a session shows the caller's repository; an in-doubt effect elsewhere can be found."""
    in_repository(sf, "example.org/shop")
    in_doubt(sf)
    (own,) = sf.effects.list()
    in_repository(sf, "example.org/other")
    for state in (None, "in_doubt"):
        assert sf.effects.list(state=state) == []
        assert [one.id for one in sf.effects.list(state=state, everywhere=True)] == [own.id]
        assert [one.id for one in sf.effects.list(state=state, session=own.session_id)] == [own.id]


def test_no_command_prints_nothing_to_do_while_an_effect_is_in_doubt_elsewhere(tmp_path: Path) -> None:
    """000-17, 002-18: each command is asked, outside a repository and inside another one."""
    home, shop = tmp_path, repository(tmp_path / "shop", "acme/shop")
    other = repository(tmp_path / "other", "acme/other")
    with Other(str(home / ".standfast" / "standfast.db"), home / ".standfast", KILLED, cwd=shop) as agent:
        agent.end()
    command = "standfast effect resolve"
    for words in ((), ("status",), ("brief",)):
        outside = run(*words, home=home).stdout
        assert ("standfast effect show" if words == ("brief",) else command) in outside, outside
        assert "example.org/acme/shop" in outside, outside
        elsewhere = run(*words, home=home, cwd=other).stdout
        assert "Nothing needs you now" not in elsewhere
        assert "2 items wait in 1 other repository or scope" in elsewhere, elsewhere
        assert "standfast status --all" in elsewhere
    assert command in run("status", "--all", home=home, cwd=other).stdout
    assert "standfast effect" in run("recovery", home=home).stdout
    assert "effect.dispatched  deploy to=prod" in run("timeline", home=home).stdout
    inside = run("timeline", home=home, cwd=other)
    assert "effect.dispatched" not in inside.stdout
    assert "2 items wait in 1 other repository or scope: standfast status --all" in inside.stderr
    data = json.loads(run("status", "--json", home=home, cwd=other).stdout)["data"]
    assert (data["needs"], data["elsewhere"], data["truncated"]) == ([], {"example.org/acme/shop": 2}, False)


ALL_CLEAR = ("", "status", "brief", "recovery", "approval list", "approve", "timeline --problems", "doctor --quick")


def test_each_command_that_finds_nothing_names_the_stores_that_it_did_not_read() -> None:
    """000-17, 002-18: "nothing to do" names the stores not read, where an effect may be in doubt."""
    with remembering.home() as home:
        assert remembering.run(home, "task", "add", "x", STANDFAST_DATA_DIR=str(home / "other")).returncode == 0
        assert remembering.run(home, "task", "add", "x").returncode == 0
        for words in ALL_CLEAR:
            said = remembering.run(home, *words.split())
            assert said.returncode == 0, said.stderr
            assert f"Not read: {home}/other/standfast.db (standfast store list)" in said.stdout + said.stderr, words


def test_approvals_of_other_repositories_are_listed_outside_and_counted_inside(tmp_path: Path) -> None:
    """002-18: from any directory a person sees that an approval is pending."""
    home, shop = tmp_path, repository(tmp_path / "shop", "acme/shop")
    other = repository(tmp_path / "other", "acme/other")
    planned = run("effect", "begin", "deploy", "--plan", "--approve", home=home, cwd=shop)
    if planned.returncode not in (0, 5):
        planned = run("effect", "begin", "deploy", "--plan", home=home, cwd=shop)
        assert planned.returncode == 0, planned.stderr
    with standfast.open(home / ".standfast" / "standfast.db", data_dir=home / ".standfast") as sf:
        (effect,) = [row["id"] for row in sf.rows("SELECT id FROM effect")]
    run("approval", "request", effect, home=home, cwd=shop)
    assert "deploy" in run("approval", "list", home=home).stdout
    inside = run("approval", "list", home=home, cwd=other)
    assert "deploy" not in inside.stdout
    assert "nothing waits for approval here" in inside.stderr
    assert "1 more waits in other repositories or scopes: standfast approval list --all" in inside.stderr
    assert "deploy" in run("approval", "list", "--all", home=home, cwd=other).stdout


# -- judged first, truncated afterwards ------------------------------------------------------------------


def test_a_crashed_session_behind_a_hundred_live_ones_is_shown(
    sf: standfast.Standfast, engine_url: str, tmp_path: Path
) -> None:
    """000-17: a crashed session is reported, although there are over a hundred older live sessions."""
    live = [sf.session(f"live-{n}").__enter__() for n in range(recovery.EACH_MAX + 1)]
    with Other(engine_url, tmp_path / "data", "sf.session('gone').__enter__()\nsay('open')\nwait()") as other:
        other.hear("open")
        other.kill()
    report = sf.recovery.report()
    assert [item.what for item in report.items] == ["session 'gone' crashed: its process is gone"]
    assert not report.truncated
    assert "session 'gone' crashed" in sf.brief().markdown
    del live


def test_many_harmless_rows_do_not_hide_rows_that_need_a_person(
    sf: standfast.Standfast, engine_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """000-17: the same is true across pages, and for rows with equal times."""
    monkeypatch.setattr(recovery, "PAGE", 7)
    code = "\n".join(
        f"for n in range({count}): {what}"
        for count, what in (
            (10, "sf.session(f'gone-{n}').__enter__()"),
            (9, "sf.leases.acquire(f'lock-{n}')"),
            (15, "sf.decisions.record(f'decision {n}', then='do it')"),
        )
    )
    with Other(engine_url, tmp_path / "data", f"{code}\nsay('open')\nwait()") as other:
        other.hear("open")
        other.kill()
    live = [sf.session(f"live-{n}").__enter__() for n in range(20)]
    held = [sf.leases.acquire(f"held-{n}") for n in range(20)]
    report = sf.recovery.report()
    assert report.counts == {"session_crashed": 10, "decision_open": 15, "lock_expired": 9}
    assert len(report.items) == 34
    del live, held


def test_a_truncated_report_names_the_command_for_the_rest(tmp_path: Path) -> None:
    """002-18: rows that are left out are counted, and one command shows it."""
    with standfast.open(tmp_path / ".standfast" / "standfast.db", data_dir=tmp_path / ".standfast") as sf:
        for n in range(130):
            sf.decisions.record(f"decision {n}", then="do it")
        report = sf.recovery.report()
        assert (len(report.items), report.truncated, report.counts) == (100, True, {"decision_open": 130})
        whole = sf.recovery.report(limit=1000)
        assert (len(whole.items), whole.truncated) == (130, False)
        made = sf.brief(max_tokens=400)
        (section,) = [one for one in made.sections if one.name == "decisions"]
        assert len(section.facts) + section.more == 130
    scope = ("--all",)
    said = run("status", *scope, home=tmp_path).stdout
    assert "and 110 more: standfast status --all --limit 130" in said
    assert run("status", *scope, "--limit", "130", home=tmp_path).stdout.count("standfast decision done") == 130
    data = json.loads(run("status", *scope, "--json", home=tmp_path).stdout)["data"]
    assert (len(data["needs"]), data["truncated"], data["waiting"]) == (100, True, {"decision_open": 130})


def test_a_section_of_the_brief_counts_all_it_leaves_out(sf: standfast.Standfast) -> None:
    """001-16: `N more` is the number of rows, not of those that were read."""
    for n in range(70):
        sf.tasks.add(f"task number {n}")
        sf.state.set(f"key-{n:02}", n)
        sf.mail.send("coder", "hello", sender="ann")
    made = sf.brief(agent="coder", max_tokens=300)
    left = {section.name: len(section.facts) + section.more for section in made.sections}
    assert left == {"tasks": 70, "facts": 70, "mail": 70}


def test_a_truncated_timeline_claims_no_silence_behind_its_last_row(engine_url: str, tmp_path: Path) -> None:
    """000-16: a gap is reported only for a period whose rows were all read."""
    clock = ManualClock(1_794_279_600_000_000)
    with standfast.open(engine_url, data_dir=tmp_path / "data", clock=clock) as sf:
        for n in range(6):
            sf.leases.acquire(f"lock-{n}")
            clock.jump("20m")
        whole = sf.timeline(window="6h")
        cut = sf.timeline(window="6h", limit=3)
        assert cut.truncated
        assert [gap for gap in cut.gaps if gap not in whole.gaps] == []
        assert max(gap.until_us for gap in cut.gaps) <= cut.entries[-1].occurred_us


# -- the reason is derived when it is shown ----------------------------------------------------------------


def asked(sf: standfast.Standfast) -> str:
    with pytest.raises(standfast.ApprovalRequired) as caught, sf.session("ship") as s:
        s.effect("tf.apply", {"a": 1}, approve=True, do=lambda call: None)
    assert caught.value.approval_id is not None
    return caught.value.approval_id


def waits(sf: standfast.Standfast) -> str:
    (item,) = sf.recovery.report().of("session_waiting")
    return item.what


Then = Callable[[standfast.Standfast, ManualClock, str], object]


@pytest.mark.parametrize(
    ("then", "expected"),
    [
        (lambda sf, clock, id: None, "session 'ship' waits for approval of tf.apply, requested 1h ago"),
        (
            lambda sf, clock, id: sf.approvals.deny(id, approver="bob", rationale="not on Friday"),
            "session 'ship' waits: tf.apply was denied by bob: \"not on Friday\"",
        ),
        (
            lambda sf, clock, id: clock.advance("25h"),
            "session 'ship' waits: its request for tf.apply expired 2h ago",
        ),
        (
            lambda sf, clock, id: sf.approvals.grant(id, approver="bob"),
            "session 'ship' waits: tf.apply was granted by bob; run it again",
        ),
    ],
    ids=["requested", "denied", "expired", "granted"],
)
def test_why_a_session_waits_is_derived_from_the_answer(
    engine_url: str, tmp_path: Path, then: Then, expected: str
) -> None:
    """002-18: a stored reason that an answer or a timeout made false is not shown."""
    clock = ManualClock()
    with standfast.open(engine_url, data_dir=tmp_path / "data", clock=clock) as sf:
        id = asked(sf)
        clock.advance("1h")
        then(sf, clock, id)
        assert waits(sf) == expected
        assert expected in sf.brief().markdown


def test_a_reason_that_no_row_contradicts_is_shown_as_it_was_given(sf: standfast.Standfast) -> None:
    """002-18: the reason is shown as the person wrote it."""
    with sf.session("ship") as s:
        s.pause("the review of tuesday")
    assert waits(sf) == "session 'ship' waits: \"the review of tuesday\""


def test_an_effect_that_was_resolved_is_no_reason_to_wait_any_more(engine_url: str, tmp_path: Path) -> None:
    """002-18: the effect that the session waited for was resolved meanwhile."""
    clock = ManualClock()
    with standfast.open(engine_url, data_dir=tmp_path / "data", clock=clock) as sf:
        with pytest.raises(RuntimeError), sf.session("ship") as s:
            s.effect("deploy", {"to": "prod"}, do=_dies)
        with pytest.raises(standfast.EffectInDoubt), sf.session("ship") as s:
            s.effect("deploy", {"to": "prod"}, do=_dies)
        assert waits(sf) == "session 'ship' waits: deploy is in doubt"
        clock.advance("1m")
        (effect,) = [row["id"] for row in sf.rows("SELECT id FROM effect")]
        sf.effects.resolve(effect, "not_applied", evidence="looked")
        assert waits(sf).startswith("session 'ship' waits: deploy was settled since (")
        assert "in doubt" not in waits(sf)


def _dies(call: standfast.Call) -> None:
    raise RuntimeError("the line is dead")
