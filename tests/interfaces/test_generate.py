"""Commands that are generated from methods: the signature and the docstring are the command line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import click
import pytest

from standfast.cli import app
from standfast.cli.frame import Noun
from standfast.cli.generate import Generated, parameters
from standfast.cli.registry import BY_NAME
from standfast.ledger.credits import Credits
from standfast.ledger.decisions import Decisions
from tests.interfaces.test_cli import environment, make_store, run


def generated() -> list[tuple[str, Generated]]:
    cli = app.build()
    found: list[tuple[str, Generated]] = []
    for name in BY_NAME:
        command = cli.get_command(click.Context(cli), name)
        if isinstance(command, Generated):
            found.append((name, command))
        if isinstance(command, Noun):
            inner = command.every_command().items()
            found += [(f"{name} {verb}", one) for verb, one in inner if isinstance(one, Generated)]
    return found


GENERATED = generated()
by_name = pytest.mark.parametrize("command", [one for _, one in GENERATED], ids=[name for name, _ in GENERATED])


@by_name
def test_a_positional_parameter_is_an_argument_and_a_keyword_is_an_option(command: Generated) -> None:
    """DESIGN §5, Grammar: the command line has every parameter of the signature."""
    params = command.get_params(click.Context(command))
    arguments = [param.name for param in params if isinstance(param, click.Argument)]
    options = {param.name for param in params if isinstance(param, click.Option)}
    wanted = command.wanted_parameters()
    assert arguments == [one.name for one in wanted if one.positional]
    keywords = {"scope_choice" if one.name == "everywhere" else one.name for one in wanted if not one.positional}
    assert keywords <= options


@by_name
def test_the_help_is_the_docstring_and_every_option_has_one(command: Generated) -> None:
    """DESIGN §5, Help: each command says what it does in one sentence, and each option what it is for."""
    params = command.get_params(click.Context(command))
    assert command.help == (command.method.__doc__ or "").splitlines()[0]
    options = [param for param in params if isinstance(param, click.Option) and not param.hidden]
    assert [param.name for param in options if not param.help] == []
    texts = {param.name: param.help or "" for param in options}
    assert [name for name, text in texts.items() if "[default: None]" in text or "[default: ]" in text] == []
    assert "limit" not in texts or "[default: " in texts["limit"]


def test_a_parameter_is_read_with_its_default_and_without_the_transaction() -> None:
    grant = {one.name: one for one in parameters(Credits.grant)}
    assert list(grant) == ["account", "amount", "key", "unit", "reason", "occurred"]
    assert [one.required for one in grant.values()] == [True, True, True, False, False, False]
    assert [one.positional for one in grant.values()] == [True, True, False, False, False, False]
    assert grant["unit"].default == "credits"
    assert [one.name for one in parameters(Decisions.done)] == ["which", "outcome"]
    plain = parameters(Credits.spend)  # not decorated: the method opens its transaction itself
    assert [one.name for one in plain] == [*grant, "below_zero"]


def test_a_noun_imports_no_resource_and_a_command_only_its_own(tmp_path: Path) -> None:
    """RULES §10: agents start this hundreds of times an hour."""
    make_store(tmp_path)
    code = (
        "import sys; import standfast.cli.credit, standfast.cli.decision\n"
        "resources = 'standfast.ledger.credits', 'standfast.ledger.decisions'\n"
        "print([name for name in resources if name in sys.modules])\n"
        "from standfast.cli import main; sys.argv = ['standfast', 'credit', 'list']; main()\n"
        "print([name for name in resources if name in sys.modules])"
    )
    path = os.pathsep.join(path for path in sys.path if path)
    command = [sys.executable, "-S", "-c", code]
    done = subprocess.run(
        command, env=environment(tmp_path, PYTHONPATH=path), cwd=tmp_path, capture_output=True, text=True
    )
    assert done.stdout.splitlines() == ["[]", "['standfast.ledger.credits']"], done.stderr


def test_a_generated_list_has_pages_and_one_model_its_receipt(tmp_path: Path) -> None:
    """DESIGN §5, Output: `--json` is the model itself; a list ends with the next command."""
    for n in range(3):
        added = json.loads(run("credit", "add", "ada", "10", "--key", f"k{n}", "--json", home=tmp_path).stdout)["data"]
        assert (added["amount"], added["balance"], added["receipt"]["seq"]) == (10, 10 * (n + 1), n + 1)
    seen, after = [], "999"
    while after:
        page = run("credit", "list", "ada", "--limit", "2", "--after", after, "--json", home=tmp_path)
        document = json.loads(page.stdout)
        seen += [one["key"] for one in document["data"]]
        after = document["next"]
    assert seen == ["k2", "k1", "k0"]
    listed = run("credit", "list", "--limit", "2", home=tmp_path)
    assert listed.stdout.splitlines()[0] == "seq\twhen\taccount\tamount\tunit\tkey\treason"
    assert listed.stderr.splitlines() == ["more: --after 2", "next: standfast credit balance ada"]
    shown = dict(line.split(None, 1) for line in run("credit", "show", "k1", home=tmp_path).stdout.splitlines())
    assert (shown["account"], shown["amount"], shown["key"]) == ("ada", "10", "k1")


def test_an_optional_argument_may_be_given_by_its_name(tmp_path: Path) -> None:
    for words in (["merged"], ["--outcome", "merged"]):
        id = run("decide", "edit parser.py", home=tmp_path).stdout.strip()
        closed = json.loads(run("decision", "done", id[-6:], *words, "--json", home=tmp_path).stdout)["data"]
        assert (closed["id"], closed["outcome"]) == (id, "merged")


def test_a_change_of_nothing_is_refused_and_makes_no_store(tmp_path: Path) -> None:
    """000-3: a refused command line leaves a fresh home unchanged."""
    done = run("agent", "set", "reviewer", home=tmp_path)
    assert (done.returncode, list(tmp_path.iterdir())) == (2, [])
    assert "give at least one of --kind, --status" in done.stderr


def test_a_list_of_every_scope_names_the_scope_and_its_cursor_continues(tmp_path: Path) -> None:
    for name in ("ann", "bob"):
        run("agent", "set", name, "--config", "model=claude-4", "--scope", "team", home=tmp_path)
    first = json.loads(run("agent", "list", "--all", "--limit", "1", "--json", home=tmp_path).stdout)
    words = ("agent", "list", "--all", "--limit", "1", "--after", first["next"])
    (second,) = json.loads(run(*words, "--json", home=tmp_path).stdout)["data"]
    assert [first["data"][0]["name"], second["name"]] == ["ann", "bob"]
    heading, row = run(*words, home=tmp_path).stdout.splitlines()
    assert (heading.split("\t")[-1], row.split("\t")[-1]) == ("scope", "team")


def test_a_generated_command_prints_no_secret_of_a_loop(tmp_path: Path) -> None:
    """003-24: the model decides what its JSON shows."""
    run("loop", "add", "nightly", "--every", "1h", "--env", "API_TOKEN=hunter2", "--", "true", home=tmp_path)
    for words in (["pause", "nightly", "--reason", "disk is full"], ["resume", "nightly"], ["remove", "nightly"]):
        done = run("loop", *words, "--json", home=tmp_path)
        assert done.returncode == 0, done.stderr
        assert "API_TOKEN" in done.stdout
        assert "hunter2" not in done.stdout + done.stderr


def test_times_are_read_as_people_type_them(tmp_path: Path) -> None:
    run("credit", "add", "ada", "10", "--key", "k", "--at", "2026-11-10 03:00 UTC", home=tmp_path)
    (entry,) = json.loads(run("credit", "list", "--json", home=tmp_path).stdout)["data"]
    assert entry["occurred_us"] == 1_794_279_600_000_000
    assert run("credit", "add", "ada", "10", "--key", "l", "--at", "soonish", home=tmp_path).returncode == 2


def test_an_argument_is_given_once(tmp_path: Path) -> None:
    """DESIGN §5, Grammar: two values for one parameter are refused; none is dropped silently."""
    make_store(tmp_path)
    twice = run("mail", "send", "ada", "text", "--body-json", "1", home=tmp_path)
    assert (twice.returncode, "BODY is given twice" in twice.stderr) == (2, True)
    never = run("mail", "send", "ada", home=tmp_path)
    assert (never.returncode, "BODY is missing" in never.stderr) == (2, True)
    assert run("mail", "list", "--state", "any", "--json", home=tmp_path).stdout == (
        '{"schema_version": 1, "data": [], "next": null}\n'
    )


def test_false_is_a_result(tmp_path: Path) -> None:
    """DESIGN §5, Output: a JSON value is passed on unchanged; only an omitted flag is left out."""
    run("effect", "begin", "deploy", "--key", "d", home=tmp_path)
    done = json.loads(run("effect", "done", "d", "false", "--json", home=tmp_path).stdout)["data"]
    assert (done["state"], done["result"]) == ("acknowledged", False)


def test_an_argument_that_is_given_by_its_name_is_in_the_next_command(tmp_path: Path) -> None:
    planned = run("effect", "begin", "deploy", "--intent", '{"to": "prod"}', "--plan", home=tmp_path)
    assert planned.stderr.splitlines() == ["""next: standfast effect begin deploy '{"to": "prod"}'"""]
    begun = json.loads(run("effect", "begin", "deploy", "to=prod", "--json", home=tmp_path).stdout)["data"]
    assert (begun["state"], begun["intent"]) == ("dispatched", {"to": "prod"})


def test_a_sweep_with_a_title_does_not_read_stdin(tmp_path: Path) -> None:
    swept = run("task", "sweep", "lint", "--seen", "unused import", "--json", input="not read\n", home=tmp_path)
    assert json.loads(swept.stdout)["data"]["seen"] == 1
