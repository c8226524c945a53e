# scikit-learn and scipy have no types.
# mypy: disable-error-code="import-untyped,misc"
"""What an estimator knows of frames: their columns and features, and how their values are normalized.

A frame's features have keys, and their weights are those of normalized values. So there is no `coef_` by column, but
`weights_` by feature. The features of a matrix are its columns.
"""

from __future__ import annotations

from typing import Any, Optional

import numpy as np

try:
    from sklearn.base import BaseEstimator, ClassifierMixin
    from sklearn.utils.validation import check_is_fitted, check_X_y, validate_data
except ImportError as missing:  # pragma: no cover
    raise ImportError(
        f"gannet.sklearn needs scikit-learn 1.6 or later ({missing}): pip install scikit-learn"
    ) from missing

from . import _native
from ._frames import FrameFeatures, is_frame, is_matrix, listed, look, names_of

_NAMES_SHOWN = 5


class FrameEstimator(BaseEstimator):
    """An estimator that takes frames and matrices."""

    # Whether the model has a vector for each field.
    _has_fields = False
    # The features of frames. None: the last fit learned a matrix.
    _frame: Optional[FrameFeatures] = None
    # The normalization of each problem. None: values of frames are learned as they are, or nothing is learned yet.
    _normal: Optional[list[_native.Normalization]] = None

    @property
    def coef_(self) -> Any:
        """The weights of the columns of a matrix, float64."""
        if "_coef_as_given" in self.__dict__:
            return self.__dict__["_coef_as_given"]
        if self._frame is not None:
            raise AttributeError(
                "coef_: this estimator learned a frame, whose features are not its columns: weights_ has their "
                "weights, and feature_keys_ their keys (gannet.keys)"
            )
        raise AttributeError(f"{type(self).__name__} has no coef_ before fit")

    @coef_.setter
    def coef_(self, coef: Any) -> None:
        self._coef_as_given = coef

    @property
    def feature_keys_(self) -> Any:
        """The keys of the features of frames, uint64 (features,): those of ``gannet.keys`` and ``gannet.Dataset``."""
        if self._frame is None or not self.__sklearn_is_fitted__():
            raise AttributeError("feature_keys_: no frame was learned; the features of a matrix are its columns")
        # An interrupted pass may know more features, whose weights it has not read.
        return self._frame.keys[: self.weights_.shape[-1]]

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "intercept_")

    def _read(self, X: Any, y: Any, reset: bool, **checks: Any) -> tuple[Any, Any]:
        """X and y, validated: a matrix, or the features of a frame as a sparse matrix."""
        if reset:
            self._frame = self._look(X)
        if self._frame is None:
            X, y = validate_data(self, X, y, accept_sparse="csr", dtype=np.float64, reset=reset, **checks)
            return X, y
        X, self._frame = self._frame.learn(self._checked_frame(X))
        X, y = check_X_y(X, y, accept_sparse="csr", dtype=np.float64, estimator=self, **checks)
        return X, y

    def _read_to_score(self, X: Any) -> Any:
        """X, validated, as ``_to_score`` has it."""
        check_is_fitted(self)
        if self._frame is None:
            return validate_data(self, X, accept_sparse="csr", dtype=np.float64, reset=False)
        return self._to_score(self._frame.known(self._checked_frame(X)))

    def _look(self, X: Any) -> Optional[FrameFeatures]:
        """The columns of a frame that is the first. None: it is a matrix."""
        categorical = listed("categorical_features", self.categorical_features)
        numeric = listed("numeric_features", self.numeric_features)
        is_named = self.categorical_features is not None or self.numeric_features is not None
        if not is_frame(X):
            if is_named:
                raise ValueError(
                    "categorical_features and numeric_features name columns of a frame, and X is a "
                    f"{type(X).__name__}: give a DataFrame, or leave them out"
                )
            return None
        if not is_named and is_matrix(X):
            return None
        names = names_of(X)
        features = FrameFeatures(list(map(str, names)), look(X, categorical, numeric), self._has_fields)
        # As scikit-learn has them: there are none unless all are strings.
        self.__dict__.pop("feature_names_in_", None)
        if all(isinstance(name, str) for name in names):
            self.feature_names_in_ = np.array(names, dtype=object)
        self.n_features_in_ = len(names)
        return features

    def _checked_frame(self, X: Any) -> Any:
        if is_frame(X):
            return X
        assert self._frame is not None
        names = self._frame.names
        more = f" and {len(names) - _NAMES_SHOWN} more" if len(names) > _NAMES_SHOWN else ""
        raise ValueError(
            f"this estimator learned a frame with the columns {', '.join(names[:_NAMES_SHOWN])}{more}, and X is a "
            f"{type(X).__name__}: give a frame with these columns"
        )

    def _width(self) -> int:
        """The number of features."""
        return int(self.n_features_in_) if self._frame is None else len(self._frame.keys)

    def _keys_of(self, features: Any) -> Any:
        """The keys of these features."""
        return features.astype(np.uint64) if self._frame is None else self._frame.keys[features]

    def _weights(self) -> Any:
        """The weights by which an example is scored."""
        return self.coef_ if self._frame is None else self.weights_

    def _set_weights(self, weights: Any, intercepts: Any) -> None:
        """Sets what was learned (problems, features) for those who look."""
        if self._frame is None:
            self.coef_, self.intercept_ = weights, intercepts
        else:
            self.weights_, self.intercept_ = weights, intercepts + self._starts(len(intercepts))

    def _starts(self, problems: int) -> Any:
        """Where the intercept of each problem started."""
        if self._normal is None:
            return np.zeros(problems)
        return np.array([normal.start for normal in self._normal], np.float64)

    def _to_score(self, X: Any) -> Any:
        """A matrix that was read with the features that have weights, and their values as they are learned."""
        if self._frame is None:
            return X
        width = self._weights().shape[-1]
        if X.shape[1] > width:
            X = X[:, :width]
        if self._normal is not None:
            X = X.copy()
            X.data = self._normal[0].values(self._frame.keys[X.indices], X.data.astype(np.float32)).astype(np.float64)
        return X

    def _new_normal(self, problems: int) -> Optional[list[_native.Normalization]]:
        """The normalization of a frame before it is known. Estimators without ``normalize`` always have one."""
        if self._frame is None or not getattr(self, "normalize", True):
            return None
        odds = isinstance(self, ClassifierMixin) and bool(self.fit_intercept)
        return [_native.Normalization(odds) for _ in range(problems)]

    def _examples(self, X: Any, labels: Any, importances: Optional[Any]) -> _native.Examples:
        """A matrix in rows, as the native module takes it."""
        places = self._field_places()
        return {
            "indptr": X.indptr,
            "indices": X.indices if self._frame is None else self._frame.keys[X.indices],
            "data": X.data,
            "labels": labels,
            "importances": np.empty(0, np.float32) if importances is None else importances.astype(np.float32),
            "has_columns": self._frame is not None,
            "fields": np.empty(0, np.uint64) if places is None else places[X.indices],
        }

    def _field_places(self) -> Optional[Any]:
        """The place of the field of each feature. None: the model needs none."""
        return None
