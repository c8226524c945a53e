"""Data sets: a table gives what the same table gives as a CSV file, bit for bit."""

from __future__ import annotations

import gc
import os
import subprocess
import time
import warnings
from pathlib import Path
from typing import Any, Iterator

import numpy as np
import pandas
import polars
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from processes import line_of, run_python
from scipy import sparse
from tables import CHOICE, FRAME, as_csv, blocks, middle, plain, tables

import gannet


def threads() -> int:
    """How many reading threads this process has."""
    count = 0
    for task in Path("/proc/self/task").iterdir():
        try:
            count += (task / "comm").read_text() == "gannet-read\n"
        except OSError:
            pass  # It has ended.
    return count


def no_thread_is_left() -> bool:
    """Whether all reading threads have ended. The system may show a thread for a moment after it was joined."""
    for _ in range(1000):
        if threads() == 0:
            return True
        time.sleep(0.01)
    return False


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(made=tables(), size=st.integers(1, 30), intercept=st.booleans())
def test_a_table_is_its_csv_file(tmp_path_factory: Any, made: Any, size: int, intercept: bool) -> None:
    table, numeric = made
    path = as_csv(plain(table), tmp_path_factory.mktemp("csv") / "table.csv")
    from_file, from_table = gannet.Dataset(path, numeric=numeric), gannet.Dataset(table, numeric=numeric)
    assert from_table.columns == from_file.columns
    assert (from_table.format, from_file.format) == ("table", "csv")
    want = blocks(from_file, size, intercept=intercept, epochs=2)
    assert blocks(from_table, size, intercept=intercept, epochs=2) == want
    # Rows that are skipped count, too.
    shared = [blocks(from_table, size, intercept=intercept, rank=rank, workers=2) for rank in (0, 1)]
    assert [shared[at % 2][at // 2] for at in range(len(want) // 2)] == want[: len(want) // 2]


def test_a_double_is_rounded_as_its_text(tmp_path: Path) -> None:
    """1 + 2**-24 is in the middle of two floats, and the shortest text of it is a little above."""
    # The last one is as near to the texts ..562 and ..563: programs write the even one.
    doubles = [middle(1.0, ulps) for ulps in (-1, 0, 1)] + [1024.00006103515625]
    table = pa.table({"label": [1, 1, 0, 0], "x": doubles})
    from_file = gannet.Dataset(as_csv(table, tmp_path / "middle.csv"), numeric="x")
    (batch,) = gannet.Dataset(table, numeric="x").batches()
    assert batch.values.tolist() == [1.0, 1.0000001192092896, 1.0000001192092896, 1024.0]
    assert blocks(gannet.Dataset(table, numeric="x")) == blocks(from_file)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return as_csv(pa.table(FRAME), tmp_path / "frame.csv")


def test_frames_of_all_libraries_are_alike(file: Path) -> None:
    want = blocks(gannet.Dataset(file, **CHOICE))
    frame = pandas.DataFrame(FRAME)
    indexed = frame.set_index(pandas.Index([5, 3, 9, 1, 2], name="id"))
    table, columns = pa.table(FRAME), polars.DataFrame(FRAME)
    packed = columns.with_columns(polars.col("city").cast(polars.Categorical))
    one = pa.table(FRAME).to_batches()[0]
    for data in (frame, indexed, frame[frame.visits > 0], table, columns, packed, one):
        dataset = gannet.Dataset(data, **CHOICE)
        assert blocks(dataset) == want and blocks(dataset) == want, type(data)
    assert indexed.index.name == "id", "the caller's frame is as before"
    assert repr(gannet.Dataset(frame, **CHOICE)) == (
        "<gannet.Dataset, table, label 'clicked', 2 categorical and 1 numeric columns>"
    )


def test_a_column_of_nulls_of_polars_is_read_as_that_of_pyarrow() -> None:
    frame = {"clicked": [1, 0], "city": ["a", "b"], "note": [None, None]}
    columns = polars.DataFrame(frame)
    assert columns.schema["note"] == polars.Null
    assert blocks(gannet.Dataset(columns)) == blocks(gannet.Dataset(pa.table(frame)))


def test_a_reader_gives_one_pass(file: Path) -> None:
    table = pa.table(FRAME)
    want = blocks(gannet.Dataset(file, **CHOICE))
    once = gannet.Dataset(table.to_reader(), **CHOICE)
    assert blocks(once) == want
    with pytest.raises(gannet.InputError, match="RecordBatchReader: its record batches can be read only once"):
        blocks(once)
    with pytest.raises(gannet.InputError, match="pass 2 is asked for"):
        blocks(gannet.Dataset(table.to_reader(), **CHOICE), epochs=2)


def test_only_streams_are_taken() -> None:
    class Wrong:
        def __init__(self, answer: object) -> None:
            self.answer = answer

        def __arrow_c_stream__(self, requested_schema: object = None) -> object:
            return self.answer

    stream = pa.table(FRAME).__arrow_c_stream__()
    assert sum(map(len, gannet.Dataset(Wrong(stream), **CHOICE).columns[1:])) == 3
    with pytest.raises(ValueError, match="was taken before"):
        gannet.Dataset(Wrong(stream), **CHOICE)
    for answer in (7, pa.schema([]).__arrow_c_schema__()):
        with pytest.raises(ValueError, match="PyCapsule"):
            gannet.Dataset(Wrong(answer), **CHOICE)
    with pytest.raises(gannet.InputError, match="pyarrow.ChunkedArray"):
        gannet.Dataset(pa.chunked_array([[1, 2]]))


class Stream:
    """An object with streams of these tables, one after the other."""

    def __init__(self, *tables: pa.Table) -> None:
        self.tables = list(tables)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.tables.pop(0).__arrow_c_stream__(requested_schema)


def test_passes_must_be_alike() -> None:
    table = pa.table(FRAME)
    # The first one is only looked at.
    shrinking = gannet.Dataset(Stream(table, table, table.slice(1)), **CHOICE)
    with pytest.raises(gannet.InputError, match="had 5 rows in an earlier pass and 4 in this one"):
        blocks(shrinking, epochs=2)
    exhausted = gannet.Dataset(Stream(table), **CHOICE)
    with pytest.raises(gannet.InputError, match="Stream: IndexError: pop from empty list"):
        blocks(exhausted)


@pytest.mark.parametrize(
    "changed, words",
    [
        ({"city": "town"}, 'column 1 .the first is 0. is "town" in pass 2, and was "city" before'),
        ({"visits": None}, 'pass 2 has no column "visits", which was there before'),
        ({"visits": pa.array(FRAME["visits"], pa.int8())}, 'column "visits" has type Int8 in pass 2, and had Int64'),
        ({"more": [1] * 5}, 'pass 2 has one more column, "more"'),
    ],
)
def test_passes_must_have_the_same_columns(changed: dict[str, Any], words: str) -> None:
    columns: dict[str, Any] = dict(FRAME)
    for name, to in changed.items():
        if isinstance(to, str):
            columns = {to if key == name else key: value for key, value in columns.items()}
        elif to is None:
            del columns[name]
        else:
            columns[name] = to
    table = pa.table(FRAME)
    # The first one is only looked at.
    data = gannet.Dataset(Stream(table, table, pa.table(columns)), **CHOICE)
    with pytest.raises(gannet.InputError, match=words):
        blocks(data, epochs=2)
    # Also the first pass is as the look.
    with pytest.raises(gannet.InputError, match="pass 1"):
        blocks(gannet.Dataset(Stream(table, pa.table(columns)), **CHOICE))


def test_pandas_may_choose_another_type_than_in_the_look() -> None:
    """A look sees the first 1,000 rows, where this column has nothing."""
    frame = pandas.DataFrame({"label": [1, 0] * 600, "late": [None] * 1100 + ["x"] * 100})
    assert sum(map(len, gannet.Dataset(frame).batches(500, epochs=2))) == 2400


def test_batches_are_read_one_after_the_other() -> None:
    """At most what the queue holds is taken from a stream ahead of the program."""
    taken = []

    def parts() -> Iterator[pa.RecordBatch]:
        for part in range(100):
            taken.append(part)
            yield pa.record_batch({"label": [1], "at": [part]})

    schema = pa.schema({"label": pa.int64(), "at": pa.int64()})
    reader = pa.RecordBatchReader.from_batches(schema, parts())
    with gannet.Dataset(reader).batches(1) as batches:
        for number, batch in enumerate(batches):
            assert len(taken) <= number + 5
            assert batch.labels.tolist() == [1.0] and len(batch.keys) == 1
    assert len(taken) == 100


def test_an_error_of_the_stream_is_told() -> None:
    def parts() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"label": [1, 0], "at": [1, 2]})
        raise RuntimeError("the well is dry")

    schema = pa.schema({"label": pa.int64(), "at": pa.int64()})
    batches = gannet.Dataset(pa.RecordBatchReader.from_batches(schema, parts())).batches(1)
    assert [next(batches).labels.tolist() for _ in range(2)] == [[1.0], [0.0]]
    with pytest.raises(gannet.InputError, match="after 2 rows the next could not be read: .*the well is dry"):
        next(batches)
    assert list(batches) == []


