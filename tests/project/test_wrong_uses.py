"""Typical wrong uses: each error or warning names the cause and the next line to write. On both engines."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import subprocess
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import standfast


@standfast.effect("wrong.send", by=("to",))
def send(to: str, body: str = "") -> str:
    return f"sent to {to}"


@standfast.effect("wrong.asend", by=("to",))
async def asend(to: str) -> str:
    return f"sent to {to}"


@standfast.effect("wrong.forward", by=("to",))
def forward(to: str) -> str:
    return send(to)


@standfast.effect("wrong.charge", by=("order",))
def charge(order: str) -> str:
    raise ConnectionError("reset by peer")


@charge.compensate
def refund(receipt: str) -> None:
    """Never reached, so no charge happens."""


async def think() -> int:
    return 1


def pages() -> Iterator[int]:
    yield 1


class Place(NamedTuple):
    """The arguments of a wrong use. They are untyped, as in a program that no type checker reads."""

    sf: Any
    s: Any
    aopen: Callable[[], Any]
    directory: Path


library: Any = standfast
"""The package as a program without a type checker sees it."""


def key_with_other_fields(at: Place) -> None:
    at.s.effect("pay", {"cents": 1}, do=lambda call: 1, key="order-7")
    at.s.effect("pay", {"cents": 2}, do=lambda call: 1, key="order-7")


def mail_key_with_another_body(at: Place) -> None:
    at.sf.mail.send("ann", "one", key="note")
    at.sf.mail.send("ann", "two", key="note")


def session_opened_twice(at: Place) -> None:
    at.sf.session("a").open()


def session_after_its_block(at: Place) -> None:
    at.s.close()
    at.s.step("plan", lambda: 1)


def effect_after_the_block(at: Place) -> None:
    bound = at.s.bind(send)
    at.s.close()
    bound("ann")


def handle_after_its_block(at: Place) -> None:
    at.sf.close()
    at.sf.tasks.list()


def nested_state(at: Place) -> None:
    at.s.state["plan"] = {"done": 1}
    at.s.state["plan"]["done"] = 2


def effect_in_doubt_compensated(at: Place) -> None:
    with pytest.raises(ConnectionError):
        charge("7")
    at.sf.effects.compensate(at.sf.effects.in_doubt()[0].id, charge)


def thread_without_bind(at: Place) -> None:
    raised: list[BaseException] = []

    def run() -> None:
        try:
            send("ann")
        except standfast.NoSession as error:
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    raise raised[0]


def directory_that_is_a_file(at: Place) -> None:
    (at.directory / "notes").write_text("")
    standfast.open(data_dir=at.directory / "notes")


async def plain_with_around_aopen(at: Place) -> None:
    with at.aopen():
        pass


async def plain_with_around_an_async_session(at: Place) -> None:
    async with at.aopen() as sf:
        with sf.session("b"):
            pass


async def awaited_session(at: Place) -> None:
    async with at.aopen() as sf:
        await sf.session("b")


async def async_with_around_open(at: Place) -> None:
    async with library.open(at.directory / "b.db"):
        pass


async def async_with_around_a_session(at: Place) -> None:
    async with at.sf.session("b"):
        pass


async def state_of_an_async_session(at: Place) -> None:
    async with at.aopen() as sf, sf.session("b") as s:
        s.state["branch"]


async def misspelt_under_a_loop(at: Place) -> None:
    async with at.aopen() as sf:
        await sf.mial.send("ann", "hello")


async def await_forgotten_of_a_method(at: Place) -> None:
    async with at.aopen() as sf:
        sf.tasks.add("flaky test")
        gc.collect()


async def await_forgotten_of_an_effect(at: Place) -> None:
    asend("ann")
    gc.collect()


def session_never_entered(at: Place) -> None:
    at.sf.session("forgotten")
    gc.collect()


def decision_without_with(at: Place) -> None:
    at.s.decide("edit parser.py", why="the test names it")
    gc.collect()


def one_name_for_two_functions(at: Place) -> None:
    source = "@standfast.effect('wrong.deploy', by=())\ndef {}() -> None: ..."
    space = {"standfast": standfast, "__name__": "agent"}
    for name in ("deploy_web", "deploy_api"):
        exec(source.format(name), space)  # two functions in one module


Wrong = Callable[[Place], Any]
Expected = tuple[type[Exception], str, str]

ERRORS: dict[str, tuple[Wrong, Expected]] = {
    # -- names ---------------------------------------------------------------------------------------------
    "a step of the store": (
        lambda at: at.sf.step("plan", lambda: 1),
        (AttributeError, "'Standfast' object has no attribute 'step': a session has it", "with sf.session(key) as s:"),
    ),
    "tasks of a session": (
        lambda at: at.s.tasks.list(),
        (AttributeError, "'Session' object has no attribute 'tasks': the store has it", "s.store.tasks"),
    ),
    "a misspelt resource": (
        lambda at: at.sf.taks.list(),
        (AttributeError, "'Standfast' object has no attribute 'taks'", "did you mean 'tasks'?"),
    ),
    "a misspelt method": (
        lambda at: at.sf.tasks.ad("flaky test"),
        (AttributeError, "'Tasks' object has no attribute 'ad'", "did you mean 'add'?"),
    ),
    "a misspelt method of a session": (
        lambda at: at.s.efect("deploy", {}),
        (AttributeError, "'Session' object has no attribute 'efect'", "did you mean 'effect'?"),
    ),
    "a misspelt name of the package": (
        lambda at: library.sesion("a"),
        (AttributeError, "module 'standfast' has no attribute 'sesion'", "did you mean 'session'?"),
    ),
    "a misspelt resource, awaited": (
        misspelt_under_a_loop,
        (AttributeError, "no attribute 'mial'", "did you mean 'mail'?"),
    ),
    # -- declaring -----------------------------------------------------------------------------------------
    "by is missing": (
        lambda at: library.effect("github.open_pr"),
        (
            standfast.InvalidInput,
            "github.open_pr: by is missing",
            '@standfast.effect("github.open_pr", by=("repo", "branch")), or by=standfast.ALL',
        ),
    ),
    "by names no parameter": (
        lambda at: library.effect("wrong.send", by=("too",))(send.function),
        (standfast.InvalidInput, "by names 'too', which send() does not have", "its parameters are: to, body"),
    ),
    "a decorator without its arguments": (
        lambda at: library.effect(send.function),
        (standfast.InvalidInput, "declared with its name", '@standfast.effect("github.open_pr", by=…)'),
    ),
    "a generator function as an effect": (
        lambda at: library.effect("pages", by=())(pages),
        (standfast.InvalidInput, "pages is a generator function", "return a list"),
    ),
    "a lambda declared as a step": (
        lambda at: library.step(lambda: 1),
        (standfast.InvalidInput, "a step needs a name", '@standfast.step("name")'),
    ),
    # -- calling -------------------------------------------------------------------------------------------
    "a lambda as a step's name": (
        lambda at: at.s.step(lambda: 1),
        (standfast.InvalidInput, "a step's name is text, not function", 's.step("plan", make_plan, issue)'),
    ),
    "a step without a function": (
        lambda at: at.s.step("plan"),
        (standfast.InvalidInput, "step 'plan' has no function", 's.step("plan", make_plan, issue)'),
    ),
    "a coroutine passed to step": (
        lambda at: at.s.step("think", think()),
        (standfast.InvalidInput, "step 'think': coroutine is not a function", 's.step("plan", make_plan, issue)'),
    ),
    "an async function in a plain session": (
        lambda at: at.s.step("think", think),
        (standfast.InvalidInput, "think is async; this session is not", "async with standfast.aopen() as sf"),
    ),
    "an async effect in a plain session": (
        lambda at: at.s.effect(asend, "ann"),
        (standfast.InvalidInput, "asend is async; this session is not", "async with standfast.aopen() as sf"),
    ),
    "a generator as a step's result": (
        lambda at: at.s.step("pages", pages),
        (standfast.InvalidInput, "the result of step 'pages': generator is not a value", "write list(value)"),
    ),
    "a function that is no effect": (
        lambda at: at.s.effect(think),
        (standfast.InvalidInput, "think is not declared as an effect", 'write @standfast.effect("…", by=(…)) above'),
    ),
    "an argument that is missing": (
        lambda at: send(),  # type: ignore[call-arg]
        (standfast.InvalidInput, "wrong.send: missing a required argument: 'to'", "it takes (to: "),
    ),
    "an option in the call": (
        lambda at: send("ann", key="k"),  # type: ignore[call-arg]
        (standfast.InvalidInput, "unexpected keyword argument 'key'", "options go to send.with_options(key=…)"),
    ),
    "an unknown option": (
        lambda at: at.s.effect("deploy", {}, do=lambda call: 1, retries=3),
        (standfast.InvalidInput, "effect() has no option 'retries'", "it has: by, idempotent, not_applied"),
    ),
    "an unknown option of a declared effect": (
        lambda at: at.s.effect(send, "ann", retries=3),
        (standfast.InvalidInput, "unexpected keyword argument 'retries'", "the options of send.with_options are: "),
    ),
    "an option of the declaration in a call": (
        lambda at: at.s.effect(send, "ann", retry=3),
        (standfast.InvalidInput, "unexpected keyword argument 'retry'", "options go to send.with_options(retry=…)"),
    ),
    "a do without a parameter": (
        lambda at: at.s.effect("deploy", {}, do=lambda: 1),
        (standfast.InvalidInput, "deploy: do= is called with one argument, the call", "do=lambda call: …"),
    ),
    "a probe with two parameters": (
        lambda at: at.s.effect("deploy", {}, do=lambda call: 1, probe=lambda call, extra: None),
        (standfast.InvalidInput, "deploy: probe= is called with one argument, the call", "probe=lambda call: …"),
    ),
    "an effect inside an effect": (
        lambda at: forward("ann"),
        (standfast.InvalidInput, "'wrong.send' was called inside effect 'wrong.forward'", "call it before or after"),
    ),
    "a thread without bind": (
        thread_without_bind,
        (standfast.NoSession, "wrong.send was called outside a session: nothing was sent", "pass s.bind(function)"),
    ),
    # -- values --------------------------------------------------------------------------------------------
    "an argument that cannot be stored": (
        lambda at: send(object()),  # type: ignore[arg-type]
        (standfast.InvalidInput, "intent.to: object is not a value that can be stored", "give a JSON value, dataclass"),
    ),
    "a step's argument that cannot be stored": (
        lambda at: at.s.step("plan", str, object()),
        (standfast.InvalidInput, "step 'plan', argument 1: object is not", "functools.partial(fn, client)"),
    ),
    "a result that cannot be stored": (
        lambda at: at.s.step("plan", object),
        (standfast.InvalidInput, "the result of step 'plan': object is not", "give a JSON value, dataclass"),
    ),
    "a result of another type": (
        lambda at: at.s.step("plan", lambda: "seven", returns=int),
        (standfast.InvalidInput, "an integer is wanted, found text", "the annotation or returns= that it has to fit"),
    ),
    "a result's type that is no type": (
        lambda at: at.s.step("plan", lambda: 7, returns=7),
        (standfast.InvalidInput, "the result of step 'plan': 7 cannot be rebuilt from JSON", "annotate a JSON type"),
    ),
    "a nested change of state": (
        nested_state,
        (standfast.InvalidInput, "a value read from state is read-only", "s.state['plan'] = value"),
    ),
    "a number for a time": (
        lambda at: at.sf.tasks.add("flaky test", due=1_700_000_000),
        (standfast.InvalidInput, "due is a datetime or a text", "datetime.fromtimestamp(seconds, UTC)"),
    ),
    "a duration without a unit": (
        lambda at: at.s.ask("ann", "?", key="k", timeout="ten"),
        (standfast.InvalidInput, "'ten' is not a duration", "write it like 500ms, 90s, 15m"),
    ),
    "a key with other fields": (
        key_with_other_fields,
        (standfast.KeyConflict, "the key 'order-7' was used for another pay: cents was 1, is 2", "use another key"),
    ),
    "a mail's key with another body": (
        mail_key_with_another_body,
        (standfast.KeyConflict, "this one differs in: body", "another key for another mail"),
    ),
    # -- sessions and stores -------------------------------------------------------------------------------
    "a session opened twice": (
        session_opened_twice,
        (standfast.InProgress, "session 'a' is held by process", "standfast session take a"),
    ),
    "an open session entered again": (
        lambda at: at.s.open(),
        (standfast.InvalidInput, "session 'a' is open already", "standfast.session(key)"),
    ),
    "a session after its block": (
        session_after_its_block,
        (standfast.InvalidInput, "session 'a' is not open", "with standfast.session(key) as s"),
    ),
    "an effect after the block": (
        effect_after_the_block,
        (standfast.NoSession, "session 'a' has ended", "wait for threads and tasks before the block ends"),
    ),
    "a store after its block": (
        handle_after_its_block,
        (standfast.InvalidInput, "this store is closed", "standfast.open()"),
    ),
    "compensating an effect in doubt": (
        effect_in_doubt_compensated,
        (standfast.IllegalTransition, "is in doubt and cannot be compensated", "standfast effect resolve"),
    ),
    "a data directory that is a file": (
        directory_that_is_a_file,
        (standfast.StorageError, "notes is not a directory", "standfast.open(data_dir=…)"),
    ),
    # -- async ---------------------------------------------------------------------------------------------
    "with around aopen": (
        plain_with_around_aopen,
        (standfast.InvalidInput, "entered with `async with`", "async with standfast.aopen() as sf"),
    ),
    "with around an async session": (
        plain_with_around_an_async_session,
        (standfast.InvalidInput, "Standfast.session is entered with `async with`", "async with ….session(…)"),
    ),
    "an awaited session": (
        awaited_session,
        (standfast.InvalidInput, "Standfast.session is entered, not awaited", "async with ….session(…)"),
    ),
    "async with around open": (
        async_with_around_open,
        (standfast.InvalidInput, "standfast.open() is entered with `with`", "async with standfast.aopen() as sf"),
    ),
    "async with around a plain session": (
        async_with_around_a_session,
        (standfast.InvalidInput, "session 'b' is entered with `with`", "async with standfast.aopen() as sf"),
    ),
    "state without await": (
        state_of_an_async_session,
        (standfast.InvalidInput, "s.state['branch'] would block the event loop", "await s.state.get('branch')"),
    ),
    # -- warnings ------------------------------------------------------------------------------------------
    "a forgotten await of a method": (
        await_forgotten_of_a_method,
        (RuntimeWarning, "coroutine 'Tasks.add' was never awaited", "awaited"),
    ),
    "a forgotten await of an effect": (
        await_forgotten_of_an_effect,
        (RuntimeWarning, "coroutine 'asend' was never awaited", "awaited"),
    ),
    "a session that is never entered": (
        session_never_entered,
        (RuntimeWarning, "session 'forgotten' was never entered", "use `with`, or open()"),
    ),
    "a decision without with": (
        decision_without_with,
        (RuntimeWarning, "stays open", "use `with s.decide(…)`, or call done()"),
    ),
    "one name for two functions": (
        one_name_for_two_functions,
        (
            UserWarning,
            "effect 'wrong.deploy' is declared twice, by agent.deploy_web and by agent.deploy_api",
            "Give each its own name",
        ),
    ),
}


@pytest.mark.parametrize("name", ERRORS)
def test_a_wrong_use_names_the_cause_and_the_next_line(
    sf: standfast.Standfast, engine_url: str, tmp_path: Path, name: str
) -> None:
    """002-20: the error names the mistake and the code to write instead."""
    use, (kind, cause, next_line) = ERRORS[name]

    def use_it() -> None:
        s = sf.session("a").open()
        made = use(Place(sf, s, lambda: standfast.aopen(engine_url, data_dir=tmp_path / "data"), tmp_path))
        if isinstance(made, Coroutine):
            asyncio.run(made)

    def run() -> None:
        contextvars.copy_context().run(use_it)  # the session is the current one only in this context

    if issubclass(kind, Warning):
        with pytest.warns(kind) as warned:
            run()
        said = [str(one.message) for one in warned if cause in str(one.message)]
        assert len(said) == 1, [str(one.message) for one in warned]
        assert next_line in said[0]
    else:
        with pytest.raises(kind) as raised:
            run()
        assert cause in str(raised.value)
        assert next_line in str(raised.value)


def test_a_do_that_cannot_be_called_leaves_nothing_in_doubt(sf: standfast.Standfast) -> None:
    """002-20: the function is refused before anything is recorded."""
    call: Any = lambda: 1  # noqa: E731
    with sf.session("a") as s:
        with pytest.raises(standfast.InvalidInput):
            s.effect("wrong.deploy", {}, do=call)
        assert sf.effects.list() == []
        assert s.effect("wrong.deploy", {}, do=lambda call: 7) == 7


def test_a_call_outside_a_session_names_the_three_ways_out() -> None:
    """002-20: a call outside a session could not be recorded, so it is not sent."""
    with pytest.raises(standfast.NoSession) as raised:
        contextvars.Context().run(send, "ann")
    assert "wrong.send was called outside a session: nothing was sent" in str(raised.value)
    assert "with standfast.session(key) as s:" in str(raised.value)


def test_postgresql_without_its_driver_names_the_package_to_install(tmp_path: Path) -> None:
    """002-20: the driver is installed with an extra."""
    program = (
        "import sys; sys.modules['psycopg'] = None\n"
        "import standfast\n"
        "try: standfast.open('postgresql://localhost/agents')\n"
        "except standfast.StorageError as error: print(error.code, error)\n"
    )
    command = [sys.executable, "-c", program]
    said = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert said.startswith("extra_missing PostgreSQL needs psycopg: pip install 'psycopg[binary]")
