"""The parts of a command: options, arguments, two examples, and nouns with their verbs.

    @command("where", examples=("standfast where", "standfast where --json"))
    def where(out: Out) -> None:
        \"\"\"Print where the data is.\"\"\"

    task = noun("task", "Add, list, claim and close tasks.", default="list", of="standfast.record.tasks:Tasks")
    task.generate("done", text="{id} is closed: {reason}")

    @task.verb("add", examples=(…, …))
    @argument("title")
    def add(out: Out, title: str) -> None: ...

The function of a command gets `out` first. It parses, calls one method and renders. If its first parameter is `sf`, it
gets the open store and returns its answer (`answers`). `Noun.generate` makes a command of a method (`generate`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any, TypeVar

import click

from standfast.cli.output import Format, Out

F = TypeVar("F", bound=Callable[..., Any])
P = TypeVar("P", bound=click.Parameter)
Examples = tuple[str, str]
LISTS = frozenset(("list", "dead", "runs", "streams", "consumers", "caught", "timeline", "search"))
"""Commands that print a list. Before the store exists, the list is empty."""
SESSION_VARIABLE = "STANDFAST_SESSION"
"""Names the session for every command below `session run`, or below a shell that exports it."""
SENTENCE_MAX = 300
_WANTED = "wanted_parameters"
_AFTER_DASHES = "standfast.after_dashes"
METAVARS = {
    **dict.fromkeys(("agent", "assignee", "control", "kind", "name", "namespace", "role", "source", "tool"), "NAME"),
    **dict.fromkeys(("stream", "within"), "NAME"),
    **dict.fromkeys(("account", "branch", "label", "node", "prefix", "repo", "tag", "unit"), "NAME"),
    **dict.fromkeys(("at", "since", "until"), "TIME"),
    **dict.fromkeys(("every", "grace", "idle", "settle", "timeout"), "DURATION"),
    **dict.fromkeys(("probe", "verify"), "COMMAND"),
    **dict.fromkeys(("key", "new-key"), "KEY"),
    **dict.fromkeys(("event-id", "needs", "no-needs", "parent", "task", "thread"), "ID"),
    "after": "CURSOR",
    "cron": "CRON",
    "env": "VARIABLE",
    "points": "PATTERN",
    "ignore": "FIELD",
    "hold": "KEY|ID",
    "session": "KEY|ID",
    "type": "TYPE",
    "usd": "USD",
    "zone": "ZONE",
}
"""The word in the help for the value of each option. Other text options have TEXT."""
Wanted = list[Callable[[], click.Parameter]]
"""Functions that create the options and arguments of a command, from the first to the last."""


class Refused(click.UsageError):
    """A command line that cannot be parsed. Its hint is the corrected line."""

    def __init__(self, message: str, hint: str, ctx: click.Context | None = None) -> None:
        super().__init__(message, ctx)
        self.hint = hint


class CommandLine(click.Argument):
    """The last argument of a command that runs another program: the words after `--`, unparsed."""

    def consume_value(self, ctx: click.Context, opts: Any) -> Any:
        value, source = super().consume_value(ctx, opts)
        after = ctx.meta.get(_AFTER_DASHES)
        return (value, source) if after is None else ((*(value if isinstance(value, tuple) else ()), *after), source)


class Command(click.Command):
    """A command whose help ends with two examples to copy."""

    def __init__(self, *args: Any, examples: Examples, wanted: Wanted, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.examples = examples
        self._wanted = wanted

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        if not self.params:
            own = [make() for make in self._wanted]
            taken = {name for param in own for name in param.opts}
            self.params = own + [param for param in common_options() if not taken.intersection(param.opts)]
        return super().get_params(ctx)

    def invoke(self, ctx: click.Context) -> Any:
        if self.name not in LISTS:
            return super().invoke(ctx)
        from standfast.cli.open_store import NoStore

        try:
            return super().invoke(ctx)
        except NoStore as error:
            return _out(ctx).rows([], [], empty=f"{error.message}; {error.hint}")

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        before, after = args, None
        if "--" in args and any(isinstance(param, CommandLine) for param in self.get_params(ctx)):
            # Click would take the first word after `--` for an argument that is missing before it.
            cut = args.index("--")
            before, after = args[:cut], tuple(args[cut + 1 :])
        ctx.meta[_AFTER_DASHES] = after
        try:
            return super().parse_args(ctx, list(before))
        except click.MissingParameter as error:
            if after is not None and isinstance(error.param, click.Argument) and error.param.type is click.STRING:
                raise _missing_before_dashes(ctx, error.param, before, after) from None
            error.ctx = error.ctx or ctx
            raise
        except click.UsageError as error:
            error.ctx = error.ctx or ctx  # some errors of click do not name their command
            raise

    def two_examples(self) -> Examples:
        return self.examples

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        write_examples(formatter, self.two_examples())


class Noun(click.Group):
    """A noun and its verbs. Without a verb it runs `default`. `of` is the class of its resource, "module:class"."""

    def __init__(self, name: str, help: str, *, default: str | None = None, of: str = "") -> None:
        super().__init__(name, help=help, invoke_without_command=default is not None, callback=self._alone)
        self.default = default
        self.of = of
        self.params += common_options()
        self._waiting: dict[str, Callable[[], Command]] = {}
        self._in_order: list[str] = []

    def generate(self, name: str, method: str = "", **attributes: Any) -> None:
        """Add the command of a method, by default the one of the same name (`generate.Generated`)."""

        def make() -> Command:
            from standfast.cli.generate import Generated

            of = attributes.pop("of", self.of)
            return Generated(name, str(self.name), of, method or name, **attributes)

        self._waiting[name] = make
        self._in_order.append(name)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in self._waiting:
            self.add_command(self._waiting.pop(cmd_name)())
        return super().get_command(ctx, cmd_name)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted((*self.commands, *self._waiting))

    def every_command(self) -> dict[str, click.Command]:
        """All commands in the order of the module. Running one command creates only that one."""
        ctx = click.Context(self)
        return {name: found for name in self._in_order if (found := self.get_command(ctx, name))}

    def verb(self, name: str, *, examples: Examples, **attributes: Any) -> Callable[[F], F]:
        def decorate(function: F) -> F:
            self.add_command(_built(name, function, examples, attributes))
            self._in_order.append(name)
            return function

        return decorate

    def _alone(self) -> None:
        ctx = click.get_current_context()
        if ctx.invoked_subcommand is None and self.default is not None:
            default = self.get_command(ctx, self.default)
            assert default is not None
            invoke(ctx, default)

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        known = self.list_commands(ctx)
        if args and args[0] not in known:
            from standfast.cli import aliases

            if (verb := aliases.verb(args[0], known)) is None:
                raise unknown(args, known, f"{self.name} ")
            args = [verb, *args[1:]]
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Print each command with its first sentence, which click would cut at the width of the terminal."""
        shown = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        rows = [(name, found.get_short_help_str(SENTENCE_MAX)) for name, found in shown if found and not found.hidden]
        with formatter.section("Commands"):
            formatter.write_dl(rows)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        shown = [c for c in self.every_command().values() if isinstance(c, Command) and not c.hidden]
        write_examples(formatter, tuple(command.two_examples()[0] for command in shown[:2]))


