"""Killed at every crash point while mail is sent, claimed, deferred, abandoned, retried and done; and in the recovery.

The oracle is a file outside the store: every try and every acknowledgement. After every kill no acknowledged write is
missing, each mail ended once, and every attempt has a row with its end. The mail, its attempts, its dead letters and
the journal agree.
"""

from __future__ import annotations

from collections import Counter

import standfast
from standfast.crash import Schedule
from standfast.record.mail import Mail
from standfast_prove.crashes.world import World

KEYS = ("one", "two")


class Mails(World):
    """A sender, a reader that defers, a mail that no reader can handle, and a person who settles it."""

    def live(self) -> None:
        """The program. Every process runs it from the top."""
        with self.open() as sf:
            sf.mail.bound("bob", 50)
            for key in KEYS:
                self.acked(f"send {key}", lambda key=key: sf.mail.send("bob", key, key=key, attempts_max=30))  # type: ignore[misc]
            if (mail := sf.mail.claim("bob")) is not None:
                self.acked("defer", lambda: sf.mail.defer(mail, for_="1us", reason="later"))
            if (read := sf.mail.read(to="bob")) is not None:
                self.acked("renew", lambda: sf.mail.renew(read))
                self.acked("release", lambda: sf.mail.release(read, reason="not me"))
            self.poison(sf)
            sf.mail.sweep()
            for found in sf.mail.follow("bob", timeout=0):
                self.tell(f"work {found.body} {found.fence}")
                self.acked(
                    f"done {found.body}",
                    lambda found=found: sf.mail.reply(found, "ok", key=f"re {found.body}", sender="bob", done=True),  # type: ignore[misc]
                )

    def poison(self, sf: standfast.Standfast) -> None:
        poison = sf.mail.send("eve", "poison", key="poison", attempts_max=1)
        if (mail := sf.mail.claim("eve")) is not None:
            self.acked("refuse", lambda: sf.mail.refuse(mail, "no good"))
        if sf.mail.get(poison.id).attempts_max == 1:
            self.acked("retry", lambda: sf.mail.retry(poison.id, attempts=1, note="once more"))
        if (last := sf.mail.claim("eve")) is not None:
            self.acked("give up", lambda: sf.mail.release(last, reason="still no good"))
        if sf.mail.dead():
            self.acked("resolve", lambda: sf.mail.resolve(poison.id, note="by hand"))

    def check(self, schedule: Schedule) -> None:
        noted = self.noted()
        with self.open() as sf:
            assert sf.mail.list("bob") == []
            assert sf.mail.list("eve") == []
            mails = {mail.key or mail.id: mail for mail in sf.mail.list(state="any", limit=1000)}
            assert set(mails) == {*KEYS, "poison", *(f"re {key}" for key in KEYS)}
            for key in KEYS:
                assert (mails[key].state, mails[key].reason) == ("done", "answered")
                assert mails[f"re {key}"].reply_to_id == mails[key].id
                assert noted[f"acked done {key}"] <= 1
            assert mails["poison"].state == "dead"
            letters = sf.mail.dead(settled=True)
            assert sorted(letter.settlement or "open" for letter in letters) == ["resolved", "retried"]
            assert sf.mail.get("poison").attempts == 2
            for mail in mails.values():
                self.check_one(sf, mail)
        self.sound()

    def check_one(self, sf: standfast.Standfast, mail: Mail) -> None:
        types = Counter(event.type.removeprefix("mail.") for event in sf.mail.history(mail, limit=1000))
        attempts = sf.mail.delivered(mail).attempts
        assert types["sent"] == 1
        assert [one.n for one in attempts] == list(range(1, mail.attempts + 1))
        assert types["leased"] == mail.attempts
        assert all(one.outcome for one in attempts)
        assert all(one.reason for one in attempts)
        outcomes = Counter(one.outcome for one in attempts)
        assert outcomes["done"] == types["done"] == (mail.state == "done")
        back = types["deferred"] + types["returned"] + types["lost"]
        assert mail.fence == types["leased"] + back + types["dead"] + types["retried"]
        assert [one.fence for one in attempts] == sorted({one.fence for one in attempts})
