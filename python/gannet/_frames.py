# scipy has no types.
# mypy: disable-error-code="import-untyped"
"""Frames for the estimators: what their columns are, and the features that their rows have.

A row becomes the example that the command makes of it in a CSV file. A feature is a category, the number of a column,
or a missing number, and has a 64-bit key. Estimators see a sparse matrix with a column for each feature that they know.
"""

from __future__ import annotations

import contextlib
import warnings
from typing import Any, Iterator, NamedTuple, Optional, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from . import _native
from ._arrow import WithoutIndex, WithoutNullType, is_pandas, is_polars
from ._dataset import Columns, Dataset
from ._errors import InputError

# Rows that say what columns are, as for the command.
_ROWS_READ = 10_000
_BATCH = 1 << 16
# Names of columns are trimmed, so none has this one: no column is taken for the labels.
_NO_LABEL = "\n"


class Found(NamedTuple):
    """The rows of a frame: what they have, one row after another."""

    indptr: NDArray[np.int64]
    keys: NDArray[np.uint64]
    values: NDArray[np.float32]
    fields: NDArray[np.uint64]


def is_frame(data: object) -> bool:
    """Whether this is a table with named columns: of pandas, polars, pyarrow or the like."""
    return hasattr(data, "__arrow_c_stream__") and hasattr(data, "columns")


def is_matrix(frame: Any) -> bool:
    """Whether a frame is a matrix, as scikit-learn has it: it has floats alone, or numbers alone in columns without
    names, and none is missing. So is a sparse one of pandas."""
    if is_pandas(frame):
        letters = "f" if all(isinstance(name, str) for name in frame.columns) else "fiu"
        is_sparse = all(type(kind).__name__ == "SparseDtype" for kind in frame.dtypes)
        return is_sparse or all(kind.kind in letters for kind in frame.dtypes) and not frame.isna().any(axis=None)
    schema = getattr(frame, "schema", {})
    kinds = getattr(schema, "types", None) or list(getattr(schema, "values", list)())
    is_floats = bool(kinds) and all(str(kind).lower() in _FLOATS for kind in kinds)
    return is_floats and not np.isnan(np.asarray(frame, np.float64)).any()


# As pyarrow and polars write them.
_FLOATS = ("halffloat", "float", "double", "float16", "float32", "float64")


def names_of(frame: Any) -> list[Any]:
    """The names of the columns."""
    names = frame.columns if is_pandas(frame) or not hasattr(frame, "column_names") else frame.column_names
    return list(names)


def _selected(frame: Any, names: list[str]) -> Any:
    """The columns with these names, in this order."""
    present = list(map(str, names_of(frame)))
    missing = [name for name in names if name not in present]
    if missing:
        few = ", ".join(map(repr, missing[:5])) + (f" and {len(missing) - 5} more" if len(missing) > 5 else "")
        raise InputError(f"the frame lacks columns that were there when the estimator learned: {few}; give it all")
    if present == names:
        return frame
    if is_pandas(frame):
        return frame.iloc[:, [present.index(name) for name in names]]
    return frame.select(names)


def _first_rows(frame: Any) -> Any:
    """Some rows of a frame, as the native module takes it."""
    if is_pandas(frame):
        return WithoutIndex(frame.iloc[:_ROWS_READ])
    return WithoutNullType(frame.head(_ROWS_READ)) if is_polars(frame) else frame


def look(frame: Any, categorical: Sequence[str], numeric: Sequence[str]) -> Columns:
    """The columns of a frame by their roles: those that are named, and by their types and values the others.

    Raises:
        InputError: There is no column of this name, or it cannot be what it is named to be.
    """
    with _in_words_of_estimators():
        return _looked_at(frame, categorical, numeric)


def _looked_at(frame: Any, categorical: Sequence[str], numeric: Sequence[str]) -> Columns:
    both_named = sorted(set(categorical) & set(numeric))
    if both_named:
        raise InputError(f"{both_named[0]!r} is in categorical_features and in numeric_features; name it in one")
    present = Dataset(frame, label=_NO_LABEL, labels=None).columns
    assert present is not None
    features = present.categorical + present.numeric
    _warn_of_nameless([name for name in map(str, names_of(frame)) if name.strip() not in features])
    for parameter, names in (("categorical_features", categorical), ("numeric_features", numeric)):
        for name in names:
            if name not in features:
                has = f"the frame has no such column; it has {features[:20]}"
                raise InputError(f"{parameter} names {name!r}, and {has}")
    floats = [name for name in categorical if name in present.numeric]
    if floats:
        raise InputError(
            f"categorical_features names {floats[0]!r}, a column of floats: make it integers or strings, because texts "
            "of floats differ between programs"
        )
    by_value, both = _native.Dataset.types_of_table(_first_rows(frame), "the frame", _NO_LABEL, _ROWS_READ)
    named = {*categorical, *numeric}
    numbers = [name for name in by_value if name not in named] + list(numeric)
    both = [name for name in both if name not in named]
    others = [name for name in features if name not in numbers and name not in both]
    return Columns(None, others, numbers, both)


