"""A loop belongs to the account that wrote it, and a daemon runs only the loops of accounts that it serves."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

import standfast
from standfast import config, when
from standfast.admin import doctor
from standfast.clock import MINUTE_US, SECOND_US, SYSTEM
from standfast.config.actor import account
from standfast.daemon import leader_lease
from standfast_prove.faults.daemons import Later, daemon, noted, noting, opened, until
from tests.interfaces.test_cli import run

AT_US = (SYSTEM.now_us() // SECOND_US) * SECOND_US + 30 * MINUTE_US
MINE = account()
OTHER = f"{MINE.partition('@')[0]}@other-host"


@pytest.fixture
def sf(engine_url: str, tmp_path: Path) -> Iterator[standfast.Standfast]:
    """The clock is an hour ahead, so that a loop added for the next hour is due now."""
    with opened(engine_url, tmp_path / "data", clock=Later()) as store:
        yield store


@pytest.fixture
def on_other_host(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """Until `undo`, `os.uname` returns another host name, so that accounts are those of another machine."""
    real = os.uname()
    fields = ("sysname", "nodename", "release", "version", "machine")
    named = SimpleNamespace(**{name: getattr(real, name) for name in fields} | {"nodename": "other-host"})
    with monkeypatch.context() as patch:
        patch.setattr(os, "uname", lambda: named)
        yield patch


def add(sf: standfast.Standfast, name: str, command: list[str]) -> standfast.Loop:
    with opened(sf.settings.target.location, Path(sf.settings.data_dir)) as now:
        return now.loops.add(name, command, at=when.utc(AT_US), cwd="/")


def listing(sf: standfast.Standfast, *accounts: str) -> standfast.Standfast:
    """The same handle, with a configuration that lists these accounts."""
    sf.settings = sf.settings._replace(options=sf.settings.options.replace(accounts=accounts))
    return sf


def ticked(sf: standfast.Standfast, witness: Path) -> dict[tuple[str, int], int]:
    """The commands that ran in ten ticks of a daemon, once all of them have ended."""
    serving = daemon(sf)
    for _ in range(10):
        serving.tick(woken=True)
    until(lambda: serving.work.idle, lambda: serving.tick(woken=True))
    return dict(noted(witness))


def test_the_account_comes_from_the_operating_system(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("USER", "another-user")
    monkeypatch.setenv("STANDFAST_ACTOR", "ada")
    assert account() == MINE
    assert MINE.endswith(f"@{os.uname().nodename}")


def test_a_loop_names_the_account_that_wrote_it(sf: standfast.Standfast) -> None:
    """R24"""
    made = sf.loops.add("nightly", ["true"], every="1h", cwd="/")
    assert (made.account, made.host) == (MINE, os.uname().nodename)
    assert sf.loops.get("nightly").account == MINE


def test_a_daemon_runs_no_loop_of_another_account(
    sf: standfast.Standfast, tmp_path: Path, on_other_host: pytest.MonkeyPatch
) -> None:
    """R24, 002-49: a loop of another account is neither fired nor run. The daemon names the loop and the setting to
    change.
    """
    theirs = add(sf, "theirs", noting(tmp_path / "out"))
    assert theirs.account == OTHER
    on_other_host.undo()
    add(sf, "mine", noting(tmp_path / "out"))
    assert ticked(sf, tmp_path / "out") == {("mine", AT_US): 1}
    assert sf.runs.list("theirs") == []
    serving = daemon(sf)
    serving.tick()
    (foreign,) = serving.status("p", 0).foreign
    assert foreign["loop"] == "theirs"
    assert f'[daemon] accounts = ["{OTHER}"]' in foreign["then"]
    (found,) = [one for one in doctor._loops(sf, sf.settings) if "theirs" in one.text]
    assert (found.state, OTHER in found.text, f'["{OTHER}"]' in found.remedy) == ("warn", True, True)


def test_a_daemon_runs_the_loops_of_accounts_that_its_configuration_lists(
    sf: standfast.Standfast, tmp_path: Path, on_other_host: pytest.MonkeyPatch
) -> None:
    add(sf, "theirs", noting(tmp_path / "out"))
    on_other_host.undo()
    assert ticked(listing(sf, OTHER), tmp_path / "out") == {("theirs", AT_US): 1}


def test_daemons_of_one_set_of_accounts_take_turns_and_others_do_not_wait(sf: standfast.Standfast) -> None:
    """000-36: each of two machines lists the other's account. A third account does not wait for them."""
    assert leader_lease.name_of([MINE, OTHER]) == leader_lease.name_of([OTHER, MINE, MINE])
    assert leader_lease.name_of([MINE]) != leader_lease.name_of([OTHER])
    assert len(leader_lease.name_of([f"user-{n}@host" for n in range(100)])) <= leader_lease.NAME_MAX
    first = daemon(listing(sf, OTHER))
    first.tick()
    with opened(sf.settings.target.location, Path(sf.settings.data_dir), clock=Later()) as another:
        alone = daemon(another)
        alone.tick()
        assert (first.state, alone.state) == ("active", "active")


