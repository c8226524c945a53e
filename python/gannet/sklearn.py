# scikit-learn and scipy have no types.
# mypy: disable-error-code="import-untyped,misc"
"""Estimators for scikit-learn that learn as ``gannet train`` does.

``FTRLClassifier`` learns logistic regression with FTRL-Proximal, one example at a time, in this process. It takes dense
and sparse matrices, sample weights and class weights, and learns on with ``partial_fit``.
"""

from __future__ import annotations

from typing import Any, Optional

import numpy as np

try:
    from scipy import sparse
    from sklearn.base import BaseEstimator, ClassifierMixin
    from sklearn.utils import compute_class_weight
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import (
        _check_sample_weight,
        check_is_fitted,
        validate_data,
    )
except ImportError as missing:  # pragma: no cover
    raise ImportError(
        f"gannet.sklearn needs scikit-learn 1.6 or later ({missing}): pip install scikit-learn"
    ) from missing

from gannet._native import FtrlTrainer

__all__ = ["FTRLClassifier"]

# The key of the intercept, as in data files.
_INTERCEPT = np.array([2**64 - 1], np.uint64)


class FTRLClassifier(ClassifierMixin, BaseEstimator):
    """Logistic regression with FTRL-Proximal (McMahan et al., KDD 2013, algorithm 1).

    It learns the examples one after the other, in their order, ``epochs`` times. A problem with more than two classes
    becomes one problem for each class against all others.

    Parameters
    ----------
    alpha, beta : float
        The learning rate of a weight is ``alpha / (beta + sqrt(sum of its squared gradients))``.
    l1, l2 : float
        Regularization. With ``l1`` weights of rare features are exactly 0.
    epochs : int
        Passes over the examples of ``fit``. ``partial_fit`` makes one.
    batch_size : int
        Examples that are read at once. It does not change the result.
    fit_intercept : bool
        Whether the model has an intercept.
    class_weight : dict, "balanced" or None
        Weights of classes, as in scikit-learn.
    random_state : int, RandomState or None
        Not None: ``fit`` shuffles the examples before each pass.
    warm_start : bool
        Whether ``fit`` goes on with the weights of the last ``fit``.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
    coef_ : ndarray of shape (1, n_features) or (n_classes, n_features), float64
    intercept_ : ndarray of shape (1,) or (n_classes,), float64
    n_features_in_ : int
    n_iter_ : int
        Passes of the last ``fit``.
    """

    def __init__(
        self,
        alpha: float = 0.1,
        beta: float = 1.0,
        l1: float = 0.0,
        l2: float = 0.0,
        *,
        epochs: int = 1,
        batch_size: int = 256,
        fit_intercept: bool = True,
        class_weight: Any = None,
        random_state: Any = None,
        warm_start: bool = False,
    ) -> None:
        self.alpha = alpha
        self.beta = beta
        self.l1 = l1
        self.l2 = l2
        self.epochs = epochs
        self.batch_size = batch_size
        self.fit_intercept = fit_intercept
        self.class_weight = class_weight
        self.random_state = random_state
        self.warm_start = warm_start

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> "FTRLClassifier":
        """Learns the examples ``X`` of shape (n, n_features), dense or sparse, with classes ``y`` of shape (n,)."""
        X, y = validate_data(
            self, X, y, accept_sparse="csr", dtype=np.float64, reset=True
        )
        check_classification_targets(y)
        classes = np.unique(y)
        if len(classes) < 2:
            raise ValueError(
                f"the examples have one class, {classes[0]!r}; this classifier needs samples of at least 2 classes"
            )
        goes_on = self.warm_start and hasattr(self, "_trainers")
        if goes_on and not np.array_equal(classes, self.classes_):
            raise ValueError(
                f"warm_start: the last fit had the classes {self.classes_}, and this one has {classes}"
            )
        if not goes_on:
            self._begin(classes)
        self._learn(X, y, sample_weight, self.epochs)
        self.n_iter_ = self.epochs
        return self

    def partial_fit(
        self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None
    ) -> "FTRLClassifier":
        """Learns more examples, once. The first call names all ``classes``."""
        first = not hasattr(self, "_trainers")
        if first and classes is None:
            raise ValueError(
                "classes must be passed on the first call to partial_fit"
            )
        X, y = validate_data(
            self, X, y, accept_sparse="csr", dtype=np.float64, reset=first
        )
        check_classification_targets(y)
        if first:
            self._begin(np.unique(classes))
        elif classes is not None and not np.array_equal(
            np.unique(classes), self.classes_
        ):
            raise ValueError(
                f"classes is {classes}, and the first call to partial_fit had {self.classes_}"
            )
        unknown = np.setdiff1d(y, self.classes_)
        if unknown.size:
            raise ValueError(
                f"y has {unknown}, which the classes {self.classes_} do not have"
            )
        self._learn(X, y, sample_weight, 1)
        self.n_iter_ = 1
        return self

    def decision_function(self, X: Any) -> Any:
        """Margins, float64, of shape (n,) for two classes, else (n, n_classes). Above 0 means the class."""
        check_is_fitted(self)
        X = validate_data(
            self, X, accept_sparse="csr", dtype=np.float64, reset=False
        )
        scores = np.asarray(X @ self.coef_.T + self.intercept_)
        return scores.ravel() if scores.shape[1] == 1 else scores

    def predict(self, X: Any) -> Any:
        """The class of each example, of shape (n,)."""
        scores = self.decision_function(X)
        if scores.ndim == 1:
            return self.classes_[(scores > 0).astype(np.intp)]
        return self.classes_[scores.argmax(axis=1)]

    def predict_proba(self, X: Any) -> Any:
        """The probability of each class, float64 of shape (n, n_classes)."""
        scores = self.decision_function(X)
        chance = 0.5 * (1.0 + np.tanh(0.5 * scores))
        if scores.ndim == 1:
            return np.column_stack([1.0 - chance, chance])
        total = chance.sum(axis=1, keepdims=True)
        # No class at all: they are equally likely.
        chance = np.where(total > 0, chance, 1.0)
        return chance / chance.sum(axis=1, keepdims=True)

    def predict_log_proba(self, X: Any) -> Any:
        """The logarithms of ``predict_proba``."""
        with np.errstate(divide="ignore"):
            return np.log(self.predict_proba(X))

    def _begin(self, classes: Any) -> None:
        if self.alpha <= 0 or self.beta < 0 or self.l1 < 0 or self.l2 < 0:
            raise ValueError(
                f"alpha={self.alpha}, beta={self.beta}, l1={self.l1}, l2={self.l2}: alpha must be above 0, the "
                "others 0 or more"
            )
        self.classes_ = classes
        problems = 1 if len(classes) == 2 else len(classes)
        rule = (self.alpha, self.beta, self.l1, self.l2)
        self._trainers = [FtrlTrainer(*rule) for _ in range(problems)]

    def _learn(self, X: Any, y: Any, sample_weight: Any, epochs: int) -> None:
        weights = self._importances(X, y, sample_weight)
        X = sparse.csr_matrix(X)
        orders = [None] if self.random_state is None else self._orders(X.shape[0], epochs)
        for order in orders:
            rows = X if order is None else X[order]
            labels = y if order is None else y[order]
            of_rows = weights if order is None or weights is None else weights[order]
            self._pass(rows, labels, of_rows, epochs if order is None else 1)
        self._publish()

    def _orders(self, count: int, epochs: int) -> Any:
        from sklearn.utils import check_random_state

        random = check_random_state(self.random_state)
        return [random.permutation(count) for _ in range(epochs)]

    def _importances(self, X: Any, y: Any, sample_weight: Any) -> Optional[Any]:
        if sample_weight is None and self.class_weight is None:
            return None
        weights = _check_sample_weight(sample_weight, X, dtype=np.float64, copy=True)
        if np.any(weights < 0):
            raise ValueError("sample_weight has a negative number; 0 or more is wanted")
        if self.class_weight is not None:
            of_class = compute_class_weight(
                self.class_weight, classes=self.classes_, y=y
            )
            weights *= of_class[np.searchsorted(self.classes_, y)]
        return weights

    def _pass(self, X: Any, y: Any, weights: Optional[Any], epochs: int) -> None:
        indptr = X.indptr.astype(np.uint64)
        keys = X.indices.astype(np.uint64)
        values = X.data.astype(np.float32)
        importances = (
            np.empty(0, np.float32) if weights is None else weights.astype(np.float32)
        )
        positive = self.classes_[1:] if len(self.classes_) == 2 else self.classes_
        for trainer, label in zip(self._trainers, positive):
            trainer.train(
                indptr,
                keys,
                values,
                (y == label).astype(np.float32),
                importances,
                epochs=epochs,
                batch=self.batch_size,
                intercept=self.fit_intercept,
            )

    def _publish(self) -> None:
        features = np.arange(self.n_features_in_, dtype=np.uint64)
        self.coef_ = np.array(
            [trainer.weights(features) for trainer in self._trainers], np.float64
        )
        self.intercept_ = np.array(
            [trainer.weights(_INTERCEPT)[0] for trainer in self._trainers], np.float64
        )

    def __getstate__(self) -> Any:
        state = dict(super().__getstate__())
        trainers = state.pop("_trainers", None)
        if trainers is not None:
            state["_rows"] = [trainer.rows() for trainer in trainers]
        return state

    def __setstate__(self, state: Any) -> None:
        state = dict(state)
        rows = state.pop("_rows", None)
        super().__setstate__(state)
        if rows is not None:
            rule = (self.alpha, self.beta, self.l1, self.l2)
            self._trainers = [FtrlTrainer(*rule) for _ in rows]
            for trainer, (keys, values) in zip(self._trainers, rows):
                trainer.restore(keys, values)