@pytest.mark.parametrize(
    "changed, choice, words",
    [
        ({}, {"label": "bought"}, 'no column "bought" .named by label=.; the columns are: clicked, city'),
        ({}, {"numeric": ["height"]}, 'no column "height" .named by numeric=.'),
        ({}, {"categorical": ["clicked"]}, 'column "clicked" is chosen twice'),
        ({}, {"categorical": ["age"], "numeric": []}, '"age" has type Float64, and is categorical: name it in numeric'),
        ({"city": [{"a": 1}] * 5}, {}, 'column "city" has type Struct.*: cast it, or leave it out .ignore=city.'),
        ({"age": [[1]] * 5}, {}, 'column "age" has type a list.*: it can only be categorical'),
        ({"age": pa.array([0] * 5, pa.timestamp("s"))}, {}, 'column "age" has type Timestamp.*: it can only be categ'),
        ({"age": ["1", "2", "x", "4", "5"]}, {}, 'row 2 .the first is 0.: expected a number.*column "age"; found "x"'),
        ({"age": [1.0, float("inf"), 1.0, 1.0, 1.0]}, {}, 'row 1 .*: expected a finite number.*"age".*make it null'),
        ({"age": [1.0, 1.0, 1.0, 1.0, 1e300]}, {}, "row 4 .*that fits f32"),
        ({"clicked": [1, 0, None, 1, 0]}, {}, 'row 2 .*column "clicked" is null: the row has no label'),
        ({"clicked": [1, 0, 7, 1, 0]}, {}, 'row 2 .*column "clicked" has "7", .*positive=VALUE'),
        ({"clicked": ["yes", "no"] * 2 + ["yes"]}, {}, 'row 0 .*which is not 0, 1 or -1: .*positive=yes'),
        ({"clicked": [1, 0, -1, 1, 0]}, {}, "row 2 .*a mixture of -1, 0 and 1"),
        ({"clicked": ["a", "b", "c", "a", "b"]}, {"positive": "a"}, "row 2 .*a third"),
    ],
)
def test_wrong_tables(changed: dict[str, Any], choice: dict[str, Any], words: str) -> None:
    table = pa.table({**FRAME, **changed})
    with pytest.raises(gannet.InputError, match=words) as caught:
        blocks(gannet.Dataset(table, **{**CHOICE, **choice}))
    assert isinstance(caught.value, ValueError) and caught.value.exit_code == 2


