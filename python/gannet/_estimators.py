# scikit-learn and scipy have no types.
# mypy: disable-error-code="import-untyped,misc"
"""What the estimators of ``gannet.sklearn`` share: their tables, passes over the examples, weights, and pickles."""

from __future__ import annotations

import contextlib
import os
from typing import Any, Iterator, Optional, TypeVar

import numpy as np

try:
    from scipy import sparse
    from sklearn.base import BaseEstimator, ClassifierMixin
    from sklearn.metrics import accuracy_score, r2_score
    from sklearn.model_selection import train_test_split
    from sklearn.utils import check_random_state, compute_class_weight
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data
except ImportError as missing:  # pragma: no cover
    raise ImportError(
        f"gannet.sklearn needs scikit-learn 1.6 or later ({missing}): pip install scikit-learn"
    ) from missing

from . import _native
from ._arguments import real, whole
from ._progress import Bar
from ._serving import ServedTables, asked_of, draw_names, plain
from ._sizes import Sizes

# The key of the intercept, as in data files.
INTERCEPT = np.array([2**64 - 1], np.uint64)
NO_KEYS = np.empty(0, np.uint64)
# Parameters that rows depend on. Others may change between two calls.
_OF_ROWS = ("alpha", "beta", "l1", "l2", "optimizer", "factors", "deviation", "fit_intercept", "normalize")
_Classifier = TypeVar("_Classifier", bound="TableClassifier")


