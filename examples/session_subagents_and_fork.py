"""Sub-agents with conversations of their own, and a second try from the middle of the first.

python examples/session_subagents_and_fork.py
"""

from __future__ import annotations

import standfast


def main() -> None:
    with standfast.open() as sf:
        with sf.session("example:tree", agent="lead") as s:
            s.say("user", "rename the module", key="ask")
            s.say("assistant", "I will edit every import", key="plan")
            reviewer = s.subagent("reviewer", title="reads the diff")
            reviewer.say("user", "is anything missing?", key="ask")
            reviewer.say("assistant", "the docs", key="answer")
            s.say("assistant", "renamed", key="done")

        # A second try from after the plan: it shares the first two messages and copies nothing.
        fork = sf.sessions.fork("example:tree", "example:tree:again", at=2)
        with sf.session(fork.key) as s:
            s.say("assistant", "I will leave an alias behind", key="other plan")
            print([message.content for message in s.messages()])

        print([message.content for message in sf.sessions.messages("example:tree")])
        print([message.content for message in sf.sessions.messages("example:tree", node="reviewer")])


if __name__ == "__main__":
    main()
