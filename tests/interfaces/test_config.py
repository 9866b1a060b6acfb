"""One module decides the store, the scope of keys, and the actor."""

from __future__ import annotations

import functools
import os
import pickle
import shutil
import stat
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from standfast import config
from standfast.config import Target, agent_present, load, mask, parse_db_target, save_target, trust
from standfast.config.files import KEYS
from standfast.config.scope import Label, carried, normalised, origin_url
from standfast.errors import InvalidInput

DEFAULT = "/home/ada/.standfast/standfast.db"
HOME = {"HOME": "/home/ada"}


@pytest.fixture(autouse=True)
def nothing_said_yet() -> None:
    config._warned.clear()


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    """An account with its own home and data directory."""
    (tmp_path / "home").mkdir()
    return {"HOME": str(tmp_path / "home"), "USER": "ada", "STANDFAST_DATA_DIR": str(tmp_path / "data")}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A repository without a remote, and a directory inside it."""
    root = tmp_path / "project"
    (root / "deep" / "down").mkdir(parents=True)
    make_git_dir(root / ".git")
    return root


def make_git_dir(path: Path, origin: str | None = None) -> None:
    for name in ("objects", "refs"):
        (path / name).mkdir(parents=True)
    (path / "HEAD").write_text("ref: refs/heads/main\n")
    remote = f'[remote "origin"]\n\turl = {origin}\n\tfetch = +refs/heads/*:refs/remotes/origin/*\n' if origin else ""
    (path / "config").write_text(f"[core]\n\tbare = false\n{remote}")


def write_config(directory: Path, text: str) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "config.toml").write_text(text)
    return directory / "config.toml"


# Texts that name a database.


@pytest.mark.parametrize(
    ("text", "engine", "location"),
    [
        (None, "sqlite", DEFAULT),
        ("", "sqlite", DEFAULT),
        ("  \t\n", "sqlite", DEFAULT),
        ("sqlite:", "sqlite", DEFAULT),
        ("sqlite://", "sqlite", DEFAULT),
        ("  SQLite://  ", "sqlite", DEFAULT),
        ("postgres://ada@db/state", "postgres", "postgres://ada@db/state"),
        ("postgresql://ada@db/state", "postgres", "postgresql://ada@db/state"),
        ("PostgreSQL://Ada@DB/State", "postgres", "postgresql://Ada@DB/State"),
        ("  POSTGRES://db  ", "postgres", "postgres://db"),
        ("postgresql:///state?host=/run/postgresql", "postgres", "postgresql:///state?host=/run/postgresql"),
        ("postgresql://[::1]:5432/state", "postgres", "postgresql://[::1]:5432/state"),
        ("postgresql://a:1,b:2/state", "postgres", "postgresql://a:1,b:2/state"),
        ("postgresql://u:p%40ss@db/state?a=b@c", "postgres", "postgresql://u:p%40ss@db/state?a=b@c"),
        ("state.db", "sqlite", "/projects/one/state.db"),
        ("  state.db ", "sqlite", "/projects/one/state.db"),
        ("./a/../state.db", "sqlite", "/projects/one/state.db"),
        ("/srv/state.db", "sqlite", "/srv/state.db"),
        ("~/state.db", "sqlite", "/home/ada/state.db"),
        ("~", "sqlite", "/home/ada"),
        ("sqlite:state.db", "sqlite", "/projects/one/state.db"),
        ("sqlite:/srv/state.db", "sqlite", "/srv/state.db"),
        ("sqlite://state.db", "sqlite", "/projects/one/state.db"),
        ("SQLITE:///srv/state.db", "sqlite", "/srv/state.db"),
        ("sqlite:////srv/state.db", "sqlite", "/srv/state.db"),
        ("sqlite:~/state.db", "sqlite", "/home/ada/state.db"),
        ("sqlite: state.db", "sqlite", "/projects/one/state.db"),
        (":memory:", "sqlite", ":memory:"),
        ("sqlite::memory:", "sqlite", ":memory:"),
        ("sqlite://:memory:", "sqlite", ":memory:"),
        ("postgres", "sqlite", "/projects/one/postgres"),
        ("postgres:state", "sqlite", "/projects/one/postgres:state"),
        ("name with spaces.db", "sqlite", "/projects/one/name with spaces.db"),
        ("a=b.db", "sqlite", "/projects/one/a=b.db"),
        ("odd/path://x", "sqlite", "/projects/one/odd/path:/x"),
    ],
)
def test_a_target_is_a_path_a_url_or_a_name(text: str | None, engine: str, location: str) -> None:
    """003-3, 003-4, 003-5: no text means the default, a PostgreSQL URL means PostgreSQL, any other text is a path."""
    target = parse_db_target(text, default_path=DEFAULT, relative_to="/projects/one", environ=HOME)
    assert (target.engine, target.location) == (engine, location)


@pytest.mark.parametrize(
    "text",
    [
        "mysql://u:hunter2@h/db",
        "http://h/db",
        "file:///srv/x.db",
        "postgresql+psycopg://u:hunter2@h/db",
        "host=db dbname=state password=hunter2",
        "postgres://u:hunter2@x@db/state",
        "postgres://u:hunter2/x@db/state",
        "postgres://u:hunter2?x@db/state",
        "postgres://u:hunter2 x@db/state",
        "postgres://u:12/hunter2@db/state",
        "bad\0path",
        "two\nlines",
        "half a character \ud800",
        "~\ud800/x.db",
    ],
)
def test_what_can_only_be_a_mistake_is_refused_without_repeating_it(text: str) -> None:
    """003-24: the driver's error would quote parts of the text, including the password."""
    with pytest.raises(InvalidInput) as caught:
        parse_db_target(text, default_path=DEFAULT)
    assert "hunter2" not in str(caught.value)
    assert "postgresql://" in str(caught.value) or "percent-encode" in str(caught.value)


