# mypy: disable-error-code="import-not-found,misc,no-any-return,untyped-decorator,no-untyped-call"
# PyTorch may not be installed where types are checked.
"""Embeddings of PyTorch models whose rows are on servers.

`Embedding` and `EmbeddingBag` stand where `torch.nn.Embedding` and `torch.nn.EmbeddingBag` stood. `convert` puts them
there, in a model that somebody else wrote. A forward pass pulls the rows of its ids. The backward pass pushes their
gradients, each row once, and the servers update the rows.

    import gannet, gannet.torch

    client = gannet.connect("10.0.0.1:7700")
    model = gannet.torch.convert(model, client, optimizer=gannet.Adagrad(lr=0.01))
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.01)   # the other parameters, as before

`BatchDataset` reads examples for a DataLoader.

It needs PyTorch 2.4 or later, and uses nothing of it but Python: a wheel of gannet works with every build of PyTorch.
"""

try:
    import torch as _torch
except ImportError as _missing:  # pragma: no cover
    raise ImportError(f"gannet.torch needs PyTorch 2.4 or later ({_missing}): pip install torch") from _missing

from ._batches import BatchDataset, TensorBatch
from ._convert import convert
from ._embedding import Embedding, EmbeddingBag

__all__ = ["BatchDataset", "Embedding", "EmbeddingBag", "TensorBatch", "convert"]

if tuple(int(part) for part in _torch.__version__.split(".")[:2]) < (2, 4):  # pragma: no cover
    raise ImportError(f"gannet.torch needs PyTorch 2.4 or later, and this is {_torch.__version__}")
