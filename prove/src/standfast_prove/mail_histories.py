"""The total-queue check: the mail that processes recorded as sent, received and ended, compared with the store.

Senders and readers are processes that are killed at any moment. Each writes every call and every answer to its own
file, which survives the kill. Afterwards these must hold for every mail:

- If it was acknowledged to its sender, it is in the store with that body.
- It was received at least once, or is a dead letter with a reason.
- Each fencing token was given once. The mail was ended once or not at all, with the last fencing token.
- Every attempt has a row, and every row has an end with its reason.
"""

from __future__ import annotations

import json
import os
import random
import select
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import standfast
from standfast import config, handle
from standfast.errors import LeaseLost
from standfast_prove.faults.children import Nursery

BOX = "role:worker"
LEASE = "200ms"


class Told:
    """A history that survives its writer: each write appends one line."""

    def __init__(self, place: str, name: str) -> None:
        self._fd = os.open(f"{place}/{name}.history", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def __call__(self, what: str, **about: object) -> None:
        os.write(self._fd, json.dumps({"what": what, **about}).encode() + b"\n")


def send(url: str, place: str, number: int, count: int) -> None:
    """In a child: every second mail with a key, so that the process that takes over sends it once."""
    acked = Told(place, f"send{number}")
    with opened(url, place) as sf:
        for n in range(count):
            body = {"from": number, "n": n}
            key = f"key {number} {n}" if n % 2 else None
            acked("sending", body=body, key=key)
            mail = sf.mail.send(BOX, body, key=key, priority=n % 3, attempts_max=3)
            acked("sent", body=body, id=mail.id)
    (Path(place) / f"sender {number} is done").touch()


def receive(url: str, place: str, number: int, senders: int) -> None:
    """In a child, until no mail is left: claim a mail, then end it, defer it, or leave it to its lease."""
    acked, draw = Told(place, f"receive{number}"), random.Random(number)
    # Every second reader is an actor, whose leases end by time. A killed reader of the others is known to be dead.
    with opened(url, place, actor=f"worker {number % 3}", as_actor=number % 2 == 0) as sf:
        while not (_all_sent(place, senders) and not sf.mail.list(BOX, limit=1)):
            for mail in sf.mail.follow(BOX, for_=LEASE, timeout=0.2):
                acked("got", id=mail.id, fence=mail.fence, body=mail.body)
                chance = draw.random()
                if chance < 0.1:
                    continue  # the mail is delivered again
                verb = "done" if chance < 0.75 else "defer" if chance < 0.9 else "refuse"
                acked("ending", verb=verb, id=mail.id, fence=mail.fence)
                try:
                    if verb == "done":
                        sf.mail.done(mail)
                    elif verb == "defer":
                        sf.mail.defer(mail, for_="1ms", reason="not now")
                    elif draw.random() < 0.3:
                        sf.mail.refuse(mail, "no good")
                    else:
                        sf.mail.release(mail, reason="for another")
                    acked("ended", verb=verb, id=mail.id, fence=mail.fence)
                except LeaseLost:
                    acked("late", verb=verb, id=mail.id, fence=mail.fence)


def opened(url: str, place: str | Path, *, actor: str | None = None, as_actor: bool = False) -> standfast.Standfast:
    """Open the store with a new scope, because a server may have rows of other campaigns."""
    scope = "/".join(Path(place).parts[-2:])
    return handle.connect(config.load(url, data_dir=Path(place) / "data", actor=actor, scope=scope), as_actor=as_actor)


def _all_sent(place: str, senders: int) -> bool:
    return len(list(Path(place).glob("sender * is done"))) == senders


def campaign(url: str, place: Path, *, seed: int, senders: int, receivers: int, count: int, kills: int) -> list[str]:
    """Send, receive and kill, then yield each violation as a sentence. All processes have ended on return."""
    draw = random.Random(seed)
    said: dict[str, Any] = {"url": url, "place": str(place)}
    with Nursery(words=place / "words") as nursery:
        numbers = iter(range(10_000))

        def sender(number: int) -> int:
            return nursery.start("standfast_prove.mail_histories:send", number=number, count=count, **said)

        def receiver() -> int:
            return nursery.start(
                "standfast_prove.mail_histories:receive", number=next(numbers), senders=senders, **said
            )

        with opened(url, place) as sf:
            sf.mail.bound(BOX, 100_000)
        sending = {sender(number): number for number in range(senders)}
        receiving = [receiver() for _ in range(receivers)]
        for _ in range(kills):
            _let_them_work(place, draw.randrange(200, 4_000))
            if sending and draw.random() < 0.3:
                victim = draw.choice(list(sending))
                nursery.kill(victim)
                number = sending.pop(victim)
                (place / f"sender {number} is done").unlink(missing_ok=True)
                sending[sender(number)] = number  # start again from the top: a key sends only once
            else:
                victim = draw.choice(receiving)
                nursery.kill(victim)
                receiving[receiving.index(victim)] = receiver()
        receiving.append(receiver())  # a sender may have restarted after all receivers had ended
        codes = [nursery.wait(pid, 120) for pid in [*sending, *receiving]]
    if any(codes):
        return [f"children ended with {codes}: {(place / 'words').read_text()[-1500:]}"]
    with opened(url, place) as sf:
        return list(wrong(sf, read(place)))


def _let_them_work(place: Path, size_bytes: int) -> None:
    """Wait until the histories have grown by this much, or for 1 s if no process can work."""

    def written() -> int:
        return sum(file.stat().st_size for file in place.glob("*.history"))

    before, end = written(), time.monotonic() + 1
    while written() < before + size_bytes and time.monotonic() < end:
        select.select([], [], [], 0.005)


def read(place: Path) -> list[dict[str, Any]]:
    lines = [line for file in sorted(place.glob("*.history")) for line in file.read_bytes().split(b"\n")]
    return [json.loads(line) for line in lines if line]


def wrong(sf: standfast.Standfast, history: list[dict[str, Any]]) -> Iterator[str]:
    """Answers that are impossible for a queue without loss and duplicates."""
    mine = "SELECT * FROM mail WHERE scope = :scope AND box = :box"
    mails = {row["id"]: row for row in sf.rows(mine, {"scope": sf.scope, "box": BOX})}
    letters = {row["subject"]: row["reason"] for row in sf.rows("SELECT subject, reason FROM dead_letter")}
    got: dict[str, Counter[int]] = defaultdict(Counter)
    ended: dict[str, list[dict[str, Any]]] = defaultdict(list)
    tried: dict[str, set[int]] = defaultdict(set)
    for one in history:
        match one["what"]:
            case "sent" if one["id"] not in mails:
                yield f"acknowledged and lost: {one}"
            case "sent" if json.loads(mails[one["id"]]["body"]) != one["body"]:
                yield f"another body than was sent: {one}"
            case "got":
                got[one["id"]][one["fence"]] += 1
            case "ending" if one["verb"] == "done":
                tried[one["id"]].add(one["fence"])
            case "ended" if one["verb"] == "done":
                ended[one["id"]].append(one)
    for id, row in mails.items():
        if row["state"] == "dead" and not letters.get(id):
            yield f"dead without a reason: {id}"
        if row["state"] not in ("done", "dead"):
            yield f"not ended: {id} is {row['state']}"
        if not got[id] and row["state"] != "dead":
            yield f"never received: {id}"
        if any(times > 1 for times in got[id].values()):
            yield f"one fence handed out twice: {id} {got[id]}"
        if len(ended[id]) > 1:
            yield f"done twice: {ended[id]}"
        if ended[id] and (row["state"], row["fence"]) != ("done", ended[id][0]["fence"]):
            yield f"reported as done, and it is {row['state']} with fence {row['fence']}: {ended[id]}"
        if row["state"] == "done" and row["fence"] not in tried[id]:
            yield f"done, and no holder with fence {row['fence']} tried: {id}"
    yield from _wrong_attempts(sf, mails, got)
    keys = Counter(row["key"] for row in mails.values() if row["key"])
    yield from (f"one key, {times} mails: {key}" for key, times in keys.items() if times > 1)


def _wrong_attempts(
    sf: standfast.Standfast, mails: dict[str, dict[str, Any]], got: dict[str, Counter[int]]
) -> Iterator[str]:
    attempts: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in sf.rows("SELECT * FROM mail_attempt ORDER BY mail_id, n"):
        attempts[row["mail_id"]].append(row)
    for id, row in mails.items():
        mine = attempts[id]
        if [one["n"] for one in mine] != list(range(1, row["attempts"] + 1)):
            yield f"attempts {[one['n'] for one in mine]} of {row['attempts']}: {id}"
        if any(one["outcome"] is None for one in mine):
            yield f"an attempt that never ended: {mine}"
        if any(one["outcome"] != "done" and not one["reason"] for one in mine):
            yield f"an attempt without a reason: {mine}"
        if not set(got[id]) <= {one["fence"] for one in mine}:
            yield f"received with a fence that no attempt has: {id} {got[id]}"
        if [one["outcome"] for one in mine].count("done") != (row["state"] == "done"):
            yield f"{row['state']}, and its attempts say {[one['outcome'] for one in mine]}: {id}"
