"""A governor: agents share a budget. Without credentials it uses an offline model, deterministic and with failures."""

from __future__ import annotations

from pathlib import Path

import pytest

import standfast
from standfast.errors import Conflict
from standfast.governor import Governor
from standfast.testing import FATES, OfflineModel

PROMPTS = [f"prompt {n}" for n in range(40)]


def test_the_fate_of_a_call_follows_from_the_seed_alone() -> None:
    """000-46, 000-47, 000-48: the same seed makes the same calls fail, and every kind of failure occurs."""
    one, two, other = OfflineModel(1, fates=FATES), OfflineModel(1, fates=FATES), OfflineModel(2, fates=FATES)
    fates = [one.fate(prompt) for prompt in PROMPTS]
    assert fates == [two.fate(prompt) for prompt in PROMPTS]
    assert set(fates) == set(FATES)
    assert fates != [other.fate(prompt) for prompt in PROMPTS]
    assert "dies" not in {OfflineModel(1).fate(prompt) for prompt in PROMPTS}, "only if it is asked for"


def prompt_with(fate: str, model: OfflineModel) -> str:
    return next(prompt for prompt in PROMPTS if model.fate(prompt) == fate)


@pytest.mark.parametrize("fate", FATES[:4])
def test_each_fate_ends_in_books_that_agree_with_the_bill(sf: standfast.Standfast, tmp_path: Path, fate: str) -> None:
    """000-47: a call was refused, lost or dearer than estimated. A repeated call returns the answer, which is paid
    for once.
    """
    model = OfflineModel(1, bill=tmp_path / "bill")
    prompt = prompt_with(fate, model)
    sf.budgets.set("team", tokens=10_000)
    errors = {"refuses": standfast.NotApplied, "times out": TimeoutError}
    with sf.session("fix-42", agent="coder") as s:
        governor = Governor(sf, "team", provider=model, find=model.find, model="m-1")
        if fate in errors:
            with pytest.raises(errors[fate]):
                governor.ask(s, prompt, tokens=300, key="part 1")
        answers = {governor.ask(s, prompt, tokens=300, key="part 1") for _ in range(3)}
        assert (len(answers), len(s.model_calls())) == (1, 1)
    team = sf.budgets.get("team")
    billed = [tokens for key, _, tokens in model.billed() if key != "refused"]
    assert (len(billed), team.spent.tokens, team.held.tokens) == (1, sum(billed), 0)
    assert (billed[0] > 300) == (fate == "overruns")


def test_an_answer_that_the_provider_cannot_find_stays_in_doubt(sf: standfast.Standfast, tmp_path: Path) -> None:
    model = OfflineModel(1, bill=tmp_path / "bill")
    prompt = prompt_with("times out", model)
    sf.budgets.set("team", tokens=500)
    with sf.session("fix-42") as s:
        governor = Governor(sf, "team", provider=model)
        with pytest.raises(TimeoutError):
            governor.ask(s, prompt, tokens=300, key="part 1")
        with pytest.raises(Conflict, match="in doubt"):
            governor.ask(s, prompt, tokens=300, key="part 1")
    assert sf.budgets.report("team").in_doubt.tokens == 300


def test_without_credentials_the_model_is_offline(sf: standfast.Standfast, monkeypatch: pytest.MonkeyPatch) -> None:
    """000-45, 000-46: no key is needed. With a key, the governor calls the user's function."""
    sf.budgets.set("team", tokens=5_000)

    def provider(prompt: str, /, *, max_tokens: int, key: str) -> tuple[str, object]:
        return f"{prompt}!", {"input_tokens": max_tokens, "output_tokens": 1}

    monkeypatch.delenv("MODEL_API_KEY", raising=False)
    offline = Governor(sf, "team", provider=provider, needs="MODEL_API_KEY", seed=1)
    assert (offline.offline, offline.model) == (True, "offline")
    monkeypatch.setenv("MODEL_API_KEY", "x")
    online = Governor(sf, "team", provider=provider, needs="MODEL_API_KEY", model="m-1")
    with sf.session("fix-42") as s:
        prompt = prompt_with("answers", OfflineModel(1))
        assert offline.ask(s, prompt, tokens=300, key="a").startswith("answer ")
        assert online.ask(s, "hello", tokens=300, key="b") == "hello!"
        assert online.ask(s, "other words", tokens=300, key="b") == "hello!", "paid for once"
        assert [one.model for one in s.model_calls()] == ["offline", "m-1"]