class TableEstimator(BaseEstimator):
    """An estimator with a table of weights for each of its problems. It learns one example after the other."""

    # The name of the model at the command, and of the table.
    _model: str
    coef_: Any
    intercept_: Any
    # None: values are learned as they are.
    _sizes: Optional[Sizes] = None

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    @property
    def tables_(self) -> list[str]:
        """The names of the tables on the servers, one for each problem. They are there as long as this estimator."""
        served = getattr(self, "_served", None)
        if served is None:
            raise AttributeError("this estimator has no tables on servers")
        return list(served.tables)

    def _learning(self) -> _native.Learning:
        """What the parameters ask for."""
        raise NotImplementedError

    def _take(self, features: Any, weights: list[Any], intercepts: list[Any]) -> None:
        """Takes the weights of these features over: an array (features, floats of a row) for each problem."""
        shape = (len(weights), self.n_features_in_)
        new = np.array([rows[:, 0] for rows in weights], np.float64)
        self._coef = put(getattr(self, "_coef", None), features, new, shape)
        self.coef_, self.intercept_ = self._coef, np.array([row[0] for row in intercepts], np.float64)
        if self._sizes is not None:
            self.coef_, self.intercept_ = self._sizes.weights_as_given(self.coef_, self.intercept_)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "coef_")

    def _has_begun(self) -> bool:
        return hasattr(self, "_trainers") or hasattr(self, "_rows")

    def _begin(self, problems: int) -> None:
        """Begins with new tables."""
        self._check_counts()
        learning, asked = self._learning(), asked_of(self.servers)
        self._forget()
        self._begun_with, self._problems = (learning, asked), problems
        self._begun_as = self._of_rows()
        self._sizes = Sizes(self.n_features_in_) if self.normalize else None
        self._open()

    def _of_rows(self) -> dict[str, Any]:
        """The parameters that rows depend on, and their values now."""
        return {name: value for name, value in self.get_params(deep=False).items() if name in _OF_ROWS}

    def _check_params(self) -> None:
        """Refuses to go on with rows that were begun with other parameters. It also checks the others."""
        self._check_counts()
        for name, value in self._of_rows().items():
            before = self._begun_as[name]
            if value != before:
                raise ValueError(
                    f"{name} is {value!r}, and was {before!r} when the rows were begun, which depend on it: set it "
                    "back to go on, or begin anew with fit and warm_start=False"
                )

    def _check_counts(self) -> None:
        whole("epochs", self.epochs, 1, 2**32 - 1)
        whole("batch_size", self.batch_size, 1, 2**32 - 1)

    @contextlib.contextmanager
    def _as_before_if_refused(self) -> Iterator[None]:
        """A call that fails before it forgets what was learned leaves the names and number of features as they were."""
        names = ("n_features_in_", "feature_names_in_")
        before = {name: self.__dict__[name] for name in names if name in self.__dict__}
        try:
            yield
        except BaseException:
            if hasattr(self, "coef_"):
                for name in names:
                    self.__dict__.pop(name, None)
                self.__dict__.update(before)
            raise

    def _open(self) -> None:
        learning, asked = self._begun_with
        self._pid = os.getpid()
        names = draw_names(self._problems)
        self._trainers = [_native.Trainer(learning, asked, name) for name in names]
        if asked is not None:
            self._served = ServedTables(asked, names, self._model)

    def _forget(self) -> None:
        """Forgets all that was learned, also on the servers."""
        self._drop_tables()
        for name in ("_rows", "_interrupted", "_sizes", "_coef", "_factors", "coef_", "intercept_", "factors_"):
            self.__dict__.pop(name, None)

    def _drop_tables(self) -> None:
        self.__dict__.pop("_trainers", None)
        served = self.__dict__.pop("_served", None)
        if served is not None:
            served.drop()

    def _go_on(self) -> None:
        """Makes the tables of a copy or a pickle, which has rows only. So does a fork: tables on servers belong to the
        process that made them."""
        if hasattr(self, "_trainers") and self._pid != os.getpid():
            self._rows = [trainer.rows() for trainer in self._trainers]
            del self._trainers
        if not hasattr(self, "_trainers"):
            try:
                self._open()
                for trainer, (keys, values) in zip(self._trainers, self._rows):
                    trainer.restore(keys, values)
            except BaseException:
                # Tables with some of the rows. The next call makes others.
                self._drop_tables()
                raise
            del self._rows

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
        chosen = np.random.RandomState(0) if self.random_state is None else check_random_state(self.random_state)
        stratify = y if isinstance(self, ClassifierMixin) else None
        trained, held_out = train_test_split(
            np.arange(X.shape[0]), test_size=self.validation_fraction, random_state=chosen, stratify=stratify
        )
        trained.sort()
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

    def _held_out_score(self, X: Any, y: Any, weights: Optional[Any]) -> float:
        """What ``score`` says of a matrix that was validated."""
        metric = accuracy_score if isinstance(self, ClassifierMixin) else r2_score
        return float(metric(y, self._predictions(X), sample_weight=weights))

    def _predictions(self, X: Any) -> Any:
        """What ``predict`` says of a matrix that was validated."""
        raise NotImplementedError

    def _learned(self) -> dict[str, Any]:
        """Copies of what a pass has set."""
        names = ("_coef", "_factors", "coef_", "intercept_", "factors_")
        return {name: np.copy(self.__dict__[name]) for name in names if name in self.__dict__}

    def _return_to(self, rows: list[Any], learned: dict[str, Any]) -> None:
        """Goes back to the rows and weights of an earlier pass."""
        self._drop_tables()
        self._rows = rows
        self.__dict__.update(learned)
        self._go_on()

    def _learn(self, X: Any, targets: list[Any], importances: Optional[Any], epochs: int) -> None:
        """Learns each problem's targets (float32) of the examples, ``epochs`` times."""
        # After Ctrl-C there are rows to go on with, also without weights.
        has_learned = hasattr(self, "coef_") or hasattr(self, "_interrupted")
        try:
            self._learn_all(X, targets, importances, epochs)
        except Exception:
            if not has_learned:
                self._forget()
            raise

    def _learn_all(self, X: Any, targets: list[Any], importances: Optional[Any], epochs: int) -> None:
        self._go_on()
        X = self._rows_of(X)
        wanted = self._features_to_take(X)
        # If Ctrl-C or an error ends this pass, the next one takes the weights of all features.
        self._interrupted = True
        is_shuffled = self.random_state is not None
        read: list[Any] = []
        left_out = 0
        with Bar(type(self).__name__, X.shape[0] * epochs * len(targets), "examples") as bar:
            for at, order in enumerate(self._orders(X.shape[0], epochs)):
                rows = X if order is None else X[order]
                last, passes = not is_shuffled or at + 1 == epochs, 1 if is_shuffled else epochs
                for trainer, target in zip(self._trainers, targets):
                    weights, spoiled = trainer.train(
                        examples_of(rows, *in_order(order, target, importances)),
                        np.concatenate([wanted, INTERCEPT]) if last else NO_KEYS,
                        epochs=passes,
                        batch=self.batch_size,
                        intercept=self.fit_intercept,
                        progress=bar.update,
                    )
                    bar.part(X.shape[0] * passes)
                    left_out += spoiled
                    if last:
                        read.append(weights)
        if left_out or not all(np.isfinite(weights).all() for weights in read):
            raise ValueError(
                f"floating-point overflow: {left_out} updates of weights had numbers that float32 cannot hold, and "
                "were left out; scale the features (StandardScaler or MinMaxScaler), or lower alpha"
            )
        self.__dict__.pop("_interrupted", None)
        self._take(wanted.astype(np.intp), [weights[:-1] for weights in read], [weights[-1] for weights in read])

    def _rows_of(self, X: Any) -> Any:
        """A matrix in rows, normalized. The examples of the first call say how large values are."""
        rows = rows_of(X)
        if self._sizes is None or not np.isfinite(single(rows.data)).all():
            # The native module names the value that is not finite.
            return rows
        self._sizes.look(rows, not sparse.issparse(X))
        return self._sizes.of(rows)

    def _features_to_take(self, X: Any) -> Any:
        """The features whose weights a pass over X may change, or all in the first pass."""
        if not hasattr(self, "coef_") or hasattr(self, "_interrupted"):
            return np.arange(self.n_features_in_, dtype=np.uint64)
        has = np.zeros(self.n_features_in_, bool)
        has[X.indices] = True
        return np.flatnonzero(has).astype(np.uint64)

    def _orders(self, count: int, epochs: int) -> Iterator[Optional[Any]]:
        """The order of the examples in each pass, or one ``None`` for all passes in the order of the examples."""
        if self.random_state is None:
            yield None
            return
        random = check_random_state(self.random_state)
        for _ in range(epochs):
            yield random.permutation(count)

    def _check_rates(self) -> None:
        for name in ("alpha", "beta", "l1", "l2"):
            real(name, getattr(self, name))
        if self.alpha <= 0 or self.beta < 0 or self.l1 < 0 or self.l2 < 0:
            raise ValueError(
                f"alpha={self.alpha}, beta={self.beta}, l1={self.l1}, l2={self.l2}: alpha must be above 0, the "
                "others 0 or more"
            )

    def __getstate__(self) -> Any:
        state = dict(super().__getstate__())
        state.pop("_served", None)
        trainers = state.pop("_trainers", None)
        if trainers is not None:
            state["_rows"] = [trainer.rows() for trainer in trainers]
        if "servers" in state:
            state["servers"] = plain(state["servers"])
        return state


