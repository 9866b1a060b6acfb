"""A small server on loopback: the outside world of the demo, with its own count of pull requests or charges.

It keeps what it was sent before it answers. `on_post` is called in between: that is where the
demo kills the agent, so that the request has arrived and the answer has not.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit


class PullServer:
    def __init__(self) -> None:
        self.pulls: list[dict[str, Any]] = []
        self.on_post: Callable[[], None] = lambda: None
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}"

    def __enter__(self) -> PullServer:
        threading.Thread(target=self._http.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._http.shutdown()
        self._http.server_close()


def _handler(server: PullServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            wanted = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            number = len(server.pulls) + 1
            pull = {"number": number, "url": f"{server.url}{self.path}/{number}", **wanted}
            server.pulls.append(pull)
            server.on_post()
            self._answer(pull)

        def do_GET(self) -> None:
            ((name, (value,)),) = parse_qs(urlsplit(self.path).query).items()
            self._answer([pull for pull in server.pulls if pull[name] == value])

        def _answer(self, value: object) -> None:
            text = json.dumps(value).encode()
            try:
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)
            except ConnectionError:
                pass  # the client was killed, as the demo intends

        def log_message(self, format: str, *args: object) -> None:
            """Print no access log."""

    return Handler


def ask(url: str, wanted: dict[str, Any] | None = None) -> Any:
    """A request of the agent: GET, or POST with data."""
    from urllib.request import Request, urlopen

    data = None if wanted is None else json.dumps(wanted).encode()
    with urlopen(Request(url, data=data), timeout=10) as answer:  # a loopback address of our own
        return json.load(answer)
