"""A small server of ours that speaks the part of GitHub's API that is needed, and takes payments by key.

It is not GitHub and not Stripe: it has the same addresses, fields and status codes for a few requests. `gh` talks
GraphQL to it for what it writes, and everything is read by REST. Each request that changes something arrives late and
is answered late, by a random time up to `late_s`. It is carried out even if its client has exited, as on a real server.
`log` has one line for each change, and is the oracle. `asked` has the method and path of every request.
"""

from __future__ import annotations

import json
import random
import re
import ssl
import subprocess
import threading
import time
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

Json = Any


class Outside:
    """The server, in threads of this process, on a free port of the loopback device."""

    def __init__(self, *, late_s: float = 0.0, seed: int = 0, certificate: Path | None = None) -> None:
        self.late_s = late_s
        self.log: list[str] = []
        self.asked: list[str] = []
        self.pulls: list[Json] = []
        self.issues: list[Json] = []
        self.comments: list[Json] = []
        self.releases: list[Json] = []
        self.payments: dict[str, Json] = {}
        self.lock = threading.Lock()
        self._random = random.Random(seed)
        outside = self

        class Handler(_Handler):
            server_state = outside

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            self._server.socket = context.wrap_socket(
                self._server.socket, server_side=True, do_handshake_on_connect=False
            )
        self.url = f"{'http' if certificate is None else 'https'}://localhost:{self.port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def __enter__(self) -> Outside:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def wait(self, path: str = "") -> None:
        """Delay a request for this path, or its answer."""
        with self.lock:
            delay_s = self._random.uniform(0, self.late_s)
        time.sleep(delay_s)

    # -- what can be changed ------------------------------------------------------------------------

    def pull(self, repo: str, head: str, base: str, title: str, body: str) -> Json:
        owner = repo.partition("/")[0]
        label = head if ":" in head else f"{owner}:{head}"
        if any(one["state"] == "open" and one["head"]["label"] == label for one in self.pulls):
            return None
        found = {**self._made(title, body), "merged": False, "auto_merge": None, "merge_commit_sha": None}
        found |= {
            "head": {"ref": label.partition(":")[2], "label": label},
            "base": {"ref": base, "label": f"{owner}:{base}"},
        }
        found |= {"html_url": f"{self.url}/{repo}/pull/{found['number']}"}
        self.pulls.append(found)
        self.log.append(f"pull {label}")
        return found

    def merge(self, number: int) -> Json:
        found = self.numbered(self.pulls, number)
        if found is None or found["merged"]:
            return None
        found |= {"merged": True, "state": "closed", "merge_commit_sha": f"{number:040x}"}
        self.log.append(f"merge {number}")
        return found

    def comment(self, number: int, body: str) -> Json:
        found = {"id": len(self.comments) + 1, "issue": number, "body": body, "created_at": now(), "updated_at": now()}
        found["html_url"] = f"{self.url}/a/b/issues/{number}#issuecomment-{found['id']}"
        self.comments.append(found)
        self.log.append(f"comment {number} {body.partition('<!--')[0].strip()}")
        return found

    def issue(self, repo: str, title: str, body: str) -> Json:
        found = self._made(title, body)
        found["html_url"] = f"{self.url}/{repo}/issues/{found['number']}"
        self.issues.append(found)
        self.log.append(f"issue {title}")
        return found

    def release(self, repo: str, tag: str, name: str, body: str) -> Json:
        if any(one["tag_name"] == tag for one in self.releases):
            return None
        found = {"id": len(self.releases) + 1, "tag_name": tag, "name": name, "body": body, "draft": False}
        found |= {"html_url": f"{self.url}/{repo}/releases/tag/{tag}", "upload_url": f"{self.url}/upload", "assets": []}
        self.releases.append(found)
        self.log.append(f"release {tag}")
        return found

    def pay(self, key: str, given: Json) -> Json:
        """Take a payment as Stripe does: a repeated key gets the first answer and changes nothing."""
        if key not in self.payments:
            self.payments[key] = {"id": f"ch_{len(self.payments) + 1}", "object": "charge", **given}
            self.log.append(f"payment {given.get('order') or given.get('amount')}")
        return self.payments[key]

    def _made(self, title: str, body: str) -> Json:
        number = len(self.pulls) + len(self.issues) + 1
        about = {"id": number, "number": number, "title": title, "body": body, "state": "open"}
        return {**about, "created_at": now(), "updated_at": now()}

    @staticmethod
    def numbered(among: list[Json], number: int) -> Json:
        return next((one for one in among if one["number"] == number), None)


