"""Container images: `docker push` and `podman push`. The probe asks the registry for the digest of the image."""

from __future__ import annotations

import json
import os
import re
from base64 import b64encode
from collections.abc import Sequence
from contextlib import suppress
from urllib.parse import urlencode

from standfast.actions import web
from standfast.actions.action import Action, Answer, CannotTell, Facts, Place, absent, arrived, unknown
from standfast.actions.command_lines import split
from standfast.actions.programs import run, word

_REFERENCE = re.compile(
    r"(?:(?P<host>[A-Za-z0-9.-]+\.[A-Za-z0-9.-]+(?::\d+)?|[A-Za-z0-9-]+:\d+|localhost)/)?"
    r"(?P<name>[a-z0-9]+(?:[._/-]+[a-z0-9]+)*)(?::(?P<tag>\w[\w.-]{0,127}))?"
)
_ACCEPT = (
    "application/vnd.docker.distribution.manifest.v2+json, application/vnd.docker.distribution.manifest.list.v2+json, "
    "application/vnd.oci.image.manifest.v1+json, application/vnd.oci.image.index.v1+json"
)


def _parse(program: str, args: Sequence[str]) -> Facts | None:
    words = split(
        args, flags="-q --quiet --remove-signatures", values="--tls-verify --creds --authfile --format -f --digestfile"
    )
    if words is None or not 1 <= len(words.rest) <= (2 if program == "podman" else 1):
        return None
    target = words.rest[-1].removeprefix("docker://")
    plain = (words.value("--tls-verify") or "").lower() == "false"
    return (
        {"program": program, "image": words.rest[0], "target": target, "plain": plain}
        if _REFERENCE.fullmatch(target)
        else None
    )


def _before(facts: Facts, place: Place) -> Facts:
    if facts["program"] not in ("docker", "podman"):
        raise CannotTell("the program is neither docker nor podman")
    command = (facts["program"], "image", "inspect", "--format", "{{.Id}}", word(facts["image"]))
    ended = run(command, cwd=place.cwd, within_s=place.within_s)
    id = ended.stdout.strip().removeprefix("sha256:")
    if ended.code != 0 or not re.fullmatch(r"[0-9a-f]{64}", id):
        raise CannotTell(f"{facts['program']} has no image {facts['image'][:60]!r}: {ended.why}")
    found = {"target": facts["target"], "plain": facts["plain"], "id": f"sha256:{id}", "was": None}
    if place.sent_us is None:
        with suppress(CannotTell):  # without `was`, another digest in the registry gives the answer unknown
            found["was"] = _manifest(found, place)[0]
    return found


def _find(facts: Facts, place: Place) -> Answer:
    digest, ids = _manifest(facts, place)
    target = facts["target"]
    if digest is None:
        return absent(f"{target} is not in the registry")
    if facts["id"] in (digest, *ids):
        return arrived(f"{target} is {digest[:19]} in the registry", digest)
    if digest == facts["was"]:
        return absent(f"{target} is still {digest[:19]}")
    return unknown(f"{target} is {digest[:19]}, which is another image")


def _manifest(facts: Facts, place: Place) -> tuple[str | None, list[str]]:
    """The digest of the tag in the registry, and the digests in its manifest; None if the tag is missing."""
    parts = _REFERENCE.fullmatch(facts["target"])
    if parts is None:
        raise CannotTell(f"{str(facts['target'])[:60]!r} is not an image name")
    host, name, tag = parts["host"] or "registry-1.docker.io", parts["name"], parts["tag"] or "latest"
    name = f"library/{name}" if parts["host"] is None and "/" not in name else name
    scheme = "http" if facts["plain"] or host.split(":")[0] in ("localhost", "127.0.0.1") else "https"
    reply = _read(f"{scheme}://{host}/v2/{name}/manifests/{tag}", parts["host"] or "https://index.docker.io/v1/", place)
    if reply.status == 404:
        return None, []
    if reply.status in (401, 403):
        raise CannotTell(f"the registry answered {reply.status}: set DOCKER_AUTH_CONFIG to a login that may read")
    if reply.status != 200:
        raise CannotTell(f"the registry answered {reply.status}")
    found = reply.json()
    inside = [found.get("config") or {}, *(found.get("manifests") or [])]
    digest = reply.headers.get("docker-content-digest")
    if not digest:
        raise CannotTell("the answer of the registry has no digest")
    return digest, [one["digest"] for one in inside if "digest" in one]


def _read(url: str, host: str, place: Place) -> web.Reply:
    """GET a manifest. If the registry asks for a token, get one for the caller's account and try again."""
    reply = web.read(url, within_s=place.within_s, headers={"Accept": _ACCEPT})
    if reply.status != 401:
        return reply
    account = _account(host)
    asked = dict(re.findall(r'(\w+)="([^"]*)"', reply.headers.get("www-authenticate") or ""))
    if "realm" not in asked or not (reply.headers.get("www-authenticate") or "").startswith("Bearer"):
        if not account:
            return reply
        return web.read(url, within_s=place.within_s, headers={"Accept": _ACCEPT, **account})
    query = urlencode({name: asked[name] for name in ("service", "scope") if name in asked})
    token = web.read(f"{asked['realm']}?{query}", within_s=place.within_s, headers=account).json()
    bearer = {"Authorization": f"Bearer {token.get('token') or token.get('access_token')}"}
    return web.read(url, within_s=place.within_s, headers={"Accept": _ACCEPT, **bearer})


def _account(host: str) -> dict[str, str]:
    """The login in DOCKER_AUTH_CONFIG, which has the text of a docker `config.json`.

    docker's own file is not read.
    """
    try:
        found = json.loads(os.environ["DOCKER_AUTH_CONFIG"])["auths"][host]
        auth = found.get("auth") or b64encode(f"{found['username']}:{found['password']}".encode()).decode()
    except (ValueError, KeyError, TypeError, AttributeError):
        return {}
    return {"Authorization": f"Basic {auth}"}


_DOCKER = Action(
    name="docker push",
    commands=("docker push", "docker image push"),
    tools=(),
    by="the tag and the digest of the image",
    compensate="push the image that was there before",
    cannot="an image that another program pushed over it meanwhile",
    settle="15s",
    settle_why="the registry writes the tag after the last request is accepted",
    parse=lambda args: _parse("docker", args),
    before=_before,
    find=_find,
    looks=lambda facts: f"GET the manifest of {facts['target']}",
)

ACTIONS = (
    _DOCKER,
    _DOCKER._replace(
        name="podman push",
        commands=("podman push", "podman image push"),
        parse=lambda args: _parse("podman", args),
    ),
)