def test_wrong_arguments(file: Path, tmp_path: Path) -> None:
    table, matrix = pa.table(FRAME), sparse.csr_matrix(np.eye(3))
    for error, words, call in (
        (TypeError, "data is a numpy.ndarray; .* use scipy.sparse.csr_matrix", lambda: gannet.Dataset(np.eye(3))),
        (TypeError, "data is a int;", lambda: gannet.Dataset(7)),
        (ValueError, "data is empty", lambda: gannet.Dataset([])),
        (ValueError, 'format is "excel"', lambda: gannet.Dataset(file, format="excel")),
        (ValueError, "delimiter: it must be one ASCII character", lambda: gannet.Dataset(file, delimiter="ab")),
        (ValueError, "format, delimiter, header and skip_bad_lines are", lambda: gannet.Dataset(table, header=False)),
        (ValueError, "labels is 'many'", lambda: gannet.Dataset(file, labels="many")),
        (ValueError, "positive is for binary labels", lambda: gannet.Dataset(file, labels="number", positive=1)),
        (ValueError, "label is a list; .* the name of a column", lambda: gannet.Dataset(table, label=[1, 0])),
        (ValueError, "numeric has 3; names of columns", lambda: gannet.Dataset(table, numeric=[3])),
        (ValueError, "header and skip_bad_lines are for files", lambda: gannet.Dataset(table, skip_bad_lines=1)),
        (ValueError, "importance is a list; of files", lambda: gannet.Dataset(table, importance=[1.0])),
        (ValueError, "the matrix has no labels: give label=y", lambda: gannet.Dataset(matrix)),
        (ValueError, r"label has shape \(2,\); \(3,\) is wanted", lambda: gannet.Dataset(matrix, label=[1, 0])),
        (ValueError, "label has the values .* 1 and 0, or 1 and -1", lambda: gannet.Dataset(matrix, label=[1, 0, 2])),
        (ValueError, "label has nan in row 1", lambda: gannet.Dataset(matrix, label=[1, np.nan, 2], labels="number")),
        (ValueError, "a matrix has none: label=y", lambda: gannet.Dataset(matrix, numeric=["a"])),
        (ValueError, "importance -1", lambda: gannet.Dataset(matrix, label=[1, 0, 1], importance=[1, -1, 1])),
        (ValueError, "/nowhere.csv: cannot read", lambda: gannet.Dataset("/nowhere.csv")),
        (ValueError, "no file has a name like this", lambda: gannet.Dataset(tmp_path / "*.svm")),
        (ValueError, "size is 0; a whole number of 1 or more", lambda: gannet.Dataset(table, **CHOICE).batches(0)),
        (ValueError, "size is 65537; at most", lambda: gannet.Dataset(table, **CHOICE).batches(65537)),
        (ValueError, "size is 2.5; a whole number", lambda: gannet.Dataset(table, **CHOICE).batches(2.5)),
        (ValueError, "epochs is 'x'; a whole number", lambda: gannet.Dataset(table, **CHOICE).batches(epochs="x")),
        (ValueError, "skip_bad_lines is -1; a whole number", lambda: gannet.Dataset(file, skip_bad_lines=-1)),
        (TypeError, "format is 5; a string", lambda: gannet.Dataset(file, format=5)),
        (ValueError, "rank is 2; .* from 0 to 1", lambda: gannet.Dataset(table, **CHOICE).batches(rank=2, workers=2)),
    ):
        with pytest.raises(error, match=words):
            call()