def now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def certificate(directory: Path) -> Path:
    """Make a self-signed certificate for localhost, with its key in the same file."""
    path, key = directory / "localhost.pem", directory / "localhost.key"
    words = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    words += ["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-keyout", str(key), "-out", str(path)]
    subprocess.run(words, check=True, capture_output=True)
    path.write_text(path.read_text() + key.read_text())
    return path


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_state: Outside

    def log_message(self, *_: object) -> None:
        """Nothing on stderr."""

    def do_GET(self) -> None:
        path, query = self._asked()
        with self.server_state.lock:
            found = _read(self.server_state, path, query)
        self._answer(404 if found is None else 200, {"message": "Not Found"} if found is None else found)

    def do_HEAD(self) -> None:
        self._answer(200, {})

    def do_POST(self) -> None:
        path, _ = self._asked()
        text = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
        form = "urlencoded" in (self.headers.get("Content-Type") or "")
        given = {name: values[0] for name, values in parse_qs(text).items()} if form else json.loads(text or "{}")
        graphql = path.endswith("/graphql")
        if not graphql or "mutation" in given.get("query", ""):
            self.server_state.wait(path)
        with self.server_state.lock:
            if graphql:
                status, found = 200, _graphql(self.server_state, given)
            else:
                status, found = _changed(self.server_state, path, given, self.headers.get("Idempotency-Key") or "")
        if not graphql or "mutation" in given.get("query", ""):
            self.server_state.wait(path)
        self._answer(status, found)

    do_PUT = do_PATCH = do_DELETE = do_POST  # noqa: N815  http.server names them

    def _asked(self) -> tuple[str, dict[str, str]]:
        parts = urlsplit(self.path)
        path = re.sub(r"^/api/v3", "", parts.path).strip("/")
        self.server_state.asked.append(f"{self.command} {path}")
        return unquote(path), {name: values[0] for name, values in parse_qs(parts.query).items()}

    def _answer(self, status: int, found: Json) -> None:
        data = json.dumps(found).encode()
        try:
            self.send_response(status)
            self.send_header("Content-Type", "application/json; charset=utf-8")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(data)
        except OSError:
            self.close_connection = True  # the client has exited; the request is carried out anyway


def _read(state: Outside, path: str, query: dict[str, str]) -> Json:
    """GET by REST."""
    words = path.split("/")
    if words[0] != "repos":
        return {} if path in ("", "user", "meta") else None
    rest = words[3:]
    page, size = int(query.get("page", 1)), int(query.get("per_page", 30))
    match rest:
        case []:
            return {"full_name": "/".join(words[1:3]), "default_branch": "main"}
        case ["pulls"]:
            listed = [one for one in reversed(state.pulls) if _asked_for(one, query)]
        case ["pulls", number]:
            return state.numbered(state.pulls, int(number))
        case ["issues"]:
            listed = list(reversed(state.issues))
        case ["issues", number, "comments"]:
            listed = [one for one in state.comments if one["issue"] == int(number)]
        case ["releases"]:
            listed = list(state.releases)
        case ["releases", "tags", tag]:
            return next((one for one in state.releases if one["tag_name"] == tag), None)
        case _:
            return None
    return listed[(page - 1) * size : page * size]


def _asked_for(pull: Json, query: dict[str, str]) -> bool:
    states = (query.get("state", "open"), "all")
    return (
        (pull["state"] in states or "all" in states[:1])
        and query.get("head", pull["head"]["label"]) == pull["head"]["label"]
        and query.get("base", pull["base"]["ref"]) == pull["base"]["ref"]
    )


def _changed(state: Outside, path: str, given: Json, key: str) -> tuple[int, Json]:
    """POST, PUT and PATCH by REST."""
    words = path.split("/")
    repo, rest = "/".join(words[1:3]), words[3:]
    made: Json = None
    match words[0], rest:
        case "v1", _:
            return (200, state.pay(key, given)) if key else (400, {"error": "no key"})
        case "repos", ["pulls"]:
            made = state.pull(repo, given["head"], given["base"], given["title"], given.get("body") or "")
        case "repos", ["pulls", number, "merge"]:
            merged = state.merge(int(number))
            return (405, {"message": "not mergeable"}) if merged is None else (200, {"sha": merged["merge_commit_sha"]})
        case "repos", ["issues"]:
            made = state.issue(repo, given["title"], given.get("body") or "")
        case "repos", ["issues", number, "comments"]:
            made = state.comment(int(number), given["body"])
        case "repos", ["releases"]:
            made = state.release(repo, given["tag_name"], given.get("name") or "", given.get("body") or "")
        case _:
            return 404, {"message": "Not Found"}
    return (422, {"message": "Validation Failed"}) if made is None else (201, made)


