"""The table of known actions: every entry is complete and documented, and parses a command line or refuses it."""

from __future__ import annotations

import json
import os
import threading
import time
from base64 import b64encode
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

import standfast
from standfast.actions import deployments, files, git, github, http, table
from standfast.actions.action import Action, Answer, CannotTell, Place
from standfast.ledger.effects.declared import Declared
from standfast_prove.probes import table as probe_table
from standfast_prove.probes.scenes import SCENES
from standfast_prove.probes.server import Outside

READY = {
    effect.name
    for module in (deployments, files, git, github, http)
    for effect in vars(module).values()
    if isinstance(effect, Declared)
}
"""The effects of `standfast.actions`. The list of declared effects also has those of other tests."""

PAGE = Path(__file__).resolve().parents[2] / "docs/concepts/actions.md"


def around(argv: list[str], directory: Path) -> table.Known:
    known = table.recognised(argv, str(directory))
    assert known is not None, argv
    return known


def test_the_measured_table_is_made_from_the_results() -> None:
    """002-15: every scene was run, no outcome was wrong, and at least 90 % of the doubts were settled.

    If the page differs: python -m standfast_prove.probes.table --write docs/concepts/actions.md
    """
    results = probe_table.read(PAGE.parents[2] / probe_table.RESULTS)
    assert probe_table.block(results) in PAGE.read_text()
    rows = [row for one in results for row in one.rows]
    assert {row["scene"] for row in rows} == set(SCENES)
    assert [row for row in rows if row["wrong"] or row["bad"]] == []
    assert sum(row["settled"] for row in rows) >= 0.9 * sum(row["doubts"] for row in rows)


@pytest.mark.parametrize("action", list(table.actions()), ids=lambda action: action.name)
def test_every_entry_is_in_the_docs_with_its_settle_and_reason(action: Action) -> None:
    cells = (f"`{action.name}`", action.by, action.cannot, action.compensate, action.settle, action.settle_why)
    assert f"| {' | '.join(cells)} |" in PAGE.read_text()
    assert (action.find is None) == (action.looks is None)
    assert set(action.tools) <= READY


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("gh pr create -t x -b y --head fix --base main", "gh pr create"),
        ("gh pr create --fill", "gh pr create"),
        ("gh pr create --web", None),
        ("gh pr merge 7 --squash", "gh pr merge"),
        ("gh pr comment https://github.com/a/b/pull/7 -b hi", "gh pr comment"),
        ("gh pr comment 7 --editor", None),
        ("gh pr comment 7 -F -", None),
        ("gh issue create -t x -b y -l bug", "gh issue create"),
        ("gh issue create -t x", None),
        ("gh release create v1 dist.tgz --notes n", "gh release create"),
        ("gh release create v1 --draft", None),
        ("npm publish --access public", "npm publish"),
        ("npm publish --dry-run", None),
        ("npm install", None),
        ("twine upload dist/*", "twine upload"),
        ("twine upload --config-file x dist/*", None),
        ("uv publish", "uv publish"),
        ("docker push ghcr.io/a/b:1", "docker push"),
        ("docker push --all-tags ghcr.io/a/b", None),
        ("podman push --tls-verify=false a localhost:5000/a", "podman push"),
        ("terraform -chdir=infra apply -auto-approve tfplan", "terraform apply"),
        ("terraform apply -destroy", None),
        ("kubectl apply -f deploy.yaml -n shop", "kubectl apply"),
        ("kubectl apply -f -", None),
        ("kubectl delete -f deploy.yaml", None),
        ("curl -X POST -H Idempotency-Key:7 -d a=1 https://api.example.com/v1/charges", "POST with an Idempotency-Key"),
        ("curl -X POST -d a=1 https://api.example.com/v1/charges", None),
        ("curl -d hello https://hooks.slack.com/services/x", "chat message"),
        ("mail -s hello a@example.com", "e-mail"),
        ("cp a b", "file written"),
        ("cp -r a b", None),
        ("/usr/bin/git push origin main", "git push"),
    ],
)
def test_a_command_line_is_understood_whole_or_not_at_all(line: str, name: str | None, tmp_path: Path) -> None:
    """002-15: if the table does not know an option, the command has no probe."""
    known = table.recognised(line.split(), str(tmp_path))
    assert (None if known is None else known.action.name) == name