def test_files_of_all_formats(tmp_path: Path) -> None:
    (tmp_path / "a.svm").write_text("1 3:0.5 7\n-1 3:2\n")
    (tmp_path / "b.svm").write_text("1 9:1 9:1\n")
    both = gannet.Dataset(str(tmp_path / "*.svm"))
    assert both.format == "libsvm" and both.columns is None
    (batch,) = both.batches(10)
    assert batch.labels.tolist() == [1, 0, 1] and batch.offsets.tolist() == [0, 2, 3, 5]
    assert batch.keys.tolist() == [3, 7, 3, 9, 9] and batch.values.tolist() == [0.5, 1, 2, 1, 1]
    assert batch.examples.tolist() == [0, 0, 1, 2, 2] and repr(batch) == "<gannet.Batch of 3 examples, 5 features>"
    assert blocks(gannet.Dataset([tmp_path / "a.svm", tmp_path / "b.svm"])) == blocks(both)
    (tmp_path / "c.vw").write_text("1 2.5 |a b:2\n-1 | 8\n")
    (batch,) = gannet.Dataset(tmp_path / "c.vw", format="vw").batches(epochs=1, intercept=True)
    assert batch.importances.tolist() == [2.5, 1] and batch.keys[0] == gannet.INTERCEPT_KEY
    numbers = tmp_path / "d.csv"
    numbers.write_text("price,size\n2.5,3\n-7,4\n")
    (batch,) = gannet.Dataset(numbers, numeric="size", labels="number").batches()
    assert batch.labels.tolist() == [2.5, -7]
    (batch,) = gannet.Dataset(numbers, numeric=["size", "price"], labels=None).batches()
    assert np.isnan(batch.labels).all() and batch.values.tolist() == [2.5, 3, -7, 4]
    assert [batch.epoch for batch in gannet.Dataset(numbers, labels="number").batches(1, epochs=2)] == [0, 0, 1, 1]


