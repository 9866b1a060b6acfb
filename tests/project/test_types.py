"""The types that mypy infers for effects and steps: the result of every form, and one short error for a wrong use."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

USES = """
from __future__ import annotations

from typing import Any

import standfast
from standfast.actions import http


class PR:
    number: int


def find(repo: str) -> PR | None:
    return None


@standfast.effect("open", by=("repo",), find=find)
def open_pr(repo: str, title: str = "") -> PR:
    return PR()


@standfast.effect("keyed", by=standfast.ALL)
def keyed(call: standfast.Call, repo: str) -> PR:
    return PR()


@standfast.effect("loose", by=standfast.ALL)
def keyed_loosely(call: standfast.Call, repo: str, data: dict[str, Any]) -> PR:
    return PR()


@standfast.effect("akeyed", by=())
async def akeyed(call: standfast.Call, data: Any) -> PR:
    return PR()


@standfast.effect("anything", by=())
def anything(data: Any, more: object = None) -> PR:
    return PR()


@standfast.effect("aopen", by=())
async def aopen_pr(repo: str) -> PR:
    return PR()


@standfast.step
def plan(issue: str) -> list[str]:
    return [issue]


@standfast.step("named")
async def aplan(issue: str) -> list[str]:
    return [issue]


def loose(anything: object) -> int:
    return 1


class Client:
    @standfast.effect("post", by="repo")
    def post(self, repo: str) -> PR:
        return PR()

    @standfast.effect("keyed_post", by="repo")
    async def keyed(self, call: standfast.Call, repo: str, data: dict[str, Any]) -> PR:
        return PR()

    @standfast.effect("loose_post", by="repo")
    def loosely(self, data: Any, repo: str = "") -> PR:
        return PR()

    @standfast.step
    def think(self, repo: str) -> int:
        return 1


@standfast.effect("keyed_second", by="repo")
def keyed_second(repo: str, call: standfast.Call, data: Any) -> PR:
    return PR()


async def right(s: standfast.Session) -> None:
    reveal_type(open_pr("a/b", title="t"))  # uses.PR
    reveal_type(open_pr.plain("a/b"))  # uses.PR
    reveal_type(keyed("a/b"))  # uses.PR
    reveal_type(keyed_loosely("a/b", {}))  # uses.PR
    reveal_type(keyed_loosely.plain("a/b", data={}))  # uses.PR
    reveal_type(await akeyed(7))  # uses.PR
    reveal_type(anything(data=7))  # uses.PR
    reveal_type(http.post("https://a", {"a": 1}, name="charge"))  # standfast.actions.http.Response
    reveal_type(await aopen_pr("a/b"))  # uses.PR
    reveal_type(plan("42"))  # list[str]
    reveal_type(await aplan("42"))  # list[str]
    reveal_type(Client().post("a/b"))  # uses.PR
    reveal_type(await Client().keyed("a/b", {}))  # uses.PR
    reveal_type(Client().loosely(7, repo="a/b"))  # uses.PR
    reveal_type(keyed_second("a/b", 7))  # uses.PR
    reveal_type(s.effect(keyed_second, "a/b", data=7))  # uses.PR
    reveal_type(Client().think("a/b"))  # int
    reveal_type(s.effect(open_pr, "a/b"))  # uses.PR
    reveal_type(open_pr.with_options(again=True)("a/b"))  # uses.PR
    reveal_type(open_pr.with_options(approve=True, wait="1h")("a/b"))  # uses.PR
    reveal_type(open_pr.with_options(approve=lambda repo: repo == "a/b", why="asked")("a/b"))  # uses.PR
    reveal_type(s.effect(open_pr.with_options(key="k", settle="5s"), "a/b"))  # uses.PR
    reveal_type(open_pr.with_options(approve=True)("a/b"))  # uses.PR
    reveal_type(s.effect(keyed_loosely, "a/b", {}))  # uses.PR
    reveal_type(s.effect(anything, 7, more=8))  # uses.PR
    reveal_type(s.effect(http.post, "https://a", {}, name="a"))  # standfast.actions.http.Response
    reveal_type(s.effect("x", do=lambda call: PR(), by="a", key="k", probe=lambda call: None, retry=3))  # uses.PR
    reveal_type(s.effect("x", do=lambda call: 3, returns=PR, settle="1s", per="store"))  # uses.PR
    reveal_type(s.effect("x", {"a": 1}, do=lambda call: 3))  # int
    reveal_type(s.step("plan", plan, "42"))  # list[str]
    reveal_type(s.bind(open_pr)("a/b"))  # uses.PR
    reveal_type(s.ask("reviewer", {"pr": 7}, key="review:7", timeout="10m"))  # Any


