"""`gannet.torch.BatchDataset` in DataLoaders: each example once, in one process and in spawned workers."""

import gannet
import numpy as np
import pandas
import pytest
import torch
from torch.utils.data import DataLoader

import gannet.torch

ROWS, SIZE = 1000, 16


def frame():
    rows = np.arange(ROWS)
    return pandas.DataFrame({"label": rows % 2, "at": rows, "name": (rows % 7).astype(str)})


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "rows.parquet"
    frame().to_parquet(path, row_group_size=100)
    return path


def batches(data, **more):
    return gannet.torch.BatchDataset(data, SIZE, label="label", numeric=["at"], **more)


def seen(loader):
    """The numbers of the rows, which are values of a numeric column."""
    return sorted(int(value) for batch in loader for value in batch.values[0::2].tolist())


@pytest.mark.parametrize("workers", [0, 1, 3])
def test_each_example_is_seen_once(file, workers):
    spawn = {"multiprocessing_context": "spawn"} if workers else {}
    loader = DataLoader(batches(file), batch_size=None, num_workers=workers, **spawn)
    for _ in range(2):
        assert seen(loader) == list(range(ROWS))
    if workers == 0:
        assert seen(DataLoader(batches(frame()), batch_size=None)) == list(range(ROWS))


def test_processes_and_their_workers_share_the_batches(file):
    of_ranks = [
        seen(
            DataLoader(
                batches(file, rank=rank, world=2), batch_size=None, num_workers=2, multiprocessing_context="spawn"
            )
        )
        for rank in (0, 1)
    ]
    assert sorted(of_ranks[0] + of_ranks[1]) == list(range(ROWS))
    assert abs(len(of_ranks[0]) - len(of_ranks[1])) <= 2 * SIZE


def test_tensors_have_the_bits_of_the_data_set(file):
    own = next(iter(batches(file, fields=True, cross=["at*name"])))
    want = next(iter(gannet.Dataset(file, label="label", numeric=["at"], fields=True, cross=["at*name"]).batches(SIZE)))
    for name in ("labels", "offsets", "values", "importances", "bases"):
        np.testing.assert_array_equal(getattr(own, name).numpy(), getattr(want, name))
    for name in ("keys", "fields"):
        assert getattr(own, name).dtype == torch.int64
        np.testing.assert_array_equal(getattr(own, name).numpy().view(np.uint64), getattr(want, name))
    assert want.keys[0] == own.keys.numpy().view(np.uint64)[0]
    assert gannet.keys("name", ["0"])[0] in want.keys[1:3]
    assert want.fields[:3].tolist() == [gannet.field_key(name) for name in ("at", "name", "at*name")]


def test_a_forked_worker_is_refused_by_name(file):
    loader = DataLoader(batches(file), batch_size=None, num_workers=1, multiprocessing_context="fork")
    with pytest.raises(gannet.ForkError, match='multiprocessing_context="spawn"'):
        list(loader)


def test_wrong_data_is_told_where_the_data_set_is_made(tmp_path):
    with pytest.raises(gannet.InputError, match="no.csv"):
        gannet.torch.BatchDataset(tmp_path / "no.csv")
    with pytest.raises(gannet.InputError, match="rank is 2"):
        gannet.torch.BatchDataset(frame(), rank=2, world=2, label="label")
