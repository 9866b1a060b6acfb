"""The codec: each value has one text, decoding restores the value, and each refusal gives the path of the bad part."""

from __future__ import annotations

import dataclasses
import enum
import hashlib
import json
import re
import subprocess
import sys
import uuid
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from datetime import time as time_of_day
from pathlib import Path, PurePosixPath
from typing import (
    Annotated,
    Any,
    Generic,
    Literal,
    NamedTuple,
    NewType,
    NotRequired,
    Optional,
    TypedDict,
    TypeVar,
    Union,
)

import pydantic
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from standfast import serial
from standfast.errors import InvalidInput

T = TypeVar("T")
UserName = NewType("UserName", str)


class Color(enum.StrEnum):
    RED = "red"
    BLUE = "blue"


class Size(enum.Enum):
    SMALL = 1
    LARGE = 2


class Area(enum.Enum):
    HOME = (0, 0)


class Right(enum.Flag):
    READ = 1
    WRITE = 2


class Point(NamedTuple):
    x: int
    y: int


class Options(TypedDict):
    color: Color
    note: NotRequired[str]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Author:
    name: str
    born: date | None = None


@dataclasses.dataclass
class PullRequest:
    url: str
    number: int
    opened: datetime
    author: Author
    labels: list[str] = dataclasses.field(default_factory=list)
    color: Color = Color.RED
    path: Path | None = None
    length: int = dataclasses.field(init=False, default=0)

    def __post_init__(self) -> None:
        self.length = len(self.url)


@dataclasses.dataclass
class Page(Generic[T]):
    items: list[T]
    first: T


@dataclasses.dataclass
class Circle:
    radius: float


@dataclasses.dataclass
class Square:
    side: float
    color: Color = Color.BLUE


@dataclasses.dataclass
class Positive:
    number: int

    def __post_init__(self) -> None:
        if self.number <= 0:
            raise ValueError("not positive")


class Issue(pydantic.BaseModel):
    title: str
    state: Color
    at: datetime
    next: Issue | None = None


class Renamed(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(strict=True, extra="forbid")
    number: int = pydantic.Field(alias="issueNumber")
    day: date

    @pydantic.computed_field  # type: ignore[prop-decorator]
    @property
    def twice(self) -> int:
        return 2 * self.number


texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"))
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(serial.INT_MIN, serial.INT_MAX)
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(texts, inner, max_size=5),
    max_leaves=30,
)


def nested(depth: int) -> Any:
    value: Any = []
    for _ in range(depth - 1):
        value = [value]
    return value


def refusal(call: Callable[[], object]) -> str:
    with pytest.raises(InvalidInput) as caught:
        call()
    return caught.value.message


# --- one text for one value --------------------------------------------------------------------


@given(values)
@example("\\u0000")
@example({"\u2028": "\x7f", "é": "e\u0301"})
def test_canonical_text_reads_back_as_the_same_value_and_the_same_text(value: Any) -> None:
    text = serial.canonical(value)
    assert serial.loads(text) == serial.read(text) == value
    assert serial.canonical(serial.loads(text)) == text
    assert serial.dumps(value) == text


@given(values)
def test_canonical_is_plain_json_sorted_and_compact(value: Any) -> None:
    """003-29: the canonical form is plain JSON text."""
    text = serial.canonical(value)
    assert text == json.dumps(json.loads(text), sort_keys=True, ensure_ascii=False, separators=(",", ":"))


@given(st.dictionaries(texts, values, max_size=8), st.randoms())
def test_the_order_in_which_keys_were_written_does_not_matter(value: dict[str, Any], random: Any) -> None:
    shuffled = list(value.items())
    random.shuffle(shuffled)
    assert serial.hash(dict(shuffled)) == serial.hash(value)


def test_the_canonical_form_is_fixed_for_ever() -> None:
    value = {"b": [1, 1.0, -0.0, 1e22, True, None], "a": 'é\n"\\/\x7f\x1f', "B": {"\U0001f600": {}, "\uffff": []}}
    text = '{"B":{"\uffff":[],"\U0001f600":{}},"a":"é\\n\\"\\\\/\x7f\\u001f","b":[1,1.0,-0.0,1e+22,true,null]}'
    assert serial.canonical(value) == text
    assert serial.hash(value) == "h1:" + hashlib.sha256(text.encode()).hexdigest() == serial.hash_text(text)
    assert serial.hash({}) == "h1:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"


