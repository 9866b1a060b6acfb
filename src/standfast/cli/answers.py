"""Answers of commands: a command returns one model or a list of models, and this module prints them.

    @credit.verb("show", examples=(…))
    @argument("key")
    def show(sf: Standfast, key: str) -> One:
        return One(sf.credits.get(key))

The store is opened before the command runs, and closed before the answer is printed. `--json` prints the model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import wraps
from typing import Any, NamedTuple

import click

from standfast.cli import render, values
from standfast.cli.output import Out

HIDDEN = frozenset(("scope", "receipt", "fresh", "hash", "fence", "node_id", "n", "position"))
"""Fields that only the JSON has."""


class One(NamedTuple):
    """One model, and the text that a person reads instead of its fields."""

    model: Any
    text: str | Iterable[str] | Callable[[Out], Iterable[str]] | None = None
    """A template such as "{id} is closed: {reason}", lines, or a function of the output that returns lines.

    By default the fields that have a value.
    """
    then: str = ""
    """The next command: a template without `standfast`, or a line of the shell after "$ ". A further line is an
    alternative."""
    say: str = ""
    """A message on stderr for people."""
    extra: Mapping[str, Any] = {}
    """Further fields of the JSON."""
    exit_code: int = 0
    exact: bool = False


class Many(NamedTuple):
    """A page of models: a table."""

    models: Sequence[Any]
    columns: Sequence[Any] = ()
    """Columns, or texts "field heading". By default the columns that the model names, or else all its fields."""
    limit: int = 0
    """The page size. A full page prints the cursor of the next page. 0: there are no pages."""
    then: str = ""
    empty: str = ""
    cursor: Callable[[Any], Any] | None = None
    """The cursor of the last model. By default its `place`, `seq`, `id`, `key` or `name`: the first that exists."""
    plain: Callable[[Any], dict[str, Any]] = values.plain
    """The JSON of a model."""
    row: Callable[[Any], Mapping[str, Any]] | None = None
    """The row of a model, if the columns are not its fields."""
    say: str = ""
    exit_code: int = 0
    places: Sequence[Any] = ()
    """The columns that `--all` adds: the repository."""


Answer = One | Many | None


def framed(function: Callable[..., Answer], *, creates: bool = False) -> Callable[..., None]:
    """Turn a command that takes the open store into one that takes the output."""

    @wraps(function)
    def run(out: Out, *args: Any, scope_choice: str | None = None, **given: Any) -> None:
        answered(out, lambda sf, **scope: function(sf, *args, **scope, **given), scope_choice, creates=creates)

    return run


def answered(
    out: Out,
    ask: Callable[..., Answer],
    scope_choice: str | None = None,
    *,
    creates: bool = False,
    pid: int | None = None,
    in_memory: bool = False,
) -> None:
    """Open the store, ask, close it, print the answer. `ask` gets `everywhere=True` for `--all`.

    With `pid`, leases end with that process. With `in_memory`, the store is an empty one that is not kept.
    """
    from standfast.cli.open_store import opened
    from standfast.config import MEMORY, load

    settings = load(MEMORY) if in_memory else None
    with opened(settings, scope_choice=scope_choice, create=creates or in_memory, pid=pid) as sf:
        answer = ask(sf, **({"everywhere": True} if scope_choice == "all" else {}))
    show(out, answer)


def show(out: Out, answer: Answer) -> None:
    if isinstance(answer, One):
        _show_one(out, answer)
    elif isinstance(answer, Many):
        _show_many(out, answer)
    if answer is not None and answer.exit_code:
        raise click.exceptions.Exit(answer.exit_code)


def _show_one(out: Out, one: One) -> None:
    out.record({**values.plain(one.model), **one.extra}, _lines(out, one) if out.for_people else (), exact=one.exact)
    if one.say and out.for_people:
        out.say(*f"standfast: {one.say}".splitlines())
    if one.then:
        out.then(*_commands(one.then, one.model))


def _lines(out: Out, one: One) -> Iterable[str]:
    if callable(one.text):
        return one.text(out)
    if one.text is None:
        return out.pairs(details(one.model))
    return [filled(one.text, one.model)] if isinstance(one.text, str) else one.text


def _show_many(out: Out, many: Many) -> None:
    models, columns = many.models, [c if not isinstance(c, str) else values.column(c) for c in many.columns]
    if models and not columns:
        columns = [values.column(spec) for spec in column_names(models[0])]
    rows: Iterable[dict[str, Any]] = map(many.plain, models)
    if out.for_people and many.row is not None:
        rows = map(dict, map(many.row, models))
    elif out.for_people and models and not isinstance(models[0], Mapping):
        rows = ({c.field: _value(model, c.field) for c in columns} for model in models)
    out.rows(
        rows,
        columns,
        next=cursor_of(many) if many.limit and len(models) == many.limit else None,
        empty=many.empty,
    )
    if many.then and models:
        out.then(*_commands(many.then, models[0]))
    if many.say and out.for_people:
        out.say(*f"standfast: {many.say}".splitlines())


def _value(model: Any, field: str) -> Any:
    derived = field == "repository" and not hasattr(model, field)
    return values.repository(model) if derived else getattr(model, field)


def column_names(model: Any) -> Sequence[str]:
    """The columns that the model names, or else all its shown fields."""
    named = getattr(model, "columns", None)
    return named() if named is not None else [name for name in model.field_names() if name not in HIDDEN]


def details(model: Any) -> list[tuple[str, Any]]:
    """The fields that have a value, with their labels and complete ids."""
    fields = ((name, value) for name, value in model.as_dict().items() if name not in HIDDEN)
    return [
        (values.label(name), _detail(name, value))
        for name, value in fields
        if value is not None and value != () and value != "" and value is not False
    ]


def _detail(name: str, value: Any) -> str:
    if name.endswith("_us"):
        return values.moment(value)
    return values.repository_name(value) if name == "repository" else values.text_of(value)


def cursor_of(many: Many) -> str:
    last = many.models[-1]
    if many.cursor is not None:
        found = many.cursor(last)
    else:
        found = next(getattr(last, name) for name in ("place", "seq", "id", "key", "name") if hasattr(last, name))
    if isinstance(found, tuple):  # JSON, because a name may contain any separator
        import json

        return json.dumps(found)
    return str(found)


def filled(template: str, model: Any, *, words: bool = False) -> str:
    """The template with the fields of the model, formatted as in a table. With `words`, quoted for a shell."""
    return template.format_map(_Fields(model, words)) if "{" in template else template


def _commands(template: str, model: Any) -> list[str]:
    lines = (filled(line, model, words=True) for line in template.splitlines())
    return [line.removeprefix("$ ") if line.startswith("$ ") else f"standfast {line}" for line in lines]


def literal(command: str) -> str:
    """A command as a template for `then`: without `standfast`, and with escaped braces."""
    return command.removeprefix("standfast ").replace("{", "{{").replace("}", "}}")


class _Fields(dict[str, str]):
    def __init__(self, model: Any, words: bool) -> None:
        super().__init__()
        self._model, self._words = model, words

    def __missing__(self, name: str) -> str:
        value = getattr(self._model, name)
        text = values.column(name).show
        shown = "" if value is None else text(value) if text is not None else str(value)
        if not self._words:
            return render.clean(shown)
        from standfast import hints

        return hints.word(shown)
