"""The form of users' own records changes: a field is renamed, converted or removed, in files and in state."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from standfast import InvalidInput, Standfast, files


@dataclass
class Old:
    name: str
    email: str = ""
    visits: int = 0


@dataclass
class New:
    """The later form of the record: `email` is called `mail`, and `visits` is removed."""

    name: str
    mail: str = field(default="", metadata={"was": "email"})


RECORDS = [{"name": "Ada", "email": "ada@example.org", "visits": 3}, {"name": "Ben", "mail": "ben@example.org"}]
READ = [New("Ada", "ada@example.org"), New("Ben", "ben@example.org")]


def test_a_renamed_and_a_removed_field_in_a_file(tmp_path: Path) -> None:
    """001-60, 001-86: new code reads old records, and old code reads new ones. The file is not rewritten."""
    path = tmp_path / "people.json"
    files.write(path, RECORDS)
    before = path.read_bytes()
    assert files.read(path, returns=list[New]) == READ
    assert files.read(path, returns=list[Old]) == [Old("Ada", "ada@example.org", 3), Old("Ben", "", 0)]
    assert path.read_bytes() == before
    assert files.read(tmp_path / "none.json", [], returns=list[New]) == []
    with pytest.raises(InvalidInput, match=r"people\.json"):
        files.read(path, returns=list[int])


def test_a_renamed_and_a_removed_field_in_state(sf: Standfast) -> None:
    """001-60, 001-86: the same in state. A write by old code keeps the fields that new code added."""
    for n, record in enumerate(RECORDS):
        sf.state.set(f"person:{n}", record)
        assert sf.state.get(f"person:{n}", returns=New).value == READ[n]
    sf.state.update("person:0", lambda person: New(person.name, "ada@new.org"), returns=New)
    kept = sf.state.get("person:0").value
    assert (kept["mail"], kept["visits"]) == ("ada@new.org", 3)
    assert sf.state.get("person:0", returns=Old).value.visits == 3


def test_a_schema_without_the_removed_field_takes_old_and_new_records(sf: Standfast) -> None:
    """001-86: a schema that no longer names the field accepts records with and without it."""
    schema = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
    sf.state.set("person", RECORDS[0], json_schema={**schema, "required": ["name", "visits"]})
    with pytest.raises(InvalidInput, match="visits"):
        sf.state.set("person", RECORDS[1])
    sf.state.set("person", RECORDS[1], json_schema=schema)
    sf.state.set("person", RECORDS[0])


def test_a_value_of_state_is_rebuilt_whole_or_not_at_all(sf: Standfast) -> None:
    """001-60: one write stores the new form and its schema. A field of the value has the version of the form."""
    old = {"type": "object", "properties": {"people": {"type": "array"}}, "required": ["people"]}
    new = {"type": "object", "properties": {"by_name": {"type": "object"}}, "required": ["version", "by_name"]}
    sf.state.set("team", {"people": RECORDS}, json_schema=old)

    def rebuilt(data: dict[str, Any]) -> dict[str, Any]:
        people = [New(one["name"], one.get("mail", one.get("email", ""))) for one in data["people"]]
        return {"version": 2, "by_name": {one.name: one.mail for one in people}}

    with suppress(ZeroDivisionError), sf.transaction() as tx:
        tx.state.set("team", rebuilt(sf.state.get("team").value), json_schema=new)
        raise ZeroDivisionError
    assert sf.state.get("team").value == {"people": RECORDS}
    with pytest.raises(InvalidInput, match="people"):
        sf.state.set("team", rebuilt(sf.state.get("team").value))  # the old schema refuses records of the new form
    for _ in range(2):  # the second run changes nothing
        found = sf.state.get("team").value
        if found.get("version", 1) < 2:
            sf.state.set("team", rebuilt(found), json_schema=new)
        assert sf.state.get("team").version == 2
    assert sf.state.get("team").value["by_name"] == {"Ada": "ada@example.org", "Ben": "ben@example.org"}
    with pytest.raises(InvalidInput, match="version"):
        sf.state.set("team", {"people": RECORDS})


REBUILD = textwrap.dedent("""
    import os, signal, sys
    from standfast import files
    path, at = sys.argv[1], int(sys.argv[2])
    with files.locked(path) as data:
        if data.get("version", 1) < 2:
            for n, person in enumerate(data["people"]):
                if n == at:
                    os.kill(os.getpid(), signal.SIGKILL)
                person["mail"] = person.pop("email", person.get("mail", ""))
                person.pop("visits", None)
            data["by_name"] = {person["name"]: person["mail"] for person in data["people"]}
            data["version"] = 2
""")


def test_a_file_is_rebuilt_whole_or_not_at_all(tmp_path: Path) -> None:
    """001-60: one write renames, removes and converts fields. A field of the file has the version of the form."""
    path = tmp_path / "people.json"
    files.write(path, {"people": RECORDS})
    old = path.read_bytes()
    killed = subprocess.run([sys.executable, "-c", REBUILD, str(path), "1"], timeout=60)
    assert (killed.returncode, path.read_bytes()) == (-signal.SIGKILL, old)
    for _ in range(2):  # the second run changes nothing
        subprocess.run([sys.executable, "-c", REBUILD, str(path), "-1"], timeout=60, check=True)
        data = files.read(path)
        assert data["by_name"] == {"Ada": "ada@example.org", "Ben": "ben@example.org"}
        assert (data["version"], data["people"][0]) == (2, {"name": "Ada", "mail": "ada@example.org"})
