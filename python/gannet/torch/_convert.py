# mypy: disable-error-code="import-not-found,misc,no-any-return,untyped-decorator,no-untyped-call,method-assign"
# PyTorch may not be installed where types are checked.
"""Puts embeddings whose rows are on servers into a model, in place of its own."""

from __future__ import annotations

import re
import warnings
from typing import Any, Iterable, Optional, TypeVar, Union

import numpy as np
import torch
import torch.distributed
from torch import nn

from .._client import Client
from .._errors import InputError
from .._optim import Init, Normal, Optimizer
from ._embedding import IDS_MAX, POSITIONS_MAX, Embedding, EmbeddingBag, ServerEmbedding

_Model = TypeVar("_Model", bound=nn.Module)
_Own = Union[nn.Embedding, nn.EmbeddingBag]
_LARGEST_F16 = 65504
_ROWS_AT_ONCE = 1 << 16


def convert(
    model: _Model,
    client: Client,
    *,
    optimizer: Optimizer,
    weights: str = "fresh",
    init: Init = Normal(0, 1e-4),
    name: Optional[str] = None,
    shards: int = 64,
    skip: Iterable[str] = (),
    grad_scaler: Optional[torch.amp.GradScaler] = None,
    gradient_division: bool = True,
    row_type: str = "f32",
    evict_after: Union[int, str, None] = None,
    evict_below: Optional[float] = None,
    capacity: Union[int, str, None] = None,
    evict_floor: Optional[int] = None,
) -> _Model:
    """Replaces each `nn.Embedding` and `nn.EmbeddingBag` of a model by one whose rows are on servers.

    Call it before the model's optimizer is made. Embeddings of one dim share a table, `NAME.DIM`, and each has a
    position in it: their number in the order of `model.named_modules()`. If the model has embeddings on servers
    already, the numbers go on behind theirs. The model's own embeddings lose their weights. Where the model calls them
    by other names, such as from a dict, they do what the new ones do.

    Args:
        model: It is changed, and returned.
        client: A connection to the servers.
        optimizer: What the servers do with gradients.
        weights: `"fresh"`: rows are as the table has them, and rows that it does not have begin as `init`. `"keep"`:
            the model's rows are stored in the table, which must have no rows. If `torch.distributed` is initialized,
            only rank 0 stores its rows, and the others wait for it. `"fresh"` goes on with such rows later.
        init: What a row reads as before its first push. It is a part of the table, so it is always the same.
        name: The first part of the tables' names. Default: the name of the model's class. Two models on the same
            servers need two names.
        shards: Parts of each new table.
        skip: Names of modules, as `model.named_modules()` has them, that stay as they are, with all that is in them.
        grad_scaler, gradient_division, row_type: As those of `Embedding`. Rows of one weight are always `"f32"`.
        evict_after, evict_below, capacity, evict_floor: Which rows of each table the servers delete (`Client.table`). A
            capacity is that of each table, so of all embeddings of one dim.

    Returns:
        `model`.

    Raises:
        InputError: An embedding cannot be converted: it has a `max_norm`, another module uses its weight as well, or it
            is frozen and its rows are not kept. Or with `"keep"` a table has rows. The model is then as it was.
    """
    if weights not in ("fresh", "keep"):
        raise InputError(f"weights is {weights!r}; 'fresh' or 'keep' is wanted")
    found = _embeddings(model, set(skip))
    _check(model, found, weights)
    common: dict[str, Any] = {
        "optimizer": optimizer,
        "init": init,
        "shards": shards,
        "grad_scaler": grad_scaler,
        "gradient_division": gradient_division,
        "row_type": row_type,
        "evict_after": evict_after,
        "evict_below": evict_below,
        "capacity": capacity,
        "evict_floor": evict_floor,
    }
    prefix = re.sub(r"[^A-Za-z0-9_.-]", "_", name if name is not None else type(model).__name__)
    made: dict[_Own, ServerEmbedding] = {}
    places: dict[tuple[int, int], int] = {}
    first = _first_position(model)
    for path, own in found.items():
        # Embeddings that share a weight share a position.
        position = places.setdefault((own.embedding_dim, id(own.weight)), first + len(places))
        try:
            made[own] = _replacement(own, client, f"{prefix}.{own.embedding_dim}", position, common)
        except InputError as error:
            raise InputError(f"{path}: {error}") from error
    if weights == "keep":
        _keep(made)
    for module in model.modules():
        for child, own_child in list(module._modules.items()):
            if isinstance(own_child, (nn.Embedding, nn.EmbeddingBag)) and own_child in made:
                module._modules[child] = made[own_child]
    _forget(model, {own.weight for own in found.values()})
    for own, embedding in made.items():
        _redirect(own, embedding)
    return model


