"""An effect repeated in another session: a doubt is reported. With `per="store"` it is one effect."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import standfast
from standfast import config, handle
from standfast.ledger.effects import begin
from standfast_prove.scenes import orphan
from tests import places


class Lost(Exception):
    """The answer did not arrive."""


@pytest.fixture
def sent() -> list[str]:
    return []


def charge(sent: list[str], **options: Any) -> Any:
    @standfast.effect("bank.charge", by=("order",), **options)
    def charge(order: str, note: str = "", lose: bool = False) -> str:
        sent.append(order)
        if lose:
            raise Lost(order)
        return f"charged {order}"

    return charge


def test_an_effect_in_doubt_in_another_session_is_named_instead_of_sent(
    sf: standfast.Standfast, sent: list[str]
) -> None:
    """000-21: the same tool and `by` under another session key."""
    pay = charge(sent)
    with sf.session("night 1"), pytest.raises(Lost):
        pay("1042", lose=True)
    with sf.session("night 2"):
        with pytest.raises(standfast.EffectInDoubt, match=r"bank\.charge order=1042 is in doubt.*'night 1'"):
            pay("1042", note="in other words")
        assert pay("1043") == "charged 1043"
    assert sent == ["1042", "1043"]
    assert sf.sessions.get("night 2").state == "waiting", "although the program swallowed it"
    sf.effects.resolve(sf.effects.in_doubt()[0].id, "not_applied", evidence="the bank's books")
    with sf.session("night 2"):
        assert pay("1042") == "charged 1042"
    assert sf.sessions.get("night 2").state == "completed"


def test_one_with_a_live_holder_is_not_in_doubt(sf: standfast.Standfast, sent: list[str]) -> None:
    with sf.session("a"):
        sf.effects.begin("bank.charge", {"order": "1"}, by="order", session="a")
        with sf.session("b") as s:
            assert s.effect(charge(sent), "1") == "charged 1"


def test_one_in_doubt_is_found_behind_many_that_are_alive(
    sf: standfast.Standfast, sent: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """000-21: four equal effects in flight do not hide the one in doubt."""
    monkeypatch.setattr(begin, "PAGE", 2)
    for key in ("a", "b", "c", "d"):
        sf.sessions.open(key)
        sf.effects.begin("bank.charge", {"order": "1"}, by="order", session=key)
    with sf.session("e"), pytest.raises(Lost):
        charge(sent)("1", lose=True)
    with sf.session("f"), pytest.raises(standfast.EffectInDoubt, match="in session 'e'"):
        charge(sent)("1")
    assert sent == ["1"]


def test_what_was_begun_outside_any_session_counts_as_elsewhere(sf: standfast.Standfast, sent: list[str]) -> None:
    begun = sf.effects.begin("bank.charge", {"order": "1"}, by="order")
    orphan(sf, begun.id)
    with sf.session("b") as s, pytest.raises(standfast.EffectInDoubt, match="outside any session"):
        s.effect(charge(sent), "1")
    with sf.session("c"), pytest.raises(standfast.EffectInDoubt):
        sf.effects.begin("bank.charge", {"order": "1"}, by="order", session="c")
    assert sent == []


def test_proceed_does_not_send_an_effect_that_is_in_doubt_in_another_session(
    sf: standfast.Standfast, sent: list[str]
) -> None:
    pay = charge(sent)
    with sf.session("a") as s, pytest.raises(Lost):
        pay("1", lose=True)
    with sf.session("b") as s:
        assert s.proceed() == ()
        with pytest.raises(standfast.EffectInDoubt):
            pay("1")
    assert sent == ["1"]


def test_two_keys_of_the_caller_are_two_effects(sf: standfast.Standfast) -> None:
    """`once backup --per day`: yesterday's doubt does not stop today's run."""
    with sf.session("a"):
        begun = sf.effects.begin("once", {"argv": ["./backup"]}, key="backup@mon", session="a")
        orphan(sf, begun.id)
    with sf.session("b") as s:
        assert s.effect("once", {"argv": ["./backup"]}, key="backup@tue", do=lambda call: 1) == 1
        with pytest.raises(standfast.EffectInDoubt):
            s.effect("once", {"argv": ["./backup"]}, do=lambda call: 1)


def test_another_scope_is_independent(
    sf: standfast.Standfast, engine_url: str, tmp_path: Path, sent: list[str]
) -> None:
    pay = charge(sent)
    with sf.session("a"), pytest.raises(Lost):
        pay("1", lose=True)
    settings = config.load(engine_url, data_dir=tmp_path / "data", scope="another")
    with handle.connect(settings) as other, other.session("a"):
        assert pay("1") == "charged 1"


def test_the_same_effect_of_another_repository_names_it_the_account_and_the_way_out(
    engine_url: str, tmp_path: Path, sent: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """000-21, 000-36: the error names the session, repository and author of the effect in doubt, and the way out."""
    pay = charge(sent)
    for name, actor, origin in (("shop", "ann@laptop", places.ORIGIN), ("other", "bob@desk", places.OTHER_ORIGIN)):
        monkeypatch.chdir(places.repository(tmp_path / name, origin))
        monkeypatch.setenv("STANDFAST_ACTOR", actor)
        with standfast.open(engine_url, data_dir=tmp_path / "data") as sf, sf.session(name):
            with pytest.raises((Lost, standfast.EffectInDoubt)) as caught:
                pay("1", lose=True)
            account = next(iter(sf.rows("SELECT session_user AS name")))["name"] if "://" in engine_url else None
    said = str(caught.value)
    written = f"ann@laptop as {account}" if account else "ann@laptop"
    assert f"in session 'shop' of github.com/shop/shop in {tmp_path}/shop/.git, written by {written}" in said
    assert "scope=" in said
    assert sent == ["1"]


# -- per="store" -------------------------------------------------------------------------------------------


def test_per_store_makes_tool_and_by_one_effect_in_every_session(sf: standfast.Standfast, sent: list[str]) -> None:
    """000-21: for charges and deployments, the session is no part of the effect's identity."""
    pay = charge(sent, per="store")
    for key in ("a", "b"):
        with sf.session(key):
            assert pay("1") == "charged 1"
    assert sent == ["1"]
    assert len(sf.effects.list()) == 1


