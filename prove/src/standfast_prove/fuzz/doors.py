"""Entry points inside one process. Each gets one damaged input at a time and may only raise one of our errors."""

from __future__ import annotations

import inspect
import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import standfast
from standfast import clock, config, ids, serial, when
from standfast.errors import InvalidInput, StandfastError
from standfast.ledger import gate_patterns
from standfast.record.loops import schedule
from standfast_prove.fuzz import CPU_MAX_S
from standfast_prove.fuzz.garbage import NUMBERS, Garbage
from standfast_prove.fuzz.samples import FLEET, HOOK, TRANSCRIPTS

Knock = Callable[[], None]

GATES = [gate_patterns.Gate("gat_x", "", "", "git push*", "approval", None, "ada", 0)]
NOW_US = 1_795_000_000_000_000
RESOURCES = (
    "agents", "approvals", "gates", "sessions", "state", "effects", "tasks", "events", "webhooks",
    "budgets", "credits", "knowledge", "mail", "loops", "runs", "artifacts", "checkpoints", "decisions", "journal",
    "leases",
)  # fmt: skip
WAITING = {"wait", "follow", "consume", "hold", "within", "keep", "mirror", "answer"}
"""Methods that wait for something, or that return an object that does."""
WRITING = {("artifacts", "get")}
"""Methods that write to the given path."""


def knock(door: str, place: str, seed: int, inputs: int, url: str | None = None) -> None:
    """In a child: send inputs to one entry point and report their number. Raises AssertionError at the first other
    error.
    """
    from standfast_prove.faults.children import say

    last = os.open(os.path.join(place, "last"), os.O_RDWR | os.O_CREAT, 0o600)
    garbage = Garbage(seed)
    knocks = DOORS[door](Path(place), garbage, url or os.path.join(place, "standfast.db"))
    for number, (shown, one) in zip(range(inputs), knocks, strict=False):
        os.pwrite(last, f"{number}: {shown!r}"[:2000].ljust(2000).encode("utf-8", "replace"), 0)
        judged(shown, one)
    say(inputs)


def judged(shown: object, one: Knock) -> None:
    before = time.process_time()
    try:
        one()
    except StandfastError:
        pass
    except (RecursionError, MemoryError) as error:
        raise AssertionError(f"{type(error).__name__} for {str(shown)[:300]}") from None
    except Exception as error:
        raise AssertionError(f"{type(error).__name__}: {error} for {str(shown)[:600]!r}") from error
    spent = time.process_time() - before
    assert spent < CPU_MAX_S, f"{spent:.1f} s of CPU for {str(shown)[:300]!r}"


Door = Callable[[Path, Garbage, str], Iterator[tuple[object, Knock]]]


def values(place: Path, garbage: Garbage, url: str) -> Iterator[tuple[object, Knock]]:
    """All parsers of text values."""
    readers: tuple[Callable[[str], object], ...] = (
        serial.loads,
        clock.parse_duration,
        lambda text: when.parse(text, NOW_US),
        lambda text: when.past(text, NOW_US, "since"),
        lambda text: config.parse_db_target(text, default_path=url),
        ids.is_id,
        ids.like_suffix,
        lambda text: schedule.spec(every=text, cron=None, at_us=None, zone=None),
        lambda text: schedule.spec(every=None, cron=text, at_us=None, zone=garbage.text()),
        lambda text: list(gate_patterns.met(GATES, text)),
        lambda text: serial.loads(garbage.mutated(json.dumps(garbage.json()).encode())),
        lambda text: serial.dumps(garbage.value()),
        serial.clean,
    )
    while True:
        reader, text = garbage.random.choice(readers), garbage.text()
        yield text, lambda reader=reader, text=text: _ignore(reader(text))  # type: ignore[misc]


def verbs(place: Path, garbage: Garbage, url: str) -> Iterator[tuple[object, Knock]]:
    """Call every method of every resource with wrong values. A refused call must not change the store."""
    sf = standfast.open(url, data_dir=place)
    found = [
        (resource, name)
        for resource in RESOURCES
        for name in dir(type(getattr(sf, resource)))
        if not name.startswith("_") and name not in WAITING and (resource, name) not in WRITING
        if callable(getattr(getattr(sf, resource), name))
    ]
    while True:
        resource, name = garbage.random.choice(found)
        verb = getattr(getattr(sf, resource), name)
        given = _arguments(garbage, verb)
        if given is not None:
            yield (resource, name, given), lambda verb=verb, given=given: _call(sf, verb, given)  # type: ignore[misc]


def _arguments(garbage: Garbage, verb: Callable[..., Any]) -> dict[str, Any] | None:
    """Wrong arguments by name, or None for a method whose arguments cannot be typed."""
    made = {}
    for one in inspect.signature(verb).parameters.values():
        if one.name == "tx" or one.kind in (one.VAR_KEYWORD, one.VAR_POSITIONAL):
            continue
        if one.default is one.empty or garbage.random.random() < 0.25:
            make = next((make for word, make in _KINDS if word in str(one.annotation)), None)
            if make is None and one.default is one.empty:
                return None
            if make is not None:
                given_none = "None" in str(one.annotation) and garbage.random.random() < 0.1
                made[one.name] = None if given_none else make(garbage)
    return made


