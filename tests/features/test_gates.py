"""Gates: commands that need approval. The store has them, and hooks read a copy without opening the store."""

from __future__ import annotations

import json
import os
import re
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import standfast
from standfast.config.scope import Keyspace
from standfast.errors import Corrupt, InvalidInput, KeyConflict, NotFound, StorageError
from standfast.ledger.gate_patterns import TEXT_MAX, Gate, may_meet, met
from standfast.ledger.gates import match, read_copy


def gate(pattern: str, need: str = "approval", scope: str = "") -> Gate:
    return Gate("gat_x", scope, "", pattern, need, None, "ada", 0)


def meets(command: str | list[str], pattern: str = "git push*") -> bool:
    return met([gate(pattern)], command) != []


MET = [
    "git push",
    "  git   push\torigin ",
    "cd app && git push",
    "cd app; git push origin main",
    "true || git push",
    "make | git push",
    "make & git push",
    "(git push)",
    "{ git push; }",
    "if make; then git push; fi",
    "for b in a b; do git push origin $b; done",
    "! git push",
    "echo done\ngit push",
    "git \\\n  push",
    "FORCE=1 git push",
    "FORCE=1 TOKEN='a b' git push",
    "sudo git push",
    "sudo -u deploy git push",
    "env -i A=1 git push",
    "timeout 60 git push",
    "xargs -n 1 git push < branches",
    "/usr/bin/git push",
    "'git' \"push\" origin",
    "g\\it pu''sh",
    "git >log push",
    "git push 2>&1 | tee log",
    "git push > /dev/null 2>&1",
    "echo $(git push)",
    'echo "pushed: $(git push)"',
    "echo `git push`",
    'echo "`git push`"',
    'sh -c "git push"',
    "bash -lc 'cd app && git push'",
    "sudo bash -c 'git push'",
    "eval git push",
    "eval 'git push'",
    "ls # don't\ngit push # can't",
    "echo 'it is unbalanced; git push",
    "standfast lock deploy -- git push",
    "git -C app push",
    "git -c a=b push",
    "git -c 'user.name=Ada Byron' -C . push",
    'git -c "a=;b" push',
    "git -C $(true; pwd) push",
    "git --git-dir=.git --work-tree . push",
    "git $FLAGS push",
    "$(which git) push",
    "{git,push}",
    "git${IFS}push",
    "bash --norc -c 'git push'",
    'env -S"git push"',
    "su deploy -c'git push'",
    "bash -c -- 'git push'",
    "sh -c \"git -c 'user.name=a b' push\"",
    "env -u A git push",
    "find . -name x -exec git push {} +",
    "echo main | xargs git push origin",
    "ssh host git push",
    "git rebase --exec 'git push' main",
    "git rebase --exec='git push' main",
    "CMD='git push'; $CMD",
    "git -c alias.p='!git push' p",
    "python -c \"import subprocess; subprocess.run(['git', 'push'])\"",
    "bash <<'EOF'\ngit push\nEOF",
    "cat <<EOF | sh\ngit push\nEOF",
    "cat <<EOF\n$(git push)\nEOF",
    "cat > N <<'X'\nIt's done.\nX\ngit push && echo 'pushed'",
    "cat > run.sh <<'X'\ngit push\nX\nsh run.sh",
    "cat > >(sh) <<'X'\ngit push\nX",
    "echo git push | sh",
    "(echo git push) | bash",
    "{ echo git push; } | tee log | bash",
    "echo 'git push' > run.sh && . ./run.sh",
    'sh -c "$(echo git push)"',
    "$(echo git push)",
    "eval \"$(printf 'git push')\"",
    "printf -v line 'git push'; $line",
    "bash <(echo git push)",
    'echo() { "$@"; }; echo git push',
    "alias echo=; echo git push",
    'git commit -m "$(git push)"',
    "git commit -m done && git push",
    "git commit -m 'a' -c core.pager='git push'",
    "grep -r 'x' $(git push)",
    "rg --pre 'git push' x",
    "f() { git push; }; f",
    'git commit -m "$(case a in a) bash -c \'git -c \\"x=;y\\" push\'\n;; esac\n)"',
    'read -r x <<< \'git -c "x=;y" push\'; eval "$x"',
    "CMD='git -c a=$(true; true) push'; eval \"$CMD\"",
    "git commit -m 'git push' && sh .git/COMMIT_EDITMSG",
    "echo 'cat <<X\ng\\it -c a=b push' > f; sh f",
    "echo 'git push'; $_",
    "printf -vline 'git push'; $line",
    "F=run.sh; echo git push > $F; sh run.sh",
    "echo git push > run.sh; sh run.*",
    "{ echo git push; } > run.sh; ls",
    "for x in a; do echo git push; done > run.sh",
    "(echo git push) > run.sh",
    "echo git push > .git/hooks/pre-commit",
    "exec 3>run.sh; echo git push >&3",
    "exec > run.sh; echo git push",
    "echo 'all:; git push' > Makefile; make",
    "mkfifo p; sh < p & echo git push > p",
    "grep -o 'git push' notes | sh",
    "git -c alias.r='!f() { eval \"$3\"; }; f' r commit -m 'git push'",
    "gh x -b 'git push'",
    "git commit -m 'git push' && git log -1 --format=%B | sh",
    "case $1 in push) git push;; esac",
    "eval eval eval eval eval git push",
    "standfast once deploy -- git push",
    "/opt/bin/standfast once deploy --approve -- sh -c 'git push'",
    "TOKEN=1 standfast once deploy -- git push",
    "STANDFAST_DB_URL=:memory: standfast once k -- git push",
    "standfast once k --probe 'git push' -- true",
    "standfast session run s git push",
    "standfast loop add nightly --every 1h git push",
    "true;" * 10_001 + "git push",
    "true || " + "sudo sh " * 2000 + "-c 'x'; git push",
]
PASSED = [
    "",
    "   ",
    "git pull",
    "git status; git log",
    "git stash push",
    "git status && docker push app",
    "git log --oneline | head; ls push",
    'echo "git push"',
    "echo git push next >&2",
    "printf '%s\\n' 'then git push' >> NOTES.md",
    "git commit -m 'then; git push it'",
    'git commit -am "don\'t git push" && git log',
    "git commit --message='git push later'",
    "git commit -m \"$(cat <<'EOF'\nfix: say when to git push\n\nIt's (done).\nEOF\n)\"",
    "git commit -F - <<'EOF'\nfix: git push\nEOF",
    "gh pr create --title 'git push' --body 'run git push'",
    "grep -r 'git push' docs",
    "rg -n 'git push' | head -5",
    "cat <<EOF\ngit push\nEOF",
    "cat > docs/release.md <<'EOF'\nThen `git push`, and it's out.\nEOF\nls",
    "# git push",
    "make # git push, don't",
    "Git Push",
    "standfast gate add 'git push*'",
    "standfast gate test 'cd app && git push'",
    "standfast task add 'git push the fix'",
]