# -- GraphQL, as `gh` asks it --------------------------------------------------------------------------------


def _graphql(state: Outside, asked: Json) -> Json:
    """The answer has more fields than the query. `gh` reads those that it knows."""
    query, variables = asked["query"], asked.get("variables") or {}
    types = re.findall(r"(\w+):\s*__type\(", query)  # the list of known fields: `gh` parses this answer strictly
    if types:
        return {"data": {name: {"fields": []} for name in types}}
    given = variables.get("input") or {}
    node = str(given.get("subjectId") or given.get("pullRequestId") or "0").rpartition("_")[2]
    if "createPullRequest(" in query:
        made = state.pull("a/b", given["headRefName"], given["baseRefName"], given["title"], given.get("body") or "")
        if made is None:
            return {"errors": [{"message": "A pull request already exists"}]}
        return {"data": {"createPullRequest": {"pullRequest": {"id": f"PR_{made['number']}", "url": made["html_url"]}}}}
    if "mergePullRequest(" in query:
        merged = state.merge(int(node))
        return (
            {"data": {"mergePullRequest": {"clientMutationId": ""}}} if merged else {"errors": [{"message": "merged"}]}
        )
    if "createIssue(" in query:
        made = state.issue("a/b", given["title"], given.get("body") or "")
        return {"data": {"createIssue": {"issue": {"id": f"I_{made['number']}", "url": made["html_url"]}}}}
    if "addComment(" in query:
        made = state.comment(int(node), given["body"])
        return {"data": {"addComment": {"commentEdge": {"node": {"url": made["html_url"]}}}}}
    return {"data": _looked_up(state, variables)}


def _looked_up(state: Outside, variables: Json) -> Json:
    number = int(variables.get("number") or variables.get("pr_number") or variables.get("issue_number") or 0)
    pull, issue = state.numbered(state.pulls, number), state.numbered(state.issues, number)
    head = variables.get("headRefName")
    of_branch = [_pull(one) for one in state.pulls if one["head"]["ref"] == head and one["state"] == "open"]
    repository = {
        "id": "R_1",
        "name": "b",
        "owner": {"id": "U_1", "login": "a"},
        "nameWithOwner": "a/b",
        "hasIssuesEnabled": True,
        "viewerPermission": "ADMIN",
        "description": "",
        "isPrivate": False,
        "mergeCommitAllowed": True,
        "rebaseMergeAllowed": True,
        "squashMergeAllowed": True,
        "deleteBranchOnMerge": False,
        "viewerDefaultMergeMethod": "MERGE",
        "defaultBranchRef": {"name": "main", "target": {"oid": "0" * 40}},
        "parent": None,
        "pullRequest": None if pull is None else _pull(pull),
        "pullRequests": {"totalCount": len(of_branch), "nodes": of_branch},
        "issue": None if issue is None else _issue(issue),
        "issueOrPullRequest": _issue(issue) if issue else _pull(pull) if pull else None,
    }
    repository["hasIssue"] = repository["issueOrPullRequest"]
    return {"repository": repository, "viewer": {"login": "me", "id": "U_1"}, "repo_000": repository}


def _pull(one: Json) -> Json:
    state = "MERGED" if one["merged"] else one["state"].upper()
    about = {"__typename": "PullRequest", "id": f"PR_{one['number']}", "number": one["number"], "url": one["html_url"]}
    head = {"headRefName": one["head"]["ref"], "headRepositoryOwner": {"id": "U_1", "login": "a"}}
    merging = {"mergeStateStatus": "CLEAN", "mergeable": "MERGEABLE", "isDraft": False, "isCrossRepository": False}
    return {
        **about,
        **head,
        **merging,
        "state": state,
        "title": one["title"],
        "baseRefName": one["base"]["ref"],
        "body": one["body"],
    }


def _issue(one: Json) -> Json:
    about = {"__typename": "Issue", "id": f"I_{one['number']}", "number": one["number"], "url": one["html_url"]}
    return {**about, "state": one["state"].upper(), "title": one["title"], "body": one["body"]}
