"""Writes `src/standfast/aio.pyi`, the types of the asynchronous handle, from the source of the synchronous one.

    python -m tests.aio_stub        # or: make stubs

Every public method of a resource, a session and their results becomes an `async def` with the same parameters.
A method that gives a block becomes an asynchronous context manager; one that gives an iterator, an asynchronous one.
The source is read as text (`ast`), because overloads and names under TYPE_CHECKING are not there at run time.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from copy import deepcopy
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from standfast.db.store import Resource
from standfast.handle import Resources, Standfast
from standfast.record.events.consumers import Consuming
from standfast.record.events.follow import Following
from standfast.record.mail.follow import Follow
from standfast.record.node_methods import NodeMethods
from tests.public import HANDED, resources

PLACE = Path(__file__).parent.parent / "src/standfast/aio.pyi"
ITERATED: tuple[type, ...] = (Consuming, Follow, Following)
"""Iterators with methods of their own."""
ASYNC = {one.__name__: f"Async{one.__name__}" for one in (*HANDED, *ITERATED)}
WAITS = "within"
"""Of an iterator: `async for` calls it."""
BY_HAND = {
    ("AsyncStandfast", "transaction"),
    ("AsyncStandfast", "session"),
    ("AsyncStandfast", "close"),
    ("AsyncSession", "store"),
    ("AsyncNodeMethods", "tools"),
    ("AsyncNodeMethods", "bind"),
}
"""Methods that `aio.py` has itself, or gives another form: `OWN` has their types."""
OWN = {
    "AsyncStandfast": """
    def __init__(self, connect: Callable[[], Standfast]) -> None: ...
    async def __aenter__(self) -> Self: ...
    async def __aexit__(self, *exc: object) -> None: ...
    async def close(self) -> None: ...
    @property
    def sync(self) -> Standfast: ...
    async def transaction(self, body: Callable[[Transaction], _T]) -> _T: ...
    def session(self, key: str, *, agent: str | None = ...) -> AbstractAsyncContextManager[AsyncSession]: ...
""",
    "AsyncSession": """
    @property
    def store(self) -> AsyncStandfast: ...
""",
    "AsyncNodeMethods": """
    def tools(self, *functions: Callable[..., Any]) -> list[Callable[..., Coroutine[Any, Any, Any]]]: ...
    def bind(self, function: Callable[..., _T]) -> Callable[..., _T]: ...
""",
    "AsyncSessionState": """
    async def keys(self) -> list[str]: ...
    async def items(self) -> list[tuple[str, Any]]: ...
    async def values(self) -> list[Any]: ...
    async def pop(self, key: str, default: Any = ...) -> Any: ...
    async def update(self, values: Mapping[str, Any] = ..., /, **more: Any) -> None: ...
    async def clear(self) -> None: ...
