"""Data sets: files, sparse matrices and tables of other libraries, read in batches of examples with 64-bit keys."""

from __future__ import annotations

import os
import warnings
from dataclasses import dataclass
from typing import Any, NamedTuple, Optional, Sequence, Union

import numpy as np
from numpy.typing import ArrayLike, NDArray

from . import _native
from ._arguments import whole
from ._arrays import Keys
from ._arrow import arrow_of, is_table
from ._errors import InputError

INTERCEPT_KEY = 2**64 - 1
"""The key of the intercept, a feature of value 1 that every example has (`Dataset.batches(intercept=True)`)."""


class Columns(NamedTuple):
    """The columns of a table or of CSV files, by their roles."""

    label: Optional[str]
    """The label's column. `None`: there is none."""
    categorical: list[str]
    """Columns whose values are categories: each value has a key of its own."""
    numeric: list[str]
    """Columns whose values are numbers: the column has one key, and missing numbers have another."""
    both: list[str]
    """Columns whose values are numbers and categories at once: each value is two features."""


@dataclass(frozen=True, eq=False)
class Batch:
    """Examples. Example `i` has the features `offsets[i]` to `offsets[i + 1]`.

    Attributes:
        labels: float32 (n,). Binary labels are 1 and 0. NaN where there is none.
        offsets: int64 (n + 1,). Where the features of each example begin, and the end of the last.
        keys: uint64 (m,). The key of each feature. If an example has a key twice, the values are meant to be added.
        values: float32 (m,). The value of each feature.
        importances: float32 (n,). The importance of each example: 1, unless the data says another.
        bases: float32 (n,). The margin of each example without features: 0, unless the data says another (`offset`, or the
            base in vw).
        fields: uint64 (m,). The field of each feature, `gannet.field_key` of its name; 0 for the intercept. Empty unless
            the data set has `fields=True`.
        epoch: The pass over the data, from 0.
    """

    labels: NDArray[np.float32]
    offsets: NDArray[np.int64]
    keys: Keys
    values: NDArray[np.float32]
    importances: NDArray[np.float32]
    epoch: int
    bases: NDArray[np.float32]
    fields: NDArray[np.uint64]

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def examples(self) -> NDArray[np.int64]:
        """The example of each feature, int64 (m,). `numpy.bincount` adds up the features of each example with it."""
        return np.repeat(np.arange(len(self), dtype=np.int64), np.diff(self.offsets))

    def __repr__(self) -> str:
        return f"<gannet.Batch of {len(self)} examples, {len(self.keys)} features>"


class Batches:
    """An iterator of batches. `Dataset.batches` makes one.

    A thread reads ahead, at most two batches, and needs no GIL for files and matrices. The thread ends with the last
    batch, with `close`, and when nobody has the iterator any more.

    Threads may share an iterator: each batch then goes to one of them. `close` ends the waits of all, and they get no
    more batches. The end of the interpreter does the same.
    """

    def __init__(self, native: _native.Batches) -> None:
        self._native = native

    def __iter__(self) -> Batches:
        return self

    def __next__(self) -> Batch:
        arrays, warning = self._native.next()
        if warning is not None:
            warnings.warn(warning, stacklevel=2)
        if arrays is None:
            raise StopIteration
        epoch, labels, offsets, keys, values, importances, bases, fields = arrays
        return Batch(labels, offsets, keys, values, importances, epoch, bases, fields)

    def close(self) -> None:
        """Ends the reading, and its thread. There are no batches afterwards."""
        self._native.close()

    def __enter__(self) -> Batches:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def close_all() -> None:
    """Closes all batches, before the interpreter that their threads may need ends."""
    # A thread may be inside a call of the data's owner.
    _native.end_readings(5.0)