@given(st.text())
def test_no_text_breaks_the_parser(text: str) -> None:
    """003-5: every text is a database or an error that names the accepted forms."""
    try:
        target = parse_db_target(text, default_path=DEFAULT, relative_to="/p", environ=HOME)
    except InvalidInput:
        return
    assert target.location == ":memory:" or target.engine == "postgres" or target.location.startswith("/")


# Secrets.


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("postgres://ada:hunter2@db/state", "postgres://ada:***@db/state"),
        ("postgres://:hunter2@db", "postgres://:***@db"),
        ("postgres://ada@db/state", "postgres://ada@db/state"),
        ("postgres://db:5432/state", "postgres://db:5432/state"),
        ("postgres://db/state?user=ada&password=hunter2&x=1", "postgres://db/state?user=ada&password=***&x=1"),
        ("postgres://db/state?sslpassword=hunter2", "postgres://db/state?sslpassword=***"),
        ('connection to "postgres://ada:hunter2@db" failed', 'connection to "postgres://ada:***@db" failed'),
        ("host=db password=hunter2 user=ada", "host=db password=*** user=ada"),
        ("host=db password = 'hunter2 \\' x' user=ada", "host=db password = *** user=ada"),
        ("PGPASSWORD=hunter2 psql", "PGPASSWORD=*** psql"),
        ("{'user': 'ada', 'password': 'hunter2'}", "{'user': 'ada', 'password': ***}"),
        ("https://ada:hunter2@example.org/x", "https://ada:***@example.org/x"),
        ("FATAL: password authentication failed", "FATAL: password authentication failed"),
        ("/srv/state.db", "/srv/state.db"),
        ("no secret here", "no secret here"),
    ],
)
def test_credentials_are_masked_in_any_text(text: str, shown: str) -> None:
    """003-24: a URL in any text is shown without its password."""
    assert mask(text) == shown


def test_a_target_never_prints_its_password() -> None:
    """003-24: repr, str and format are what tracebacks and logs use."""
    target = Target("postgres", "postgresql://ada:hunt%65r2@db/state?sslpassword=opensesame")
    driver_says = 'invalid integer value "hunter2" for option; hunt%65r2; opensesame'
    for text in (repr(target), str(target), f"{target}", target.shown, target.hide(driver_says)):
        assert "hunt" not in text
        assert "opensesame" not in text
    assert pickle.loads(pickle.dumps(target)) == target


# Precedence.