""",
}
HEAD = '''"""The types of the asynchronous handle. Written by `make stubs`; change `tests/aio_stub.py` instead."""

{imports}

_A = TypeVar("_A")
_T = TypeVar("_T")

@type_check_only
class _Entered(Coroutine[Any, Any, _T], AbstractAsyncContextManager[_T], metaclass=ABCMeta):
    """Await it or enter it."""

@type_check_only
class _Iterated(AbstractAsyncContextManager[_A], AsyncIterable[_T], Generic[_A, _T], metaclass=ABCMeta):
    """Iterate it, or enter it first."""

class AsyncObject:
    def __init__(self, owner: AsyncStandfast, inner: Any) -> None: ...
    def __getattr__(self, name: str) -> Any: ...
'''
HEAD_NAMES = {
    "abc": {"ABCMeta"},
    "collections.abc": {"AsyncIterable", "AsyncIterator", "Callable", "Coroutine", "Mapping"},
    "contextlib": {"AbstractAsyncContextManager"},
    "typing": {"Any", "Generic", "Self", "TypeVar", "overload", "type_check_only"},
    "standfast.handle": {"Standfast", "Transaction"},
}


def main() -> None:
    PLACE.write_text(stub())


def stub() -> str:
    names = _Names()
    classes = [_of_class(names, "AsyncStandfast", Standfast)]
    kinds = NodeMethods, *HANDED, *ITERATED, *resources().values()
    classes += [_of_class(names, f"Async{one.__name__}", one) for one in kinds]
    text = HEAD.format(imports=names.imports()) + "\n" + names.settled("\n".join(classes))
    return _ruff("format", _ruff("check", "--quiet", "--fix-only", "--select", "I", text))


def _ruff(*words: str) -> str:
    *options, text = words
    command = [Path(sys.executable).with_name("ruff"), *options, "--stdin-filename", PLACE, "-"]
    return subprocess.run(command, input=text, capture_output=True, text=True, check=True, cwd=PLACE.parent).stdout


# -- classes and methods -----------------------------------------------------------------------------------


def _of_class(names: _Names, name: str, kind: type) -> str:
    lines = [] if kind is Standfast else ["@type_check_only"]
    item = _item(names, kind.__module__, kind.__name__)
    inherits = kind is not NodeMethods and issubclass(kind, NodeMethods)
    parent = "(AsyncNodeMethods)" if inherits else f"(AsyncIterable[{item}])" if item is not None else ""
    lines += [f"class {name}{parent}:"]
    if item is not None:
        lines.append(f"    def __aiter__(self) -> AsyncIterator[{item}]: ...")
    seen: set[str] = {WAITS}
    shadowed = {method for base in kind.__mro__ for method in vars(base)} & set(vars(builtins))
    for base in kind.__mro__:
        if (inherits and base is NodeMethods) or base is Resource or not base.__module__.startswith("standfast."):
            break
        module, tree = base.__module__, _class_of(base)
        lines += [f"    {one}: {names.text(module, node)}" for one, node in _attributes(tree)]
        for method, definitions in _methods(tree).items():
            if method in seen or (name, method) in BY_HAND:
                continue
            seen.add(method)
            for one in definitions:
                lines += _Method(names.within(shadowed), module, one, len(definitions) > 1).lines()
    if kind is Standfast:
        lines += [f"    @property\n    def {one}(self) -> Async{of.__name__}: ..." for one, of in resources().items()]
    own = OWN.get(name, "").lstrip("\n")
    if lines[-1].startswith("class ") and not own:
        lines.append('    """Nothing of its own."""')
    return "\n".join(lines) + "\n" + own


def _class_of(kind: type) -> ast.ClassDef:
    for node in _tree(kind.__module__).body:
        if isinstance(node, ast.ClassDef) and node.name == kind.__name__:
            return node
    raise LookupError(kind)


def _methods(tree: ast.ClassDef) -> dict[str, list[ast.FunctionDef]]:
    """The public methods of a class. An overloaded method is listed with each overload, without its definition."""
    found: dict[str, list[ast.FunctionDef]] = defaultdict(list)
    resource = set(resources()) if tree.name == Resources.__name__ else set()
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_") and node.name not in resource:
            found[node.name].append(node)
    return {
        name: [one for one in nodes if "overload" in _decorators(one)] or nodes for name, nodes in sorted(found.items())
    }


def _attributes(tree: ast.ClassDef) -> Iterator[tuple[str, ast.expr]]:
    """Public attributes that `__init__` sets, each with its annotation or that of the parameter it holds."""
    made = next((node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "__init__"), None)
    if made is None:
        return
    given = {one.arg: one.annotation for one in (*made.args.args, *made.args.kwonlyargs)}
    for node in made.body:
        target = (
            node.target
            if isinstance(node, ast.AnnAssign)
            else node.targets[0]
            if isinstance(node, ast.Assign)
            else None
        )
        if not isinstance(target, ast.Attribute) or target.attr.startswith("_"):
            continue
        found = node.annotation if isinstance(node, ast.AnnAssign) else given.get(ast.unparse(node.value))
        if found is not None:
            yield target.attr, found


def _decorators(node: ast.FunctionDef) -> set[str]:
    return {one.id if isinstance(one, ast.Name) else ast.unparse(one) for one in node.decorator_list}


class _Method:
    """One method as the asynchronous handle has it."""

    def __init__(self, names: _Names, module: str, node: ast.FunctionDef, several: bool) -> None:
        self.names, self.module, self.node, self.several = names, module, node, several
        self.decorators = _decorators(node)

    def lines(self) -> Iterator[str]:
        if "property" in self.decorators or f"{self.node.name}.setter" in self.decorators:
            yield from self._property()
            return
        definition, returned = self._returned()
        forms = [self._parameters()]
        if (awaited := self._parameters(awaited=True)) != forms[0]:
            forms.insert(0, awaited)
        doc = (ast.get_docstring(self.node) or "").partition("\n")[0]
        words = f'\n        """{doc}"""' if doc and not doc.endswith('"') else " ..."
        for form in forms:
            if self.several or len(forms) > 1:
                yield "    @overload"
            yield f"    {definition} {self.node.name}({form}) -> {returned}:{words}"

    def _property(self) -> Iterator[str]:
        decorator = "property" if "property" in self.decorators else f"{self.node.name}.setter"
        yield f"    @{decorator}"
        yield f"    def {self.node.name}({self._parameters()}) -> {self._annotation(self.node.returns)}: ..."

    def _returned(self) -> tuple[str, str]:
        """Whether the method is `async def` or `def`, and the type of its result."""
        returns = _without_errors(self.node.returns)
        given = ast.unparse(returns)
        if "contextmanager" in self.decorators:
            assert isinstance(returns, ast.Subscript)
            return "def", f"AbstractAsyncContextManager[{self._annotation(returns.slice)}]"
        if given.startswith("Iterator["):
            assert isinstance(returns, ast.Subscript)
            return "def", f"AsyncIterable[{self._annotation(returns.slice)}]"
        if given in ASYNC and (item := _item(self.names, *_origin(self.module, given))) is not None:
            return "def", f"_Iterated[{ASYNC[given]}, {item}]"
        if given in ("Deciding", "Subagent"):
            return "def", f"_Entered[Async{given}]"
        return "async def", self._annotation(returns)

    def _parameters(self, *, awaited: bool = False) -> str:
        """With `awaited`, callback parameters are coroutine functions: steps and effects await them."""
        args = deepcopy(self.node.args)  # a method of a base class is written for each class
        if {"transactional", "query"} & self.decorators:
            args.args = [one for one in args.args if one.arg != "tx"]
        for one in (*args.posonlyargs, *args.args, *args.kwonlyargs, args.vararg, args.kwarg):
            if one is not None and one.annotation is not None:
                if awaited and self.module == NodeMethods.__module__:
                    one.annotation = _coroutine(one.annotation, self.node.returns)
                one.annotation = ast.Name(self._annotation(one.annotation))
        args.defaults = [ast.Constant(...) for _ in args.defaults]
        args.kw_defaults = [None if one is None else ast.Constant(...) for one in args.kw_defaults]
        return ast.unparse(args)

    def _annotation(self, node: ast.expr | None) -> str:
        return self.names.text(self.module, node)


def _item(names: _Names, module: str, name: str) -> str | None:
    """The type of an iterator's items: `within` returns one, or None."""
    kind = next((one for one in ITERATED if one.__name__ == name), None)
    if kind is None:
        return None
    (found,) = (one for one in _class_of(kind).body if isinstance(one, ast.FunctionDef) and one.name == "within")
    assert isinstance(found.returns, ast.BinOp)
    return names.text(kind.__module__, found.returns.left)


