"""A probe only reads: the test runs the probe of each action and compares the outside systems before and after."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from standfast.actions import table
from standfast.actions.action import Action, Place
from standfast_prove.probes.server import Outside
from tests.repositories import AUTHOR, Repository

ACTIONS = list(table.actions())
LINES = {
    "git push": "git push origin main",
    "git commit": "git commit -a -m two",
    "git tag": "git tag v1",
    "gh pr create": "gh pr create -t x -b y --head fix --base main -R HOST/a/b",
    "gh pr merge": "gh pr merge 1 --merge -R HOST/a/b",
    "gh pr comment": "gh pr comment 1 -b hi -R HOST/a/b",
    "gh issue comment": "gh issue comment 2 -b hi -R HOST/a/b",
    "gh issue create": "gh issue create -t x -b y -R HOST/a/b",
    "gh release create": "gh release create v1 -n notes -R HOST/a/b",
    "npm publish": "npm publish",
    "twine upload": "twine upload --repository-url http://HOST/pypi/ dist/p-1.0.tar.gz",
    "uv publish": "uv publish --publish-url http://HOST/pypi/ dist/p-1.0.tar.gz",
    "docker push": "docker push HOST/p:1",
    "podman push": "podman push HOST/p:1",
    "terraform apply": "terraform apply tfplan",
    "kubectl apply": "kubectl apply -f deploy.yaml",
    "file written": "cp file copy",
}
"""A command of each action that has a probe."""
READS = re.compile(
    r"gh api --include --method GET |npm view |(docker|podman) image inspect |terraform (state pull|show -json )"
    r"|kubectl (create --dry-run=client |get )"
)
PROGRAM = """#!/bin/sh
echo "$(basename "$0") $*" >> LOG
case "$(basename "$0") $1 $2" in
"gh api "*) exec curl -si -X "$4" "http://HOST/$5" ;;
"docker image inspect" | "podman image inspect") echo sha256:ID ;;
"terraform state pull") echo '{"version": 4, "serial": 3, "lineage": "l", "resources": []}' ;;
"terraform show "*) echo '{"resource_changes": []}' ;;
"kubectl create "*) echo '{"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}}' ;;
esac
"""
"""Each program of a probe: it notes its words, and answers as the real one does if nothing has arrived."""


class Scenery(NamedTuple):
    shop: Repository
    server: Outside
    log: Path

    @property
    def host(self) -> str:
        return f"localhost:{self.server.port}"

    def outside(self) -> object:
        """Everything that a probe could have changed."""
        refs = [self.shop("for-each-ref"), self.shop("ls-remote", "origin"), self.shop("status", "--porcelain")]
        files = sorted((str(path), path.read_bytes()) for path in self.shop.path.glob("[!.]*") if path.is_file())
        return json.dumps([refs, self.server.log, self.server.pulls, self.server.issues, self.server.comments]), files


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scenery]:
    shop = Repository(tmp_path)
    (shop.path / "dist").mkdir()
    (shop.path / "dist/p-1.0.tar.gz").write_text("x")
    (shop.path / "package.json").write_text('{"name": "p", "version": "1.0.0"}')
    with Outside() as server:
        server.pull("a/b", "other", "main", "t", "")
        server.issue("a/b", "t", "")
        found = Scenery(shop, server, tmp_path / "log")
        found.log.touch()
        text = PROGRAM.replace("LOG", str(found.log)).replace("HOST", found.host).replace("ID", "1" * 64)
        (tmp_path / "bin").mkdir()
        for name in ("gh", "npm", "docker", "podman", "terraform", "kubectl"):
            (tmp_path / "bin" / name).write_text(text)
            (tmp_path / "bin" / name).chmod(0o755)
        variables = {**AUTHOR, "PATH": f"{tmp_path}/bin:{os.environ['PATH']}", "GH_HOST": found.host}
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        yield found


@pytest.mark.parametrize("action", ACTIONS, ids=lambda action: action.name)
def test_a_probe_leaves_the_outside_as_it_was(action: Action, place: Scenery) -> None:
    """002-15: a probe sends nothing. Servers get only GET and HEAD, programs are called to read, refs are unchanged."""
    before = place.outside()
    where = Place(str(place.shop.path), time.time_ns() // 1000)
    if action.find is None:
        assert table.check({"action": action.name}, where).happened is None
        assert (place.log.read_text(), place.server.asked) == ("", [])
        return
    known = table.recognised(LINES[action.name].replace("HOST", place.host).split(), str(place.shop.path))
    assert known is not None
    assert known.action.name == action.name
    answer = table.check(known.before(), where)
    assert answer.happened is False, answer.evidence
    assert place.outside() == before
    assert [line for line in place.log.read_text().splitlines() if not READS.match(line)] == []
    assert {line.split()[0] for line in place.server.asked} <= {"GET", "HEAD"}
    looked = place.log.read_text() or place.server.asked
    assert looked or action.name.startswith(("git ", "file ")), "it was looked up"
