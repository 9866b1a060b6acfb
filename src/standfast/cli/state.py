"""`standfast state`: values by name, each with a version."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from standfast.cli.frame import argument, noun, option
from standfast.cli.output import Out
from standfast.cli.render import Column, clean_lines

if TYPE_CHECKING:
    from standfast.config import Settings
    from standfast.record.state import Entry

FILE_MAX_BYTES = 2 << 20
VALUE_SHOWN = 200

state = noun("state", "Values by name: versions decide between two writers.", default="list")


def _moment(us: int) -> str:
    from time import localtime, strftime

    return strftime("%Y-%m-%d %H:%M", localtime(us // 1_000_000))


def shown(value: Any) -> str:
    """A value as people read it: text as it is, everything else as JSON."""
    from standfast import serial

    return value if isinstance(value, str) else serial.canonical(value)


def _line(value: Any) -> str:
    return shown(value)[:VALUE_SHOWN]


COLUMNS = [
    Column("key"),
    Column("version", "v"),
    Column("value", show=_line),
    Column("verdict"),
    Column("updated_us", "changed", _moment),
    Column("expires_us", "ends", lambda us: _moment(us) if us else ""),
    Column("actor", "by"),
]

_NAMESPACE = option("--namespace", default="", help="Where the key means something; a session's is its id.")
_GLOBAL = option("--global", "everywhere", is_flag=True, help="The scope outside any repository.")


def written(function: Any) -> Any:
    """What `set` and `swap` take."""
    for one in (
        _GLOBAL,
        option("--no-verify", is_flag=True, help="Take the key's command away."),
        option("--verify", help="A command that compares the value with the world; only `state verify` runs it."),
        option("--no-schema", is_flag=True, help="Take the key's schema away."),
        option("--schema", type=click.Path(), help="A file with the JSON schema that every value has to fit."),
        option("--for", "term", help="It ends after so long: 30m, 2d.  [default: it stays]"),
        option("--file", "file", type=click.Path(), help="Read the value from this file."),
        option(
            "--as",
            "form",
            type=click.Choice(["auto", "json", "text"]),
            default="auto",
            show_default=True,
            help="auto: what is JSON is JSON, the rest is text.",
        ),
        _NAMESPACE,
    ):
        function = one(function)
    return function


@state.verb("get", examples=("standfast state get branch", "standfast state get limits --namespace prod --json"))
@argument("key")
@_NAMESPACE
@_GLOBAL
def get(out: Out, key: str, namespace: str, everywhere: bool) -> None:
    """Print the value of KEY; exit 3 if there is none, or its time is over."""
    from standfast.cli.store import opened

    with opened(_settings(everywhere), create=False) as sf:
        found = sf.state.get(key, namespace=namespace)
    out.record(plain(found), [shown(found.value)], exact=True)
    out.say(f"standfast: {found.verdict}: {clean_lines(found.evidence or '')}") if _doubted(out, found) else None


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
    """Store VALUE under KEY, whatever was there. `-` reads it from standard input.

    Every change gives the value its next version; `standfast state swap` writes only over the one you read.
    """
    from standfast.cli.store import opened

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
@option("--version", type=click.IntRange(0), required=True, help="The version you read; 0: there must be none.")
@written
def swap(out: Out, key: str, value: str | None, version: int, everywhere: bool, **given: Any) -> None:
    """Store VALUE under KEY only over this version: of two writers one wins, and the other is told (exit 4)."""
    from standfast.cli.store import opened

    made_of, wish = _value(value, given), _wish(given)
    with opened(_settings(everywhere)) as sf:
        made = sf.state.swap(key, made_of, version=version, namespace=given["namespace"], **wish)
    _written(out, made)


@state.verb("delete", examples=("standfast state delete branch", "standfast state delete leader --version 7"))
@argument("key")
@option("--version", type=click.IntRange(1), help="Only this version.")
@_NAMESPACE
@_GLOBAL
def delete(out: Out, key: str, version: int | None, namespace: str, everywhere: bool) -> None:
    """Take KEY away, with its schema and its command. Its versions go on from where they are."""
    from standfast.cli.store import opened

    with opened(_settings(everywhere), create=False) as sf:
        gone = sf.state.delete(key, version=version, namespace=namespace)
    out.record(plain(gone), [f"deleted: {gone.key}"])


@state.verb("list", examples=("standfast state list", "standfast state list --namespaces --json"))
@_NAMESPACE
@option("--namespaces", is_flag=True, help="Which namespaces there are, instead.")
@option("--after", help="Where the page before ended.")
@option("--limit", default=50, show_default=True, type=click.IntRange(1, 1000))
@_GLOBAL
def list_(out: Out, namespace: str, namespaces: bool, after: str | None, limit: int, everywhere: bool) -> None:
    """List the values of a namespace by key, without those whose time is over."""
    from standfast.cli.store import opened

    with opened(_settings(everywhere), create=False) as sf:
        if namespaces:
            return _print_namespaces(out, sf.state.namespaces(after=after, limit=limit), limit)
        found = sf.state.list(namespace=namespace, after=after or "", limit=limit)
    out.rows(
        [plain(one) for one in found],
        COLUMNS,
        next=found[-1].key if len(found) == limit else None,
        then="standfast state get KEY" if found else "standfast state list --namespaces",
        empty="no value stands here",
    )
    return None


@state.verb(
    "verify", examples=("standfast state verify", "standfast state verify branch --timeout 5s && git switch fix-42")
)
@argument("keys", nargs=-1)
@_NAMESPACE
@option("--timeout", default="30s", show_default=True, help="How long each command may take; at most 10m.")
@option("--dry-run", is_flag=True, help="Print the commands and run none of them.")
@_GLOBAL
def verify(out: Out, keys: tuple[str, ...], namespace: str, timeout: str, dry_run: bool, everywhere: bool) -> None:
    """Run the commands that were stored with these KEYS (without any: all), and mark what is stale.

    The value is in STANDFAST_STATE_VALUE and, as JSON, on standard input. Exit 0 means fresh; 126, 127, a
    signal and the timeout mean that nobody knows; every other exit means stale. This command exits 1 unless
    everything is fresh. Nothing else runs these commands. For people: refused to agents.
    """
    from standfast.cli import state_verify
    from standfast.cli.store import opened
    from standfast.config import people

    if not dry_run:
        people.refuse("runs stored commands")
    with opened(_settings(everywhere), create=False) as sf:
        entries = state_verify.chosen(sf, keys, namespace)
        if dry_run:
            out.rows([plain(one) for one in entries], ["key", "verify", "verify_by"], empty=state_verify.NONE)
            return
        found = state_verify.run(sf, entries, state_verify.checked_timeout_s(timeout))
    columns = ["key", "verdict", "evidence"]
    out.rows([plain(one) for one in found], columns, empty=state_verify.NONE)
    if any(one.verdict != "fresh" for one in found):
        raise click.exceptions.Exit(1)


# -- small parts -------------------------------------------------------------------------------------


def plain(found: Entry) -> dict[str, Any]:
    """The noun's own fields, and its receipt as commands print it."""
    return {**found._asdict(), "receipt": found.receipt.as_json() if found.receipt else None}