def test_bad_lines_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "bad.svm"
    path.write_text("1 3:1\nx\n0 4:1\n")
    with pytest.raises(gannet.InputError, match="bad.svm:2: .*skip such lines with skip_bad_lines=N"):
        list(gannet.Dataset(path).batches())
    with pytest.warns(UserWarning, match="bad lines were skipped: 1 in each pass; .*bad.svm:2"):
        (batch,) = gannet.Dataset(path, skip_bad_lines=1).batches()
    assert batch.labels.tolist() == [1, 0]


def test_a_matrix_is_its_libsvm_file(tmp_path: Path) -> None:
    random = np.random.default_rng(3)
    matrix = sparse.random_array((50, 20), density=0.2, rng=random, dtype=np.float32)
    labels = random.integers(0, 2, 50)
    rows = matrix.tocsr()
    with open(tmp_path / "matrix.svm", "w") as file:
        for row in range(50):
            place = slice(rows.indptr[row], rows.indptr[row + 1])
            features = zip(rows.indices[place].tolist(), rows.data[place].tolist())
            print(labels[row], *("%d:%r" % feature for feature in features), file=file)
    want = blocks(gannet.Dataset(tmp_path / "matrix.svm"), epochs=2)
    for given in (labels, labels.astype(bool), np.where(labels == 1, 1, -1)):
        assert blocks(gannet.Dataset(matrix, label=given), epochs=2) == want
    named = np.where(labels == 1, "yes", "no")
    assert blocks(gannet.Dataset(sparse.csc_matrix(matrix), label=named, positive="yes"), epochs=2) == want
    (batch,) = gannet.Dataset(matrix, labels=None, importance=np.arange(50)).batches()
    assert np.isnan(batch.labels).all() and batch.importances.tolist() == list(range(50))


def test_positive_and_booleans(tmp_path: Path) -> None:
    table = pa.table({"ok": [True, False, True], "a": [True, False, None], "b": [True, False, None]})
    by_column = gannet.Dataset(table, label="ok", numeric=["b"]).batches()
    (batch,) = by_column
    assert batch.labels.tolist() == [1, 0, 1]
    assert batch.values.tolist() == [1, 1, 1, 0, 1, 1], "a number that is missing is a feature of value 1"
    flipped = gannet.Dataset(table, label="ok", categorical=["a"], positive="false")
    (batch,) = flipped.batches()
    assert batch.labels.tolist() == [0, 1, 0] and len(set(batch.keys.tolist())) == 3
    for positive, want in ((True, [1, 0, 1]), (np.False_, [0, 1, 0])):
        (batch,) = gannet.Dataset(table, label="ok", categorical=["a"], positive=positive).batches()
        assert batch.labels.tolist() == want
    pandas.DataFrame({"ok": [True, False], "a": ["x", "y"]}).to_csv(tmp_path / "frame.csv", index=False)
    (batch,) = gannet.Dataset(tmp_path / "frame.csv", label="ok", positive=True).batches()
    assert batch.labels.tolist() == [1, 0]


def test_data_without_labels() -> None:
    """A column of labels has a label in each row, also where data may be without."""
    (batch,) = gannet.Dataset(pa.table({"x": ["a", "b"], "y": ["c", "d"]}), categorical=["x"], labels=None).batches()
    assert np.isnan(batch.labels).all()
    with pytest.raises(gannet.InputError, match="row 1 .*the row has no label"):
        list(gannet.Dataset(pa.table({"label": [1, None], "x": ["a", "b"]}), label="label", labels=None).batches())


def test_threads_end(file: Path) -> None:
    matrix = gannet.Dataset(sparse.csr_matrix(np.ones((500, 3))), label=np.ones(500))
    table = gannet.Dataset(pa.table(FRAME), **CHOICE)
    assert no_thread_is_left()
    for data in (matrix, table, gannet.Dataset(file, **CHOICE)):
        batches = data.batches(1, epochs=1000)
        next(batches)
        assert threads() == 1
        del batches
        gc.collect()
        assert no_thread_is_left()
        with data.batches(1, epochs=1000) as batches:
            next(batches)
        assert no_thread_is_left() and list(batches) == []
        whole = data.batches(2)
        assert sum(len(batch) for batch in whole) > 2 and no_thread_is_left()


