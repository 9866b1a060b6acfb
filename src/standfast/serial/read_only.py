"""Dicts and lists that refuse changes, because a change of a value that was read would not be stored.

They are equal to plain dicts and lists, and `json.dumps` writes them. `copy.copy`, `copy.deepcopy` and `pickle` make
plain ones, which can be changed.
"""

from __future__ import annotations

from typing import Any, NoReturn

from standfast.errors import InvalidInput


def _refuse(self: Any, *args: object, **kwargs: object) -> NoReturn:
    raise InvalidInput("a value read from state is read-only: the change would not be stored", self.hint)


class ReadOnlyDict(dict[str, Any]):
    """A dict whose `hint` names the method that stores a change."""

    __slots__ = ("hint",)
    hint: str

    __setitem__ = __delitem__ = __ior__ = clear = pop = popitem = setdefault = update = _refuse

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (dict(self),)


class ReadOnlyList(list[Any]):
    """A list whose `hint` names the method that stores a change."""

    __slots__ = ("hint",)
    hint: str

    __setitem__ = __delitem__ = __iadd__ = __imul__ = append = clear = extend = insert = _refuse
    pop = remove = reverse = sort = _refuse

    def __reduce__(self) -> tuple[Any, ...]:
        return list, (list(self),)


def read_only(value: Any, hint: str) -> Any:
    """A copy of the value with dicts and lists that refuse changes."""
    kind = type(value)
    if kind is dict:
        frozen = ReadOnlyDict(value)
        for name, one in value.items():
            if type(one) in (dict, list):
                dict.__setitem__(frozen, name, read_only(one, hint))
        frozen.hint = hint
        return frozen
    if kind is list:
        fixed = ReadOnlyList(value)
        for n, one in enumerate(value):
            if type(one) in (dict, list):
                list.__setitem__(fixed, n, read_only(one, hint))
        fixed.hint = hint
        return fixed
    return value


def changeable(value: Any) -> Any:
    """A copy of plain dicts and lists. `copy.deepcopy` does the same, ten times slower."""
    if isinstance(value, dict):
        return {name: changeable(one) for name, one in value.items()}
    if isinstance(value, list):
        return [changeable(one) for one in value]
    return value
