"""The campaign `hostile`: each part finds no violation, and its control finds one."""

from __future__ import annotations

import json
import operator
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import standfast
from standfast import config, handle
from standfast.db.sql import statement
from standfast_prove.campaigns import hostile_grants, hostile_text
from standfast_prove.catalogue import CAMPAIGNS
from tests.neighbours import Names
from tests.rows import TABLES, snapshot
from tests.walks import RESOURCES


def test_a_call_passes_only_with_its_own_grant_and_once(engine_url: str, tmp_path: Path) -> None:
    """R13, R14, R19: other directory, tool, spelling or description, threads, calls that are said to have failed."""
    made = hostile_grants.grants(tmp_path, url=engine_url, seed=5, calls=60)
    assert made.bad == []
    assert made.seen["passed"] >= 3


def test_a_grant_that_names_no_directory_is_used_elsewhere(tmp_path: Path) -> None:
    """The control."""
    made = hostile_grants.grants(tmp_path, seed=5, calls=60, elsewhere=True)
    assert any(sentence.startswith("passed without a matching grant") for sentence in made.bad)


def test_no_byte_of_a_transcript_reaches_the_terminal_uncleaned(engine_url: str, tmp_path: Path) -> None:
    """R38, 000-30: sixteen commands and the sessions run on a terminal."""
    made = hostile_text.transcript(tmp_path, url=engine_url, seed=2, texts=40)
    assert made.bad == []
    assert made.seen["outputs"] >= 17
    assert made.seen["refused"] == 0


def test_without_the_cleaner_a_transcript_reaches_the_terminal(tmp_path: Path) -> None:
    """The control."""
    made = hostile_text.transcript(tmp_path, seed=2, texts=20, uncleaned=True)
    assert len(made.bad) >= 3


def test_nothing_of_a_clone_is_run_or_used(tmp_path: Path) -> None:
    """R26, R27, R38, 002-20: modules, configuration, spool and names of a clone."""
    made = hostile_text.repository(tmp_path, seed=2, clones=1)
    assert made.bad == []
    assert made.seen["outputs"] == len(hostile_text.COMMANDS) + 3


def test_an_interpreter_that_imports_from_the_directory_runs_the_clone(tmp_path: Path) -> None:
    """The control."""
    made = hostile_text.repository(tmp_path, seed=2, clones=1, importing=True)
    assert any("was run" in sentence for sentence in made.bad)


@pytest.mark.parametrize("part", ["shell", "spool", "grants", "transcript", "repository"])
def test_each_part_has_a_control(part: str) -> None:
    """A campaign without a failing control shows nothing."""
    names = {one.name: one.control for one in CAMPAIGNS if one.workload == "hostile"}
    assert names[f"hostile-{part}"] == ""
    assert names[f"hostile-{part}-control"]


MARKS = "\x1b[2J\x1b]0;owned\x07\x9b31m\u202e\u200b\r\x08\x7f\u2028<img src=x onerror=y>![a](http://x)|`c`"
PRINTING = """
approval list --all; approval list --state any --all; approve; agent list; artifact list; backup list; backup take
brief; brief --all; credit balance; credit list; db move sqlite other.db; db status; decision list; decision list --all
doctor --quick; effect list --all; event consumers; event list; event streams; export --text copy; gate list --all
import list; import text copy; lock; loop list --all; loop runs; mail dead; mail list; mail receipts; recovery
search refund --all; session list --all; state list; state namespaces; status; store list; task list; task list --all
task next; timeline --all; timeline --all --json; timeline --html -; timeline --md; timeline --problems; top; undo
undo --since 30d; usage; usage --all; verify; webhook dead; webhook list; where
""".replace("\n", ";")
SHOWN = ("approval", "artifact", "decision", "effect", "loop", "mail", "session", "task")


def hostile(value: Any) -> Any:
    """The value with hostile characters at the end of each of its texts."""
    if isinstance(value, dict):
        return {name: hostile(one) for name, one in value.items()}
    if isinstance(value, list):
        return [hostile(one) for one in value]
    return value + MARKS if isinstance(value, str) else value


def written(text: str) -> str:
    with suppress(ValueError):
        if isinstance(value := json.loads(text), dict | list | str):
            return json.dumps(hostile(value))
    return text + MARKS


def filled(sf: standfast.Standfast) -> int:
    """A store with rows of every feature. Each text gets hostile characters, as from an agent with SQL."""
    for resource in RESOURCES.values():
        for _ in resource.walk(sf, Names()):
            pass
    changed = 0
    for (table, key), row in snapshot(sf).items():
        texts = {n: written(v) for n, v in row.items() if isinstance(v, str) and not n.endswith("id")}
        names = TABLES[table].unique[0][0]
        where = dict(zip(names, key, strict=True))
        beside = [name for name in texts if name not in names]
        if _update(sf, table, {name: texts[name] for name in beside}, where):
            changed += len(beside)
        else:  # a CHECK may refuse one update, and the journal's trigger refuses all
            changed += sum(_update(sf, table, {name: texts[name]}, where) for name in beside)
        changed += _update(sf, table, {name: texts[name] for name in texts if name in names}, where)
    return changed


def _update(sf: standfast.Standfast, table: str, texts: dict[str, str], where: dict[str, Any]) -> bool:
    if not texts:
        return False
    change = ", ".join(f"{name} = :new_{name}" for name in texts)
    key = " AND ".join(f"{name} = :{name}" for name in where)
    given = where | {f"new_{name}": text for name, text in texts.items()}
    with suppress(standfast.StandfastError):
        sql = statement(f"UPDATE {table} SET {change} WHERE {key}")
        sf._store.write(operator.methodcaller("run", sql, **given))
        return True
    return False


def commands(sf: standfast.Standfast) -> Iterator[tuple[str, ...]]:
    yield from (tuple(line.split()) for line in PRINTING.split(";") if line.strip())
    for noun in SHOWN:
        for row in sf.rows(f"SELECT id FROM {noun} ORDER BY id LIMIT 3"):
            yield noun, "show", str(row["id"])
            yield "timeline", "--since", "1d", "--subject", str(row["id"])
    for row in sf.rows("SELECT id FROM session ORDER BY id LIMIT 2"):
        yield "export", str(row["id"]), "--to", f"{row['id']}.zip"


def test_no_stored_text_reaches_the_terminal_uncleaned(engine_url: str, tmp_path: Path) -> None:
    """R38, 002-49: every command that prints, over a store in which every text is hostile."""
    home = tmp_path / "home"
    home.mkdir()
    with handle.connect(config.load(engine_url, data_dir=home / ".standfast", outside=True), as_actor=True) as sf:
        assert filled(sf) > 500
        asked = list(commands(sf))
    answers = hostile_text._run(asked, home, home, engine_url)
    assert len(answers) == len(asked) > 80
    for words, (_, out, err) in zip(asked, answers, strict=True):
        seen = hostile_text.OURS.sub("", f"{out}{err}".replace("\r\x1b[K", ""))  # the command erases a line of progress
        assert sorted(set(hostile_text.HARM.findall(seen))) == [], words
        assert "Traceback" not in err, words
        if "--md" in words or "--html" in words:
            assert "<img" not in out, words
    printed = sum("owned" in f"{out}{err}" for _, out, err in answers)
    assert printed >= 30, "the text is printed, cleaned"
    for path in (home / "copy").glob("*"):
        if path.is_file():
            assert hostile_text.HARM.findall(path.read_text()) == [], path
            assert path.suffix != ".md" or not {"<img", "![a]"} & set(path.read_text().split()), path
