"""The keys of values of columns: what the rows of a table are found by."""

from __future__ import annotations

from typing import Any, Iterable

import numpy as np
from numpy.typing import NDArray

from . import _native
from ._errors import InputError


def keys(column: str, values: Iterable[Any]) -> NDArray[np.uint64]:
    """The keys of values of a categorical column, uint64 (n,): those of the same column in CSV, Parquet or JSON.

        rows = table.pull(gannet.keys("carrier", ["UA", "AA"]))

    Args:
        column: The name of the column, or of a vw namespace.
        values: Strings, integers or booleans (`true` and `false`); an array, a list, or a column of a DataFrame. `None`,
            NaN and `pandas.NA` are missing values, which have the key of the empty text.

    Raises:
        InputError: A value is of another type. Texts of floats differ between programs: make them integers or strings.
    """
    listed = values.tolist() if hasattr(values, "tolist") else list(values)
    return _native.text_keys(column, [_text(column, at, value) for at, value in enumerate(listed)])


def field_key(name: str) -> int:
    """The number of a field in `Batch.fields`, by the name of its column, vw namespace or libffm field."""
    return _native.field_key(name)


def _text(column: str, at: int, value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, (bool, np.bool_)):
        return "true" if value else "false"
    if isinstance(value, (int, np.integer)):
        return str(int(value))
    # pandas has NaN in columns of strings.
    if value is None or type(value).__name__ == "NAType" or (isinstance(value, float) and value != value):
        return ""
    raise InputError(
        f"values of {column!r}: number {at} is a {type(value).__name__} ({value!r}); strings, integers, booleans or None "
        "are wanted"
    )
