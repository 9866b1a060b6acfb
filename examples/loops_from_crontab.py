"""From crontab to loops: each line becomes a loop; adding the same crontab again changes nothing.

Run it: python examples/loops_from_crontab.py
"""

from __future__ import annotations

import standfast
from standfast.record.loops.schedule import shown

CRONTAB = """
# m h dom mon dow  command
MAILTO=""
CRON_TZ=Europe/Berlin
30 2 * * *         /srv/bin/backup --full
*/15 * * * *       cd /srv/app && ./poll.sh | logger
@weekly            /srv/bin/report
"""


def loops(sf: standfast.Standfast, crontab: str) -> None:
    variables: dict[str, str] = {}
    for line in crontab.splitlines():
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        if "=" in text.split()[0]:
            name, _, value = text.partition("=")
            variables[name] = value.strip('"')
            continue
        fields = 1 if text.startswith("@") else 5
        words = text.split(None, fields)
        when, command = " ".join(words[:fields]), words[fields]
        loop = sf.loops.add(
            command.split()[0].rpartition("/")[2] if fields == 1 or "&&" not in command else "poll",
            ["sh", "-c", command],  # a crontab line is a shell command
            cron=when,
            zone=variables.get("CRON_TZ", "UTC"),
            catch_up="none",  # cron does not catch up; "latest" is usually better
            overlap="queue",
            cwd="/",
        )
        print(f"{loop.change}: {loop.name}, {loop.said}")


def main() -> None:
    with standfast.open(":memory:") as sf:
        loops(sf, CRONTAB)
        loops(sf, CRONTAB)
        due = sf.loops.next_due_us()
        assert due is not None
        assert shown(due)  # from now on every slot leaves a row: standfast loop runs --since 1d


if __name__ == "__main__":
    main()
