"""Fold a long conversation into a few words, continue from them, and lose nothing by deleting them.

python examples/checkpoint_fold_a_long_talk.py
"""

from __future__ import annotations

import standfast
from standfast.checkpoint.checkpoints import Said


def summarise(messages: list[Said]) -> str:
    """Yours would ask an LLM. An earlier fold is the first message, with the role `summary`."""
    return f"{len(messages)} entries, from {messages[0].content!r} to {messages[-1].content!r}"


def main() -> None:
    with standfast.open() as sf:
        with sf.session("example:fold") as s:
            for n in range(40):
                s.say("user" if n % 2 else "assistant", f"line {n}", key=f"line {n}")
            s.fold(summarise, keep_last=5, cursor={"line": 39}, versions={"prompt": "1"})
            context = s.context(versions={"prompt": "1"})
            print(context.summary)
            print([message.content for message in context.messages], context.cursor)

        sf.checkpoints.delete_all("example:fold")
        print(len(sf.checkpoints.context("example:fold").messages), "messages are still there")


if __name__ == "__main__":
    main()
