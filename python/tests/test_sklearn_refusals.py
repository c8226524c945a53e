"""What an estimator refuses, and what is left of it then."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from rows import hashed
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.utils.validation import check_is_fitted
from test_sklearn import same

from gannet.sklearn import FMClassifier, FTRLClassifier, LinearRegressor

ONLINE = [FTRLClassifier(), FMClassifier(), LinearRegressor()]
ALL = [*ONLINE, FTRLClassifier(solver="lbfgs", l2=1.0)]


@pytest.mark.parametrize("estimator", ALL, ids=repr)
def test_a_refused_first_fit_leaves_nothing(estimator: Any) -> None:
    rows, labels = hashed(100, 1)
    model = clone(estimator)
    with pytest.raises(ValueError, match="not a finite number"):
        model.fit(rows * 1e300, labels)
    with pytest.raises(NotFittedError):
        check_is_fitted(model)
    with pytest.raises(NotFittedError):
        model.predict(rows)
    # Another number of features is then as good as any.
    same(model.fit(rows[:, :500], labels), clone(estimator).fit(rows[:, :500], labels))


def test_a_refused_first_partial_fit_leaves_nothing() -> None:
    rows, labels = hashed(100, 1)
    model = FTRLClassifier()
    with pytest.raises(ValueError, match="not a finite number"):
        model.partial_fit(rows * 1e300, labels, [0, 1, 2])
    model.partial_fit(rows[:, :500], labels, [0, 1])
    same(model, FTRLClassifier().partial_fit(rows[:, :500], labels, [0, 1]))


@pytest.mark.parametrize("estimator", ALL, ids=repr)
def test_a_refused_fit_leaves_the_model_as_it_was(estimator: Any) -> None:
    rows, labels = hashed(300, 2)
    model = clone(estimator).set_params(warm_start=True).fit(rows, labels)
    before, copy = model.predict(rows), pickle.loads(pickle.dumps(model))
    with pytest.raises(ValueError, match="has 10 features, but .* is expecting 1000 features"):
        model.fit(rows[:, :10], labels)
    name = "l2" if getattr(estimator, "solver", "") == "lbfgs" else "alpha"
    for wrong in (-1.0, "much"):
        changed: dict[str, Any] = {"warm_start": False, name: wrong}
        model.set_params(**changed)
        with pytest.raises(ValueError, match="alpha|l2"):
            model.fit(rows[:, :10], labels)
        model.set_params(**estimator.get_params())
    if not isinstance(estimator, LinearRegressor):
        with pytest.raises(ValueError, match="one class"):
            model.fit(rows[:, :10], np.zeros(300))
    assert model.n_features_in_ == 1000
    np.testing.assert_array_equal(model.predict(rows), before)
    model.set_params(warm_start=True)
    same(model.fit(rows, labels), copy.fit(rows, labels))


@pytest.mark.parametrize("estimator", ONLINE, ids=repr)
def test_rows_go_on_only_as_they_were_begun(estimator: Any) -> None:
    rows, labels = hashed(300, 3)
    model = clone(estimator).set_params(warm_start=True).fit(rows, labels)
    model, same_as = pickle.loads(pickle.dumps(model)), model
    changes: dict[str, Any] = {"alpha": 0.7, "beta": 2.0, "l1": 0.5, "l2": -1.0, "fit_intercept": False}
    if not isinstance(estimator, FTRLClassifier):
        changes["optimizer"] = "sgd"
    if isinstance(estimator, FMClassifier):
        changes |= {"factors": 3, "deviation": 0.5}
    for name, value in changes.items():
        before = model.get_params()[name]
        model.set_params(**{name: value})
        for call in (model.fit, model.partial_fit):
            with pytest.raises(ValueError, match=f"^{name} is {value!r}, and was {before!r} .*warm_start=False"):
                call(rows, labels)
        model.set_params(**{name: before})
    # These may change.
    for other in (model, same_as):
        other.set_params(batch_size=100, epochs=2, random_state=5).fit(rows, labels)
    same(model, same_as)


def test_rows_do_not_begin_from_weights_of_lbfgs() -> None:
    rows, labels = hashed(300, 4)
    model = FTRLClassifier(solver="lbfgs", l2=1.0, warm_start=True, tol=1e-9).fit(rows, labels)
    coef = model.coef_.copy()
    model.set_params(solver="ftrl")
    with pytest.raises(ValueError, match="warm_start: the last fit was that of solver='lbfgs'"):
        model.fit(rows, labels)
    with pytest.raises(ValueError, match="partial_fit: the last fit was that of solver='lbfgs'"):
        model.partial_fit(rows, labels, [0, 1])
    np.testing.assert_array_equal(model.coef_, coef)
    same(model.set_params(warm_start=False).fit(rows, labels), FTRLClassifier(l2=1.0).fit(rows, labels))
    # The other way is sound: lbfgs begins from any weights.
    model.set_params(solver="lbfgs", warm_start=True).fit(rows, labels)
    np.testing.assert_allclose(model.coef_, coef, rtol=0, atol=1e-6)


def test_balanced_weights_count_sample_weights() -> None:
    """As in LogisticRegression."""
    rows, labels = hashed(600, 5)
    weights = np.random.default_rng(5).uniform(0, 3, 600) * (1 + 4 * labels)
    ours = FTRLClassifier(solver="lbfgs", l2=2.0, tol=1e-9, class_weight="balanced").fit(rows, labels, weights)
    theirs = LogisticRegression(C=0.5, tol=1e-10, max_iter=2000, class_weight="balanced").fit(rows, labels, weights)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, rtol=0, atol=1e-5)
    with pytest.raises(ValueError, match="all examples of class .*1.* have sample_weight 0"):
        ours.fit(rows, labels, 1.0 - labels)


def test_one_class_is_refused() -> None:
    rows, labels = hashed(50, 6)
    for estimator in (FTRLClassifier(), FMClassifier()):
        with pytest.raises(ValueError, match=r"classes is \[0\]; at least 2 classes"):
            estimator.partial_fit(rows[labels == 0], labels[labels == 0], classes=[0])


@pytest.mark.parametrize(
    "estimator, scale",
    [
        (FTRLClassifier(), 1e30),
        (FTRLClassifier(random_state=1, epochs=2), 1e30),
        (FMClassifier(), 1e10),
        (LinearRegressor(), 1e20),
        (LinearRegressor(optimizer="sgd"), 1e15),
    ],
    ids=repr,
)
def test_an_overflow_is_told(estimator: Any, scale: float, cluster: Any) -> None:
    random = np.random.default_rng(0)
    rows = random.normal(size=(1000, 3))
    labels = (rows[:, 0] > 0).astype(int)
    for servers in (None, cluster):
        model = clone(estimator).set_params(servers=servers, normalize=False)
        with pytest.raises(ValueError, match="floating-point overflow: [1-9].* updates .*scale the features"):
            model.fit(rows * scale, labels)
        with pytest.raises(NotFittedError):
            model.predict(rows)
        # What was left out before does not count again.
        model.set_params(alpha=0.01).fit(rows, labels).partial_fit(rows, labels)


def test_wrong_parameters_are_named() -> None:
    rows, labels = hashed(50, 7)
    wrong = [
        (FTRLClassifier(alpha="fast"), "alpha is 'fast'; a finite number"),
        (FTRLClassifier(l1=float("nan")), "l1 is nan; a finite number"),
        (FTRLClassifier(epochs=1.5), "epochs is 1.5; a whole number of 1 or more"),
        (FTRLClassifier(batch_size=0), "batch_size is 0; a whole number"),
        (FTRLClassifier(solver="lbfgs", max_iter=2.5), "max_iter is 2.5; a whole number"),
        (FTRLClassifier(solver="lbfgs", tol="x"), "tol is 'x'; a finite number"),
        (FMClassifier(factors=2.5), "factors is 2.5; a whole number from 1 to 512"),
        (FMClassifier(random_state=-1), "random_state is -1; a whole number"),
    ]
    for estimator, text in wrong:
        with pytest.raises(ValueError, match=text):
            estimator.fit(rows, labels)
    same(FTRLClassifier(epochs=np.int64(2)).fit(rows, labels), FTRLClassifier(epochs=2).fit(rows, labels))
