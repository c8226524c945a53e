# scikit-learn has no types.
# mypy: disable-error-code="import-untyped,misc"
"""Classifiers with tables: one for two classes, else one for each class."""

from __future__ import annotations

from typing import Any, Optional, TypeVar

import numpy as np

from ._estimators import TableEstimator, checked_importances

# After _estimators, which says what is missing without scikit-learn.
from sklearn.base import ClassifierMixin
from sklearn.utils import compute_class_weight
from sklearn.utils.multiclass import check_classification_targets

_Classifier = TypeVar("_Classifier", bound="TableClassifier")


class TableClassifier(ClassifierMixin, TableEstimator):
    """A classifier: one problem for two classes, else one for each class against all others."""

    def fit(self: _Classifier, X: Any, y: Any, sample_weight: Any = None) -> _Classifier:
        """Learns the examples ``X``, a frame or a matrix (n, n_features), dense or sparse, with classes ``y`` of shape
        (n,)."""
        goes_on = self.warm_start and hasattr(self, "intercept_")
        with self._as_before_if_refused():
            X, y = self._validated(X, y, not goes_on)
            classes = np.unique(y)
            if len(classes) < 2:
                raise ValueError(
                    f"the examples have one class, {classes[0]!r}; this classifier needs samples of at least 2 classes"
                )
            if goes_on and not np.array_equal(classes, self.classes_):
                raise ValueError(
                    f"warm_start: the last fit had the classes {self.classes_}, and this one has {classes}"
                )
            self._fit_classes(X, y, classes, self._importances(X, y, classes, sample_weight), goes_on)
        return self

    def _fit_classes(self, X: Any, y: Any, classes: Any, importances: Any, goes_on: bool) -> None:
        if goes_on:
            self._check_rows("warm_start")
            self._check_params()
        else:
            self._begin(1 if len(classes) == 2 else len(classes))
            self.classes_ = classes
        self.n_iter_ = self._learn_passes(X, y, targets_of(y, classes), importances)

    def _check_rows(self, what: str) -> None:
        """Refuses to go on without rows, which only weights of L-BFGS are."""
        if not self._has_begun():
            raise ValueError(
                f"{what}: the last fit was that of solver='lbfgs', which leaves weights alone, and solver='ftrl' needs "
                "rows of its own to go on: begin anew with fit and warm_start=False"
            )

    def partial_fit(
        self: _Classifier, X: Any, y: Any, classes: Any = None, sample_weight: Any = None
    ) -> _Classifier:
        """Learns more examples, once. The first call names all ``classes``."""
        first = not self._has_begun()
        if first and hasattr(self, "intercept_"):
            self._check_rows("partial_fit")
        if first and classes is None:
            raise ValueError("classes must be passed on the first call to partial_fit")
        with self._as_before_if_refused():
            X, y = self._validated(X, y, first)
            named = self.classes_ if classes is None else np.unique(classes)
            if len(named) < 2:
                raise ValueError(f"classes is {classes}; at least 2 classes are wanted")
            if not first and not np.array_equal(named, self.classes_):
                raise ValueError(f"classes is {classes}, and the first call to partial_fit had {self.classes_}")
            unknown = np.setdiff1d(y, named)
            if unknown.size:
                raise ValueError(f"y has {unknown}, which the classes {named} do not have")
            importances = self._importances(X, y, named, sample_weight)
            if first:
                self._begin(1 if len(named) == 2 else len(named))
                self.classes_ = named
            else:
                self._check_params()
            self._learn(X, targets_of(y, named), importances, 1)
        self.n_iter_ = 1
        return self

    def _validated(self, X: Any, y: Any, reset: bool) -> Any:
        X, y = self._read(X, y, reset)
        check_classification_targets(y)
        return X, y

    def _importances(self, X: Any, y: Any, classes: Any, sample_weight: Any) -> Optional[Any]:
        if sample_weight is None and self.class_weight is None:
            return None
        weights = checked_importances(X, sample_weight)
        if self.class_weight is not None:
            at = np.searchsorted(classes, y)
            of_class = compute_class_weight(self.class_weight, classes=classes, y=y)
            if isinstance(self.class_weight, str):
                # "balanced". scikit-learn before 1.7 does not count sample weights there.
                counts = np.bincount(at, weights, len(classes))
                if (counts == 0).any():
                    without = classes[counts == 0][0]
                    raise ValueError(f"class_weight='balanced': all examples of class {without!r} have sample_weight 0")
                of_class = counts.sum() / (len(classes) * counts)
            weights *= of_class[at]
        return weights

    def decision_function(self, X: Any) -> Any:
        """Margins, float64, of shape (n,) for two classes, else (n, n_classes). Above 0 means the class."""
        scores = self._scores(self._read_to_score(X))
        return scores.ravel() if scores.shape[1] == 1 else scores

    def _scores(self, X: Any) -> Any:
        return np.asarray(X @ self._weights().T + self.intercept_)

    def predict(self, X: Any) -> Any:
        """The class of each example, of shape (n,)."""
        return self._classes_of(self.decision_function(X))

    def _predictions(self, X: Any) -> Any:
        scores = self._scores(X)
        return self._classes_of(scores.ravel() if scores.shape[1] == 1 else scores)

    def _classes_of(self, scores: Any) -> Any:
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


def targets_of(y: Any, classes: Any) -> list[Any]:
    """The labels of each problem, 1 and 0: of two classes the second is 1."""
    positive = classes[1:] if len(classes) == 2 else classes
    return [(y == label).astype(np.float32) for label in positive]
