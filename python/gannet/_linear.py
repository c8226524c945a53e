# scikit-learn has no types.
# mypy: disable-error-code="import-untyped,misc"
"""Linear regression."""

from __future__ import annotations

from typing import Any, Optional, TypeVar

import numpy as np

from . import _native
from ._estimators import Optimized, TableEstimator, checked_importances, learning

# After _estimators, which says what is missing without scikit-learn.
from sklearn.base import RegressorMixin


_Regressor = TypeVar("_Regressor", bound="TableRegressor")


class TableRegressor(RegressorMixin, TableEstimator):
    """An estimator of numbers with one table."""

    def fit(self: _Regressor, X: Any, y: Any, sample_weight: Any = None) -> _Regressor:
        """Learns the examples ``X``, a frame or a matrix (n, n_features), dense or sparse, with numbers ``y`` of shape
        (n,)."""
        return self._fit_numbers(X, y, sample_weight, None, not (self.warm_start and hasattr(self, "intercept_")))

    def partial_fit(self: _Regressor, X: Any, y: Any, sample_weight: Any = None) -> _Regressor:
        """Learns more examples, once."""
        return self._fit_numbers(X, y, sample_weight, 1, not self._has_begun())

    def predict(self, X: Any) -> Any:
        """The prediction for each example, float64 of shape (n,)."""
        return self._predictions(self._read_to_score(X))

    def _predictions(self, X: Any) -> Any:
        return np.asarray(X @ self._weights() + self.intercept_[0])

    def _set_weights(self, weights: Any, intercepts: Any) -> None:
        super()._set_weights(weights[0], intercepts)

    def _fit_numbers(
        self: _Regressor, X: Any, y: Any, sample_weight: Any, epochs: Optional[int], anew: bool
    ) -> _Regressor:
        """``epochs``: ``None`` for those of ``fit``, which may end early."""
        with self._as_before_if_refused():
            X, y = self._read(X, y, anew, y_numeric=True)
            importances = None if sample_weight is None else checked_importances(X, sample_weight)
            if anew:
                self._begin(1)
            else:
                self._check_params()
            target = y.astype(np.float32)
            if epochs is None:
                self.n_iter_ = self._learn_passes(X, y, [target], importances)
            else:
                self._learn(X, [target], importances, epochs)
                self.n_iter_ = epochs
        return self


class LinearRegressor(Optimized, TableRegressor):
    """Linear regression by least squares, one example after the other.

    The prediction is the intercept + the sum of ``w_i x_i``. It learns the examples in their order, ``epochs`` times.
    It has no solver "lbfgs": Gannet's L-BFGS is for log loss.

    Parameters
    ----------
    alpha, beta, l1, l2, optimizer, epochs, batch_size
        As for ``FMClassifier``.
    fit_intercept, warm_start, servers
        As for ``FTRLClassifier``.
    normalize : bool
        As for ``FTRLClassifier``.
    random_state : int, RandomState or None
        Not None: ``fit`` shuffles the examples before each pass.
    early_stopping, validation_fraction, n_iter_no_change, tol
        As for ``FTRLClassifier``. The score is R^2.
    categorical_features, numeric_features
        As for ``FTRLClassifier``.

    Attributes
    ----------
    coef_, weights_ : ndarray of shape (features,), float64
        Of a matrix, and of a frame, as for ``FTRLClassifier``. There is ``feature_keys_``, too.
    intercept_ : ndarray of shape (1,), float64
    n_features_in_, n_iter_ : int
    tables_ : list of str
        With ``servers``: the names of the tables.
    """

    _model = "linear"

    def __init__(
        self,
        alpha: float = 0.5,
        beta: float = 1.0,
        l1: float = 0.0,
        l2: float = 0.0,
        *,
        optimizer: str = "adagrad",
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

    def _learning(self) -> _native.Learning:
        return learning("linear", self._rule(), l2=self.l2)