def test_per_store_may_be_given_with_options_and_by_hand(sf: standfast.Standfast, sent: list[str]) -> None:
    with sf.session("a") as s:
        assert s.effect(charge(sent).with_options(per="store"), "1") == "charged 1"
    with sf.session("b") as s:
        done = s.effect("bank.charge", {"order": "1"}, by="order", do=lambda call: "again", per="store")
        assert done == "charged 1"
        begun = sf.effects.begin("bank.charge", {"order": "1"}, by="order", session="b", per="store")
        assert begun.state == "acknowledged"
    assert sent == ["1"]


def test_per_store_in_a_fork_and_with_again(sf: standfast.Standfast, sent: list[str]) -> None:
    pay = charge(sent, per="store")
    with sf.session("a"):
        pay("1")
    sf.sessions.fork("a", "fork")
    with sf.session("fork"):
        assert pay("1") == "charged 1"
    assert sent == ["1"]


@pytest.mark.parametrize("per", ["world", "", 1, "session "])
def test_an_unknown_per_is_refused(sf: standfast.Standfast, per: Any) -> None:
    with pytest.raises(standfast.InvalidInput, match="per"):
        standfast.effect("t", by=standfast.ALL, per=per)
    with sf.session("a") as s, pytest.raises(standfast.InvalidInput, match="per"):
        s.effect("t", do=lambda call: 1, per=per)


def test_a_key_replaces_the_identity_that_per_store_would_give(sf: standfast.Standfast, sent: list[str]) -> None:
    with sf.session("a") as s:
        s.effect(charge(sent, per="store"), "1")
        s.effect(charge(sent, per="store"), "1", key="second")
    assert sent == ["1", "1"]
    assert sf.effects.get("second").key == "second"


def test_the_session_that_sent_it_last_is_the_one_that_is_stopped(sf: standfast.Standfast, sent: list[str]) -> None:
    """The effect with a key failed in one session. The next session sent it again and is in doubt."""

    def no(call: standfast.Call) -> None:
        raise standfast.NotApplied("no route")

    def lose(call: standfast.Call) -> None:
        raise Lost("no answer")

    with sf.session("a") as s, pytest.raises(standfast.NotApplied):
        s.effect("post", key="k", do=no)
    with sf.session("b") as s:
        with pytest.raises(Lost):
            s.effect("post", key="k", do=lose)
        with pytest.raises(standfast.EffectInDoubt):
            s.effect("post", {"what": "else"}, do=lambda call: sent.append("b"))
    with sf.session("a") as s:
        s.effect("post", {"what": "else"}, do=lambda call: sent.append("a"))
    assert sent == ["a"]
    assert sf.effects.get("k").session_id == sf.sessions.get("b").id