def _first_position(model: nn.Module) -> int:
    """The position behind those of embeddings that are on servers already."""
    known = [module.position for module in model.modules() if isinstance(module, ServerEmbedding)]
    return max((position + 1 for position in known if position is not None), default=0)


_HOOKS = (
    "_forward_hooks",
    "_forward_hooks_with_kwargs",
    "_forward_hooks_always_called",
    "_forward_pre_hooks",
    "_forward_pre_hooks_with_kwargs",
    "_backward_hooks",
    "_backward_pre_hooks",
)


def _redirect(own: _Own, embedding: ServerEmbedding) -> None:
    """Lets calls of the old embedding by other names go to the new one, and frees its weight."""
    for hooks in _HOOKS:
        getattr(embedding, hooks).update(getattr(own, hooks, {}))
    own.forward = embedding.forward
    own._parameters["weight"] = None


def _embeddings(model: nn.Module, skip: set[str]) -> dict[str, _Own]:
    """The embeddings to convert, by their first names."""
    names = {name for name, _ in model.named_modules(remove_duplicate=False)}
    if unknown := sorted(skip - names):
        raise InputError(f"skip has {unknown}, and the model has no modules of these names")
    if type(model) in (nn.Embedding, nn.EmbeddingBag):
        raise InputError("the model is itself an embedding: make a gannet.torch.Embedding in its place")
    skipped = {module for name in skip for module in model.get_submodule(name).modules()}
    found: dict[str, _Own] = {}
    for name, module in model.named_modules():
        if module in skipped:
            continue
        if type(module) in (nn.Embedding, nn.EmbeddingBag):
            assert isinstance(module, (nn.Embedding, nn.EmbeddingBag))
            found[name] = module
        elif isinstance(module, (nn.Embedding, nn.EmbeddingBag)):
            warnings.warn(
                f"{name} stays as it is: {type(module).__name__} is a kind of embedding that gannet does not know",
                stacklevel=3,
            )
    return found


def _check(model: nn.Module, found: dict[str, _Own], weights: str) -> None:
    for path, own in found.items():
        if own.weight is None:
            raise InputError(f"{path} was converted before, as a part of another model: make a new one for this model")
        if names := sorted(set(own._parameters) - {"weight"}):
            raise InputError(f"{path} makes its weight of other parameters ({', '.join(names)}): skip=[{path!r}]")
        if not own.weight.requires_grad and weights == "fresh":
            raise InputError(
                f"{path} is frozen, and weights='fresh' would not take its rows over: use weights='keep', or "
                f"skip=[{path!r}]"
            )
    owners: dict[nn.Parameter, str] = {own.weight: path for path, own in found.items()}
    for path, own in found.items():
        if own.max_norm is not None:
            raise InputError(f"{path} has max_norm={own.max_norm}, which changes rows in a look-up: skip=[{path!r}]")
        if own.num_embeddings > IDS_MAX:
            raise InputError(f"{path} has {own.num_embeddings} rows; at most {IDS_MAX} are possible")
    if len(found) > POSITIONS_MAX:
        raise InputError(f"the model has {len(found)} embeddings; at most {POSITIONS_MAX} are possible")
    converted = set(found.values())
    for path, module in model.named_modules():
        if module in converted:
            continue
        for name, parameter in module.named_parameters(recurse=False):
            if parameter in owners:
                raise InputError(
                    f"{path}.{name} is the weight of {owners[parameter]}, too, so the rows have to be in this process: "
                    f"skip=[{owners[parameter]!r}]"
                )


def _replacement(own: _Own, client: Client, table: str, position: int, common: dict[str, Any]) -> ServerEmbedding:
    described = {
        "position": position,
        "padding_idx": own.padding_idx,
        "num_embeddings": own.num_embeddings,
        "scale_grad_by_freq": own.scale_grad_by_freq,
        "dtype": own.weight.dtype,
        **common,
    }
    if own.embedding_dim == 1:
        described["row_type"] = "f32"  # 16 bits would save nothing
    made: ServerEmbedding
    if isinstance(own, nn.EmbeddingBag):
        bags: dict[str, Any] = {"mode": own.mode, "include_last_offset": own.include_last_offset}
        made = EmbeddingBag(client, table, own.embedding_dim, **bags, **described)
    else:
        made = Embedding(client, table, own.embedding_dim, **described)
    made.to(own.weight.device).requires_grad_(own.weight.requires_grad).train(own.training)
    return made