def test_environment_before_project_before_global_before_default(env: dict[str, str], project: Path) -> None:
    """003-26, 003-19, 000-31: one place decides, in this order."""
    decide = functools.partial(load, cwd=project / "deep" / "down", environ=env)
    data = Path(env["STANDFAST_DATA_DIR"])

    decided = decide()
    assert (decided.source, decided.where) == ("default", "built in")
    assert decided.target == Target("sqlite", str(data / "standfast.db"))

    write_config(data, 'db_url = "global.db"')
    assert decide().target.location == str(data / "global.db")
    assert decide().source == "global"

    trust(write_config(project / ".standfast", 'db_url = "project.db"'), environ=env)
    decided = decide()
    assert decided.target.location == str(project / "project.db")
    assert (decided.source, decided.where) == ("project", str(project / ".standfast" / "config.toml"))

    env["STANDFAST_DB_URL"] = "env.db"
    decided = decide()
    assert decided.target.location == str(project / "deep" / "down" / "env.db")
    assert (decided.source, decided.where) == ("environment", "STANDFAST_DB_URL")
    assert [(c.source, c.state) for c in decided.choices] == [
        ("environment", "used"),
        ("project", "overridden"),
        ("global", "overridden"),
        ("default", "overridden"),
    ]

    assert decide("argument.db").source == "argument"
    env["STANDFAST_DB_URL"] = "  "
    assert decide().source == "project"
    env["STANDFAST_DB_URL"] = "sqlite:"
    decided = decide()
    assert (decided.source, decided.target.location) == ("environment", str(data / "standfast.db"))


def test_loading_creates_nothing(env: dict[str, str], project: Path) -> None:
    """003-3, 000-29: loading only reads files."""
    before = sorted(project.parent.rglob("*"))
    load(cwd=project, environ=env)
    assert sorted(project.parent.rglob("*")) == before


def test_the_home_of_this_moment_counts(tmp_path: Path) -> None:
    """000-33, 003-6, 000-3: HOME is read at each call, not at import."""
    for name in ("one", "two"):
        decided = load(environ={"HOME": str(tmp_path / name)}, cwd=tmp_path)
        assert decided.data_dir == str(tmp_path / name / ".standfast")
        assert decided.target.location == str(tmp_path / name / ".standfast" / "standfast.db")


def test_the_data_directory_moves_as_a_whole(tmp_path: Path) -> None:
    """000-31: STANDFAST_DATA_DIR may be a relative path or have a ~; the argument overrides it."""
    env = {"HOME": str(tmp_path / "home"), "STANDFAST_DATA_DIR": "~/elsewhere"}
    assert load(environ=env, cwd=tmp_path).data_dir == str(tmp_path / "home" / "elsewhere")
    assert load(environ=env | {"STANDFAST_DATA_DIR": "sub"}, cwd=tmp_path).data_dir == str(tmp_path / "sub")
    assert load(environ=env | {"STANDFAST_DATA_DIR": " "}, cwd=tmp_path).data_dir == str(tmp_path / "home/.standfast")
    assert load(environ=env, cwd=tmp_path, data_dir=tmp_path / "mine").data_dir == str(tmp_path / "mine")