def test_one_and_one_point_zero_differ_and_nothing_is_normalised() -> None:
    assert serial.hash(1) != serial.hash(1.0)
    assert serial.hash(1) != serial.hash(True)
    assert serial.hash("\u00e9") != serial.hash("e\u0301")


def test_integers_reach_from_minus_2_to_the_63_to_one_less_than_2_to_the_63() -> None:
    """003-29: these are the limits of a bigint column."""
    assert serial.canonical([-(2**63), 2**63 - 1]) == "[-9223372036854775808,9223372036854775807]"


@pytest.mark.parametrize("number", [2**63, -(2**63) - 1, 10**5000], ids=["2^63", "-2^63-1", "10^5000"])
def test_an_integer_beyond_is_refused(number: int) -> None:
    bounds = "value[0]: an integer must be at least -2^63 and less than 2^63"
    assert refusal(lambda: serial.canonical([number])) == bounds


def test_depth_ends_at_64() -> None:
    assert serial.loads(serial.canonical(nested(64))) == nested(64)
    assert serial.canonical({"a": nested(63)})
    assert "nested deeper than 64 levels" in refusal(lambda: serial.canonical(nested(65)))
    assert "nested deeper than 64 levels" in refusal(lambda: serial.canonical({"a": nested(64)}))
    cycle: list[Any] = []
    cycle.append(cycle)
    assert "nested deeper than 64 levels" in refusal(lambda: serial.canonical(cycle))


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"items": [0, 1, 2, {"price": float("nan")}]}, "intent.items[3].price: NaN is not JSON"),
        ([float("-inf")], "intent[0]: -Infinity is not JSON"),
        ({"a": {1: 2}}, "intent.a: key 1 is int, not a string"),
        ({None: 2}, "intent: key None is NoneType, not a string"),
        ({"a b": "\ud800"}, "intent['a b']: a lone surrogate (U+D800) is not Unicode text"),
        ({"\udfff": 1}, "intent['']: a lone surrogate (U+DFFF) is not Unicode text"),
        ({"a": ["x\x00y"]}, "intent.a[0]: a NUL character cannot be stored"),
        ({"a": b"x"}, "intent.a: bytes is not a value that can be stored"),
        ({"a": {1}}, "intent.a: set is not a value that can be stored"),
        ((1, object()), "intent[1]: object is not a value that can be stored"),
        ({"a": dict}, "intent.a: the class dict is not a value"),
    ],
)
def test_what_cannot_be_stored_is_named_by_its_path(value: object, message: str) -> None:
    assert refusal(lambda: serial.canonical(value, what="intent")) == message


def test_a_coroutine_is_refused_because_it_was_not_awaited() -> None:
    async def later() -> None: ...

    coroutine = later()
    with pytest.raises(InvalidInput, match="not awaited"):
        serial.canonical(coroutine)
    coroutine.close()


def test_a_payload_has_a_limit_in_bytes() -> None:
    assert serial.dumps("é" * 9, limit_bytes=20) == f'"{"é" * 9}"'
    assert refusal(lambda: serial.dumps("é" * 10, what="result", limit_bytes=20)) == (
        "result: 22 bytes, and the limit is 20"
    )
    assert "limit is 8,388,608" in refusal(lambda: serial.dumps("x" * serial.PAYLOAD_MAX_BYTES))


# texts from outside


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "body: line 1 column 1: Expecting value"),
        ('{"a": 1,\n "b": }', "body: line 2 column 7: Expecting value"),
        ("[1] 2", "body: line 1 column 5: Extra data"),
        ("{'a': 1}", "body: line 1 column 2: Expecting property name enclosed in double quotes"),
        ('"a\x00b"', "body: line 1 column 3: Invalid control character at"),
        ('["\\u0000"]', "body[0]: a NUL character cannot be stored"),
        ('{"a": "\\ud800"}', "body.a: a lone surrogate (U+D800) is not Unicode text"),
        ('"\ud800"', "body: a lone surrogate at character 1 is not Unicode text"),
        ("[NaN]", "body: NaN is not JSON"),
        ("-Infinity", "body: -Infinity is not JSON"),
        ("[1e999]", "body: Infinity is not JSON"),
        ("9" * 400 + ".0", "body: Infinity is not JSON"),
        ('{"a": {"k": 1, "j": 2, "k": 1}}', "body: key 'k' appears twice in one object"),
        ('{"a": 9223372036854775808}', "body.a: an integer must be at least -2^63 and less than 2^63"),
        ("1" * 5000, "body: an integer must be at least -2^63 and less than 2^63"),
        ("[" * 65 + "]" * 65, "body" + "[0]" * 64 + ": nested deeper than 64 levels"),
        ("[" * 100_000 + "]" * 100_000, "body: nested deeper than 64 levels"),
        ('{"a":' * 100_000, "body: nested deeper than 64 levels"),
        (b'"\xff"', "body: byte 1 is not UTF-8"),
    ],
)
def test_the_strict_loader_names_each_invalid_value(text: str | bytes, message: str) -> None:
    assert refusal(lambda: serial.loads(text, what="body")) == message
    serial.read(text)  # and the total reader never raises


