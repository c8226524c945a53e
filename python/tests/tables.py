"""Tables for tests of data sets, and their CSV files."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import polars
import pyarrow as pa
import pyarrow.csv
import pyarrow.ipc
import pyarrow.parquet
from hypothesis import strategies as st

import gannet

FIELDS = ("labels", "offsets", "keys", "values", "importances")


def blocks(data: gannet.Dataset, size: int = 7, **given: Any) -> list[list[tuple[str, bytes]]]:
    """All batches, as bytes."""
    made = data.batches(size, **given)
    return [[(array.dtype.str, array.tobytes()) for array in map(batch.__getattribute__, FIELDS)] for batch in made]


def as_csv(table: pa.Table, path: Path) -> Path:
    """Writes a table as a CSV file."""
    pyarrow.csv.write_csv(table, path)
    return path


def as_json(table: pa.Table, path: Path) -> Path:
    """Writes a table as JSON lines."""
    with path.open("w") as file:
        for row in table.to_pylist():
            fields = (f"{json.dumps(name)}: {_json(value)}" for name, value in row.items())
            file.write("{" + ", ".join(fields) + "}\n")
    return path


def _json(value: Any) -> str:
    return str(value) if isinstance(value, Decimal) else json.dumps(value)


def as_files(table: pa.Table, folder: Path) -> list[Path]:
    """Writes a table in each format that has columns, with several row groups and record batches."""
    files = [as_csv(plain(table), folder / "table.csv"), as_json(plain(table), folder / "table.jsonl")]
    # No writer has string views and half floats in all formats.
    table, of_polars = plain(table), polars.from_arrow(plain(table))
    assert isinstance(of_polars, polars.DataFrame)
    pyarrow.parquet.write_table(table, folder / "table.parquet", row_group_size=5, compression="zstd")
    of_polars.write_parquet(folder / "polars.parquet", row_group_size=3, compression="snappy")
    of_polars.write_ipc(folder / "polars.arrow", compression="lz4")
    with pa.ipc.new_file(folder / "table.arrow", table.schema) as writer:
        writer.write_table(table, max_chunksize=4)
    with pa.ipc.new_stream(folder / "table.arrows", table.schema) as writer:
        writer.write_table(table, max_chunksize=2)
    names = ("table.parquet", "polars.parquet", "polars.arrow", "table.arrow", "table.arrows")
    return files + [folder / name for name in names]


FRAME = {
    "clicked": [1, 0, 1, 0, 1],
    "city": ["Kiel", None, "Ulm", "Kiel", ""],
    "age": [31.5, 18.0, None, 44.25, 0.1],
    "visits": [1, 2, 3, 4, 5],
}
CHOICE: dict[str, Any] = {"label": "clicked", "numeric": ["age"]}


# Strings that a CSV file can have.
TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=12)
FLOATS = st.floats(allow_nan=False, allow_infinity=False, width=32)


def middle(near: float, ulps: int) -> float:
    """The double in the middle of a float and the next one, or so many doubles beside it."""
    between = (near + float(np.nextafter(np.float32(near), np.float32(9e9)))) / 2
    for _ in range(abs(ulps)):
        between = float(np.nextafter(between, ulps * 1e300))
    return between


MIDDLES = st.builds(middle, st.floats(-1e6, 1e6, width=32), st.integers(-1, 1))
COLUMNS = {
    "categorical": {
        "string": (TEXTS, pa.string()),
        "large": (TEXTS, pa.large_string()),
        "view": (TEXTS, pa.string_view()),
        "packed": (TEXTS, pa.dictionary(pa.int8(), pa.string())),
        "view_packed": (TEXTS, pa.dictionary(pa.uint32(), pa.large_string())),
        "small": (st.integers(-128, 127), pa.int8()),
        "whole": (st.integers(-(2**63), 2**63 - 1), pa.int64()),
        "unsigned": (st.integers(0, 2**64 - 1), pa.uint64()),
        "flag": (st.booleans(), pa.bool_()),
        "nothing": (st.none(), pa.null()),
    },
    "numeric": {
        "single": (FLOATS, pa.float32()),
        "double": (st.one_of(FLOATS, MIDDLES, st.floats(-3e38, 3e38)), pa.float64()),
        "half": (st.floats(allow_nan=False, allow_infinity=False, width=16), pa.float16()),
        "count": (st.integers(-(2**63), 2**63 - 1), pa.int64()),
        "size": (st.integers(0, 2**64 - 1), pa.uint64()),
        "price": (st.decimals(-(10**9), 10**9, places=3), pa.decimal128(20, 3)),
        "said": (st.sampled_from(["1", " 2.5", "NA", "", "1e3"]), pa.string()),
        "packed_number": (FLOATS, pa.dictionary(pa.int16(), pa.float32())),
        "absent": (st.none(), pa.null()),
    },
}


@st.composite
def tables(draw: Any) -> tuple[pa.Table, list[str]]:
    """A table, and the names of its numeric columns. The label is the second column."""
    rows = draw(st.integers(1, 25))
    of_columns = []
    for role, kinds in COLUMNS.items():
        for name in draw(st.lists(st.sampled_from(sorted(kinds)), max_size=4, unique=True)):
            of_columns.append((name, role, *kinds[name]))
    of_columns.append(("last", "categorical", TEXTS, pa.string()))
    label_type = draw(st.sampled_from([pa.int8(), pa.uint64(), pa.float32(), pa.float64(), pa.string()]))
    labels = draw(st.lists(st.sampled_from([0, 1]), min_size=rows, max_size=rows))
    label = pa.array(labels, pa.int8()).cast(label_type)
    arrays, names = [], []
    for name, _, values, kind in of_columns:
        some = draw(st.lists(st.one_of(st.none(), values), min_size=rows, max_size=rows))
        if pa.types.is_dictionary(kind):
            packed = pa.array(some, kind.value_type).dictionary_encode()
            array = pa.DictionaryArray.from_arrays(packed.indices.cast(kind.index_type), packed.dictionary)
        else:
            array = pa.array(some, kind)
        arrays.append(array)
        names.append(name)
    arrays.insert(1, label)
    names.insert(1, "label")
    table = pa.table(arrays, names)
    # Record batches of any size, also none.
    cuts = sorted(draw(st.lists(st.integers(0, rows), max_size=4)))
    parts = [table.slice(a, b - a) for a, b in zip([0, *cuts], [*cuts, rows])]
    return pa.concat_tables(parts), [name for name, role, *_ in of_columns if role == "numeric"]


def plain(table: pa.Table) -> pa.Table:
    """The table in types that the CSV writer knows, with the same texts."""
    columns = []
    for column in table.columns:
        kind = column.type
        if pa.types.is_dictionary(kind):
            column = column.cast(kind.value_type)
        if pa.types.is_string_view(kind) or pa.types.is_null(kind):
            column = column.cast(pa.string())
        if pa.types.is_float16(kind):
            column = column.cast(pa.float32())
        columns.append(column)
    return pa.table(columns, table.column_names)
