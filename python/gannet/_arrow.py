"""Streams of Arrow's C interface, and the one of pandas."""

from __future__ import annotations

import ctypes
from typing import Any, Optional

_get_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_get_pointer.restype = ctypes.c_void_p
_get_pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]


class _Stream(ctypes.Structure):
    """`struct ArrowArrayStream` (arrow.apache.org/docs/format/CStreamInterface.html)."""

    _fields_ = [
        (name, ctypes.c_void_p) for name in ("get_schema", "get_next", "get_last_error", "release", "private_data")
    ]


def move_stream(data: Any, address: int) -> None:
    """Asks `data` for a stream, and moves it to the empty `struct ArrowArrayStream` at this address.

    The interface defines how a stream moves: its five pointers are copied, and the old `release` becomes null. The
    native module calls this function with the address of its own struct, which lives until the call returns.

    Raises:
        ValueError: What `__arrow_c_stream__` returned is no capsule of a stream, or its stream was taken before.
    """
    capsule = data.__arrow_c_stream__()
    # It raises a ValueError unless this is a capsule with this name.
    pointer = _get_pointer(capsule, b"arrow_array_stream")
    stream = _Stream.from_address(pointer)
    if not stream.release:
        raise ValueError("the stream of __arrow_c_stream__ was taken before; a new one is wanted")
    ctypes.memmove(address, pointer, ctypes.sizeof(_Stream))
    stream.release = None


def is_pandas(data: object) -> bool:
    """Whether this is a DataFrame of pandas, or of a library on top of it."""
    return any(kind.__module__.partition(".")[0] == "pandas" for kind in type(data).__mro__)


def is_polars(data: object) -> bool:
    """Whether this is a DataFrame of polars."""
    kind = type(data)
    return kind.__module__.partition(".")[0] == "polars" and kind.__name__ == "DataFrame"


class WithoutNullType:
    """A polars DataFrame whose columns of nulls alone are strings. polars gives a column of the type Null a buffer that
    Arrow's interface does not have, and other libraries refuse it.
    """

    def __init__(self, frame: Any) -> None:
        self._frame = frame

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        nulls = [name for name, of in self._frame.schema.items() if str(of) == "Null"]
        frame = self._frame.cast({name: str for name in nulls}) if nulls else self._frame
        return frame.__arrow_c_stream__(requested_schema)


class WithoutIndex:
    """A pandas DataFrame whose index is no column, as `DataFrame.to_csv(index=False)` leaves it out."""

    def __init__(self, frame: Any) -> None:
        self._frame = frame

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        # A shallow copy: the columns are shared, and the caller's index stays.
        frame = self._frame.copy(deep=False)
        frame.index = range(len(frame))
        return frame.__arrow_c_stream__(requested_schema)


def is_table(data: object) -> bool:
    """Whether this gives streams of Arrow."""
    return hasattr(data, "__arrow_c_stream__")


def arrow_of(data: Any) -> tuple[Any, Optional[Any]]:
    """What gives the streams of a table, and something smaller with the same columns, to look at them."""
    if is_pandas(data):
        # pandas makes a table of all rows for a stream, and a look needs only some.
        return WithoutIndex(data), WithoutIndex(data.iloc[:1000])
    return (WithoutNullType(data) if is_polars(data) else data), None
