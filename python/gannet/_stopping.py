# scikit-learn has no types.
# mypy: disable-error-code="import-untyped,misc"
"""The passes of ``fit``, and their early end: a share of the examples is held out, and scores each pass."""

from __future__ import annotations

import copy
from typing import Any, Optional

import numpy as np

from ._arguments import real, whole
from ._frame_estimator import FrameEstimator

# After _frame_estimator, which says what is missing without scikit-learn.
from sklearn.base import ClassifierMixin
from sklearn.metrics import accuracy_score, r2_score
from sklearn.model_selection import train_test_split
from sklearn.utils import check_random_state

# What a pass sets, besides the rows.
LEARNED = ("_coef", "_factors", "_layers", "_coef_as_given", "weights_", "intercept_", "factors_", "layers_")


class EarlyStopping(FrameEstimator):
    """An estimator whose ``fit`` may end before its last pass."""

    _trainers: Any

    def _learn_passes(self, X: Any, y: Any, targets: list[Any], importances: Optional[Any]) -> int:
        """Makes the passes of ``fit``: all ``epochs``, or with ``early_stopping`` until the score of the examples that
        are held out gets no better. Returns their number."""
        if not self.early_stopping:
            self._learn(X, targets, importances, self.epochs)
            return int(self.epochs)
        patience = whole("n_iter_no_change", self.n_iter_no_change, 1, 2**32 - 1)
        if not 0 < real("validation_fraction", self.validation_fraction) < 1:
            raise ValueError(f"validation_fraction is {self.validation_fraction}; a number between 0 and 1 is wanted")
        if real("tol", self.tol) < 0:
            raise ValueError(f"tol is {self.tol}; 0 or more is wanted")
        trained, held_out = self._split(X, y)
        mine = [target[trained] for target in targets]
        weights, held_weights = (
            (None, None) if importances is None else (importances[trained], importances[held_out])
        )
        best, best_rows, since, passes = -np.inf, None, 0, 0
        while passes < self.epochs and since < patience:
            self._learn(X[trained], mine, weights, 1)
            passes += 1
            score = self._held_out_score(X[held_out], y[held_out], held_weights)
            since = 0 if score > best + self.tol else since + 1
            if score > best:
                best, best_rows = score, ([trainer.rows() for trainer in self._trainers], self._learned())
        self.best_validation_score_ = float(best)
        if since and best_rows is not None:
            self._return_to(*best_rows)
        return passes

    def _split(self, X: Any, y: Any) -> tuple[Any, Any]:
        """The examples to learn, in their order, and those that are held out."""
        chosen = np.random.RandomState(0) if self.random_state is None else check_random_state(self.random_state)
        stratify = y if isinstance(self, ClassifierMixin) else None
        trained, held_out = train_test_split(
            np.arange(X.shape[0]), test_size=self.validation_fraction, random_state=chosen, stratify=stratify
        )
        trained.sort()
        return trained, held_out

    def _held_out_score(self, X: Any, y: Any, weights: Optional[Any]) -> float:
        """What ``score`` says of a matrix that was read."""
        metric = accuracy_score if isinstance(self, ClassifierMixin) else r2_score
        return float(metric(y, self._predictions(self._to_score(X)), sample_weight=weights))

    def _predictions(self, X: Any) -> Any:
        """What ``predict`` says of a matrix that is ready to be scored."""
        raise NotImplementedError

    def _learned(self) -> dict[str, Any]:
        """Copies of what a pass has set."""
        return {name: copy.deepcopy(self.__dict__[name]) for name in LEARNED if name in self.__dict__}

    def _return_to(self, rows: list[Any], learned: dict[str, Any]) -> None:
        """Goes back to the rows and weights of an earlier pass."""
        self._drop_tables()
        self._rows = rows
        self.__dict__.update(learned)
        self._go_on()

    def _learn(self, X: Any, targets: list[Any], importances: Optional[Any], epochs: int) -> None:
        """Learns each problem's targets (float32) of the examples, ``epochs`` times."""
        raise NotImplementedError

    def _drop_tables(self) -> None:
        raise NotImplementedError

    def _go_on(self) -> None:
        raise NotImplementedError