def right_in_one_line() -> None:
    with standfast.session("fix-42", agent="coder", scope="shop") as s:
        reveal_type(s)  # standfast.record.open_session.Session
        reveal_type(s.store)  # standfast.handle.Standfast
        reveal_type(s.store.tasks.add("flaky test"))  # standfast.record.tasks.models.Task
        reveal_type(s.resumed)  # standfast.record.sessions.models.Resumed | None
    reveal_type(standfast.session("notes").open())  # standfast.record.open_session.Session


def wrong() -> None:
    open_pr(1)  # ! has incompatible type "int"; expected "str"
    open_pr("a/b", titel="t")  # ! Unexpected keyword argument "titel"
    open_pr()  # ! Missing positional argument "repo"
    open_pr("a/b", again=True)  # ! Unexpected keyword argument "again"
    keyed("a/b", "c")  # ! Too many arguments
    keyed_loosely(7, {})  # ! has incompatible type "int"; expected "str"
    keyed_loosely("a/b")  # ! Missing positional argument "data"
    http.post("https://a", {}, nam="charge")  # ! "nam"
    anything()  # ! Missing positional argument "data"
    open_pr.with_options(setle="5s")  # ! Unexpected keyword argument "setle"
    plan(42)  # ! has incompatible type "int"; expected "str"
    Client().post(7)  # ! has incompatible type "int"; expected "str"
    _ = Client().keyed(7, {})  # ! has incompatible type "int"; expected "str"
    keyed_second(7, 7)  # ! has incompatible type "int"; expected "str"
    keyed_second("a/b")  # ! Missing positional argument "data"
    standfast.effect("x")  # ! Missing named argument "by"
    len(open_pr("a/b"))  # ! has incompatible type "PR"