def _written(out: Out, made: Entry) -> None:
    ends = f", ends {_moment(made.expires_us)}" if made.expires_us else ""
    out.record(plain(made), [f"{made.key} is at version {made.version}{ends}"])


def _doubted(out: Out, found: Entry) -> bool:
    return out.for_people and found.verdict in ("stale", "unknown")


def _print_namespaces(out: Out, found: list[Any], limit: int) -> None:
    out.rows(
        [one._asdict() for one in found],
        [Column("name", show=lambda name: name or "(none)"), "values"],
        next=found[-1].name if len(found) == limit else None,
        then="standfast state list --namespace NAME" if found else "",
        empty="no value stands in this scope",
    )


def _settings(everywhere: bool) -> Settings:
    from standfast.config import load

    return load(outside=everywhere)


def _wish(given: dict[str, Any]) -> dict[str, Any]:
    """The end, the schema and the command; what is not given stays as it is."""
    from standfast import serial
    from standfast.clock import parse_duration

    for name in ("schema", "verify"):
        if given[name] is not None and given[f"no_{name}"]:
            raise click.UsageError(f"--{name} and --no-{name} say opposite things")
    wish: dict[str, Any] = {"for_us": None if given["term"] is None else parse_duration(given["term"])}
    if given["schema"] is not None:
        wish["json_schema"] = serial.loads(_read(given["schema"]), what=given["schema"])
    elif given["no_schema"]:
        wish["json_schema"] = None
    if given["verify"] is not None or given["no_verify"]:
        wish["verify"] = given["verify"]
    return wish


def _value(text: str | None, given: dict[str, Any]) -> Any:
    if (text is None) == (given["file"] is None):
        raise click.UsageError("which value? VALUE, `-` for standard input, or --file PATH")
    if text is None:
        return parsed(_decoded(_read(given["file"]), given["file"]).removesuffix("\n"), given["form"])
    if text == "-":
        import sys

        return parsed(
            _decoded(sys.stdin.buffer.read(FILE_MAX_BYTES), "standard input").removesuffix("\n"), given["form"]
        )
    return parsed(text, given["form"])


def parsed(text: str, form: str) -> Any:
    """Text, or what it says as JSON. What begins like an object, a list or a string has to be one."""
    from standfast import serial
    from standfast.errors import InvalidInput

    if form == "text":
        return text
    try:
        return serial.loads(text, what="value")
    except InvalidInput as error:
        if form == "auto" and not text.lstrip().startswith(("{", "[", '"')):
            return text
        hint = "as it is, without reading it as JSON: --as text" if form == "auto" else error.hint
        raise InvalidInput(error.message, hint) from None


def _read(path: str) -> bytes:
    from standfast.errors import InvalidInput

    try:
        with open(path, "rb") as file:
            return file.read(FILE_MAX_BYTES)
    except OSError as error:
        raise InvalidInput(f"{path} cannot be read: {error.strerror}") from None


def _decoded(data: bytes, what: str) -> str:
    from standfast.errors import InvalidInput

    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise InvalidInput(
            f"{what} is not UTF-8 at byte {error.start:,}", "keep bytes: standfast artifact put"
        ) from None
