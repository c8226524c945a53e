"""Checks of the arrays that calls are given. An error says what was given and what is wanted."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Keys = NDArray[np.uint64]
Rows = NDArray[np.float32]


def as_keys(keys: ArrayLike) -> Keys:
    """Keys as a contiguous uint64 array (n,). A uint64 or int64 array that is contiguous is not copied."""
    array: NDArray[Any] = np.asarray(keys)
    if array.ndim != 1:
        raise ValueError(f"keys have shape {array.shape}; one dimension (n,) is wanted")
    if array.dtype == np.uint64:
        pass
    elif array.dtype == np.int64:
        # The bits of a negative number are a key, too.
        array = array.view(np.uint64)
    elif array.dtype.kind == "u":
        array = array.astype(np.uint64)
    elif array.dtype.kind == "i":
        array = array.astype(np.int64).view(np.uint64)
    elif array.size == 0:
        array = np.empty(0, np.uint64)
    else:
        raise TypeError(f"keys have dtype {array.dtype}; integers (uint64 or int64) are wanted")
    return np.ascontiguousarray(array)


def as_rows(rows: ArrayLike, count: int, dim: int, what: str = "grads") -> Rows:
    """Rows as a contiguous float32 array (count, dim). A contiguous one is not copied."""
    array: NDArray[Any] = np.asarray(rows)
    if array.dtype != np.float32:
        raise TypeError(f"{what} have dtype {array.dtype}; float32 is wanted: {what}.astype(numpy.float32)")
    if array.shape != (count, dim):
        raise ValueError(f"{what} have shape {array.shape}; ({count}, {dim}) is wanted: a row for each key")
    return np.ascontiguousarray(array)


def as_out(out: Rows, count: int, dim: int) -> Rows:
    """The array that a pull writes, checked."""
    if not isinstance(out, np.ndarray):
        raise TypeError(f"out is a {type(out).__name__}; a numpy array is wanted")
    if out.dtype != np.float32:
        raise TypeError(f"out has dtype {out.dtype}; float32 is wanted")
    if out.shape != (count, dim):
        raise ValueError(f"out has shape {out.shape}; ({count}, {dim}) is wanted: a row for each key")
    if not out.flags.c_contiguous:
        raise ValueError("out is not contiguous; a C-contiguous array is wanted, so that nothing is copied")
    if not out.flags.writeable:
        raise ValueError("out is read-only; an array that can be written is wanted")
    return out
