"""A chat whose every turn may be another process: it continues from the record.

python examples/session_chat.py
"""

from __future__ import annotations

import standfast


def model(heard: list[str]) -> str:
    """Yours would be an LLM. It gets the last messages."""
    return f"You said {len(heard)} things, the last was {heard[-1]!r}."


def turn(number: int, question: str) -> str:
    with standfast.open() as sf, sf.session("example:chat") as s:
        s.say("user", question, key=f"question {number}")
        heard = [message.content for message in s.messages(last=50) if message.role == "user"][:number]
        answer = s.step("answer", model, heard)
        s.say("assistant", answer, key=f"answer {number}")
        s.state["turns"] = number
        return answer


def main() -> None:
    for number, question in enumerate(["hello", "why a lease?", "hello"], 1):
        print(turn(number, question))
    with standfast.open() as sf:
        for message in sf.sessions.messages("example:chat"):
            print(f"{message.position} {message.role}: {message.content}")


if __name__ == "__main__":
    main()
