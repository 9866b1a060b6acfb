"""The customer-service agent of the examples continues after any kill; two agents serve one customer (001-79)."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import standfast
from standfast.errors import InProgress, NotFound
from tests.others import Other

SCHEDULES = int(os.environ.get("STANDFAST_TEST_SCHEDULES", "10"))
EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    yield import_module("customer_service")
    sys.modules.pop("customer_service")


def test_killed_at_any_point_of_any_turn_it_continues(example: Any, sf_crash: Any) -> None:
    """After any kill the turns are stored, and the customer gets one answer to each message and one refund."""

    def agent() -> None:
        with standfast.open() as sf:
            try:
                sf.state.get("profile", namespace=example.CUSTOMER)
            except NotFound:
                example.sign_up()
        example.serve("bank")

    ends = list(sf_crash(agent, max_schedules=SCHEDULES))
    assert len(ends) == SCHEDULES
    for end in ends:
        assert end.error is None, end
        assert (end.directory / "bank").read_text() == "refunded order 7: 1250\n", end
        with end.open() as sf:
            check(sf, example)


def check(sf: standfast.Standfast, example: Any) -> None:
    said = [(message.role, message.content) for message in sf.sessions.messages(example.CUSTOMER)]
    assert [content for role, content in said if role == "user"] == example.SAID
    assert [role for role, _ in said] == ["user", "assistant"] * 3
    assert said[3] == ("assistant", "Done: 12.50 EUR for order 7.")
    profile = sf.state.get("profile", namespace=example.CUSTOMER, returns=example.Profile).value
    assert (profile.name, profile.turns, profile.sentiment) == ("Ada", 3, "happy")
    (ticket,) = sf.tasks.list(state="any")
    assert (ticket.state, ticket.episode) == ("closed", 1)
    (call,) = sf.effects.list()
    assert (call.tool, call.state) == ("bank.refund", "acknowledged")
    assert sf.sessions.get(example.CUSTOMER).state == "completed"


def test_a_field_added_later_breaks_neither_old_data_nor_old_agents(sf: standfast.Standfast, example: Any) -> None:
    """An old profile is read with the default. An agent that does not know the field does not change it."""

    @dataclass(frozen=True)
    class OldProfile:
        name: str
        plan: str = "free"
        turns: int = 0
        notes: list[str] = field(default_factory=list)

    where = {"namespace": example.CUSTOMER}
    sf.state.set("profile", {"name": "Ada", "plan": "pro", "turns": 4, "notes": ["vip"]}, **where)
    profile = sf.state.get("profile", returns=example.Profile, **where).value
    assert profile == example.Profile("Ada", "pro", 4, ["vip"], "neutral")
    sf.state.update("profile", lambda p: replace(p, sentiment="happy"), returns=example.Profile, **where)
    sf.state.update("profile", lambda p: replace(p, turns=p.turns + 1), returns=OldProfile, **where)
    profile = sf.state.get("profile", returns=example.Profile, **where).value
    assert profile == example.Profile("Ada", "pro", 5, ["vip"], "happy")


def test_two_agents_on_one_customer_lose_nothing(engine_url: str, tmp_path: Path, example: Any) -> None:
    environment = {**os.environ, "STANDFAST_DATA_DIR": str(tmp_path / "data"), "STANDFAST_DB_URL": engine_url}
    with standfast.open(engine_url, data_dir=tmp_path / "data") as sf:
        sf.state.set("profile", {"name": "Ada"}, namespace=example.CUSTOMER)
    agents = [
        subprocess.Popen([sys.executable, str(EXAMPLES / "customer_service.py"), "notes", name], env=environment)
        for name in ("billing", "shipping")
    ]
    assert [agent.wait(60) for agent in agents] == [0, 0]
    with standfast.open(engine_url, data_dir=tmp_path / "data") as sf:
        found = sf.state.get("profile", namespace=example.CUSTOMER)
    notes = found.value["notes"]
    assert (len(notes), len(set(notes)), found.version) == (20, 20, 21)
    assert [note for note in notes if note.startswith("billing")] == [f"billing {n}" for n in range(10)]


def test_a_conversation_has_one_agent_at_a_time(
    sf: standfast.Standfast, engine_url: str, tmp_path: Path, example: Any
) -> None:
    code = f"with sf.session({example.CUSTOMER!r}) as s:\n    say('talking')\n    wait()"
    with Other(engine_url, tmp_path / "data", code) as other:
        other.hear("talking")
        with pytest.raises(InProgress), sf.session(example.CUSTOMER):
            pass
        other.kill()
    with sf.session(example.CUSTOMER) as s:
        assert s.resumed is not None
