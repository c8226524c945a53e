# mypy: disable-error-code="import-not-found,misc,no-any-return,untyped-decorator,no-untyped-call"
"""Batches of a data set for the DataLoader of PyTorch."""

from __future__ import annotations

import os
from typing import Any, Iterator, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import IterableDataset, get_worker_info

from .._arguments import whole
from .._dataset import Batch, Dataset
from .._errors import ForkError


class TensorBatch(NamedTuple):
    """Examples in tensors. Example `i` has the features `offsets[i]` to `offsets[i + 1]`, as in `gannet.Batch`."""

    labels: Tensor
    """float32 (n,)."""
    offsets: Tensor
    """int64 (n + 1,): `EmbeddingBag` takes them with `include_last_offset=True`."""
    keys: Tensor
    """int64 (m,), with the same 64 bits as the keys of the data set."""
    values: Tensor
    """float32 (m,)."""
    importances: Tensor
    """float32 (n,)."""
    bases: Tensor
    """float32 (n,)."""
    fields: Tensor
    """int64 (m,) with the bits of `gannet.field_key`, or empty without `fields=True`."""


class BatchDataset(IterableDataset[TensorBatch]):
    """An `IterableDataset` of batches of examples.

        batches = gannet.torch.BatchDataset("day-*.parquet", 1024, label="clicked")
        loader = DataLoader(batches, batch_size=None, num_workers=4, multiprocessing_context="spawn")

    Args:
        data: What `gannet.Dataset` takes. With workers of a DataLoader it is pickled: paths, DataFrames, matrices.
        size: Examples in a batch.
        rank: This process is number `rank` of
        world: so many processes, each of which gets other batches.
        intercept: Whether each example begins with the intercept, as in `Dataset.batches`.
        choice: The other parameters of `gannet.Dataset`, such as `label` and `numeric`.

    The workers of a DataLoader share the batches of their process: each batch goes to one worker. They must be spawned.

    Raises:
        ForkError: In the first batch of a worker that was forked: the threads of a reading do not live in a fork.
        InputError: As for `gannet.Dataset`.
    """

    def __init__(
        self, data: Any, size: int = 1024, *, rank: int = 0, world: int = 1, intercept: bool = False, **choice: Any
    ) -> None:
        super().__init__()
        self.data = data
        self.size = whole("size", size, 1, 65536)
        self.world = whole("world", world, 1, 2**16)
        self.rank = whole("rank", rank, 0, self.world - 1)
        self.intercept = intercept
        self.choice = choice
        self._pid = os.getpid()
        # What is wrong is told here, and not in each worker. A worker makes its own: readings cannot be pickled.
        Dataset(data, **choice)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_pid"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._pid = os.getpid()

    def __iter__(self) -> Iterator[TensorBatch]:
        if os.getpid() != self._pid:
            raise ForkError(
                "the DataLoader forks its workers, and no reading lives in a fork: give it "
                'multiprocessing_context="spawn"'
            )
        info = get_worker_info()
        at, among = (0, 1) if info is None else (info.id, info.num_workers)
        data = Dataset(self.data, **self.choice)
        rank, workers = self.rank * among + at, self.world * among
        with data.batches(self.size, intercept=self.intercept, rank=rank, workers=workers) as batches:
            for batch in batches:
                yield _tensors(batch)


def _tensors(batch: Batch) -> TensorBatch:
    # PyTorch has few operations for uint64.
    keys, fields = batch.keys.view(np.int64), batch.fields.view(np.int64)
    arrays = (batch.labels, batch.offsets, keys, batch.values, batch.importances, batch.bases, fields)
    return TensorBatch(*(torch.from_numpy(array) for array in arrays))