class Dataset:
    """Examples: in files, in a sparse matrix, or in a table of another library.

    It is what `gannet train --types off` learns from the same data: the same keys, values and labels, in the same order.

        flights = gannet.Dataset("flights.csv.gz", label="late", numeric=["distance"])
        frame = gannet.Dataset(pandas.read_parquet("flights.parquet"), label="late", numeric=["distance"])
        matrix = gannet.Dataset(scipy_matrix, label=y)
        for batch in frame.batches(1024):
            rows = table.pull(batch.keys)

    Args:
        data: One of these:
            - A path or a URL, or a sequence of them: files, folders and patterns such as `"day-*.csv.gz"`; objects such as
              `"s3://logs/day-*.parquet"`.
            - A scipy sparse matrix or array (n, features). The key of a feature is its column, from 0.
            - Anything with `__arrow_c_stream__`: a pandas or polars DataFrame, a pyarrow Table or RecordBatch, a result
              of DuckDB. Each pass asks it for a new stream, and keeps one record batch at a time. The index of a pandas
              DataFrame is left out. A reader of record batches gives one pass.
        label: Of a table or CSV files: the name of the label's column. Without it the column called "label", or else
            the first. Of a matrix: the labels themselves, numbers (n,).
        categorical: Names of columns whose values are categories. Without it every column that is neither the label nor
            numeric; with it exactly these.
        numeric: Names of columns whose values are numbers. Columns of floats and decimals in tables, Parquet and Arrow
            are numeric without it.
        both: Names of columns whose values are numbers and categories at once. A text that is no number is only a
            category.
        ignore: Names of columns that are left out.
        offset: The column of a number that is added to each example's margin.
        format: The format of files: "auto", "libsvm", "libffm", "csv", "json", "parquet", "arrow", "criteo", "vw" or
            "vw-json".
        delimiter: Of CSV files: what separates fields, one ASCII character. By default a comma; a tab in .tsv files.
        header: Of CSV files: `False` if they have none, so that columns are called 1, 2, 3 and so on; or the names of
            all columns of files that have none.
        cross: Products of the features of several columns, which become features too: `["city*hour"]`.
        fields: Whether batches say the field of each feature: the column, vw namespace or libffm field.
        labels: What labels are allowed. `"binary"`: 1 and 0, or 1 and -1; or two other values with `positive`. They
            become 1 and 0. `"number"`: any finite number. `None`: as "number", and the data may be without labels. If
            there is a column of labels (`label`, or one called "label"), each row needs one.
        positive: The label that means 1, if labels are two other values. The other value means 0. `True` and `False`
            are the texts `true` and `false` in a table, and `True` and `False` in a file, as pandas writes them.
        importance: How often each example counts, 0 or more. The name of a column; of a matrix, numbers (n,).
        skip_bad_lines: Of files: how many lines that are not examples a pass may skip. One more is an error.

    Raises:
        InputError: The data cannot be read so. The message names the file and line, or the column and row.
        TypeError: `data` is none of the above.
    """

    def __init__(
        self,
        data: Any,
        *,
        label: Union[None, str, ArrayLike] = None,
        categorical: Sequence[str] = (),
        numeric: Sequence[str] = (),
        both: Sequence[str] = (),
        ignore: Sequence[str] = (),
        offset: Optional[str] = None,
        format: str = "auto",
        delimiter: Optional[str] = None,
        header: Union[bool, Sequence[str]] = True,
        cross: Sequence[str] = (),
        fields: bool = False,
        labels: Optional[str] = "binary",
        positive: Any = None,
        importance: Union[str, ArrayLike, None] = None,
        skip_bad_lines: int = 0,
    ) -> None:
        if labels not in ("binary", "number", None):
            raise InputError(f"labels is {labels!r}; 'binary', 'number' or None is wanted")
        if not isinstance(format, str):
            raise TypeError(f"format is {format!r}; a string such as 'auto' is wanted")
        if positive is not None and labels != "binary":
            raise InputError(f"positive is for binary labels, and labels is {labels!r}: give one of the two")
        paths = _paths(data)
        is_matrix = paths is None and hasattr(data, "tocsr")
        reading: _native.ReadSettings = {
            "label": label if isinstance(label, str) else None,
            "categorical": _names("categorical", categorical),
            "numeric": _names("numeric", numeric),
            "both": _names("both", both),
            "offset": offset,
            "importance": importance if isinstance(importance, str) else None,
            "ignore": _names("ignore", ignore),
            "format": format,
            "delimiter": delimiter,
            "header": None if header is True else [] if header is False else _names("header", header),
            "labels": labels or "none",
            "positive": None if positive is None else _text_of(positive, paths is not None),
            "cross": _names("cross", cross),
            "fields": bool(fields),
            "skip_bad_lines": whole("skip_bad_lines", skip_bad_lines, 0, 2**64 - 1),
        }
        if is_matrix:
            named = any(reading[names] for names in ("categorical", "numeric", "both", "ignore"))
            if named or offset or isinstance(label, str):
                raise InputError(
                    "label, categorical, numeric, both, ignore and offset name columns of tables; a matrix has none: "
                    "label=y"
                )
            if reading["cross"] or fields:
                raise InputError("cross and fields are for data with fields, and a matrix has none: leave them out")
            self._native = _of_matrix(data, label, labels, positive, importance)
            return
        if importance is not None and not isinstance(importance, str):
            raise InputError(
                f"importance is a {type(importance).__name__}; of files and tables the name of a column is wanted"
            )
        if label is not None and not isinstance(label, str):
            raise InputError(f"label is a {type(label).__name__}; of files and tables the name of a column is wanted")
        if paths is not None:
            self._native = _native.Dataset.of_files(paths, reading)
        elif is_table(data):
            if skip_bad_lines or format != "auto" or delimiter is not None or header is not True:
                raise InputError("format, delimiter, header and skip_bad_lines are for files: leave them out")
            self._native = _native.Dataset.of_table(*arrow_of(data), type_name(data), reading)
        else:
            raise TypeError(_NOT_DATA.format(type_name(data)))

    @property
    def format(self) -> str:
        """The format of files ("libsvm", "csv", "parquet" and so on), or "table", or "matrix"."""
        return self._native.format

    @property
    def columns(self) -> Optional[Columns]:
        """The columns of a table or of CSV files, by their roles. `None` for other data."""
        columns = self._native.columns
        return None if columns is None else Columns(*columns)

    def batches(
        self, size: int = 256, *, epochs: int = 1, intercept: bool = False, rank: int = 0, workers: int = 1
    ) -> Batches:
        """Reads the examples in batches, in their order.

        Args:
            size: Examples of a batch, from 1 to 65,536. The last batch of a pass may be smaller.
            epochs: Passes over the data.
            intercept: Whether each example begins with a feature of the key `INTERCEPT_KEY` and value 1.
            rank: The number of this worker, from 0. It gets batches `rank`, `rank + workers` and so on of each pass.
            workers: How many workers share the data. Batches are the same for all of them.

        Returns:
            An iterator of `Batch`.
        """
        size, epochs = whole("size", size, 1, 2**32 - 1), whole("epochs", epochs, 0, 2**32 - 1)
        workers, rank = whole("workers", workers, 1, 2**32 - 1), whole("rank", rank, 0, 2**32 - 1)
        if rank >= workers:
            raise InputError(f"rank is {rank}; a whole number from 0 to {workers - 1} is wanted, one below workers")
        if size > 2**16:
            raise InputError(f"size is {size}; at most 65,536 examples of a batch are possible")
        return Batches(self._native.batches(size, epochs, bool(intercept), rank, workers))

    def __repr__(self) -> str:
        columns = self.columns
        if columns is None:
            return f"<gannet.Dataset, {self.format}>"
        features = f"{len(columns.categorical)} categorical and {len(columns.numeric)} numeric columns"
        return f"<gannet.Dataset, {self.format}, label {columns.label!r}, {features}>"