def test_the_strict_loader_is_bounded() -> None:
    assert "9 bytes, and the limit is 8" in refusal(lambda: serial.loads('"1234567"', limit_bytes=8))
    assert "9 bytes, and the limit is 8" in refusal(lambda: serial.loads(b'"1234567"', limit_bytes=8))


def test_paired_surrogates_in_an_escape_are_one_character() -> None:
    assert serial.loads('"\\ud83d\\ude00"') == "\U0001f600"


@given(st.text() | st.binary())
def test_the_strict_loader_refuses_with_a_typed_error_or_gives_what_can_be_stored(text: str | bytes) -> None:
    try:
        value = serial.loads(text)
    except InvalidInput:
        return
    assert serial.loads(serial.canonical(value)) == value


@given(st.text() | st.binary() | st.none() | st.integers())
@example("[" * 100_000)
@example("1" * 5000)
@example("NaN")
@example("\ud800")
def test_the_total_reader_never_throws(text: object) -> None:
    """003-30: a text that is not JSON is returned unchanged."""
    value = serial.read(text)
    if value != text:
        assert value == json.loads(str(text))


def test_the_total_reader_returns_what_it_cannot_read() -> None:
    """003-30: all readers of JSON use one codec."""
    assert serial.read('{"a": 1}') == {"a": 1}
    assert [serial.read(text) for text in ("{oops", "NaN", "", b"1", None)] == ["{oops", "NaN", "", b"1", None]


# --- typed values ------------------------------------------------------------------------------

MOMENT = datetime(2026, 11, 15, 3, 0, 0, 123456, tzinfo=UTC)
PR = PullRequest("https://x/1", 1, MOMENT, Author(name="Ada", born=date(1815, 12, 10)), ["a"], Color.BLUE, Path("a/b"))


@pytest.mark.parametrize(
    ("value", "annotation"),
    [
        (1, int),
        (1.5, float),
        ("x", str),
        (True, bool),
        (None, type(None)),
        ("ada", UserName),
        ([1, 2], list[int]),
        ([1, "a"], list),
        ([PR], Sequence[PullRequest]),
        ((1, "a"), tuple[int, str]),
        ((1, 2, 3), tuple[int, ...]),
        ((), tuple[int, ...]),
        ({"a": Circle(1.0)}, dict[str, Circle]),
        ({"a": 1}, Mapping[str, int]),
        ({Color.RED: 1}, dict[Color, int]),
        (Color.RED, Color),
        (Size.LARGE, Size),
        (Area.HOME, Area),
        (Right.READ | Right.WRITE, Right),
        (MOMENT, datetime),
        (MOMENT.replace(tzinfo=None), datetime),
        (date(2026, 1, 2), date),
        (time_of_day(3, 4), time_of_day),
        (timedelta(days=2, microseconds=7), timedelta),
        (Path("/tmp/x"), Path),
        (PurePosixPath("a"), PurePosixPath),
        (uuid.UUID(int=7), uuid.UUID),
        (PR, PullRequest),
        (Page([PR], PR), Page[PullRequest]),
        (Point(1, 2), Point),
        ({"color": Color.RED}, Options),
        (Issue(title="t", state=Color.RED, at=MOMENT, next=Issue(title="u", state=Color.BLUE, at=MOMENT)), Issue),
        (Renamed(issueNumber=4, day=date(2026, 1, 2)), Renamed),
        (None, Optional[PullRequest]),  # noqa: UP045 - the older spelling is another object
        (PR, PullRequest | None),
        (Square(2.0), Circle | Square),
        (Circle(2.0), Union[Square, Circle]),  # noqa: UP007 - the older spelling, too
        (3, float | int),
        (3.0, int | float),
        ("x", int | str),
        (MOMENT, datetime | str),
        ("b", Literal["a", "b"]),
        (Color.RED, Literal[Color.RED]),
        (5, Annotated[int, ["unhashable"]]),
        ([{"a": None}], Any),
    ],
    ids=str,
)
def test_stored_values_are_decoded_by_the_annotation(value: object, annotation: object) -> None:
    text = serial.dumps(value)
    back = serial.decode(serial.read(text), annotation)
    assert (back, type(back)) == (value, type(value))
    assert serial.canonical(serial.encode(value)) == text


