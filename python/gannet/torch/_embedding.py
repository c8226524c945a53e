# mypy: disable-error-code="import-not-found,misc,no-any-return,untyped-decorator,no-untyped-call"
# PyTorch may not be installed where types are checked.
"""Embeddings whose rows are on servers."""

from __future__ import annotations

import copy
import warnings
from typing import Any, Optional, TypeVar, Union

import numpy as np
import torch
import torch.distributed
from torch import Tensor, nn
from torch.nn import functional

from .._client import Client
from .._errors import InputError
from .._optim import Init, Normal, Optimizer
from .._table import KeySet, Table
from ._backward import Attach, Collector

# A key of an embedding with a position: the position's bits above those of the id.
_ID_BITS = 48
IDS_MAX = 1 << _ID_BITS
POSITIONS_MAX = 1 << (64 - _ID_BITS)

_Module = TypeVar("_Module", bound="ServerEmbedding")


class ServerEmbedding(nn.Module):
    """What `Embedding` and `EmbeddingBag` have in common: the look-up of rows, and their gradients' way back."""

    def __init__(
        self,
        client: Client,
        name: str,
        dim: int,
        *,
        optimizer: Optimizer,
        init: Init = Normal(0, 1e-4),
        shards: int = 64,
        padding_idx: Optional[int] = None,
        position: Optional[int] = None,
        num_embeddings: Optional[int] = None,
        scale_grad_by_freq: bool = False,
        grad_scaler: Optional[torch.amp.GradScaler] = None,
        gradient_division: bool = True,
        dtype: torch.dtype = torch.float32,
        row_type: str = "f32",
        evict_after: Union[int, str, None] = None,
        evict_below: Optional[float] = None,
        capacity: Union[int, str, None] = None,
        evict_floor: Optional[int] = None,
    ) -> None:
        super().__init__()
        if position is not None and not 0 <= position < POSITIONS_MAX:
            raise InputError(f"position is {position}; None, or 0 to {POSITIONS_MAX - 1} is wanted")
        if padding_idx is not None and num_embeddings is not None:
            if not -num_embeddings <= padding_idx < num_embeddings:
                raise InputError(f"padding_idx is {padding_idx}, and the embedding has {num_embeddings} rows")
            padding_idx %= num_embeddings
        self.table: Table = client.table(
            name,
            dim,
            optimizer=optimizer,
            init=init,
            shards=shards,
            row_type=row_type,
            evict_after=evict_after,
            evict_below=evict_below,
            capacity=capacity,
            evict_floor=evict_floor,
        )
        """The table that holds the rows."""
        self.row_type = row_type
        """How the servers store the rows."""
        self.position = position
        """Which of the embeddings of its table this is. None: the table's only one."""
        self.num_embeddings = num_embeddings
        self.embedding_dim = dim
        self.padding_idx = padding_idx
        self.scale_grad_by_freq = scale_grad_by_freq
        self.grad_scaler = grad_scaler
        """The scaler of automatic mixed precision. Gradients are divided by its scale before they are pushed."""
        self.gradient_division = gradient_division
        """Divide gradients by the number of processes of `torch.distributed`, as DistributedDataParallel does."""
        self.anchor = nn.Parameter(torch.empty((0, dim), dtype=dtype))
        """A parameter without elements: it stands for the rows in the model's list of parameters. Its dtype is that of
        the output. Without `requires_grad` the rows are frozen."""
        self.pushes = 0
        """Backward passes that have pushed rows of this embedding."""
        self._padding_row: Optional[Tensor] = None

    @property
    def client(self) -> Client:
        """The client that pulls and pushes the rows."""
        return self.table.client

    def keys(self, ids: Any) -> Any:
        """The keys of these ids in the table, uint64 (n,). `ids` are int64 (n,)."""
        if self.position is None:
            return ids.view(np.uint64)
        return ids.view(np.uint64) | np.uint64(self.position << _ID_BITS)

    def assign(self, ids: Any, rows: Any) -> None:
        """Stores rows float32 (n, dim) for ids int64 (n,), each id once. See `gannet.Table.assign`."""
        given = np.asarray(ids)
        if given.dtype.kind not in "iu":
            raise TypeError(f"ids have dtype {given.dtype}; integers (int64 or int32) are wanted")
        wanted = np.ascontiguousarray(given, np.int64)
        self._check_ids(wanted)
        self.table.assign(self.keys(wanted), rows)

    @property
    def frozen(self) -> bool:
        """Rows are only pulled, and never pushed: `requires_grad_(False)` was called for this module, for one around it
        or for its parameter."""
        return not self.anchor.requires_grad

    @torch.compiler.disable  # type: ignore[untyped-decorator, unused-ignore]
    def _look_up(self, given: Tensor) -> tuple[Tensor, Tensor, Optional[int]]:
        """The rows of the ids, each once; for each id the place of its row; the place of the padding."""
        if given.is_floating_point() or given.is_complex() or given.dtype == torch.bool:
            raise TypeError(f"ids have dtype {given.dtype}; integers (int64 or int32) are wanted")
        ids = given.detach().reshape(-1).to(device="cpu", dtype=torch.int64).numpy()
        self._check_ids(ids)
        if self.padding_idx is None:
            keyset = self.table.keyset(self.keys(ids))
            rows, places, padding = self.table.pull(keyset), keyset.inverse, None
        else:
            keyset, rows, places = self._pull_with_padding(ids, ids != self.padding_idx)
            padding = len(keyset)
        weight = torch.from_numpy(rows).to(given.device)
        if torch.is_grad_enabled() and not self.frozen:
            weight.requires_grad_()
            weight.register_post_accumulate_grad_hook(Collector(self, keyset))
            weight = Attach.apply(weight, self.anchor)
        if self.anchor.dtype != torch.float32:
            weight = weight.to(self.anchor.dtype)
        return weight, torch.from_numpy(places).view(given.shape).to(given.device), padding

    def _pull_with_padding(self, ids: Any, others: Any) -> tuple[KeySet, Any, Any]:
        """As `_look_up`, with the row of the padding at the end. It is neither pulled nor pushed."""
        keyset = self.table.keyset(self.keys(ids[others]))
        rows = np.empty((len(keyset) + 1, self.embedding_dim), np.float32)
        self.table.pull(keyset, out=rows[:-1])
        rows[-1] = 0.0 if self._padding_row is None else self._padding_row.numpy()
        places = np.full(len(ids), len(keyset), np.int64)
        places[others] = keyset.inverse
        return keyset, rows, places

    def _check_ids(self, ids: Any) -> None:
        if self.position is None and self.num_embeddings is None or not ids.size:
            return
        end = IDS_MAX if self.num_embeddings is None else self.num_embeddings
        lowest, highest = int(ids.min()), int(ids.max())
        if lowest < 0 or highest >= end:
            wrong = lowest if lowest < 0 else highest
            raise IndexError(f"id {wrong} of the embedding in {self._place()}: 0 to {end - 1} are possible")

    def _gradient_factor(self) -> float:
        factor = 1.0
        if self.grad_scaler is not None and self.grad_scaler.is_enabled():
            factor /= float(self.grad_scaler.get_scale())
        if self.gradient_division and torch.distributed.is_available() and torch.distributed.is_initialized():
            factor /= torch.distributed.get_world_size()
        return factor

    def _place(self) -> str:
        table = f"table {self.table.name!r}"
        return table if self.position is None else f"{table} at position {self.position}"

    def get_extra_state(self) -> dict[str, Any]:
        """What `state_dict` holds: where the rows are, and after how many pushes. It holds no rows."""
        state: dict[str, Any] = {
            "table": self.table.name,
            "position": self.position,
            "dim": self.embedding_dim,
            "pushes": self.pushes,
        }
        if self._padding_row is not None:
            state["padding"] = self._padding_row
        return state

    def set_extra_state(self, state: Any) -> None:
        """Checks that the state is of the same rows. It warns if they are older or newer."""
        ours = self.get_extra_state()
        for what in ("table", "position", "dim"):
            if state.get(what) != ours[what]:
                raise InputError(
                    f"the state's {what} is {state.get(what)!r}, and this embedding's is {ours[what]!r}: convert the "
                    "model with the name and in the way that it was converted with when the state was made"
                )
        if state["pushes"] < self.pushes:
            warnings.warn(
                f"the rows in {self._place()} stay as they are, after {self.pushes} pushes, and the state is from push "
                f"{state['pushes']}: Client.load stores rows that Client.save has written then",
                stacklevel=2,
            )
        elif state["pushes"] > 0 and self.table.stats().rows == 0:
            warnings.warn(
                f"the state is from push {state['pushes']}, and {self._place()} has no rows: Client.load stores those "
                "that Client.save has written",
                stacklevel=2,
            )
        self.pushes = max(self.pushes, int(state["pushes"]))
        self._padding_row = state.get("padding")

    def __getattr__(self, name: str) -> Any:
        if name == "weight":
            raise AttributeError(
                f"the rows in {self._place()} are on servers, so this embedding has no weight. If a model reads the "
                "weight of an embedding itself, leave that one where it is: gannet.torch.convert(..., skip=[NAME])"
            )
        return super().__getattr__(name)

    def __deepcopy__(self: _Module, memo: dict[int, Any]) -> _Module:
        # The copy has the same rows: a table has no copies.
        copied = type(self).__new__(type(self))
        memo[id(self)] = copied
        nn.Module.__init__(copied)
        for name, value in self.__dict__.items():
            # Each module has its own lists of hooks and parameters.
            copied.__dict__[name] = copy.copy(value) if isinstance(value, (dict, set)) else value
        copied.anchor = copy.deepcopy(self.anchor, memo)
        return copied

    def __getstate__(self) -> Any:
        raise TypeError(
            f"an embedding in {self._place()} has a connection, so it cannot be pickled: save model.state_dict(), and "
            "convert a new model before it loads the state"
        )

    def extra_repr(self) -> str:
        """Where the rows are."""
        rows = "" if self.num_embeddings is None else f"{self.num_embeddings} rows of "
        padding = "" if self.padding_idx is None else f", padding_idx={self.padding_idx}"
        return f"{rows}dim {self.embedding_dim} in {self._place()}{padding}"


