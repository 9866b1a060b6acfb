"""Conversations: no batch is split, no removed or cleared item returns, and no acknowledged item is lost."""

from __future__ import annotations

import json
from collections import Counter

import standfast
from standfast.crash import Schedule
from standfast.record.conversations import Conversations, Item, line
from standfast_prove.crashes.world import World

FIRST, SECOND = [[1, 1], [1, 2]], [[2, 1], [2, 2], [2, 3]]


class Talks(World):
    """Adds, removes and clears items as a framework does. Each process continues at the end of the conversation."""

    def live(self) -> None:
        with self.open() as sf:
            talks = Conversations(sf._store)
            items = self.seen(talks)
            if not items:
                items = self.acked("add", lambda: self.add(talks, FIRST))
            if items == FIRST:
                self.acked("take back", lambda: talks.take_back(self.name))
                items = self.seen(talks)
            if items == FIRST[:1]:
                self.acked("clear", lambda: talks.clear(self.name))
                self.acked("add", lambda: self.add(talks, SECOND))

    def add(self, talks: Conversations, items: list[list[int]]) -> list[Item]:
        talks.add(self.name, [line(item, role="user", summary=json.dumps(item), redact=True) for item in items])
        return list(items)

    def seen(self, talks: Conversations) -> list[Item]:
        items = talks.items(self.name)
        assert items in ([], FIRST, FIRST[:1], SECOND), f"half of something: {items}"
        return items

    def check(self, schedule: Schedule) -> None:
        noted = self.noted()
        with self.open() as sf:
            assert Conversations(sf._store).items(self.name) in (SECOND, FIRST[:1])
            said = sf.sessions.messages(self.name, last=1000)
            assert [message.position for message in said] == list(range(1, len(said) + 1))
            batches = Counter(message.content[0] for message in said)
            assert batches[1] % 2 == 0
            assert batches[2] == len(SECOND), f"{schedule}: {batches}"
            assert noted["acked add"] * 2 <= len(said)
            self.check_story(sf)
        self.sound()

    def check_story(self, sf: standfast.Standfast) -> None:
        """Each added, removed and cleared item is in the journal once."""
        id = sf.sessions.get(self.name).id
        events = Counter(event.type for event in sf.journal.tail(limit=1000).events if event.session_id == id)
        assert events["message.said"] == len(sf.sessions.messages(self.name, last=1000))
        assert events["session.cleared"] >= 1
        assert events["session.opened"] == 1
