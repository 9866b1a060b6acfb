"""A mail as text for an agent or a terminal.

Another program, often an LLM, wrote the mail, so its text is not trusted. Escape sequences, control characters and
invisible marks are removed, and every line of the body is quoted. standfast writes the lines above the body. So no body
can forge an envelope or pretend to be a second mail.
"""

from __future__ import annotations

import json

from standfast import serial
from standfast.clock import iso
from standfast.core import authors, leases
from standfast.core.authors import clean_line
from standfast.ids import short
from standfast.record.mail.models import Mail


def rendered(mail: Mail) -> str:
    """The envelope and the quoted body, without control characters."""
    return "\n".join([*envelope(mail), "", authors.quoted_lines(_text(mail.body))])


def envelope(mail: Mail) -> list[str]:
    """The lines above the body, with the author that standfast recorded."""
    attempt = f", attempt {mail.attempts} of {mail.attempts_max}" if mail.attempts else ""
    sender = f"from {authors.name(mail.sender)}, written by {author(mail)}, {_origin(mail)}"
    lines = [f"mail {short(mail.id)} to {authors.name(mail.box)}{attempt}", sender]
    lines.append(f"sent {iso(mail.sent_us)}" + (f", expires {iso(mail.expires_us)}" if mail.expires_us else ""))
    if mail.subject:
        lines.append(f"subject {authors.quoted(mail.subject)}")
    if mail.reply_to_id:
        lines.append(f"answers mail {short(mail.reply_to_id)}")
    if mail.reason and mail.attempts > 1:
        lines.append(f"came back: {authors.quoted(mail.reason)}")
    return lines


def author(mail: Mail) -> authors.Author:
    """The actor that sent the mail. standfast records it, so the sender cannot choose it."""
    return authors.of(mail.provenance.get("actor"))


def body_lines(body: serial.Json) -> list[str]:
    """The lines of the body without invisible characters: text as it is, other values as indented JSON."""
    return [clean_line(line) for line in _text(body).splitlines()] or [""]


def _text(body: serial.Json) -> str:
    return body if isinstance(body, str) else json.dumps(body, ensure_ascii=False, indent=1, sort_keys=True)


def _origin(mail: Mail) -> str:
    about = mail.provenance
    found = leases.parse_process(str(about.get("holder") or ""))
    sent = f"process {found.pid} on {found.host}" if found else f"a command on {about.get('host')}"
    session = f", session {about['session']}" if about.get("session") else ""
    return _one(f"{sent}{session}")


def _one(text: str) -> str:
    return serial.clean(text, 300)