def test_a_removed_working_directory_is_no_project(tmp_path: Path) -> None:
    code = (
        "import os; os.mkdir('gone'); os.chdir('gone'); os.rmdir('../gone')\n"
        "from standfast.config import load; s = load(); print(repr(s.scope), s.source)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("'' default\n", "")


# Trust.


def test_an_untrusted_project_is_ignored_with_one_line(
    env: dict[str, str], project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """RULES §9: a cloned repository must not redirect a store or run a command."""
    file = write_config(project / ".standfast", 'db_url = "stolen.db"\nnotify = ["evil"]\nscope = "theirs"')
    load(cwd=project, environ=env)
    decided = load(cwd=project, environ=env)
    assert (decided.source, decided.options.notify) == ("default", ())
    assert decided.scope != "theirs"
    assert decided.choices[-1] == ("project", str(file), None, "untrusted")
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert str(file) in said
    assert f"not trusted in {decided.data_dir}/trusted.toml" in said
    assert "standfast db trust" in said


def test_trust_is_for_these_bytes_in_this_directory(
    env: dict[str, str], project: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write_config(project / ".standfast", 'scope = "ours"')
    assert trust(file, environ=env) == {"scope": "ours"}
    assert load(cwd=project, environ=env).scope == "ours"

    file.write_text('scope = "other"')
    assert load(cwd=project, environ=env).scope != "other"
    assert "changed since it was trusted" in capsys.readouterr().err

    copy = write_config(tmp_path / "copy" / ".standfast", 'scope = "ours"')
    assert load(cwd=copy.parent.parent, environ=env).scope == ""
    assert "not trusted" in capsys.readouterr().err


def test_trust_follows_the_real_path(env: dict[str, str], project: Path, tmp_path: Path) -> None:
    trust(write_config(project / ".standfast", 'scope = "ours"'), environ=env)
    (tmp_path / "link").symlink_to(project)
    assert load(cwd=tmp_path / "link" / "deep", environ=env).scope == "ours"


def test_an_untrusted_project_that_is_not_toml_breaks_nothing(env: dict[str, str], project: Path) -> None:
    file = write_config(project / ".standfast", "not = [toml")
    assert load(cwd=project, environ=env).source == "default"
    with pytest.raises(InvalidInput, match="is not TOML"):
        trust(file, environ=env)


def test_the_data_directory_is_never_a_projects(tmp_path: Path, env: dict[str, str]) -> None:
    """DESIGN, decision 1: neither in use nor while STANDFAST_DATA_DIR points elsewhere."""
    home = Path(env["HOME"])
    write_config(home / ".standfast", 'db_url = "mine.db"')
    (home / "notes").mkdir()
    moved = load(cwd=home / "notes", environ=env)
    assert (moved.source, moved.project_file) == ("default", None)
    del env["STANDFAST_DATA_DIR"]
    usual = load(cwd=home / "notes", environ=env)
    assert (usual.source, usual.project_file) == ("global", None)


def test_the_search_ends_at_the_repository(env: dict[str, str], project: Path, tmp_path: Path) -> None:
    outer = write_config(tmp_path / ".standfast", 'scope = "outer"')
    trust(outer, environ=env)
    assert load(cwd=project / "deep", environ=env).project_file is None
    (tmp_path / "loose" / "dir").mkdir(parents=True)
    loose = load(cwd=tmp_path / "loose" / "dir", environ=env)
    assert (loose.scope, loose.project_dir) == ("outer", str(tmp_path))


# Allowed keys and values of a file.


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("db_url = 3", "db_url is a text"),
        ("notify = 'run me'", "notify is a list of texts"),
        ("notify = []", "notify is a list of texts"),
        ("notify = ['a', 1]", "notify is a list of texts"),
        ("redact = 'yes'", "redact is true or false"),
        ("artifact_max_bytes = 0", "artifact_max_bytes is a whole number of bytes, 1 or more"),
        ("artifact_max_bytes = true", "artifact_max_bytes is a whole number of bytes, 1 or more"),
        ("unsafe_storage = 1", "unsafe_storage is true or false"),
        ("db_ulr = 'x'", "did you mean 'db_url'"),
        ("colour = 'red'", "accepted keys: db_url, scope"),
        ("[db]\nurl = 'x'", "unknown key 'db'"),
        ("scope = 'x'", "only a project can set"),
        ("db_url = 'mysql://u:hunter2@h/d'", "unsupported database URL: mysql://"),
        ("db_url = ", "is not TOML"),
        ("db_url = 'a\ndb_url = 'postgres://u:hunter2@h", "is not TOML"),
    ],
)
def test_a_bad_file_is_refused_by_name(env: dict[str, str], tmp_path: Path, text: str, says: str) -> None:
    """The message has the file, the key and the accepted values, but never the file's content."""
    file = write_config(Path(env["STANDFAST_DATA_DIR"]), text)
    with pytest.raises(InvalidInput) as caught:
        load(cwd=tmp_path, environ=env)
    assert caught.value.code == "configuration"
    assert str(file) in str(caught.value)
    assert says in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_a_bad_variable_is_refused_by_name(env: dict[str, str], tmp_path: Path) -> None:
    for name, value in (("STANDFAST_DB_URL", "mysql://h/d"), ("STANDFAST_UNSAFE_STORAGE", "perhaps")):
        with pytest.raises(InvalidInput, match=name) as caught:
            load(cwd=tmp_path, environ=env | {name: value})
        assert caught.value.code == "configuration"
    with pytest.raises(InvalidInput, match="mysql") as caught:
        load("mysql://h/d", cwd=tmp_path, environ=env)
    assert caught.value.code == "invalid_input"


def test_a_file_that_is_not_a_file_is_refused(env: dict[str, str], tmp_path: Path) -> None:
    (Path(env["STANDFAST_DATA_DIR"]) / "config.toml").mkdir(parents=True)
    with pytest.raises(InvalidInput, match="cannot be read"):
        load(cwd=tmp_path, environ=env)


def test_options_come_from_both_files_and_the_environment(env: dict[str, str], project: Path) -> None:
    write_config(Path(env["STANDFAST_DATA_DIR"]), 'notify = ["bell"]\nredact = false\nunsafe_storage = true')
    trust(write_config(project / ".standfast", 'notify = ["mail", "me"]\nartifact_max_bytes = 4096'), environ=env)
    options = load(cwd=project, environ=env).options
    assert (options.notify, options.redact, options.unsafe_storage) == (("mail", "me"), False, True)
    assert (options.artifact_max_bytes, options.accounts) == (4096, ())
    assert not load(cwd=project, environ=env | {"STANDFAST_UNSAFE_STORAGE": "0"}).options.unsafe_storage


def test_every_key_is_documented() -> None:
    page = (Path(__file__).parents[2] / "docs" / "operating" / "configure.md").read_text()
    assert [key for key in KEYS if f"`{key}`" not in page] == []


# Writing.


def test_a_saved_target_is_used_next(env: dict[str, str], project: Path) -> None:
    """003-22, 003-23, 003-25: saved for the project or with `global`; without a saved target the default is used."""
    postgres = Target("postgres", "postgresql://ada:hunter2@db/state")
    path = save_target("project", postgres, cwd=project / "deep", environ=env)
    assert path == str(project / ".standfast" / "config.toml")
    decided = load(cwd=project, environ=env)
    assert (decided.target, decided.source) == (postgres, "project")

    save_target("global", Target("sqlite", "/srv/x.db"), cwd=project, environ=env)
    assert load(cwd=project, environ=env).target == postgres
    assert load(cwd=project.parent, environ=env).target.location == "/srv/x.db"

    default = Target("sqlite", decided.default_path)
    save_target("project", default, cwd=project, environ=env)
    assert load(cwd=project, environ=env).target == default


def test_saved_files_are_private_and_stay_out_of_git(env: dict[str, str], project: Path) -> None:
    path = Path(save_target("project", Target("sqlite", "/srv/x.db"), cwd=project, environ=env))
    save_target("global", Target("sqlite", "/srv/x.db"), cwd=project, environ=env)
    data = Path(env["STANDFAST_DATA_DIR"])
    for file in (path, data / "config.toml", data / "trusted.toml"):
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert (path.parent / ".gitignore").read_text() == "*\n"
    assert sorted(p.name for p in data.iterdir()) == ["config.toml", "trusted.toml"]


def test_saving_leaves_every_other_line_as_it_is(env: dict[str, str], tmp_path: Path) -> None:
    data = Path(env["STANDFAST_DATA_DIR"])
    file = write_config(data, '# mine\nredact = false # why not\ndb_url = "a.db"   # old\n\nnotify = [\n  "x",\n]\n')
    save_target("global", Target("sqlite", '/srv/ü \\"quoted".db'), cwd=tmp_path, environ=env)
    text = file.read_text()
    assert tomllib.loads(text) == {"redact": False, "db_url": '/srv/ü \\"quoted".db', "notify": ["x"]}
    assert text.startswith("# mine\nredact = false # why not\n")
    assert text.endswith('\n\nnotify = [\n  "x",\n]\n')


def test_a_file_that_cannot_be_edited_by_line_is_not_changed(env: dict[str, str], tmp_path: Path) -> None:
    text = 'db_url = """\nx.db"""\n'
    file = write_config(Path(env["STANDFAST_DATA_DIR"]), text)
    with pytest.raises(InvalidInput, match=r"too unusual|is not TOML"):
        save_target("global", Target("sqlite", "/srv/x.db"), cwd=tmp_path, environ=env)
    assert file.read_text() == text


def test_saving_does_not_trust_lines_of_another_author(env: dict[str, str], project: Path) -> None:
    """RULES §9: trust in our line would include the `notify` line of the other author."""
    file = write_config(project / ".standfast", 'notify = ["evil"]')
    with pytest.raises(InvalidInput, match="db trust"):
        save_target("project", Target("sqlite", "/srv/x.db"), cwd=project, environ=env)
    assert file.read_text() == 'notify = ["evil"]'


def test_a_project_is_not_written_into_the_data_directory_nor_through_a_link(
    env: dict[str, str], project: Path, tmp_path: Path
) -> None:
    with pytest.raises(InvalidInput, match="--global"):
        save_target("project", Target("sqlite", "/srv/x.db"), cwd=env["HOME"], environ=env)
    (tmp_path / "outside").mkdir()
    (project / ".standfast").symlink_to(tmp_path / "outside")
    with pytest.raises(InvalidInput, match="link out of the project"):
        save_target("project", Target("sqlite", "/srv/x.db"), cwd=project, environ=env)
    assert list((tmp_path / "outside").iterdir()) == []


def test_a_failed_write_leaves_the_old_file(
    env: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """001-28, 001-29: temporary file, fsync, rename; removed on error."""
    file = write_config(Path(env["STANDFAST_DATA_DIR"]), 'db_url = "old.db"')

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        save_target("global", Target("sqlite", "/srv/x.db"), cwd=tmp_path, environ=env)
    assert [p.name for p in file.parent.iterdir()] == ["config.toml"]
    assert file.read_text() == 'db_url = "old.db"'


# Scope.


@pytest.mark.parametrize(
    ("url", "scope"),
    [
        ("https://github.com/ada/engine.git", "github.com/ada/engine"),
        ("https://github.com/ada/engine", "github.com/ada/engine"),
        ("https://github.com/ada/engine/", "github.com/ada/engine"),
        ("https://GitHub.com/Ada/Engine.git", "github.com/Ada/Engine"),
        ("https://ada:hunter2@github.com/ada/engine.git", "github.com/ada/engine"),
        ("https://x-access-token:hunter2@github.com/ada/engine?t=hunter2", "github.com/ada/engine"),
        ("http://git.example.org:8080/ada/engine.git", "git.example.org/ada/engine"),
        ("git@github.com:ada/engine.git", "github.com/ada/engine"),
        ("github.com:ada/engine.git", "github.com/ada/engine"),
        ("git@github.com:/ada/engine.git", "github.com/ada/engine"),
        ("git@[::1]:ada/engine.git", "[::1]/ada/engine"),
        ("ssh://git@github.com/ada/engine.git", "github.com/ada/engine"),
        ("ssh://git@github.com:22/ada/engine.git", "github.com/ada/engine"),
        ("ssh://git@ssh.github.com:443/ada/engine.git", "github.com/ada/engine"),
        ("git+ssh://git@[2001:db8::1]:22/ada/engine", "[2001:db8::1]/ada/engine"),
        ("git://example.org./ada//engine.git", "example.org/ada/engine"),
        ("https://gitlab.com/group/sub/engine.git", "gitlab.com/group/sub/engine"),
        ("/srv/git/engine.git", None),
        ("../engine.git", None),
        ("./a:b", None),
        ("~/engine", None),
        ("file:///srv/git/engine.git", None),
        ("engine", None),
        ("dir/with:colon", None),
        ("https://github.com/", None),
        ("https://github.com/ada/\x1bengine", None),
        ("", None),
    ],
)
def test_one_repository_has_one_name_however_it_was_cloned(url: str, scope: str | None) -> None:
    """DESIGN, decision 2."""
    assert normalised(url) == scope


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ('[remote "origin"]\n\turl = a:b\n', "a:b"),
        ('[Remote "origin"]\n  URL=a:b', "a:b"),
        ("[remote.origin]\nurl = a:b", "a:b"),
        ('[remote "origin"] url = a:b', "a:b"),
        ('[remote "origin"]\nurl = "a:b" ; comment', "a:b"),
        ('[remote "origin"]\nurl = a\\\n:b # comment', "a:b"),
        ('[remote "origin"]\npushurl = x:y\nurl = a:b\nurl = c:d', "a:b"),
        ('[remote "origin"]\n# url = x:y\nurl = a:b', "a:b"),
        ('[remote "Origin"]\nurl = a:b', None),
        ('[remote "upstream"]\nurl = a:b\n[branch "origin"]\nurl = c:d', None),
        ("", None),
        ("[remote", None),
    ],
)
def test_the_origin_is_read_in_gits_own_dialect(text: str, url: str | None) -> None:
    assert origin_url(text) == url