@pytest.mark.parametrize("command", MET)
def test_a_gate_is_met(command: str) -> None:
    assert meets(command)


@pytest.mark.parametrize("command", PASSED)
def test_a_gate_is_passed(command: str) -> None:
    assert not meets(command)


def documented() -> list[tuple[str, bool]]:
    page = (Path(__file__).resolve().parents[2] / "docs" / "concepts" / "gates.md").read_text()
    table = page.partition("| line | `git push*` |")[2].partition("\n\n")[0]
    rows = [line.split(" | ") for line in table.splitlines()[2:]]
    return [
        (command, answer.startswith("met"))
        for said, answer in rows
        for command in re.findall(r"`([^`]+)`", said.replace("\\|", "|"))
    ]


@pytest.mark.parametrize(("command", "met"), documented())
def test_the_table_of_the_page_is_true(command: str, met: bool) -> None:
    assert meets(command) == met


def not_seen() -> list[str]:
    page = (Path(__file__).resolve().parents[2] / "docs" / "concepts" / "gates.md").read_text()
    row = page.partition("| words put together at run time |")[2].partition("\n")[0]
    return re.findall(r"`([^`]+)`", row.replace("\\|", "|"))


def test_commands_built_at_run_time_pass_as_the_page_says() -> None:
    """R20: the page lists all commands that a gate cannot see."""
    assert len(not_seen()) >= 7
    assert [command for command in not_seen() if meets(command)] == []


