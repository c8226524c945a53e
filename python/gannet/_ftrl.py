# scikit-learn has no types.
# mypy: disable-error-code="import-untyped,misc,untyped-decorator"
"""Logistic regression."""

from __future__ import annotations

import warnings
from typing import Any, Sequence

import numpy as np

from . import _native
from ._arguments import real, whole
from ._classifier import TableClassifier, targets_of
from ._estimators import INTERCEPT, NO_KEYS, learning, rows_of
from ._progress import Bar
from ._serving import asked_of, draw_names

# After _estimators, which says what is missing without scikit-learn.
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.metaestimators import available_if


def _is_online(estimator: Any) -> bool:
    if estimator.solver == "ftrl":
        return True
    raise AttributeError(
        f"partial_fit: solver={estimator.solver!r} learns the whole data at once; use solver='ftrl'"
    )


def _is_never_online(estimator: Any) -> bool:
    raise AttributeError("partial_fit: L-BFGS learns the whole data at once; use FTRLClassifier")


class Minimizer(TableClassifier):
    """A classifier that L-BFGS can fit: it finds the minimum over all examples."""

    _REMEDY = "raise max_iter, scale the features, or raise l2"

    def _minimize(self, X: Any, y: Any, classes: Any, importances: Any, goes_on: bool) -> None:
        asked, servers = self._lbfgs(), asked_of(self.servers)
        begin = [(NO_KEYS, np.empty(0, np.float32))] * (1 if len(classes) == 2 else len(classes))
        if goes_on:
            frees = self.intercept_ - self._starts(len(self.intercept_))
            begin = [self._begin_from(coef, free) for coef, free in zip(self._weights(), frees)]
        normals = self._new_normal(len(begin))
        if goes_on and normals is not None and self._normal is not None:
            normals = self._normal
        X, targets = rows_of(X), targets_of(y, classes)
        wanted = np.concatenate([self._keys_of(np.arange(X.shape[1])), INTERCEPT])
        names = draw_names(len(targets))
        found = []
        with Bar(type(self).__name__, self.max_iter * len(targets), "iterations") as bar:
            each: Sequence[Any] = normals or [None] * len(begin)
            for target, first, name, normal in zip(targets, begin, names, each):
                examples = self._examples(X, target, importances)
                minimum = _native.train_lbfgs(examples, asked, first, wanted, servers, name, normal, bar.update)
                found.append(minimum)
                bar.part(self.max_iter)
        self._forget()
        self.classes_, self._normal = classes, normals
        weights = np.array([weights for weights, *_ in found])
        self._set_weights(weights[:, :-1], weights[:, -1])
        self.n_iter_ = max(iterations for _, iterations, _, _ in found)
        if not all(converged for _, _, converged, _ in found):
            longest = max(length for *_, length in found)
            warnings.warn(
                f"lbfgs ended at max_iter={self.max_iter}, where the mean gradient has length {longest:.1e} (tol="
                f"{self.tol:g}): {self._REMEDY}",
                ConvergenceWarning,
            )

    def _penalties(self) -> tuple[float, float]:
        """The factors of ``|w|_1`` and of ``|w|^2 / 2``."""
        raise NotImplementedError

    def _lbfgs(self) -> _native.Lbfgs:
        l1, l2 = self._penalties()
        max_iter = whole("max_iter", self.max_iter, 1, 2**32 - 1)
        if not 0 <= real("tol", self.tol) < 1:
            raise ValueError(f"tol={self.tol}: a number from 0 to below 1 is wanted")
        return {
            "l1": l1,
            "l2": l2,
            "intercept": self.fit_intercept,
            "max_iter": max_iter,
            "tol": self.tol,
        }

    def _begin_from(self, coef: Any, intercept: float) -> tuple[Any, Any]:
        """Keys and weights of an earlier fit that are not 0."""
        features = np.flatnonzero(coef)
        keys, weights = self._keys_of(features), coef[features].astype(np.float32)
        if not self.fit_intercept or intercept == 0:
            return keys, weights
        return np.concatenate([keys, INTERCEPT]), np.append(weights, np.float32(intercept))


