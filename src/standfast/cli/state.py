"""`standfast state`: set, get and check values by key; each value has a version."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from standfast import serial
from standfast.cli.answers import Many, One, show
from standfast.cli.frame import argument, noun, option
from standfast.cli.open_store import opened
from standfast.cli.output import Out
from standfast.cli.render import Column, clean_lines
from standfast.cli.values import DURATION, moment, plain, text_of
from standfast.config import load, people
from standfast.errors import InvalidInput

if TYPE_CHECKING:
    from standfast.config import Settings
    from standfast.handle import Standfast
    from standfast.record.state import Entry

FILE_MAX_BYTES = 2 << 20

state = noun(
    "state",
    "Set, get and check values by key. A version decides between two writers.",
    default="list",
    of="standfast.record.state:State",
)


_NAMESPACE = option("--namespace", default="", help="The namespace of the key; the namespace of a session is its id.")
_GLOBAL = option("--global", "everywhere", is_flag=True, help="Use the values that belong to no repository.")


def written(function: Any) -> Any:
    """Add the options of `set` and `swap`."""
    for one in (
        _GLOBAL,
        option("--no-verify", is_flag=True, help="Remove the command of the key."),
        option(
            "--verify",
            help="Store a command that compares the value with the outside system. Only `state check` runs it.",
        ),
        option("--no-schema", is_flag=True, help="Remove the schema of the key."),
        option("--schema", type=click.Path(), help="Store a JSON schema, from this file, that each value must fit."),
        option("--for", "for_", type=DURATION, help="Let the value expire after this time: 30m, 2d.  [default: never]"),
        option("--file", "file", type=click.Path(), help="Read the value from this file."),
        option(
            "--as",
            "form",
            type=click.Choice(["auto", "json", "text"]),
            default="auto",
            show_default=True,
            help="Read VALUE as JSON (json), as text (text), or as JSON if it is valid JSON (auto).",
        ),
        _NAMESPACE,
    ):
        function = one(function)
    return function


def _got(_: Standfast, found: Entry) -> One:
    doubted = found.verdict in ("stale", "unknown")
    say = f"{found.verdict}: {clean_lines(found.evidence or '')}" if doubted else ""
    return One(found, [text_of(found.value)], say=say, exact=True)


state.generate(
    "get",
    examples=("standfast state get branch", "standfast state get limits --namespace prod --json"),
    answer=_got,
    without=("returns",),
    outside=True,
)


@state.verb(
    "set",
    examples=(
        "standfast state set branch fix-42 --verify 'git rev-parse -q --verify \"$STANDFAST_STATE_VALUE\"'",
        "standfast state set limits '{\"cpu\": 2}' --schema limits.schema.json --for 12h",
    ),
)
@argument("key")
@argument("value", required=False)
@written
def set_(out: Out, key: str, value: str | None, everywhere: bool, **given: Any) -> None:
    """Store VALUE under KEY and replace any older value; - reads it from stdin.

    Each change increments the version. `standfast state swap` only replaces the version that you read.
    """
    made_of, wish = _value(value, given), _wish(given)
    with opened(_settings(everywhere)) as sf:
        made = sf.state.set(key, made_of, namespace=given["namespace"], **wish)
    _written(out, made)


@state.verb(
    "swap",
    examples=("standfast state swap leader host-2 --version 7", "standfast state swap leader host-1 --version 0"),
)
@argument("key")
@argument("value", required=False)
@option(
    "--version",
    type=click.IntRange(0),
    required=True,
    metavar="N",
    help="Replace only version N, the version you read; 0: KEY must have no value.",
)
@written
def swap(out: Out, key: str, value: str | None, version: int, everywhere: bool, **given: Any) -> None:
    """Store VALUE under KEY only if it has this version; of two writers, the second exits 4."""
    made_of, wish = _value(value, given), _wish(given)
    with opened(_settings(everywhere)) as sf:
        made = sf.state.swap(key, made_of, version=version, namespace=given["namespace"], **wish)
    _written(out, made)


state.generate(
    "delete",
    examples=("standfast state delete branch", "standfast state delete leader --version 7"),
    options={"version": {"type": click.IntRange(1), "metavar": "N"}},
    text="deleted: {key}",
    outside=True,
)


state.generate(
    "list",
    examples=("standfast state list", "standfast state list --namespace prod --json"),
    outside=True,
    then="state get {key}",
    empty="no value here; all namespaces: standfast state namespaces",
)


def _namespaces(_: Standfast, found: Many) -> Many:
    return found._replace(columns=[Column("name", show=lambda name: name or "(none)"), "values"])


state.generate(
    "namespaces",
    examples=("standfast state namespaces", "standfast state namespaces --json"),
    outside=True,
    answer=_namespaces,
    then="state list --namespace NAME",
    empty="no value in this scope",
)


@state.verb(
    "check", examples=("standfast state check", "standfast state check branch --timeout 5s && git switch fix-42")
)
@argument("keys", nargs=-1)
@_NAMESPACE
@option(
    "--timeout",
    default="30s",
    show_default=True,
    metavar="DURATION",
    help="End a command after this time; at most 10m.",
)
@option("--dry-run", is_flag=True, help="Print the commands and run none of them.")
@_GLOBAL
def check(out: Out, keys: tuple[str, ...], namespace: str, timeout: str, dry_run: bool, everywhere: bool) -> None:
    """Run the commands stored with these KEYS, by default with all keys, and mark stale values.

    A command gets the value in STANDFAST_STATE_VALUE and, as JSON, on stdin. Its exit code 0 means fresh. 126, 127, a
    signal and the timeout mean unknown. Any other code means stale. `state check` exits 1 unless all values are fresh.
    Only this command runs stored commands. Agents may not run it.
    """
    from standfast.cli import state_check

    if not dry_run:
        people.refuse("runs stored commands")
    with opened(_settings(everywhere), create=False) as sf:
        entries = state_check.chosen(sf, keys, namespace)
        if dry_run:
            out.rows([plain(one) for one in entries], ["key", "verify", "verify_by"], empty=state_check.NONE)
            return
        found = state_check.run(sf, entries, state_check.checked_timeout_s(timeout))
    columns = ["key", "verdict", "evidence"]
    out.rows([plain(one) for one in found], columns, empty=state_check.NONE)
    if any(one.verdict != "fresh" for one in found):
        raise click.exceptions.Exit(1)


# -- private functions -------------------------------------------------------------------------------


def _written(out: Out, made: Entry) -> None:
    ends = f", expires {moment(made.expires_us)}" if made.expires_us else ""
    show(out, One(made, [f"{made.key} is at version {made.version}{ends}"]))


def _settings(everywhere: bool) -> Settings:
    return load(outside=everywhere)


def _wish(given: dict[str, Any]) -> dict[str, Any]:
    """The expiry, and the schema and the command if they were given; otherwise these stay as they are."""
    for name in ("schema", "verify"):
        if given[name] is not None and given[f"no_{name}"]:
            raise click.UsageError(f"--{name} and --no-{name} contradict each other")
    wish: dict[str, Any] = {"for_": given["for_"]}
    if given["schema"] is not None:
        wish["json_schema"] = serial.loads(_read(given["schema"]), what=given["schema"])
    elif given["no_schema"]:
        wish["json_schema"] = None
    if given["verify"] is not None or given["no_verify"]:
        wish["verify"] = given["verify"]
    return wish


def _value(text: str | None, given: dict[str, Any]) -> Any:
    if (text is None) == (given["file"] is None):
        raise click.UsageError("give VALUE, - for stdin, or --file PATH")
    if text is None:
        return parsed(_decoded(_read(given["file"]), given["file"]).removesuffix("\n"), given["form"])
    if text == "-":
        return parsed(_decoded(sys.stdin.buffer.read(FILE_MAX_BYTES), "stdin").removesuffix("\n"), given["form"])
    return parsed(text, given["form"])


def parsed(text: str, form: str) -> Any:
    """Text or JSON. Text that begins like a JSON object, list or string must be valid JSON."""
    if form == "text":
        return text
    try:
        return serial.loads(text, what="value")
    except InvalidInput as error:
        if form == "auto" and not text.lstrip().startswith(("{", "[", '"')):
            return text
        hint = "to store it as text: --as text" if form == "auto" else error.hint
        raise InvalidInput(error.message, hint) from None


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read(FILE_MAX_BYTES)
    except OSError as error:
        raise InvalidInput(f"{path} cannot be read: {error.strerror}") from None


def _decoded(data: bytes, what: str) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise InvalidInput(
            f"{what} is not UTF-8 at byte {error.start:,}", "keep bytes: standfast artifact put"
        ) from None
