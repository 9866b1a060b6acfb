"""Events compared with a small model (`standfast_prove.models.events`), and the differences between two states."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from standfast.record.events.folds import changes
from standfast_prove.models.playing import play


def test_calls_in_any_order_agree_with_the_model(engine_url: str, tmp_path: Path) -> None:
    play("events", engine_url, tmp_path / "data", examples=12 if engine_url.startswith("postgres") else 20)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from(["", "a", "a/b", "~"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "a/b", "~", ""]), inner),
    max_leaves=8,
)


@settings(max_examples=150, deadline=None)
@given(was=VALUES, now=VALUES)
def test_a_difference_is_empty_only_between_equals_and_leads_from_one_to_the_other(was: Any, now: Any) -> None:
    found = changes(was, now)
    assert (found == []) == _same(was, now)
    assert _same(_patched(was, found), now)
    assert len({change.path for change in found}) == len(found)


def _same(one: Any, other: Any) -> bool:
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


def _patched(state: Any, found: list[Any]) -> Any:
    root = {"": copy.deepcopy(state)}
    removed = [change for change in found if change.kind == "removed"]
    for change in [change for change in found if change.kind != "removed"] + removed[::-1]:
        parts = [part.replace("~1", "/").replace("~0", "~") for part in change.path.split("/")]
        place: Any = root
        for part in parts[:-1]:
            place = place[int(part)] if isinstance(place, list) else place[part]
        last: Any = int(parts[-1]) if isinstance(place, list) else parts[-1]
        if change.kind == "removed":
            del place[last]
        elif isinstance(place, list) and last == len(place):
            place.append(change.now)
        else:
            place[last] = change.now
    return root[""]
