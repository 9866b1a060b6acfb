"""Gates on four kinds of action match every spelling of the action, and ordinary commands pass.

The sample transcripts have 238 different commands, too few to measure false alarms (`test_imports_samples.py` checks
them; docs/concepts/gates.md has the figures of 4,213 others). A grammar generates 2,000 ordinary commands here. Many of
them contain the gates' own words as plain text.
"""

from __future__ import annotations

import random
from itertools import product

import pytest

from standfast.ledger.gate_patterns import Gate, met

PATTERNS = ("git push*", "npm publish*", "terraform apply*", "kubectl delete*")
GATES = [Gate(f"gat_{n}", "", "", pattern, "approval", None, "ada", 0) for n, pattern in enumerate(PATTERNS)]

WORDS = ["push", "publish", "apply", "delete", "the parser", "git push", "kubectl delete pod", "a release", "terraform"]
FILES = ["src/app.py", "README.md", "tests/test_push.py", "k8s/delete.yaml", "docs/publish.md", "main.tf", "."]
NAMES = ["main", "feature/push-button", "fix-publish", "v1.2.0", "HEAD~2"]

GRAMMAR = {
    "git status": ["", " -s", " --short --branch"],
    "git log": [" --oneline -5", " -n 20 {name}", " -p {file}", " --grep '{word}'", " origin/{name}..HEAD"],
    "git commit": [' -m "{word}"', ' -am "Fix {word} of {word}"', " -m 'do not {word}'", ' --amend -m "{word}"'],
    "git": [
        " diff {file}",
        " add {file}",
        " fetch origin",
        " pull --rebase",
        " checkout {name}",
        " show {name}:{file}",
    ],
    "git stash": ["", " list", ' push -m "{word}"', " pop"],
    "npm": [" install", " run build", " run test -- {file}", " ci", " view left-pad version", " run lint"],
    "python": [" -m pytest {file}", " -m pytest -k 'push or publish'", " {file}", " -m pip install -e ."],
    "docker": [" ps", " build -t app .", " logs app", " compose up -d", " images"],
    "kubectl": [
        " get pods",
        " get pods -n prod",
        " describe pod app",
        " logs app",
        " apply --dry-run=client -f {file}",
    ],
    "terraform": [" plan", " init", " validate", " fmt -check", " show", " state list"],
    "grep": [' -r "{word}" {file}', " -rn '{word}' .", ' -c "{word}" {file}'],
    "rg": [' "{word}" {file}', " -l '{word}'"],
    "echo": [' "{word}"', " {word}", ' "{word}" > notes.txt'],
    "cat": [" {file}", " {file} | head -20", " <<'EOF'\n{word}\nEOF"],
    "ls": [" -la {file}", ""],
    "sed": [" -n 1,20p {file}"],
    "gh": [' pr create --title "{word}" --body "{word}"', ' issue list --search "{word}"', " pr view 7"],
    "cargo": [" build --release", " test", " fmt", " clippy"],
    "uv": [" sync", " run pytest {file}", " add httpx"],
    "make": [" test", " check", " -n release"],
}
AROUND = ["{0}", "cd app && {0}", "{0} 2>&1 | tail -5", "time {0}", "FOO=1 {0}"]


def ordinary(count: int) -> list[str]:
    """This number of different commands that perform none of the four actions. Every run gets the same commands."""
    chance, made = random.Random(18), dict[str, None]()
    ends = [(program, end) for program, rest in GRAMMAR.items() for end in rest]
    while len(made) < count:
        program, end = chance.choice(ends)
        filled = end.format(word="{word}", file=chance.choice(FILES), name=chance.choice(NAMES))
        while "{word}" in filled:
            filled = filled.replace("{word}", chance.choice(WORDS), 1)
        around = AROUND[0] if "EOF" in end else chance.choice(AROUND)
        made[around.format(program + filled)] = None
    return list(made)


def test_at_least_1990_of_2000_ordinary_commands_pass() -> None:
    """002-20: gates on push, publish, apply and delete stop at most 10 of 2,000 commands that perform none of these
    actions.
    """
    stopped = [line for line in ordinary(2000) if met(GATES, line)]
    assert len(stopped) <= 10, "\n".join(stopped)


ACTIONS = {
    "git push*": ["git push", "git -C . push origin main", "git -c a=b push", "/usr/bin/git push --force"],
    "npm publish*": ["npm publish", "npm --tag next publish", "npm -w packages/core publish --access public"],
    "terraform apply*": ["terraform apply", "terraform -chdir=prod apply -auto-approve"],
    "kubectl delete*": [
        "kubectl delete pod app",
        "kubectl -n prod delete deployment app",
        "kubectl --context p delete ns x",
    ],
}
SPELLINGS = [
    "{0}", "cd app && {0}", "true; {0}", "env A=1 {0}", 'sh -c "{0}"', "bash -lc '{0}'", "echo y | {0}", "sudo {0}",
    "xargs {0} < list", "find . -name x -exec {0} \\;", "bash <<'EOF'\n{0}\nEOF", "standfast once k -- {0}", "$({0})",
    "`{0}`", "timeout 60 {0} &", "if true; then {0}; fi", "eval '{0}'", 'echo "$({0})"', 'git commit -m "$({0})"',
]  # fmt: skip


@pytest.mark.parametrize("pattern", PATTERNS)
def test_every_spelling_of_the_four_actions_is_caught(pattern: str) -> None:
    """002-20: the gates see the action behind a wrapper, an option, a path or a here-document."""
    lines = [spelling.format(action) for action, spelling in product(ACTIONS[pattern], SPELLINGS)]
    passed = [line for line in lines if pattern not in [gate.pattern for gate in met(GATES, line)]]
    assert passed == []


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("inside", ["''", '""', "\\", "$()", "``", "${x}", '"$@"', "$(true)"])
def test_a_word_that_is_split_by_quotes_matches(pattern: str, inside: str) -> None:
    """002-20, R20: the gates see the action if quotes, escapes or empty expansions split a word."""
    first, last = ACTIONS[pattern][0].split()[:2]
    for line in (f"{first} {last[:2]}{inside}{last[2:]} x", f"{first[:2]}{inside}{first[2:]} {last} x"):
        assert met(GATES, line), line
