"""Find and run a command, and turn each error into a message and an exit code.

A command is imported only when it runs. An error becomes one message on stderr and one exit code of `exits`. A
traceback is printed only with `-v`, with passwords masked.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any, TextIO

import click

from standfast import log
from standfast.cli import exits
from standfast.cli.frame import Refused, common_options, flag, invoke, unknown, unknown_option
from standfast.cli.output import Format, Out
from standfast.cli.registry import BY_NAME, ENTRIES, GROUPS
from standfast.cli.render import printed
from standfast.config.people import entered
from standfast.errors import InvalidInput, StandfastError

NAME = "standfast"
MOTTO = "Agents crash. The state stands fast."
ALIAS_STEPS_MAX = 3
COMPLETE_VARIABLE = "_STANDFAST_COMPLETE"


class Root(click.Group):
    """`standfast`: the commands of the registry. A command is imported when it is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(BY_NAME)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        entry = BY_NAME.get(cmd_name)
        if entry is None:
            return None
        from importlib import import_module

        module, _, attribute = entry.place.partition(":")
        try:
            found: click.Command = getattr(import_module(module), attribute)
        except ModuleNotFoundError as error:
            if error.name != "standfast_prove":
                raise
            if ctx.resilient_parsing:
                return None  # completion: offer no options of a command that is not installed
            raise _not_installed(cmd_name) from None
        return found

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        args = expanded(ctx, args)
        if args[0] not in BY_NAME:
            raise unknown(args, list(BY_NAME))
        return super().resolve_command(ctx, args)

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        formatter.write(help_screen())

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[Any]:
        from click.shell_completion import CompletionItem

        if incomplete.startswith("-"):
            return click.Command.shell_complete(self, ctx, incomplete)
        # The table has all names: completion must not import all commands.
        return [CompletionItem(e.name, help=e.summary) for e in ENTRIES if e.name.startswith(incomplete)]


def _not_installed(name: str) -> InvalidInput:
    return InvalidInput(
        f"{NAME} {name} is part of standfast-prove, and standfast-prove is not installed",
        "in the source of standfast: pip install ./prove",
        code="not_installed",
    )


def expanded(ctx: click.Context, args: list[str]) -> list[str]:
    """The words, with an alias at the beginning replaced by its command."""
    if args[0] in BY_NAME and (len(args) == 1 or args[1].startswith("-")):
        return args  # a command without a verb: do not load the aliases
    from standfast.cli.aliases import meaning

    for _ in range(ALIAS_STEPS_MAX):
        found = meaning(args, {*BY_NAME, "--version"})
        if found is None:
            break
        means, used = found
        if means.startswith("!"):
            line, _sep, reason = means[1:].partition("  # ")
            raise Refused(f"there is no command {' '.join(args[:used])}: {reason}", line, ctx)
        if means == "--version":
            _print_version(ctx, None, True)
        args = [*means.split(), *args[used:]]
    return args


def help_screen(*, everything: bool = False) -> str:
    """The commands in groups: those of the first screen, or all of them with `everything`."""
    lines = [f"{NAME}: {MOTTO}", "", f"Usage: {NAME} [COMMAND] [OPTIONS]    (alone: status)"]
    width = max(len(entry.name) for entry in ENTRIES)
    for group, title in GROUPS.items():
        shown = [entry for entry in ENTRIES if entry.group == group and (entry.front or everything)]
        if shown:
            lines += ["", f"{title}:", *(f"  {entry.name:<{width}}  {entry.summary}" for entry in shown)]
    lines += [
        "",
        "Every command has --help with examples, and --json or --jsonl for programs.",
        f"Also: {'' if everything else f'{NAME} help all, '}{NAME} help exit-codes; -v logs to stderr.",
    ]
    return "\n".join(lines) + "\n"


def _print_version(ctx: click.Context, _: click.Parameter | None, given: bool) -> None:
    if given and not ctx.resilient_parsing:
        from standfast.cli.help import print_version

        print_version(ctx.find_root().obj)
        ctx.exit()


def _verbose(ctx: click.Context, _: click.Parameter, given: bool) -> None:
    if given:
        ctx.find_root().obj.debug = True
        log.to_stderr()


def _alone() -> None:
    ctx = click.get_current_context()
    if ctx.invoked_subcommand is None:
        assert isinstance(ctx.command, Root)
        status = ctx.command.get_command(ctx, "status")
        assert status is not None
        invoke(ctx, status)


def build() -> Root:
    """The root command."""
    root = Root(NAME, callback=_alone, invoke_without_command=True)
    root.params += common_options()
    root.params += [
        flag("--version", callback=_print_version, help="Print versions."),
        flag("-v", "--verbose", callback=_verbose, help="Log events and tracebacks to stderr."),
    ]
    return root