def test_an_action_names_what_its_probe_cannot_know(tmp_path: Path) -> None:
    """002-15: e-mail and chat have no probe, and the answer names the reason."""
    facts = around(["mail", "-s", "x", "a@example.com"], tmp_path).before()
    found = table.check(facts, Place(str(tmp_path)))
    assert found == Answer(None, "the probe cannot know anything: an e-mail that was handed over cannot be looked up")


def test_facts_are_plain_json_and_small(tmp_path: Path) -> None:
    (tmp_path / "package.json").write_text(json.dumps({"name": "@a/b", "version": "1.2.3"}))
    facts = around(["npm", "publish"], tmp_path).before()
    assert facts == {
        "action": "npm publish",
        "dir": str(tmp_path),
        "name": "@a/b",
        "version": "1.2.3",
        "registry": None,
    }


# -- files ---------------------------------------------------------------------------------------------------


def test_a_copied_file_is_known_by_its_hash(tmp_path: Path) -> None:
    """001-34."""
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_bytes(b"a" * 100 + b"b" * 100)
    facts = around(["cp", "source", "target"], tmp_path).before()

    def answer(content: bytes | None) -> bool | None:
        target.unlink(missing_ok=True)
        if content is not None:
            target.write_bytes(content)
        return table.check(facts, Place(str(tmp_path))).happened

    assert answer(None) is False
    assert answer(b"a" * 100) is False, "a part of it"
    assert answer(source.read_bytes()) is True
    assert answer(b"other") is None


def test_a_file_is_written_once_and_found_again(sf: standfast.Standfast, tmp_path: Path) -> None:
    """002-11."""
    path = str(tmp_path / "notes.md")
    with sf.session("notes"):
        files.write(path, "one")
    assert files.find_file(path, "one")
    assert not files.find_file(path, "two")
    assert list(tmp_path.glob("notes.md*")) == [tmp_path / "notes.md"]


# -- terraform and kubectl, by recorded formats ----------------------------------------------------------------

STATE = {
    "version": 4,
    "terraform_version": "1.11.4",
    "serial": 3,
    "lineage": "5b3a",
    "resources": [
        {"mode": "data", "type": "http", "name": "d", "instances": [{}]},
        {
            "mode": "managed",
            "type": "terraform_data",
            "name": "one",
            "instances": [{"schema_version": 0, "attributes": {}}],
        },
        {
            "module": 'module.net["a"]',
            "mode": "managed",
            "type": "null_resource",
            "name": "two",
            "instances": [{"index_key": 0}, {"index_key": "b", "status": "tainted"}],
        },
    ],
}
PLAN = {
    "format_version": "1.2",
    "resource_changes": [
        {"address": "terraform_data.one", "mode": "managed", "change": {"actions": ["create"]}},
        {"address": "terraform_data.old", "mode": "managed", "change": {"actions": ["delete"]}},
        {"address": "terraform_data.new", "mode": "managed", "change": {"actions": ["delete", "create"]}},
        {"address": "terraform_data.same", "mode": "managed", "change": {"actions": ["no-op"]}},
        {"address": "data.http.d", "mode": "data", "change": {"actions": ["read"]}},
    ],
}


def test_a_recorded_state_and_plan_of_terraform_are_read() -> None:
    """The format of terraform 1.11: `terraform state pull`, `terraform show -json PLAN`."""
    found = {"terraform_data.one": True, 'module.net["a"].null_resource.two[0]': True}
    found['module.net["a"].null_resource.two["b"]'] = False
    assert deployments.read_state(STATE) == (3, "5b3a", found)
    changes = {"terraform_data.one": "create", "terraform_data.old": "delete", "terraform_data.new": "update"}
    assert deployments.read_plan(PLAN) == changes
    with pytest.raises(CannotTell, match="format 5"):
        deployments.read_state({**STATE, "version": 5})


