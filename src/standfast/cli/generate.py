"""Generate a command from a method: from its signature, its annotations and its docstring.

    credit = noun("credit", "Credits: …", of="standfast.ledger.credits:Credits")
    credit.generate("show", "get", examples=(…))

- A positional parameter is an argument, and a keyword-only parameter is an option. An optional argument may also be
  given by its name, as in Python: `decision done ID --outcome TEXT`.
- The first line of the docstring is the help. A line "- `why`: the reason." is the help of that parameter.
- A `Duration` is a DURATION and a `Time` a TIME, passed as typed. A `bool` is a flag. An iterable may be given several
  times. `everywhere` is `--all` and `--global`. `progress` is no option: the command shows a progress bar.
- An option that is not given is not passed, so that the default of the method applies.
- The command prints the model that the method returns (`answers`): a list as a table, one model as its fields. With
  `answer=`, a function creates the answer from the model, or changes the table.

A command imports only its own method, because agents start commands often.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from importlib import import_module
from inspect import signature
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from standfast.cli import answers, values
from standfast.cli.frame import (
    SESSION_VARIABLE,
    Command,
    Examples,
    Wanted,
    command_line_argument,
    made,
    place,
    scope_flags,
    while_option,
)
from standfast.cli.output import Out
from standfast.cli.progress import watched

if TYPE_CHECKING:
    from standfast.handle import Standfast

LIMIT_MAX = 1000
_REQUIRED = object()
_BY_NAME = "__by_name"
"""Follows the name of an argument that was given as an option."""
_NAMES = {"labels": "--label", "tags": "--tag", "for_": "--for", "occurred": "--at"}
_HELP = {
    "after": "Start after this cursor: the `next` of the page before.",
    "limit": "Print at most N rows.",
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
        return (
            not self.required and not self.internal and not isinstance(self.default, str | int | float | tuple | None)
        )

    @property
    def several(self) -> bool:
        return self.annotation.startswith(("Iterable[", "Collection[", "Sequence[", "tuple[str, ...]"))

    @property
    def fields(self) -> bool:
        return self.annotation.startswith("Mapping[")

    @property
    def flag(self) -> bool:
        return self.annotation.startswith("bool")

    @property
    def internal(self) -> bool:
        """Whether a command line cannot give it: the method calls it back."""
        return self.annotation.startswith(("Progress", "Callable["))


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
    """A command that calls one method of a resource.

    These attributes say what the signature does not:

    - `options`: for each parameter its help, or attributes for click; `flag` is the name of the option.
    - `also`: further options. `without`: parameters that are not options. `by_name`: positional parameters that are
      options. `fixed`: values that are always passed.
    - `prepare`: a function that changes the values before the call. It also gets values of `also` that are no
      parameters, and has to remove them.
    - `creates`: the command may create the store. `in_session`: the caller's session is the default of `session`.
      `dry_run`: with this flag, the command runs on an empty store in memory.
    - `outside`: add `--global` where the method has no `everywhere`. `holds`: add `--while`, which holds a claim.
    - `nothing`: the message and the hint if the method returns None (exit 3).
    - `text`, `then`, `empty`, `columns`: as in `answers`. `then` may be a function of the rows; `empty` and `columns`
      may be functions of the options.
    - `answer`: a function that creates the answer from the model, or changes the table.
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
        holds: bool = False,
        nothing: tuple[str, str] | None = None,
        text: str | None = None,
        then: str | Callable[[Any], str] = "",
        empty: str | Callable[[dict[str, Any]], str] = "",
        also: Wanted | None = None,
        without: tuple[str, ...] = (),
        by_name: tuple[str, ...] = (),
        fixed: Mapping[str, Any] | None = None,
        prepare: Callable[[dict[str, Any]], None] | None = None,
        dry_run: str = "",
        columns: Sequence[Any] | Callable[[dict[str, Any]], Sequence[Any]] = (),
        answer: Callable[[Standfast, Any], answers.Answer] | None = None,
    ) -> None:
        super().__init__(name, examples=examples or ("", ""), wanted=[], callback=self._run)
        self._noun, self._of, self._method = noun, of, method
        self._options, self._also, self._without = options or {}, also or [], without
        self._by_name, self._columns, self._dry_run = by_name, columns, dry_run
        self._fixed, self._prepare = fixed or {}, prepare
        self._creates, self._in_session, self._outside = creates, in_session, outside
        self._holds, self._nothing = holds, nothing
        self._text, self._then, self._empty, self._answer = text, then, empty, answer

    # The options and arguments for click.

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
        left_out = {*self._without, *self._fixed}
        found = (one for one in parameters(self.method) if one.name not in left_out and not one.internal)
        return [one._replace(positional=one.positional and one.name not in self._by_name) for one in found]

    def _parameters(self) -> Iterator[Callable[[], click.Parameter]]:
        described: dict[str, str] = dict(re.findall(r"^ *- `(\w+)`: (.+)$", self.method.__doc__ or "", re.MULTILINE))
        for one in self.wanted_parameters():
            if one.name == "everywhere":
                yield from scope_flags()
                continue
            own = self._options.get(one.name, {})
            attributes = {"help": own} if isinstance(own, str) else dict(own)
            if text := attributes.get("help") or described.get(one.name) or _HELP.get(one.name):
                attributes["help"] = text[0].upper() + text[1:]
            if one.name == "session" and self._creates:
                attributes["envvar"] = SESSION_VARIABLE
            if one.positional and one.name == "command":
                yield partial(command_line_argument, one.name)
            elif one.positional:
                yield partial(_argument, one, self._noun, attributes)
            if not one.positional or (not one.required and one.name != "which"):
                yield partial(_option, one, attributes)
        yield from self._also
        if self._holds:
            yield while_option()
        if self._outside:
            yield scope_flags()[1]

    def _run(self, scope_choice: str | None = None, pid: int | None = None, **given: Any) -> None:
        out = click.get_current_context().find_root().obj
        assert isinstance(out, Out)
        known = {one.name: one for one in parameters(self.method)}
        asked = self._asked(known, given)
        if self._prepare is not None:
            self._prepare(asked)
        self._check(known, asked)
        if pid is not None:
            asked.setdefault("for_", _longest_s())

        def ask(sf: Standfast, **scope: bool) -> answers.Answer:
            if self._in_session and sf._store.caller.session_id:
                asked.setdefault("session", sf._store.caller.session_id)
            found = self._called(out, sf, known, {**asked, **scope})
            if found is None and self._nothing is not None:
                raise _not_found(*self._nothing)
            if isinstance(found, list):
                return self._listed(sf, found, known, asked, several=bool(scope))
            return (
                self._answer(sf, found)
                if self._answer is not None
                else answers.One(found, self._text, self._next(found))
            )

        in_memory = bool(asked.get(self._dry_run))
        answers.answered(out, ask, scope_choice, creates=self._creates, pid=pid, in_memory=in_memory)

    def _called(self, out: Out, sf: Standfast, known: dict[str, Parameter], asked: dict[str, Any]) -> Any:
        if "progress" not in known or "progress" in asked:
            return self.method(self.resource(sf._store), **asked)
        with watched(out, f"{self._noun} {self.name}") as progress:
            return self.method(self.resource(sf._store), progress=progress, **asked)

    def _asked(self, known: dict[str, Parameter], given: dict[str, Any]) -> dict[str, Any]:
        """The values of the parameters and of `also` that were given, and the fixed ones."""
        asked = dict(self._fixed)
        for option, value in given.items():
            name = option.removesuffix(_BY_NAME)
            one = known.get(name)
            if not _was_given(one, value):
                continue
            if name in asked:
                raise click.UsageError(f"{name.upper()} is given twice")
            asked[name] = value if one is None else _passed(one, value)
        return asked

    def _listed(
        self,
        sf: Standfast,
        found: list[Any],
        known: dict[str, Parameter],
        asked: dict[str, Any],
        *,
        several: bool,
    ) -> answers.Answer:
        limit = asked.get("limit", known["limit"].default) if "limit" in known else 0
        columns = self._columns(asked) if callable(self._columns) else self._columns
        columns = columns or (answers.column_names(found[0]) if found else ())
        several = several or (sf.settings.label.outside and any(map(_has_repository, found)))
        places = _places(found) if several else ()
        empty = self._empty if isinstance(self._empty, str) else self._empty(asked)
        many = answers.Many(found, (*columns, *places), limit, then=self._next(found), empty=empty, places=places)
        return many if self._answer is None else self._answer(sf, many)

    def _next(self, found: Any) -> str:
        return self._then if isinstance(self._then, str) else self._then(found)

    def _check(self, known: dict[str, Parameter], asked: dict[str, Any]) -> None:
        missing = [one.name.upper() for one in known.values() if one.required and one.name not in asked]
        if missing:
            raise click.UsageError(f"{missing[0]} is missing")
        changes = [one.name for one in known.values() if one.keeps]
        if changes and asked.keys().isdisjoint(changes):
            raise click.UsageError(f"give at least one of {', '.join(map(_flag, changes))}")


