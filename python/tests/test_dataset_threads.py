"""Threads that share the batches of a data set, and the end of the interpreter while they read."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any, Iterator

import pyarrow as pa
import pytest
from processes import run_python

import gannet

SCHEMA = pa.schema({"label": pa.int64(), "at": pa.int64()})


def part(at: int) -> pa.RecordBatch:
    return pa.record_batch({"label": [1], "at": [at]}, SCHEMA)


def test_close_ends_the_wait_of_another_thread() -> None:
    """The stream gives one part, and then none until it is released. Who waits for the next one must not get it."""
    asked, release = threading.Event(), threading.Event()

    def parts() -> Iterator[pa.RecordBatch]:
        yield part(0)
        asked.set()
        release.wait()
        yield from map(part, range(1, 20))

    batches = gannet.Dataset(pa.RecordBatchReader.from_batches(SCHEMA, parts())).batches(1)
    got: list[gannet.Batch] = []
    consumer = threading.Thread(target=lambda: got.extend(batches))
    consumer.start()
    assert asked.wait(60)
    batches.close()
    consumer.join(60)
    ended = not consumer.is_alive()
    release.set()
    consumer.join()
    assert ended, "the other thread waits although the batches are closed"
    assert len(got) <= 1 and list(batches) == []


def test_threads_share_the_batches() -> None:
    data = gannet.Dataset(pa.Table.from_batches([part(at) for at in range(500)]), numeric=["at"])
    want = sorted(float(batch.values[0]) for batch in data.batches(1))
    batches = data.batches(1)
    got: list[list[float]] = [[], [], [], []]
    failures: list[BaseException] = []

    def work(mine: list[float]) -> None:
        try:
            mine.extend(float(batch.values[0]) for batch in batches)
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=work, args=(mine,)) for mine in got]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert sorted(sum(got, [])) == want, "each batch goes to one thread"
    assert all(mine == sorted(mine) for mine in got)


def test_an_error_ends_the_iteration_of_all() -> None:
    def parts() -> Iterator[pa.RecordBatch]:
        yield part(0)
        raise RuntimeError("the well is dry")

    batches = gannet.Dataset(pa.RecordBatchReader.from_batches(SCHEMA, parts())).batches(1)
    outcomes: list[Any] = []

    def work() -> None:
        try:
            outcomes.append(len(list(batches)))
        except gannet.InputError as error:
            outcomes.append(str(error))

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum("the well is dry" in str(outcome) for outcome in outcomes) == 1


AT_THE_END = """
import threading
import pyarrow as pa
import gannet

schema = pa.schema({"label": pa.int64(), "at": pa.int64()})

class Endless:
    def __arrow_c_stream__(self, requested_schema=None):
        def parts():
            while True:
                yield pa.record_batch({"label": [1] * 5, "at": range(5)}, schema)
        return pa.RecordBatchReader.from_batches(schema, parts()).__arrow_c_stream__()

begun = threading.Event()
kept = []

def read():
    while True:
        batches = gannet.Dataset(Endless()).batches(7)
        KEEP
        for batch in batches:
            batch.examples
            begun.set()

for _ in range(3):
    threading.Thread(target=read, daemon=True).start()
begun.wait()
"""


@pytest.mark.parametrize("keep", ["kept.append(batches)", "pass"])
def test_the_interpreter_ends_while_threads_read(tmp_path: Path, keep: str) -> None:
    """Without its care the process aborted nearly always."""
    for _ in range(5):
        process = run_python(tmp_path, AT_THE_END.replace("KEEP", keep))
        output, errors = process.communicate(timeout=120)
        assert process.returncode == 0, (process.returncode, output, errors[-2000:])