@given(st.text())
def test_no_git_file_breaks_the_scope(text: str) -> None:
    origin_url(text)
    scope = normalised(text)
    assert scope is None or scope.isprintable()


def git(*words: str, cwd: Path) -> None:
    if shutil.which("git") is None:
        pytest.skip("git is not installed: the files it writes were not compared")
    identity = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull, "HOME": str(cwd)}
    author = {f"GIT_{who}_{what}": "a@b" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    command = ["git", "-c", "protocol.file.allow=always", "-c", "init.defaultBranch=main", *words]
    subprocess.run(command, cwd=cwd, check=True, capture_output=True, env={**os.environ, **identity, **author})


def repository_of(directory: Path) -> str:
    """The label of a repository: its origin, otherwise its git directory."""
    return load(cwd=directory, environ={"HOME": "/nonexistent"}, quiet=True).label.name


def test_worktrees_clones_and_submodules_as_git_makes_them(tmp_path: Path) -> None:
    """DESIGN, decision 2: worktrees and clones share a label, a submodule has its own."""
    main = tmp_path / "main"
    main.mkdir()
    git("init", cwd=main)
    git("commit", "--allow-empty", "-m", "first", cwd=main)
    (main / "src").mkdir()
    alone = repository_of(main / "src")
    assert alone == str((main / ".git").resolve())

    git("worktree", "add", "../tree", cwd=main)
    assert repository_of(tmp_path / "tree") == alone

    git("remote", "add", "origin", "git@Example.org:ada/engine.git", cwd=main)
    git("clone", "--no-local", "main", "clone", cwd=tmp_path)
    git("remote", "set-url", "origin", "https://example.org/ada/engine", cwd=tmp_path / "clone")
    shared = "example.org/ada/engine"
    places = [main, main / "src", main / ".git", tmp_path / "tree", tmp_path / "clone"]
    assert {repository_of(place) for place in places} == {shared}

    git("clone", "--bare", "main", "bare.git", cwd=tmp_path)
    git("worktree", "add", "../of-bare", "main", cwd=tmp_path / "bare.git")
    bare = str((tmp_path / "bare.git").resolve())
    assert {repository_of(tmp_path / "bare.git"), repository_of(tmp_path / "of-bare")} == {bare}

    git("submodule", "add", str(tmp_path / "bare.git"), "part", cwd=main)
    assert repository_of(main / "part") == str((main / ".git" / "modules" / "part").resolve())
    git("remote", "set-url", "origin", "ssh://git@example.org:22/ada/part.git", cwd=main / "part")
    assert repository_of(main / "part") == "example.org/ada/part"
    assert repository_of(main) == shared


@pytest.mark.parametrize("content", ["", "gitdir:", "gitdir: /nonexistent", "gitdir: ../gone", "nonsense", "\0\xff"])
def test_a_broken_git_file_is_no_repository(tmp_path: Path, content: str) -> None:
    make_git_dir(tmp_path / ".git", "git@example.org:ada/outer.git")
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / ".git").write_text(content)
    assert repository_of(tmp_path / "inner") == ""
    assert repository_of(tmp_path) == "example.org/ada/outer"


