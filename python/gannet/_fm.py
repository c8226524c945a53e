# scikit-learn has no types.
# mypy: disable-error-code="import-untyped,misc"
"""Factorization machines, for classes and for numbers."""

from __future__ import annotations

import numbers
from typing import Any

import numpy as np

from . import _native
from ._arguments import real, whole
from ._classifier import TableClassifier
from ._estimators import Optimized, TableEstimator, learning, put
from ._linear import TableRegressor

# After _estimators, which says what is missing without scikit-learn.
from sklearn.utils import check_random_state


class Machine(Optimized, TableEstimator):
    """What machines share: their settings, and the pairs of features in their scores."""

    # The model as the native module calls it.
    _machine: str

    def _learning(self) -> _native.Learning:
        factors = whole("factors", self.factors, 1, 512)
        if real("deviation", self.deviation) < 0:
            raise ValueError(f"deviation is {self.deviation}; 0 or more is wanted")
        return learning(
            self._machine, self._rule(), l2=self.l2, factors=factors, deviation=self.deviation, seed=self._seed()
        )

    def _seed(self) -> int:
        if self.random_state is None:
            return 1
        if isinstance(self.random_state, numbers.Integral):
            # As scikit-learn has it.
            return whole("random_state", self.random_state, 0, 2**32 - 1)
        return int(check_random_state(self.random_state).randint(2**31))

    def _take(self, features: Any, weights: list[Any], intercepts: list[Any]) -> None:
        shape = (len(weights), self._width(), self.factors)
        new = np.array([rows[:, 1:] for rows in weights], np.float64)
        self._factors = put(getattr(self, "_factors", None), features, new, shape)
        super()._take(features, weights, intercepts)

    def _as_given(self, coef: Any, free: Any) -> tuple[Any, Any]:
        coef, free = super()._as_given(coef, free)
        factors = self._factors
        if self._sizes is not None:
            coef, free, factors = self._sizes.factors_as_given(coef, free, factors)
        self._set_factors(factors)
        return coef, free

    def _set_factors(self, factors: Any) -> None:
        self.factors_ = factors


def pairs_of(X: Any, factors: Any) -> Any:
    """The sum over pairs of features of ``(v_i . v_j) x_i x_j`` for each example."""
    squared = X.multiply(X) if hasattr(X, "multiply") else X * X
    sums = np.asarray(X @ factors)
    alone = np.asarray(squared @ (factors * factors).sum(axis=1))
    return 0.5 * ((sums * sums).sum(axis=1) - alone)


def with_pairs(scores: Any, X: Any, factors: Any) -> Any:
    """Scores (n, problems) with the pairs of each problem."""
    for problem, of_problem in enumerate(factors):
        scores[:, problem] += pairs_of(X, of_problem)
    return scores


class FMClassifier(Machine, TableClassifier):
    """A factorization machine (Rendle, 2010) for classes: logistic regression that also learns pairs of features.

    The margin is the intercept + the sum of ``w_i x_i`` + the sum over pairs of features of ``(v_i . v_j) x_i x_j``. It
    learns the examples one after the other, in their order, ``epochs`` times. A problem with more than two classes
    becomes one problem for each class against all others.

    Parameters
    ----------
    alpha, beta : float
        The learning rate of a weight. With "adagrad" it is ``alpha / sqrt(beta + sum of its squared gradients)``. With
        "ftrl" it is ``alpha / (beta + sqrt(that sum))``, and with "sgd" ``alpha``.
    l1, l2 : float
        Regularization of weights and factors. ``l1`` is for "ftrl" alone.
    optimizer : {"adagrad", "ftrl", "sgd"}
        The rule by which weights and factors learn.
    factors : int
        Factors of a feature, at most 512.
    deviation : float
        Standard deviation of the initial factors. Initial weights are 0.
    epochs : int
        Passes over the examples of ``fit``. ``partial_fit`` makes one.
    batch_size : int
        Examples whose rows are pulled and pushed at once. It changes the last digits of the result.
    fit_intercept, class_weight, warm_start, servers
        As for ``FTRLClassifier``. Rows depend on ``optimizer``, ``factors`` and ``deviation``, too.
    normalize : bool
        As for ``FTRLClassifier``.
    random_state : int, RandomState or None
        None: the initial factors are those of seed 1, and the examples keep their order. An int is the seed. Not None:
        ``fit`` shuffles the examples before each pass.
    early_stopping, validation_fraction, n_iter_no_change, tol, categorical_features, numeric_features
        As for ``FTRLClassifier``.

    Attributes
    ----------
    classes_, coef_, weights_, feature_keys_, intercept_, n_features_in_, n_iter_
        As for ``FTRLClassifier``.
    factors_ : ndarray of shape (1, features, factors) or (n_classes, features, factors), float64
        The features of a matrix are its columns.
    tables_ : list of str
        With ``servers``: the names of the tables.
    """

    _model = "fm"
    _machine = "fm"

    def __init__(
        self,
        alpha: float = 0.05,
        beta: float = 1.0,
        l1: float = 0.0,
        l2: float = 0.0,
        *,
        optimizer: str = "adagrad",
        factors: int = 8,
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

    def _scores(self, X: Any) -> Any:
        return with_pairs(super()._scores(X), X, self.factors_)


class FMRegressor(Machine, TableRegressor):
    """A factorization machine (Rendle, 2010) for numbers, by least squares.

    The prediction is the intercept + the sum of ``w_i x_i`` + the sum over pairs of features of ``(v_i . v_j) x_i x_j``.
    It learns the examples one after the other, in their order, ``epochs`` times.

    Parameters
    ----------
    alpha, beta, l1, l2, optimizer, factors, deviation, epochs, batch_size, random_state
        As for ``FMClassifier``.
    fit_intercept, normalize, warm_start, servers
        As for ``FTRLClassifier``.
    early_stopping, validation_fraction, n_iter_no_change, tol
        As for ``FTRLClassifier``. The score is R^2.
    categorical_features, numeric_features
        As for ``FTRLClassifier``.

    Attributes
    ----------
    coef_, weights_ : ndarray of shape (features,), float64
        Of a matrix, and of a frame, as for ``FTRLClassifier``. There is ``feature_keys_``, too.
    factors_ : ndarray of shape (features, factors), float64
    intercept_ : ndarray of shape (1,), float64
    n_features_in_, n_iter_ : int
    tables_ : list of str
        With ``servers``: the names of the tables.
    """

    _model = "fm"
    _machine = "fm-numbers"

    def __init__(
        self,
        alpha: float = 0.05,
        beta: float = 1.0,
        l1: float = 0.0,
        l2: float = 0.0,
        *,
        optimizer: str = "adagrad",
        factors: int = 8,
        deviation: float = 0.01,
        epochs: int = 1,
        batch_size: int = 256,
        fit_intercept: bool = True,
        normalize: bool = True,
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
        self.deviation = deviation
        self.epochs = epochs
        self.batch_size = batch_size
        self.fit_intercept = fit_intercept
        self.normalize = normalize
        self.random_state = random_state
        self.warm_start = warm_start
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.tol = tol
        self.servers = servers
        self.categorical_features = categorical_features
        self.numeric_features = numeric_features

    def _set_factors(self, factors: Any) -> None:
        super()._set_factors(factors[0])

    def _predictions(self, X: Any) -> Any:
        return super()._predictions(X) + pairs_of(X, self.factors_)
