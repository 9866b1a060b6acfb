"""Commands generated from methods: the signature, the annotations and the docstring are the command line.

    credit = noun("credit", "Credits: …", of="standfast.ledger.credits:Credits")
    credit.generate("show", "get", examples=(…))

- Positional parameters are arguments, keyword-only parameters are options. An optional argument may also be given by
  its name, as in Python: `decision done ID --outcome TEXT`.
- The first line of the docstring is the help. A line "- `why`: the reason." is the help of that parameter.
- A name that ends in `_us` is a DURATION or a TIME; a `bool` is a flag; an iterable may be given several times.
- `everywhere` is `--all` and `--global`. Options that are not given are not passed, so the method's defaults apply.
- The model that the method returns is the answer (`answers`): a list is a table, one model its fields. With
  `answer=`, a function makes the answer of it.

Only the method that is called is read: agents start commands all the time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from inspect import signature
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from standfast.cli import answers, values
from standfast.cli.frame import Command, Examples, Wanted, made, place, scope_flags
from standfast.cli.output import Out

if TYPE_CHECKING:
    from standfast.handle import Standfast

LIMIT_MAX = 1000
SESSION_VARIABLE = "STANDFAST_SESSION"
_REQUIRED = object()
_BY_NAME = "__by_name"
"""Follows the name of an argument that was given as an option."""
_TIMES: dict[str, tuple[str, click.ParamType[Any]]] = {
    "occurred_us": ("--at", values.PAST),
    "at_us": ("--at", values.PAST),
    "until_us": ("--until", values.FUTURE),
    "due_us": ("--due", values.FUTURE),
    "since": ("--since", values.AGO),
    "until": ("--until", values.AGO),
}
"""Parameters that are a time; every other name in `_us` is a duration."""
_NAMES = {"labels": "--label", "tags": "--tag"}
_METAVARS = {"session": "KEY|ID", "parent": "ID", "needs": "ID", "task": "ID", "key": "KEY", "after": "CURSOR"}
_METAVARS |= dict.fromkeys(("agent", "assignee", "name", "namespace"), "NAME")
_HELP = {
    "after": "Start after this cursor, the `next` of the last page.",
    "limit": "Most rows.",
}
_SAMPLES = {"which": "9k2m4x", "key": "fix-42", "session": "fix-42", "account": "ada", "name": "reviewer"}


class Parameter(NamedTuple):
    """One parameter of a method."""

    name: str
    annotation: str
    default: Any
    positional: bool

    @property
    def required(self) -> bool:
        return self.default is _REQUIRED

    @property
    def keeps(self) -> bool:
        """Whether the default means "leave it as it is": then an empty text means None."""
        return not self.required and not isinstance(self.default, str | int | float | tuple | None)

    @property
    def several(self) -> bool:
        return self.annotation.startswith(("Iterable[", "Collection[", "Sequence[", "tuple[str, ...]"))

    @property
    def fields(self) -> bool:
        return self.annotation.startswith("Mapping[")


def parameters(method: Callable[..., Any]) -> list[Parameter]:
    """The parameters that a caller gives: without `self` and `tx`."""
    found = signature(method).parameters.values()
    return [
        Parameter(
            one.name,
            one.annotation,
            _REQUIRED if one.default is one.empty else one.default,
            one.kind is not one.KEYWORD_ONLY,
        )
        for one in found
        if one.name != "self"
    ]


class Generated(Command):
    """A command that is one method of a resource.

    What the signature does not say:

    - `options`: by parameter, its help, or attributes for click; `flag` is another name of the option.
    - `also`: more options, `without`: parameters that are no options, `by_name`: positional ones that are.
    - `creates`: the command may create the store. `in_session`: the caller's session is the default of `session`.
    - `outside`: add `--global` where the method has no `everywhere`.
    - `text`, `then`, `empty`, `columns`: as in `answers`. `answer`: makes the answer of what the method returned.
    """

    def __init__(
        self,
        name: str,
        noun: str,
        of: str,
        method: str,
        *,
        examples: Examples | None = None,
        options: dict[str, dict[str, Any] | str] | None = None,
        creates: bool = False,
        in_session: bool = False,
        outside: bool = False,
        text: str | None = None,
        then: str | Callable[[Any], str] = "",
        empty: str = "",
        also: Wanted | None = None,
        without: tuple[str, ...] = (),
        by_name: tuple[str, ...] = (),
        columns: tuple[str, ...] = (),
        answer: Callable[[Standfast, Any], answers.Answer] | None = None,
    ) -> None:
        super().__init__(name, examples=examples or ("", ""), wanted=[], callback=self._run)
        self._noun, self._of, self._method = noun, of, method
        self._options, self._also, self._without = options or {}, also or [], without
        self._by_name, self._columns = by_name, columns
        self._creates, self._in_session, self._outside = creates, in_session, outside
        self._text, self._then, self._empty, self._answer = text, then, empty, answer

    # What click asks for.

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        if not self.params:
            self.help = self.first_line
            self._wanted = list(self._parameters())
        return super().get_params(ctx)

    def get_short_help_str(self, limit: int = 45) -> str:
        self.help = self.first_line
        return super().get_short_help_str(limit)

    def two_examples(self) -> Examples:
        if self.examples[0]:
            return self.examples
        words = ["standfast", self._noun, str(self.name)]
        for one in self.wanted_parameters():
            if one.required:
                words += [*(() if one.positional else (_flag(one.name),)), _SAMPLES.get(one.name, one.name.upper())]
        return " ".join(words), " ".join((*words, "--json"))

    # The method.

    @property
    def resource(self) -> type[Any]:
        module, _, name = self._of.partition(":")
        found: type[Any] = getattr(import_module(module), name)
        return found

    @property
    def method(self) -> Callable[..., Any]:
        found: Callable[..., Any] = getattr(self.resource, self._method)
        return found

    @property
    def first_line(self) -> str:
        return (self.method.__doc__ or "").partition("\n")[0]

    def wanted_parameters(self) -> list[Parameter]:
        """The parameters of the method as the command takes them: `by_name` ones are options."""
        found = (one for one in parameters(self.method) if one.name not in self._without)
        return [one._replace(positional=one.positional and one.name not in self._by_name) for one in found]

    def _parameters(self) -> Iterator[Callable[[], click.Parameter]]:
        told: dict[str, str] = dict(re.findall(r"^ *- `(\w+)`: (.+)$", self.method.__doc__ or "", re.MULTILINE))
        for one in self.wanted_parameters():
            if one.name == "everywhere":
                yield from scope_flags()
                continue
            own = self._options.get(one.name, {})
            attributes = {"help": own} if isinstance(own, str) else dict(own)
            if text := attributes.get("help") or told.get(one.name) or _HELP.get(one.name):
                attributes["help"] = text[0].upper() + text[1:]
            if one.name == "session" and self._creates:
                attributes["envvar"] = SESSION_VARIABLE
            if one.positional:
                yield partial(_argument, one, self._noun, attributes)
            if not one.positional or (not one.required and one.name != "which"):
                yield partial(_option, one, attributes)
        yield from self._also
        if self._outside:
            yield scope_flags()[1]

    def _run(self, scope_choice: str | None = None, **given: Any) -> None:
        out = click.get_current_context().find_root().obj
        assert isinstance(out, Out)
        known = {one.name: one for one in parameters(self.method)}
        given = {name.removesuffix(_BY_NAME): value for name, value in given.items() if _was_given(value)}
        asked = {name: _passed(known[name], value) for name, value in given.items()}
        changes = [one.name for one in known.values() if one.keeps]
        if changes and asked.keys().isdisjoint(changes):
            raise click.UsageError(f"give at least one of {', '.join(map(_flag, changes))}")

        def ask(sf: Standfast, **scope: bool) -> answers.Answer:
            if self._in_session and sf._store.caller.session_id:
                asked.setdefault("session", sf._store.caller.session_id)
            found = self.method(self.resource(sf._store), **asked, **scope)
            if self._answer is not None:
                return self._answer(sf, found)
            then = self._then if isinstance(self._then, str) else self._then(found)
            if not isinstance(found, list):
                return answers.One(found, self._text, then)
            limit = asked.get("limit", known["limit"].default) if "limit" in known else 0
            columns = self._columns or (answers.column_names(found[0]) if found else ())
            if scope and "scope" in getattr(found[0] if found else None, "_fields", ()):
                columns = *columns, "scope"
            return answers.Many(found, columns, limit, then=then, empty=self._empty)

        answers.answered(out, ask, scope_choice, creates=self._creates)


def _was_given(value: Any) -> bool:
    return value is not None and value is not False and value != ()


def _passed(one: Parameter, value: Any) -> Any:
    if isinstance(value, tuple) and isinstance(value[0], tuple):  # NAME=VALUE, several times
        return dict(value)
    return None if value == "" and one.keeps else value


def _flag(name: str) -> str:
    return _TIMES[name][0] if name in _TIMES else "--" + name.removesuffix("_us").replace("_", "-")


def _argument(one: Parameter, noun: str, attributes: dict[str, Any]) -> click.Parameter:
    attributes = {name: value for name, value in attributes.items() if name != "help"}
    metavar = attributes.pop("metavar", noun.upper() if one.name == "which" else one.name.upper())
    shown = metavar if one.required else f"[{metavar}]"
    return made(click.Argument, (one.name,), required=one.required, metavar=shown, type=_type(one), **attributes)


def _option(one: Parameter, attributes: dict[str, Any]) -> click.Parameter:
    attributes = dict(attributes)
    flag = attributes.pop("flag", None) or _NAMES.get(one.name) or _flag(one.name)
    names = flag, one.name + _BY_NAME * one.positional
    if one.annotation.startswith("bool"):
        return made(click.Option, names, is_flag=True, default=None, **attributes)
    attributes.setdefault("multiple", one.several or one.fields)
    attributes.setdefault("metavar", "N" if _type(one) is click.INT or one.name == "limit" else _METAVARS.get(one.name))
    attributes.setdefault("type", _type(one))
    if one.name == "after" and one.annotation.startswith("Id"):
        attributes.setdefault("callback", place)
    if isinstance(one.default, str | int) and one.default != "":
        attributes["help"] = f"{attributes.get('help') or ''}  [default: {one.default}]".lstrip()
    return made(click.Option, names, required=one.required, **attributes)


def _type(one: Parameter) -> click.ParamType[Any] | None:
    if one.name in _TIMES:
        return _TIMES[one.name][1]
    if one.name.endswith("_us"):
        return values.DURATION
    if one.name == "limit":
        return click.IntRange(1, LIMIT_MAX)
    if one.fields:
        return values.FIELD
    if one.annotation.startswith("int"):
        return click.INT
    if one.annotation.startswith("serial.Json"):
        return values.JSON
    if one.annotation.startswith("tuple[str, str]"):
        return values.PAIR
    return values.STDIN if one.name == "body" or (one.name == "text" and one.positional) else None
