"""Exports: a bundle, text or push holds no secret, and a record is unchanged after export and import."""

from __future__ import annotations

import random
import string
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

import standfast
from standfast import Standfast, files
from standfast.admin import push
from standfast.interchange import plain_files
from standfast_prove.campaigns import interchange
from standfast_prove.outcome import Outcome

Campaign = Callable[..., Outcome]

LETTERS = string.ascii_letters + string.digits
FORMS = (
    ("ghp_", 36, LETTERS),
    ("github_pat_", 30, LETTERS),
    ("sk-ant-", 40, LETTERS),
    ("sk-proj-", 40, LETTERS),
    ("glpat-", 24, LETTERS),
    ("AKIA", 16, string.ascii_uppercase + string.digits),
    ("AIza", 35, LETTERS),
    ("xoxb-", 30, LETTERS),
    ("sk_live_", 24, LETTERS),
    ("npm_", 36, LETTERS),
    ("hf_", 34, LETTERS),
    ("SG.abcdefghijklmnop.", 20, LETTERS),
    ("Bearer ", 30, LETTERS),
)


def planted(count: int) -> list[str]:
    chance = random.Random(26)
    chosen = (FORMS[n % len(FORMS)] for n in range(count))
    return [prefix + "".join(chance.choices(letters, k=size)) for prefix, size, letters in chosen]


def test_no_planted_secret_leaves_the_store(sf: Standfast, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """001-21, 002-44: each kind of row holds some of 500 secrets. The bundle, the text and the push have none of
    them.
    """
    monkeypatch.setattr(push, "SETTLED_US", -1)  # as if a minute had passed
    secrets = planted(500)
    with sf.session("leaky") as s:
        for part in range(0, 200, 20):
            s.say("user", {"text": "\n".join(secrets[part : part + 20])})
        s.step("tokens", lambda: secrets[200:250])
        s.state["tokens"] = secrets[250:300]
        s.artifacts.put("\n".join(secrets[300:350]).encode(), name="env", kind="log")
        with s.decide("rotate", why=" ".join(secrets[350:380])):
            s.effect("vault.rotate", {"old": secrets[380:400]}, do=lambda call: secrets[400:410])
    with sf.transaction() as tx:
        for secret in secrets[410:440]:
            tx.tasks.add(f"rotate {secret}", body=secret)
        for secret in secrets[440:470]:
            tx.state.set(f"key-{secret[-5:]}", {"value": [secret]})
        tx.events.append_many("leaks", [("leak", {"secret": secret}) for secret in secrets[470:]])
    sf.export("leaky", to=tmp_path / "leaky.zip")
    sf.export(text=tmp_path / "text")
    push.push(sf._store, str(tmp_path / "pushed"), payloads=True)
    with zipfile.ZipFile(tmp_path / "leaky.zip") as archive:
        written = [archive.read(name) for name in archive.namelist()]
    places = [path for top in ("text", "pushed") for path in (tmp_path / top).rglob("*.*")]
    written += [path.read_bytes() for path in places if path.is_file()]
    everything = b"\n".join(written).decode("latin-1")
    assert [secret for secret in secrets if secret.removeprefix("Bearer ") in everything] == []
    assert everything.count("[redacted:") > 500


def test_files_exported_and_imported_on_both_engines_are_equal(sf: Standfast, tmp_path: Path) -> None:
    """001-39, 001-21: files to SQLite to PostgreSQL to SQLite to files returns the same records."""
    records = {f"k{n}": {"n": n, "text": "ä\t\n\"'", "list": [None, 1.5, True, {}]} for n in range(40)}
    files.write(tmp_path / "plan.json", records)
    with standfast.open(tmp_path / "a.db", data_dir=tmp_path / "a") as first:
        plain_files.run(first, str(tmp_path / "plan.json"))
        first.export(text=tmp_path / "text1")
    sf.imports.text(tmp_path / "text1", commit=True)
    sf.export(text=tmp_path / "text2")
    with standfast.open(tmp_path / "b.db", data_dir=tmp_path / "b") as last:
        last.imports.text(tmp_path / "text2", commit=True)
        found = {entry.key: entry.value for entry in last.state.list(namespace="plan", limit=100)}
    files.write(tmp_path / "back.json", found)
    assert (tmp_path / "back.json").read_bytes() == (tmp_path / "plan.json").read_bytes()
    assert (tmp_path / "text1" / "state.jsonl").read_bytes() == (tmp_path / "text2" / "state.jsonl").read_bytes()


def test_without_the_hashes_of_members_a_damaged_bundle_is_imported(tmp_path: Path) -> None:
    assert "a damaged bundle was imported" in str(interchange.zips(tmp_path, inputs=60, unhashed=True).bad)


def test_an_import_that_writes_before_it_has_read_every_file_changes_the_store(tmp_path: Path) -> None:
    assert "refused text changed the store" in str(interchange.lines(tmp_path, seed=1, inputs=4, unread=True).bad)


@pytest.mark.usefixtures("sf")
@pytest.mark.parametrize("campaign", [interchange.zips, interchange.lines])
def test_a_sample_of_damaged_inputs_is_refused(campaign: Campaign, engine_url: str, tmp_path: Path) -> None:
    """002-3: short runs of the campaigns inputs-bundles and inputs-text."""
    outcome = campaign(tmp_path, seed=7, url=engine_url, inputs=12)
    assert outcome.bad == []
    assert outcome.seen["refused"] >= 4
