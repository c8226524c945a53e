"""Data sets of files in each format: the columns that a program chooses, and what is made of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy import sparse
from tables import as_files, blocks, tables

import gannet


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(made=tables(), size=st.integers(1, 30))
def test_a_table_is_the_same_in_each_format(tmp_path_factory: Any, made: Any, size: int) -> None:
    table, numeric = made
    files = as_files(table, tmp_path_factory.mktemp("files"))
    want = blocks(gannet.Dataset(files[0], numeric=numeric), size, epochs=2)
    for path in files[1:]:
        data = gannet.Dataset(path, label="label", numeric=numeric)
        assert blocks(data, size, epochs=2) == want, path.name


def test_files_have_the_columns_that_the_program_chooses(tmp_path: Path) -> None:
    path = tmp_path / "plain.csv"
    path.write_text("7;x;1\n8;y;0\n")
    named = gannet.Dataset(path, delimiter=";", header=["id", "city", "clicked"], label="clicked", ignore="id")
    assert named.columns == gannet.Columns("clicked", ["city"], [], [])
    numbered = gannet.Dataset(path, delimiter=";", header=False, label="3", numeric="1")
    assert numbered.columns == gannet.Columns("3", ["2"], ["1"], [])
    frame = pandas.DataFrame({"clicked": [1, 0], "city": ["x", "y"], "id": [7, 8]})
    assert blocks(gannet.Dataset(frame, ignore=["id"])) == blocks(named)
    with pytest.raises(gannet.InputError, match="ignore="):
        gannet.Dataset(frame, ignore=["ids"])


def test_keys_are_those_of_files(tmp_path: Path) -> None:
    """Golden: they must never change, because saved models depend on them."""
    assert gannet.keys("carrier", ["UA"]).tolist() == [6339875604109709366]
    assert gannet.field_key("carrier") == 6600953826408457436
    for values in (["a", "", "\u00e9t\u00e9"], [1, -7, 2**62], [True, False], np.array([3, 4], np.int16)):
        listed = list(values)
        table = pa.table({"label": [1] * len(listed), "c": pa.array(listed)})
        (batch,) = gannet.Dataset(table).batches()
        assert gannet.keys("c", values).tolist() == batch.keys.tolist()
    assert gannet.keys("c", [None]).tolist() == gannet.keys("c", [""]).tolist()
    assert gannet.keys("c", pandas.Series(["x", None])).tolist() == gannet.keys("c", ["x", ""]).tolist()
    with pytest.raises(gannet.InputError, match="values of 'c': number 1 is a float"):
        gannet.keys("c", ["x", 1.5])


def test_crosses_fields_and_offsets(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("label,city,hour,start,often\n1,Kiel,7,0.5,2\n0,Ulm,8,-1,0.25\n")
    choice: dict[str, Any] = {"cross": ["city*hour"], "offset": "start", "importance": "often", "fields": True}
    (of_file,) = gannet.Dataset(path, **choice).batches(intercept=True)
    (of_table,) = gannet.Dataset(pandas.read_csv(path), **choice).batches(intercept=True)
    for batch in (of_file, of_table):
        assert batch.offsets.tolist() == [0, 4, 8] and batch.bases.tolist() == [0.5, -1.0]
        assert batch.importances.tolist() == [2.0, 0.25]
        assert batch.keys[1:3].tolist() == [gannet.keys("city", ["Kiel"])[0], gannet.keys("hour", [7])[0]]
        assert batch.fields[:4].tolist() == [0, *map(gannet.field_key, ("city", "hour", "city*hour"))]
    assert of_file.keys.tolist() == of_table.keys.tolist()
    (plain_batch,) = gannet.Dataset(path).batches()
    assert len(plain_batch.fields) == 0 and plain_batch.bases.tolist() == [0.0, 0.0]
    with pytest.raises(gannet.InputError, match='no column "weight" .named by importance='):
        gannet.Dataset(path, importance="weight")
    with pytest.raises(gannet.InputError, match="importance is a list; of files and tables the name of a column"):
        gannet.Dataset(path, importance=[1, 2])
    with pytest.raises(gannet.InputError, match=r'a cross \(cross=\) has "town"'):
        gannet.Dataset(path, cross=["city*town"])
    with pytest.raises(gannet.InputError, match="cross: .* 2 to 6 are possible"):
        gannet.Dataset(path, cross=["city"])
    with pytest.raises(gannet.InputError, match="a matrix has none"):
        gannet.Dataset(sparse.csr_matrix(np.eye(2)), label=[1, 0], fields=True)


def test_batches_are_never_empty_and_lines_without_an_example_are_an_error(tmp_path: Path) -> None:
    path = tmp_path / "some.vw"
    path.write_text("|u a\n|u b\n1 |u c\n|u d\n|u e\n|u f\n0 |u g\n|u h\n")
    for size in (1, 2, 3):
        batches = list(gannet.Dataset(path).batches(size))
        assert sum(len(batch.labels) for batch in batches) == 2 and all(len(batch.labels) for batch in batches)
    bad = tmp_path / "bad.svm"
    bad.write_text("1 1:x\n1 1:y\n0 2:1\n1 x\n")
    assert [len(batch.labels) for batch in gannet.Dataset(bad, skip_bad_lines=3).batches(1)] == [1]
    bare = tmp_path / "bare.vw"
    bare.write_text("|u a\n|u b\n")
    with pytest.raises(gannet.InputError, match="bare.vw: none of its 2 lines is an example: no line has a label"):
        list(gannet.Dataset(bare).batches())
    bad.write_text("1 1:x\n1 1:y\n")
    with pytest.raises(gannet.InputError, match="bad.svm: none of its 2 lines is an example: all were skipped"):
        list(gannet.Dataset(bad, skip_bad_lines=9).batches())


def test_a_cross_without_features_is_a_warning(tmp_path: Path) -> None:
    path = tmp_path / "rows.vw"
    path.write_text("1 |u a |v b\n0 |u c\n")
    with pytest.warns(UserWarning, match=r"crosses \(cross=\) made no feature in 2 examples: u\*w;"):
        list(gannet.Dataset(path, cross=["u*v", "u*w"]).batches())
