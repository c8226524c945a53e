"""Gannet: a parameter server for sparse models.

Servers keep tables of rows. A program connects to them, pulls the rows of some keys, and pushes gradients. The servers
update the rows, each push exactly once.

    import gannet, numpy as np

    with gannet.LocalCluster(servers=2) as cluster, gannet.connect(cluster.servers) as client:
        table = client.table("words", dim=16, optimizer=gannet.Adagrad(lr=0.05))
        keys = np.array([7, 42, 7], np.uint64)
        rows = table.pull(keys)              # float32 (3, 16)
        table.push(keys, np.ones_like(rows)) # the two gradients of key 7 are added
"""

import atexit as _atexit
import os as _os

from . import _client, _cluster, _dataset, _serving
from ._client import Client, connect
from ._cluster import LocalCluster
from ._command import command
from ._dataset import INTERCEPT_KEY, Batch, Batches, Columns, Dataset
from ._errors import ForkError, GannetError, InputError, MachineError, PeerError, RowsGoneError
from ._keys import field_key, keys
from ._model import Explanation, Model, Weight, load
from ._native import __version__
from ._optim import (
    Add,
    Adagrad,
    Adam,
    AMSGrad,
    Ftrl,
    GroupFtrl,
    Init,
    Momentum,
    Normal,
    Optimizer,
    RMSprop,
    RowAdagrad,
    Sgd,
    Uniform,
    Zero,
)
from ._progress import show_progress
from ._table import KeySet, Pull, Table, TableStats

__all__ = [
    "AMSGrad",
    "Adagrad",
    "Adam",
    "Add",
    "Batch",
    "Batches",
    "Client",
    "Columns",
    "Dataset",
    "Explanation",
    "ForkError",
    "Ftrl",
    "GannetError",
    "GroupFtrl",
    "INTERCEPT_KEY",
    "Init",
    "InputError",
    "KeySet",
    "LocalCluster",
    "MachineError",
    "Model",
    "Momentum",
    "Normal",
    "Optimizer",
    "PeerError",
    "Pull",
    "RMSprop",
    "RowAdagrad",
    "RowsGoneError",
    "Sgd",
    "Table",
    "TableStats",
    "Uniform",
    "Weight",
    "Zero",
    "__version__",
    "command",
    "connect",
    "field_key",
    "keys",
    "load",
    "show_progress",
]

_pid = _os.getpid()


def _at_exit() -> None:
    # Clients before servers: their last pushes need them. A fork has none of the threads.
    if _pid == _os.getpid():
        _dataset.close_all()
        _client.close_all()
        _serving.drop_all()
        _cluster.close_all()


_atexit.register(_at_exit)
