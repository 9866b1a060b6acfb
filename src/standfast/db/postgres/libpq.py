"""libpq without psycopg: the part of `psycopg.pq` that `dial` and `wire` use, called through ctypes.

For processes that end soon. Importing psycopg costs more CPU than all the rest of a hook; loading the
C library it stands on costs a tenth of that. The library is the one that comes with `psycopg[binary]`,
found beside it and opened without importing anything of it. Names, numbers and meanings are those of
`psycopg.pq`, so that what is built on one stands on the other.

Importing this module raises ImportError where there is no such library, or one too old for pipelines.
Answers are asked for as text, and read so: a value ends at its NUL, which PostgreSQL's text cannot hold.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Sequence
from ctypes import c_char_p, c_int, c_uint, c_void_p
from importlib.machinery import PathFinder
from typing import Any

OLDEST = 140000
"""Pipeline mode came with this one."""


class Error(Exception):
    """libpq says no. What the server says comes as a result instead."""

    sqlstate: str | None = None


# -- the library --------------------------------------------------------------------------------------


def _path() -> str:
    """The library that psycopg's wheel brings along: Linux keeps it beside the package, macOS inside it.

    Not where psycopg was compiled here (`psycopg_c`): then it would take the system's.
    """
    found = PathFinder.find_spec("psycopg_binary") if PathFinder.find_spec("psycopg_c") is None else None
    for package in (found.submodule_search_locations or ()) if found is not None else ():
        for directory in (f"{package}.libs", os.path.join(package, ".dylibs")):
            names = os.listdir(directory) if os.path.isdir(directory) else []
            for name in sorted(names):
                if name.startswith("libpq") and (".so" in name or name.endswith(".dylib")):
                    return os.path.join(directory, name)
    raise ImportError("psycopg brings no libpq of its own here")


def _loaded() -> tuple[ctypes.CDLL, ctypes.PyDLL]:
    """Twice the same: for calls that may take long, and for those that only look at memory."""
    path = _path()
    try:
        return ctypes.CDLL(path), ctypes.PyDLL(path)
    except OSError as error:
        raise ImportError(f"libpq cannot be loaded: {error}") from None


_slow, _quick = _loaded()


def _function(library: ctypes.CDLL, name: str, result: Any, *arguments: Any) -> Any:
    try:
        function = library[name]
    except AttributeError:
        raise ImportError(f"this libpq has no {name}") from None
    function.restype, function.argtypes = result, arguments
    return function


class _Option(ctypes.Structure):
    _fields_ = (
        *((name, c_char_p) for name in ("keyword", "envvar", "compiled", "val", "label", "dispchar")),
        ("dispsize", c_int),
    )


_Receiver = ctypes.CFUNCTYPE(None, c_void_p, c_void_p)
_Options = ctypes.POINTER(_Option)
_Texts, _Numbers, _Types = ctypes.POINTER(c_char_p), ctypes.POINTER(c_int), ctypes.POINTER(c_uint)
_VALUES = (c_int, _Texts, _Numbers, _Numbers, c_int)

version: Callable[[], int] = _function(_quick, "PQlibVersion", c_int)
if version() < OLDEST:
    raise ImportError(f"libpq {version()} knows no pipelines")

_connect_start = _function(_slow, "PQconnectStart", c_void_p, c_char_p)
_connect_poll = _function(_slow, "PQconnectPoll", c_int, c_void_p)
_finish = _function(_slow, "PQfinish", None, c_void_p)
_ping = _function(_slow, "PQping", c_int, c_char_p)
_flush = _function(_slow, "PQflush", c_int, c_void_p)
_consume_input = _function(_slow, "PQconsumeInput", c_int, c_void_p)
_get_result = _function(_slow, "PQgetResult", c_void_p, c_void_p)
_sync = _function(_slow, "PQpipelineSync", c_int, c_void_p)
_send_params = _function(
    _slow, "PQsendQueryParams", c_int, c_void_p, c_char_p, c_int, _Types, _Texts, _Numbers, _Numbers, c_int
)
_send_prepare = _function(_slow, "PQsendPrepare", c_int, c_void_p, c_char_p, c_char_p, c_int, _Types)
_send_prepared = _function(_slow, "PQsendQueryPrepared", c_int, c_void_p, c_char_p, *_VALUES)
_is_busy = _function(_quick, "PQisBusy", c_int, c_void_p)
_status = _function(_quick, "PQstatus", c_int, c_void_p)
_transaction_status = _function(_quick, "PQtransactionStatus", c_int, c_void_p)
_socket = _function(_quick, "PQsocket", c_int, c_void_p)
_backend_pid = _function(_quick, "PQbackendPID", c_int, c_void_p)
_ssl_in_use = _function(_quick, "PQsslInUse", c_int, c_void_p)
_host = _function(_quick, "PQhost", c_char_p, c_void_p)
_hostaddr = _function(_quick, "PQhostaddr", c_char_p, c_void_p)
_port = _function(_quick, "PQport", c_char_p, c_void_p)
_error_message = _function(_quick, "PQerrorMessage", c_char_p, c_void_p)
_is_nonblocking = _function(_quick, "PQisnonblocking", c_int, c_void_p)
_set_nonblocking = _function(_slow, "PQsetnonblocking", c_int, c_void_p, c_int)
_enter_pipeline = _function(_quick, "PQenterPipelineMode", c_int, c_void_p)
_set_receiver = _function(_quick, "PQsetNoticeReceiver", c_void_p, c_void_p, _Receiver, c_void_p)

_clear = _function(_quick, "PQclear", None, c_void_p)
_result_status = _function(_quick, "PQresultStatus", c_int, c_void_p)
_result_message = _function(_quick, "PQresultErrorMessage", c_char_p, c_void_p)
_result_field = _function(_quick, "PQresultErrorField", c_char_p, c_void_p, c_int)
_command_status = _function(_quick, "PQcmdStatus", c_char_p, c_void_p)
_ntuples = _function(_quick, "PQntuples", c_int, c_void_p)
_nfields = _function(_quick, "PQnfields", c_int, c_void_p)
_fname = _function(_quick, "PQfname", c_char_p, c_void_p, c_int)
_ftype = _function(_quick, "PQftype", c_uint, c_void_p, c_int)
_get_value = _function(_quick, "PQgetvalue", c_char_p, c_void_p, c_int, c_int)
_get_is_null = _function(_quick, "PQgetisnull", c_int, c_void_p, c_int, c_int)

_parse = _function(_quick, "PQconninfoParse", _Options, c_char_p, ctypes.POINTER(c_void_p))
_free_options = _function(_quick, "PQconninfoFree", None, _Options)
_free = _function(_quick, "PQfreemem", None, c_void_p)


# -- connections --------------------------------------------------------------------------------------


class PGconn:
    """One connection. Ended when it is collected, unless that happens in a forked child."""

    __slots__ = ("_notices", "_pid", "_pointer", "_receiver")

    def __init__(self, pointer: int) -> None:
        self._pointer: int | None = pointer
        self._pid = os.getpid()
        # What C calls knows this list and not the connection, which could otherwise not be collected.
        self._notices: list[Callable[[PGresult], None]] = []
        self._receiver = _receiver(self._notices)
        _set_receiver(pointer, self._receiver, None)

    def __del__(self, getpid: Callable[[], int] = os.getpid) -> None:
        if getpid() == self._pid:
            self.finish()

    @classmethod
    def connect_start(cls, conninfo: bytes) -> PGconn:
        pointer = _connect_start(conninfo)
        if not pointer:
            raise MemoryError("no memory for a connection")
        return cls(pointer)

    @classmethod
    def ping(cls, conninfo: bytes) -> int:
        return int(_ping(conninfo))

    def connect_poll(self) -> int:
        return int(_connect_poll(self._open))

    def finish(self, finish: Callable[[int], None] = _finish) -> None:
        pointer, self._pointer = self._pointer, None
        if pointer:
            finish(pointer)

    @property
    def _open(self) -> int:
        if self._pointer is None:
            raise Error("the connection is closed")
        return self._pointer

    @property
    def notice_handler(self) -> Callable[[PGresult], None] | None:
        return self._notices[0] if self._notices else None

    @notice_handler.setter
    def notice_handler(self, handler: Callable[[PGresult], None] | None) -> None:
        self._notices[:] = [handler] if handler is not None else []

    # -- how it is ----------------------------------------------------------------------------------

    @property
    def status(self) -> int:
        return int(_status(self._pointer))  # bad, where it is closed

    @property
    def transaction_status(self) -> int:
        return int(_transaction_status(self._pointer))

    @property
    def socket(self) -> int:
        number = int(_socket(self._open))
        if number < 0:
            raise Error("the connection is lost")
        return number

    @property
    def error_message(self) -> bytes:
        return _error_message(self._pointer) or b""

    @property
    def backend_pid(self) -> int:
        return int(_backend_pid(self._open))

    @property
    def ssl_in_use(self) -> bool:
        return bool(_ssl_in_use(self._open))

    @property
    def host(self) -> bytes:
        return _host(self._open) or b""

    @property
    def hostaddr(self) -> bytes:
        return _hostaddr(self._open) or b""

    @property
    def port(self) -> bytes:
        return _port(self._open) or b""

    @property
    def nonblocking(self) -> int:
        return int(_is_nonblocking(self._open))

    @nonblocking.setter
    def nonblocking(self, wanted: int) -> None:
        self._must(_set_nonblocking(self._open, wanted) == 0, "setting nonblocking")

    def _must(self, done: bool, what: str) -> None:
        if not done:
            words = self.error_message.decode("utf-8", "replace").strip()
            raise Error(f"{what} failed: {words or 'no error details available'}")

    # -- sending ------------------------------------------------------------------------------------

    def enter_pipeline_mode(self) -> None:
        self._must(_enter_pipeline(self._open) == 1, "entering pipeline mode")

    def pipeline_sync(self) -> None:
        self._must(_sync(self._open) == 1, "syncing the pipeline")

    def send_query_params(
        self, command: bytes, values: Sequence[bytes | None], types: Sequence[int], formats: Sequence[int]
    ) -> None:
        count = len(values)
        sent = _send_params(self._open, command, count, (c_uint * count)(*types), *_arrays(values, formats), 0)
        self._must(sent == 1, "sending query and params")

    def send_prepare(self, name: bytes, command: bytes, types: Sequence[int]) -> None:
        count = len(types)
        sent = _send_prepare(self._open, name, command, count, (c_uint * count)(*types))
        self._must(sent == 1, "sending query and params")

    def send_query_prepared(self, name: bytes, values: Sequence[bytes | None], formats: Sequence[int]) -> None:
        sent = _send_prepared(self._open, name, len(values), *_arrays(values, formats), 0)
        self._must(sent == 1, "sending prepared query")

    def flush(self) -> int:
        left = int(_flush(self._open))
        self._must(left >= 0, "flushing")
        return left

    # -- receiving ----------------------------------------------------------------------------------

    def is_busy(self) -> int:
        return int(_is_busy(self._open))

    def consume_input(self) -> None:
        self._must(_consume_input(self._open) == 1, "consuming input")

    def get_result(self) -> PGresult | None:
        pointer = _get_result(self._open)
        return PGresult(pointer) if pointer else None


def _arrays(values: Sequence[bytes | None], formats: Sequence[int]) -> tuple[Any, Any, Any]:
    count = len(values)
    lengths = [len(value) if value else 0 for value in values]
    return (c_char_p * count)(*values), (c_int * count)(*lengths), (c_int * count)(*formats)


def _receiver(handlers: list[Callable[[PGresult], None]]) -> Any:
    def receive(_: object, pointer: int) -> None:
        notice = PGresult(pointer)
        try:
            for handler in handlers:
                handler(notice)
        finally:
            notice._pointer = None  # it is libpq's own, and cleared by it

    return _Receiver(receive)


# -- results ------------------------------------------------------------------------------------------


class PGresult:
    """One answer. Cleared when it is collected."""

    __slots__ = ("_pointer",)

    def __init__(self, pointer: int) -> None:
        self._pointer: int | None = pointer

    def __del__(self, clear: Callable[[int], None] = _clear) -> None:
        pointer, self._pointer = self._pointer, None
        if pointer:
            clear(pointer)

    @property
    def status(self) -> int:
        return int(_result_status(self._pointer))

    @property
    def error_message(self) -> bytes:
        return _result_message(self._pointer) or b""

    def error_field(self, field: int) -> bytes | None:
        found: bytes | None = _result_field(self._pointer, field)
        return found

    @property
    def command_status(self) -> bytes | None:
        found: bytes | None = _command_status(self._pointer)
        return found

    @property
    def ntuples(self) -> int:
        return int(_ntuples(self._pointer))

    @property
    def nfields(self) -> int:
        return int(_nfields(self._pointer))

    def fname(self, column: int) -> bytes | None:
        found: bytes | None = _fname(self._pointer, column)
        return found

    def ftype(self, column: int) -> int:
        return int(_ftype(self._pointer, column))

    def get_value(self, row: int, column: int) -> bytes | None:
        value: bytes | None = _get_value(self._pointer, row, column)
        return value or (None if _get_is_null(self._pointer, row, column) else b"")


# -- connection strings -------------------------------------------------------------------------------


class ConninfoOption:
    __slots__ = ("keyword", "val")

    def __init__(self, keyword: bytes, val: bytes | None) -> None:
        self.keyword = keyword
        self.val = val


class Conninfo:
    @classmethod
    def parse(cls, conninfo: bytes) -> list[ConninfoOption]:
        """What a URL or `key=value` text says, the unsaid as None."""
        words = c_void_p()
        options = _parse(conninfo, ctypes.byref(words))
        if not options:
            said = ctypes.string_at(words.value) if words.value else b"no memory"
            _free(words)
            raise Error(said.decode("utf-8", "replace"))
        try:
            return _listed(options)
        finally:
            _free_options(options)


def _listed(options: Any) -> list[ConninfoOption]:
    listed: list[ConninfoOption] = []
    while options[len(listed)].keyword:  # the last has none
        option = options[len(listed)]
        listed.append(ConninfoOption(option.keyword, option.val))
    return listed