class Embedding(ServerEmbedding):
    """An embedding whose rows are on servers: `torch.nn.Embedding` without a weight.

    Args:
        client: A connection to the servers.
        name: The table that holds the rows. It is made if there is none.
        dim: Weights of a row.
        optimizer: What the servers do with gradients, such as `gannet.Adagrad(lr=0.01)`.
        init: What a row reads as before its first push.
        shards: Parts of a new table.
        padding_idx: This id reads as zeros, and has no gradient.
        position: Which of several embeddings in one table this is, 0 to 65,535. The key of an id is then
            `position << 48 | id`, and ids go from 0 to 2^48 - 1. None: the id is the key, and a negative one is the key
            with the same 64 bits.
        num_embeddings: Ids from here on are an `IndexError`. None: no id is too large.
        scale_grad_by_freq: Divide the gradient of a row by the number of its ids in the call.
        grad_scaler: The scaler of automatic mixed precision, whose scale is divided out. A backward pass with a
            row's gradient that is not finite then pushes nothing.
        gradient_division: Divide gradients by the number of processes, if `torch.distributed` is initialized. They are
            then those of the mean over all processes, as DistributedDataParallel makes it for other parameters.
        dtype: Of the output. Rows are float32, and so are their gradients when they are pushed.
        row_type: How the servers store the rows: `"f32"`, or `"f16"` or `"bf16"` in half the bytes (`Client.table`).
        evict_after, evict_below, capacity, evict_floor: Which rows the servers delete (`Client.table`). They are said
            of the table, so embeddings in one table say the same.

    Each call of `backward` is one step of the optimizer for the rows that it has gradients for: a row is pushed once,
    however often its id was looked up since. `torch.autograd.grad` pushes nothing. Under `torch.no_grad` rows are only
    pulled.
    """

    def forward(self, ids: Tensor) -> Tensor:
        """Rows (*ids.shape, dim) of ids, int64 or int32 of any shape."""
        weight, places, padding = self._look_up(ids)
        return functional.embedding(places, weight, padding, scale_grad_by_freq=self.scale_grad_by_freq)


