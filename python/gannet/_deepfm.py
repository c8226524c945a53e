# scikit-learn has no types.
# mypy: disable-error-code="import-untyped,misc"
"""DeepFM: a factorization machine beside a network."""

from __future__ import annotations

from typing import Any, Optional, Sequence

import numpy as np

from . import _native
from ._arguments import whole
from ._classifier import TableClassifier
from ._fm import Machine, with_pairs

# After _fm, which says what is missing without scikit-learn.
from scipy import sparse

# Rows whose network is computed at once.
_ROWS = 1 << 14


class DeepFMClassifier(Machine, TableClassifier):
    """DeepFM (Guo et al., 2017) for classes: a factorization machine beside a network that reads the same factors.

    The margin is that of ``FMClassifier`` + the output of a network of rectified units. Of a frame the network reads a
    vector for each column: the sum of ``v_i x_i`` over its features. Of a matrix it reads the sum over all features. It
    learns the examples one after the other, in their order, ``epochs`` times. A problem with more than two classes
    becomes one problem for each class against all others.

    Parameters
    ----------
    alpha, beta, l1, l2, optimizer
        As for ``FMClassifier``. The weights of the network learn in the same way.
    factors : int
        Factors of a feature, at most 512. More columns than 4,095 / ``factors`` share vectors.
    hidden : sequence of int
        Units of each hidden layer, each from 1 to 4,095.
    deviation : float
        Standard deviation of the initial factors. The network's weights begin as He et al. (2015) propose.
    epochs, batch_size, random_state, fit_intercept, normalize, class_weight, warm_start, servers
        As for ``FMClassifier``. Rows depend on ``hidden``, too.
    early_stopping, validation_fraction, n_iter_no_change, tol, categorical_features, numeric_features
        As for ``FTRLClassifier``.

    Attributes
    ----------
    classes_, coef_, factors_, intercept_, weights_, feature_keys_, n_features_in_, n_iter_
        As for ``FMClassifier``.
    layers_ : list of list of ndarray of shape (units, inputs + 1), float64
        The layers of each problem. The last column has the biases.
    tables_ : list of str
        With ``servers``: the names of the tables, one for the features and one for each layer.
    """

    _model = "deepfm"
    _machine = "deepfm"
    _has_fields = True
    _layers: list[list[Any]]

    def __init__(
        self,
        alpha: float = 0.05,
        beta: float = 1.0,
        l1: float = 0.0,
        l2: float = 0.0,
        *,
        optimizer: str = "adagrad",
        factors: int = 8,
        hidden: Sequence[int] = (32, 16),
        deviation: float = 0.01,
        epochs: int = 1,
        batch_size: int = 256,
        fit_intercept: bool = True,
        normalize: bool = True,
        class_weight: Any = None,
        random_state: Any = None,
        warm_start: bool = False,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        n_iter_no_change: int = 5,
        tol: float = 1e-4,
        servers: Any = None,
        categorical_features: Any = None,
        numeric_features: Any = None,
    ) -> None:
        self.alpha = alpha
        self.beta = beta
        self.l1 = l1
        self.l2 = l2
        self.optimizer = optimizer
        self.factors = factors
        self.hidden = hidden
        self.deviation = deviation
        self.epochs = epochs
        self.batch_size = batch_size
        self.fit_intercept = fit_intercept
        self.normalize = normalize
        self.class_weight = class_weight
        self.random_state = random_state
        self.warm_start = warm_start
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.tol = tol
        self.servers = servers
        self.categorical_features = categorical_features
        self.numeric_features = numeric_features

    def _learning(self) -> _native.Learning:
        asked = super()._learning()
        asked["hidden"] = self._hidden()
        asked["fields"] = 1 if self._frame is None else self._fields(self.factors)[1]
        return asked

    def _hidden(self) -> list[int]:
        units = self.hidden
        if isinstance(units, (str, bytes)) or not hasattr(units, "__iter__") or not len(list(units)):
            raise ValueError(f"hidden is {units!r}; the units of each hidden layer are wanted, as (32, 16)")
        return [whole("hidden", number, 1, 4095) for number in units]

    def _tables(self) -> list[str]:
        layers = len(self._hidden()) + 1
        return [self._model, *(f"{self._model}.{layer + 1}" for layer in range(layers))]

    def _fields(self, factors: int) -> tuple[Any, int]:
        """The place of each feature's field, and how many places there are."""
        assert self._frame is not None
        return self._frame.places(max(1, _native.FIELD_FACTORS_MAX // factors))

    def _field_places(self) -> Optional[Any]:
        return None if self._frame is None else self._fields(self.factors)[0]

    def _as_given(self, coef: Any, free: Any) -> tuple[Any, Any]:
        given = super()._as_given(coef, free)
        self.layers_ = [list(layers) for layers in self._layers]
        if self._sizes is not None:
            # The vectors of normalized values are those of values as they are, and one more that is always the same.
            always = np.einsum("pfk,f->pk", self.factors_, self._sizes.center)
            for layers, vector in zip(self.layers_, always):
                layers[0] = layers[0].copy()
                layers[0][:, -1] -= layers[0][:, :-1] @ vector
        return given

    def _scores(self, X: Any) -> Any:
        scores = with_pairs(super()._scores(X), X, self.factors_)
        places = None if self._frame is None else self._fields(self.factors_.shape[-1])
        for begin in range(0, scores.shape[0], _ROWS):
            rows = X[begin : begin + _ROWS]
            for problem, (factors, layers) in enumerate(zip(self.factors_, self.layers_)):
                scores[begin : begin + _ROWS, problem] += network(vectors(rows, factors, places), layers)
        return scores


def vectors(X: Any, factors: Any, places: Optional[tuple[Any, int]]) -> Any:
    """What the network reads: for each example the sums of ``v_i x_i`` of each place, one behind the other."""
    if places is None:
        return np.asarray(X @ factors)
    of_features, count = places
    rows = np.repeat(np.arange(X.shape[0]), np.diff(X.indptr))
    # A row for each place of each example.
    spread = rows * count + of_features[X.indices].astype(np.intp)
    matrix = sparse.csr_matrix((X.data, (spread, X.indices)), (X.shape[0] * count, X.shape[1]))
    return np.asarray(matrix @ factors).reshape(X.shape[0], -1)


def network(inputs: Any, layers: list[Any]) -> Any:
    """The output for each row of inputs."""
    for at, layer in enumerate(layers):
        inputs = inputs @ layer[:, :-1].T + layer[:, -1]
        if at + 1 < len(layers):
            inputs = np.maximum(inputs, 0)
    return inputs[:, 0]