def _places(found: list[Any]) -> tuple[Any, ...]:
    """The column that a list over several repositories adds: the repository, or else the scope."""
    names = found[0].field_names() if found else ()
    name = "repository" if "git_dir" in names or "repository" in names else "scope" if "scope" in names else ""
    return (values.column(name),) if name else ()


def _has_repository(one: Any) -> bool:
    return bool(getattr(one, "git_dir", None) or getattr(one, "origin", None))


def _longest_s() -> float:
    from standfast.clock import SECOND_US
    from standfast.core.leases import LEASE_MAX_US

    return LEASE_MAX_US / SECOND_US


def _not_found(message: str, hint: str) -> Exception:
    from standfast.errors import NotFound

    return NotFound(message, hint, code="nothing_ready")


def _was_given(one: Parameter | None, value: Any) -> bool:
    return value is not None and value != () and not (value is False and (one is None or one.flag))


def _passed(one: Parameter, value: Any) -> Any:
    if isinstance(value, tuple) and isinstance(value[0], tuple):  # NAME=VALUE, several times
        return dict(value)
    return None if value == "" and one.keeps else value


def _flag(name: str) -> str:
    return _NAMES.get(name) or "--" + name.replace("_", "-")


def _argument(one: Parameter, noun: str, attributes: dict[str, Any]) -> click.Parameter:
    attributes = {name: value for name, value in attributes.items() if name != "help"}
    metavar = attributes.pop("metavar", noun.upper() if one.name == "which" else one.name.upper())
    required = attributes.pop("required", one.required)
    shown = metavar if required else f"[{metavar}]"
    attributes.setdefault("type", _type(one))
    return made(click.Argument, (one.name,), required=required, metavar=shown, **attributes)


