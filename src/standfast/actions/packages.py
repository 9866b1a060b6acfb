"""Packages: `npm publish`, `twine upload` and `uv publish`. The probe asks the registry or index for the version."""

from __future__ import annotations

import glob
import json
import os
import re
from collections.abc import Sequence
from urllib.parse import quote, urljoin, urlsplit, urlunsplit

from standfast.actions import web
from standfast.actions.action import Action, Answer, CannotTell, Facts, Place, absent, arrived, unknown
from standfast.actions.command_lines import split
from standfast.actions.files import _hash
from standfast.actions.programs import run

_NAME = re.compile(r"(@[a-z0-9._~-]+/)?[A-Za-z0-9._~][A-Za-z0-9._~-]*")
_VERSION = re.compile(r"[0-9][A-Za-z0-9.+_-]{0,100}")
_FILE = re.compile(r"([A-Za-z0-9][A-Za-z0-9._]*?)-([0-9][A-Za-z0-9.+!_]*?)(-[A-Za-z0-9._-]+\.whl|\.tar\.gz|\.zip)")
FILES_MAX = 50

# -- npm ---------------------------------------------------------------------------------------------------


def _parse_npm(args: Sequence[str]) -> Facts | None:
    words = split(
        args,
        flags="--provenance --silent -s --quiet --json --force",
        values="--registry --tag --access --otp --loglevel",
    )
    if words is None or len(words.rest) > 1:
        return None
    return {"path": (*words.rest, ".")[0], "registry": words.value("--registry")}


def _before_npm(facts: Facts, place: Place) -> Facts:
    path = os.path.join(place.cwd, facts["path"])
    package = _manifest(path)
    name, version = package.get("name"), package.get("version")
    if not isinstance(name, str) or not _NAME.fullmatch(name) or not isinstance(version, str):
        raise CannotTell(f"{path} has no package.json with a name and a version")
    own = package.get("publishConfig")
    registry = facts["registry"] or (own.get("registry") if isinstance(own, dict) else None)
    return {"name": name, "version": version, "registry": registry}


def _manifest(path: str) -> Facts:
    """The package.json of a directory, or of a tarball."""
    try:
        if os.path.isdir(path):
            with open(os.path.join(path, "package.json"), encoding="utf-8") as file:
                found = json.load(file)
        else:
            import tarfile

            with tarfile.open(path) as tar:
                member = tar.extractfile("package/package.json")
                found = json.load(member) if member is not None else None
    except (OSError, ValueError, KeyError, EOFError) as error:
        raise CannotTell(f"{path}: {error}") from None
    return found if isinstance(found, dict) else {}


def _find_npm(facts: Facts, place: Place) -> Answer:
    name, version = facts["name"], facts["version"]
    if not _NAME.fullmatch(name) or not _VERSION.fullmatch(version):
        raise CannotTell(f"{name}@{version} is not a package name with a version")
    registry = () if facts["registry"] is None else (f"--registry={web.checked(facts['registry'])}",)
    options = ("--json", "--prefer-online", "--fetch-retries=0", "--loglevel=error", *registry)
    ended = run(("npm", "view", f"{name}@{version}", "version", *options), cwd=place.cwd, within_s=place.within_s)
    try:
        found = json.loads(ended.stdout) if ended.stdout.strip() else None
    except ValueError:
        raise CannotTell(f"npm view: {ended.why}") from None
    if ended.code == 0 and found == version:
        return arrived(f"{name}@{version} is in the registry")
    code = found.get("error", {}).get("code") if isinstance(found, dict) else None
    if (ended.code == 0 and found is None) or code == "E404":
        return absent(f"{name}@{version} is not in the registry")
    return unknown(f"npm view answered {code or ended.why}")


# -- twine and uv ------------------------------------------------------------------------------------------

_INDEXES = {
    "upload.pypi.org": "https://pypi.org/simple/",
    "test.pypi.org": "https://test.pypi.org/simple/",
}
_NAMED = {"pypi": "https://upload.pypi.org/legacy/", "testpypi": "https://test.pypi.org/legacy/"}


def _parse_twine(args: Sequence[str]) -> Facts | None:
    words = split(
        args,
        flags="--skip-existing --non-interactive --disable-progress-bar --verbose --attestations",
        values="--repository-url -r --repository -u --username -p --password --client-cert --cert --config-file -c",
    )
    if words is None or not words.rest or words.has("--config-file"):
        return None
    named = words.value("-r", "--repository") or os.environ.get("TWINE_REPOSITORY")
    url = words.value("--repository-url") or os.environ.get("TWINE_REPOSITORY_URL")
    return _upload(words.rest, url or _NAMED.get(named or "pypi"))


