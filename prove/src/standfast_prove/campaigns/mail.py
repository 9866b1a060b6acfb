"""Eight processes send and receive mail and are killed again and again; each mail is delivered as promised.

The check is `mail_histories`: what the processes recorded, compared with the store.
"""

from __future__ import annotations

from pathlib import Path

from standfast_prove.mail_histories import campaign, opened
from standfast_prove.outcome import Outcome


def run(place: Path, *, url: str | None = None, seed: int = 0, count: int = 250, kills: int = 60) -> Outcome:
    outcome = Outcome("mail")
    url = url or str(place / "standfast.db")
    place.mkdir(parents=True, exist_ok=True)
    wrong = campaign(url, place, seed=seed, senders=3, receivers=5, count=count, kills=kills)
    with opened(url, place) as sf:
        here: dict[str, object] = {"scope": sf.scope}
        for row in sf.rows("SELECT state, count(*) AS n FROM mail WHERE scope = :scope GROUP BY state", here):
            outcome.count("mails", int(row["n"]))
            outcome.count(f"mails {row['state']}", int(row["n"]))
        ends = """SELECT a.outcome AS outcome, count(*) AS n FROM mail_attempt a JOIN mail m ON m.id = a.mail_id
                  WHERE m.scope = :scope GROUP BY a.outcome"""
        for row in sf.rows(ends, here):
            outcome.count(f"attempts {row['outcome']}", int(row["n"]))
    outcome.count("kills", kills)
    outcome.refuse(wrong[:5], "; ".join(wrong[:5]))
    return outcome
