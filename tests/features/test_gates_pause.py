"""Gates that a person pauses, gates of a preset, and gates for which Claude Code asks its user."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import standfast
from standfast.clock import HOUR_US, ManualClock
from standfast.errors import InvalidInput, KeyConflict, NotFound
from standfast.interchange.hooks import payloads
from standfast.ledger.gate_patterns import Gate, met
from standfast.ledger.gate_presets import PRESETS
from tests.hooks import PATIENT, bash, enter, payload
from tests.interfaces.test_hooks_gates import Agent


def types(sf: standfast.Standfast) -> list[str]:
    return [event.type for event in sf.journal.tail(limit=200).events if event.type.startswith("gate.")]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def later(engine_url: str, tmp_path: Path, clock: ManualClock) -> Any:
    with standfast.open(engine_url, data_dir=tmp_path / "data", clock=clock) as sf:
        yield sf


def test_a_paused_gate_stops_nothing_until_the_pause_ends(later: standfast.Standfast, clock: ManualClock) -> None:
    """002-18: the journal has the exemption with its reason and its end. `gate list` shows it while it lasts."""
    later.gates.add("git push*")
    made = later.gates.pause("git push*", for_="2h", why="release 2.0")
    assert made.paused_until_us == clock.now_us() + 2 * HOUR_US
    assert later.gates.check("git push") == []
    assert Agent(later).call(bash("PreToolUse", "git push")) == ""
    assert [gate.paused_until_us for gate in later.gates.list()] == [made.paused_until_us]
    paused = [event for event in later.journal.tail(limit=200).events if event.type == "gate.paused"]
    assert [event.data for event in paused] == [
        {"pattern": "git push*", "until_us": made.paused_until_us, "why": "release 2.0"}
    ]
    clock.advance(2 * HOUR_US)
    assert [gate.pattern for gate in later.gates.check("git push")] == ["git push*"]
    assert Agent(later).call(bash("PreToolUse", "git push", session="s2"))


def test_resume_ends_a_pause_and_a_second_pause_replaces_the_end(sf: standfast.Standfast) -> None:
    gate = sf.gates.add("git push*")
    first = sf.gates.pause(gate.id, for_="1h", why="hotfix")
    second = sf.gates.pause(gate.id[-6:], for_="30m", why="hotfix")
    assert (second.paused_until_us or 0) < (first.paused_until_us or 0)
    assert sf.gates.resume("git push*").paused_until_us is None
    assert sf.gates.check("git push")
    assert sf.gates.resume("git push*").receipt is None  # there is no pause to end, so the journal gets no row
    assert types(sf) == ["gate.added", "gate.paused", "gate.paused", "gate.resumed"]


@pytest.mark.parametrize(
    ("gate", "given", "error"),
    [
        ("git push*", {"for_": "8d", "why": "x"}, InvalidInput),
        ("git push*", {"for_": 0, "why": "x"}, InvalidInput),
        ("git push*", {"for_": "1h", "why": ""}, InvalidInput),
        ("git pull*", {"for_": "1h", "why": "x"}, NotFound),
    ],
)
def test_a_pause_has_a_gate_a_bound_and_a_reason(
    sf: standfast.Standfast, gate: str, given: dict[str, Any], error: type[Exception]
) -> None:
    sf.gates.add("git push*")
    with pytest.raises(error):
        sf.gates.pause(gate, **given)
    assert types(sf) == ["gate.added"]


def test_a_hook_without_the_store_counts_no_pause(tmp_path: Path) -> None:
    """Only the store knows whether a pause has ended. A hook without the store refuses the command as if there were
    no pause.
    """
    data = tmp_path / "data"
    with standfast.open(data_dir=data) as sf:
        sf.gates.add("git push*", scope="")
        sf.gates.pause("git push*", for_="1h", why="release", scope="")
    assert enter("claude-code", bash("PreToolUse", "git push"), data, program=("-c", PATIENT)).stdout == b""
    for name in ("standfast.db", "standfast.db-wal", "standfast.db-shm"):
        (data / name).unlink(missing_ok=True)
    (data / "standfast.db").write_bytes(b"this is no database" * 1000)
    assert b"deny" in enter("claude-code", bash("PreToolUse", "git push"), data).stdout


# -- presets -----------------------------------------------------------------------------------------

MET = {
    "git-push": [
        "git push origin HEAD --force-with-lease",
        "cd app && git -C . push",
        "git subtree push --prefix docs origin pages",
        "git lfs push origin main",
        "gh pr merge 12 --squash",
        "jj git push",
    ],
    "publish": [
        "npm publish --access public",
        "yarn npm publish",
        "pnpm -r publish",
        "python -m twine upload dist/*",
        "uv publish",
        "cargo publish -p core",
        "gem push a.gem",
        "docker push app:1",
        "docker buildx build . --push -t app",
        "./gradlew publish",
        "gradle :lib:publishToMavenCentral publish",
        "mvn clean deploy",
        "dotnet nuget push a.nupkg",
        "gh release create v1",
    ],
    "terraform": [
        "terraform apply -auto-approve",
        "terraform -chdir=prod destroy",
        "terraform state rm module.db",
        "tofu apply plan.out",
        "terragrunt run-all apply",
        "TF_LOG=1 terraform import aws_s3_bucket.b name",
    ],
    "kubectl-delete": [
        "kubectl delete pod web-1",
        "kubectl -n prod delete deploy/web",
        "kubectl --context prod drain node-1",
        "helm -n prod uninstall web",
        "oc delete project shop",
    ],
}
PASSED = {
    "git-push": ["git status", "git stash push", "git pull --rebase", "gh pr view 12", "git commit -m 'git push'"],
    "publish": ["npm run build", "npm pack", "docker build .", "cargo build", "twine check dist/*", "mvn test"],
    "terraform": ["terraform plan", "terraform fmt", "terraform state list", "tofu validate", "terraform init"],
    "kubectl-delete": ["kubectl get pods", "kubectl apply -f web.yaml", "helm list", "kubectl logs web-1"],
}


def gates_of(preset: str) -> list[Gate]:
    return [Gate("gat_x", "", "", pattern, "approval", None, "ada", 0) for pattern in PRESETS[preset]]


@pytest.mark.parametrize(("preset", "line"), [(name, line) for name, lines in MET.items() for line in lines])
def test_a_preset_matches_the_commands_of_its_name(preset: str, line: str) -> None:
    assert met(gates_of(preset), line)


@pytest.mark.parametrize(("preset", "line"), [(name, line) for name, lines in PASSED.items() for line in lines])
def test_a_preset_passes_what_changes_nothing_outside(preset: str, line: str) -> None:
    assert met(gates_of(preset), line) == []


def test_a_preset_is_added_as_a_whole_or_not_at_all(sf: standfast.Standfast) -> None:
    made = sf.gates.add_preset("kubectl-delete", why="ask the people on call")
    assert [gate.pattern for gate in made] == list(PRESETS["kubectl-delete"])
    assert {gate.why for gate in made} == {"ask the people on call"}
    sf.gates.add("tofu apply*", need="effect")
    with pytest.raises(KeyConflict):
        sf.gates.add_preset("terraform")
    assert sf.gates.check("terraform apply") == []
    with pytest.raises(InvalidInput, match="git-push, publish, terraform, kubectl-delete"):
        sf.gates.add_preset("everything")
    assert set(PRESETS) == set(MET) == set(PASSED)


# -- ask ---------------------------------------------------------------------------------------------


def answer(data: Path, entrypoint: str, agent: str = "claude-code", **more: Any) -> dict[str, str]:
    given = bash("PreToolUse", "git push", **more)
    ran = enter(agent, given, data, program=("-c", PATIENT), CLAUDE_CODE_ENTRYPOINT=entrypoint)
    said: dict[str, str] = json.loads(ran.stdout)["hookSpecificOutput"]
    return said


def test_claude_code_asks_its_user_and_a_headless_session_is_refused_with_the_approval(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with standfast.open(data_dir=data) as sf:
        assert sf.gates.add("git push*", need="ask", why="main is protected", scope="").need == "ask"
    asked = answer(data, "cli")
    assert asked["permissionDecision"] == "ask"
    assert "main is protected" in asked["permissionDecisionReason"]
    done = {**bash("PostToolUse", "git push"), "tool_response": {"stdout": "done"}}
    assert enter("claude-code", done, data, program=("-c", PATIENT)).stdout == b""
    refused = {who: answer(data, *who, id="t2") for who in [("sdk-cli", "claude-code"), ("cli", "codex")]}
    with standfast.open(data_dir=data) as sf:
        assert types(sf)[:3] == ["gate.added", "gate.asked", "gate.passed"]
        ids = {approval.id[-6:] for approval in sf.approvals.list()}
    assert {one["permissionDecision"] for one in refused.values()} == {"deny"}
    assert {id for id in ids for one in refused.values() if f"approve {id}" in one["permissionDecisionReason"]} == ids
    assert len(ids) == 2


def test_a_refused_call_that_its_agent_reports_as_failed_has_not_passed(tmp_path: Path) -> None:
    """opencode reports each call that its plugin refused, with the reason as its error."""
    data = tmp_path / "data"
    with standfast.open(data_dir=data) as sf:
        sf.gates.add("git push*", need="ask", scope="")
    assert json.loads(enter("opencode", bash("PreToolUse", "git push"), data, program=("-c", PATIENT)).stdout)
    failed = {**bash("PostToolUseFailure", "git push"), "error": "'git push*' needs a person's approval"}
    enter("opencode", failed, data, program=("-c", PATIENT))
    with standfast.open(data_dir=data) as sf:
        assert "gate.held" in types(sf)
        assert "gate.passed" not in types(sf)


def test_gemini_cli_shows_its_user_why_a_call_is_refused(tmp_path: Path) -> None:
    """It hides a refused call and its reason, and shows `systemMessage`."""
    data = tmp_path / "data"
    with standfast.open(data_dir=data) as sf:
        sf.gates.add("git push*", scope="")
    given = payload("BeforeTool", tool_name="run_shell_command", tool_input={"command": "git push"})
    said = json.loads(enter("gemini-cli", given, data, program=("-c", PATIENT)).stdout)
    assert said["systemMessage"] == said["reason"]
    assert "standfast approve" in said["reason"]


def test_only_claude_code_with_a_person_in_front_of_it_can_ask() -> None:
    seen = {one: payloads.can_ask("claude-code", {"CLAUDE_CODE_ENTRYPOINT": one}) for one in ("cli", "sdk-py", "mcp")}
    assert seen == {"cli": True, "sdk-py": False, "mcp": False}
    assert not payloads.can_ask("claude-code", {})
    assert not payloads.can_ask("gemini-cli", {"CLAUDE_CODE_ENTRYPOINT": "cli"})


def test_a_gate_that_needs_an_approval_counts_before_one_that_asks() -> None:
    gates = [
        Gate("gat_x", "", "", "git push*", "ask", None, "ada", 0),
        Gate("gat_y", "", "", "git*", "approval", None, "a", 0),
    ]
    assert [gate.need for gate in met(gates, "git push")] == ["approval", "ask"]


def test_outside_of_hooks_ask_is_an_approval(sf: standfast.Standfast) -> None:
    sf.gates.add("git push*", need="ask")
    with pytest.raises(KeyConflict, match="needs ask, not approval"):
        sf.gates.add("git push*")
    assert sf.gates.add("git push*", need="ask").receipt is None
    assert "standfast approve" in Agent(sf).call(bash("PreToolUse", "git push"))
    assert list(sf.rows("SELECT need, via FROM gate WHERE pattern = 'git push*'")) == [
        {"need": "approval", "via": "ask"}
    ]
