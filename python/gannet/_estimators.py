# scikit-learn and scipy have no types.
# mypy: disable-error-code="import-untyped,misc"
"""What the estimators of ``gannet.sklearn`` share: their tables, passes over the examples, weights, and pickles."""

from __future__ import annotations

import contextlib
import os
from typing import Any, Iterator, Optional, Sequence

import numpy as np

from . import _native
from ._arguments import real, whole
from ._progress import Bar
from ._serving import ServedTables, asked_of, draw_names, plain
from ._sizes import Sizes
from ._stopping import LEARNED, EarlyStopping

# After _stopping, which says what is missing without scikit-learn.
from scipy import sparse
from sklearn.utils import check_random_state
from sklearn.utils.validation import _check_sample_weight

# The key of the intercept, as in data files.
INTERCEPT = np.array([2**64 - 1], np.uint64)
NO_KEYS = np.empty(0, np.uint64)
# Parameters that rows depend on. Others may change between two calls.
_OF_ROWS = ("alpha", "beta", "l1", "l2", "optimizer", "factors", "deviation", "hidden", "fit_intercept", "normalize")


class TableEstimator(EarlyStopping):
    """An estimator with a table of weights for each of its problems. It learns one example after the other."""

    # The name of the model at the command, and of the table.
    _model: str
    intercept_: Any
    # How the values of a matrix are normalized. None: they are learned as they are.
    _sizes: Optional[Sizes] = None

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    @property
    def tables_(self) -> list[str]:
        """The names of the tables on the servers, of one problem after the other. They end with this estimator."""
        served = getattr(self, "_served", None)
        if served is None:
            raise AttributeError("this estimator has no tables on servers")
        return list(served.tables)

    def _learning(self) -> _native.Learning:
        """What the parameters ask for."""
        raise NotImplementedError

    def _take(self, features: Any, weights: list[Any], intercepts: list[Any]) -> None:
        """Takes the weights of these features over: an array (features, floats of a row) for each problem."""
        shape = (len(weights), self._width())
        new = np.array([rows[:, 0] for rows in weights], np.float64)
        self._coef = put(getattr(self, "_coef", None), features, new, shape)
        free = np.array([row[0] for row in intercepts], np.float64)
        self._set_weights(*self._as_given(self._coef, free))

    def _as_given(self, coef: Any, free: Any) -> tuple[Any, Any]:
        """Weights (problems, features) and intercepts of normalized values for the values of a matrix as they are."""
        return (coef, free) if self._sizes is None else self._sizes.weights_as_given(coef, free)

    def _has_begun(self) -> bool:
        return hasattr(self, "_trainers") or hasattr(self, "_rows")

    def _begin(self, problems: int) -> None:
        """Begins with new tables."""
        self._check_counts()
        learning, asked = self._learning(), asked_of(self.servers)
        self._forget()
        self._begun_with, self._problems = (learning, asked), problems
        self._begun_as = self._of_rows()
        self._sizes = Sizes(self.n_features_in_) if self.normalize and self._frame is None else None
        self._open()

    def _of_rows(self) -> dict[str, Any]:
        """The parameters that rows depend on, and their values now."""
        return {name: value for name, value in self.get_params(deep=False).items() if name in _OF_ROWS}

    def _check_params(self) -> None:
        """Refuses to go on with rows that were begun with other parameters. It also checks the others."""
        self._check_counts()
        for name, value in self._of_rows().items():
            before = self._begun_as[name]
            if not np.array_equal(value, before):
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
        names = ("n_features_in_", "feature_names_in_", "_frame")
        before = {name: self.__dict__[name] for name in names if name in self.__dict__}
        try:
            yield
        except BaseException:
            # An interrupted pass has rows of new features.
            if hasattr(self, "intercept_") and not hasattr(self, "_interrupted"):
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
            self._served = ServedTables(asked, names, self._tables())

    def _tables(self) -> list[str]:
        """The names of the tables of a problem."""
        return [self._model]

    def _forget(self) -> None:
        """Forgets all that was learned, also on the servers."""
        self._drop_tables()
        for name in ("_rows", "_interrupted", "_sizes", "_normal", *LEARNED):
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
                for trainer, rows in zip(self._trainers, self._rows):
                    trainer.restore(rows)
            except BaseException:
                # Tables with some of the rows. The next call makes others.
                self._drop_tables()
                raise
            del self._rows

    def _learn(self, X: Any, targets: list[Any], importances: Optional[Any], epochs: int) -> None:
        """Learns each problem's targets (float32) of the examples, ``epochs`` times."""
        # After Ctrl-C there are rows to go on with, also without weights.
        has_learned = hasattr(self, "intercept_") or hasattr(self, "_interrupted")
        try:
            self._learn_all(X, targets, importances, epochs)
        except Exception:
            if not has_learned:
                self._forget()
            raise

    def _learn_all(self, X: Any, targets: list[Any], importances: Optional[Any], epochs: int) -> None:
        self._go_on()
        X = self._rows_of(X)
        if self._normal is None:
            self._normal = self._settled(X, targets, importances)
        normals: Sequence[Any] = self._normal or [None] * len(targets)
        wanted = self._features_to_take(X)
        # If Ctrl-C or an error ends this pass, the next one takes the weights of all features.
        self._interrupted = True
        is_shuffled = self.random_state is not None
        read: list[Any] = []
        layers: list[Any] = []
        left_out = 0
        with Bar(type(self).__name__, X.shape[0] * epochs * len(targets), "examples") as bar:
            for at, order in enumerate(self._orders(X.shape[0], epochs)):
                rows = X if order is None else X[order]
                last, passes = not is_shuffled or at + 1 == epochs, 1 if is_shuffled else epochs
                for trainer, target, normal in zip(self._trainers, targets, normals):
                    weights, of_layers, spoiled = trainer.train(
                        self._examples(rows, *in_order(order, target, importances)),
                        np.concatenate([self._keys_of(wanted), INTERCEPT]) if last else NO_KEYS,
                        epochs=passes,
                        batch=self.batch_size,
                        intercept=self.fit_intercept,
                        normalization=normal,
                        progress=bar.update,
                    )
                    bar.part(X.shape[0] * passes)
                    left_out += spoiled
                    if last:
                        read.append(weights)
                        layers.append([layer.astype(np.float64) for layer in of_layers])
        if left_out or not all(np.isfinite(weights).all() for weights in read):
            raise ValueError(
                f"floating-point overflow: {left_out} updates of weights had numbers that float32 cannot hold, and "
                "were left out; scale the features (StandardScaler or MinMaxScaler), or lower alpha"
            )
        self.__dict__.pop("_interrupted", None)
        self._layers = layers
        self._take(wanted, [weights[:-1] for weights in read], [weights[-1] for weights in read])

    def _settled(self, X: Any, targets: list[Any], importances: Optional[Any]) -> Optional[list[Any]]:
        """How the values of a frame are normalized, by its first examples."""
        normals = self._new_normal(len(targets))
        first = slice(_native.SURVEYED_EXAMPLES)
        weights = None if importances is None else importances[first]
        for normal, target in zip(normals or [], targets):
            normal.settle(self._examples(X[first], target[first], weights), self.batch_size)
        return normals

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
        if not hasattr(self, "intercept_") or hasattr(self, "_interrupted"):
            return np.arange(self._width())
        has = np.zeros(self._width(), bool)
        has[X.indices] = True
        return np.flatnonzero(has)

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


def learning(
    model: str,
    rule: tuple[str, list[float]],
    *,
    l2: float = 0.0,
    factors: int = 0,
    deviation: float = 0.0,
    seed: int = 1,
    hidden: Sequence[int] = (),
    fields: int = 0,
) -> _native.Learning:
    return {
        "model": model,
        "rule": rule,
        "l2": l2,
        "factors": factors,
        "deviation": deviation,
        "seed": seed,
        "hidden": list(hidden),
        "fields": fields,
    }


def put(old: Optional[Any], features: Any, new: Any, shape: tuple[int, ...]) -> Any:
    """The array with new values of some features (axis 1). It may have more features than before."""
    array = old
    if old is None or old.shape != shape:
        array = np.zeros(shape)
        if old is not None:
            array[:, : old.shape[1]] = old
    assert array is not None
    array[:, features] = new
    return array