def wrong_in_one_line(s: standfast.Session) -> None:
    standfast.session()  # ! Missing positional argument "key"
    standfast.session(42)  # ! has incompatible type "int"; expected "str"
    standfast.session("fix-42", "coder")  # ! Too many positional arguments
    standfast.session("fix-42", actor="coder")  # ! Unexpected keyword argument "actor"
    standfast.sesion("fix-42")  # ! Module has no attribute "sesion"
    s.ask("reviewer", {})  # ! Missing named argument "key"
    s.ask("reviewer", {}, "review:7")  # ! Too many positional arguments
    s.ask("reviewer", {}, key="k", timeout=object())  # ! expected "str | float | timedelta | None"
    s.ask("reviewer", {}, key="k", timeout_s=5)  # ! Unexpected keyword argument "timeout_s"
    s.tasks.add("flaky test")  # ! "Session" has no attribute "tasks"
    s.store.step("plan", plan, "42")  # ! "Standfast" has no attribute "step"
    s.store.taks.list()  # ! "Standfast" has no attribute "taks"
    s.store.tasks.ad("flaky test")  # ! "Tasks" has no attribute "ad"
    s.efect(open_pr, "a/b")  # ! "Session" has no attribute "efect"
    s.effect(open_pr, 7)  # ! "Declared[Callable[[str, str], PR]]"; expected "AnyDeclared[[Given[int]], Never]"
    s.effect(open_pr)  # ! expected "AnyDeclared[[Given[Never]], Never]"
    s.effect(open_pr, "a", 7)  # ! expected "AnyDeclared[[Given[object]], Never]"
    s.effect(open_pr, "a", "b", "c")  # ! expected "AnyDeclared[[Given[str]], Never]"
    s.effect(open_pr, repo=7)  # ! expected "AnyDeclared[[Given[int]], Never]"
    s.effect(open_pr, "a/b", titel="t")  # ! Unexpected keyword argument "titel"
    s.effect(open_pr, "a/b", again=True)  # ! Unexpected keyword argument "again"
    open_pr.with_options(again=True)(7)  # ! has incompatible type "int"; expected "str"
    open_pr.with_options(again=3)  # ! Argument "again"
    s.effect(find, "a/b")  # ! expected "Callable[[DeclareEffectFirst], Never]"
    s.effect(loose, "a/b")  # ! expected "Callable[[DeclareEffectFirst], Never]"
    s.effect("deploy")  # ! incompatible type "str"; expected "Sequence[NameIntentDoOptions]"
    s.effect("deploy", {"a": 1})  # ! incompatible type "str"; expected "Sequence[NameIntentDoOptions]"
    s.effect("deploy", {"a": 1}, by="a")  # ! incompatible type "str"; expected "Sequence[NameIntentDoOptions]"
    s.effect("deploy", {"a": 1}, do=7)  # ! incompatible type "str"; expected "Sequence[NameIntentDoOptions]"
    s.effect("deploy", {"a": 1}, do=lambda call: 1, setle="5s")  # ! expected "Sequence[NameIntentDoOptions]"
    s.effect("deploy", {"a": 1}, do=lambda call: 1, find=find)  # ! expected "Sequence[NameIntentDoOptions]"
    s.effect("deploy", {"a": 1}, do=lambda call: 1, retry="often")  # ! expected "Sequence[NameIntentDoOptions]"
    s.effect(open_pr, "a/b", settle="5s")  # ! Unexpected keyword argument "settle"
    s.effect("deploy", {"a": 1}, do=right_in_one_line)  # ! expected "Callable[[Call], None]"
    s.step("plan")  # ! incompatible type "str"; expected "Sequence[NameFunctionArguments]"
    s.step("plan", plan("42"))  # ! incompatible type "str"; expected "Sequence[NameFunctionArguments]"
    s.step(plan, "42")  # ! expected "Callable[[NameFunctionArguments], Never]"
    s.step("plan", plan)  # ! expected "Callable[[Given[Never]], Never]"
    s.step("plan", plan, 42)  # ! expected "Callable[[Given[int]], Never]"
    s.step("plan", plan, issue=42)  # ! expected "Callable[[Given[int]], Never]"
    s.step("plan", plan, "42", "43")  # ! expected "Callable[[Given[str]], Never]"
    s.step("plan", loose, "42", "43")  # ! expected "Callable[[Given[str]], Never]"
"""


def test_mypy_knows_every_form_and_names_a_wrong_use_in_one_line(tmp_path: Path) -> None:
    """002-20: callers of declared functions get the declared types."""
    (tmp_path / "uses.py").write_text(USES)
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--hide-error-codes", "uses.py"]
    said = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False).stdout
    found: dict[int, list[str]] = {}
    notes: list[int] = []
    for line in said.splitlines():
        number, kind, message = re.fullmatch(r"uses\.py:(\d+): (\w+): (.*)", line).groups()  # type: ignore[union-attr]
        if kind == "error" or message.startswith("Revealed"):
            found.setdefault(int(number), []).append(message)
        else:
            notes.append(int(number))
    assert [n for n in notes if notes.count(n) > 1] == [], said
    assert "overload" not in said, said
    expected = {n: line.partition("  # ")[2] for n, line in enumerate(USES.splitlines(), 1) if "  # " in line}
    assert found.keys() == expected.keys(), said
    for number, messages in found.items():
        wanted = expected[number].removeprefix("! ")
        assert len(messages) == 1, messages
        assert (wanted in messages[0]) if expected[number].startswith("!") else messages[0].endswith(f'"{wanted}"'), (
            said
        )
