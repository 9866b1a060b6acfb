"""Our hooks in the text of an agent's settings. Pure functions.

installed(agent, text, program)   the text with our hooks; every other byte is unchanged
removed(agent, text)              the text without our hooks, and without objects that would be empty then
state(agent, text, program)       missing, current or stale
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Literal

from standfast.admin.agents import jsonc
from standfast.admin.agents.catalogue import Agent, hook_command, is_ours

State = Literal["missing", "current", "stale"]

MARK = "// standfast: this file is written and removed by `standfast install`; changes to it are lost."


def installed(agent: Agent, text: str | None, program: str) -> str:
    """The text with one entry per event. Raises jsonc.Broken if the text is not a settings file."""
    if not agent.events:
        if text is not None and not text.startswith(MARK):
            raise jsonc.Broken("a file of this name is there, and it is not standfast's")
        return plugin(program)
    wanted = _wanted(agent, program)
    if text is None or not text.strip():
        return json.dumps({"hooks": {event: [group] for event, group in wanted.items()}}, indent=2) + "\n"
    _checked(text)
    for event, group in wanted.items():
        text = _with(agent, text, event, group)
    return text


def removed(agent: Agent, text: str, before: str | None = None) -> str | None:
    """The text without our entries; None if the text had only ours.

    An object that `before` already had is kept, even if it is empty.
    """
    if not agent.events:
        return None if text.startswith(MARK) else text
    now = _checked(text)
    had = _had(before)
    for event in now.get("hooks", {}):
        text = _without(agent, text, event, keep_empty=event in had.get("hooks", {}))
    if now.get("hooks") and not jsonc.plain(text)["hooks"] and "hooks" not in had:
        root = jsonc.parse(text)
        text = jsonc.remove(text, root, index(root, "hooks"))
    return text


def state(agent: Agent, text: str | None, program: str) -> State:
    """Whether our entries are in the text, and are those that this version writes."""
    if not agent.events:
        if text is None or not text.startswith(MARK):
            return "missing"
        return "current" if text == plugin(program) else "stale"
    if text is None or not text.strip() or not any(True for _ in _ours(agent, _checked(text))):
        return "missing"
    return "current" if installed(agent, text, program) == text else "stale"


def programs(agent: Agent, text: str) -> list[str]:
    """The commands of our hooks in a text."""
    if not agent.events:
        return []
    return sorted({handler["command"] for handler in _ours(agent, _checked(text))})


def snippet(agent: Agent, program: str) -> str:
    """The text to add by hand if a file cannot be edited."""
    return installed(agent, None, program)


# -- one event ---------------------------------------------------------------------------------------


def _wanted(agent: Agent, program: str) -> dict[str, dict[str, Any]]:
    handler: dict[str, Any] = {"type": "command", "command": hook_command(program, agent.name)}
    if agent.name == "gemini-cli":
        handler = {"name": "standfast", **handler}
    handler["timeout"] = agent.timeout
    groups: dict[str, dict[str, Any]] = {}
    for event in agent.events:
        matcher = {"matcher": "*"} if event in agent.tool_events else {}
        # Codex limits a hook of SessionEnd to 3 s, and warns about a higher timeout.
        short = {"timeout": min(agent.timeout, 3)} if agent.name == "codex" and event == "SessionEnd" else {}
        # Claude Code makes the call if the hook is killed or missing. Since 2.1.295 this field refuses it.
        closed = {"onFailure": "block"} if agent.name == "claude-code" and event == "PreToolUse" else {}
        groups[event] = {**matcher, "hooks": [{**handler, **short, **closed}]}
    return groups


def _with(agent: Agent, text: str, event: str, group: dict[str, Any]) -> str:
    found = [one for one in jsonc.plain(text).get("hooks", {}).get(event, []) if _has_ours(agent, one)]
    if found == [group]:
        return text
    if found:
        text = _without(agent, text, event, keep_empty=True)
    root = jsonc.parse(text)
    hooks = root.get("hooks")
    if hooks is None:
        return jsonc.add_member(text, root, "hooks", {event: [group]})
    groups = hooks.get(event)
    if groups is None:
        return jsonc.add_member(text, hooks, event, [group])
    return jsonc.add_item(text, groups, group)


def _without(agent: Agent, text: str, event: str, *, keep_empty: bool = False) -> str:
    """Remove our handlers from one event, with a group and an event that would be empty then."""
    while True:
        root = jsonc.parse(text)
        hooks = root.get("hooks")
        groups = hooks.get(event) if hooks is not None else None
        if hooks is None or groups is None:
            return text
        at = next((n for n, one in enumerate(groups.value) if _has_ours(agent, one)), None)
        if at is None:
            return text
        handlers = groups.members[at].place.get("hooks")
        assert handlers is not None
        if len(handlers.value) > 1:
            ours = next(n for n, one in enumerate(handlers.value) if _is_ours(agent, one))
            text = jsonc.remove(text, handlers, ours)
        elif len(groups.value) > 1 or keep_empty:
            text = jsonc.remove(text, groups, at)
        else:
            text = jsonc.remove(text, hooks, index(hooks, event))


def _ours(agent: Agent, value: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for groups in value.get("hooks", {}).values():
        for group in groups:
            if _has_ours(agent, group):
                yield from (handler for handler in group["hooks"] if _is_ours(agent, handler))


def _has_ours(agent: Agent, group: Any) -> bool:
    handlers = group.get("hooks") if isinstance(group, dict) else None
    return isinstance(handlers, list) and any(_is_ours(agent, handler) for handler in handlers)


def _is_ours(agent: Agent, handler: Any) -> bool:
    return isinstance(handler, dict) and is_ours(handler.get("command"), agent.name)


def _had(before: str | None) -> dict[str, Any]:
    try:
        return _checked(before) if before and before.strip() else {}
    except jsonc.Broken:
        return {}


def index(container: jsonc.Place, name: str) -> int:
    return next(n for n, member in enumerate(container.members) if member.name == name)


def _checked(text: str) -> dict[str, Any]:
    """The values of a settings file. Raises jsonc.Broken if `hooks` has another form than the agents write."""
    value = jsonc.plain(text)
    if not isinstance(value, dict):
        raise jsonc.Broken("it holds no object")
    hooks = value.get("hooks", {})
    if not isinstance(hooks, dict):
        raise jsonc.Broken('"hooks" is no object')
    for event, groups in hooks.items():
        if not isinstance(groups, list):
            raise jsonc.Broken(f'"hooks" has no list under {event!r}')
    return value


# -- the plugin --------------------------------------------------------------------------------------


def plugin(program: str) -> str:
    """The plugin for opencode, which cannot run a command as a hook. It sends the same events to the same command."""
    return _PLUGIN.replace("@MARK@", MARK).replace("@PROGRAM@", json.dumps(program))


_PLUGIN = """@MARK@
import { spawn } from "node:child_process"