_NOT_DATA = (
    "data is a {}; paths of files, a scipy sparse matrix, or an object with __arrow_c_stream__ is wanted: a DataFrame of "
    "pandas (2.2 or later, with pyarrow) or polars, a pyarrow Table. For a numpy array use scipy.sparse.csr_matrix or "
    "pandas.DataFrame"
)


def type_name(data: object) -> str:
    """What messages call the data."""
    kind = type(data)
    module = kind.__module__.partition(".")[0]
    return kind.__qualname__ if module == "builtins" else f"{module}.{kind.__qualname__}"


def _paths(data: object) -> Optional[list[str]]:
    """The paths, if the data is some."""
    if isinstance(data, (str, os.PathLike)):
        data = [data]
    if not isinstance(data, (list, tuple)) or not all(isinstance(path, (str, os.PathLike)) for path in data):
        return None
    if not data:
        raise InputError("data is empty; the path of a file at least is wanted")
    return [os.fsdecode(path) for path in data]


def _text_of(positive: Any, is_file: bool) -> str:
    """The text of a label."""
    if isinstance(positive, (bool, np.bool_)) and not is_file:
        return "true" if positive else "false"
    return str(positive)


def _names(parameter: str, names: Sequence[str]) -> list[str]:
    if isinstance(names, str):
        return [names]
    listed = list(names)
    for name in listed:
        if not isinstance(name, str):
            raise InputError(f"{parameter} has {name!r}; names of columns, which are strings, are wanted")
    return listed


