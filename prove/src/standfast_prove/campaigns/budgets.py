"""Four processes with eight threads share a budget and are killed again and again.

Each thread reserves, calls and settles. The oracle is the provider's bill, files outside the store: a call writes a
line after its reservation and before it is settled. The bill never exceeds the limit, and every line is spent or
still held. Then a person settles each hold in doubt by the bill, and bill and budget agree to the token. The control
checks what is left, calls, and adds the usage afterwards.
"""

from __future__ import annotations

import json
import os
import random
import threading
import time
from pathlib import Path

import standfast
from standfast import config, handle
from standfast.errors import Conflict
from standfast_prove.faults.children import Nursery
from standfast_prove.outcome import Outcome

PROCESSES, THREADS = 4, 8
MOST = 30
ROUNDS_MAX = 200


def run(
    place: Path,
    *,
    url: str | None = None,
    seed: int = 0,
    limit: int = 12_000,
    kills: int = 12,
    check_then_add: bool = False,
) -> Outcome:
    """With `check_then_add`, the control, no call reserves."""
    outcome, chance = Outcome("budgets"), random.Random(seed)
    place.mkdir(parents=True, exist_ok=True)
    url = url or str(place / "standfast.db")
    scope = f"budgets-{place.name}-{seed}-{os.getpid()}"
    with _opened(url, place, scope) as sf:
        sf.budgets.set("team", tokens=limit, per="month")
        for n in range(PROCESSES):
            sf.budgets.set(f"agent:{n}", tokens=limit, within="team")
    asked: dict[str, object] = {"url": url, "place": str(place), "scope": scope, "check_then_add": check_then_add}
    with Nursery(postgres=url.startswith("postgres")) as nursery:
        _play(nursery, asked, chance, kills, outcome)
    _judge(place, url, scope, limit, outcome)
    return outcome


def _play(nursery: Nursery, asked: dict[str, object], chance: random.Random, kills: int, outcome: Outcome) -> None:
    living: dict[int, int] = {}
    for life in range(ROUNDS_MAX):
        for number in range(PROCESSES):
            if number not in living:
                living[number] = nursery.start(f"{__name__}:work", **asked, number=number, life=life)
        if life >= kills:
            break
        time.sleep(chance.uniform(0.1, 0.4))
        victim = chance.randrange(PROCESSES)
        nursery.kill(living.pop(victim))
        outcome.count("kills")
    for number, pid in living.items():
        code = nursery.wait(pid, 300)
        outcome.refuse(code, f"process {number} did not end well")


def work(url: str, place: str, scope: str, number: int, life: int, check_then_add: bool) -> None:
    """In a child: eight threads make calls until the budget refuses."""
    bill = os.open(Path(place, f"bill-{number}-{life}"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def thread(n: int) -> None:
        chance = random.Random(f"{number} {life} {n}")
        call = _unreserved if check_then_add else _reserved
        while call(sf, bill, f"agent:{number}", chance.randrange(1, MOST + 1)):
            pass

    with _opened(url, Path(place), scope) as sf:
        threads = [threading.Thread(target=thread, args=(n,)) for n in range(THREADS)]
        for one in threads:
            one.start()
        for one in threads:
            one.join()


def _reserved(sf: standfast.Standfast, bill: int, subject: str, used: int) -> bool:
    try:
        hold = sf.budgets.reserve(subject, tokens=MOST)
    except Conflict:
        return False
    os.write(bill, f"{json.dumps([hold.id, used])}\n".encode())
    sf.budgets.settle(hold, tokens=used)
    return True


def _unreserved(sf: standfast.Standfast, bill: int, subject: str, used: int) -> bool:
    """The usual unsafe way: check what is left, call, then add the usage."""
    if (sf.budgets.get("team").left.tokens or 0) < MOST:
        return False
    os.write(bill, f"{json.dumps(['', used])}\n".encode())
    from standfast.ledger.budgets.amounts import Amounts
    from standfast.ledger.budgets.resource import Subjects, count

    sf._store.write(lambda tx: bool(count(tx, sf.scope, Subjects(subject), Amounts(used))))
    return True


def _judge(place: Path, url: str, scope: str, limit: int, outcome: Outcome) -> None:
    lines = [json.loads(line) for path in place.glob("bill-*") for line in path.read_text().splitlines()]
    billed = sum(used for _, used in lines)
    outcome.count("calls", len(lines))
    outcome.refuse(billed > limit and billed, f"the bill is higher than the limit of {limit}")
    with _opened(url, place, scope) as sf:
        team = sf.budgets.get("team")
        assert team.spent.tokens is not None
        assert team.held.tokens is not None
        outcome.refuse(team.spent.tokens + team.held.tokens > limit, f"more than {limit} is spent or held")
        outcome.refuse(billed > team.spent.tokens + team.held.tokens, "a call on the bill is neither spent nor held")
        _settle(sf, dict(lines), outcome)
        for name, expected in (("team", billed), *_by_agent(place)):
            now = sf.budgets.get(name)
            outcome.refuse(
                (now.spent.tokens, now.held.tokens) != (expected, 0) and [name, now.spent, now.held, expected],
                "the books differ from the bill",
            )


def _settle(sf: standfast.Standfast, bill: dict[str, int], outcome: Outcome) -> None:
    """Settles holds as a person does, by the provider's bill."""
    while doubtful := sf.budgets.holds(limit=1000):
        for hold in doubtful:
            outcome.count("holds in doubt")
            if hold.id in bill:
                sf.budgets.settle(hold.id, tokens=bill[hold.id])
            else:
                sf.budgets.release(hold.id)


def _by_agent(place: Path) -> list[tuple[str, int]]:
    sums = dict.fromkeys((f"agent:{n}" for n in range(PROCESSES)), 0)
    for path in place.glob("bill-*"):
        number = path.name.split("-")[1]
        sums[f"agent:{number}"] += sum(json.loads(line)[1] for line in path.read_text().splitlines())
    return list(sums.items())


def _opened(url: str, place: Path, scope: str) -> standfast.Standfast:
    return handle.connect(config.load(url, data_dir=place / "data", scope=scope))
