"""`standfast knowledge`: add, search and forget texts that agents learned."""

from __future__ import annotations

from typing import TYPE_CHECKING

from standfast.cli.answers import One
from standfast.cli.frame import noun

if TYPE_CHECKING:
    from standfast.handle import Standfast
    from standfast.record.knowledge import Knowledge

knowledge = noun(
    "knowledge",
    "Add, search and forget texts that agents learned, with their sources.",
    default="list",
    of="standfast.record.knowledge:KnowledgeStore",
)


def _added(_: Standfast, made: Knowledge) -> One:
    say = "" if made.fresh else "this agent knows it already: nothing changed"
    return One(made, [made.id], then="knowledge show {id}", say=say)


knowledge.generate(
    "add",
    answer=_added,
    creates=True,
    without=("embedding",),
    options={"supersedes": {"metavar": "ID"}, "source": {"metavar": "ID|URL"}},
    examples=(
        "standfast knowledge add 'CI needs node 20' --source https://ci.example.com/41 --tag ci",
        "standfast knowledge add 'CI needs node 22' --supersedes 9k2m4x --fresh-for 30d",
    ),
)


knowledge.generate(
    "search",
    without=("embedding",),
    options={"k": {"flag": "-k", "metavar": "N"}},
    then="knowledge show {id}",
    empty="nothing that was learned here has these words",
    examples=("standfast knowledge search 'node version'", "standfast knowledge search deploy --tag ci -k 3 --json"),
)
knowledge.generate(
    "list",
    then="knowledge show {id}",
    empty="nothing was learned here yet",
    examples=("standfast knowledge list", "standfast knowledge list --agent coder --tag ci"),
)
knowledge.generate("show", options={"which": {"metavar": "ID"}})
knowledge.generate(
    "forget",
    options={"which": {"metavar": "ID"}},
    text="forgot {id}",
    then="undo {id}",
)
knowledge.generate("index", examples=("standfast knowledge index", "standfast knowledge index --json"))