def test_no_class_name_is_stored() -> None:
    assert serial.encode(PR) == {
        "url": "https://x/1",
        "number": 1,
        "opened": "2026-11-15T03:00:00.123456+00:00",
        "author": {"name": "Ada", "born": "1815-12-10"},
        "labels": ["a"],
        "color": "blue",
        "path": "a/b",
        "length": 11,
    }


def test_a_plain_value_is_not_copied() -> None:
    value = {"a": [1, "x", None]}
    assert serial.encode(value) is value


def test_subclasses_are_stored_as_what_they_are_underneath() -> None:
    class Shout(str):
        def __str__(self) -> str:
            return "!"

    plain = serial.encode({Color.RED: Shout("a"), "n": Size.LARGE, "t": (1, (2,))})
    assert serial.canonical(plain) == '{"n":2,"red":"a","t":[1,[2]]}'
    assert type(plain["red"]) is str


def test_a_dataclass_reads_what_older_and_newer_code_wrote() -> None:
    old = {"url": "u", "number": 1, "opened": "2026-01-01T00:00:00Z", "author": {"name": "A"}, "unknown": [1]}
    assert serial.decode(old, PullRequest) == PullRequest("u", 1, datetime(2026, 1, 1, tzinfo=UTC), Author(name="A"))


@pytest.mark.parametrize(
    ("value", "annotation", "message"),
    [
        ({"side": "2"}, Square, "result.side: a number is wanted, found text"),
        ({}, Square, "result.side: Square needs this field, and it is missing"),
        ([], Square, "result: an object (Square) is wanted, found a list"),
        ({"side": 1, "color": "pink"}, Square, "result.color: 'pink' is not one of Color: 'red', 'blue'"),
        ({"items": [1, None], "first": 1}, Page[int], "result.items[1]: an integer is wanted, found null"),
        ({"side": "x"}, Circle | Square, "result.side: a number is wanted, found text"),
        ({"number": -1}, Positive, "result: Positive refuses it: not positive"),
        (True, int, "result: an integer is wanted, found true or false"),
        (1.0, int, "result: an integer is wanted, found a number"),
        (None, str, "result: text is wanted, found null"),
        (1, bool, "result: true or false is wanted, found an integer"),
        (1, None | str, "result: an integer does not fit None | str"),
        ([1, 2, 3], tuple[int, int], "result: 2 items are wanted, found 3"),
        ({"a": 1}, dict[int, int], "result.a: an integer is wanted, found text"),
        (True, Literal[1], "result: True is not one of 1"),
        ({}, Options, "result.color: Options needs this field, and it is missing"),
        ("x", uuid.UUID, "result: a UUID is wanted: badly formed hexadecimal UUID string"),
        ("x", object, None),
        ("x", type("Local", (), {}), "result: Local cannot be rebuilt from JSON"),
        ({1, 2}, set[int], "result: set[int] cannot be rebuilt from JSON"),
    ],
    ids=str,
)
def test_a_stored_value_that_no_longer_fits_is_named_by_its_field(
    value: object, annotation: object, message: str | None
) -> None:
    if message is None:
        assert serial.decode(value, annotation) is value
    else:
        assert refusal(lambda: serial.decode(value, annotation, what="result")) == message


def test_invalid_dates_are_refused_with_the_reason() -> None:
    assert refusal(lambda: serial.decode("soon", datetime)).startswith("value: a time in ISO format is wanted: ")
    assert refusal(lambda: serial.decode(["2026-13-01"], list[date])).startswith("value[0]: a date in ISO format is")


def test_a_pydantic_refusal_keeps_the_path() -> None:
    value = {"title": "t", "state": "red", "at": "2026-01-01T00:00:00Z", "next": {"title": 3}}
    message = refusal(lambda: serial.decode([value], list[Issue], what="result"))
    assert message.startswith("result[0].next.title: Issue refuses it: ")


@given(
    st.builds(
        PullRequest,
        url=texts,
        number=st.integers(serial.INT_MIN, serial.INT_MAX),
        opened=st.datetimes(timezones=st.just(UTC)) | st.datetimes(),
        author=st.builds(Author, name=texts, born=st.none() | st.dates()),
        labels=st.lists(texts, max_size=3),
        color=st.sampled_from(Color),
        path=st.none() | st.just(Path("a/b")),
    )
)
def test_any_dataclass_survives_the_store(pull: PullRequest) -> None:
    assert serial.decode(serial.read(serial.dumps(pull)), PullRequest) == pull


