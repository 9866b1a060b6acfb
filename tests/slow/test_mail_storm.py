"""Many processes exchange mail and are killed at any time: no mail is lost, and none is done twice."""

from __future__ import annotations

from pathlib import Path

import pytest

import standfast
from standfast_prove import mail_histories
from standfast_prove.mail_histories import campaign


@pytest.mark.parametrize("seed", [1])
def test_eight_processes_with_kills_lose_nothing_and_end_nothing_twice(
    engine_url: str, tmp_path: Path, seed: int
) -> None:
    """000-40: a mail is received at least once, and done at most once per fencing token or a dead letter with a
    reason.
    """
    assert campaign(engine_url, tmp_path, seed=seed, senders=3, receivers=5, count=40, kills=8) == []


def test_the_check_would_notice(sf: standfast.Standfast) -> None:
    """The check finds each forbidden event that is added to a history."""
    box = mail_histories.BOX
    done, dead = sf.mail.send(box, 1), sf.mail.send(box, 2)
    sf.mail.done(done.id)
    sf.mail.refuse(dead.id, "no")
    fine = [
        {"what": "sent", "id": done.id, "body": 1},
        {"what": "got", "id": done.id, "fence": 1},
        {"what": "ending", "verb": "done", "id": done.id, "fence": 1},
        {"what": "ended", "verb": "done", "id": done.id, "fence": 1},
    ]
    assert list(mail_histories.wrong(sf, fine)) == []
    for lie, words in (
        ([{"what": "sent", "id": "mal_x", "body": 3}], "acknowledged and lost"),
        ([{"what": "sent", "id": done.id, "body": 3}], "another body"),
        ([{"what": "got", "id": done.id, "fence": 1}], "handed out twice"),
        ([{"what": "got", "id": done.id, "fence": 9}], "no attempt has"),
        ([{"what": "ended", "verb": "done", "id": done.id, "fence": 1}], "done twice"),
        ([{"what": "ended", "verb": "done", "id": dead.id, "fence": 1}], "reported as done"),
    ):
        assert any(words in one for one in mail_histories.wrong(sf, fine + lie)), words
    assert any("never received" in one for one in mail_histories.wrong(sf, fine[2:]))
    sf.mail.send(box, 3)
    assert any("not ended" in one for one in mail_histories.wrong(sf, fine))