const PROGRAM = @PROGRAM@
const WAIT_MS = 10000 // standfast itself answers within 6 s
const SHOWN_MS = 20000

// Sends one event to standfast. Resolves to its answer, or to null if it does not answer in time.
function tell(payload) {
  return new Promise((resolve) => {
    let said = ""
    try {
      const child = spawn(PROGRAM, ["hook", "opencode"], { stdio: ["pipe", "pipe", "ignore"] })
      const timer = setTimeout(() => { child.kill("SIGKILL"); resolve(null) }, WAIT_MS)
      const end = (text) => { clearTimeout(timer); resolve(text) }
      child.stdout.on("data", (part) => { said += part })
      child.on("error", () => end(null))
      child.on("close", (code) => end(code === 0 ? said : null))
      child.stdin.on("error", () => {})
      child.stdin.end(JSON.stringify(payload))
    } catch {
      resolve(null)
    }
  })
}

// The parsed answer: {} if it is empty, null if standfast did not answer.
function answer(said) {
  try { return said ? JSON.parse(said) : said === "" ? {} : null } catch { return null }
}

// The text that standfast adds for the agent: a line about mail, or the brief.
function added(said) {
  return answer(said)?.hookSpecificOutput?.additionalContext ?? ""
}

// Shows the user why a call is refused: opencode shows the reason only after a click on the call.
async function show(client, message) {
  try {
    await client.tui.showToast({ body: { title: "standfast", message, variant: "warning", duration: SHOWN_MS } })
  } catch {} // without a screen there is nothing to show
}

export const Standfast = async ({ client, directory }) => {
  const roots = new Map() // a sub-agent is a session of its own here, and a part of its parent's there
  const about = (id, name, more) => {
    const root = roots.get(id)
    return { session_id: root ?? id, ...(root ? { agent_id: id } : {}), cwd: directory, hook_event_name: name, ...more }
  }
  return {
    event: async ({ event }) => {
      const given = event?.properties ?? {}
      const info = given.info ?? {}
      if (event?.type === "session.created" && info.id) {
        if (info.parentID) {
          roots.set(info.id, roots.get(info.parentID) ?? info.parentID)
          await tell(about(info.id, "SubagentStart", { agent_type: info.agent ?? "subagent" }))
        } else await tell(about(info.id, "SessionStart", { source: "startup" }))
      }
      if (event?.type === "session.idle" && given.sessionID)
        await tell(about(given.sessionID, roots.has(given.sessionID) ? "SubagentStop" : "Stop", {}))
      if (event?.type === "session.deleted" && info.id) await tell(about(info.id, "SessionEnd", { reason: "deleted" }))
      const part = given.part
      if (event?.type === "message.part.updated" && part?.type === "tool" && part.state?.status === "error")
        await tell(about(part.sessionID, "PostToolUseFailure", {
          tool_name: part.tool, tool_use_id: part.callID, tool_input: part.state.input, error: part.state.error,
        }))
    },
    "chat.message": async (input, output) => {
      const parts = (output?.parts ?? []).filter((part) => part.type === "text")
      const text = parts.map((part) => part.text).join("\\n")
      if (!input?.sessionID || !text) return
      const more = added(await tell(about(input.sessionID, "UserPromptSubmit", { prompt: text })))
      if (more) parts[parts.length - 1].text += "\\n\\n" + more
    },
    "tool.execute.before": async (input, output) => {
      const said = answer(await tell(about(input.sessionID, "PreToolUse", {
        tool_name: input.tool, tool_use_id: input.callID, tool_input: output?.args,
      })))
      if (said === null)
        throw new Error("standfast did not answer, and a gate may apply, so the call is refused. Try: standfast doctor")
      if (said.decision !== "deny") return
      show(client, said.reason)
      throw new Error(said.reason)
    },
    "tool.execute.after": async (input, output) => {
      const more = added(await tell(about(input.sessionID, "PostToolUse", {
        tool_name: input.tool, tool_use_id: input.callID, tool_input: input.args, tool_response: output?.output,
      })))
      if (more && typeof output?.output === "string") output.output += "\\n\\n" + more
    },
    "shell.env": async (input, output) => {
      const id = input?.sessionID
      if (id && output?.env) output.env.STANDFAST_ACTOR = "opencode:" + (roots.get(id) ?? id)
    },
    "experimental.session.compacting": async (input, output) => {
      const text = added(await tell(about(input.sessionID, "PostCompact", {})))
      if (text && output?.context) output.context.push(text)
    },
  }
}
"""