def test_recorded_objects_of_kubectl_are_compared() -> None:
    """The format of `kubectl get -o json`. No API server was available to run this against."""

    def one(kind: str, name: str, generation: int, applied: str | None) -> dict[str, object]:
        notes = {"kubectl.kubernetes.io/last-applied-configuration": applied} if applied else {}
        about = {"name": name, "namespace": "shop", "generation": generation, "annotations": notes}
        return {"apiVersion": "apps/v1" if kind == "Deployment" else "v1", "kind": kind, "metadata": about}

    was = {**deployments.read_objects({"kind": "List", "items": [one("Deployment", "web", 3, '{"image":1}')]})}
    assert list(was) == ["deployment.apps/web"]
    before: dict[str, str | None] = {**was, "service/web": None}
    service = one("Service", "web", 1, "{}")
    assert deployments.compared(before, was).happened is False
    changed = deployments.read_objects({"items": [one("Deployment", "web", 4, '{"image":2}'), service]})
    assert deployments.compared(before, changed).happened is True
    half = deployments.read_objects({"items": [one("Deployment", "web", 4, '{"image":2}')]})
    assert deployments.compared(before, half).happened is None
    assert deployments.read_objects(service) == {"service/web": changed["service/web"]}
    assert deployments.read_objects({}) == {}


# -- GitHub and HTTP, against a small server of ours -------------------------------------------------------------


@pytest.fixture
def outside(monkeypatch: pytest.MonkeyPatch) -> Iterator[Outside]:
    with Outside() as server:
        monkeypatch.setenv("GITHUB_API_URL", server.url)
        monkeypatch.setenv("GITHUB_TOKEN", "t")
        yield server


def work(sf: standfast.Standfast, server: Outside) -> None:
    with sf.session("fix-42"):
        pr = github.open_pr("a/b", "fix-42", "main", title="Fix", body="text")
        github.comment("a/b", pr.number, "looks good", topic="review")
        github.open_issue("a/b", "Follow up", "text", topic="follow-up")
        assert github.merge_pr("a/b", pr.number) == f"{pr.number:040x}"
        assert github.create_release("a/b", "v42").tag == "v42"
        paid = http.post(
            f"{server.url}/v1/charges", {"amount": 1200}, name="charge", form=True, headers={"X": "secret"}
        )
        assert paid.body["object"] == "charge"


DONE = ["pull a:fix-42", "comment 1 looks good", "issue Follow up", "merge 1", "release v42", "payment 1200"]


def test_effects_of_github_and_http_happen_once(sf: standfast.Standfast, outside: Outside) -> None:
    """002-20: a second run of the same program sends nothing."""
    work(sf, outside)
    work(sf, outside)
    assert outside.log == DONE
    assert "secret" not in json.dumps([one.intent for one in sf.effects.list()]), "headers are not recorded"