def command(name: str, *, examples: Examples, **attributes: Any) -> Callable[[Callable[..., Any]], Command]:
    """A command of its own; its module is named in `registry`."""
    return lambda function: _built(name, function, examples, attributes)


def noun(name: str, help: str, *, default: str | None = None, of: str = "") -> Noun:
    return Noun(name, help, default=default, of=of)


def invoke(ctx: click.Context, chosen: click.Command) -> None:
    """Run `chosen` without arguments, as if it had been typed after the command of `ctx`."""
    with chosen.make_context(chosen.name, [], parent=ctx) as inner:
        chosen.invoke(inner)


def option(*names: str, **attributes: Any) -> Callable[[F], F]:
    """As `click.option`, but created when the command runs: a noun has a hundred options, a command needs five."""
    return _wanting(partial(made, click.Option, names, **attributes))


def argument(name: str, **attributes: Any) -> Callable[[F], F]:
    """As `click.argument`, but created when the command runs."""
    return _wanting(partial(made, click.Argument, (name,), **attributes))


def command_line(name: str = "command", *, required: bool = False) -> Callable[[F], F]:
    """The argument that takes the words after `--`: the program to run and its arguments."""
    return _wanting(partial(command_line_argument, name, required=required))


def command_line_argument(name: str, *, required: bool = False) -> CommandLine:
    metavar = "-- COMMAND …" if required else "[-- COMMAND …]"
    return made(CommandLine, (name,), nargs=-1, required=required, type=click.UNPROCESSED, metavar=metavar)


def made(kind: type[P], names: tuple[str, ...], help: str | None = None, **attributes: Any) -> P:
    """A parameter with its completion and the name that help shows for its value."""
    if help is not None:
        attributes["help"] = help
    made = kind(names, shell_complete=_completed, **attributes)
    if isinstance(made, click.Option) and made.metavar is None and not made.is_flag:
        if isinstance(made.type, click.types.IntParamType | click.types.FloatParamType):
            made.metavar = "N"
        elif made.type is click.STRING:
            made.metavar = METAVARS.get(names[0].lstrip("-"))
    return made


