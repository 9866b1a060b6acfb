"""State: values by name, versions that are never used twice, and values that expire."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

import standfast
from standfast.clock import ManualClock


def test_a_value_has_a_version_that_grows(sf: standfast.Standfast) -> None:
    first = sf.state.set("branch", "main")
    second = sf.state.set("branch", {"name": "fix-42"})
    assert (first.version, second.version) == (1, 2)
    found = sf.state.get("branch")
    assert (found.value, found.version, found.agent, found.expires_us) == ({"name": "fix-42"}, 2, sf.agent, None)
    assert second.receipt is not None
    assert sf.journal.verify(str(second.receipt)).type == "state.set"


def test_swap_decides_between_two_writers(sf: standfast.Standfast) -> None:
    assert sf.state.swap("n", 1, version=0).version == 1
    with pytest.raises(standfast.VersionConflict, match=r"'n' is at version 1 \(by .*\), not 0"):
        sf.state.swap("n", 2, version=0)
    assert sf.state.swap("n", 2, version=1).version == 2
    with pytest.raises(standfast.VersionConflict, match=r"is at version 2 .*, not 1"):
        sf.state.swap("n", 3, version=1)
    with pytest.raises(standfast.NotFound):
        sf.state.swap("other", 1, version=4)
    assert sf.state.get("n").value == 2


def test_a_value_lives_as_long_as_its_namespace(engine_url: str, tmp_path: Path) -> None:
    """001-4, 001-7, 001-25: the caller chooses for each value: for a limited time, for a session, or permanently."""
    clock = ManualClock()
    with standfast.open(engine_url, data_dir=tmp_path / "data", clock=clock) as sf, sf.session("fix-42") as s:
        sf.state.set("lookup", "cached", for_="1m")
        s.state["branch"] = "fix-42"
        sf.state.set("style", "tabs", namespace="preferences")
        sf.state.set("parser", "has two entry points", namespace="knowledge")
        sf.decisions.record("keep both entry points", why="others call them")
        sf.tasks.add("merge the parsers", session="fix-42")
    clock.advance("2m")
    with standfast.open(engine_url, data_dir=tmp_path / "data", clock=clock) as sf:
        with pytest.raises(standfast.NotFound):
            sf.state.get("lookup")
        with pytest.raises(standfast.NotFound):
            sf.state.get("branch")  # the session's namespace is separate
        with sf.session("fix-42") as s:
            assert dict(s.state) == {"branch": "fix-42"}
        assert sf.state.get("style", namespace="preferences").value == "tabs"
        assert sf.state.get("parser", namespace="knowledge").value == "has two entry points"
        assert [made.why for made in sf.decisions.list()] == ["others call them"]
        assert [task.state for task in sf.tasks.list()] == ["open"]


def test_many_counters_lose_nothing(sf: standfast.Standfast) -> None:
    sf.state.set("n", 0)

    def count() -> None:
        done = 0
        while done < 10:
            found = sf.state.get("n")
            try:
                sf.state.swap("n", found.value + 1, version=found.version)
                done += 1
            except standfast.VersionConflict:
                continue

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (sf.state.get("n").value, sf.state.get("n").version) == (40, 41)


def test_a_version_is_never_given_twice_also_after_a_delete(sf: standfast.Standfast) -> None:
    old = sf.state.set("n", "old")
    assert sf.state.delete("n", version=1).version == 2
    with pytest.raises(standfast.NotFound):
        sf.state.get("n")
    with pytest.raises(standfast.NotFound):
        sf.state.delete("n")
    again = sf.state.swap("n", "new", version=0)
    assert again.version == 3
    with pytest.raises(standfast.VersionConflict):
        sf.state.swap("n", "lost", version=old.version)
    with pytest.raises(standfast.VersionConflict):
        sf.state.delete("n", version=1)


def test_a_value_may_end_by_time(engine_url: str, tmp_path: Path) -> None:
    clock = ManualClock()
    with standfast.open(engine_url, data_dir=tmp_path / "data", clock=clock) as sf:
        sf.state.set("a", 1, for_="1m")
        sf.state.set("b", 2)
        clock.advance("59s")
        assert sf.state.get("a").value == 1
        clock.advance("1s")
        with pytest.raises(standfast.NotFound):
            sf.state.get("a")
        with pytest.raises(standfast.NotFound):
            sf.state.swap("a", 2, version=1)
        assert [entry.key for entry in sf.state.list()] == ["b"]
        assert sf.state.swap("a", 3, version=0).version == 2
        with pytest.raises(standfast.InvalidInput, match="between 1 µs and a hundred years"):
            sf.state.set("a", 1, for_=0)


def test_namespaces_and_pages(sf: standfast.Standfast) -> None:
    for n in range(5):
        sf.state.set(f"k{n}", n, namespace="one")
    sf.state.set("k0", "other", namespace="two")
    assert [e.key for e in sf.state.list(namespace="one", limit=2)] == ["k0", "k1"]
    assert [e.key for e in sf.state.list(namespace="one", after="k1")] == ["k2", "k3", "k4"]
    assert sf.state.list() == []
    assert sf.state.get("k0", namespace="two").value == "other"


def test_the_state_of_a_session_is_a_dictionary_on_disk(sf: standfast.Standfast) -> None:
    with sf.session("k") as s:
        s.state["branch"] = "fix-42"
        s.state.update(tries=1, files=["a.py"])
        assert s.state.setdefault("tries", 9) == 1
        assert ("branch" in s.state, "nothing" in s.state, len(s.state)) == (True, False, 3)
        assert s.state.pop("files") == ["a.py"]
        assert s.state.get("files", "none") == "none"
        with pytest.raises(KeyError):
            s.state["files"]
        with pytest.raises(KeyError):
            del s.state["files"]
        entry = s.state.entry("tries")
        assert entry is not None
        assert s.state.swap("tries", 2, version=entry.version).version == 2
        with pytest.raises(standfast.VersionConflict):
            s.state.swap("tries", 3, version=entry.version)
        namespace = s.id
    with sf.session("k") as s:
        assert dict(s.state) == {"branch": "fix-42", "tries": 2}
    assert sf.state.get("branch", namespace=namespace).value == "fix-42"
    with sf.session("other") as s:
        assert dict(s.state) == {}


BAD: dict[str, tuple[Any, str]] = {
    "nan": (float("nan"), "value: NaN"),
    "nul": ("\0", "value: a NUL"),
    "surrogate": ("\ud800", "value: a lone surrogate"),
    "oversized": ("x" * 1_100_000, "value: 1,100,00. bytes, and the limit is 1,048,576"),
}


@pytest.mark.parametrize("what", BAD)
def test_a_value_that_cannot_be_stored_is_refused_and_the_old_one_stays(sf: standfast.Standfast, what: str) -> None:
    value, wanted = BAD[what]
    sf.state.set("n", "old")
    with pytest.raises(standfast.InvalidInput, match=wanted):
        sf.state.set("n", value)
    assert (sf.state.get("n").value, sf.state.get("n").version) == ("old", 1)


@pytest.mark.parametrize("key", ["", "a\0", "x" * 501, "\ud800"])
def test_a_bad_key_is_refused_by_name(sf: standfast.Standfast, key: str) -> None:
    with pytest.raises(standfast.InvalidInput, match="a state's key"):
        sf.state.set(key, 1)
    with pytest.raises(standfast.InvalidInput, match="a state's key"):
        sf.state.get(key)


def test_values_change_together_with_others_or_not_at_all(sf: standfast.Standfast) -> None:
    with pytest.raises(standfast.VersionConflict), sf.transaction() as tx:
        tx.state.set("a", tx.state.set("b", 1).version and tx.state.swap("b", 2, version=7).version)
    with pytest.raises(standfast.NotFound):
        sf.state.get("b")
