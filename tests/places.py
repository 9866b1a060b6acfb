"""Directories that a program may be started in, and one operation for every kind of key.

Each operation returns a text that identifies the row it reached: equal texts mean the same row. The program
`python -m tests.places URL DATA NAME…` runs operations in the current directory and prints their results.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import standfast
from standfast.record.conversations import Conversations, line
from standfast.record.items import Change
from standfast.record.mail import Mail

ORIGIN = "git@github.com:shop/shop.git"
OTHER_ORIGIN = "https://github.com/else/where"
SENT: list[str] = []
"""The requests of this process that reached the outside system."""


# -- directories -----------------------------------------------------------------------------------------


def git(cwd: Path, *words: str) -> None:
    subprocess.run(["git", *words], cwd=cwd, check=True, capture_output=True, env=_environment(cwd))


def _environment(cwd: Path) -> dict[str, str]:
    named = {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null"}
    author = {f"GIT_{who}_{what}": "t@example.org" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    return {**os.environ, **named, **author, "HOME": str(cwd)}


def repository(path: Path, origin: str | None = None) -> Path:
    """A real repository with one commit."""
    path.mkdir(parents=True)
    git(path, "init", "-q", "-b", "main", "--template=")
    git(path, "commit", "-q", "--allow-empty", "-m", "first")
    if origin is not None:
        git(path, "remote", "add", "origin", origin)
    return path


def worktree(of: Path) -> Path:
    path = of.parent / f"{of.name}-worktree"
    git(of, "worktree", "add", "-q", str(path))
    return path


def clone(of: Path, origin: str = "https://github.com/shop/shop") -> Path:
    path = of.parent / f"{of.name}-clone"
    git(of.parent, "clone", "-q", str(of), str(path))
    git(path, "remote", "set-url", "origin", origin)
    return path


# -- operations ------------------------------------------------------------------------------------------


def session(sf: standfast.Standfast) -> str:
    with sf.session("fix-42") as s:
        return s.id


def session_values(sf: standfast.Standfast) -> str:
    with sf.session("values") as s:
        if "made" not in s.state:
            s.state["made"] = uuid.uuid4().hex
        return str(s.state["made"])


def step(sf: standfast.Standfast) -> str:
    with sf.session("steps") as s:
        return str(s.step("plan", lambda: uuid.uuid4().hex))


def subagent(sf: standfast.Standfast) -> str:
    with sf.session("team") as s, s.subagent("reviewer") as reviewer:
        return reviewer.node_id


def message(sf: standfast.Standfast) -> str:
    with sf.session("talks") as s:
        return s.say("user", "fix the parser", key="request").id


def ask(sf: standfast.Standfast) -> str:
    def answer(question: Mail) -> str:
        SENT.append(question.id)
        return uuid.uuid4().hex

    with sf.session("asks") as s, ThreadPoolExecutor() as pool:
        asked = pool.submit(s.ask, "lead", {"pr": 7}, key="review:7", timeout="1m")
        while not asked.done():
            sf.mail.answer("lead", answer, timeout=0.05)
        return str(asked.result())


def effect(sf: standfast.Standfast) -> str:
    with sf.session("sends") as s:
        return str(s.effect("mail.send", {"to": "ada"}, do=_send))


def effect_key(sf: standfast.Standfast) -> str:
    with sf.session(f"charges-{uuid.uuid4().hex}") as s:
        return str(s.effect("card.charge", {"cents": 100}, key="charge:42", do=_send))


def effect_per_store(sf: standfast.Standfast) -> str:
    with sf.session(f"refunds-{uuid.uuid4().hex}") as s:
        return str(s.effect("card.refund", {"order": 42}, by="order", per="store", do=_send))


def apply(sf: standfast.Standfast) -> str:
    applied = sf.apply({"tasks": [{"title": "rotate the keys"}]}, key="fleet:7", mode="commit")
    return str(applied.refs)


def _send(call: standfast.Call) -> str:
    SENT.append(call.key)
    return uuid.uuid4().hex


def once(sf: standfast.Standfast) -> str:
    begun = sf.effects.begin("once", {"argv": ["deploy"]}, key="deploy-v7")
    return (sf.effects.done(begun.id, "done", attempt=begun.attempt) if not begun.done else begun).id


def loop(sf: standfast.Standfast) -> str:
    return sf.loops.add("nightly", ["true"], every="1h", cwd="/").id


def webhook(sf: standfast.Standfast) -> str:
    handled: list[str] = []
    event = sf.webhooks.receive("stripe", "evt_1", {"paid": 5}, do=lambda event: handled.append(event.id))
    SENT.extend(handled)
    return event.id


def credit(sf: standfast.Standfast) -> str:
    sf.credits.grant("ada", 500, key="grant:2026-11")
    return f"balance {sf.credits.balance('ada')}"


def spend(sf: standfast.Standfast) -> str:
    return sf.credits.spend("bob", 5, key="call:7", below_zero=True).id


def lock(sf: standfast.Standfast) -> str:
    try:
        held = sf.leases.acquire("deploy", for_="10m")
    except standfast.InProgress:
        held = sf.leases.get("deploy")
    return f"{held.fence} since {held.acquired_us}"


def mail(sf: standfast.Standfast) -> str:
    sf.mail.send("reviewer", {"pr": 1}, key="note:42")
    (found,) = sf.mail.list("reviewer")
    return found.id


def reply(sf: standfast.Standfast) -> str:
    sent = sf.mail.send("editor", {"pr": 2}, key="note:43")
    return sf.mail.reply(sent.id, "looks good", key="answer:43").id


def event_stream(sf: standfast.Standfast) -> str:
    sf.events.append("orders", "order.paid", {"n": 1}, key="order:1")
    (found,) = sf.events.read("orders")
    return str(found.seq)


def consumer(sf: standfast.Standfast) -> str:
    sf.events.append("invoices", "invoice.sent", {"n": 1}, key="invoice:1")
    handled = [str(event.seq) for event in sf.events.consume("books", "invoices")]
    SENT.extend(handled)
    return f"{len(sf.events.consumers())} at {sf.events.consumer('books', 'invoices').version}"


def artifact(sf: standfast.Standfast) -> str:
    return sf.artifacts.put(b"3 tests failed", name="build.log", kind="log").id


def budget(sf: standfast.Standfast) -> str:
    return sf.budgets.set("agent:coder", tokens=1000).id


def budget_hold(sf: standfast.Standfast) -> str:
    sf.budgets.set("team", tokens=1000)
    held = sf.budgets.reserve("team", tokens=10, key="call:9")
    return (sf.budgets.settle(held, tokens=7) if held.state == "held" else held).id


def model_call(sf: standfast.Standfast) -> str:
    with sf.session("models") as s:
        used = {"input_tokens": 8, "output_tokens": 2}
        return s.model_call("large-2", prompt="hi", response="hello", usage=used, key="first").id


def usage(sf: standfast.Standfast) -> str:
    with sf.session("tokens") as s:
        return sf.usage.record(s.key, "large-2", input_tokens=8, output_tokens=2, key="first").id


def session_log(sf: standfast.Standfast) -> str:
    with sf.session("logs") as s:
        logged = s.log("plan.made", {"n": 1}, key="plan")
        return f"{logged.stream} {logged.version}"


def session_budget(sf: standfast.Standfast) -> str:
    with sf.session("spends") as s, s.budget(tokens=10, key="call:3") as spending:
        return spending.hold.id


def agent(sf: standfast.Standfast) -> str:
    return str(sf.agents.set("coder", kind="claude-code").first_seen_us)


def item(sf: standfast.Standfast) -> str:
    if sf.items.get(("notes",), "ada") is None:
        sf.items.change([Change(("notes",), "ada", {"made": uuid.uuid4().hex})])
    found = sf.items.get(("notes",), "ada")
    assert found is not None
    return str(found.value)


def thread(sf: standfast.Standfast) -> str:
    if sf.threads.get("chat-1") is None:
        made = uuid.uuid4().hex
        sf.threads.put("chat-1", made, header=b"{}", values={}, value_of=_no_value)
    found = sf.threads.get("chat-1")
    assert found is not None
    return found.id


def _no_value(name: str) -> object:
    raise AssertionError(name)


def conversation(sf: standfast.Standfast) -> str:
    resource = Conversations(sf._store)
    resource.add("talk-1", [line({"role": "user", "content": "hello"}, role="user", summary="hello", redact=False)])
    (row,) = sf.rows("SELECT count(*) AS n FROM session WHERE key = 'talk-1'")
    return f"{row['n']} session"


def task(sf: standfast.Standfast) -> str:
    return sf.tasks.add("the parser test is flaky").id


def sweep(sf: standfast.Standfast) -> str:
    swept = sf.tasks.sweep("ci", seen=["lint fails"])
    return next(iter(sf.tasks.list(source="ci"))).id if swept.n else ""


def decision(sf: standfast.Standfast) -> str:
    return sf.decisions.record("edit parser.py", then="run the tests", agent="coder").id


def order(sf: standfast.Standfast) -> str:
    return sf.decisions.record("never push to main", standing=True).id


def state(sf: standfast.Standfast) -> str:
    def first(value: object) -> object:
        return value or uuid.uuid4().hex

    return str(sf.state.update("branch", first, default=None).value)


def knowledge(sf: standfast.Standfast) -> str:
    added = sf.knowledge.add("CI needs node 20", agent="coder")
    assert added.id in [one.id for one in sf.knowledge.list()]
    return added.id


def gate(sf: standfast.Standfast) -> str:
    return sf.gates.add("git push*").id


Operation = Callable[[standfast.Standfast], str]
KEYED: dict[str, Operation] = {
    "session": session,
    "session values": session_values,
    "step": step,
    "subagent": subagent,
    "message": message,
    "model call": model_call,
    "usage": usage,
    "session log": session_log,
    "session budget": session_budget,
    "ask": ask,
    "effect": effect,
    "effect key": effect_key,
    "effect per store": effect_per_store,
    "apply": apply,
    "once": once,
    "loop": loop,
}
"""Keys that are unique in the store. Another repository is refused."""
SHARED: dict[str, Operation] = {
    "webhook": webhook,
    "credit": credit,
    "spend": spend,
    "lock": lock,
    "mail": mail,
    "reply": reply,
    "event stream": event_stream,
    "consumer": consumer,
    "artifact": artifact,
    "budget": budget,
    "budget hold": budget_hold,
    "agent": agent,
    "item": item,
    "thread": thread,
    "conversation": conversation,
}
"""Keys that do not depend on the repository."""
OWNED: dict[str, Operation] = {
    "task": task,
    "sweep": sweep,
    "decision": decision,
    "order": order,
    "state": state,
    "knowledge": knowledge,
    "gate": gate,
}
"""Keys that belong to a repository."""
ALL = {**KEYED, **SHARED, **OWNED}


class Reached(NamedTuple):
    """The result of an operation, or the code and message of its refusal."""

    thing: str
    sent: int
    """The number of requests that it sent to the outside system."""


def reach(url: str, data: Path, names: Iterable[str] = tuple(ALL), *, scope: str | None = None) -> dict[str, Reached]:
    """Run each named operation in the current directory."""
    found = {}
    with standfast.open(url, data_dir=data, scope=scope) as sf:
        for name in names:
            SENT.clear()
            try:
                thing = ALL[name](sf)
            except standfast.Conflict as error:
                thing = f"{error.code}: {error}"
            found[name] = Reached(thing, len(SENT))
    return found


if __name__ == "__main__":
    print(json.dumps(reach(sys.argv[1], Path(sys.argv[2]), sys.argv[3:])))