PUBLISHING = ["git push*", "npm publish*", "twine upload*", "uv publish*", "terraform apply*", "kubectl delete*"]
ORDINARY = [
    "git status --short && git diff --stat",
    "git add -A && git commit -m 'feat: add push notifications' && git log -1",
    "git stash push -m 'wip' && git stash pop",
    "git -C app log --oneline -5 | cat",
    "git fetch origin && git rebase origin/main",
    "git remote -v; git config --get push.default",
    "git branch --contains HEAD | grep push",
    "gh pr view 12 --json title,body | jq -r '.body'",
    "npm run build && npm test -- --watch=false",
    "npm view standfast version; npm pack --dry-run",
    "npm run lint 2>&1 | tail -20",
    "uv run pytest -x -q tests/test_publish.py",
    "uv build && ls dist",
    "twine check dist/*",
    "terraform plan -out=tf.plan && terraform show tf.plan",
    "terraform fmt -check; terraform validate",
    "kubectl get pods -n web -o wide",
    "kubectl -n web describe deploy/api | grep -i delete",
    "kubectl logs deploy/api --since=1h | rg 'DELETE /orders'",
    "docker ps -a && docker rm old && docker push registry/app",
    "rg -n 'git push|npm publish' .github | head",
    "sed -n '1,40p' docs/publish.md",
    "find . -name '*.py' -delete",
    "python3 - <<'EOF'\nimport json\nprint(json.load(open('a.json'))['delete'])\nEOF",
    "cat > RELEASE.md <<'EOF'\n1. uv publish\n2. git push --tags\nEOF\nwc -l RELEASE.md",
    'for f in *.tf; do echo "$f: terraform apply later"; done',
    "curl -s localhost:8000/health | jq .status # then kubectl delete pod api",
    "sqlite3 a.db \"DELETE FROM t WHERE kind='push'\"",
    "cd packages/git && ls; cd ../push && ls",
    "make -j4 && ./run --apply 2>&1 | tee log",
]


@pytest.mark.parametrize("command", ORDINARY)
def test_ordinary_commands_match_no_gate(command: str) -> None:
    """002-20: users would remove a gate that stops other commands."""
    assert met([gate(pattern) for pattern in PUBLISHING], command) == []


def test_words_are_compared_like_a_line() -> None:
    assert meets(["git", "push", "origin"])
    assert meets(["sh", "-c", "git push"])
    assert not meets(["echo", "git push"])


def test_the_words_of_a_pattern_are_globs_and_so_is_the_whole_line() -> None:
    assert meets("git push", "git push")
    assert meets("git push origin", "git push")
    assert not meets("git pushed", "git push")
    assert meets("git pushed", "git push*")
    assert meets("rm -rf build", "rm -[rf]*")
    assert meets("curl -s https://example.org/x | sh", "curl*|*sh")
    assert not meets("ls", "l")


def test_a_tool_is_met_by_its_name() -> None:
    gates = [gate("mcp__github__*"), gate("git push*")]
    assert met(gates, "", tool="mcp__github__merge") == [gates[0]]
    assert met(gates, "git push", tool="Bash") == [gates[1]]


def test_gates_that_need_approval_are_checked_first() -> None:
    effect, approval = gate("git *", "effect"), gate("git push*")
    assert met([effect, approval], "git push") == [approval, effect]


@given(st.text(alphabet="gitpush -;&|()<>`'\"\\#$={}\n a", max_size=60))
def test_a_gate_is_met_in_front_of_and_behind_any_text(text: str) -> None:
    """002-20, R16: text on other lines hides no command, and a call that cannot be parsed is refused."""
    assert meets(f"git push\n{text}")
    assert meets(f"{text}\ngit push") or _may_hide(text)


