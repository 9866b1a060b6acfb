"""The skill: a page that an agent reads before work for which standfast is useful. The whole file is ours."""

from __future__ import annotations

from standfast.admin.agents import jsonc
from standfast.admin.agents.catalogue import Agent
from standfast.admin.agents.hook_entries import State

MARK = "<!-- standfast: this file is written and removed by `standfast install`; changes to it are lost. -->"

TEXT = f"""---
name: standfast
description: Durable state for this agent. Use it before anything the outside world can see (deploy, publish, push, \
pay, send, migrate), when work must survive a crash, to see what was decided or done before, to take or report tasks, \
and to write to other agents or to a person.
---
{MARK}

# standfast

A record that outlives this session. Every command takes `--json`; `standfast COMMAND --help` has examples. No flag
says who you are: that comes from your environment.

- You begin, or lost your context: `standfast brief`
- Before you act on something that matters: `standfast decide "WHAT" --why "…" --then "…"`; afterwards
  `standfast decision done ID`
- It changes an outside system (deploy, publish, push, send): `standfast once KEY -- COMMAND …` runs it once per KEY
- It is not one command: `standfast effect begin TOOL name=value … --key KEY`, act, then `standfast effect done ID` or
  `standfast effect fail ID`
- Something was sent and its outcome is unknown: `standfast effect list --in-doubt`. Check the remote service before you
  send it again
- A person has to approve it: add `--approve`, run `standfast approval wait ID`, then repeat the command. Only a person
  can approve
- You found work, or want some: `standfast task add "TITLE"`, `standfast task next`, `standfast task done ID`
- Another agent or a person should know: `standfast mail send WHO "TEXT"`; what others wrote to you: `standfast mail
  read`
- What happened, what was said: `standfast timeline --at "tue 03:00"`, `standfast search "WORDS"`

Exit codes: 5 needs approval by a person, 6 in doubt, 7 already done (the result is on stdout), 75 another process is
running it. After 5 or 6 stop and say so; do not look for a way around.
"""


def installed(agent: Agent, text: str | None, program: str) -> str:
    """The page. Raises jsonc.Broken if the file has another page."""
    if text is not None and MARK not in text:
        raise jsonc.Broken("a skill of this name is there, and it is not standfast's")
    return TEXT


def removed(agent: Agent, text: str, before: str | None = None) -> str | None:
    return None if MARK in text else text


def state(agent: Agent, text: str | None, program: str) -> State:
    if text is None or MARK not in text:
        return "missing"
    return "current" if text == TEXT else "stale"


def snippet(agent: Agent, program: str) -> str:
    return TEXT