def _parse_uv(args: Sequence[str]) -> Facts | None:
    words = split(
        args,
        flags="-q --quiet -v --verbose --no-progress",
        values="--publish-url --check-url --index -u --username -p --password -t --token --trusted-publishing",
    )
    if words is None or words.has("--index"):
        return None
    url = words.value("--publish-url") or os.environ.get("UV_PUBLISH_URL") or _NAMED["pypi"]
    found = _upload(words.rest or ["dist/*"], url)
    return found if found is None else {**found, "index": words.value("--check-url") or found["index"]}


def _upload(files: list[str], url: str | None) -> Facts | None:
    """The files, and the URL of the index that belongs to the upload URL."""
    if url is None:
        return None
    parts = urlsplit(url)
    index = _INDEXES.get(parts.hostname or "")
    if index is None:
        path = re.sub(r"(/legacy)?/?$", "", parts.path)
        index = urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], f"{path}/simple/", "", ""))
    return {"files": files, "index": index}


def _before_upload(facts: Facts, place: Place) -> Facts:
    paths = [path for given in facts["files"] for path in sorted(glob.glob(os.path.join(place.cwd, given)))]
    files = {os.path.basename(path): _hash(path) for path in paths if not path.endswith((".asc", ".attestation"))}
    names = {match[1] for name in files if (match := _FILE.fullmatch(name))}
    if len(names) != 1 or len(files) > FILES_MAX or not all(map(_FILE.fullmatch, files)):
        raise CannotTell("the files are not the distributions of one package")
    return {"name": re.sub(r"[-_.]+", "-", names.pop()).lower(), "files": files, "index": facts["index"]}


def _find_upload(facts: Facts, place: Place) -> Answer:
    index, name, files = facts["index"], facts["name"], facts["files"]
    page = urljoin(index, f"{quote(name)}/")
    reply = web.read(page, within_s=place.within_s, headers={"Accept": "text/html", **_account(index)})
    links: dict[str, str | None] = {}
    if reply.status == 200:
        links = _links(reply.body.decode(errors="replace"))
    elif (
        reply.status != 404
        or web.read(index, within_s=place.within_s, headers=_account(index), method="HEAD").status != 200
    ):
        raise CannotTell(f"{page} answered {reply.status}")
    there = {file: links[file] for file in files if file in links}
    if any(hash is not None and hash != files[file] for file, hash in there.items()):
        return unknown(f"the index has other files of the same name: {', '.join(there)}")
    if len(there) == len(files):
        return arrived(f"{', '.join(files)} {'is' if len(files) == 1 else 'are'} in the index")
    if not there:
        return absent(f"{', '.join(files)} {'is' if len(files) == 1 else 'are'} not in the index")
    return unknown(f"only {', '.join(there)} of {len(files)} files are in the index")


def _links(page: str) -> dict[str, str | None]:
    """The files on a page of the simple index, each with its SHA-256 if the page has one."""
    found: dict[str, str | None] = {}
    for match in re.finditer(r'href="([^"#]+)(?:#sha256=([0-9a-f]{64}))?[^"]*"', page):
        found[match[1].rpartition("/")[2].replace("%2B", "+").replace("%2b", "+")] = match[2]
    return found


def _account(index: str) -> dict[str, str]:
    """The login for a private index: `TWINE_USERNAME` and `TWINE_PASSWORD`.

    It is sent only to the host of `TWINE_REPOSITORY_URL`, because the URL of the index comes from a stored row.
    """
    from base64 import b64encode

    if urlsplit(os.environ.get("TWINE_REPOSITORY_URL") or "").netloc.rpartition("@")[2] != urlsplit(index).netloc:
        return {}
    user, password = os.environ.get("TWINE_USERNAME"), os.environ.get("TWINE_PASSWORD")
    if not user or not password or user == "__token__":
        return {}
    return {"Authorization": f"Basic {b64encode(f'{user}:{password}'.encode()).decode()}"}


_PYPI = Action(
    name="twine upload",
    commands=("twine upload",),
    tools=(),
    by="the file names and their SHA-256",
    compensate="yank the version in the index",
    cannot="whether the index is the one that installers read, if it is a mirror",
    settle="60s",
    settle_why="the index serves its pages from a cache",
    parse=_parse_twine,
    before=_before_upload,
    find=_find_upload,
    looks=lambda facts: f"GET {facts['index']}{facts['name']}/",
)

ACTIONS = (
    Action(
        name="npm publish",
        commands=("npm publish",),
        tools=(),
        by="name and version",
        compensate="npm deprecate, or npm unpublish within 72 hours",
        cannot="who published the version",
        settle="60s",
        settle_why="the registry serves reads from a cache",
        parse=_parse_npm,
        before=_before_npm,
        find=_find_npm,
        looks=lambda facts: f"npm view {facts['name']}@{facts['version']} version",
    ),
    _PYPI,
    _PYPI._replace(name="uv publish", commands=("uv publish",), parse=_parse_uv),
)
