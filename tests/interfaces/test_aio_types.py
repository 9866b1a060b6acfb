"""The types of the asynchronous handle: `aio.pyi` lists the names, and mypy refuses others."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import pydoc
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import standfast
from standfast import aio
from standfast.models import Model
from tests import aio_stub
from tests.public import HANDED, methods, of, resources

CHECKED = """
import asyncio
from datetime import timedelta
from typing import Any

import standfast
from standfast.actions import http

@standfast.effect("post", by=())
async def post(call: standfast.Call, data: dict[str, Any]) -> bytes:
    return b""

class Plan:
    title: str

async def make_plan(issue: int) -> Plan:
    return Plan()

def count(text: str) -> int:
    return len(text)

async def agent() -> None:
    async with standfast.aopen() as sf, sf.session("fix-42") as s:
        task = await sf.tasks.add("flaky", due="fri 17:00", cool_down=timedelta(hours=1))
        reveal_type(task)  # Task
        reveal_type(await sf.tasks.claim())  # Task | None
        reveal_type(await sf.tasks.claim(task))  # Task
        reveal_type(await s.step("plan", make_plan, 42))  # Plan
        reveal_type(await s.step("count", count, "x"))  # int
        reveal_type(await s.effect("deploy", {}, do=lambda call: 7))  # int
        reveal_type(await s.effect(post, {}))  # bytes
        reveal_type(await post.with_options(approve=True, wait="1h")({}))  # bytes
        reveal_type(await s.effect(http.post, "https://a", {}, name="a"))  # Response
        reveal_type(await post({}))  # bytes
        await s.effect(post, 7)  # wrong
        await s.effect("deploy", {}, do=lambda call: 7, setle="5s")  # wrong
        reveal_type(await sf.transaction(lambda tx: tx.tasks.get(task)))  # Task
        reveal_type(s.key)  # str
        reveal_type(s.resumed)  # Resumed | None
        async with s.decide("go", why="now") as d:
            reveal_type(await d.done())  # Decision
        async with sf.leases.hold("deploy", for_=90) as lease:
            reveal_type(lease.fence)  # int
        async for mail in sf.mail.follow("me", timeout="1m"):
            reveal_type(mail)  # Mail
        async for row in sf.rows("SELECT 1"):
            reveal_type(row)  # dict[str, Any]
        helper = await s.subagent("reader")
        reveal_type(await helper.say("user", "hello"))  # Message
        async with s.subagent("writer") as writer:
            reveal_type(await writer.say("user", "hello"))  # Message
        await s.state.set("branch", "fix-42", for_="2h")
        reveal_type(sf.sync)  # Standfast
        reveal_type(await asyncio.create_task(sf.tasks.get(task)))  # Task

        await sf.mial.sned()  # wrong
        await sf.mail.sned("a", 1)  # wrong
        await sf.mail.send("a")  # wrong
        await sf.mail.send("a", 1, for_us=5)  # wrong
        await sf.tasks.add("x", due=5)  # wrong
        await sf.tasks.add(5)  # wrong
        await s.efect("deploy")  # wrong
        await s.step("plan", make_plan, "not a number")  # wrong
        (await sf.tasks.list()).title  # wrong
        await sf.session("fix-42")  # wrong
        await sf.mail.follow("me")  # wrong
        sf.tasks.add("x").title  # wrong
        s.state["branch"]  # wrong
        with sf.session("fix-42"):  # wrong
            pass
        reveal_type(await s.ask("reviewer", {"pr": 7}, key="review:7", timeout="10m"))  # Any
        await s.ask("reviewer", {})  # wrong
        await s.ask("reviewer", {}, key="k", timeout=object())  # wrong
        await s.step("plan")  # wrong
        await s.step(make_plan, 42)  # wrong
        await s.effect("deploy", {})  # wrong
        await s.effect(make_plan, 42)  # wrong
        await s.tasks.add("x")  # wrong
        await sf.step("plan", make_plan, 1)  # wrong
    with standfast.aopen() as other:  # wrong
        pass
    async with standfast.open() as other:  # wrong
        pass
    async with standfast.session("fix-42"):  # wrong
        pass
    await standfast.aopen()  # wrong
