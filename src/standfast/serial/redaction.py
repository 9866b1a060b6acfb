"""Remove secrets of well-known shapes from text before it is stored.

A shape has a literal prefix and enough further characters that no ordinary text matches by chance. A text is
searched for the prefixes first, because almost no text has one; a pattern runs only where its prefix was found. The
replacement names the kind of the secret: `[redacted:github]`. Intents, results, steps and state are not redacted,
because they must be returned unchanged. `redact = false` in the configuration turns it off.

The text may be hostile, so the time of every pattern is proportional to the length of the text. No pattern scans a part
of the text from more than one start. A test measures each pattern with hostile text.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple


class Shape(NamedTuple):
    """One kind of secret: its prefixes, and the pattern of the whole secret."""

    name: str
    prefixes: tuple[str, ...]
    pattern: str
    """Group 1, if there is one, stays in front of the replacement."""


# Used before prefixes that may also end a word ("task-", "shelf_"). In JSON text a secret may follow `\n` directly,
# and this n is not part of a word.
_WORD = r"(?:(?<![A-Za-z0-9])|(?<=\\[nrtbf]))"

SHAPES = (
    Shape("anthropic", ("sk-ant-",), r"sk-ant-[\w-]{20,}"),
    Shape("openai", ("sk-",), _WORD + r"sk-(?:[A-Za-z0-9]{32,}|(?:proj|svcacct|admin|or)-[\w-]{20,})"),
    Shape("github", ("ghp_", "gho_", "ghu_", "ghs_", "ghr_"), r"gh[pousr]_[A-Za-z0-9]{36,}"),
    Shape("github", ("github_pat_",), r"github_pat_\w{22,}"),
    Shape("gitlab", ("glpat-",), r"glpat-[\w-]{20,}"),
    Shape("aws", ("AKIA", "ASIA"), r"A[KS]IA[0-9A-Z]{16}(?![0-9A-Za-z])"),
    Shape("aws", ("aws_secret_access_key",), r"(aws_secret_access_key\\?[\"']?\s*[=:]\s*\\?[\"']?)[A-Za-z0-9/+=]{40}"),
    Shape("google", ("AIza",), r"AIza[\w-]{35}"),
    Shape("google", ("ya29.",), r"ya29\.[\w-]{20,}"),
    Shape("google", ("GOCSPX-",), r"GOCSPX-[\w-]{20,}"),
    Shape("slack", ("xoxa-", "xoxb-", "xoxp-", "xoxr-", "xoxs-"), r"xox[abprs]-[A-Za-z0-9-]{10,}"),
    Shape("slack", ("xapp-",), r"xapp-\d-[A-Za-z0-9-]{20,}"),
    Shape("slack", ("hooks.slack.com/services/",), r"(hooks\.slack\.com/services/)[A-Za-z0-9/]{20,}"),
    Shape("stripe", ("sk_live_", "rk_live_", "sk_test_"), r"[rs]k_(?:live|test)_[A-Za-z0-9]{16,}"),
    Shape("stripe", ("whsec_",), r"whsec_[A-Za-z0-9+/=]{24,}"),
    Shape("npm", ("npm_",), r"npm_[A-Za-z0-9]{36}"),
    Shape("pypi", ("pypi-AgE",), r"pypi-AgE[\w-]{50,}"),
    Shape("huggingface", ("hf_",), _WORD + r"hf_[A-Za-z0-9]{30,}"),
    Shape("groq", ("gsk_",), r"gsk_[A-Za-z0-9]{40,}"),
    Shape("xai", ("xai-",), r"xai-[A-Za-z0-9]{40,}"),
    Shape("sendgrid", ("SG.",), r"SG\.[\w-]{16,}\.[\w-]{16,}"),
    Shape("digitalocean", ("dop_v1_",), r"dop_v1_[a-f0-9]{64}"),
    Shape("docker", ("dckr_pat_",), r"dckr_pat_[\w-]{20,}"),
    Shape("vault", ("hvs.",), r"hvs\.[\w-]{24,}"),
    Shape("age", ("AGE-SECRET-KEY-1",), r"AGE-SECRET-KEY-1[0-9A-Z]{58}"),
    # Match each run of such characters once, without backtracking: in "eyJeyJeyJ…" every position could be a start.
    Shape("jwt", ("eyJ",), r"(?<![\w-])((?>[\w-]*?(?=eyJ)))eyJ[\w-]{10,}+\.eyJ[\w-]{10,}+\.[\w-]{10,}+"),
    Shape(
        "private-key",
        ("PRIVATE KEY-----",),
        # The length is limited, and the key does not contain a quote, because the text may be JSON. A key without an
        # end stops where the next key begins.
        r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----(?:[^\"-]|-(?!----BEGIN [A-Z ]{0,40}PRIVATE KEY-----)){0,20000}?"
        r"(?:-----END [A-Z ]{0,40}PRIVATE KEY-----|(?=-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----))",
    ),
    Shape("bearer", ("Bearer ", "bearer "), r"([Bb]earer )(?!\[redacted)[\w.~+/-]{20,}=*"),
    Shape("password", ("://",), r"([A-Za-z][A-Za-z0-9+.-]{1,20}://[^\s:/?#@\"]{0,100}:)[^\s/?#@\"]{1,200}(?=@)"),
)


@lru_cache(maxsize=len(SHAPES))
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.ASCII)


def redacted(text: str) -> str:
    """`text` with every well-known secret replaced by its kind. JSON stays JSON."""
    for shape in SHAPES:
        for prefix in shape.prefixes:
            if prefix in text:
                pattern = _compiled(shape.pattern)
                kept = r"\1" if pattern.groups else ""
                text = pattern.sub(f"{kept}[redacted:{shape.name}]", text)
                break
    return text


# Patterns for a megabyte of text. Each begins with a character that is rare in text, so `re` searches for this
# character alone. That takes a twentieth of the time of decoding the text. Together they find every secret that SHAPES
# match. JSON may write a slash as `\/`. The text after the character is checked first, because checking the text before
# it is slower.
_CLUES = (
    (
        rb"_(?:[A-Za-z0-9]{30}(?:(?<=gh[pousr]_.{30})|(?<=npm_.{30})|(?<=hf_.{30})|(?<=gsk_.{30})|(?<=dop_v1_.{30}))"
        rb"|[A-Za-z0-9+/=\\]{24}(?<=whsec_.{24})|pat_[\w-]{20}|(?:live|test)_[A-Za-z0-9]{16}|secret_access_key)"
    ),
    (
        rb"-(?:(?<=[ktXabprsi]-)(?:(?<=sk-)(?:ant-|proj-|svcacct-|admin-|or-|[A-Za-z0-9]{32})"
        rb"|(?<=glpat-)|(?<=GOCSPX-)|(?<=xox[abprs]-)|(?<=xapp-)|(?<=xai-))|----BEGIN )"
    ),
    rb"A(?:[KS]IA[0-9A-Z]{16}|Iza[\w-]{35}|gE[\w-]{50}(?<=pypi-AgE.{50})|GE-SECRET-KEY-1)",
    rb"\.eyJ(?<=[\w-]{10}\.eyJ)",
    rb"\.(?:com\\?/services\\?/|[\w-]{16}(?:(?<=ya29\..{16})|(?<=SG\..{16})|(?<=hvs\..{16})))",
    rb"B[e]arer [\w.~+/\\-]{20}",
    rb"b[e]arer [\w.~+/\\-]{20}",
    rb":\\?/\\?/[^\s:/?#@\"]{0,100}:[^\s/?#@\"]{1,200}@",
)


@lru_cache(maxsize=1)
def _clues() -> tuple[re.Pattern[bytes], ...]:
    return tuple(re.compile(clue) for clue in _CLUES)


def suspicious(data: bytes) -> list[int]:
    """The offsets in `data` (lines of UTF-8 text) at which a secret may start, in order. Most data has none.

    Imports call `redacted` only for lines with such an offset. It would not change any other line.
    """
    return sorted(found.start() for clue in _clues() for found in clue.finditer(data))