@pytest.mark.parametrize("lost", range(1, 7))
def test_an_effect_whose_answer_is_lost_is_found_and_not_sent_again(
    sf: standfast.Standfast, outside: Outside, lost: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """001-34, 002-15, 002-20: the probe finds the request that arrived. A payment is sent again with its key."""
    from standfast.actions import web

    answers = []

    def reply(*args: object, **kwargs: object) -> object:
        answers.append(None)
        found = real(*args, **kwargs)
        if len(answers) == lost:
            raise TimeoutError("the answer is lost")
        return found

    real = web.send
    monkeypatch.setattr(web, "send", reply)
    with pytest.raises(TimeoutError):
        work(sf, outside)
    assert sf.effects.in_doubt()
    work(sf, outside)
    assert outside.log == DONE


def test_find_functions_of_github_return_none_or_raise(outside: Outside, monkeypatch: pytest.MonkeyPatch) -> None:
    """002-15: the outcome is unknown only for a closed pull request or a server that does not answer."""
    assert github.find_pr("a/b", "fix", "main") is None
    assert github.find_release("a/b", "v1") is None
    made = outside.pull("a/b", "fix", "main", "t", "")
    found = github.find_pr("a/b", "fix", "main")
    assert found is not None
    assert found.number == made["number"]
    assert github.find_merge("a/b", made["number"]) is None
    outside.merge(made["number"])
    with pytest.raises(CannotTell, match="is closed"):
        github.find_pr("a/b", "fix", "main")
    with pytest.raises(ValueError, match="is not a repository"):
        github.find_pr("a b", "fix", "main")
    monkeypatch.setenv("GITHUB_API_URL", "http://127.0.0.1:9")
    with pytest.raises(CannotTell, match="did not answer"):
        github.find_release("a/b", "v1")


def test_lookups_of_github_serve_as_find_of_your_own_effects(sf: standfast.Standfast, outside: Outside) -> None:
    """002-15, 002-20: the example in the docs. A lost answer is found by the branch, and nothing is sent again."""

    @standfast.effect("github.open_pr_of_ours", by=("repo", "branch"), find=github.find_pr)
    def open_pr(repo: str, branch: str, title: str, body: str) -> github.PullRequest:
        outside.pull(repo, branch, "main", title, body)
        raise TimeoutError("the answer is lost")

    @standfast.effect("github.release_of_ours", by=("repo", "tag"), find=github.find_release)
    def publish(repo: str, tag: str) -> github.Release:
        outside.release(repo, tag, tag, "")
        raise TimeoutError("the answer is lost")

    for act in (lambda: open_pr("a/b", "fix-42", title="Fix", body="text"), lambda: publish("a/b", "v42")):
        with sf.session("fix-42"), pytest.raises(TimeoutError):
            act()
        with sf.session("fix-42"):
            found = act()
        assert found.url.startswith(outside.url)
    assert outside.log == ["pull a:fix-42", "release v42"]
    assert not sf.effects.in_doubt()


def test_several_open_pull_requests_of_a_branch_are_unknown_without_the_base(outside: Outside) -> None:
    """002-15."""
    outside.pull("a/b", "fix", "main", "t", "")
    outside.pulls.append({**outside.pulls[0], "number": 2, "base": {"ref": "next", "label": "a:next"}})
    with pytest.raises(CannotTell, match="2 open pull requests: name the base"):
        github.find_pr("a/b", "fix")
    found = github.find_pr("a/b", "fix", "next")
    assert found is not None
    assert found.number == 2


def test_a_refused_post_is_known_not_applied(sf: standfast.Standfast, outside: Outside) -> None:
    with sf.session("s"), pytest.raises(standfast.NotApplied, match="404"):
        http.post(f"{outside.url}/nothing", {}, name="x")
    assert not sf.effects.in_doubt()
    assert http.find(f"{outside.url}/nothing") is None
    assert http.find(f"{outside.url}/repos/a/b")["full_name"] == "a/b"


@pytest.mark.parametrize("url", ["file:///etc/passwd", "ftp://x/y", "http://x/a b", "", "javascript:1"])
def test_only_http_is_read(url: str) -> None:
    with pytest.raises(CannotTell):
        http.find(url)


def test_the_index_of_an_upload_is_read_beside_it(tmp_path: Path) -> None:
    (tmp_path / "dist").mkdir()
    for name in ("my_pkg-1.0.tar.gz", "my_pkg-1.0-py3-none-any.whl"):
        (tmp_path / "dist" / name).write_text(name)
    facts = around(["twine", "upload", "--repository-url", "https://u:p@host/pypi/", "dist/*"], tmp_path).before()
    assert facts["index"] == "https://host/pypi/simple/", "no account is stored"
    assert facts["name"] == "my-pkg"
    assert sorted(facts["files"]) == ["my_pkg-1.0-py3-none-any.whl", "my_pkg-1.0.tar.gz"]
    assert around(["uv", "publish"], tmp_path).before()["index"] == "https://pypi.org/simple/"


def test_no_secret_of_a_command_line_is_stored(tmp_path: Path) -> None:
    (tmp_path / "dist").mkdir()
    (tmp_path / "dist" / "p-1.0.tar.gz").write_text("x")
    for argv in (
        ["twine", "upload", "-u", "me", "-p", "hunter2", "dist/*"],
        ["curl", "-X", "POST", "-u", "me:hunter2", "-H", "Idempotency-Key: 1", "-d", "hunter2", "https://a.example/x"],
    ):
        assert "hunter2" not in json.dumps(around(argv, tmp_path).before())


def test_a_stored_row_sends_no_token_to_a_host_of_its_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """000-42: gh would send the caller's enterprise token to any host."""
    monkeypatch.setenv("GH_ENTERPRISE_TOKEN", "secret")
    monkeypatch.delenv("GH_HOST", raising=False)
    facts = {"action": "gh pr merge", "host": "evil.example", "repo": "a/b", "number": 1, "auto": False}
    found = table.check(facts, Place(str(tmp_path), time.time_ns() // 1000))
    assert found.happened is None
    assert found.evidence.endswith("set GH_HOST=evil.example")


MARKED = "LGTM <!-- standfast:review-1 -->"


@pytest.mark.parametrize(
    ("command", "written", "happened"),
    [
        (["comment", "1", "-b", MARKED], ["LGTM", MARKED], True),
        (["comment", "1", "-b", MARKED], [f"{MARKED} Edited."], True),
        (["comment", "1", "-F", "marked"], [f"Edited. {MARKED}"], True),
        (["comment", "1", "-b", MARKED], ["LGTM", "LGTM <!-- standfast:review-10 -->"], False),
        (["comment", "1", "-b", MARKED], [MARKED, MARKED], None),
        (["comment", "1", "-b", "LGTM"], ["LGTM"], True),
        (["comment", "1", "-b", "LGTM"], ["LGTM", "LGTM"], None),
        (["comment", "1", "-b", "LGTM"], ["LGTM "], True),
        (["comment", "1", "-b", "LGTM"], ["no"], False),
        (["comment", "1", "-b", "LGTM"], ["Edited."], None),
        (["create", "-t", "bug", "-b", MARKED], [f"Edited. {MARKED}"], True),
        (["create", "-t", "bug", "-b", MARKED], ["Edited."], False),
        (["create", "-t", "bug", "-b", "LGTM"], ["Edited."], None),
    ],
)
def test_a_text_is_found_by_its_marker_or_by_its_hash_and_time(
    command: list[str], written: list[str], happened: bool | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """002-15: a marker is found in an edited text. Without a marker, an edited text of that time is unknown."""
    with Outside() as server:
        (tmp_path / "gh").write_text(f'#!/bin/sh\nexec curl -si -X "$4" "http://localhost:{server.port}/$5"\n')
        (tmp_path / "gh").chmod(0o755)
        (tmp_path / "marked").write_text(MARKED)
        monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
        sent_us = time.time_ns() // 1000
        facts = around(["gh", "issue", *command, "-R", "a/b"], tmp_path).before()
        for text in written:
            made = server.comment(1, text) if command[0] == "comment" else server.issue("a/b", "bug", text)
            made["updated_at"] = "2099-01-01T00:00:00Z" if "Edited." in text else made["created_at"]
        found = table.check(facts, Place(str(tmp_path), sent_us))
    assert found.happened is happened, found.evidence


class PrivateRegistry(BaseHTTPRequestHandler):
    """A registry that answers only to the login me:hunter2, without a token service."""

    def do_GET(self) -> None:  # http.server calls this name
        known = self.headers.get("Authorization") == f"Basic {b64encode(b'me:hunter2').decode()}"
        body = json.dumps({"config": {"digest": "sha256:" + "a" * 64}}).encode()
        self.send_response(200 if known else 401)
        self.send_header("Docker-Content-Digest", "sha256:" + "b" * 64)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        """A test prints nothing."""


@pytest.mark.parametrize(
    ("auth", "happened"),
    [
        ({"auth": b64encode(b"me:hunter2").decode()}, True),
        ({"username": "me", "password": "hunter2"}, True),
        ({}, None),
    ],
)
def test_the_login_of_a_registry_comes_only_from_the_environment(
    auth: dict[str, str], happened: bool | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """002-15: docker's own file is not read. Without a login, the probe of a private registry answers "unknown"."""
    with ThreadingHTTPServer(("127.0.0.1", 0), PrivateRegistry) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        host = f"127.0.0.1:{server.server_port}"
        (tmp_path / "config.json").write_text(
            json.dumps({"auths": {host: {"auth": b64encode(b"me:hunter2").decode()}}})
        )
        monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
        monkeypatch.setenv("DOCKER_AUTH_CONFIG", json.dumps({"auths": {host: auth}}))
        (tmp_path / "docker").write_text(f"#!/bin/sh\necho sha256:{'a' * 64}\n")
        (tmp_path / "docker").chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
        facts = around(["docker", "push", f"{host}/a/b:1"], tmp_path).before()
        found = table.check(facts, Place(str(tmp_path), time.time_ns() // 1000))
        server.shutdown()
    assert found.happened is happened, found.evidence
    assert happened or found.evidence.startswith("the registry answered 401: set DOCKER_AUTH_CONFIG")