def test_a_git_directory_that_is_none_is_walked_past(tmp_path: Path) -> None:
    make_git_dir(tmp_path / ".git", "git@example.org:ada/outer.git")
    (tmp_path / "inner" / ".git").mkdir(parents=True)
    assert repository_of(tmp_path / "inner") == "example.org/ada/outer"


def test_a_worktree_whose_repository_moved_is_outside_any(tmp_path: Path) -> None:
    inside = tmp_path / "main" / ".git" / "worktrees" / "tree"
    make_git_dir(tmp_path / "main" / ".git", "git@example.org:ada/engine.git")
    inside.mkdir(parents=True)
    (inside / "HEAD").write_text("ref: refs/heads/x\n")
    (inside / "commondir").write_text("../..\n")
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / ".git").write_text(f"gitdir: {inside}\n")
    assert repository_of(tmp_path / "tree") == "example.org/ada/engine"
    (inside / "commondir").write_text("../../gone\n")
    assert repository_of(tmp_path / "tree") == ""


def test_the_scope_of_a_project_comes_from_its_own_file(env: dict[str, str], project: Path) -> None:
    trust(write_config(project / ".standfast", 'scope = " payments "'), environ=env)
    assert load(cwd=project, environ=env).scope == "payments"
    assert load(cwd=project, environ=env, scope="").scope == ""
    assert load(cwd=project, environ={**env, "STANDFAST_SCOPE": "blue"}).scope == "blue"
    assert load(cwd=project, environ={**env, "STANDFAST_SCOPE": ""}).scope == ""


