"""Models that `gannet train --out` wrote, read to score data in this process."""

from __future__ import annotations

import html
import os
import warnings
from typing import Any, NamedTuple, Optional

import numpy as np
from numpy.typing import NDArray

from . import _native
from ._arguments import whole
from ._arrow import arrow_of, is_table
from ._dataset import Columns, Dataset, type_name
from ._errors import InputError
from ._export import PathLike, replace


class Weight(NamedTuple):
    """What a model has learned of a feature."""

    name: str
    """Its name in the data, such as `city=Paris`. A feature without a name has its key."""
    weight: float
    """Its weight; of several classes the one that is farthest from 0."""
    key: int
    factors: float
    """The length of its vector of factors; 0 without one."""
    output: Optional[int]
    """The class of the weight. `None`: the model has one output."""
    per_unit: Optional[float]
    """The weight for values as the data has them. `None`: values are learned as they are."""


class Explanation(NamedTuple):
    """Why an example has its margin: `base` and all `contributions` add up to it."""

    margin: float
    """What `decision_function` says, up to rounding; of several classes that of the likeliest."""
    base: float
    """What no feature contributes."""
    contributions: dict[str, float]
    """What each feature contributes, by its name."""
    output: Optional[int]
    """The class of the margin. `None`: the model has one output."""