@given(st.builds(Issue, title=texts, state=st.sampled_from(Color), at=st.datetimes(), next=st.none()))
def test_any_pydantic_model_survives_the_store(issue: Issue) -> None:
    assert serial.decode(serial.read(serial.dumps(issue)), Issue) == issue


def test_a_functions_own_annotation_is_resolved() -> None:
    def typed() -> Page[PullRequest]: ...  # type: ignore[empty-body]
    def untyped(): ...  # type: ignore[no-untyped-def]
    def nothing() -> None: ...
    def half(x: Missing) -> Circle: ...  # type: ignore[name-defined, empty-body] # noqa: F821
    def unknown() -> Missing: ...  # type: ignore[name-defined] # noqa: F821

    assert serial.return_annotation(typed) == Page[PullRequest]
    assert serial.return_annotation(half) is Circle
    assert serial.return_annotation(untyped) is serial.return_annotation(nothing) is None
    with pytest.raises(InvalidInput, match=r"'Missing' is not defined\nname the type in returns="):
        serial.return_annotation(unknown)


def test_pydantic_and_the_slow_modules_are_not_imported_for_plain_values() -> None:
    code = (
        "import sys; from standfast import serial; serial.hash({'a': [1, 'x']}); serial.loads('{}');"
        "print(*sorted({'pydantic', 'dataclasses', 'inspect', 'uuid', 'pathlib', 'datetime'} & set(sys.modules)))"
    )
    # -I -S: site may import anything for a development install; the path is given by hand.
    source = str(Path(serial.__file__).parents[2])
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", f"import sys; sys.path.insert(0, {source!r}); {code}"],
        capture_output=True,
        text=True,
    )
    assert (done.stdout.strip(), done.stderr) == ("", "")


# --- summaries ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("  two\n\tlines \r\n", "two lines"),
        ("\x1b[31mred\x1b[0m \x1b]0;title\x07end", "red end"),
        ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("safe\u202egnp.exe", "safegnp.exe"),
        ("a\u200bb\ufeffc\U000e0041d\x00e\x9bf\ud800g", "abcdefg"),
        ("one\u2028two\x85three", "one two three"),
        ("👩\u200d💻 née", "👩\u200d💻 née"),
        ("\x1b", ""),
    ],
)
def test_a_summary_has_only_stored_values(text: str, line: str) -> None:
    assert serial.clean(text) == line


@given(st.text(), st.integers(min_value=1, max_value=50))
def test_a_summary_is_one_bounded_line_that_can_be_stored(text: str, limit: int) -> None:
    line = serial.clean(text, limit)
    assert len(line) <= limit
    assert len(line.splitlines()) <= 1
    assert serial.canonical(line)
    assert "\x1b" not in line


def test_a_long_text_is_cut_with_an_ellipsis() -> None:
    assert serial.clean("x" * 201) == "x" * 199 + "…"
    assert serial.clean("x" * 200) == "x" * 200
    assert serial.clean("x " * 4_000_000, 10) == "x x x x x…"


def test_the_payload_columns_are_the_ones_the_audit_denies() -> None:
    assert serial.PAYLOAD_COLUMNS == (
        "message.content",
        "effect.intent",
        "effect.result",
        "approval.question",
        "step.result",
        "mail.body",
        "checkpoint.data",
        "event.data",
        "tool_call.input",
        "tool_call.output",
        "thread_value.data",
        "thread_write.data",
        "item.value",
        "item_vector.vector",
        "knowledge.text",
        "knowledge.words",
        "knowledge.vector",
    )


def test_the_reference_page_is_true() -> None:
    page = (Path(__file__).parents[2] / "docs/reference/values.md").read_text(encoding="utf-8")
    shown = re.findall(r"^assert (serial\.\w+\(.*\)) == (.+)$", page, re.MULTILINE)
    assert len(shown) == 2
    for call, result in shown:
        assert eval(call, {"serial": serial}) == eval(result)  # a page of this project


def test_the_digests_of_a_start_are_those_of_hashlib() -> None:
    from standfast.serial import digests

    for text in (b"", b"abc", b"x" * 100_000):
        assert digests.sha256(text).hexdigest() == hashlib.sha256(text).hexdigest()
        ours, theirs = digests.blake2b(text, key=b"k", digest_size=16), hashlib.blake2b(text, key=b"k", digest_size=16)
        assert ours.hexdigest() == theirs.hexdigest()
