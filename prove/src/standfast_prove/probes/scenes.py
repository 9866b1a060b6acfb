"""One scene for each known action: the command that a person would type, and the oracle that counts in the outside
system.

`Scene.command(n)` prepares the n-th try and returns its command line; `Scene.happened(n)` says how many times it has
happened. Commands run in `Scene.directory` with `Scene.variables`.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from standfast_prove.faults import Unavailable
from standfast_prove.probes import registries
from standfast_prove.probes.kubernetes import Cluster
from standfast_prove.probes.server import Outside, certificate

AUTHOR = {
    "GIT_AUTHOR_NAME": "t",
    "GIT_AUTHOR_EMAIL": "t@example.invalid",
    "GIT_COMMITTER_NAME": "t",
    "GIT_COMMITTER_EMAIL": "t@example.invalid",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_SYSTEM": "/dev/null",
}


class Scene(NamedTuple):
    """One action and its outside system."""

    name: str
    remote: str
    """The system in which the probe looks it up, for the table."""
    directory: Callable[[int], Path]
    command: Callable[[int], list[str]]
    happened: Callable[[int], int]
    variables: Mapping[str, str] = MappingProxyType({})


Make = Callable[[Path, float, int], Iterator[Scene]]


def _git(directory: Path, *words: str) -> str:
    ended = subprocess.run(
        ["git", *words], cwd=directory, env={**os.environ, **AUTHOR}, check=True, capture_output=True, text=True
    )
    return ended.stdout.strip()


def _slow_hook(path: Path, late_s: float) -> None:
    """Arrive late: the remote's hook waits a random time before and after the ref is written."""
    wait = f"python3 -c 'import random, time; time.sleep(random.uniform(0, {late_s}))'"
    for name in ("pre-receive", "post-receive"):
        (path / "hooks" / name).write_text(f"#!/bin/sh\ncat >/dev/null\n{wait}\n")
        (path / "hooks" / name).chmod(0o755)


class _Repositories:
    """A working tree and a bare remote for each try."""

    def __init__(self, root: Path, late_s: float, url: str | None = None) -> None:
        self.root, self.late_s, self.url = root, late_s, url

    def tree(self, n: int) -> Path:
        return self.root / f"tree{n}"

    def remote(self, n: int) -> Path:
        return self.root / f"remote{n}.git"

    def made(self, n: int) -> Path:
        tree, remote = self.tree(n), self.remote(n)
        _git(self.root, "init", "-q", "--bare", "-b", "main", str(remote))
        _git(remote, "config", "http.receivepack", "true")
        _slow_hook(remote, self.late_s)
        _git(self.root, "init", "-q", "-b", "main", str(tree))
        (tree / "file").write_text("one")
        _git(tree, "add", "file")
        _git(tree, "commit", "-q", "-m", "one")
        _git(tree, "remote", "add", "origin", f"{self.url}/{remote.name}" if self.url else str(remote))
        return tree

    def push(self, n: int) -> list[str]:
        self.made(n)
        return ["git", "push", "origin", "main"]

    def pushed(self, n: int) -> int:
        there = _git(self.remote(n), "for-each-ref", "--format=%(objectname)", "refs/heads/main")
        return int(there == _git(self.tree(n), "rev-parse", "HEAD"))

    def commit(self, n: int) -> list[str]:
        tree = self.made(n)
        (tree / "file").write_text("two")
        hook = tree / ".git/hooks/pre-commit"
        hook.write_text(f"#!/bin/sh\nsleep {self.late_s / 2}\n")
        hook.chmod(0o755)
        return ["git", "commit", "-q", "-a", "-m", f"change {n}"]

    def committed(self, n: int) -> int:
        return int(_git(self.tree(n), "rev-list", "--count", "HEAD")) - 1

    def tag(self, n: int) -> list[str]:
        hook = self.made(n) / ".git/hooks/reference-transaction"
        hook.write_text(f'#!/bin/sh\n[ "$1" = aborted ] || sleep {self.late_s / 3}\n')
        hook.chmod(0o755)
        return ["git", "tag", "-a", "-m", "first", "v1"]

    def tagged(self, n: int) -> int:
        return len(_git(self.tree(n), "tag", "--list").split())


def git_push_file(place: Path, late_s: float, seed: int) -> Iterator[Scene]:
    kept = _Repositories(place, late_s)
    yield Scene("git push", "bare repository, file", kept.tree, kept.push, kept.pushed, AUTHOR)


def git_push_http(place: Path, late_s: float, seed: int) -> Iterator[Scene]:
    with registries.git_over_http(place) as url:
        kept = _Repositories(place, late_s, url)
        yield Scene("git push", "git http-backend", kept.tree, kept.push, kept.pushed, AUTHOR)


