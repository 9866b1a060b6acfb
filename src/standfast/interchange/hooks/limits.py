"""Budgets of Claude Code and Codex. Both report their usage afterwards, in their transcripts.

A hook that opens the store imports the new records of its agent's transcript, and books their usage in the budgets of
the session, the agent and `all`. Then it looks for exhausted budgets:

    warn    the agent reads one line, once per session and window
    block   calls are refused, except reading and committing; after the turn that reads this, prompts are refused too,
            until a person raises the budget or its window ends
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final, NamedTuple

from standfast import hints
from standfast.core import journal
from standfast.db.contract import Row, Tx
from standfast.db.sql import load
from standfast.db.store import Resource, transactional
from standfast.interchange.hooks import mail_lines
from standfast.interchange.hooks.payloads import Asked, Heard, word_set
from standfast.ledger.budgets import amounts
from standfast.ledger.budgets.models import Budget, budget_of
from standfast.ledger.budgets.resource import Subjects, chain

if TYPE_CHECKING:
    from standfast.db.store import Store

SQL = load(__name__)


AGENTS: Final = ("claude-code", "codex")
"""Agents whose hooks name a transcript with usage."""
_READING: Final = word_set(
    "Read Glob Grep LS NotebookRead BashOutput TodoRead TodoWrite TaskOutput AskUserQuestion ExitPlanMode "
    "read grep glob list todoread todowrite question read_file search_file_content glob_files list_directory "
    "read_many_files view_image update_plan"
)
_COMMANDS: Final = word_set("cat cd echo false grep head ls pwd rg standfast stat tail test true wc")
_GIT: Final = word_set("add branch commit diff log ls-files rev-parse show stash status")


class Limits(NamedTuple):
    """The effect of exhausted budgets on one record of a hook."""

    refused: str = ""
    line: str = ""
    waits: bool = False
    """Whether the next hook must open the store to refuse or warn."""


def count(store: Store, agent: str, transcript: object) -> None:
    """Import the new records of the transcript. The import books their usage in the budgets."""
    if agent in AGENTS and isinstance(transcript, str) and os.path.isabs(transcript) and os.path.isfile(transcript):
        from standfast.interchange.imports import Imports

        Imports(store).run(agent, transcript)


class HookLimits(Resource):
    """Judge a record of a hook by the budgets of its session."""

    __slots__ = ()

    @transactional
    def judge(self, tx: Tx, heard: Heard, session_id: str, asked: Asked | None) -> Limits:
        """Refuse the call or prompt, warn once, or do nothing."""
        who = tx.one(SQL.who, id=session_id)
        subjects = Subjects("", f"session:{who['key']}", f"agent:{who['agent']}", session_id)
        spent = [(row, budget_of(tx, row)) for row in chain(tx, who["scope"], subjects)]
        spent = [(row, budget) for row, budget in spent if budget.exhausted]
        fresh = [budget for row, budget in spent if not _reported(tx, row, session_id)]
        blocking = [budget for _, budget in spent if budget.action == "block"]
        if blocking and (why := _refusal(heard, asked, last_turn=blocking[0] in fresh)):
            _refuse(tx, heard, session_id, blocking[0])
            return Limits(refused=f"{_said(blocking[0])} {why} {_raise(blocking[0])}", waits=True)
        if not fresh or heard.name not in mail_lines.EVENTS or heard.node is not None:
            return Limits(waits=bool(fresh or blocking))
        for budget in fresh:
            journal.append(tx, "budget.warned", budget.id, session_id=session_id, summary=_said(budget))
        return Limits(line="\n".join(f"standfast: {_line(budget)}" for budget in fresh), waits=bool(blocking))


def _reported(tx: Tx, row: Row, session_id: str) -> bool:
    """Whether the session got the warning in this window, and after the last change of the budget."""
    window_us = amounts.window_us(row["per"], tx.now_us())
    since_us = max(window_us, row["updated_us"])
    return tx.maybe(SQL.reported, subject=row["id"], session_id=session_id, since_us=since_us) is not None


def _refusal(heard: Heard, asked: Asked | None, *, last_turn: bool) -> str:
    if heard.kind == "prompt":
        return "" if last_turn else "The last turn is over, so this prompt is refused."
    if heard.kind != "call" or (asked is not None and passes(asked)):
        return ""
    return "Only reading and committing pass: commit your work and hand back in this turn."


def passes(asked: Asked) -> bool:
    """Whether a call only reads or commits, by the tool's name or by the first words of each shell command."""
    if asked.tool in _READING or asked.tool.startswith("mcp__standfast__"):
        return True
    command = asked.command if isinstance(asked.command, str) else " ".join(asked.command)
    commands = [words for words in _commands(command) if words]
    return bool(commands) and all(
        words[0] in _COMMANDS or (words[0] == "git" and len(words) > 1 and words[1] in _GIT) for words in commands
    )


def _commands(text: str) -> list[list[str]]:
    """The words of each command in a line. Empty if the line writes a file or has an open quote."""
    import shlex

    lexer = shlex.shlex(text, posix=True, punctuation_chars=";&|<>\n")
    lexer.whitespace, lexer.whitespace_split, lexer.commenters = " \t\r", True, ""
    found: list[list[str]] = [[]]
    try:
        for word in lexer:
            if ">" in word and not set(word) - set(";&|<>\n"):
                return []
            if word and not set(word) - set(";&|<>\n"):
                found.append([])
            else:
                found[-1].append(word)
    except ValueError:  # a quote is not closed
        return []
    return found


def _refuse(tx: Tx, heard: Heard, session_id: str, budget: Budget) -> None:
    if heard.call_id is not None:
        tx.run(SQL.cancelled, session_id=session_id, call_id=heard.call_id, at_us=heard.at_us, now_us=tx.now_us())
    summary = f"{heard.summary or heard.tool or heard.name}: {_said(budget)}"
    journal.append(tx, "budget.refused", budget.id, session_id=session_id, summary=summary, state="refused")


def _line(budget: Budget) -> str:
    if budget.action == "warn":
        return f"{_said(budget)} {_raise(budget)}"
    return f"{_said(budget)} Only reading and committing pass. Commit your work and hand back in this turn, your last."


def _said(budget: Budget) -> str:
    units = [unit for unit, left in budget.left.known.items() if left <= 0]
    used = [
        f"{amounts.shown(u, getattr(budget.spent, u))} of {amounts.shown(u, getattr(budget.limit, u))}" for u in units
    ]
    per = f" per {budget.per}" if budget.per else ""
    return f"The budget {budget.name!r} is exhausted: {', '.join(used)}{per} spent, counted after the fact."


def _raise(budget: Budget) -> str:
    unit = next(unit for unit, left in budget.left.known.items() if left <= 0)
    return f"A person raises it: {hints.command('budget', 'set', budget.name)} --{amounts.option(unit)} N"
