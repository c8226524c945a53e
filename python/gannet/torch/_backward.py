# mypy: disable-error-code="import-not-found,misc,no-any-return,untyped-decorator,no-untyped-call"
# PyTorch may not be installed where types are checked.
"""Gradients of one backward pass: gathered until its end, then pushed, each row once.

A pass may have other passes inside it: reentrant checkpointing runs a part of the model again, and then backward. What
is looked up inside a pass belongs to that pass, not to the inner one.
"""

from __future__ import annotations

import threading
import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Optional

import numpy as np
import torch

from .._errors import GannetError
from .._table import KeySet, Table

if TYPE_CHECKING:
    from ._embedding import ServerEmbedding


@dataclass
class _Part:
    """The gradients of one look-up."""

    module: ServerEmbedding
    keyset: KeySet
    grads: torch.Tensor


class Gradients:
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
        pushed: list[str] = []
        # What can fail without a server comes first.
        ready = [(table, *_merged(of_table)) for table, of_table in self.tables.items()]
        for table, keys, rows in ready:
            try:
                # Nobody else has the gradients.
                table.push(keys, rows, copy=False)
            except GannetError as error:
                if pushed:
                    _explain(error, pushed)
                raise
            pushed.append(table.name)
        with _lock:
            for module in {id(part.module): part.module for part in parts}.values():
                module.pushes += 1


def _explain(error: GannetError, pushed: list[str]) -> None:
    """Says which tables have a step of the pass that has failed."""
    names = ", ".join(map(repr, pushed))
    text = f"{error}. The rows of this pass in {names} are pushed: another backward of it would push them again"
    error.args = (text, *error.args[1:])


def _merged(parts: list[_Part]) -> tuple[Any, Any]:
    """Keys and rows of a push."""
    rows = [_rows(part) for part in parts]
    if len(parts) == 1:
        return parts[0].keyset, rows[0]
    return np.concatenate([part.keyset.keys for part in parts]), np.concatenate(rows)


def _rows(part: _Part) -> Any:
    grads, factor = part.grads[: len(part.keyset)].float(), part.module._gradient_factor()
    if factor != 1.0:
        grads = grads * factor
    return grads.cpu().contiguous().numpy()


# By the number of the backward pass. The engine holds the gradients with the callback, and drops them with it if the
# pass fails: gradients of half a pass are never pushed.
_running: weakref.WeakValueDictionary[int, Gradients] = weakref.WeakValueDictionary()
_lock = threading.Lock()


def gradients_of_this_pass() -> Optional[Gradients]:
    """Where the backward pass that this thread is in gathers its gradients. `None` outside of a pass."""
    number = torch._C._current_graph_task_id()
    if number < 0:
        return None
    with _lock:
        gathered = _running.get(number)
        if gathered is None:
            gathered = _running[number] = Gradients()
            # The engine calls it at the end of this pass. DistributedDataParallel uses it in the same way.
            torch.autograd.Variable._execution_engine.queue_callback(gathered.push)
        return gathered


class Collector:
    """Takes the gradient of the rows of one look-up, in a hook of a backward pass."""

    def __init__(self, module: ServerEmbedding, keyset: KeySet) -> None:
        self._module = module
        self._keyset = keyset
        outer = gradients_of_this_pass()
        # The engine holds the gradients as long as the outer pass runs.
        self._outer = None if outer is None else weakref.ref(outer)

    def __call__(self, rows: torch.Tensor) -> None:
        grads = rows.grad
        rows.grad = None
        if grads is None or self._module.frozen:
            return
        outer = None if self._outer is None else self._outer()
        gathered = gradients_of_this_pass() if outer is None else outer
        if gathered is None:
            raise RuntimeError("the gradients of rows came outside of a backward pass: is compiled autograd on?")
        with _lock:
            gathered.tables.setdefault(self._module.table, []).append(_Part(self._module, self._keyset, grads.detach()))


class Attach(torch.autograd.Function):
    """Passes rows on, and makes the embedding's parameter, which has no elements, a part of the graph. The parameter
    then has a gradient, as every trained parameter of a model has."""

    @staticmethod
    def forward(ctx: Any, rows: torch.Tensor, anchor: torch.Tensor) -> torch.Tensor:
        return rows.view_as(rows)

    @staticmethod
    def backward(ctx: Any, grads: torch.Tensor) -> Any:
        return grads, grads.new_empty((0, grads.shape[-1]))