def run(words: list[str]) -> int:
    """Run one command line and return its exit code. Raises nothing."""
    _prepare_streams()
    entered()
    if COMPLETE_VARIABLE in os.environ:
        return _complete()
    out = Out(_asked_format(words), debug=_asked_debug(words))
    code = _guarded(out, words, lambda: _invoke(words, out))
    return _flushed(code)


def _prepare_streams() -> None:
    """Print characters that the terminal cannot encode as escapes, and replace a closed stream (`>&-`)."""
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115  open until the process ends
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115  as above
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]


def _invoke(words: list[str], out: Out) -> int:
    # Until the line is parsed, the format is only guessed from its words, for errors of the parser.
    root = build()
    guessed, out.format = out.format, "text"
    try:
        ctx = root.make_context(NAME, list(words), obj=out)
    except click.ClickException:
        out.format = guessed
        raise
    with ctx:
        try:
            root.invoke(ctx)
        except click.UsageError:
            out.format = guessed
            raise
        except InvalidInput as error:
            if error.code == "not_installed":  # the options of this command were not parsed
                out.format = guessed
            raise
    return exits.OK


def _guarded(out: Out, words: list[str], action: Callable[[], int]) -> int:
    """Print the message of a failure and return its exit code."""
    try:
        return action()
    except click.exceptions.Exit as end:
        return end.exit_code
    except click.UsageError as error:
        if isinstance(error, click.NoSuchOption):
            error = unknown_option(error, words)
        out.error("usage", " ".join(error.format_message().split()), _usage_hint(error))  # Click breaks long choices
        return exits.USAGE
    except click.ClickException as error:
        out.error("failed", error.format_message())
        return exits.FAILED
    except (KeyboardInterrupt, click.Abort):
        return exits.INTERRUPTED
    except BrokenPipeError:
        return exits.BROKEN_PIPE
    except StandfastError as error:
        _traceback(out)
        out.error(error.code, _masked(error.message), _masked(error.hint))
        return exits.code_of(error)
    except OSError as error:  # for example a full disk or an unreadable directory
        _traceback(out)
        out.error("os_error", *map(_masked, _without_file(error)))
        return exits.FAILED
    except Exception as error:  # noqa: BLE001  the outermost handler: an unexpected error must not print a password
        _traceback(out)
        out.error("internal", _masked(f"{type(error).__name__}: {error}"), "standfast -v … shows where")
        return exits.FAILED


def _usage_hint(error: click.UsageError) -> str:
    if isinstance(error, Refused):
        return error.hint
    path = error.ctx.command_path if error.ctx else NAME
    if "unexpected extra argument" in error.message:
        return f"quote a text of several words; {path} --help"
    return f"{path} --help"


def _traceback(out: Out) -> None:
    if out.debug:
        import traceback

        out.say(_masked(traceback.format_exc()))


def _masked(text: str) -> str:
    """Mask passwords: texts that look like one, and the password of the configured store."""
    from standfast.config import load, mask

    try:
        return load(quiet=True).target.hide(text)
    except Exception:  # noqa: BLE001  loading the settings may fail again
        return mask(text)


def _asked_format(words: list[str]) -> Format:
    ours = words[: words.index("--")] if "--" in words else words
    return "jsonl" if "--jsonl" in ours else "json" if "--json" in ours else "text"


def _asked_debug(words: list[str]) -> bool:
    return bool(words) and words[0] in ("-v", "--verbose", "--debug")


def _flushed(code: int) -> int:
    """Flush the streams. If the reader has exited, discard the rest: the interpreter would print an error at exit."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except BrokenPipeError:
            _discard(stream)
            code = code or exits.BROKEN_PIPE
        except OSError as error:
            _discard(stream)
            print(printed(f"standfast: the answer could not be written: {error.strerror}"), file=sys.stderr)
            code = code or exits.FAILED
    return code


def _without_file(error: OSError) -> tuple[str, str]:
    """The message and the hint of an error of the system. A missing directory is named instead of a file in it."""
    from standfast import hints

    directory = os.path.dirname(os.fsdecode(error.filename)) if isinstance(error.filename, str | bytes) else ""
    if isinstance(error, FileNotFoundError) and directory and not os.path.exists(directory):
        return f"there is no directory {directory}", f"mkdir -p {hints.word(directory)}"
    return f"{error.strerror}: {error.filename}" if error.filename else str(error.strerror), ""


def _discard(stream: TextIO) -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _complete() -> int:
    from click.shell_completion import shell_complete

    try:
        return shell_complete(build(), {}, NAME, COMPLETE_VARIABLE, os.environ[COMPLETE_VARIABLE])
    except (click.ClickException, StandfastError):  # the line so far is not a valid command: offer nothing
        return exits.OK
