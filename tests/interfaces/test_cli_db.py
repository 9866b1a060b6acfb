"""`standfast db` prints the connected store and chooses another one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import standfast
from standfast import config
from standfast.cli import app

UNREACHABLE = "postgresql://ada:hunter2@127.0.0.1:1/state?connect_timeout=1"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An account with a project, which is the current directory."""
    root = tmp_path / "project"
    (root / ".git" / "objects").mkdir(parents=True)
    (root / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("STANDFAST_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.delenv("STANDFAST_DB_URL", raising=False)
    monkeypatch.chdir(root)
    config._warned.clear()
    return root


@pytest.fixture
def shown(capsys: pytest.CaptureFixture[str]) -> Any:
    def run(*words: str, code: int = 0) -> dict[str, Any]:
        assert app.run(["db", *words, "--json"]) == code
        out, run.err = capsys.readouterr()  # type: ignore[attr-defined]
        assert "hunter2" not in out + run.err  # type: ignore[attr-defined]
        return json.loads(out)["data"] if out else {}

    return run


def test_db_prints_the_store_and_the_setting_that_chose_it(project: Path, tmp_path: Path, shown: Any) -> None:
    """003-22, 003-26: the output has the real connection and every overridden setting."""
    assert shown()["connected"] is False
    standfast.open().close()
    data = shown()
    assert (data["connected"], data["source"], data["decided_by"]) == (True, "default", "built in")
    assert data["facts"]["sqlite_version"]
    assert data["schema_version"] >= 1


def test_the_variable_is_shown_to_win(
    project: Path, tmp_path: Path, shown: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """003-22: the output shows that the environment variable overrides the file."""
    shown("sqlite", "mine.db")
    shown("sqlite", "all.db", "--global")
    monkeypatch.setenv("STANDFAST_DB_URL", "now.db")
    standfast.open().close()
    data = shown()
    assert (data["connected"], data["store"]) == (True, str(project / "now.db"))
    assert [(s["source"], s["state"], Path(s["store"]).name) for s in data["sources"]] == [
        ("environment", "used", "now.db"),
        ("project", "overridden", "mine.db"),
        ("global", "overridden", "all.db"),
        ("default", "overridden", "standfast.db"),
    ]
    saved = shown("sqlite", "other.db")
    assert saved["in_effect"] is False
    assert "not in effect here: STANDFAST_DB_URL selects" in shown.err


def test_a_choice_is_saved_for_the_project_or_the_account(project: Path, tmp_path: Path, shown: Any) -> None:
    """003-22, 003-23, 003-25: saved for the project, or with `global`. The command asks for a restart and opens no
    store.
    """
    saved = shown("sqlite", "state.db")
    assert saved["saved"] == str(project / ".standfast" / "config.toml")
    assert saved["in_effect"] is True
    assert "restart" in shown.err
    assert config.load().target.location == str(project / "state.db")
    assert not (project / "state.db").exists()

    saved = shown("sqlite", str(tmp_path / "all.db"), "--global")
    assert saved["saved"] == str(tmp_path / "data" / "config.toml")
    assert saved["in_effect"] is False

    shown("sqlite")
    assert config.load().target.location == str(tmp_path / "data" / "standfast.db")
    assert config.load().source == "project"


@pytest.mark.without_store
def test_a_postgres_url_is_tested_before_it_is_saved(
    project: Path, tmp_path: Path, shown: Any, pg_database: str
) -> None:
    """003-21, 003-22, 003-27: the command connects once and makes the schema, and then saves the URL."""
    saved = shown("pg", pg_database)
    assert (saved["engine"], saved["in_effect"]) == ("postgres", True)
    assert config.load().target.location == pg_database
    data = shown()
    assert data["connected"] is True
    assert data["schema_version"] >= 1


def test_a_url_that_does_not_answer_is_not_saved(project: Path, shown: Any) -> None:
    """003-24: no message has its password."""
    assert shown("pg", UNREACHABLE, code=1) == {}
    assert "not saved" in shown.err
    assert not (project / ".standfast").exists()
    saved = shown("pg", UNREACHABLE, "--no-test")
    assert saved["store"] == "postgresql://ada:***@127.0.0.1:1/state?connect_timeout=1"
    assert "contains a password" in shown.err
    assert (project / ".standfast" / ".gitignore").exists()
    data = shown(code=1)
    assert (data["connected"], data["store"]) == (False, saved["store"])


def test_what_cannot_be_a_choice_is_refused(project: Path, tmp_path: Path, shown: Any) -> None:
    assert shown("pg", "state.db", code=2) == {}
    assert shown("pg", "mysql://ada:hunter2@h/d", code=2) == {}
    assert shown("pg", "postgres://ada:hunter2@x@h/d", code=2) == {}
    assert shown("sqlite", ":memory:", code=2) == {}
    (tmp_path / "Dropbox").mkdir()
    assert shown("sqlite", str(tmp_path / "Dropbox" / "x.db"), code=78) == {}
    assert shown("sqlite", str(tmp_path), code=78) == {}
    assert not (project / ".standfast").exists()


def test_a_project_is_trusted_by_a_command(project: Path, shown: Any) -> None:
    """RULES §9: the command trusts exactly the current bytes of the file."""
    assert shown("trust", code=3) == {}
    (project / ".standfast").mkdir()
    file = project / ".standfast" / "config.toml"
    file.write_text('db_url = "postgres://ada:hunter2@db/state"\nnotify = ["bell"]\n')
    assert [source["state"] for source in shown()["sources"]] == ["used", "untrusted"]
    assert shown("sqlite", "x.db", code=2) == {}
    assert "standfast db trust" in shown.err
    trusted = shown("trust")
    assert trusted["values"] == {"db_url": "postgres://ada:***@db/state", "notify": ["bell"]}
    assert config.load().source == "project"
    file.write_text('db_url = "elsewhere.db"\n')
    assert config.load(quiet=True).source == "default"


def test_a_person_sees_a_table(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    standfast.open().close()
    assert app.run(["db"]) == 0
    out = capsys.readouterr().out
    assert "decided by  built in" in out
    assert "connected, schema" in out
    assert "default\tused\t" in out