_KINDS: tuple[tuple[str, Callable[[Garbage], Any]], ...] = (
    ("dict[str", lambda garbage: {garbage.text(): garbage.value()}),
    ("Json", Garbage.value),
    ("Mapping[str, str]", lambda garbage: {garbage.text(): garbage.text()}),
    ("Mapping", lambda garbage: {garbage.text(): garbage.value()}),
    ("tuple[str, str]", lambda garbage: (garbage.text(), garbage.text())),
    ("Path", lambda garbage: tuple(garbage.text() for _ in range(garbage.random.randrange(3)))),
    ("Sequence[str]", lambda garbage: [garbage.text() for _ in range(garbage.random.randrange(3))]),
    ("Collection[str]", lambda garbage: [garbage.text() for _ in range(garbage.random.randrange(3))]),
    ("Iterable[str]", lambda garbage: [garbage.text() for _ in range(garbage.random.randrange(3))]),
    ("Which", Garbage.text),
    ("str", Garbage.text),
    ("bool", lambda garbage: garbage.random.random() < 0.5),
    ("int", lambda garbage: garbage.random.choice(NUMBERS)),
    ("float", Garbage.number),
    ("bytes", lambda garbage: garbage.mutated(b"{}")),
)


def _call(sf: standfast.Standfast, verb: Callable[..., Any], given: dict[str, Any]) -> None:
    before = _written(sf)
    try:
        found = verb(**given)
        if isinstance(found, Iterator):
            with suppress(StopIteration):
                next(found)
    except InvalidInput:
        assert _written(sf) == before, "refused, and written all the same"
        raise


def _written(sf: standfast.Standfast) -> Any:
    return next(iter(sf.rows("SELECT max(seq) AS seq FROM event")))["seq"]


def applied(place: Path, garbage: Garbage, url: str) -> Iterator[tuple[object, Knock]]:
    """`apply` with one invalid value in the specification, as a document and as a file."""
    sf = standfast.open(url, data_dir=place)
    good = json.dumps(FLEET)
    number = 0
    while True:
        number += 1
        mode = garbage.random.choice(("dry-run", "preflight", "commit"))
        if garbage.random.random() < 0.5:
            spec = garbage.replaced(FLEET)
            if not isinstance(spec, dict):
                continue
            yield spec, lambda spec=spec, mode=mode, key=f"k{number}": _apply(sf, spec, mode, key)  # type: ignore[misc]
        else:
            suffix = garbage.random.choice((".json", ".toml"))
            data = garbage.mutated(good.encode())
            file = place / f"fleet{suffix}"
            file.write_bytes(data)
            yield data, lambda file=file, mode=mode, key=f"k{number}": _apply(sf, file, mode, key)  # type: ignore[misc]


def _apply(sf: standfast.Standfast, spec: Any, mode: str, key: str) -> None:
    before = _written(sf)
    try:
        sf.apply(spec, key=key, mode=mode)
    except StandfastError:
        assert _written(sf) == before, "refused, and written all the same"
        raise


def configured(place: Path, garbage: Garbage, url: str) -> Iterator[tuple[object, Knock]]:
    """Damaged settings of a user and of a project."""
    good = b'db_url = "store.db"\nscope = "fleet"\n[options]\nredact = true\n'
    project = place / "project"
    for directory in (place / "data", project / ".standfast"):
        directory.mkdir(parents=True, mode=0o700)
    while True:
        data = garbage.mutated(good)
        file = garbage.random.choice((place / "data" / "config.toml", project / ".standfast" / "config.toml"))
        file.write_bytes(data)
        yield data, lambda: _ignore(config.load(data_dir=place / "data", cwd=project, quiet=True))


def transcripts(place: Path, garbage: Garbage, url: str) -> Iterator[tuple[object, Knock]]:
    """Damaged transcripts of every agent. An importer refuses the file or counts its broken records."""
    sf = standfast.open(url, data_dir=place)
    number = 0
    while True:
        number += 1
        agent, name, good = garbage.random.choice(TRANSCRIPTS)
        data = good
        for _ in range(garbage.random.choice((1, 3))):
            data = garbage.mutated(data)
        file = place / f"sources-{number}" / name.format(number=number)
        file.parent.mkdir()
        file.write_bytes(data)
        yield (agent, data), lambda agent=agent, file=file: _ignore(sf.imports.run(agent, file))  # type: ignore[misc]
        file.unlink()
        file.parent.rmdir()


def hooks(place: Path, garbage: Garbage, url: str) -> Iterator[tuple[object, Knock]]:
    """Damaged payloads of hooks, from the bytes to the row in the store."""
    from standfast.interchange.hooks import payloads
    from standfast.interchange.hooks.record import Hooks

    sf = standfast.open(url, data_dir=place)

    def hear(agent: str, data: bytes) -> None:
        payload = payloads.parsed(data)
        if payload is not None:
            heard = payloads.heard(agent, payload, NOW_US)
            payloads.asked(payload)
            if heard is not None:
                Hooks(sf._store).keep(heard)

    while True:
        agent = garbage.random.choice(sorted(payloads.AGENTS))
        if garbage.random.random() < 0.5:
            data = garbage.mutated(json.dumps(HOOK).encode())
        else:
            data = json.dumps(garbage.replaced(HOOK)).encode()
        yield (agent, data), lambda agent=agent, data=data: hear(agent, data)  # type: ignore[misc]


def _ignore(found: object) -> None:
    """Accept the result: the damaged input was still valid."""


DOORS: dict[str, Door] = {
    "values": values,
    "verbs": verbs,
    "apply": applied,
    "config": configured,
    "transcripts": transcripts,
    "hooks": hooks,
}