def _warn_of_nameless(left_out: list[str]) -> None:
    """Says which columns are no features, as the command does of columns without a name."""
    if left_out:
        text = f"left out, because they look like row numbers without a name: {left_out[:5]}; rename them to learn them"
        warnings.warn(text, UserWarning, stacklevel=2)


# The words of `Dataset`, and those of estimators.
_WORDS = [
    ("numeric=", "numeric_features="),
    (" (both= allows texts, as categories)", ""),
    ("leave it out (ignore=", "drop it ("),
]


@contextlib.contextmanager
def _in_words_of_estimators() -> Iterator[None]:
    """Errors of the data name the parameters of estimators."""
    try:
        yield
    except InputError as error:
        text = str(error)
        for word, ours in _WORDS:
            text = text.replace(word, ours)
        raise InputError(text) from error


class FrameFeatures:
    """The columns of the frames of an estimator, and the features that they have had so far.

    Args:
        names: The columns, in the order of the first frame.
        columns: Their roles.
        has_fields: Whether the field of each feature is of interest.

    Attributes:
        keys: uint64 (features,). The key of each feature.
        fields: uint64 (features,). The field of each feature. Empty without fields.
    """

    def __init__(self, names: list[str], columns: Columns, has_fields: bool) -> None:
        self.names, self.columns, self.has_fields = names, columns, has_fields
        self.keys, self.fields = np.empty(0, np.uint64), np.empty(0, np.uint64)
        self._known = _native.KeyPlaces(self.keys)

    def learn(self, frame: Any) -> tuple[Any, FrameFeatures]:
        """The rows of a frame, a sparse matrix (n, features), and these features with the new ones of the frame.

        Raises:
            InputError: The frame lacks a column, or a column holds what its role does not allow.
        """
        found = self._read(frame)
        known, places, first = self._known.with_new(found.keys)
        grown = FrameFeatures(self.names, self.columns, self.has_fields)
        grown.keys, grown._known = np.concatenate([self.keys, found.keys[first]]), known
        if self.has_fields:
            grown.fields = np.concatenate([self.fields, found.fields[first]])
        return grown._matrix(found, places), grown

    def known(self, frame: Any) -> Any:
        """The rows of a frame, a sparse matrix (n, features). Features that are not known are left out.

        Raises:
            InputError: As for `learn`.
        """
        found = self._read(frame)
        return self._matrix(found, self._known.find(found.keys))

    def places(self, most: int) -> tuple[NDArray[np.uint64], int]:
        """The place of each feature's field, and how many places there are, at most `most`. As the command has them."""
        columns = self.columns.categorical + self.columns.numeric + self.columns.both
        ids = np.sort(np.array([_native.field_key(name.strip()) for name in columns], np.uint64))
        return (np.searchsorted(ids, self.fields) % most).astype(np.uint64), min(len(ids), most)

    def _read(self, frame: Any) -> Found:
        with _in_words_of_estimators():
            return self._found(frame)

    def _found(self, frame: Any) -> Found:
        _, categorical, numeric, both = self.columns
        data = Dataset(
            _selected(frame, self.names),
            label=_NO_LABEL,
            labels=None,
            categorical=categorical,
            numeric=numeric,
            both=both,
            fields=self.has_fields,
        )
        batches = list(data.batches(_BATCH))
        counts = np.concatenate([np.diff(batch.offsets) for batch in batches])
        return Found(
            np.concatenate([[0], np.cumsum(counts)]),
            np.concatenate([batch.keys for batch in batches]),
            np.concatenate([batch.values for batch in batches]),
            np.concatenate([batch.fields for batch in batches]),
        )

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_known"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._known = _native.KeyPlaces(self.keys)

    def _matrix(self, found: Found, places: NDArray[np.int64]) -> Any:
        indptr, values, is_known = found.indptr, found.values, places >= 0
        if not is_known.all():
            indptr = np.concatenate([[0], np.cumsum(is_known)])[indptr]
            places, values = places[is_known], values[is_known]
        shape = (len(indptr) - 1, len(self.keys))
        return sparse.csr_matrix((values.astype(np.float64), places, indptr), shape)


def listed(parameter: str, names: Optional[Sequence[str]]) -> list[str]:
    """The names that a parameter has."""
    if names is None:
        return []
    if isinstance(names, str) or not all(isinstance(name, str) for name in names):
        raise InputError(f"{parameter} is {names!r}; a list of names of columns is wanted, or None")
    return list(names)
