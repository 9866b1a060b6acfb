"""Files prepared by a clone, another account or a umask: no command hangs, follows a link or shares a secret."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import standfast
from standfast.admin.agents import install
from standfast.config import files, load
from standfast.config.scope import repository
from tests import commands
from tests.interfaces.test_cli import environment, run

PASSWORD = "s3cr3tpass"


def fifo(path: Path) -> None:
    os.mkfifo(path)


def device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def listening(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(os.path.relpath(path))


NO_FILES = [fifo, device, listening]


def timed(*words: str, home: Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run a command with a timeout, because it must not block."""
    return commands.run(*words, environment=environment(home), cwd=cwd)


# -- only regular files are read -----------------------------------------------------------------------------


@pytest.mark.parametrize("make", NO_FILES)
def test_a_fifo_or_device_instead_of_git_blocks_no_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Callable[[Path], None]
) -> None:
    """000-50: a FIFO named `.git` in a clone blocks no command."""
    clone = tmp_path / "clone"
    clone.mkdir()
    monkeypatch.chdir(clone)
    make(clone / ".git")
    done = timed("status", home=tmp_path, cwd=clone)
    assert done.returncode == 0, done.stderr
    found = repository(str(clone))
    assert found is not None
    assert found.common_dir is None


@pytest.mark.parametrize("name", ["config", "commondir"])
@pytest.mark.parametrize("make", NO_FILES)
def test_a_fifo_or_device_inside_git_blocks_no_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Callable[[Path], None], name: str
) -> None:
    """000-50: nor inside `.git`."""
    monkeypatch.chdir(tmp_path)
    git = tmp_path / ".git"
    (git / "objects").mkdir(parents=True)
    (git / "HEAD").write_text("ref: refs/heads/main\n")
    make(git / name)
    assert timed("status", home=tmp_path, cwd=tmp_path).returncode == 0


@pytest.mark.parametrize("make", NO_FILES)
def test_a_fifo_or_device_is_no_configuration_of_a_project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Callable[[Path], None]
) -> None:
    """000-50: a command that reads this file for a person refuses it by name; other commands ignore it."""
    (tmp_path / "clone" / ".standfast").mkdir(parents=True)
    path = tmp_path / "clone" / ".standfast" / "config.toml"
    monkeypatch.chdir(path.parent)
    make(path)
    assert timed("status", home=tmp_path, cwd=path.parent.parent).returncode == 0
    refused = timed("db", "trust", str(path), home=tmp_path, cwd=path.parent.parent)
    why = "it is a symbolic link" if make is device else "it is not a regular file"
    assert (refused.returncode, why in refused.stderr) == (78, True), refused.stderr


def test_a_project_configuration_that_is_a_link_is_not_followed_and_the_accounts_own_is(tmp_path: Path) -> None:
    """000-30: a clone cannot name a file of this account; a person's dotfiles may be links."""
    data = tmp_path / "data"
    data.mkdir(mode=0o700)
    real = tmp_path / "real.toml"
    real.write_text('scope = "theirs"\n')
    project = tmp_path / "clone" / ".standfast"
    project.mkdir(parents=True)
    (project / "config.toml").symlink_to(real)
    with pytest.raises(standfast.InvalidInput, match="symbolic link"):
        files.read(str(project / "config.toml"), project=True)
    assert load(cwd=project.parent, data_dir=data, quiet=True).scope == ""
    own = tmp_path / "own.toml"
    own.write_text("redact = false\n")
    (data / "config.toml").symlink_to(own)
    assert load(cwd=tmp_path, data_dir=data).options.redact is False


# -- files are for their owner, with every umask -------------------------------------------------------------


@pytest.fixture
def open_umask() -> Iterator[None]:
    old = os.umask(0)
    yield
    os.umask(old)


def test_no_file_in_the_data_directory_is_readable_by_others_under_umask_000(tmp_path: Path, open_umask: None) -> None:
    """000-50: this includes the daemon's log, also one that an older version made readable for all."""
    log = tmp_path / ".standfast" / "daemon" / "log"
    assert run("daemon", "start", home=tmp_path).returncode == 0
    try:
        assert run("task", "add", "x", home=tmp_path).returncode == 0
        (tmp_path / "file").write_text("x")
        assert run("artifact", "put", str(tmp_path / "file"), home=tmp_path).returncode == 0
        assert run("gate", "add", "Bash(rm:*)", home=tmp_path).returncode == 0
        assert log.exists()
        wide = {
            str(path.relative_to(tmp_path)): oct(stat.S_IMODE(path.lstat().st_mode))
            for path in (tmp_path / ".standfast").rglob("*")
            if stat.S_IMODE(path.lstat().st_mode) & 0o077 and not path.is_symlink()
        }
        assert wide == {}
    finally:
        run("daemon", "stop", "--now", home=tmp_path)
    log.chmod(0o666)
    assert run("daemon", "start", home=tmp_path).returncode == 0
    run("daemon", "stop", "--now", home=tmp_path)
    assert stat.S_IMODE(log.stat().st_mode) == 0o600


# -- no password in errors or in the process list -------------------------------------------------------------


