"""Mutants of Python code. They are found in the syntax tree and applied to the text, so the rest of the file stays
unchanged.

Left out: docstrings, annotations, decorators (help texts), assertions, arguments of exceptions and of logging,
f-strings, `__repr__`, blocks for type checkers, and tests of the platform.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from standfast_prove.mutate.mutants import Mutant, one_line

COMPARISONS: dict[type[ast.cmpop], tuple[str, str]] = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"),
    ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"),
}
NEGATED_BY_COMPARISON = (ast.Eq, ast.NotEq, ast.Is, ast.IsNot, ast.In, ast.NotIn)
SWAPPED_NAMES = {"min": "max", "max": "min", "any": "all", "all": "any"}
TEXT_ARGUMENTS = {"help", "hint", "message", "metavar", "short_help", "epilog", "title", "summary", "doc"}
LOGS = {"log", "_log", "logger", "logging", "LOG", "warnings"}
PLATFORM = ("sys.platform", "os.name", "TYPE_CHECKING", "sys.version_info", "__name__ ==")
UNMUTATED_FUNCTIONS = {"__repr__", "__str__"}
TEXTUAL = (ast.JoinedStr, ast.List, ast.Tuple)
Edit = tuple[int, int, str, ast.AST, str]
"""Start, end and replacement of the bytes, the node that people are shown, and what changes in it."""


def mutants(file: str, source: bytes) -> list[Mutant]:
    return list(_Finder(file, source).found())


class _Finder:
    def __init__(self, file: str, source: bytes) -> None:
        self._file = file
        self._source = source
        self._lines = [0]
        for line in source.splitlines(keepends=True):
            self._lines.append(self._lines[-1] + len(line))

    def found(self) -> Iterator[Mutant]:
        yield from self._within(ast.parse(self._source), "", None, inside=False)

    def _within(self, node: ast.AST, function: str, expression: ast.expr | None, *, inside: bool) -> Iterator[Mutant]:
        """The mutants inside `node`. `function` is a qualified name, as code objects have it.

        `expression` is the largest one that `node` belongs to. People are shown it with a changed constant.
        """
        for child in self._children(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                name = f"{function}.<locals>.{child.name}" if inside else f"{function}.{child.name}".lstrip(".")
                if child.name not in UNMUTATED_FUNCTIONS:
                    yield from self._within(child, name, None, inside=not isinstance(child, ast.ClassDef))
            elif not self._left_out(child):
                whole = (expression or child) if isinstance(child, ast.expr) else None
                around = node if isinstance(node, ast.Return | ast.Assign | ast.AnnAssign) else whole
                for start, end, replacement, shown, change in self._edits(child):
                    constant = isinstance(child, ast.Constant) and around
                    yield Mutant(
                        file=self._file,
                        function=function,
                        original=one_line(self._text(constant or shown)),
                        change=change,
                        start=start,
                        end=end,
                        replacement=replacement,
                        line=child.lineno if isinstance(child, ast.stmt | ast.expr) else 0,
                    )
                if not isinstance(child, ast.Raise):  # the arguments of this call are messages
                    yield from self._within(child, function, whole, inside=inside)

    def _children(self, node: ast.AST) -> Iterator[ast.AST]:
        for name, value in ast.iter_fields(node):
            if name in ("decorator_list", "annotation", "returns", "type_comment"):
                continue
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    yield child

    def _left_out(self, node: ast.AST) -> bool:
        match node:
            case ast.Assert() | ast.JoinedStr() | ast.Import() | ast.ImportFrom():
                return True
            case ast.Expr(value=ast.Constant()):
                return True
            case (
                ast.Call(func=ast.Attribute(value=ast.Name(id=name)))
                | ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id=name))))
            ) if name in LOGS:
                return True
            case ast.keyword(arg=str(name)) if name in TEXT_ARGUMENTS:
                return True
            case ast.If(test=test) | ast.IfExp(test=test):
                return any(word in self._text(test) for word in PLATFORM)
        return False

    # -- one node ------------------------------------------------------------------------------------------

    def _edits(self, node: ast.AST) -> Iterator[Edit]:
        match node:
            case ast.Compare():
                yield from self._compared(node)
            case ast.BoolOp():
                yield from self._joined(node)
            case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test):
                yield from self._negated(test)
            case ast.Constant(value=bool() as value):
                yield (*self._span(node), str(not value), node, f"{value} becomes {not value}")
            case ast.Constant(value=int() as value):
                yield (*self._span(node), str(value + 1), node, f"{value} becomes {value + 1}")
            case ast.BinOp(op=ast.Add() | ast.Sub()):
                yield from self._added(node)
            case ast.Call():
                yield from self._called(node)
            case ast.Return(value=ast.expr() as value) if not isinstance(value, ast.Constant):
                yield (*self._span(value), "None", node, "return None")
            case ast.Raise() | ast.Continue() | ast.Break() | ast.Delete() | ast.AugAssign():
                yield (*self._span(node), "pass", node, "statement deleted")
            case ast.Expr(value=ast.Call() | ast.Await()):
                yield (*self._span(node), "pass", node, "statement deleted")
            case ast.Assign(targets=targets) if all(isinstance(t, ast.Attribute | ast.Subscript) for t in targets):
                yield (*self._span(node), "pass", node, "statement deleted")

    def _compared(self, node: ast.Compare) -> Iterator[Edit]:
        left = node.left
        for op, right in zip(node.ops, node.comparators, strict=True):
            old, new = COMPARISONS[type(op)]
            start, end = self._span(left)[1], self._span(right)[0]
            between = self._source[start:end].decode()
            yield start, end, between.replace(old, new, 1), node, f"{old} becomes {new}"
            left = right

    def _joined(self, node: ast.BoolOp) -> Iterator[Edit]:
        old, new, neutral = ("and", "or", "True") if isinstance(node.op, ast.And) else ("or", "and", "False")
        for left, right in zip(node.values, node.values[1:], strict=False):
            start, end = self._span(left)[1], self._span(right)[0]
            between = self._source[start:end].decode()
            change = f"{old} before {one_line(self._text(right))} becomes {new}"
            yield start, end, between.replace(old, new, 1), node, change
        for value in node.values:
            yield (*self._span(value), neutral, node, f"{one_line(self._text(value))} becomes {neutral}")

    def _negated(self, test: ast.expr) -> Iterator[Edit]:
        if isinstance(test, ast.Compare) and isinstance(test.ops[0], NEGATED_BY_COMPARISON) and len(test.ops) == 1:
            return
        if not isinstance(test, ast.Constant):
            yield (*self._span(test), f"(not ({self._text(test)}))", test, "condition negated")

    def _added(self, node: ast.BinOp) -> Iterator[Edit]:
        sides = (node.left, node.right)
        if any(isinstance(s, TEXTUAL) or (isinstance(s, ast.Constant) and isinstance(s.value, str)) for s in sides):
            return
        old, new = ("+", "-") if isinstance(node.op, ast.Add) else ("-", "+")
        start, end = self._span(node.left)[1], self._span(node.right)[0]
        yield start, end, self._source[start:end].decode().replace(old, new, 1), node, f"{old} becomes {new}"

    def _called(self, node: ast.Call) -> Iterator[Edit]:
        if isinstance(node.func, ast.Name) and (new := SWAPPED_NAMES.get(node.func.id)):
            yield (*self._span(node.func), new, node, f"{node.func.id} becomes {new}")
        for keyword in node.keywords:
            if keyword.arg is not None and not self._left_out(keyword):
                start, end = self._span(keyword)
                rest = self._source[end:]
                comma = len(rest) - len(rest.lstrip(b" \n"))
                if rest[comma : comma + 1] == b",":
                    end += comma + 1
                yield start, end, "", node, f"{keyword.arg}= dropped"

    # -- text ----------------------------------------------------------------------------------------------

    def _span(self, node: ast.AST) -> tuple[int, int]:
        """The bytes of a node. Offsets of the syntax tree count bytes, not characters."""
        first, last = self._lines[node.lineno - 1], self._lines[node.end_lineno - 1]  # type: ignore[attr-defined]
        return first + node.col_offset, last + node.end_col_offset  # type: ignore[attr-defined]

    def _text(self, node: ast.AST) -> str:
        start, end = self._span(node)
        return self._source[start:end].decode()
