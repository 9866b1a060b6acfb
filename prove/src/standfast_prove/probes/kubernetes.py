"""A small server of ours that speaks the part of Kubernetes' API that `kubectl apply` of a ConfigMap uses.

It is not Kubernetes: it lists one kind, and reads and creates objects of it. Each creation arrives late and is answered
late. `log` has one line for each creation, and is the oracle.
"""

from __future__ import annotations

import json
import random
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

Json = Any
PATH = "/api/v1/namespaces/default/configmaps"
KIND = {"group": "", "version": "v1", "kind": "ConfigMap"}
RESOURCE = {"name": "configmaps", "singularName": "configmap", "namespaced": True, "kind": "ConfigMap"}
VALIDATION = {"name": "fieldValidation", "in": "query", "schema": {"type": "string"}}
READ: dict[str, Json] = {
    "/api": {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []},
    "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": []},
    "/api/v1": {
        "kind": "APIResourceList",
        "groupVersion": "v1",
        "resources": [{**RESOURCE, "verbs": ["create", "get", "list", "patch"]}],
    },
    "/openapi/v3": {"paths": {"api/v1": {"serverRelativeURL": "/openapi/v3/api/v1"}}},
    "/openapi/v3/api/v1": {
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": "v1"},
        "paths": {
            "/api/v1/namespaces/{namespace}/configmaps/{name}": {
                "patch": {"parameters": [VALIDATION], "x-kubernetes-group-version-kind": KIND}
            }
        },
    },
}


class Cluster:
    """The server, in threads of this process, on a free port of the loopback device."""

    def __init__(self, *, late_s: float, seed: int) -> None:
        self.late_s = late_s
        self.log: list[str] = []
        self.objects: dict[str, Json] = {}
        self.lock = threading.Lock()
        self._random = random.Random(seed)
        cluster = self

        class Handler(_Handler):
            state = cluster

        self._server = _Server(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def config(self, path: Path) -> Path:
        """A KUBECONFIG that names this server."""
        named: dict[str, Json] = {"clusters": [{"name": "c", "cluster": {"server": self.url}}]}
        named |= {"contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}], "current-context": "c"}
        path.write_text(
            json.dumps({"apiVersion": "v1", "kind": "Config", "users": [{"name": "u", "user": {}}], **named})
        )
        return path

    def wait(self) -> None:
        with self.lock:
            delay_s = self._random.uniform(0, self.late_s)
        time.sleep(delay_s)

    def create(self, given: Json) -> Json:
        name = given["metadata"]["name"]
        with self.lock:
            if name in self.objects:
                return None
            given["metadata"] |= {"namespace": "default", "resourceVersion": str(len(self.log) + 1), "uid": f"u-{name}"}
            self.objects[name] = given
            self.log.append(f"configmap {name}")
        return given


class _Server(ThreadingHTTPServer):
    def handle_error(self, *_: object) -> None:
        """Print nothing on stderr: a killed client resets its connection."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    state: Cluster

    def log_message(self, *_: object) -> None:
        """Nothing on stderr."""

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        found = READ.get(path)
        if found is None and path.startswith(f"{PATH}/"):
            found = self.state.objects.get(path.rpartition("/")[2])
        self._answer(200, found) if found is not None else self._refuse(404, "NotFound")

    def do_POST(self) -> None:
        given = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)))
        self.state.wait()
        made = self.state.create(given)
        self.state.wait()
        self._answer(201, made) if made is not None else self._refuse(409, "AlreadyExists")

    def _refuse(self, code: int, reason: str) -> None:
        self._answer(code, {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "code": code})

    def _answer(self, code: int, found: Json) -> None:
        data = json.dumps(found).encode()
        try:
            self.send_response(code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)
        except OSError:
            self.close_connection = True  # the client has exited; the request is carried out anyway