class FTRLClassifier(Minimizer):
    """Logistic regression with FTRL-Proximal (McMahan et al., KDD 2013, algorithm 1), or with L-BFGS.

    ``solver="ftrl"`` learns the examples one after the other, in their order, ``epochs`` times. ``solver="lbfgs"``
    finds the minimum of the sum of all log losses + ``l2 / 2 |w|^2 + l1 |w|_1`` (with ``l1`` by OWL-QN). The intercept
    has no penalties. A problem with more than two classes becomes one problem for each class against all others.

    Parameters
    ----------
    alpha, beta : float
        For "ftrl": the learning rate of a weight is ``alpha / (beta + sqrt(sum of its squared gradients))``.
    l1, l2 : float
        Regularization, but not of the intercept. With ``l1`` weights of rare features are exactly 0. For "lbfgs"
        scikit-learn's ``C`` is ``1 / l2``. Without ``l2``, "lbfgs" has no minimum for classes that a plane separates:
        it then ends by ``tol``.
    solver : {"ftrl", "lbfgs"}
        How to learn. "lbfgs" has no ``partial_fit``.
    epochs : int
        For "ftrl": passes over the examples of ``fit``. ``partial_fit`` makes one.
    batch_size : int
        For "ftrl": examples that are read, and on servers pulled and pushed, at once. It does not change the result.
    max_iter : int
        For "lbfgs": the most iterations.
    tol : float
        For "lbfgs": the search ends when the gradient of the mean objective is no longer than this. scikit-learn bounds
        its largest part. With ``early_stopping``: by how much a score must be better.
    fit_intercept : bool
        Whether the model has an intercept.
    normalize : bool
        Whether the values of each feature are brought to one size, so that units of measurement do not matter. The
        examples of the first call say how large values are. ``coef_`` is for values as they are. Normalized values
        beyond 16 are learned as 16, which ``coef_`` does not show. "lbfgs" learns matrices as they are.
    class_weight : dict, "balanced" or None
        Weights of classes, as in scikit-learn.
    random_state : int, RandomState or None
        Not None: "ftrl" shuffles the examples before each pass.
    early_stopping : bool
        For "ftrl": whether ``fit`` holds out a share of the examples, stratified by class, and ends when their score
        (``score``, the accuracy) was no better by ``tol`` for ``n_iter_no_change`` passes. It keeps the best pass, and
        ``best_validation_score_`` has its score.
    validation_fraction : float
        The share of the examples that ``early_stopping`` holds out.
    n_iter_no_change : int
        Passes without a better score until ``early_stopping`` ends.
    warm_start : bool
        Whether ``fit`` goes on with the weights of the last ``fit``. "ftrl" goes on with its own rows alone, so not
        after "lbfgs". What the rows depend on must be as it was: ``alpha``, ``beta``, ``l1``, ``l2``,
        ``fit_intercept``, ``normalize``. That holds for ``partial_fit``, too.
    servers : str, list of str, LocalCluster, dict or None
        Where the tables are. None: in this process. Otherwise the servers, as ``gannet.connect`` takes them, or a dict
        of its arguments. python/README.md has more.
    categorical_features, numeric_features : list of str or None
        Columns of a frame that are categories, or numbers, whatever they hold. The values of the others say it.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
    coef_ : ndarray of shape (1, n_features) or (n_classes, n_features), float64
        Of a matrix.
    weights_ : ndarray of shape (1, features) or (n_classes, features), float64
        Of a frame: the weights of its features, for normalized values.
    feature_keys_ : ndarray of shape (features,), uint64
        Of a frame: the keys of its features, as ``gannet.keys`` has them.
    intercept_ : ndarray of shape (1,) or (n_classes,), float64
    n_features_in_ : int
        The columns.
    n_iter_ : int
        Passes of the last ``fit``; for "lbfgs" the iterations of the class that needed most.
    tables_ : list of str
        With ``servers`` and "ftrl": the names of the tables.
    """

    _model = "lr"

    def __init__(
        self,
        alpha: float = 0.1,
        beta: float = 1.0,
        l1: float = 0.0,
        l2: float = 0.0,
        *,
        solver: str = "ftrl",
        epochs: int = 1,
        batch_size: int = 256,
        max_iter: int = 100,
        tol: float = 1e-4,
        fit_intercept: bool = True,
        normalize: bool = True,
        class_weight: Any = None,
        random_state: Any = None,
        warm_start: bool = False,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        n_iter_no_change: int = 5,
        servers: Any = None,
        categorical_features: Any = None,
        numeric_features: Any = None,
    ) -> None:
        self.alpha = alpha
        self.beta = beta
        self.l1 = l1
        self.l2 = l2
        self.solver = solver
        self.epochs = epochs
        self.batch_size = batch_size
        self.max_iter = max_iter
        self.tol = tol
        self.fit_intercept = fit_intercept
        self.normalize = normalize
        self.class_weight = class_weight
        self.random_state = random_state
        self.warm_start = warm_start
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.servers = servers
        self.categorical_features = categorical_features
        self.numeric_features = numeric_features

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> "FTRLClassifier":
        """Learns the examples ``X`` of shape (n, n_features), dense or sparse, with classes ``y`` of shape (n,)."""
        if self.solver not in ("ftrl", "lbfgs"):
            raise ValueError(f"solver is {self.solver!r}; 'ftrl' or 'lbfgs' is wanted")
        return super().fit(X, y, sample_weight)

    partial_fit = available_if(_is_online)(TableClassifier.partial_fit)

    def _learning(self) -> _native.Learning:
        self._check_rates()
        return learning("lr", ("ftrl", [self.alpha, self.beta, self.l1, self.l2]))

    def _fit_classes(self, X: Any, y: Any, classes: Any, importances: Any, goes_on: bool) -> None:
        if self.solver == "ftrl":
            super()._fit_classes(X, y, classes, importances, goes_on)
        else:
            self._minimize(X, y, classes, importances, goes_on)

    def _penalties(self) -> tuple[float, float]:
        for name in ("l1", "l2"):
            real(name, getattr(self, name))
        if self.l1 < 0 or self.l2 < 0:
            raise ValueError(f"l1={self.l1}, l2={self.l2}: 0 or more is wanted")
        return self.l1, self.l2