def _completed(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[Any]:
    """The values that a shell offers for a parameter: ids, keys and names in the store."""
    from standfast.cli.completion_values import complete

    return complete(ctx, param, incomplete)


def _wanting(make: Callable[[], click.Parameter]) -> Callable[[F], F]:
    def decorate(function: F) -> F:
        # The first decorator is called last.
        vars(function).setdefault(_WANTED, []).insert(0, make)
        return function

    return decorate


def scope_options(function: F) -> F:
    """Add `--all` and `--global`; the command gets "all", "global" or None as `scope_choice`."""
    for make in reversed(scope_flags()):
        function = _wanting(make)(function)
    return function


def scope_flags() -> Wanted:
    name = "scope_choice"
    everything, nothing = "Include every repository and scope.", "Only include what belongs to no repository."
    return [
        partial(made, click.Option, ("--all", name), everything, flag_value="all"),
        partial(made, click.Option, ("--global", name), nothing, flag_value="global"),
    ]


def while_option() -> Callable[[], click.Parameter]:
    """`--while PID`, given to the command as `pid`."""
    text = "Hold it while this process lives: --while $$"
    return partial(made, click.Option, ("--while", "pid"), text, type=int, metavar="PID")


def place(_ctx: click.Context, _param: click.Parameter, after: str | None) -> str | None:
    """Check `--after` of a list in the order of ids: any other text would start the list at a wrong place."""
    from standfast.errors import InvalidInput
    from standfast.ids import is_id

    if after is None or is_id(after):
        return after
    raise InvalidInput(f"{after!r} is not a cursor of this list", "use the `next` of the last page")


def pair(after: str | None) -> tuple[str, str] | None:
    """Read `--after` of a list in the order of two names. It is JSON, because a name may contain any character."""
    if after is None:
        return None
    from standfast import serial
    from standfast.errors import InvalidInput

    found = serial.read(after)
    if isinstance(found, list) and len(found) == 2 and isinstance(found[0], str) and isinstance(found[1], str):
        return found[0], found[1]
    raise InvalidInput("--after is not a cursor of this list", "use the `next` of the last page")


@cache
def common_options() -> list[click.Parameter]:
    """The options of every command, which may stand before or after its name."""

    def eager(*names: str, callback: Callable[..., None], help: str) -> click.Option:
        # Eager, because --version prints while click still parses, and needs the format.
        return flag(*names, is_eager=True, callback=callback, help=help)

    return [
        eager("--json", callback=_format("json"), help="Print one JSON document."),
        eager("--jsonl", callback=_format("jsonl"), help="Print one JSON record per line."),
        flag("--debug", callback=_debug, hidden=True),
        made(
            click.Option,
            ("--scope",),
            "Use the keys of this scope; each scope has its own keys.",
            metavar="NAME",
            expose_value=False,
            is_eager=True,
            callback=_scope,
        ),
        made(
            click.Option,
            ("--store",),
            "Use the store with this name; the default store is called `default`.",
            metavar="NAME",
            expose_value=False,
            is_eager=True,
            callback=choose_store,
        ),
        # Click's own option loads translations, which takes 2 ms per command.
        eager("-h", "--help", "asked_for_help", callback=_help, help="Show this message and exit."),
    ]


def flag(*names: str, callback: Callable[..., None], **attributes: Any) -> click.Option:
    """A flag whose callback does all its work; the command does not get a value."""
    return made(click.Option, names, is_flag=True, expose_value=False, callback=callback, **attributes)


def unknown(words: list[str], known: list[str], before: str = "") -> Refused:
    """The refusal of an unknown command, with the most similar name."""
    from difflib import get_close_matches

    from standfast import hints

    word, *rest = words
    near = get_close_matches(word, known, 1, 0.65)
    message = f"there is no command {before}{word}"
    if near:
        return Refused(f"{message}; did you mean {near[0]}?", hints.command(*before.split(), near[0], *rest))
    return Refused(message, f"standfast {before}--help")


def unknown_option(error: click.NoSuchOption, words: list[str]) -> Refused:
    """The refusal of an unknown option; its hint is the same line with the option that was probably meant."""
    ctx = error.ctx
    path, params = (ctx.command_path, ctx.command.params) if ctx else ("standfast", [])
    arguments = [str(param.name) for param in params if isinstance(param, click.Argument)]
    options = [name for param in params if param.name not in arguments for name in param.opts]
    called = _called(error.option_name, arguments, options)
    message = f"there is no option {error.option_name}"
    if called is None:
        return Refused(message, f"{path} --help", ctx)
    renamed = {word: name for word in words if (name := _called(word.partition("=")[0], arguments, options))}
    if called in arguments:
        message = f"{called.upper()} is given as it is, without {error.option_name}"
    else:
        message += f"; did you mean {called}?"
    given = [name for name in renamed.values() if name in arguments]
    if given != sorted(given, key=arguments.index):  # dropping the dashes would swap them
        return Refused(message, f"{path} --help", ctx)
    return Refused(message, _renamed(words, renamed, arguments), ctx)


def _called(option: str, arguments: list[str], options: list[str]) -> str | None:
    """The option or argument that `option` probably means. None if the option exists or nothing is similar."""
    from standfast.cli.aliases import OPTIONS
    from standfast.errors import close_matches

    given = option.lstrip("-")
    if not option.startswith("--") or not given or option in options:
        return None
    for word in (given, *OPTIONS.get(given, ())):
        if word in arguments or f"--{word}" in options:
            return word if word in arguments else f"--{word}"
    longer = [name for name in options if name.startswith(option)]
    if len(longer) == 1:
        return longer[0]
    near = close_matches(given, (name[2:] for name in options if name.startswith("--")), 0.7)
    return f"--{near[0]}" if near else None


def _renamed(words: list[str], renamed: dict[str, str], arguments: list[str]) -> str:
    """Replace wrong options in a command line. If `renamed` names an argument, only the value of the option stays."""
    from standfast import hints

    line: list[str] = []
    end = words.index("--") if "--" in words else len(words)
    for word in words[:end]:
        _, equals, value = word.partition("=")
        name = renamed.get(word)
        if name is None:
            line.append(word)
        elif name in arguments:
            line += [value] if equals else []
        else:
            line.append(f"{name}{equals}{value}")
    return hints.command(*line, *words[end:])


def _missing_before_dashes(
    ctx: click.Context, missing: click.Argument, before: list[str], after: tuple[str, ...]
) -> Refused:
    from standfast import hints

    name = missing.human_readable_name.strip("[]")
    line = hints.command(*ctx.command_path.split()[1:], *before, name, "--", *after)
    return Refused(f"{name} is missing before --", line, ctx)


def write_examples(formatter: click.HelpFormatter, examples: tuple[str, ...]) -> None:
    if examples:
        with formatter.section("Examples"):
            for example in examples:
                formatter.write(f"{'':>{formatter.current_indent}}{example}\n")


def _help(ctx: click.Context, _: click.Parameter, given: bool) -> None:
    if given and not ctx.resilient_parsing:
        click.echo(ctx.get_help())
        ctx.exit()


def _built(name: str, function: Callable[..., Any], examples: Examples, attributes: dict[str, Any]) -> Command:
    chosen: type[Command] = attributes.pop("cls", Command)
    wanted: Wanted = getattr(function, _WANTED, [])
    creates = attributes.pop("creates", False)
    if function.__code__.co_varnames[:1] == ("sf",):
        from standfast.cli.answers import framed

        function = framed(function, creates=creates)
    decorate = click.command(name, cls=chosen, examples=examples, wanted=wanted, **attributes)
    made = decorate(click.pass_obj(function))
    assert isinstance(made, Command)
    return made


def _format(value: Format) -> Callable[[click.Context, click.Parameter, bool], None]:
    def callback(ctx: click.Context, _: click.Parameter, given: bool) -> None:
        if given:
            _out(ctx).format = value

    return callback


def _scope(ctx: click.Context, _: click.Parameter, given: str | None) -> None:
    """Set the scope in the environment, so that child processes work in the same scope."""
    if given is not None and not ctx.resilient_parsing:
        import os

        from standfast.config.scope import SCOPE_VARIABLE, checked_scope

        os.environ[SCOPE_VARIABLE] = checked_scope(given, "--scope", code="invalid_input")
        from standfast.hints import word

        _out(ctx).chosen += f"--scope {word(given)} "


def choose_store(ctx: click.Context, _: click.Parameter, given: str | None) -> None:
    """Set the store in the environment, so that child processes use the same store."""
    if given is not None and not ctx.resilient_parsing:
        import os

        from standfast.config.named_stores import STORE_VARIABLE, store_name

        store_name({STORE_VARIABLE: given})
        os.environ[STORE_VARIABLE] = given
        _out(ctx).chosen += f"--store {given} "


def _debug(ctx: click.Context, _: click.Parameter, given: bool) -> None:
    if given:
        _out(ctx).debug = True


def _out(ctx: click.Context) -> Out:
    out = ctx.find_root().obj
    assert isinstance(out, Out)
    return out