def test_ctrl_c_ends_a_wait(tmp_path: Path) -> None:
    process = run_python(
        tmp_path,
        """
        import os, signal, threading
        import pyarrow as pa
        import gannet

        release = threading.Event()

        def parts():
            yield pa.record_batch({"label": [1], "at": [1]})
            release.wait()

        schema = pa.schema({"label": pa.int64(), "at": pa.int64()})
        signal.signal(signal.SIGINT, signal.default_int_handler)
        batches = gannet.Dataset(pa.RecordBatchReader.from_batches(schema, parts())).batches(1)
        next(batches)
        try:
            threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
            next(batches)
        except KeyboardInterrupt:
            release.set()
            print("interrupted", list(batches), flush=True)
        """,
    )
    assert line_of(process) == "interrupted []"
    assert process.wait(timeout=30) == 0


def test_a_program_may_end_in_the_middle(tmp_path: Path) -> None:
    """The reading thread takes the GIL for each record batch. The interpreter's end must not meet it there."""
    process = run_python(
        tmp_path,
        """
        import pyarrow as pa
        import gannet

        def parts():
            while True:
                yield pa.record_batch({"label": [1], "at": [1]})

        schema = pa.schema({"label": pa.int64(), "at": pa.int64()})
        batches = gannet.Dataset(pa.RecordBatchReader.from_batches(schema, parts())).batches(1)
        next(batches)
        keep = [batches]
        keep.append(keep)
        print("ends", flush=True)
        """,
    )
    assert line_of(process) == "ends"
    assert process.wait(timeout=30) == 0, process.stderr and process.stderr.read()


def test_a_fork_has_no_batches() -> None:
    batches = gannet.Dataset(pa.table(FRAME), **CHOICE).batches(1)
    next(batches)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        try:
            next(batches)
        except gannet.ForkError:
            os._exit(7)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert len(list(batches)) == 4


def test_the_command_learns_the_same_model(tmp_path: Path) -> None:
    """The command trains on the CSV file. A numpy FTRL over the batches of the table gets the same scores."""
    random = np.random.default_rng(5)
    table = pa.table(
        {
            "label": random.integers(0, 2, 600),
            "city": random.integers(0, 30, 600).astype(str),
            "kind": random.integers(0, 5, 600),
            "age": random.normal(size=600),
        }
    )
    as_csv(table, tmp_path / "table.csv")
    flags = "--numeric age --normalize off --alpha 0.1 --beta 1 --l1 0.2 --l2 0.3 --batch 1 --threads 1 --out model"
    run = [gannet.command(), "train", "table.csv", "--types", "off", *flags.split()]
    done = subprocess.run(run, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    run = [gannet.command(), "predict", "--model", "model", "table.csv"]
    predicted = subprocess.run(run, cwd=tmp_path, capture_output=True, text=True)
    assert predicted.returncode == 0, predicted.stderr
    z: dict[int, float] = {}
    n: dict[int, float] = {}

    def weight(key: int) -> float:
        # The intercept has no penalty.
        l1, l2 = (0.0, 0.0) if key == 2**64 - 1 else (0.2, 0.3)
        at, sign = z.get(key, 0.0), np.sign(z.get(key, 0.0))
        return 0.0 if abs(at) <= l1 else -(at - sign * l1) / ((1 + n[key] ** 0.5) / 0.1 + l2)

    def chance(batch: gannet.Batch) -> float:
        weights = [weight(key) for key in batch.keys.tolist()]
        return float(1 / (1 + np.exp(-np.dot(weights, batch.values))))

    dataset = gannet.Dataset(table, numeric=["age"])
    for batch in dataset.batches(1, intercept=True):
        error = chance(batch) - float(batch.labels[0])
        for key, value, old in zip(batch.keys.tolist(), batch.values.tolist(), map(weight, batch.keys.tolist())):
            grad = error * value
            before = n.get(key, 0.0)
            n[key] = before + grad**2
            z[key] = z.get(key, 0.0) + grad - (n[key] ** 0.5 - before**0.5) / 0.1 * old
    scores = [chance(batch) for batch in dataset.batches(1, intercept=True)]
    np.testing.assert_allclose(scores, np.array(predicted.stdout.split(), float), rtol=0, atol=1e-4)