def _keep(made: dict[_Own, ServerEmbedding]) -> None:
    """Stores the rows of the model's own embeddings. Of several processes rank 0 does it."""
    distributed = torch.distributed.is_available() and torch.distributed.is_initialized()
    failed: Optional[Exception] = None
    if not distributed or torch.distributed.get_rank() == 0:
        try:
            _store_all(made)
        except Exception as error:
            failed = error
    if distributed:
        # The others wait for this, and learn whether there are rows.
        said = [None if failed is None else f"{type(failed).__name__}: {failed}"]
        torch.distributed.broadcast_object_list(said)
        if said[0] is not None and failed is None:
            raise InputError(f"rank 0 could not store the rows of the model: {said[0]}")
    if failed is not None:
        raise failed
    for own, embedding in made.items():
        if embedding.padding_idx is not None:
            row = own.weight[embedding.padding_idx].detach().float().cpu().clone()
            embedding._padding_row = row if bool(row.any()) else None


def _store_all(made: dict[_Own, ServerEmbedding]) -> None:
    for own, embedding in made.items():
        if not bool(torch.isfinite(own.weight).all()):
            raise InputError(f"the rows for {embedding._place()} have values that are not finite")
        if embedding.row_type == "f16" and bool((own.weight.abs() > _LARGEST_F16).any()):
            raise InputError(
                f"the rows for {embedding._place()} have values beyond {_LARGEST_F16}, the largest f16: choose row_type "
                "'bf16' or 'f32'"
            )
    for table in {embedding.table for embedding in made.values()}:
        if rows := table.stats().rows:
            raise InputError(
                f"table {table.name!r} has {rows} rows, and weights='keep' would replace them: give the model a "
                "name of its own, or go on with the table's rows by weights='fresh'"
            )
    for own, embedding in made.items():
        _store(own, embedding)
    for embedding in made.values():
        embedding.client.flush()


def _store(own: _Own, embedding: ServerEmbedding) -> None:
    rows = own.weight.detach()
    for begin in range(0, len(rows), _ROWS_AT_ONCE):
        some = rows[begin : begin + _ROWS_AT_ONCE].float().cpu().contiguous().numpy()
        ids = np.arange(begin, begin + len(some), dtype=np.int64)
        if embedding.padding_idx is not None:
            others = ids != embedding.padding_idx
            ids, some = ids[others], some[others]
        embedding.assign(ids, some)


def _forget(model: nn.Module, gone: set[Any]) -> None:
    """Removes weights that are gone from lists that modules keep, such as those of a penalty."""
    for path, module in model.named_modules():
        for attribute, value in list(vars(module).items()):
            if attribute.startswith("_") or isinstance(value, (nn.Module, torch.Tensor)):
                continue
            kept = _without(value, gone)
            if kept is not value:
                setattr(module, attribute, kept)
                warnings.warn(
                    f"{path + '.' if path else ''}{attribute} had weights of embeddings that are now on servers, and "
                    "they were removed from it. If it is a penalty on weights, use an optimizer with one: "
                    "gannet.Ftrl(l1=, l2=) or gannet.Adam(decay=)",
                    stacklevel=3,
                )


def _is_gone(item: Any, gone: set[Any]) -> bool:
    if isinstance(item, tuple) and len(item) == 2 and isinstance(item[0], str):
        # A name and its parameter.
        item = item[1]
    return isinstance(item, nn.Parameter) and item in gone


def _without(value: Any, gone: set[Any], around: tuple[int, ...] = ()) -> Any:
    """The same list, tuple or dict, or one without these parameters. `around` are the lists that it is in."""
    if type(value) not in (list, tuple, dict) or id(value) in around:
        return value
    around = (*around, id(value))
    if type(value) is dict:
        entries = {key: _without(item, gone, around) for key, item in value.items() if not _is_gone(item, gone)}
        same = len(entries) == len(value) and all(entries[key] is value[key] for key in entries)
        return value if same else entries
    items = [_without(item, gone, around) for item in value if not _is_gone(item, gone)]
    same = len(items) == len(value) and all(new is old for new, old in zip(items, value))
    return value if same else type(value)(items)
