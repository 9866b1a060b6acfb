"""Small transcripts, written as the agents write them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

SESSION = "11111111-2222-4333-8444-555555555555"


def write(path: Path, *records: Any, end: str = "\n") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [record if isinstance(record, str) else json.dumps(record, ensure_ascii=False) for record in records]
    path.write_text("\n".join(lines) + end, encoding="utf-8", errors="surrogatepass")
    return path


def append(path: Path, *records: Any, end: str = "\n") -> None:
    lines = [record if isinstance(record, str) else json.dumps(record, ensure_ascii=False) for record in records]
    with path.open("a", encoding="utf-8") as file:
        file.write("\n".join(lines) + end)


def at(second: int) -> str:
    return f"2026-11-10T03:{second // 60:02d}:{second % 60:02d}.000Z"


# -- Claude Code -----------------------------------------------------------------------------------------------


def claude(type: str, uuid: str, content: Any = None, *, second: int = 0, **more: Any) -> dict[str, Any]:
    record: dict[str, Any] = {
        "type": type,
        "uuid": uuid,
        "timestamp": at(second),
        "sessionId": SESSION,
        "version": "2.1.38",
    }
    if content is not None:
        record["message"] = {"role": type, "content": content}
    return record | more


def user(uuid: str, text: str, **more: Any) -> dict[str, Any]:
    return claude("user", uuid, text, **more)


def assistant(
    uuid: str, *blocks: Any, id: str = "", usage: dict[str, int] | None = None, **more: Any
) -> dict[str, Any]:
    record = claude("assistant", uuid, [*blocks], requestId=f"req_{id}", **more)
    record["message"] |= {"id": id or f"msg_{uuid}", "model": "opus"}
    if usage is not None:
        record["message"]["usage"] = usage
    return record


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def call(id: str, tool: str = "Bash", **input: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": id, "name": tool, "input": input}


def result(uuid: str, id: str, output: Any, *, failed: bool = False, **more: Any) -> dict[str, Any]:
    return claude(
        "user", uuid, [{"type": "tool_result", "tool_use_id": id, "content": output, "is_error": failed}], **more
    )


def night(session: str = SESSION, count: int = 1) -> list[dict[str, Any]]:
    """A conversation on a Tuesday at 03:00: a question, a call, its answer, a last message; `count` times."""
    records = []
    for n in range(count):
        turn = [
            user(f"u{n}", f"why is the build red? ({n})", second=n),
            assistant(f"a{n}", call(f"toolu_{n}", command="make test"), second=n, usage={"input_tokens": 7}),
            result(f"r{n}", f"toolu_{n}", "1 failed", failed=True, second=n),
            assistant(f"b{n}", text(f"the parser is broken ({n})"), second=n, usage={"output_tokens": 5}),
        ]
        records += [record | {"sessionId": session, "uuid": f"{session[:8]}-{record['uuid']}"} for record in turn]
    return records


# -- Codex -----------------------------------------------------------------------------------------------------


def codex(type: str, payload: dict[str, Any], *, second: int = 0, **more: Any) -> dict[str, Any]:
    return {"timestamp": at(second), "type": type, "payload": payload, **more}


def meta(id: str, **more: Any) -> dict[str, Any]:
    return codex("session_meta", {"id": id, "timestamp": at(0), "cli_version": "0.166.0", "source": "cli", **more})


def item(kind: str, *, second: int = 0, ordinal: int | None = None, **payload: Any) -> dict[str, Any]:
    more = {} if ordinal is None else {"ordinal": ordinal}
    return codex("response_item", {"type": kind, **payload}, second=second, **more)


def message(role: str, words: str, **more: Any) -> dict[str, Any]:
    kind = "output_text" if role == "assistant" else "input_text"
    return item("message", role=role, content=[{"type": kind, "text": words}], **more)


def rollout(path: Path, id: str) -> Path:
    return path / f"rollout-2026-11-10T03-00-00-{id}.jsonl"
