"""The supported part of JSON Schema: the tests check every keyword, and unsupported keywords are refused by name."""

from __future__ import annotations

from typing import Any

import pytest

from standfast.errors import InvalidInput
from standfast.record.state import schemas

TREE = {"$ref": "#/$defs/node", "$defs": {"node": {"type": "object", "properties": {"left": {"$ref": "#/$defs/node"}}}}}
CASES: list[tuple[Any, list[Any], list[Any]]] = [
    (True, [1, None, {}], []),
    (False, [], [1, None]),
    ({}, [1, "a"], []),
    ({"type": "integer"}, [1, 0, 1.0], [1.5, "1", True, None]),
    ({"type": "number"}, [1, 1.5], [True, "1"]),
    ({"type": ["string", "null"]}, ["", None], [0, []]),
    ({"type": "boolean"}, [True], [0]),
    ({"enum": [1, "a", None]}, [1, 1.0, "a", None], [2, "b", True]),
    ({"const": {"a": [1]}}, [{"a": [1]}, {"a": [1.0]}], [{"a": [2]}]),
    ({"minimum": 1, "maximum": 3}, [1, 3, 2.5, "text"], [0, 4]),
    ({"exclusiveMinimum": 1, "exclusiveMaximum": 3}, [2], [1, 3]),
    ({"minLength": 1, "maxLength": 2}, ["é", "ab", 5], ["", "abc"]),
    ({"minItems": 1, "maxItems": 2}, [[1], [1, 2]], [[], [1, 2, 3]]),
    ({"uniqueItems": True}, [[1, 2], [1, "1"], [True, 1]], [[1, 1.0], [{"a": 1}, {"a": 1}]]),
    ({"items": {"type": "string"}}, [[], ["a"], 5], [["a", 1]]),
    ({"prefixItems": [{"type": "string"}], "items": {"type": "integer"}}, [["a", 1], []], [["a", "b"], [1]]),
    ({"properties": {"a": {"type": "string"}}}, [{}, {"a": "x"}, {"b": 1}], [{"a": 1}]),
    ({"properties": {"a": {}}, "additionalProperties": False}, [{"a": 1}], [{"b": 1}]),
    ({"additionalProperties": {"type": "integer"}}, [{"x": 1}], [{"x": "1"}]),
    ({"required": ["a"]}, [{"a": None}, "text"], [{}]),
    ({"minProperties": 1, "maxProperties": 1}, [{"a": 1}], [{}, {"a": 1, "b": 2}]),
    ({"allOf": [{"minimum": 1}, {"maximum": 2}]}, [1], [0, 3]),
    ({"anyOf": [{"type": "string"}, {"minimum": 5}]}, ["a", 5], [4]),
    ({"oneOf": [{"minimum": 1}, {"maximum": 3}]}, [0, 4], [2]),
    ({"not": {"type": "string"}}, [1], ["a"]),
    (TREE, [{}, {"left": {"left": {}}}], [{"left": {"left": 1}}]),
    ({"title": "t", "description": "d", "format": "email", "$schema": "x", "default": 1}, ["no mail"], []),
]


@pytest.mark.parametrize(("schema", "good", "bad"), CASES, ids=lambda value: None)
def test_a_keyword_accepts_and_refuses(schema: Any, good: list[Any], bad: list[Any]) -> None:
    compiled = schemas.compiled(schema)
    for value in good:
        schemas.check(value, compiled, "k")
    for value in bad:
        with pytest.raises(InvalidInput, match="'k' does not fit its schema"):
            schemas.check(value, compiled, "k")


def test_every_keyword_is_in_a_case() -> None:
    tried = {word for schema, _, _ in CASES if isinstance(schema, dict) for word in schema}
    assert set(schemas.KEYWORDS) <= tried


@pytest.mark.parametrize("word", ["pattern", "patternProperties", "if", "multipleOf", "contains", "minimun", "$anchor"])
@pytest.mark.parametrize("where", [lambda s: s, lambda s: {"properties": {"a": s}}, lambda s: {"$defs": {"d": s}}])
def test_a_keyword_that_is_not_checked_is_refused_by_name(word: str, where: Any) -> None:
    with pytest.raises(InvalidInput, match=rf"the keyword '\{word}'" if word[0] == "$" else f"the keyword '{word}'"):
        schemas.compiled(where({word: 1}))


GARBAGE: list[Any] = [
    None,
    [],
    "string",
    {"type": "text"},
    {"type": []},
    {"type": [1]},
    {"enum": []},
    {"enum": "a"},
    {"minLength": -1},
    {"minLength": True},
    {"minimum": "1"},
    {"uniqueItems": 1},
    {"required": "a"},
    {"required": [1]},
    {"properties": []},
    {"properties": {"a": 5}},
    {"items": [1]},
    {"allOf": {}},
    {"$ref": "http://example.org/schema"},
    {"$ref": "#/$defs/missing"},
    {"$ref": 5},
    {"$defs": []},
]


@pytest.mark.parametrize("schema", GARBAGE, ids=repr)
def test_garbage_is_no_schema(schema: Any) -> None:
    with pytest.raises(InvalidInput):
        schemas.compiled(schema)


def test_a_schema_that_goes_in_circles_or_multiplies_ends_soon() -> None:
    circle = schemas.compiled({"$ref": "#"})
    with pytest.raises(InvalidInput, match="too many comparisons"):
        schemas.check(1, circle, "k")
    self = {"$ref": "#"}
    many = schemas.compiled({"properties": {"a": {"allOf": [self] * 50}}})
    value: Any = 1
    for _ in range(20):
        value = {"a": value}
    with pytest.raises(InvalidInput, match="too many comparisons"):
        schemas.check(value, many, "k")


def test_a_schema_is_bounded_in_size() -> None:
    with pytest.raises(InvalidInput, match=r"json_schema: .* bytes, and the limit is 65,536"):
        schemas.compiled({"enum": ["x" * 70_000]})