def _option(one: Parameter, attributes: dict[str, Any]) -> click.Parameter:
    attributes = dict(attributes)
    flag = attributes.pop("flag", None) or _flag(one.name)
    names = flag, one.name + _BY_NAME * one.positional
    if one.flag:
        return made(click.Option, names, is_flag=True, default=None, **attributes)
    if one.positional:  # the argument may be given by name: then it is one value, and never required
        attributes = {name: value for name, value in attributes.items() if name not in ("nargs", "required")}
    attributes.setdefault("required", one.required and not one.positional)
    attributes.setdefault("multiple", one.several or one.fields)
    attributes.setdefault("type", _type(one))
    if one.name == "after" and one.annotation.startswith("Id"):
        attributes.setdefault("callback", place)
    if isinstance(one.default, str | int) and one.default not in ("", False):
        attributes["help"] = f"{attributes.get('help') or ''}  [default: {_default(one)}]".lstrip()
    return made(click.Option, names, **attributes)


def _default(one: Parameter) -> str:
    if not one.name.endswith("_us"):
        return str(one.default)
    from standfast.clock import format_duration

    return format_duration(one.default)


def _type(one: Parameter) -> click.ParamType[Any] | None:
    if one.annotation.startswith("Time"):
        return values.TIME
    if one.annotation.startswith("Duration"):
        return values.SECONDS if one.name == "timeout" else values.DURATION
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