def _coroutine(given: ast.expr, returns: ast.expr | None) -> ast.expr:
    """`Callable[P, T]` as `Callable[P, Coroutine[Any, Any, T]]`, where T is what the method returns."""
    if not (isinstance(given, ast.Subscript) and isinstance(given.slice, ast.Tuple) and isinstance(returns, ast.Name)):
        return given
    *more, last = given.slice.elts
    if ast.unparse(last) != returns.id:
        return given
    made = ast.parse(f"Coroutine[Any, Any, {returns.id}]", mode="eval").body
    return ast.Subscript(given.value, ast.Tuple([*more, made]))


def _without_errors(node: ast.expr | None) -> ast.expr:
    """The type without errors: a transaction may return an error, which the caller sees raised."""
    assert node is not None
    if isinstance(node, ast.BinOp) and ast.unparse(node.right) == "StandfastError":
        return _without_errors(node.left)
    return node


# -- names ---------------------------------------------------------------------------------------------------


class _Names:
    """The names that annotations use, each imported from the module that defines it."""

    def __init__(self) -> None:
        self._shadowed: set[str] = set()
        self._imports = {"builtins"}
        self._origins: dict[str, set[tuple[str, str]]] = defaultdict(set)
        for module, names in HEAD_NAMES.items():
            for name in names:
                self._origins[name].add((module, name))

    def text(self, module: str, node: ast.expr | None) -> str:
        assert node is not None, module
        return ast.unparse(_Renamed(self, module).visit(ast.parse(ast.unparse(node), mode="eval").body))

    def within(self, shadowed: set[str]) -> _Names:
        """The names inside a class whose methods have the same names: `list` is `builtins.list` there."""
        self._shadowed = shadowed
        return self

    def use(self, module: str, name: str) -> str:
        """The name in the stub: a placeholder until all names are collected, because one name may mean two things."""
        if name in ASYNC:
            return ASYNC[name]
        if name in ("Any", "Coroutine"):
            return name
        if hasattr(builtins, name):
            return f"builtins.{name}" if name in self._shadowed else name
        if name in _modules(module):
            self._imports.add(name)
            return name
        origin = _origin(module, name)
        self._origins[name].add(origin)
        return f"‹{origin[0]}:{origin[1]}:{name}›"

    def settled(self, text: str) -> str:
        for name, origins in self._origins.items():
            for module, original in origins:
                shown = name if len(origins) == 1 else f"{module}.{original}"
                text = text.replace(f"‹{module}:{original}:{name}›", shown)
        assert "‹" not in text
        return text

    def imports(self) -> str:
        by_module: dict[str, set[str]] = defaultdict(set)
        for name, origins in self._origins.items():
            for module, original in origins:
                if len(origins) > 1:
                    by_module[module].add("")
                else:
                    by_module[module].add(original if original == name else f"{original} as {name}")
        whole = self._imports | {module for module, names in by_module.items() if "" in names}
        lines = [f"import {module}" for module in sorted(whole)]
        for module, names in sorted(by_module.items()):
            if plain := sorted(names - {""}):
                lines.append(f"from {module} import {', '.join(plain)}")
        return "\n".join(lines)