class EmbeddingBag(ServerEmbedding):
    """Sums, means or maxima of the rows of bags of ids: `torch.nn.EmbeddingBag` without a weight.

    Args:
        mode: `"sum"`, `"mean"` or `"max"`.
        include_last_offset: Whether the last of `offsets` is the number of ids.
        others: As those of `Embedding`. A bag leaves the padding out.
    """

    def __init__(
        self,
        client: Client,
        name: str,
        dim: int,
        *,
        optimizer: Optimizer,
        mode: str = "sum",
        include_last_offset: bool = False,
        **others: Any,
    ) -> None:
        if mode not in ("sum", "mean", "max"):
            raise InputError(f"mode is {mode!r}; 'sum', 'mean' or 'max' is wanted")
        super().__init__(client, name, dim, optimizer=optimizer, **others)
        self.mode = mode
        self.include_last_offset = include_last_offset

    def forward(
        self, input: Tensor, offsets: Optional[Tensor] = None, per_sample_weights: Optional[Tensor] = None
    ) -> Tensor:
        """One row a bag, (bags, dim).

        Args:
            input: Ids (bags, n), or (n,) with `offsets`.
            offsets: Where each bag begins in `input`, (bags,).
            per_sample_weights: Factors of the rows, of the shape of `input`. Only for the mode `"sum"`.
        """
        weight, places, padding = self._look_up(input)
        if offsets is not None:
            offsets = offsets.to(torch.int64)
        return functional.embedding_bag(
            places,
            weight,
            offsets,
            scale_grad_by_freq=self.scale_grad_by_freq,
            mode=self.mode,
            per_sample_weights=per_sample_weights,
            include_last_offset=self.include_last_offset,
            padding_idx=padding,
        )

    def extra_repr(self) -> str:
        """Where the rows are, and the mode."""
        return f"{super().extra_repr()}, mode={self.mode}"