def _of_matrix(
    matrix: Any, label: Optional[Any], labels: Optional[str], positive: Any, importance: Optional[ArrayLike]
) -> _native.Dataset:
    rows = matrix.tocsr()
    if rows.ndim != 2:
        raise InputError(f"the matrix has shape {rows.shape}; two dimensions (n, features) are wanted")
    count = rows.shape[0]
    if label is not None:
        numbers = _numbers_of(np.asarray(label), count, labels, positive)
    elif labels is None:
        numbers = np.full(count, np.nan, np.float32)
    else:
        raise InputError("the matrix has no labels: give label=y, or labels=None for data without labels")
    weights: NDArray[Any] = np.empty(0, np.float32)
    if importance is not None:
        weights = _floats("importance", np.asarray(importance), count)
    return _native.Dataset.of_matrix(
        np.ascontiguousarray(rows.indptr, np.uint64),
        np.ascontiguousarray(rows.indices, np.uint64),
        np.ascontiguousarray(rows.data, np.float32),
        numbers,
        weights,
    )


def _floats(name: str, array: NDArray[Any], count: int) -> NDArray[np.float32]:
    if array.shape != (count,):
        raise InputError(f"{name} has shape {array.shape}; ({count},) is wanted: one for each row of the matrix")
    if array.dtype.kind not in "biuf":
        raise InputError(f"{name} has dtype {array.dtype}; numbers are wanted")
    numbers: NDArray[np.float32] = np.ascontiguousarray(array, np.float32)
    return numbers


def _numbers_of(given: NDArray[Any], count: int, labels: Optional[str], positive: Any) -> NDArray[np.float32]:
    """Labels as models take them."""
    if labels != "binary":
        numbers = _floats("label", given, count)
        if not np.isfinite(numbers).all():
            row = int(np.argmin(np.isfinite(numbers)))
            raise InputError(f"label has {given[row]} in row {row}; finite numbers are wanted: leave such rows out")
        return numbers
    if given.shape != (count,):
        raise InputError(f"label has shape {given.shape}; ({count},) is wanted: one for each row of the matrix")
    kinds = np.unique(given)
    if positive is not None:
        if len(kinds) > 2 or positive not in kinds:
            raise InputError(f"label has the values {kinds[:5]}; positive ({positive!r}) and one other are wanted")
        return _floats("label", given == positive, count)
    if not (set(kinds.tolist()) <= {0, 1} or set(kinds.tolist()) <= {-1, 1}):
        raise InputError(
            f"label has the values {kinds[:5]}; 1 and 0, or 1 and -1 are wanted: say positive=VALUE for two other "
            "values, or labels='number' for any number"
        )
    return _floats("label", given == 1, count)