class Model:
    """A model that `gannet train --out` wrote. `gannet.load` makes one.

    Each call takes data as `gannet.Dataset` does: files, a DataFrame, a matrix whose columns are the ids of features, or
    a `gannet.Dataset`. The model says which columns are numbers and which are categories. Data needs no labels.
    Threads may share a model, and calls wait without the GIL.
    """

    def __init__(self, path: PathLike) -> None:
        self._path = os.path.abspath(os.fsdecode(path))
        self._native = _native.Model(self._path)

    @property
    def path(self) -> str:
        """The folder of the model."""
        return self._path

    @property
    def kind(self) -> str:
        """What `--model` named: "lr", "linear", "softmax", "fm", "ffm", "deepfm" or "mf"."""
        return self._native.kind

    @property
    def settings(self) -> dict[str, str]:
        """The settings of its structure, by their flags: `factors`, `hidden`, `classes`, `loss`."""
        return dict(self._native.settings)

    @property
    def loss(self) -> str:
        """What `--loss` named, or what its kind learns without the flag."""
        own = {"probability": "logistic", "class": "logistic", "number": "squared", "margin": "hinge"}
        return self.settings.get("loss", own[self._native.predicts])

    @property
    def rows(self) -> int:
        """How many features have a row."""
        return self._native.rows

    @property
    def format(self) -> str:
        """The format of the data that it was trained on."""
        return self._native.format

    @property
    def columns(self) -> Optional[Columns]:
        """The columns that it was trained on, by their roles. `None`: its data had none."""
        columns = self._native.columns
        return None if columns is None else Columns(*columns)

    @property
    def intercept(self) -> Optional[float]:
        """The weight of the intercept, for values as the data has them. `None`: there is none, or it is 0."""
        return self._native.intercept

    @property
    def ended(self) -> Optional[str]:
        """How its training ended, if it ended early. `None`: it is complete."""
        return self._native.ended

    @property
    def classes(self) -> Optional[NDArray[Any]]:
        """The labels of `predict`, in the order of the columns of `predict_proba`. `None`: it predicts numbers."""
        native = self._native
        if native.predicts == "number":
            return None
        if native.predicts == "class" or native.labels is None:
            return np.arange(max(native.outputs, 2))
        positive, other = native.labels
        return np.array([f"not {positive}" if other is None else other, positive])

    def decision_function(self, data: Any) -> NDArray[np.float32]:
        """The outputs of each example before they become predictions: margins, float32 (n,). Of several classes their
        logits (n, classes).

        Raises:
            InputError: The data cannot be read as that of the model. The message names a missing column.
            TypeError: `data` is nothing that can be read.
        """
        outputs = self._score(data, False)
        return outputs if self._native.predicts == "class" else outputs[:, 0]

    def predict_proba(self, data: Any) -> NDArray[np.float32]:
        """The probability of each class: float32 (n, 2), or (n, classes). Column 1 has what `gannet predict` prints.

        Raises:
            InputError: As for `decision_function`; or the model predicts no probabilities.
        """
        predicts = self._native.predicts
        if predicts not in ("probability", "class"):
            what = "margins: decision_function" if predicts == "margin" else "numbers: predict"
            raise InputError(f"this model ({self.kind}, loss {self.loss}) predicts no probabilities, but {what}")
        scores = self._score(data, True)
        return scores if predicts == "class" else np.concatenate([1 - scores, scores], axis=1)

    def predict(self, data: Any) -> NDArray[Any]:
        """The likeliest of `classes` for each example, (n,). Of a regression numbers, float32 (n,).

        Raises:
            InputError: As for `decision_function`.
        """
        classes, outputs = self.classes, self._score(data, True)
        if classes is None:
            return outputs[:, 0]
        if self._native.predicts == "class":
            likeliest = outputs.argmax(axis=1)
        else:
            border = 0.5 if self._native.predicts == "probability" else 0.0
            likeliest = (outputs[:, 0] > border).astype(np.intp)
        labels: NDArray[Any] = classes[likeliest]
        return labels

    def weights(self, n: int = 20, data: Any = None) -> list[Weight]:
        """The features with the largest weights or factors, without the intercept.

        Args:
            n: How many at most.
            data: Data that says the names of features, such as that of the training. It is read once. Without it the
                names are those that the model keeps (`--keep-names`), or else keys.
        """
        named = None if data is None else self._read(data)
        classes = self._native.predicts == "class"
        found = self._native.weights(whole("n", n, 1, 2**32 - 1), named)
        return [
            Weight(name, weight, key, factors, output if classes else None, unit)
            for name, weight, key, factors, output, unit in found
        ]

    def explain(self, data: Any) -> list[Explanation]:
        """What each feature contributes to the margin of each example. The data is read twice.

        A weight contributes weight times value. Each of a pair of features gets half of what the pair contributes. Of a
        network the rescale rule of DeepLIFT says what its inputs contribute.

        Raises:
            InputError: As for `decision_function`.
        """
        outputs, bases, offsets, keys, values, names, warning = self._native.explain(self._read(data))
        _warn(warning)
        explained = []
        for i, (output, base) in enumerate(zip(outputs.tolist(), bases.tolist())):
            own = slice(offsets[i], offsets[i + 1])
            contributions: dict[str, float] = {}
            for key, value in zip(keys[own].tolist(), values[own].tolist()):
                contributions[names[key]] = contributions.get(names[key], 0.0) + value
            margin = base + sum(contributions.values())
            of_class = output if self._native.predicts == "class" else None
            explained.append(Explanation(margin, base, contributions, of_class))
        return explained

    def to_onnx(self, path: PathLike) -> None:
        """Writes the model as a file of ONNX, as `gannet export` does: docs/models.md says its inputs and outputs.

        Raises:
            InputError: The model is too large for the format.
            OSError: The file cannot be written. One that was there stays.
        """
        content = self._native.onnx()
        replace(path, lambda file: file.write(content))

    def _score(self, data: Any, predicts: bool) -> NDArray[np.float32]:
        scores, warning = self._native.score(self._read(data), predicts)
        _warn(warning)
        return scores

    def _read(self, data: Any) -> _native.Dataset:
        """The data, with the columns of the model."""
        if is_table(data) and not isinstance(data, Dataset):
            return self._native.table(*arrow_of(data), type_name(data))
        if isinstance(data, np.ndarray):
            return _of_dense(data)
        dataset = data if isinstance(data, Dataset) else Dataset(data, labels=None)
        return dataset._native

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        # A pickle names the folder, which must be there when it is read.
        return load, (self._path,)

    def _facts(self) -> list[tuple[str, str]]:
        facts = [("loss", self.loss)]
        facts += [(name, value) for name, value in self.settings.items() if name != "loss"]
        facts += [("rows", f"{self.rows:,}"), ("trained on", self.format)]
        if self.ended is not None:
            facts.append(("ended early", self.ended))
        return facts

    def __repr__(self) -> str:
        facts = ", ".join(f"{name} {value}" for name, value in self._facts())
        return f"<gannet.Model {self.kind} in {self._path!r}: {facts}>"

    def _repr_html_(self) -> str:
        cells = [("model", self.kind), ("folder", self._path), *self._facts()]
        columns = self.columns
        if columns is not None:
            roles = zip(("label", "categorical", "numeric", "both"), columns)
            named = [(role, [names] if isinstance(names, str) else names) for role, names in roles]
            cells += [(role, ", ".join(names)) for role, names in named if names]
        rows = "".join(f"<tr><th>{html.escape(name)}</th><td>{html.escape(text)}</td></tr>" for name, text in cells)
        return f"<table>{rows}</table>"


def _warn(warning: Optional[str]) -> None:
    if warning is not None:
        warnings.warn(warning, stacklevel=4)


def _of_dense(array: NDArray[Any]) -> _native.Dataset:
    """The rows of a matrix. A feature of the value 0 is no feature, as in a sparse matrix."""
    if array.ndim != 2 or array.dtype.kind not in "biuf":
        raise InputError(f"data is an array {array.dtype} {array.shape}; numbers (n, features) are wanted")
    rows, columns = np.nonzero(array)
    indptr = np.searchsorted(rows, np.arange(len(array) + 1))
    return _native.Dataset.of_matrix(
        indptr.astype(np.uint64),
        columns.astype(np.uint64),
        array[rows, columns].astype(np.float32),
        np.full(len(array), np.nan, np.float32),
        np.empty(0, np.float32),
    )


def load(path: PathLike) -> Model:
    """Reads a model that `gannet train --out` wrote: of all `--model` but lda.

        model = gannet.load("model")
        model.predict_proba(frame)[:, 1]

    Args:
        path: The folder of the model.

    Raises:
        InputError: The folder has no such model, or its files are damaged.
        MachineError: A file cannot be read.
    """
    return Model(path)
