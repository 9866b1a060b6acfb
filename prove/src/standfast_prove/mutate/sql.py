"""Mutants of named SQL (a condition, comparison, order, lock or assignment) and of the schema (a constraint).

A dropped condition becomes `(condition OR 1 = 1)`: its parameters stay, so that both engines accept the statement.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from standfast_prove.mutate.mutants import Mutant, one_line

_TOKEN = re.compile(
    r"--[^\n]*|'(?:[^']|'')*'|\$\$.*?\$\$|\{[^}]*\}|:?[A-Za-z_][A-Za-z0-9_.]*|<=|>=|<>|!=|[=<>(),;]|[^\s\w]|\d+",
    re.DOTALL,
)
_NAME = re.compile(r"^-- name: (\w+.*)$", re.MULTILINE)
_CREATE = re.compile(r"^CREATE (?:TABLE|UNIQUE INDEX|INDEX|TRIGGER|VIEW|FUNCTION) (\w+)", re.MULTILINE)
COMPARISONS = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "=": "<>", "<>": "="}
CONDITIONS = {"WHERE", "ON", "HAVING", "WHEN"}
CLAUSES = {
    *("GROUP", "ORDER", "LIMIT", "RETURNING", "ON", "JOIN", "LEFT", "INNER", "CROSS", "WHERE", "UNION", "SET", "DO"),
    *("HAVING", "FOR", "FROM", "THEN", "{SKIP_LOCKED}", "{FOR_UPDATE}", ";", "EXECUTE", "WINDOW", "ELSE"),
}
LOCKS = {"{SKIP_LOCKED}", "{FOR_UPDATE}"}
Edit = tuple[int, int, str, str, str]
"""Start, end and replacement in the text, the original that people are shown, and what changes in it."""


@dataclass(frozen=True, slots=True)
class Token:
    word: str
    start: int
    end: int
    depth: int


def statements(file: str, source: bytes) -> list[Mutant]:
    text = source.decode()
    heads = list(_NAME.finditer(text))
    ends = [head.start() for head in heads[1:]] + [len(text)]
    mutants: list[Mutant] = []
    for head, end in zip(heads, ends, strict=True):
        part = tokens(text, head.end(), end)
        edits = [*_conditions(text, part), *_orders(text, part), *_assignments(text, part), *_locks(part)]
        mutants += [_mutant(file, text, head.group(1), edit) for edit in edits]
    return mutants


def schema(file: str, source: bytes) -> list[Mutant]:
    """One mutant for each constraint and trigger."""
    text = source.decode()
    heads = list(_CREATE.finditer(text))
    ends = [head.start() for head in heads[1:]] + [len(text)]
    mutants: list[Mutant] = []
    for head, end in zip(heads, ends, strict=True):
        part = tokens(text, head.start(), end)
        mutants += [_mutant(file, text, head.group(1), edit) for edit in _constraints(text, part)]
    return mutants


def tokens(text: str, start: int, end: int) -> list[Token]:
    """The words of a statement without its comments. Parentheses and CASE ... END make it deeper."""
    found: list[Token] = []
    depth = 0
    for match in _TOKEN.finditer(text, start, end):
        word = match.group().upper() if match.group()[0] not in "'$" else match.group()
        if word.startswith("--"):
            continue
        depth -= word in (")", "END")
        found.append(Token(word, match.start(), match.end(), depth))
        depth += word in ("(", "CASE")
    return found


def _mutant(file: str, text: str, name: str, edit: Edit) -> Mutant:
    start, end, replacement, original, change = edit
    return Mutant(
        file=file,
        function=name,
        original=one_line(original),
        change=change,
        start=len(text[:start].encode()),
        end=len(text[:end].encode()),
        replacement=replacement,
        line=text.count("\n", 0, start) + 1,
    )


def _until(part: list[Token], at: int, stops: set[str]) -> int:
    """The index after the last token that belongs to the clause that begins at index `at`."""
    depth = part[at].depth
    for index in range(at, len(part)):
        token = part[index]
        if token.depth < depth or (token.depth == depth and token.word in stops):
            return index
    return len(part)


def _split(part: list[Token], separators: set[str]) -> list[list[Token]]:
    pieces: list[list[Token]] = [[]]
    for index, token in enumerate(part):
        between = token.word == "AND" and any(t.word == "BETWEEN" for t in part[max(0, index - 3) : index])
        if token.depth == part[0].depth and token.word in separators and not between:
            pieces.append([])
        else:
            pieces[-1].append(token)
    return [piece for piece in pieces if piece]


def _conditions(text: str, part: list[Token]) -> Iterator[Edit]:
    for index, token in enumerate(part[:-1]):
        foreign = part[index + 1].word in ("CONFLICT", "DELETE", "UPDATE")
        if token.word in CONDITIONS and not foreign:
            clause = part[index + 1 : _until(part, index + 1, CLAUSES - {"FROM"})]
            yield from _dropped(text, clause)
            yield from _compared(text, clause)


def _dropped(text: str, clause: list[Token]) -> Iterator[Edit]:
    """Each condition of a clause whose conditions are joined by AND and OR, also in parentheses."""
    if not clause or clause[0].word in ("SELECT", "WITH"):
        return
    for separator, neutral in (("OR", "{} AND 1 = 0"), ("AND", "{} OR 1 = 1")):
        pieces = _split(clause, {separator})
        if len(pieces) == 1 and separator == "OR":
            continue
        for piece in pieces:
            start, end = piece[0].start, piece[-1].end
            original = text[start:end]
            yield start, end, f"({neutral.format(original)})", original, f"condition dropped ({separator})"
        if separator == "OR":
            break
    for index, token in enumerate(clause):
        if token.word == "(" and token.depth == clause[0].depth:
            inner = clause[index + 1 : _until(clause, index + 1, set())] if index + 1 < len(clause) else []
            if any(t.word in ("AND", "OR") and t.depth == inner[0].depth for t in inner):
                yield from _dropped(text, inner)


def _compared(text: str, clause: list[Token]) -> Iterator[Edit]:
    for index, token in enumerate(clause):
        around = text[clause[max(0, index - 1)].start : clause[min(index + 1, len(clause) - 1)].end]
        if new := COMPARISONS.get(token.word):
            yield token.start, token.end, new, around, f"{token.word} becomes {new}"
        if token.word == "IS" and index + 1 < len(clause):
            new = "IS" if clause[index + 1].word == "NOT" else "IS NOT"
            end = clause[index + 1].end if new == "IS" else token.end
            yield token.start, end, new, around, f"becomes {new}"


def _orders(text: str, part: list[Token]) -> Iterator[Edit]:
    for index, token in enumerate(part[:-2]):
        if token.word == "ORDER" and part[index + 1].word == "BY":
            last = part[_until(part, index + 2, CLAUSES) - 1]
            yield token.start, last.end, "", text[token.start : last.end], "ORDER BY dropped"
        if token.word == "DESC":
            yield token.start, token.end, "ASC", text[part[index - 1].start : token.end], "DESC becomes ASC"


def _assignments(text: str, part: list[Token]) -> Iterator[Edit]:
    for index, token in enumerate(part[:-1]):
        if token.word != "SET":
            continue
        clause = part[index + 1 : _until(part, index + 1, {"WHERE", "FROM", "RETURNING", ";"})]
        pieces = _split(clause, {","})
        for number, piece in enumerate(pieces[:-1] if len(pieces) > 1 else []):
            original = text[piece[0].start : piece[-1].end]
            yield piece[0].start, pieces[number + 1][0].start, "", original, "assignment dropped"
        if len(pieces) > 1:
            start, end = pieces[-2][-1].end, pieces[-1][-1].end
            yield start, end, "", text[pieces[-1][0].start : end], "assignment dropped"


def _locks(part: list[Token]) -> Iterator[Edit]:
    for token in part:
        if token.word in LOCKS:
            yield token.start, token.end, "", token.word.lower(), "lock dropped"


def _constraints(text: str, part: list[Token]) -> Iterator[Edit]:
    for index, token in enumerate(part[:-1]):
        following = part[index + 1]
        original = text[text.rfind("\n", 0, token.start) + 1 : token.end + 60].partition("\n")[0]
        if token.word == "NOT" and following.word == "NULL" and token.depth == 1:
            yield token.start, following.end, "", original, "NOT NULL dropped"
        elif token.word == "CHECK":
            end = part[_until(part, index + 2, set())].end
            yield token.start, end, "CHECK (1 = 1)", text[token.start : end], "CHECK dropped"
        elif token.word == "UNIQUE" and following.word == "INDEX":
            yield token.start, token.end, "", original, "UNIQUE dropped"
        elif token.word == "UNIQUE":
            end = part[_until(part, index + 2, set())].end if following.word == "(" else token.end
            yield token.start, end, "CHECK (1 = 1)", original, "UNIQUE dropped"
        elif token.word == "REFERENCES":
            end = part[_until(part, index + 1, {",", "NOT", "CHECK", "UNIQUE", "DEFAULT"}) - 1].end
            yield token.start, end, "", original, "foreign key dropped"
        elif token.word == "CREATE" and following.word == "TRIGGER":
            yield token.start, part[_until(part, index, {";"})].end, "", original, "trigger dropped"