class TableClassifier(ClassifierMixin, TableEstimator):
    """A classifier: one problem for two classes, else one for each class against all others."""

    def fit(self: _Classifier, X: Any, y: Any, sample_weight: Any = None) -> _Classifier:
        """Learns the examples ``X`` of shape (n, n_features), dense or sparse, with classes ``y`` of shape (n,)."""
        goes_on = self.warm_start and hasattr(self, "coef_")
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
        if first and hasattr(self, "coef_"):
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
        X, y = validate_data(self, X, y, accept_sparse="csr", dtype=np.float64, reset=reset)
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
        check_is_fitted(self)
        X = validate_data(
            self, X, accept_sparse="csr", dtype=np.float64, reset=False
        )
        scores = self._scores(X)
        return scores.ravel() if scores.shape[1] == 1 else scores

    def _scores(self, X: Any) -> Any:
        return np.asarray(X @ self.coef_.T + self.intercept_)

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


class Optimized(TableEstimator):
    """An estimator that learns with the optimizer of its choice."""

    def _rule(self) -> tuple[str, list[float]]:
        self._check_rates()
        rules = {
            "adagrad": [self.alpha, 1e-8, self.beta],
            "ftrl": [self.alpha, self.beta, self.l1, self.l2],
            "sgd": [self.alpha],
        }
        if self.optimizer not in rules:
            wanted = ", ".join(map(repr, rules))
            raise ValueError(f"optimizer is {self.optimizer!r}; one of {wanted} is wanted")
        if self.l1 > 0 and self.optimizer != "ftrl":
            raise ValueError(f"l1={self.l1}: optimizer={self.optimizer!r} has no l1; use optimizer='ftrl', or l1=0")
        return self.optimizer, rules[self.optimizer]


def checked_importances(X: Any, sample_weight: Any) -> Any:
    """The weights of the examples, float64."""
    weights = _check_sample_weight(sample_weight, X, dtype=np.float64, copy=True)
    if np.any(weights < 0):
        raise ValueError("sample_weight has a negative number; 0 or more is wanted")
    return weights


def targets_of(y: Any, classes: Any) -> list[Any]:
    """The labels of each problem, 1 and 0: of two classes the second is 1."""
    positive = classes[1:] if len(classes) == 2 else classes
    return [(y == label).astype(np.float32) for label in positive]


def in_order(order: Any, target: Any, importances: Any) -> tuple[Any, Any]:
    """Labels and importances in the order of a pass."""
    if order is None:
        return target, importances
    return target[order], None if importances is None else importances[order]


def rows_of(X: Any) -> Any:
    """A matrix in rows, without zeros if it was dense."""
    return sparse.csr_matrix(X)


def single(values: Any) -> Any:
    """The values as float32, infinite where they are too large for that."""
    with np.errstate(over="ignore"):
        return values.astype(np.float32)


def examples_of(X: Any, labels: Any, importances: Optional[Any]) -> _native.Examples:
    """A matrix in rows, as the native module takes it."""
    return {
        "indptr": X.indptr,
        "indices": X.indices,
        "data": X.data,
        "labels": labels,
        "importances": np.empty(0, np.float32) if importances is None else importances.astype(np.float32),
    }


def learning(
    model: str,
    rule: tuple[str, list[float]],
    *,
    l2: float = 0.0,
    factors: int = 0,
    deviation: float = 0.0,
    seed: int = 1,
) -> _native.Learning:
    return {"model": model, "rule": rule, "l2": l2, "factors": factors, "deviation": deviation, "seed": seed}


def put(old: Optional[Any], features: Any, new: Any, shape: tuple[int, ...]) -> Any:
    """The array with new values of some features (axis 1)."""
    array = np.zeros(shape) if old is None else old
    array[:, features] = new
    return array