def test_no_directory_decides_the_scope(env: dict[str, str], tmp_path: Path) -> None:
    """DESIGN, decision 2: the scope is empty by default."""
    make_git_dir(tmp_path / ".git", "git@example.org:ada/engine.git")
    found = load(cwd=tmp_path, environ=env)
    assert (found.scope, found.label.origin) == ("", "example.org/ada/engine")
    assert found.label.git_dir == str((tmp_path / ".git").resolve())
    assert load(cwd=tmp_path, environ=env, outside=True).label.outside


@pytest.mark.parametrize("scope", ["a\nb", "x" * 201, "\udcff"])
def test_a_scope_that_could_be_mistaken_is_refused(env: dict[str, str], tmp_path: Path, scope: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        load(cwd=tmp_path, environ={**env, "STANDFAST_SCOPE": scope})
    assert caught.value.code == "configuration"
    with pytest.raises(InvalidInput):
        load(cwd=tmp_path, environ=env, scope=scope)


@pytest.mark.parametrize("label", [Label("/srv/a/.git", "example.org/a/a"), Label("/srv/a/.git"), Label()])
def test_a_child_works_in_the_repository_of_its_parent(env: dict[str, str], tmp_path: Path, label: Label) -> None:
    """DESIGN, decision 2: the directory a child process is in does not count, also if its parent is outside any."""
    make_git_dir(tmp_path / ".git", "git@example.org:ada/engine.git")
    found = load(cwd=tmp_path, environ={**env, **carried("blue", label)})
    assert (found.scope, found.label) == ("blue", label)


# Actor.


@pytest.mark.parametrize(
    ("variables", "agent", "actor"),
    [
        ({"CLAUDECODE": "1", "CLAUDE_CODE_SESSION_ID": "abc"}, "claude-code", "claude-code:abc"),
        ({"CODEX_THREAD_ID": "t1"}, "codex", "codex:t1"),
        ({"CODEX_THREAD_ID": "t1", "CODEX_SESSION_ID": "s1"}, "codex", "codex:s1"),
        ({"GEMINI_CLI": "1", "GEMINI_SESSION_ID": "g1"}, "gemini-cli", "gemini-cli:g1"),
        ({"GEMINI_CLI": "1"}, "gemini-cli", "gemini-cli:ada@HOST"),
        ({"OPENCODE": "1", "OPENCODE_PID": "42", "AGENT": "1"}, "opencode", "opencode:HOST:42"),
        ({"CURSOR_AGENT": "1"}, "cursor", "cursor:ada@HOST"),
        ({"AI_AGENT": "devin"}, "devin", "devin:ada@HOST"),
        ({"AGENT": "1"}, "agent", "agent:ada@HOST"),
        ({"STANDFAST_ACTOR": "night-shift", "CLAUDECODE": "1"}, "claude-code", "night-shift"),
        ({"CLAUDE_PROJECT_DIR": "/x", "CODEX_HOME": "/y", "CLAUDECODE": "0", "AGENT": ""}, None, "ada@HOST"),
        ({"CLAUDE_CODE_SESSION_ID": "a\nb c"}, "claude-code", "claude-code:abc"),
    ],
)
def test_the_actor_is_the_agents_session_or_the_person(
    variables: dict[str, str], agent: str | None, actor: str, env: dict[str, str], tmp_path: Path
) -> None:
    """DESIGN, "Lease": the holder is the process that does the work."""
    code = "import os; from standfast.config import load; s = load(); print(s.agent); print(s.actor)"
    clean = {"PATH": os.environ["PATH"], **env, **variables}
    done = subprocess.run(
        [sys.executable, "-c", code], env=clean, cwd=tmp_path, capture_output=True, text=True, stdin=subprocess.DEVNULL
    )
    assert done.stdout.splitlines() == [str(agent), actor.replace("HOST", os.uname().nodename)], done.stderr


def test_a_person_is_known_by_their_terminal(env: dict[str, str]) -> None:
    controller, terminal = os.openpty()
    code = "from standfast.config import load; print(load().actor)"
    done = subprocess.run([sys.executable, "-c", code], env=env, stdin=terminal, capture_output=True, text=True)
    assert done.stdout == f"ada@{os.uname().nodename}:{os.ttyname(terminal).removeprefix('/dev/')}\n"
    os.close(controller)
    os.close(terminal)


def test_an_actor_is_one_line(env: dict[str, str], tmp_path: Path) -> None:
    for bad in ("two\nlines", "x" * 201):
        with pytest.raises(InvalidInput, match="STANDFAST_ACTOR"):
            load(environ=env | {"STANDFAST_ACTOR": bad}, cwd=tmp_path)
        with pytest.raises(InvalidInput, match="actor"):
            load(environ=env, cwd=tmp_path, actor=bad)
    assert load(environ=env, cwd=tmp_path, actor="me").actor == "me"


def test_agents_are_recognised_only_by_their_variables() -> None:
    assert agent_present({}) is None
    assert agent_present({"CLAUDECODE": "1"}) == "claude-code"


# Cost.


def test_deciding_imports_nothing_heavy(tmp_path: Path) -> None:
    """RULES §10: agents start this hundreds of times an hour."""
    heavy = ["tomllib", "dataclasses", "socket", "uuid", "inspect", "subprocess", "pathlib", "hashlib", "json"]
    code = f"import sys; from standfast.config import load; load(); print([m for m in {heavy!r} if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-S", "-c", code],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "src")},
    )
    assert done.stdout == "[]\n", done.stderr