def test_a_run_of_another_account_is_not_claimed(sf: standfast.Standfast, on_other_host: pytest.MonkeyPatch) -> None:
    """R24: nor if its slot has a row already."""
    add(sf, "theirs", ["true"])
    sf.loops.fire_due()
    on_other_host.undo()
    assert sf.runs.claim(host="here") is None
    assert sf.loops.next_due_us() is None
    claimed = sf.runs.claim(host="here", accounts=[OTHER])
    assert claimed is not None
    assert claimed.loop == "theirs"


def test_a_changed_loop_belongs_to_the_account_that_changed_it(
    sf: standfast.Standfast, on_other_host: pytest.MonkeyPatch
) -> None:
    """R24: the first author's account never runs a command that another account wrote into the loop."""
    add(sf, "nightly", ["true"])
    on_other_host.undo()
    assert (add(sf, "nightly", ["true"]).change, sf.loops.get("nightly").account) == ("same", OTHER)
    assert (add(sf, "nightly", ["false"]).change, sf.loops.get("nightly").account) == ("changed", MINE)


def test_commands_name_the_account_and_show_the_command_of_another_one_first(
    sf: standfast.Standfast, tmp_path: Path, on_other_host: pytest.MonkeyPatch
) -> None:
    """R24, R32: `loop list` and `loop show` name the account. On a terminal, `--here` asks before the command runs."""
    add(sf, "theirs", noting(tmp_path / "out"))
    on_other_host.undo()
    where = {"STANDFAST_DB_URL": sf.settings.target.location, "STANDFAST_DATA_DIR": sf.settings.data_dir}
    listed, shown = (run("loop", *words, home=tmp_path, **where) for words in (("list", "--all"), ("show", "theirs")))
    assert OTHER in listed.stdout
    assert OTHER in shown.stdout
    refused = run("loop", "run", "theirs", "--here", home=tmp_path, **where)
    assert (refused.returncode, "terminal" in refused.stderr) == (5, True), refused.stderr
    assert noted(tmp_path / "out") == {}


CONFIG = '[daemon]\naccounts = ["ops@a", "ops@b"]\n'


def test_only_the_data_directorys_configuration_lists_accounts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """R24: the configuration of a repository, trusted or not, cannot make a daemon run loops of other accounts."""
    project = tmp_path / "project" / ".standfast"
    project.mkdir(parents=True)
    (project / "config.toml").write_text(CONFIG)
    monkeypatch.chdir(project.parent)
    data = tmp_path / "data"
    assert config.load(data_dir=data, quiet=True).options.accounts == ()
    with pytest.raises(standfast.InvalidInput, match="which no project can set"):
        config.trust(project / "config.toml", data_dir=data)
    data.mkdir(mode=0o700, exist_ok=True)
    (data / "config.toml").write_text(CONFIG)
    assert config.load(data_dir=data, quiet=True).options.accounts == ("ops@a", "ops@b")


@pytest.mark.parametrize(
    "text", ["accounts = []", 'accounts = "a@b"', 'accounts = ["ada"]', "other = 1", "accounts = [1]"]
)
def test_a_wrong_list_of_accounts_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.toml").write_text(f"[daemon]\n{text}\n")
    with pytest.raises(standfast.InvalidInput, match="wrong value for 'daemon'"):
        config.load(data_dir=tmp_path)