"""


def test_the_stub_is_the_one_that_the_code_gives() -> None:
    """R44: the types of the asynchronous handle follow the methods. If this fails: make stubs."""
    assert aio_stub.PLACE.read_text() == aio_stub.stub()


def test_every_public_method_is_in_the_stub_and_every_name_of_it_exists() -> None:
    """R44: the stub and the code have the same methods and names."""
    kinds: dict[str, type] = {f"Async{one.__name__}": one for one in (*HANDED, *resources().values())}
    stubbed = {node.name: node for node in ast.parse(aio_stub.PLACE.read_text()).body if isinstance(node, ast.ClassDef)}
    for name, kind in {**kinds, "AsyncStandfast": standfast.Standfast}.items():
        bases = [stubbed[one.id] for one in stubbed[name].bases if isinstance(one, ast.Name)]
        nodes = [node for one in (stubbed[name], *bases) for node in one.body]
        written = {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
        own = set(dir(aio.AsyncStandfast if name == "AsyncStandfast" else aio.AsyncState))
        inherited = {"popitem", "keys", "items", "values"}  # of every mapping
        assert set(of(kind)) - inherited <= written, name
        assert written - set(dir(kind)) - own == set(), name


def test_mypy_knows_every_result_and_refuses_wrong_uses(tmp_path: Path) -> None:
    """R44: `mypy --strict` refuses `await sf.mial.sned()` and a wrong argument."""
    place = tmp_path / "uses.py"
    place.write_text(CHECKED)
    root = aio_stub.PLACE.parent.parent.parent
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", str(place)]
    said = subprocess.run(command, cwd=root, capture_output=True, text=True).stdout
    found = re.findall(r"uses\.py:(\d+): (?:error|note: (Revealed) type is) ?:? ?(.+)", said)
    revealed = {int(line): re.sub(r"[\w.]+\.(\w+)", r"\1", text.strip('"')) for line, note, text in found if note}
    expected = {n: text.rpartition("  # ")[2] for n, text in enumerate(CHECKED.splitlines(), 1) if "  # " in text}
    assert revealed == {n: text for n, text in expected.items() if text != "wrong"}, said
    assert {int(line) for line, note, _ in found if not note} == {n for n in expected if expected[n] == "wrong"}, said
    assert "overload" not in said, said


def test_python_has_one_name_for_a_participant() -> None:
    """R51: `agent` in every signature and every model; `actor` is the word of SQL and of the shell."""
    for found in pkgutil.walk_packages(standfast.__path__, "standfast."):
        if not found.name.startswith(("standfast.adapters", "standfast.cli", "standfast.__main__")):
            importlib.import_module(found.name)
    models = Model.__subclasses__()
    assert {"Event", "Task", "Decision", "SessionRecord"} <= {one.__name__ for one in models}
    assert [one for one in models if "actor" in one.field_names()] == []
    assert [name for name, one in methods().items() if "actor" in inspect.signature(one).parameters] == []


def test_no_argument_has_a_unit_in_its_name() -> None:
    """R51: a duration is "2h", a timedelta or seconds, a time is a datetime or a text; microseconds stay internal."""
    units = ("_us", "_ms", "_s", "_seconds")
    given = [(name, one) for name, method in methods().items() for one in inspect.signature(method).parameters]
    assert [(name, one) for name, one in given if one.endswith(units)] == []


def test_every_method_shows_its_public_signature(sf: standfast.Standfast) -> None:
    """R51: sessions, sub-agents, decisions and the handle show what callers pass, as resources do."""
    shown = {name: list(inspect.signature(method).parameters) for name, method in methods().items()}
    assert {one[0] for one in shown.values()} == {"self"}
    assert [name for name, given in shown.items() if "tx" in given] == []
    with sf.session("k") as s, s.decide("go", why="now") as d:
        for bound in (sf, s, s.subagent("a"), s.state, s.artifacts, d, sf.tasks):
            for name, method in of(type(bound)).items():
                expected = list(inspect.signature(method).parameters)[1:]
                assert list(inspect.signature(getattr(bound, name)).parameters) == expected, (bound, name)
                assert f"{name}(" in pydoc.render_doc(getattr(bound, name), renderer=pydoc.plaintext)


def test_every_awaited_method_has_the_same_signature_and_docstring(sf: standfast.Standfast) -> None:
    """R51: `help(sf.tasks.snooze)` of the asynchronous handle is that of the synchronous one."""

    def shows(awaited: Any, plain: Any) -> None:
        for name in of(type(plain)):
            one, other = getattr(awaited, name), getattr(plain, name)
            if name in ("transaction", "open", "close", "tools", "bind", "store", "keys", "items", "values"):
                continue  # these have another form: `aio.py` defines them
            assert inspect.signature(one) == inspect.signature(other)
            words = pydoc.render_doc(one, renderer=pydoc.plaintext)
            assert f"{name}{inspect.signature(other)}" in words
            assert (inspect.getdoc(other) or "").partition("\n")[0] in words

    handle = aio.AsyncStandfast(lambda: sf)
    handle._sync = sf
    shows(handle, sf)
    for name in resources():
        shows(getattr(handle, name), getattr(sf, name))
    with sf.session("k") as s:
        for inner in (s, s.subagent("a"), s.artifacts):
            shows(aio.AsyncObject(handle, inner), inner)
        assert "snooze" in dir(handle.tasks)
        assert "tasks" in dir(handle)