def git_push_ssh(place: Path, late_s: float, seed: int) -> Iterator[Scene]:
    with registries.git_over_ssh(place) as (url, ssh):
        kept = _Repositories(place, late_s, url)
        variables = {**AUTHOR, "GIT_SSH_COMMAND": ssh}
        yield Scene("git push", "Debian's sshd", kept.tree, kept.push, kept.pushed, variables)


def git_commit(place: Path, late_s: float, seed: int) -> Iterator[Scene]:
    kept = _Repositories(place, late_s)
    yield Scene("git commit", "repository", kept.tree, kept.commit, kept.committed, AUTHOR)


def git_tag(place: Path, late_s: float, seed: int) -> Iterator[Scene]:
    kept = _Repositories(place, late_s)
    yield Scene("git tag", "repository", kept.tree, kept.tag, kept.tagged, AUTHOR)


# -- gh, against our own server ------------------------------------------------------------------------------


def _gh(name: str, words: Callable[[int, Outside], list[str]], line: Callable[[int], str]) -> Make:
    def make(place: Path, late_s: float, seed: int) -> Iterator[Scene]:
        registries.program("gh")
        pem = certificate(place)
        with Outside(late_s=late_s, seed=seed, certificate=pem) as outside:
            host = f"localhost:{outside.port}"
            variables = {
                **AUTHOR,
                "GH_HOST": host,
                "GH_ENTERPRISE_TOKEN": "t",
                "SSL_CERT_FILE": str(pem),
                "GH_CONFIG_DIR": str(place / "gh"),
                "GH_NO_UPDATE_NOTIFIER": "1",
            }

            def command(n: int) -> list[str]:
                return ["gh", *name.split(" ")[1:], *words(n, outside), "-R", f"{host}/a/b"]

            def happened(n: int) -> int:
                return outside.log.count(line(n))

            yield Scene(name, "Debian's gh, our server", lambda n: place, command, happened, variables)

    return make


def _opened(n: int, outside: Outside) -> int:
    with outside.lock:
        return int(outside.pull("a/b", f"branch-{n}", "main", "t", "")["number"])


gh_pr_create = _gh(
    "gh pr create",
    lambda n, _: ["-t", f"change {n}", "-b", "text", "--head", f"fix-{n}", "--base", "main"],
    lambda n: f"pull a:fix-{n}",
)
gh_issue_create = _gh("gh issue create", lambda n, _: ["-t", f"bug {n}", "-b", "text"], lambda n: f"issue bug {n}")
gh_release = _gh("gh release create", lambda n, _: [f"v{n}", "-n", "notes", "-t", "x"], lambda n: f"release v{n}")


def gh_pr_merge(place: Path, late_s: float, seed: int) -> Iterator[Scene]:
    numbers: dict[int, int] = {}

    def words(n: int, outside: Outside) -> list[str]:
        numbers[n] = _opened(n, outside)
        return [str(numbers[n]), "--merge"]

    yield from _gh("gh pr merge", words, lambda n: f"merge {numbers[n]}")(place, late_s, seed)


def gh_issue_comment(place: Path, late_s: float, seed: int) -> Iterator[Scene]:
    numbers: dict[int, int] = {}

    def words(n: int, outside: Outside) -> list[str]:
        with outside.lock:
            numbers[n] = int(outside.issue("a/b", f"issue {n}", "")["number"])
        return [str(numbers[n]), "-b", "seen here too"]

    yield from _gh("gh issue comment", words, lambda n: f"comment {numbers[n]} seen here too")(place, late_s, seed)


def gh_pr_comment(place: Path, late_s: float, seed: int) -> Iterator[Scene]:
    numbers: dict[int, int] = {}

    def words(n: int, outside: Outside) -> list[str]:
        numbers[n] = _opened(n, outside)
        return [str(numbers[n]), "-b", "looks good <!-- standfast:review -->"]

    yield from _gh("gh pr comment", words, lambda n: f"comment {numbers[n]} looks good")(place, late_s, seed)


# -- registries ----------------------------------------------------------------------------------------------


def npm_publish(place: Path, late_s: float, seed: int) -> Iterator[Scene]:
    registries.program("npm")
    (place / "server").mkdir()
    with registries.verdaccio(place / "server", late_s, seed) as url:
        config = place / "npmrc"
        config.write_text(
            f"registry={url}\n//{url.partition('//')[2]}:_authToken=t\ncache={place}/cache\nupdate-notifier=false\n"
        )

        def command(n: int) -> list[str]:
            directory = place / f"package{n}"
            directory.mkdir()
            about = {"name": f"probe-{n}", "version": "1.0.0", "publishConfig": {"registry": url}}
            (directory / "package.json").write_text(json.dumps(about))
            return ["npm", "publish", "--registry", url]

        def happened(n: int) -> int:
            return len(list((place / "server/storage").glob(f"probe-{n}/probe-{n}-1.0.0.tgz")))

        variables = {"NPM_CONFIG_USERCONFIG": str(config)}
        yield Scene("npm publish", "verdaccio", lambda n: place / f"package{n}", command, happened, variables)