class _Renamed(ast.NodeTransformer):
    def __init__(self, names: _Names, module: str) -> None:
        self.names, self.module = names, module

    def visit_Name(self, node: ast.Name) -> ast.Name:  # `ast.NodeTransformer` calls a method of this name
        return ast.Name(self.names.use(self.module, node.id))

    def visit_Constant(self, node: ast.Constant) -> ast.expr:
        if isinstance(node.value, str):  # a forward reference
            return self.visit(ast.parse(node.value, mode="eval").body)  # type: ignore[no-any-return]
        return node


def _origin(module: str, name: str) -> tuple[str, str]:
    """The module that defines an object, and the object's name in that module."""
    found = _imported(module).get(name)
    if found is None or not found[0].startswith("standfast"):
        return found or (module, name)
    if _is_package(found[0]) and find_spec(f"{found[0]}.{found[1]}") is not None:
        return found  # a module: `from standfast import serial`
    return _origin(*found)


@cache
def _imported(module: str) -> dict[str, tuple[str, str]]:
    """The names a module imports from others, including imports under TYPE_CHECKING."""
    found: dict[str, tuple[str, str]] = {}
    for node in ast.walk(_tree(module)):
        if isinstance(node, ast.ImportFrom) and node.module and node.col_offset <= 4:
            found |= {one.asname or one.name: (node.module, one.name) for one in node.names}
    return found


@cache
def _modules(module: str) -> set[str]:
    """The modules a module imports whole: `import os`."""
    found = (node for node in ast.walk(_tree(module)) if isinstance(node, ast.Import))
    return {one.name for node in found for one in node.names if one.asname is None}


@cache
def _is_package(module: str) -> bool:
    spec = find_spec(module)
    return spec is not None and spec.submodule_search_locations is not None


@cache
def _tree(module: str) -> ast.Module:
    __import__(module)
    return ast.parse(inspect.getsource(sys.modules[module]))


if __name__ == "__main__":
    main()