def carried(error: BaseException | None) -> Iterator[str]:
    """An error with its context, cause and notes, as a reporting tool prints it."""
    while error is not None:
        yield f"{error!r} {error.args!r} {vars(error) if hasattr(error, '__dict__') else ''}"
        error = error.__cause__ or error.__context__


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://u:{PASSWORD}%zz@h/x",
        f"postgresql://u:{PASSWORD}%ff@h/x",
        f"postgresql://u:{PASSWORD}@h:port/x",
        f"postgresql://u:{PASSWORD}@h/x?nonsense=1",
        f"postgresql://u:{PASSWORD}@[::1/x",
        f"postgresql://u@h/x?password={PASSWORD}&bad%zz=1",
        f"postgresql://u:{PASSWORD}@127.0.0.1:1/x?connect_timeout=1",
        f"postgresql://u:{PASSWORD}@127.0.0.1:1/x?connect_timeout=soon",
        f"postgresql://u:{PASSWORD}@h/x?pooler={PASSWORD}",
    ],
)
def test_no_error_about_a_url_carries_its_password(url: str, tmp_path: Path) -> None:
    """003-24: the password is in neither the message nor `__context__` nor `__cause__`."""
    with pytest.raises(standfast.StandfastError) as caught:
        standfast.open(url, data_dir=tmp_path)
    assert [text for text in carried(caught.value) if PASSWORD in text] == []


def test_no_error_about_a_configuration_prints_its_content(tmp_path: Path) -> None:
    """003-24: the error has no bytes of a file that is not UTF-8."""
    path = tmp_path / "config.toml"
    path.write_bytes(f'db_url = "postgresql://u:{PASSWORD}@h/x"\n\xff'.encode("latin-1"))
    with pytest.raises(standfast.InvalidInput) as caught:
        load(data_dir=tmp_path, cwd=tmp_path)
    assert [text for text in carried(caught.value) if PASSWORD in text] == []


def test_the_url_of_a_database_is_read_from_stdin_or_from_a_variable(tmp_path: Path) -> None:
    """003-24: no password is in the process list. If it is given on the command line, the command warns."""
    url = f"postgresql://u:{PASSWORD}@db.example.org/x"
    ways = [
        run("db", "pg", "-", "--no-test", "--global", home=tmp_path, input=f"{url}\n"),
        run("db", "pg", "--env", "MY_URL", "--no-test", "--global", home=tmp_path, MY_URL=url),
        run("db", "pg", url, "--no-test", "--global", home=tmp_path),
    ]
    for done in ways:
        assert done.returncode == 0, done.stderr
        assert PASSWORD not in done.stdout + done.stderr
        assert PASSWORD in (tmp_path / ".standfast" / "config.toml").read_text()
    shown = "the process list showed the password to other accounts; next time: standfast db pg - < FILE"
    assert [shown in done.stderr for done in ways] == [False, False, True]
    for words, given in ((("--env", "NOT_SET"), None), (("-",), ""), ((), None), ((url, "--env", "MY_URL"), None)):
        refused = run("db", "pg", *words, home=tmp_path, input=given)
        assert refused.returncode == 2, refused
        assert PASSWORD not in refused.stderr


# -- nothing is written through a link of the clone ------------------------------------------------------------


@pytest.mark.parametrize("linked", [".claude/settings.local.json", ".claude"])
def test_an_installation_into_a_project_is_refused_where_the_clone_has_a_link(tmp_path: Path, linked: str) -> None:
    """000-50: the target, inside or outside the clone, is left as it was."""
    outside, clone = tmp_path / "outside", tmp_path / "clone"
    (clone / ".git").mkdir(parents=True)
    if linked == ".claude":
        outside.mkdir()
        target = outside / "settings.local.json"
        (clone / ".claude").symlink_to(outside)
    else:
        target = outside
        (clone / ".claude").mkdir()
        (clone / linked).symlink_to(target)
    target.write_text("{}")
    for words in ((), ("--remove",)):
        done = run("install", "claude-code", "--scope", "project", "--no-test", *words, home=tmp_path, cwd=clone)
        assert (done.returncode, "symbolic link" in done.stderr) == (2, True), done.stderr
        assert target.read_text() == "{}"


def test_a_project_that_is_itself_reached_by_a_link_is_installed_into(tmp_path: Path) -> None:
    """000-30: only links inside the clone are refused; a symlinked home works."""
    clone = tmp_path / "real" / "clone"
    (clone / ".git").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    agent = install.agent_named("claude-code")
    for project in (clone, tmp_path / "link" / "clone"):
        found = install.targets(agent, ("hooks",), "project", os.environ, str(project), shared=False)
        assert list(found) == [str(project / ".claude" / "settings.local.json")]


def test_settings_that_are_no_regular_file_are_refused(tmp_path: Path) -> None:
    """000-50: for example a FIFO would block the installation."""
    path = tmp_path / "settings.json"
    os.mkfifo(path)
    agent = install.agent_named("claude-code")
    with pytest.raises(standfast.InvalidInput, match="not a regular file"):
        install.install_plan(agent, str(path), "/usr/bin/standfast")