def twine_upload(place: Path, late_s: float, seed: int) -> Iterator[Scene]:
    yield from _upload("twine upload --non-interactive", place, late_s, seed)


def uv_publish(place: Path, late_s: float, seed: int) -> Iterator[Scene]:
    yield from _upload("uv publish --trusted-publishing never", place, late_s, seed)


def _upload(words: str, place: Path, late_s: float, seed: int) -> Iterator[Scene]:
    registries.program(words.split(" ")[0])
    (place / "server").mkdir()
    with registries.pypiserver(place / "server", late_s, seed) as url:

        def command(n: int) -> list[str]:
            directory = place / f"project{n}"
            directory.mkdir()
            _sdist(directory, f"probe{n}")
            return [*words.split(" "), f"dist/probe{n}-1.0.tar.gz"]

        def happened(n: int) -> int:
            return len(list((place / "server/index").glob(f"probe{n}-1.0.tar.gz")))

        variables = {"TWINE_REPOSITORY_URL": url, "TWINE_USERNAME": "u", "TWINE_PASSWORD": "p"}
        variables |= {"UV_PUBLISH_URL": url, "UV_PUBLISH_USERNAME": "u", "UV_PUBLISH_PASSWORD": "p"}
        name = " ".join(words.split(" ")[:2])
        yield Scene(name, "pypiserver", lambda n: place / f"project{n}", command, happened, variables)


def _sdist(directory: Path, name: str) -> None:
    import io
    import tarfile

    (directory / "dist").mkdir()
    about = f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n".encode()
    with tarfile.open(directory / "dist" / f"{name}-1.0.tar.gz", "w:gz") as tar:
        for file, text in (("PKG-INFO", about), ("pyproject.toml", b"")):
            entry = tarfile.TarInfo(f"{name}-1.0/{file}")
            entry.size = len(text)
            tar.addfile(entry, io.BytesIO(text))


def podman_push(place: Path, late_s: float, seed: int) -> Iterator[Scene]:
    registries.program("podman")
    yield from _image(["podman", "push", "-q", "--tls-verify=false"], place, _podman(place), late_s, seed)


def docker_push(place: Path, late_s: float, seed: int) -> Iterator[Scene]:
    registries.program("docker")
    (place / "daemon").mkdir()
    (place / "policy.json").write_text("{}")
    with registries.docker_daemon(place / "daemon") as host:
        variables = {"DOCKER_HOST": host, "HOME": str(place)}
        yield from _image(["docker", "push", "-q"], place, variables, late_s, seed)


def _image(words: list[str], place: Path, variables: dict[str, str], late_s: float, seed: int) -> Iterator[Scene]:
    """An image of one small layer for each try."""
    (place / "server").mkdir()
    with registries.docker_registry(place / "server", late_s, seed) as host:
        environment = {**os.environ, "PATH": registries.search_path(), **variables}

        def command(n: int) -> list[str]:
            target, layer = f"{host}/probe:{n}", place / f"layer{n}.tar"
            packed = ["tar", "-cf", str(layer), "-C", str(place), "policy.json", f"--transform=s/policy/{n}/"]
            subprocess.run(packed, check=True)
            imported = [registries.program(words[0]), "import", str(layer), target]
            ended = subprocess.run(imported, env=environment, capture_output=True, text=True)
            if ended.returncode != 0:
                raise Unavailable(f"{words[0]} import: {ended.stderr[-300:]}")
            return [*words, target]

        def happened(n: int) -> int:
            links = (place / "server/registry").glob(f"**/repositories/probe/_manifests/tags/{n}/current/link")
            return len(list(links))

        name = " ".join(words[:2])
        yield Scene(name, "Debian's docker-registry", lambda n: place, command, happened, variables)


def _podman(place: Path) -> dict[str, str]:
    """podman, with its files in the scene's own directory."""
    (place / "policy.json").write_text('{"default": [{"type": "insecureAcceptAnything"}]}')
    (place / "storage.conf").write_text(
        f'[storage]\ndriver = "vfs"\ngraphroot = "{place}/graph"\nrunroot = "{place}/run"\n'
    )
    conmon, crun = registries.program("conmon"), registries.program("crun")
    engine = f'cgroup_manager = "cgroupfs"\nevents_logger = "none"\nconmon_path = ["{conmon}"]\nruntime = "crun"\n'
    (place / "containers.conf").write_text(f'[engine]\n{engine}[engine.runtimes]\ncrun = ["{crun}"]\n')
    (place / "home/.config/containers").mkdir(parents=True)
    (place / "home/.config/containers/policy.json").write_text((place / "policy.json").read_text())
    files = {"CONTAINERS_STORAGE_CONF": "storage.conf", "CONTAINERS_CONF": "containers.conf"}
    return {name: str(place / file) for name, file in files.items()} | {"HOME": str(place / "home")}


