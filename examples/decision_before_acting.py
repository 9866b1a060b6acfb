"""Write a decision down before acting on it; run this twice and there is still one.

python examples/decision_before_acting.py
"""

from __future__ import annotations

import standfast


def main() -> None:
    with standfast.open() as sf:
        sf.decisions.record("never force-push", why="it lost the work of a colleague once", standing=True)

        with sf.session("example:decide", agent="coder") as s:
            why = "the failing test names it"
            with s.decide("edit parser.py", why=why, then="patch, test", tags=["parser"]) as d:
                # From here until the end of the block, every reader finds this decision open.
                d.outcome = s.step("patch", lambda: "two lines changed")

        for decision in sf.decisions.list(agent="coder", tag="parser", since="7d"):
            print(decision.state, "-", decision.what, "-", decision.outcome)
        for order in sf.decisions.list(state="standing"):
            print("always:", order.what)


if __name__ == "__main__":
    main()