class LogisticRegression(Minimizer):
    """Logistic regression by L-BFGS, with the parameters of scikit-learn's.

    It finds the minimum of ``C`` times the sum of all log losses + ``(1 - l1_ratio) / 2 |w|^2 + l1_ratio |w|_1`` (with
    ``l1_ratio`` by OWL-QN). The intercept has no penalties. A problem with more than two classes becomes one problem
    for each class against all others, where scikit-learn's learns all classes at once.

    Parameters
    ----------
    C : float
        One over the strength of the penalties. ``numpy.inf``: there are none.
    l1_ratio : float
        0: the penalty is L2. 1: it is L1. Between them it is a mix of both.
    tol : float
        The search ends when the gradient of the mean objective is no longer than this.
    max_iter : int
        The most iterations.
    fit_intercept, class_weight, warm_start, servers, categorical_features, numeric_features
        As for ``FTRLClassifier``. The values of frames are normalized.
    random_state
        Not used: the result does not depend on chance.

    Attributes
    ----------
    classes_, coef_, weights_, feature_keys_, intercept_, n_features_in_, n_iter_
        As for ``FTRLClassifier``.
    """

    _model = "lr"
    _REMEDY = "raise max_iter, scale the features, or lower C"

    def __init__(
        self,
        *,
        C: float = 1.0,
        l1_ratio: float = 0.0,
        tol: float = 1e-4,
        fit_intercept: bool = True,
        class_weight: Any = None,
        random_state: Any = None,
        max_iter: int = 100,
        warm_start: bool = False,
        servers: Any = None,
        categorical_features: Any = None,
        numeric_features: Any = None,
    ) -> None:
        self.C = C
        self.l1_ratio = l1_ratio
        self.tol = tol
        self.fit_intercept = fit_intercept
        self.class_weight = class_weight
        self.random_state = random_state
        self.max_iter = max_iter
        self.warm_start = warm_start
        self.servers = servers
        self.categorical_features = categorical_features
        self.numeric_features = numeric_features

    partial_fit = available_if(_is_never_online)(TableClassifier.partial_fit)

    def _fit_classes(self, X: Any, y: Any, classes: Any, importances: Any, goes_on: bool) -> None:
        self._minimize(X, y, classes, importances, goes_on)

    def _penalties(self) -> tuple[float, float]:
        C = np.inf if self.C == np.inf else real("C", self.C)
        if not C > 0 or not 0 <= real("l1_ratio", self.l1_ratio) <= 1:
            raise ValueError(f"C={self.C}, l1_ratio={self.l1_ratio}: C must be above 0, and l1_ratio from 0 to 1")
        return self.l1_ratio / C, (1.0 - self.l1_ratio) / C
