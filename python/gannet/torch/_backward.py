# mypy: disable-error-code="import-not-found,misc,no-any-return,untyped-decorator,no-untyped-call"
# PyTorch may not be installed where types are checked.
"""Gradients of one backward pass: gathered until its end, then pushed, each row once."""

from __future__ import annotations

import threading
import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from .._table import KeySet, Table

if TYPE_CHECKING:
    from ._embedding import ServerEmbedding


@dataclass
class _Part:
    """The gradients of one look-up."""

    module: ServerEmbedding
    keyset: KeySet
    grads: torch.Tensor


class _Gradients:
    """The gradients of a backward pass that runs."""

    def __init__(self) -> None:
        self.tables: dict[Table, list[_Part]] = {}

    def push(self) -> None:
        """Pushes the rows of each table once. The engine calls it when the backward pass has ended."""
        parts = [part for of_table in self.tables.values() for part in of_table]
        if any(part.module.grad_scaler is not None for part in parts):
            if not all(bool(torch.isfinite(part.grads).all()) for part in parts):
                # GradScaler leaves such a step out, too.
                return
        for table, of_table in self.tables.items():
            _push(table, of_table)
        for module in {id(part.module): part.module for part in parts}.values():
            module.pushes += 1


def _push(table: Table, parts: list[_Part]) -> None:
    rows = [_rows(part) for part in parts]
    if len(parts) == 1:
        table.push(parts[0].keyset, rows[0])
    else:
        table.push(np.concatenate([part.keyset.keys for part in parts]), np.concatenate(rows))


def _rows(part: _Part) -> Any:
    grads, factor = part.grads[: len(part.keyset)], part.module._gradient_factor()
    if factor != 1.0:
        grads = grads * factor
    return grads.float().cpu().contiguous().numpy()


# By the number of the backward pass. The engine holds the gradients with the callback, and drops them with it if the
# pass fails: gradients of half a pass are never pushed.
_running: weakref.WeakValueDictionary[int, _Gradients] = weakref.WeakValueDictionary()
_lock = threading.Lock()


def collect(module: ServerEmbedding, keyset: KeySet, rows: torch.Tensor) -> None:
    """Takes the gradient of these rows, in a hook of a backward pass."""
    grads = rows.grad
    rows.grad = None
    if grads is None:
        return
    number = torch._C._current_graph_task_id()
    with _lock:
        gathered = _running.get(number)
        if gathered is None:
            gathered = _running[number] = _Gradients()
            # The engine calls it at the end of this pass. DistributedDataParallel uses it in the same way.
            torch.autograd.Variable._execution_engine.queue_callback(gathered.push)
        gathered.tables.setdefault(module.table, []).append(_Part(module, keyset, grads.detach()))
