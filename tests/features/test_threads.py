"""The methods of threads that the LangGraph adapter does not call."""

from __future__ import annotations

import standfast


def test_the_path_of_several_channels_goes_as_far_back_as_the_oldest_of_them(sf: standfast.Standfast) -> None:
    """A prune must keep the whole path, because later values are computed from it."""
    parent = None
    for id, channel in (("1", "old"), ("2", "new"), ("3", "other")):
        kept = {"values": {channel: True}, "value_of": lambda name: ("json", name.encode())}
        sf.threads.put("t", id, header=b"{}", parent_id=parent, **kept)
        parent = id
    path = {channels: list(sf.threads.path("t", "3", channels)) for channels in (("new",), ("old",), ("new", "old"))}
    assert path["new", "old"] == path["old",] == [*path["new",], "1"]
    assert sf.threads.path("t", "3", ()) == []