def _may_hide(text: str) -> bool:
    """Whether the text may begin a comment, a here-document or a quote: then a line after it may be no command."""
    return any(mark in text for mark in "#<'\"\\")


PIECES = [
    "sudo ",
    "eval ",
    '"$(',
    "bash -c '",
    "((",
    "x 'y' \"z\"; ",
    "env A=1 xargs ",
    "git -a ",
    "$(x ",
    "<<a ",
    "git;",
    "a\\b",
    "''a",
    "echo a > b;",
    "# x\n",
    "git commit -m 'x y';",
]


@pytest.mark.parametrize("piece", PIECES)
def test_the_work_grows_with_the_length_and_no_faster(piece: str) -> None:
    """R15: four times the text takes less than ten times the time.

    Quadratic work would take sixteen times the time in every round. A busy machine disturbs some of the 20 rounds,
    not all.
    """
    import time

    def spent(size: int) -> float:
        text = piece * (size // len(piece)) + "git pull pushed"
        before = time.process_time()
        met([gate("git push*")], text)
        return time.process_time() - before

    small = large = 1e9
    for _ in range(20):
        small, large = min(small, spent(15_000)), min(large, spent(60_000))
        if large < 10 * small + 0.02:
            return
    pytest.fail(f"{large:.3f} s for 60 kB, {small:.3f} s for 15 kB")


@pytest.mark.parametrize("text", ["git status 'x", 'echo "$(git log', "cat <<EOF\ngit log", "push " * TEXT_MAX])
def test_an_unreadable_command_matches_a_gate_by_one_literal_word(text: str) -> None:
    """R16, R20: a command that exceeds a limit or cannot be parsed is refused."""
    assert meets(text)
    assert not meets(text, "kubectl delete*")


def test_after_the_deadline_one_literal_word_is_enough() -> None:
    """R15: a command that the hook cannot parse before its deadline is treated like one that exceeds another limit."""
    assert met([gate("git push*")], "git status", late=lambda: True)
    assert not met([gate("git push*")], "ls", late=lambda: True)
    assert may_meet([gate("git push*"), gate("rm *")], "g'i't status") == [gate("git push*")]


def test_no_line_that_pushes_passes_the_gate(tmp_path: Path) -> None:
    """002-20, R16, R20: bash runs random lines with a `git` that only records a push. The control misses some
    pushes.
    """
    from standfast_prove.campaigns import hostile

    seen = hostile.shell(tmp_path / "lines", seed=11, lines=150)
    assert seen.bad == []
    assert seen.seen["pushed"] > 50
    assert seen.seen["released"] > 5
    assert hostile.shell(tmp_path / "control", seed=1, lines=20, blind=True).bad


# -- the resource ----------------------------------------------------------------------------------------


def copy(sf: standfast.Standfast) -> list[str]:
    document = read_copy(sf.settings.data_dir)
    return [gate["pattern"] for gates in document["stores"].values() for gate in gates]


def test_a_gate_is_in_the_store_and_in_the_copy(sf: standfast.Standfast) -> None:
    made = sf.gates.add("git   push*", why="main is protected")
    assert (made.pattern, made.need, made.repository, made.why) == (
        "git push*",
        "approval",
        sf._store.caller.keyspace.repository,
        "main is protected",
    )
    assert made.receipt is not None
    (stands,) = sf.gates.list()
    assert stands == made.replace(receipt=None)
    assert sf.gates.check("cd app && git push") == [stands]
    assert sf.gates.check("git pull") == []
    assert match(read_copy(sf.settings.data_dir), "git push", keyspaces=sf.settings.keyspaces) == [stands]
    file = Path(sf.settings.data_dir) / "gates.json"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [event.type for event in sf.journal.about(made.id)] == ["gate.added"]


def test_adding_the_same_gate_again_returns_the_first(sf: standfast.Standfast) -> None:
    first = sf.gates.add("git push*")
    again = sf.gates.add("git push*")
    assert (again.id, again.receipt) == (first.id, None)
    with pytest.raises(KeyConflict, match="needs approval, not effect"):
        sf.gates.add("git push*", need="effect")


def test_a_gate_is_removed_by_pattern_or_id_and_can_be_added_again(sf: standfast.Standfast) -> None:
    first = sf.gates.add("git push*")
    assert sf.gates.remove("git  push*").removed_us is not None
    second = sf.gates.add("git push*", need="effect")
    assert second.id != first.id
    assert sf.gates.remove(second.id[-6:]).id == second.id
    assert sf.gates.list() == []
    assert copy(sf) == []
    for name in ("git push*", second.id, "zzzzzz"):
        with pytest.raises(NotFound):
            sf.gates.remove(name)
    assert [event.type for event in sf.journal.about(second.id)] == ["gate.added", "gate.removed"]


def test_a_gate_holds_in_its_scope_or_everywhere(sf: standfast.Standfast) -> None:
    sf.gates.add("git push*", scope="shop")
    sf.gates.add("rm *", scope="")

    def here(command: str, scope: str) -> tuple[bool, bool]:
        in_copy = match(read_copy(sf.settings.data_dir), command, keyspaces=[Keyspace(scope)])
        return bool(sf.gates.check(command, scope=scope)), bool(in_copy)

    assert here("git push", "shop") == (True, True)
    assert here("git push", "till") == (False, False)
    assert here("rm x", "till") == (True, True)
    in_a_repository = Keyspace("shop", "github.com/a/b")
    assert match(read_copy(sf.settings.data_dir), "git push", keyspaces=[in_a_repository]) != []
    assert match(read_copy(sf.settings.data_dir), "git push") != [], "without a keyspace every gate counts"
    assert len(sf.gates.list(scope="till")) == 1
    assert len(sf.gates.list(everywhere=True)) == 2


def test_gates_are_listed_by_page(sf: standfast.Standfast) -> None:
    ids = [sf.gates.add(f"tool{n}").id for n in range(5)]
    first = sf.gates.list(limit=2)
    assert [one.id for one in [*first, *sf.gates.list(limit=10, after=first[-1].id)]] == ids


def test_inside_a_transaction_the_copy_waits_for_the_commit(sf: standfast.Standfast) -> None:
    with sf.transaction() as tx:
        tx.gates.add("git push*")
        assert copy(sf) == []
    assert copy(sf) == ["git push*"]

    def rolled_back() -> None:
        with sf.transaction() as tx:
            tx.gates.add("rm *")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        rolled_back()
    assert copy(sf) == ["git push*"]


def test_a_copy_that_differs_is_repaired(sf: standfast.Standfast) -> None:
    sf.gates.add("git push*")
    file = Path(sf.settings.data_dir) / "gates.json"
    assert not sf.gates.mirror()
    good = file.read_bytes()
    for damage in (None, b"", b"not json", b"[]", b'{"stores": {"sto_x": [{"pattern": 1}]}}', b"\xff\xfe"):
        if damage is None:
            file.unlink()
        else:
            file.write_bytes(damage)
            with pytest.raises(Corrupt):
                read_copy(sf.settings.data_dir)
        assert sf.gates.mirror()
        assert file.read_bytes() == good


def test_two_stores_share_one_copy(tmp_path: Path) -> None:
    with (
        standfast.open(tmp_path / "a.db", data_dir=tmp_path / "data") as one,
        standfast.open(tmp_path / "b.db", data_dir=tmp_path / "data") as other,
    ):
        one.gates.add("git push*")
        other.gates.add("rm *")
        assert sorted(copy(one)) == ["git push*", "rm *"]
        one.gates.remove("git push*")
        assert copy(one) == ["rm *"]


def test_a_private_store_does_not_change_the_gates_of_the_account(tmp_path: Path) -> None:
    with standfast.open(":memory:", data_dir=tmp_path / "data") as sf:
        sf.gates.add("git push*")
    assert not (tmp_path / "data" / "gates.json").exists()


def test_many_processes_lose_no_gate_in_the_copy(engine_url: str, tmp_path: Path) -> None:
    code = (
        "import sys, standfast\n"
        "with standfast.open(sys.argv[1], data_dir=sys.argv[2]) as sf:\n"
        "    for n in range(5): sf.gates.add(f'tool {sys.argv[3]} {n}')\n"
    )
    standfast.open(engine_url, data_dir=tmp_path / "data").close()
    children = [
        subprocess.Popen([sys.executable, "-c", code, engine_url, str(tmp_path / "data"), str(child)])
        for child in range(4)
    ]
    assert [child.wait(60) for child in children] == [0] * 4
    with standfast.open(engine_url, data_dir=tmp_path / "data") as sf:
        assert len(copy(sf)) == 20
        assert not sf.gates.mirror()


def test_killed_before_the_copy_the_next_gate_command_repairs_it(engine_url: str, tmp_path: Path) -> None:
    """The crash point is gate.before_copy."""
    code = "import sys, standfast\nstandfast.open(sys.argv[1], data_dir=sys.argv[2]).gates.add('git push*')"
    command = [sys.executable, "-c", code, engine_url, str(tmp_path / "data")]
    killed = subprocess.run(command, env={**os.environ, "STANDFAST_CRASH_AT": "gate.before_copy"})
    assert killed.returncode == -9
    with standfast.open(engine_url, data_dir=tmp_path / "data") as sf:
        assert copy(sf) == []
        assert [one.pattern for one in sf.gates.list()] == ["git push*"]
        assert sf.gates.mirror()
        assert copy(sf) == ["git push*"]


def test_a_copy_that_cannot_be_written_is_reported_and_the_gate_is_stored(tmp_path: Path) -> None:
    with standfast.open(tmp_path / "a.db", data_dir=tmp_path / "data") as sf:
        (tmp_path / "data" / "gates.json").mkdir(parents=True)
        with pytest.raises((StorageError, Corrupt), match=r"gates\.json"):
            sf.gates.add("git push*")
        assert [one.pattern for one in sf.gates.list()] == ["git push*"]


@pytest.mark.parametrize(
    "arguments",
    [
        {"pattern": ""},
        {"pattern": "  \n "},
        {"pattern": "x" * 501},
        {"pattern": "a\x1b[31mb"},
        {"pattern": "git", "need": "luck"},
        {"pattern": "git", "why": "\0"},
        {"pattern": "git", "why": "x" * 1001},
        {"pattern": "git", "scope": "a\0b"},
        {"pattern": "git", "scope": "\ud800"},
    ],
)
def test_bad_input_is_refused_by_name(sf: standfast.Standfast, arguments: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        sf.gates.add(**arguments)
    assert sf.gates.list(everywhere=True) == []


def test_there_is_a_most_of_gates(sf: standfast.Standfast, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("standfast.ledger.gates.GATES_MAX", 2)
    sf.gates.add("a")
    sf.gates.add("b")
    with pytest.raises(InvalidInput, match="there are 2 gates, which is the limit"):
        sf.gates.add("c")


def test_the_copy_has_only_what_a_hook_needs(sf: standfast.Standfast) -> None:
    sf.gates.add("git push*", why="w")
    document = json.loads((Path(sf.settings.data_dir) / "gates.json").read_text())
    ((rows),) = document["stores"].values()
    assert document["schema_version"] == 1
    assert set(rows[0]) == {"id", "scope", "repository", "pattern", "need", "why", "agent", "created_us", "removed_us"}


@pytest.mark.parametrize(
    "line",
    [
        "gi\\\nt push",
        "git pu\\\nsh",
        "git pu$''sh",
        'git pu$""sh',
        "git pu``sh",
        "git pu$()sh",
        "git pu$@sh",
        "git p\0ush",
        'git pu"$@"sh origin',
        'git pu"${x}"sh',
        "git pu${x:-}sh",
        "git pu$(true)sh",
        "git pu`true`sh origin",
        'git p"$1"ush',
        'git pu$x"sh"',
        'sh -c "git pu$1sh"',
    ],
)
def test_empty_expansions_inside_a_word_do_not_split_it(line: str) -> None:
    """R20: for a shell, a line continuation, empty quotes and empty expansions do not split a word."""
    assert met([Gate("gat_x", "", "", "git push*", "approval", None, "ada", 0)], line)