# -- the rest ------------------------------------------------------------------------------------------------


def terraform_apply(place: Path, late_s: float, seed: int) -> Iterator[Scene]:
    """A saved plan with one resource that terraform itself provides: nothing is downloaded."""
    found = registries.program("terraform")

    def command(n: int) -> list[str]:
        directory = place / f"stack{n}"
        directory.mkdir()
        (directory / "main.tf").write_text('resource "terraform_data" "one" {\n  input = "x"\n}\n')
        for words in (["init"], ["plan", "-out=tfplan"]):
            ended = subprocess.run([found, *words, "-input=false"], cwd=directory, capture_output=True, text=True)
            if ended.returncode != 0:
                raise Unavailable(f"terraform {words[0]}: {ended.stderr[-300:]}")
        return ["terraform", "apply", "-input=false", "-no-color", "tfplan"]

    def happened(n: int) -> int:
        state = place / f"stack{n}/terraform.tfstate"
        return len(json.loads(state.read_text())["resources"]) if state.exists() and state.stat().st_size else 0

    yield Scene("terraform apply", "local state, terraform_data", lambda n: place / f"stack{n}", command, happened)


def kubectl_apply(place: Path, late_s: float, seed: int) -> Iterator[Scene]:
    registries.program("kubectl")
    with Cluster(late_s=late_s, seed=seed) as cluster:

        def command(n: int) -> list[str]:
            wanted = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"try-{n}"}, "data": {"n": str(n)}}
            (place / f"try{n}.json").write_text(json.dumps(wanted))
            return ["kubectl", "apply", "-f", f"try{n}.json"]

        variables = {"KUBECONFIG": str(cluster.config(place / "kubeconfig")), "HOME": str(place)}
        yield Scene(
            "kubectl apply",
            "kubectl, our server",
            lambda n: place,
            command,
            lambda n: cluster.log.count(f"configmap try-{n}"),
            variables,
        )


def keyed_post(place: Path, late_s: float, seed: int) -> Iterator[Scene]:
    registries.program("curl")
    with Outside(late_s=late_s, seed=seed) as outside:

        def command(n: int) -> list[str]:
            key = ["-H", f"Idempotency-Key: order-{n}"]
            return ["curl", "-sS", "-f", "-X", "POST", *key, "-d", f"order={n}", f"{outside.url}/v1/charges"]

        yield Scene(
            "POST with an Idempotency-Key",
            "our server, Stripe's form",
            lambda n: place,
            command,
            lambda n: outside.log.count(f"payment {n}"),
        )


def file_copy(place: Path, late_s: float, seed: int) -> Iterator[Scene]:
    (place / "source").write_bytes(os.urandom(1 << 20) * 64)

    def happened(n: int) -> int:
        target = place / f"target{n}"
        return int(target.exists() and target.read_bytes() == (place / "source").read_bytes())

    yield Scene("file written", "file system", lambda n: place, lambda n: ["cp", "source", f"target{n}"], happened)


SCENES: dict[str, Make] = {
    "git-push-file": git_push_file,
    "git-push-http": git_push_http,
    "git-push-ssh": git_push_ssh,
    "git-commit": git_commit,
    "git-tag": git_tag,
    "gh-pr-create": gh_pr_create,
    "gh-pr-merge": gh_pr_merge,
    "gh-pr-comment": gh_pr_comment,
    "gh-issue-create": gh_issue_create,
    "gh-issue-comment": gh_issue_comment,
    "gh-release": gh_release,
    "npm-publish": npm_publish,
    "twine-upload": twine_upload,
    "uv-publish": uv_publish,
    "docker-push": docker_push,
    "podman-push": podman_push,
    "terraform-apply": terraform_apply,
    "kubectl-apply": kubectl_apply,
    "keyed-post": keyed_post,
    "file-copy": file_copy,
}
SAMPLE = ("git-push-file", "git-commit", "keyed-post", "file-copy")
"""Scenes that need no installed server."""


@contextmanager
def staged(name: str, place: Path, late_s: float, seed: int) -> Iterator[Scene]:
    """A scene with its outside system running. Raises Unavailable where that is not installed."""
    place.mkdir(parents=True)
    with ExitStack() as stack:
        yield stack.enter_context(contextmanager(SCENES[name])(place, late_s, seed))
