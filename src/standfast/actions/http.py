"""HTTP: a POST with an `Idempotency-Key`, in the form that Stripe and others accept.

    from standfast.actions import http

    with standfast.session("order-42"):
        charge = http.post("https://api.stripe.com/v1/charges", {"amount": 1200}, name="charge", form=True,
                           headers={"Authorization": f"Bearer {os.environ['STRIPE_KEY']}"})

The server recognises the key for 24 hours. So an effect in doubt is settled without a probe: the same request is sent
again with the same key. Headers are not recorded, because they hold credentials.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from datetime import timedelta
from typing import Any
from urllib.parse import urlencode, urlsplit

from standfast.actions import web
from standfast.actions.action import Action, CannotTell, Facts
from standfast.actions.command_lines import split
from standfast.ledger.effects.call import Call, NotApplied
from standfast.ledger.effects.declared import effect
from standfast.models import Model

WINDOW = timedelta(hours=24)
"""The time that Stripe stores a key. After it, a person settles the doubt."""
SEND_MAX_S = 80.0
MAY_HAVE_RUN = (408, 409, 425, 429)
"""Refusals that prove nothing, because another request with this key may be running."""


class Response(Model):
    """The server's answer."""

    status: int
    body: Any
    """The JSON value, or the text of any other body."""


@effect("http.post", by=("url", "name"), idempotent=WINDOW, leave_out=("headers",))
def post(
    call: Call, url: str, data: dict[str, Any], name: str, form: bool = False, headers: dict[str, str] | None = None
) -> Response:
    """POST `data` as JSON, or form-encoded, with the effect's own Idempotency-Key. `name` is yours: one per request.

    Raises NotApplied for a refusal that proves that nothing was done (most 4xx). The next call sends it again.
    """
    body = urlencode(data).encode() if form else json.dumps(data).encode()
    kind = "application/x-www-form-urlencoded" if form else "application/json"
    sent = {"Content-Type": kind, **(headers or {}), "Idempotency-Key": call.key}
    reply = web.send("POST", url, body, within_s=SEND_MAX_S, headers=sent)
    if 400 <= reply.status < 500 and reply.status not in MAY_HAVE_RUN:
        raise NotApplied(
            f"{urlsplit(url).hostname} answered {reply.status}: {reply.body[:200].decode(errors='replace')}"
        )
    if not 200 <= reply.status < 300:
        raise RuntimeError(f"{urlsplit(url).hostname} answered {reply.status}")
    return Response(reply.status, _body(reply))


def find(url: str, headers: dict[str, str] | None = None) -> Any:
    """GET the URL; its JSON, or None for 404. Raises for any other status. Use it as `find=`."""
    reply = web.read(url, within_s=20.0, headers=headers)
    if reply.status == 404:
        return None
    if not 200 <= reply.status < 300:
        raise CannotTell(f"{urlsplit(url).hostname} answered {reply.status}")
    return reply.json()


def _body(reply: web.Reply) -> Any:
    try:
        return json.loads(reply.body) if reply.body else None
    except ValueError:
        return reply.body.decode(errors="replace")


# -- curl --------------------------------------------------------------------------------------------------

_FLAGS = "-s --silent -S --show-error -f --fail --fail-with-body -v -i --include -L --location -k --compressed --json"
_VALUES = (
    "-X --request -H --header -d --data --data-raw --data-binary --data-urlencode -u --user -o --output -m --max-time "
    "--retry --url -w --write-out --connect-timeout --json"
)
_KEY = re.compile(r"(?i)idempotency-key:\s*(\S.*)")
CHAT = ("hooks.slack.com", "slack.com", "discord.com", "discordapp.com", "api.telegram.org", "outlook.office.com")


def _posted(args: Sequence[str]) -> tuple[str, list[str]] | None:
    """The URL and the headers of a `curl` command that posts."""
    headers = [args[at + 1] for at in range(len(args) - 1) if args[at] in ("-H", "--header")]
    words = split(args, flags=_FLAGS.replace(" --json", ""), values=_VALUES)
    if words is None:
        return None
    urls = [*words.rest, *filter(None, [words.value("--url")])]
    method = words.value("-X", "--request") or (
        "POST" if any(o.startswith(("-d", "--data", "--json")) for o in words.options) else "GET"
    )
    return (urls[0], headers) if len(urls) == 1 and method == "POST" else None


def _parse_keyed(args: Sequence[str]) -> Facts | None:
    found = _posted(args)
    keys = [match[1] for header in (found[1] if found else []) if (match := _KEY.fullmatch(header))]
    return {"url": found[0]} if found is not None and len(keys) == 1 else None


def _parse_chat(args: Sequence[str]) -> Facts | None:
    found = _posted(args)
    host = urlsplit(found[0]).hostname if found is not None else None
    return {} if host is not None and host.endswith(CHAT) else None


ACTIONS = (
    Action(
        name="POST with an Idempotency-Key",
        commands=("curl",),
        tools=("http.post",),
        by="the key",
        compensate="the API's own reversal, such as a refund",
        cannot="a server that does not honour the key: then it is sent twice",
        settle="0s",
        settle_why="the same request is sent again with the same key, within 24 hours",
        parse=_parse_keyed,
        idempotent_s=WINDOW.total_seconds(),
    ),
    Action(
        name="chat message",
        commands=("curl",),
        tools=(),
        by="nothing",
        compensate="delete the message by hand",
        cannot="anything: a chat webhook has no search",
        settle="0s",
        settle_why="there is no probe",
        parse=_parse_chat,
    ),
    Action(
        name="e-mail",
        commands=("mail", "mailx", "sendmail", "msmtp", "mutt", "swaks"),
        tools=(),
        by="nothing",
        compensate="none",
        cannot="anything: an e-mail that was handed over cannot be looked up",
        settle="0s",
        settle_why="there is no probe",
        parse=lambda args: {},
    ),
)
