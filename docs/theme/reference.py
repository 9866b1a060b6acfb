"""The reference pages, made from the code when the site is built."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "standfast"


def pages() -> dict[str, str]:
    sys.path.insert(0, str(ROOT))
    made: dict[str, Callable[[], Iterator[str]]] = {
        "commands": _cli,
        "exit-codes": _exit_codes,
        "errors": _errors,
        "settings": _settings,
        "crash-points": _crash_points,
        "api": _api,
        "api-resources": _resources,
        "api-models": _models,
    }
    return {f"reference/{name}.md": "\n\n".join(page()) + "\n" for name, page in made.items()}


# -- the command line ------------------------------------------------------------------------------------------


def _cli() -> Iterator[str]:
    import click

    from standfast.cli import app
    from standfast.cli.registry import ENTRIES

    yield "# Commands"
    yield "Each command with its `--help`. [The command line](command-line.md) explains values, output and completion."
    root = app.build()
    for entry in sorted(ENTRIES):
        command = root.get_command(click.Context(root), entry.name)
        assert command is not None
        yield f"## standfast {entry.name}"
        yield _help(entry.name, command)
        if isinstance(command, click.Group):
            for name in command.list_commands(click.Context(command)):
                inner = command.get_command(click.Context(command), name)
                if inner is not None and not inner.hidden:
                    yield f"### standfast {entry.name} {name}"
                    yield _help(f"{entry.name} {name}", inner)


def _help(name: str, command: Any) -> str:
    import click

    context = click.Context(command, info_name=f"standfast {name}", max_content_width=100)
    return f"```text\n{command.get_help(context)}\n```"


def _exit_codes() -> Iterator[str]:
    from standfast.cli import exits

    yield "# Exit codes"
    yield "A script may branch on these codes. They do not change."
    yield _table(("code", "meaning"), [(str(code), meaning) for code, meaning in exits.MEANINGS.items()])
    yield "`once` and `session run` exit with the code of your command if it ran."


# -- errors ----------------------------------------------------------------------------------------------------


def _errors() -> Iterator[str]:
    from standfast import errors

    yield "# Errors"
    yield "`str(error)` has the fact, then the next command. `error.code` is for programs, `error.hint` is the command."
    yield f"```text\n{(errors.__doc__ or '').split(chr(10) * 2)[1]}\n```"
    yield "The tables list every message that the code raises. `{x}` is a value."
    kinds = {name for name, kind in vars(errors).items() if inspect.isclass(kind) and issubclass(kind, Exception)}
    found = sorted({row for path in sorted(SOURCE.rglob("*.py")) for row in _raised(path, kinds)})
    for kind in sorted({row[0] for row in found}):
        yield f"## {kind}"
        yield _table(("message", "next command"), [row[1:] for row in found if row[0] == kind])


def _raised(path: Path, kinds: set[str]) -> Iterator[tuple[str, str, str]]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute) and node.args:
            name = node.func.id if isinstance(node.func, ast.Name) else node.func.attr
            texts = [_text(argument) for argument in node.args[:2]]
            if name in kinds and texts[0]:
                yield name, texts[0], texts[1] if len(texts) > 1 else ""


def _text(node: ast.expr) -> str:
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        parts = [part.value if isinstance(part, ast.Constant) else f"{{{_name(part)}}}" for part in node.values]
        return "".join(str(part) for part in parts)
    if isinstance(node, ast.BinOp):
        return _text(node.left) + _text(node.right)
    return ""


def _name(node: ast.expr) -> str:
    source = ast.unparse(node.value) if isinstance(node, ast.FormattedValue) else "…"
    return source if re.fullmatch(r"[\w.]+", source) else "…"


# -- settings and crash points ---------------------------------------------------------------------------------


def _settings() -> Iterator[str]:
    from standfast.config.files import KEYS

    yield "# Settings"
    yield "[Configure](../operating/configure.md) says what each one does and which one wins."
    yield "## Keys of `config.toml`"
    rows = [(f"`{key}`", one.accepted, one.only or "project, global") for key, one in KEYS.items()]
    yield _table(("key", "value", "may be set in"), rows)
    yield "## Environment variables"
    names = {name for path in SOURCE.rglob("*.py") for name in re.findall(r'"(STANDFAST_[A-Z_]+)"', path.read_text())}
    yield "standfast reads or sets these. It sets variables for commands that it starts."
    yield "\n".join(f"- `{name}`" for name in sorted(names))


def _crash_points() -> Iterator[str]:
    from standfast.crash import POINTS

    yield "# Crash points"
    yield (
        "`STANDFAST_CRASH_AT=effect.before_done:2 python agent.py` kills the process the second time it passes that "
        "point. [`sf_crash`](../guides/test-your-agent.md) tries all points that your agent passes."
    )
    yield _table(("name", "at this point"), [(f"`{name}`", text) for name, text in sorted(POINTS.items())])


# -- the API ---------------------------------------------------------------------------------------------------


def _api() -> Iterator[str]:
    import standfast
    from tests import public

    yield "# Python API"
    yield (
        "The names of the package, the handle and the session. [Resources](api-resources.md) has `sf.tasks`, `sf.mail` "
        "and the others, [models](api-models.md) what they return. `aopen()` gives the same names, awaited."
    )
    yield "## standfast"
    for name in sorted(standfast.__all__):
        one = getattr(standfast, name)
        if inspect.isroutine(one):
            yield from _function(f"standfast.{name}", one)
    yield from _class("sf = standfast.open()", standfast.Standfast, public.of(standfast.Standfast))
    for kind in public.HANDED:
        yield from _class(kind.__name__, kind, public.of(kind))


def _resources() -> Iterator[str]:
    from tests import public

    yield "# Resources"
    yield "Each resource is an attribute of the handle: `sf.tasks.add(…)`. A method is one transaction."
    for name, kind in sorted(public.resources().items()):
        yield from _class(f"sf.{name}", kind, public.of(kind))


def _models() -> Iterator[str]:
    from standfast import record
    from tests import public

    assert record
    yield "# Models"
    yield "Methods return frozen dataclasses. Times end in `_us`: microseconds since 1970 in UTC."
    seen = {kind for one in (*public.resources().values(), *public.HANDED) for kind in _returned(one)}
    for kind in sorted(seen, key=lambda kind: kind.__name__):
        yield f"## {kind.__name__}"
        yield _doc(kind)
        yield _table(("field", "type"), [(f"`{f.name}`", f"`{_annotation(f.type)}`") for f in dataclasses.fields(kind)])


def _returned(kind: type) -> Iterator[type]:
    """The dataclasses of the module that holds a class and its methods."""
    for module in {
        sys.modules[one.__module__] for one in (kind, *kind.__mro__) if one.__module__.startswith("standfast.")
    }:
        for name, one in vars(module).items():
            if inspect.isclass(one) and dataclasses.is_dataclass(one) and not name.startswith("_"):
                yield one


def _class(title: str, kind: type, methods: dict[str, Callable[..., Any]]) -> Iterator[str]:
    yield f"## {title}"
    yield _doc(kind)
    prefix = (
        title if title.startswith("sf.") else {"Session": "s"}.get(title, "sf" if title.startswith("sf") else title)
    )
    for name, method in sorted(methods.items()):
        yield from _function(f"{prefix}.{name}", method)


def _function(title: str, function: Callable[..., Any]) -> Iterator[str]:
    try:
        signature = str(inspect.signature(function))
    except (TypeError, ValueError):
        signature = "(…)"
    signature = re.sub(r"\((?:self|tx)(?:, )?(?:tx(?:: '?Tx'?)?(?:, )?)?", "(", signature, count=1)
    yield f"### `{title}`"
    signature = re.sub(r"<object object at \w+>|<[\w.]+ object at \w+>", "…", signature.replace("'", ""))
    yield f"```text\n{title}{signature}\n```"
    yield _doc(function)


def _doc(one: Any) -> str:
    """The docstring; paragraphs with aligned columns stay as they are laid out."""
    paragraphs = (inspect.getdoc(one) or "").split("\n\n")
    return "\n\n".join(f"```text\n{part}\n```" if re.search(r"\w  +\w", part) else part for part in paragraphs)


def _annotation(kind: Any) -> str:
    return kind if isinstance(kind, str) else getattr(kind, "__name__", str(kind))


def _table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return "\n".join(
        "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in line) + " |" for line in lines
    )
